// SPDX-License-Identifier: MIT
//
// The step ahead. Where the backend takes two steps in flight, a step submits the one that will most
// likely follow it before it has ended: one row of each sequence that goes on, whose token is the one
// that this step chooses. The caller knows nothing of it. The next step is planned as ever, and
// where the plan is what flies already, that is adopted; else it is left to end, and nothing of it
// counts: it wrote only to pages behind each sequence's position and to slots that nobody else held,
// and those go back (model::SequenceCaches::Abort). Whatever changes a sequence gives them back at
// once. They may be given out while the step still flies: the backend runs steps in order, so what it
// writes there is written over before anybody reads it.
//
// The step ahead may have rounds (backend::Lease), for which each sequence has reserved pages: then the
// next steps ahead are in flight already, with nothing to submit, and are adopted like it.
#include <algorithm>

#include "decode/engine_impl.h"

namespace mainarch::decode {

// Which outcomes go on, in ahead_; false: what the next step runs cannot be told yet.
bool EngineImpl::Foresee() {
  ahead_.clear();
  if (context_->max_in_flight() < 2 || options_.max_drafts > 0) return false;
  size_t working = 0;
  for (const Sequence& s : slots_) working += s.open && s.Works();
  if (working != outcomes_.size()) return false;
  for (const Outcome& outcome : outcomes_) {
    const Sequence& s = *outcome.sequence;
    if (!outcome.ends || s.options().manual) return false;
    if (!outcome.samples || s.EndsWithNext()) continue;
    if (!outcome.chosen_there || !s.AsksTheSame()) return false;
    ahead_.push_back({outcome.sequence, 1});
    // Where the token is.
    ahead_.back().first_logit = outcome.first_sample();
  }
  return !ahead_.empty() && ahead_.size() <= options_.max_step_tokens &&
         ahead_.size() <= options_.logit_rows;
}

// `rounds`: pages and slots for them too, of each as many as it may go on for. Of slots there may be fewer; a sequence that
// could go on must not stay behind the others.
Status EngineImpl::PrepareAhead(uint32_t rounds) {
  leases_.clear();
  uint64_t most = rounds;
  for (const Outcome& outcome : ahead_) {
    Sequence& s = *outcome.sequence;
    const uint64_t own = std::min<uint64_t>(rounds, s.RoundsAhead());
    RETURN_IF_ERROR(s.caches().Prepare({1, 0, s.prompt_end(), own}, ahead_hooks_));
    if (s.caches().reserved() < own) most = std::min(most, s.caches().reserved());
  }
  if (rounds == 0) return OkStatus();
  for (const Outcome& outcome : ahead_) {
    Sequence& s = *outcome.sequence;
    s.caches().KeepReserved(most);
    if (most > 0) leases_.push_back(s.Reserved());
  }
  return OkStatus();
}

// That the step ahead may have behind it: none, if somebody wants more of them than tokens.
uint32_t EngineImpl::Rounds() const {
  uint64_t most = 0;
  for (const Outcome& outcome : ahead_) {
    const Sequence& s = *outcome.sequence;
    if (!s.WantsOnlyTokens()) return 0;
    most = std::max(most, s.RoundsAhead());
  }
  return static_cast<uint32_t>(std::min<uint64_t>({most, context_->max_rounds(), state_rounds_}));
}

void EngineImpl::FillAhead() {
  step_rows_ = 0;
  step_sequences_.clear();
  logit_rows_.clear();
  choices_.clear();
  for (Outcome& outcome : ahead_) {
    Sequence& s = *outcome.sequence;
    outcome.ends = outcome.samples = outcome.chosen_there = true;
    outcome.logit_rows = 1;
    const uint32_t from = outcome.first_logit;
    outcome.first_logit = step_rows_;
    logit_rows_.push_back(step_rows_);
    choices_.push_back(ChoiceOf(s.Request(1)));
    choices_.back().read |= s.options().all_logits;
    const auto position = static_cast<uint32_t>(s.tokens().size());
    rows_[step_rows_] = {0, position, step_rows_, from};
    ++step_rows_;
    step_sequences_.push_back({s.caches().step().first(model_caches_), IndexOf(s)});
  }
}

// Behind the step in flight. What goes wrong here is no error of that step.
void EngineImpl::SubmitAhead() {
  if (!Foresee()) return ahead_.clear();
  const Status status = flying_ > 1 ? TakeRound() : SubmitNext();
  if (status.ok()) return;
  for (const Outcome& outcome : ahead_) outcome.sequence->caches().AbortAhead();
  ahead_.clear();
}

Status EngineImpl::SubmitNext() {
  Status status = PrepareAhead(Rounds());
  if (!status.ok() && !leases_.empty()) {  // no pages for rounds
    for (const Outcome& outcome : ahead_) outcome.sequence->caches().AbortAhead();
    status = PrepareAhead(0);
  }
  RETURN_IF_ERROR(status);
  FillAhead();
  return SubmitRows();
}

// A round that flies is the step ahead; a row has its number in all of them.
Status EngineImpl::TakeRound() {
  RETURN_IF_ERROR(PrepareAhead(0));
  for (Outcome& outcome : ahead_) {
    outcome.ends = outcome.samples = outcome.chosen_there = true;
    outcome.logit_rows = 1;
  }
  return OkStatus();
}

// True: the step planned is the one that flies, and what it came to will be the outcomes'. A
// sequence that has ended, or was closed or changed, has nothing prepared any more.
bool EngineImpl::Adopt(const Plan& plan) {
  if (ahead_.empty()) return false;
  size_t good = 0;
  for (const Outcome& outcome : ahead_) good += outcome.sequence->caches().prepared();
  bool same = may_work_ && plan.preempted.empty() && plan.chunks.size() == good;
  for (size_t i = 0; same && i < plan.chunks.size(); ++i) {
    const Chunk& chunk = plan.chunks[i];
    same = chunk.rows == 1 && slots_[chunk.sequence].caches().prepared();
  }
  if (!same) {
    DropAhead();
    return false;
  }
  outcomes_.clear();
  for (const Outcome& outcome : ahead_) {
    if (outcome.sequence->caches().prepared()) outcomes_.push_back(outcome);
  }
  ahead_.clear();
  return true;
}

// Nothing of it counts; it may fly on. Between steps only.
void EngineImpl::DropAhead() {
  for (const Outcome& outcome : ahead_) outcome.sequence->caches().Abort();
  ahead_.clear();
}

// Ends what flies and is nobody's. How it ended the next step will find out, too.
void EngineImpl::Drain() {
  if (flying_ > 1) context_->Recall();
  for (; flying_ > 0 && !(context_->Poll(-1).ok() && context_->left_out()); --flying_) {
  }
  flying_ = 0;
}

// For what wants nothing in flight. Logits of the last step go with it.
void EngineImpl::LandAll() {
  if (flying_ == 0) return;
  for (Sequence& s : slots_) s.DropStepLogits();
  Drain();
}

uint32_t EngineImpl::PagesAhead() const {
  uint32_t pages = 0;
  if (whole_ == nullptr) return 0;
  for (const Outcome& outcome : ahead_) pages += outcome.sequence->caches().PagesAhead(whole_cache_);
  return pages;
}

}  // namespace mainarch::decode
