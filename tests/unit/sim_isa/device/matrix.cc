// SPDX-License-Identifier: MIT
#include "prelude.h"

typedef short s4 __attribute__((ext_vector_type(4)));
typedef _Float16 h4 __attribute__((ext_vector_type(4)));
typedef __bf16 b8 __attribute__((ext_vector_type(8)));
typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f16v __attribute__((ext_vector_type(16)));
typedef double d4 __attribute__((ext_vector_type(4)));
typedef int i4 __attribute__((ext_vector_type(4)));
static inline float wide(u16 x) { return __builtin_bit_cast(float, (u32)x << 16); }
KERNEL() matrix(const u16* a, const u16* b, float* out, double* wides, i32* ints) {
  u32 l = tid(), r = l % 16, g = l / 16;
  s4 x, y; h4 hx, hy;
  for (int k = 0; k < 4; ++k) {
    x[k] = a[r * 64 + g * 4 + k]; y[k] = b[r * 64 + g * 4 + k];
    hx[k] = (_Float16)wide(x[k]); hy[k] = (_Float16)wide(y[k]);
  }
  f4 c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, (f4)0, 0, 0, 0);
  f4 h = __builtin_amdgcn_mfma_f32_16x16x16f16(hx, hy, (f4)0, 0, 0, 0);
  f4 f = __builtin_amdgcn_mfma_f32_16x16x4f32(wide(a[r * 64 + g]), wide(b[r * 64 + g]), (f4)0, 0, 0, 0);
  d4 d = __builtin_amdgcn_mfma_f64_16x16x4f64(wide(a[r * 64 + g]), wide(b[r * 64 + g]), (d4)0, 0, 0, 0);
  long pa = 0, pb = 0;
  for (int k = 0; k < 8; ++k) {
    pa |= (long)(unsigned char)(i8)(wide(a[r * 64 + g * 8 + k]) * 4) << (8 * k);
    pb |= (long)(unsigned char)(i8)(wide(b[r * 64 + g * 8 + k]) * 4) << (8 * k);
  }
  i4 n = __builtin_amdgcn_mfma_i32_16x16x32_i8(pa, pb, (i4)0, 0, 0, 0);
  for (int k = 0; k < 4; ++k) {
    out[(g * 4 + k) * 16 + r] = c[k];
    out[1024 + (g * 4 + k) * 16 + r] = h[k];
    out[2048 + (g * 4 + k) * 16 + r] = f[k];
    wides[(4 * k + g) * 16 + r] = d[k];
    ints[(g * 4 + k) * 16 + r] = n[k];
  }
  u32 q = l % 32, p = l / 32;
  for (int k = 0; k < 4; ++k) { x[k] = a[q % 16 * 64 + p * 4 + k]; y[k] = b[q % 16 * 64 + p * 4 + k]; }
  f16v w = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x, y, (f16v)0, 0, 0, 0);
  for (int k = 0; k < 16; ++k) out[3072 + (8 * (k / 4) + 4 * p + k % 4) * 32 + q] = w[k];
#ifdef __gfx950__
  b8 u, v;
  for (int k = 0; k < 8; ++k) {
    u[k] = __builtin_bit_cast(__bf16, a[r * 64 + g * 8 + k]);
    v[k] = __builtin_bit_cast(__bf16, b[r * 64 + g * 8 + k]);
  }
  f4 e = __builtin_amdgcn_mfma_f32_16x16x32_bf16(u, v, (f4)0, 0, 0, 0);
  for (int k = 0; k < 4; ++k) out[4096 + (g * 4 + k) * 16 + r] = e[k];
#endif
}
