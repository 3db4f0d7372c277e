// SPDX-License-Identifier: MIT
//
// Order: barriers of a workgroup that really order LDS, fences with a scope, atomics with a scope,
// flags between workgroups and between GPUs. Everything that waits or publishes goes through here;
// no kernel calls s_barrier, a fence or a scoped atomic by itself (tools/lint.py).
#ifndef MAINARCH_KERNELS_COMMON_SYNC_H_
#define MAINARCH_KERNELS_COMMON_SYNC_H_

#include "kernels/common/types.h"

namespace mainarch::kernels {

// s_waitcnt immediates of GFX9 for vmcnt(0) and for lgkmcnt(0), with the other counters left alone.
inline constexpr int kWaitVmcnt0 = 0x0F70, kWaitLgkmcnt0 = 0xC07F;
DEVICE void WaitVectorMemory() { __builtin_amdgcn_s_waitcnt(kWaitVmcnt0); }
// Until the last kLeft of what this wave has asked for are all that may be on its way.
template <uint32_t kLeft>
DEVICE void WaitVectorMemoryBut() {
  static_assert(kLeft < 64);
  __builtin_amdgcn_s_waitcnt(kWaitVmcnt0 | (kLeft & 15) | (kLeft >> 4) << 14);
}

// The compiler moves nothing across: what was asked for before stays asked for before.
DEVICE void KeepOrder() { __builtin_amdgcn_sched_barrier(0); }

// The scalar caches forget what they hold: no fence makes them. All waves of the workgroup see it
// behind a barrier.
DEVICE void ForgetScalars() {
  __builtin_amdgcn_s_dcache_inv();
  __builtin_amdgcn_s_waitcnt(kWaitLgkmcnt0);  // what is loaded next may overtake it
}

// LDS written before is seen by the whole workgroup after. A raw s_barrier does not wait for the
// LDS writes; the fences make the compiler do so, and "local" keeps global loads in flight across
// it.
DEVICE void BarrierLds() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

// LDS and global memory, for the workgroup.
DEVICE void Barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

enum class Scope { kDevice, kSystem };

// Makes this wave's stores visible in the scope. The explicit wait stays: the compiler drops the
// one between buffer_wbl2 and the flag store when this wave itself has no store in flight.
template <Scope kScope>
DEVICE void FenceRelease() {
  WaitVectorMemory();
  if constexpr (kScope == Scope::kDevice) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  } else {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
  }
  WaitVectorMemory();
}
template <Scope kScope>
DEVICE void FenceAcquire() {
  if constexpr (kScope == Scope::kDevice) {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  } else {
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
  }
}

template <Scope kScope>
inline constexpr int kMemoryScope =
    kScope == Scope::kDevice ? __MEMORY_SCOPE_DEVICE : __MEMORY_SCOPE_SYSTEM;

// Relaxed, in the scope; order comes from the fences above.
template <Scope kScope, class T>
DEVICE T LoadFlag(Global<const T> flag) {
  return __scoped_atomic_load_n(flag, __ATOMIC_RELAXED, kMemoryScope<kScope>);
}
template <Scope kScope, class T>
DEVICE void StoreFlag(Global<T> flag, T value) {
  __scoped_atomic_store_n(flag, value, __ATOMIC_RELAXED, kMemoryScope<kScope>);
}
template <Scope kScope, class T>
DEVICE T AddFlag(Global<T> flag, T value) {
  return __scoped_atomic_fetch_add(flag, value, __ATOMIC_RELAXED, kMemoryScope<kScope>);
}

// Sets bits of a word that other waves of the workgroup set bits of too; what it was before.
DEVICE uint32_t OrLds(Lds<uint32_t> word, uint32_t bits) {
  return __scoped_atomic_fetch_or(word, bits, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}

// Adds to a counter that other waves of the workgroup add to too; what it was before.
template <class T>
DEVICE T AddLds(Lds<T> counter, T value) {
  return __scoped_atomic_fetch_add(counter, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}

// Epochs wrap: `now` has reached `goal` when it is at most 2^31 - 1 ahead of it.
DEVICE bool Reached(uint32_t now, uint32_t goal) { return static_cast<int32_t>(now - goal) >= 0; }

// When a waiter goes on: a counter that only rises, or a number that must be met exactly (whoever
// writes it does not go on before the waiter has seen it).
enum class Until { kReached, kEqual };

// Between two looks at a flag: the wave leaves its SIMD's issue slots to others for 64 clocks.
DEVICE void Pause() { __builtin_amdgcn_s_sleep(1); }

// Spins until *flag has reached (or equals) goal. One lane calls it. The acquire fence is the
// caller's, once, after the spin: inside the loop it would invalidate caches each turn.
template <Scope kScope, Until kUntil = Until::kReached>
DEVICE void WaitFlag(Global<const uint32_t> flag, uint32_t goal) {
  while (true) {
    const uint32_t now = LoadFlag<kScope>(flag);
    if (kUntil == Until::kEqual ? now == goal : Reached(now, goal)) return;
    Pause();
  }
}

// All waves of the workgroup have their stores out, then one lane publishes `value` with them.
// Every wave waits for its own stores before the barrier: the flag must not pass another wave's
// data.
template <Scope kScope>
DEVICE void Publish(Global<uint32_t> flag, uint32_t value, bool leader) {
  WaitVectorMemory();
  Barrier();
  if (leader) {
    FenceRelease<kScope>();
    StoreFlag<kScope>(flag, value);
  }
}

// The leader waits for the flag, then the whole workgroup sees what was published with it. The
// other waves acquire too: their own L1 lines may be stale.
template <Scope kScope, Until kUntil = Until::kReached>
DEVICE void Await(Global<const uint32_t> flag, uint32_t goal, bool leader) {
  if (leader) WaitFlag<kScope, kUntil>(flag, goal);
  Barrier();
  FenceAcquire<kScope>();
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_SYNC_H_
