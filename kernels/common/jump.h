// SPDX-License-Identifier: MIT
//
// From one kernel's code into another's, and back. A kernel begins with its arguments' address in
// s[0:1], its workgroup in s2 and its thread in v0, all other registers being nobody's: so whoever
// sets these may jump to its first instruction. All kernels have this beginning and one end
// (tools/check.py finds it), which in the copy that is jumped into is a jump to what MAINARCH_RETURN_TO makes.
#ifndef MAINARCH_KERNELS_COMMON_JUMP_H_
#define MAINARCH_KERNELS_COMMON_JUMP_H_

#include "kernels/common/types.h"

namespace mainarch::kernels {

// Never comes back. Nothing that was asked for may be outstanding. `kept`: LDS that is read again by
// who is come back to, which the compiler must not think dead.
template <class T>
[[noreturn]] DEVICE void JumpInto(uint64_t code, uint64_t kernarg, uint32_t worker, uint32_t thread,
                                  Lds<T> kept) {
  __asm__ volatile("s_setpc_b64 %0"
                   :
                   : "{s[4:5]}"(code), "{s[0:1]}"(kernarg), "{s2}"(worker), "{v0}"(thread), "v"(kept)
                   : "memory");
  __builtin_unreachable();
}

// What the dispatch of a kernel gives its waves is what it needs itself; what it jumps into needs more.
template <uint32_t kVgprs, uint32_t kAgprs>
DEVICE void ReserveRegisters() {
  static_assert(kVgprs == 256 && (kAgprs == 0 || kAgprs == 88));
  __asm__ volatile("" : : : "v255", "s101");
  if constexpr (kAgprs == 88) __asm__ volatile("" : : : "a87");
}

// Of a kernel that is come back to: what WorkgroupId() says, with kCameBack where an op has ended.
inline constexpr uint32_t kCameBack = 1u << 31;

// What the way back reads in LDS.
struct WayBack {
  uint32_t taken, reserved;  // waves that took it
  uint64_t kernarg;          // of the kernel that is come back to
  uint32_t worker;
};
static_assert(__builtin_offsetof(WayBack, kernarg) == 8 && __builtin_offsetof(WayBack, worker) == 16);

// MAINARCH_RETURN_TO(name, kernel, at): the code `name`, which begins `kernel` again, whose WayBack lies at byte `at`
// of LDS. Nobody launches it. Every wave takes the next number of its workgroup, so which wave it is may change: nothing
// of it is left to matter.
#define MAINARCH_RETURN_TO(name, kernel, at)                                                      \
  MAINARCH_BUDGET(name, "vgpr=8 sgpr=16 agpr=0 lds=0");                                           \
  extern "C" [[clang::amdgpu_kernel, clang::amdgpu_flat_work_group_size(256, 256), gnu::naked,    \
               gnu::visibility("protected")]] void                                                \
  name() {                                                                                        \
    __asm__ volatile(                                                                             \
        "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)\n"                                               \
        "s_mov_b64 exec, 1\n"                                                                     \
        "v_mov_b32 v0, " #at "\n"                                                                 \
        "v_mov_b32 v1, 1\n"                                                                       \
        "ds_add_rtn_u32 v1, v0, v1\n"                                                             \
        "ds_read_b64 v[2:3], v0 offset:8\n"                                                       \
        "ds_read_b32 v4, v0 offset:16\n"                                                          \
        "s_waitcnt lgkmcnt(0)\n"                                                                  \
        "v_readfirstlane_b32 s3, v1\n"                                                            \
        "v_readfirstlane_b32 s0, v2\n"                                                            \
        "v_readfirstlane_b32 s1, v3\n"                                                            \
        "v_readfirstlane_b32 s2, v4\n"                                                            \
        "s_mov_b64 exec, -1\n"                                                                    \
        "s_and_b32 s3, s3, 3\n"                                                                   \
        "s_lshl_b32 s3, s3, 6\n"                                                                  \
        "v_mbcnt_lo_u32_b32 v0, -1, 0\n"                                                          \
        "v_mbcnt_hi_u32_b32 v0, -1, v0\n"                                                         \
        "v_or_b32 v0, s3, v0\n"                                                                   \
        "s_bitset1_b32 s2, 31\n"                                                                  \
        "s_getpc_b64 s[4:5]\n"                                                                    \
        "s_add_u32 s4, s4, " #kernel "@rel32@lo+4\n"                                              \
        "s_addc_u32 s5, s5, " #kernel "@rel32@hi+12\n"                                            \
        "s_setpc_b64 s[4:5]\n");                                                                  \
  }

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_JUMP_H_
