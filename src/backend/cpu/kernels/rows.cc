// SPDX-License-Identifier: MIT
//
// Operators on single rows.
#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/simd/simd.h"
#include "kernels/common/tree.h"  // nothing of it is left to be linked

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

// 1 / sqrt(mean(x^2) + eps). The tail of a row that is not a multiple of 16 counts as zeros.
inline float InverseRms(const float* x, float eps, int64_t n) {
  V sum = Zero();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const V a = Load(x + i);
    sum = Fma(a, a, sum);
  }
  if (i < n) {
    float tail[16] = {};
    for (int64_t j = i; j < n; ++j) tail[j - i] = x[j];
    const V a = Load(tail);
    sum = Fma(a, a, sum);
  }
  return 1.0f / __builtin_sqrtf(HorizontalSum(sum) / static_cast<float>(n) + eps);
}

}  // namespace

void RunRmsNorm(const float* x, const float* w, float eps, int64_t n, float* out) {
  const float inverse = InverseRms(x, eps, n);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(out + i, Mul(Mul(Load(x + i), Set(inverse)), Load(w + i)));
  for (; i < n; ++i) out[i] = x[i] * inverse * w[i];
}

void RunNormRope(const float* x, const float* w, float eps, int32_t head_dim, const float* cos,
                 const float* sin, int32_t half, float scale, float* out) {
  if (w != nullptr) {
    RunRmsNorm(x, w, eps, head_dim, out);
  } else if (out != x) {
    __builtin_memcpy(out, x, static_cast<size_t>(head_dim) * sizeof(float));
  }
  for (int32_t i = 0; i < half; ++i) {
    const float a = out[i], b = out[i + half];
    out[i] = a * cos[i] - b * sin[i];
    out[i + half] = b * cos[i] + a * sin[i];
  }
  if (scale == 1.0f) return;
  for (int32_t i = 0; i < head_dim; ++i) out[i] *= scale;
}

void RunHadamard(float* x, int32_t n, int32_t size) {
  for (int32_t half = 1; half < size; half *= 2) {
    for (int32_t at = 0; at < n; at += 2 * half) {
      for (int32_t i = at; i < at + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  RunScale(x, 1.0f / __builtin_sqrtf(static_cast<float>(size)), n);
}

void RunGate(float* x, const float* g, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {  // heads are multiples of 16
    Store(x + i, Div(Load(x + i), Add(Set(1.0f), Exp(Sub(Zero(), Load(g + i))))));
  }
}

void RunScale(float* x, float factor, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(x + i, Mul(Load(x + i), Set(factor)));
  for (; i < n; ++i) x[i] *= factor;
}

void RunAddTree(float* x, const float* const* parts, int32_t n, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    V sum[kMaxParts];
    for (int32_t p = 0; p < n; ++p) sum[p] = Load(parts[p] + i);
    kernels::AddTree(sum, static_cast<uint32_t>(n), Add);
    Store(x + i, Add(Load(x + i), sum[0]));
  }
}

void RunSoftmax(float* x, int64_t n) {
  float max = x[0];
  for (int64_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  V sum = Zero();
  for (int64_t i = 0; i < n; i += 16) {
    const int64_t left = n - i;
    float lanes[16];
    for (int64_t j = 0; j < 16; ++j) lanes[j] = j < left ? x[i + j] - max : -__builtin_inff();
    const V p = Exp(Load(lanes));
    sum = Add(sum, p);
    Store(lanes, p);
    for (int64_t j = 0; j < 16 && j < left; ++j) x[i + j] = lanes[j];
  }
  const float total = HorizontalSum(sum);
  for (int64_t i = 0; i < n; ++i) x[i] /= total;
}

void RunToBF16(const float* x, uint16_t* out, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) StoreBF16(out + i, Load(x + i));
  if (i == n) return;
  float tail[16] = {};
  uint16_t lanes[16];
  __builtin_memcpy(tail, x + i, static_cast<size_t>(n - i) * 4);
  StoreBF16(lanes, Load(tail));
  __builtin_memcpy(out + i, lanes, static_cast<size_t>(n - i) * 2);
}

#if defined(MAINARCH_TARGET_avx512)
void RunByColumns(const float* const* x, int64_t rows, int64_t n, float* out) {
  static_assert(kMaxBlockRows == 8);
  for (int64_t k = 0; k < n; k += 8) {
    __m256 row[8];
    for (int m = 0; m < 8; ++m) row[m] = m < rows ? _mm256_loadu_ps(x[m] + k) : _mm256_setzero_ps();
    Transpose8(row);
    for (int c = 0; c < 8; ++c) _mm256_storeu_ps(out + (k + c) * 8, row[c]);
  }
}
#endif

void RunLoadBF16(const uint8_t* src, float* out, int64_t n) {
  const uint16_t* from = reinterpret_cast<const uint16_t*>(src);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(out + i, LoadBF16(from + i));
  if (i == n) return;
  uint16_t tail[16] = {};
  float lanes[16];
  __builtin_memcpy(tail, from + i, static_cast<size_t>(n - i) * 2);
  Store(lanes, LoadBF16(tail));
  for (int64_t j = i; j < n; ++j) out[j] = lanes[j - i];
}

void RunLoadF16(const uint8_t* src, float* out, int64_t n) {
  const uint16_t* from = reinterpret_cast<const uint16_t*>(src);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(out + i, LoadF16(from + i));
  if (i == n) return;
  uint16_t tail[16] = {};
  float lanes[16];
  __builtin_memcpy(tail, from + i, static_cast<size_t>(n - i) * 2);
  Store(lanes, LoadF16(tail));
  for (int64_t j = i; j < n; ++j) out[j] = lanes[j - i];
}

}  // namespace mainarch::cpu::MAINARCH_TARGET
