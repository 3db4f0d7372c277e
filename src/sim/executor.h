// SPDX-License-Identifier: MIT
//
// The seam between the packet processor and whatever runs a kernel's instructions.
//
// The packet processor (aql_queue.h) reads a dispatch packet, checks what firmware checks, reads the
// kernel descriptor and hands a Dispatch to the node's Executor. The executor answers with a
// Launch: one dispatch in flight. The machine then calls Launch::Run in bounded slices, mixed with
// the slices of other dispatches, queues, copy engines and GPUs in an order drawn from a seed,
// until it reports kDone or a fault. Kernels that never end (persistent kernels) are therefore
// normal: a slice ends, the others get their turn. Destroying a Launch cancels it, at any point.
//
// This is not a model of caches: Translate gives host memory and the page's MTYPE, and an executor
// that models L1/L2 does so on top of it, told of the packet processor's fences through Fence().
//
// Ownership: the machine owns the executor, every GpuContext and every Launch.
// Threads: one GPU is served by one machine thread; different GPUs may be served by different
// threads at the same time, so state that an executor shares between GPUs needs its own lock.
// Every call into an executor is made while the machine holds the node's page tables still: what
// Translate returned stays valid until the call returns, and never longer (compare epoch()).
#ifndef MAINARCH_SIM_EXECUTOR_H_
#define MAINARCH_SIM_EXECUTOR_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace mainarch::sim {

enum class Access : uint8_t {
  kRead,
  kWrite,    // stores and read-modify-write atomics
  kExecute,  // instruction fetch
};

// How the page is cached by the GPU that maps it (reference: MTYPE chosen by the kernel).
enum class Mtype : uint8_t {
  kRw,  // cached read/write, kept coherent by probes: a GPU's own VRAM
  kNc,  // cached, nobody invalidates it for you: peers' VRAM, system memory on gfx950
  kCc,  // cached for reads, written through, probe-coherent
  kUc,  // never cached
};

// The longest run of bytes from the asked address that one mapping covers.
struct Window {
  uint8_t* host = nullptr;  // where the simulator keeps the byte at the asked address
  uint64_t size = 0;        // bytes from there to the end of the mapping
  uint64_t before = 0;      // bytes of the mapping in front of it, which may be accessed likewise
  Mtype mtype = Mtype::kUc;
  bool writable = false;
  bool executable = false;
  bool system_memory = false;  // GTT or user memory, as against some GPU's VRAM
  uint32_t home_gpu = 0;       // index of the GPU that owns the VRAM; meaningless for system memory
};

// What a page fault tells the driver (kfd_hsa_memory_exception_data).
struct MemoryFault {
  uint64_t va = 0;
  bool not_present = false;
  bool read_only = false;
  bool no_execute = false;
};

enum class Scope : uint8_t { kNone = 0, kAgent = 1, kSystem = 2 };  // as in an AQL header

// Facts of the chip that execution depends on; constant for the life of the node.
struct GpuFacts {
  uint32_t gfx_target_version = 0;  // 90402, 90500, 90010 …
  uint32_t num_xcc = 1;
  uint32_t cus_per_xcc = 0;  // active ones
  uint32_t simds_per_cu = 4;
  uint32_t waves_per_simd = 8;
  uint32_t lds_bytes = 0;      // of one CU
  uint32_t lds_granule = 512;  // bytes; 1280 on gfx950
  uint32_t scratch_slots_per_cu = 32;
  bool system_memory_nc = false;  // gfx950: GTT is NC, elsewhere UC
};

// One GPU as one process sees it: its page table and the ways to reach the host.
class GpuContext {
 public:
  virtual ~GpuContext() = default;

  virtual const GpuFacts& facts() const = 0;
  virtual uint32_t gpu_index() const = 0;   // 0-based on the node
  virtual uint32_t process_id() const = 0;  // distinguishes address spaces (the VMID's role)

  // Finds [va, …). False and *fault filled when the first byte cannot be accessed so; the caller
  // returns that fault from Run. Addresses in the LDS and scratch apertures are the executor's own.
  virtual bool Translate(uint64_t va, Access access, Window* window, MemoryFault* fault) const = 0;

  // Changes whenever a translation handed out earlier may have become wrong. A cache of Windows is
  // valid while the epoch it was filled in is the current one; it does not change during a call.
  virtual uint64_t epoch() const = 0;

  // The 100 MHz reference counter (s_memrealtime, profiling timestamps).
  virtual uint64_t Clock() const = 0;

  // s_sendmsg(MSG_INTERRUPT): raises an SQ interrupt with the 24 valid bits of m0.
  virtual void Interrupt(uint32_t m0) = 0;

  // Second-level trap handler of SET_TRAP_HANDLER, 0 when there is none.
  virtual uint64_t trap_handler_va() const = 0;
  virtual uint64_t trap_memory_va() const = 0;
};

inline constexpr uint64_t kLdsAperture = 0x1000000000000;      // + 4 GiB
inline constexpr uint64_t kScratchAperture = 0x2000000000000;  // + 4 GiB

// A kernel dispatch packet that passed the packet processor's checks. All values are final: grid
// and workgroup sizes of unused dimensions are 1, and group_segment_bytes fits one CU.
struct Dispatch {
  GpuContext* context = nullptr;  // outlives the Launch

  uint64_t entry_va = 0;                    // first instruction: kernel_object + KD entry offset
  uint64_t kernel_object_va = 0;            // of the 64-byte kernel descriptor
  std::array<uint8_t, 64> descriptor = {};  // its bytes as read through the GPU's page table
  uint64_t kernarg_va = 0;
  std::array<uint32_t, 3> grid = {1, 1, 1};       // work-items
  std::array<uint32_t, 3> workgroup = {1, 1, 1};  // work-items
  uint32_t dims = 1;
  uint32_t private_segment_bytes = 0;  // a work-item
  uint32_t group_segment_bytes = 0;    // a workgroup: static and dynamic LDS

  uint64_t packet_va = 0;    // of the packet in its ring (user SGPR dispatch_ptr)
  uint64_t queue_va = 0;     // amd_queue_t (user SGPR queue_ptr)
  uint64_t dispatch_id = 0;  // index of the packet since the queue was created
  uint32_t queue_id = 0;     // for messages
  bool gws = false;          // the queue has the GPU's global wave sync

  // Of a PM4 dispatch, which has registers instead of a packet: what the user SGPRs hold.
  bool has_user_data = false;
  std::array<uint32_t, 16> user_data = {};

  // Scratch as the queue describes it; all 0 when none was given.
  uint64_t scratch_va = 0;  // XCC x starts at scratch_va + x * scratch_bytes_per_xcc
  uint64_t scratch_bytes_per_xcc = 0;
  uint32_t scratch_wave_bytes = 0;  // tmpring WAVESIZE in bytes
  uint32_t scratch_waves = 0;       // tmpring WAVES, an XCC

  // Workgroup n runs on XCC (n + first_xcc) % num_xcc (tg_chunk_size = 1).
  uint32_t first_xcc = 0;
  Scope acquire = Scope::kNone, release = Scope::kNone;
  bool barrier = false;  // the packet's barrier bit: what came before it has ended
  // For any choice that hardware leaves open; derived from the node's seed, so a printed seed
  // reproduces it.
  uint64_t seed = 0;
};

// Why a wave stopped other than by s_endpgm and a page fault. The codes are the kernel's EC_QUEUE_*
// numbers (an error_reason mask has bit code - 1).
enum class WaveException : uint8_t {
  kNone = 0,
  kAbort = 1,
  kTrap = 2,
  kMathError = 3,
  kIllegalInstruction = 4,
  kMemoryViolation = 5,
  kApertureViolation = 6,
};

struct Progress {
  enum class State : uint8_t {
    kRunning,    // used its budget, or yielded with work left
    kWaiting,    // every wave left is spinning or asleep: the machine may let the host rest
    kDone,       // all waves ended and their stores are in host memory
    kFault,      // `fault` is set; the Launch will be destroyed
    kException,  // `exception` is set; the waves are halted and never complete
  };
  State state = State::kRunning;
  MemoryFault fault;
  WaveException exception = WaveException::kNone;
  std::string detail;  // one line for a person: pc, wave, instruction; empty when nothing to say
  std::vector<std::string> notes;  // lines for the log, whatever the state
};

// One dispatch in flight. Destruction cancels it; no thread of the executor's touches device memory
// after Run has returned.
class Launch {
 public:
  virtual ~Launch() = default;

  // Runs at most about `budget` wave-instructions (a host function counts as one) and returns. A
  // slice should stay below a millisecond: page table changes and teardown wait for it.
  virtual Progress Run(uint64_t budget) = 0;

  // Of a launch that is done, by an executor that models time: when its packet was taken and when it
  // was complete, in 100 MHz ticks. False: the machine's own clock counts.
  virtual bool Times(uint64_t* /*start*/, uint64_t* /*end*/) const { return false; }

  // Waves of it that are on the GPU between two Runs.
  virtual uint64_t waves() const { return 0; }
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Takes a dispatch. An error means that this executor cannot run it at all (unknown kernel, wrong
  // ISA): the machine notes the message in its log and treats it as an illegal instruction.
  virtual StatusOr<std::unique_ptr<Launch>> Start(const Dispatch& dispatch) = 0;

  // The packet processor's cache actions on every XCC of the context's GPU: acquire = invalidate
  // what may be stale, release = write back what is dirty. The acquire of a dispatch comes before
  // its Start, the release after its kDone and before its completion signal.
  virtual void Acquire(GpuContext& /*context*/, Scope /*scope*/) {}
  virtual void Release(GpuContext& /*context*/, Scope /*scope*/) {}

  // A copy engine's queue has copied, by GPUs' indices; kSystemMemory for the host's.
  static constexpr uint32_t kSystemMemory = ~uint32_t{0};
  virtual void Copied(GpuContext& /*context*/, uint32_t /*queue*/, uint32_t /*from*/, uint32_t /*to*/,
                      uint64_t /*bytes*/) {}

  // Instruction caches of the GPU were invalidated (ACQUIRE_MEM with SH_ICACHE in a PM4 IB).
  // Without it a VA that is reused for other code may execute the old instructions.
  virtual void InvalidateInstructions(GpuContext& /*context*/) {}

  // Whether launches on different GPUs gain from host threads of their own. If they take turns at a
  // lock, each instruction of one would wait for an instruction of another, and for its thread to
  // be woken: then one machine thread plays all GPUs.
  virtual bool parallel() const { return true; }

  // The process is gone or its VM on this GPU has been reset; forget all state kept for it.
  virtual void Forget(const GpuContext& /*context*/) {}
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_EXECUTOR_H_
