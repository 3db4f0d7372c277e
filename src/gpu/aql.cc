// SPDX-License-Identifier: MIT
#include "gpu/aql.h"

#include <algorithm>

#include "gpu/pm4.h"

namespace mainarch::gpu {
namespace {

// Vendor packet formats, in the byte after the header.
constexpr uint32_t kAmdFormatPm4Indirect = 1;
constexpr uint32_t kAmdFormatBarrierValue = 2;
constexpr uint32_t kIbValid = 1u << 23;

AqlPacket Begin(AqlType type, uint32_t setup, const AqlOrder& order) {
  AqlPacket packet;
  packet.dword[0] = AqlHeader(type, order.barrier, order.acquire, order.release) | setup << 16;
  packet.SetQword(56, order.completion_signal);
  return packet;
}

AqlPacket MakeBarrier(AqlType type, absl::Span<const uint64_t> signals, const AqlOrder& order) {
  AqlPacket packet = Begin(type, 0, order);
  const size_t count = std::min<size_t>(signals.size(), 5);
  for (size_t i = 0; i < count; ++i) packet.SetQword(8 + 8 * i, signals[i]);
  return packet;
}

}  // namespace

AqlPacket MakeDispatch(const Dispatch& d, const AqlOrder& order) {
  const uint32_t dims = d.grid.z > 1 ? 3 : d.grid.y > 1 ? 2 : 1;
  AqlPacket packet = Begin(AqlType::kKernelDispatch, dims, order);
  packet.dword[1] = (d.workgroup.x & 0xffff) | d.workgroup.y << 16;
  packet.dword[2] = d.workgroup.z & 0xffff;
  packet.dword[3] = d.grid.x;
  packet.dword[4] = d.grid.y;
  packet.dword[5] = d.grid.z;
  packet.dword[6] = d.private_bytes;
  packet.dword[7] = d.group_bytes;
  packet.SetQword(32, d.kernel_object);
  packet.SetQword(40, d.kernarg);
  return packet;
}

AqlPacket MakeBarrierAnd(absl::Span<const uint64_t> signals, const AqlOrder& order) {
  return MakeBarrier(AqlType::kBarrierAnd, signals, order);
}

AqlPacket MakeBarrierOr(absl::Span<const uint64_t> signals, const AqlOrder& order) {
  return MakeBarrier(AqlType::kBarrierOr, signals, order);
}

AqlPacket MakeBarrierValue(uint64_t signal, int64_t value, int64_t mask, ValueCondition condition,
                           const AqlOrder& order) {
  AqlPacket packet = Begin(AqlType::kVendorSpecific, kAmdFormatBarrierValue, order);
  packet.SetQword(8, signal);
  packet.SetQword(16, static_cast<uint64_t>(value));
  packet.SetQword(24, static_cast<uint64_t>(mask));
  packet.dword[8] = static_cast<uint32_t>(condition);
  return packet;
}

AqlPacket MakePm4Indirect(uint64_t address, uint32_t dwords, const AqlOrder& order) {
  AqlPacket packet = Begin(AqlType::kVendorSpecific, kAmdFormatPm4Indirect, order);
  packet.dword[1] = Pm4Header(kPm4IndirectBuffer, 3);
  packet.dword[2] = static_cast<uint32_t>(address);
  packet.dword[3] = static_cast<uint32_t>(address >> 32);
  packet.dword[4] = dwords | kIbValid;
  packet.dword[5] = 10;  // dwords of the slot that remain after the jump
  return packet;
}

}  // namespace mainarch::gpu
