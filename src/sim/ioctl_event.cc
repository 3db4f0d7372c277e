// SPDX-License-Identifier: MIT
//
// Event calls of the driver.
#include <cerrno>
#include <vector>

#include "sim/process.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

constexpr uint32_t kMostWaited = 65536;
constexpr uint64_t kDriverPageBytes = 256 * 8;

}  // namespace

int Process::SetEventPage(uint64_t handle) {
  if (events_.has_page()) return -EINVAL;
  bool gpu_known = false;
  const std::shared_ptr<Buffer> buffer = Find(handle, &gpu_known);
  if (buffer == nullptr || buffer->block.size() == 0) return -EINVAL;
  if ((buffer->flags & uapi::kAllocGtt) == 0 || buffer->size < uapi::kEventPageSize) {
    return -EINVAL;
  }
  event_page_handle_ = handle;
  events_.SetPage(buffer->host, uapi::kSignalEventLimit);
  return 0;
}

int Process::CreateEvent(uapi::CreateEventArgs& args) {
  if (args.event_page_offset != 0) {
    if (const int error = SetEventPage(args.event_page_offset); error != 0) return error;
  } else if (!events_.has_page()) {
    StatusOr<Block> page = node_->arena().Allocate(kDriverPageBytes);
    if (!page.ok()) return -ENOMEM;
    driver_event_page_ = *std::move(page);
    events_.SetPage(driver_event_page_.data(), kDriverPageBytes / 8);
  }
  if (const int error = events_.Create(args.event_type, args.auto_reset != 0, &args.event_id,
                                       &args.event_slot_index);
      error != 0) {
    return error;
  }
  args.event_trigger_data = args.event_id;
  args.event_page_offset = uint64_t{uapi::kMmapTypeEvents} << uapi::kMmapTypeShift;
  return 0;
}

int Process::WaitEvents(uapi::WaitEventsArgs& args) {
  if (args.num_events > kMostWaited) return -ENOMEM;
  std::vector<uapi::EventData> events(args.num_events);
  const size_t bytes = events.size() * sizeof(events[0]);
  if (!CopyFromUser(events.data(), args.events_ptr, bytes)) return -EFAULT;
  const int result = events_.Wait(absl::MakeSpan(events), args.wait_for_all != 0, &args.timeout,
                                  &args.wait_result);
  if (result == 0 && args.wait_result == uapi::kWaitComplete &&
      !CopyToUser(args.events_ptr, events.data(), bytes)) {
    return -EFAULT;
  }
  return result;
}

}  // namespace mainarch::sim
