// SPDX-License-Identifier: MIT
//
// Attention of a decoder layer: bias, QK-norm, RoPE and the append of K and V; then causal grouped-query
// attention over pages, through the matrix units.
//
// A workgroup takes one row, one key head and one split of kSplitTokens; its query heads (at most 16)
// are the columns of the matrix instructions, tokens and then head elements the rows. Waves take
// every fourth group of 32 tokens. Which wave sees which token depends on its absolute position
// alone, waves and splits are merged in index order: a row's bits do not depend on the step.
#ifndef MAINARCH_KERNELS_OPS_ATTENTION_H_
#define MAINARCH_KERNELS_OPS_ATTENTION_H_

#include "kernels/common/kernel.h"
#include "kernels/ops/tiles.h"
#include "kernels/quant/kv_fp4.h"

namespace mainarch::kernels {

// Eight fp32 as the two bf16 operands of a matrix instruction.
struct SplitEight {
  u32x4 high, low;
};
DEVICE SplitEight Split(Eight x) {
  SplitEight out;
  const RawEight<uint16_t> high = Pack<uint16_t>(x);
  const Eight rounded = Unpack(high);
#pragma clang loop unroll(full)
  for (int i = 0; i < 8; ++i) {
    x.at[i] -= rounded.at[i];
  }
  out.high = high.words[0];
  out.low = Pack<uint16_t>(x).words[0];
  return out;
}

// Eight fp8 codes as bf16, exactly.
DEVICE u32x4 Fp8ToBf16(uint32_t low, uint32_t high) {
  const f32x2 a = isa::Fp8OcpToFloat2<false>(low), b = isa::Fp8OcpToFloat2<true>(low);
  const f32x2 c = isa::Fp8OcpToFloat2<false>(high), d = isa::Fp8OcpToFloat2<true>(high);
  return Pack<uint16_t>(Eight{{a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]}}).words[0];
}

// This lane's eight columns of a step, as floats (StepPlace). Steps are counted in 64 bits: with 32
// the compiler may not fold neighbouring ones into one address.
DEVICE Eight LoadStep(Global<const float> row, uint64_t step) {
  const Global<const float> at = row + step * kStepColumns + LanePart() * 4;
  return Unpack(RawEight<float>{{Load16(at, 0), Load16(at, 4)}});
}

// ---- the cache ----

// One (page, head) of the cache: where K, V and their multipliers are.
template <KvFormat kFormat, uint32_t kHeadDim>
struct Page {
  static constexpr KvForm kKey = KeyForm(kFormat), kValue = ValueForm(kFormat);
  Global<uint8_t> base;

  DEVICE Global<uint8_t> k(uint32_t plane) const { return base + plane * KvPlaneBytes(kKey, kHeadDim); }
  DEVICE Global<uint8_t> v(uint32_t plane) const {
    return base + KvSideBytes(kKey, kHeadDim) + plane * KvPlaneBytes(kValue, kHeadDim);
  }
  // Of fp8: [16 tokens].
  DEVICE Global<float> k_scales() const {
    return reinterpret_cast<Global<float>>(base + KvSideBytes(kKey, kHeadDim) +
                                           KvSideBytes(kValue, kHeadDim));
  }
  DEVICE Global<float> v_scales() const {
    return reinterpret_cast<Global<float>>(
        reinterpret_cast<Global<uint8_t>>(k_scales()) + KvScaleBytes(kKey, kHeadDim));
  }
  // Of fp4: [hd / 32][16 tokens].
  DEVICE Global<uint8_t> k_bytes() const { return reinterpret_cast<Global<uint8_t>>(k_scales()); }
  DEVICE Global<uint8_t> v_bytes() const { return reinterpret_cast<Global<uint8_t>>(v_scales()); }
  // Elements of token `token`: K is [hd / 32][16][32], V is [hd][16].
  DEVICE static uint32_t KIndex(uint32_t token, uint32_t d) {
    return (d / kStepColumns * kPageTokens + token) * kStepColumns + StepPlace(d % kStepColumns);
  }
  DEVICE static uint32_t VIndex(uint32_t token, uint32_t d) { return d * kPageTokens + token; }
};
template <KvFormat kFormat, uint32_t kHeadDim>
DEVICE Page<kFormat, kHeadDim> PageAt(Global<uint8_t> kv, uint32_t page, uint32_t kv_heads,
                                      uint32_t head) {
  return {kv + (uint64_t{page} * kv_heads + head) * KvPageBytes(kFormat, kHeadDim)};
}

// e4m3fn: 448 is the largest number; the multiplier maps the largest element to it.
inline constexpr float kFp8Largest = 448.0f;

// ---- prepare: a wave a (row, head) ----

template <KvFormat kFormat, uint32_t kHeadDim>
struct Prepare {
  using Args = PrepareArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kHalf = kHeadDim / 2;  // a lane holds elements l and l + kHalf

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const StepView step(args.step);
    const uint32_t heads = args.heads + 2 * args.kv_heads;
    const uint32_t total = step.rows() * heads;
    for (uint32_t t = worker * kWaves + WaveId(); t < total; t += workers * kWaves) {
      OneHead(ReadArgumentsAgain<Args>(), step, t / heads, t % heads);
    }
  }

  DEVICE static void OneHead(const Args& args, const StepView& step, uint32_t row, uint32_t head) {
    const Global<const float> at = At(args.in) + uint64_t{row} * args.stride + head * kHeadDim;
    const uint64_t apart = uint64_t{args.split_rows} * args.stride;
    const bool mine = LaneId() < kHalf;
    const uint32_t l = mine ? LaneId() : 0;
    const RowFactor factor(args.norm, row, true);
    const float by = factor.Value(args.norm);
    const float a = SumSplits(at + l, args.splits, apart) * by;
    const float b = SumSplits(at + (l + kHalf), args.splits, apart) * by;
    Finish(ReadArgumentsAgain<Args>(), step, row, head, mine ? a : 0.0f, mine ? b : 0.0f);
  }

  // a, b: elements l and l + kHalf of the head as the product gave them.
  DEVICE static void Finish(const Args& args, const StepView& step, uint32_t row, uint32_t head,
                            float a, float b) {
    const bool mine = LaneId() < kHalf;
    const uint32_t l = mine ? LaneId() : 0;
    const bool is_query = head < args.heads;
    const bool is_value = head >= args.heads + args.kv_heads;
    const uint32_t position = step.position(row);
    if (args.bias.address != 0) {
      const Global<const float> bias = At(args.bias) + head * kHeadDim;
      a += mine ? bias[l] : 0.0f;
      b += mine ? bias[l + kHalf] : 0.0f;
    }
    if (!is_value) {
      if (args.q_norm.address != 0) {
        const Global<const float> w = At(is_query ? args.q_norm : args.k_norm);
        const float mean = WaveSum(Fma(a, a, b * b)) * (1.0f / kHeadDim);
        const float factor = Rsqrt(mean + args.epsilon);
        a = a * factor * w[l];
        b = b * factor * w[l + kHalf];
      }
      Rotate(args, position, l, a, b);
      if constexpr (quant::InfoOf(kFormat).turns) Turn(a, b);
    }
    if (is_query) {
      const Global<float> at = At(args.qkv) + uint64_t{row} * args.stride + head * kHeadDim;
      if (mine) {
        at[l] = a;
        at[l + kHalf] = b;
      }
      return;
    }
    const uint32_t kv_head = head - args.heads - (is_value ? args.kv_heads : 0);
    const auto page = PageAt<kFormat, kHeadDim>(
        At(args.kv), step.pages(row)[position / kPageTokens], args.kv_heads, kv_head);
    Append(page, position % kPageTokens, is_value, mine, l, a, b);
  }

  // Rotary dimension R <= head_dim: element i < R/2 turns with i + R/2. With R = head_dim the pair
  // is this lane's own; a smaller R would need other lanes, and the host refuses it.
  DEVICE static void Rotate(const Args& args, uint32_t position, uint32_t l, float& a, float& b) {
    const uint64_t at = uint64_t{position} * kHalf + l;
    const float c = At(args.cosine)[at], s = At(args.sine)[at];
    const float turned = Fma(a, c, -(b * s));
    b = Fma(b, c, a * s);
    a = turned;
  }

  // The head times the orthonormal Hadamard matrix of its size.
  DEVICE static void Turn(float& a, float& b) {
    static_assert(quant::HadamardSize(kHeadDim) == kHeadDim);
    const float sum = a + b;
    b = a - b;
    a = sum;
#pragma clang loop unroll(full)
    for (uint32_t bit = 1; bit < kHalf; bit *= 2) {
      const float other_a = Shuffle(a, LaneId() ^ bit), other_b = Shuffle(b, LaneId() ^ bit);
      const bool upper = LaneId() & bit;
      a = upper ? other_a - a : a + other_a;
      b = upper ? other_b - b : b + other_b;
    }
    constexpr float kFactor = kHeadDim == 128 ? 0.0883883461f : kHeadDim == 64 ? 0.125f : 0.176776692f;
    a *= kFactor;
    b *= kFactor;
  }

  // Into bytes of two elements each, and a multiplier a block of 32 (quant/kv_fp4.h): four blocks at
  // once, sixteen lanes for the sixteen that a block's can be.
  DEVICE static void AppendFp4(const Page<kFormat, kHeadDim>& page, uint32_t token, bool is_value,
                               bool mine, uint32_t l, float a, float b) {
    const uint32_t block = LaneId() / quant::kCandidates % (kHeadDim / 32);
    // The magnitude of element i of this lane's block.
    const auto element = [&](uint32_t i) {
      const uint32_t d = block * 32 + i;
      const float from_a = Shuffle(a, d % kHalf), from_b = Shuffle(b, d % kHalf);
      return __builtin_fabsf(d < kHalf ? from_a : from_b);
    };
    float largest = 0;
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < 32; ++i) largest = __builtin_fmaxf(largest, element(i));
    const uint32_t first = quant::FirstCandidate(largest);
    const uint32_t candidate = first + LaneId() % quant::kCandidates;
    const float scale = quant::FloatFromE5m3(static_cast<uint8_t>(candidate)), inverse = 1.0f / scale;
    float sum = 0;
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < 32; ++i) {
      const float y = element(i) * inverse, off = y - RoundToE2m1(y);
      sum = Fma(off, off, sum);
    }
    Scored best = {-(sum * scale * scale), candidate};
#pragma clang loop unroll(full)
    for (uint32_t bit = 1; bit < quant::kCandidates; bit *= 2) {
      best = Better(best, {Shuffle(best.score, LaneId() ^ bit), Shuffle(best.index, LaneId() ^ bit)});
    }
    // Of zeros 0; of what clips with any the largest, because squares may overflow.
    uint32_t code = largest > 0.0f ? best.index : 0;
    if (largest >= 6 * 61440.0f) code = quant::kE5m3Largest;
    constexpr uint32_t kBlocks = kHeadDim / 32, kLanesOf = quant::kCandidates;
    if (LaneId() < kBlocks * kLanesOf && LaneId() % kLanesOf == 0) {
      (is_value ? page.v_bytes() : page.k_bytes())[block * kPageTokens + token] =
          static_cast<uint8_t>(code);
    }
    const uint32_t code_a = Code(a, Shuffle(code, l / 32 * kLanesOf));
    const uint32_t code_b = Code(b, Shuffle(code, (l + kHalf) / 32 * kLanesOf));
    const Global<uint8_t> to = is_value ? page.v(0) : page.k(0);
    const uint32_t ia = is_value ? KvFp4ValueAt(kHeadDim, token, l) : page.KIndex(token, l);
    const uint32_t ib = is_value ? KvFp4ValueAt(kHeadDim, token, l + kHalf) : page.KIndex(token, l + kHalf);
    if (kHalf == 16 && is_value) {  // both halves of a byte are this lane's
      if (mine) to[ia / 2] = static_cast<uint8_t>(code_a | code_b << 4);
      return;
    }
    // The other element of a byte: the next of K, of V the one 16 further on.
    const uint32_t bit = is_value ? 16 : 1;
    const uint32_t other_a = Shuffle(code_a, LaneId() ^ bit), other_b = Shuffle(code_b, LaneId() ^ bit);
    if (mine && (LaneId() & bit) == 0) {
      to[ia / 2] = static_cast<uint8_t>(code_a | other_a << 4);
      to[ib / 2] = static_cast<uint8_t>(code_b | other_b << 4);
    }
  }
  // Of magnitudes, to the nearest of 0 0.5 1 1.5 2 3 4 6, ties to the even code.
  DEVICE static float RoundToE2m1(float y) {
    const float step = y < 2.0f ? 0.5f : y < 4.0f ? 1.0f : 2.0f;
    const float per_step = y < 2.0f ? 2.0f : y < 4.0f ? 1.0f : 0.5f;
    return __builtin_fminf(__builtin_rintf(y * per_step) * step, 6.0f);
  }
  DEVICE static uint32_t Code(float x, uint32_t scale) {
    const float multiplier = quant::FloatFromE5m3(static_cast<uint8_t>(scale));
    return scale == 0 ? 0u : uint32_t{quant::E2m1FromFloat(x * (1.0f / multiplier))};
  }

  DEVICE static void Append(const Page<kFormat, kHeadDim>& page, uint32_t token, bool is_value,
                            bool mine, uint32_t l, float a, float b) {
    if constexpr (KeyForm(kFormat) == KvForm::kFp4) {
      AppendFp4(page, token, is_value, mine, l, a, b);
    } else if (ValueForm(kFormat) == KvForm::kFp4 && is_value) {
      if constexpr (ValueForm(kFormat) == KvForm::kFp4) AppendFp4(page, token, true, mine, l, a, b);
    } else {
      AppendPlain(page, token, is_value, mine, l, a, b);
    }
  }
  DEVICE static void AppendPlain(const Page<kFormat, kHeadDim>& page, uint32_t token, bool is_value,
                                 bool mine, uint32_t l, float a, float b) {
    const uint32_t ia = is_value ? page.VIndex(token, l) : page.KIndex(token, l);
    const uint32_t ib = is_value ? page.VIndex(token, l + kHalf) : page.KIndex(token, l + kHalf);
    if constexpr (KeyForm(kFormat) == KvForm::kFp8) {
      const float largest = WaveMax(__builtin_fmaxf(__builtin_fabsf(a), __builtin_fabsf(b)));
      // Below the smallest of these everything rounds to zero anyway.
      const float scale = largest > 0x1p-117f ? largest * (1.0f / kFp8Largest) : 1.0f;
      const uint32_t codes = isa::Fp8OcpFromFloat2(a / scale, b / scale);
      const Global<uint8_t> to = is_value ? page.v(0) : page.k(0);
      if (mine) {
        to[ia] = static_cast<uint8_t>(codes);
        to[ib] = static_cast<uint8_t>(codes >> 8);
      }
      if (LaneId() == 0) (is_value ? page.v_scales() : page.k_scales())[token] = scale;
    } else {
#pragma clang loop unroll(full)
      for (uint32_t plane = 0; plane < KvPlanes(KeyForm(kFormat)); ++plane) {
        const Global<uint16_t> to =
            reinterpret_cast<Global<uint16_t>>(is_value ? page.v(plane) : page.k(plane));
        const uint16_t bits_a = ToBf16(a), bits_b = ToBf16(b);
        if (mine) {
          to[ia] = bits_a;
          to[ib] = bits_b;
        }
        a -= FromBf16(bits_a);
        b -= FromBf16(bits_b);
      }
    }
  }
};

// ---- attend ----

// What a wave has so far: for its column (query head) the largest score, this lane's part of the
// sum of exp, and exp-weighted V: element 16 t + 4 g + r of lane (j, g) in o[t][r].
template <uint32_t kHeadDim>
struct Running {
  float largest = -1e30f;  // finite: of two -inf no difference can be taken
  float sum = 0;
  f32x4 o[kHeadDim / 16] = {};
};

// How many of a launch's rows the step has.
DEVICE uint32_t RowsHere(const StepView& step, uint32_t first, uint32_t count) {
  return step.rows() <= first ? 0 : Min(step.rows() - first, count);
}

// The largest (the sum) over the four lanes of a column.
DEVICE float ColumnMax(float x) {
  x = __builtin_fmaxf(x, BitCast<float>(isa::SwapRows(BitCast<uint32_t>(x))));
  return __builtin_fmaxf(x, BitCast<float>(isa::SwapHalves(BitCast<uint32_t>(x))));
}
DEVICE float ColumnSum(float x) {
  x += BitCast<float>(isa::SwapRows(BitCast<uint32_t>(x)));
  return x + BitCast<float>(isa::SwapHalves(BitCast<uint32_t>(x)));
}

template <KvFormat kFormat, uint32_t kHeadDim>
struct Attend {
  using Args = AttendArgs;
  using PageOf = Page<kFormat, kHeadDim>;
  static constexpr KvForm kKey = KeyForm(kFormat), kValue = ValueForm(kFormat);
  static constexpr uint32_t kSteps = kHeadDim / 32;
  static constexpr uint32_t kTilesOfO = kHeadDim / 16;
  // A wave's o, m, l for every column: [4 waves][16 columns][hd + 2].
  static constexpr uint32_t kColumn = kHeadDim + 2;
  static constexpr uint32_t kLdsBytes = kWaves * kMaxGroup * kColumn * 4;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t splits = step.splits();
    const uint32_t total = RowsHere(step, args.first_row, args.row_count) * args.kv_heads * splits;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t split = t % splits, unit = t / splits;
      const uint32_t row = args.first_row + unit / args.kv_heads, head = unit % args.kv_heads;
      if (split <= step.position(row) / kSplitTokens) OneSplit(args, step, row, head, split, arena);
    }
  }

  DEVICE static void OneSplit(const Args& args, const StepView& step, uint32_t row, uint32_t head,
                              uint32_t split, Arena arena) {
    const uint32_t group = args.heads / args.kv_heads;
    const uint32_t position = step.position(row);
    const uint32_t column = Min(LaneRow(), group - 1);
    const Global<const float> q =
        At(args.qkv) + uint64_t{row} * args.q_stride + (head * group + column) * kHeadDim;
    SplitEight query[kSteps];
#pragma clang loop unroll(full)
    for (uint32_t s = 0; s < kSteps; ++s) {
      Eight eight = LoadStep(q, s);
#pragma clang loop unroll(full)
      for (int i = 0; i < 8; ++i) eight.at[i] *= args.scale;
      query[s] = Split(eight);
    }
    Running<kHeadDim> run;
    const uint32_t first = split * kSplitTokens;
    const uint32_t last = Min(first + kSplitTokens - 1, position);
    const Global<const uint32_t> pages = step.pages(row);
    const Global<uint8_t> kv = At(Address<uint8_t>{args.kv.address});
    for (uint32_t token = first + WaveId() * 32; token <= last; token += kWaves * 32) {
      const uint32_t page = token / kPageTokens;
      const PageOf a = PageAt<kFormat, kHeadDim>(kv, pages[page], args.kv_heads, head);
      // The second page may not exist: then its tokens lie beyond the row's position.
      const PageOf b = token + kPageTokens <= position
                           ? PageAt<kFormat, kHeadDim>(kv, pages[page + 1], args.kv_heads, head)
                           : a;
      Group(a, b, token, position, query, run);
    }
    Finish(args, row, head, split, position, group, run, arena);
  }

  // K of 16 tokens as it lies, this lane's part, and what multiplies it.
  struct Keys {
    static constexpr bool kFp4 = kKey == KvForm::kFp4, kFp8 = kKey == KvForm::kFp8;
    static constexpr uint32_t kPlanes = KvPlanes(kKey);
    u32x4 words[kFp4 || kFp8 ? 1 : kPlanes * kSteps];
    u32x2 pairs[kFp8 ? kSteps : 1];
    uint32_t codes[kFp4 ? kSteps : 1], scales[kFp4 ? kSteps : 1];
    f32x4 multipliers;

    DEVICE explicit Keys(const PageOf& page) {
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < kSteps; ++s) {
        const uint32_t at = (s * 16 + LaneRow()) * 4 + LanePart();
        if constexpr (kFp4) {
          codes[s] = reinterpret_cast<Global<const uint32_t>>(page.k(0))[at];
          scales[s] = FourBytes(page.k_bytes(), s);
        } else if constexpr (kFp8) {
          pairs[s] = reinterpret_cast<Global<const u32x2>>(page.k(0))[at];
        } else {
#pragma clang loop unroll(full)
          for (uint32_t p = 0; p < kPlanes; ++p) words[p * kSteps + s] = Load16(page.k(p), at);
        }
      }
      if constexpr (kFp8) multipliers = FourFloats(page.k_scales());
    }
    // Times the queries.
    DEVICE f32x4 Scores(const SplitEight (&query)[kSteps]) const {
      f32x4 acc = {0, 0, 0, 0};
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < kSteps; ++s) {
        if constexpr (kFp4) {
          const f32x4 block = Product(isa::Fp4ToBf16(codes[s]), query[s], f32x4{0, 0, 0, 0});
          acc = acc + block * ScalesOf(scales[s]);
        } else if constexpr (kFp8) {
          const u32x2 both = pairs[s];
          const uint32_t c0 = both[0], c1 = both[1];
          acc = Product(Fp8ToBf16(c0, c1), query[s], acc);
        } else {
          if constexpr (kPlanes == 2) acc = ProductHigh(words[kSteps + s], query[s], acc);
          acc = Product(words[s], query[s], acc);
        }
      }
      return acc;
    }
  };
  // V of 32 tokens as it lies, this lane's part: of tile t tokens 4 g .. 4 g + 3 of both pages.
  struct Values {
    static constexpr bool kFp4 = kValue == KvForm::kFp4, kFp8 = kValue == KvForm::kFp8;
    static constexpr uint32_t kPlanes = KvPlanes(kValue), kWords = kHeadDim / 32;
    u32x2 a[kFp4 || kFp8 ? 1 : kPlanes * kTilesOfO], b[kFp4 || kFp8 ? 1 : kPlanes * kTilesOfO];
    uint32_t codes_a[kFp8 ? kTilesOfO : kFp4 ? kWords : 1];
    uint32_t codes_b[kFp8 ? kTilesOfO : kFp4 ? kWords : 1];
    uint32_t scales_a[kFp4 ? kWords : 1], scales_b[kFp4 ? kWords : 1];
    f32x4 multipliers_a, multipliers_b;

    DEVICE Values(const PageOf& page_a, const PageOf& page_b) {
      if constexpr (kFp4) {
        const uint32_t at = (LaneRow() * 4 + LanePart()) * kWords;
#pragma clang loop unroll(full)
        for (uint32_t t = 0; t < kWords; ++t) {
          codes_a[t] = reinterpret_cast<Global<const uint32_t>>(page_a.v(0))[at + t];
          codes_b[t] = reinterpret_cast<Global<const uint32_t>>(page_b.v(0))[at + t];
          scales_a[t] = FourBytes(page_a.v_bytes(), t);
          scales_b[t] = FourBytes(page_b.v_bytes(), t);
        }
      } else {
#pragma clang loop unroll(full)
        for (uint32_t t = 0; t < kTilesOfO; ++t) {
          const uint32_t at = (t * 16 + LaneRow()) * 4 + LanePart();
          if constexpr (kFp8) {
            codes_a[t] = reinterpret_cast<Global<const uint32_t>>(page_a.v(0))[at];
            codes_b[t] = reinterpret_cast<Global<const uint32_t>>(page_b.v(0))[at];
          } else {
#pragma clang loop unroll(full)
            for (uint32_t p = 0; p < kPlanes; ++p) {
              a[p * kTilesOfO + t] = reinterpret_cast<Global<const u32x2>>(page_a.v(p))[at];
              b[p * kTilesOfO + t] = reinterpret_cast<Global<const u32x2>>(page_b.v(p))[at];
            }
          }
        }
        if constexpr (kFp8) {
          multipliers_a = FourFloats(page_a.v_scales());
          multipliers_b = FourFloats(page_b.v_scales());
        }
      }
    }
    // Of plane p, those of real tokens.
    DEVICE u32x4 Tile(uint32_t p, uint32_t t, u32x4 real) const {
      if constexpr (kFp8) {
        return real & Fp8ToBf16(codes_a[t], codes_b[t]);
      } else {
        const u32x2 low = a[p * kTilesOfO + t], high = b[p * kTilesOfO + t];
        return real & u32x4{low[0], low[1], high[0], high[1]};
      }
    }
  };
  // Of tokens 4 g .. 4 g + 3: multipliers of block `block`, a byte each; and of fp8.
  DEVICE static uint32_t FourBytes(Global<const uint8_t> bytes, uint32_t block) {
    return reinterpret_cast<Global<const uint32_t>>(bytes)[block * (kPageTokens / 4) + LanePart()];
  }
  DEVICE static f32x4 FourFloats(Global<const float> scales) {
    return reinterpret_cast<Global<const f32x4>>(scales)[LanePart()];
  }
  DEVICE static f32x4 ScalesOf(uint32_t four) {
    return f32x4{quant::FloatFromE5m3(static_cast<uint8_t>(four)),
                 quant::FloatFromE5m3(static_cast<uint8_t>(four >> 8)),
                 quant::FloatFromE5m3(static_cast<uint8_t>(four >> 16)),
                 quant::FloatFromE5m3(static_cast<uint8_t>(four >> 24))};
  }
  DEVICE static f32x4 Product(u32x4 w, const SplitEight& x, f32x4 acc) {
    return isa::Mfma16x16x32Bf16(w, x.high, isa::Mfma16x16x32Bf16(w, x.low, acc));
  }
  DEVICE static f32x4 ProductHigh(u32x4 w, const SplitEight& x, f32x4 acc) {
    return isa::Mfma16x16x32Bf16(w, x.high, acc);
  }

  // Lane (j, g) holds tokens 4g .. 4g+3 of each page: their scores and then weights are both what
  // the first product gives and what the second one takes, with no move between lanes.
  DEVICE static void Group(const PageOf& a, const PageOf& b, uint32_t token, uint32_t position,
                           const SplitEight (&query)[kSteps], Running<kHeadDim>& run) {
    // All is asked for before any of it is used.
    const Keys key_a(a), key_b(b);
    const Values values(a, b);
    KeepOrder();
    Eight score = Join(key_a.Scores(query), key_b.Scores(query));
    if constexpr (kKey == KvForm::kFp8) Times(score, key_a.multipliers, key_b.multipliers);
    float largest = -__builtin_inff();
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t at = token + i / 4 * kPageTokens + LanePart() * 4 + i % 4;
      if (at > position) score.at[i] = -__builtin_inff();
      largest = __builtin_fmaxf(largest, score.at[i]);
    }
    const float now = __builtin_fmaxf(run.largest, ColumnMax(largest));
    const float keep = Exp(run.largest - now);
    run.largest = now;
    float sum = 0;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) {
      score.at[i] = Exp(score.at[i] - now);
      sum += score.at[i];
    }
    run.sum = Fma(run.sum, keep, sum);
    if constexpr (kValue == KvForm::kFp4) return AddFp4Values(values, score, keep, run);
    if constexpr (kValue == KvForm::kFp8) {
      Times(score, values.multipliers_a, values.multipliers_b);
    }
    const SplitEight weight = Split(score);
    const u32x4 real = RealTokens(token, position);
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTilesOfO; ++t) {
      f32x4 o = run.o[t] * keep;
      if constexpr (Values::kPlanes == 2) o = ProductHigh(values.Tile(1, t, real), weight, o);
      run.o[t] = Product(values.Tile(0, t, real), weight, o);
    }
  }
  // o = o * keep + weight * V, block after block, its multipliers folded into the weights. Of the tokens
  // 4 g .. 4 g + 3 of both pages those of one and the other take turns, in V and so in the weights.
  DEVICE static void AddFp4Values(const Values& values, const Eight& weight, float keep,
                                  Running<kHeadDim>& run) {
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < Values::kWords; ++t) {
      const f32x4 scale_a = ScalesOf(values.scales_a[t]), scale_b = ScalesOf(values.scales_b[t]);
      Eight scaled;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 4; ++i) {
        // A token beyond the position has no multiplier yet: its weight is 0, and stays so.
        const float of_a = weight.at[i], of_b = weight.at[i + 4];
        scaled.at[2 * i] = of_a == 0.0f ? 0.0f : of_a * scale_a[i];
        scaled.at[2 * i + 1] = of_b == 0.0f ? 0.0f : of_b * scale_b[i];
      }
      const SplitEight split = Split(scaled);
      const uint32_t word_a = values.codes_a[t], word_b = values.codes_b[t];
      const uint32_t low = (word_a & 0x0f0f0f0f) | (word_b & 0x0f0f0f0f) << 4;
      const uint32_t high = (word_a >> 4 & 0x0f0f0f0f) | (word_b & 0xf0f0f0f0);
      run.o[2 * t] = Product(isa::Fp4ToBf16(low), split, run.o[2 * t] * keep);
      run.o[2 * t + 1] = Product(isa::Fp4ToBf16(high), split, run.o[2 * t + 1] * keep);
    }
  }
  DEVICE static Eight Join(f32x4 a, f32x4 b) {
    return {{a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]}};
  }
  // Multipliers of the eight tokens. A token beyond the position has no multiplier yet, whatever
  // lies there: its product must not become NaN, so it is left alone (the mask, the zero weight).
  DEVICE static void Times(Eight& x, f32x4 low, f32x4 high) {
    const Eight scale = Join(low, high);
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; ++i) x.at[i] = x.at[i] == 0.0f ? 0.0f : x.at[i] * scale.at[i];
  }
  // Masks for what Values loads: tokens beyond the position have weight 0, but what lies there may
  // be a NaN of some other sequence.
  DEVICE static u32x4 RealTokens(uint32_t token, uint32_t position) {
    u32x4 masks;
#pragma clang loop unroll(full)
    for (uint32_t w = 0; w < 4; ++w) {
      const uint32_t first = token + w / 2 * kPageTokens + LanePart() * 4 + w % 2 * 2;
      masks[w] = (first <= position ? 0xffffu : 0u) | (first + 1 <= position ? 0xffff0000u : 0u);
    }
    return masks;
  }
  // Merges the four waves in order and writes the answer, or a part of it.
  DEVICE static void Finish(const Args& args, uint32_t row, uint32_t head, uint32_t split,
                            uint32_t position, uint32_t group, Running<kHeadDim>& run,
                            Arena arena) {
    const Lds<float> all = arena.Get<float>();
    const Lds<float> mine = all + (WaveId() * kMaxGroup + LaneRow()) * kColumn;
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTilesOfO; ++t) {
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < 4; ++r) mine[16 * t + 4 * LanePart() + r] = run.o[t][r];
    }
    const float sum = ColumnSum(run.sum);
    if (LanePart() == 0) {
      mine[kHeadDim] = run.largest;
      mine[kHeadDim + 1] = sum;
    }
    BarrierLds();
    const bool whole = position < kSplitTokens;
    for (uint32_t i = ThreadId(); i < group * kHeadDim; i += kThreads) {
      const uint32_t column = i / kHeadDim, d = i % kHeadDim;
      const Lds<float> parts = all + column * kColumn;
      float largest = parts[kHeadDim];
      for (uint32_t w = 1; w < kWaves; ++w) {
        largest = __builtin_fmaxf(largest, parts[w * kMaxGroup * kColumn + kHeadDim]);
      }
      float o = 0, total = 0;
      for (uint32_t w = 0; w < kWaves; ++w) {
        const Lds<float> part = parts + w * kMaxGroup * kColumn;
        const float share = Exp(part[kHeadDim] - largest);
        o = Fma(part[d], share, o);
        total = Fma(part[kHeadDim + 1], share, total);
      }
      const uint32_t query_head = head * group + column;
      if (whole) {
        StoreSplit(At(args.out) + uint64_t{row} * args.out_stride, query_head * kHeadDim + d,
                   o / total);
      } else {
        const Global<float> part =
            At(args.parts) +
            ((uint64_t{row - args.first_row} * args.heads + query_head) * args.max_splits + split) *
                AttendPartFloats(kHeadDim);
        part[d] = o;
        if (d == 0) {
          part[kHeadDim] = largest;
          part[kHeadDim + 1] = total;
        }
      }
    }
    BarrierLds();
  }
};

// Rows of more than one split: a workgroup a (row, head). Splits are dealt out over so many groups of
// threads as a head's elements leave, group after group, and added in order by each; then groups are.
struct AttendMerge {
  using Args = AttendMergeArgs;
  static constexpr uint32_t kBatch = 8;          // parts that a thread asks for at once
  static constexpr uint32_t kShares = kThreads;  // whose shares are known at once
  static constexpr uint32_t kSumsAt = kShares * 4, kScratchAt = kSumsAt + kThreads * 4;
  static constexpr uint32_t kLdsBytes = kScratchAt + kWaves * 4;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t total = RowsHere(step, args.first_row, args.row_count) * args.heads;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = args.first_row + t / args.heads, head = t % args.heads;
      const uint32_t splits = step.position(row) / kSplitTokens + 1;
      if (splits > 1) OneHead(args, row, head, splits, arena);
    }
  }

  DEVICE static void OneHead(const Args& args, uint32_t row, uint32_t head, uint32_t splits,
                             Arena arena) {
    const uint32_t hd = args.head_dim, column = AttendPartFloats(hd);
    const Global<const float> parts =
        At(args.parts) +
        (uint64_t{row - args.first_row} * args.heads + head) * args.max_splits * column;
    const Lds<float> shares = arena.Get<float>(), sums = arena.Get<float>(kSumsAt);
    const Lds<float> scratch = arena.Get<float>(kScratchAt);
    float largest = -1e30f;
    for (uint32_t s = ThreadId(); s < splits; s += kThreads) {
      largest = __builtin_fmaxf(largest, parts[uint64_t{s} * column + hd]);
    }
    largest = GroupMax<kWaves>(largest, scratch);
    const uint32_t groups = kThreads / hd, group = ThreadId() / hd, d = ThreadId() % hd;
    float o = 0, total = 0;
    for (uint32_t first = 0; first < splits; first += kShares) {
      const uint32_t s = first + ThreadId();
      float share = 0;
      if (s < splits) {
        const Global<const float> part = parts + uint64_t{s} * column;
        share = Exp(part[hd] - largest);
        total = Fma(part[hd + 1], share, total);
      }
      shares[ThreadId()] = share;
      BarrierLds();
      const uint32_t count = Min(splits - first, kShares);
      for (uint32_t i = group; i < count; i += kBatch * groups) {
        AddBatch(parts + uint64_t{first} * column + d, column, shares, i, groups, count, o);
      }
      BarrierLds();
    }
    total = GroupSum<kWaves>(total, scratch);
    sums[ThreadId()] = o;
    BarrierLds();
    if (ThreadId() < hd) {
      for (uint32_t g = 1; g < groups; ++g) o += sums[g * hd + d];
      StoreSplit(At(args.out) + uint64_t{row} * args.out_stride, head * hd + d, o / total);
    }
    BarrierLds();
  }

  // Parts i, i + step, ... of those that `shares` are of: kBatch of them, as far as there are so many.
  DEVICE static void AddBatch(Global<const float> parts, uint32_t column, Lds<const float> shares,
                              uint32_t i, uint32_t step, uint32_t count, float& o) {
    float values[kBatch], by[kBatch];
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kBatch; ++k) {
      const uint32_t at = Min(i + k * step, count - 1);
      values[k] = parts[uint64_t{at} * column];
      by[k] = i + k * step < count ? shares[at] : 0.0f;
    }
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kBatch; ++k) o = Fma(values[k], by[k], o);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTENTION_H_
