// SPDX-License-Identifier: MIT
//
// Ops that only move bytes: streaming read, fill, copy, copy by LDS-DMA.
#ifndef MAINARCH_KERNELS_OPS_MEMORY_H_
#define MAINARCH_KERNELS_OPS_MEMORY_H_

#include "kernels/common/math.h"
#include "prims.h"
#include "spec.h"

namespace mainarch::kernels {

struct StreamRead {
  using Args = StreamReadArgs;
  static constexpr uint32_t kLdsBytes = kWaves * 4;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const Global<const uint32_t> source = At(args.source);
    const uint64_t words = args.bytes / 16;
    const uint64_t step = uint64_t{workers} * kThreads;
    constexpr int kDeep = isa::kSpec.stream_loads_in_flight;
    uint64_t i = uint64_t{worker} * kThreads + ThreadId();
    u32x4 sums = {0, 0, 0, 0};
    for (; i + (kDeep - 1) * step < words; i += kDeep * step) {
      u32x4 loaded[kDeep];
#pragma clang loop unroll(full)
      for (int j = 0; j < kDeep; ++j) loaded[j] = Stream16(source, i + j * step);
#pragma clang loop unroll(full)
      for (int j = 0; j < kDeep; ++j) sums += loaded[j];
    }
    for (; i < words; i += step) sums += Stream16(source, i);
    const uint32_t sum =
        GroupSum<kWaves>(sums[0] + sums[1] + sums[2] + sums[3], arena.Get<uint32_t>());
    if (ThreadId() == 0) At(args.sums)[worker] = sum;
  }
};

struct Fill {
  using Args = FillArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const Global<uint8_t> destination = At(args.destination);
    const u32x4 pattern = {args.pattern[0], args.pattern[1], args.pattern[2], args.pattern[3]};
    const uint64_t words = args.bytes / 16;
    const uint64_t step = uint64_t{workers} * kThreads;
    for (uint64_t i = uint64_t{worker} * kThreads + ThreadId(); i < words; i += step) {
      Store16(destination, i, pattern);
    }
    const uint32_t tail = args.bytes % 16;
    if (worker == 0 && ThreadId() < tail) {
      const uint32_t byte = ThreadId();
      const uint32_t low = byte & 4 ? pattern[1] : pattern[0];
      const uint32_t high = byte & 4 ? pattern[3] : pattern[2];
      const uint32_t word = byte & 8 ? high : low;
      destination[words * 16 + byte] = static_cast<uint8_t>(word >> (byte % 4 * 8));
    }
  }
};

struct Copy {
  using Args = CopyArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const Global<uint8_t> destination = At(args.destination);
    const Global<const uint8_t> source = At(args.source);
    const uint64_t words = args.bytes / 16;
    const uint64_t step = uint64_t{workers} * kThreads;
    for (uint64_t i = uint64_t{worker} * kThreads + ThreadId(); i < words; i += step) {
      Store16(destination, i, Load16(source, i));
    }
    const uint32_t tail = args.bytes % 16;
    if (worker == 0 && ThreadId() < tail) {
      destination[words * 16 + ThreadId()] = source[words * 16 + ThreadId()];
    }
  }
};

// Each wave moves 64 elements of isa::kLdsDmaBytes a step through its own part of LDS, so that no
// barrier is needed, only the wait for the DMA.
struct LdsDmaCopy {
  using Args = LdsDmaCopyArgs;
  static constexpr uint32_t kLdsBytes = kThreads * isa::kLdsDmaBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    constexpr uint32_t kWaveBytes = kWave * isa::kLdsDmaBytes;
    using Word = isa::LdsDmaWord;
    const Lds<Word> mine = arena.Get<Word>(WaveId() * kWaveBytes);
    const Global<const Word> source = reinterpret_cast<Global<const Word>>(At(args.source));
    const Global<Word> destination = reinterpret_cast<Global<Word>>(At(args.destination));
    const uint64_t words = args.bytes / isa::kLdsDmaBytes;
    const uint64_t step = uint64_t{workers} * kThreads;
    // kThreads * kLdsDmaBytes divides 4096, which divides bytes: whole waves only.
    for (uint64_t i = uint64_t{worker} * kThreads + WaveId() * kWave; i < words; i += step) {
      isa::LoadToLds(source + i + LaneId(), mine);
      WaitVectorMemory();
      // The store needs the LDS read, so the next DMA cannot overtake it.
      destination[i + LaneId()] = mine[LaneId()];
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_MEMORY_H_
