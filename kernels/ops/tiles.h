// SPDX-License-Identifier: MIT
//
// Products with weights in tiles (decoder_args.h): decode and prefill alike go through the matrix
// units, rows padded to 16, K cut into parts and leaves fixed by the weight's shape, which waves sum
// alone and add in a tree. So a row's bits depend neither on the other rows nor on their number, nor
// on how many ranks, or how many workgroups, share K.
//
// Inputs are split rows (decoder_args.h): each element as two bf16, the value and what its rounding
// left, good to 2^-17 of it, normed but for the factor of the row, which multiplies the sum. Of up to
// eight rows both halves are columns of one matrix instruction; of more, of two; the sums over the
// one and over the other are added at the end of a leaf, so the bits are the same. The rounded forms
// (bf16 activations) leave the second away.
// Products of two bf16 are exact in fp32, so of y = sum over K of w_k x_k they give, as on the CPU
// (backend/cpu/kernels.h),
//   |error| <= (2^-8 + (K + 8) 2^-23) sum of |w_k x_k|, and 2^-20 more where the input is normed,
// apart from what is below 2^-126: 2^-8 from rounding x to 8 significant bits, to nearest; no more
// than 2^-23 for each addition, in whatever order and roundings a matrix unit adds.
// As MXFP8 (Columns::kScaled) x has four significant bits, of its bf16: products of codes are exact as well, and
//   |error| <= (2^-4 + 2^-8 + (K + 8) 2^-23) sum of |w_k x_k| + 2^-17 sum of |w_k m_k|,
// m_k being the largest magnitude of the 32 columns that share column k's factor, which is 2^-7.8 m_k at most
// (quant/mxfp8.h): half of e4m3's least step, 2^-10, times that is less.
//
// What a wave is to wait for is memory, once: it asks for all tiles of a batch, then for the inputs
// that belong to them, and multiplies as they come. Nothing that it asks for depends on the step.
#ifndef MAINARCH_KERNELS_OPS_TILES_H_
#define MAINARCH_KERNELS_OPS_TILES_H_

#include "kernels/common/tree.h"
#include "kernels/ops/codes.h"
#include "kernels/ops/step.h"

namespace mainarch::kernels {

// ---- inputs ----

// What the 16 columns of a matrix instruction are.
enum class Columns {
  kRounded,  // 16 rows, rounded to bf16
  kFew,      // 8 rows, then what rounding left of them
  kMany,     // 16 rows, and in a second instruction what rounding left of them
  kScaled,   // 16 rows, rounded to bf16 and then to MXFP8 (quant/mxfp8.h); weights are MXFP4 or kFp8Blocks
  kScaledFew,  // the same of 8 rows, and then of their next tile, as whose columns they are wanted next
};
[[gnu::always_inline]] constexpr bool IsScaled(Columns columns) { return columns == Columns::kScaled || columns == Columns::kScaledFew; }
// Of up to 16 rows. `few`: there are kFewRows at most.
constexpr Columns ColumnsOf(Taken taken, bool few) {
  if (taken == Taken::kScaled) return few ? Columns::kScaledFew : Columns::kScaled;
  return taken == Taken::kRounded ? Columns::kRounded : few ? Columns::kFew : Columns::kMany;
}
inline constexpr uint32_t kFewRows = kTileRows / 2;

template <Columns kColumns>
struct Operand {
  static constexpr uint32_t kWords = kColumns == Columns::kMany ? 2 : 1;
  Global<const uint8_t> at;  // this lane's eight columns of step 0

  // Which row of a block of 16 this lane has.
  DEVICE static uint32_t Row() {
    return kColumns == Columns::kFew || kColumns == Columns::kScaledFew ? LaneRow() % kFewRows : LaneRow();
  }
  // Where its eight columns are, from the row's first.
  DEVICE static uint32_t LaneBytes() {
    const uint32_t low = kColumns == Columns::kFew && LaneRow() >= kFewRows ? kSplitHalfBytes : 0;
    return LanePart() * 16 + low;
  }
  // `row` of x, for this lane.
  DEVICE static Operand Of(Global<const float> x, uint32_t stride, uint32_t row) {
    return {reinterpret_cast<Global<const uint8_t>>(x + uint64_t{row} * stride) + LaneBytes()};
  }
  // Steps are counted in 64 bits: with 32 the compiler may not fold neighbouring ones into one
  // address.
  DEVICE u32x4 Load(uint64_t step, uint32_t word) const {
    return *reinterpret_cast<Global<const u32x4>>(at + step * kSplitStepBytes +
                                                  word * kSplitHalfBytes);
  }
};

// The sum over a leaf, of the sums that the columns gave.
template <Columns kColumns>
DEVICE f32x4 JoinColumns(const f32x4 (&sums)[Operand<kColumns>::kWords]) {
  f32x4 out = sums[0];
  if constexpr (kColumns == Columns::kMany) out = out + sums[1];
  if constexpr (kColumns == Columns::kFew) {
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; ++i) {
      const float one = out[i];
      out[i] = one + RotateRow8(one);
    }
  }
  return out;
}

// ---- weights ----

// Tiles of one output tile: `data` and `scales` point at its first k tile.
struct TileRow {
  Global<const uint8_t> data;
  Global<const uint8_t> scales;
  uint32_t last_scales;  // where the last four of MXFP4 begin, in bytes
  // Of codes: where factors begin, Tiles::scale_shift, and the other three in one register, of which there are few.
  uint32_t factors_at, scale_shift, how;
  static constexpr uint32_t kCodeAt = 16, kFactorsAt = 24;  // bits of `how`; first, scale_first

  DEVICE uint32_t ScaleFirst() const { return MadeHere(how) & 0xffff; }
  DEVICE TileCode Code() const { return static_cast<TileCode>(MadeHere(how) >> kCodeAt & 0xff); }
  DEVICE TileFactors Factors() const { return static_cast<TileFactors>(MadeHere(how) >> kFactorsAt); }
  // Where this lane's word of a tile is, in bytes; which of its rows a row of the matrix instruction is, and how many bytes
  // behind `scales` that row's begin.
  DEVICE uint32_t LaneAt(uint32_t word_bytes) const { return LaneId() * word_bytes; }
  DEVICE uint32_t Place(uint32_t row) const { return row; }
  DEVICE uint32_t ScalesBeyond(uint32_t) const { return 0; }
};

// Half of the rows of an output tile and half of those of the one behind it, as one tile: of whole tiles alone, and of codes none
// of kByTile. Eight rows' codes of a step are a whole line.
struct HalvesRow : TileRow {
  static constexpr uint32_t kHalf = kTileRows / 2;
  uint32_t first;  // row of both
  uint32_t data_bytes, scale_bytes;  // from one output tile to the other

  DEVICE uint32_t LaneAt(uint32_t word_bytes) const {
    return (LaneRow() < kHalf ? 0 : data_bytes) + (LanePart() * kTileRows + Place(LaneRow())) * word_bytes;
  }
  DEVICE uint32_t Place(uint32_t row) const { return first + row % kHalf; }
  DEVICE uint32_t ScalesBeyond(uint32_t row) const { return row < kHalf ? 0 : scale_bytes; }
};

template <TileFormat kFormat>
DEVICE TileRow RowOf(const Tiles& w, uint32_t output) {
  const uint32_t scale_bytes = static_cast<uint32_t>(ScaleRowBytes(kFormat, w));
  TileRow row = {At(w.data) + output * TileRowBytes(kFormat, w.steps),
                 At(w.scales) + output * uint64_t{scale_bytes},
                 scale_bytes - TileScaleBytes(kFormat), 0, 0, 0};
  if constexpr (HasCodes(kFormat)) {
    uint32_t code = static_cast<uint32_t>(w.code);
    if (kFormat == TileFormat::kByte && w.code == TileCode::kByTile) {
      code = *reinterpret_cast<Constant<uint32_t>>(reinterpret_cast<uint64_t>(
          row.scales + (scale_bytes - kRecordBytes)));
    }
    row.factors_at = RecordsBytes(w);
    row.scale_shift = w.scale_shift;
    row.how = Uniform(w.scale_first | code << TileRow::kCodeAt |
                      static_cast<uint32_t>(w.factors) << TileRow::kFactorsAt);
  }
  return row;
}

template <TileFormat kFormat>
DEVICE HalvesRow HalvesOf(const Tiles& w, uint32_t output, uint32_t half) {
  return {RowOf<kFormat>(w, output), half * HalvesRow::kHalf, static_cast<uint32_t>(TileRowBytes(kFormat, w.steps)),
          static_cast<uint32_t>(ScaleRowBytes(kFormat, w))};
}

// Of codes, what this lane brings to a tile of some steps, the first at `step`: of step LaneRow() / 4
// of these and row LanePart() * 4 + LaneRow() % 4.
template <class Row>
DEVICE ScaleLane LoadScales(const Row& w, uint32_t step, uint32_t steps) {
  const uint32_t mine = step + Min(LaneRow() / 4, steps - 1), row = LanePart() * 4 + LaneRow() % 4;
  const uint32_t record = (w.ScaleFirst() + mine) >> w.scale_shift;
  ScaleLane out;
  out.record = *reinterpret_cast<Global<const f32x2>>(w.scales + (record * kRecordBytes + (w.ScalesBeyond(row) + w.Place(row) * 8)));
  out.factors = 0;
  if (w.Factors() != TileFactors::kNone) {
    const uint32_t at = w.factors_at + mine * kFactorBytes + (w.ScalesBeyond(row) + w.Place(row) * 2);
    out.factors = *reinterpret_cast<Global<const uint16_t>>(w.scales + at);
  }
  return out;
}

// The lane's word of those that start `begin` bytes into a row of tiles, which is shorter than 4
// GiB: a base in scalar registers and 32 bits in a vector register.
template <class Word, class Row>
DEVICE Word StreamLane(const Row& row, uint32_t begin) {
  return Stream<Word>(row.data + (begin + row.LaneAt(static_cast<uint32_t>(sizeof(Word)))));
}

// Neighbouring whole tiles of an output tile, as they come from memory: this lane's part. `kByFours`:
// they begin at a multiple of four steps.
template <TileFormat kFormat, uint32_t kTiles, bool kByFours = false>
struct WholeTiles {
  static constexpr uint32_t kSteps = TileSteps(kFormat);
  static constexpr bool kPair = kFormat == TileFormat::kBf16Pair;
  static constexpr bool kFp8 = kFormat == TileFormat::kFp8;
  static constexpr bool kMxfp4 = kFormat == TileFormat::kMxfp4;
  static constexpr bool kFp8Blocks = kFormat == TileFormat::kFp8Blocks;
  static constexpr bool kTwice = kPair || kFp8Blocks;
  static constexpr bool kCodes = HasCodes(kFormat);
  u32x4 codes[kTiles];
  u32x4 low[kTwice ? kTiles : 1];          // of bf16 pairs the second; of fp8 blocks those of their second half
  static constexpr uint32_t kFactors = kFp8 ? 2 * kTiles : kFp8Blocks ? kTiles : 1;
  float factors;                           // of the steps, or of the blocks: lane i of each 16 has that of number i % kFactors
  static constexpr uint32_t kScales = kTiles + (kByFours ? 0 : 1);
  uint32_t scales[kMxfp4 ? kScales : 1];   // E8M0, four steps a word, as they lie
  ScaleLane lanes[kCodes ? kTiles : 1];
  f32x2 pq[kCodes ? kTiles : 1];           // of these
  TileRow row;

  // The first of them at `step`.
  template <class Row>
  DEVICE void Load(const Row& w, uint32_t step) {
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTiles; ++t) {
      const uint32_t at = step * StepBytes(kFormat) + t * TileBytes(kFormat);
      codes[t] = StreamLane<u32x4>(w, at);
      if constexpr (kTwice) low[t] = StreamLane<u32x4>(w, at + 1024);
    }
    if constexpr (kFp8 || kFp8Blocks) {
      // Not by the scalar cache: whoever waits for one of its answers waits for all that it was asked for since, too.
      // They multiply sums, of rows that are four a lane of each 16.
      const auto from = reinterpret_cast<Global<const float>>(w.scales + w.ScalesBeyond(LanePart() * 4));
      factors = from[step + LaneRow() % kFactors * (kTiles * kSteps / kFactors)];
    } else if constexpr (kCodes) {
      row = w;
#pragma clang loop unroll(full)
      for (uint32_t t = 0; t < kTiles; ++t) lanes[t] = LoadScales(w, step + t * kSteps, kSteps);
    } else if constexpr (kMxfp4) {
      // They lie by fours of all of k, which a part need not begin with: one word more.
      const uint32_t at = step / 4 * TileScaleBytes(kFormat);
#pragma clang loop unroll(full)
      for (uint32_t t = 0; t < kScales; ++t) {
        const uint32_t begin = t < kTiles ? at + t * TileScaleBytes(kFormat)
                                          : Min(at + t * TileScaleBytes(kFormat), w.last_scales);
        scales[t] = *reinterpret_cast<Global<const uint32_t>>(w.scales + (begin + (w.ScalesBeyond(LaneRow()) + w.Place(LaneRow()) * 4)));
      }
    }
  }
  // Once they have come.
  DEVICE void MakeScales() {
    if constexpr (kCodes) kernels::MakeScales(row.Factors(), lanes, pq);
  }
  DEVICE float Factor(uint32_t i) const { return RowLane(factors, i); }
  // The four scales of tile t of those that begin at `step`.
  DEVICE uint32_t ScalesOf(uint32_t t, uint32_t step) const {
    if constexpr (kByFours) {
      return scales[t];
    } else {
      return __builtin_amdgcn_alignbyte(scales[t + 1], scales[t], step % 4);
    }
  }
};

// sums += w * x of MXFP4 and MXFP8, of kSteps steps, as one instruction over four of them. `codes`: a lane's eight of each step,
// zeros where there is none; `scales`: of its row's steps.
template <uint32_t kSteps>
DEVICE void AddScaled(u32x4 codes, uint32_t scales, const isa::Mxfp8Operand& x, f32x4 (&sums)[1]) {
  constexpr uint32_t kOne = 127;  // as E8M0: zero times anything else that lies there could be a NaN
  const uint32_t own = scales >> LanePart() * 8;  // the instruction looks at the lowest byte
  sums[0] = isa::Mxfp4ByMxfp8(isa::TransposeRows(codes), LanePart() < kSteps ? own : kOne, x, sums[0]);
}
template <uint32_t kSteps>
DEVICE isa::Mxfp8Operand ScaledOperand(const u32x4 (&x)[kSteps][1]) {
  u32x4 in[4];
#pragma clang loop unroll(full)
  for (uint32_t s = 0; s < 4; ++s) in[s] = s < kSteps ? x[s < kSteps ? s : 0][0] : u32x4{0, 0, 0, 0};
  return isa::Mxfp8FromBf16(in[0], in[1], in[2], in[3]);
}

// A block of fp8 by MXFP8, times its factor, to a sum.
DEVICE f32x4 AddScaledBlock(f32x4 products, float factor, f32x4 sum) {
  f32x4 out;
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) {
    const float one = products[i], old = sum[i];
    out[i] = Fma(one, factor, old);
  }
  return out;
}
// sums += (tile t of w, the first of which is at `step`) * x, of MXFP8.
template <TileFormat kFormat, uint32_t kTiles, bool kByFours>
DEVICE void AddScaledTile(const WholeTiles<kFormat, kTiles, kByFours>& w, uint32_t t, uint32_t step, const isa::Mxfp8Operand& x,
                          f32x4 (&sums)[1]) {
  if constexpr (kFormat == TileFormat::kFp8Blocks) {
    sums[0] = AddScaledBlock(isa::Fp8ByMxfp8(isa::Fp8Operand(w.codes[t], w.low[t]), x), w.Factor(t), sums[0]);
  } else {
    AddScaled<4>(w.codes[t], w.ScalesOf(t, step), x, sums);
  }
}

// sums += w * x over one step of bf16 weights.
template <Columns kColumns>
DEVICE void AddStep(u32x4 w, const u32x4 (&x)[Operand<kColumns>::kWords],
                    f32x4 (&sums)[Operand<kColumns>::kWords]) {
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) sums[i] = MatrixStep(w, x[i], sums[i]);
}

// sums += (tile t of w, the first of which is at `step`) * x. `tag`: WithCode's; MakeScales first.
template <TileFormat kFormat, uint32_t kTiles, Columns kColumns, bool kByFours, class CodeTag>
DEVICE void AddTile(const WholeTiles<kFormat, kTiles, kByFours>& w, uint32_t t, uint32_t step,
                    const u32x4 (&x)[TileSteps(kFormat)][Operand<kColumns>::kWords],
                    f32x4 (&sums)[Operand<kColumns>::kWords], CodeTag tag) {
  const u32x4 codes = w.codes[t];
  const uint32_t c0 = codes[0], c1 = codes[1], c2 = codes[2], c3 = codes[3];
  if constexpr (kFormat == TileFormat::kBf16) {
    AddStep<kColumns>(codes, x[0], sums);
  } else if constexpr (kFormat == TileFormat::kBf16Pair) {
    AddStep<kColumns>(w.low[t], x[0], sums);
    AddStep<kColumns>(codes, x[0], sums);
  } else if constexpr (kFormat == TileFormat::kFp8) {
    const u32x4 w0 = isa::CachedFp8ToBf16(c0, c1), w1 = isa::CachedFp8ToBf16(c2, c3);
    const float s0 = w.Factor(2 * t) * isa::kCachedFp8Scale;
    const float s1 = w.Factor(2 * t + 1) * isa::kCachedFp8Scale;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) {
      const f32x4 a = MatrixStep(w0, x[0][i], f32x4{0, 0, 0, 0});
      const f32x4 b = MatrixStep(w1, x[1][i], f32x4{0, 0, 0, 0});
      sums[i] = sums[i] + (a * s0 + b * s1);  // not fused: see the erratum in kernels/README.md
    }
  } else if constexpr (HasCodes(kFormat)) {
    AddCodes<kFormat, tag.kValue>(codes, w.pq[t], x, sums);
  } else if constexpr (IsScaled(kColumns)) {
    AddScaledTile(w, t, step, ScaledOperand(x), sums);
  } else {
    const uint32_t scales = w.ScalesOf(t, step);
    AddStep<kColumns>(isa::Fp4ToBf16<0>(c0, scales), x[0], sums);
    AddStep<kColumns>(isa::Fp4ToBf16<1>(c1, scales), x[1], sums);
    AddStep<kColumns>(isa::Fp4ToBf16<2>(c2, scales), x[2], sums);
    AddStep<kColumns>(isa::Fp4ToBf16<3>(c3, scales), x[3], sums);
  }
}

// The inputs of kSteps steps from `step`.
template <Columns kColumns, uint32_t kSteps>
DEVICE void LoadSteps(const Operand<kColumns>& x, uint64_t step,
                      u32x4 (&to)[kSteps][Operand<kColumns>::kWords]) {
#pragma clang loop unroll(full)
  for (uint32_t s = 0; s < kSteps; ++s) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) to[s][i] = x.Load(step + s, i);
  }
}

// The inputs of kTiles neighbouring tiles. Of kScaledFew two tiles' are asked for as one's, the second one's by the lanes of
// columns from kFewRows on: what comes out is the same as of each alone, for no column knows of another.
template <TileFormat kFormat, Columns kColumns, uint32_t kTiles>
struct TileInputs {
  static constexpr uint32_t kSteps = TileSteps(kFormat);
  static constexpr uint32_t kEach = kColumns == Columns::kScaledFew && kTiles % 2 == 0 ? 2 : 1;
  u32x4 of[kTiles / kEach][kSteps][Operand<kColumns>::kWords];

  DEVICE void Load(Operand<kColumns> x, uint64_t step) {
    if constexpr (kEach == 2) x.at += LaneRow() >= kFewRows ? kSteps * kSplitStepBytes : 0;
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTiles; t += kEach) LoadSteps<kColumns>(x, step + t * kSteps, of[t / kEach]);
  }
  // Of tile t as MXFP8; `before`: of the tile before it.
  DEVICE isa::Mxfp8Operand Scaled(uint32_t t, const isa::Mxfp8Operand& before) const {
    if (t % kEach == 0) return ScaledOperand(of[t / kEach]);
    isa::Mxfp8Operand out;
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; ++i) {
      const int32_t word = before.codes[i];
      out.codes[i] = static_cast<int32_t>(RotateRow8(static_cast<uint32_t>(word)));
    }
    out.scale = RotateRow8(before.scale);
    return out;
  }
};

// kTiles whole tiles of each of some output tiles, and their inputs, asked for and then multiplied.
template <TileFormat kFormat, Columns kColumns, uint32_t kTiles, uint32_t kCount>
struct TileBatch {
  WholeTiles<kFormat, kTiles> tiles[kCount];
  TileInputs<kFormat, kColumns, kTiles> in;
  uint32_t step;

  DEVICE void Ask(const TileRow (&w)[kCount], uint32_t first, const Operand<kColumns>& x) {
    step = first;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kCount; ++j) tiles[j].Load(w[j], step);
    KeepOrder();
    in.Load(x, step);
    KeepOrder();
  }
  // The same, of inputs those of lanes with a row: with others the way to the caches is busy for nothing. What these
  // lanes hold must be finite (Clear). Inputs first, because who waits for what was asked for before waits for them.
  DEVICE void AskOf(bool real, const TileRow (&w)[kCount], uint32_t first, const Operand<kColumns>& x) {
    step = first;
    KeepOrder();
    if (real) in.Load(x, step);
    KeepOrder();
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kCount; ++j) tiles[j].Load(w[j], step);
    KeepOrder();
  }
  DEVICE void Clear() {
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTiles / in.kEach; ++t) {
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < in.kSteps; ++s) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) in.of[t][s][i] = u32x4{0, 0, 0, 0};
      }
    }
  }
  // sums[j] += (tiles of w[j]) * x.
  DEVICE void AddTo(f32x4 (&sums)[kCount][Operand<kColumns>::kWords]) {
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kCount; ++j) tiles[j].MakeScales();
    if constexpr (IsScaled(kColumns)) {
      isa::Mxfp8Operand x;
#pragma clang loop unroll(full)
      for (uint32_t t = 0; t < kTiles; ++t) {
        x = in.Scaled(t, x);
#pragma clang loop unroll(full)
        for (uint32_t j = 0; j < kCount; ++j) AddScaledTile(tiles[j], t, step, x, sums[j]);
      }
    } else if constexpr (kFormat == TileFormat::kByte && kCount > 1) {
      // Each may be of another code (TileCode::kByTile).
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kCount; ++j) {
        WithCode<kFormat>(tiles[j].row.Code(), [&](auto tag) {
#pragma clang loop unroll(full)
          for (uint32_t t = 0; t < kTiles; ++t) {
            AddTile<kFormat, kTiles, kColumns>(tiles[j], t, step, in.of[t], sums[j], tag);
          }
        });
      }
    } else {
      WithCode<kFormat>(tiles[0].row.Code(), [&](auto tag) {
#pragma clang loop unroll(full)
        for (uint32_t t = 0; t < kTiles; ++t) {
#pragma clang loop unroll(full)
          for (uint32_t j = 0; j < kCount; ++j) {
            AddTile<kFormat, kTiles, kColumns>(tiles[j], t, step, in.of[t], sums[j], tag);
          }
          if (kFormat == TileFormat::kFp8 && kCount > 1) KeepOrder();  // or all would be decoded first
        }
      });
    }
  }
};

// One or two steps at the end of a part, where there is no whole tile; loaded and added as that is.
template <TileFormat kFormat, uint32_t kTailSteps>
struct TailTile {
  static constexpr uint32_t kSteps = kTailSteps;
  static_assert(kSteps == 1 || (kSteps == 2 && TileSteps(kFormat) == 4));
  static constexpr uint32_t kWords = kSteps * StepBytes(kFormat) / kWave / 4;  // of a lane
  uint32_t codes[2];
  float factor = 0;             // fp8
  uint32_t scales, next;        // MXFP4: the words that hold them
  ScaleLane lane;               // codes
  TileRow row;

  DEVICE void Load(const TileRow& w, uint32_t step) {
    const uint32_t at = step * StepBytes(kFormat);
    if constexpr (kWords == 2) {
      const u32x2 both = StreamLane<u32x2>(w, at);
      codes[0] = both[0];
      codes[1] = both[1];
    } else {
      codes[0] = StreamLane<uint32_t>(w, at);
    }
    if constexpr (kFormat == TileFormat::kFp8) {
      factor = reinterpret_cast<Constant<float>>(reinterpret_cast<uint64_t>(w.scales))[step];
    } else if constexpr (HasCodes(kFormat)) {
      row = w;
      lane = LoadScales(w, step, kSteps);
    } else {
      const uint32_t first = step / 4 * TileScaleBytes(kFormat) + LaneRow() * 4;
      const uint32_t more = step % 4 + kSteps > 4 ? TileScaleBytes(kFormat) : 0;
      scales = *reinterpret_cast<Global<const uint32_t>>(w.scales + first);
      next = *reinterpret_cast<Global<const uint32_t>>(w.scales + (first + more));
    }
  }
  // sums += this * x.
  template <Columns kColumns>
  DEVICE void Add(uint32_t step, const u32x4 (&x)[kSteps][Operand<kColumns>::kWords],
                  f32x4 (&sums)[Operand<kColumns>::kWords]) const {
    if constexpr (kFormat == TileFormat::kFp8) {
      const u32x4 w = isa::CachedFp8ToBf16(codes[0], codes[1]);
      const float scale = factor * isa::kCachedFp8Scale;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) {
        sums[i] = sums[i] + MatrixStep(w, x[0][i], f32x4{0, 0, 0, 0}) * scale;
      }
    } else if constexpr (HasCodes(kFormat)) {
      const ScaleLane lanes[1] = {lane};
      f32x2 pq[1];
      MakeScales(row.Factors(), lanes, pq);
      WithCode<kFormat>(row.Code(), [&](auto tag) { AddCodes<kFormat, tag.kValue>(codes, pq[0], x, sums); });
    } else if constexpr (IsScaled(kColumns)) {
      const uint32_t own = __builtin_amdgcn_alignbyte(next, scales, step % 4);
      AddScaled<kSteps>(u32x4{codes[0], kSteps == 2 ? codes[1] : 0, 0, 0}, own, ScaledOperand(x), sums);
    } else {
      const uint32_t own = __builtin_amdgcn_alignbyte(next, scales, step % 4);
      AddStep<kColumns>(isa::Fp4ToBf16<0>(codes[0], own), x[0], sums);
      if constexpr (kSteps == 2) {
        AddStep<kColumns>(isa::Fp4ToBf16<1>(codes[1], own), x[1], sums);
      }
    }
  }
};

// take(piece, step), an empty piece for each of those that a tail of `left` steps from `step` is.
template <TileFormat kFormat, class Take>
DEVICE void ForEachTailTile(uint32_t step, uint32_t left, Take take) {
  if constexpr (kFormat == TileFormat::kFp8Blocks) return;  // there is none
  if constexpr (TileSteps(kFormat) == 4) {
    if (left >= 2) {
      take(TailTile<kFormat, 2>(), step);
      step += 2;
    }
  }
  if constexpr (TileSteps(kFormat) > 1) {
    if (left % 2 != 0) take(TailTile<kFormat, 1>(), step);
  }
}

// ---- sums ----

// A leaf: quarter `quarter` of the tiles of the part of k that is steps [begin, end).
template <TileFormat kFormat>
struct Leaf {
  uint32_t step;   // its first
  uint32_t tiles;  // whole ones
  uint32_t tail;   // steps of one that is not, behind them

  DEVICE Leaf(uint32_t begin, uint32_t end, uint32_t quarter) {
    constexpr uint32_t kSteps = TileSteps(kFormat);
    const uint32_t all = TilesOf(kFormat, end - begin), whole = (end - begin) / kSteps;
    const uint32_t first = all * quarter / kPartLeaves, last = all * (quarter + 1) / kPartLeaves;
    step = begin + first * kSteps;
    tiles = Min(last, whole) - Min(first, whole);
    tail = last > whole && last > first ? (end - begin) % kSteps : 0;
  }
};

// Tiles that a wave asks for at once, of each of `count` output tiles: as many as registers hold when
// four waves share a SIMD.
[[gnu::always_inline]] constexpr uint32_t BatchOf(TileFormat format, Columns columns, uint32_t count) {
  const uint32_t most = columns == Columns::kMany ? 4 : 8;
  if (format == TileFormat::kBf16) return most;
  if (format == TileFormat::kFp8 || format == TileFormat::kByte) return most / 2;
  if (format == TileFormat::kNibble || format == TileFormat::kFp8Blocks) return most / 4;
  return (format == TileFormat::kMxfp4) == (count > 1) ? most / 2 : most / 4;
}

// The sums of a leaf, of neighbouring output tiles.
template <TileFormat kFormat, Columns kColumns, uint32_t kCount>
struct LeafSums {
  f32x4 of[kCount];

  DEVICE LeafSums(const TileRow (&rows)[kCount], Leaf<kFormat> leaf, const Operand<kColumns>& x) {
    f32x4 sums[kCount][Operand<kColumns>::kWords];
    Clear(sums);
    Add<BatchOf(kFormat, kColumns, kCount)>(rows, leaf, x, sums);
    Join(sums, of);
  }

  DEVICE static void Clear(f32x4 (&sums)[kCount][Operand<kColumns>::kWords]) {
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kCount; ++j) {
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < Operand<kColumns>::kWords; ++i) sums[j][i] = f32x4{0, 0, 0, 0};
    }
  }
  DEVICE static void Join(const f32x4 (&sums)[kCount][Operand<kColumns>::kWords], f32x4 (&to)[kCount]) {
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kCount; ++j) to[j] = JoinColumns<kColumns>(sums[j]);
  }
  template <uint32_t kBatch>
  DEVICE static void Add(const TileRow (&rows)[kCount], Leaf<kFormat> leaf, const Operand<kColumns>& x,
                         f32x4 (&sums)[kCount][Operand<kColumns>::kWords]) {
#pragma clang loop unroll(disable)
    for (; leaf.tiles >= kBatch; leaf.tiles -= kBatch) Take<kBatch>(rows, leaf, x, sums);
    if constexpr (kBatch > 4) {
      if (leaf.tiles & 4) Take<4>(rows, leaf, x, sums);
    }
    if constexpr (kBatch > 2) {
      if (leaf.tiles & 2) Take<2>(rows, leaf, x, sums);
    }
    if constexpr (kBatch > 1) {
      if (leaf.tiles & 1) Take<1>(rows, leaf, x, sums);
    }
    ForEachTailTile<kFormat>(leaf.step, leaf.tail, [&](auto piece, uint32_t step) {
      u32x4 in[piece.kSteps][Operand<kColumns>::kWords];
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kCount; ++j) {
        piece.Load(rows[j], step);
        LoadSteps<kColumns>(x, step, in);
        piece.template Add<kColumns>(step, in, sums[j]);
      }
    });
  }

 private:
  template <uint32_t kTiles>
  DEVICE static void Take(const TileRow (&rows)[kCount], Leaf<kFormat>& leaf,
                          const Operand<kColumns>& x,
                          f32x4 (&sums)[kCount][Operand<kColumns>::kWords]) {
    TileBatch<kFormat, kColumns, kTiles, kCount> batch;
    batch.Ask(rows, leaf.step, x);
    batch.AddTo(sums);
    leaf.step += kTiles * TileSteps(kFormat);
  }
};

// The same of several units' tiles, one unit after the other, of a leaf of two batches or more: each batch is asked for before the
// last one is waited for, the next unit's first too, which takes registers for two. Nothing is asked for on a condition: what is
// waited for would be all.
template <TileFormat kFormat, Columns kColumns, uint32_t kCount>
class UnitsAhead {
 public:
  static constexpr uint32_t kBatch = BatchOf(kFormat, kColumns, kCount);
  static constexpr uint32_t kSteps = kBatch * TileSteps(kFormat);  // of a batch

  // `real`: the lane has a row.
  DEVICE UnitsAhead(const TileRow (&rows)[kCount], const Leaf<kFormat>& leaf, const Operand<kColumns>& x, bool real) : real_(real) {
    one_.Clear();
    other_.Clear();
    one_.AskOf(real_, rows, leaf.step, x);
  }
  // Of the unit whose first batch has been asked for; next(): TileRow (&)[kCount] of the one behind it.
  template <class Next>
  DEVICE void Sum(const TileRow (&rows)[kCount], Next next, Leaf<kFormat> leaf, const Operand<kColumns>& x, f32x4 (&to)[kCount]) {
    using Sums = LeafSums<kFormat, kColumns, kCount>;
    f32x4 sums[kCount][Operand<kColumns>::kWords];
    Sums::Clear(sums);
    const uint32_t begin = leaf.step;
#pragma clang loop unroll(disable)
    for (; leaf.tiles >= 4 * kBatch; leaf.tiles -= 2 * kBatch, leaf.step += 2 * kSteps) {
      other_.AskOf(real_, rows, leaf.step + kSteps, x);
      one_.AddTo(sums);
      one_.AskOf(real_, rows, leaf.step + 2 * kSteps, x);
      other_.AddTo(sums);
    }
    other_.AskOf(real_, rows, leaf.step + kSteps, x);
    one_.AddTo(sums);
    one_.AskOf(real_, next(), begin, x);
    other_.AddTo(sums);
    leaf.tiles -= 2 * kBatch;
    leaf.step += 2 * kSteps;
    Sums::template Add<kBatch / 2>(rows, leaf, x, sums);
    Sums::Join(sums, to);
  }

 private:
  bool real_;
  TileBatch<kFormat, kColumns, kBatch, kCount> one_, other_;
};

// A k that is one part: each wave takes a leaf.
template <TileFormat kFormat, Columns kColumns, uint32_t kCount>
struct WaveSums : LeafSums<kFormat, kColumns, kCount> {
  DEVICE WaveSums(const Tiles& w, uint32_t first, const Operand<kColumns>& x)
      : LeafSums<kFormat, kColumns, kCount>(Rows(w, first).of,
                                            Leaf<kFormat>(0, w.steps, WaveId()), x) {}

 private:
  struct Rows {
    TileRow of[kCount];
    DEVICE Rows(const Tiles& w, uint32_t first) {
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kCount; ++j) of[j] = RowOf<kFormat>(w, first + j);
    }
  };
};

// The wave's leaves of parts [first, first + parts), one by one: take(i, leaf), i from 0 to parts - 1.
template <TileFormat kFormat, class Take>
DEVICE void ForEachLeaf(const Tiles& w, uint32_t first, uint32_t parts, Take take) {
#pragma clang loop unroll(disable)
  for (uint32_t i = 0; i < parts; ++i) {
    const uint32_t leaf = WaveId() * parts + i, part = first + leaf / kPartLeaves;
    const uint32_t begin = part == 0 ? 0 : PartEnd(w, part - 1), end = PartEnd(w, part);
    take(i, Leaf<kFormat>(begin, end, leaf % kPartLeaves));
  }
}

// The sum of a wave's leaves, in the tree, as they come: 1, 2, 4 or 8. All sums are made, and those that
// end kept: with branches the registers of every way would count.
template <class T>
struct LeafTreeOf {
  static_assert(kMaxParts == 8);
  T one = {}, two = {}, four = {};  // of so many leaves; all eight take the place of one

  DEVICE void Push(uint32_t index, T value) {
    const uint32_t carries = TreeCarries(index);
    const T of_two = one + value, of_four = two + of_two, of_eight = four + of_four;
    one = carries == 0 ? value : carries == 3 ? of_eight : one;
    two = carries == 1 ? of_two : two;
    four = carries == 2 ? of_four : four;
  }
  // When `count` have come.
  DEVICE T Sum(uint32_t count) const { return count == 2 ? two : count == 4 ? four : one; }
};
using LeafTree = LeafTreeOf<f32x4>;

// The four waves' sums of a tile, added in the tree: thread t gets output t % 16 of row t / 16.
// A lane of the matrix unit holds rows 4 * (l / 16) .. + 3 (outputs) of column l % 16 (rows of x).
inline constexpr uint32_t kTileLdsBytes = kWaves * kTileRows * kTileRows * 4;
// Of so many tiles at once, in kCount * kTileLdsBytes.
template <uint32_t kCount>
DEVICE void AddWaves(const f32x4 (&shares)[kCount], Lds<float> scratch, float (&to)[kCount]) {
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kCount; ++i) {
    reinterpret_cast<Lds<f32x4>>(scratch)[i * kThreads + ThreadId()] = shares[i];
  }
  BarrierLds();
  const uint32_t output = ThreadId() % kTileRows, row = ThreadId() / kTileRows;
  const uint32_t at = (output / 4 * kTileRows + row) * 4 + output % 4;
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kCount; ++i) {
    float sums[kWaves];
#pragma clang loop unroll(full)
    for (uint32_t w = 0; w < kWaves; ++w) {
      sums[w] = scratch[(i * kWaves + w) * kTileRows * kTileRows + at];
    }
    AddTree(sums, kWaves, [](float a, float b) { return a + b; });
    to[i] = sums[0];
  }
  BarrierLds();
}
DEVICE float AddWaves(f32x4 share, Lds<float> scratch) {
  const f32x4 shares[1] = {share};
  float to[1];
  AddWaves(shares, scratch, to);
  return to[0];
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TILES_H_
