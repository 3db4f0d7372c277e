// SPDX-License-Identifier: MIT
//
// Biases of the routed experts' second product: of each row the weighted sum of those of its experts.
#ifndef MAINARCH_KERNELS_OPS_EXPERTS_BIAS_H_
#define MAINARCH_KERNELS_OPS_EXPERTS_BIAS_H_

#include "kernels/experts_args.h"
#include "kernels/ops/step.h"

namespace mainarch::kernels {

struct ExpertsBias {
  using Args = ExpertsBiasArgs;
  static constexpr uint32_t kLdsBytes = kRowLdsBytes;
  static constexpr uint32_t kBatch = 4;  // slots that are asked for at once

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t total = StepView(args.step).rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      OneChunk(ReadArgumentsAgain<Args>(), t / args.chunks, t % args.chunks, arena);
    }
  }

  DEVICE static void OneChunk(const Args& args, uint32_t row, uint32_t chunk, Arena arena) {
    const RowChunk out = {args.out, args.hidden, args.stride, args.chunks};
    const uint32_t column = chunk * kRowChunk + ThreadId() * kPieceColumns;
    RowPiece value = {0, 0};
    if (column < args.hidden) {
      value = *PieceAt(At(args.out.x) + (uint64_t{row} * args.stride + column)) +
              SumOf(args, row, column);
    }
    out.Store(row, chunk, value, arena);
  }

  // In ascending slots, that is, ids.
  DEVICE static RowPiece SumOf(const Args& args, uint32_t row, uint32_t column) {
    const Global<const uint32_t> ids = At(args.ids) + uint64_t{row} * args.top;
    const Global<const float> weights = At(args.weights) + uint64_t{row} * args.top;
    RowPiece sum = {0, 0};
    for (uint32_t first = 0; first < args.top; first += kBatch) {
      RowPiece biases[kBatch];
      float by[kBatch];
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kBatch; ++i) {
        const uint32_t slot = Min(first + i, args.top - 1);
        biases[i] = *PieceAt(At(args.bias) + (uint64_t{ids[slot]} * args.hidden + column));
        by[i] = weights[slot];
      }
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kBatch; ++i) {
        if (first + i < args.top) sum = sum + biases[i] * by[i];
      }
    }
    return sum;
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_BIAS_H_
