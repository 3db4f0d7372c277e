// SPDX-License-Identifier: MIT
//
// Reads of what was never written: registers, LDS, scratch, memory. Every bit of them has a shadow
// bit. What an instruction makes of undefined bits is found by running it again on a copy of the
// wave with those bits set to several patterns: result bits that differ are undefined. So no
// instruction needs a rule, and a bit is never called undefined that does not depend on one. Loads
// and stores of LDS and scratch run once more on the shadows themselves.
//
// Reported where it matters: an address, a branch, EXEC, an atomic, a store to memory.
#ifndef MAINARCH_SIM_ISA_CHECK_UNDEFINED_H_
#define MAINARCH_SIM_ISA_CHECK_UNDEFINED_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/isa/check/accesses.h"
#include "sim/isa/check/effects.h"

namespace mainarch::sim::isa {

// Of one workgroup.
class UndefinedCheck {
 public:
  explicit UndefinedCheck(const Workgroup& group);
  ~UndefinedCheck();

  // Before the instruction runs: "" or what is undefined. Follows what it will do.
  std::string Issue(Wave& w, const Op& op, const Effects& effects, const Accesses& accesses);

 private:
  struct WaveShadow {
    std::vector<uint32_t> v;           // as Wave::v: set bits are undefined
    std::array<bool, 512> dirty = {};  // registers with any such bit
    std::array<uint32_t, 128> s = {};
    bool scc = true;
    std::vector<uint8_t> scratch;
  };
  class ShadowMemory;

  bool Touched(const WaveShadow& shadow, const Effects& e) const;
  void Refresh(WaveShadow* shadow, const Range& range);
  void DefineWritten(const Wave& w, const Effects& e, WaveShadow* shadow);
  void Fill(Wave* trial, const Wave& w, const WaveShadow& shadow, const Effects& e, uint32_t zeros,
            uint64_t random);
  std::string Perturb(const Wave& w, const Op& op, const Effects& e, WaveShadow* shadow);
  std::string Address(const Wave& w, const Effects& e, const WaveShadow& shadow) const;
  std::string LocalMemory(Wave& w, const Op& op, const Effects& e, const Accesses& a,
                          WaveShadow* shadow);
  std::string GlobalMemory(Wave& w, const Op& op, const Effects& e, const Accesses& a,
                           WaveShadow* shadow);
  std::string StoreData(const Wave& w, const Op& op, const Effects& e, const Accesses& a,
                        const WaveShadow& shadow) const;
  void Scalar(Wave& w, const Effects& e, const Accesses& a, WaveShadow* shadow);
  void Dma(Wave& w, const Accesses& a);
  // Runs the instruction on the shadows, with the real addresses.
  void RunOnShadow(const Wave& w, const Op& op, const Effects& e, WaveShadow* shadow,
                   Memory* memory);
  bool MemoryUndefined(Wave& w, uint64_t va, uint32_t size, uint8_t* shadow);

  std::vector<WaveShadow> waves_;
  Workgroup shadow_group_;  // its LDS is the shadow
  std::vector<uint32_t> trial_registers_;
  View view_;
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_UNDEFINED_H_
