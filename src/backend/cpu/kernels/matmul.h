// SPDX-License-Identifier: MIT
//
// Panels times activation rows in fp32. The order of additions along K is the same for one row and
// for many: even and odd columns are summed apart (two chains hide the latency of the multiply-add),
// added at the end of each scale group or part; groups are scaled and added in order; parts are
// added in a binary tree.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_MATMUL_H_
#define MAINARCH_BACKEND_CPU_KERNELS_MATMUL_H_

#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/tables.h"
#include "backend/cpu/simd/simd.h"

namespace mainarch::cpu::MAINARCH_TARGET {

// Formats: how many columns a step holds, how to decode one, how to load a group's scales.
struct FormatBF16 {
  static constexpr int kCols = 2, kBytes = 64;
  static constexpr bool kScaled = false;
  static inline void Decode(const uint8_t* p, const DecodeTables&, V* w) { DecodeBF16(p, w); }
  static inline V Scale(const uint8_t*, int64_t) { return Zero(); }
};
struct FormatF16 {
  static constexpr int kCols = 2, kBytes = 64;
  static constexpr bool kScaled = false;
  static inline void Decode(const uint8_t* p, const DecodeTables&, V* w) { DecodeF16(p, w); }
  static inline V Scale(const uint8_t*, int64_t) { return Zero(); }
};
struct FormatF32 {
  static constexpr int kCols = 2, kBytes = 128;
  static constexpr bool kScaled = false;
  static inline void Decode(const uint8_t* p, const DecodeTables&, V* w) { DecodeF32(p, w); }
  static inline V Scale(const uint8_t*, int64_t) { return Zero(); }
};
struct FormatFp8 {
  static constexpr int kCols = 4, kBytes = 64;
  static constexpr bool kScaled = true;
  static inline void Decode(const uint8_t* p, const DecodeTables& t, V* w) { DecodeFp8(p, t, w); }
  static inline V Scale(const uint8_t* scales, int64_t group) {
    return Load(reinterpret_cast<const float*>(scales) + 16 * group);
  }
};
struct FormatMxfp4 {
  static constexpr int kCols = 8, kBytes = 64;
  static constexpr bool kScaled = true;
  static inline void Decode(const uint8_t* p, const DecodeTables& t, V* w) { DecodeFp4(p, t, w); }
  static inline V Scale(const uint8_t* scales, int64_t group) { return LoadE8M0(scales + 16 * group); }
};

// Columns [k0, k1) of NP panels against MR rows: sum[p * MR + m], unscaled.
template <class F, int MR, int NP>
static inline __attribute__((always_inline)) void DotRange(const uint8_t* const* panel,
                                                           const float* const* x, int64_t k0,
                                                           int64_t k1, const DecodeTables& tables,
                                                           V* sum) {
  V acc[NP * MR][2];
  for (int i = 0; i < NP * MR; ++i) acc[i][0] = acc[i][1] = Zero();
  const int64_t first = k0 / F::kCols, last = k1 / F::kCols;
  for (int64_t step = first; step < last; ++step) {
    for (int p = 0; p < NP; ++p) {
      V w[F::kCols];
      F::Decode(panel[p] + step * F::kBytes, tables, w);
      for (int c = 0; c < F::kCols; ++c) {
        for (int m = 0; m < MR; ++m) {
          V& a = acc[p * MR + m][c & 1];
          a = Fma(w[c], Set(x[m][step * F::kCols + c]), a);
        }
      }
    }
  }
  for (int i = 0; i < NP * MR; ++i) sum[i] = Add(acc[i][0], acc[i][1]);
}

// One K part: the sum over its scale groups.
template <class F, int MR, int NP>
static inline __attribute__((always_inline)) void DotPart(const Panels& w,
                                                          const uint8_t* const* panel,
                                                          const float* const* x, int64_t k0,
                                                          int64_t k1, const DecodeTables& tables,
                                                          V* sum) {
  if (!F::kScaled) {
    DotRange<F, MR, NP>(panel, x, k0, k1, tables, sum);
    return;
  }
  for (int i = 0; i < NP * MR; ++i) sum[i] = Zero();
  for (int64_t k = k0; k < k1;) {
    const int64_t group = (k + w.group_offset) / w.group_cols;
    int64_t end = (group + 1) * w.group_cols - w.group_offset;
    if (end > k1) end = k1;
    V dot[NP * MR];
    DotRange<F, MR, NP>(panel, x, k, end, tables, dot);
    for (int p = 0; p < NP; ++p) {
      const V scale = F::Scale(panel[p] + w.scale_offset, group);
      for (int m = 0; m < MR; ++m) sum[p * MR + m] = Fma(dot[p * MR + m], scale, sum[p * MR + m]);
    }
    k = end;
  }
}

// Adds the parts as they come in a fixed binary tree, like carries in a binary counter.
template <int N>
struct Tree {
  V level[4][N];  // log2(kMaxParts) + 1 levels
  int count = 0;

  inline void Push(const V* part) {
    V carry[N];
    for (int i = 0; i < N; ++i) carry[i] = part[i];
    int at = 0;
    for (int bits = count; (bits & 1) != 0; bits >>= 1, ++at) {
      for (int i = 0; i < N; ++i) carry[i] = Add(level[at][i], carry[i]);
    }
    for (int i = 0; i < N; ++i) level[at][i] = carry[i];
    ++count;
  }
  // After a power of two of parts, their sum is alone at its level.
  inline const V* Sum() const { return level[count == 1 ? 0 : count == 2 ? 1 : count == 4 ? 2 : 3]; }
};

template <class F, int MR, int NP>
static inline __attribute__((always_inline)) void DotAll(const Panels& w,
                                                         const uint8_t* const* panel,
                                                         const float* const* x,
                                                         const DecodeTables& tables, V* sum) {
  if (w.parts == 1) {
    DotPart<F, MR, NP>(w, panel, x, 0, w.cols, tables, sum);
    return;
  }
  Tree<NP * MR> tree;
  for (int part = 0; part < w.parts; ++part) {
    V y[NP * MR];
    DotPart<F, MR, NP>(w, panel, x, w.bounds[part], w.bounds[part + 1], tables, y);
    tree.Push(y);
  }
  for (int i = 0; i < NP * MR; ++i) sum[i] = tree.Sum()[i];
}

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_MATMUL_H_
