// SPDX-License-Identifier: MIT
#include "gpu/copy_queue.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/process.h"

namespace mainarch::gpu {
namespace {

namespace uapi = kfd::uapi;

constexpr uint32_t kMinRing = 4096;
constexpr uint32_t kMaxRing = 16 << 20;
constexpr uint64_t kPage = 4096;
// The read pointer is a multiple of a packet and the ring must never look empty when it is full.
constexpr uint64_t kGap = 64;
constexpr uint64_t kWriteOffset = 0x38;
constexpr uint64_t kReadOffset = 0x80;  // on another cache line
// A fence, another, a trap, and the padding that one of them may need at the end of the ring.
constexpr uint64_t kSignalBytes = (4 + 4 + 2 + 4) * sizeof(uint32_t);

uint64_t* WordAt(const Buffer& buffer, uint64_t offset) {
  return buffer.host<uint64_t>() + offset / sizeof(uint64_t);
}

bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

int32_t LowestBit(uint64_t mask) { return __builtin_ctzll(mask); }

Status CheckOptions(const Device& device, const CopyQueueOptions& o) {
  if (!IsPowerOfTwo(o.ring_bytes) || o.ring_bytes < kMinRing || o.ring_bytes > kMaxRing) {
    return Error(Code::kInvalidArgument, o.label, ": ring of ", o.ring_bytes,
                 " bytes, must be a power of two from ", kMinRing, " to ", kMaxRing);
  }
  const kfd::NodeProperties& p = device.node().properties;
  const int64_t engines = static_cast<int64_t>(p.num_sdma_engines + p.num_sdma_xgmi_engines);
  if (o.engine < kAnyEngine || o.engine >= engines) {
    return Error(Code::kInvalidArgument, o.label, ": engine ", o.engine, ", ", device.name(),
                 " has ", engines);
  }
  return {};
}

// Errors that mean "not this engine", after which the class is asked for.
bool EngineRefused(const Status& status) {
  switch (ErrnoOf(status)) {
    case uapi::kErrnoNotSupported:  // before KFD 1.17
    case EOPNOTSUPP:
    case EINVAL:
    case ENOMEM:  // its eight queues are taken
      return true;
    default:
      return false;
  }
}

}  // namespace

int32_t PeerEngine(const Device& from, const Device& to) {
  const kfd::Link* link = from.node().LinkTo(to.node().index);
  if (link == nullptr || !IsPowerOfTwo(link->recommended_sdma_engine_id_mask)) return kAnyEngine;
  return LowestBit(link->recommended_sdma_engine_id_mask);
}

int32_t HostEngine(const Device& device, Direction direction) {
  const kfd::NodeProperties& p = device.node().properties;
  if (p.num_sdma_xgmi_engines == 0 || p.num_sdma_engines == 0) return kAnyEngine;
  // The reverse of the engines' own order is the faster one on these chips.
  const uint64_t nominal = direction == Direction::kToDevice ? 0 : 1;
  return static_cast<int32_t>((nominal + 1) % p.num_sdma_engines);
}

StatusOr<std::unique_ptr<CopyQueue>> CopyQueue::Create(Device& device,
                                                       const CopyQueueOptions& options) {
  RETURN_IF_ERROR(CheckOptions(device, options));
  RETURN_IF_ERROR(device.Health());
  std::unique_ptr<CopyQueue> queue(new CopyQueue(device, options));
  Status status = queue->AllocateMemory();
  if (status.ok()) status = queue->Start();
  if (!status.ok()) {
    return WithContext(status, absl::StrCat(options.label, " on ", device.name()));
  }
  device.AddWaiter(&queue->timeline_.event());
  return queue;
}

Status CopyQueue::AllocateMemory() {
  ASSIGN_OR_RETURN(timeline_, Timeline::Create(device_, Timeline::Kind::kFence));
  ASSIGN_OR_RETURN(ring_,
                   Buffer::Allocate(device_, options_.ring_bytes, SharedWords("sdma ring", true)));
  ASSIGN_OR_RETURN(pointers_, Buffer::Allocate(device_, kPage, SharedWords("sdma pointers", true)));
  memset(ring_.host(), 0, ring_.size());
  memset(pointers_.host(), 0, pointers_.size());
  end_.Attach(WordAt(pointers_, kReadOffset), WordAt(pointers_, kWriteOffset),
              options_.ring_bytes - kGap);
  return {};
}

Status CopyQueue::Start() {
  uapi::CreateQueueArgs args = {};
  args.ring_base_address = ring_.va();
  args.write_pointer_address = pointers_.va() + kWriteOffset;
  args.read_pointer_address = pointers_.va() + kReadOffset;
  args.ring_size = options_.ring_bytes;
  args.gpu_id = device_.gpu_id();
  args.queue_percentage = uapi::kMaxQueuePercentage;
  kfd::Kfd& kfd = device_.process().kfd();
  const kfd::NodeProperties& p = device_.node().properties;
  Status status;
  if (options_.engine != kAnyEngine) {
    args.queue_type = uapi::kQueueTypeSdmaByEngId;
    args.sdma_engine_id = static_cast<uint32_t>(options_.engine);
    status = kfd.CreateQueue(&args);
    if (status.ok()) engine_ = options_.engine;
  }
  if (options_.engine == kAnyEngine || EngineRefused(status)) {
    if (!status.ok()) {
      device_.process().log().Write(LogLevel::kInfo, "any engine instead: ", status.message());
    }
    const bool xgmi = options_.engine == kAnyEngine
                          ? options_.xgmi_class
                          : static_cast<uint64_t>(options_.engine) >= p.num_sdma_engines;
    args.queue_type =
        xgmi && p.num_sdma_xgmi_engines > 0 ? uapi::kQueueTypeSdmaXgmi : uapi::kQueueTypeSdma;
    args.sdma_engine_id = 0;
    status = kfd.CreateQueue(&args);
  }
  RETURN_IF_ERROR(status);
  started_ = true;
  queue_id_ = args.queue_id;
  ASSIGN_OR_RETURN(uint64_t* const doorbell, device_.Doorbell(args.doorbell_offset));
  end_.set_doorbell(doorbell);
  return {};
}

CopyQueue::~CopyQueue() {
  device_.RemoveWaiter(&timeline_.event());
  Halt();
}

void CopyQueue::Halt() {
  if (std::exchange(started_, false)) DestroyInDriver(device_.process(), queue_id_);
}

Status CopyQueue::WaitForSpace(uint64_t bytes, Deadline deadline) {
  return end_.WaitForRoom(
      device_, bytes, deadline, [] { return Status(); },
      [&] { return absl::StrCat(bytes, " bytes in the ring of ", Describe()); });
}

void CopyQueue::PadToEnd() {
  const uint64_t offset = end_.written() & (options_.ring_bytes - 1);
  const uint64_t rest = options_.ring_bytes - offset;
  memset(ring_.host() + offset, 0, rest);  // a zero dword is a no-op
  end_.Advance(rest);
}

Status CopyQueue::Emit(absl::Span<const uint32_t> packet, Deadline deadline) {
  const uint64_t bytes = packet.size() * sizeof(uint32_t);
  const uint64_t rest = options_.ring_bytes - (end_.written() & (options_.ring_bytes - 1));
  // No packet may straddle the end of the ring.
  const uint64_t padding = bytes > rest ? rest : 0;
  RETURN_IF_ERROR(WaitForSpace(bytes + padding, deadline));
  if (padding != 0) PadToEnd();
  memcpy(ring_.host() + (end_.written() & (options_.ring_bytes - 1)), packet.data(), bytes);
  end_.Advance(bytes);
  return {};
}

Status CopyQueue::CheckAligned(const char* what, uint64_t address, uint64_t multiple) const {
  if (address % multiple == 0) return {};
  return Error(Code::kInvalidArgument, options_.label, ": ", what, " 0x", absl::Hex(address),
               ", must be a multiple of ", multiple);
}

Status CopyQueue::Copy(uint64_t to, uint64_t from, uint64_t bytes, Deadline deadline) {
  RETURN_IF_ERROR(device_.Health());
  while (bytes > 0) {
    const uint64_t part = std::min(bytes, kSdmaMaxBytes);
    RETURN_IF_ERROR(Emit(MakeCopy(to, from, part), deadline));
    to += part;
    from += part;
    bytes -= part;
  }
  return {};
}

Status CopyQueue::Fill(uint64_t to, uint32_t value, uint64_t bytes, Deadline deadline) {
  RETURN_IF_ERROR(device_.Health());
  if ((to | bytes) % 4 != 0) {
    return Error(Code::kInvalidArgument, options_.label, ": fill of ", bytes, " bytes at 0x",
                 absl::Hex(to), ", both must be multiples of 4");
  }
  while (bytes > 0) {
    const uint64_t part = std::min(bytes, kSdmaMaxBytes);
    RETURN_IF_ERROR(Emit(MakeFill(to, value, part), deadline));
    to += part;
    bytes -= part;
  }
  return {};
}

Status CopyQueue::Fence(uint64_t address, uint32_t value, Deadline deadline) {
  RETURN_IF_ERROR(device_.Health());
  RETURN_IF_ERROR(CheckAligned("fence at", address, 4));
  return Emit(MakeFence(address, value), deadline);
}

Status CopyQueue::AtomicAdd(uint64_t address, int64_t addend, Deadline deadline) {
  RETURN_IF_ERROR(device_.Health());
  RETURN_IF_ERROR(CheckAligned("atomic at", address, 8));
  return Emit(MakeAtomicAdd64(address, addend), deadline);
}

Status CopyQueue::Poll(uint64_t address, uint32_t reference, uint32_t mask, PollFunction function,
                       Deadline deadline) {
  RETURN_IF_ERROR(device_.Health());
  RETURN_IF_ERROR(CheckAligned("poll of", address, 4));
  return Emit(MakePoll(address, reference, mask, function), deadline);
}

Status CopyQueue::WaitFor(const Timeline& timeline, uint64_t point, Deadline deadline) {
  RETURN_IF_ERROR(device_.Health());
  ASSIGN_OR_RETURN(const Timeline::Poll poll, PollOrWait(device_, timeline, point, deadline));
  if (poll.function == PollFunction::kAlways) return {};
  return Poll(timeline.value_va(), poll.reference, 0xffffffff, poll.function, deadline);
}

Status CopyQueue::Timestamp(uint64_t address, Deadline deadline) {
  RETURN_IF_ERROR(device_.Health());
  RETURN_IF_ERROR(CheckAligned("timestamp at", address, 32));
  return Emit(MakeTimestamp(address), deadline);
}

Status CopyQueue::FlushHostWrites(Deadline deadline) {
  RETURN_IF_ERROR(device_.Health());
  return Emit(MakeHdpFlush(), deadline);
}

StatusOr<uint64_t> CopyQueue::Submit(Deadline deadline) {
  RETURN_IF_ERROR(device_.Health());
  // All of the signal or none: a point that was issued and never signalled would end all waiting.
  const Event& event = timeline_.event();
  RETURN_IF_ERROR(WaitForSpace(kSignalBytes, deadline));
  const uint64_t point = timeline_.Issue();
  RETURN_IF_ERROR(Emit(MakeFence(timeline_.value_va(), static_cast<uint32_t>(point)), deadline));
  if (event.mailbox() != 0) {
    RETURN_IF_ERROR(Emit(MakeFence(event.mailbox(), event.id()), deadline));
    RETURN_IF_ERROR(Emit(MakeTrap(event.id()), deadline));
  }
  end_.Ring();
  return point;
}

Status CopyQueue::Wait(uint64_t point, Deadline deadline) {
  return WaitForPoint(
      device_, timeline_, options_.label, point, deadline, [] { return Status(); },
      [&] { return Describe(); });
}

std::string CopyQueue::Describe() const {
  const std::string engine =
      engine_ == kAnyEngine ? "any engine" : absl::StrCat("engine ", engine_);
  return absl::StrCat(options_.label, " ", queue_id_, " (", engine, ") of ", device_.name(),
                      " (timeline ", timeline_.Completed(), " of ", timeline_.issued(),
                      ", bytes read ", end_.read(), " of ", end_.rung(), " rung)");
}

}  // namespace mainarch::gpu
