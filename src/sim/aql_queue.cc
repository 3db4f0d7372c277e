// SPDX-License-Identifier: MIT
#include "sim/aql_queue.h"

#include <algorithm>
#include <cstring>

namespace mainarch::sim {
namespace {

// Packet types and layout offsets (reference: AQL).
constexpr uint8_t kVendorSpecific = 0;
constexpr uint8_t kInvalid = 1;
constexpr uint8_t kKernelDispatch = 2;
constexpr uint8_t kBarrierAnd = 3;
constexpr uint8_t kBarrierOr = 5;
constexpr uint16_t kBarrierBit = 1 << 8;
constexpr uint32_t kNoScope = 3;  // what two bits can say beyond the three fence scopes
constexpr uint32_t kIbJump = 0xc0023f00;
constexpr uint32_t kIbValid = 1u << 23;
constexpr size_t kCompletionSignal = 56;

// amd_signal_t
constexpr uint64_t kSignalValue = 8, kSignalMailbox = 16, kSignalEvent = 24, kSignalStart = 32,
                   kSignalEnd = 40;
// amd_queue_t
constexpr uint64_t kQueueReadIdBase = 0x88, kQueueTmpring = 0x8c, kQueueScratchVa = 0xa0,
                   kQueueScratchBytes = 0xa8, kQueueLaneBytes = 0xb0, kQueueProperties = 0xb4,
                   kQueueInactiveSignal = 0xc0;
constexpr uint64_t kReadIdOffset = 0x80;
constexpr uint32_t kPropertyProfiling = 1 << 3;

constexpr size_t kMostRunning = 8;  // dispatches of one queue at the same time
constexpr int kPacketsPerStep = 4;
constexpr uint64_t kSliceBudget = 4096;  // wave-instructions

// The kernel's number of an error, for a runtime that is told through its save area.
uint32_t ExceptionCodeOf(QueueError error) {
  switch (error) {
    case QueueError::kDims:
      return 16;
    case QueueError::kGroupMemory:
      return 17;
    case QueueError::kCode:
      return 18;
    case QueueError::kWorkgroup:
      return 21;
    case QueueError::kRegisters:
      return 22;
    case QueueError::kVendorPacket:
      return 23;
    default:
      return 20;  // unsupported packet
  }
}

bool PicksInvalidation(const NodeConfig& config, Rng& rng) {
  if (config.invalidate_slots == NodeConfig::Invalidate::kRandom) return rng.OneIn(2);
  return config.invalidate_slots == NodeConfig::Invalidate::kAlways;
}

}  // namespace

template <class T>
T AqlQueue::Packet::At(size_t offset) const {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

AqlQueue::AqlQueue(const Setup& setup)
    : HwQueue(setup),
      invalidate_(PicksInvalidation(setup.host->config(), rng_)),
      pm4_compute_(setup) {}

void AqlQueue::Drop() {
  running_.clear();
  front_.reset();
  pm4_.reset();
  pm4_compute_.Drop();
}

bool AqlQueue::Step() {
  if (state_ != State::kActive) {
    // A hung queue keeps its waves; the others have lost them.
    if (state_ != State::kHung && state_ != State::kSuspended) Drop();
    return state_ == State::kHung && RunLaunches();
  }
  bool moved = PollDoorbell();
  if (state_ == State::kActive) moved |= RunLaunches();
  if (state_ == State::kActive && front_) moved |= StepFront();
  if (state_ == State::kActive && !front_) moved |= TakePackets();
  if (state_ == State::kActive) moved |= ReportReadIndex();
  return moved;
}

bool AqlQueue::PollDoorbell() {
  uint64_t last = 0;
  if (!TakeDoorbell(&last)) return false;
  if (last + 1 <= announced_) {
    // Producers that share a queue may ring out of order; what was announced stays announced.
    if (last + 1 < announced_) {
      host().Note(absl::StrCat("compute queue ", id(), ": doorbell went back to ", last, " from ",
                               announced_ - 1));
    }
    return true;
  }
  uint64_t written = 0;
  MemoryFault fault;
  if (!bus_.Load64(setup_.write_va, &written, &fault)) return Fault(fault);
  if (written < last + 1) {
    Hang(absl::StrCat("doorbell announces packet ", last, " but write_dispatch_id is ", written,
                      " (the doorbell takes the index of the last packet)"));
    return true;
  }
  if (last + 1 - completed_ > packets()) {
    Hang(absl::StrCat("doorbell announces packet ", last, " while packet ", completed_,
                      " is not complete: the ring holds ", packets()));
    return true;
  }
  announced_ = last + 1;
  return true;
}

bool AqlQueue::TakePackets() {
  uint64_t limit = announced_;
  if (host().config().early_fetch && rng_.OneIn(4)) {
    // As when the queue is mapped again after a preemption: the write index comes from memory.
    uint64_t written = 0;
    MemoryFault fault;
    if (!bus_.Load64(setup_.write_va, &written, &fault)) return Fault(fault);
    if (written > limit && written - completed_ <= packets()) limit = written;
  }
  bool moved = false;
  for (int i = 0; i < kPacketsPerStep && state_ == State::kActive && !front_; ++i) {
    const Taken taken = TakeOne(limit);
    moved |= taken != Taken::kNo;
    if (taken != Taken::kYes) break;
  }
  return moved;
}

AqlQueue::Taken AqlQueue::TakeOne(uint64_t limit) {
  if (next_ >= limit || running_.size() >= kMostRunning) return Taken::kNo;
  const uint64_t slot = setup_.ring_va + next_ % packets() * 64;
  uint32_t word = 0;
  MemoryFault fault;
  if (!bus_.Load32(slot, &word, &fault)) return Fault(fault), Taken::kStop;
  if ((word & 0xff) == kInvalid) {
    // Whoever rang for this packet has published it, so nothing will.
    if (next_ + 1 == announced_) {
      Hang(absl::StrCat("doorbell announces packet ", next_, " but its header is INVALID"));
      return Taken::kStop;
    }
    return Taken::kNo;
  }
  if ((word & kBarrierBit) != 0 && completed_ != next_) return Taken::kNo;
  Packet packet;
  packet.index = next_;
  if (!bus_.Read(slot, packet.bytes.data(), 64, &fault)) return Fault(fault), Taken::kStop;
  std::memcpy(packet.bytes.data(), &word, 4);
  // A dispatch stays readable until it starts: AMD's runtime looks for the packet that wants
  // scratch in the ring.
  if (packet.type() != kKernelDispatch && !Invalidate(packet)) return Taken::kStop;
  ++next_;
  const Trouble trouble = host().script().OnPacket(host().context().gpu_index());
  if (trouble != Trouble::kNone && !Meet(trouble, packet)) return Taken::kStop;
  Begin(packet);
  return state_ == State::kActive ? Taken::kYes : Taken::kStop;
}

// Its slot may be written again. False after a fault.
bool AqlQueue::Invalidate(const Packet& packet) {
  if (!invalidate_) return true;
  MemoryFault fault;
  const uint64_t slot = setup_.ring_va + packet.index % packets() * 64;
  if (bus_.Store32(slot, (packet.At<uint32_t>(0) & 0xffff0000) | kInvalid, &fault)) return true;
  return Fault(fault), false;
}

// True when the packet shall run nonetheless.
bool AqlQueue::Meet(Trouble trouble, const Packet& packet) {
  if (trouble == Trouble::kFault) {
    MemoryFault fault;
    fault.va = packet.At<uint64_t>(40) & ~uint64_t{4095};
    fault.not_present = true;
    Fault(fault);
  } else if (trouble == Trouble::kHang) {
    stuck_ = true;
    Hang(absl::StrCat("packet ", packet.index, " never ends, as the fault script says"));
  } else {
    host().OnTrouble(*this, trouble);
  }
  return false;
}

bool AqlQueue::Begin(const Packet& packet) {
  if (packet.header() >> 13 != 0) {
    return Fail(QueueError::kPacket,
                absl::StrCat("packet ", packet.index, ": header ", absl::Hex(packet.header()),
                             " has reserved bits set"));
  }
  if (packet.acquire_bits() == kNoScope || packet.release_bits() == kNoScope) {
    return Fail(QueueError::kPacket,
                absl::StrCat("packet ", packet.index, ": header ", absl::Hex(packet.header()),
                             " has a fence scope of 3; HSA defines 0 (none) to 2 (system)"));
  }
  switch (packet.type()) {
    case kKernelDispatch:
      return BeginDispatch(packet);
    case kBarrierAnd:
    case kBarrierOr:
      front_ = packet;
      return StepFront();
    case kVendorSpecific:
      return BeginVendor(packet);
    default:
      return Fail(QueueError::kPacket, absl::StrCat("packet ", packet.index, ": type ",
                                                    packet.type(), " is not one to be executed"));
  }
}

bool AqlQueue::BeginVendor(const Packet& packet) {
  const uint8_t format = packet.bytes[2];
  if (format == 2) {
    front_ = packet;
    return StepFront();
  }
  const uint32_t size = packet.At<uint32_t>(16);
  if (format != 1 || packet.At<uint32_t>(4) != kIbJump || (size & kIbValid) == 0) {
    return Fail(QueueError::kVendorPacket,
                absl::StrCat("packet ", packet.index, ": vendor format ", format, " with command ",
                             absl::Hex(packet.At<uint32_t>(4)), " is not a PM4 buffer"));
  }
  front_ = packet;
  pm4_compute_.set_gws(gws());
  pm4_ = std::make_unique<Pm4Stream>(&host(), &pm4_compute_, packet.At<uint64_t>(8) & ~uint64_t{3},
                                     size & 0xfffff, /*depth=*/1);
  return StepFront();
}

// The packet in front: over, or still in the way?
bool AqlQueue::StepFront() {
  MemoryFault fault;
  if (wants_scratch_) {
    const uint64_t queue = QueueVa();
    if (queue == 0) return true;
    uint64_t signal = 0, value = 0;
    if (!bus_.Load64(queue + kQueueInactiveSignal, &signal, &fault) ||
        !bus_.Load64(signal + kSignalValue, &value, &fault)) {
      return Fault(fault);
    }
    if (value != 0) return false;  // the host has not made room yet
    wants_scratch_ = false;
    const Packet packet = *front_;
    front_.reset();
    return BeginDispatch(packet);
  }
  bool over = false;
  if (pm4_ != nullptr) {
    const bool moved = StepPm4(&over);
    if (!over) return moved;
  } else if (!WaitOver(&over)) {
    return true;
  }
  if (!over) return false;
  const Packet packet = *front_;
  front_.reset();
  pm4_.reset();
  const uint64_t now = host().context().Clock();
  return Complete(packet, now, now);
}

// Whether something has moved. The buffer is over when what it dispatched has ended, too.
bool AqlQueue::StepPm4(bool* over) {
  const Progress progress = pm4_compute_.Run();
  for (const std::string& note : progress.notes) host().Note(note);
  if (progress.state == Progress::State::kFault) {
    if (!progress.detail.empty()) host().Note(progress.detail);
    return Fault(progress.fault);
  }
  if (progress.state == Progress::State::kException) {
    host().OnException(*this, progress.exception, progress.detail);
    Hang(absl::StrCat("waves halted: ", progress.detail));
    return true;
  }
  bool moved = progress.state == Progress::State::kRunning;
  MemoryFault fault;
  std::string why;
  const Pm4Stream::Result result = pm4_->Step(&fault, &why, &moved);
  if (result == Pm4Stream::Result::kFault) return Fault(fault);
  if (result == Pm4Stream::Result::kBad) return Fail(QueueError::kVendorPacket, why);
  *over = result == Pm4Stream::Result::kDone && !pm4_compute_.busy();
  return moved;
}

// False after a fault.
bool AqlQueue::WaitOver(bool* over) {
  return front_->type() == kVendorSpecific ? WaitValueOver(over) : WaitSignalsOver(over);
}

bool AqlQueue::WaitValueOver(bool* over) {
  uint64_t value = 0;
  MemoryFault fault;
  const uint64_t signal = front_->At<uint64_t>(8);
  if (signal == 0) return *over = true;
  if (!bus_.Load64(signal + kSignalValue, &value, &fault)) return Fault(fault), false;
  const int64_t masked = static_cast<int64_t>(value & front_->At<uint64_t>(24));
  const int64_t wanted = front_->At<int64_t>(16);
  switch (front_->At<uint32_t>(32)) {
    case 0:
      *over = masked == wanted;
      break;
    case 1:
      *over = masked != wanted;
      break;
    case 2:
      *over = masked < wanted;
      break;
    default:
      *over = masked >= wanted;
      break;
  }
  return true;
}

bool AqlQueue::WaitSignalsOver(bool* over) {
  int signals = 0, zero = 0;
  for (size_t i = 0; i < 5; ++i) {
    const uint64_t signal = front_->At<uint64_t>(8 + 8 * i);
    if (signal == 0) continue;
    uint64_t value = 0;
    MemoryFault fault;
    if (!bus_.Load64(signal + kSignalValue, &value, &fault)) return Fault(fault), false;
    ++signals;
    if (value == 0) ++zero;
  }
  *over = front_->type() == kBarrierAnd ? zero == signals : zero > 0 || signals == 0;
  return true;
}

uint64_t AqlQueue::QueueVa() {
  // The field sits behind the read index and says how far the struct's start is in front of it.
  uint32_t back = 0;
  MemoryFault fault;
  if (!bus_.Load32(setup_.read_va + kQueueReadIdBase - kReadIdOffset, &back, &fault)) {
    Fault(fault);
    return 0;
  }
  return setup_.read_va - back;
}

bool AqlQueue::BeginDispatch(const Packet& packet) {
  Dispatch dispatch;
  if (!CheckDispatch(packet, &dispatch) || !ReadDescriptor(packet, &dispatch) ||
      !CheckScratch(packet, &dispatch) || !Invalidate(packet)) {
    return true;
  }
  Executor& executor = host().executor();
  executor.Acquire(host().context(), dispatch.acquire);
  StatusOr<std::unique_ptr<Launch>> launch = executor.Start(dispatch);
  if (!launch.ok()) {
    host().OnException(*this, WaveException::kIllegalInstruction,
                       std::string(launch.status().message()));
    Hang(absl::StrCat("packet ", packet.index, " cannot be executed: ", launch.status().message()));
    return true;
  }
  running_.push_back({packet, *std::move(launch), host().context().Clock()});
  return true;
}

bool AqlQueue::CheckDispatch(const Packet& packet, Dispatch* dispatch) {
  const std::string name = absl::StrCat("packet ", packet.index, ": ");
  const uint32_t dims = packet.At<uint16_t>(2) & 3;
  if (dims == 0) return Fail(QueueError::kDims, absl::StrCat(name, "setup has no dimensions"));
  uint64_t workgroup_size = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    dispatch->workgroup[i] = packet.At<uint16_t>(4 + 2 * i);
    dispatch->grid[i] = packet.At<uint32_t>(12 + 4 * i);
    workgroup_size *= dispatch->workgroup[i];
    if (dispatch->workgroup[i] == 0 || dispatch->grid[i] == 0) {
      return Fail(QueueError::kDims,
                  absl::StrCat(name, "dimension ", i, " is empty: workgroup ",
                               dispatch->workgroup[i], ", grid ", dispatch->grid[i]));
    }
  }
  if (workgroup_size > 1024) {
    return Fail(QueueError::kWorkgroup,
                absl::StrCat(name, "a workgroup of ", workgroup_size, " exceeds 1024"));
  }
  dispatch->context = &host().context();
  dispatch->dims = dims;
  dispatch->private_segment_bytes = packet.At<uint32_t>(24);
  dispatch->group_segment_bytes = packet.At<uint32_t>(28);
  dispatch->kernel_object_va = packet.At<uint64_t>(32);
  dispatch->kernarg_va = packet.At<uint64_t>(40);
  dispatch->packet_va = setup_.ring_va + packet.index % packets() * 64;
  dispatch->dispatch_id = packet.index;
  dispatch->queue_id = id();
  dispatch->gws = gws();
  dispatch->first_xcc = setup_.first_xcc;
  dispatch->acquire = packet.acquire();
  dispatch->release = packet.release();
  dispatch->barrier = (packet.header() & kBarrierBit) != 0;
  dispatch->seed = rng_.Next();
  const uint32_t lds = host().context().facts().lds_bytes;
  if (dispatch->group_segment_bytes > lds) {
    return Fail(QueueError::kGroupMemory,
                absl::StrCat(name, "group segment of ", dispatch->group_segment_bytes,
                             " bytes exceeds the LDS of ", lds));
  }
  if (dispatch->kernel_object_va == 0 || dispatch->kernel_object_va % 64 != 0) {
    return Fail(QueueError::kCode,
                absl::StrCat(name, "kernel_object ", absl::Hex(dispatch->kernel_object_va),
                             " is no 64-byte aligned descriptor"));
  }
  return true;
}

bool AqlQueue::ReadDescriptor(const Packet& packet, Dispatch* dispatch) {
  const std::string name = absl::StrCat("packet ", packet.index, ": ");
  MemoryFault fault;
  if (!bus_.Read(dispatch->kernel_object_va, dispatch->descriptor.data(), 64, &fault)) {
    Fault(fault);
    return false;
  }
  const auto field = [&](size_t offset) {
    uint32_t value;
    std::memcpy(&value, dispatch->descriptor.data() + offset, 4);
    return value;
  };
  int64_t entry_offset;
  std::memcpy(&entry_offset, dispatch->descriptor.data() + 16, 8);
  dispatch->entry_va = dispatch->kernel_object_va + static_cast<uint64_t>(entry_offset);
  if (entry_offset == 0 || dispatch->entry_va % 256 != 0) {
    return Fail(QueueError::kCode,
                absl::StrCat(name, "kernel entry ", absl::Hex(dispatch->entry_va),
                             " is not 256-byte aligned code"));
  }
  if (field(0) > dispatch->group_segment_bytes) {
    return Fail(QueueError::kGroupMemory,
                absl::StrCat(name, "group segment of ", dispatch->group_segment_bytes,
                             " bytes is below the kernel's static ", field(0)));
  }
  if (field(4) > dispatch->private_segment_bytes) {
    Hang(absl::StrCat(name, "private segment of ", dispatch->private_segment_bytes,
                      " bytes is below the kernel's ", field(4)));
    return false;
  }
  // A SIMD has 512 registers a lane; a workgroup's waves are spread over the CU's SIMDs.
  const uint32_t simds = host().context().facts().simds_per_cu;
  const uint32_t lanes = dispatch->workgroup[0] * dispatch->workgroup[1] * dispatch->workgroup[2];
  const uint32_t waves = ((lanes + 63) / 64 + simds - 1) / simds;
  const uint32_t registers = ((field(48) & 0x3f) + 1) * 8;
  if (registers * waves > 512) {
    return Fail(QueueError::kRegisters, absl::StrCat(name, waves, " waves of ", registers,
                                                     " registers do not fit a SIMD's 512"));
  }
  Window window;
  if (!host().context().Translate(dispatch->entry_va, Access::kExecute, &window, &fault)) {
    Fault(fault);
    return false;
  }
  return true;
}

bool AqlQueue::CheckScratch(const Packet& packet, Dispatch* dispatch) {
  const uint64_t queue = QueueVa();
  if (queue == 0) return false;
  dispatch->queue_va = queue;
  if (dispatch->private_segment_bytes == 0) return true;
  uint32_t lane_bytes = 0, tmpring = 0;
  uint64_t bytes = 0;
  MemoryFault fault;
  if (!bus_.Load32(queue + kQueueLaneBytes, &lane_bytes, &fault) ||
      !bus_.Load32(queue + kQueueTmpring, &tmpring, &fault) ||
      !bus_.Load64(queue + kQueueScratchVa, &dispatch->scratch_va, &fault) ||
      !bus_.Load64(queue + kQueueScratchBytes, &bytes, &fault)) {
    Fault(fault);
    return false;
  }
  if (dispatch->private_segment_bytes > lane_bytes) {
    uint64_t signal = 0;
    if (!bus_.Load64(queue + kQueueInactiveSignal, &signal, &fault)) return Fault(fault), false;
    if (signal == 0) {
      Hang(absl::StrCat("packet ", packet.index, " wants ", dispatch->private_segment_bytes,
                        " scratch bytes a lane, the queue has ", lane_bytes,
                        " and no inactive signal to ask through"));
      return false;
    }
    // The queue asks for more and waits until the host has stored 0 to the signal.
    if (!bus_.Store64(signal + kSignalValue, static_cast<uint64_t>(QueueError::kScratch), &fault)) {
      return Fault(fault), false;
    }
    Notify(signal);
    front_ = packet;
    wants_scratch_ = true;
    return false;
  }
  dispatch->scratch_waves = tmpring & 0xfff;
  dispatch->scratch_wave_bytes = (tmpring >> 12 & 0x1fff) << 10;
  dispatch->scratch_bytes_per_xcc = bytes / host().context().facts().num_xcc;
  return true;
}

bool AqlQueue::RunLaunches() {
  if (running_.empty()) return false;
  bool moved = false;
  const size_t first =
      host().config().reorder ? rng_.Below(static_cast<uint32_t>(running_.size())) : 0;
  for (size_t turn = 0; turn < running_.size(); ++turn) {
    const size_t i = (first + turn) % running_.size();
    Running& running = running_[i];
    const Trouble trouble = host().script().OnTurn(host().context().gpu_index());
    if (trouble != Trouble::kNone) {
      const Packet packet = running.packet;
      if (trouble == Trouble::kHang) running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
      return Meet(trouble, packet), true;
    }
    const Progress progress = running.launch->Run(kSliceBudget);
    for (const std::string& note : progress.notes) host().Note(note);
    switch (progress.state) {
      case Progress::State::kRunning:
        moved = true;
        break;
      case Progress::State::kWaiting:
        break;
      case Progress::State::kFault:
        if (!progress.detail.empty()) host().Note(progress.detail);
        return Fault(progress.fault);
      case Progress::State::kException: {
        host().OnException(*this, progress.exception, progress.detail);
        running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
        Hang(absl::StrCat("waves halted: ", progress.detail));
        return true;
      }
      case Progress::State::kDone: {
        const Running done = std::move(running);
        running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
        if (!progress.detail.empty()) host().Note(progress.detail);
        uint64_t started = done.started, ended = host().context().Clock();
        done.launch->Times(&started, &ended);
        Complete(done.packet, started, ended);
        return true;
      }
    }
  }
  return moved;
}

// Always true: something happened.
bool AqlQueue::Complete(const Packet& packet, uint64_t started, uint64_t ended) {
  host().executor().Release(host().context(), packet.release());
  const uint64_t signal = packet.At<uint64_t>(kCompletionSignal);
  if (signal != 0 && !Signal(signal, started, ended)) return true;
  finished_.insert(packet.index);
  while (!finished_.empty() && *finished_.begin() == completed_) {
    finished_.erase(finished_.begin());
    ++completed_;
  }
  return true;
}

bool AqlQueue::Signal(uint64_t signal, uint64_t started, uint64_t ended) {
  if (host().script().LosesSignal(host().context().gpu_index())) {
    host().Note(absl::StrCat("compute queue ", id(), ": completion signal lost by the script"));
    return true;
  }
  MemoryFault fault;
  const uint64_t queue = QueueVa();
  uint32_t properties = 0;
  if (queue == 0) return false;
  if (!bus_.Load32(queue + kQueueProperties, &properties, &fault)) return Fault(fault), false;
  if ((properties & kPropertyProfiling) != 0 &&
      (!bus_.Store64(signal + kSignalStart, started, &fault) ||
       !bus_.Store64(signal + kSignalEnd, ended, &fault))) {
    return Fault(fault), false;
  }
  if (!bus_.Add64(signal + kSignalValue, ~uint64_t{0}, &fault)) return Fault(fault), false;
  return Notify(signal);
}

// Mailbox and interrupt of a signal. False after a fault.
bool AqlQueue::Notify(uint64_t signal) {
  MemoryFault fault;
  uint64_t mailbox = 0;
  uint32_t event = 0;
  if (!bus_.Load64(signal + kSignalMailbox, &mailbox, &fault) ||
      !bus_.Load32(signal + kSignalEvent, &event, &fault)) {
    return Fault(fault), false;
  }
  if (mailbox == 0) return true;
  if (!bus_.Store64(mailbox, event, &fault)) return Fault(fault), false;
  host().Interrupt(event, 32);
  return true;
}

bool AqlQueue::ReportReadIndex() {
  if (reported_ == completed_) return false;
  if (host().config().lag_read_pointers && !rng_.OneIn(4)) return true;
  MemoryFault fault;
  if (!bus_.Store64(setup_.read_va, completed_, &fault)) return Fault(fault);
  reported_ = completed_;
  return true;
}

// Tells the inactive signal and stops the queue. Always false, for `return Fail(…)` of a check.
bool AqlQueue::Fail(QueueError error, const std::string& why) {
  host().Note(absl::StrCat("compute queue ", id(), " stops with error ",
                           absl::Hex(static_cast<uint32_t>(error)), ": ", why));
  state_ = State::kHalted;
  host().OnPacketError(*this, ExceptionCodeOf(error));
  const uint64_t queue = QueueVa();
  if (queue == 0) return false;
  MemoryFault fault;
  uint64_t signal = 0;
  if (!bus_.Load64(queue + kQueueInactiveSignal, &signal, &fault)) return Fault(fault), false;
  if (signal == 0) return false;
  if (!bus_.Store64(signal + kSignalValue, static_cast<uint64_t>(error), &fault)) {
    return Fault(fault), false;
  }
  Notify(signal);
  return false;
}

}  // namespace mainarch::sim
