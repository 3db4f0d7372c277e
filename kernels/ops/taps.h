// SPDX-License-Identifier: MIT
//
// Rows of x kept for the steps of other contexts (Tap), and taken there (Input), with the sums of
// squares that the next norm wants.
//
// A tap lies twice, as two steps of its context may be in flight: a step writes the half of its
// parity. The host knows which step a reader means, and names rows of both halves together.
#ifndef MAINARCH_KERNELS_OPS_TAPS_H_
#define MAINARCH_KERNELS_OPS_TAPS_H_

#include "kernels/ops/step.h"

namespace mainarch::kernels {

struct Tap {
  using Args = TapArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const StepView step(args.step);
    const uint32_t first = Parity(step.index()) * args.max_rows;
    const uint32_t total = step.rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = t / args.chunks;
      const uint32_t column = t % args.chunks * kRowChunk + ThreadId() * kPieceColumns;
      if (column >= args.hidden) continue;
      *PieceAt(At(args.out) + (uint64_t{first + row} * args.stride + column)) =
          *PieceAt(At(args.x) + (uint64_t{row} * args.stride + column));
    }
  }
};

struct Input {
  using Args = InputArgs;
  static constexpr uint32_t kLdsBytes = kRowLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const RowChunk out = {args.out, args.hidden, args.stride, args.chunks};
    const uint32_t total = step.rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = t / args.chunks, chunk = t % args.chunks;
      const uint32_t column = chunk * kRowChunk + ThreadId() * kPieceColumns;
      RowPiece value = {0, 0};
      if (column < args.hidden) {
        const uint64_t from = step.input(row);
        value = *PieceAt(At(args.tap) + (from * args.stride + column));
      }
      out.Store(row, chunk, value, arena);
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TAPS_H_
