// SPDX-License-Identifier: MIT
//
// Products with activations of 8 bits (kernels.h, Int8Row), of formats whose codes are integers, but for a
// scale: the codes of a piece, up to 32 columns with one scale on either side, are multiplied and added as
// integers, exactly; pieces are scaled and added in order, parts in the tree. So a row's bits depend on nothing
// else.
#include "backend/cpu/kernels/int8_codes.h"
#include "backend/cpu/kernels/multiply.h"
#if defined(MAINARCH_TARGET_avx2) && !defined(MAINARCH_TARGET_avx2_vnni)
#include "backend/cpu/kernels/multiply_words.h"
#define MAINARCH_MANY_WORDS
#endif

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

// F has steps and scales, C codes.
template <class F, class C>
struct Int8 : F {
  using X = uint8_t;
  static constexpr bool kPieces = true;
  template <int MR>
  static constexpr bool kApart = false;
  // A piece has at most eight vectors; sums of 16 bits may have to be two.
  static constexpr int kPieceCols = F::kGroup16 ? 16 : 32;
  static constexpr int kSums = kNarrowSums && !C::kSigned && kPieceCols / 4 > C::kAdditions ? 2 : 1;
  static_assert(kPieceCols / 4 <= 2 * C::kAdditions || C::kSigned || !kNarrowSums);

  template <int MR, int NP>
  static MAINARCH_INLINE_BYTES void Step(const uint8_t* const* panel, int64_t step,
                                         const int8_t* const* x, size_t ahead,
                                         ByteSums (*sums)[kSums]) {
    MAINARCH_UNROLL_BYTES for (int p = 0; p < NP; ++p) {
      Bytes codes[C::kUnits];
      Prefetch<F::kBytes>(panel[p] + step * F::kBytes, ahead);
      C::Codes(panel[p] + step * F::kBytes, codes);
      MAINARCH_UNROLL_BYTES for (int u = 0; u < C::kUnits; ++u) {
        MAINARCH_UNROLL_BYTES for (int m = 0; m < MR; ++m) {
          DotB<C::kSigned>(sums[p * MR + m][u % kSums], codes[u], x[m] + step * F::kCols + 4 * u);
        }
      }
    }
  }

#if defined(MAINARCH_TARGET_neon_i8mm)
  // Of an even number of rows, by pairs of both rows and units; where units are odd in number a last one of zeros.
  template <int MR>
  static MAINARCH_INLINE_BYTES void SumRows(const uint8_t* panel, const int8_t* const* x, int64_t k0, int64_t k1,
                                            size_t ahead, ByteSums* out) {
    constexpr int kSteps = C::kUnits == 1 ? 2 : 1, kUnits = kSteps * C::kUnits, kCols = kSteps * F::kCols;
    RowSums sums[MR / 2];
    MAINARCH_UNROLL_BYTES for (int i = 0; i < MR / 2; ++i) sums[i] = ZeroRows();
    _Pragma("GCC unroll 1") for (int64_t k = k0; k < k1; k += kCols) {
      Bytes codes[kUnits];
      const uint8_t* from = panel + k / F::kCols * F::kBytes;
      Prefetch<kSteps * F::kBytes>(from, ahead);
      C::Codes(from, codes);
      const bool whole = kSteps == 1 || k + F::kCols < k1;
      if constexpr (kSteps == 2) {
        if (whole) C::Codes(from + F::kBytes, codes + 1);
        if (!whole) codes[1] = SetB(0);
      }
      MAINARCH_UNROLL_BYTES for (int u = 0; u < kUnits; u += 2) {
        MAINARCH_UNROLL_BYTES for (int i = 0; i < MR / 2; ++i) {
          const int8_t *first = x[2 * i] + k + 4 * u, *second = x[2 * i + 1] + k + 4 * u;
          int8_t rest[16] = {};
          if (!whole) {
            __builtin_memcpy(rest, first, 4);
            __builtin_memcpy(rest + 8, second, 4);
          }
          const int8x16_t both = whole ? vcombine_s8(vld1_s8(first), vld1_s8(second)) : vld1q_s8(rest);
          DotRowsB(sums[i], codes[u], codes[u + 1], both);
        }
      }
    }
    MAINARCH_UNROLL_BYTES for (int i = 0; i < MR / 2; ++i) {
      out[2 * i] = SumsOfRow<0>(sums[i]);
      out[2 * i + 1] = SumsOfRow<1>(sums[i]);
    }
  }
#endif

  // Columns [k0, k1) of a piece: the sums of codes, less what codes are more than weights.
  template <int MR, int NP>
  static MAINARCH_INLINE_BYTES void Piece(const uint8_t* const* panel,
                                                          const int8_t* const* x,
                                                          const int32_t* const* before, int64_t k0,
                                                          int64_t k1, size_t ahead, V* dot) {
    ByteSums sums[NP * MR][kSums];
    MAINARCH_UNROLL_BYTES for (int i = 0; i < NP * MR; ++i) {
      MAINARCH_UNROLL_BYTES for (int s = 0; s < kSums; ++s) sums[i][s] = ZeroB();
    }
    // Not unrolled: there are many shapes of this, and a step is long enough.
    constexpr bool kByPairs = kMatrixB && MR % 2 == 0 && NP == 1;
#if defined(MAINARCH_TARGET_neon_i8mm)
    if constexpr (kByPairs) SumRows<MR>(panel[0], x, k0, k1, ahead, sums[0]);
#endif
    _Pragma("GCC unroll 1") for (int64_t step = k0 / F::kCols; !kByPairs && step < k1 / F::kCols; ++step) {
      Step<MR, NP>(panel, step, x, ahead, sums);
    }
    MAINARCH_UNROLL_BYTES for (int m = 0; m < MR; ++m) {
      const int32_t less = C::kLess == 0 ? 0 : C::kLess * (before[m][k1 / 4] - before[m][k0 / 4]);
      MAINARCH_UNROLL_BYTES for (int p = 0; p < NP; ++p) {
        const ByteSums* of = sums[p * MR + m];
        if constexpr (kSums == 2) {
          dot[p * MR + m] = FloatsOfB<C::kSigned>(of[0], of[1], less);
        } else {
          dot[p * MR + m] = FloatsOfB<C::kSigned>(of[0], less);
        }
      }
    }
  }

  // DotPart of matmul.h, part `part`.
  template <int MR, int NP>
  static MAINARCH_INLINE_BYTES void Part(const Panels& w, const uint8_t* const* panel,
                                                         const uint8_t* const* scales,
                                                         const uint8_t* const* rows, int part,
                                                         const Ahead& ahead, V* sum) {
    const Int8Layout layout = Int8LayoutOf(w.cols);
    const int8_t* x[MR];
    const int32_t* before[MR];
    const float* factors[MR];
    MAINARCH_UNROLL_BYTES for (int m = 0; m < MR; ++m) {
      x[m] = reinterpret_cast<const int8_t*>(rows[m]) + (C::kInOrder ? 0 : layout.nibbles_at);
      before[m] = reinterpret_cast<const int32_t*>(rows[m] + layout.before_at);
      factors[m] = reinterpret_cast<const float*>(rows[m] + layout.factors_at) + part;
    }
    MAINARCH_UNROLL_BYTES for (int i = 0; i < NP * MR; ++i) sum[i] = Zero();
    const int64_t k1 = w.bounds[part + 1];
    int64_t k = w.bounds[part];
    int64_t group = (k + w.group_offset) / w.group_cols;
    int64_t group_end = (group + 1) * w.group_cols - w.group_offset;
    while (k < k1) {
      const int64_t run = (k + w.first_col) / kInt8Run;
      const int64_t run_end = (run + 1) * kInt8Run - w.first_col;
      int64_t end = run_end < group_end ? run_end : group_end;
      if (end > k1) end = k1;
      V dot[NP * MR];
      Piece<MR, NP>(panel, x, before, k, end, ahead.At(k), dot);
      MAINARCH_UNROLL_BYTES for (int p = 0; p < NP; ++p) {
        const V scale = F::Scale(scales[p], group);
        MAINARCH_UNROLL_BYTES for (int m = 0; m < MR; ++m) {
          const V by = Mul(scale, Set(factors[m][run] * C::kUnit));
          sum[p * MR + m] = Fma(dot[p * MR + m], by, sum[p * MR + m]);
        }
        if (!F::kMin) continue;
        const V addend = F::Addend(scales[p], group);
        MAINARCH_UNROLL_BYTES for (int m = 0; m < MR; ++m) {
          const float of_x = static_cast<float>(before[m][end / 4] - before[m][k / 4]) * factors[m][run];
          sum[p * MR + m] = Fma(Set(of_x), addend, sum[p * MR + m]);
        }
      }
      k = end;
      if (k == group_end) {
        ++group;
        group_end += w.group_cols;
      }
    }
  }
};

constexpr Rest kRest = Rest::kOneByOne;

template <class M>
void MatmulInt8(const MatmulArgs& a) {
  const DecodeTables tables = TablesOf<M>();
  int64_t panel = a.panel_begin;
#if defined(MAINARCH_TARGET_avx512)
  constexpr int kAlone = 4, kRows = 4;
#elif defined(MAINARCH_TARGET_avx2)
  constexpr int kAlone = 2, kRows = 2;  // a vector is two registers of 16
#elif defined(MAINARCH_TARGET_neon)
  constexpr int kAlone = 2, kRows = 4;  // one panel at a time (kQuarters)
#else
  constexpr int kAlone = 2, kRows = 1;
#endif
  if (a.rows == 1 || kRows == 1) {
    PanelsFrom<M, 1, kAlone, kRest>(a, a.x8, &panel, tables);
    if (kAlone > 2 && a.epilogue == Epilogue::kGateUp) PanelsFrom<M, 1, 2, kRest>(a, a.x8, &panel, tables);
    return PanelsFrom<M, 1, 1, kRest>(a, a.x8, &panel, tables);
  }
  if constexpr (kRows > 1) {
    PanelsFrom<M, kRows, 2, kRest>(a, a.x8, &panel, tables);
    PanelsFrom<M, kRows, 1, kRest>(a, a.x8, &panel, tables);
  }
}

template <class F, class C>
void MatmulCodes(const MatmulArgs& a) {
#if defined(MAINARCH_MANY_WORDS)
  if constexpr (C::kSigned) {
    if (ManyWords<F, C>::Takes(a)) return ManyWords<F, C>(a).Run();
  }
#endif
  MatmulInt8<Int8<F, C>>(a);
}

// A run of x, [begin, end): its factor, and what is left of x over it as bytes.
float RunOfX(const float* x, int64_t begin, int64_t end, int8_t* out) {
  float largest = 0, finite = 0;  // 0 times what is
  int64_t k = begin;
  V most = Zero(), zeros = Zero();
  for (; k + 16 <= end; k += 16) {
    most = Max(most, Max(Load(x + k), Sub(Zero(), Load(x + k))));
    zeros = Fma(Load(x + k), Zero(), zeros);
  }
  if (k > begin) {
    largest = HorizontalMax(most);
    finite = HorizontalSum(zeros);
  }
  for (int64_t i = k; i < end; ++i) {
    const float magnitude = __builtin_fabsf(x[i]);
    if (magnitude > largest) largest = magnitude;
    finite += x[i] * 0.0f;
  }
  if (!(finite == 0)) {  // a NaN or an infinity, and so is what becomes of it
    __builtin_memset(out + begin, 0, static_cast<size_t>(end - begin));
    return __builtin_nanf("");
  }
  // Below this the quotient could overflow.
  const bool some = largest > 0x1p-120f;
  const V inverse = Set(some ? 127 / largest : 0.0f);
  const V bound = Set(127.0f);
  for (k = begin; k < end; k += 16) {
    float part[16] = {};
    const bool whole = k + 16 <= end;
    if (!whole) __builtin_memcpy(part, x + k, static_cast<size_t>(end - k) * sizeof(float));
    V scaled = Round(Mul(Load(whole ? x + k : part), inverse));
    scaled = Max(Min(scaled, bound), Sub(Zero(), bound));
    int8_t bytes[16];
    StoreInt8(bytes, scaled);
    __builtin_memcpy(out + k, bytes, static_cast<size_t>(whole ? 16 : end - k));
  }
  return some ? largest * (1.0f / 127) : 0.0f;
}

}  // namespace

void RunToInt8(const float* x, const Panels& w, uint8_t* row) {
  const Int8Layout layout = Int8LayoutOf(w.cols);
  int8_t* q = reinterpret_cast<int8_t*>(row);
  int8_t* nibbles = q + layout.nibbles_at;
  int32_t* before = reinterpret_cast<int32_t*>(row + layout.before_at);
  float* factors = reinterpret_cast<float*>(row + layout.factors_at);
  for (int part = 0; part < w.parts; ++part) {
    for (int64_t k = w.bounds[part], end = 0; k < w.bounds[part + 1]; k = end) {
      const int64_t run = (k + w.first_col) / kInt8Run;
      end = (run + 1) * kInt8Run - w.first_col;
      if (end > w.bounds[part + 1]) end = w.bounds[part + 1];
      factors[run + part] = RunOfX(x, k, end, q);
    }
  }
  // The order of a step of nibbles: low ones of its two words, then high ones (kernels.h, mxfp4).
  for (int64_t k = 0; k + 8 <= w.cols; k += 8) {
    for (int i = 0; i < 4; ++i) {
      // Vector u has columns 2 u + {0, 4, 1, 5} of eight.
      nibbles[k + i] = q[k + i % 2 * 4 + i / 2];
      nibbles[k + 4 + i] = q[k + 2 + i % 2 * 4 + i / 2];
    }
  }
  int32_t sum = 0;
  for (int64_t four = 0; four < w.cols / 4; ++four) {
    before[four] = sum;
    const int8_t* at = q + 4 * four;
    sum += at[0] + at[1] + at[2] + at[3];
  }
  before[w.cols / 4] = sum;
}

void RunMatmulInt8(const MatmulArgs& a) {
  WithInt8Codes(a.w.format, [&]<class F, class C>() { MatmulCodes<F, C>(a); });
}

void RunExpertsDownInt8(const ExpertsDownArgs& a) {
  WithInt8Codes(a.experts[a.active[0]].format, [&]<class F, class C>() { ExpertsDown<Int8<F, C>>(a, a.act8); });
}

}  // namespace mainarch::cpu::MAINARCH_TARGET
