// SPDX-License-Identifier: MIT
//
// What PM4 packets do to the shader: the compute registers that SET_SH_REG writes, which stay from
// packet to packet, and the dispatches that DISPATCH_DIRECT starts out of them. One a queue.
//
// Threads: as HwQueue.
#ifndef MAINARCH_SIM_PM4_COMPUTE_H_
#define MAINARCH_SIM_PM4_COMPUTE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/queue.h"
#include "sim/rng.h"

namespace mainarch::sim {

class Pm4Compute {
 public:
  explicit Pm4Compute(const HwQueue::Setup& setup) : setup_(setup), rng_(setup.seed ^ 0x504d3400) {}

  // `index` counts dwords from the first SH register.
  void SetRegister(uint32_t index, uint32_t value) {
    if (index < registers_.size()) registers_[index] = value;
  }
  // DISPATCH_DIRECT. False and `fault` or `why` filled: the registers hold no dispatch.
  bool Dispatch(const uint32_t dims[3], uint32_t initiator, MemoryFault* fault, std::string* why);

  bool busy() const { return !launches_.empty(); }
  uint64_t waves() const {
    uint64_t waves = 0;
    for (const std::unique_ptr<Launch>& launch : launches_) waves += launch->waves();
    return waves;
  }
  // One slice of one dispatch that runs. kDone: it has ended, or there is none.
  Progress Run();
  void Drop() { launches_.clear(); }
  void set_gws(bool gws) { gws_ = gws; }  // as HwQueue::gws

 private:
  uint32_t At(uint32_t index) const { return registers_[index]; }
  bool Fill(const uint32_t dims[3], uint32_t initiator, sim::Dispatch* dispatch, std::string* why);

  const HwQueue::Setup setup_;
  Rng rng_;
  std::array<uint32_t, 0x400> registers_ = {};
  uint64_t dispatches_ = 0;
  bool gws_ = false;
  std::vector<std::unique_ptr<Launch>> launches_;
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_PM4_COMPUTE_H_
