// SPDX-License-Identifier: MIT
#include "backend/amdgpu/page_tables.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace mainarch::amdgpu {
namespace {

// Long lists that are as they were are the rule: looked at by blocks, faster than one by one.
constexpr size_t kBlock = 256;

// Calls what(i) for each i in which the lists differ, until it says false.
template <class What>
void ForEachChange(absl::Span<const uint32_t> pages, const uint32_t* held, What what) {
  for (size_t begin = 0; begin < pages.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, pages.size() - begin);
    if (std::memcmp(pages.data() + begin, held + begin, count * sizeof(uint32_t)) == 0) continue;
    for (size_t i = begin; i < begin + count; ++i) {
      if (pages[i] != held[i] && !what(i)) return;
    }
  }
}

// The words of a table that a list has: those of its pages, and those of pages that are kept, where they are not among
// these.
struct Words {
  uint32_t first;
  absl::Span<const uint32_t> pages;
};
std::array<Words, 2> WordsOf(const backend::StepCache& list) {
  return {Words{list.first_page, list.pages},
          Words{0, list.kept.first(std::min<size_t>(list.kept.size(), list.first_page))}};
}

}  // namespace

StatusOr<PageTables> PageTables::Create(uint32_t tables, uint32_t words,
                                        std::vector<Pool> pools) {
  PageTables out(tables, words, std::move(pools));
  const size_t all = std::max(out.pools_.size() * tables * words, size_t{1});
  out.held_.reset(static_cast<uint32_t*>(std::calloc(all, sizeof(uint32_t))));
  if (out.held_ == nullptr) {
    return Error(Code::kOutOfHostMemory, "page tables of ", tables, " sequences of ", words,
                 " pages");
  }
  return out;
}

StatusOr<uint64_t> PageTables::Count(const backend::Step& step) {
  uint64_t changes = left_ = 0;
  if (++call_ == 0) {  // once in 2^32 steps
    std::fill(seen_.begin(), seen_.end(), 0);
    call_ = 1;
  }
  for (const backend::StepSequence& sequence : step.sequences) {
    if (sequence.table >= seen_.size() || seen_[sequence.table] == call_) {
      return Error(Code::kInternal, "page table ", sequence.table, " of ", seen_.size(),
                   sequence.table < seen_.size() ? " is named twice in a step" : "");
    }
    seen_[sequence.table] = call_;
    for (size_t i = 0; i < pools_.size(); ++i) {
      if (AsHeld(i, sequence)) continue;
      ASSIGN_OR_RETURN(const uint64_t own, CountList(i, sequence));
      changes += own;
    }
  }
  return left_ = changes;
}

// A short list that is as it was, as most are.
bool PageTables::AsHeld(size_t i, const backend::StepSequence& sequence) const {
  const backend::StepCache& list = sequence.caches[pools_[i].cache];
  const size_t count = list.pages.size();
  return list.kept.empty() && count <= kBlock && uint64_t{list.first_page} + count <= words_ && pools_[i].pages > 0 &&
         std::memcmp(list.pages.data(), held_.get() + FirstWord(i, sequence.table, list.first_page),
                     count * sizeof(uint32_t)) == 0;
}

StatusOr<uint64_t> PageTables::CountList(size_t i, const backend::StepSequence& sequence) const {
  const backend::StepCache& list = sequence.caches[pools_[i].cache];
  if (uint64_t{list.first_page} + list.pages.size() > words_) {
    return Error(Code::kInternal, "a list of ", list.pages.size(), " pages from page ",
                 list.first_page, " on; a table has ", words_);
  }
  uint64_t changes = 0;
  uint32_t largest = 0;
  for (const Words& words : WordsOf(list)) {
    ForEachChange(words.pages, held_.get() + FirstWord(i, sequence.table, words.first), [&](size_t at) {
      largest = std::max(largest, words.pages[at]);
      ++changes;
      return true;
    });
  }
  if (!list.pages.empty() && largest >= pools_[i].pages) {
    return Error(Code::kInternal, "page ", largest, " is not in the pool of ", pools_[i].pages);
  }
  return changes;
}

uint32_t PageTables::Take(const backend::Step& step, uint32_t room, kernels::PageChange* out) {
  uint32_t taken = 0;
  if (left_ == 0) return taken;
  for (const backend::StepSequence& sequence : step.sequences) {
    for (size_t i = 0; i < pools_.size() && taken < room; ++i) {
      for (const Words& words : WordsOf(sequence.caches[pools_[i].cache])) {
        const size_t first = FirstWord(i, sequence.table, words.first);
        ForEachChange(words.pages, held_.get() + first, [&](size_t at) {
          if (taken == room) return false;
          out[taken++] = {static_cast<uint32_t>(first + at), words.pages[at]};
          held_[first + at] = words.pages[at];
          return true;
        });
      }
    }
    if (taken == room) break;
  }
  left_ -= std::min<uint64_t>(left_, taken);
  return taken;
}

}  // namespace mainarch::amdgpu
