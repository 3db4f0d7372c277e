// SPDX-License-Identifier: MIT
//
// The interpreter on flat memory, for tests: loads a code object, runs a kernel, or executes single
// instructions on a wave whose registers the test sets and reads.
#ifndef MAINARCH_TESTS_UNIT_SIM_ISA_MACHINE_H_
#define MAINARCH_TESTS_UNIT_SIM_ISA_MACHINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/isa/grid.h"
#include "sim/isa/gws.h"
#include "sim/isa/lines.h"
#include "sim/isa/memory.h"
#include "sim/isa/program.h"

namespace mainarch::sim::isa::test {

// Compiles device/<file>.cc, `flags` after the standard freestanding ones. The path of the code
// object, or "" and *error.
std::string CompileKernels(Isa isa, const std::string& file, const std::string& flags,
                           std::string* error);

// All memory of the machine is one arena; device addresses are host addresses.
class Machine {
 public:
  Machine(Isa isa, LaneCode code, size_t bytes = 64 << 20);

  // Segments copied into the arena, relative relocations applied. False with error() set.
  bool Load(const std::string& path);
  const std::string& error() const { return error_; }

  // Zeroed memory of the arena.
  void* Allocate(size_t bytes);
  template <class T>
  T* New(size_t count) {
    return static_cast<T*>(Allocate(count * sizeof(T)));
  }

  struct Options {
    std::array<uint32_t, 3> grid = {64, 1, 1}, workgroup = {64, 1, 1};
    uint32_t dynamic_lds = 0;
    uint64_t seed = 0;
    int threads = 1;
    uint64_t budget = 1ull << 40;
    bool hidden_arguments = false;  // the 256 bytes of the ABI after the explicit ones
    Observer* observer = nullptr;   // checkers, mostly
    Gws* gws = nullptr;             // null: the queue has no global wave sync
    ChipLimits limits;
    std::vector<std::shared_ptr<const LineTable>> lines;
  };
  // Runs to the end; false with error() set.
  bool Run(const std::string& kernel, const std::vector<uint64_t>& arguments,
           const Options& options);
  // Offsets, from where the code object lies, of the SOPP instructions of this opcode that have
  // run.
  std::vector<uint64_t> Executed(uint32_t sopp_opcode);
  // Overwrites a dword of the loaded code object.
  void Patch(uint64_t offset, uint32_t word);
  uint64_t instructions() const { return instructions_; }
  Isa isa() const { return set_.isa(); }
  Grid::Result result;

 private:
  bool FindKernel(const std::string& name, uint64_t* descriptor);

  InstructionSet set_;
  Program program_;
  std::unique_ptr<uint8_t, void (*)(void*)> arena_;
  size_t size_, used_ = 0;
  std::vector<uint8_t> elf_;
  uint64_t load_base_ = 0, image_bytes_ = 0;
  std::string error_;
  uint64_t instructions_ = 0;
};

// The portable lane code, and those for more that this CPU runs.
std::vector<LaneCode> LaneCodes();
const char* NameOf(LaneCode code);

// One wave and single instructions.
class Rig {
 public:
  explicit Rig(Isa isa, LaneCode code = LaneCode::kPortable);
  // Runs the instruction at the start of `bytes`; false when it does not decode or stopped the
  // wave.
  bool Step(const uint8_t* bytes, size_t size);
  uint32_t& V(int reg, int lane) { return wave().v[reg * kLanes + lane]; }
  uint32_t& S(int reg) { return wave().s[reg]; }
  Wave& wave() { return group_.waves[0]; }
  Workgroup& group() { return group_; }
  uint8_t* memory() { return memory_bytes_.data(); }
  size_t memory_size() const { return memory_bytes_.size(); }

 private:
  InstructionSet set_;
  Program program_;
  std::vector<uint8_t> memory_bytes_;
  FlatMemory memory_;
  Workgroup group_;
  size_t code_at_ = 0;
};

}  // namespace mainarch::sim::isa::test

#endif  // MAINARCH_TESTS_UNIT_SIM_ISA_MACHINE_H_
