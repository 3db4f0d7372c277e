// SPDX-License-Identifier: MIT
//
// Litmus kernels of `mainarch probe`: each does what the decoder's kernels do, where an answer that no document
// gives would break them, or leaves out what they do, to show that it can be seen. Waits are bounded.
#ifndef MAINARCH_KERNELS_OPS_LITMUS_H_
#define MAINARCH_KERNELS_OPS_LITMUS_H_

#include "kernels/common/math.h"
#include "kernels/litmus_args.h"
#include "prims.h"

namespace mainarch::kernels {

// Whether `done()` came true within `limit` looks; the most that it ever took is kept.
template <class Done>
DEVICE bool PollBounded(uint32_t limit, uint32_t* most, Done done) {
  for (uint32_t polls = 1; polls <= limit; ++polls) {
    if (done()) {
      *most = Max(*most, polls);
      return true;
    }
    Pause();
  }
  *most = limit;
  return false;
}

struct HandOver {
  using Args = HandOverArgs;
  static constexpr uint32_t kLdsBytes = kWaves * 4;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena arena) {
    if (args.mode & kLitmusSystem) {
      Side<Scope::kSystem>(args, worker, arena);
    } else {
      Side<Scope::kDevice>(args, worker, arena);
    }
  }

  template <Scope kScope>
  DEVICE static void Side(const Args& args, uint32_t worker, Arena arena) {
    const uint32_t pair = worker / (2 * args.apart) * args.apart + worker % args.apart;
    const bool sends = worker / args.apart % 2 == 0;
    const Global<uint32_t> payload = At(args.payload) + pair * kLitmusWords;
    const Global<uint32_t> sent = At(args.flags) + pair * 2 * kLitmusLine, read = sent + kLitmusLine;
    const bool fences = args.mode & kLitmusFences;
    LitmusSeen seen = {XccId(), 0, 0, 0};
    for (uint32_t round = 1; round <= args.rounds; ++round) {
      if (sends) {
        for (uint32_t i = ThreadId(); i < kLitmusWords; i += kThreads) payload[i] = Word(round, i);
        Tell<kScope>(sent, round, fences);
        // The answer is always asked for past the caches: what is tried is the way there.
        if (!Seen<kScope>(read, round, args, false, &seen, arena)) break;
      } else {
        if (!Seen<kScope>(sent, round, args, args.mode & kLitmusPlainPolls, &seen, arena)) break;
        if (fences) FenceAcquire<kScope>();
        for (uint32_t i = ThreadId(); i < kLitmusWords; i += kThreads) {
          seen.wrong += payload[i] != Word(round, i);
        }
        Barrier();
        Tell<kScope>(read, round, false);
      }
      ++seen.rounds;
    }
    seen.wrong = GroupSum<kWaves>(seen.wrong, arena.Get<uint32_t>());
    if (ThreadId() == 0) {
      const Global<uint32_t> out = reinterpret_cast<Global<uint32_t>>(At(args.seen) + worker);
      out[0] = seen.xcd;
      out[1] = seen.rounds;
      out[2] = seen.wrong;
      out[3] = seen.most_polls;
    }
  }

  DEVICE static uint32_t Word(uint32_t round, uint32_t i) { return round << 16 | i; }

  template <Scope kScope>
  DEVICE static void Tell(Global<uint32_t> flag, uint32_t round, bool fences) {
    WaitVectorMemory();
    Barrier();
    if (ThreadId() != 0) return;
    if (fences) FenceRelease<kScope>();
    StoreFlag<kScope>(flag, round);
  }

  // One lane polls; all threads get its answer, and its count of polls.
  template <Scope kScope>
  DEVICE static bool Seen(Global<const uint32_t> flag, uint32_t round, const Args& args, bool plain,
                          LitmusSeen* seen, Arena arena) {
    const Lds<uint32_t> answer = arena.Get<uint32_t>();
    if (ThreadId() == 0) {
      answer[0] = PollBounded(args.limit, &seen->most_polls, [&] {
        if (!plain) return LoadFlag<kScope>(flag) == round;
        return flag[MadeBefore(0u)] == round;  // a load a turn, because nobody knows where
      });
    }
    BarrierLds();
    const bool out = Uniform(+answer[0]) != 0;
    BarrierLds();
    return out;
  }
};

// The largest over the workgroup. `scratch`: a word a wave.
DEVICE uint32_t GroupMost(uint32_t x, Lds<uint32_t> scratch) {
  const uint32_t most = WaveMax(x);
  if (LaneId() == 0) scratch[WaveId()] = most;
  BarrierLds();
  uint32_t out = 0;
  for (uint32_t w = 0; w < kWaves; ++w) out = Max(out, +scratch[w]);
  BarrierLds();
  return out;
}

struct HandWords {
  using Args = WordsArgs;
  static constexpr uint32_t kLdsBytes = kWaves * 4;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena arena) {
    const uint32_t role = args.role == 2 ? worker : args.role;
    const Global<uint64_t> word = At(args.words) + ThreadId();
    const Global<uint32_t> answer = At(args.answers) + ThreadId();
    LitmusSeen seen = {XccId(), 0, 0, 0};
    for (uint32_t round = 1; round <= args.rounds; ++round) {
      if (role == 0) {
        StoreFlag<Scope::kSystem>(word, uint64_t{round} << 32 | Number(round));
        if (!PollBounded(args.limit, &seen.most_polls,
                         [&] { return LoadFlag<Scope::kSystem, uint32_t>(answer) == round; })) {
          break;
        }
      } else {
        uint64_t got = 0;
        if (!PollBounded(args.limit, &seen.most_polls, [&] {
              got = LoadFlag<Scope::kSystem, uint64_t>(word);
              return static_cast<uint32_t>(got >> 32) == round;
            })) {
          break;
        }
        seen.wrong += static_cast<uint32_t>(got) != Number(round);
        StoreFlag<Scope::kSystem>(answer, round);
      }
      ++seen.rounds;
    }
    const Lds<uint32_t> scratch = arena.Get<uint32_t>();
    const uint32_t wrong = GroupSum<kWaves>(seen.wrong, scratch);
    const uint32_t rounds = GroupSum<kWaves>(seen.rounds, scratch);
    const uint32_t polls = GroupMost(seen.most_polls, scratch);
    if (ThreadId() != 0) return;
    const Global<uint32_t> out = reinterpret_cast<Global<uint32_t>>(At(args.seen) + role);
    out[0] = seen.xcd;
    out[1] = rounds / kThreads;
    out[2] = wrong;
    out[3] = polls;
  }

  DEVICE static uint32_t Number(uint32_t round) { return (round * 2654435761u) ^ ThreadId(); }
};

struct LitmusFill {
  using Args = LitmusFillArgs;
  static constexpr uint32_t kLdsBytes = kWaves * 4;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t part = args.check != 0 ? (worker + 1) % workers : worker;
    const Global<uint32_t> words = At(args.words) + part * kLitmusWords;
    uint32_t wrong = 0;
    for (uint32_t i = ThreadId(); i < kLitmusWords; i += kThreads) {
      const uint32_t value = args.value + part * kLitmusWords + i;
      if (args.check != 0) {
        wrong += words[i] != value;
      } else {
        words[i] = value;
      }
    }
    wrong = GroupSum<kWaves>(wrong, arena.Get<uint32_t>());
    if (args.check != 0 && ThreadId() == 0) At(args.wrong)[worker] = wrong;
  }
};

struct LitmusBeside {
  using Args = LitmusBesideArgs;
  static constexpr uint32_t kLdsBytes = 0;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (ThreadId() != 0) return;
    const Global<uint32_t> counter = At(args.counter);
    if (args.waits == 0) {
      AddFlag<Scope::kDevice>(counter, 1u);
      return;
    }
    uint32_t polls = 0;
    const bool here = PollBounded(args.limit, &polls, [&] { return LoadFlag<Scope::kDevice, uint32_t>(counter) >= args.goal; });
    At(args.polls)[worker] = here ? polls : kLitmusInVain;
  }
};

struct LitmusEcho {
  using Args = EchoArgs;
  static constexpr uint32_t kLdsBytes = 0;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (worker == 0 && ThreadId() == 0) At(args.out)[0] = args.value;
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_LITMUS_H_
