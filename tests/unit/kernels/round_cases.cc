// SPDX-License-Identifier: MIT
//
// Rounds: step_begin where the GPU makes a step of the one before it (kernels/decoder_args.h).
#include <algorithm>
#include <cstddef>

#include "kernels/choice_args.h"
#include "kernels/decoder_args.h"

#include "unit/kernels/case.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

constexpr uint32_t kRows = 5, kMaxRows = 8, kStops = 3, kNumber = 77;

// Rows that do not go on, a bit each, and what else is so.
struct RoundSpec {
  const char* name;
  uint32_t rounds = 5;  // left, when this one begins
  bool told = true;     // that there is one
  bool recalled = false;
  uint32_t stopped = 0, spent = 0, lost = 0;
  uint32_t ranks = 1, rank = 0;
};

// The block in words, as kernels find it.
struct Block {
  StepHeader header;
  StepRow rows[kRows];
  ChoiceRow choices[kRows];
  LeaseHead lease;
  LeaseRow leases[kRows];
  uint32_t stops[kStops] = {500, 501, 502};
  uint32_t tail = 0xabababab;
};

template <class T>
Bytes BytesOf(const T& value) {
  Bytes out(sizeof(T));
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

uint32_t TokenOf(const RoundSpec& s, uint32_t row) {
  if (s.lost >> row & 1) return kNoToken;
  return s.stopped >> row & 1 ? 500 + row % kStops : 40 + row;
}

Block Before(const RoundSpec& s, uint32_t index) {
  Block b;
  b.header.rows = b.header.logit_rows = kRows;
  b.header.index = index - 1;
  b.header.rounds = s.rounds;
  b.header.rows_at = offsetof(Block, rows) / 4;
  b.header.choices_at = offsetof(Block, choices) / 4;
  b.header.lease_at = offsetof(Block, lease) / 4;
  b.header.splits = 2;
  b.lease.number = kNumber;
  for (uint32_t i = 0; i < kRows; ++i) {
    // Row 3 crosses into another split.
    b.rows[i] = {7 + i, i == 3 ? 2 * kSplitTokens - 1 : 20 + i, 11 * i, i % 2 == 0 ? kHere : i};
    b.choices[i].position = b.rows[i].position + 1;
    b.leases[i] = {s.spent >> i & 1 ? 0 : 4 + i, static_cast<uint32_t>(offsetof(Block, stops)) / 4, kStops, 0};
  }
  return b;
}

Block After(const RoundSpec& s, Block b) {
  const uint32_t still = s.stopped | s.spent, all = (1u << kRows) - 1;
  if (!s.told || s.lost != 0 || still == all) {
    b.header.rounds = kNoRound;
    return b;
  }
  ++b.header.index;
  --b.header.rounds;
  b.header.splits = 1;
  for (uint32_t i = 0; i < kRows; ++i) {
    StepRow& row = b.rows[i];
    if (still >> i & 1) {
      if (row.from != kHere) row.token = 900 + row.from;
      b.leases[i].rounds = 0;
    } else {
      row.token = TokenOf(s, i);
      ++row.position;
      ++b.choices[i].position;
      --b.leases[i].rounds;
    }
    row.from = kHere;
    b.header.splits = std::max(b.header.splits, row.position / kSplitTokens + 1);
  }
  return b;
}

Case RoundCase(const RoundSpec& s, uint32_t index) {
  Case out;
  out.name = absl::StrCat("step_begin, a round: ", s.name, ", step ", index, ", rank ", s.rank, " of ", s.ranks);
  out.bound = "exact";
  const Block before = Before(s, index), after = After(s, before);
  // Chosen by the step before and the one before that, and whether there is a round.
  std::vector<uint64_t> tokens(2 * kMaxRows + 2, 0x0123456789abcdef);
  for (uint32_t i = 0; i < kRows; ++i) {
    tokens[Parity(index - 1) * kMaxRows + i] = TaggedToken(index - 1, TokenOf(s, i));
    tokens[Parity(index) * kMaxRows + i] = TaggedToken(index - 2, 900 + i);
  }
  tokens[2 * kMaxRows + Parity(index)] = TaggedToken(index, s.told ? kGoOn : kEndOfLease);
  std::vector<uint64_t> told = tokens;
  const bool goes_on = after.header.rounds != kNoRound;
  if (s.rank == 0 && goes_on && s.rounds > 1) {
    told[2 * kMaxRows + Parity(index + 1)] = TaggedToken(index + 1, s.recalled ? kEndOfLease : kGoOn);
  }
  out.buffers = {{"to", BytesOf(before), s.rank},
                 {"recall", ToBytes(std::vector<uint32_t>{s.recalled ? kNumber : kNumber - 1}), 0, Home::kHost},
                 {"from", Bytes(256, 0xee), 0, Home::kHost}};
  for (uint32_t r = 0; r < s.ranks; ++r) {
    out.buffers.push_back({absl::StrCat("tokens", r), ToBytes(tokens), r, s.ranks > 1 ? Home::kUncached : Home::kVram});
    out.expectations.push_back(ExactlyValues(absl::StrCat("tokens", r), told));
  }
  LaunchSpec launch = MakeLaunch<StepBeginArgs>("step_begin", 1, [=](StepBeginArgs& args, const Addresses& at) {
    args.from = at.Of<const uint32_t>("from");
    args.to = at.Of<uint32_t>("to");
    args.block_words = 1 << 20;  // nobody looks there
    args.max_rows = kMaxRows;
    for (uint32_t r = 0; r < s.ranks; ++r) args.tokens[r] = at.Of<uint64_t>(absl::StrCat("tokens", r));
    args.recall = at.Of<const uint32_t>("recall");
    args.rank = s.rank;
    args.ranks = s.ranks;
  });
  launch.device = s.rank;
  out.steps = {{launch}};
  out.expectations.push_back(Exactly("to", BytesOf(after)));
  return out;
}

}  // namespace

std::vector<Case> RoundCases() {
  constexpr uint32_t kAll = (1u << kRows) - 1;
  std::vector<Case> all;
  const auto add = [&](RoundSpec s) {
    all.push_back(RoundCase(s, 6));
    all.push_back(RoundCase(s, 0xffffffff));
  };
  add({.name = "all go on"});
  add({.name = "the last", .rounds = 1});
  add({.name = "recalled", .recalled = true});
  add({.name = "told to end", .told = false});
  add({.name = "rows that stop", .stopped = 0b01010});
  add({.name = "rows that may not go on", .stopped = 0b00010, .spent = 0b10011});
  add({.name = "nobody goes on", .stopped = 0b11010, .spent = 0b00111});
  add({.name = "no token", .lost = 0b00100});
  add({.name = "all stop, all spent", .stopped = kAll, .spent = kAll});
  all.push_back(RoundCase({.name = "all go on", .ranks = 2, .rank = 0}, 9));
  all.push_back(RoundCase({.name = "all go on", .ranks = 2, .rank = 1}, 9));
  return all;
}

}  // namespace mainarch::kernels_test
