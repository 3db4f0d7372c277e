// SPDX-License-Identifier: MIT
//
// Weights as codes of four or eight bits (TileFormat::kNibble and kByte, decoder_args.h): a code becomes
// a bf16 exactly, a step of them is multiplied with x in the matrix unit, and what comes out by p and q in
// fp32. So an element is what the checkpoint says, not rounded to anything. Nibbles that are p c + q are multiplied as
// p (16 + c) + (q - 16 p): the sums are of numbers up to 31 p large, and rounding is relative to these.
//
// Of up to 16 lanes that are neighbours each has p and q of one step and row of the tile (ScaleLane),
// asked for at once for all of a tile; RowLane gives them to the lanes that hold the sums.
#ifndef MAINARCH_KERNELS_OPS_CODES_H_
#define MAINARCH_KERNELS_OPS_CODES_H_

#include "kernels/decoder_args.h"
#include "kernels/ops/step.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/iq4_nl.h"

namespace mainarch::kernels {

// c += a * b over one step of 32 columns, and over half of one; and over four k of fp32.
DEVICE f32x4 MatrixStep(u32x4 a, u32x4 b, f32x4 c) { return isa::Mfma16x16x32Bf16(a, b, c); }
DEVICE f32x4 HalfStep(u32x2 a, u32x2 b, f32x4 c) { return Mfma16x16x16Bf16(a, b, c); }
DEVICE f32x4 FloatStep(float a, float b, f32x4 c) { return Mfma16x16x4F32(a, b, c); }

// Lane (i, g) = (l % 16, l / 16) of a wave.
DEVICE uint32_t LaneRow() { return LaneId() % kTileRows; }
DEVICE uint32_t LanePart() { return LaneId() / kTileRows; }

// Sixteen values as the bytes of their bf16.
struct NibbleTable {
  uint32_t high[4] = {}, low[4] = {};
};
constexpr NibbleTable TableOf(const int8_t (&values)[16]) {
  NibbleTable out;
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t bits = quant::BitsOfFloat(static_cast<float>(values[i]));
    out.high[i / 4] |= (bits >> 24) << i % 4 * 8;
    out.low[i / 4] |= (bits >> 16 & 0xff) << i % 4 * 8;
  }
  return out;
}
inline constexpr NibbleTable kIq4NlTable = TableOf(quant::kIq4NlValues);

// Byte k is byte `codes`[k] of sixteen: of eight at a time, and one of both as bit 3 says. (Kept where
// they are not used, tables would fill the scalar registers.)
DEVICE uint32_t LookUp(const uint32_t (&table)[4], uint32_t codes, uint32_t upper) {
  const uint32_t at = codes & 0x07070707;
  const uint32_t low = __builtin_amdgcn_perm(MadeHere(table[1]), MadeHere(table[0]), at);
  const uint32_t high = __builtin_amdgcn_perm(MadeHere(table[3]), MadeHere(table[2]), at);
  return (low & ~upper) | (high & upper);
}
// Of four codes, one a byte, the bf16 as two words.
DEVICE u32x2 LookUpFour(const NibbleTable& table, uint32_t codes) {
  const uint32_t bits = codes >> 3 & 0x01010101, upper = (bits << 8) - bits;
  const uint32_t high = LookUp(table.high, codes, upper), low = LookUp(table.low, codes, upper);
  return u32x2{__builtin_amdgcn_perm(high, low, 0x05010400),
               __builtin_amdgcn_perm(high, low, 0x07030602)};
}

// Bytes with a sign, as bf16.
DEVICE u32x4 SignedBytes(uint32_t first, uint32_t second) {
  u32x4 out;
  const uint32_t signs = MadeHere(0x80808080);
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < 4; ++i) {
    // 128 more, as bytes without a sign, which one instruction converts.
    const uint32_t word = (i < 2 ? first : second) ^ signs, at = i % 2 * 16;
    const f32x2 two = {static_cast<float>(word >> at & 0xff),
                       static_cast<float>(word >> (at + 8) & 0xff)};
    const f32x2 values = two - 128.0f;
    const float a = values[0], b = values[1];
    out[i] = __builtin_amdgcn_perm(BitCast<uint32_t>(b), BitCast<uint32_t>(a), 0x07060302);
  }
  return out;
}

// A lane's eight of a step as bf16, which hold them exactly; of nibbles `second` is not looked at.
template <TileFormat kFormat, TileCode kCode>
DEVICE u32x4 CodesToBf16(uint32_t first, uint32_t second) {
  if constexpr (kFormat == TileFormat::kByte) {
    return kCode == TileCode::kE4m3 ? isa::Fp8TileToBf16(first, second) : SignedBytes(first, second);
  } else if constexpr (kCode == TileCode::kE2m1) {
    return isa::Fp4ToBf16(first);
  } else if constexpr (kCode == TileCode::kIq4Nl) {
    const u32x2 low = LookUpFour(kIq4NlTable, first & 0x0f0f0f0f);
    const u32x2 high = LookUpFour(kIq4NlTable, first >> 4 & 0x0f0f0f0f);
    return u32x4{low[0], low[1], high[0], high[1]};
  } else {
    // bf16 of 16 with a code in the highest four bits of its mantissa. (One constant in a vector register:
    // an instruction that masks and adds takes one scalar.)
    constexpr uint32_t kMask = 0x00780078;
    static_assert(kNibbleOffset == 16);
    const uint32_t sixteens = MadeBefore(0x41804180u);
    return u32x4{(first << 3 & kMask) | sixteens, (first >> 1 & kMask) | sixteens,
                 (first >> 5 & kMask) | sixteens, (first >> 9 & kMask) | sixteens};
  }
}

// What a lane has loaded of the scales of a tile, which make p and q of one row and step.
struct ScaleLane {
  f32x2 record;
  uint32_t factors;  // two bytes

  template <TileFactors kKind>
  DEVICE f32x2 Value() const {
    if constexpr (kKind == TileFactors::kNone) {
      return record;
    } else if constexpr (kKind == TileFactors::kBytes) {
      return record * f32x2{static_cast<float>(factors & 0xff), static_cast<float>(factors >> 8 & 0xff)};
    } else if constexpr (kKind == TileFactors::kSignedBytes) {
      return record * f32x2{static_cast<float>(static_cast<int8_t>(factors)),
                            static_cast<float>(static_cast<int8_t>(factors >> 8))};
    } else if constexpr (kKind == TileFactors::kE4m3) {
      return record * isa::Fp8OcpToFloat2<false>(factors);
    } else {
      return record * static_cast<float>(BitCast<_Float16>(static_cast<uint16_t>(factors)));
    }
  }
};

// A constant as an argument.
template <auto kConstant>
struct Tag {
  static constexpr auto kValue = kConstant;
};
// take(Tag<code>), take(Tag<kind>): all lanes have the same.
template <TileFormat kFormat, class Take>
DEVICE void WithCode(TileCode code, Take take) {
  if constexpr (kFormat == TileFormat::kNibble) {
    if (code == TileCode::kAffine) return take(Tag<TileCode::kAffine>());
    if (code == TileCode::kE2m1) return take(Tag<TileCode::kE2m1>());
    return take(Tag<TileCode::kIq4Nl>());
  } else if constexpr (kFormat == TileFormat::kByte) {
    if (code == TileCode::kScaled) return take(Tag<TileCode::kScaled>());
    if (code == TileCode::kHalves) return take(Tag<TileCode::kHalves>());
    if (code == TileCode::kAffine) return take(Tag<TileCode::kAffine>());
    return take(Tag<TileCode::kE4m3>());
  } else {
    return take(Tag<TileCode::kByTile>());  // no codes
  }
}
// take(Tag<code>) of each code that a tile may have.
template <TileFormat kFormat, class Take>
DEVICE void ForEachCode(Take take) {
  static_assert(HasCodes(kFormat));
  if constexpr (kFormat == TileFormat::kNibble) {
    take(Tag<TileCode::kAffine>());
    take(Tag<TileCode::kE2m1>());
    take(Tag<TileCode::kIq4Nl>());
  } else {
    take(Tag<TileCode::kScaled>());
    take(Tag<TileCode::kHalves>());
    take(Tag<TileCode::kAffine>());
    take(Tag<TileCode::kE4m3>());
  }
}
template <class Take>
DEVICE void WithFactors(TileFactors kind, Take take) {
  if (kind == TileFactors::kNone) return take(Tag<TileFactors::kNone>());
  if (kind == TileFactors::kF16) return take(Tag<TileFactors::kF16>());
  if (kind == TileFactors::kBytes) return take(Tag<TileFactors::kBytes>());
  if (kind == TileFactors::kE4m3) return take(Tag<TileFactors::kE4m3>());
  return take(Tag<TileFactors::kSignedBytes>());
}
// lanes[i] = p and q of a row and step.
template <uint32_t kCount>
DEVICE void MakeScales(TileFactors kind, const ScaleLane (&lanes)[kCount], f32x2 (&scales)[kCount]) {
  WithFactors(kind, [&](auto tag) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kCount; ++i) scales[i] = lanes[i].template Value<tag.kValue>();
  });
}

// Rows of outputs that this lane holds sums of: of step kStep of a tile.
template <uint32_t kStep>
DEVICE f32x4 OfRows(float x) {
  return f32x4{RowLane<4 * kStep>(x), RowLane<4 * kStep + 1>(x), RowLane<4 * kStep + 2>(x),
               RowLane<4 * kStep + 3>(x)};
}

// sums += (step kStep of a tile) * x, but for what is added (AddAddends); w as CodesToBf16 gives it. Nothing is
// fused: see the erratum in kernels/README.md.
template <TileCode kCode, uint32_t kStep, uint32_t kWords>
DEVICE void AddScaled(u32x4 w, f32x2 scales, const u32x4 (&x)[kWords], f32x4 (&sums)[kWords]) {
  constexpr f32x4 kNothing = {0, 0, 0, 0};
  const f32x4 p = OfRows<kStep>(scales[0]);
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kWords; ++i) {
    if constexpr (kCode == TileCode::kHalves || kCode == TileCode::kE2m1) {
      // A lane's eight are four of each half.
      const f32x4 a = HalfStep(w.lo, x[i].lo, kNothing), b = HalfStep(w.hi, x[i].hi, kNothing);
      sums[i] = sums[i] + (a * p + b * OfRows<kStep>(scales[1]));
    } else {
      sums[i] = sums[i] + MatrixStep(w, x[i], kNothing) * p;
    }
  }
}
template <TileFormat kFormat, TileCode kCode, uint32_t kStep = 0, class Codes, uint32_t kSteps, uint32_t kWords>
DEVICE void AddStepsFrom(const Codes& codes, f32x2 scales, const u32x4 (&x)[kSteps][kWords],
                         f32x4 (&sums)[kWords]) {
  constexpr uint32_t kEach = kFormat == TileFormat::kByte ? 2 : 1;  // words of a step
  const uint32_t first = codes[kStep * kEach], second = codes[kStep * kEach + kEach - 1];
  AddScaled<kCode, kStep, kWords>(CodesToBf16<kFormat, kCode>(first, second), scales, x[kStep], sums);
  if constexpr (kStep + 1 < kSteps) AddStepsFrom<kFormat, kCode, kStep + 1>(codes, scales, x, sums);
}

// Of lane (i, g) the sum of column i over step g of a tile's kSteps. (g is an argument: kept, the lanes of each step would
// fill the scalar registers.)
template <uint32_t kSteps, uint32_t kWords>
DEVICE float SumOverStep(uint32_t g, const u32x4 (&x)[kSteps][kWords], uint32_t word) {
  constexpr u32x4 kOnes = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
  float of_step = 0;
#pragma clang loop unroll(full)
  for (uint32_t s = 0; s < kSteps; ++s) {
    const f32x4 all = MatrixStep(kOnes, x[s][word], f32x4{0, 0, 0, 0});
    const float one = all[0];
    of_step = s == 0 || g == s ? one : of_step;
  }
  if constexpr (kSteps < 4) of_step = g < kSteps ? of_step : 0.0f;
  return of_step;
}
// q of row i and step g, for lane (i, g): lane (4 g + i % 4, i / 4) has it, and p.
template <TileFormat kFormat>
DEVICE float ShuffleAddend(f32x2 scales) {
  const float p = scales[0], q = scales[1];
  const uint32_t source = LaneRow() / 4 * kTileRows + LanePart() * 4 + LaneRow() % 4;
  return Shuffle(kFormat == TileFormat::kNibble ? q - kNibbleOffset * p : q, source);
}
// sums += q * (the sum of x) of all steps of a tile: one product of fp32 whose k is the steps.
template <TileFormat kFormat, uint32_t kSteps, uint32_t kWords>
DEVICE void AddAddends(f32x2 scales, const u32x4 (&x)[kSteps][kWords], f32x4 (&sums)[kWords]) {
  const float mine = ShuffleAddend<kFormat>(scales);
  const uint32_t g = MadeBefore(LanePart());
#pragma clang loop unroll(full)
  for (uint32_t word = 0; word < kWords; ++word) {
    sums[word] = sums[word] + FloatStep(mine, SumOverStep(g, x, word), f32x4{0, 0, 0, 0});
  }
}

// sums += (kSteps steps of a tile, of which this lane has the words `codes`) * x.
template <TileFormat kFormat, TileCode kCode, uint32_t kSteps, uint32_t kWords, class Codes>
DEVICE void AddCodes(const Codes& codes, f32x2 scales, const u32x4 (&x)[kSteps][kWords],
                     f32x4 (&sums)[kWords]) {
  if constexpr (kCode == TileCode::kAffine) AddAddends<kFormat>(scales, x, sums);
  AddStepsFrom<kFormat, kCode>(codes, scales, x, sums);
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_CODES_H_
