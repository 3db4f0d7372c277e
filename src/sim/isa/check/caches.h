// SPDX-License-Identifier: MIT
//
// The adversary of missing fences: caches that hold what they may. A vector L1 for each compute
// unit, a scalar cache for each pair, an L2 for each XCD, and, beyond the L2s, what a GPU has
// written back for itself but not for the system. Lines stay stale until the right invalidate;
// stores wait in the wave, in blocks of 64 bytes that become visible one by one in any order, then
// in the L2, until the right wait and write-back. No capacity: nothing is evicted by luck. So a
// kernel that lacks a fence computes with wrong data here, as it might on silicon; one that has
// them all cannot tell.
//
// It stands between the instructions and memory: while one runs, the wave's Memory is a
// CachedMemory that gives views of assembled lines. README.md of this folder says what is assumed.
//
// Threads: one lock; launches that it watches use one host thread each.
#ifndef MAINARCH_SIM_ISA_CHECK_CACHES_H_
#define MAINARCH_SIM_ISA_CHECK_CACHES_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/hash_map.h"
#include "sim/executor.h"
#include "sim/isa/check/accesses.h"
#include "sim/isa/check/effects.h"
#include "sim/isa/check/races.h"

namespace mainarch::sim::isa {

inline constexpr uint64_t kLineBytes = 128;

class CacheModel {
 public:
  using Bytes = std::array<uint8_t, kLineBytes>;
  // Where a wave runs.
  struct Place {
    const GpuContext* context = nullptr;
    uint32_t xcd = 0, cu = 0;
  };

  // The packet processor's fences.
  void Acquire(const GpuContext& context, Scope scope);
  void Release(const GpuContext& context, Scope scope);

  // What a load sees of the line at `line`; the number of its bytes that are mapped.
  uint64_t Load(const Place& place, uint64_t line, Reach reach, bool scalar, Bytes* out);
  // Bytes of `mask` reach the caches, or memory, as the reach says.
  void Store(const Place& place, uint64_t line, Reach reach, const Bytes& bytes,
             const std::array<bool, kLineBytes>& mask);
  // Before and after an atomic runs on memory itself.
  void BeginAtomic(const Place& place, uint64_t line);
  void EndAtomic(const Place& place, uint64_t line);
  void WriteBack(const Place& place, bool system);
  void Invalidate(const Place& place, Reach reach);
  void InvalidateScalar(const Place& place);

 private:
  struct Line {
    Bytes data = {};
    std::array<bool, kLineBytes> dirty = {};
    bool any_dirty = false;
    Mtype mtype = Mtype::kRw;
    bool far = false;  // not this GPU's memory
  };
  using Cache = HashMap<uint64_t, Line>;
  struct Gpu {
    std::map<uint32_t, Cache> l2;  // by XCD
    std::map<std::pair<uint32_t, uint32_t>, Cache> l1, scalar;
    Cache agent;  // dirty bytes only: written back for the agent, not for the system
    const GpuContext* context = nullptr;
  };

  Gpu& GpuOf(const GpuContext& context);
  static uint64_t Memory(const GpuContext& context, uint64_t line, Bytes* out, Window* window);
  static void WriteMemory(const GpuContext& context, uint64_t line, const Line& line_data);
  uint64_t AgentView(Gpu& gpu, uint64_t line, Bytes* out, Window* window);
  Line& Filled(Gpu& gpu, Cache* cache, uint64_t line);
  // Memory, or what the agent sees of it, has changed: probes reach the lines that are kept
  // coherent.
  void Probe(uint64_t line, Gpu* only, const Cache* except);
  void Down(Gpu& gpu, uint64_t line, Line* from, bool system);
  static void DropClean(Gpu& gpu, Cache* cache, bool far_only, CacheModel* model);

  std::map<std::pair<uint32_t, uint32_t>, Gpu> gpus_;  // by GPU and process
};

// A wave's stores that have left the instruction and nothing more.
struct PendingStore {
  uint64_t line = 0;
  Reach reach = Reach::kWave;
  uint32_t at = 0;  // number of the instruction among the wave's
  CacheModel::Bytes bytes = {};
  std::array<bool, kLineBytes> mask = {};  // within one block of 64
};

// The caches as one launch sees them; used by LaunchWatch.
class CachedLaunch : public Memory {
 public:
  CachedLaunch(CacheModel* model, std::mutex* mutex, const GpuContext* context, uint64_t seed)
      : model_(*model), mutex_(*mutex), context_(context), random_(seed * 2 + 1) {}

  void Begin(Workgroup& group);
  void Before(Wave& w, const Op& op, const RowFacts& facts, const Accesses& accesses);
  void After(Wave& w, const Op& op, const RowFacts& facts, const Accesses& accesses);

  bool Translate(uint64_t va, bool write, bool execute, View* view, AccessFault* fault) override;
  uint64_t Clock() override { return real_->Clock(); }
  void Interrupt(uint32_t m0) override { real_->Interrupt(m0); }

 private:
  struct WaveStores {
    std::deque<PendingStore> pending;
    uint32_t issued = 0;
  };
  struct Group {
    std::vector<WaveStores> waves;
  };
  CacheModel::Place PlaceOf(const Wave& w) const;
  void Commit(const Wave& w, WaveStores* stores, size_t index);
  void CommitUpTo(const Wave& w, WaveStores* stores, uint32_t at);
  void CommitOverlapping(const Wave& w, Group* group, uint64_t begin, uint64_t end);
  uint64_t Random();

  CacheModel& model_;
  std::mutex& mutex_;
  const GpuContext* context_;
  HashMap<const Workgroup*, Group> groups_;
  uint64_t random_;
  // The instruction that runs.
  isa::Memory* real_ = nullptr;
  const Wave* wave_ = nullptr;
  Reach reach_ = Reach::kWave;
  bool scalar_ = false;
  std::map<uint64_t, std::unique_ptr<CacheModel::Bytes>> lines_;
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_CACHES_H_
