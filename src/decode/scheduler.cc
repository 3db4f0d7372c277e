// SPDX-License-Identifier: MIT
#include "decode/scheduler.h"

#include <algorithm>

#include "model/kv_pages.h"

namespace mainarch::decode {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;
constexpr uint32_t kWritten = UINT32_C(1) << 31;  // beside a count of references
constexpr uint32_t kPromptShare = 8;  // one row of so many is a prompt's while decoders crowd

}  // namespace

Scheduler::Scheduler(uint32_t max_sequences, uint32_t pool_pages)
    : refs_(pool_pages, 0), grants_(max_sequences) {
  decoders_.reserve(max_sequences);
  prompts_.reserve(max_sequences);
  plan_.preempted.reserve(max_sequences);
  plan_.kept.reserve(max_sequences);
  plan_.chunks.reserve(max_sequences);
}

absl::Span<const uint32_t> Scheduler::refs() const {
  return refs_changed_ ? absl::Span<const uint32_t>(refs_) : limits_.page_refs;
}

uint32_t Scheduler::Needed(uint32_t index, uint64_t rows) const {
  const SequenceView& s = sequences_[index];
  return model::PagesNeeded(s.pages, refs(), s.position, rows);
}

void Scheduler::Sort(absl::Span<const SequenceView> sequences) {
  decoders_.clear();
  prompts_.clear();
  oldest_ = kNobody;
  uint32_t working = 0;
  for (uint32_t i = 0; i < sequences.size(); ++i) {
    grants_[i] = Grant();
    if (sequences[i].pending == 0) continue;
    ++working;
    (sequences[i].pending == 1 ? decoders_ : prompts_).push_back(i);
    if (oldest_ == kNobody || sequences[i].arrival < sequences[oldest_].arrival) oldest_ = i;
  }
  spare_logits_ = limits_.max_logit_rows - std::min(limits_.max_rows, working);
  std::sort(prompts_.begin(), prompts_.end(),
            [&](uint32_t a, uint32_t b) { return sequences[a].arrival < sequences[b].arrival; });
  std::sort(decoders_.begin(), decoders_.end(), [&](uint32_t a, uint32_t b) {
    const SequenceView& x = sequences[a];
    const SequenceView& y = sequences[b];
    return x.last_step != y.last_step ? x.last_step < y.last_step : x.arrival < y.arrival;
  });
}

// How many of decoders_ go before the prompts.
uint32_t Scheduler::DecoderShare() const {
  const uint32_t rows = limits_.max_rows;
  const uint32_t decoders = static_cast<uint32_t>(decoders_.size());
  if (prompts_.empty() || decoders == 0) return std::min(rows, decoders);
  if (rows > 1) return std::min(decoders, rows - std::max(1u, rows / kPromptShare));
  return sequences_[decoders_[0]].last_step <= sequences_[prompts_[0]].last_step ? 1 : 0;
}

void Scheduler::Admit(uint32_t index, uint64_t rows, uint32_t pages) {
  grants_[index].rows = static_cast<uint32_t>(rows);
  grants_[index].pages = pages;
  rows_left_ -= static_cast<uint32_t>(rows);
  pages_left_ -= pages;
}

void Scheduler::Preempt(uint32_t index) {
  if (!refs_changed_) {
    std::copy(limits_.page_refs.begin(), limits_.page_refs.end(), refs_.begin());
    refs_changed_ = true;
  }
  for (const uint32_t page : sequences_[index].pages) pages_left_ += --refs_[page] == 0;
  Grant& grant = grants_[index];
  rows_left_ += grant.rows;
  pages_left_ += grant.pages;
  grant = Grant();
  grant.preempted = true;
  plan_.preempted.push_back(index);
}

// What nobody took in the end of pages given up goes back to those who gave them: their first ones. A
// page that a chunk writes must stay as unshared as it was planned.
void Scheduler::KeepPages() {
  plan_.kept.assign(plan_.preempted.size(), 0);
  if (plan_.preempted.empty()) return;
  for (uint32_t i = 0; i < sequences_.size(); ++i) {
    const SequenceView& s = sequences_[i];
    if (grants_[i].rows == 0) continue;
    for (size_t p = s.position / backend::kPageTokens; p < s.pages.size(); ++p) {
      refs_[s.pages[p]] |= kWritten;
    }
  }
  for (size_t i = plan_.preempted.size(); i-- > 0;) {
    const absl::Span<const uint32_t> pages = sequences_[plan_.preempted[i]].pages;
    uint32_t& kept = plan_.kept[i];
    for (; kept < pages.size(); ++kept) {
      uint32_t& refs = refs_[pages[kept]];
      if ((refs & kWritten) != 0 || (refs == 0 && pages_left_ == 0)) break;
      pages_left_ -= refs == 0;
      ++refs;
    }
  }
}

// Holds pages and goes on.
bool Scheduler::Runs(uint32_t index) const {
  const SequenceView& s = sequences_[index];
  return s.pending > 0 && !s.pages.empty() && !s.evicted && !grants_[index].preempted;
}

uint32_t Scheduler::Victim(uint32_t index, bool preempt) const {
  uint32_t idle = kNobody;
  uint32_t youngest = kNobody;
  for (uint32_t i = 0; i < sequences_.size(); ++i) {
    const SequenceView& s = sequences_[i];
    if (i == index || grants_[i].preempted || s.pages.empty()) continue;
    if (s.pending == 0) {
      if (idle == kNobody || s.last_step < sequences_[idle].last_step) idle = i;
    } else if (s.arrival > sequences_[index].arrival) {
      if (youngest == kNobody || s.arrival > sequences_[youngest].arrival) youngest = i;
    }
  }
  if (idle != kNobody) return idle;
  return preempt ? youngest : kNobody;
}

bool Scheduler::Relieve(uint32_t index, bool preempt) {
  const uint32_t victim = Victim(index, preempt);
  if (victim == kNobody) return false;
  Preempt(victim);
  return true;
}

void Scheduler::GrantDecoder(uint32_t index) {
  if (rows_left_ == 0 || grants_[index].preempted || grants_[index].rows > 0) return;
  // Looks again after each victim: it may also have left a shared page to this sequence alone.
  while (Needed(index, 1) > pages_left_) {
    if (!Relieve(index, true)) return;
  }
  Admit(index, 1, Needed(index, 1));
}

// False: the prompt waits, and so do those behind it.
bool Scheduler::GrantPrompt(uint32_t index) {
  const SequenceView& s = sequences_[index];
  if (grants_[index].preempted) return true;
  const bool oldest = index == oldest_;
  if (!oldest && !Runs(index)) {
    uint64_t running = 0;
    for (uint32_t i = 0; i < sequences_.size(); ++i) running += Runs(i);
    const uint64_t all = model::PagesFor(s.position + s.pending);
    while (all - s.pages.size() + running > pages_left_) {
      if (!Relieve(index, false)) return false;
    }
  }
  uint64_t rows = std::min({uint64_t{rows_left_}, s.pending, s.silent + 1 + spare_logits_});
  uint32_t need = Needed(index, rows);
  while (need > pages_left_ && Relieve(index, oldest)) need = Needed(index, rows);
  // Too few pages for the whole chunk: as many rows as the last page that fits can end with.
  while (rows > 0 && need > pages_left_) {
    const uint64_t end = model::PagesFor(s.position + rows) - 1;
    rows = std::max<uint64_t>(end * backend::kPageTokens, s.position) - s.position;
    need = rows > 0 ? Needed(index, rows) : 0;
  }
  if (rows == 0) return false;
  Admit(index, rows, need);
  if (rows > s.silent) spare_logits_ -= rows - s.silent - 1;
  return true;
}

void Scheduler::GrantDrafts(uint32_t index) {
  Grant& grant = grants_[index];
  if (grant.rows == 0) return;
  uint64_t drafts = std::min<uint64_t>({sequences_[index].drafts, rows_left_, spare_logits_});
  while (drafts > 0 && Needed(index, 1 + drafts) > grant.pages + pages_left_) --drafts;
  if (drafts == 0) return;
  // It may need fewer than it was granted: who shared a page with it may have been preempted since.
  pages_left_ += grant.pages;
  grant.pages = Needed(index, 1 + drafts);
  pages_left_ -= grant.pages;
  rows_left_ -= static_cast<uint32_t>(drafts);
  spare_logits_ -= drafts;
  grant.drafts = static_cast<uint32_t>(drafts);
}

const Plan& Scheduler::Make(absl::Span<const SequenceView> sequences, const StepLimits& limits) {
  sequences_ = sequences;
  limits_ = limits;
  rows_left_ = limits.max_rows;
  pages_left_ = limits.free_pages;
  refs_changed_ = false;
  plan_.preempted.clear();
  plan_.chunks.clear();
  Sort(sequences);

  const auto share = decoders_.begin() + DecoderShare();
  // Within the share the older ones choose their pages first.
  std::sort(decoders_.begin(), share,
            [&](uint32_t a, uint32_t b) { return sequences[a].arrival < sequences[b].arrival; });
  for (auto it = decoders_.begin(); it != share; ++it) GrantDecoder(*it);
  for (const uint32_t index : prompts_) {
    if (rows_left_ == 0 || !GrantPrompt(index)) break;
  }
  for (auto it = share; it != decoders_.end(); ++it) GrantDecoder(*it);

  for (const uint32_t index : decoders_) GrantDrafts(index);
  KeepPages();

  for (uint32_t i = 0; i < sequences.size(); ++i) {
    const Grant& grant = grants_[i];
    if (grant.rows > 0) plan_.chunks.push_back({i, grant.rows + grant.drafts, grant.drafts});
  }
  return plan_;
}

}  // namespace mainarch::decode
