// SPDX-License-Identifier: MIT
//
// The binary interface of /dev/kfd: request numbers, argument blocks, flags. Written from the
// public facts of the interface (Linux 6.12, KFD 1.17, and what later minors added in place); the
// system's own header is never included, because a distribution's copy may be years older than its
// kernel. Every size and offset is asserted here: this header is the contract between the driver
// above it and any Sys below it, real or virtual.
#ifndef MAINARCH_KFD_UAPI_KFD_IOCTL_H_
#define MAINARCH_KFD_UAPI_KFD_IOCTL_H_

#include <cstddef>
#include <cstdint>

namespace mainarch::kfd::uapi {

// Argument blocks. Names and order are the interface's; all little-endian, no implicit padding.

struct GetVersionArgs {
  uint32_t major_version;
  uint32_t minor_version;
};

struct CreateQueueArgs {
  uint64_t ring_base_address;
  uint64_t write_pointer_address;
  uint64_t read_pointer_address;
  uint64_t doorbell_offset;  // out: mmap cookie of the slice | byte offset inside it
  uint32_t ring_size;
  uint32_t gpu_id;
  uint32_t queue_type;
  uint32_t queue_percentage;
  uint32_t queue_priority;
  uint32_t queue_id;  // out
  uint64_t eop_buffer_address;
  uint64_t eop_buffer_size;
  uint64_t ctx_save_restore_address;
  uint32_t ctx_save_restore_size;
  uint32_t ctl_stack_size;
  uint32_t sdma_engine_id;  // since 1.17; older kernels take the first 88 bytes only
  uint32_t pad;
};

struct DestroyQueueArgs {
  uint32_t queue_id;
  uint32_t pad;
};

struct UpdateQueueArgs {
  uint64_t ring_base_address;
  uint32_t queue_id;
  uint32_t ring_size;
  uint32_t queue_percentage;
  uint32_t queue_priority;
};

struct SetMemoryPolicyArgs {
  uint64_t alternate_aperture_base;
  uint64_t alternate_aperture_size;
  uint32_t gpu_id;
  uint32_t default_policy;
  uint32_t alternate_policy;
  uint32_t misc_process_flag;  // since 1.18; pad before
};

struct GetClockCountersArgs {
  uint64_t gpu_clock_counter;
  uint64_t cpu_clock_counter;
  uint64_t system_clock_counter;
  uint64_t system_clock_freq;
  uint32_t gpu_id;
  uint32_t pad;
};

struct ProcessDeviceApertures {
  uint64_t lds_base;
  uint64_t lds_limit;
  uint64_t scratch_base;
  uint64_t scratch_limit;
  uint64_t gpuvm_base;
  uint64_t gpuvm_limit;
  uint32_t gpu_id;
  uint32_t pad;
};

struct GetProcessAperturesArgs {  // obsolete: seven GPUs at most
  ProcessDeviceApertures process_apertures[7];
  uint32_t num_of_nodes;
  uint32_t pad;
};

struct GetProcessAperturesNewArgs {
  uint64_t process_device_apertures_ptr;
  uint32_t num_of_nodes;  // in and out
  uint32_t pad;
};

struct CreateEventArgs {
  uint64_t event_page_offset;  // in: handle of a GTT buffer on the first call; out: mmap cookie
  uint32_t event_trigger_data;
  uint32_t event_type;
  uint32_t auto_reset;
  uint32_t node_id;
  uint32_t event_id;
  uint32_t event_slot_index;
};

struct DestroyEventArgs {
  uint32_t event_id;
  uint32_t pad;
};

struct SetEventArgs {
  uint32_t event_id;
  uint32_t pad;
};

struct ResetEventArgs {
  uint32_t event_id;
  uint32_t pad;
};

struct MemoryExceptionFailure {
  uint32_t not_present;
  uint32_t read_only;
  uint32_t no_execute;
  uint32_t imprecise;
};

struct MemoryExceptionData {
  MemoryExceptionFailure failure;
  uint64_t va;
  uint32_t gpu_id;
  uint32_t error_type;
};

struct HwExceptionData {
  uint32_t reset_type;
  uint32_t reset_cause;
  uint32_t memory_lost;
  uint32_t gpu_id;
};

struct SignalEventData {
  uint64_t last_event_age;  // in and out, since 1.14
};

struct EventData {
  union {
    MemoryExceptionData memory_exception_data;
    HwExceptionData hw_exception_data;
    SignalEventData signal_event_data;
  };
  uint64_t kfd_event_data_ext;
  uint32_t event_id;
  uint32_t pad;
};

struct WaitEventsArgs {
  uint64_t events_ptr;
  uint32_t num_events;
  uint32_t wait_for_all;
  uint32_t timeout;  // milliseconds; written back when the call is interrupted
  uint32_t wait_result;
};

struct SetScratchBackingVaArgs {
  uint64_t va_addr;
  uint32_t gpu_id;
  uint32_t pad;
};

struct GetTileConfigArgs {
  uint64_t tile_config_ptr;
  uint64_t macro_tile_config_ptr;
  uint32_t num_tile_configs;
  uint32_t num_macro_tile_configs;
  uint32_t gpu_id;
  uint32_t gb_addr_config;
  uint32_t num_banks;
  uint32_t num_ranks;
};

struct SetTrapHandlerArgs {
  uint64_t tba_addr;
  uint64_t tma_addr;
  uint32_t gpu_id;
  uint32_t pad;
};

struct AcquireVmArgs {
  uint32_t drm_fd;
  uint32_t gpu_id;
};

struct AllocMemoryArgs {
  uint64_t va_addr;
  uint64_t size;
  uint64_t handle;       // out
  uint64_t mmap_offset;  // in for userptr (the CPU address), out otherwise
  uint32_t gpu_id;
  uint32_t flags;
};

struct FreeMemoryArgs {
  uint64_t handle;
};

struct MapMemoryArgs {
  uint64_t handle;
  uint64_t device_ids_array_ptr;  // uint32_t[n_devices]
  uint32_t n_devices;
  uint32_t n_success;  // in and out: how many of them are done
};

using UnmapMemoryArgs = MapMemoryArgs;

struct SetCuMaskArgs {
  uint32_t queue_id;
  uint32_t num_cu_mask;  // bits, a multiple of 32
  uint64_t cu_mask_ptr;
};

struct GetQueueWaveStateArgs {
  uint64_t ctl_stack_address;
  uint32_t ctl_stack_used_size;
  uint32_t save_area_used_size;
  uint32_t queue_id;
  uint32_t pad;
};

struct GetDmabufInfoArgs {
  uint64_t size;
  uint64_t metadata_ptr;
  uint32_t metadata_size;
  uint32_t gpu_id;
  uint32_t flags;
  uint32_t dmabuf_fd;
};

struct ImportDmabufArgs {
  uint64_t va_addr;
  uint64_t handle;
  uint32_t gpu_id;
  uint32_t dmabuf_fd;
};

struct AllocQueueGwsArgs {
  uint32_t queue_id;
  uint32_t num_gws;
  uint32_t first_gws;
  uint32_t pad;
};

struct SmiEventsArgs {
  uint32_t gpu_id;
  uint32_t anon_fd;
};

struct SvmAttribute {
  uint32_t type;
  uint32_t value;
};

struct SvmArgs {  // followed by SvmAttribute[nattr]
  uint64_t start_addr;
  uint64_t size;
  uint32_t op;
  uint32_t nattr;
};

// A debugger's call on another process, or on itself. What follows `op` depends on it; here as
// DBG_TRAP_ENABLE has it.
struct DbgTrapArgs {
  uint32_t pid;
  uint32_t op;
  uint64_t exception_mask;
  uint64_t rinfo_ptr;
  uint32_t rinfo_size;
  uint32_t dbg_fd;
};

struct SetXnackModeArgs {
  int32_t xnack_enabled;
};

struct CriuArgs {
  uint64_t devices;
  uint64_t bos;
  uint64_t priv_data;
  uint64_t priv_data_size;
  uint32_t num_devices;
  uint32_t num_bos;
  uint32_t num_objects;
  uint32_t pid;
  uint32_t op;
  uint32_t pad;
};

struct AvailableMemoryArgs {
  uint64_t available;
  uint32_t gpu_id;
  uint32_t pad;
};

struct ExportDmabufArgs {
  uint64_t handle;
  uint32_t flags;  // O_CLOEXEC and the like
  uint32_t dmabuf_fd;
};

struct RuntimeEnableArgs {
  uint64_t r_debug;
  uint32_t mode_mask;
  uint32_t capabilities_mask;
};

// At the head of the context save area of each XCC; the first writer is user space.
struct CwsrHeader {
  uint32_t control_stack_offset;
  uint32_t control_stack_size;
  uint32_t wave_state_offset;
  uint32_t wave_state_size;
  uint32_t debug_offset;
  uint32_t debug_size;
  uint64_t err_payload_addr;
  uint32_t err_event_id;
  uint32_t reserved;
};

// The ioctl table. The kernel dispatches on the number only and takes the size of the block from
// the caller's request word.
enum Nr : uint32_t {
  kNrGetVersion = 0x01,
  kNrCreateQueue = 0x02,
  kNrDestroyQueue = 0x03,
  kNrSetMemoryPolicy = 0x04,
  kNrGetClockCounters = 0x05,
  kNrGetProcessApertures = 0x06,
  kNrUpdateQueue = 0x07,
  kNrCreateEvent = 0x08,
  kNrDestroyEvent = 0x09,
  kNrSetEvent = 0x0a,
  kNrResetEvent = 0x0b,
  kNrWaitEvents = 0x0c,
  kNrDbgRegister = 0x0d,  // 0x0d-0x10: stubs that always answer EPERM
  kNrDbgUnregister = 0x0e,
  kNrDbgAddressWatch = 0x0f,
  kNrDbgWaveControl = 0x10,
  kNrSetScratchBackingVa = 0x11,
  kNrGetTileConfig = 0x12,
  kNrSetTrapHandler = 0x13,
  kNrGetProcessAperturesNew = 0x14,
  kNrAcquireVm = 0x15,
  kNrAllocMemory = 0x16,
  kNrFreeMemory = 0x17,
  kNrMapMemory = 0x18,
  kNrUnmapMemory = 0x19,
  kNrSetCuMask = 0x1a,
  kNrGetQueueWaveState = 0x1b,
  kNrGetDmabufInfo = 0x1c,
  kNrImportDmabuf = 0x1d,
  kNrAllocQueueGws = 0x1e,
  kNrSmiEvents = 0x1f,
  kNrSvm = 0x20,
  kNrSetXnackMode = 0x21,
  kNrCriuOp = 0x22,
  kNrAvailableMemory = 0x23,
  kNrExportDmabuf = 0x24,
  kNrRuntimeEnable = 0x25,
  kNrDbgTrap = 0x26,
  kNrLast = kNrDbgTrap,
};

// Linux' generic request word: direction [31:30], size [29:16], type [15:8], number [7:0].
inline constexpr uint32_t kDirWrite = 1;  // user to kernel
inline constexpr uint32_t kDirRead = 2;   // kernel to user
inline constexpr uint32_t kIoctlType = 'K';

constexpr uint32_t Request(uint32_t direction, uint32_t number, size_t size) {
  return direction << 30 | static_cast<uint32_t>(size) << 16 | kIoctlType << 8 | number;
}
constexpr uint32_t RequestNr(uint32_t request) { return request & 0xff; }
constexpr uint32_t RequestType(uint32_t request) { return request >> 8 & 0xff; }
constexpr uint32_t RequestSize(uint32_t request) { return request >> 16 & 0x3fff; }
constexpr uint32_t RequestDirection(uint32_t request) { return request >> 30; }

inline constexpr uint32_t kGetVersion = Request(kDirRead, kNrGetVersion, sizeof(GetVersionArgs));
inline constexpr uint32_t kCreateQueue =
    Request(kDirRead | kDirWrite, kNrCreateQueue, sizeof(CreateQueueArgs));
inline constexpr uint32_t kDestroyQueue =
    Request(kDirRead | kDirWrite, kNrDestroyQueue, sizeof(DestroyQueueArgs));
inline constexpr uint32_t kSetMemoryPolicy =
    Request(kDirWrite, kNrSetMemoryPolicy, sizeof(SetMemoryPolicyArgs));
inline constexpr uint32_t kGetClockCounters =
    Request(kDirRead | kDirWrite, kNrGetClockCounters, sizeof(GetClockCountersArgs));
inline constexpr uint32_t kGetProcessApertures =
    Request(kDirRead, kNrGetProcessApertures, sizeof(GetProcessAperturesArgs));
inline constexpr uint32_t kUpdateQueue =
    Request(kDirWrite, kNrUpdateQueue, sizeof(UpdateQueueArgs));
inline constexpr uint32_t kCreateEvent =
    Request(kDirRead | kDirWrite, kNrCreateEvent, sizeof(CreateEventArgs));
inline constexpr uint32_t kDestroyEvent =
    Request(kDirWrite, kNrDestroyEvent, sizeof(DestroyEventArgs));
inline constexpr uint32_t kSetEvent = Request(kDirWrite, kNrSetEvent, sizeof(SetEventArgs));
inline constexpr uint32_t kResetEvent = Request(kDirWrite, kNrResetEvent, sizeof(ResetEventArgs));
inline constexpr uint32_t kWaitEvents =
    Request(kDirRead | kDirWrite, kNrWaitEvents, sizeof(WaitEventsArgs));
inline constexpr uint32_t kSetScratchBackingVa =
    Request(kDirRead | kDirWrite, kNrSetScratchBackingVa, sizeof(SetScratchBackingVaArgs));
inline constexpr uint32_t kGetTileConfig =
    Request(kDirRead | kDirWrite, kNrGetTileConfig, sizeof(GetTileConfigArgs));
inline constexpr uint32_t kSetTrapHandler =
    Request(kDirWrite, kNrSetTrapHandler, sizeof(SetTrapHandlerArgs));
inline constexpr uint32_t kGetProcessAperturesNew =
    Request(kDirRead | kDirWrite, kNrGetProcessAperturesNew, sizeof(GetProcessAperturesNewArgs));
inline constexpr uint32_t kAcquireVm = Request(kDirWrite, kNrAcquireVm, sizeof(AcquireVmArgs));
inline constexpr uint32_t kAllocMemory =
    Request(kDirRead | kDirWrite, kNrAllocMemory, sizeof(AllocMemoryArgs));
inline constexpr uint32_t kFreeMemory = Request(kDirWrite, kNrFreeMemory, sizeof(FreeMemoryArgs));
inline constexpr uint32_t kMapMemory =
    Request(kDirRead | kDirWrite, kNrMapMemory, sizeof(MapMemoryArgs));
inline constexpr uint32_t kUnmapMemory =
    Request(kDirRead | kDirWrite, kNrUnmapMemory, sizeof(UnmapMemoryArgs));
inline constexpr uint32_t kSetCuMask = Request(kDirWrite, kNrSetCuMask, sizeof(SetCuMaskArgs));
inline constexpr uint32_t kGetQueueWaveState =
    Request(kDirRead | kDirWrite, kNrGetQueueWaveState, sizeof(GetQueueWaveStateArgs));
inline constexpr uint32_t kGetDmabufInfo =
    Request(kDirRead | kDirWrite, kNrGetDmabufInfo, sizeof(GetDmabufInfoArgs));
inline constexpr uint32_t kImportDmabuf =
    Request(kDirRead | kDirWrite, kNrImportDmabuf, sizeof(ImportDmabufArgs));
inline constexpr uint32_t kAllocQueueGws =
    Request(kDirRead | kDirWrite, kNrAllocQueueGws, sizeof(AllocQueueGwsArgs));
inline constexpr uint32_t kSmiEvents =
    Request(kDirRead | kDirWrite, kNrSmiEvents, sizeof(SmiEventsArgs));
inline constexpr uint32_t kSvm = Request(kDirRead | kDirWrite, kNrSvm, sizeof(SvmArgs));
inline constexpr uint32_t kSetXnackMode =
    Request(kDirRead | kDirWrite, kNrSetXnackMode, sizeof(SetXnackModeArgs));
inline constexpr uint32_t kCriuOp = Request(kDirRead | kDirWrite, kNrCriuOp, sizeof(CriuArgs));
inline constexpr uint32_t kAvailableMemory =
    Request(kDirRead | kDirWrite, kNrAvailableMemory, sizeof(AvailableMemoryArgs));
inline constexpr uint32_t kExportDmabuf =
    Request(kDirRead | kDirWrite, kNrExportDmabuf, sizeof(ExportDmabufArgs));
inline constexpr uint32_t kRuntimeEnable =
    Request(kDirRead | kDirWrite, kNrRuntimeEnable, sizeof(RuntimeEnableArgs));
inline constexpr uint32_t kDbgTrap = Request(kDirRead | kDirWrite, kNrDbgTrap, 32);

// Flags and small numbers.

inline constexpr uint32_t kQueueTypeCompute = 0;  // PM4
inline constexpr uint32_t kQueueTypeSdma = 1;
inline constexpr uint32_t kQueueTypeComputeAql = 2;
inline constexpr uint32_t kQueueTypeSdmaXgmi = 3;
inline constexpr uint32_t kQueueTypeSdmaByEngId = 4;  // since 1.17

inline constexpr uint32_t kMaxQueuePercentage = 100;
inline constexpr uint32_t kMaxQueuePriority = 15;
inline constexpr uint32_t kMinRingSize = 1024;

inline constexpr uint32_t kAllocVram = 1u << 0;
inline constexpr uint32_t kAllocGtt = 1u << 1;
inline constexpr uint32_t kAllocUserptr = 1u << 2;
inline constexpr uint32_t kAllocDoorbell = 1u << 3;
inline constexpr uint32_t kAllocMmioRemap = 1u << 4;
inline constexpr uint32_t kAllocContiguous = 1u << 23;
inline constexpr uint32_t kAllocExtCoherent = 1u << 24;
inline constexpr uint32_t kAllocUncached = 1u << 25;
inline constexpr uint32_t kAllocCoherent = 1u << 26;
inline constexpr uint32_t kAllocAqlQueueMem = 1u << 27;
inline constexpr uint32_t kAllocNoSubstitute = 1u << 28;
inline constexpr uint32_t kAllocPublic = 1u << 29;
inline constexpr uint32_t kAllocExecutable = 1u << 30;
inline constexpr uint32_t kAllocWritable = 1u << 31;

inline constexpr uint32_t kEventSignal = 0;
inline constexpr uint32_t kEventNodeChange = 1;
inline constexpr uint32_t kEventDeviceStateChange = 2;
inline constexpr uint32_t kEventHwException = 3;
inline constexpr uint32_t kEventSystem = 4;
inline constexpr uint32_t kEventDebug = 5;
inline constexpr uint32_t kEventProfile = 6;
inline constexpr uint32_t kEventQueue = 7;
inline constexpr uint32_t kEventMemory = 8;

inline constexpr uint32_t kWaitComplete = 0;
inline constexpr uint32_t kWaitTimeout = 1;
inline constexpr uint32_t kWaitFail = 2;
inline constexpr uint32_t kTimeoutImmediate = 0;
inline constexpr uint32_t kTimeoutInfinite = 0xffffffffu;

inline constexpr uint32_t kMemoryErrorNone = 0;
inline constexpr uint32_t kMemoryErrorSramEcc = 1;
inline constexpr uint32_t kMemoryErrorPoisonConsumed = 2;
inline constexpr uint32_t kMemoryErrorHang = 3;
inline constexpr uint32_t kResetTypeWholeGpu = 0;
inline constexpr uint32_t kResetTypePerEngine = 1;
inline constexpr uint32_t kResetCauseHang = 0;
inline constexpr uint32_t kResetCauseEcc = 1;

inline constexpr uint32_t kCachePolicyCoherent = 0;
inline constexpr uint32_t kCachePolicyNonCoherent = 1;

inline constexpr uint32_t kRuntimeEnableMode = 1u << 0;
inline constexpr uint32_t kRuntimeTtmpSaveMode = 1u << 1;

inline constexpr uint32_t kSvmOpSet = 0;
inline constexpr uint32_t kSvmOpGet = 1;
inline constexpr uint32_t kSvmPreferredLocation = 0;
inline constexpr uint32_t kSvmPrefetchLocation = 1;
inline constexpr uint32_t kSvmAccess = 2;
inline constexpr uint32_t kSvmAccessInPlace = 3;
inline constexpr uint32_t kSvmNoAccess = 4;
inline constexpr uint32_t kSvmSetFlags = 5;
inline constexpr uint32_t kSvmClearFlags = 6;
inline constexpr uint32_t kSvmGranularity = 7;
inline constexpr uint32_t kSvmLocationSystem = 0;
inline constexpr uint32_t kSvmLocationUndefined = 0xffffffff;
inline constexpr uint32_t kSvmHostAccess = 1;
inline constexpr uint32_t kSvmCoherent = 2;
inline constexpr uint32_t kSvmGpuReadOnly = 8;
inline constexpr uint32_t kSvmGpuExecutable = 0x10;
inline constexpr uint32_t kSvmGpuAlwaysMapped = 0x40;
inline constexpr uint32_t kSvmExtCoherent = 0x80;

// Events of SMI_EVENTS; bit (event - 1) of the mask that is written to its descriptor.
inline constexpr uint32_t kSmiVmFault = 1;
inline constexpr uint32_t kSmiPreReset = 3;
inline constexpr uint32_t kSmiPostReset = 4;
inline constexpr uint32_t kSmiMigrateStart = 5;
inline constexpr uint32_t kSmiMigrateEnd = 6;

// Operations of DBG_TRAP.
inline constexpr uint32_t kDbgTrapEnable = 0;
inline constexpr uint32_t kDbgTrapDisable = 1;
inline constexpr uint32_t kDbgTrapSendRuntimeEvent = 2;
inline constexpr uint32_t kDbgTrapSetExceptionsEnabled = 3;
inline constexpr uint32_t kDbgTrapSetWaveLaunchOverride = 4;
inline constexpr uint32_t kDbgTrapSetWaveLaunchMode = 5;
inline constexpr uint32_t kDbgTrapSuspendQueues = 6;
inline constexpr uint32_t kDbgTrapResumeQueues = 7;
inline constexpr uint32_t kDbgTrapSetNodeAddressWatch = 8;
inline constexpr uint32_t kDbgTrapClearNodeAddressWatch = 9;
inline constexpr uint32_t kDbgTrapSetFlags = 10;
inline constexpr uint32_t kDbgTrapQueryDebugEvent = 11;
inline constexpr uint32_t kDbgTrapQueryExceptionInfo = 12;
inline constexpr uint32_t kDbgTrapGetQueueSnapshot = 13;
inline constexpr uint32_t kDbgTrapGetDeviceSnapshot = 14;

// mmap cookies of /dev/kfd: type in [63:62], gpu_id in [61:46], byte offset below.
inline constexpr uint64_t kMmapTypeMmio = 0;
inline constexpr uint64_t kMmapTypeReservedMemory = 1;
inline constexpr uint64_t kMmapTypeEvents = 2;
inline constexpr uint64_t kMmapTypeDoorbell = 3;
inline constexpr int kMmapTypeShift = 62;
inline constexpr int kMmapGpuIdShift = 46;

constexpr uint64_t MmapCookie(uint64_t type, uint32_t gpu_id) {
  return type << kMmapTypeShift | uint64_t{gpu_id & 0xffff} << kMmapGpuIdShift;
}

inline constexpr uint64_t kDoorbellSliceSize = 0x2000;  // one process on one GPU
inline constexpr uint64_t kMmioRemapSize = 0x1000;
inline constexpr uint64_t kEventPageSize = 0x8000;  // 4096 slots of 8 bytes
inline constexpr uint32_t kSignalEventLimit = 4096;
inline constexpr uint64_t kUnsignaledSlot = ~uint64_t{0};
inline constexpr uint32_t kFirstNonSignalEventId = 0x40000000;

inline constexpr int kErrnoNotSupported = 524;  // the kernel's own ENOTSUPP, which leaks out

// Offsets inside the MMIO remap page; a store of 1 flushes.
inline constexpr uint32_t kHdpMemFlushOffset = 0;
inline constexpr uint32_t kHdpRegFlushOffset = 4;

// The contract, row by row.
#define MAINARCH_KFD_ROW(type, field, offset) static_assert(offsetof(type, field) == (offset))

static_assert(sizeof(GetVersionArgs) == 8);
static_assert(sizeof(CreateQueueArgs) == 96);
MAINARCH_KFD_ROW(CreateQueueArgs, ring_base_address, 0);
MAINARCH_KFD_ROW(CreateQueueArgs, write_pointer_address, 8);
MAINARCH_KFD_ROW(CreateQueueArgs, read_pointer_address, 16);
MAINARCH_KFD_ROW(CreateQueueArgs, doorbell_offset, 24);
MAINARCH_KFD_ROW(CreateQueueArgs, ring_size, 32);
MAINARCH_KFD_ROW(CreateQueueArgs, gpu_id, 36);
MAINARCH_KFD_ROW(CreateQueueArgs, queue_type, 40);
MAINARCH_KFD_ROW(CreateQueueArgs, queue_percentage, 44);
MAINARCH_KFD_ROW(CreateQueueArgs, queue_priority, 48);
MAINARCH_KFD_ROW(CreateQueueArgs, queue_id, 52);
MAINARCH_KFD_ROW(CreateQueueArgs, eop_buffer_address, 56);
MAINARCH_KFD_ROW(CreateQueueArgs, eop_buffer_size, 64);
MAINARCH_KFD_ROW(CreateQueueArgs, ctx_save_restore_address, 72);
MAINARCH_KFD_ROW(CreateQueueArgs, ctx_save_restore_size, 80);
MAINARCH_KFD_ROW(CreateQueueArgs, ctl_stack_size, 84);
MAINARCH_KFD_ROW(CreateQueueArgs, sdma_engine_id, 88);
MAINARCH_KFD_ROW(CreateQueueArgs, pad, 92);
static_assert(sizeof(DestroyQueueArgs) == 8);
MAINARCH_KFD_ROW(DestroyQueueArgs, queue_id, 0);
static_assert(sizeof(UpdateQueueArgs) == 24);
MAINARCH_KFD_ROW(UpdateQueueArgs, queue_id, 8);
MAINARCH_KFD_ROW(UpdateQueueArgs, ring_size, 12);
MAINARCH_KFD_ROW(UpdateQueueArgs, queue_percentage, 16);
MAINARCH_KFD_ROW(UpdateQueueArgs, queue_priority, 20);
static_assert(sizeof(SetMemoryPolicyArgs) == 32);
MAINARCH_KFD_ROW(SetMemoryPolicyArgs, gpu_id, 16);
MAINARCH_KFD_ROW(SetMemoryPolicyArgs, default_policy, 20);
MAINARCH_KFD_ROW(SetMemoryPolicyArgs, alternate_policy, 24);
MAINARCH_KFD_ROW(SetMemoryPolicyArgs, misc_process_flag, 28);
static_assert(sizeof(GetClockCountersArgs) == 40);
MAINARCH_KFD_ROW(GetClockCountersArgs, cpu_clock_counter, 8);
MAINARCH_KFD_ROW(GetClockCountersArgs, system_clock_counter, 16);
MAINARCH_KFD_ROW(GetClockCountersArgs, system_clock_freq, 24);
MAINARCH_KFD_ROW(GetClockCountersArgs, gpu_id, 32);
static_assert(sizeof(ProcessDeviceApertures) == 56);
MAINARCH_KFD_ROW(ProcessDeviceApertures, scratch_base, 16);
MAINARCH_KFD_ROW(ProcessDeviceApertures, gpuvm_base, 32);
MAINARCH_KFD_ROW(ProcessDeviceApertures, gpuvm_limit, 40);
MAINARCH_KFD_ROW(ProcessDeviceApertures, gpu_id, 48);
static_assert(sizeof(GetProcessAperturesArgs) == 400);
MAINARCH_KFD_ROW(GetProcessAperturesArgs, num_of_nodes, 392);
static_assert(sizeof(GetProcessAperturesNewArgs) == 16);
MAINARCH_KFD_ROW(GetProcessAperturesNewArgs, num_of_nodes, 8);
static_assert(sizeof(CreateEventArgs) == 32);
MAINARCH_KFD_ROW(CreateEventArgs, event_trigger_data, 8);
MAINARCH_KFD_ROW(CreateEventArgs, event_type, 12);
MAINARCH_KFD_ROW(CreateEventArgs, auto_reset, 16);
MAINARCH_KFD_ROW(CreateEventArgs, node_id, 20);
MAINARCH_KFD_ROW(CreateEventArgs, event_id, 24);
MAINARCH_KFD_ROW(CreateEventArgs, event_slot_index, 28);
static_assert(sizeof(DestroyEventArgs) == 8);
static_assert(sizeof(SetEventArgs) == 8);
static_assert(sizeof(ResetEventArgs) == 8);
static_assert(sizeof(MemoryExceptionData) == 32);
MAINARCH_KFD_ROW(MemoryExceptionData, va, 16);
MAINARCH_KFD_ROW(MemoryExceptionData, gpu_id, 24);
MAINARCH_KFD_ROW(MemoryExceptionData, error_type, 28);
MAINARCH_KFD_ROW(MemoryExceptionFailure, read_only, 4);
MAINARCH_KFD_ROW(MemoryExceptionFailure, no_execute, 8);
MAINARCH_KFD_ROW(MemoryExceptionFailure, imprecise, 12);
static_assert(sizeof(HwExceptionData) == 16);
MAINARCH_KFD_ROW(HwExceptionData, reset_cause, 4);
MAINARCH_KFD_ROW(HwExceptionData, memory_lost, 8);
MAINARCH_KFD_ROW(HwExceptionData, gpu_id, 12);
static_assert(sizeof(SignalEventData) == 8);
static_assert(sizeof(EventData) == 48);
MAINARCH_KFD_ROW(EventData, memory_exception_data, 0);
MAINARCH_KFD_ROW(EventData, kfd_event_data_ext, 32);
MAINARCH_KFD_ROW(EventData, event_id, 40);
static_assert(sizeof(WaitEventsArgs) == 24);
MAINARCH_KFD_ROW(WaitEventsArgs, num_events, 8);
MAINARCH_KFD_ROW(WaitEventsArgs, wait_for_all, 12);
MAINARCH_KFD_ROW(WaitEventsArgs, timeout, 16);
MAINARCH_KFD_ROW(WaitEventsArgs, wait_result, 20);
static_assert(sizeof(SetScratchBackingVaArgs) == 16);
MAINARCH_KFD_ROW(SetScratchBackingVaArgs, gpu_id, 8);
static_assert(sizeof(GetTileConfigArgs) == 40);
MAINARCH_KFD_ROW(GetTileConfigArgs, gpu_id, 24);
static_assert(sizeof(SetTrapHandlerArgs) == 24);
MAINARCH_KFD_ROW(SetTrapHandlerArgs, tma_addr, 8);
MAINARCH_KFD_ROW(SetTrapHandlerArgs, gpu_id, 16);
static_assert(sizeof(AcquireVmArgs) == 8);
MAINARCH_KFD_ROW(AcquireVmArgs, gpu_id, 4);
static_assert(sizeof(AllocMemoryArgs) == 40);
MAINARCH_KFD_ROW(AllocMemoryArgs, va_addr, 0);
MAINARCH_KFD_ROW(AllocMemoryArgs, size, 8);
MAINARCH_KFD_ROW(AllocMemoryArgs, handle, 16);
MAINARCH_KFD_ROW(AllocMemoryArgs, mmap_offset, 24);
MAINARCH_KFD_ROW(AllocMemoryArgs, gpu_id, 32);
MAINARCH_KFD_ROW(AllocMemoryArgs, flags, 36);
static_assert(sizeof(FreeMemoryArgs) == 8);
static_assert(sizeof(MapMemoryArgs) == 24);
MAINARCH_KFD_ROW(MapMemoryArgs, device_ids_array_ptr, 8);
MAINARCH_KFD_ROW(MapMemoryArgs, n_devices, 16);
MAINARCH_KFD_ROW(MapMemoryArgs, n_success, 20);
static_assert(sizeof(SetCuMaskArgs) == 16);
MAINARCH_KFD_ROW(SetCuMaskArgs, num_cu_mask, 4);
MAINARCH_KFD_ROW(SetCuMaskArgs, cu_mask_ptr, 8);
static_assert(sizeof(GetQueueWaveStateArgs) == 24);
MAINARCH_KFD_ROW(GetQueueWaveStateArgs, ctl_stack_used_size, 8);
MAINARCH_KFD_ROW(GetQueueWaveStateArgs, save_area_used_size, 12);
MAINARCH_KFD_ROW(GetQueueWaveStateArgs, queue_id, 16);
static_assert(sizeof(GetDmabufInfoArgs) == 32);
MAINARCH_KFD_ROW(GetDmabufInfoArgs, metadata_size, 16);
MAINARCH_KFD_ROW(GetDmabufInfoArgs, gpu_id, 20);
MAINARCH_KFD_ROW(GetDmabufInfoArgs, flags, 24);
MAINARCH_KFD_ROW(GetDmabufInfoArgs, dmabuf_fd, 28);
static_assert(sizeof(ImportDmabufArgs) == 24);
MAINARCH_KFD_ROW(ImportDmabufArgs, handle, 8);
MAINARCH_KFD_ROW(ImportDmabufArgs, gpu_id, 16);
MAINARCH_KFD_ROW(ImportDmabufArgs, dmabuf_fd, 20);

static_assert(sizeof(SmiEventsArgs) == 8);
static_assert(sizeof(SvmAttribute) == 8);
static_assert(sizeof(SvmArgs) == 24);
MAINARCH_KFD_ROW(SvmArgs, op, 16);
MAINARCH_KFD_ROW(SvmArgs, nattr, 20);
static_assert(sizeof(SetXnackModeArgs) == 4);
static_assert(sizeof(CriuArgs) == 56);
static_assert(sizeof(DbgTrapArgs) == 32);
static_assert(sizeof(AllocQueueGwsArgs) == 16);
static_assert(sizeof(AvailableMemoryArgs) == 16);
MAINARCH_KFD_ROW(AvailableMemoryArgs, gpu_id, 8);
static_assert(sizeof(ExportDmabufArgs) == 16);
MAINARCH_KFD_ROW(ExportDmabufArgs, flags, 8);
MAINARCH_KFD_ROW(ExportDmabufArgs, dmabuf_fd, 12);
static_assert(sizeof(RuntimeEnableArgs) == 16);
MAINARCH_KFD_ROW(RuntimeEnableArgs, mode_mask, 8);
MAINARCH_KFD_ROW(RuntimeEnableArgs, capabilities_mask, 12);
static_assert(sizeof(CwsrHeader) == 40);
MAINARCH_KFD_ROW(CwsrHeader, debug_offset, 16);
MAINARCH_KFD_ROW(CwsrHeader, debug_size, 20);
MAINARCH_KFD_ROW(CwsrHeader, err_payload_addr, 24);
MAINARCH_KFD_ROW(CwsrHeader, err_event_id, 32);

static_assert(kGetVersion == 0x80084b01);
static_assert(kCreateQueue == 0xc0604b02);
static_assert(kDestroyQueue == 0xc0084b03);
static_assert(kSetMemoryPolicy == 0x40204b04);
static_assert(kGetClockCounters == 0xc0284b05);
static_assert(kGetProcessApertures == 0x81904b06);
static_assert(kUpdateQueue == 0x40184b07);
static_assert(kCreateEvent == 0xc0204b08);
static_assert(kDestroyEvent == 0x40084b09);
static_assert(kSetEvent == 0x40084b0a);
static_assert(kResetEvent == 0x40084b0b);
static_assert(kWaitEvents == 0xc0184b0c);
static_assert(kSetScratchBackingVa == 0xc0104b11);
static_assert(kGetTileConfig == 0xc0284b12);
static_assert(kSetTrapHandler == 0x40184b13);
static_assert(kGetProcessAperturesNew == 0xc0104b14);
static_assert(kAcquireVm == 0x40084b15);
static_assert(kAllocMemory == 0xc0284b16);
static_assert(kFreeMemory == 0x40084b17);
static_assert(kMapMemory == 0xc0184b18);
static_assert(kUnmapMemory == 0xc0184b19);
static_assert(kSetCuMask == 0x40104b1a);
static_assert(kGetQueueWaveState == 0xc0184b1b);
static_assert(kGetDmabufInfo == 0xc0204b1c);
static_assert(kImportDmabuf == 0xc0184b1d);
static_assert(kAllocQueueGws == 0xc0104b1e);
static_assert(kSmiEvents == 0xc0084b1f);
static_assert(kSvm == 0xc0184b20);
static_assert(kSetXnackMode == 0xc0044b21);
static_assert(kCriuOp == 0xc0384b22);
static_assert(kAvailableMemory == 0xc0104b23);
static_assert(kExportDmabuf == 0xc0104b24);
static_assert(kRuntimeEnable == 0xc0104b25);
static_assert(kDbgTrap == 0xc0204b26);
static_assert((MmapCookie(kMmapTypeDoorbell, 0x1234) | 0x10) == 0xC48D000000000010);

#undef MAINARCH_KFD_ROW

}  // namespace mainarch::kfd::uapi

#endif  // MAINARCH_KFD_UAPI_KFD_IOCTL_H_
