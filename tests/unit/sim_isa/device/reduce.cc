// SPDX-License-Identifier: MIT
#include "prelude.h"

[[clang::loader_uninitialized]] static __attribute__((address_space(3))) float part[256];
[[clang::loader_uninitialized]] static __attribute__((address_space(3))) u32 bins[16];
[[clang::loader_uninitialized]] static __attribute__((address_space(3))) u32 turned[256];
template <int c> static inline float dpp(float x) {
  return __builtin_bit_cast(float, __builtin_amdgcn_update_dpp(0, __builtin_bit_cast(int, x), c, 15, 15, true));
}
KERNEL() reduce(const float* in, float* out, u32* ints, u32 n) {
  u32 t = tid(), lane = t % 64;
  float sum = 0, largest = -1e30f;
  for (u32 i = t; i < n; i += 256) {
    sum += in[i];
    largest = __builtin_fmaxf(largest, in[i]);
  }
  sum += dpp<0x111>(sum); sum += dpp<0x112>(sum); sum += dpp<0x114>(sum); sum += dpp<0x118>(sum);
  float row = __builtin_bit_cast(float, __builtin_amdgcn_readlane(__builtin_bit_cast(int, sum), 15)) +
              __builtin_bit_cast(float, __builtin_amdgcn_readlane(__builtin_bit_cast(int, sum), 31)) +
              __builtin_bit_cast(float, __builtin_amdgcn_readlane(__builtin_bit_cast(int, sum), 47)) +
              __builtin_bit_cast(float, __builtin_amdgcn_readlane(__builtin_bit_cast(int, sum), 63));
  if (lane == 0) part[t / 64] = row;
  if (t < 16) bins[t] = 0;
  sync();
  if (t == 0) out[0] = part[0] + part[1] + part[2] + part[3];
  sync();
  part[t] = largest;
  turned[255 - t] = t;
  __scoped_atomic_fetch_add(&bins[t & 15], 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  sync();
  for (u32 s = 128; s > 0; s >>= 1) {
    if (t < s) part[t] = __builtin_fmaxf(part[t], part[t + s]);
    sync();
  }
  if (t == 0) out[1] = part[0];
  ints[t * 4] = __builtin_amdgcn_ds_bpermute((lane ^ 5) * 4, t);
  ints[t * 4 + 1] = __builtin_amdgcn_ds_permute((63 - lane) * 4, t);
  u64 even = __builtin_amdgcn_ballot_w64((lane & 1) == 0);
  ints[t * 4 + 2] = __builtin_amdgcn_mbcnt_hi((u32)(even >> 32), __builtin_amdgcn_mbcnt_lo((u32)even, 0));
  ints[t * 4 + 3] = turned[t];
  if (t < 16) ints[1024 + t] = bins[t];
}
