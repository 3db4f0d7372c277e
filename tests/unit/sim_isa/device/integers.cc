// SPDX-License-Identifier: MIT
#include "prelude.h"

KERNEL() integers(const i64* a, const i64* b, i64* out, u32 n) {
  u32 i = wg() * 256 + tid();
  if (i >= n) return;
  i64 x = a[i], y = b[i];
  i64* o = out + i * 8;
  i32 x32 = (i32)x, y32 = (i32)y | 1;
  o[0] = x / y;
  o[1] = x % y;
  o[2] = (i64)((u64)x / (u64)y);
  o[3] = (i64)((u64)x * (u64)y);
  o[4] = y32 == -1 ? -(i64)x32 : x32 / y32;
  o[5] = (u32)x % (u32)y32;
  o[6] = __builtin_popcountl(x) + __builtin_clzl(x | 1) * 100 + __builtin_ctzl(y) * 10000;
  o[7] = (i64)(((u64)x << (y & 63)) ^ ((u64)x >> (y & 63)) ^ (u64)(x >> (y & 63)));
}
