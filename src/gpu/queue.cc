// SPDX-License-Identifier: MIT
#include "gpu/queue.h"

#include <errno.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/fault.h"
#include "gpu/pm4.h"
#include "gpu/process.h"

namespace mainarch::gpu {
namespace {

namespace uapi = kfd::uapi;

constexpr uint32_t kMinPackets = 64;  // one page
constexpr uint32_t kMaxPackets = 131072;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kEopSize = 4096;  // the only size that kernels of all ages accept

Status CheckOptions(const QueueOptions& o) {
  if (o.packets < kMinPackets || o.packets > kMaxPackets || (o.packets & (o.packets - 1)) != 0) {
    return Error(Code::kInvalidArgument, o.label, ": ", o.packets,
                 " packets, must be a power of two from ", kMinPackets, " to ", kMaxPackets);
  }
  if (o.priority > uapi::kMaxQueuePriority) {
    return Error(Code::kInvalidArgument, o.label, ": priority ", o.priority, ", must be 0..",
                 uapi::kMaxQueuePriority);
  }
  return {};
}

}  // namespace

StatusOr<std::unique_ptr<Queue>> Queue::Create(Device& device, const QueueOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(device.Health());
  std::unique_ptr<Queue> queue(new Queue(device, options));
  Status status = queue->AllocateMemory();
  if (status.ok()) status = queue->FillDescriptor();
  if (status.ok()) status = queue->FillSaveAreaHeaders();
  if (status.ok()) status = queue->Start();
  if (!status.ok()) {
    return WithContext(status, absl::StrCat(options.label, " on ", device.name()));
  }
  device.AddWaiter(&queue->timeline_.event());
  return queue;
}

Status Queue::AllocateMemory() {
  sizes_ = ChooseSaveArea(device_.node().properties);
  ASSIGN_OR_RETURN(timeline_, Timeline::Create(device_, Timeline::Kind::kSignal));
  ASSIGN_OR_RETURN(error_, device_.NewSignal());
  ASSIGN_OR_RETURN(exception_, device_.NewSignal());
  ASSIGN_OR_RETURN(ring_, Buffer::Allocate(device_, uint64_t{options_.packets} * kAqlPacketSize,
                                           SharedWords("aql ring", true)));
  ASSIGN_OR_RETURN(control_,
                   Buffer::Allocate(device_, kPage, SharedWords("queue descriptor", false)));
  BufferOptions vram;
  vram.label = "end-of-pipe buffer";
  ASSIGN_OR_RETURN(eop_, Buffer::Allocate(device_, kEopSize, vram));
  // In VRAM, where preemption is fast; the CPU writes its headers once.
  BufferOptions save;
  save.label = "context save area";
  if (device_.node().vram_is_host_visible()) {
    save.host_access = true;
  } else {
    save.place = Place::kSystem;
  }
  ASSIGN_OR_RETURN(save_area_, Buffer::Allocate(device_, sizes_.total, save));
  return {};
}

Status Queue::FillDescriptor() {
  for (uint32_t i = 0; i < options_.packets; ++i) {
    ring_.host<uint32_t>()[i * (kAqlPacketSize / 4)] = kAqlEmptySlot;
  }
  const kfd::NodeProperties& p = device_.node().properties;
  QueueDescriptor* d = descriptor();
  memset(static_cast<void*>(d), 0, kPage);
  end_.Attach(&d->read_dispatch_id, &d->write_dispatch_id, options_.packets);
  d->group_segment_aperture_base_hi = 0x00010000;
  d->private_segment_aperture_base_hi = 0x00020000;
  d->max_cu_id = ComputeUnits(p) - 1;
  d->max_wave_id = MaxWavesPerCu(p) - 1;
  d->read_dispatch_id_field_base_byte_offset = offsetof(QueueDescriptor, read_dispatch_id);
  d->queue_properties = kQueueIsPtr64 | (options_.profile ? kQueueEnableProfiling : 0);
  // Without it the command processor stops at a bad packet and tells nobody.
  d->queue_inactive_signal = error_.va();
  error_.get()->event_mailbox = timeline_.event().mailbox();
  error_.get()->event_id = timeline_.event().id();
  if (options_.scratch_bytes_per_lane == 0) return {};
  const ScratchSizes scratch =
      ComputeScratch(p, options_.scratch_bytes_per_lane, options_.scratch_limit_bytes);
  if (scratch.total == 0) {
    return Error(Code::kInvalidArgument, "scratch of ", options_.scratch_bytes_per_lane,
                 " bytes a work-item does not fit ", options_.scratch_limit_bytes, " bytes");
  }
  BufferOptions vram;
  vram.label = "scratch";
  ASSIGN_OR_RETURN(scratch_, Buffer::Allocate(device_, scratch.total, vram));
  d->compute_tmpring_size = scratch.tmpring;
  d->scratch_resource_descriptor[0] = static_cast<uint32_t>(scratch_.va());
  d->scratch_resource_descriptor[1] =
      (static_cast<uint32_t>(scratch_.va() >> 32) & 0xffff) | 1u << 31;  // swizzled
  d->scratch_resource_descriptor[2] = static_cast<uint32_t>(scratch.per_xcc);
  d->scratch_resource_descriptor[3] = 0x00EA4FAC;
  d->scratch_backing_memory_location = scratch_.va();
  d->scratch_backing_memory_byte_size = scratch.total;
  d->scratch_wave64_lane_byte_size = scratch.bytes_per_lane;
  return {};
}

Status Queue::FillSaveAreaHeaders() {
  const uint64_t xccs = device_.node().properties.num_xcc;
  for (uint64_t i = 0; i < xccs; ++i) {
    uapi::CwsrHeader header = {};
    header.debug_offset = static_cast<uint32_t>((xccs - i) * sizes_.save_restore);
    header.debug_size = static_cast<uint32_t>(sizes_.debug * xccs);
    header.err_payload_addr = exception_.va() + offsetof(Signal, value);
    header.err_event_id = timeline_.event().id();
    memcpy(save_area_.host() + i * sizes_.save_restore, &header, sizeof header);
  }
  if (!device_.node().vram_is_host_visible()) return {};
  const Status flushed = device_.FlushHostWrites();
  // Without the flush page the headers reach memory later than they might, still before any fault.
  if (!flushed.ok()) {
    device_.process().log().Write(LogLevel::kInfo, "no hdp flush: ", flushed.message());
  }
  return {};
}

Status Queue::Start() {
  uapi::CreateQueueArgs args = {};
  args.ring_base_address = ring_.va();
  args.write_pointer_address = control_.va() + offsetof(QueueDescriptor, write_dispatch_id);
  args.read_pointer_address = control_.va() + offsetof(QueueDescriptor, read_dispatch_id);
  args.ring_size = static_cast<uint32_t>(ring_.size());
  args.gpu_id = device_.gpu_id();
  args.queue_type = uapi::kQueueTypeComputeAql;
  args.queue_percentage = uapi::kMaxQueuePercentage;
  args.queue_priority = options_.priority;
  args.eop_buffer_address = eop_.va();
  args.eop_buffer_size = kEopSize;
  args.ctx_save_restore_address = save_area_.va();
  args.ctx_save_restore_size = sizes_.save_restore;
  args.ctl_stack_size = sizes_.control_stack;
  const Status created = device_.process().kfd().CreateQueue(&args);
  if (ErrnoOf(created) == EINVAL) {
    const SaveAreaSizes formula = ComputeSaveArea(device_.node().properties);
    return WithContext(
        created,
        absl::StrCat("save area ", sizes_.from_sysfs ? "by sysfs" : "by formula",
                     ": control stack ", sizes_.control_stack, ", an xcc ", sizes_.save_restore,
                     ", whole ", sizes_.total, " (the formula says ", formula.control_stack, ", ",
                     formula.save_restore, ", ", formula.total, ")"));
  }
  RETURN_IF_ERROR(created);
  started_ = true;
  queue_id_ = args.queue_id;
  ASSIGN_OR_RETURN(uint64_t* const doorbell, device_.Doorbell(args.doorbell_offset));
  end_.set_doorbell(doorbell);
  return {};
}

Queue::~Queue() {
  device_.RemoveWaiter(&timeline_.event());
  Halt();
}

void Queue::Halt() {
  if (std::exchange(started_, false)) DestroyInDriver(device_.process(), queue_id_);
}

Status Queue::Submit(const AqlPacket& packet, const char* label, const Deadline& deadline) {
  if (!device_.healthy()) return device_.Health();
  if (!end_.Fits(1)) RETURN_IF_ERROR(WaitForSlot(deadline));
  Put(packet, label);
  return {};
}

void Queue::Put(const AqlPacket& packet, const char* label) {
  const uint64_t index = end_.written();
  uint32_t* slot = ring_.host<uint32_t>() +
                   (index & (options_.packets - 1)) * (kAqlPacketSize / sizeof(uint32_t));
  memcpy(slot + 1, packet.dword + 1, kAqlPacketSize - sizeof(uint32_t));
  // The GPU may be looking at this slot already: its header turns it from empty to valid, so header
  // and setup go last, in one store that nothing above may pass.
  std::atomic_ref<uint32_t>(slot[0]).store(packet.dword[0], std::memory_order_release);
  labels_[index % kRemembered].store(label, std::memory_order_relaxed);
  end_.Advance(1);
}

Status Queue::WaitForSlot(Deadline deadline) {
  return end_.WaitForRoom(
      device_, 1, deadline, [&] { return Health(); },
      [&] { return absl::StrCat("a free slot in the ring of ", Describe()); });
}

StatusOr<uint64_t> Queue::SubmitSignalled(AqlPacket packet, const char* label, const Deadline& deadline) {
  // Points complete in order only if each waits for everything before it.
  packet.dword[0] |= 1u << 8;
  packet.SetQword(56, timeline_.signal_va());
  const uint64_t point = timeline_.Issue();
  const Status status = Submit(packet, label, deadline);
  if (!status.ok()) {
    timeline_.TakeBack();
    return status;
  }
  return point;
}

Status Queue::WaitFor(const Timeline& timeline, uint64_t point, Deadline deadline) {
  RETURN_IF_ERROR(device_.Health());
  ASSIGN_OR_RETURN(const Timeline::Poll poll, PollOrWait(device_, timeline, point, deadline));
  if (poll.function == PollFunction::kAlways) return {};
  return Submit(timeline.BarrierOn(poll, {}), "wait for another queue", deadline);
}

Status Queue::Wait(uint64_t point, Deadline deadline) {
  return WaitForPoint(
      device_, timeline_, options_.label, point, deadline, [&] { return Health(); },
      [&] { return Describe(); });
}

Status Queue::InvalidateCode(uint64_t address, uint64_t size, Deadline deadline) {
  if (!indirect_.valid()) {
    ASSIGN_OR_RETURN(indirect_,
                     Buffer::Allocate(device_, kPage, SharedWords("indirect buffer", true)));
  }
  const auto command = MakeInstructionInvalidate(address, size);
  memcpy(indirect_.host(), command.data(), sizeof command);
  ASSIGN_OR_RETURN(const uint64_t point,
                   SubmitSignalled(MakePm4Indirect(indirect_.va(), command.size(), {}),
                                   "instruction cache invalidation", deadline));
  Ring();
  return Wait(point, deadline);
}

Status Queue::Health() const {
  const uint64_t error = static_cast<uint64_t>(error_.Value());
  if (StopsQueue(error, device_.process().has_queue_exceptions())) {
    return WithDevice(Error(Code::kDeviceLost, Describe(),
                            " was stopped by the GPU: ", DescribeQueueError(error)),
                      device_.index());
  }
  if (const int64_t exception = exception_.Value(); exception != 0) {
    return WithDevice(Error(Code::kDeviceLost, Describe(), " was stopped by the driver: ",
                            DescribeQueueExceptions(static_cast<uint64_t>(exception))),
                      device_.index());
  }
  return {};
}

std::string Queue::Describe() const {
  const uint64_t rung = end_.rung();
  const char* last =
      rung == 0 ? nullptr : labels_[(rung - 1) % kRemembered].load(std::memory_order_relaxed);
  return absl::StrCat(options_.label, " ", queue_id_, " of ", device_.name(), " (timeline ",
                      timeline_.Completed(), " of ", timeline_.issued(), ", packets read ",
                      end_.read(), " of ", rung, " rung, last \"", last == nullptr ? "" : last,
                      "\")");
}

}  // namespace mainarch::gpu
