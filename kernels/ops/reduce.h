// SPDX-License-Identifier: MIT
//
// The all-reduce of a decoder layer, fused with the residual: x += sum of the ranks' partials, in
// the tree of common/tree.h, and what the next norm and product want. Push only; nobody reads a
// peer's memory, no host in the loop.
//
// One round (few rows): each element is pushed with its epoch, in one word of 64 bits, which arrives
// whole or not at all. So nothing has to be ordered: no flag, no fence, no wait between data and
// flag; who waits asks for all of its words until all have this epoch. Two rounds (many rows) push
// bare data, and a flag behind it.
//
// Slots are double buffered by the parity of the epoch. A slot is written again two epochs later,
// when its reader has long gone on: a rank starts epoch e + 2 after it has finished e + 1, for
// which it needed every peer's push of e + 1, which a peer makes after it has finished e. So a flag
// cannot run ahead of who waits for it, and is met exactly: a row that had no turn for 2^31 epochs
// leaves a flag that would count as later than the epoch waited for.
#ifndef MAINARCH_KERNELS_OPS_REDUCE_H_
#define MAINARCH_KERNELS_OPS_REDUCE_H_

#include "kernels/common/kernel.h"
#include "kernels/common/tree.h"
#include "kernels/ops/step.h"
#include "kernels/ops/told.h"

namespace mainarch::kernels {

// The sum of `ranks` vectors' elements in the tree; load(rank) gives one's. kMost is not less than
// `ranks`: all loads are under way before the first sum is made.
template <uint32_t kMost, class Load>
DEVICE auto SumOfUpTo(uint32_t ranks, Load load) {
  decltype(load(0)) parts[kMost];
#pragma clang loop unroll(full)
  for (uint32_t r = 0; r < kMost; ++r) parts[r] = load(Min(r, ranks - 1));
  AddTree(parts, ranks, [](auto a, auto b) { return a + b; });
  return parts[0];
}
template <class Load>
DEVICE auto SumOfRanks(uint32_t ranks, Load load) {
  static_assert(kMaxRanks == 8);
  if (ranks > 4) return SumOfUpTo<8>(ranks, load);
  if (ranks > 2) return SumOfUpTo<4>(ranks, load);
  return SumOfUpTo<2>(ranks, load);
}

// What both forms of the all-reduce have in common: unit t is chunk t % chunks of row t / chunks, of
// which a thread has kPieceColumns columns.
struct ReduceUnit {
  uint32_t row, column;
  bool real;  // there are such columns
  uint64_t at;  // elements from the start of [rows, stride]

  DEVICE ReduceUnit(const ReduceArgs& args, uint32_t t) {
    row = t / args.chunks;
    column = (t - row * args.chunks) * kRowChunk + ThreadId() * kPieceColumns;
    real = column < args.hidden;
    at = uint64_t{row} * args.stride + column;
  }
};

// This rank's part of the sum, and where the sum goes.
DEVICE RowPiece PartialOf(const ReduceArgs& args, const ReduceUnit& unit) {
  if (!unit.real) return RowPiece{0, 0};
  return SumSplits(reinterpret_cast<Global<const RowPiece>>(At(args.partial) + unit.at),
                   args.splits, uint64_t{args.split_rows} * args.stride / kPieceColumns);
}
DEVICE RowPiece ResidualOf(const ReduceArgs& args, const ReduceUnit& unit) {
  if ((args.mode & (kReducePlain | kReduceSet)) != 0 || !unit.real) return RowPiece{0, 0};
  return *reinterpret_cast<Global<const RowPiece>>(At(args.out.x) + unit.at);
}
// What StoreSum multiplies by.
DEVICE RowPiece WeightsOf(const ReduceArgs& args, const ReduceUnit& unit, uint32_t t) {
  if (args.mode & kReducePlain) return RowPiece{1, 1};
  const RowChunk out = {args.out, args.hidden, args.stride, args.chunks};
  return out.Weights(t - unit.row * args.chunks);
}
DEVICE void StoreSum(const ReduceArgs& args, const ReduceUnit& unit, uint32_t t, RowPiece residual,
                     RowPiece weights, RowPiece sum, Arena arena) {
  if (args.mode & kReducePlain) {
    const float first = sum[0], second = sum[1];
    if (unit.real) At(args.out.x)[unit.at] = first;
    if (unit.column + 1 < args.hidden) At(args.out.x)[unit.at + 1] = second;
    return;
  }
  const RowChunk out = {args.out, args.hidden, args.stride, args.chunks};
  out.Store(unit.row, t - unit.row * args.chunks, residual + sum, weights, arena);
}

DEVICE uint32_t EpochOf(const ReduceArgs& args, const StepView& step) {
  return step.index() * args.per_step + args.sequence + 1;
}
// What says that `epoch` is there. Each parity has its own slots, so the lowest bit is free: with
// it set, no epoch looks like the zeros that slots start as, not even epoch 0.
DEVICE uint32_t FlagOf(uint32_t epoch) { return epoch | 1; }

// One round.
struct Reduce {
  using Args = ReduceArgs;
  static constexpr uint32_t kLdsBytes = kRowLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    if (args.ranks == 1) return Alone(args, worker, workers, arena);
    const StepView step(args.step);
    const uint32_t total = step.rows() * args.chunks, epoch = EpochOf(args, step);
    // A workgroup pushes all it has before it waits for anything.
    for (uint32_t t = worker; t < total; t += workers) {
      const Args push = ReadArgumentsAgain<Args>();
      Push(push, ReduceUnit(push, t), epoch);
    }
    for (uint32_t t = worker; t < total; t += workers) {
      const Args sum = ReadArgumentsAgain<Args>();
      const ReduceUnit unit(sum, t);
      const RowPiece residual = ResidualOf(sum, unit), weights = WeightsOf(sum, unit, t);
      const RowPiece all = Sum(sum, unit, epoch);
      StoreSum(ReadArgumentsAgain<Args>(), unit, t, residual, weights, all, arena);
    }
  }

  DEVICE static void Alone(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t total = StepView(args.step).rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      const ReduceUnit unit(args, t);
      const RowPiece residual = ResidualOf(args, unit), weights = WeightsOf(args, unit, t);
      StoreSum(args, unit, t, residual, weights, PartialOf(args, unit), arena);
    }
  }

  // Words of 64 bits from the start of a rank's pairs to those of `from`; and to this thread's first column.
  DEVICE static uint64_t PairsOf(const Args& args, uint32_t from, uint32_t epoch) {
    return ((epoch & 1) * args.ranks + from) * (uint64_t{args.pair_rows} * args.stride);
  }
  DEVICE static uint64_t PairAt(const Args& args, const ReduceUnit& unit, uint32_t from,
                                uint32_t epoch) {
    return PairsOf(args, from, epoch) + unit.at;
  }

  // One element, to all other ranks.
  DEVICE static void PushElement(const Args& args, uint32_t row, uint32_t column, uint32_t epoch, float value) {
    const uint64_t at = PairsOf(args, args.rank, epoch) + uint64_t{row} * args.stride + column;
#pragma clang loop unroll(full)
    for (uint32_t to = 0; to < kMaxRanks; ++to) {
      if (to >= args.ranks || to == args.rank) continue;
      StoreFlag<Scope::kSystem>(reinterpret_cast<Global<uint64_t>>(At(args.exchange[to]) + args.pairs_at) + at,
                                TaggedWord(FlagOf(epoch), value));
    }
  }

  DEVICE static void Push(const Args& args, const ReduceUnit& unit, uint32_t epoch) {
    PushSum(args, unit, epoch, PartialOf(args, unit));
  }
  DEVICE static void PushSum(const Args& args, const ReduceUnit& unit, uint32_t epoch, RowPiece partial) {
    if (!unit.real) return;
    const uint64_t tag = uint64_t{FlagOf(epoch)} << 32;
    const float first = partial[0], second = partial[1];
    const uint64_t a = tag | BitCast<uint32_t>(first), b = tag | BitCast<uint32_t>(second);
    const uint64_t at = args.pairs_at + PairAt(args, unit, args.rank, epoch) * 8;
#pragma clang loop unroll(full)
    for (uint32_t to = 0; to < kMaxRanks; ++to) {
      if (to >= args.ranks || to == args.rank) continue;
      const Global<uint64_t> slot =
          reinterpret_cast<Global<uint64_t>>(At(args.exchange[to]) + at);
      StoreFlag<Scope::kSystem>(slot, a);
      StoreFlag<Scope::kSystem>(slot + 1, b);
    }
  }

  DEVICE static RowPiece Sum(const Args& args, const ReduceUnit& unit, uint32_t epoch) {
    RowPiece sum = PartialOf(args, unit);
    AddRanks(args, unit, epoch, sum);
    return sum;
  }
  // `sum`: this rank's partial, and then all ranks'.
  DEVICE static void AddRanks(const Args& args, const ReduceUnit& unit, uint32_t epoch, RowPiece& sum) {
    if (!unit.real) return;
    if (args.ranks > 4) {
      Collect<8>(args, unit, epoch, sum);
    } else if (args.ranks > 2) {
      Collect<4>(args, unit, epoch, sum);
    } else {
      Collect<2>(args, unit, epoch, sum);
    }
  }
  // The same of so many ranks at most. Nobody writes this rank's own slot: another is
  // looked at in its place, and dropped.
  template <uint32_t kMost>
  DEVICE static void Collect(const Args& args, const ReduceUnit& unit, uint32_t epoch,
                             RowPiece& sum) {
    const Global<const uint64_t> slots = reinterpret_cast<Global<const uint64_t>>(
        At(args.exchange_own) + args.pairs_at + PairAt(args, unit, 0, epoch) * 8);
    const uint64_t apart = uint64_t{args.pair_rows} * args.stride;
    const uint32_t tag = FlagOf(epoch), other = args.rank == 0;
    RowPiece parts[kMost];
    while (true) {
      uint64_t words[kMost][kPieceColumns];
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kMost; ++r) {
        const uint32_t from = r == args.rank || r >= args.ranks ? other : r;
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kPieceColumns; ++i) {
          words[r][i] = LoadFlag<Scope::kSystem>(slots + from * apart + i);
        }
      }
      bool here = true;
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kMost; ++r) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kPieceColumns; ++i) {
          const uint64_t word = words[r][i];
          here &= static_cast<uint32_t>(word >> 32) == tag;
          parts[r][i] = BitCast<float>(static_cast<uint32_t>(word));
        }
        if (r == args.rank) parts[r] = sum;
      }
      if (here) break;
      Pause();
    }
    AddTree(parts, args.ranks, [](RowPiece a, RowPiece b) { return a + b; });
    sum = parts[0];
  }
};

// Two rounds: a chunk's partials to its owner, and the owner's sum to all. The same additions in the
// same order: the same bits.
struct ReduceTwice {
  using Args = ReduceArgs;
  static constexpr uint32_t kLdsBytes = kRowLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t total = step.rows() * args.chunks, epoch = EpochOf(args, step);
    // A workgroup pushes all it has before it waits for anything.
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t owner = t % args.ranks;
      if (owner == args.rank) continue;
      const ReduceUnit unit(args, t);
      Store(SlotOf(args, owner, args.rank, unit, epoch), unit.real, PartialOf(args, unit));
      Publish<Scope::kSystem>(Flag(args, owner, args.rank, t, epoch), FlagOf(epoch),
                              ThreadId() == 0);
    }
    for (uint32_t t = worker; t < total; t += workers) {
      if (t % args.ranks == args.rank) ShareSum(args, t, epoch);
    }
    for (uint32_t t = worker; t < total; t += workers) {
      const ReduceUnit unit(args, t);
      const RowPiece residual = ResidualOf(args, unit);
      if (t % args.ranks != args.rank) {
        Await<Scope::kSystem, Until::kEqual>(SumFlag(args, args.rank, t, epoch), FlagOf(epoch),
                                             ThreadId() == 0);
      }
      RowPiece sum = {0, 0};
      if (unit.real) {
        sum = *reinterpret_cast<Global<const RowPiece>>(SumSlot(args, args.rank, unit, epoch));
      }
      StoreSum(args, unit, t, residual, WeightsOf(args, unit, t), sum, arena);
    }
  }

  // The sum of a chunk that this rank owns, to everybody.
  DEVICE static void ShareSum(const Args& args, uint32_t t, uint32_t epoch) {
    const ReduceUnit unit(args, t);
    if (ThreadId() < args.ranks && ThreadId() != args.rank) {
      WaitFlag<Scope::kSystem, Until::kEqual>(Flag(args, args.rank, ThreadId(), t, epoch),
                                              FlagOf(epoch));
    }
    Barrier();
    FenceAcquire<Scope::kSystem>();
    const RowPiece sum = Sum(args, unit, epoch);
    for (uint32_t i = 0; i < args.ranks; ++i) {
      Store(SumSlot(args, (args.rank + i) % args.ranks, unit, epoch), unit.real, sum);
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

  // Nobody writes this rank's own slot: another is looked at in its place, and dropped.
  DEVICE static RowPiece Sum(const Args& args, const ReduceUnit& unit, uint32_t epoch) {
    const RowPiece own = PartialOf(args, unit);
    if (!unit.real) return own;
    const Global<const float> slots = SlotOf(args, args.rank, 0, unit, epoch);
    const uint32_t rank = MadeHere(args.rank), other = rank == 0;
    return SumOfRanks(MadeHere(args.ranks), [&](uint32_t r) {
      const uint64_t from = r == rank ? other : r;
      const RowPiece there =
          *reinterpret_cast<Global<const RowPiece>>(slots + from * SlotFloats(args));
      return r == rank ? own : there;
    });
  }

  DEVICE static void Store(Global<float> to, bool real, RowPiece value) {
    if (real) *reinterpret_cast<Global<RowPiece>>(to) = value;
  }
  DEVICE static uint64_t SlotFloats(const Args& args) {
    return uint64_t{args.max_rows} * args.stride;
  }
  // Of the widest vector, not of this one: where a flag is must not depend on what is added, or one
  // of another epoch's lies where this epoch's is awaited.
  DEVICE static uint32_t FlagsOf(const Args& args) {
    return args.max_rows * CeilDiv(args.stride, kRowChunk);
  }
  // In `owner`'s memory, written by `from`.
  DEVICE static Global<float> SlotOf(const Args& args, uint32_t owner, uint32_t from,
                                     const ReduceUnit& unit, uint32_t epoch) {
    return Floats(args, owner) + ((epoch & 1) * args.ranks + from) * SlotFloats(args) + unit.at;
  }
  DEVICE static Global<float> SumSlot(const Args& args, uint32_t owner, const ReduceUnit& unit,
                                      uint32_t epoch) {
    return Floats(args, owner) + (2 * args.ranks + (epoch & 1)) * SlotFloats(args) + unit.at;
  }
  DEVICE static Global<float> Floats(const Args& args, uint32_t owner) {
    return reinterpret_cast<Global<float>>(At(args.exchange[owner]));
  }
  DEVICE static Global<uint32_t> Flag(const Args& args, uint32_t owner, uint32_t from, uint32_t t,
                                      uint32_t epoch) {
    return Flags(args, owner) + ((epoch & 1) * args.ranks + from) * FlagsOf(args) + t;
  }
  DEVICE static Global<uint32_t> SumFlag(const Args& args, uint32_t owner, uint32_t t,
                                         uint32_t epoch) {
    return Flags(args, owner) + (2 * args.ranks + (epoch & 1)) * FlagsOf(args) + t;
  }
  DEVICE static Global<uint32_t> Flags(const Args& args, uint32_t owner) {
    return reinterpret_cast<Global<uint32_t>>(At(args.exchange[owner]) + args.flags_at);
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

  // Elements i .. i + 3 of n: those that there are.
  DEVICE static void StoreFour(Global<float> to, f32x4 value, uint64_t i, uint64_t n) {
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
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_REDUCE_H_
