// SPDX-License-Identifier: MIT
#include "gpu/event.h"

#include <errno.h>

#include "gpu/process.h"

namespace mainarch::gpu {

namespace uapi = kfd::uapi;

StatusOr<Event> Event::Create(Process& process, uint32_t type, uint64_t page_handle,
                              uint64_t page) {
  uapi::CreateEventArgs args = {};
  args.event_page_offset = page_handle;
  args.event_type = type;
  args.auto_reset = 1;
  RETURN_IF_ERROR(process.kfd().CreateEvent(&args));
  Event event;
  event.process_ = &process;
  event.id_ = args.event_id;
  if (page != 0 && type == uapi::kEventSignal) {
    event.mailbox_ = page + uint64_t{args.event_slot_index} * sizeof(uint64_t);
  }
  return event;
}

Event& Event::operator=(Event&& other) noexcept {
  if (this == &other) return *this;
  Release().IgnoreError();
  process_ = std::exchange(other.process_, nullptr);
  id_ = std::exchange(other.id_, 0);
  mailbox_ = std::exchange(other.mailbox_, 0);
  return *this;
}

StatusOr<bool> Event::Wait(uint32_t timeout_ms) {
  uapi::EventData data = {};
  data.event_id = id_;
  return process_->kfd().WaitEvents(absl::MakeSpan(&data, 1), false, timeout_ms);
}

Status Event::Set() { return process_->kfd().SetEvent(id_); }

Status Event::Release() {
  if (process_ == nullptr) return {};
  Process& process = *std::exchange(process_, nullptr);
  if (!process.in_opener()) return {};
  Status status = process.kfd().DestroyEvent(id_);
  if (!status.ok()) {
    process.log().Write(LogLevel::kWarning, "release: ", status.message());
    status = process.kfd().DestroyEvent(id_);
  }
  return status;
}

}  // namespace mainarch::gpu
