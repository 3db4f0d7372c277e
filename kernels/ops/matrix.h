// SPDX-License-Identifier: MIT
//
// out[m, o] = sum over k of x[m, k] * w[o, k], fp32 accumulation, in two forms:
//   *Gemv  VALU: a wave takes output rows and splits k over its lanes; one row of x at a time.
//   *Mfma  matrix units: 16 outputs by 16 rows of x a workgroup, k split over its four waves in
//          fixed quarters that are added in wave order. Rows short of 16 are padded with copies
//          that are not stored. A row's bits depend neither on the other rows nor on their number,
//          so decode and prefill share their arithmetic.
#ifndef MAINARCH_KERNELS_OPS_MATRIX_H_
#define MAINARCH_KERNELS_OPS_MATRIX_H_

#include "kernels/common/eight.h"
#include "kernels/common/math.h"
#include "kernels/quant/e8m0.h"
#include "kernels/quant/mxfp4.h"
#include "prims.h"
#include "spec.h"

namespace mainarch::kernels {

// acc += dot of eight bf16 of `a` with eight of `b`, element 0 first.
DEVICE float Dot8(u32x4 a, u32x4 b, float acc) {
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) {
    const uint32_t pa = a[i], pb = b[i];
    acc = Fma(Bf16Low(pa), Bf16Low(pb), acc);
    acc = Fma(Bf16High(pa), Bf16High(pb), acc);
  }
  return acc;
}

// A lane takes eight elements a step, k is a multiple of 8; lanes without any in the last step add
// nothing.
struct Bf16Gemv {
  using Args = Bf16MatrixArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kTake = isa::kSpec.gemv_rows_per_wave;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t groups = CeilDiv(args.outputs, kTake);
    for (uint32_t row = 0; row < args.rows; ++row) {
      for (uint32_t group = worker * kWaves + WaveId(); group < groups; group += workers * kWaves) {
        OneGroup(args, row, group * kTake);
      }
    }
  }

  DEVICE static void OneGroup(const Args& args, uint32_t row, uint32_t first) {
    const uint32_t words = args.k / 8;
    const Global<const uint16_t> w = At(args.w), x = At(args.x);
    float acc[kTake] = {};
    for (uint32_t word = LaneId(); word < words; word += kWave) {
      const u32x4 in = Load16(x, uint64_t{row} * words + word);
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kTake; ++r) {
        const uint32_t output = Min(first + r, args.outputs - 1);
        acc[r] = Dot8(Stream16(w, uint64_t{output} * words + word), in, acc[r]);
      }
    }
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < kTake; ++r) {
      const float sum = WaveSum(acc[r]);
      if (LaneId() == 0 && first + r < args.outputs) {
        At(args.out)[uint64_t{row} * args.outputs + first + r] = sum;
      }
    }
  }
};

// A lane takes one block of 32 codes (16 bytes, one scale) a step: dot first, scale once. k is
// a multiple of 32; lanes without a block in the last step add nothing.
struct Mxfp4Gemv {
  using Args = Mxfp4MatrixArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t blocks = args.k / 32;
    for (uint32_t row = 0; row < args.rows; ++row) {
      for (uint32_t output = worker * kWaves + WaveId(); output < args.outputs;
           output += workers * kWaves) {
        float acc = 0;
        for (uint32_t block = LaneId(); block < blocks; block += kWave) {
          const uint64_t at = uint64_t{output} * blocks + block;
          acc = Fma(DotBlock(args, at, (uint64_t{row} * blocks + block) * 4),
                    quant::FloatFromE8m0(At(args.scales)[at]), acc);
        }
        acc = WaveSum(acc);
        if (LaneId() == 0) At(args.out)[uint64_t{row} * args.outputs + output] = acc;
      }
    }
  }

  // Codes of block `at` with the 32 elements of x that start at 16-byte word `in`.
  DEVICE static float DotBlock(const Args& args, uint64_t at, uint64_t in) {
    const u32x4 codes = Stream16(At(args.codes), at);
    float dot = 0;
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; ++i) {
      const uint32_t eight = codes[i];
      const u32x4 x = Load16(At(args.x), in + i);
      dot = DotPair<0>(eight, x[0], dot);
      dot = DotPair<1>(eight, x[1], dot);
      dot = DotPair<2>(eight, x[2], dot);
      dot = DotPair<3>(eight, x[3], dot);
    }
    return dot;
  }
  template <int kPair>
  DEVICE static float DotPair(uint32_t codes, uint32_t x, float dot) {
    const f32x2 w = isa::Fp4ToFloat2<kPair>(codes);
    const float w0 = w[0], w1 = w[1];
    return Fma(w1, Bf16High(x), Fma(w0, Bf16Low(x), dot));
  }
};

// What the MFMA forms share: tiles, the reduction over waves, the store. `Quarter::Sum(args, lane
// place, wave)` returns this wave's share of the tile.
template <class Quarter>
struct MfmaTiles {
  using Args = typename Quarter::Args;
  static constexpr uint32_t kTile = 16;
  static constexpr uint32_t kLdsBytes = kWaves * kTile * kTile * 4;

  // Lane (i, g): matrix row i of either operand, part g of k. `output` and `row` are clamped to
  // what exists.
  struct Place {
    uint32_t output, row, part;
  };

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t tiles = args.outputs / kTile;
    const uint32_t total = tiles * CeilDiv(args.rows, kTile);
    const Lds<f32x4> shares = arena.Get<f32x4>();
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t first_output = t % tiles * kTile, first_row = t / tiles * kTile;
      const uint32_t i = LaneId() % kTile;
      const Place place = {first_output + i, Min(first_row + i, args.rows - 1), LaneId() / kTile};
      shares[ThreadId()] = Quarter::Sum(args, place, WaveId());
      BarrierLds();
      Store(args, arena.Get<float>(), first_output, first_row);
      BarrierLds();
    }
  }

  // Thread t stores one element. Lane l of a wave holds rows 4 * (l / 16) .. + 3 (outputs) of
  // column l % 16 (rows of x): neighbouring threads take neighbouring outputs.
  DEVICE static void Store(const Args& args, Lds<float> shares, uint32_t first_output,
                           uint32_t first_row) {
    const uint32_t output = ThreadId() % kTile, row = ThreadId() / kTile;
    const uint32_t at = (output / 4 * kTile + row) * 4 + output % 4;
    float sum = shares[at];
#pragma clang loop unroll(full)
    for (uint32_t w = 1; w < kWaves; ++w) sum += shares[w * kTile * kTile + at];
    if (first_row + row < args.rows) {
      At(args.out)[uint64_t{first_row + row} * args.outputs + first_output + output] = sum;
    }
  }
};

// acc += w * x over 32 of k. fp32 activations are split into two bf16, the value and what its
// rounding left, and multiplied twice: good to 2^-16 of each element.
DEVICE f32x4 MultiplyAdd(u32x4 w, const RawEight<uint16_t>& x, f32x4 acc) {
  return isa::Mfma16x16x32Bf16(w, x.words[0], acc);
}
DEVICE f32x4 MultiplyAdd(u32x4 w, const RawEight<float>& x, f32x4 acc) {
  Eight rest = Unpack(x);
  const RawEight<uint16_t> high = Pack<uint16_t>(rest);
  const Eight rounded = Unpack(high);
#pragma clang loop unroll(full)
  for (int i = 0; i < 8; ++i) rest.at[i] -= rounded.at[i];
  return MultiplyAdd(w, Pack<uint16_t>(rest), MultiplyAdd(w, high, acc));
}

// k is a multiple of 128: 32 elements of k a step and wave.
template <class X>
struct Bf16Quarter {
  using Args = Bf16MatrixArgsOf<X>;
  template <class Place>
  DEVICE static f32x4 Sum(const Args& args, Place place, uint32_t wave) {
    const uint32_t words = args.k / 8, quarter = words / kWaves;
    const uint64_t w_at = uint64_t{place.output} * words + wave * quarter + place.part;
    const uint64_t x_at = uint64_t{place.row} * words + wave * quarter + place.part;
    const Global<const uint16_t> w = At(args.w);
    const Global<const X> x = At(args.x);
    f32x4 acc = {0, 0, 0, 0};
    uint32_t i = 0;
    for (; i + 16 <= quarter; i += 16) {  // by hand: loops with MFMA are not unrolled
      const u32x4 w0 = Stream16(w, w_at + i), w1 = Stream16(w, w_at + i + 4);
      const u32x4 w2 = Stream16(w, w_at + i + 8), w3 = Stream16(w, w_at + i + 12);
      const RawEight<X> x0 = LoadRaw(x, x_at + i), x1 = LoadRaw(x, x_at + i + 4);
      const RawEight<X> x2 = LoadRaw(x, x_at + i + 8), x3 = LoadRaw(x, x_at + i + 12);
      acc = MultiplyAdd(w0, x0, acc);
      acc = MultiplyAdd(w1, x1, acc);
      acc = MultiplyAdd(w2, x2, acc);
      acc = MultiplyAdd(w3, x3, acc);
    }
    for (; i < quarter; i += 4) {
      acc = MultiplyAdd(Stream16(w, w_at + i), LoadRaw(x, x_at + i), acc);
    }
    return acc;
  }
};
template <class X>
using Bf16MfmaOf = MfmaTiles<Bf16Quarter<X>>;
using Bf16Mfma = Bf16MfmaOf<uint16_t>;

// Codes widened to bf16 with their scale. k is a multiple of 512: 128 elements of k a step and
// wave, of which a lane holds one block of 32.
template <class X>
struct Mxfp4Quarter {
  using Args = Mxfp4MatrixArgsOf<X>;
  template <class Place>
  DEVICE static f32x4 Sum(const Args& args, Place place, uint32_t wave) {
    const uint32_t blocks = args.k / 32, quarter = blocks / kWaves;
    const uint64_t w_at = uint64_t{place.output} * blocks + wave * quarter + place.part;
    const uint64_t x_at = (uint64_t{place.row} * blocks + wave * quarter + place.part) * 4;
    const Global<const X> x = At(args.x);
    f32x4 acc = {0, 0, 0, 0};
    for (uint32_t i = 0; i < quarter; i += 4) {
      const u32x4 codes = Stream16(At(args.codes), w_at + i);
      const float scale = quant::FloatFromE8m0(At(args.scales)[w_at + i]);
      const RawEight<X> x0 = LoadRaw(x, x_at + i * 4), x1 = LoadRaw(x, x_at + i * 4 + 1);
      const RawEight<X> x2 = LoadRaw(x, x_at + i * 4 + 2), x3 = LoadRaw(x, x_at + i * 4 + 3);
      const uint32_t c0 = codes[0], c1 = codes[1], c2 = codes[2], c3 = codes[3];
      acc = MultiplyAdd(isa::Fp4ToBf16(c0, scale), x0, acc);
      acc = MultiplyAdd(isa::Fp4ToBf16(c1, scale), x1, acc);
      acc = MultiplyAdd(isa::Fp4ToBf16(c2, scale), x2, acc);
      acc = MultiplyAdd(isa::Fp4ToBf16(c3, scale), x3, acc);
    }
    return acc;
  }
};
template <class X>
using Mxfp4MfmaOf = MfmaTiles<Mxfp4Quarter<X>>;
using Mxfp4Mfma = Mxfp4MfmaOf<uint16_t>;

// One thread a block.
struct QuantizeMxfp4 {
  using Args = QuantizeMxfp4Args;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    for (uint32_t block = worker * kThreads + ThreadId(); block < args.blocks;
         block += workers * kThreads) {
      u32x4 words[4];
      uint32_t largest = 0;
#pragma clang loop unroll(full)
      for (int i = 0; i < 4; ++i) {
        words[i] = Load16(At(args.x), uint64_t{block} * 4 + i);
        largest = Max(largest, Largest8(words[i]));
      }
      const uint8_t scale =
          quant::Mxfp4Scale(BitCast<float>(largest << 16), quant::Mxfp4ScaleMode::kEven);
      const float inverse = quant::Mxfp4InverseScale(scale);
      u32x4 codes;
#pragma clang loop unroll(full)
      for (int i = 0; i < 4; ++i) codes[i] = Codes8(words[i], inverse);
      Store16(At(args.codes), block, codes);
      At(args.scales)[block] = scale;
    }
  }

  // The largest magnitude of eight bf16, as bf16 bits: magnitudes order like their bits.
  DEVICE static uint32_t Largest8(u32x4 word) {
    uint32_t largest = 0;
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = word[i];
      largest = Max(largest, Max(pair & 0x7fffu, pair >> 16 & 0x7fffu));
    }
    return largest;
  }
  DEVICE static uint32_t Codes8(u32x4 word, float inverse) {
    uint32_t codes = 0;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t pair = word[i];
      const uint32_t low = quant::E2m1FromFloat(Bf16Low(pair) * inverse);
      const uint32_t high = quant::E2m1FromFloat(Bf16High(pair) * inverse);
      codes |= (low | high << 4) << (8 * i);
    }
    return codes;
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_MATRIX_H_
