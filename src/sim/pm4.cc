// SPDX-License-Identifier: MIT
#include "sim/pm4.h"

#include <algorithm>
#include <utility>

#include "sim/packet_words.h"

namespace mainarch::sim {
namespace {

// Opcodes and fields of the reference's PM4 subset.
constexpr uint32_t kNop = 0x10;
constexpr uint32_t kDispatchDirect = 0x15;
constexpr uint32_t kPredExec = 0x23;
constexpr uint32_t kWriteData = 0x37;
constexpr uint32_t kWaitRegMem = 0x3c;
constexpr uint32_t kIndirectBuffer = 0x3f;
constexpr uint32_t kCopyData = 0x40;
constexpr uint32_t kEventWrite = 0x46;
constexpr uint32_t kReleaseMem = 0x49;
constexpr uint32_t kAcquireMem = 0x58;
constexpr uint32_t kSetShReg = 0x76;
constexpr uint32_t kSetUconfigReg = 0x79;
constexpr uint32_t kCoherIcache = 1u << 29;  // SH_ICACHE_ACTION_ENA of CP_COHER_CNTL
constexpr uint32_t kCsPartialFlush = 7;      // EVENT_TYPE
constexpr uint32_t kIbSize = 0xfffff, kIbChain = 1u << 20, kIbValid = 1u << 23;
constexpr int kDeepest = 2;           // a ring's packet may call a buffer, and that another one
constexpr int kPacketsPerStep = 256;  // chains of buffers may be endless

// One dword: type 2, and a type 3 NOP whose count is all ones, whatever its flags are.
bool IsFiller(uint32_t header) {
  return header >> 30 == 2 || (header & 0xffffff00) == (0xffff0000 | kNop << 8);
}

}  // namespace

bool Pm4Stream::Read(uint32_t at, uint32_t dwords, uint32_t* out, MemoryFault* fault) const {
  if (depth_ > 0) {
    return Bus(host_->context()).Read(va_ + 4 * uint64_t{at}, out, 4 * uint64_t{dwords}, fault);
  }
  std::copy_n(words_.begin() + at, dwords, out);
  return true;
}

Pm4Stream::Result Pm4Stream::Step(MemoryFault* fault, std::string* why, bool* moved) {
  for (int packets = 0; at_ < dwords_ || inner_ != nullptr; ++packets) {
    if (packets == kPacketsPerStep) return Result::kBlocked;
    if (inner_ != nullptr) {
      const Result result = inner_->Step(fault, why, moved);
      if (result != Result::kDone) return result;
      inner_.reset();
      continue;
    }
    uint32_t header = 0;
    if (!Read(at_, 1, &header, fault)) return Result::kFault;
    if (IsFiller(header)) {
      ++at_;
      *moved = true;
      continue;
    }
    const uint32_t count = (header >> 16 & 0x3fff) + 1;
    if (header >> 30 != 3 || count > dwords_ - at_ - 1) {
      *why = absl::StrCat("PM4 dword ", at_, " is ", absl::Hex(header), ": no packet that fits");
      return Result::kBad;
    }
    Payload payload(count);
    if (!Read(at_ + 1, count, payload.data(), fault)) return Result::kFault;
    const Result result = Packet(header, payload, fault, why);
    if (result != Result::kDone) return result;
    *moved = true;
    // A chain has put another buffer in place of this one.
    if (!std::exchange(chained_, false)) at_ += 1 + count + skip_;
    skip_ = 0;
  }
  return Result::kDone;
}

Pm4Stream::Result Pm4Stream::Packet(uint32_t header, const Payload& p, MemoryFault* fault,
                                    std::string* why) {
  const uint32_t opcode = header >> 8 & 0xff;
  const auto needs = [&](size_t dwords) {
    if (p.size() >= dwords) return true;
    *why = absl::StrCat("PM4 opcode ", absl::Hex(opcode), " has ", p.size(), " dwords, needs ",
                        dwords);
    return false;
  };
  switch (opcode) {
    case kNop:
    case kSetUconfigReg:
      return Result::kDone;
    case kSetShReg:
      SetRegisters(p);
      return Result::kDone;
    case kEventWrite:
      return (p[0] & 0x3f) == kCsPartialFlush && compute_.busy() ? Result::kBlocked : Result::kDone;
    case kDispatchDirect:
      return needs(4) ? Dispatch(p, fault, why) : Result::kBad;
    case kIndirectBuffer:
      return needs(3) ? Call(p, why) : Result::kBad;
    case kPredExec:
      // Only XCC 0's run of the buffer is modelled.
      if (!needs(1)) return Result::kBad;
      if ((p[0] >> 24 & 1) == 0) skip_ = p[0] & 0x3fff;
      return Result::kDone;
    case kWriteData:
      return needs(4) ? WriteData(p, fault, why) : Result::kBad;
    case kWaitRegMem:
      return needs(6) ? WaitMemory(p, fault, why) : Result::kBad;
    case kCopyData:
      return needs(5) ? CopyData(p, fault, why) : Result::kBad;
    case kReleaseMem:
      return needs(7) ? ReleaseMemory(p, fault) : Result::kBad;
    case kAcquireMem:
      if (!needs(6)) return Result::kBad;
      if ((p[0] & kCoherIcache) != 0) host_->executor().InvalidateInstructions(host_->context());
      host_->executor().Acquire(host_->context(), Scope::kSystem);
      return Result::kDone;
    default:
      *why = absl::StrCat("PM4 opcode ", absl::Hex(opcode), " is not modelled");
      return Result::kBad;
  }
}

void Pm4Stream::SetRegisters(const Payload& p) {
  for (size_t i = 1; i < p.size(); ++i) {
    compute_.SetRegister((p[0] & 0xffff) + static_cast<uint32_t>(i) - 1, p[i]);
  }
}

Pm4Stream::Result Pm4Stream::Dispatch(const Payload& p, MemoryFault* fault, std::string* why) {
  const uint32_t dims[3] = {p[0], p[1], p[2]};
  if (compute_.Dispatch(dims, p[3], fault, why)) return Result::kDone;
  return why->empty() ? Result::kFault : Result::kBad;
}

Pm4Stream::Result Pm4Stream::Call(const Payload& p, std::string* why) {
  const uint64_t va = Address(p[0] & ~3u, p[1] & 0xffff);
  const uint32_t dwords = p[2] & kIbSize;
  if ((p[2] & kIbValid) == 0) {
    *why = absl::StrCat("INDIRECT_BUFFER of ", dwords, " dwords without its valid bit");
    return Result::kBad;
  }
  if ((p[2] & kIbChain) != 0 && depth_ > 0) {
    va_ = va;
    dwords_ = dwords;
    at_ = 0;
    chained_ = true;
    return Result::kDone;
  }
  if (depth_ == kDeepest) {
    *why = absl::StrCat("INDIRECT_BUFFER is called ", kDeepest, " deep already");
    return Result::kBad;
  }
  inner_ = std::make_unique<Pm4Stream>(host_, &compute_, va, dwords, depth_ + 1);
  return Result::kDone;
}

Pm4Stream::Result Pm4Stream::WriteData(const Payload& p, MemoryFault* fault, std::string* why) {
  const uint32_t destination = p[0] >> 8 & 0xf;  // DST_SEL: 5 memory, 2 through the L2
  if (destination != 5 && destination != 2) {
    *why = absl::StrCat("WRITE_DATA to destination ", destination, " is not modelled");
    return Result::kBad;
  }
  const Bus bus(host_->context());
  for (size_t i = 3; i < p.size(); ++i) {
    if (!bus.Store32(Address(p[1], p[2]) + 4 * (i - 3), p[i], fault)) return Result::kFault;
  }
  return Result::kDone;
}

Pm4Stream::Result Pm4Stream::WaitMemory(const Payload& p, MemoryFault* fault, std::string* why) {
  const uint32_t operation = p[0] >> 6 & 3;
  if ((p[0] & 0x10) == 0) {
    // Write one register, wait for another: how a host-path (HDP) flush is asked for. The node has
    // no host path to flush, so it is done at once.
    if (operation == 1) return Result::kDone;
    *why = "WAIT_REG_MEM on a register is not modelled";
    return Result::kBad;
  }
  uint32_t value = 0;
  if (!Bus(host_->context()).Load32(Address(p[1], p[2]), &value, fault)) return Result::kFault;
  return Compare(p[0] & 7, value & p[4], p[3]) ? Result::kDone : Result::kBlocked;
}

Pm4Stream::Result Pm4Stream::CopyData(const Payload& p, MemoryFault* fault, std::string* why) {
  // SRC_SEL 9 is the reference clock, 1 memory, 5 immediate; DST_SEL 1 or 5 memory; bit 16: 64
  // bits.
  const uint32_t source = p[0] & 0xf, target = p[0] >> 8 & 0xf;
  const bool wide = (p[0] >> 16 & 1) != 0;
  const Bus bus(host_->context());
  uint64_t value = Address(p[1], p[2]);
  if (source == 9) {
    value = host_->context().Clock();
  } else if (source == 1 || source == 2) {
    if (!bus.Read(Address(p[1], p[2]), &value, wide ? 8 : 4, fault)) return Result::kFault;
  } else if (source != 5) {
    *why = absl::StrCat("COPY_DATA from source ", source, " is not modelled");
    return Result::kBad;
  }
  if (target != 1 && target != 2 && target != 5) {
    *why = absl::StrCat("COPY_DATA to destination ", target, " is not modelled");
    return Result::kBad;
  }
  const uint64_t to = Address(p[3], p[4]);
  const bool stored =
      wide ? bus.Store64(to, value, fault) : bus.Store32(to, static_cast<uint32_t>(value), fault);
  return stored ? Result::kDone : Result::kFault;
}

// At the end of the pipe: what was dispatched before has ended.
Pm4Stream::Result Pm4Stream::ReleaseMemory(const Payload& p, MemoryFault* fault) {
  if (compute_.busy()) return Result::kBlocked;
  const uint32_t data_select = p[1] >> 29, interrupt_select = p[1] >> 24 & 7;
  const uint64_t to = Address(p[2], p[3]), data = Address(p[4], p[5]);
  const Bus bus(host_->context());
  host_->executor().Release(host_->context(), Scope::kSystem);
  bool stored = true;
  if (data_select == 1) stored = bus.Store32(to, p[4], fault);
  if (data_select == 2) stored = bus.Store64(to, data, fault);
  if (data_select == 3) stored = bus.Store64(to, host_->context().Clock(), fault);
  if (!stored) return Result::kFault;
  // 1: interrupt alone; 2: after the write; 3: the write alone.
  if (interrupt_select == 1 || interrupt_select == 2) host_->Interrupt(p[6], 32);
  return Result::kDone;
}

}  // namespace mainarch::sim
