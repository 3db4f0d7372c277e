// SPDX-License-Identifier: MIT
//
// A product whose sums go to x, and the all-reduce behind it, in one launch of few rows: of the workgroups that have
// output tiles of a chunk of x the last one adds it up, with all ranks, as ops/reduce.h does.
#ifndef MAINARCH_KERNELS_OPS_MATMUL_REDUCE_H_
#define MAINARCH_KERNELS_OPS_MATMUL_REDUCE_H_

#include "kernels/ops/matmul.h"
#include "kernels/ops/reduce.h"

namespace mainarch::kernels {

// No bit of a sum depends on who adds it up. Workgroups push all chunks that they are the last of before they wait
// for any, and those that wait are no more than there are chunks: so all others find room.
template <TileFormat kFormat, bool kRounded = false>
struct MatmulReduce {
  using Args = MatmulReduceArgs;
  using Product = Matmul<kFormat, /*kGateUp=*/false, kRounded>;
  static constexpr uint32_t kLdsBytes = Product::kLdsBytes;
  static constexpr uint32_t kChunkTiles = kRowChunk / kTileRows;
  static_assert(kReduceChunks <= 64);

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    Product::Run(args.product, worker, workers, arena);
    // What nobody writes before this workgroup is counted, while its own sums are on their way: of the first row of
    // its chunk, where it is most often the last, and all that is wanted.
    const Args again = ReadArgumentsAgain<Args>();
    const StepView step(again.product.step);
    const uint32_t rows = step.rows(), epoch = EpochOf(again.reduce, step);
    const uint32_t own = FirstChunkOf(again, worker);
    ReduceUnit own_unit(again.reduce, own);
    own_unit.real = own_unit.real && HasUnits(again, worker);
    const RowPiece own_residual = ResidualOf(again.reduce, own_unit);
    const RowPiece own_weights = WeightsOf(again.reduce, own_unit, own);
    uint64_t last = LastOf(worker, workers, arena);
    if (last != 0) {
      FenceAcquire<Scope::kDevice>();
      if (again.reduce.ranks > 1) {
        ForEachUnit(last, rows, again.reduce.chunks, [&](uint32_t t) {
          const ReduceArgs push = ReadArgumentsAgain<Args>().reduce;
          Reduce::Push(push, ReduceUnit(push, t), epoch);
        });
      }
      ForEachUnit(last, rows, again.reduce.chunks, [&](uint32_t t) {
        const ReduceArgs sum = ReadArgumentsAgain<Args>().reduce;
        const ReduceUnit unit(sum, t);
        const bool asked = t == own;
        const RowPiece residual = asked ? own_residual : ResidualOf(sum, unit);
        const RowPiece weights = asked ? own_weights : WeightsOf(sum, unit, t);
        const RowPiece all = sum.ranks > 1 ? Reduce::Sum(sum, unit, epoch) : PartialOf(sum, unit);
        StoreSum(ReadArgumentsAgain<Args>().reduce, unit, t, residual, weights, all, arena);
      });
    }
    BarrierLds();
  }

 private:
  DEVICE static bool HasUnits(const Args& args, uint32_t worker) {
    return worker < args.product.w.outputs * args.product.splits;
  }
  // Of the first unit of a workgroup that has any.
  DEVICE static uint32_t FirstChunkOf(const Args& args, uint32_t worker) {
    const uint32_t splits = args.product.splits, chunks = args.reduce.chunks;
    return Min((worker >> __builtin_ctz(splits)) / kChunkTiles, chunks - 1);
  }

  // f(t) of every row's unit of the chunks whose bit is set.
  template <class F>
  DEVICE static void ForEachUnit(uint64_t chunks_of, uint32_t rows, uint32_t chunks, F f) {
#pragma clang loop unroll(disable)
    for (; chunks_of != 0; chunks_of &= chunks_of - 1) {
      const uint32_t chunk = static_cast<uint32_t>(__builtin_ctzll(chunks_of));
#pragma clang loop unroll(disable)
      for (uint32_t row = 0; row < rows; ++row) f(row * chunks + chunk);
    }
  }

  // A bit for each chunk of which this workgroup is the last; their counters are 0 again.
  DEVICE static uint64_t LastOf(uint32_t worker, uint32_t workers, Arena arena) {
    const Args args = ReadArgumentsAgain<Args>();
    const Lds<uint32_t> mask = arena.Get<uint32_t>();
    WaitVectorMemory();
    Barrier();
    if (ThreadId() == 0) {
      FenceRelease<Scope::kDevice>();
      uint64_t last = 0;
      const uint32_t shift = static_cast<uint32_t>(__builtin_ctz(args.product.splits));
      const uint32_t outputs = args.product.w.outputs;
#pragma clang loop unroll(disable)
      for (uint32_t t = worker; t < outputs << shift; t += workers) {
        const uint32_t chunk = (t >> shift) / kChunkTiles;
        const uint32_t tiles = Min(outputs - chunk * kChunkTiles, kChunkTiles);
        const Global<uint32_t> counter = At(args.arrivals) + chunk * kArrivalWords;
        if (AddFlag<Scope::kDevice>(counter, 1u) + 1 != tiles << shift) continue;
        StoreFlag<Scope::kDevice>(counter, 0u);
        last |= uint64_t{1} << chunk;
      }
      mask[0] = static_cast<uint32_t>(last);
      mask[1] = static_cast<uint32_t>(last >> 32);
    }
    BarrierLds();
    const uint64_t last = uint64_t{Uniform(+mask[1])} << 32 | Uniform(+mask[0]);
    BarrierLds();
    return last;
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_MATMUL_REDUCE_H_
