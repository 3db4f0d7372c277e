// SPDX-License-Identifier: MIT
#include "cli/bench_steps.h"

#include <algorithm>
#include <variant>

#include "cli/interrupt.h"
#include "model/kv_pages.h"
#include "model/synthetic_values.h"

namespace mainarch::cli {

StepDriver::StepDriver(std::shared_ptr<const model::Model> model, const Shape& shape)
    : model_(std::move(model)), shape_(shape) {}

StatusOr<std::unique_ptr<StepDriver>> StepDriver::Create(std::shared_ptr<const model::Model> model,
                                                         const Shape& shape, backend::KvType kv) {
  std::unique_ptr<StepDriver> driver(new StepDriver(std::move(model), shape));
  const uint32_t pages = model::PagesFor(shape.tokens);
  backend::ContextOptions options;
  options.kv_type = kv;
  options.activations = shape.activations;
  options.max_rows = std::max({shape.max_rows, shape.batch, uint32_t{backend::kPageTokens}});
  options.max_logit_rows = shape.batch;
  options.max_sequences = shape.batch;
  const std::vector<backend::Cache>& caches = driver->model_->weights().program().caches;
  options.pages.assign(caches.size(), 0);
  options.slots.assign(caches.size(), 0);
  for (size_t c = 0; c < caches.size(); ++c) {
    const bool paged = std::holds_alternative<backend::PagedCache>(caches[c]);
    (paged ? options.pages[c] : options.slots[c]) = (paged ? pages : 2) * shape.batch;
  }
  ASSIGN_OR_RETURN(driver->context_, driver->model_->weights().CreateContext(options));
  driver->cancel_.emplace(InterruptHook::When::kAtOnce,
                          [context = driver->context_.get()] { context->RequestStop(); });
  driver->pages_.resize(shape.batch);
  driver->outs_.resize(shape.batch);
  driver->caches_a_sequence_ = caches.size();
  for (uint32_t s = 0; s < shape.batch; ++s) {
    driver->states_.push_back(2 * s);
    for (uint32_t i = 0; i < pages; ++i) driver->pages_[s].push_back(s * pages + i);
    for (const backend::Cache& cache : caches) {
      backend::StepCache& own = driver->caches_.emplace_back();
      if (std::holds_alternative<backend::PagedCache>(cache)) own.pages = driver->pages_[s];
    }
  }
  for (uint32_t s = 0; s < shape.batch; ++s) {
    const auto own = absl::MakeConstSpan(driver->caches_).subspan(s * caches.size(), caches.size());
    driver->sequences_.push_back({own, s});
  }
  return driver;
}

void StepDriver::SetStates(uint32_t sequence, uint32_t position, uint32_t last_row) {
  const uint32_t own = 2 * sequence;
  outs_[sequence] = {last_row, states_[sequence] == own ? own + 1 : own};
  for (size_t c = 0; c < caches_a_sequence_; ++c) {
    if (IsPaged(c)) continue;
    backend::StepCache& cache = caches_[sequence * caches_a_sequence_ + c];
    cache.state_in = position == 0 ? backend::kNoSlot : states_[sequence];
    cache.state_out = {&outs_[sequence], 1};
  }
}

void StepDriver::KeepStates(uint32_t sequence) { states_[sequence] = outs_[sequence].slot; }

bool StepDriver::IsPaged(size_t cache) const {
  return std::holds_alternative<backend::PagedCache>(model_->weights().program().caches[cache]);
}

uint32_t StepDriver::Token(uint32_t sequence, uint32_t position) const {
  const uint64_t at = uint64_t{sequence} << 32 | position;
  return static_cast<uint32_t>(model::SplitMix64(at) %
                               static_cast<uint64_t>(model_->config().vocab));
}

Status StepDriver::Prefill(uint32_t tokens) {
  for (uint32_t begin = 0; begin < tokens; begin += shape_.max_rows) {
    if (Interrupted()) return Error(Code::kCancelled, "interrupted");
    const uint32_t end = std::min(tokens, begin + shape_.max_rows);
    rows_.clear();
    for (uint32_t p = begin; p < end; ++p) rows_.push_back({Token(0, p), p, 0});
    logit_rows_.clear();
    if (end == tokens) logit_rows_.push_back(end - begin - 1);
    SetStates(0, begin, end - begin - 1);
    const backend::Step step = {rows_, absl::MakeConstSpan(sequences_).first(1), logit_rows_};
    RETURN_IF_ERROR(context_->Run(step));
    KeepStates(0);
  }
  return OkStatus();
}

Status StepDriver::FillContext(uint32_t depth) {
  if (depth == 0) return OkStatus();
  rows_.clear();
  for (uint32_t p = 0; p < backend::kPageTokens; ++p) rows_.push_back({Token(0, p), p, 0});
  SetStates(0, 0, backend::kPageTokens - 1);
  const backend::Step step = {rows_, absl::MakeConstSpan(sequences_).first(1), {}};
  RETURN_IF_ERROR(context_->Run(step));
  // States are only read, so that all sequences may stand on one.
  states_.assign(states_.size(), outs_[0].slot);
  for (size_t c = 0; c < caches_a_sequence_; ++c) {
    if (IsPaged(c)) RETURN_IF_ERROR(FillPages(static_cast<int32_t>(c), model::PagesFor(depth)));
  }
  return OkStatus();
}

// The first `used` pages of every sequence are the first of all.
Status StepDriver::FillPages(int32_t cache, uint32_t used) {
  const uint32_t first = pages_[0][0];
  for (const std::vector<uint32_t>& pages : pages_) {
    for (uint32_t i = 0; i < used; ++i) {
      if (pages[i] != first) RETURN_IF_ERROR(context_->CopyPage(cache, first, pages[i]));
    }
  }
  return OkStatus();
}

backend::Step StepDriver::DecodeStep(uint32_t position) {
  rows_.clear();
  logit_rows_.clear();
  for (uint32_t s = 0; s < shape_.batch; ++s) {
    rows_.push_back({Token(s, position), position, s});
    logit_rows_.push_back(s);
    SetStates(s, position, 0);
  }
  return {rows_, sequences_, logit_rows_};
}

Status StepDriver::Decode(uint32_t position) {
  if (Interrupted()) return Error(Code::kCancelled, "interrupted");
  RETURN_IF_ERROR(context_->Run(DecodeStep(position)));
  for (uint32_t s = 0; s < shape_.batch; ++s) KeepStates(s);
  return OkStatus();
}

Status StepDriver::DecodePrefix(uint32_t position, size_t ops) {
  if (Interrupted()) return Error(Code::kCancelled, "interrupted");
  return context_->RunPrefix(DecodeStep(position), ops);
}

}  // namespace mainarch::cli
