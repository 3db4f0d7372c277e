// SPDX-License-Identifier: MIT
//
// One GPU that this process opened: what it is, its address space, its doorbells, its small shared
// words (signals), and whether it is still there. Memory is memory.h's, queues are queue.h's.
//
// Owner: its Process. Threads: any.
#ifndef MAINARCH_GPU_DEVICE_H_
#define MAINARCH_GPU_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "gpu/aql.h"
#include "gpu/memory.h"
#include "isa/chip.h"
#include "kfd/drm.h"
#include "kfd/topology.h"

namespace mainarch::gpu {

class Process;

// A 64-byte line of uncached host memory that CPU and GPU both poll; returned to its device when it
// goes.
class SignalSlot {
 public:
  SignalSlot() = default;
  SignalSlot(Device* device, Signal* host, uint32_t index)
      : device_(device), host_(host), index_(index) {}
  SignalSlot(SignalSlot&& other) noexcept { *this = std::move(other); }
  SignalSlot& operator=(SignalSlot&& other) noexcept;
  ~SignalSlot();

  Signal* get() const { return host_; }
  uint64_t va() const { return reinterpret_cast<uint64_t>(host_); }
  int64_t Value() const {
    return std::atomic_ref<int64_t>(host_->value).load(std::memory_order_acquire);
  }

 private:
  Device* device_ = nullptr;
  Signal* host_ = nullptr;
  uint32_t index_ = 0;
};

class Device {
 public:
  // `node` outlives the device.
  Device(Process& process, uint32_t index, const kfd::Node& node, const isa::ChipFacts& chip,
         std::unique_ptr<kfd::RenderNode> render_node);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Process& process() const { return process_; }
  uint32_t index() const { return index_; }
  uint32_t gpu_id() const { return node_.gpu_id; }
  const kfd::Node& node() const { return node_; }
  const isa::ChipFacts& chip() const { return chip_; }
  int render_fd() const { return render_node_->fd(); }
  kfd::RenderNode& render_node() const { return *render_node_; }
  // "gpu 3 (gfx950, 0000:c5:00.0)", for messages.
  const std::string& name() const { return name_; }

  // Ok, or why no call on this GPU can work any more (a fork, a fault, a reset).
  Status Health() const;
  // Whether Health is ok, which is all that the path of a packet asks: in gpu/process.h.
  bool healthy() const;
  void MarkLost(const Status& status);
  // Asks the driver whether the GPU is still there, at the price of a call; marks it lost if not.
  Status Probe();
  bool lost() const { return lost_.load(std::memory_order_acquire); }

  StatusOr<SignalSlot> NewSignal();

  // The CPU address of a doorbell, by the offset that queue creation returned.
  StatusOr<uint64_t*> Doorbell(uint64_t doorbell_offset);

  // Makes what the CPU wrote to host-accessible VRAM visible to the GPU. Without the remap page
  // (some virtual functions) it is Unsupported and an SDMA flush packet must do.
  Status FlushHostWrites();

  // Waiters are woken by this when the device goes; a queue registers its event.
  void AddWaiter(class Event* event);
  void RemoveWaiter(class Event* event);

 private:
  friend class SignalSlot;
  void FreeSignal(uint32_t index);

  Process& process_;
  const uint32_t index_;
  const kfd::Node& node_;
  const isa::ChipFacts& chip_;
  const std::unique_ptr<kfd::RenderNode> render_node_;
  std::string name_;

  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;  // guards all below
  Status lost_status_;
  std::vector<Event*> waiters_;
  std::vector<Buffer> signal_pages_;
  std::vector<uint32_t> free_signals_;
  uint8_t* doorbells_ = nullptr;  // the process' slice
  Buffer remap_page_;
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_DEVICE_H_
