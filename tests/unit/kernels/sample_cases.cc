// SPDX-License-Identifier: MIT
//
// The kernels that choose a token, against the CPU's sampler: the same token, always.
#include <algorithm>
#include <cmath>

#include "backend/amdgpu/choices.h"
#include "decode/sampler.h"
#include "decode/token_mask.h"
#include "kernels/common/draw.h"
#include "unit/kernels/decoder_cases.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;
using decode::SequenceOptions;

struct ChoiceShape {
  uint32_t ranks, vocab, rows;
  uint32_t first_index;  // of the first of two steps
  bool draws;
  uint32_t teams = 2;  // workgroups that narrow
};

// A row of logits and what is asked of it.
struct ChoiceCase {
  std::vector<float> logits;
  SequenceOptions options;
  decode::TokenCounts counts;
  std::vector<uint32_t> banned;
  std::vector<uint32_t> mask;
  bool read_only = false;
};

// `kind` walks through the filters, alone and together; logits of few values have many ties.
ChoiceCase MakeRow(Random& random, uint32_t vocab, uint32_t kind, bool draws) {
  ChoiceCase out;
  out.logits = random.Floats(vocab, 3);
  if (kind % 3 == 1) {
    for (float& logit : out.logits) logit = std::round(logit * 2) / 2;
  }
  SequenceOptions& o = out.options;
  o.seed = random.Next();
  if (draws && kind % 7 != 6) {
    o.temperature = static_cast<float>(0.3 + random.Uniform());
    if (kind & 1) o.top_k = static_cast<uint32_t>(1 + random.Next() % (kind % 4 == 3 ? 80 : 40));
    if (kind & 2) o.top_p = static_cast<float>(0.3 + 0.69 * random.Uniform());
    if (kind & 4) o.min_p = static_cast<float>(0.2 * random.Uniform());
  }
  if (kind % 4 == 2) {
    o.repetition_penalty = 1.3f;
    o.frequency_penalty = 0.5f;
    o.presence_penalty = 0.25f;
    out.counts.Enable(vocab, 400);
    for (uint32_t i = 0; i < 400; ++i) {
      out.counts.Add(static_cast<uint32_t>(random.Next() % vocab), random.Next() % 2 == 0);
    }
  }
  if (kind % 5 == 0) {
    for (uint32_t i = 0; i < 30; ++i) {
      const uint32_t token = static_cast<uint32_t>(random.Next() % vocab);
      o.logit_bias.push_back({token, static_cast<float>(3 * random.Normal())});
      o.logit_bias.push_back({token, 0.1f});
      out.banned.push_back(static_cast<uint32_t>(random.Next() % vocab));
    }
  }
  if (kind % 5 == 3) {
    // Every other token, or one word of them, or nearly none.
    for (uint32_t word = 0; word < decode::MaskWords(vocab); ++word) {
      const bool here = kind % 2 == 0 || word == 5;
      out.mask.push_back(here ? static_cast<uint32_t>(random.Next()) : 0);
    }
  }
  const size_t somewhere = random.Next() % vocab;
  if (kind == 11) out.logits[somewhere] = NAN;
  if (kind == 12) out.logits[somewhere] = INFINITY;
  if (kind == 13) std::fill(out.logits.begin(), out.logits.end(), -INFINITY);
  if (kind == 14) std::fill(out.logits.begin(), out.logits.end(), 1.5f);
  if (kind == 15) out.read_only = true;
  return out;
}

struct ChoiceStep {
  std::vector<ChoiceCase> rows;
  std::vector<ChoiceResult> results;
  std::vector<bool> wanted;  // a token of the row is
  Bytes block;
};

ChoiceStep MakeStep(Random& random, const ChoiceShape& s, uint32_t index) {
  ChoiceStep out;
  backend::Step step;
  std::vector<backend::Choice> choices;
  std::vector<uint32_t> logit_rows;
  decode::Sampler sampler(s.vocab);
  for (uint32_t row = 0; row < s.rows; ++row) {
    out.rows.push_back(MakeRow(random, s.vocab, row + index % 3, s.draws));
  }
  for (ChoiceCase& row : out.rows) {
    decode::SampleRequest request;
    request.options = &row.options;
    request.counts = &row.counts;
    request.ban_eos = row.banned;
    request.mask = row.mask;
    request.position = 77 + index;
    choices.push_back(row.read_only ? backend::Choice() : decode::ChoiceOf(request));
    if (choices.size() % 4 == 0) choices.back().read = true;
    logit_rows.push_back(static_cast<uint32_t>(logit_rows.size()));
    const auto token = sampler.Sample(absl::MakeSpan(row.logits), request);
    const bool chosen = token.ok() && !row.read_only;
    out.results.push_back({chosen ? *token : 0, chosen});
    out.wanted.push_back(!row.read_only);
  }
  step.logit_rows = logit_rows;
  step.choices = choices;
  StepHeader header;
  header.rows = header.logit_rows = s.rows;
  header.index = index;
  header.choices_at = sizeof(header) / 4;
  std::vector<uint32_t> block(1 << 16);
  std::vector<amdgpu::RowOutcome> outcomes(s.rows);
  const amdgpu::ChoiceWork work = amdgpu::WriteChoices(step, header.choices_at, 1 << 16,
                                                       block.data(), absl::MakeSpan(outcomes));
  std::memcpy(block.data(), &header, sizeof(header));
  block.resize(work.end);
  out.block = ToBytes(block);
  for (uint32_t row = 0; row < s.rows; ++row) out.rows[row].read_only = outcomes[row].read;
  return out;
}

std::string Of(const char* what, uint32_t rank, uint32_t round) {
  return absl::StrCat(what, rank, "_", round);
}

uint32_t FirstOf(const ChoiceShape& s, uint32_t rank) {
  return rank == s.ranks ? s.vocab : s.vocab / 16 * rank / s.ranks * 16;
}

LaunchSpec ChooseLaunch(const char* kernel, const ChoiceShape& s, uint32_t workgroups,
                        uint32_t rank, uint32_t round, ChoosePart part = kChooseBoth) {
  return MakeLaunch<ChooseArgs>(
      kernel, workgroups,
      [=](ChooseArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>(Of("step", rank, round));
        args.logits = at.Of<const float>(Of("logits", rank, round));
        args.host_logits = at.Of<float>(absl::StrCat("host_logits", round));
        args.results = at.Of<ChoiceResult>(absl::StrCat("results", round));
        args.fields = at.Of<RaceField>(absl::StrCat("fields", rank));
        args.teams = at.Of<uint64_t>(absl::StrCat("teams", rank));
        args.races = at.Of<uint64_t>(absl::StrCat("races", rank));
        args.part = part;
        for (uint32_t r = 0; r < s.ranks; ++r) {
          args.values[r] = at.Of<float>(absl::StrCat("values", r));
          args.found[r] = at.Of<uint64_t>(absl::StrCat("found", r));
          args.flags[r] = at.Of<uint32_t>(absl::StrCat("flags", r));
          args.tokens[r] = at.Of<uint64_t>(absl::StrCat("tokens", r));
          args.chunks = std::max(
              args.chunks, (FirstOf(s, r + 1) - FirstOf(s, r) + kChoiceChunk - 1) / kChoiceChunk);
        }
        args.vocab = s.vocab;
        args.vocab_stride = RoundUp(s.vocab, 16);
        args.share_first = FirstOf(s, rank);
        args.share = FirstOf(s, rank + 1) - args.share_first;
        args.share_stride = RoundUp(args.share, 16);
        args.slots = (s.rows + s.ranks - 1) / s.ranks;
        args.ranks = s.ranks;
        args.rank = rank;
        args.mass_shift = MassShift(s.vocab);
        args.max_rows = s.rows;
      },
      rank);
}

// Two steps. In each, who waits for others' chunks runs beside those who send them.
Case SampleCase(const ChoiceShape& s, uint64_t seed) {
  Random random(seed);
  Case out;
  out.name = absl::StrCat("choose ", s.ranks, " ranks, ", s.rows, " rows of ", s.vocab,
                          s.draws ? absl::StrCat(", drawn, ", s.teams, " narrow") : ", greedy", ", step ",
                          s.first_index);
  out.bound = "the tokens of the CPU's sampler";
  const uint32_t slots = (s.rows + s.ranks - 1) / s.ranks, stride = RoundUp(s.vocab, 16);
  const uint32_t units = s.ranks * 8;  // more than enough
  for (uint32_t r = 0; r < s.ranks; ++r) {
    const Home flags = s.ranks > 1 ? Home::kUncached : Home::kVram;
    out.buffers.push_back(
        {absl::StrCat("values", r), Bytes(size_t{slots} * stride * 4, 0xff), r, flags});
    out.buffers.push_back(
        {absl::StrCat("found", r), Bytes(size_t{slots} * units * kFoundWords * 8), r, flags});
    out.buffers.push_back({absl::StrCat("flags", r), Bytes(2 * slots * units * 4), r, flags});
    // Narrowing leaves its sums as it found them.
    const Bytes teams(size_t{kRaceTeams} * kRaceTeamWords * 8);
    out.buffers.push_back({absl::StrCat("teams", r), teams, r});
    out.expectations.push_back(Exactly(absl::StrCat("teams", r), teams));
    out.buffers.push_back({absl::StrCat("fields", r), Bytes(slots * sizeof(RaceField), 0xee), r});
    out.buffers.push_back(
        {absl::StrCat("tokens", r), Bytes(size_t{2} * s.rows * 8, kUntouchedByte), r, flags});
    out.buffers.push_back(
        {absl::StrCat("races", r), Bytes(slots * kRacerWords * 8 * (s.vocab / kChoiceChunk + 1)), r});
  }
  // What every rank is told, of both steps: what a row that chose none holds is not looked at.
  std::vector<uint64_t> tokens(size_t{2} * s.rows);
  std::memset(tokens.data(), kUntouchedByte, tokens.size() * 8);
  for (uint32_t round = 0; round < 2; ++round) {
    const ChoiceStep step = MakeStep(random, s, s.first_index + round);
    // Each step has the half of its parity; the other one stays as it is.
    const uint32_t index = s.first_index + round, half_at = Parity(index) * s.rows;
    Bytes host(size_t{2} * s.rows * stride * 4, kUntouchedByte);
    const Bytes untouched = host;
    std::vector<ChoiceResult> results(size_t{kResultSlots} * s.rows);
    std::copy(step.results.begin(), step.results.end(), results.begin() + index % kResultSlots * s.rows);
    for (uint32_t row = 0; row < s.rows; ++row) {
      if (!step.wanted[row]) continue;
      const ChoiceResult& result = step.results[row];
      tokens[half_at + row] = TaggedToken(index, result.chosen ? result.token : kNoToken);
    }
    for (uint32_t r = 0; r < s.ranks; ++r) {
      const uint32_t first = FirstOf(s, r), count = FirstOf(s, r + 1) - first;
      std::vector<float> logits(size_t{2} * s.rows * RoundUp(count, 16), 1e30f);
      for (uint32_t row = 0; row < s.rows; ++row) {
        std::copy_n(step.rows[row].logits.begin() + first, count,
                    logits.begin() + size_t{half_at + row} * RoundUp(count, 16));
        if (step.rows[row].read_only) {
          std::memcpy(&host[(size_t{half_at + row} * stride + first) * 4], &step.rows[row].logits[first],
                      count * 4);
        }
      }
      out.buffers.push_back({Of("step", r, round), step.block, r});
      out.buffers.push_back({Of("logits", r, round), ToBytes(logits), r});
    }
    out.buffers.push_back(
        {absl::StrCat("results", round), Bytes(results.size() * 8), 0, Home::kHost});
    out.buffers.push_back({absl::StrCat("host_logits", round), untouched, 0, Home::kHost});
    out.expectations.push_back(ExactlyValues(absl::StrCat("results", round), results));
    out.expectations.push_back(Exactly(absl::StrCat("host_logits", round), host));
    // As many wait as rows are owned. In the second step by a launch of their own.
    const uint32_t waiting = std::max(3u, slots), narrow = s.teams;
    std::vector<LaunchSpec> share, wait, race;
    for (uint32_t r = 0; r < s.ranks; ++r) {
      const ChoosePart part = round == 0 ? kChooseBoth : kChooseTell;
      share.push_back(ChooseLaunch("choose_share", s, round == 0 ? waiting : 3, r, round, part));
      if (round != 0) wait.push_back(ChooseLaunch("choose_share", s, waiting, r, round, kChooseWait));
      // It waits for the logits that come from other ranks.
      share.push_back(ChooseLaunch("choose_narrow", s, narrow, r, round));
      race.push_back(ChooseLaunch("choose_race", s, 3, r, round));
    }
    for (auto* together : {&share, &wait, &race}) {
      if (!together->empty()) out.steps.push_back(*together);
    }
  }
  for (uint32_t r = 0; r < s.ranks; ++r) {
    out.expectations.push_back(ExactlyValues(absl::StrCat("tokens", r), tokens));
  }
  return out;
}

}  // namespace

std::vector<Case> SampleCases() {
  return {
      // Small ones first: most of what is broken shows there.
      SampleCase({1, 63, 9, 1, true}, 4),
      SampleCase({2, 500, 5, 2, false}, 7),
      SampleCase({4, 300, 16, 5, true}, 3),
      SampleCase({4, 300, 9, 3, true, 1}, 8),
      SampleCase({8, 300, 10, 0xffffffff, true}, 10),
      SampleCase({8, 16500, 9, 6, false}, 9),
      SampleCase({1, 2048, 3, 0x7fffffff, false}, 5),
      SampleCase({4, 16400, 2, 0xffffffff, false}, 6),
      // Two teams, one that is not whole, one workgroup for all; a team for each of a few rows.
      SampleCase({1, 4499, 16, 0, true, 7}, 1),
      SampleCase({1, 6200, 6, 8, true, 3}, 11),
      SampleCase({2, 4503, 16, 0xfffffffe, true, 20}, 2),
  };
}

}  // namespace mainarch::kernels_test
