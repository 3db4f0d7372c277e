// SPDX-License-Identifier: MIT
//
// AQL packets: the 64-byte commands of a compute queue, and the two structures in memory that the
// command processor shares with the host (the queue descriptor and the signal). Pure functions that
// return packets; what is done with them is queue.h's business.
#ifndef MAINARCH_GPU_AQL_H_
#define MAINARCH_GPU_AQL_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace mainarch::gpu {

enum class AqlType : uint8_t {
  kVendorSpecific = 0,
  kInvalid = 1,
  kKernelDispatch = 2,
  kBarrierAnd = 3,
  kAgentDispatch = 4,
  kBarrierOr = 5,
};

enum class Scope : uint8_t { kNone = 0, kAgent = 1, kSystem = 2 };

// Header of a packet. `barrier` makes it wait until every earlier packet of its queue has
// completed.
constexpr uint16_t AqlHeader(AqlType type, bool barrier, Scope acquire, Scope release) {
  return static_cast<uint16_t>(static_cast<unsigned>(type) | (barrier ? 1u << 8 : 0u) |
                               static_cast<unsigned>(acquire) << 9 |
                               static_cast<unsigned>(release) << 11);
}

inline constexpr uint16_t kAqlEmptySlot =
    AqlHeader(AqlType::kInvalid, false, Scope::kNone, Scope::kNone);
inline constexpr size_t kAqlPacketSize = 64;

// Header and setup share dword 0, which is published last and whole.
struct alignas(8) AqlPacket {
  uint32_t dword[16] = {};

  uint16_t header() const { return static_cast<uint16_t>(dword[0]); }
  AqlType type() const { return static_cast<AqlType>(dword[0] & 0xff); }
  uint64_t Qword(size_t byte_offset) const {
    return dword[byte_offset / 4] | uint64_t{dword[byte_offset / 4 + 1]} << 32;
  }
  void SetQword(size_t byte_offset, uint64_t value) {
    dword[byte_offset / 4] = static_cast<uint32_t>(value);
    dword[byte_offset / 4 + 1] = static_cast<uint32_t>(value >> 32);
  }
  uint64_t completion_signal() const { return Qword(56); }
  // The field is replaced: the scopes are numbers, not bits, and 3 is none of them.
  void set_release(Scope scope) {
    dword[0] = (dword[0] & ~(3u << 11)) | static_cast<uint32_t>(scope) << 11;
  }
};
static_assert(sizeof(AqlPacket) == kAqlPacketSize);

// How a packet is ordered and what it signals. Defaults are the safe ones: after everything before
// it, caches made coherent with the whole system on both sides.
struct AqlOrder {
  bool barrier = true;
  Scope acquire = Scope::kSystem;
  Scope release = Scope::kSystem;
  uint64_t completion_signal = 0;  // VA of a Signal; 0: none
};

struct Dim3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

struct Dispatch {
  uint64_t kernel_object = 0;  // VA of the kernel descriptor, 64-byte aligned
  uint64_t kernarg = 0;        // VA, 16-byte aligned
  Dim3 workgroup;              // work-items
  Dim3 grid;                   // work-items, not workgroups
  uint32_t group_bytes = 0;    // LDS: static and dynamic
  uint32_t private_bytes = 0;  // scratch a work-item
};

AqlPacket MakeDispatch(const Dispatch& dispatch, const AqlOrder& order);

// Waits until each of at most five signals is 0 (And), or any of them (Or).
AqlPacket MakeBarrierAnd(absl::Span<const uint64_t> signals, const AqlOrder& order);
AqlPacket MakeBarrierOr(absl::Span<const uint64_t> signals, const AqlOrder& order);

// AMD's own barrier on a value: waits until (value of signal & mask) <condition> `value`.
enum class ValueCondition : uint32_t { kEqual = 0, kNotEqual = 1, kLess = 2, kGreaterEqual = 3 };
AqlPacket MakeBarrierValue(uint64_t signal, int64_t value, int64_t mask, ValueCondition condition,
                           const AqlOrder& order);

// Runs `dwords` of PM4 at `address` (the indirect buffer must stay until the packet completes).
AqlPacket MakePm4Indirect(uint64_t address, uint32_t dwords, const AqlOrder& order);

// The signal of the HSA runtime. The command processor decrements `value` by one when a packet that
// names it completes, then, if the mailbox is set, stores event_id there and raises an interrupt.
struct Signal {
  int64_t kind;  // kUserSignal
  int64_t value;
  uint64_t event_mailbox;  // VA of the event's slot in the event page; 0: no interrupt
  uint32_t event_id;
  uint32_t reserved0;
  uint64_t start_ts;  // 100 MHz GPU clock, when the queue profiles
  uint64_t end_ts;
  uint64_t queue;
  uint64_t reserved1;
};
static_assert(sizeof(Signal) == 64);
static_assert(offsetof(Signal, value) == 8);
static_assert(offsetof(Signal, event_mailbox) == 16);
static_assert(offsetof(Signal, event_id) == 24);
static_assert(offsetof(Signal, start_ts) == 32);
inline constexpr int64_t kUserSignal = 1;

// The queue descriptor (amd_queue_t, version 2). It fills one page of its own: the kernel insists
// that the read and write pointers lie in a mapping of exactly 4096 bytes.
struct QueueDescriptor {
  uint8_t hsa_queue[0x28];
  uint32_t caps;
  uint32_t reserved0[3];
  uint64_t write_dispatch_id;  // 0x38: the queue's write_pointer_address
  uint32_t group_segment_aperture_base_hi;
  uint32_t private_segment_aperture_base_hi;
  uint32_t max_cu_id;
  uint32_t max_wave_id;
  uint8_t legacy_doorbell[0x30];
  uint64_t read_dispatch_id;  // 0x80: the queue's read_pointer_address
  uint32_t read_dispatch_id_field_base_byte_offset;
  uint32_t compute_tmpring_size;
  uint32_t scratch_resource_descriptor[4];
  uint64_t scratch_backing_memory_location;
  uint64_t scratch_backing_memory_byte_size;
  uint32_t scratch_wave64_lane_byte_size;
  uint32_t queue_properties;
  uint64_t scratch_max_use_index;
  uint64_t queue_inactive_signal;  // 0xc0
  uint8_t alt_scratch[0x38];
  uint8_t scratch_last_used_index[128][16];
};
static_assert(sizeof(QueueDescriptor) == 0x900);
static_assert(offsetof(QueueDescriptor, caps) == 0x28);
static_assert(offsetof(QueueDescriptor, write_dispatch_id) == 0x38);
static_assert(offsetof(QueueDescriptor, group_segment_aperture_base_hi) == 0x40);
static_assert(offsetof(QueueDescriptor, max_cu_id) == 0x48);
static_assert(offsetof(QueueDescriptor, read_dispatch_id) == 0x80);
static_assert(offsetof(QueueDescriptor, read_dispatch_id_field_base_byte_offset) == 0x88);
static_assert(offsetof(QueueDescriptor, compute_tmpring_size) == 0x8c);
static_assert(offsetof(QueueDescriptor, scratch_resource_descriptor) == 0x90);
static_assert(offsetof(QueueDescriptor, scratch_backing_memory_location) == 0xa0);
static_assert(offsetof(QueueDescriptor, scratch_wave64_lane_byte_size) == 0xb0);
static_assert(offsetof(QueueDescriptor, queue_properties) == 0xb4);
static_assert(offsetof(QueueDescriptor, queue_inactive_signal) == 0xc0);
static_assert(offsetof(QueueDescriptor, scratch_last_used_index) == 0x100);

inline constexpr uint32_t kQueueIsPtr64 = 1u << 1;
inline constexpr uint32_t kQueueEnableProfiling = 1u << 3;

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_AQL_H_
