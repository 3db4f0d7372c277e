// SPDX-License-Identifier: MIT
#include "prelude.h"

KERNEL() grid_barrier(u32* state, u32* data, u32 rounds) {
  u32 groups = 32;
  for (u32 k = 0; k < rounds; ++k) {
    if (tid() == 0) {
      __scoped_atomic_fetch_add(data, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
      __scoped_atomic_fetch_add(state, 1u, __ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
      u32 want = (k + 1) * groups;
      while (__scoped_atomic_load_n(state, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_DEVICE) < want) __builtin_amdgcn_s_sleep(1);
      if (__scoped_atomic_load_n(data, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE) < want)
        __scoped_atomic_fetch_add(data + 1, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
    }
    sync();
  }
}
