// SPDX-License-Identifier: MIT
//
// The formats of GGUF and of groups of integers. They are many, and a shape of a product (rows,
// panels at a time) is compiled for each: so there are fewer shapes than matmul.cc has for its
// formats.
#include "backend/cpu/kernels/multiply.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

// Fewer shapes: the rows behind the last block go one by one.
constexpr Rest kRest = Rest::kOneByOne;

template <class F>
void MatmulBlocks(const MatmulArgs& a) {
  const DecodeTables tables = TablesOf<F>();
  using M = Fp32<F>;
  int64_t panel = a.panel_begin;
#if defined(MAINARCH_TARGET_avx512)
  if (a.rows == 1) {
    PanelsFrom<M, 1, 4, kRest>(a, a.x, &panel, tables);
    if (a.epilogue == Epilogue::kGateUp) PanelsFrom<M, 1, 2, kRest>(a, a.x, &panel, tables);
    return PanelsFrom<M, 1, 1, kRest>(a, a.x, &panel, tables);
  }
  if (a.columns != nullptr && a.rows <= kFewRows) {
    return a.rows <= 4 ? FewRows<F, 4>(a, tables) : FewRows<F, 8>(a, tables);
  }
  if (a.rows > kFewRows && a.decoded != nullptr) {
    ManyRows<F, Fp32, 4, 2, kRest>(a, a.x, &panel, tables);
    return ManyRows<F, Fp32, 4, 1, kRest>(a, a.x, &panel, tables);
  }
#endif
#if defined(MAINARCH_MANY_FLOATS)
  if (ManyFloats<F>::Takes(a)) return ManyFloats<F>(a).Run();
#endif
  constexpr int kRows = kSharesDecoding ? 2 : 1;
  PanelsFrom<M, kRows, 2, kRest>(a, a.x, &panel, tables);
  PanelsFrom<M, kRows, 1, kRest>(a, a.x, &panel, tables);
}

#if defined(MAINARCH_BF16_DOT)
template <class F>
void MatmulBlocksBF16(const MatmulArgs& a) {
  const DecodeTables tables = TablesOf<F>();
  using M = Bf16<F>;
  int64_t panel = a.panel_begin;
  if (a.rows > kFewRows && a.decoded != nullptr) {
    constexpr int kRows = kQuarters ? 4 : 8;
    ManyRows<F, Bf16, kRows, 2, kRest>(a, a.x16, &panel, tables);
    return ManyRows<F, Bf16, kRows, 1, kRest>(a, a.x16, &panel, tables);
  }
  PanelsFrom<M, 4, 2, kRest>(a, a.x16, &panel, tables);
  PanelsFrom<M, 4, 1, kRest>(a, a.x16, &panel, tables);
}
#endif

// Columns of any group: each is decoded with its own scale and addend, exactly, for scales are of 11 bits, codes
// and zero points of 5. Bits are those of the weights in fp32.
struct Ordered : FormatInt4Min {
  using X = float;
  static constexpr bool kPieces = true, kScaled = false, kMin = false;
  template <int MR>
  static constexpr bool kApart = false;

  template <int MR, int NP>
  static inline __attribute__((always_inline)) void Part(const Panels& w, const uint8_t* const* panel,
                                                         const uint8_t* const* scales,
                                                         const float* const* x, int part,
                                                         const Ahead& ahead, V* sum) {
    const DecodeTables tables = TablesOf<FormatInt4Min>();
    const size_t behind = OrderBytes(w.cols);
    V acc[NP * MR][2];
    MAINARCH_UNROLL for (int i = 0; i < NP * MR; ++i) acc[i][0] = acc[i][1] = Zero();
    for (int64_t step = w.bounds[part] / kCols; step < w.bounds[part + 1] / kCols; ++step) {
      MAINARCH_UNROLL for (int p = 0; p < NP; ++p) {
        V codes[kCols];
        Prefetch<kBytes>(panel[p] + step * kBytes, ahead.At(step * kCols));
        Decode(panel[p] + step * kBytes, tables, codes);
        const uint16_t* groups = reinterpret_cast<const uint16_t*>(scales[p]) + step * kCols;
        MAINARCH_UNROLL for (int c = 0; c < kCols; ++c) {
          const V weight = Fma(codes[c], Scale(scales[p] + behind, groups[c]),
                               Addend(scales[p] + behind, groups[c]));
          MAINARCH_UNROLL for (int m = 0; m < MR; ++m) {
            V& a = acc[p * MR + m][c & 1];
            a = Fma(weight, Set(x[m][step * kCols + c]), a);
          }
        }
      }
    }
    MAINARCH_UNROLL for (int i = 0; i < NP * MR; ++i) sum[i] = Add(acc[i][0], acc[i][1]);
  }
};

void MatmulOrdered(const MatmulArgs& a) {
  const DecodeTables tables = TablesOf<Ordered>();
  int64_t panel = a.panel_begin;
  PanelsFrom<Ordered, 1, 2, kRest>(a, a.x, &panel, tables);
  PanelsFrom<Ordered, 1, 1, kRest>(a, a.x, &panel, tables);
}

}  // namespace

void RunMatmulBlocks(const MatmulArgs& a) {
  if (a.w.format == PanelFormat::kInt4Order) return MatmulOrdered(a);
  WithBlockFormat(a.w.format, [&]<class F>() { MatmulBlocks<F>(a); });
}

void RunExpertsDownBlocks(const ExpertsDownArgs& a) {
  if (a.experts[a.active[0]].format == PanelFormat::kInt4Order) return ExpertsDown<Ordered>(a, a.act);
  WithBlockFormat(a.experts[a.active[0]].format, [&]<class F>() { ExpertsDown<Fp32<F>>(a, a.act); });
}

#if defined(MAINARCH_BF16_DOT)
void RunMatmulBlocksBF16(const MatmulArgs& a) {
  WithBlockFormat(a.w.format, [&]<class F>() { MatmulBlocksBF16<F>(a); });
}

void RunExpertsDownBlocksBF16(const ExpertsDownArgs& a) {
  WithBlockFormat(a.experts[a.active[0]].format, [&]<class F>() { ExpertsDown<Bf16<F>>(a, a.act16); });
}
#endif

}  // namespace mainarch::cpu::MAINARCH_TARGET
