// SPDX-License-Identifier: MIT
//
// The all-reduce of a decoder layer, fused with the residual: x += sum of the ranks' partials, in
// the tree of common/tree.h, and the sums of squares that the next norm wants. Push only; nobody reads a peer's
// memory, no host in the loop.
//
// Slots are double buffered by the parity of the epoch. A slot is written again two epochs later,
// when its reader has long gone on: a rank starts epoch e + 2 after it has finished e + 1, for
// which it needed every peer's push of e + 1, which a peer makes after it has finished e. So a flag
// cannot run ahead of who waits for it, and is met exactly: a row that had no turn for 2^31 epochs
// leaves a flag that would count as later than the epoch waited for.
#ifndef MAINARCH_KERNELS_OPS_REDUCE_H_
#define MAINARCH_KERNELS_OPS_REDUCE_H_

#include "kernels/common/tree.h"
#include "kernels/ops/step.h"

namespace mainarch::kernels {

// Elements i .. i + 3 of n: those that there are.
DEVICE void StoreFour(Global<float> to, f32x4 value, uint64_t i, uint64_t n) {
  if (i + 4 <= n) {
    Store16(to, 0, BitCast<u32x4>(value));
    return;
  }
#pragma clang loop unroll(full)
  for (uint32_t k = 0; k < 3; ++k) {
    const float one = value[k];
    if (i + k < n) to[k] = one;
  }
}

// The sum of `ranks` vectors' elements in the tree; load(rank) gives one's. kMost is not less than
// `ranks`: all loads are under way before the first sum is made.
template <uint32_t kMost, class Load>
DEVICE f32x4 SumOfUpTo(uint32_t ranks, Load load) {
  f32x4 parts[kMost];
#pragma clang loop unroll(full)
  for (uint32_t r = 0; r < kMost; ++r) parts[r] = load(Min(r, ranks - 1));
  AddTree(parts, ranks, [](f32x4 a, f32x4 b) { return a + b; });
  return parts[0];
}
template <class Load>
DEVICE f32x4 SumOfRanks(uint32_t ranks, Load load) {
  static_assert(kMaxRanks == 8);
  if (ranks > 4) return SumOfUpTo<8>(ranks, load);
  if (ranks > 2) return SumOfUpTo<4>(ranks, load);
  return SumOfUpTo<2>(ranks, load);
}

struct Reduce {
  using Args = ReduceArgs;
  static constexpr uint32_t kLdsBytes = kRowLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t total = step.rows() * args.chunks;
    const uint32_t epoch = step.index() * args.per_step + args.sequence + 1;
    const bool two_shot = args.ranks > 1 && step.rows() >= args.two_shot_rows;
    // A workgroup pushes all it has before it waits for anything.
    for (uint32_t t = worker; t < total && args.ranks > 1; t += workers) {
      if (!two_shot) {
        for (uint32_t i = 1; i < args.ranks; ++i) {
          Push(args, (args.rank + i) % args.ranks, t, epoch, Partial(args, t));
        }
        PublishAll(args, t, epoch);
      } else if (t % args.ranks != args.rank) {
        Push(args, t % args.ranks, t, epoch, Partial(args, t));
        Publish<Scope::kSystem>(Flag(args, t % args.ranks, args.rank, t, epoch), FlagOf(epoch),
                                ThreadId() == 0);
      }
    }
    if (two_shot) ShareSums(args, worker, workers, total, epoch);
    const RowChunk out = {At(args.x), At(args.squares), args.hidden, args.stride, args.chunks};
    for (uint32_t t = worker; t < total; t += workers) {
      const bool plain = args.mode & kReducePlain;
      f32x4 value = {0, 0, 0, 0};
      if (!plain) value = Own(args, t);
      if (two_shot && t % args.ranks != args.rank) {
        Await<Scope::kSystem, Until::kEqual>(SumFlag(args, args.rank, t, epoch), FlagOf(epoch),
                                             ThreadId() == 0);
      }
      const f32x4 sum = two_shot ? Load(SumSlot(args, args.rank, t, epoch)) : Sum(args, t, epoch);
      if (plain) {
        StoreFour(At(args.x) + IndexOf(args, t), sum, ColumnOf(args, t), args.hidden);
      } else {
        out.Store(t / args.chunks, t % args.chunks, value + sum, arena);
      }
    }
  }

  // Two shots: the sums of the chunks this rank owns, to everybody.
  DEVICE static void ShareSums(const Args& args, uint32_t worker, uint32_t workers, uint32_t total,
                               uint32_t epoch) {
    for (uint32_t t = worker; t < total; t += workers) {
      if (t % args.ranks != args.rank) continue;
      const f32x4 sum = Sum(args, t, epoch);
      for (uint32_t i = 0; i < args.ranks; ++i) {
        Store(SumSlot(args, (args.rank + i) % args.ranks, t, epoch), sum);
      }
      WaitVectorMemory();
      Barrier();
      if (ThreadId() == 0) {
        FenceRelease<Scope::kSystem>();
        for (uint32_t i = 1; i < args.ranks; ++i) {
          StoreFlag<Scope::kSystem>(SumFlag(args, (args.rank + i) % args.ranks, t, epoch),
                                    FlagOf(epoch));
        }
      }
    }
  }

  // What says that `epoch` is there. Each parity has its own flags, so the lowest bit is free: with
  // it set, no epoch looks like the zeros that flags start as, not even epoch 0.
  DEVICE static uint32_t FlagOf(uint32_t epoch) { return epoch | 1; }

  // The ranks' partials of chunk t, in the tree. Waits for all of them first.
  DEVICE static f32x4 Sum(const Args& args, uint32_t t, uint32_t epoch) {
    if (args.ranks > 1) {
      if (ThreadId() < args.ranks && ThreadId() != args.rank) {
        WaitFlag<Scope::kSystem, Until::kEqual>(Flag(args, args.rank, ThreadId(), t, epoch),
                                                FlagOf(epoch));
      }
      Barrier();
      FenceAcquire<Scope::kSystem>();
    }
    const f32x4 own = Partial(args, t);
    if (args.ranks == 1 || ColumnOf(args, t) >= args.hidden) return own;
    const Global<const float> slots = Slot(args, args.rank, 0, t, epoch).at;
    // Nobody writes this rank's own slot: another is looked at in its place, and dropped.
    const uint32_t rank = MadeHere(args.rank), other = rank == 0;
    return SumOfRanks(MadeHere(args.ranks), [&](uint32_t r) {
      const uint64_t from = r == rank ? other : r;
      const f32x4 there = *reinterpret_cast<Global<const f32x4>>(slots + from * SlotFloats(args));
      return r == rank ? own : there;
    });
  }

  DEVICE static uint32_t ColumnOf(const Args& args, uint32_t t) {
    return t % args.chunks * kRowChunk + ThreadId() * 4;
  }
  DEVICE static uint64_t IndexOf(const Args& args, uint32_t t) {
    return uint64_t{t / args.chunks} * args.stride + ColumnOf(args, t);
  }
  // This thread's four columns; threads beyond the row have none.
  DEVICE static f32x4 Load4(const Args& args, Global<const float> base, uint32_t t) {
    f32x4 value = {0, 0, 0, 0};
    if (ColumnOf(args, t) < args.hidden) {
      value = BitCast<f32x4>(Load16(base, IndexOf(args, t) / 4));
    }
    return value;
  }
  DEVICE static f32x4 Partial(const Args& args, uint32_t t) {
    return Load4(args, At(args.partial), t);
  }
  DEVICE static f32x4 Own(const Args& args, uint32_t t) {
    return Load4(args, At(Address<const float>{args.x.address}), t);
  }

  // A slot as this thread sees it: an address, and whether it has columns there.
  struct Place {
    Global<float> at;
    bool real;
  };
  DEVICE static f32x4 Load(Place place) {
    f32x4 value = {0, 0, 0, 0};
    if (place.real) value = *reinterpret_cast<Global<const f32x4>>(place.at);
    return value;
  }
  DEVICE static void Store(Place place, f32x4 value) {
    if (place.real) *reinterpret_cast<Global<f32x4>>(place.at) = value;
  }

  DEVICE static uint64_t SlotFloats(const Args& args) {
    return uint64_t{args.max_rows} * args.stride;
  }
  // Of the widest vector, not of this one: where a flag is must not depend on what is added, or one
  // of another epoch's lies where this epoch's is awaited.
  DEVICE static uint32_t FlagsOf(const Args& args) {
    return args.max_rows * ((args.stride + kRowChunk - 1) / kRowChunk);
  }
  // In `owner`'s memory, written by `from`.
  DEVICE static Place Slot(const Args& args, uint32_t owner, uint32_t from, uint32_t t,
                           uint32_t epoch) {
    const uint64_t slot = (epoch & 1) * args.ranks + from;
    return {At(args.slots[owner]) + slot * SlotFloats(args) + IndexOf(args, t),
            ColumnOf(args, t) < args.hidden};
  }
  DEVICE static Place SumSlot(const Args& args, uint32_t owner, uint32_t t, uint32_t epoch) {
    const uint64_t slot = 2 * args.ranks + (epoch & 1);
    return {At(args.slots[owner]) + slot * SlotFloats(args) + IndexOf(args, t),
            ColumnOf(args, t) < args.hidden};
  }
  DEVICE static Global<uint32_t> Flag(const Args& args, uint32_t owner, uint32_t from, uint32_t t,
                                      uint32_t epoch) {
    return At(args.flags[owner]) + ((epoch & 1) * args.ranks + from) * FlagsOf(args) + t;
  }
  DEVICE static Global<uint32_t> SumFlag(const Args& args, uint32_t owner, uint32_t t,
                                         uint32_t epoch) {
    return At(args.flags[owner]) + (2 * args.ranks + (epoch & 1)) * FlagsOf(args) + t;
  }

  DEVICE static void Push(const Args& args, uint32_t to, uint32_t t, uint32_t epoch, f32x4 value) {
    Store(Slot(args, to, args.rank, t, epoch), value);
  }
  DEVICE static void PublishAll(const Args& args, uint32_t t, uint32_t epoch) {
    WaitVectorMemory();
    Barrier();
    if (ThreadId() == 0) {
      FenceRelease<Scope::kSystem>();
      for (uint32_t i = 1; i < args.ranks; ++i) {
        const uint32_t to = (args.rank + i) % args.ranks;
        StoreFlag<Scope::kSystem>(Flag(args, to, args.rank, t, epoch), FlagOf(epoch));
      }
    }
  }
};

struct SumSlots {
  using Args = SumSlotsArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint64_t quads = (args.count + 3) / 4, stride = args.stride / 4;
    const uint64_t step = uint64_t{workers} * kThreads;
    for (uint64_t i = uint64_t{worker} * kThreads + ThreadId(); i < quads; i += step) {
      const f32x4 sum = SumOfRanks(args.ranks, [&](uint32_t r) {
        return BitCast<f32x4>(Load16(At(args.slots), r * stride + i));
      });
      StoreFour(At(args.out) + i * 4, sum, i * 4, args.count);
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_REDUCE_H_
