// SPDX-License-Identifier: MIT
#include "decode/vocab_math.h"

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "base/cpu_features.h"
#include "kernels/common/draw.h"

// One body for every vector width; wrappers compile it for more than the baseline ISA.
#define MAINARCH_INLINE inline __attribute__((always_inline))

namespace mainarch::decode {
namespace {

struct Wide4 {
  typedef float F __attribute__((vector_size(16)));
  typedef uint32_t U __attribute__((vector_size(16)));
  static constexpr size_t kWidth = 4;
};

struct Wide8 {
  typedef float F __attribute__((vector_size(32)));
  typedef uint32_t U __attribute__((vector_size(32)));
  static constexpr size_t kWidth = 8;
};

constexpr size_t kLanes = 16;  // of a sum, whatever the width

template <class F>
MAINARCH_INLINE void Load(const float* from, F* to) {
  std::memcpy(to, from, sizeof(F));
}

template <class W>
MAINARCH_INLINE Peak FindPeakBody(const float* v, size_t n, float* block_max) {
  using F = typename W::F;
  using U = typename W::U;
  float best = -INFINITY;
  size_t best_block = 0;
  U wrong = {};
  bool sane = true;
  // Fewer reductions across lanes when nobody wants the blocks' own maxima.
  const size_t step = block_max != nullptr ? kScanBlock : 4 * kScanBlock;
  for (size_t begin = 0; begin < n; begin += step) {
    float top = -INFINITY;
    if (begin + step <= n) {
      // Four named chains: an array of them would live on the stack at -O2.
      F m0 = F{} - INFINITY, m1 = m0, m2 = m0, m3 = m0;
      for (size_t i = begin; i < begin + step; i += 4 * W::kWidth) {
        F x0, x1, x2, x3;
        Load(v + i, &x0);
        Load(v + i + W::kWidth, &x1);
        Load(v + i + 2 * W::kWidth, &x2);
        Load(v + i + 3 * W::kWidth, &x3);
        m0 = x0 > m0 ? x0 : m0;
        m1 = x1 > m1 ? x1 : m1;
        m2 = x2 > m2 ? x2 : m2;
        m3 = x3 > m3 ? x3 : m3;
        wrong |=
            ~((U)(x0 <= FLT_MAX) & (U)(x1 <= FLT_MAX) & (U)(x2 <= FLT_MAX) & (U)(x3 <= FLT_MAX));
      }
      m0 = m1 > m0 ? m1 : m0;
      m2 = m3 > m2 ? m3 : m2;
      m0 = m2 > m0 ? m2 : m0;
      for (size_t j = 0; j < W::kWidth; ++j) top = m0[j] > top ? m0[j] : top;
    } else {
      for (size_t i = begin; i < n; ++i) {
        top = v[i] > top ? v[i] : top;
        sane &= v[i] <= FLT_MAX;
      }
    }
    if (block_max != nullptr) block_max[begin / kScanBlock] = top;
    if (top > best) {
      best = top;
      best_block = begin;
    }
  }
  for (size_t j = 0; j < W::kWidth; ++j) sane &= wrong[j] == 0;
  size_t index = best_block;
  while (index + 1 < n && !(v[index] == best)) ++index;
  return {static_cast<uint32_t>(index), best, sane};
}

// kernels::WeightOf, a vector at a time.
template <class W>
MAINARCH_INLINE typename W::F Exp(typename W::F x) {
  using F = typename W::F;
  using U = typename W::U;
  const F t = x * kernels::kLog2e + kernels::kExpMagic;
  const F y = kernels::ExpMantissa(x, t);
  const U exponent = ((U)t - std::bit_cast<uint32_t>(kernels::kExpMagic) + 127u) << 23;
  return (F)((U)(y * (F)exponent) & (U)(x >= -87.0f));
}

template <class W>
MAINARCH_INLINE void ExpIntoBody(const float* x, size_t n, float* out) {
  size_t i = 0;
  for (; i + W::kWidth <= n; i += W::kWidth) {
    typename W::F y;
    Load(x + i, &y);
    y = Exp<W>(y);
    std::memcpy(out + i, &y, sizeof(y));
  }
  if (i == n) return;
  typename W::F y = {};
  std::memcpy(&y, x + i, (n - i) * sizeof(float));
  y = Exp<W>(y);
  std::memcpy(out + i, &y, (n - i) * sizeof(float));
}

template <class W>
MAINARCH_INLINE double SumExpBody(const float* v, size_t n, float shift) {
  using F = typename W::F;
  double total = 0;
  for (size_t begin = 0; begin < n; begin += kScanBlock) {
    const size_t end = begin + kScanBlock < n ? begin + kScanBlock : n;
    F sum[kLanes / W::kWidth] = {};
    for (size_t i = begin; i < end; i += kLanes) {
      for (size_t j = 0; j < kLanes / W::kWidth; ++j) {
        const size_t at = i + j * W::kWidth;
        F x = F{} - INFINITY;
        if (at + W::kWidth <= end) {
          Load(v + at, &x);
        } else if (at < end) {
          std::memcpy(&x, v + at, (end - at) * sizeof(float));
        }
        sum[j] += Exp<W>(x - shift);
      }
    }
    for (size_t lane = 0; lane < kLanes; ++lane) total += sum[lane / W::kWidth][lane % W::kWidth];
  }
  return total;
}

#if defined(__x86_64__)
#define MAINARCH_AVX2 __attribute__((target("avx2")))
MAINARCH_AVX2 Peak FindPeakAvx2(const float* v, size_t n, float* block_max) {
  return FindPeakBody<Wide8>(v, n, block_max);
}
MAINARCH_AVX2 void ExpIntoAvx2(const float* x, size_t n, float* out) {
  ExpIntoBody<Wide8>(x, n, out);
}
MAINARCH_AVX2 double SumExpAvx2(const float* v, size_t n, float shift) {
  return SumExpBody<Wide8>(v, n, shift);
}
bool HasAvx2() { return CPU_FEATURE_ACTIVE(AVX2); }
#endif

}  // namespace

Peak PortableFindPeak(const float* v, size_t n, float* block_max) {
  return FindPeakBody<Wide4>(v, n, block_max);
}
void PortableExpInto(const float* x, size_t n, float* out) { ExpIntoBody<Wide4>(x, n, out); }
double PortableSumExp(const float* v, size_t n, float shift) {
  return SumExpBody<Wide4>(v, n, shift);
}

Peak FindPeak(const float* v, size_t n, float* block_max) {
#if defined(__x86_64__)
  if (HasAvx2()) return FindPeakAvx2(v, n, block_max);
#endif
  return PortableFindPeak(v, n, block_max);
}

void ExpInto(const float* x, size_t n, float* out) {
#if defined(__x86_64__)
  if (HasAvx2()) return ExpIntoAvx2(x, n, out);
#endif
  PortableExpInto(x, n, out);
}

double SumExp(const float* v, size_t n, float shift) {
#if defined(__x86_64__)
  if (HasAvx2()) return SumExpAvx2(v, n, shift);
#endif
  return PortableSumExp(v, n, shift);
}

double NaturalLog(double x) { return kernels::ExactLog(x); }

}  // namespace mainarch::decode
