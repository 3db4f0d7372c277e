// SPDX-License-Identifier: MIT
//
// Products with bf16 activations by tiles of 16 x 16, for processors that have a matrix unit (AMX).
// A panel in bf16 is what such a unit wants of its right-hand side already: 16 steps of two columns
// are one tile, [16 pairs of columns][16 rows][2]. Codes of other formats, which are bf16 exactly, are decoded a
// tile at a time, or a panel at a time where many rows share it. This file has what bf16 and formats of long groups
// of columns take; tiles_many.h many rows of bf16, tiles_groups.h those whose scales are shared by few, tiles_few.h one row by vectors.
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
// from the first column of a part, or of a scale group of it, a tile being 16 columns where groups are; groups are
// scaled and added in order; parts are added in the binary tree. Where a part or group ends within a tile, zeros
// fill it up.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_TILES_H_
#define MAINARCH_BACKEND_CPU_KERNELS_TILES_H_

#include "backend/cpu/kernels/products.h"

namespace mainarch::cpu::MAINARCH_TARGET {

inline constexpr int kTileCols = 32;                      // of K
inline constexpr size_t kTileBytes = 16 * 64;             // a tile of either side
inline constexpr size_t kTileFloats = 16 * 16;            // of sums
inline constexpr size_t kRowsInCache = size_t{1} << 20;  // bytes of activations: half of a core's L2

// Codes of `cols` columns of a panel, from `from` on, as bf16 pairs, [cols / 2][16 rows][2].
template <class F>
static inline __attribute__((always_inline)) void DecodePairsOf(const uint8_t* from, int64_t cols, const DecodeTables& tables,
                                                                uint16_t* out) {
  for (int64_t c = 0; c < cols; c += F::kCols, from += F::kBytes, out += 16 * F::kCols) {
#if defined(MAINARCH_PAIRS)
    Pairs pairs[F::kCols / 2];
    F::DecodePairs(from, tables, pairs);
    for (int i = 0; i < F::kCols / 2; ++i) StorePairs(out + 32 * i, pairs[i]);
#else
    V codes[F::kCols];
    F::Decode(from, tables, codes);
    for (int i = 0; i < F::kCols; ++i) {
      uint32_t bits[16];
      Store(reinterpret_cast<float*>(bits), codes[i]);
      for (int row = 0; row < 16; ++row) out[i / 2 * 32 + 2 * row + i % 2] = static_cast<uint16_t>(bits[row] >> 16);
    }
#endif
  }
}

// Up to 32 rows of activations, as one or two tiles.
struct TileRows {
  const uint16_t* const* x;
  int count[2];    // rows of either tile; [1]: 0, only one
  size_t stride;   // bytes from row to row; 0: they lie anyhow

  TileRows() : x(nullptr), count{}, stride(0) {}
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

// NP panels; kDecoded: `data` is bf16 whatever F is.
template <int NP>
struct TilePanels {
  const uint8_t* data[NP];
  const uint8_t* scales[NP];
  size_t next;   // what lies so many bytes further on is read next; 0: nothing
  Ahead ahead;
};
template <int NP>
static inline TilePanels<NP> At(const Panels& w, const uint8_t* first) {
  TilePanels<NP> panels = {};
  for (int p = 0; p < NP; ++p) {
    panels.data[p] = first + static_cast<size_t>(p) * w.stride;
    panels.scales[p] = panels.data[p] + w.scale_offset;
  }
  return panels;
}
template <int NP>
static inline void FetchScales(const Panels& w, const TilePanels<NP>& panels) {
  if (panels.next == 0) return;
  for (int p = 0; p < NP; ++p) {
    for (size_t at = 0; at < w.stride - w.scale_offset; at += 64) FetchAhead(panels.scales[p], panels.next + at);
  }
}

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

  inline __attribute__((always_inline)) void DecodeTiles(int64_t k, int64_t cols, Tiles& tiles) const {
    _Pragma("GCC unroll 1") for (int p = 0; p < NP; ++p) {
      const uint8_t* from = panels.data[p] + k / F::kCols * F::kBytes;
      Prefetch<kTileCols / F::kCols * F::kBytes>(from, panels.ahead.At(k));
      DecodePairsOf<F>(from, cols, tables, reinterpret_cast<uint16_t*>(tiles[p]));
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

  void Add(int64_t k, int64_t end) const {
    if constexpr (kPlain) {
      for (; k < end; k += kTileCols) MultiplyStep(k, ColsFrom(k, end), nullptr);
    } else {
      alignas(64) Tiles tiles[2];
      // `next` runs a step ahead of k.
      for (int64_t next = k, at = 0; k < end; next += kTileCols, at ^= 1) {
        if (next < end) DecodeTiles(next, ColsFrom(next, end), tiles[at]);
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
  void LoadSums(const float* sums) const {
    unit.template Load<kSum<I>>(sums + I * kTileFloats, 64);
    if constexpr (I + 1 < MT * NP) LoadSums<I + 1>(sums);
  }
  template <int I = 0>
  void StoreSums(float* sums) const {
    unit.template Store<kSum<I>>(sums + I * kTileFloats, 64);
    if constexpr (I + 1 < MT * NP) StoreSums<I + 1>(sums);
  }

  // sums [MT][NP][16 rows][16]; of a tile's rows only those that there are.
  void Part(int64_t k0, int64_t k1, float* sums) const {
    if constexpr (F::kScaled) {
      alignas(64) float dots[MT * NP * kTileFloats];
      bool first = true;
      Groups groups(w, k0);
      for (int64_t k = k0; k < k1; k = groups.end, groups.Next(), first = false) {
        ZeroSums();
        Add(k, groups.end < k1 ? groups.end : k1);
        StoreSums(dots);
        Scale(groups.index, first, dots, sums);
      }
    } else {
      ZeroSums();
      Add(k0, k1);
      StoreSums(sums);
    }
  }

  // Columns [k, end) of a part, added to its sums, which begin at zero with the first of them.
  void Continue(int64_t k, int64_t end, bool first, float* sums) const {
    static_assert(!F::kScaled);
    first ? ZeroSums() : LoadSums(sums);
    Add(k, end);
    StoreSums(sums);
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

  void All(float* sums) const {
    if (w.parts == 1) return Part(0, w.cols, sums);
    using Sums = float[MT * NP * kTileFloats];
    alignas(64) Sums level[3];
    AddParts(w.parts, [&](int part) { Part(w.bounds[part], w.bounds[part + 1], sums); },
             [&](int left) { AddTiles(level[left], sums); }, [&](int at) { __builtin_memcpy(&level[at], sums, sizeof(Sums)); });
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

  template <bool kDecoded, int MT, int NP>
  void Block(const MatmulArgs& a, const TilePanels<NP>& panels, int64_t panel, int64_t row,
             const TileRows& rows) {
    alignas(64) float sums[MT * NP * kTileFloats];
    Configure(rows);
    TileBlock<T, F, kDecoded, MT, NP>{unit_, a.w, panels, rows, tables_}.All(sums);
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
      Block<false, 1, NP>(a, panels, *panel, 0, rows);
    }
  }

  // Rows [begin, end).
  template <int NP>
  void ManyRows(const MatmulArgs& a, int64_t begin, int64_t end, int64_t* panel) {
    for (; *panel + NP <= a.panel_end; *panel += NP) {
      const TilePanels<NP> panels =
          At<NP>(a.w, a.w.data + static_cast<size_t>(*panel) * a.w.stride);
      if constexpr (F::kFetch) {
        if (a.decoded != nullptr && end - begin > 32) {
          RowBlocks<true, NP>(a, Decode<NP>(a, panels), *panel, begin, end);
          continue;
        }
      }
      RowBlocks<false, NP>(a, panels, *panel, begin, end);
    }
  }

  template <bool kDecoded, int NP>
  void RowBlocks(const MatmulArgs& a, const TilePanels<NP>& panels, int64_t panel, int64_t begin,
                 int64_t end) {
    for (int64_t row = begin; row < end; row += 32) {
      const TileRows rows(a.x16 + row, end - row < 32 ? end - row : 32);
      if (rows.count[1] > 0) {
        Block<kDecoded, 2, NP>(a, panels, panel, row, rows);
      } else {
        Block<kDecoded, 1, NP>(a, panels, panel, row, rows);
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
      DecodePairsOf<F>(panels.data[p], a.w.cols, tables_, reinterpret_cast<uint16_t*>(to));
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

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_TILES_H_
