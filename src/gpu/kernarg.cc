// SPDX-License-Identifier: MIT
#include "gpu/kernarg.h"

namespace mainarch::gpu {
namespace {
constexpr uint64_t kAlignment = 64;  // a line each: no two kernels share one
}  // namespace

StatusOr<std::unique_ptr<KernargRing>> KernargRing::Create(Queue& queue, uint32_t bytes) {
  std::unique_ptr<KernargRing> ring(new KernargRing(queue));
  BufferOptions options;
  options.place = Place::kSystem;
  options.caching = Caching::kUncached;
  options.label = "kernel arguments";
  ASSIGN_OR_RETURN(ring->memory_, Buffer::Allocate(queue.device(), bytes, options));
  return ring;
}

void KernargRing::Reclaim() {
  while (!uses_.empty() && queue_.Reached(uses_.front().point)) {
    tail_ = uses_.front().end;
    uses_.pop_front();
  }
}

StatusOr<KernargRing::Slot> KernargRing::Allocate(uint32_t bytes, Deadline deadline) {
  const uint64_t capacity = memory_.size();
  const uint64_t size = (uint64_t{bytes} + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes == 0 || size > capacity) {
    return Error(Code::kInvalidArgument, "kernel arguments of ", bytes, " bytes, must be 1..",
                 capacity);
  }
  const uint64_t offset = head_ % capacity;
  const uint64_t skip = offset + size > capacity ? capacity - offset : 0;
  Reclaim();
  while (head_ + skip + size - tail_ > capacity) {
    if (uses_.empty()) {
      return Error(Code::kInvalidArgument, "kernel arguments of ", bytes, " bytes do not fit ",
                   capacity, " beside ", head_ - tail_, " that no submission was named for");
    }
    RETURN_IF_ERROR(queue_.Wait(uses_.front().point, deadline));
    Reclaim();
  }
  head_ += skip;
  const uint64_t at = head_ % capacity;
  head_ += size;
  return Slot{memory_.host() + at, memory_.va() + at};
}

void KernargRing::UsedUntil(uint64_t point) {
  const uint64_t last = uses_.empty() ? tail_ : uses_.back().end;
  if (head_ != last) uses_.push_back({head_, point});
}

}  // namespace mainarch::gpu
