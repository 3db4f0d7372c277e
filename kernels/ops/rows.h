// SPDX-License-Identifier: MIT
//
// Ops on rows of activations: RMSNorm, RoPE, SwiGLU, softmax. All arithmetic fp32.
#ifndef MAINARCH_KERNELS_OPS_ROWS_H_
#define MAINARCH_KERNELS_OPS_ROWS_H_

#include "kernels/common/eight.h"
#include "kernels/common/math.h"
#include "prims.h"

namespace mainarch::kernels {

// One workgroup a row; the row stays in registers between the two passes.
template <class X, class W, class Out>
struct RmsNormOf {
  using Args = RmsNormArgsOf<X, W, Out>;
  static constexpr uint32_t kLdsBytes = kWaves * 4;
  static constexpr uint32_t kMaxEights = 8;  // a thread holds: n <= 8 * 8 * 256

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    for (uint32_t row = worker; row < args.rows; row += workers) OneRow(args, row, arena);
  }

  DEVICE static void OneRow(const Args& args, uint32_t row, Arena arena) {
    const uint32_t eights = args.n / 8;
    const uint64_t base = uint64_t{row} * eights;
    RawEight<X> held[kMaxEights];
    float squares = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kMaxEights; ++j) {
      const uint32_t eight = j * kThreads + ThreadId();
      if (eight < eights) {
        held[j] = LoadInput(args, base + eight);
        const Eight x = Unpack(held[j]);
#pragma clang loop unroll(full)
        for (int i = 0; i < 8; ++i) squares = Fma(x.at[i], x.at[i], squares);
      }
    }
    const float sum = GroupSum<kWaves>(squares, arena.Get<float>());
    const float inverse = Rsqrt(sum / static_cast<float>(args.n) + args.epsilon);
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kMaxEights; ++j) {
      const uint32_t eight = j * kThreads + ThreadId();
      if (eight < eights) {
        const Eight w = LoadEight(At(args.w), eight);
        StoreEight(At(args.out), base + eight, Scale(Unpack(held[j]), inverse, w, args.flags));
      }
    }
  }

  DEVICE static Eight Scale(const Eight& x, float inverse, const Eight& w, uint32_t flags) {
    Eight out;
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; ++i) {
      const float normal = x.at[i] * inverse;
      out.at[i] = (flags & kRmsNormRoundTwice ? RoundBf16(normal) : normal) *
                  (flags & kRmsNormOnePlus ? 1.0f + w.at[i] : w.at[i]);
    }
    return out;
  }

  // With a residual: the sum is rounded first, and that is what is normalised.
  DEVICE static RawEight<X> LoadInput(const Args& args, uint64_t index) {
    const RawEight<X> raw = LoadRaw(At(args.x), index);
    if (!(args.flags & kRmsNormAddResidual)) return raw;
    const Eight x = Unpack(raw);
    Eight sum = LoadEight<X>(At(args.residual), index);
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; ++i) sum.at[i] += x.at[i];
    StoreEight(At(args.residual), index, sum);
    return Pack<X>(sum);
  }
};
using RmsNorm = RmsNormOf<uint16_t, uint16_t, uint16_t>;

// A thread turns eight pairs: elements i .. i+7 and i + R/2 .. i + R/2 + 7 of one head.
template <class X>
struct RopeOf {
  using Args = RopeArgsOf<X>;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t units = args.rotary / 16;  // a head
    const uint32_t total = args.rows * args.heads * units;
    for (uint32_t t = worker * kThreads + ThreadId(); t < total; t += workers * kThreads) {
      const uint32_t unit = t % units, head = t / units;
      OneUnit(args, head / args.heads, uint64_t{head} * (args.head_dim / 8) + unit, unit);
    }
  }

  DEVICE static void OneUnit(const Args& args, uint32_t row, uint64_t index, uint32_t unit) {
    const uint32_t half = args.rotary / 16;  // in eights
    const uint64_t table = uint64_t{At(args.positions)[row]} * half + unit;
    const Global<X> x = At(args.x);
    const Eight cosine = LoadEight(At(args.cosine), table), sine = LoadEight(At(args.sine), table);
    Eight low = LoadEight<X>(x, index);
    Eight high = LoadEight<X>(x, index + half);
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; ++i) {
      const float a = low.at[i], b = high.at[i];
      low.at[i] = Fma(a, cosine.at[i], -(b * sine.at[i]));
      high.at[i] = Fma(b, cosine.at[i], a * sine.at[i]);
    }
    StoreEight(x, index, low);
    StoreEight(x, index + half, high);
  }
};
using Rope = RopeOf<uint16_t>;

template <class X, class Out>
struct SwigluOf {
  using Args = SwigluArgsOf<X, Out>;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t eights = args.n / 8, stride = args.stride / 8;
    const uint32_t total = args.rows * eights;
    for (uint32_t t = worker * kThreads + ThreadId(); t < total; t += workers * kThreads) {
      const uint64_t in = uint64_t{t / eights} * stride + t % eights;
      Eight x = LoadEight(At(args.gate), in);
      const Eight up = LoadEight(At(args.up), in);
#pragma clang loop unroll(full)
      for (int i = 0; i < 8; ++i) x.at[i] = Silu(x.at[i]) * up.at[i];
      StoreEight(At(args.out), t, x);
    }
  }
};
using Swiglu = SwigluOf<uint16_t, uint16_t>;

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
