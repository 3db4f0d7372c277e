// SPDX-License-Identifier: MIT
#ifndef MAINARCH_TESTS_GOLDEN_ALONE_H_
#define MAINARCH_TESTS_GOLDEN_ALONE_H_

#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"
#include "model/sequence_caches.h"

namespace mainarch::test {

// One sequence of one context, at whose beginning a token is run, which chooses the next, and so on.
class Alone {
 public:
  static constexpr uint32_t kPages = 8;

  static constexpr uint32_t kSlots = 8;

  Alone(std::unique_ptr<backend::Context> context, const std::vector<model::CacheForm>& forms) : context_(std::move(context)) {
    for (uint32_t i = 0; i < kPages; ++i) pages_.push_back(kPages - 1 - i);
    for (const model::CacheForm& form : forms) {
      backend::StepCache cache;
      if (form.slots) cache.state_out = out_;
      if (!form.slots) cache.pages = pages_;
      caches_.push_back(cache);
      state_caches_ += form.slots;
    }
  }
  static StatusOr<std::unique_ptr<Alone>> Create(const model::Model& model, backend::ResidentMode mode = backend::ResidentMode::kOn) {
    backend::ContextOptions options;
    options.max_rows = 24;
    options.max_logit_rows = 4;
    options.resident = mode;
    const std::vector<model::CacheForm> forms = model::FormsOf(model.weights().program());
    for (const model::CacheForm& form : forms) {
      options.slots.push_back(form.slots ? kSlots : 0);
      options.pages.push_back(form.slots ? 0 : kPages);
    }
    ASSIGN_OR_RETURN(auto context, model.weights().CreateContext(options));
    return std::make_unique<Alone>(std::move(context), forms);
  }
  // Of so many rounds behind a sequence's first token, whose state goes to slot 0.
  backend::Lease LeaseOf(uint32_t rounds) {
    backend::Lease lease;
    lease.rounds = rounds;
    lease_slots_.clear();
    for (uint32_t i = 0; i < rounds * state_caches_; ++i) lease_slots_.push_back(1 + i / state_caches_ * 3 % 7);
    lease.slots = lease_slots_;
    return lease;
  }

  // A step of one row: the token, or what the step before chooses.
  Status Submit(uint32_t token, uint32_t position, bool follows, absl::Span<const backend::Lease> leases) {
    return SubmitStep({{token, position, 0, follows ? 0 : backend::kHere}}, leases);
  }
  // Of several, the last of which chooses.
  Status SubmitRows(const std::vector<uint32_t>& tokens, uint32_t position) {
    std::vector<backend::StepRow> rows;
    for (const uint32_t token : tokens) rows.push_back({token, position++, 0, backend::kHere});
    return SubmitStep(rows, {});
  }
  // The tokens of the steps and rounds that are in flight, until they are over or one has not run.
  StatusOr<std::vector<uint32_t>> Land() {
    std::vector<uint32_t> out;
    while (true) {
      ASSIGN_OR_RETURN(const bool ended, context_->Poll(-1));
      if (!ended || context_->left_out()) return out;
      out.push_back(context_->Chosen(0).value_or(UINT32_MAX));
    }
  }
  backend::Context& context() { return *context_; }

 private:
  Status SubmitStep(const std::vector<backend::StepRow>& rows, absl::Span<const backend::Lease> leases) {
    const backend::StepSequence sequence = {caches_};
    const uint32_t logit_row = static_cast<uint32_t>(rows.size()) - 1;
    backend::Choice choice;
    choice.choose = true;
    choice.read = false;
    choice.temperature = 1;
    choice.seed = 9;
    choice.position = rows.back().position + 1;
    backend::Step step;
    step.rows = rows;
    step.sequences = absl::MakeConstSpan(&sequence, 1);
    step.logit_rows = absl::MakeConstSpan(&logit_row, 1);
    step.choices = absl::MakeConstSpan(&choice, 1);
    step.leases = leases;
    return context_->Submit(step);
  }

  std::unique_ptr<backend::Context> context_;
  std::vector<uint32_t> pages_;
  std::vector<backend::StateOut> out_ = {{0, 0}};
  std::vector<backend::StepCache> caches_;
  uint32_t state_caches_ = 0;
  std::vector<uint32_t> lease_slots_;
};

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_GOLDEN_ALONE_H_
