// SPDX-License-Identifier: MIT
//
// One step of the engine, all or nothing.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "decode/engine_impl.h"

namespace mainarch::decode {

// Aborts the step unless disarmed, also when an allocation throws.
struct EngineImpl::Undo {
  EngineImpl* engine;
  bool armed = true;
  ~Undo() {
    if (armed) engine->Abort();
  }
};

const Plan& EngineImpl::MakePlan() {
  if (prefixes_ != nullptr) FindPrefixes();
  may_work_ = false;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Sequence& s = slots_[i];
    SequenceView& view = views_[i];
    view = SequenceView();
    if (!s.open) continue;
    view.arrival = s.arrival;
    view.last_step = s.last_step;
    view.position = s.position();
    view.pending = s.Works() ? s.pending() : 0;
    if (whole_ != nullptr) view.pages = s.caches().PagesHeld(whole_cache_);
    may_work_ |= view.pending > 0;
    if (view.pending == 0) continue;
    view.silent = s.silent();
    view.evicted = s.evicted();
    view.drafts = Propose(static_cast<uint32_t>(i));
  }
  StepLimits limits = {options_.max_step_tokens, UINT32_MAX, {}, options_.logit_rows};
  if (whole_ != nullptr) {
    limits.free_pages = whole_->free_pages() + PagesAhead();
    limits.page_refs = whole_->refs();
  }
  return scheduler_.Make(views_, limits);
}

Status EngineImpl::TakePages(const Plan& plan) {
  outcomes_.clear();
  for (size_t i = 0; i < plan.preempted.size(); ++i) {
    slots_[plan.preempted[i]].Evict(uint64_t{plan.kept[i]} * backend::kPageTokens);
  }
  for (const Chunk& chunk : plan.chunks) {
    Sequence& s = slots_[chunk.sequence];
    outcomes_.push_back({&s, chunk.rows, chunk.drafts});
    RETURN_IF_ERROR(s.caches().Prepare({chunk.rows, chunk.drafts, s.prompt_end()}, hooks_));
  }
  for (const Outcome& outcome : outcomes_) outcome.sequence->caches().PrepareSnapshots(hooks_);
  return OkStatus();
}

void EngineImpl::FillStep() {
  step_rows_ = 0;
  leases_.clear();
  step_sequences_.clear();
  logit_rows_.clear();
  choices_.clear();
  for (Outcome& outcome : outcomes_) {
    Sequence& s = *outcome.sequence;
    outcome.ends = outcome.rows - outcome.drafts == s.pending();
    outcome.samples = outcome.ends && !s.options().manual && !s.full();
    // Without a token to sample nobody wants the last row's, unless all rows' are wanted.
    const uint64_t silent = s.silent();
    const bool many = silent + 1 < s.pending() || s.options().all_logits;
    const bool last = outcome.samples || (outcome.ends && s.options().manual);
    if (many && silent < outcome.rows) {
      outcome.logit_rows = outcome.rows - static_cast<uint32_t>(silent);
    } else if (last) {
      outcome.logit_rows = 1 + outcome.drafts;
    }
    FillRows(outcome);
    FillChoices(outcome);
    step_sequences_.push_back({s.caches().step().first(model_caches_), IndexOf(s)});
  }
}

void EngineImpl::FillRows(Outcome& outcome) {
  const Sequence& s = *outcome.sequence;
  const uint32_t* const drafts = DraftsOf(s);
  const uint32_t held = outcome.rows - outcome.drafts;
  outcome.first_logit = static_cast<uint32_t>(logit_rows_.size());
  for (uint32_t i = 0; i < outcome.rows; ++i) {
    const auto position = static_cast<uint32_t>(s.position() + i);
    if (i >= outcome.rows - outcome.logit_rows) logit_rows_.push_back(step_rows_);
    rows_[step_rows_++] = {i < held ? s.tokens()[position] : drafts[i - held], position,
                           static_cast<uint32_t>(step_sequences_.size())};
  }
}

// Beside logit_rows_. A row behind drafts is asked for what follows them, as if they were sampled.
void EngineImpl::FillChoices(Outcome& outcome) {
  Sequence& s = *outcome.sequence;
  const uint32_t* const drafts = DraftsOf(s);
  const uint32_t sampled = outcome.samples ? 1 + outcome.drafts : 0;
  for (uint32_t i = sampled; i < outcome.logit_rows; ++i) choices_.push_back(backend::Choice());
  for (uint32_t i = 0; i < sampled; ++i) {
    if (i > 0) s.Foresee(drafts[i - 1]);
    // Counts are those of one moment, which for later rows has yet to come.
    const bool chooses = i == 0 || !WantsCounts(s.options());
    choices_.push_back(chooses ? ChoiceOf(s.Request()) : backend::Choice());
    choices_.back().read |= s.options().all_logits;
    if (i == 0) outcome.chosen_there = chooses;
  }
  s.Forget();
}

StatusOr<bool> EngineImpl::Prepare() {
  if (!may_work_) return false;
  step_start_ns_ = NowNs();
  const Plan& plan = MakePlan();
  adopted_ = Adopt(plan);
  if (!may_work_) return false;
  if (plan.chunks.empty()) return Error(Code::kInternal, "the scheduler found no rows to run");

  Undo undo{this};
  if (!adopted_) {
    RETURN_IF_ERROR(TakePages(plan));
    // What a head guesses is known only once it has run.
    if (head_ == nullptr) FillStep();
  }
  for (const Outcome& o : outcomes_) o.sequence->PrepareCommit(o.rows, 1 + o.drafts);
  {
    std::lock_guard<std::mutex> lock(cancel_mutex_);
    step_active_ = true;
    cancelled_ = false;
  }
  undo.armed = false;
  return true;
}

bool EngineImpl::BeginRun() {
  std::lock_guard<std::mutex> lock(cancel_mutex_);
  // A stop asked for as the step before ended is not for this one.
  context_->ForgetStop();
  if (head_ != nullptr) head_->context().ForgetStop();
  in_run_ = !cancelled_;
  return in_run_;
}

void EngineImpl::EndRun() {
  std::lock_guard<std::mutex> lock(cancel_mutex_);
  in_run_ = false;
}

// A run overwrites the logits of the step before.
Status EngineImpl::KeepLogits() {
  for (Sequence& s : slots_) {
    const Sequence::LogitsPlace place = s.logits_place();
    if (!s.open || place == Sequence::LogitsPlace::kNone || place == Sequence::LogitsPlace::kOwn) {
      continue;
    }
    if (s.options().manual && place == Sequence::LogitsPlace::kStep) {
      RETURN_IF_ERROR(context_->FetchLogits(s.logits_row()));
      s.KeepLogits(context_->Logits(s.logits_row()));
    } else {
      s.DropLogits();
    }
  }
  return OkStatus();
}

backend::Step EngineImpl::StepNow() const {
  return {{rows_.data(), step_rows_}, step_sequences_, logit_rows_, choices_, {}, leases_};
}

Status EngineImpl::SubmitRows() {
  RETURN_IF_ERROR(context_->Submit(StepNow()));
  flying_ += 1 + context_->granted();
  return OkStatus();
}

// The rounds that the step was one of ended before it: it is submitted by itself, with tokens that are known now.
Status EngineImpl::RunAgain() {
  flying_ = 0;
  for (const Outcome& outcome : ahead_) outcome.sequence->caches().AbortAhead();
  ahead_.clear();
  FillStep();
  RETURN_IF_ERROR(SubmitRows());
  SubmitAhead();
  return context_->Poll(-1).status();
}

Status EngineImpl::RunContext() {
  RETURN_IF_ERROR(KeepLogits());
  if (!BeginRun()) return Error(Code::kCancelled, "the step was cancelled before it ran");
  Status status;
  if (!adopted_) {
    Drain();
    status = DraftRows();
    if (status.ok()) status = SubmitRows();
  }
  if (status.ok()) {
    SubmitAhead();
    status = context_->Poll(-1).status();
    if (status.ok() && context_->left_out()) status = RunAgain();
    --flying_;
  }
  if (status.ok()) status = MirrorRows();
  EndRun();
  return status;
}

size_t EngineImpl::TokenAt(const Outcome& outcome) const {
  return static_cast<size_t>(&outcome - outcomes_.data()) * (1 + options_.max_drafts);
}

absl::Span<Logprob> EngineImpl::LogprobsAt(size_t token, const Sequence& s) {
  if (s.options().logprobs == 0) return {};
  return {&logprobs_[token * (1 + kMaxLogprobs)], size_t{1} + s.options().logprobs};
}

// Appended tokens whose row before them is among the ones that made logits.
Status EngineImpl::ScoreRows(const Outcome& outcome, Status* fault) {
  Sequence& s = *outcome.sequence;
  const uint64_t first = s.position() + outcome.rows - outcome.logit_rows + 1;
  for (uint32_t i = 0; i < outcome.logit_rows && fault->ok(); ++i) {
    const uint64_t position = first + i;
    if (position >= s.tokens().size() || !s.WantsScore(position)) continue;
    RETURN_IF_ERROR(context_->FetchLogits(outcome.first_logit + i));
    *fault = sampler_.Logprobs(context_->Logits(outcome.first_logit + i), s.tokens()[position],
                               s.ScoreAt(position));
  }
  return OkStatus();
}

// Samples behind the last token held, and behind each draft as long as it was what was sampled. What
// is wrong behind a draft will be wrong in the next step too.
Status EngineImpl::SampleRows(Outcome& outcome, Status* fault) {
  if (!outcome.samples) return OkStatus();
  Sequence& s = *outcome.sequence;
  const uint32_t* const drafts = DraftsOf(s);
  while (true) {
    const uint32_t row = outcome.first_sample() + outcome.sampled;
    const size_t at = TokenAt(outcome) + outcome.sampled;
    const absl::optional<uint32_t> chosen = context_->Chosen(row);
    if (!chosen.has_value()) s.caches().AbortAhead();  // the row behind had no token to take
    const bool wants_logprobs = s.options().logprobs > 0;
    if (!chosen.has_value() || wants_logprobs) RETURN_IF_ERROR(context_->FetchLogits(row));
    const StatusOr<uint32_t> token =
        chosen.has_value() ? *chosen : sampler_.Sample(context_->Logits(row), s.Request());
    Status wrong = token.status();
    if (wrong.ok() && wants_logprobs) {
      wrong = sampler_.Logprobs(context_->Logits(row), *token, LogprobsAt(at, s));
    }
    if (!wrong.ok()) {
      if (outcome.sampled == 0) *fault = std::move(wrong);
      break;
    }
    tokens_[at] = *token;
    const uint32_t sampled = outcome.sampled++;
    if (sampled == outcome.drafts || *token != drafts[sampled] || s.Foresee(*token)) break;
  }
  s.Forget();
  return OkStatus();
}

// Logits that are handed to the caller as they are.
Status EngineImpl::CheckRows(const Outcome& outcome, Status* fault) {
  const bool all = outcome.sequence->options().all_logits;
  if (outcome.logit_rows == 0 || (!all && outcome.samples)) return OkStatus();
  const uint32_t end = outcome.logit_rows - (outcome.rows - outcome.kept());
  for (uint32_t i = all ? 0 : end - 1; i < end && fault->ok(); ++i) {
    RETURN_IF_ERROR(context_->FetchLogits(outcome.first_logit + i));
    *fault = sampler_.Check(context_->Logits(outcome.first_logit + i));
  }
  return OkStatus();
}

// An error is the device's and the step's; a fault is the sequence's own.
Status EngineImpl::ReadOutcome(Outcome& outcome, Status* fault) {
  RETURN_IF_ERROR(ScoreRows(outcome, fault));
  if (fault->ok()) RETURN_IF_ERROR(SampleRows(outcome, fault));
  return fault->ok() ? CheckRows(outcome, fault) : OkStatus();
}

Status EngineImpl::SampleAll() {
  for (Outcome& outcome : outcomes_) {
    Status fault;
    RETURN_IF_ERROR(ReadOutcome(outcome, &fault));
    if (fault.ok()) continue;
    outcome.fault = WithContext(
        fault, absl::StrCat("sequence 0x", absl::Hex(IdOf(IndexOf(*outcome.sequence))),
                            ", token at position ",
                            outcome.sequence->tokens().size() + outcome.sampled));
  }
  return OkStatus();
}

Status EngineImpl::Commit() {
  {
    // From here on the step counts as done: a cancel comes before or not at all.
    std::lock_guard<std::mutex> lock(cancel_mutex_);
    if (cancelled_) return Error(Code::kCancelled, "the step was cancelled");
    step_active_ = false;
  }
  const uint64_t step = steps_.fetch_add(1, std::memory_order_relaxed) + 1;
  ahead_steps_.fetch_add(adopted_, std::memory_order_relaxed);
  for (Outcome& outcome : outcomes_) CommitOutcome(outcome, step);
  step_ns_last_.store(static_cast<uint64_t>(NowNs() - step_start_ns_), std::memory_order_relaxed);
  may_work_ = true;
  Publish();
  return OkStatus();
}

void EngineImpl::CommitOutcome(Outcome& outcome, uint64_t step) {
  Sequence& s = *outcome.sequence;
  if (!outcome.fault.ok()) {
    s.CommitFault(std::move(outcome.fault));
    UpdateReady(s);
    return;
  }
  const uint64_t first_position = s.position() + outcome.rows - outcome.logit_rows;
  const uint32_t taken_back = outcome.rows - outcome.kept();
  rows_run_.fetch_add(outcome.rows, std::memory_order_relaxed);
  CountDrafts(outcome);
  s.CommitRows(outcome.kept(), step);
  if (prefixes_ != nullptr) s.FeedPrefix(prefixes_.get());
  if (outcome.logit_rows > 0 && (outcome.ends || s.options().all_logits)) {
    s.SetStepLogits({first_position, outcome.first_logit, outcome.logit_rows - taken_back},
                    outcome.ends);
  }
  for (uint32_t i = 0; i < outcome.sampled; ++i) {
    const size_t at = TokenAt(outcome) + i;
    s.CommitToken(tokens_[at], LogprobsAt(at, s));
  }
  produced_.fetch_add(outcome.sampled, std::memory_order_relaxed);
  if (outcome.ends && !outcome.samples && !s.options().manual) s.CommitFull();
  UpdateReady(s);
}

void EngineImpl::Abort() {
  for (const Outcome& outcome : outcomes_) outcome.sequence->caches().Abort();
  outcomes_.clear();
  ahead_.clear();
  may_work_ = true;
  Publish();
  std::lock_guard<std::mutex> lock(cancel_mutex_);
  step_active_ = in_run_ = false;
}

Status EngineImpl::Execute() {
  Undo undo{this};
  Status status = RunContext();
  if (status.ok()) status = SampleAll();
  if (status.ok()) status = Commit();
  undo.armed = !status.ok();
  return status;
}

}  // namespace mainarch::decode
