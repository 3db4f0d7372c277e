// SPDX-License-Identifier: MIT
#include "gpu/device.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gpu/event.h"
#include "gpu/process.h"

namespace mainarch::gpu {
namespace {

namespace uapi = kfd::uapi;

constexpr uint64_t kSignalPage = 4096;
constexpr uint32_t kSignalsPerPage = kSignalPage / sizeof(Signal);

std::string MakeName(uint32_t index, const isa::ChipFacts& chip, const kfd::NodeProperties& p) {
  const uint32_t location = static_cast<uint32_t>(p.location_id);
  const auto two = [](uint32_t number) { return absl::Hex(number, absl::kZeroPad2); };
  return absl::StrCat("gpu ", index, " (", chip.name, ", ",
                      absl::Hex(static_cast<uint32_t>(p.domain), absl::kZeroPad4), ":",
                      two(location >> 8 & 0xff), ":", two(location >> 3 & 0x1f), ".",
                      absl::Hex(location & 7), ")");
}

}  // namespace

SignalSlot& SignalSlot::operator=(SignalSlot&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(host_, other.host_);
  std::swap(index_, other.index_);
  return *this;
}

SignalSlot::~SignalSlot() {
  if (device_ != nullptr) device_->FreeSignal(index_);
}

Device::Device(Process& process, uint32_t index, const kfd::Node& node, const isa::ChipFacts& chip,
               std::unique_ptr<kfd::RenderNode> render_node)
    : process_(process),
      index_(index),
      node_(node),
      chip_(chip),
      render_node_(std::move(render_node)),
      name_(MakeName(index, chip, node.properties)) {}

Device::~Device() {
  if (doorbells_ != nullptr && process_.in_opener()) {
    Unmap(process_, doorbells_, uapi::kDoorbellSliceSize).IgnoreError();  // it has been logged
  }
}

Status Device::Health() const {
  RETURN_IF_ERROR(process_.CheckProcess());
  if (!lost()) return {};
  std::lock_guard<std::mutex> lock(mutex_);
  return lost_status_;
}

void Device::MarkLost(const Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!lost_.load(std::memory_order_relaxed)) {
    lost_status_ = WithDevice(status, index_);
    lost_.store(true, std::memory_order_release);
  }
  // A waiter that misses its wake-up looks again after its slice; see wait.cc.
  for (Event* waiter : waiters_) waiter->Set().IgnoreError();
}

Status Device::Probe() {
  RETURN_IF_ERROR(Health());
  const Status asked = process_.kfd().AvailableMemory(gpu_id()).status();
  const int err = ErrnoOf(asked);
  if (err != ENODEV && err != EIO) return {};  // an old kernel does not know the call
  MarkLost(ErrnoError(Code::kDeviceLost, err, name_,
                      " is gone: the driver does not know it any more; restart the machine if it "
                      "does not come back"));
  return Health();
}

void Device::AddWaiter(Event* event) {
  std::lock_guard<std::mutex> lock(mutex_);
  waiters_.push_back(event);
}

void Device::RemoveWaiter(Event* event) {
  std::lock_guard<std::mutex> lock(mutex_);
  waiters_.erase(std::remove(waiters_.begin(), waiters_.end(), event), waiters_.end());
}

StatusOr<SignalSlot> Device::NewSignal() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (free_signals_.empty()) {
    BufferOptions options;
    options.place = Place::kSystem;
    options.caching = Caching::kUncached;
    options.label = "signals";
    ASSIGN_OR_RETURN(Buffer page, Buffer::Allocate(*this, kSignalPage, options));
    const uint32_t first = static_cast<uint32_t>(signal_pages_.size()) * kSignalsPerPage;
    free_signals_.reserve(first + kSignalsPerPage);
    signal_pages_.push_back(std::move(page));
    for (uint32_t i = kSignalsPerPage; i-- > 0;) free_signals_.push_back(first + i);
  }
  const uint32_t index = free_signals_.back();
  free_signals_.pop_back();
  Signal* signal = signal_pages_[index / kSignalsPerPage].host<Signal>() + index % kSignalsPerPage;
  memset(static_cast<void*>(signal), 0, sizeof *signal);
  signal->kind = kUserSignal;
  return SignalSlot(this, signal, index);
}

void Device::FreeSignal(uint32_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_signals_.push_back(index);  // reserved when its page was made
}

StatusOr<uint64_t*> Device::Doorbell(uint64_t doorbell_offset) {
  std::lock_guard<std::mutex> lock(mutex_);
  constexpr uint64_t kInSlice = uapi::kDoorbellSliceSize - 1;
  if (doorbells_ == nullptr) {
    void* address = nullptr;
    int result =
        process_.sys().Mmap(nullptr, uapi::kDoorbellSliceSize, PROT_READ | PROT_WRITE, MAP_SHARED,
                            process_.kfd().fd(), doorbell_offset & ~kInSlice, &address);
    if (result < 0) {
      return ErrnoError(Code::kIo, -result, "mmap of the doorbells of ", name_, ", offset 0x",
                        absl::Hex(doorbell_offset & ~kInSlice));
    }
    doorbells_ = static_cast<uint8_t*>(address);
  }
  return reinterpret_cast<uint64_t*>(doorbells_ + (doorbell_offset & kInSlice));
}

Status Device::FlushHostWrites() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!remap_page_.valid()) {
    BufferOptions options;
    options.place = Place::kMmioRemap;
    options.label = "hdp flush page";
    auto page = Buffer::Allocate(*this, uapi::kMmioRemapSize, options);
    if (!page.ok()) return page.status();
    remap_page_ = *std::move(page);
  }
  volatile uint32_t* flush =
      remap_page_.host<volatile uint32_t>() + uapi::kHdpMemFlushOffset / sizeof(uint32_t);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  *flush = 1;
  (void)*flush;  // the read returns after the flush has been accepted
  return {};
}

}  // namespace mainarch::gpu
