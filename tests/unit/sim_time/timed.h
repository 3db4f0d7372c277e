// SPDX-License-Identifier: MIT
//
// Kernels of a few lines of assembly under the timing model, on flat memory that costs nothing until
// it is written: arrays larger than the MALL are possible.
#ifndef MAINARCH_TESTS_UNIT_SIM_TIME_TIMED_H_
#define MAINARCH_TESTS_UNIT_SIM_TIME_TIMED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/isa/grid.h"
#include "sim/isa/memory.h"
#include "sim/isa/program.h"
#include "sim/time/clock.h"

namespace mainarch::sim::timing::test {

isa::ChipLimits LimitsOf(isa::Isa isa);

// Flat memory whose upper parts lie elsewhere: one at a peer, one at the host, one of each page type.
class PlacedMemory : public isa::Memory {
 public:
  PlacedMemory(uint64_t base, uint64_t bytes) : base_(base), bytes_(bytes) {}
  bool Translate(uint64_t va, bool write, bool execute, isa::View* view,
                 isa::AccessFault* fault) override;
  uint64_t Clock() override { return ++clock_; }
  // [va, va + bytes) lies there.
  void Set(uint64_t va, uint64_t bytes, isa::Where where) { parts_.push_back({va, va + bytes, where}); }

 private:
  struct Part {
    uint64_t begin, end;
    isa::Where where;
  };
  const uint64_t base_, bytes_;
  std::vector<Part> parts_;
  uint64_t clock_ = 0;
};

class Timed {
 public:
  // All of it in `clock`, whose caches stay warm from run to run.
  explicit Timed(isa::Isa isa, const ClockOptions& options = {}, uint64_t bytes = uint64_t{2} << 30);
  ~Timed();

  struct Shape {
    uint32_t groups = 1, threads = 64, lds = 0;
    uint32_t registers = 64;  // of a wave: decides how many fit
    uint32_t gpu = 0;
    uint8_t acquire = 1, release = 1;
    isa::Observer* observer = nullptr;
    PlacedMemory* memory = nullptr;  // as this GPU sees it; null: memory()
    bool timed = true;
    uint64_t slice = uint64_t{1} << 30;  // budget of a Run
  };
  // s[0:1] points to `arguments` (dwords), s2 is the workgroup, v0 the work-item. "" and *report, or
  // what went wrong. The text is assembled once.
  std::string Run(const std::string& text, const std::vector<uint64_t>& arguments, const Shape& shape,
                  LaunchReport* report);
  // Starts without running, for several at once.
  std::string Start(const std::string& text, const std::vector<uint64_t>& arguments, const Shape& shape,
                    std::unique_ptr<isa::Grid>* grid);

  uint64_t Allocate(uint64_t bytes);  // zeroes, 4096-aligned, device and host address
  template <class T>
  T* At(uint64_t address) {
    return reinterpret_cast<T*>(address);
  }
  timing::Clock& clock() { return *clock_; }
  PlacedMemory& memory() { return *memory_; }
  isa::Isa isa() const { return set_.isa(); }

 private:
  isa::InstructionSet set_;
  isa::Program program_;
  std::unique_ptr<timing::Clock> clock_;
  uint8_t* arena_ = nullptr;
  const uint64_t bytes_;
  uint64_t used_ = 0;
  std::unique_ptr<PlacedMemory> memory_;
  std::vector<std::pair<std::string, uint64_t>> code_;  // text, where it lies
};

}  // namespace mainarch::sim::timing::test

#endif  // MAINARCH_TESTS_UNIT_SIM_TIME_TIMED_H_
