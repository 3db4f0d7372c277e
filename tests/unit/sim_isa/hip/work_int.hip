// SPDX-License-Identifier: MIT
//
// Integers of every width: arithmetic, division, shifts, bits, saturation, conversions.
#include "hip.h"

WORK(int64_arithmetic, 3, 12) {
  const i64 a = in[0], b = in[1] | 1, c = in[2];
  const u64 ua = in[0], ub = in[1] | 1;
  out[0] = a + b * c;
  out[1] = b == -1 ? -ua : a / b;
  out[2] = b == -1 ? 0 : a % b;
  out[3] = ua / ub;
  out[4] = ua % ub;
  out[5] = (u64)(((unsigned __int128)ua * ub) >> 64);
  out[6] = (u64)(((__int128)a * c) >> 64);
  out[7] = (u64)((((unsigned __int128)ua << 64 | in[2]) + ((unsigned __int128)ub << 64 | ua)) >> 64);
  out[8] = a < c ? ua - ub : ub - ua;
  out[9] = (u64)(a >> (c & 63)) ^ (ua << (b & 63)) ^ (ub >> (a & 63));
  out[10] = a == c || (a > b) != (ua > ub);
  out[11] = (u64)(((unsigned __int128)ua * in[2] + ub) >> (c & 63));
}
WORK(int32_arithmetic, 2, 14) {
  const i32 a = in[0], b = (i32)in[1] | 1, c = in[1] >> 32;
  const u32 ua = a, ub = b, uc = c;
  out[0] = (u32)(ua * ub + uc);
  out[1] = b == -1 ? 0 - ua : (u32)(a / b);
  out[2] = b == -1 ? 0 : (u32)(a % b);
  out[3] = ua / ub;
  out[4] = ua % ub;
  out[5] = (u64)ua * ub;
  out[6] = (i64)a * c;
  out[7] = (u32)(((i64)a * c) >> 32) ^ (u32)(((u64)ua * uc) >> 32);
  out[8] = __builtin_popcount(ua) | __builtin_clz(ua | 1) << 8 | __builtin_ctz(ua | 0x80000000) << 16;
  out[9] = __builtin_bitreverse32(ua) ^ __builtin_bswap32(uc);
  out[10] = (ua << (uc & 31) | ua >> (-uc & 31));
  out[11] = (u32)__builtin_elementwise_add_sat(a, c) ^ (u32)__builtin_elementwise_sub_sat(ua, uc);
  out[12] = (u32)(a > c ? a : c) + (ua < uc ? ua : uc) + (u32)__builtin_abs(a | 1);
  out[13] = (ua >> (uc & 15) & ((1u << (ub & 15)) - 1)) | (u64)(u32)((a << 7) >> 11) << 32;
}
WORK(int16_and_int8, 2, 12) {
  const i16 a = in[0], b = in[0] >> 16, c = in[0] >> 32;
  const u16 ua = a, ub = b, uc = c;
  const i8 p = in[1], q = in[1] >> 8;
  const u8 up = p, uq = q;
  out[0] = (u16)(a * b + c);
  out[1] = (u16)(ua / (u16)(ub | 1)) | (u32)(u16)(ua % (u16)(ub | 1)) << 16;
  out[2] = (u16)(a / (i16)(b | 1)) ^ (u32)(u16)(a % (i16)(b | 1)) << 16;
  out[3] = (u16)(a >> (c & 15)) | (u32)(u16)(ua >> (uc & 15)) << 16;
  out[4] = (u16)(ua << (uc & 15));
  out[5] = (u16)(a < b ? a : b) | (u32)(u16)(ua > ub ? ua : ub) << 16;
  out[6] = (u8)(p * q) | (u32)(u8)(up / (u8)(uq | 1)) << 8 | (u32)(u8)(p % (i8)(q | 1)) << 16;
  out[7] = (i64)(p + q) * (i64)(a - b);
  out[8] = (u16)__builtin_elementwise_add_sat(a, b) | (u32)(u16)__builtin_elementwise_sub_sat(ua, ub) << 16;
  out[9] = (u8)__builtin_elementwise_add_sat(p, q) | (u32)(u8)__builtin_elementwise_sub_sat(up, uq) << 8;
  out[10] = (i32)a * (i32)b + (i32)p * (i32)q;
  out[11] = (p < q) | (up < uq) << 1 | (a <= b) << 2 | (ua >= ub) << 3 | (a == c) << 4;
}
typedef i16 i16x2 __attribute__((ext_vector_type(2)));
typedef u16 u16x4 __attribute__((ext_vector_type(4)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef i8 i8x4 __attribute__((ext_vector_type(4)));
WORK(packed_vectors, 2, 6) {
  const i16x2 a = __builtin_bit_cast(i16x2, (u32)in[0]), b = __builtin_bit_cast(i16x2, (u32)(in[0] >> 32));
  const u16x4 p = __builtin_bit_cast(u16x4, in[0]), q = __builtin_bit_cast(u16x4, in[1]);
  out[0] = __builtin_bit_cast(u32, a * b + a);
  out[1] = __builtin_bit_cast(u32, __builtin_elementwise_max(a, b)) |
           (u64)__builtin_bit_cast(u32, __builtin_elementwise_add_sat(a, b)) << 32;
  out[2] = __builtin_bit_cast(u64, p + q * p);
  out[3] = __builtin_bit_cast(u64, (p >> (u16x4)(q & 15)) ^ (p << (u16x4)(q & 7)));
  u32x4 v = {(u32)in[0], (u32)in[1], (u32)(in[0] >> 32), (u32)(in[1] >> 32)};
  v = v * v.wzyx + v.yxwz;
  out[4] = v.x ^ v.y | (u64)(v.z ^ v.w) << 32;
  const i8x4 s = __builtin_bit_cast(i8x4, (u32)in[0]), t = __builtin_bit_cast(i8x4, (u32)in[1]);
  i32 dot = 0;
  for (int k = 0; k < 4; ++k) dot += s[k] * t[k];
  out[5] = dot;
}
WORK(int_float_conversions, 2, 12) {
  const i64 a = in[0];
  const u64 ua = in[0];
  const double d = MakeDouble(in[1]);
  const float f = MakeFloat(in[1]);
  out[0] = Bits((float)a);
  out[1] = Bits((float)ua);
  out[2] = Bits((double)a);
  out[3] = Bits((double)ua);
  out[4] = Bits((float)(i32)a) | Bits((float)(u32)a) << 32;
  out[5] = Bits((double)(i32)a) ^ Bits((double)(u32)a);
  const double bounded = d > 1e18 ? 1e18 : d < -1e18 ? -1e18 : d;
  out[6] = (i64)bounded;
  out[7] = (u64)(bounded < 0 ? -bounded : bounded);
  const float small = f > 2e9f ? 2e9f : f < -2e9f ? -2e9f : f;
  out[8] = (i32)small;
  out[9] = (u32)(small < 0 ? -small : small);
  out[10] = (i64)(small * 1e9f);
  out[11] = Bits((f16)(i16)a) | Bits((f16)(float)(u8)a) << 16 | (u64)(u16)(i16)(small / 70000) << 32;
}
