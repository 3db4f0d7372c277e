// SPDX-License-Identifier: MIT
//
// The few PM4 packets that a client of AQL queues needs: those of the indirect buffers that vendor
// packets point at, and of a plain PM4 queue used as a mailbox. Dispatching by PM4 is not modelled:
// register writes are accepted and forgotten, DISPATCH_DIRECT is refused.
//
// A Pm4Stream runs one indirect buffer; it may block on memory and is then stepped again.
#ifndef MAINARCH_SIM_PM4_H_
#define MAINARCH_SIM_PM4_H_

#include <cstdint>
#include <string>
#include <vector>

#include "sim/queue.h"

namespace mainarch::sim {

class Pm4Stream {
 public:
  enum class Result : uint8_t { kDone, kBlocked, kBad, kFault };

  Pm4Stream(QueueHost* host, uint64_t va, uint32_t dwords)
      : host_(host), va_(va), dwords_(dwords) {}

  // Runs until the end, a wait that is not over, a bad packet or a fault.
  Result Step(MemoryFault* fault, std::string* why);

 private:
  Result Packet(uint32_t header, const std::vector<uint32_t>& payload, MemoryFault* fault,
                std::string* why);
  Result WaitMemory(const std::vector<uint32_t>& p, MemoryFault* fault, std::string* why);
  Result ReleaseMemory(const std::vector<uint32_t>& p, MemoryFault* fault);
  Result CopyData(const std::vector<uint32_t>& p, MemoryFault* fault, std::string* why);
  Result WriteData(const std::vector<uint32_t>& p, MemoryFault* fault, std::string* why);

  QueueHost* host_;
  uint64_t va_;
  uint32_t dwords_;
  uint32_t at_ = 0;    // dwords done
  uint32_t skip_ = 0;  // dwords left of a PRED_EXEC that another XCC runs
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_PM4_H_
