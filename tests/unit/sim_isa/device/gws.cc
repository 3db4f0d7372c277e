// SPDX-License-Identifier: MIT
#include "prelude.h"

// Resource 3 lets one wave at a time through: a sum that is read and written apart.
KERNEL() gws_semaphore(volatile u32* data, u32 init) {
  if (init) {
    __builtin_amdgcn_ds_gws_init(init, 3);
  } else if (tid() == 0) {
    __builtin_amdgcn_ds_gws_sema_p(3);
    u32 was = data[0];
    __asm__ volatile("s_nop 7");
    data[0] = was + 1;
    __builtin_amdgcn_s_waitcnt(0);
    __builtin_amdgcn_ds_gws_sema_v(3);
  }
}

// Resource 5 with `groups` - 1: a barrier of 32 workgroups, round after round.
KERNEL() gws_barrier(u32* data, u32 rounds) {
  for (u32 k = 0; k < rounds; ++k) {
    if (tid() == 0) {
      __scoped_atomic_fetch_add(data, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
      __builtin_amdgcn_s_waitcnt(0);
      __builtin_amdgcn_ds_gws_barrier(31, 5);
      if (__scoped_atomic_load_n(data, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE) < (k + 1) * 32)
        __scoped_atomic_fetch_add(data + 1, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
      __builtin_amdgcn_ds_gws_barrier(31, 5);
    }
    sync();
  }
}
KERNEL() gws_init_barrier(u32*, u32) { __builtin_amdgcn_ds_gws_init(31, 5); }

// Waves wait at resource 7 until the last workgroup lets all of those that wait go, or so many.
KERNEL() gws_release(volatile u32* data, u32 all) {
  if (tid() != 0) return;
  if (wg() == 0) {
    while (__scoped_atomic_load_n((u32*)data + 2, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE) < 15) {}
    for (u32 i = 0; i < 40000; ++i) __asm__ volatile("s_nop 0");  // until all stand there
    data[1] = data[0];
    if (all)
      __builtin_amdgcn_ds_gws_sema_release_all(7);
    else
      __builtin_amdgcn_ds_gws_sema_br(15, 7);
  } else {
    __scoped_atomic_fetch_add((u32*)data + 2, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
    __builtin_amdgcn_ds_gws_sema_p(7);
    __scoped_atomic_fetch_add((u32*)data, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  }
}
