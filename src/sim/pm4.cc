// SPDX-License-Identifier: MIT
#include "sim/pm4.h"

#include "sim/packet_words.h"

namespace mainarch::sim {
namespace {

// Opcodes and fields of the reference's PM4 subset.
constexpr uint32_t kNop = 0x10;
constexpr uint32_t kPredExec = 0x23;
constexpr uint32_t kWriteData = 0x37;
constexpr uint32_t kWaitRegMem = 0x3c;
constexpr uint32_t kCopyData = 0x40;
constexpr uint32_t kEventWrite = 0x46;
constexpr uint32_t kReleaseMem = 0x49;
constexpr uint32_t kAcquireMem = 0x58;
constexpr uint32_t kSetShReg = 0x76;
constexpr uint32_t kSetUconfigReg = 0x79;
constexpr uint32_t kSingleDwordNop = 0xffff1000;
constexpr uint32_t kCoherIcache = 1u << 29;  // SH_ICACHE_ACTION_ENA of CP_COHER_CNTL

}  // namespace

Pm4Stream::Result Pm4Stream::Step(MemoryFault* fault, std::string* why) {
  const Bus bus(host_->context());
  while (at_ < dwords_) {
    uint32_t header = 0;
    if (!bus.Read(va_ + 4 * uint64_t{at_}, &header, 4, fault)) return Result::kFault;
    if (header == kSingleDwordNop || header >> 30 == 2) {  // type 2 is a one-dword filler
      ++at_;
      continue;
    }
    const uint32_t count = (header >> 16 & 0x3fff) + 1;
    if (header >> 30 != 3 || count > dwords_ - at_ - 1) {
      *why = absl::StrCat("PM4 dword ", at_, " is ", absl::Hex(header), ": no packet that fits");
      return Result::kBad;
    }
    std::vector<uint32_t> payload(count);
    if (!bus.Read(va_ + 4 * uint64_t{at_ + 1}, payload.data(), 4 * uint64_t{count}, fault)) {
      return Result::kFault;
    }
    const Result result = Packet(header, payload, fault, why);
    if (result != Result::kDone) return result;
    at_ += 1 + count + skip_;
    skip_ = 0;
  }
  return Result::kDone;
}

Pm4Stream::Result Pm4Stream::Packet(uint32_t header, const std::vector<uint32_t>& p,
                                    MemoryFault* fault, std::string* why) {
  const uint32_t opcode = header >> 8 & 0xff;
  const auto needs = [&](size_t dwords) {
    if (p.size() >= dwords) return true;
    *why = absl::StrCat("PM4 opcode ", absl::Hex(opcode), " has ", p.size(), " dwords, needs ",
                        dwords);
    return false;
  };
  switch (opcode) {
    case kNop:
    case kEventWrite:
    case kSetShReg:
    case kSetUconfigReg:
      return Result::kDone;
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

Pm4Stream::Result Pm4Stream::WriteData(const std::vector<uint32_t>& p, MemoryFault* fault,
                                       std::string* why) {
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

Pm4Stream::Result Pm4Stream::WaitMemory(const std::vector<uint32_t>& p, MemoryFault* fault,
                                        std::string* why) {
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

Pm4Stream::Result Pm4Stream::CopyData(const std::vector<uint32_t>& p, MemoryFault* fault,
                                      std::string* why) {
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

Pm4Stream::Result Pm4Stream::ReleaseMemory(const std::vector<uint32_t>& p, MemoryFault* fault) {
  const uint32_t data_select = p[1] >> 29, interrupt_select = p[1] >> 24 & 7;
  const uint64_t to = Address(p[2], p[3]), data = Address(p[4], p[5]);
  const Bus bus(host_->context());
  host_->executor().Release(host_->context(), Scope::kSystem);
  bool stored = true;
  if (data_select == 1) stored = bus.Store32(to, p[4], fault);
  if (data_select == 2) stored = bus.Store64(to, data, fault);
  if (data_select == 3) stored = bus.Store64(to, host_->context().Clock(), fault);
  if (!stored) return Result::kFault;
  if (interrupt_select != 0) host_->Interrupt(p[6], 32);
  return Result::kDone;
}

}  // namespace mainarch::sim
