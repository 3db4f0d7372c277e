// SPDX-License-Identifier: MIT
//
// What a feed-forward makes of its gate and up where that is more than silu(gate) * up: biases of both,
// another activation (decoder_args.h, GatingArgs). One expression with the activation's numbers in it, so
// that nothing branches.
#ifndef MAINARCH_KERNELS_OPS_GATING_H_
#define MAINARCH_KERNELS_OPS_GATING_H_

#include "kernels/common/math.h"
#include "kernels/decoder_args.h"

namespace mainarch::kernels {

// Of one column of act: its biases, asked for at once and added later.
class Gating {
 public:
  Gating() = default;
  // `expert`: 0 of a dense one.
  DEVICE Gating(const GatingArgs& args, uint32_t expert, uint32_t column) {
    if (args.gate_bias.address == 0 || column >= args.width) return;
    const uint64_t at = uint64_t{expert} * args.width + column;
    gate_bias_ = At(args.gate_bias)[at];
    up_bias_ = At(args.up_bias)[at];
  }

  DEVICE float Value(const GatingArgs& args, float gate, float up) const {
    const float g = AtMost(gate + gate_bias_, args.limit);
    const float u = -AtMost(-AtMost(up + up_bias_, args.limit), args.limit);
    const float t = g * Fma(args.cubic * g, g, args.linear);
    return g * Sigmoid(t) * (u + args.up_offset);
  }

 private:
  // Not a minimum, which would hide a NaN.
  DEVICE static float AtMost(float x, float most) { return x > most ? most : x; }

  float gate_bias_ = 0, up_bias_ = 0;
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_GATING_H_
