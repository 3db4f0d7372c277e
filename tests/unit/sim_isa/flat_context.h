// SPDX-License-Identifier: MIT
//
// A GPU whose whole memory is one mapped range of one type, for tests of what watches accesses.
#ifndef MAINARCH_TESTS_UNIT_SIM_ISA_FLAT_CONTEXT_H_
#define MAINARCH_TESTS_UNIT_SIM_ISA_FLAT_CONTEXT_H_

#include "sim/executor.h"

namespace mainarch::sim::isa::test {

class FlatContext : public GpuContext {
 public:
  // `memory` is mapped at [begin, end).
  FlatContext(uint8_t* memory, uint64_t begin, uint64_t end, uint32_t gpu, Mtype mtype)
      : memory_(memory), begin_(begin), end_(end), gpu_(gpu), mtype_(mtype) {}
  const GpuFacts& facts() const override { return facts_; }
  uint32_t gpu_index() const override { return gpu_; }
  uint32_t process_id() const override { return 1; }
  bool Translate(uint64_t va, Access, Window* window, MemoryFault* fault) const override {
    *fault = {va, true, false, false};
    if (va < begin_ || va >= end_) return false;
    *window = {memory_ + (va - begin_), end_ - va, va - begin_, mtype_, true, false, false, 0};
    return true;
  }
  uint64_t epoch() const override { return 1; }
  uint64_t Clock() const override { return 0; }
  void Interrupt(uint32_t) override {}
  uint64_t trap_handler_va() const override { return 0; }
  uint64_t trap_memory_va() const override { return 0; }

 private:
  uint8_t* const memory_;
  const uint64_t begin_, end_;
  const uint32_t gpu_;
  const Mtype mtype_;
  const GpuFacts facts_ = {};
};

}  // namespace mainarch::sim::isa::test

#endif  // MAINARCH_TESTS_UNIT_SIM_ISA_FLAT_CONTEXT_H_
