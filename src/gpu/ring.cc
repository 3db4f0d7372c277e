// SPDX-License-Identifier: MIT
#include "gpu/ring.h"

#include "absl/strings/str_cat.h"
#include "gpu/process.h"

namespace mainarch::gpu {

BufferOptions SharedWords(const char* label, bool executable) {
  BufferOptions options;
  options.place = Place::kSystem;
  options.caching = Caching::kUncached;
  options.executable = executable;
  options.label = label;
  return options;
}

void RingEnd::Ring() {
  if (written_ == rung_.load(std::memory_order_relaxed)) return;
  rung_.store(written_, std::memory_order_relaxed);
  // The copy in memory is what the GPU reads when the queue comes back from preemption: it must
  // never be behind the doorbell.
  std::atomic_ref<uint64_t>(*write_).store(written_, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // One 64-bit store.
  std::atomic_ref<uint64_t>(*doorbell_)
      .store(kind_ == Doorbell::kLastIndex ? written_ - 1 : written_, std::memory_order_release);
}

Status RingEnd::WaitForRoom(Device& device, uint64_t more, Deadline deadline,
                            absl::FunctionRef<Status()> health,
                            absl::FunctionRef<std::string()> what) {
  if (Fits(more)) return {};
  Ring();
  return WaitUntil(
      device, nullptr, deadline,
      [&]() -> StatusOr<bool> {
        RETURN_IF_ERROR(health());
        return Fits(more);
      },
      what);
}

Status WaitForPoint(Device& device, Timeline& timeline, const char* label, uint64_t point,
                    Deadline deadline, absl::FunctionRef<Status()> health,
                    absl::FunctionRef<std::string()> describe) {
  if (point > timeline.issued()) {
    return Error(Code::kInvalidArgument, label, ": point ", point,
                 " was never issued, the last is ", timeline.issued());
  }
  return WaitUntil(
      device, &timeline.event(), deadline,
      [&]() -> StatusOr<bool> {
        if (timeline.Reached(point)) return true;
        RETURN_IF_ERROR(health());
        return false;
      },
      [&] { return absl::StrCat("point ", point, " of ", describe()); });
}

void DestroyInDriver(Process& process, uint32_t queue_id) {
  if (!process.in_opener()) return;
  const Status status = process.kfd().DestroyQueue(queue_id);
  if (status.ok()) return;
  process.log().Write(LogLevel::kWarning, "release: ", status.message());
  process.kfd().DestroyQueue(queue_id).IgnoreError();
}

}  // namespace mainarch::gpu
