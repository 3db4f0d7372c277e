// SPDX-License-Identifier: MIT
//
// One step of the engine, all or nothing.
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
    view.pages = s.pages().pages();
    may_work_ |= view.pending > 0;
  }
  return scheduler_.Make(views_, {options_.max_step_tokens, pool_.free_pages(), pool_.refs()});
}

Status EngineImpl::TakePages(const Plan& plan) {
  for (const uint32_t index : plan.preempted) slots_[index].Evict();
  const auto copy = [this](uint32_t from, uint32_t to) { return context_->CopyPage(0, from, to); };
  for (const Chunk& chunk : plan.chunks) {
    Sequence& s = slots_[chunk.sequence];
    outcomes_.push_back({&s, chunk.rows});
    RETURN_IF_ERROR(s.pages().Prepare(s.position(), chunk.rows, copy));
    s.PrepareCommit();
  }
  return OkStatus();
}

void EngineImpl::FillStep() {
  uint32_t row = 0;
  step_sequences_.clear();
  step_caches_.clear();
  logit_rows_.clear();
  choices_.clear();
  for (Outcome& outcome : outcomes_) {
    Sequence& s = *outcome.sequence;
    for (uint32_t i = 0; i < outcome.rows; ++i) {
      const auto position = static_cast<uint32_t>(s.position() + i);
      rows_[row++] = {s.tokens()[position], position,
                      static_cast<uint32_t>(step_sequences_.size())};
    }
    step_caches_.push_back({s.pages().pages()});
    step_sequences_.push_back({absl::MakeConstSpan(&step_caches_.back(), 1),
                               static_cast<uint32_t>(&s - slots_.data())});
    const bool ends = outcome.rows == s.pending();
    outcome.has_token = ends && !s.options().manual && !s.full();
    outcome.has_logits = outcome.has_token || (ends && s.options().manual);
    if (!outcome.has_logits) continue;
    outcome.logit_row = static_cast<uint32_t>(logit_rows_.size());
    logit_rows_.push_back(row - 1);
    choices_.push_back(outcome.has_token ? ChoiceOf(s.Request()) : backend::Choice());
  }
}

StatusOr<bool> EngineImpl::Prepare() {
  if (!may_work_) return false;
  step_start_ns_ = NowNs();
  const Plan& plan = MakePlan();
  if (!may_work_) return false;
  if (plan.chunks.empty()) return Error(Code::kInternal, "the scheduler found no rows to run");

  Undo undo{this};
  outcomes_.clear();
  RETURN_IF_ERROR(TakePages(plan));
  FillStep();
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
  in_run_ = !cancelled_;
  return in_run_;
}

void EngineImpl::EndRun() {
  std::lock_guard<std::mutex> lock(cancel_mutex_);
  in_run_ = false;
}

Status EngineImpl::RunContext() {
  // The run overwrites the logits of the step before.
  for (Sequence& s : slots_) {
    if (!s.open || s.logits_place() != Sequence::LogitsPlace::kStep) continue;
    if (s.options().manual) {
      RETURN_IF_ERROR(context_->FetchLogits(s.logits_row()));
      s.KeepLogits(context_->Logits(s.logits_row()));
    } else {
      s.DropLogits();
    }
  }
  uint32_t rows = 0;
  for (const Outcome& outcome : outcomes_) rows += outcome.rows;
  const backend::Step step = {{rows_.data(), rows}, step_sequences_, logit_rows_, choices_};
  if (!BeginRun()) return Error(Code::kCancelled, "the step was cancelled before it ran");
  const Status status = context_->Run(step);
  EndRun();
  return status;
}

Status EngineImpl::Sample(Outcome& outcome) {
  const Sequence& s = *outcome.sequence;
  const absl::optional<uint32_t> chosen = context_->Chosen(outcome.logit_row);
  if (chosen.has_value()) outcome.token = *chosen;
  if (chosen.has_value() && s.options().logprobs == 0) return OkStatus();
  RETURN_IF_ERROR(context_->FetchLogits(outcome.logit_row));
  const absl::Span<float> logits = context_->Logits(outcome.logit_row);
  if (!chosen.has_value()) {
    ASSIGN_OR_RETURN(outcome.token, sampler_.Sample(logits, s.Request()));
  }
  if (s.options().logprobs == 0) return OkStatus();
  const size_t at = static_cast<size_t>(&outcome - outcomes_.data()) * (1 + kMaxLogprobs);
  return sampler_.Logprobs(logits, outcome.token, {&logprobs_[at], 1 + s.options().logprobs});
}

void EngineImpl::SampleAll() {
  for (Outcome& outcome : outcomes_) {
    if (!outcome.has_token) continue;
    outcome.fault = Sample(outcome);
    if (outcome.fault.ok()) continue;
    const auto index = static_cast<uint32_t>(outcome.sequence - slots_.data());
    outcome.fault = WithContext(
        outcome.fault, absl::StrCat("sequence 0x", absl::Hex(IdOf(index)), ", token at position ",
                                    outcome.sequence->tokens().size()));
  }
}

Status EngineImpl::Commit() {
  {
    // From here on the step counts as done: a cancel comes before or not at all.
    std::lock_guard<std::mutex> lock(cancel_mutex_);
    if (cancelled_) return Error(Code::kCancelled, "the step was cancelled");
    step_active_ = false;
  }
  const uint64_t step = steps_.fetch_add(1, std::memory_order_relaxed) + 1;
  uint64_t rows = 0;
  uint64_t produced = 0;
  for (size_t i = 0; i < outcomes_.size(); ++i) {
    Outcome& outcome = outcomes_[i];
    Sequence& s = *outcome.sequence;
    if (!outcome.fault.ok()) {
      s.CommitFault(std::move(outcome.fault));
      UpdateReady(s);
      continue;
    }
    rows += outcome.rows;
    s.CommitRows(outcome.rows, step);
    if (outcome.has_logits) s.SetStepLogits(outcome.logit_row);
    if (outcome.has_token) {
      const size_t count = s.options().logprobs == 0 ? 0 : 1 + s.options().logprobs;
      s.CommitToken(outcome.token, {&logprobs_[i * (1 + kMaxLogprobs)], count});
      ++produced;
    } else if (s.pending() == 0 && !s.options().manual) {
      s.CommitFull();
    }
    UpdateReady(s);
  }
  rows_run_.fetch_add(rows, std::memory_order_relaxed);
  produced_.fetch_add(produced, std::memory_order_relaxed);
  step_ns_last_.store(static_cast<uint64_t>(NowNs() - step_start_ns_), std::memory_order_relaxed);
  may_work_ = true;
  Publish();
  return OkStatus();
}

void EngineImpl::Abort() {
  for (const Outcome& outcome : outcomes_) {
    outcome.sequence->pages().Truncate(outcome.sequence->position());
  }
  outcomes_.clear();
  may_work_ = true;
  Publish();
  std::lock_guard<std::mutex> lock(cancel_mutex_);
  step_active_ = in_run_ = false;
}

Status EngineImpl::Execute() {
  Undo undo{this};
  Status status = RunContext();
  if (status.ok()) {
    SampleAll();
    status = Commit();
  }
  undo.armed = !status.ok();
  return status;
}

}  // namespace mainarch::decode
