// SPDX-License-Identifier: MIT
//
// A feed-forward's rows times the sigmoid of one number a row: what an expert for all tokens has.
#ifndef MAINARCH_KERNELS_OPS_ROW_GATE_H_
#define MAINARCH_KERNELS_OPS_ROW_GATE_H_

#include "kernels/ops/step.h"

namespace mainarch::kernels {

struct RowGate {
  using Args = RowGateArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t total = StepView(args.step).rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = t / args.chunks;
      const uint32_t column = t % args.chunks * kRowChunk + ThreadId() * kPieceColumns;
      const RowFactor factor(args.norm, row, true);
      const float gate = SumSplits(At(args.gate) + uint64_t{row} * args.gate_stride, args.splits,
                                   uint64_t{args.split_rows} * args.gate_stride);
      const float by = Sigmoid(gate * factor.Value(args.norm));
      if (column >= args.stride) continue;
      const Global<float> act = At(args.act) + uint64_t{row} * args.stride;
      StoreSplitPiece(act, column, LoadSplitPiece(act, column) * by);
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ROW_GATE_H_
