// SPDX-License-Identifier: MIT
//
// The state that instructions act on: a wave of 64 lanes, its workgroup, and the decoded form of an
// instruction (Op) with the descriptor that names its semantics. One wave is run by one host thread
// at a time; waves of one workgroup never run at the same time.
#ifndef MAINARCH_SIM_ISA_WAVE_H_
#define MAINARCH_SIM_ISA_WAVE_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "sim/isa/decode.h"
#include "sim/isa/memory.h"
#include "sim/isa/observer.h"

namespace mainarch::sim::isa {

inline constexpr int kLanes = 64;

struct Wave;
struct Op;
using Run = void (*)(Wave&, const Op&);

// How a source's bits are to be read: decides inline constants and the meaning of neg, abs, op_sel.
enum class Type : uint8_t { kNone, kB16, kF16, kBf16, kB32, kF32, kB64, kF64, kPk16, kPkF32 };

// Where an instruction's semantics come from.
enum class Origin : uint8_t { kManual, kLlvm, kPaper, kAssumed };

// One instruction: its name, what it reads and writes, and what it does. Explicit operands are
// those of its row in optab.inc; the implicit ones are here. The fidelity report is printed from
// these.
struct Descriptor {
  const char* name;
  Run run;
  Type types[4];  // of sources a, b, c and of the destination
  Origin origin = Origin::kManual;
  uint16_t implicit = 0;  // kReads..., kWrites...
};
inline constexpr uint16_t kReadsScc = 1, kWritesScc = 2, kReadsVcc = 4, kWritesVcc = 8,
                          kReadsM0 = 16, kReadsExec = 32, kWritesExec = 64, kReadsDst = 128,
                          kAccumulates = 256;  // the destination is source c

// A source or destination, ready to use.
struct Ref {
  enum Kind : uint8_t { kNone, kVector, kScalar, kConstant };
  Kind kind = kNone;
  uint8_t width = 0;
  uint16_t code = 0;              // scalar: its register code
  uint32_t offset = 0;            // vector: index of lane 0's dword in Wave::v
  uint64_t value = 0;             // constant
  const uint32_t* row = nullptr;  // constant: 64 copies of each dword
};

// Where a DPP control takes each lane's value from, and which lanes its masks let write.
struct DppMap {
  alignas(64) uint32_t from[kLanes];  // itself where there is none
  uint64_t valid = 0, written = 0;
  bool in_row = true;  // never from another row of 16
};

// What runs reads first comes first, on two cache lines: a kernel's are more than a core's caches hold. The rest is for
// instructions that need it.
struct alignas(64) Op {
  Run run = nullptr;
  // The instruction at `after`, once it has been looked for. Shared by threads: std::atomic_ref.
  mutable const Op* next = nullptr;
  uint64_t after = 0;  // the address of the next one
  uint8_t bytes = 0;
  bool plain = true;        // no modifier, SDWA or DPP
  bool only_dpp = false;    // no modifier but DPP
  bool only_signs = false;  // no modifier but neg and abs of f32 or f64 sources
  uint16_t sdst = 0;  // VOP3B's and VOPC's scalar destination
  Ref d, a, b, c;
  const DppMap* dpp = nullptr;
  uint64_t at = 0;  // its own address
  mutable const void* note = nullptr;  // of the grid's pace
  Inst inst;
  const Descriptor* descriptor = nullptr;
};

struct Workgroup;
struct BulkCode;

// kIndexed: running, with GPR indexing or VSKIP on.
enum class WaveState : uint8_t { kRunning, kIndexed, kBarrier, kSleeping, kDone, kStopped };
enum class StopReason : uint8_t {
  kNone,
  kIllegal,
  kTrap,
  kMemoryFault,
  kAperture,
  kUnaligned,
  kUnsupported,
  kCheck
};

// HW_ID of GFX9: wave 3:0, SIMD 5:4, and of a compute unit of an XCC CU 11:8, SE 15:13.
constexpr uint32_t HwId(uint32_t wave, uint32_t unit) {
  return (wave & 15) | (wave & 3) << 4 | (unit & 15) << 8 | (unit >> 4 & 7) << 13;
}

struct Wave {
  // 64 dwords a register: VGPRs, then AGPRs from acc_base (in registers).
  uint32_t* v = nullptr;
  // By operand code: SGPRs, FLAT_SCRATCH, XNACK_MASK, VCC, TTMP, M0, EXEC.
  alignas(64) uint32_t s[128] = {};
  bool scc = false;
  bool gpr_index_on = false, vskip = false;
  uint32_t mode = 0;
  uint64_t pc = 0;  // while an instruction runs: of the next one
  uint64_t at = 0;  // of the instruction that runs
  WaveState state = WaveState::kRunning;
  StopReason stop = StopReason::kNone;
  AccessFault fault;
  std::string detail;
  Workgroup* group = nullptr;
  uint32_t index = 0;  // in the workgroup
  uint32_t xcc_id = 0, hw_id = 0;
  uint64_t instructions = 0;
  uint64_t wake_at = 0;  // s_sleep: instruction count of the scheduler
  uint32_t prng = 0x12345678;
  uint64_t gws_round = 0;  // of the barrier that it waits at (gws.h); 0: at none
  uint8_t* scratch = nullptr;  // lane-major: lane * scratch_bytes
  uint32_t scratch_bytes = 0;
  Memory* memory = nullptr;
  const BulkCode* bulk = nullptr;  // bulk.h
  View views[4];                   // recently used pieces of memory
  uint32_t next_view = 0;

  uint64_t exec() const { return Pair(reg::kExec); }
  uint64_t vcc() const { return Pair(reg::kVcc); }
  void set_exec(uint64_t value) { SetPair(reg::kExec, value); }
  void set_vcc(uint64_t value) { SetPair(reg::kVcc, value); }
  uint64_t Pair(int code) const {
    uint64_t value;
    std::memcpy(&value, &s[code], 8);
    return value;
  }
  void SetPair(int code, uint64_t value) { std::memcpy(&s[code], &value, 8); }

  uint32_t ReadScalar(const Ref& r) const {
    if (r.kind == Ref::kConstant) return static_cast<uint32_t>(r.value);
    return r.code < 128 ? s[r.code] : Special(r.code);
  }
  uint64_t ReadScalar64(const Ref& r) const {
    if (r.kind == Ref::kConstant) return r.value;
    return r.code < 128 ? Pair(r.code) : Special64(r.code);
  }
  uint32_t Special(int code) const;  // src_scc, src_vccz, apertures
  uint64_t Special64(int code) const;

  void Stop(StopReason reason, std::string why) {
    state = WaveState::kStopped;
    stop = reason;
    detail = std::move(why);
  }
  // Host memory of [va, va + size). nullptr when the wave was stopped by a fault, or when the bytes
  // lie in two pieces of host memory (the wave then still runs): use Copy.
  uint8_t* Host(uint64_t va, uint32_t size, bool write) {
    for (View& view : views) {
      if (view.Holds(va, size) && (view.writable || !write)) return view.host + (va - view.begin);
    }
    return Miss(va, size, write);
  }
  uint8_t* Miss(uint64_t va, uint32_t size, bool write);
  // The same without stopping the wave.
  uint8_t* Peek(uint64_t va, uint32_t size, bool write) {
    for (View& view : views) {
      if (view.Holds(va, size) && (view.writable || !write)) return view.host + (va - view.begin);
    }
    return PeekMiss(va, size, write);
  }
  uint8_t* PeekMiss(uint64_t va, uint32_t size, bool write);
  // Copies bytes wherever they lie; false after stopping the wave.
  bool Copy(uint64_t va, uint32_t size, uint8_t* bytes, bool write);
};

struct FreeAligned {
  void operator()(uint32_t* p) const { std::free(p); }
};

// Sources of matrix products, A and B, decoded: by register, with the bits that they were decoded from (mfma_avx2.inc).
struct DecodedSources {
  static constexpr int kMost = 16;
  struct One {
    uint32_t tag = 0;  // of format and layout; 0: none
    alignas(64) uint32_t raw[2 * kLanes];
    alignas(64) float values[8 * kLanes];
  };
  One sources[2][kMost];
};

struct Workgroup {
  uint32_t id[3] = {};
  uint64_t index = 0;
  std::vector<uint8_t> lds;
  // Backing store of every wave's v; 512 registers a wave, of which pages that are never touched
  // cost nothing.
  std::unique_ptr<uint32_t, FreeAligned> registers;
  uint32_t register_waves = 0;  // that `registers` has room for
  std::vector<uint8_t> scratch;
  std::vector<Wave> waves;
  uint32_t live = 0;                // waves that have not ended
  uint32_t registers_per_wave = 0;  // allocated VGPRs and AGPRs
  uint32_t filled[2] = {};          // VGPRs and AGPRs that every wave's have been filled of, now or for an earlier workgroup
  Isa isa = Isa::kGfx950;
  bool exact_matrix = false;  // MFMA by matrix_exact.h
  std::unique_ptr<Observed> observed;  // of the grid's observer
  std::unique_ptr<DecodedSources> decoded;
  uint64_t turn = 0;                   // slices it has had
};

// Apertures of FLAT addressing (the executor's own constants).
inline constexpr uint64_t kSharedAperture = 0x1000000000000;
inline constexpr uint64_t kPrivateAperture = 0x2000000000000;

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_WAVE_H_
