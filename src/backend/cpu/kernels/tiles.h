// SPDX-License-Identifier: MIT
//
// Products with bf16 activations by tiles of 16 x 16, for processors that have a matrix unit (AMX).
// A panel in bf16 is what such a unit wants of its right-hand side already: 16 steps of two columns
// are one tile, [16 pairs of columns][16 rows][2]. Other formats are decoded a tile at a time, or a
// panel at a time where many rows share it. All but fp8, whose groups are long, are decoded to weights,
// scale and addend applied, rounded to bf16: what a tile gives every 32 columns would take longer to
// scale than to make.
//
// T is the unit: eight tiles, of 16 rows of 64 bytes each.
//   Configure(r0, r1)  tiles 0 to 4 get r0 rows, or, if r1 is not 0, tiles 0, 1, 4 r0 and 2, 3, 5 r1;
//                      all others 16
//   Zero<i>(), Load<i>(from, stride), Store<i>(to, stride)
//   Dot<C, A, B>()     C[m][n] += sum over k of A[m][2 k] B[k][2 n], and A[m][2 k + 1] B[k][2 n + 1]
// AMX's (TDPBF16PS) adds even and odd columns of a tile apart, each by fused multiply-adds from zero
// on, then both to each other, then that to C, to nearest even, denormals taken for and made zero.
//
// The order of additions along K is the same for one row and for many: tiles of 32 columns in order,
// from the first column of a part, or, of fp8, of a scale group of it; groups are scaled and added in
// order; parts are added in the binary tree. Where a part or group ends within a tile, zeros fill it up.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_TILES_H_
#define MAINARCH_BACKEND_CPU_KERNELS_TILES_H_

#include "backend/cpu/kernels/products.h"

namespace mainarch::cpu::MAINARCH_TARGET {

inline constexpr int kTileCols = 32;                      // of K
inline constexpr size_t kTileBytes = 16 * 64;             // a tile of either side
inline constexpr size_t kTileFloats = 16 * 16;            // of sums
inline constexpr size_t kRowsInCache = size_t{1} << 20;  // bytes of activations: half of a core's L2

// `count` pairs of columns of 16 rows, rounded to bf16: to nearest, but what lies between two is rounded
// away from zero. Infinities stay, and so do NaNs of OneNaN and of arithmetic.
static inline __attribute__((always_inline)) void StoreRoundedPairs(const V* w, int count, uint16_t* out) {
#if defined(MAINARCH_TARGET_avx512)
  const __m512i half = _mm512_set1_epi32(0x8000);
  MAINARCH_UNROLL for (int c = 0; c < count; ++c) {
    const __m512i even = _mm512_add_epi32(_mm512_castps_si512(w[2 * c]), half);
    const __m512i odd = _mm512_add_epi32(_mm512_castps_si512(w[2 * c + 1]), half);
    // 0xca: of the first operand's bits those of the second, the others of the third.
    StorePairs(out + 32 * c, _mm512_ternarylogic_epi64(_mm512_set1_epi32(0xffff), _mm512_srli_epi32(even, 16),
                                                       odd, 0xca));
  }
#else
  for (int c = 0; c < count; ++c) {
    uint32_t bits[2][16];
    Store(reinterpret_cast<float*>(bits[0]), w[2 * c]);
    Store(reinterpret_cast<float*>(bits[1]), w[2 * c + 1]);
    for (int row = 0; row < 16; ++row) {
      for (int odd = 0; odd < 2; ++odd) {
        out[32 * c + 2 * row + odd] = static_cast<uint16_t>((bits[odd][row] + 0x8000) >> 16);
      }
    }
  }
#endif
}

// NaNs of all payloads as one, which rounding leaves a NaN.
static inline __attribute__((always_inline)) V OneNaN(V a) {
#if defined(MAINARCH_TARGET_avx512)
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a, Set(__builtin_nanf("")));
#else
  float values[16];
  Store(values, a);
  for (float& value : values) {
    if (value != value) value = __builtin_nanf("");
  }
  return Load(values);
#endif
}

// Whether scales and addends are applied to weights, and not to sums. (Those of mxfp4 are powers of two,
// which is exact.)
template <class F>
inline constexpr bool kFolds = F::kScaled;
template <>
inline constexpr bool kFolds<FormatFp8> = false;
template <class F>
inline constexpr bool kPowersOfTwo = false;
template <>
inline constexpr bool kPowersOfTwo<FormatMxfp4> = true;

#if defined(MAINARCH_TARGET_avx512)
// Adds e - 127 to the exponents of what is not zero. Codes are from 0.5 to 6: for e from 2 to 252 the
// result is normal.
struct FoldedScale {
  __m512i add;  // of the 16 rows, in both halves of a pair
  bool plain;

  explicit FoldedScale(const uint8_t* e8m0) {
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(e8m0)));
    const __m512i words = _mm512_or_si512(e, _mm512_slli_epi32(e, 16));
    add = _mm512_slli_epi16(_mm512_sub_epi16(words, _mm512_set1_epi16(127)), 7);
    plain = _mm512_cmpgt_epu32_mask(_mm512_sub_epi32(e, _mm512_set1_epi32(2)),
                                    _mm512_set1_epi32(250)) == 0;
  }
  __m512i Apply(__m512i pairs) const {
    const __mmask32 some = _mm512_test_epi16_mask(pairs, _mm512_set1_epi16(0x7fff));
    return _mm512_mask_add_epi16(pairs, some, pairs, add);
  }
};
#endif

// Columns [k, k + cols) of a panel, of one group, as bf16 pairs, [cols / 2][16 rows][2].
template <class F>
static inline __attribute__((always_inline)) void DecodePairsOf(const uint8_t* data, const uint8_t* scales, int64_t group, int64_t k,
                                 int64_t cols, const DecodeTables& tables, uint16_t* out) {
  const uint8_t* from = data + k / F::kCols * F::kBytes;
#if defined(MAINARCH_TARGET_avx512)
  if constexpr (!kFolds<F>) {
    for (int64_t c = 0; c < cols; c += F::kCols, from += F::kBytes, out += 16 * F::kCols) {
      Pairs pairs[F::kCols / 2];
      F::DecodePairs(from, tables, pairs);
      for (int i = 0; i < F::kCols / 2; ++i) StorePairs(out + 32 * i, pairs[i]);
    }
    return;
  } else if constexpr (kPowersOfTwo<F>) {
    const FoldedScale fold(scales + 16 * group);
    if (fold.plain) {
      for (int64_t c = 0; c < cols; c += F::kCols, from += F::kBytes, out += 16 * F::kCols) {
        Pairs pairs[F::kCols / 2];
        F::DecodePairs(from, tables, pairs);
        for (int i = 0; i < F::kCols / 2; ++i) StorePairs(out + 32 * i, fold.Apply(pairs[i]));
      }
      return;
    }
  }
#endif
  const V scale = kFolds<F> ? OneNaN(F::Scale(scales, group)) : Set(1.0f);
  const V addend = F::kMin ? OneNaN(F::Addend(scales, group)) : Zero();
  for (int64_t c = 0; c < cols; c += F::kCols, from += F::kBytes, out += 16 * F::kCols) {
    V w[F::kCols];
    F::Decode(from, tables, w);
    MAINARCH_UNROLL for (int i = 0; i < F::kCols; ++i) {
      w[i] = F::kMin ? Fma(w[i], scale, addend) : Mul(w[i], scale);
    }
    StoreRoundedPairs(w, F::kCols / 2, out);
  }
}

// The scale group of a column, and where it ends.
struct Groups {
  int64_t index = 0, end = 0, cols = 0;

  Groups() = default;  // of what has none
  Groups(const Panels& w, int64_t k)
      : index((k + w.group_offset) / w.group_cols), end((index + 1) * w.group_cols - w.group_offset), cols(w.group_cols) {}
  void Next() {
    ++index;
    end += cols;
  }
};

// Columns [k, end), group after group, from the one of column k on.
template <class F>
static inline __attribute__((always_inline)) void DecodeGroups(Groups groups, const uint8_t* data, const uint8_t* scales, int64_t k,
                                int64_t end, const DecodeTables& tables, uint16_t* out) {
  while (k < end) {
    const int64_t cols = (groups.end < end ? groups.end : end) - k;
    DecodePairsOf<F>(data, scales, groups.index, k, cols, tables, out);
    out += 16 * cols;
    k += cols;
    groups.Next();
  }
}

// Up to 32 rows of activations, as one or two tiles.
struct TileRows {
  const uint16_t* const* x;
  int count[2];    // rows of either tile; [1]: 0, only one
  size_t stride;   // bytes from row to row; 0: they lie anyhow

  TileRows(const uint16_t* const* rows, int64_t n) : x(rows), count{}, stride(0) {
    count[0] = static_cast<int>(n < 16 ? n : 16);
    count[1] = static_cast<int>(n - count[0]);
    const auto at = [&](int64_t i) { return reinterpret_cast<uintptr_t>(rows[i]); };
    stride = n < 2 ? 64 : at(1) - at(0);
    for (int64_t i = 2; i < n; ++i) {
      if (at(i) - at(i - 1) != stride) stride = 0;
    }
  }
};

// NP panels; kDecoded: `data` is bf16 whatever F is, its folded scales applied.
template <int NP>
struct TilePanels {
  const uint8_t* data[NP];
  const uint8_t* scales[NP];
  size_t next;   // what lies so many bytes further on is read next; 0: nothing
  Ahead ahead;
};

// The product of one block: MT tiles of rows (up to 16 each) and NP panels. Sums of MT * NP tiles.
template <class T, class F, bool kDecoded, int MT, int NP>
struct TileBlock {
  static_assert(MT * NP <= 4);
  T& unit;
  const Panels& w;
  const TilePanels<NP>& panels;
  const TileRows& rows;
  const DecodeTables& tables;

  template <int M>
  void LoadRows(int64_t k, int64_t cols) const {
    const uint16_t* const* x = rows.x + 16 * M;
    if (rows.stride != 0 && cols == kTileCols) {
      unit.template Load<4 + M>(x[0] + k, rows.stride);
      return;
    }
    alignas(64) uint8_t tile[kTileBytes];
    for (int i = 0; i < rows.count[M]; ++i) {
      uint8_t* to = tile + 64 * i;
      __builtin_memcpy(to, x[i] + k, static_cast<size_t>(cols) * 2);
      __builtin_memset(to + cols * 2, 0, static_cast<size_t>(kTileCols - cols) * 2);
    }
    unit.template Load<4 + M>(tile, 64);
  }

  static constexpr bool kPlain = kDecoded || !F::kFetch;  // bf16 as it lies

  // Tiles of what is not plain, [panel], of one step and of the next, which is decoded before this one is
  // multiplied: the unit cannot take what has not left the store buffer.
  using Tiles = uint8_t[NP][kTileBytes];

  // Columns [k, k + cols), the first of them in this group.
  inline __attribute__((always_inline)) void DecodeTiles(const Groups& groups, int64_t k, int64_t cols, Tiles& tiles) const {
    _Pragma("GCC unroll 1") for (int p = 0; p < NP; ++p) {
      const uint8_t* data = panels.data[p];
      Prefetch<kTileCols / F::kCols * F::kBytes>(data + k / F::kCols * F::kBytes, panels.ahead.At(k));
      DecodeGroups<F>(groups, data, panels.scales[p], k, k + cols, tables, reinterpret_cast<uint16_t*>(tiles[p]));
      if (cols < kTileCols) __builtin_memset(tiles[p] + cols * 32, 0, kTileBytes - static_cast<size_t>(cols) * 32);
    }
  }

  template <int P, int B>
  void LoadPlain(int64_t k, int64_t cols) const {
    const uint8_t* from = panels.data[P] + 32 * k;
    if (cols == kTileCols) {
      Prefetch<kTileBytes>(from, panels.ahead.At(k));
      unit.template Load<B>(from, 64);
      return;
    }
    alignas(64) uint8_t tile[kTileBytes];
    const size_t bytes = static_cast<size_t>(cols) * 32;
    __builtin_memcpy(tile, from, bytes);
    __builtin_memset(tile + bytes, 0, kTileBytes - bytes);
    unit.template Load<B>(tile, 64);
  }

  template <int P>
  void Multiply(int64_t k, int64_t cols, [[maybe_unused]] const uint8_t* tiles) const {
    constexpr int kB = 4 + MT + P % (4 - MT);
    if constexpr (kPlain) {
      LoadPlain<P, kB>(k, cols);
    } else {
      unit.template Load<kB>(tiles + P * kTileBytes, 64);
    }
    unit.template Dot<P, 4, kB>();
    if constexpr (MT > 1) unit.template Dot<2 + P, 5, kB>();
    if constexpr (P + 1 < NP) Multiply<P + 1>(k, cols, tiles);
  }

  void MultiplyStep(int64_t k, int64_t cols, const uint8_t* tiles) const {
    LoadRows<0>(k, cols);
    if constexpr (MT > 1) LoadRows<1>(k, cols);
    Multiply<0>(k, cols, tiles);
  }

  static constexpr int64_t ColsFrom(int64_t k, int64_t end) { return end - k < kTileCols ? end - k : kTileCols; }

  void Add(Groups groups, int64_t k, int64_t end) const {
    if constexpr (kPlain) {
      for (; k < end; k += kTileCols) MultiplyStep(k, ColsFrom(k, end), nullptr);
    } else {
      alignas(64) Tiles tiles[2];
      // `next` runs a step ahead of k.
      for (int64_t next = k, at = 0; k < end; next += kTileCols, at ^= 1) {
        if (next < end) {
          while (kFolds<F> && groups.end <= next) groups.Next();
          DecodeTiles(groups, next, ColsFrom(next, end), tiles[at]);
        }
        if (next == k) continue;
        MultiplyStep(k, ColsFrom(k, end), tiles[at ^ 1][0]);
        k += kTileCols;
      }
    }
  }

  // The tile of sum I: those of the second tile of rows are 2 and 3.
  template <int I>
  static constexpr int kSum = I / NP * 2 + I % NP;
  static_assert(MT == 1 || NP <= 2);

  template <int I = 0>
  void ZeroSums() const {
    unit.template Zero<kSum<I>>();
    if constexpr (I + 1 < MT * NP) ZeroSums<I + 1>();
  }
  template <int I = 0>
  void StoreSums(float* sums) const {
    unit.template Store<kSum<I>>(sums + I * kTileFloats, 64);
    if constexpr (I + 1 < MT * NP) StoreSums<I + 1>(sums);
  }

  // sums [MT][NP][16 rows][16]; of a tile's rows only those that there are.
  void Part(int64_t k0, int64_t k1, float* sums) const {
    if constexpr (F::kScaled && !kFolds<F>) {
      alignas(64) float dots[MT * NP * kTileFloats];
      bool first = true;
      Groups groups(w, k0);
      for (int64_t k = k0; k < k1; k = groups.end, groups.Next(), first = false) {
        ZeroSums();
        Add(groups, k, groups.end < k1 ? groups.end : k1);
        StoreSums(dots);
        Scale(groups.index, first, dots, sums);
      }
    } else {
      ZeroSums();
      Add(F::kScaled && !kDecoded ? Groups(w, k0) : Groups(), k0, k1);
      StoreSums(sums);
    }
  }

  void Scale(int64_t group, bool first, const float* dots, float* sums) const {
    for (int p = 0; p < NP; ++p) {
      const V scale = F::Scale(panels.scales[p], group);
      for (int m = 0; m < MT; ++m) {
        const size_t at = static_cast<size_t>(m * NP + p) * kTileFloats;
        for (size_t i = at; i < at + 16 * static_cast<size_t>(rows.count[m]); i += 16) {
          const V before = first ? Zero() : Load(sums + i);
          Store(sums + i, Fma(Load(dots + i), scale, before));
        }
      }
    }
  }

  // All of K: parts in the fixed tree, like carries in a binary counter.
  void All(float* sums) const {
    constexpr size_t kFloats = MT * NP * kTileFloats;
    if (w.parts == 1) return Part(0, w.cols, sums);
    alignas(64) float level[3][kFloats];  // sums of 1, 2, 4 parts that wait for their like
    static_assert(kMaxParts == 8);
    for (int part = 0; part < w.parts; ++part) {
      Part(w.bounds[part], w.bounds[part + 1], sums);
      int at = 0;
      for (; (part >> at & 1) != 0; ++at) AddTiles(level[at], sums);
      if (part + 1 < w.parts) __builtin_memcpy(level[at], sums, sizeof(level[at]));
    }
  }

  // sums = left + sums.
  void AddTiles(const float* left, float* sums) const {
    for (int t = 0; t < MT * NP; ++t) {
      const size_t at = static_cast<size_t>(t) * kTileFloats;
      const size_t end = at + 16 * static_cast<size_t>(rows.count[t / NP]);
      for (size_t i = at; i < end; i += 16) {
        Store(sums + i, cpu::MAINARCH_TARGET::Add(Load(left + i), Load(sums + i)));
      }
    }
  }
};

// Products with panels of a format.
template <class T, class F>
class TileProducts {
 public:
  explicit TileProducts(T& unit) : unit_(unit), tables_(TablesOf<F>()) {}

  void Matmul(const MatmulArgs& a) {
    if (a.rows <= 16) {
      int64_t panel = a.panel_begin;
      // What needs no decoding comes as fast as memory gives it: one panel after the other is one
      // stream (matmul.h).
      const bool apart = !F::kFetch && a.rows <= kMaxBlockRows;
      if (!apart) FewRows<4>(a, &panel);
      if (!apart || a.epilogue == Epilogue::kGateUp) FewRows<2>(a, &panel);
      FewRows<1>(a, &panel);
      return;
    }
    // As many rows at a time as stay in the cache while panels pass.
    const size_t row_bytes = static_cast<size_t>(a.w.cols) * 2;
    const int64_t fit = static_cast<int64_t>(kRowsInCache / row_bytes) & ~int64_t{31};
    const int64_t most = fit < 32 ? 32 : fit;
    for (int64_t row = 0; row < a.rows; row += most) {
      const int64_t end = row + most < a.rows ? row + most : a.rows;
      int64_t panel = a.panel_begin;
      ManyRows<2>(a, row, end, &panel);
      ManyRows<1>(a, row, end, &panel);
    }
  }

  void ExpertsDown(const ExpertsDownArgs& a) {
    int64_t panel = a.panel_begin;
    for (; panel + 4 <= a.panel_end; panel += 4) Experts<4>(a, panel);
    for (; panel < a.panel_end; ++panel) Experts<1>(a, panel);
  }

 private:
  void Configure(const TileRows& rows) {
    if (rows.count[0] == rows_[0] && rows.count[1] == rows_[1]) return;
    rows_[0] = rows.count[0];
    rows_[1] = rows.count[1];
    unit_.Configure(rows_[0], rows_[1]);
  }

  template <int NP>
  static TilePanels<NP> At(const Panels& w, const uint8_t* first) {
    TilePanels<NP> panels = {};
    for (int p = 0; p < NP; ++p) {
      panels.data[p] = first + static_cast<size_t>(p) * w.stride;
      panels.scales[p] = panels.data[p] + w.scale_offset;
    }
    return panels;
  }

  template <int NP>
  static void FetchScales(const Panels& w, const TilePanels<NP>& panels) {
    if (panels.next == 0) return;
    for (int p = 0; p < NP; ++p) {
      for (size_t at = 0; at < w.stride - w.scale_offset; at += 64) FetchAhead(panels.scales[p], panels.next + at);
    }
  }

  // Of a format G that the panels are of by now.
  template <class G, bool kDecoded, int MT, int NP>
  void Block(const MatmulArgs& a, const TilePanels<NP>& panels, int64_t panel, int64_t row,
             const TileRows& rows) {
    alignas(64) float sums[MT * NP * kTileFloats];
    Configure(rows);
    TileBlock<T, G, kDecoded, MT, NP>{unit_, a.w, panels, rows, tables_}.All(sums);
    for (int m = 0; m < MT; ++m) {
      for (int i = 0; i < rows.count[m]; ++i) {
        V y[NP];
        for (int p = 0; p < NP; ++p) {
          y[p] = Load(sums + static_cast<size_t>(m * NP + p) * kTileFloats + 16 * i);
        }
        Finish<1, NP>(a, panel, row + 16 * m + i, y);
      }
    }
  }

  template <int NP>
  void FewRows(const MatmulArgs& a, int64_t* panel) {
    const TileRows rows(a.x16, a.rows);
    for (; *panel + NP <= a.panel_end; *panel += NP) {
      TilePanels<NP> panels = At<NP>(a.w, a.w.data + static_cast<size_t>(*panel) * a.w.stride);
      panels.next = NP * a.w.stride;
      if (*panel + NP >= a.panel_end) {
        panels.next = a.after == nullptr ? 0 : static_cast<size_t>(a.after - panels.data[0]);
      }
      panels.ahead = Ahead(a.w, panels.next, a.near, NP);
      FetchScales(a.w, panels);
      Block<F, false, 1, NP>(a, panels, *panel, 0, rows);
    }
  }

  // Rows [begin, end).
  template <int NP>
  void ManyRows(const MatmulArgs& a, int64_t begin, int64_t end, int64_t* panel) {
    for (; *panel + NP <= a.panel_end; *panel += NP) {
      const TilePanels<NP> panels =
          At<NP>(a.w, a.w.data + static_cast<size_t>(*panel) * a.w.stride);
      if constexpr (kFolds<F>) {
        // Decoded they are bf16 and no more.
        if (a.decoded != nullptr) {
          RowBlocks<FormatBF16, false, NP>(a, Decode<NP>(a, panels), *panel, begin, end);
        } else {
          for (int64_t row = begin; row < end; row += 16) {
            Block<F, false, 1, NP>(a, panels, *panel, row, TileRows(a.x16 + row, end - row < 16 ? end - row : 16));
          }
        }
        continue;
      }
      if constexpr (F::kFetch) {
        if (a.decoded != nullptr && end - begin > 32) {
          RowBlocks<F, true, NP>(a, Decode<NP>(a, panels), *panel, begin, end);
          continue;
        }
      }
      if constexpr (!kFolds<F>) RowBlocks<F, false, NP>(a, panels, *panel, begin, end);
    }
  }

  template <class G, bool kDecoded, int NP>
  void RowBlocks(const MatmulArgs& a, const TilePanels<NP>& panels, int64_t panel, int64_t begin,
                 int64_t end) {
    for (int64_t row = begin; row < end; row += 32) {
      const TileRows rows(a.x16 + row, end - row < 32 ? end - row : 32);
      if (rows.count[1] > 0) {
        Block<G, kDecoded, 2, NP>(a, panels, panel, row, rows);
      } else {
        Block<G, kDecoded, 1, NP>(a, panels, panel, row, rows);
      }
    }
  }

  // To bf16, into MatmulArgs::decoded.
  template <int NP>
  TilePanels<NP> Decode(const MatmulArgs& a, const TilePanels<NP>& panels) {
    TilePanels<NP> out = panels;
    for (int p = 0; p < NP; ++p) {
      uint8_t* to = a.decoded + static_cast<size_t>(p * a.w.cols) * 32;
      out.data[p] = to;
      DecodeGroups<F>(Groups(a.w, 0), panels.data[p], panels.scales[p], 0, a.w.cols, tables_,
                      reinterpret_cast<uint16_t*>(to));
    }
    return out;
  }

  template <int NP>
  void Experts(const ExpertsDownArgs& a, int64_t panel) {
    ExpertPanels<NP>(a, panel, [&](const Panels& w, const uint8_t* first, size_t next,
                                   const int32_t* entries, int32_t count, int slot) {
      TilePanels<NP> panels = At<NP>(w, first);
      panels.next = next;
      panels.ahead = Ahead(w, next, a.near, NP);
      for (int32_t at = 0; at < count; at += 16) {
        ExpertRows<NP>(a, w, panels, entries + at, count - at < 16 ? count - at : 16, slot);
      }
    });
  }

  template <int NP>
  void ExpertRows(const ExpertsDownArgs& a, const Panels& w, const TilePanels<NP>& panels,
                  const int32_t* entries, int32_t count, int slot) {
    const uint16_t* x[16];
    for (int32_t i = 0; i < count; ++i) x[i] = a.act16 + entries[i] * a.act_stride;
    const TileRows rows(x, count);
    Configure(rows);
    const TileBlock<T, F, false, 1, NP> block{unit_, w, panels, rows, tables_};
    for (int part = 0; part < w.parts; ++part) {
      alignas(64) float sums[NP * kTileFloats];
      block.Part(w.bounds[part], w.bounds[part + 1], sums);
      for (int32_t i = 0; i < count; ++i) {
        V y[NP];
        for (int p = 0; p < NP; ++p) y[p] = Load(sums + static_cast<size_t>(p) * kTileFloats + 16 * i);
        AddToRow<NP>(a, entries[i], part, w.parts, slot, y);
      }
    }
  }

  T& unit_;
  const DecodeTables tables_;
  int rows_[2] = {-1, -1};  // what the unit is configured for
};

// run<F>() with the format's F: of all with HasBF16Dot.
template <class Run>
static inline void WithTileFormat(PanelFormat format, const Run& run) {
  switch (format) {
    case PanelFormat::kBF16:
      return run.template operator()<FormatBF16>();
    case PanelFormat::kFp8:
      return run.template operator()<FormatFp8>();
    case PanelFormat::kMxfp4:
      return run.template operator()<FormatMxfp4>();
    default:
      return WithBlockFormat(format, run);
  }
}

template <class T>
static inline void TileMatmul(T& unit, const MatmulArgs& a) {
  WithTileFormat(a.w.format, [&]<class F>() { TileProducts<T, F>(unit).Matmul(a); });
}

template <class T>
static inline void TileExpertsDown(T& unit, const ExpertsDownArgs& a) {
  WithTileFormat(a.experts[a.active[0]].format, [&]<class F>() { TileProducts<T, F>(unit).ExpertsDown(a); });
}

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_TILES_H_
