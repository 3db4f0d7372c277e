// SPDX-License-Identifier: MIT
//
// Few rows of bf16 activations by vectors, to the bit what tiles give (tiles.h): a tile's time does not depend on how
// many rows it has, and decoding to memory for it takes longer than the fp32 multiply-adds that few rows need.
// They are those of a tile: even and odd columns of a tile apart from zero on, both added, then that to the sum.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_TILES_FEW_H_
#define MAINARCH_BACKEND_CPU_KERNELS_TILES_FEW_H_

#include "backend/cpu/kernels/multiply.h"
#include "backend/cpu/kernels/tiles.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

// Denormal results are made zero as long as this lives, as they are by the unit: what vectors do to its sums and what
// they do in its place must agree. Denormals that come in are taken for zero only where weights are bf16, which may be
// such: codes are none, of rows NoDenormals takes them, and scales are made of such.
class Flushing {
 public:
  explicit Flushing(PanelFormat format) {
    asm volatile("stmxcsr %0" : "=m"(before_)::"memory");
    const uint32_t flushed = before_ | 0x8000 | (format == PanelFormat::kBF16 ? 0x40 : 0);  // FTZ, DAZ
    asm volatile("ldmxcsr %0" ::"m"(flushed) : "memory");
  }
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;
  ~Flushing() { asm volatile("ldmxcsr %0" ::"m"(before_) : "memory"); }

 private:
  uint32_t before_ = 0;
};

// What the unit makes of an element of x.
static inline V NoDenormals(V x) {
  return _mm512_maskz_mov_ps(_mm512_test_epi32_mask(_mm512_castps_si512(x), _mm512_set1_epi32(0x7f800000)), x);
}
static inline void PairAt(const uint16_t* x, V* columns) {
  PairsToF32(SetPair(x), columns);
  columns[0] = NoDenormals(columns[0]);
  columns[1] = NoDenormals(columns[1]);
}
static inline void PairAt(const float* x, V* columns) {
  columns[0] = Set(x[0]);
  columns[1] = Set(x[1]);
}

// XType: bf16, or such values as floats, which take no unpacking.
template <class F, class XType>
struct TileOrder : F {
  using X = XType;
  static constexpr bool kPieces = true;
  template <int MR>
  static constexpr bool kApart = MR == 1 && !F::kFetch;  // matmul.h
  static constexpr int kTile = F::kGroup16 ? 16 : kTileCols;

  // Columns [k, end) of a tile: sum[p * MR + m], and where the format has addends the rows' own, xsum[m].
  template <int MR, int NP>
  static inline __attribute__((always_inline)) void Tile(const uint8_t* const* panel, const X* const* x, int64_t k,
                                                         int64_t end, const DecodeTables& tables, size_t ahead, V* sum,
                                                         V* xsum) {
    V acc[NP * MR][2], xacc[MR][2];
    MAINARCH_UNROLL for (int i = 0; i < NP * MR; ++i) acc[i][0] = acc[i][1] = Zero();
    MAINARCH_UNROLL for (int m = 0; m < MR; ++m) xacc[m][0] = xacc[m][1] = Zero();
    const uint8_t* from[NP];
    MAINARCH_UNROLL for (int p = 0; p < NP; ++p) from[p] = panel[p] + k / F::kCols * F::kBytes;
    // Unrolled, this takes 5 % more time from memory (GCC 12, Sapphire Rapids).
    _Pragma("GCC unroll 1") for (; k < end; k += F::kCols) {
      V column[MR][F::kCols];
      MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
        MAINARCH_UNROLL for (int c = 0; c < F::kCols; c += 2) PairAt(x[m] + k + c, column[m] + c);
      }
      MAINARCH_UNROLL for (int p = 0; p < NP; ++p) {
        V w[F::kCols];
        Prefetch<F::kBytes>(from[p], ahead);
        F::Decode(from[p], tables, w);
        from[p] += F::kBytes;
        MAINARCH_UNROLL for (int c = 0; c < F::kCols; ++c) {
          MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
            acc[p * MR + m][c & 1] = Fma(w[c], column[m][c], acc[p * MR + m][c & 1]);
            if (F::kMin && p == 0) xacc[m][c & 1] = Add(xacc[m][c & 1], column[m][c]);
          }
        }
      }
    }
    MAINARCH_UNROLL for (int i = 0; i < NP * MR; ++i) sum[i] = Add(acc[i][0], acc[i][1]);
    MAINARCH_UNROLL for (int m = 0; m < MR; ++m) xsum[m] = Add(xacc[m][0], xacc[m][1]);
  }

  // DotPart of matmul.h, part `part`.
  template <int MR, int NP>
  static inline __attribute__((always_inline)) void Part(const Panels& w, const uint8_t* const* panel,
                                                         const uint8_t* const* scales, const X* const* x, int part,
                                                         const Ahead& ahead, V* sum) {
    const DecodeTables tables = TablesOf<F>();
    const int64_t k1 = w.bounds[part + 1];
    MAINARCH_UNROLL for (int i = 0; i < NP * MR; ++i) sum[i] = Zero();
    if constexpr (!F::kScaled) {
      for (int64_t k = w.bounds[part]; k < k1; k += kTile) {
        V more[NP * MR], none[MR];
        Tile<MR, NP>(panel, x, k, k1 - k < kTile ? k1 : k + kTile, tables, ahead.At(k), more, none);
        MAINARCH_UNROLL for (int i = 0; i < NP * MR; ++i) sum[i] = Add(sum[i], more[i]);
      }
      return;
    }
    Groups groups(w, w.bounds[part]);
    for (int64_t k = w.bounds[part]; k < k1; groups.Next()) {
      const int64_t end = groups.end < k1 ? groups.end : k1;
      V dot[NP * MR], of_x[MR];
      for (bool first = true; k < end; first = false) {
        const int64_t next = end - k < kTile ? end : k + kTile;
        V more[NP * MR], more_x[MR];
        Tile<MR, NP>(panel, x, k, next, tables, ahead.At(k), more, more_x);
        MAINARCH_UNROLL for (int i = 0; i < NP * MR; ++i) dot[i] = first ? more[i] : Add(dot[i], more[i]);
        MAINARCH_UNROLL for (int m = 0; m < MR; ++m) of_x[m] = first ? more_x[m] : Add(of_x[m], more_x[m]);
        k = next;
      }
      MAINARCH_UNROLL for (int p = 0; p < NP; ++p) {
        const V scale = F::Scale(scales[p], groups.index);
        MAINARCH_UNROLL for (int m = 0; m < MR; ++m) sum[p * MR + m] = Fma(dot[p * MR + m], scale, sum[p * MR + m]);
        if (!F::kMin) continue;
        const V addend = F::Addend(scales[p], groups.index);
        MAINARCH_UNROLL for (int m = 0; m < MR; ++m) sum[p * MR + m] = Fma(of_x[m], addend, sum[p * MR + m]);
      }
    }
  }
};

// How many rows of a format are few (measured). Of bytes it takes longest to make tiles; bf16 a tile takes as it lies,
// but vectors get more of it from memory.
inline int64_t FewRows(PanelFormat format) {
  switch (format) {
    case PanelFormat::kBF16:
      return 2;
    case PanelFormat::kInt8:
    case PanelFormat::kInt8Row:
      return 4;
    default:
      return 2;
  }
}

template <class X, class Run>
void WithFewFormat(PanelFormat format, const Run& run) {
  switch (format) {
    case PanelFormat::kBF16:
      return run.template operator()<TileOrder<FormatBF16, X>>();
    case PanelFormat::kFp8:
      return run.template operator()<TileOrder<FormatFp8, X>>();
    case PanelFormat::kMxfp4:
      return run.template operator()<TileOrder<FormatMxfp4, X>>();
    default:
      return WithBlockFormat(format, [&]<class F>() { run.template operator()<TileOrder<F, X>>(); });
  }
}

// With a.floats.
void MatmulFew(const MatmulArgs& a) {
  const float* x[kMaxBlockRows];
  const bool made = a.floats_made != nullptr && *a.floats_made;
  for (int64_t row = 0; row < a.rows; ++row) {
    float* to = a.floats + row * a.w.cols;
    x[row] = to;
    if (made) continue;
    RunLoadBF16(reinterpret_cast<const uint8_t*>(a.x16[row]), to, a.w.cols);
    for (int64_t k = 0; k < a.w.cols; k += kLanes) {
      float* const at = to + (k + kLanes > a.w.cols ? a.w.cols - kLanes : k);
      Store(at, NoDenormals(Load(at)));
    }
  }
  if (a.floats_made != nullptr) *a.floats_made = true;
  WithFewFormat<float>(a.w.format, [&]<class M>() {
    const DecodeTables tables = TablesOf<M>();
    int64_t panel = a.panel_begin;
    if (a.rows > 1) {
      PanelsFrom<M, 2, 2, Rest::kOneByOne>(a, x, &panel, tables);
      return PanelsFrom<M, 2, 1, Rest::kOneByOne>(a, x, &panel, tables);
    }
    PanelsFrom<M, 1, 4, Rest::kOneByOne>(a, x, &panel, tables);
    if (a.epilogue == Epilogue::kGateUp) PanelsFrom<M, 1, 2, Rest::kOneByOne>(a, x, &panel, tables);
    PanelsFrom<M, 1, 1, Rest::kOneByOne>(a, x, &panel, tables);
  });
}

void ExpertsDownFew(const ExpertsDownArgs& a) {
  WithFewFormat<uint16_t>(a.experts[a.active[0]].format, [&]<class M>() { ExpertsDown<M>(a, a.act16); });
}

}  // namespace
}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_TILES_FEW_H_
