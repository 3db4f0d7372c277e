// SPDX-License-Identifier: MIT
//
// The interpreter alone, for benchmarks: shipped kernels and bare instructions on flat memory, with
// no queue, driver or page table round them.
#ifndef MAINARCH_BENCH_ISA_RIG_H_
#define MAINARCH_BENCH_ISA_RIG_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "kernels/args.h"
#include "sim/isa/grid.h"
#include "sim/isa/memory.h"
#include "sim/isa/program.h"

namespace mainarch::bench {

// One launch, ready to be run any number of times.
struct Prepared {
  std::string kernel;
  sim::isa::KernelLaunch launch;
};

// All memory is one block; device addresses are host addresses.
class IsaRig {
 public:
  IsaRig(sim::isa::Isa isa, sim::isa::LaneCode lanes, size_t bytes = 64 << 20);

  // Zeroed, 256-byte aligned.
  uint8_t* Allocate(size_t bytes);
  template <class T>
  T* New(size_t count) {
    return reinterpret_cast<T*>(Allocate(count * sizeof(T)));
  }
  // Numbers between -1 and 1 in bf16; random bytes.
  uint16_t* RandomBf16(size_t count);
  uint8_t* RandomBytes(size_t count);

  // A kernel of the library with its arguments.
  template <class Args>
  StatusOr<Prepared> Prepare(const std::string& kernel, const Args& args, uint32_t workgroups) {
    kernels::Kernarg<Args> kernarg = {args, workgroups, 0};
    return PrepareBytes(kernel, {reinterpret_cast<const uint8_t*>(&kernarg), sizeof kernarg},
                        workgroups);
  }
  // Bare instructions, ended by s_endpgm, in workgroups of one wave.
  Prepared PrepareCode(absl::Span<const uint32_t> words, uint32_t workgroups);

  // Runs to the end on `threads` host threads and adds up the wave-instructions.
  Status Run(const Prepared& prepared, int threads, uint64_t* instructions);
  // Launches from now on run under a timing model, which outlives the rig; one thread.
  void SetPace(sim::isa::Pace* pace) { pace_ = pace; }

 private:
  StatusOr<Prepared> PrepareBytes(const std::string& kernel, absl::Span<const uint8_t> kernarg,
                                  uint32_t workgroups);
  StatusOr<uint64_t> Load(absl::Span<const uint8_t> elf);

  sim::isa::InstructionSet set_;
  sim::isa::Program program_;
  std::unique_ptr<uint8_t, void (*)(void*)> arena_;
  const size_t size_;
  size_t used_ = 0;
  std::map<const uint8_t*, uint64_t> loaded_;  // image -> load address
  uint64_t random_ = 1;
  sim::isa::Pace* pace_ = nullptr;
};

template <class T>
kernels::Address<T> At(T* p) {
  return {reinterpret_cast<uint64_t>(p)};
}

}  // namespace mainarch::bench

#endif  // MAINARCH_BENCH_ISA_RIG_H_
