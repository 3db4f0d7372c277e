// SPDX-License-Identifier: MIT
#include "decode/sequence.h"

#include <algorithm>
#include <utility>

namespace mainarch::decode {
namespace {

bool Contains(absl::Span<const uint32_t> ids, uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

void Sequence::Open(const SequenceOptions& options, const SequenceLimits* limits,
                    model::PagePool* pool) {
  limits_ = limits;
  options_ = options;
  options_.logprobs = std::min(options.logprobs, limits->vocab);
  pages_ = model::PageTable(pool, model::PagesFor(limits->max_tokens));
  tokens_.reserve(limits->max_tokens);
  is_produced_.reserve(limits->max_tokens);
  counts_ = TokenCounts();
  if (WantsCounts(options)) counts_.Enable(limits->vocab, limits->max_tokens);
  if (options.manual && own_logits_ == nullptr) own_logits_.reset(new float[limits->vocab]);
  logprobs_.reserve(16 * LogprobStride());
  last_step = 0;
}

void Sequence::Close() {
  pages_.Truncate(0);
  tokens_.clear();
  is_produced_.clear();
  logprobs_.clear();
  options_ = SequenceOptions();
  position_ = turn_start_ = produced_ = take_from_ = untaken_ = 0;
  last_taken_ = 0;
  finish_ = Finish::kNone;
  fault_ = OkStatus();
  dormant_ = false;
  logits_place_ = LogitsPlace::kNone;
}

void Sequence::ForkFrom(const Sequence& other) {
  pages_.ShareFrom(other.pages_);
  tokens_.assign(other.tokens_.begin(), other.tokens_.end());
  is_produced_.assign(other.is_produced_.begin(), other.is_produced_.end());
  counts_.CopyFrom(other.counts_);
  position_ = other.position_;
  turn_start_ = other.turn_start_;
  produced_ = other.produced_;
  take_from_ = tokens_.size();
  finish_ = other.finish_;
  fault_ = other.fault_;
  dormant_ = other.dormant_;
}

void Sequence::Append(absl::Span<const uint32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  is_produced_.resize(tokens_.size(), 0);
  for (const uint32_t token : tokens) counts_.Add(token, false);
  turn_start_ = tokens_.size();
  finish_ = Finish::kNone;
  fault_ = OkStatus();
  dormant_ = false;
  DropLogits();
}

void Sequence::Truncate(uint64_t tokens) {
  tokens_.resize(tokens);
  is_produced_.resize(tokens);
  // The last token runs again, since what follows it is to be chosen anew.
  position_ = std::min(position_, tokens == 0 ? 0 : tokens - 1);
  pages_.Truncate(position_);
  turn_start_ = std::min(turn_start_, tokens);
  finish_ = Finish::kNone;
  fault_ = OkStatus();
  dormant_ = false;
  DropLogits();
  Recount();
}

void Sequence::Recount() {
  counts_.Clear();
  take_from_ = std::min<uint64_t>(take_from_, tokens_.size());
  produced_ = untaken_ = 0;
  for (uint64_t i = 0; i < tokens_.size(); ++i) {
    counts_.Add(tokens_[i], is_produced_[i] != 0);
    produced_ += is_produced_[i];
    if (i >= take_from_) untaken_ += is_produced_[i];
  }
  if (LogprobStride() > 0) {
    logprobs_.resize(
        std::min<size_t>(logprobs_.size(), (last_taken_ + untaken_) * LogprobStride()));
  }
}

size_t Sequence::Take(absl::Span<uint32_t> out) {
  const auto stride = static_cast<ptrdiff_t>(LogprobStride());
  logprobs_.erase(logprobs_.begin(),
                  logprobs_.begin() + static_cast<ptrdiff_t>(last_taken_) * stride);
  size_t n = 0;
  while (n < out.size() && untaken_ > 0) {
    if (is_produced_[take_from_] != 0) {
      out[n++] = tokens_[take_from_];
      --untaken_;
    }
    ++take_from_;
  }
  last_taken_ = n;
  return n;
}

absl::Span<const Logprob> Sequence::TakenLogprobs(size_t j) const {
  return {logprobs_.data() + j * LogprobStride(), LogprobStride()};
}

void Sequence::Evict() {
  dormant_ = !Works();
  position_ = 0;
  pages_.Truncate(0);
}

SequenceInfo Sequence::info() const {
  SequenceInfo info;
  info.position = position_;
  info.tokens = tokens_.size();
  info.pending = pending();
  info.produced = produced_;
  info.untaken = untaken_;
  info.finish = finish_;
  return info;
}

void Sequence::KeepLogits(absl::Span<const float> logits) {
  std::copy(logits.begin(), logits.end(), own_logits_.get());
  logits_place_ = LogitsPlace::kOwn;
}

void Sequence::PrepareCommit() {
  const size_t needed = logprobs_.size() + LogprobStride();
  if (needed > logprobs_.capacity()) logprobs_.reserve(2 * needed);
}

SampleRequest Sequence::Request() const {
  SampleRequest request;
  request.options = &options_;
  request.counts = &counts_;
  request.position = tokens_.size();
  if (tokens_.size() - turn_start_ < options_.min_tokens) {
    if (!options_.ignore_eos) request.ban_eos = limits_->eos_ids;
    request.ban_stop = options_.stop_tokens;
  }
  return request;
}

void Sequence::CommitRows(uint64_t rows, uint64_t step) {
  position_ += rows;
  last_step = step;
}

void Sequence::CommitToken(uint32_t token, absl::Span<const Logprob> logprobs) {
  tokens_.push_back(token);
  is_produced_.push_back(1);
  counts_.Add(token, true);
  ++produced_;
  ++untaken_;
  logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
  finish_ = FinishAfter(token);
}

void Sequence::CommitFault(Status fault) {
  pages_.Truncate(position_);
  fault_ = std::move(fault);
  finish_ = Finish::kFault;
}

// The order of models.md §6.6: stop sequences, end tokens, stop tokens, counts.
Finish Sequence::FinishAfter(uint32_t token) const {
  const uint64_t turn = tokens_.size() - turn_start_;
  if (turn > options_.min_tokens && EndsAStopSequence()) return Finish::kStopSequence;
  if (!options_.ignore_eos && Contains(limits_->eos_ids, token)) return Finish::kEos;
  if (Contains(options_.stop_tokens, token)) return Finish::kStopToken;
  if (options_.max_tokens > 0 && turn >= options_.max_tokens) return Finish::kMaxTokens;
  return full() ? Finish::kLength : Finish::kNone;
}

bool Sequence::EndsAStopSequence() const {
  const absl::Span<const uint32_t> turn = tokens().subspan(turn_start_);
  for (const std::vector<uint32_t>& stop : options_.stop_sequences) {
    if (stop.size() <= turn.size() &&
        std::equal(stop.begin(), stop.end(), turn.end() - static_cast<ptrdiff_t>(stop.size()))) {
      return true;
    }
  }
  return false;
}

}  // namespace mainarch::decode
