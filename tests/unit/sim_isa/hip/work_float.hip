// SPDX-License-Identifier: MIT
//
// Floating point whose result IEEE fixes to the bit: fp64, fp32, fp16, bf16.
#include "hip.h"

WORK(float_arithmetic, 3, 16) {
  const float a = MakeFloat(in[0]), b = MakeFloat(in[1]), c = MakeFloat(in[2]);
  out[0] = Bits(a + b);
  out[1] = Bits(a * b);
  out[2] = Bits(a / b);
  out[3] = Bits(__builtin_fmaf(a, b, c));
  out[4] = Bits(__builtin_sqrtf(__builtin_fabsf(a)));
  out[5] = Bits(__builtin_floorf(a)) | Bits(__builtin_ceilf(a)) << 32;
  out[6] = Bits(__builtin_truncf(a)) | Bits(__builtin_rintf(a)) << 32;
  out[7] = Bits(__builtin_fminf(a, b)) | Bits(__builtin_fmaxf(a, c)) << 32;
  out[8] = Bits(__builtin_copysignf(a, b)) | Bits(-__builtin_fabsf(c)) << 32;
  out[9] = Bits(__builtin_roundf(a * 0.37f));
  out[10] = Bits(a * b + c) | (u64)(a < b) << 32 | (u64)(a >= c) << 33 | (u64)(a != b) << 34;
  out[11] = Bits((double)a * b) ^ Bits((float)((double)a * (double)c));
  out[12] = Bits(__builtin_ldexpf(a, (i32)(in[1] & 63) - 32));
  int e;
  out[13] = Bits(__builtin_frexpf(a, &e)) | (u64)(u32)e << 32;
  out[14] = Bits((a - b) * (c + b) / (1.0f + b * b));
  out[15] = Bits(1.0f / a) ^ Bits(1.0f / __builtin_sqrtf(1 + b * b)) << 32;
}
WORK(float_any_bits, 2, 10) {
  const float a = __builtin_bit_cast(float, (u32)in[0]), b = __builtin_bit_cast(float, (u32)in[1]);
  out[0] = Bits(a + b);
  out[1] = Bits(a * b);
  out[2] = Bits(a - b);
  out[3] = Bits(a / b);
  out[4] = Bits(__builtin_sqrtf(a));
  out[5] = Bits((double)a) ^ Bits((f16)b);
  out[6] = (a < b) | (a > b) << 1 | (a == b) << 2 | (a != a) << 3 | __builtin_isinf(b) << 4 |
           __builtin_isunordered(a, b) << 5 | __builtin_islessgreater(a, b) << 6;
  out[7] = Bits((__bf16)a) | Bits((__bf16)b) << 16;
  out[8] = Bits(__builtin_fmaf(a, b, a));
  out[9] = Bits(__builtin_rintf(a));
}
WORK(double_arithmetic, 3, 14) {
  const double a = MakeDouble(in[0]), b = MakeDouble(in[1]), c = MakeDouble(in[2]);
  out[0] = Bits(a + b);
  out[1] = Bits(a * b);
  out[2] = Bits(a / b);
  out[3] = Bits(__builtin_fma(a, b, c));
  out[4] = Bits(__builtin_sqrt(__builtin_fabs(a)));
  out[5] = Bits(__builtin_floor(a));
  out[6] = Bits(__builtin_ceil(a));
  out[7] = Bits(__builtin_trunc(b));
  out[8] = Bits(__builtin_rint(c));
  out[9] = Bits(__builtin_fmin(a, b)) ^ Bits(__builtin_fmax(b, c));
  out[10] = Bits((float)a) | Bits((float)b) << 32;
  out[11] = Bits(__builtin_ldexp(a, (i32)(in[1] & 127) - 64));
  int e;
  out[12] = Bits(__builtin_frexp(c, &e)) + e;
  out[13] = (a < b) | (a <= c) << 1 | (b > c) << 2 | (a == a) << 3;
}
WORK(double_any_bits, 2, 8) {
  const double a = __builtin_bit_cast(double, in[0]), b = __builtin_bit_cast(double, in[1]);
  out[0] = Bits(a + b);
  out[1] = Bits(a * b);
  out[2] = Bits(a / b);
  out[3] = Bits(__builtin_sqrt(a));
  out[4] = Bits((float)a);
  out[5] = (a < b) | (a > b) << 1 | (a == b) << 2 | __builtin_isnan(a) << 3 | __builtin_isinf(b) << 4;
  out[6] = Bits(__builtin_fma(a, b, b));
  out[7] = Bits(__builtin_rint(a)) ^ Bits(__builtin_floor(b));
}
typedef f16 f16x2 __attribute__((ext_vector_type(2)));
WORK(half_arithmetic, 2, 10) {
  const f16 a = MakeHalf(in[0]), b = MakeHalf(in[1]), c = MakeHalf(in[0] >> 20);
  out[0] = Bits((f16)(a + b));
  out[1] = Bits((f16)(a * b));
  out[2] = Bits((f16)((float)a / (float)b));
  out[3] = Bits((f16)__builtin_fmaf(a, b, 0));
  out[4] = Bits((float)a) | Bits((float)b * (float)c) << 32;
  const f16x2 p = {a, b}, q = {c, a};
  const f16x2 r = p + q, s = p * q;
  out[5] = Bits(r.x) | Bits(r.y) << 16 | Bits(s.x) << 32 | Bits(s.y) << 48;
  out[6] = (a < b) | (a >= c) << 1 | (a == a) << 2;
  out[7] = Bits((f16)(i16)a) | (u64)(u16)(i16)((float)b / 4) << 32;
  out[8] = Bits((f16)-a) | Bits((f16)__builtin_fabsf(b)) << 16;
  out[9] = Bits(__builtin_elementwise_max(a, b)) | Bits(__builtin_elementwise_min(a, c)) << 16;
}
WORK(bfloat_arithmetic, 2, 6) {
  const __bf16 a = (__bf16)MakeFloat(in[0]), b = (__bf16)MakeFloat(in[1]);
  out[0] = Bits(a) | Bits(b) << 16;
  out[1] = Bits((__bf16)((float)a + (float)b)) | Bits((__bf16)((float)a * (float)b)) << 16;
  out[2] = Bits((float)a) | Bits((float)b) << 32;
  float sum = 0;
  for (int k = 0; k < 4; ++k) sum += (float)a * (float)(k + 1);
  out[3] = Bits(sum);
  out[4] = ((float)a < (float)b) | ((float)a == (float)a) << 1;
  out[5] = Bits((__bf16)(float)MakeHalf(in[1]));
}
