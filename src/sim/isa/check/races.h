// SPDX-License-Identifier: MIT
//
// Data races in global memory by happens-before, with scopes: between waves, workgroups, XCDs, GPUs
// and, across packets, kernels. Every 4 bytes remember their last write and the reads since; a wave
// knows how far it has seen each other wave, and how far away that wave's stores have been pushed.
// An access that conflicts with one it has not seen, or whose data may still lie in another cache,
// is a race, whatever the values were.
//
// The rules are those of the compiler's memory model for gfx942 (README.md of this folder).
// Physical placement does not matter: two workgroups need agent scope even when they share an XCD.
//
// Threads: one at a time; the checker locks.
#ifndef MAINARCH_SIM_ISA_CHECK_RACES_H_
#define MAINARCH_SIM_ISA_CHECK_RACES_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/hash_map.h"
#include "sim/executor.h"
#include "sim/isa/check/accesses.h"
#include "sim/isa/check/effects.h"

namespace mainarch::sim::isa {

// How far apart two waves are, or how far an operation reaches.
enum class Reach : uint8_t { kWave, kGroup, kAgent, kSystem };

class RaceCheck {
 public:
  // `known` (README.md): scalar loads and stores with glc are flags of agent scope.
  explicit RaceCheck(bool known = false) : known_(known) {}
  // A kernel begins on a GPU of an address space. `context` may be null: plain local memory.
  uint32_t StartLaunch(uint32_t gpu, uint32_t process, const GpuContext* context);
  void EndLaunch(uint32_t launch);
  // The packet processor's fences on that GPU.
  void Acquire(uint32_t gpu, uint32_t process, Scope scope);
  void Release(uint32_t gpu, uint32_t process, Scope scope);

  uint32_t StartWave(uint32_t launch, uint64_t group);
  // Before an instruction of wave `id`: "" or the race.
  std::string Issue(uint32_t id, const Wave& w, const Op& op, const RowFacts& facts,
                    const Accesses& accesses);
  // After it has run.
  void Done(uint32_t id, const Op& op, const RowFacts& facts, const Accesses& accesses);
  void Barrier(const std::vector<uint32_t>& waves);

  // What is worth a look and no finding, said once for each pair of instructions: several waves
  // that store one value.
  std::vector<std::string> TakeNotes() { return std::exchange(notes_, {}); }

 private:
  // What one wave knows of another's accesses, as counts of its vector memory instructions.
  struct Known {
    uint32_t group = 0;          // ordered before us, for one workgroup
    uint32_t reached = 0;        // have left the wave: waited for before a barrier or release
    uint32_t pushed_agent = 0;   // written back for the agent
    uint32_t pushed_system = 0;  // written back for the system
    uint32_t ordered = 0;        // happened before us; what they loaded is loaded
    uint32_t seen_agent = 0;     // we see their stores, at agent distance
    uint32_t seen_system = 0;
    uint32_t seen_uncached = 0;  // as long as they bypass the caches
    uint32_t flag = 0;           // the flag store itself that told us
    void Join(const Known& other);
  };
  // By wave, ascending. Hand-overs copy and merge whole clocks, and each knows every wave that ran before:
  // a flat list, as that is all they cost.
  class Clock {
   public:
    using Entry = std::pair<uint32_t, Known>;
    std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
    std::vector<Entry>::const_iterator end() const { return entries_.end(); }
    const Known* Find(uint32_t wave) const;  // null: nothing is known
    Known& operator[](uint32_t wave);
    // Runs each(ours, theirs) for every wave that `other` knows.
    template <class Each>
    void Merge(const Clock& other, const Each& each);
    void Join(const Clock& other);

    // Kernels that had ended by then are known, because the host, who may have waited for them, has said
    // something since; and what they wrote is seen, by an acquire at system scope.
    uint64_t host = 0, host_seen = 0;

   private:
    void Cover(const Clock& other);  // knows its waves, too

    std::vector<Entry> entries_;
  };
  struct WriteBack {
    uint32_t at = 0;  // its number among the wave's instructions
    bool system = false;
    std::vector<std::pair<uint32_t, uint32_t>> reached;
  };
  struct Loaded {
    uint32_t at = 0;
    bool same_group = false;
    std::shared_ptr<const Clock> message;
  };
  struct WaveState {
    uint32_t launch = 0, gpu = 0;
    uint64_t group = 0;
    uint32_t issued = 0, drained = 0;
    Clock known;
    Clock pending;  // read from flags, not yet acquired
    std::deque<WriteBack> write_backs;
    std::deque<Loaded> loaded;
    // Flags that the instruction under way reads, with what they said when it was issued.
    std::vector<std::pair<uint64_t, std::shared_ptr<const Clock>>> reading;
  };
  struct LaunchState {
    uint32_t gpu = 0, process = 0;
    const GpuContext* context = nullptr;
    uint64_t begun = 0, ended = 0, released = 0;  // ticks; 0: not yet
    Scope acquire = Scope::kSystem, release = Scope::kNone;
  };
  struct Record {
    uint32_t wave = 0;  // 0: none
    uint32_t at = 0;
    uint32_t pc = 0;  // low half
    uint8_t mask = 0;
    bool atomic = false, uncached = false;
    Reach reach = Reach::kWave;
    bool valued = false;  // `value` is what an ordinary store stores here, where mask says so
    uint32_t value = 0;
  };
  struct Cell {
    Record write, read;
    std::unique_ptr<std::vector<Record>> more_writes, more_reads;
  };
  using Page = std::array<Cell, 1024>;
  struct Flag {
    uint32_t value = 0;    // when the last store that we watched was done
    uint32_t storing = 0;  // watched stores issued and not done: the value may be theirs already
    uint64_t group = 0;    // of the writer
    std::shared_ptr<const Clock> message;
  };

  Cell& CellOf(uint32_t process, uint64_t va);
  bool Uncached(const LaunchState& launch, uint64_t va);
  Reach Distance(const WaveState& a, const WaveState& b) const;
  bool Ordered(const WaveState& self, const Record& record, bool record_is_read) const;
  std::string Conflict(uint32_t id, const Record& before, const Record& now, bool before_reads,
                       uint64_t va);
  std::string Touch(uint32_t id, const Record& now, bool write, bool read, uint64_t va);
  bool SameStore(const Record& before, const Record& now) const;
  void NoteSameStore(const Record& before, const Record& now, uint64_t va);
  void Wait(WaveState* self, uint32_t id, int vmcnt);
  void Drain(WaveState* self, uint32_t id);
  void WriteBackNow(WaveState* self, uint32_t id, const Inst& inst);
  void Invalidate(WaveState* self, const Inst& inst);
  std::shared_ptr<const Clock> MessageOf(const WaveState& self, uint32_t id) const;
  void Publish(WaveState* self, uint32_t id, uint32_t process, uint64_t va, Reach reach, bool join);
  std::shared_ptr<const Clock> MessageAt(const LaunchState& launch, uint64_t va) const;
  void ObserveAgain(WaveState* self, const LaunchState& launch, Reach reach);
  void Observe(WaveState* self, const LaunchState& launch, uint64_t va, Reach reach);
  void HearAtOnce(WaveState* self, uint32_t id);
  static uint32_t ValueAt(const LaunchState& launch, uint64_t va);

  const bool known_;
  uint64_t tick_ = 1;
  std::vector<LaunchState> launches_{1};
  std::vector<WaveState> waves_{1};  // never reused: 0 is nobody
  HashMap<uint64_t, std::unique_ptr<Page>> pages_;
  // The page of the last access: the lanes of an instruction are in few.
  Page* page_ = nullptr;
  uint64_t page_key_ = 0;
  HashMap<uint64_t, Flag> flags_;
  HashMap<uint64_t, Scope> acquired_;  // by GPU and process
  // What the host has been told: it is assumed to have looked at every flag.
  std::shared_ptr<Clock> host_ = std::make_shared<Clock>();
  Window window_;
  uint64_t window_va_ = 0;
  std::vector<std::string> notes_;
  std::set<std::pair<uint32_t, uint32_t>> noted_;  // pcs of the two stores
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_RACES_H_
