// SPDX-License-Identifier: MIT
#include "model/sequence_caches.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

namespace mainarch::model {

using backend::kNoSlot;

namespace {

constexpr uint32_t kMostMarks = 3;  // snapshots of one step

}  // namespace

std::vector<CacheForm> FormsOf(const backend::Program& program) {
  std::vector<CacheForm> forms;
  for (const backend::Cache& cache : program.caches) {
    const auto* paged = std::get_if<backend::PagedCache>(&cache);
    CacheForm form = {paged == nullptr};
    if (paged != nullptr) form.window = static_cast<uint32_t>(paged->window);
    if (paged != nullptr) form.kept = static_cast<uint32_t>(paged->kept) / backend::kPageTokens;
    forms.push_back(form);
  }
  return forms;
}

uint32_t FirstPage(const CacheForm& form, uint64_t position) {
  if (form.window == 0 || position < form.window) return 0;
  return static_cast<uint32_t>((position + 1 - form.window) / backend::kPageTokens);
}

uint64_t PoolSize(const CacheForm& form, bool some_whole, const CacheDemand& d) {
  if (form.whole()) return d.pages;
  if (form.slots) {
    // What each stands on, what each writes in a step, in the one behind it and in that one's rounds, and the snapshots.
    return uint64_t{d.sequences} * (2 + uint64_t{d.drafts} + d.snapshots + (d.rounds > 0 ? 1 + d.rounds : 0));
  }
  // A window that begins inside a page touches one page more; so does a chunk.
  const uint64_t window = uint64_t{PagesFor(form.window)} + 1;
  const uint64_t pages = uint64_t{d.sequences} * (window * (1 + uint64_t{d.snapshots}) + 2 + form.kept) +
                         PagesFor(d.step_tokens);
  return some_whole ? std::min(pages, d.pages) : pages;
}

void SequenceCaches::Open(std::vector<CachePool>* pools, uint64_t max_tokens, uint32_t max_drafts,
                          uint32_t snapshot_tokens, uint32_t max_snapshots, bool prefixes) {
  Clear();
  pools_ = pools;
  prefixes_ = prefixes;
  snapshot_tokens_ = snapshot_tokens;
  max_snapshots_ = max_snapshots;
  keeps_snapshots_ = false;
  state_caches_ = 0;
  caches_.resize(pools->size());
  step_.resize(pools->size());
  for (size_t c = 0; c < caches_.size(); ++c) {
    state_caches_ += form(c).slots;
    keeps_snapshots_ |= !form(c).whole();
    if (form(c).slots) {
      caches_[c].out.reserve(size_t{max_drafts} + 1 + kMostMarks);
      caches_[c].ahead.reserve(caches_[c].out.capacity());
    } else {
      caches_[c].table = PageTable(&pool(c), PagesFor(max_tokens));
    }
  }
  reserved_slots_.reserve(kMostReserved * state_caches_);
  if (!keeps_snapshots()) return;
  snapshots_.reserve(size_t{max_snapshots} + kMostMarks);
  spares_.resize(snapshots_.capacity());
  for (Snapshot& spare : spares_) spare.states.assign(caches_.size(), kNoSlot);
}

void SequenceCaches::ReleaseState(size_t cache, uint32_t* state) {
  if (*state != kNoSlot) pool(cache).Release(*state);
  *state = kNoSlot;
}

Status SequenceCaches::Prepare(const Run& run, const Hooks& hooks) {
  prompt_end_ = run.prompt_end;
  const bool behind = rows_ > 0;
  (behind ? ahead_ : rows_) = run.rows;
  const bool finds = behind && run.reserve == 0;
  reserved_ = finds ? reserved_ - std::min(reserved_, run.rows) : run.reserve;
  // Caches without a window first: they then never have fewer pages than the others.
  for (const bool whole : {true, false}) {
    for (size_t c = 0; c < caches_.size(); ++c) {
      if (form(c).slots || form(c).whole() != whole) continue;
      RETURN_IF_ERROR(PreparePages(c, run, hooks));
    }
  }
  if (state_caches_ == 0) return OkStatus();
  if (finds && !reserved_slots_.empty()) {
    TakeReserved();
    return OkStatus();
  }
  KeepReserved(0);
  RETURN_IF_ERROR(PrepareStates(run, hooks));
  ReserveStates(run.reserve);
  return OkStatus();
}

Status SequenceCaches::PreparePages(size_t c, const Run& run, const Hooks& hooks) {
  PageTable& table = caches_[c].table;
  const uint64_t rows = run.rows + run.reserve;
  if (!form(c).whole()) {
    while (PagesNeeded(table.pages(), pool(c).refs(), begin(), rows) > pool(c).free_pages()) {
      if (!hooks.reclaim()) break;
    }
  }
  return table.Prepare(
      begin(), rows,
      [&](uint32_t from, uint32_t to) { return hooks.copy(static_cast<int32_t>(c), from, to); },
      [&](uint32_t page) { hooks.forget(c, page); });
}

void SequenceCaches::ReserveStates(uint64_t rows) {
  for (; reserved_ < std::min<uint64_t>(rows, kMostReserved); ++reserved_) {
    for (size_t c = 0; c < caches_.size(); ++c) {
      if (!form(c).slots) continue;
      const uint32_t slot = pool(c).Acquire();
      if (slot == kNoPage) return KeepReserved(reserved_);
      reserved_slots_.push_back(slot);
    }
  }
}

void SequenceCaches::KeepReserved(uint64_t rows) {
  reserved_ = std::min(reserved_, rows);
  const size_t first = reserved_ * state_caches_;
  if (first >= reserved_slots_.size()) return;
  size_t own = first;
  for (size_t c = 0; c < caches_.size(); ++c) {
    if (!form(c).slots) continue;
    for (size_t i = own; i < reserved_slots_.size(); i += state_caches_) pool(c).Release(reserved_slots_[i]);
    ++own;
  }
  reserved_slots_.resize(first);
}

// Of the row that the step prepared last has.
void SequenceCaches::TakeReserved() {
  auto slot = reserved_slots_.begin();
  for (Cache& cache : caches_) {
    if (form(static_cast<size_t>(&cache - caches_.data())).slots) OutOf(cache).push_back({0, *slot++});
  }
  reserved_slots_.erase(reserved_slots_.begin(), slot);
}

// False: some cache has no slot left, and nothing was taken.
bool SequenceCaches::AddOut(uint32_t row, const Hooks& hooks) {
  for (size_t c = 0; c < caches_.size(); ++c) {
    if (!form(c).slots) continue;
    uint32_t slot = pool(c).Acquire();
    while (slot == kNoPage && hooks.reclaim()) slot = pool(c).Acquire();
    if (slot == kNoPage) {
      while (c-- > 0) {
        if (!form(c).slots) continue;
        std::vector<backend::StateOut>& outs = OutOf(caches_[c]);
        pool(c).Release(outs.front().slot);
        outs.erase(outs.begin());
      }
      return false;
    }
    std::vector<backend::StateOut>& outs = OutOf(caches_[c]);
    outs.insert(outs.begin(), {row, slot});
  }
  return true;
}

// From the last row to the first: the ones that the step cannot do without come first.
Status SequenceCaches::PrepareStates(const Run& run, const Hooks& hooks) {
  const uint64_t first_needed = run.rows - 1 - run.drafts;
  for (uint64_t row = run.rows; row-- > first_needed;) {
    if (AddOut(static_cast<uint32_t>(row), hooks)) continue;
    return Error(Code::kKvFull, "no slot is left for the state of a sequence after ",
                 begin() + row + 1, " tokens");
  }
  return OkStatus();
}

void SequenceCaches::PrepareSnapshots(const Hooks& hooks) {
  if (state_caches_ == 0) return;
  uint64_t first_kept = UINT64_MAX;  // states from here on are kept anyway
  for (Cache& cache : caches_) {
    if (!OutOf(cache).empty()) first_kept = OutOf(cache).front().row;
  }
  for (const uint64_t mark : MarksIn(begin() + 1, begin() + first_kept)) {
    if (mark > 0) AddOut(static_cast<uint32_t>(mark - begin() - 1), hooks);  // if there is room
  }
}

// Where a snapshot is worth having, descending: the last multiple of snapshot_tokens_; one token before
// the prompt's end, where Truncate to that end goes back to; and the last page's end before that, for
// others who begin alike. 0: not in [first, last], or named already.
SequenceCaches::Marks SequenceCaches::MarksIn(uint64_t first, uint64_t last) const {
  if (!keeps_snapshots()) return {};
  const uint64_t prompt = prompt_end_ > 0 ? prompt_end_ - 1 : 0;
  Marks marks = {last / snapshot_tokens_ * snapshot_tokens_, max_snapshots_ > 0 ? prompt : 0,
                 prefixes_ ? prompt / backend::kPageTokens * backend::kPageTokens : 0};
  for (uint64_t& mark : marks) {
    if (mark < first || mark > last) mark = 0;
  }
  std::sort(marks.begin(), marks.end(), std::greater<>());
  std::fill(std::unique(marks.begin(), marks.end()), marks.end(), 0);
  return marks;
}

absl::Span<const backend::StepCache> SequenceCaches::step() {
  for (size_t c = 0; c < caches_.size(); ++c) {
    backend::StepCache& out = step_[c];
    if (form(c).slots) {
      out.state_in = StateAfter(c, begin());
      out.state_out = OutOf(caches_[c]);
    } else {
      out.first_page = FirstPage(c, begin());
      const absl::Span<const uint32_t> pages = caches_[c].table.pages();
      out.pages = pages.subspan(out.first_page);
      out.kept = pages.first(std::min<size_t>(form(c).kept, pages.size()));
    }
  }
  return step_;
}

void SequenceCaches::Commit(uint64_t rows) {
  if (rows != rows_) AbortAhead();
  const Marks marks = MarksIn(position_, position_ + rows);
  for (size_t i = marks.size(); i-- > 0;) {
    if (marks[i] > 0) TakeSnapshot(marks[i]);
  }
  for (size_t c = 0; c < caches_.size(); ++c) {
    if (!form(c).slots) continue;
    ReleaseState(c, &caches_[c].state);
    caches_[c].state = StateAfter(c, position_ + rows);
    pool(c).Share(caches_[c].state);
    Release(c, &caches_[c].out);
    std::swap(caches_[c].out, caches_[c].ahead);
  }
  position_ += rows;
  rows_ = std::exchange(ahead_, 0);
  for (size_t c = 0; c < caches_.size(); ++c) {
    if (!form(c).slots) caches_[c].table.Truncate(position_ + rows_ + reserved_);
  }
  PassPages();
}

void SequenceCaches::TrimSnapshots() {
  while (snapshots_.size() > max_snapshots_) DropSnapshot();
}

void SequenceCaches::Abort() {
  AbortAhead();
  rows_ = reserved_ = 0;
  for (size_t c = 0; c < caches_.size(); ++c) {
    Release(c, &caches_[c].out);
    if (!form(c).slots) caches_[c].table.Truncate(position_);
  }
}

void SequenceCaches::AbortAhead() {
  if (ahead_ == 0 && reserved_ == 0) return;
  ahead_ = 0;
  KeepReserved(0);
  for (size_t c = 0; c < caches_.size(); ++c) {
    Release(c, &caches_[c].ahead);
    if (!form(c).slots) caches_[c].table.Truncate(position_ + rows_);
  }
}

void SequenceCaches::Release(size_t cache, std::vector<backend::StateOut>* outs) {
  for (const backend::StateOut& out : *outs) pool(cache).Release(out.slot);
  outs->clear();
}

// The slot with the state after `position` tokens, kNoSlot if neither the sequence stands there nor
// the step prepared was asked for it.
uint32_t SequenceCaches::StateAfter(size_t cache, uint64_t position) const {
  if (position == position_) return caches_[cache].state;
  for (const backend::StateOut& out : caches_[cache].out) {
    if (position_ + out.row + 1 == position) return out.slot;
  }
  return kNoSlot;
}

void SequenceCaches::TakeSnapshot(uint64_t position) {
  if (!snapshots_.empty() && snapshots_.back().position >= position) return;
  for (size_t c = 0; c < caches_.size(); ++c) {
    if (form(c).slots && StateAfter(c, position) == kNoSlot) return;
  }
  if (spares_.empty()) DropSnapshot();
  Snapshot snapshot = std::move(spares_.back());
  spares_.pop_back();
  snapshot.position = position;
  for (size_t c = 0; c < caches_.size(); ++c) {
    if (!form(c).slots) continue;
    snapshot.states[c] = StateAfter(c, position);
    pool(c).Share(snapshot.states[c]);
  }
  snapshots_.push_back(std::move(snapshot));
}

// Tokens to run again if a target lies between this snapshot and the next one, times how likely
// that is. The newest stays, and the one at the prompt's end, as long as there is another.
void SequenceCaches::DropSnapshot() {
  size_t least = 0;
  uint64_t least_loss = UINT64_MAX;
  for (size_t i = 0; i + 1 < snapshots_.size(); ++i) {
    const uint64_t at = snapshots_[i].position;
    const uint64_t before = i == 0 ? 0 : snapshots_[i - 1].position;
    const uint64_t loss = (at - before) * (snapshots_[i + 1].position - at);
    if (at + 1 == prompt_end_ || loss >= least_loss) continue;
    least_loss = loss;
    least = i;
  }
  EraseSnapshot(least);
}

void SequenceCaches::EraseSnapshot(size_t index) {
  Snapshot gone = std::move(snapshots_[index]);
  snapshots_.erase(snapshots_.begin() + static_cast<ptrdiff_t>(index));
  for (size_t c = 0; c < caches_.size(); ++c) {
    ReleaseState(c, &gone.states[c]);
    if (form(c).window == 0) continue;
    const uint32_t end = std::min(PagesFor(gone.position), caches_[c].passed);
    DropUnneeded(c, FirstPage(c, gone.position), end);
  }
  spares_.push_back(std::move(gone));
}

// Gives back those of pages [begin, end), which lie behind the window, that no snapshot needs.
void SequenceCaches::DropUnneeded(size_t cache, uint32_t begin, uint32_t end) {
  for (uint32_t page = std::max(begin, form(cache).kept); page < end; ++page) {
    const bool needed = std::any_of(snapshots_.begin(), snapshots_.end(), [&](const Snapshot& s) {
      return page >= FirstPage(cache, s.position) && page < PagesFor(s.position);
    });
    if (!needed) caches_[cache].table.Drop(page);
  }
}

void SequenceCaches::PassPages() {
  for (size_t c = 0; c < caches_.size(); ++c) {
    if (form(c).window == 0) continue;
    const uint32_t first = FirstPage(c, position_);
    DropUnneeded(c, caches_[c].passed, first);
    caches_[c].passed = std::max(caches_[c].passed, first);
  }
}

bool SequenceCaches::CanStand(uint64_t position) const {
  if (position == 0) return true;
  if (state_caches_ > 0) return false;  // but at a snapshot
  for (size_t c = 0; c < caches_.size(); ++c) {
    if (!caches_[c].table.Holds(FirstPage(c, position), PagesFor(position))) return false;
  }
  return true;
}

// The last one at or before it; null: none.
const SequenceCaches::Snapshot* SequenceCaches::SnapshotBefore(uint64_t position) const {
  const auto after = std::upper_bound(
      snapshots_.begin(), snapshots_.end(), position,
      [](uint64_t p, const Snapshot& snapshot) { return p < snapshot.position; });
  return after == snapshots_.begin() ? nullptr : &after[-1];
}

uint64_t SequenceCaches::StandsAt(uint64_t position) const {
  if (position >= position_) return position_;
  if (CanStand(position)) return position;
  const Snapshot* const snapshot = SnapshotBefore(position);
  return snapshot == nullptr ? 0 : snapshot->position;
}

std::vector<uint32_t> SequenceCaches::UnitsAt(size_t cache, uint64_t position) const {
  if (position == 0) return {};
  if (form(cache).slots) {
    if (position == position_) return {caches_[cache].state};
    return {SnapshotBefore(position)->states[cache]};
  }
  const auto pages = caches_[cache].table.pages();
  const uint32_t first = FirstPage(cache, position), kept = std::min(form(cache).kept, first);
  std::vector<uint32_t> units(pages.begin(), pages.begin() + kept);
  units.insert(units.end(), pages.begin() + first, pages.begin() + PagesFor(position));
  return units;
}

Status SequenceCaches::TakeUnits(uint64_t position) {
  if (position == 0) return OkStatus();
  Status status;
  for (size_t c = 0; c < caches_.size() && status.ok(); ++c) {
    if (!form(c).slots) {
      caches_[c].passed = FirstPage(c, position);
      status = caches_[c].table.Take(form(c).kept, caches_[c].passed, PagesFor(position));
      continue;
    }
    caches_[c].state = pool(c).Acquire();
    if (caches_[c].state != kNoPage) continue;
    caches_[c].state = kNoSlot;
    status = Error(Code::kKvFull, "no slot is left for a state");
  }
  position_ = position;
  if (!status.ok()) Clear();
  return status;
}

void SequenceCaches::Adopt(uint64_t position, absl::Span<const std::vector<uint32_t>> units) {
  Abort();
  while (!snapshots_.empty()) EraseSnapshot(snapshots_.size() - 1);
  for (size_t c = 0; c < caches_.size(); ++c) {
    Cache& cache = caches_[c];
    if (!form(c).slots) {
      cache.table.Share(units[c]);
      cache.passed = FirstPage(c, position);
      continue;
    }
    pool(c).Share(units[c].front());
    ReleaseState(c, &cache.state);
    cache.state = units[c].front();
  }
  position_ = position;
}

uint32_t SequenceCaches::SnapshotState(size_t cache, uint64_t position) const {
  const Snapshot* const snapshot = SnapshotBefore(position);
  if (snapshot == nullptr || snapshot->position != position) return kNoSlot;
  return snapshot->states[cache];
}

void SequenceCaches::GoBack(uint64_t position) {
  Abort();
  if (position >= position_) return;
  position = StandsAt(position);
  const Snapshot* const snapshot = SnapshotBefore(position);
  for (size_t c = 0; c < caches_.size(); ++c) {
    // From here on these pages are the sequence's own again.
    caches_[c].passed = std::min(caches_[c].passed, FirstPage(c, position));
    if (!form(c).slots) continue;
    ReleaseState(c, &caches_[c].state);
    if (position == 0) continue;
    caches_[c].state = snapshot->states[c];
    pool(c).Share(caches_[c].state);
  }
  while (!snapshots_.empty() && snapshots_.back().position > position) {
    EraseSnapshot(snapshots_.size() - 1);
  }
  for (size_t c = 0; c < caches_.size(); ++c) {
    if (!form(c).slots) caches_[c].table.Truncate(position);
  }
  position_ = position;
}

void SequenceCaches::ShareFrom(const SequenceCaches& other) {
  Clear();
  position_ = other.position_;
  prompt_end_ = other.prompt_end_;
  for (size_t c = 0; c < caches_.size(); ++c) {
    if (form(c).slots) {
      caches_[c].state = other.caches_[c].state;
      if (caches_[c].state != kNoSlot) pool(c).Share(caches_[c].state);
    } else {
      caches_[c].table.ShareFrom(other.caches_[c].table);
      caches_[c].table.Truncate(position_);
      caches_[c].passed = other.caches_[c].passed;
    }
  }
  for (const Snapshot& from : other.snapshots_) {
    Snapshot snapshot = std::move(spares_.back());
    spares_.pop_back();
    snapshot.position = from.position;
    for (size_t c = 0; c < caches_.size(); ++c) {
      snapshot.states[c] = from.states[c];
      if (from.states[c] != kNoSlot) pool(c).Share(from.states[c]);
    }
    snapshots_.push_back(std::move(snapshot));
  }
}

}  // namespace mainarch::model
