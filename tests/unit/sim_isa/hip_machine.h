// SPDX-License-Identifier: MIT
//
// Code objects of the HIP language on the interpreter: parsed, relocated and given their arguments
// as the GPU loader does it, executed on flat memory.
#ifndef MAINARCH_TESTS_UNIT_SIM_ISA_HIP_MACHINE_H_
#define MAINARCH_TESTS_UNIT_SIM_ISA_HIP_MACHINE_H_

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gpu/code_object.h"
#include "sim/isa/grid.h"

namespace mainarch::sim::isa::test {

// Compiles hip/<file>.hip for the device; the path, or "" and *error.
std::string CompileHip(Isa isa, const std::string& file, const std::string& flags,
                       std::string* error);
// The same file for the host, as a shared library.
std::string CompileForHost(const std::string& file, std::string* error);

class HipMachine {
 public:
  HipMachine(Isa isa, LaneCode code, size_t bytes = 256 << 20);
  bool Load(const std::string& path);  // false with error() set
  const std::string& error() const { return error_; }
  // Every launch from now on under the checkers of waits, wait states and races.
  void CheckLaunches() { checked_ = true; }
  const gpu::CodeObject& object() const { return *object_; }
  Isa isa() const { return set_.isa(); }

  void* Allocate(size_t bytes);  // zeroed
  template <class T>
  T* New(size_t count) {
    return static_cast<T*>(Allocate(count * sizeof(T)));
  }

  struct Options {
    std::array<uint32_t, 3> blocks = {1, 1, 1}, threads = {64, 1, 1};
    std::array<uint32_t, 3> cut = {0, 0, 0};  // work-items missing from the last block
    uint32_t dynamic_lds = 0;
    uint32_t stack = 0;  // more scratch a work-item, for kernels with a dynamic stack
    uint64_t seed = 1;
    int host_threads = 1;
  };
  // Arguments as the kernel's parameter list lays them out.
  class Arguments {
   public:
    template <class T>
    Arguments& Add(const T& value) {
      while (bytes_.size() % alignof(T) != 0) bytes_.push_back(0);
      const auto* p = reinterpret_cast<const uint8_t*>(&value);
      bytes_.insert(bytes_.end(), p, p + sizeof value);
      return *this;
    }
    const std::vector<uint8_t>& bytes() const { return bytes_; }

   private:
    std::vector<uint8_t> bytes_;
  };
  bool Launch(const std::string& kernel, const Arguments& arguments, const Options& options);
  uint64_t instructions() const { return instructions_; }
  Grid::Result result;

 private:
  InstructionSet set_;
  Program program_;
  std::unique_ptr<uint8_t, void (*)(void*)> arena_;
  size_t size_, used_ = 0;
  std::unique_ptr<gpu::CodeObject> object_;
  uint64_t base_ = 0;
  uint64_t instructions_ = 0;
  std::string error_;
  bool checked_ = false;
};

}  // namespace mainarch::sim::isa::test

#endif  // MAINARCH_TESTS_UNIT_SIM_ISA_HIP_MACHINE_H_
