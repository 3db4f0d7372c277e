// SPDX-License-Identifier: MIT
//
// CPU_FEATURE_ACTIVE(AVX2), CPU_FEATURE_ACTIVE(AVX512F), ...: what this CPU has and the kernel has
// switched on, as the C library found it when the process started; false where it is not x86.
//
// Not __builtin_cpu_supports: it brings a constructor into the library that asks the CPU again, and
// a virtual machine hands every such question to its hypervisor: 50 us of each dlopen.
#ifndef MAINARCH_BASE_CPU_FEATURES_H_
#define MAINARCH_BASE_CPU_FEATURES_H_

#if defined(__x86_64__)
#ifdef __clang__
// A C header that knows no C++: gcc takes _Bool there, clang does not.
#define _Bool bool
#endif
#include <sys/platform/x86.h>
#ifdef __clang__
#undef _Bool
#endif
#else
#define CPU_FEATURE_ACTIVE(name) false
#endif

#endif  // MAINARCH_BASE_CPU_FEATURES_H_
