// SPDX-License-Identifier: MIT
#include "cli/bench_steps.h"

#include <algorithm>

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
  options.pages = {pages * shape.batch};
  ASSIGN_OR_RETURN(driver->context_, driver->model_->weights().CreateContext(options));
  driver->cancel_.emplace(InterruptHook::When::kAtOnce,
                          [context = driver->context_.get()] { context->RequestStop(); });
  driver->pages_.resize(shape.batch);
  for (uint32_t s = 0; s < shape.batch; ++s) {
    for (uint32_t i = 0; i < pages; ++i) driver->pages_[s].push_back(s * pages + i);
    driver->caches_.push_back({driver->pages_[s]});
  }
  for (uint32_t s = 0; s < shape.batch; ++s) {
    driver->sequences_.push_back({absl::MakeConstSpan(driver->caches_).subspan(s, 1), s});
  }
  return driver;
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
    const backend::Step step = {rows_, absl::MakeConstSpan(sequences_).first(1), logit_rows_};
    RETURN_IF_ERROR(context_->Run(step));
  }
  return OkStatus();
}

Status StepDriver::FillContext(uint32_t depth) {
  if (depth == 0) return OkStatus();
  rows_.clear();
  for (uint32_t p = 0; p < backend::kPageTokens; ++p) rows_.push_back({Token(0, p), p, 0});
  const backend::Step step = {rows_, absl::MakeConstSpan(sequences_).first(1), {}};
  RETURN_IF_ERROR(context_->Run(step));
  const uint32_t used = model::PagesFor(depth);
  for (const std::vector<uint32_t>& pages : pages_) {
    for (uint32_t i = 0; i < used; ++i) {
      if (pages[i] != pages_[0][0]) RETURN_IF_ERROR(context_->CopyPage(0, pages_[0][0], pages[i]));
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
  }
  return {rows_, sequences_, logit_rows_};
}

Status StepDriver::Decode(uint32_t position) {
  if (Interrupted()) return Error(Code::kCancelled, "interrupted");
  return context_->Run(DecodeStep(position));
}

Status StepDriver::DecodePrefix(uint32_t position, size_t ops) {
  if (Interrupted()) return Error(Code::kCancelled, "interrupted");
  return context_->RunPrefix(DecodeStep(position), ops);
}

}  // namespace mainarch::cli
