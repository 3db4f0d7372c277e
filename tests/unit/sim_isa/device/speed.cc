// SPDX-License-Identifier: MIT
#include "prelude.h"

typedef u32 u4 __attribute__((ext_vector_type(4)));
typedef float f4 __attribute__((ext_vector_type(4)));
typedef short s4 __attribute__((ext_vector_type(4)));
typedef int i8v __attribute__((ext_vector_type(8)));
static inline float lo(u32 x) { return __builtin_bit_cast(float, x << 16); }
static inline float hi(u32 x) { return __builtin_bit_cast(float, x & 0xffff0000); }

// One wave a row: y[row] = sum of w[row][k] x[k], bf16 weights.
KERNEL() gemv(const u4* w, const f4* x, float* y, u32 k8) {
  u32 row = wg() * 4 + tid() / 64, lane = tid() % 64;
  f4 a = 0, b = 0;
  for (u32 i = lane; i < k8; i += 64) {
    u4 v = w[(u64)row * k8 + i];
    f4 p = x[2 * i], q = x[2 * i + 1];
    a += (f4){lo(v.x), hi(v.x), lo(v.y), hi(v.y)} * p;
    b += (f4){lo(v.z), hi(v.z), lo(v.w), hi(v.w)} * q;
  }
  float s = a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
  for (int d = 32; d > 0; d >>= 1)
    s += __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute((lane ^ d) * 4, __builtin_bit_cast(int, s)));
  if (lane == 0) y[row] = s;
}

KERNEL() alu(float* y, u32 n) {
  float a = tid(), b = a * 0.5f, c = 1.0f, d = 2.0f;
  for (u32 i = 0; i < n; ++i) {
    a = __builtin_fmaf(a, 0.999f, b); b = __builtin_fmaf(b, 0.999f, c);
    c = __builtin_fmaf(c, 0.999f, d); d = __builtin_fmaf(d, 0.999f, a);
    a = a + b; c = c * d; b = b - c; d = d + a;
  }
  y[tid()] = a + b + c + d;
}

KERNEL() mfma_bf16(float* y, u32 n) {
  f4 a = 0, b = 0;
  s4 x = (s4)(short)(0x3f80 + tid());
  for (u32 i = 0; i < n; ++i) {
    a = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, x, a, 0, 0, 0);
    b = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, x, b, 0, 0, 0);
  }
  y[tid()] = a.x + b.x;
}

#ifdef __gfx950__
typedef __bf16 b8 __attribute__((ext_vector_type(8)));
KERNEL() mfma_bf16_k32(float* y, u32 n) {
  f4 a = 0, b = 0;
  b8 x = (b8)(__bf16)1.0f;
  for (u32 i = 0; i < n; ++i) {
    a = __builtin_amdgcn_mfma_f32_16x16x32_bf16(x, x, a, 0, 0, 0);
    b = __builtin_amdgcn_mfma_f32_16x16x32_bf16(x, x, b, 0, 0, 0);
  }
  y[tid()] = a.x + b.x;
}
template <int F> static inline void scaled(float* y, u32 n) {
  f4 a = 0, b = 0;
  i8v x = (i8v)(int)(0x22222222 + tid());
  for (u32 i = 0; i < n; ++i) {
    a = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(x, x, a, F, F, 0, 127, 0, 127);
    b = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(x, x, b, F, F, 0, 127, 0, 127);
  }
  y[tid()] = a.x + b.x;
}
KERNEL() scaled_fp8(float* y, u32 n) { scaled<0>(y, n); }
KERNEL() scaled_fp4(float* y, u32 n) { scaled<4>(y, n); }
#endif
