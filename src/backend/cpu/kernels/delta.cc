// SPDX-License-Identifier: MIT
//
// What a gated delta net has beside products: one head of one sequence at a time.
#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/simd/simd.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

// Sums over i of k_i S_i and q_i S_i, S_i a row of sixteen columns, in two chains each.
struct Sums {
  V p[2] = {Zero(), Zero()}, r[2] = {Zero(), Zero()};

  void Add(int64_t i, float k, float q, V s) {
    p[i] = Fma(Set(k), s, p[i]);
    r[i] = Fma(Set(q), s, r[i]);
  }
};

// Sixteen columns of a head's state through all rows. A row's update of S and the sums that the next
// row wants of it are one pass.
void RunColumns(const DeltaArgs& a, int64_t block) {
  const int64_t n = a.key_dim, at = block * 16;
  float* const s = a.state_out + at * n;
  const float* held = s;  // where S lies: in state_in until it is updated
  if (a.state_in != nullptr) {
    held = a.state_in + at * n;
  } else {
    for (int64_t i = 0; i < n; ++i) Store(s + i * 16, Zero());
  }
  V u = Zero();
  for (int64_t row = 0; row < a.rows; ++row) {
    const float* const k = a.k + row * n;
    const float* const q = a.q + row * n;
    Sums sums;
    if (row > 0) {
      const float* const before = k - n;
      const V alpha = Set(a.alpha[row - 1]);
      for (int64_t i = 0; i < n; i += 2) {
        for (int64_t j = 0; j < 2; ++j) {
          const V updated = Fma(Set(before[i + j]), u, Mul(alpha, Load(held + (i + j) * 16)));
          Store(s + (i + j) * 16, updated);
          sums.Add(j, k[i + j], q[i + j], updated);
        }
      }
      held = s;
    } else {
      for (int64_t i = 0; i < n; i += 2) {
        for (int64_t j = 0; j < 2; ++j) {
          sums.Add(j, k[i + j], q[i + j], Load(held + (i + j) * 16));
        }
      }
    }
    const V p = Add(sums.p[0], sums.p[1]), r = Add(sums.r[0], sums.r[1]);
    const V alpha = Set(a.alpha[row]);
    u = Mul(Set(a.beta[row]), Sub(Load(a.v + row * a.value_dim + at), Mul(alpha, p)));
    Store(a.out + row * a.value_dim + at, Fma(Set(a.qk[row]), u, Mul(alpha, r)));
  }
  const float* const k = a.k + (a.rows - 1) * n;
  const V alpha = Set(a.alpha[a.rows - 1]);
  for (int64_t i = 0; i < n; ++i) {
    Store(s + i * 16, Fma(Set(k[i]), u, Mul(alpha, Load(held + i * 16))));
  }
}

}  // namespace

void RunDelta(const DeltaArgs& a) {
  for (int64_t block = 0; block < a.value_dim / 16; ++block) RunColumns(a, block);
}

void RunConvSilu(const float* const* x, const float* w, int64_t w_stride, int32_t taps, int64_t n,
                 float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    V sum = Mul(Load(w + i), Load(x[0] + i));
    for (int32_t tap = 1; tap < taps; ++tap) {
      sum = Fma(Load(w + tap * w_stride + i), Load(x[tap] + i), sum);
    }
    Store(out + i, Silu(sum));
  }
}

void RunL2Norm(float* x, float eps, float scale, int64_t n) {
  V sum = Zero();
  for (int64_t i = 0; i < n; i += 16) sum = Fma(Load(x + i), Load(x + i), sum);
  RunScale(x, scale / __builtin_sqrtf(HorizontalSum(sum) + eps), n);
}

float RunDot(const float* x, const float* y, int64_t n) {
  V sum = Zero();
  for (int64_t i = 0; i < n; i += 16) sum = Fma(Load(x + i), Load(y + i), sum);
  return HorizontalSum(sum);
}

void RunSiluGate(float* x, const float* g, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) Store(x + i, Mul(Load(x + i), Silu(Load(g + i))));
}

}  // namespace mainarch::cpu::MAINARCH_TARGET
