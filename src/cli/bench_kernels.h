// SPDX-License-Identifier: MIT
//
// The innermost loops of the probes, for the widest instructions that the CPU has.
#ifndef MAINARCH_CLI_BENCH_KERNELS_H_
#define MAINARCH_CLI_BENCH_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace mainarch::cli {

// Reads `size` bytes, a multiple of 1024; what it returns depends on all of them.
using ReadFunction = uint64_t (*)(const uint8_t* bytes, size_t size);
// `streams` 1, 2 or 4: how many places are read in turn.
ReadFunction ReaderOf(int streams);

// Runs so many iterations and returns how many flops these were.
using FlopsFunction = uint64_t (*)(uint64_t iterations);
FlopsFunction Fp32Function();  // fused multiply-add where there is one
FlopsFunction Bf16Function();  // null when the CPU has no bf16 dot product

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // yield ends at once on most of them
#endif
}

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_BENCH_KERNELS_H_
