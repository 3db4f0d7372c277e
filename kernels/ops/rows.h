// SPDX-License-Identifier: MIT
//
// Ops on rows of activations: RMSNorm, RoPE, SwiGLU, softmax. All arithmetic fp32.
#ifndef MAINARCH_KERNELS_OPS_ROWS_H_
#define MAINARCH_KERNELS_OPS_ROWS_H_

#include "kernels/common/math.h"
#include "prims.h"

namespace mainarch::kernels {

// Eight bf16 of a 16-byte word as floats, and back.
struct Eight {
  float at[8];
};
DEVICE Eight Unpack(u32x4 word) {
  Eight out;
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) {
    const uint32_t pair = word[i];
    out.at[2 * i] = Bf16Low(pair);
    out.at[2 * i + 1] = Bf16High(pair);
  }
  return out;
}
DEVICE u32x4 Pack(const Eight& x) {
  return u32x4{ToBf16Pair(x.at[0], x.at[1]), ToBf16Pair(x.at[2], x.at[3]),
               ToBf16Pair(x.at[4], x.at[5]), ToBf16Pair(x.at[6], x.at[7])};
}

// One workgroup a row; the row stays in registers between the two passes.
struct RmsNorm {
  using Args = RmsNormArgs;
  static constexpr uint32_t kLdsBytes = kWaves * 4;
  static constexpr uint32_t kMaxWords = 8;  // 16-byte words a thread holds: n <= 8 * 8 * 256

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    for (uint32_t row = worker; row < args.rows; row += workers) OneRow(args, row, arena);
  }

  DEVICE static void OneRow(const Args& args, uint32_t row, Arena arena) {
    const uint32_t words = args.n / 8;
    const uint64_t base = uint64_t{row} * words;
    u32x4 held[kMaxWords];
    float squares = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kMaxWords; ++j) {
      const uint32_t word = j * kThreads + ThreadId();
      if (word < words) {
        held[j] = LoadInput(args, base + word);
        const Eight x = Unpack(held[j]);
#pragma clang loop unroll(full)
        for (int i = 0; i < 8; ++i) squares = Fma(x.at[i], x.at[i], squares);
      }
    }
    const float sum = GroupSum<kWaves>(squares, arena.Get<float>());
    const float inverse = Rsqrt(sum / static_cast<float>(args.n) + args.epsilon);
    const bool one_plus = args.flags & kRmsNormOnePlus;
    const bool round_twice = args.flags & kRmsNormRoundTwice;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kMaxWords; ++j) {
      const uint32_t word = j * kThreads + ThreadId();
      if (word < words) {
        Eight x = Unpack(held[j]);
        const Eight w = Unpack(Load16(At(args.w), word));
#pragma clang loop unroll(full)
        for (int i = 0; i < 8; ++i) {
          const float normal = x.at[i] * inverse;
          x.at[i] =
              (round_twice ? RoundBf16(normal) : normal) * (one_plus ? 1.0f + w.at[i] : w.at[i]);
        }
        Store16(At(args.out), base + word, Pack(x));
      }
    }
  }

  // With a residual: the sum is rounded to bf16 first, and that is what is normalised.
  DEVICE static u32x4 LoadInput(const Args& args, uint64_t word) {
    const u32x4 x = Load16(At(args.x), word);
    if (!(args.flags & kRmsNormAddResidual)) return x;
    const Eight mine = Unpack(x);
    Eight sum = Unpack(Load16<const uint16_t>(At(args.residual), word));
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; ++i) sum.at[i] += mine.at[i];
    const u32x4 rounded = Pack(sum);
    Store16(At(args.residual), word, rounded);
    return rounded;
  }
};

// A thread turns eight pairs: elements i .. i+7 and i + R/2 .. i + R/2 + 7 of one head.
// rotary is a multiple of 16, head_dim of 8.
struct Rope {
  using Args = RopeArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t units = args.rotary / 16;  // a head
    const uint32_t total = args.rows * args.heads * units;
    for (uint32_t t = worker * kThreads + ThreadId(); t < total; t += workers * kThreads) {
      const uint32_t unit = t % units, head = t / units;
      OneUnit(args, head / args.heads, uint64_t{head} * (args.head_dim / 8) + unit, unit);
    }
  }

  DEVICE static void OneUnit(const Args& args, uint32_t row, uint64_t word, uint32_t unit) {
    const uint32_t half = args.rotary / 16;  // in 16-byte words
    const uint64_t table = uint64_t{At(args.positions)[row]} * (args.rotary / 2) + unit * 8;
    const Global<uint16_t> x = At(args.x);
    Eight low = Unpack(Load16<const uint16_t>(x, word));
    Eight high = Unpack(Load16<const uint16_t>(x, word + half));
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; ++i) {
      const float c = At(args.cosine)[table + i], s = At(args.sine)[table + i];
      const float a = low.at[i], b = high.at[i];
      low.at[i] = Fma(a, c, -(b * s));
      high.at[i] = Fma(b, c, a * s);
    }
    Store16(x, word, Pack(low));
    Store16(x, word + half, Pack(high));
  }
};

struct Swiglu {
  using Args = SwigluArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t words = args.n / 8, stride = args.stride / 8;
    const uint32_t total = args.rows * words;
    for (uint32_t t = worker * kThreads + ThreadId(); t < total; t += workers * kThreads) {
      const uint64_t in = uint64_t{t / words} * stride + t % words;
      Eight gate = Unpack(Load16(At(args.gate), in));
      const Eight up = Unpack(Load16(At(args.up), in));
#pragma clang loop unroll(full)
      for (int i = 0; i < 8; ++i) gate.at[i] = Silu(gate.at[i]) * up.at[i];
      Store16(At(args.out), t, Pack(gate));
    }
  }
};

// One workgroup a row, three passes over it: largest, sum, quotients.
struct Softmax {
  using Args = SoftmaxArgs;
  static constexpr uint32_t kLdsBytes = kWaves * 4;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const Lds<float> scratch = arena.Get<float>();
    for (uint32_t row = worker; row < args.rows; row += workers) {
      const Global<const float> x = At(args.x) + uint64_t{row} * args.n;
      const Global<float> out = At(args.out) + uint64_t{row} * args.n;
      float largest = -__builtin_inff();
      for (uint32_t i = ThreadId(); i < args.n; i += kThreads) {
        largest = __builtin_fmaxf(largest, x[i] * args.scale);
      }
      largest = GroupMax<kWaves>(largest, scratch);
      float sum = 0;
      for (uint32_t i = ThreadId(); i < args.n; i += kThreads) {
        sum += Exp(Fma(x[i], args.scale, -largest));
      }
      sum = GroupSum<kWaves>(sum, scratch);
      for (uint32_t i = ThreadId(); i < args.n; i += kThreads) {
        out[i] = Exp(Fma(x[i], args.scale, -largest)) / sum;
      }
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ROWS_H_
