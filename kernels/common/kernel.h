// SPDX-License-Identifier: MIT
//
// The thin wrapper round an op: KERNEL(name, Op, "budget") makes the entry point `name`, whose
// kernarg is kernels/args.h's Kernarg<Op::Args>, and writes the declared budget into a section of
// the object that tools/check.py compares with what the compiler used.
//
// A budget is "vgpr=N sgpr=N agpr=N lds=N"; agpr and lds default to 0. "gfx942.vgpr=N" overrides it
// for one ISA. vgpr is the sum of both register files, as occupancy sees it. An op may say Op::kLeastWaves: so many waves a
// SIMD are to have registers.
#ifndef MAINARCH_KERNELS_COMMON_KERNEL_H_
#define MAINARCH_KERNELS_COMMON_KERNEL_H_

#include "kernels/common/memory.h"
#include "kernels/common/types.h"
#include "kernels/common/wave.h"

#define MAINARCH_BUDGET(name, budget)                  \
  __asm__(                                             \
      ".pushsection .mainarch.budget,\"\",@progbits\n" \
      ".ascii \"" #name " threads=256 " budget         \
      "\\n\"\n"                                        \
      ".popsection\n")

#define KERNEL(name, Op, budget)                                                              \
  MAINARCH_BUDGET(name, budget);                                                              \
  extern "C" [[clang::amdgpu_kernel, clang::amdgpu_flat_work_group_size(256, 256),            \
               clang::amdgpu_waves_per_eu(::mainarch::kernels::LeastWaves<Op>()), gnu::visibility("protected")]] void             \
  name(::mainarch::kernels::Kernarg<Op::Args> kernarg) {                                      \
    [[clang::loader_uninitialized]] static __attribute__((                                    \
        address_space(3), aligned(16))) uint8_t lds[Op::kLdsBytes == 0 ? 16 : Op::kLdsBytes]; \
    Op::Run(kernarg.args, ::mainarch::kernels::WorkgroupId(), kernarg.workers,                \
            ::mainarch::kernels::Arena{lds});                                                 \
  }

namespace mainarch::kernels {

template <class Op>
constexpr uint32_t LeastWaves() {
  if constexpr (requires { Op::kLeastWaves; }) return Op::kLeastWaves;
  return 1;
}

DEVICE uint64_t KernargAddress() {
  return reinterpret_cast<uint64_t>(__builtin_amdgcn_kernarg_segment_ptr());
}

// The running kernel's arguments, fetched where this is called. The compiler loads all that a kernel
// uses at its start and keeps it in scalar registers; a kernel of two halves with many arguments has
// not enough of them.
template <class Args>
DEVICE Args ReadArgumentsAgain() {
  uint64_t at = KernargAddress();
  __asm__ volatile("" : "+s"(at));
  return reinterpret_cast<Constant<Kernarg<Args>>>(at)->args;
}

// All of them into the scalar cache, for a kernel that reads them piece by piece, each piece of which would be waited for.
template <class Args>
DEVICE void FetchArguments() {
  constexpr uint32_t kLineWords = 16, kLines = (sizeof(Args) + 63) / 64;
  const auto at = reinterpret_cast<Constant<uint32_t>>(KernargAddress());
  uint32_t words[kLines];
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kLines; ++i) words[i] = at[i * kLineWords];
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kLines; ++i) words[i] = MadeHere(words[i]);
}

// The same where they lie, for arguments with arrays that are indexed: a copy of those would lie in scratch.
template <class Args>
DEVICE const Args& ArgumentsAgain() {
  uint64_t at = KernargAddress();
  __asm__ volatile("" : "+s"(at));
  return *(const Args*)&reinterpret_cast<Constant<Kernarg<Args>>>(at)->args;
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_KERNEL_H_
