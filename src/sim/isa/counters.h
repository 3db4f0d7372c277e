// SPDX-License-Identifier: MIT
//
// What a dispatch did, counted: instructions by class, bytes by path, how well its global accesses
// were coalesced. Counts are facts about the machine code and its input; no time is among them.
//
// Counters is an observer (observer.h): without one nothing is counted and nothing costs. It passes
// everything on to a second observer, so that checked runs can be counted too.
//
// CountLog collects the counts of the dispatches of a node as they end; any thread.
#ifndef MAINARCH_SIM_ISA_COUNTERS_H_
#define MAINARCH_SIM_ISA_COUNTERS_H_

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/hash_map.h"
#include "sim/isa/check/accesses.h"
#include "sim/isa/check/effects.h"
#include "sim/isa/observer.h"

namespace mainarch::sim::isa {

// Each executed instruction of a wave is in exactly one class.
enum class InstClass : uint8_t {
  kValu,   // arithmetic of 64 lanes, but for the next two
  kTrans,  // exp, log, rcp, rsq, sqrt, sin, cos: a quarter of the rate
  kMfma,   // dense, sparse and scaled matrix instructions
  kSalu,   // scalar arithmetic
  kSmem,   // scalar memory and scalar cache maintenance
  kLoad,   // GLOBAL, FLAT, SCRATCH, MUBUF
  kStore,
  kAtomic,
  kFence,   // buffer_inv, buffer_wbl2
  kLds,     // DS that reaches LDS memory
  kLane,    // DS permutes and swizzles, and others that reach no memory
  kBranch,  // branches, jumps, calls
  kWait,    // s_waitcnt, s_nop, s_sleep and their like
  kBarrier,
  kOther,  // s_endpgm, messages, hints
  kCount,
};
absl::string_view NameOf(InstClass c);

// Global memory through the vector path.
struct Traffic {
  uint64_t instructions = 0;
  uint64_t bytes = 0;  // asked for by active lanes
  // Aligned pieces of memory that an instruction touches, and those of which it touches every byte:
  // what a request of that size fetches, and how much of that is wanted.
  uint64_t lines64 = 0, full64 = 0;
  uint64_t lines128 = 0, full128 = 0;
  uint64_t distinct = 0;  // bytes, those that several lanes of an instruction ask for once
  // Lanes' accesses by size: 1, 2, 4, 8, 12, 16 bytes.
  std::array<uint64_t, 6> lanes_by_size = {};

  void Add(const Traffic& other);
};

struct Counts {
  uint64_t waves = 0, workgroups = 0;
  std::array<uint64_t, static_cast<size_t>(InstClass::kCount)> by_class = {};
  uint64_t lane_operations = 0;  // active lanes, added up over kValu and kTrans
  Traffic loads, stores, atomics;
  uint64_t dma_bytes = 0;  // of the loads, those that went to LDS without a register
  uint64_t scalar_bytes = 0;
  uint64_t lds_read_bytes = 0, lds_write_bytes = 0;  // through DS; an atomic is both
  uint64_t scratch_bytes = 0;

  uint64_t of(InstClass c) const { return by_class[static_cast<size_t>(c)]; }
  uint64_t instructions() const;
  void Add(const Counts& other);
};

// 4 KiB of memory as a dispatch used them, each line of 128 bytes one bit. Counting a line once is
// what a cache that holds everything would fetch: the least that comes from memory.
struct FootprintPage {
  enum class Place : uint8_t { kLocal, kPeer, kSystem };  // seen from the GPU of the dispatch
  uint64_t address = 0;
  Place place = Place::kLocal;
  uint32_t read = 0, written = 0;
  uint64_t whole = 0;  // blocks of 64 bytes that some load, store or atomic covered on its own
  uint64_t bytes_written = 0;  // asked for by stores, each store counted
};
inline constexpr uint64_t kFootprintLine = 128;

struct DispatchCounts {
  uint32_t gpu = 0, process = 0, queue = 0;
  uint64_t dispatch_id = 0;    // of its queue
  uint64_t kernel_object = 0;  // address of the kernel's descriptor: gpu::Kernel::object
  Counts counts;
  std::vector<FootprintPage> footprint;  // by address; empty unless asked for
};

class CountLog {
 public:
  void Add(DispatchCounts counts);
  // In the order in which dispatches ended; the log is empty afterwards.
  std::vector<DispatchCounts> Take();

 private:
  std::mutex mutex_;
  std::vector<DispatchCounts> entries_;
};

// Of one dispatch. Calls take a lock: counted kernels run on one host thread at a time.
class Counters : public Observer {
 public:
  // `next` may be null; it outlives this.
  explicit Counters(Observer* next, bool footprint = false)
      : next_(next), with_footprint_(footprint) {}

  void Begin(Workgroup& group) override;
  bool Before(Wave& w, const Op& op) override;
  void After(Wave& w, const Op& op) override;
  void Barrier(Workgroup& group) override;

  Counts Get() const;
  // Places are not filled in; by address.
  std::vector<FootprintPage> GetFootprint() const;

 private:
  void AddToFootprint();
  void Memory(const Wave& w, const Op& op, const RowFacts& facts);
  // How the pieces of `accesses_` in global memory lie on lines of `size` bytes (at most 128).
  void Lines(uint64_t size, uint64_t* touched, uint64_t* full, uint64_t* distinct);

  Observer* const next_;
  const bool with_footprint_;
  const EffectsTable table_;
  mutable std::mutex mutex_;
  Counts counts_;
  Accesses accesses_;
  HashMap<uint64_t, FootprintPage> pages_;  // by address
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_COUNTERS_H_
