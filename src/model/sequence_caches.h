// SPDX-License-Identifier: MIT
//
// What one sequence holds of every cache of its model: page tables, the states after its last
// token, and snapshots to go back to.
//
// K and V of a token stay true whatever is run after it, so a paged cache without a window can be
// cut at any position. A state (a slot) is that of one position only, and a windowed cache has lost
// the pages behind its window: such a sequence can stand at position p only if it has the state
// after p tokens and the pages that hold [p + 1 - window, p); pages that a cache keeps it always has. Positions for which both are kept are
// snapshots. A slot that was written is never written again while anyone holds it, so forks,
// snapshots and rejected drafts cost a reference, not a copy.
//
// Two steps may be prepared, the second as though every row of the first counted.
//
// Threads: one at a time (the engine's). Nothing here allocates after Open.
#ifndef MAINARCH_MODEL_SEQUENCE_CACHES_H_
#define MAINARCH_MODEL_SEQUENCE_CACHES_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "backend/backend.h"
#include "base/status.h"
#include "model/kv_pages.h"

namespace mainarch::model {

// One of Program::caches, as far as the bookkeeping goes.
struct CacheForm {
  bool slots = false;
  uint32_t window = 0;  // paged: tokens that a query sees, its own among them; 0: all
  uint32_t kept = 0;    // with a window: pages, from the first on, that a query sees beside it

  bool whole() const { return !slots && window == 0; }
};

std::vector<CacheForm> FormsOf(const backend::Program& program);

// Of a paged cache: the first page that one needs who stands at `position`, but for those that are kept.
uint32_t FirstPage(const CacheForm& form, uint64_t position);

// How many pages or slots each cache of an engine gets.
struct CacheDemand {
  uint64_t pages = 0;  // of a paged cache without a window
  uint32_t sequences = 1;
  uint32_t step_tokens = 1;
  uint32_t drafts = 0;     // of one sequence and step
  uint32_t snapshots = 0;  // of one sequence
  uint32_t rounds = 0;     // of one sequence, behind a step ahead
};

// Enough that only caches without a window can ever run out: once the snapshots are given up, every
// sequence has what it stands on and what a step writes. (Where there is a cache without a window,
// a windowed one never holds more pages than that, since it holds a page only where that does.)
uint64_t PoolSize(const CacheForm& form, bool some_whole, const CacheDemand& demand);

// Rows behind a step that slots are reserved for, at most.
inline constexpr uint32_t kMostReserved = 31;

struct CachePool {
  CacheForm form;
  PagePool units;  // pages or slots
};

class SequenceCaches {
 public:
  // A step is about to run `rows` tokens.
  struct Run {
    uint64_t rows = 0;
    uint64_t drafts = 0;      // of them, the last ones, may be taken back: Commit says
    uint64_t prompt_end = 0;  // a snapshot is worth having one token before it; 0: none
    // Pages, and slots as far as there are any, for so many rows behind them too, which Prepare then finds, a row at a
    // time.
    uint64_t reserve = 0;
  };
  struct Hooks {
    std::function<Status(int32_t cache, uint32_t from, uint32_t to)> copy;  // of a page
    std::function<bool()> reclaim;  // gives up a snapshot of some sequence; false: there is none
    // A page that the prefix cache keeps is about to be written: it must go from there.
    std::function<void(size_t cache, uint32_t page)> forget;
  };

  SequenceCaches() = default;
  SequenceCaches(SequenceCaches&&) = default;
  SequenceCaches(const SequenceCaches&) = delete;
  SequenceCaches& operator=(const SequenceCaches&) = delete;
  ~SequenceCaches() { Clear(); }

  // `pools`: of every cache, in Program's order. Snapshots are taken at multiples of
  // `snapshot_tokens`, which is one of a page's, and `max_snapshots` are kept. `prefixes`: there are
  // others who would begin where this one's prompt ends, at the end of a page.
  void Open(std::vector<CachePool>* pools, uint64_t max_tokens, uint32_t max_drafts,
            uint32_t snapshot_tokens, uint32_t max_snapshots, bool prefixes = false);

  uint64_t position() const { return position_; }  // tokens that the caches hold
  const PageTable& table(size_t cache) const { return caches_[cache].table; }

  // Makes room for a step, or behind a prepared one, without drafts, for the next; on an error
  // Abort, or AbortAhead, puts back what was taken.
  Status Prepare(const Run& run, const Hooks& hooks);
  // Once every sequence of the step is prepared: room for states inside it that are worth a
  // snapshot, as far as there is any.
  void PrepareSnapshots(const Hooks& hooks);
  // Rows that there are reserves for ...
  uint64_t reserved() const { return reserved_; }
  // ... of which no more than `rows` are wanted.
  void KeepReserved(uint64_t rows);
  // Where their states go: of each row a slot of each cache of slots.
  absl::Span<const uint32_t> ReservedSlots() const { return reserved_slots_; }
  // For the step that was prepared last; one for each cache.
  absl::Span<const backend::StepCache> step();
  // The first `rows` tokens of the step that was prepared first count; what was taken for the others
  // goes back. One behind it is the first from now on, unless it stood on a row that does not count.
  // What was snapped stays until TrimSnapshots, however many there are.
  void Commit(uint64_t rows);
  void TrimSnapshots();
  // Drops the steps prepared, or the second of them.
  void Abort();
  void AbortAhead();
  bool prepared() const { return rows_ > 0; }
  // Pages of a cache that only steps prepared have taken; what tables hold but for them.
  uint32_t PagesAhead(size_t cache) const {
    return static_cast<uint32_t>(caches_[cache].table.pages().size()) - PagesFor(position_);
  }
  absl::Span<const uint32_t> PagesHeld(size_t cache) const {
    return caches_[cache].table.pages().first(PagesFor(position_));
  }

  // The last position at or before `position` that it can go back to ...
  uint64_t StandsAt(uint64_t position) const;
  // ... and what of a cache it stands on there: pages that are kept, those within the window; or its slot.
  std::vector<uint32_t> UnitsAt(size_t cache, uint64_t position) const;
  // Of one that holds nothing: takes units for what UnitsAt says, which the caller fills, and stands at
  // `position`. KvFull: nothing was taken.
  Status TakeUnits(uint64_t position);

  // Drops what it has and stands at `position`, on units that others hold, too: of each cache those
  // that UnitsAt names, behind a hole for each page before them.
  void Adopt(uint64_t position, absl::Span<const std::vector<uint32_t>> units);
  // The slot of a snapshot at just this position; kNoSlot: there is none.
  uint32_t SnapshotState(size_t cache, uint64_t position) const;

  // Goes to the last position at or before `position` that it can stand at.
  void GoBack(uint64_t position);
  void Clear() { GoBack(0); }
  // Drops what it has and shares all of `other` but for steps prepared.
  void ShareFrom(const SequenceCaches& other);

  bool has_snapshots() const { return !snapshots_.empty(); }
  // Gives up the snapshot whose loss makes the least to be run again.
  void DropSnapshot();

 private:
  struct Cache {
    PageTable table;
    uint32_t passed = 0;            // windowed: pages before it are snapshots' or gone
    uint32_t state = backend::kNoSlot;  // after position_ tokens
    std::vector<backend::StateOut> out;    // of the step prepared ...
    std::vector<backend::StateOut> ahead;  // ... and of the one behind it
  };
  struct Snapshot {
    uint64_t position = 0;
    std::vector<uint32_t> states;  // [caches]; kNoPage for paged ones
  };

  bool keeps_snapshots() const { return keeps_snapshots_ && (max_snapshots_ > 0 || prefixes_); }
  const CacheForm& form(size_t cache) const { return (*pools_)[cache].form; }
  PagePool& pool(size_t cache) { return (*pools_)[cache].units; }
  std::vector<backend::StateOut>& OutOf(Cache& cache) const {
    return ahead_ > 0 ? cache.ahead : cache.out;
  }
  // Where the step that was prepared last begins.
  uint64_t begin() const { return position_ + (ahead_ > 0 ? rows_ : 0); }
  uint32_t FirstPage(size_t cache, uint64_t position) const {
    return model::FirstPage(form(cache), position);
  }
  bool CanStand(uint64_t position) const;
  Status PreparePages(size_t cache, const Run& run, const Hooks& hooks);
  Status PrepareStates(const Run& run, const Hooks& hooks);
  bool AddOut(uint32_t row, const Hooks& hooks);
  void ReserveStates(uint64_t rows);
  void TakeReserved();
  void Release(size_t cache, std::vector<backend::StateOut>* outs);
  using Marks = std::array<uint64_t, 3>;
  Marks MarksIn(uint64_t first, uint64_t last) const;
  uint32_t StateAfter(size_t cache, uint64_t position) const;
  void TakeSnapshot(uint64_t position);
  void EraseSnapshot(size_t index);
  const Snapshot* SnapshotBefore(uint64_t position) const;
  void DropUnneeded(size_t cache, uint32_t begin, uint32_t end);
  void PassPages();
  void ReleaseState(size_t cache, uint32_t* state);

  std::vector<CachePool>* pools_ = nullptr;
  uint64_t position_ = 0;
  uint64_t rows_ = 0, ahead_ = 0;  // of the step prepared, and of the one behind it; 0: none
  uint64_t reserved_ = 0;          // rows behind those that there are pages and slots for
  std::vector<uint32_t> reserved_slots_;
  std::vector<Cache> caches_;
  std::vector<backend::StepCache> step_;
  // Ascending positions. Spares keep their vectors, so that none is made in a step.
  std::vector<Snapshot> snapshots_, spares_;
  bool keeps_snapshots_ = false;  // some cache has states or a window
  size_t state_caches_ = 0;  // caches of slots
  uint32_t snapshot_tokens_ = 0;
  uint32_t max_snapshots_ = 0;
  bool prefixes_ = false;
  uint64_t prompt_end_ = 0;  // of the last step prepared
};

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_SEQUENCE_CACHES_H_
