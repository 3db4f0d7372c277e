// SPDX-License-Identifier: MIT
//
// Device side of the interpreter's kernel tests: freestanding C++ for amdgcn.
#ifndef MAINARCH_TESTS_UNIT_SIM_ISA_DEVICE_PRELUDE_H_
#define MAINARCH_TESTS_UNIT_SIM_ISA_DEVICE_PRELUDE_H_

typedef unsigned u32; typedef unsigned long u64; typedef int i32; typedef long i64;
typedef unsigned short u16; typedef signed char i8;
#define KERNEL(n) extern "C" [[clang::amdgpu_kernel, clang::amdgpu_flat_work_group_size(1, 256), gnu::visibility("protected")]] void
static inline u32 tid() { return __builtin_amdgcn_workitem_id_x(); }
static inline u32 wg() { return __builtin_amdgcn_workgroup_id_x(); }
static inline void sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

#endif  // MAINARCH_TESTS_UNIT_SIM_ISA_DEVICE_PRELUDE_H_
