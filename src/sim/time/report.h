// SPDX-License-Identifier: MIT
//
// What the timing model says of one launch. Every time here is modelled, none is measured: whoever
// prints one says so.
#ifndef MAINARCH_SIM_TIME_REPORT_H_
#define MAINARCH_SIM_TIME_REPORT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace mainarch::sim::timing {

// What a launch's time went to.
enum class Limit : uint8_t {
  kIssue,    // instructions that could issue, and the pipes they had to wait for
  kMatrix,   // the matrix core
  kLatency,  // round trips to memory that nothing queued for
  kLds,      // LDS: banks, bandwidth, latency
  kL1,       // address and data path of the vector L1, scalar cache
  kL2,       // channels of the L2
  kFabric,   // between XCD and memory: links, and the MALL
  kHbm,      // channels of the memory
  kLink,     // xGMI and PCIe
  kBarrier,  // s_barrier
  kSleep,    // s_sleep, and polls that saw nothing new
  kLaunch,   // packet, caches, dealing out workgroups, and places that stood empty
  kCount
};
inline constexpr size_t kLimits = static_cast<size_t>(Limit::kCount);
absl::string_view NameOf(Limit limit);

// Which resource of a compute unit keeps more workgroups of a kernel out.
enum class Resident : uint8_t { kSlots, kRegisters, kLds, kGrid };
absl::string_view NameOf(Resident resident);

// An instruction at which waves waited.
struct WaitAt {
  uint64_t pc = 0;
  uint64_t times = 0;
  double wave_us = 0;  // added up over all waves
  Limit most = Limit::kLatency;
};

// Bytes that went over each part of the memory system, both directions. From L2 on whole lines.
struct MemoryBytes {
  uint64_t asked = 0;   // by lanes of loads, stores and atomics
  uint64_t l1_hit = 0;  // of lines that the L1 had
  uint64_t l2_read = 0, l2_hit = 0, l2_write = 0;
  uint64_t mall_hit = 0;
  uint64_t hbm_read = 0, hbm_write = 0;
  uint64_t peer = 0;  // xGMI
  uint64_t host = 0;  // PCIe
  uint64_t lds = 0;
  uint64_t scalar = 0;
};

// One workgroup's life, for a timeline; only with ClockOptions::spans.
struct GroupSpan {
  uint64_t index = 0;
  uint32_t xcc = 0, cu = 0;  // cu: of the XCC
  double start_us = 0, end_us = 0;
};

struct LaunchReport {
  uint32_t gpu = 0, process = 0, queue = 0;
  uint64_t dispatch_id = 0;
  uint64_t kernel_object = 0, entry = 0;  // device addresses: descriptor, first instruction
  std::string kernel;                     // its name, where the descriptor's object tells

  double clock_mhz = 0;
  // On the GPU's modelled clock: the packet is taken; the first wave starts; the last has ended; the
  // completion is visible.
  double start_us = 0, first_wave_us = 0, last_wave_us = 0, end_us = 0;
  double us() const { return end_us - start_us; }
  double kernel_us() const { return last_wave_us - first_wave_us; }
  uint64_t cycles() const { return static_cast<uint64_t>(us() * clock_mhz + 0.5); }

  uint64_t workgroups = 0, waves = 0, instructions = 0;
  uint32_t waves_per_group = 0;
  uint32_t groups_per_cu = 0;  // that fit
  Resident resident = Resident::kGrid;
  uint32_t cus = 0, cus_used = 0;
  double mean_waves_per_simd = 0;  // over all SIMDs of the chip, from first_wave_us to last_wave_us

  std::array<double, kLimits> limited_by = {};  // shares of us(), which add up to 1
  Limit limit() const;                          // the largest of them

  MemoryBytes bytes;
  // Bytes asked of memory behind the L1 and not yet there: means over steps of in_flight_step_us,
  // from first_wave_us on.
  double in_flight_step_us = 0;
  std::vector<double> in_flight;
  double mean_in_flight = 0;

  std::vector<WaitAt> waits;  // longest first
  std::vector<GroupSpan> spans;
};

// A copy, fill or write of a copy engine.
struct CopyReport {
  uint32_t gpu = 0, queue = 0;
  uint64_t bytes = 0;
  double start_us = 0, end_us = 0;
};

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_REPORT_H_
