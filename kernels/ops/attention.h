// SPDX-License-Identifier: MIT
//
// Attention of a decoder layer: QK-norm, RoPE and the append of K and V; then causal grouped-query
// attention over pages, through the matrix units.
//
// A workgroup takes one row, one key head and one split of 512 tokens; its query heads (at most 16)
// are the columns of the matrix instructions, tokens and then head elements the rows. Waves take
// every fourth group of 32 tokens. Which wave sees which token depends on its absolute position
// alone, waves and splits are merged in index order: a row's bits do not depend on the step.
#ifndef MAINARCH_KERNELS_OPS_ATTENTION_H_
#define MAINARCH_KERNELS_OPS_ATTENTION_H_

#include "kernels/ops/tiles.h"
#include "kernels/quant/kv_fp4.h"

namespace mainarch::kernels {

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
      OneHead(args, step, t / heads, t % heads);
    }
  }

  DEVICE static void OneHead(const Args& args, const StepView& step, uint32_t row, uint32_t head) {
    const Global<const float> at = Elements(args, row, head);
    const bool mine = LaneId() < kHalf;
    const uint32_t l = mine ? LaneId() : 0;
    Finish(args, step, row, head, mine ? at[l] : 0.0f, mine ? at[l + kHalf] : 0.0f);
  }
  DEVICE static Global<float> Elements(const Args& args, uint32_t row, uint32_t head) {
    return At(args.qkv) + uint64_t{row} * args.stride + head * kHeadDim;
  }

  // a, b: elements l and l + kHalf of the head as the product gave them.
  DEVICE static void Finish(const Args& args, const StepView& step, uint32_t row, uint32_t head,
                            float a, float b) {
    const bool mine = LaneId() < kHalf;
    const uint32_t l = mine ? LaneId() : 0;
    const bool is_query = head < args.heads;
    const bool is_value = head >= args.heads + args.kv_heads;
    const uint32_t position = step.position(row);
    if (!is_value) {
      const Global<const float> w = At(is_query ? args.q_norm : args.k_norm);
      const float mean = WaveSum(Fma(a, a, b * b)) * (1.0f / kHeadDim);
      const float factor = Rsqrt(mean + args.epsilon);
      a = a * factor * w[l];
      b = b * factor * w[l + kHalf];
      Rotate(args, position, l, a, b);
      if constexpr (quant::InfoOf(kFormat).turns) Turn(a, b);
    }
    if (is_query) {
      const Global<float> at = Elements(args, row, head);
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

// ---- the QKV product and prepare in one: a workgroup a (head, 16 rows) ----

// The same sums in the same order as Matmul's and the same arithmetic as Prepare's: the same bits.
// Of K and V nothing is left in qkv. lower.h FusesQkv says when it is the better form.
template <TileFormat kFormat, KvFormat kKv, uint32_t kHeadDim>
struct QkvHeads {
  using Args = QkvHeadsArgs;
  static constexpr uint32_t kTiles = kHeadDim / kTileRows;
  static constexpr uint32_t kLdsBytes = kTileLdsBytes + kTileRows * kHeadDim * 4;
  using Finisher = Prepare<kKv, kHeadDim>;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const MatmulArgs& product = args.product;
    const StepView step(product.step);
    const uint32_t rows = step.rows(), heads = product.w.outputs / kTiles;
    const uint32_t total = heads * CeilDiv(rows, kTileRows);
    const Lds<float> held = arena.Get<float>(kTileLdsBytes);  // [16 rows][head_dim]
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t head = t % heads, first = t / heads * kTileRows;
      const InputRow<true> x = MakeInput(At(product.x), product.x_stride, product.norm,
                                         Min(first + LaneRow(), rows - 1));
      Product(product.w, head, x, held, arena);
      BarrierLds();
      for (uint32_t r = WaveId(); r < Min(kTileRows, rows - first); r += kWaves) {
        const uint32_t l = r * kHeadDim + Min(LaneId(), Finisher::kHalf - 1);
        Finisher::Finish(args.prepare, step, first + r, head, held[l], held[l + Finisher::kHalf]);
      }
      BarrierLds();
    }
  }

  DEVICE static void Product(const Tiles& w, uint32_t head, const InputRow<true>& x,
                             Lds<float> held, Arena arena) {
    const WaveSums<kFormat, kTiles, false> sums(w, head * kTiles, x);
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kTiles; ++j) {
      const uint32_t at =
          ThreadId() / kTileRows * kHeadDim + j * kTileRows + ThreadId() % kTileRows;
      held[at] = AddWaves(sums.of[j], arena.Get<float>());
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

  // K of 16 tokens times the queries.
  DEVICE static f32x4 Scores(const PageOf& page, const SplitEight (&query)[kSteps]) {
    f32x4 acc = {0, 0, 0, 0};
#pragma clang loop unroll(full)
    for (uint32_t s = 0; s < kSteps; ++s) {
      if constexpr (kKey == KvForm::kFp4) {
        const uint32_t codes = reinterpret_cast<Global<const uint32_t>>(
            page.k(0))[(s * 16 + LaneRow()) * 4 + LanePart()];
        const f32x4 block = Product(isa::Fp4ToBf16(codes), query[s], f32x4{0, 0, 0, 0});
        acc = acc + block * BlockScales(page.k_bytes(), s);
      } else if constexpr (kKey == KvForm::kFp8) {
        const u32x2 codes =
            reinterpret_cast<Global<const u32x2>>(page.k(0))[(s * 16 + LaneRow()) * 4 + LanePart()];
        const uint32_t c0 = codes[0], c1 = codes[1];
        acc = Product(Fp8ToBf16(c0, c1), query[s], acc);
      } else {
        const uint32_t at = (s * 16 + LaneRow()) * 4 + LanePart();
        if constexpr (kFormat == KvFormat::kF32) {
          acc = ProductHigh(Load16(page.k(1), at), query[s], acc);
        }
        acc = Product(Load16(page.k(0), at), query[s], acc);
      }
    }
    return acc;
  }
  // Multipliers of block `block` of tokens 4 g .. 4 g + 3.
  DEVICE static f32x4 BlockScales(Global<const uint8_t> bytes, uint32_t block) {
    const uint32_t four =
        reinterpret_cast<Global<const uint32_t>>(bytes)[block * (kPageTokens / 4) + LanePart()];
    return f32x4{quant::FloatFromE5m3(static_cast<uint8_t>(four)),
                 quant::FloatFromE5m3(static_cast<uint8_t>(four >> 8)),
                 quant::FloatFromE5m3(static_cast<uint8_t>(four >> 16)),
                 quant::FloatFromE5m3(static_cast<uint8_t>(four >> 24))};
  }
  DEVICE static f32x4 Product(u32x4 w, const SplitEight& x, f32x4 acc) {
    return MultiplyAdd<false>(w, x, acc);
  }
  DEVICE static f32x4 ProductHigh(u32x4 w, const SplitEight& x, f32x4 acc) {
    return isa::Mfma16x16x32Bf16(w, x.high, acc);
  }

  // Lane (j, g) holds tokens 4g .. 4g+3 of each page: their scores and then weights are both what
  // the first product gives and what the second one takes, with no move between lanes.
  DEVICE static void Group(const PageOf& a, const PageOf& b, uint32_t token, uint32_t position,
                           const SplitEight (&query)[kSteps], Running<kHeadDim>& run) {
    Eight score = Join(Scores(a, query), Scores(b, query));
    if constexpr (kKey == KvForm::kFp8) Times(score, a.k_scales(), b.k_scales());
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
    if constexpr (kValue == KvForm::kFp4) return AddFp4Values(a, b, score, keep, run);
    if constexpr (kValue == KvForm::kFp8) Times(score, a.v_scales(), b.v_scales());
    const SplitEight weight = Split(score);
    const u32x4 real = RealTokens(token, position);
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTilesOfO; ++t) {
      f32x4 o = run.o[t] * keep;
      if constexpr (kFormat == KvFormat::kF32)
        o = ProductHigh(Values(a, b, 1, t, real), weight, o);
      run.o[t] = Product(Values(a, b, 0, t, real), weight, o);
    }
  }
  // o = o * keep + weight * V, block after block, its multipliers folded into the weights. Of the tokens
  // 4 g .. 4 g + 3 of both pages those of one and the other take turns, in V and so in the weights.
  DEVICE static void AddFp4Values(const PageOf& a, const PageOf& b, const Eight& weight, float keep,
                                  Running<kHeadDim>& run) {
    constexpr uint32_t kWords = kHeadDim / 32;
    const uint32_t at = (LaneRow() * 4 + LanePart()) * kWords;
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kWords; ++t) {
      const f32x4 scale_a = BlockScales(a.v_bytes(), t), scale_b = BlockScales(b.v_bytes(), t);
      Eight scaled;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 4; ++i) {
        // A token beyond the position has no multiplier yet: its weight is 0, and stays so.
        const float of_a = weight.at[i], of_b = weight.at[i + 4];
        scaled.at[2 * i] = of_a == 0.0f ? 0.0f : of_a * scale_a[i];
        scaled.at[2 * i + 1] = of_b == 0.0f ? 0.0f : of_b * scale_b[i];
      }
      const SplitEight split = Split(scaled);
      const uint32_t word_a = reinterpret_cast<Global<const uint32_t>>(a.v(0))[at + t];
      const uint32_t word_b = reinterpret_cast<Global<const uint32_t>>(b.v(0))[at + t];
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
  DEVICE static void Times(Eight& x, Global<const float> a, Global<const float> b) {
    const f32x4 low = reinterpret_cast<Global<const f32x4>>(a)[LanePart()];
    const f32x4 high = reinterpret_cast<Global<const f32x4>>(b)[LanePart()];
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
  // V of element 16 t + i, tokens 4g .. 4g+3 of both pages.
  DEVICE static u32x4 Values(const PageOf& a, const PageOf& b, uint32_t plane, uint32_t t,
                             u32x4 real) {
    const uint32_t at = (t * 16 + LaneRow()) * 4 + LanePart();
    if constexpr (kFormat == KvFormat::kFp8) {
      return real & Fp8ToBf16(reinterpret_cast<Global<const uint32_t>>(a.v(plane))[at],
                              reinterpret_cast<Global<const uint32_t>>(b.v(plane))[at]);
    } else {
      const u32x2 low = reinterpret_cast<Global<const u32x2>>(a.v(plane))[at];
      const u32x2 high = reinterpret_cast<Global<const u32x2>>(b.v(plane))[at];
      return real & u32x4{low[0], low[1], high[0], high[1]};
    }
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
        At(args.out)[uint64_t{row} * args.out_stride + query_head * kHeadDim + d] = o / total;
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

// Rows of more than one split: a workgroup a (row, head), splits in order.
struct AttendMerge {
  using Args = AttendMergeArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const StepView step(args.step);
    const uint32_t total = RowsHere(step, args.first_row, args.row_count) * args.heads;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = args.first_row + t / args.heads, head = t % args.heads;
      const uint32_t splits = step.position(row) / kSplitTokens + 1;
      if (splits > 1) OneHead(args, row, head, splits);
    }
  }

  DEVICE static void OneHead(const Args& args, uint32_t row, uint32_t head, uint32_t splits) {
    const uint32_t hd = args.head_dim, column = AttendPartFloats(hd);
    const Global<const float> parts =
        At(args.parts) +
        (uint64_t{row - args.first_row} * args.heads + head) * args.max_splits * column;
    float largest = parts[hd];
    for (uint32_t s = 1; s < splits; ++s) {
      largest = __builtin_fmaxf(largest, parts[uint64_t{s} * column + hd]);
    }
    for (uint32_t d = ThreadId(); d < hd; d += kThreads) {
      float o = 0, total = 0;
      for (uint32_t s = 0; s < splits; ++s) {
        const Global<const float> part = parts + uint64_t{s} * column;
        const float share = Exp(part[hd] - largest);
        o = Fma(part[d], share, o);
        total = Fma(part[hd + 1], share, total);
      }
      At(args.out)[uint64_t{row} * args.out_stride + head * hd + d] = o / total;
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTENTION_H_
