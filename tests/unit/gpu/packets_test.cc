// SPDX-License-Identifier: MIT
//
// Packets byte for byte. The expected words are written out from the format tables, not computed.
#include <cstring>
#include <vector>

#include "gpu/aql.h"
#include "gpu/pm4.h"
#include "gpu/sdma.h"
#include "support/test.h"

namespace mainarch::gpu {
namespace {

template <class Packet>
bool Equal(const Packet& packet, std::vector<uint32_t> expected) {
  return sizeof(packet) == expected.size() * 4 &&
         memcmp(&packet, expected.data(), sizeof(packet)) == 0;
}

TEST(headers) {
  CHECK_EQ(AqlHeader(AqlType::kKernelDispatch, true, Scope::kSystem, Scope::kSystem), 0x1502);
  CHECK_EQ(AqlHeader(AqlType::kKernelDispatch, false, Scope::kSystem, Scope::kSystem), 0x1402);
  CHECK_EQ(AqlHeader(AqlType::kKernelDispatch, true, Scope::kAgent, Scope::kAgent), 0x0b02);
  CHECK_EQ(AqlHeader(AqlType::kBarrierAnd, true, Scope::kSystem, Scope::kSystem), 0x1503);
  CHECK_EQ(AqlHeader(AqlType::kVendorSpecific, true, Scope::kSystem, Scope::kSystem), 0x1500);
  CHECK_EQ(kAqlEmptySlot, 0x0001);
}

TEST(a_release_scope_is_replaced) {
  AqlPacket packet;
  packet.dword[0] = 0x00010000u | AqlHeader(AqlType::kKernelDispatch, true, Scope::kSystem,
                                            Scope::kAgent);
  packet.set_release(Scope::kSystem);
  CHECK_EQ(packet.dword[0], 0x00011502u);
  packet.set_release(Scope::kNone);
  CHECK_EQ(packet.dword[0], 0x00010502u);
}

TEST(dispatch) {
  Dispatch d;
  d.kernel_object = 0x0123456789abcd40;
  d.kernarg = 0x0fedcba987654320;
  d.workgroup = {256, 2, 1};
  d.grid = {65536, 8, 3};
  d.group_bytes = 0x28000;
  d.private_bytes = 0x44;
  AqlOrder order;
  order.completion_signal = 0x00007f0011223340;
  CHECK(Equal(MakeDispatch(d, order),
              {0x00031502, 0x00020100, 0x00000001, 65536, 8, 3, 0x44, 0x28000, 0x89abcd40,
               0x01234567, 0x87654320, 0x0fedcba9, 0, 0, 0x11223340, 0x00007f00}));
  d.grid = {64, 1, 1};
  CHECK_EQ(MakeDispatch(d, order).dword[0], 0x00011502u);
  d.grid = {64, 2, 1};
  order.barrier = false;
  CHECK_EQ(MakeDispatch(d, order).dword[0], 0x00021402u);
  d.workgroup = {1, 1, 1024};
  CHECK_EQ(MakeDispatch(d, order).dword[2], 1024u);
}

TEST(barriers) {
  const uint64_t signals[] = {0x1000, 0x200000040, 3, 4, 5};
  AqlOrder order;
  order.completion_signal = 0x80;
  CHECK(Equal(MakeBarrierAnd(signals, order),
              {0x1503, 0, 0x1000, 0, 0x40, 2, 3, 0, 4, 0, 5, 0, 0, 0, 0x80, 0}));
  CHECK(Equal(MakeBarrierOr({}, order), {0x1505, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0}));
  const uint64_t six[] = {1, 2, 3, 4, 5, 6};  // the sixth must not land in the reserved words
  CHECK_EQ(MakeBarrierAnd(six, order).dword[12], 0u);
  CHECK(
      Equal(MakeBarrierValue(0x700000010, -2, 0xff, ValueCondition::kLess, order),
            {0x00021500, 0, 0x10, 7, 0xfffffffe, 0xffffffff, 0xff, 0, 2, 0, 0, 0, 0, 0, 0x80, 0}));
}

TEST(pm4) {
  CHECK_EQ(Pm4Header(kPm4IndirectBuffer, 3), 0xC0023F00u);
  CHECK(
      Equal(MakePm4Indirect(0x700001000, 7, AqlOrder{}),
            {0x00011500, 0xC0023F00, 0x00001000, 7, 0x00800007, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  CHECK(Equal(MakeInstructionInvalidate(0x700001000, 0x2000),
              {0xC0055800, 0x28840000, 0x20, 0, 0x07000010, 0, 0}));
  // A range that begins and ends inside 256-byte blocks covers both.
  CHECK(Equal(MakeInstructionInvalidate(0x10ff, 2), {0xC0055800, 0x28840000, 2, 0, 0x10, 0, 0}));
}

TEST(sdma) {
  CHECK(
      Equal(MakeCopy(0x700000004, 0x900000008, 0x3fffe0), {0x00000001, 0x003fffdf, 0, 8, 9, 4, 7}));
  CHECK(Equal(MakeBroadcastCopy(0x700000004, 0x800000004, 0x900000008, 1),
              {0x08000001, 0, 0, 8, 9, 4, 7, 4, 8}));
  CHECK(Equal(MakeFill(0x700000004, 0xdeadbeef, 4096), {0x8000000B, 4, 7, 0xdeadbeef, 4092}));
  CHECK(Equal(MakeFence(0x700000004, 42), {5, 4, 7, 42}));
  CHECK(Equal(MakeTrap(0xf0000123), {6, 0x123}));
  CHECK(Equal(MakePoll(0x700000004, 5, 0xffffffff, PollFunction::kEqual),
              {0xB0000008, 4, 7, 5, 0xffffffff, 0x0fff0004}));
  const auto poll = MakePoll(0, 0, 0, PollFunction::kGreaterEqual);
  CHECK_EQ(poll[0], 0xD0000008u);
  CHECK(Equal(MakeHdpFlush(), {8, 0, 0x80000000, 0, 0, 0}));
  CHECK(
      Equal(MakeAtomicAdd64(0x700000008, -1), {0x5E00000A, 8, 7, 0xffffffff, 0xffffffff, 0, 0, 0}));
  CHECK(Equal(MakeTimestamp(0x700000020), {0x0000020D, 0x20, 7}));
  CHECK_EQ(kSdmaMaxBytes % 32, 0u);
}

}  // namespace
}  // namespace mainarch::gpu
