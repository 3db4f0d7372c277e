// SPDX-License-Identifier: MIT
//
// The litmus kernels of `mainarch probe`: with all that they can do they are right everywhere.
#include "kernels/litmus_args.h"
#include "unit/kernels/case.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

constexpr uint32_t kLimit = 1 << 20;

// What every side of a hand-over should have seen: polls and places are as they are.
Expectation AllSeen(const std::string& buffer, uint32_t rounds) {
  return {buffer, [=](absl::Span<const uint8_t> bytes) -> std::string {
            const auto seen = FromBytes<LitmusSeen>(bytes);
            for (size_t i = 0; i < seen.size(); ++i) {
              if (seen[i].rounds == rounds && seen[i].wrong == 0 && seen[i].most_polls > 0) continue;
              return absl::StrCat("side ", i, ": ", seen[i].rounds, " rounds, ", seen[i].wrong, " wrong");
            }
            return "";
          }};
}

Case HandOverCase(uint32_t mode, uint32_t apart, Home home) {
  constexpr uint32_t kWorkers = 4, kRounds = 5;
  Case out;
  out.name = absl::StrCat("litmus_hand_over mode ", mode, ", ", apart, " apart");
  out.bound = "exact: every payload as sent";
  out.buffers = {{"payload", Bytes(kWorkers / 2 * kLitmusWords * 4), 0, home},
                 {"flags", Bytes(kWorkers * kLitmusLine * 4), 0, home},
                 {"seen", Bytes(kWorkers * sizeof(LitmusSeen), 0xee)}};
  std::vector<uint32_t> payload;
  for (uint32_t i = 0; i < kWorkers / 2 * kLitmusWords; ++i) {
    payload.push_back(kRounds << 16 | i % kLitmusWords);
  }
  out.expectations = {AllSeen("seen", kRounds), ExactlyValues("payload", payload)};
  out.steps = {{MakeLaunch<HandOverArgs>("litmus_hand_over", kWorkers, [=](HandOverArgs& args, const Addresses& at) {
    args.payload = at.Of<uint32_t>("payload");
    args.flags = at.Of<uint32_t>("flags");
    args.seen = at.Of<LitmusSeen>("seen");
    args.rounds = kRounds;
    args.apart = apart;
    args.mode = mode;
    args.limit = kLimit;
  })}};
  return out;
}

LaunchSpec WordsLaunch(uint32_t role, uint32_t workgroups, uint32_t device, const std::string& seen) {
  return MakeLaunch<WordsArgs>(
      "litmus_words", workgroups,
      [=](WordsArgs& args, const Addresses& at) {
        args.words = at.Of<uint64_t>("words");
        args.answers = at.Of<uint32_t>("answers");
        args.seen = at.Of<LitmusSeen>(seen);
        args.rounds = 7;
        args.role = role;
        args.limit = kLimit;
      },
      device);
}

// The receiver is device 0.
Case WordsCase(bool two) {
  Case out;
  out.name = absl::StrCat("litmus_words of ", two ? "two GPUs" : "one");
  out.bound = "exact: every word as sent";
  const Home home = two ? Home::kUncached : Home::kVram;
  out.buffers = {{"words", Bytes(256 * 8), 0, home},
                 {"answers", Bytes(256 * 4), two ? 1u : 0u, home},
                 {"seen", Bytes(2 * sizeof(LitmusSeen), 0xee)}};
  out.expectations = {ExactlyValues("answers", std::vector<uint32_t>(256, 7))};
  if (!two) {
    out.steps = {{WordsLaunch(2, 2, 0, "seen")}};
    out.expectations.push_back(AllSeen("seen", 7));
    return out;
  }
  out.buffers.push_back({"seen1", Bytes(2 * sizeof(LitmusSeen), 0xee), 1});
  out.steps = {{WordsLaunch(1, 1, 0, "seen"), WordsLaunch(0, 1, 1, "seen1")}};
  return out;
}

// The second workgroup's part has a word that is not right.
Case FillCase() {
  Case out;
  out.name = "litmus_fill";
  out.bound = "exact";
  constexpr uint32_t kGroups = 3, kValue = 5000;
  std::vector<uint32_t> words;
  for (uint32_t i = 0; i < kGroups * kLitmusWords; ++i) words.push_back(kValue + i);
  std::vector<uint32_t> other = words;
  other[kLitmusWords + 77] ^= 4;
  out.buffers = {{"words", Bytes(words.size() * 4, 0xee)},
                 {"other", ToBytes(other)},
                 {"wrong", Bytes(kGroups * 4, 0xee)}};
  const auto launch = [=](const char* of, uint32_t check) {
    return MakeLaunch<LitmusFillArgs>("litmus_fill", kGroups, [=](LitmusFillArgs& args, const Addresses& at) {
      args.words = at.Of<uint32_t>(of);
      args.wrong = at.Of<uint32_t>("wrong");
      args.value = kValue;
      args.check = check;
    });
  };
  out.steps = {{launch("words", 0)}, {launch("other", 1)}};
  out.expectations = {ExactlyValues("words", words), ExactlyValues<uint32_t>("wrong", {1, 0, 0})};
  return out;
}

// Two who count and one who waits for them, one after the other; and one who waits in vain.
Case BesideCase() {
  Case out;
  out.name = "litmus_beside";
  out.bound = "exact";
  out.buffers = {{"counter", Bytes(4)}, {"polls", Bytes(8, 0xee)}, {"vain", Bytes(8, 0xee)}};
  const auto launch = [](const char* polls, uint32_t waits, uint32_t goal) {
    return MakeLaunch<LitmusBesideArgs>("litmus_beside", 2, [=](LitmusBesideArgs& args, const Addresses& at) {
      args.counter = at.Of<uint32_t>("counter");
      args.polls = at.Of<uint32_t>(polls);
      args.waits = waits;
      args.goal = goal;
      args.limit = 5;
    });
  };
  out.steps = {{launch("polls", 0, 0)}, {launch("polls", 1, 2)}, {launch("vain", 1, 3)}};
  out.expectations = {ExactlyValues<uint32_t>("counter", {2}), ExactlyValues<uint32_t>("polls", {1, 1}),
                      ExactlyValues<uint32_t>("vain", {kLitmusInVain, kLitmusInVain})};
  return out;
}

Case EchoCase() {
  Case out;
  out.name = "litmus_echo";
  out.bound = "exact";
  out.buffers = {{"out", Bytes(8, 0xee)}};
  out.steps = {{MakeLaunch<EchoArgs>("litmus_echo", 2, [](EchoArgs& args, const Addresses& at) {
    args.out = at.Of<uint32_t>("out");
    args.value = 0x12345678;
  })}};
  out.expectations = {ExactlyValues<uint32_t>("out", {0x12345678, 0xeeeeeeee})};
  return out;
}

}  // namespace

std::vector<Case> LitmusCases() {
  return {HandOverCase(kLitmusFences, 1, Home::kVram),
          HandOverCase(kLitmusFences | kLitmusSystem, 2, Home::kUncached),
          WordsCase(false),
          WordsCase(true),
          FillCase(),
          BesideCase(),
          EchoCase()};
}

}  // namespace mainarch::kernels_test
