// SPDX-License-Identifier: MIT
#include "model/kv_pages.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace mainarch::model {

IdSet::IdSet(uint32_t count) : size_(count) {
  uint64_t bits = count;
  do {
    const uint64_t words = (bits + 63) / 64;
    std::vector<uint64_t> level(std::max<uint64_t>(words, 1), 0);
    for (uint64_t i = 0; i < bits / 64; ++i) level[i] = ~uint64_t{0};
    if (bits % 64 != 0) level[bits / 64] = (uint64_t{1} << (bits % 64)) - 1;
    levels_.push_back(std::move(level));
    bits = words;
  } while (levels_.back().size() > 1);
}

uint32_t IdSet::TakeLowest() {
  if (size_ == 0) return kNoPage;
  uint64_t index = 0;
  for (size_t n = levels_.size(); n-- > 0;) {
    index = index * 64 + static_cast<uint64_t>(std::countr_zero(levels_[n][index]));
  }
  uint64_t bit = index;
  for (std::vector<uint64_t>& level : levels_) {
    level[bit / 64] &= ~(uint64_t{1} << (bit % 64));
    if (level[bit / 64] != 0) break;
    bit /= 64;
  }
  --size_;
  return static_cast<uint32_t>(index);
}

void IdSet::Put(uint32_t id) {
  uint64_t bit = id;
  for (std::vector<uint64_t>& level : levels_) {
    level[bit / 64] |= uint64_t{1} << (bit % 64);
    bit /= 64;
  }
  ++size_;
}

uint32_t PagePool::Acquire() {
  if (free_.size() == 0 && idle_ > 0) reclaim_();
  const uint32_t page = free_.TakeLowest();
  if (page != kNoPage) refs_[page] = 1;
  return page;
}

void PagePool::Release(uint32_t page) {
  if (--refs_[page] > 0) return;
  if (kept(page)) {
    ++idle_;
  } else {
    free_.Put(page);
  }
}

void PagePool::Keep(uint32_t page) { kept_[page] = 1; }

void PagePool::Unkeep(uint32_t page) {
  kept_[page] = 0;
  if (refs_[page] > 0) return;
  --idle_;
  free_.Put(page);
}

uint32_t PagesNeeded(absl::Span<const uint32_t> pages, absl::Span<const uint32_t> refs,
                     uint64_t position, uint64_t rows) {
  const uint64_t first = position / backend::kPageTokens;
  const uint64_t end = std::min<uint64_t>(PagesFor(position + rows), pages.size());
  uint32_t need = 0;
  for (uint64_t i = first; i < end; ++i) need += refs[pages[i]] > 1;
  const uint64_t have = std::max<uint64_t>(pages.size(), PagesFor(position));
  if (PagesFor(position + rows) > have) {
    need += PagesFor(position + rows) - static_cast<uint32_t>(have);
  }
  return need;
}

PageTable::PageTable(PagePool* pool, uint32_t max_pages) : pool_(pool) {
  pages_.reserve(max_pages);
}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(pages_, other.pages_);
  return *this;
}

Status PageTable::Prepare(uint64_t position, uint64_t rows, const Copy& copy,
                          const Forget& forget) {
  const uint64_t wanted = PagesFor(position + rows);
  if (PagesNeeded(pages_, pool_->refs(), position, rows) > pool_->free_pages()) {
    return Error(Code::kKvFull, "kv pool: ", pool_->free_pages(), " of ", pool_->total(),
                 " pages are free, too few for tokens ", position, " to ", position + rows);
  }
  for (uint64_t i = position / backend::kPageTokens; i < std::min<uint64_t>(wanted, pages_.size());
       ++i) {
    if (pool_->refs()[pages_[i]] == 1) {
      if (pool_->kept(pages_[i])) forget(pages_[i]);
      continue;
    }
    const uint32_t page = pool_->Acquire();
    // Only the first page can hold tokens worth keeping.
    const bool keeps = i * backend::kPageTokens < position;
    const Status copied = keeps ? copy(pages_[i], page) : OkStatus();
    if (!copied.ok()) {
      pool_->Release(page);
      return copied;
    }
    pool_->Release(std::exchange(pages_[i], page));
  }
  while (pages_.size() < wanted) pages_.push_back(pool_->Acquire());
  return OkStatus();
}

Status PageTable::Take(uint32_t kept, uint32_t first, uint32_t end) {
  kept = std::min(kept, first);
  const uint32_t wanted = kept + end - first;
  if (wanted > pool_->free_pages()) {
    return Error(Code::kKvFull, "kv pool: ", pool_->free_pages(), " of ", pool_->total(),
                 " pages are free, too few for ", wanted);
  }
  while (pages_.size() < kept) pages_.push_back(pool_->Acquire());
  pages_.resize(first, kNoPage);
  while (pages_.size() < end) pages_.push_back(pool_->Acquire());
  return OkStatus();
}

void PageTable::Truncate(uint64_t tokens) {
  while (pages_.size() > PagesFor(tokens)) {
    if (pages_.back() != kNoPage) pool_->Release(pages_.back());
    pages_.pop_back();
  }
}

void PageTable::Drop(uint32_t index) {
  if (pages_[index] != kNoPage) pool_->Release(std::exchange(pages_[index], kNoPage));
}

bool PageTable::Holds(uint32_t begin, uint32_t end) const {
  if (end > pages_.size()) return false;
  return std::find(pages_.begin() + begin, pages_.begin() + end, kNoPage) == pages_.begin() + end;
}

void PageTable::ShareFrom(const PageTable& other) { Share(other.pages()); }

void PageTable::Share(absl::Span<const uint32_t> pages) {
  for (const uint32_t page : pages) {
    if (page != kNoPage) pool_->Share(page);
  }
  // Only now: it may hold some of them alone.
  Truncate(0);
  pages_.assign(pages.begin(), pages.end());
}

}  // namespace mainarch::model
