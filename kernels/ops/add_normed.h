// SPDX-License-Identifier: MIT
//
// Rows added to x, or put in its place, normed or not: a norm behind a block, a factor of what it
// adds, or one row for all, a bias. Whoever makes a chunk of x adds up all of y's squares by itself, in one order.
#ifndef MAINARCH_KERNELS_OPS_ADD_NORMED_H_
#define MAINARCH_KERNELS_OPS_ADD_NORMED_H_

#include "kernels/ops/step.h"

namespace mainarch::kernels {

struct AddNormed {
  using Args = AddNormedArgs;
  static constexpr uint32_t kLdsBytes = kRowLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t total = StepView(args.step).rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      OneChunk(ReadArgumentsAgain<Args>(), t / args.chunks, t % args.chunks, arena);
    }
  }

  DEVICE static void OneChunk(const Args& args, uint32_t row, uint32_t chunk, Arena arena) {
    const RowChunk out = {args.out, args.hidden, args.stride, args.chunks};
    const uint32_t column = chunk * kRowChunk + ThreadId() * kPieceColumns;
    RowPiece value = PieceOfY(args, row, column) * args.scale;
    if (args.norm.address != 0) {
      const float factor = FactorOf(args, row, arena);
      if (column < args.hidden) value = value * factor * *PieceAt(At(args.norm) + column);
    }
    if (args.add != 0 && column < args.hidden) {
      value = value + *PieceAt(At(args.out.x) + (uint64_t{row} * args.stride + column));
    }
    out.Store(row, chunk, value, arena);
  }

  DEVICE static RowPiece PieceOfY(const Args& args, uint32_t row, uint32_t column) {
    if (column >= args.hidden) return RowPiece{0, 0};
    const uint64_t from = args.one_row != 0 ? 0 : uint64_t{row} * args.stride;
    return SumSplits(PieceAt(At(args.y) + (from + column)), args.splits,
                     uint64_t{args.split_rows} * args.stride / kPieceColumns);
  }

  DEVICE static float FactorOf(const Args& args, uint32_t row, Arena arena) {
    float sum = 0;
    for (uint32_t c = 0; c < args.chunks; ++c) {
      const RowPiece y = PieceOfY(args, row, c * kRowChunk + ThreadId() * kPieceColumns);
      const float a = y[0], b = y[1];
      sum = Fma(a, a, Fma(b, b, sum));
    }
    const float squares = GroupSum<kWaves>(sum, arena.Get<float>());
    return Rsqrt(Fma(squares, args.inverse_hidden, args.epsilon));
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ADD_NORMED_H_
