// SPDX-License-Identifier: MIT
//
// The PM4 packets that clients of compute queues send: in the indirect buffers that AQL vendor
// packets point at, and in queues of PM4 format. A Pm4Stream runs one buffer of them, and the
// buffers that it calls; it may block on memory or on the shader and is then stepped again.
#ifndef MAINARCH_SIM_PM4_H_
#define MAINARCH_SIM_PM4_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/pm4_compute.h"
#include "sim/queue.h"

namespace mainarch::sim {

class Pm4Stream {
 public:
  enum class Result : uint8_t { kDone, kBlocked, kBad, kFault };

  // A buffer in memory, `depth` calls from the ring. `compute` outlives the stream.
  Pm4Stream(QueueHost* host, Pm4Compute* compute, uint64_t va, uint32_t dwords, int depth)
      : host_(host), compute_(*compute), va_(va), dwords_(dwords), depth_(depth) {}
  // What has been fetched from a ring already.
  Pm4Stream(QueueHost* host, Pm4Compute* compute, std::vector<uint32_t> words)
      : host_(host),
        compute_(*compute),
        words_(std::move(words)),
        dwords_(static_cast<uint32_t>(words_.size())),
        depth_(0) {}

  // Runs until the end, a wait that is not over, a bad packet or a fault; kBlocked also after many
  // packets. `moved` is set when any packet was done.
  Result Step(MemoryFault* fault, std::string* why, bool* moved);

 private:
  using Payload = std::vector<uint32_t>;

  Result Packet(uint32_t header, const Payload& payload, MemoryFault* fault, std::string* why);
  Result WaitMemory(const Payload& p, MemoryFault* fault, std::string* why);
  Result ReleaseMemory(const Payload& p, MemoryFault* fault);
  Result CopyData(const Payload& p, MemoryFault* fault, std::string* why);
  Result WriteData(const Payload& p, MemoryFault* fault, std::string* why);
  Result Dispatch(const Payload& p, MemoryFault* fault, std::string* why);
  Result Call(const Payload& p, std::string* why);
  void SetRegisters(const Payload& p);
  bool Read(uint32_t at, uint32_t dwords, uint32_t* out, MemoryFault* fault) const;

  QueueHost* host_;
  Pm4Compute& compute_;
  const std::vector<uint32_t> words_;  // of depth 0
  uint64_t va_ = 0;                    // of the others
  uint32_t dwords_;
  const int depth_;                   // buffers called to get here
  uint32_t at_ = 0;                   // dwords done
  uint32_t skip_ = 0;                 // dwords left of a PRED_EXEC that another XCC runs
  bool chained_ = false;              // another buffer has taken this one's place
  std::unique_ptr<Pm4Stream> inner_;  // the buffer that INDIRECT_BUFFER called
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_PM4_H_
