// SPDX-License-Identifier: MIT
//
// Who owns which page of the KV pool: ids and reference counts only, no bytes. A page holds
// kPageTokens positions of one sequence in every layer; forks share pages and copy one when they
// write into it.
//
// Threads: one at a time (the engine's). Nothing here allocates after construction.
#ifndef MAINARCH_MODEL_KV_PAGES_H_
#define MAINARCH_MODEL_KV_PAGES_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "backend/backend.h"
#include "base/status.h"

namespace mainarch::model {

inline constexpr uint32_t kNoPage = UINT32_MAX;

constexpr uint32_t PagesFor(uint64_t tokens) {
  return static_cast<uint32_t>((tokens + backend::kPageTokens - 1) / backend::kPageTokens);
}

// A set of small ids that gives out the lowest: a bitmap of bitmaps, so four looks at most.
class IdSet {
 public:
  explicit IdSet(uint32_t count);  // full

  uint32_t TakeLowest();  // kNoPage when empty
  void Put(uint32_t id);
  uint32_t size() const { return size_; }

 private:
  // levels_[0]: one bit an id; bit i of levels_[n + 1]: word i of levels_[n] is not zero.
  std::vector<std::vector<uint64_t>> levels_;
  uint32_t size_ = 0;
};

// A page may be kept beside its references: the prefix cache finds what it holds again. A kept page
// that nobody refers to is as good as a free one; when no other is left, `reclaim` gives one up.
class PagePool {
 public:
  explicit PagePool(uint32_t pages) : refs_(pages, 0), kept_(pages, 0), free_(pages) {}

  // Must Unkeep at least one page without references.
  void set_reclaim(std::function<void()> reclaim) { reclaim_ = std::move(reclaim); }

  // The lowest free page, or one given up, with one reference; kNoPage when there is none.
  uint32_t Acquire();
  void Share(uint32_t page) { idle_ -= refs_[page]++ == 0; }
  void Release(uint32_t page);
  void Keep(uint32_t page);  // which is referred to
  void Unkeep(uint32_t page);
  bool kept(uint32_t page) const { return kept_[page] != 0; }

  uint32_t total() const { return static_cast<uint32_t>(refs_.size()); }
  uint32_t free_pages() const { return free_.size() + idle_; }  // kept ones counted
  uint32_t idle_pages() const { return idle_; }                 // kept, and nobody's
  absl::Span<const uint32_t> refs() const { return refs_; }

 private:
  std::vector<uint32_t> refs_;
  std::vector<uint8_t> kept_;
  uint32_t idle_ = 0;
  IdSet free_;
  std::function<void()> reclaim_;
};

// Pages that a step must take before it can write `rows` tokens from `position` on. `refs` are the
// pool's reference counts. The one page that may need a copy is the partly filled one.
uint32_t PagesNeeded(absl::Span<const uint32_t> pages, absl::Span<const uint32_t> refs,
                     uint64_t position, uint64_t rows);

// The pages of one sequence: page i holds positions [16 i, 16 i + 16). Pages before the one that a
// step writes first may be given back one by one (they lie behind a window, which some tables' first pages never
// do); what is left of such a
// page is a hole, kNoPage. Gives back what it has when it goes.
class PageTable {
 public:
  // Told of a kept page that is about to be written: it must Unkeep it.
  using Forget = std::function<void(uint32_t page)>;

  PageTable() = default;
  PageTable(PagePool* pool, uint32_t max_pages);
  PageTable(PageTable&& other) noexcept { *this = std::move(other); }
  PageTable& operator=(PageTable&& other) noexcept;
  ~PageTable() { Truncate(0); }

  absl::Span<const uint32_t> pages() const { return pages_; }

  // Makes positions [position, position + rows) writable: takes new pages, and a page of its own in
  // place of a shared partly filled one, filled by `copy(from, to)`. On an error nothing that the
  // sequence can see has changed.
  using Copy = std::function<Status(uint32_t from, uint32_t to)>;
  Status Prepare(uint64_t position, uint64_t rows, const Copy& copy, const Forget& forget = {});
  // Of a table without pages: a hole for each before `first` but the first `kept`, and new pages [first, end).
  Status Take(uint32_t kept, uint32_t first, uint32_t end);
  // Gives back every page that holds none of the first `tokens` positions.
  void Truncate(uint64_t tokens);
  void Drop(uint32_t index);  // gives back one page and leaves a hole
  bool Holds(uint32_t begin, uint32_t end) const;  // no hole among pages [begin, end)
  // Drops what it has and shares every page of `other`.
  void ShareFrom(const PageTable& other);
  // Drops what it has and shares these, of which some may be holes.
  void Share(absl::Span<const uint32_t> pages);

 private:
  PagePool* pool_ = nullptr;
  std::vector<uint32_t> pages_;
};

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_KV_PAGES_H_
