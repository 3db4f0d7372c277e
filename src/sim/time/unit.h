// SPDX-License-Identifier: MIT
//
// The state of a compute unit and of the waves on it. Plain data: issue.cc moves it.
#ifndef MAINARCH_SIM_TIME_UNIT_H_
#define MAINARCH_SIM_TIME_UNIT_H_

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/isa/program.h"
#include "sim/isa/wave.h"
#include "sim/time/memory.h"
#include "sim/time/op_time.h"

namespace mainarch::sim::timing {

inline constexpr int kSimds = 4;
inline constexpr int kWaves = 32;  // of a compute unit: eight a SIMD
inline constexpr Clocks kNever = INT64_MAX >> 8;

class Job;

// A memory operation that a counter counts.
struct Pending {
  Clocks at = 0;
  int32_t queued = 0;
  Limit why = Limit::kLatency;
};

// Operations in the order of their issue.
template <int kMost>
struct PendingRing {
  std::array<Pending, kMost> ring;
  uint8_t first = 0, count = 0;

  void Push(const Pending& p) {
    ring[static_cast<size_t>((first + count) % kMost)] = p;
    ++count;
  }
  // The latest of all but the last `left`, which go.
  Pending PopTo(int left) {
    Pending last;
    while (count > left) {
      const Pending& p = ring[first];
      if (p.at >= last.at) last = p;
      first = static_cast<uint8_t>((first + 1) % kMost);
      --count;
    }
    return last;
  }
  const Pending& newest() const { return ring[static_cast<size_t>((first + count - 1) % kMost)]; }
};

// A matrix instruction's result on its way.
struct Late {
  Span16 registers;
  Clocks chained = 0;  // for use as source C by the same kind of product
  Clocks ready = 0;    // for any other use
  uint16_t passes = 0;
};

struct Group;

struct WaveSlot {
  isa::Wave* wave = nullptr;
  const isa::Op* op = nullptr;  // the next
  isa::Program::Chunk* chunk = nullptr;
  Group* group = nullptr;
  int simd = 0;
  uint64_t fetched = ~uint64_t{0};  // line of 64 bytes of instructions it stands in
  PendingRing<64> vm;
  PendingRing<16> lgkm;
  std::array<Late, 4> late;
  uint8_t late_next = 0;
  Clocks late_until = 0;
  Clocks started = 0;
  Clocks at_barrier = 0;
  bool idle = false;  // has done nothing but look and sleep for a while
};

struct Simd {
  Clocks valu = 0, mfma = 0, salu = 0, vmem = 0, lds = 0;  // free again
  int waves = 0, registers = 0;
};

struct Group {
  std::unique_ptr<isa::Workgroup> work;
  Job* job = nullptr;
  uint32_t unit = 0;   // on the chip
  uint32_t slots = 0;  // bit a slot
  uint32_t live = 0;
  uint32_t lds = 0, registers = 0;  // bytes of LDS; registers of a wave
  Clocks started = 0;
};

struct ComputeUnit {
  uint32_t xcc = 0, number = 0;  // number: of the XCC
  // When each slot issues next, and which it is: time << 5 | slot. The smallest is next.
  alignas(64) std::array<uint64_t, kWaves> key;
  std::vector<WaveSlot> slots;
  std::array<Simd, kSimds> simd;
  uint32_t free_slots = ~uint32_t{0};
  uint32_t lds_used = 0;
  int waves = 0;
  Clocks address = 0;  // vector memory takes the next addresses in
  Clocks lds = 0;
  Tags l1;
  std::vector<Clocks> misses;  // ring: when each of the last lines arrives
  size_t next_miss = 0;

  ComputeUnit() { key.fill(kEmpty); }
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  void Set(int slot, Clocks at) {
    key[static_cast<size_t>(slot)] = static_cast<uint64_t>(at) << 5 | static_cast<uint64_t>(slot);
  }
  uint64_t Earliest() const {
    uint64_t least = kEmpty;
    // Places are taken from the lowest on.
    const size_t end = static_cast<size_t>(32 - std::countl_zero(~free_slots));
    for (size_t i = 0; i < end; ++i) least = key[i] < least ? key[i] : least;
    return least;
  }
};

// What two neighbours share: the scalar cache and the instruction cache.
struct SharedCaches {
  Tags scalar, code;
  Clocks scalar_free = 0;
};

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_UNIT_H_
