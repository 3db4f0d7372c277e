// SPDX-License-Identifier: MIT
//
// Accesses of the machine's own engines (packet processors, copy engines) to memory through one
// GPU's page table: plain bytes, and the small atomics that a client shares with the GPU. Every
// call returns false and fills the fault when an address is not accessible that way; bytes before
// the faulting page have been moved then, as on hardware.
#ifndef MAINARCH_SIM_BUS_H_
#define MAINARCH_SIM_BUS_H_

#include <cstdint>

#include "sim/executor.h"

namespace mainarch::sim {

class Bus {
 public:
  explicit Bus(const GpuContext& context) : context_(context) {}

  bool Read(uint64_t va, void* out, uint64_t size, MemoryFault* fault) const;
  bool Write(uint64_t va, const void* in, uint64_t size, MemoryFault* fault) const;
  bool Copy(uint64_t to, uint64_t from, uint64_t size, MemoryFault* fault) const;
  bool Fill(uint64_t to, uint8_t value, uint64_t size, MemoryFault* fault) const;

  // Sequentially consistent, naturally aligned; an unaligned address faults.
  bool Load32(uint64_t va, uint32_t* value, MemoryFault* fault) const;
  bool Load64(uint64_t va, uint64_t* value, MemoryFault* fault) const;
  bool Store32(uint64_t va, uint32_t value, MemoryFault* fault) const;
  bool Store64(uint64_t va, uint64_t value, MemoryFault* fault) const;
  bool Add64(uint64_t va, uint64_t delta, MemoryFault* fault) const;
  bool CompareSwap64(uint64_t va, uint64_t expected, uint64_t desired, MemoryFault* fault) const;

 private:
  uint8_t* Aligned(uint64_t va, uint64_t size, Access access, MemoryFault* fault) const;

  const GpuContext& context_;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_BUS_H_
