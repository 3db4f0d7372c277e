// SPDX-License-Identifier: MIT
#include "sim/sdma_queue.h"

#include <algorithm>

#include "base/clock.h"
#include "sim/packet_words.h"

namespace mainarch::sim {
namespace {

// Opcodes (reference: SDMA opcodes).
enum Opcode : uint32_t {
  kNop = 0,
  kCopy = 1,
  kWrite = 2,
  kIndirect = 4,
  kFence = 5,
  kTrap = 6,
  kPollRegMem = 8,
  kCondExe = 9,
  kAtomic = 10,
  kConstFill = 11,
  kTimestamp = 13,
};
constexpr uint32_t kBroadcast = 1u << 27;
constexpr uint32_t kSubWindow = 4;     // sub-opcode of COPY
constexpr uint64_t kChunk = 64 << 10;  // bytes of a copy in one step
constexpr uint64_t kRowCost = 256;     // what a row counts for beyond its bytes
constexpr uint32_t kAtomicAdd64 = 0x2f, kAtomicAdd64NoReturn = 0x6f, kAtomicCompareSwap64 = 0x28;

}  // namespace

bool SdmaQueue::Step() {
  if (state_ != State::kActive) {
    if (state_ != State::kSuspended) Drop();
    return false;
  }
  bool moved = PollDoorbell();
  if (state_ == State::kActive && copy_) moved |= StepCopy();
  if (state_ == State::kActive) moved |= TakeSubmitted();
  if (state_ == State::kActive) moved |= TakePacket();
  if (state_ == State::kActive) moved |= ReportReadPointer();
  return moved;
}

// Ends the driver's buffer under way when all of it is done, and begins the next.
bool SdmaQueue::TakeSubmitted() {
  if (submitted_.empty() || ib_dwords_ != 0 || copy_) return false;
  Submitted& first = submitted_.front();
  if (first.begun) {
    executed_->store(first.sequence);
    submitted_.pop_front();
  } else {
    first.begun = true;
    ib_va_ = first.va;
    ib_dwords_ = first.dwords;
  }
  return true;
}

bool SdmaQueue::PollDoorbell() {
  uint64_t value = 0;
  if (!TakeDoorbell(&value)) return false;
  if (value < written_) {
    Hang(absl::StrCat("doorbell went back to byte ", value, " from ", written_,
                      " (write pointers grow and are never wrapped)"));
  } else if (value % 4 != 0) {
    Hang(absl::StrCat("doorbell ", value, " is not a number of whole dwords"));
  } else if (value - read_ > setup_.ring_bytes) {
    Hang(absl::StrCat("doorbell announces ", value - read_, " bytes, the ring holds ",
                      setup_.ring_bytes));
  } else {
    uint64_t in_memory = 0;
    MemoryFault fault;
    if (!bus_.Load64(setup_.write_va, &in_memory, &fault)) return Fault(fault);
    if (in_memory < value) {
      Hang(absl::StrCat("doorbell announces byte ", value, " but the write pointer in memory is ",
                        in_memory));
    } else {
      written_ = value;
    }
  }
  return true;
}

uint64_t SdmaQueue::DelayNs(uint64_t from, uint64_t to) const {
  Window source, target;
  MemoryFault ignored;
  const GpuContext& context = host().context();
  const uint32_t self = context.gpu_index();
  const auto home = [&](uint64_t va, Access access, Window* window) {
    return context.Translate(va, access, window, &ignored) && !window->system_memory
               ? window->home_gpu
               : self;
  };
  const uint32_t a = home(from, Access::kRead, &source), b = home(to, Access::kWrite, &target);
  return a == b ? 0 : uint64_t{host().script().ChunkDelayUs(a, b)} * 1000;
}

bool SdmaQueue::StepCopy() {
  CopyJob& job = *copy_;
  const int64_t now = NowNs();
  if (now < job.not_before_ns) return false;
  const uint64_t delay = DelayNs(job.from, job.to[0]);
  if (delay != 0 && job.not_before_ns == 0) {
    job.not_before_ns = now + static_cast<int64_t>(delay);
    return true;
  }
  job.not_before_ns = 0;
  // Short rows of a window share a step.
  for (uint64_t done = 0; done < kChunk;) {
    const uint64_t piece = std::min(job.left, kChunk - done);
    MemoryFault fault;
    for (int i = 0; i < job.targets; ++i) {
      if (!bus_.Copy(job.to[i], job.from, piece, &fault)) return Fault(fault);
      job.to[i] += piece;
    }
    job.from += piece;
    job.left -= piece;
    done += piece + kRowCost;
    if (job.left == 0 && !NextRow(&job)) return copy_.reset(), true;
    if (delay != 0) break;
  }
  return true;
}

// False when the copy is over.
bool SdmaQueue::NextRow(CopyJob* job) {
  if (!job->rows) return false;
  Rows& r = *job->rows;
  if (++r.row == r.rows) {
    r.row = 0;
    if (++r.slice == r.slices) return false;
  }
  job->from = r.from + r.row * r.from_pitch + r.slice * r.from_slice;
  job->to[0] = r.to + r.row * r.to_pitch + r.slice * r.to_slice;
  job->left = r.row_bytes;
  return true;
}

uint32_t SdmaQueue::PacketDwords(uint32_t header, uint64_t at_va) {
  const uint32_t sub = header >> 8 & 0xff;
  switch (header & 0xff) {
    case kNop:
      return 1 + (header >> 16 & 0x3fff);
    case kCopy:
      if (sub == kSubWindow) return 13;
      return sub != 0 ? 0 : (header & kBroadcast) != 0 ? 9 : 7;
    case kWrite: {
      if (sub != 0) return 0;
      uint32_t count = 0;
      MemoryFault ignored;
      bus_.Read(at_va + 12, &count, 4, &ignored);
      return 5 + (count & 0xfffff);
    }
    case kIndirect:
      return 6;
    case kFence:
      return 4;
    case kTrap:
      return 2;
    case kPollRegMem:
      return sub == 0 ? 6 : 0;
    case kCondExe:
      return 5;
    case kAtomic:
      return 8;
    case kConstFill:
      return 5;
    case kTimestamp:
      return sub == 1 || sub == 2 ? 3 : 0;
    default:
      return 0;
  }
}

bool SdmaQueue::TakePacket() {
  const bool in_ring = ib_dwords_ == 0;
  if (in_ring && read_ == written_) return false;
  const uint64_t at = in_ring ? setup_.ring_va + read_ % setup_.ring_bytes : ib_va_;
  const uint64_t room =
      in_ring ? std::min(written_ - read_, setup_.ring_bytes - read_ % setup_.ring_bytes)
              : uint64_t{ib_dwords_} * 4;
  uint32_t header = 0;
  MemoryFault fault;
  if (!bus_.Read(at, &header, 4, &fault)) return Fault(fault);
  uint32_t dwords = 1;
  if (skip_dwords_ > 0) {
    --skip_dwords_;
  } else {
    dwords = PacketDwords(header, at);
    if (dwords == 0) {
      Stuck(absl::StrCat("opcode ", header & 0xff, " sub-opcode ", header >> 8 & 0xff,
                         " is unknown to this engine"));
      return true;
    }
    if (uint64_t{dwords} * 4 > room) {
      Hang(absl::StrCat("packet of ", dwords, " dwords at byte ", read_,
                        " runs over the ring's end or the doorbell"));
      return true;
    }
    std::vector<uint32_t> packet(dwords);
    if (!bus_.Read(at, packet.data(), uint64_t{dwords} * 4, &fault)) return Fault(fault);
    // An INDIRECT packet replaces the position itself.
    const uint64_t ib_before = ib_va_;
    const uint32_t left_before = ib_dwords_;
    const Result result = Execute(packet, in_ring);
    if (result == Result::kBlocked) return false;
    if (result == Result::kStopped) return true;
    if (in_ring && header != 0) {
      const Trouble trouble = host().script().OnPacket(host().context().gpu_index());
      if (trouble == Trouble::kHang) {
        stuck_ = true;
        Hang("the fault script says so");
        return true;
      }
      if (trouble == Trouble::kFault) {
        fault = {at & ~uint64_t{4095}, true, false, false};
        return Fault(fault);
      }
      if (trouble != Trouble::kNone) {
        host().OnTrouble(*this, trouble);
        return true;
      }
    }
    if (!in_ring) {
      ib_va_ = ib_before;
      ib_dwords_ = left_before;
    }
  }
  if (in_ring) {
    read_ += uint64_t{dwords} * 4;
  } else {
    ib_va_ += uint64_t{dwords} * 4;
    ib_dwords_ -= dwords;
  }
  return true;
}

SdmaQueue::Result SdmaQueue::Execute(const std::vector<uint32_t>& packet, bool in_ring) {
  const uint32_t opcode = packet[0] & 0xff;
  if (opcode == kNop) return Result::kDone;
  const bool overtakes = opcode == kWrite && host().config().reorder;
  if (copy_ && !overtakes) return Result::kBlocked;
  switch (opcode) {
    case kCopy:
      return (packet[0] >> 8 & 0xff) == kSubWindow ? ExecuteWindowCopy(packet)
                                                   : ExecuteCopy(packet);
    case kWrite:
      return ExecuteWrite(packet);
    case kFence:
      return ExecuteFence(packet);
    case kTrap:
      host().Interrupt(packet[1] & 0xfffffff, 28);
      return Result::kDone;
    case kPollRegMem:
      return ExecutePoll(packet);
    case kAtomic:
      return ExecuteAtomic(packet);
    case kConstFill:
      return ExecuteFill(packet);
    case kTimestamp:
      return ExecuteTimestamp(packet);
    case kCondExe:
      return ExecuteConditional(packet);
    case kIndirect:
      if (in_ring) return ExecuteIndirect(packet);
      return Stuck("an indirect buffer inside an indirect buffer");
    default:
      return Stuck(absl::StrCat("opcode ", opcode));
  }
}

SdmaQueue::Result SdmaQueue::ExecuteCopy(const std::vector<uint32_t>& p) {
  if ((p[1] & ~count_mask_) != 0) {
    host().Note(absl::StrCat("sdma queue ", id(), ": copy count ", p[1],
                             " is cut to its low bits: ", (p[1] & count_mask_) + 1, " bytes"));
  }
  CopyJob job;
  job.left = (p[1] & count_mask_) + 1;
  job.from = Address(p[3], p[4]);
  job.to[0] = Address(p[5], p[6]);
  if ((p[0] & kBroadcast) != 0) {
    job.targets = 2;
    job.to[1] = Address(p[7], p[8]);
  }
  Tell(job);
  copy_ = job;
  return Result::kDone;
}

// An executor that models time is told of the copy.
void SdmaQueue::Tell(const CopyJob& job) const {
  const GpuContext& context = host().context();
  Window window;
  MemoryFault ignored;
  const auto place = [&](uint64_t va) {
    if (!context.Translate(va, Access::kRead, &window, &ignored)) return context.gpu_index();
    return window.system_memory ? Executor::kSystemMemory : window.home_gpu;
  };
  for (int i = 0; i < job.targets; ++i) {
    host().executor().Copied(host().context(), id(), place(job.from), place(job.to[i]), job.left);
  }
}

// A box of elements out of one linear surface into another. Offsets, pitches and extents count
// elements of 1 to 16 bytes; pitches and extents are one less (AMD's runtime: sdma_registers.h).
SdmaQueue::Result SdmaQueue::ExecuteWindowCopy(const std::vector<uint32_t>& p) {
  const uint32_t log = p[0] >> 29;
  if (log > 4) return Stuck(absl::StrCat("sub-window copy of element code ", log));
  const uint64_t pitch[2] = {uint64_t{p[4] >> 13} + 1, uint64_t{p[9] >> 13} + 1};
  const uint64_t slice[2] = {uint64_t{p[5] & 0xfffffff} + 1, uint64_t{p[10] & 0xfffffff} + 1};
  const auto first = [&](size_t at, int which) {
    const uint64_t x = p[at] & 0x3fff, y = p[at] >> 16 & 0x3fff, z = p[at + 1] & 0x7ff;
    return (x + y * pitch[which] + z * slice[which]) << log;
  };
  Rows rows;
  rows.row_bytes = (uint64_t{p[11] & 0x3fff} + 1) << log;
  rows.rows = (p[11] >> 16 & 0x3fff) + 1;
  rows.slices = (p[12] & 0x7ff) + 1;
  rows.from = Address(p[1], p[2]) + first(3, 0);
  rows.to = Address(p[6], p[7]) + first(8, 1);
  rows.from_pitch = pitch[0] << log;
  rows.to_pitch = pitch[1] << log;
  rows.from_slice = slice[0] << log;
  rows.to_slice = slice[1] << log;
  CopyJob job;
  job.from = rows.from;
  job.to[0] = rows.to;
  job.left = rows.row_bytes * rows.rows * rows.slices;
  Tell(job);
  job.left = rows.row_bytes;
  job.rows = rows;
  copy_ = job;
  return Result::kDone;
}

SdmaQueue::Result SdmaQueue::ExecuteWrite(const std::vector<uint32_t>& p) {
  MemoryFault fault;
  const uint64_t bytes = 4 * (p.size() - 4);
  if (!bus_.Write(Address(p[1], p[2]), p.data() + 4, bytes, &fault)) return Faulted(fault);
  return Result::kDone;
}

SdmaQueue::Result SdmaQueue::ExecuteFill(const std::vector<uint32_t>& p) {
  const uint32_t size = p[0] >> 30;
  const uint64_t to = Address(p[1], p[2]);
  uint64_t count = p[4] & count_mask_;
  MemoryFault fault;
  if (size == 0) {
    const bool done = bus_.Fill(to, static_cast<uint8_t>(p[3]), count + 1, &fault);
    return done ? Result::kDone : Faulted(fault);
  }
  if (size != 2) return Stuck(absl::StrCat("fill of size code ", size));
  count &= ~uint64_t{3};  // AMD's suite gives bytes - 1 here, its runtime bytes - 4
  const std::vector<uint32_t> pattern(std::min<uint64_t>(count + 4, kChunk) / 4, p[3]);
  for (uint64_t at = 0; at < count + 4; at += kChunk) {
    const uint64_t part = std::min(count + 4 - at, kChunk);
    if (!bus_.Write(to + at, pattern.data(), part, &fault)) return Faulted(fault);
  }
  return Result::kDone;
}

SdmaQueue::Result SdmaQueue::ExecuteFence(const std::vector<uint32_t>& p) {
  MemoryFault fault;
  if (!bus_.Store32(Address(p[1], p[2]), p[3], &fault)) return Faulted(fault);
  return Result::kDone;
}

SdmaQueue::Result SdmaQueue::ExecutePoll(const std::vector<uint32_t>& p) {
  const bool memory = p[0] >> 31 != 0;
  if (!memory) return Result::kDone;  // the HDP flush idiom: a register poll that always holds
  uint32_t value = 0;
  MemoryFault fault;
  if (!bus_.Load32(Address(p[1], p[2]), &value, &fault)) return Faulted(fault);
  return Compare(p[0] >> 28 & 7, value & p[4], p[3]) ? Result::kDone : Result::kBlocked;
}

SdmaQueue::Result SdmaQueue::ExecuteAtomic(const std::vector<uint32_t>& p) {
  const uint32_t operation = p[0] >> 25;
  const uint64_t at = Address(p[1], p[2]), data = Address(p[3], p[4]);
  MemoryFault fault;
  bool done = false;
  if (operation == kAtomicAdd64 || operation == kAtomicAdd64NoReturn) {
    done = bus_.Add64(at, data, &fault);
  } else if (operation == kAtomicCompareSwap64) {
    done = bus_.CompareSwap64(at, Address(p[5], p[6]), data, &fault);
  } else {
    return Stuck(absl::StrCat("atomic operation ", absl::Hex(operation), " is not modelled"));
  }
  return done ? Result::kDone : Faulted(fault);
}

SdmaQueue::Result SdmaQueue::ExecuteTimestamp(const std::vector<uint32_t>& p) {
  MemoryFault fault;
  if (!bus_.Store64(Address(p[1], p[2]), host().context().Clock(), &fault)) return Faulted(fault);
  return Result::kDone;
}

SdmaQueue::Result SdmaQueue::ExecuteIndirect(const std::vector<uint32_t>& p) {
  const uint64_t buffer = Address(p[1], p[2]);
  if ((read_ / 4 + 6) % 8 != 0) {
    Hang(absl::StrCat("INDIRECT at byte ", read_, " does not end on eight dwords of the ring"));
    return Result::kStopped;
  }
  if (buffer % 32 != 0) {
    Hang(absl::StrCat("indirect buffer ", absl::Hex(buffer), " is not 32-byte aligned"));
    return Result::kStopped;
  }
  ib_va_ = buffer;
  ib_dwords_ = p[3] & 0xfffff;
  return Result::kDone;
}

SdmaQueue::Result SdmaQueue::ExecuteConditional(const std::vector<uint32_t>& p) {
  uint32_t value = 0;
  MemoryFault fault;
  if (!bus_.Load32(Address(p[1], p[2]), &value, &fault)) return Faulted(fault);
  if (value != p[3]) skip_dwords_ = p[4] & 0x3fff;
  return Result::kDone;
}

SdmaQueue::Result SdmaQueue::Stuck(const std::string& why) {
  Hang(why);
  host().OnTrouble(*this, Trouble::kReset);
  return Result::kStopped;
}

bool SdmaQueue::ReportReadPointer() {
  // Clients (kfdtest) take the read pointer for completion: it does not pass a copy that still
  // runs.
  if (reported_ == read_ || copy_) return false;
  if (host().config().lag_read_pointers && !rng_.OneIn(4)) return true;
  MemoryFault fault;
  if (!bus_.Store64(setup_.read_va, read_, &fault)) return Fault(fault);
  reported_ = read_;
  return true;
}

}  // namespace mainarch::sim
