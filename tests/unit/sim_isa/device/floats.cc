// SPDX-License-Identifier: MIT
#include "prelude.h"

KERNEL() floats(const float* a, const float* b, float* out, double* wide, u32 n) {
  u32 i = wg() * 128 + tid();
  if (i >= n) return;
  float x = a[i], y = b[i];
  float* o = out + i * 12;
  o[0] = x / y;
  o[1] = __builtin_sqrtf(__builtin_fabsf(x));
  o[2] = __builtin_fminf(x, y);
  o[3] = __builtin_fmaxf(x, y);
  o[4] = __builtin_floorf(y);
  o[5] = __builtin_fmaf(x, y, y);
  o[6] = (float)(int)(y * 100);
  o[7] = (float)(_Float16)y;
  o[8] = __builtin_truncf(y);
  o[9] = __builtin_rintf(y);
  o[10] = __builtin_exp2f(y);
  o[11] = __builtin_log2f(__builtin_fabsf(y));
  double dx = x, dy = y;
  double* w = wide + i * 4;
  w[0] = dx / dy;
  w[1] = __builtin_sqrt(__builtin_fabs(dx));
  w[2] = __builtin_fma(dx, dy, dx);
  w[3] = dx - dy;
}
