// SPDX-License-Identifier: MIT
#include "decode/draft_head.h"

#include <algorithm>
#include <utility>

namespace mainarch::decode {

DraftHead::DraftHead(std::unique_ptr<backend::Context> context, size_t first_cache, size_t caches,
                     uint32_t max_sequences, uint32_t max_rows)
    : context_(std::move(context)),
      first_cache_(first_cache),
      cache_count_(caches),
      caches_(size_t{max_sequences} * caches),
      own_rows_(max_sequences) {
  rows_.reserve(max_sequences);
  sequences_.reserve(max_sequences);
  logit_rows_.reserve(max_sequences);
  choices_.reserve(max_sequences);
  inputs_.reserve(std::max(max_rows, max_sequences));
}

Status DraftHead::Draft(absl::Span<const Wish> wishes, Sampler* sampler) {
  uint32_t most = 0;
  for (const Wish& wish : wishes) most = std::max(most, wish.drafts);
  Status status;
  for (uint32_t i = 0; i < most && status.ok(); ++i) status = DraftOne(wishes, i, sampler);
  for (const Wish& wish : wishes) wish.sequence->Forget();
  return status;
}

// The guess of this index for all who wish for so many: a row each.
Status DraftHead::DraftOne(absl::Span<const Wish> wishes, uint32_t index, Sampler* sampler) {
  rows_.clear();
  sequences_.clear();
  logit_rows_.clear();
  choices_.clear();
  inputs_.clear();
  for (size_t i = 0; i < wishes.size(); ++i) {
    if (index >= wishes[i].drafts) continue;
    inputs_.push_back(index == 0 ? backend::kCarriedInput : backend::kOwnInput | own_rows_[i]);
    own_rows_[i] = static_cast<uint32_t>(rows_.size());
    FillRow(wishes[i], index);
  }
  RETURN_IF_ERROR(context_->Run({rows_, sequences_, logit_rows_, choices_, inputs_}));
  for (size_t i = 0; i < wishes.size(); ++i) {
    const Wish& wish = wishes[i];
    if (index >= wish.drafts) continue;
    ASSIGN_OR_RETURN(wish.out[index], Choose(wish, own_rows_[i], sampler));
    wish.sequence->Foresee(wish.out[index]);
  }
  return OkStatus();
}

absl::Span<const backend::StepCache> DraftHead::CachesOf(const Wish& wish) const {
  return wish.sequence->caches().step().subspan(first_cache_, cache_count_);
}

// No state is written: the hidden row behind a guess is the head's own, and only a guess, too.
void DraftHead::FillRow(const Wish& wish, uint32_t index) {
  Sequence& s = *wish.sequence;
  const auto row = static_cast<uint32_t>(rows_.size());
  const auto position = static_cast<uint32_t>(s.position() + index);
  rows_.push_back({s.tokens()[position], position, row});
  backend::StepCache* const caches = &caches_[row * cache_count_];
  const auto all = CachesOf(wish);
  for (size_t c = 0; c < cache_count_; ++c) {
    caches[c] = all[c];
    caches[c].state_out = {};
  }
  sequences_.push_back({{caches, cache_count_}, wish.table});
  logit_rows_.push_back(row);
  // As the model's row will be asked, so that a token that is drawn is drawn with the same numbers.
  choices_.push_back(ChoiceOf(s.Request()));
  choices_.back().read = false;
}

// Logits that nothing can be chosen from are a bad guess and no error: any token will do.
StatusOr<uint32_t> DraftHead::Choose(const Wish& wish, uint32_t row, Sampler* sampler) {
  const absl::optional<uint32_t> chosen = context_->Chosen(row);
  if (chosen.has_value()) return *chosen;
  RETURN_IF_ERROR(context_->FetchLogits(row));
  const StatusOr<uint32_t> token =
      sampler->Sample(context_->Logits(row), wish.sequence->Request());
  return token.ok() ? *token : wish.sequence->tokens().back();
}

Status DraftHead::Mirror(const backend::Step& step, absl::Span<const Wish> wishes) {
  sequences_.clear();
  inputs_.clear();
  for (const Wish& wish : wishes) sequences_.push_back({CachesOf(wish), wish.table});
  for (uint32_t row = 0; row < step.rows.size(); ++row) {
    const bool first = row == 0 || step.rows[row - 1].sequence != step.rows[row].sequence;
    inputs_.push_back(first ? backend::kCarriedInput : row - 1);
  }
  return context_->Run({step.rows, sequences_, {}, {}, inputs_});
}

}  // namespace mainarch::decode
