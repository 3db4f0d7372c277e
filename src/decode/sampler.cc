// SPDX-License-Identifier: MIT
#include "decode/sampler.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <functional>

#include "decode/race.h"
#include "decode/token_mask.h"
#include "decode/vocab_math.h"
#include "kernels/common/draw.h"

namespace mainarch::decode {
namespace {

constexpr float kGreedyBelow = 1e-5f;
// A bucket of scores: the exponent and three bits of the mantissa, the largest score in bucket 0.
constexpr int kBucketShift = 20;
constexpr size_t kBuckets = (0x7F800000u >> kBucketShift) + 1;

size_t BucketOf(float score) {
  return (std::bit_cast<uint32_t>(score) & 0x7FFFFFFFu) >> kBucketShift;
}

Status InsaneLogit(absl::Span<const float> logits) {
  size_t i = 0;
  while (i + 1 < logits.size() && logits[i] <= FLT_MAX) ++i;
  return Error(Code::kBadModel, "the logit of token ", i, " is ",
               std::isnan(logits[i]) ? "nan" : "infinite", ": wrong weights or an overflow");
}

}  // namespace

void TokenCounts::Enable(uint32_t vocab, uint64_t tokens) {
  tokens_.clear();
  tokens_.reserve(std::min<uint64_t>(vocab, tokens));
  state_.assign(vocab, 0);
}

void TokenCounts::Add(uint32_t token, bool produced) {
  if (!enabled()) return;
  if (state_[token] == 0) {
    tokens_.push_back(token);
    state_[token] = 1;
  }
  state_[token] += produced;
}

void TokenCounts::Clear() {
  for (const uint32_t token : tokens_) state_[token] = 0;
  tokens_.clear();
}

void TokenCounts::CopyFrom(const TokenCounts& other) {
  Clear();
  for (const uint32_t token : other.tokens_) {
    tokens_.push_back(token);
    state_[token] = other.state_[token];
  }
}

bool WantsCounts(const SequenceOptions& o) {
  return !o.manual && ((o.repetition_penalty != 0 && o.repetition_penalty != 1) ||
                       o.frequency_penalty != 0 || o.presence_penalty != 0);
}

void TokenCounts::TakeBack(uint32_t token, size_t distinct) {
  if (!enabled() || --state_[token] > 1) return;
  // Its first appearance was that Add, unless it was there before: then it is not at the end.
  if (tokens_.size() <= distinct || tokens_.back() != token) return;
  tokens_.pop_back();
  state_[token] = 0;
}

backend::Choice ChoiceOf(const SampleRequest& request) {
  const SequenceOptions& o = *request.options;
  backend::Choice choice;
  choice.choose = true;
  choice.read = o.logprobs > 0;
  choice.banned[0] = request.ban_eos;
  choice.banned[1] = request.ban_stop;
  choice.bias = o.logit_bias;
  choice.mask = request.mask;
  if (WantsCounts(o) && request.counts != nullptr) {
    if (o.repetition_penalty != 0) choice.repetition = o.repetition_penalty;
    choice.frequency = o.frequency_penalty;
    choice.presence = o.presence_penalty;
    choice.counted = request.counts->tokens();
    choice.times = request.counts->times().data();
  }
  if (o.temperature < kGreedyBelow) return choice;
  choice.temperature = o.temperature;
  choice.min_p = o.min_p;
  choice.top_k = o.top_k;
  if (o.top_p > 0 && o.top_p < 1) choice.top_p = o.top_p;
  choice.seed = o.seed;
  choice.position = request.position;
  return choice;
}

Sampler::Sampler(uint32_t vocab)
    : vocab_(vocab),
      ids_(vocab),
      scores_(vocab),
      weights_(vocab),
      block_max_((vocab + kScanBlock - 1) / kScanBlock),
      select_(vocab),
      order_(vocab),
      mass_(kBuckets) {}

void Sampler::Reserve(uint64_t edits) { edits_.reserve(edits); }

// As a bias of -infinity on every token that is not allowed: nan stays nan, +infinity becomes one.
absl::Span<float> Sampler::Masked(absl::Span<float> logits, absl::Span<const uint32_t> mask) {
  if (mask.empty()) return logits;
  ReserveMask();
  for (uint32_t i = 0; i < vocab_; ++i) {
    masked_[i] = Allows(mask, i) ? logits[i] : logits[i] - INFINITY;
  }
  return absl::MakeSpan(masked_);
}

void Sampler::Change(absl::Span<float> logits, uint32_t token, float value) {
  edits_.push_back({token, logits[token]});
  logits[token] = value;
}

void Sampler::Restore(absl::Span<float> logits) {
  for (size_t i = edits_.size(); i-- > 0;) logits[edits_[i].token] = edits_[i].before;
  edits_.clear();
}

void Sampler::ApplyEdits(absl::Span<float> logits, const SampleRequest& request) {
  const SequenceOptions& o = *request.options;
  for (const uint32_t token : request.ban_eos) Change(logits, token, -INFINITY);
  for (const uint32_t token : request.ban_stop) Change(logits, token, -INFINITY);
  for (const LogitBias& b : o.logit_bias) Change(logits, b.token, logits[b.token] + b.bias);
  if (!WantsCounts(o) || request.counts == nullptr) return;
  const bool repetition = o.repetition_penalty != 0 && o.repetition_penalty != 1;
  for (const uint32_t token : request.counts->tokens()) {
    float logit = logits[token];
    if (repetition) {
      logit = logit > 0 ? logit / o.repetition_penalty : logit * o.repetition_penalty;
    }
    const uint32_t produced = request.counts->produced(token);
    if (produced > 0) {
      logit -= static_cast<float>(produced) * o.frequency_penalty;
      logit -= o.presence_penalty;
    }
    Change(logits, token, logit);
  }
}

float Sampler::AtLeastK(uint32_t k) {
  if (k > block_max_.size()) return -FLT_MAX;
  std::copy(block_max_.begin(), block_max_.end(), select_.begin());
  const auto end = select_.begin() + static_cast<ptrdiff_t>(block_max_.size());
  std::nth_element(select_.begin(), select_.begin() + (k - 1), end, std::greater<float>());
  return std::max(select_[k - 1], -FLT_MAX);
}

void Sampler::Gather(absl::Span<const float> logits, float least) {
  size_t n = 0;
  for (size_t block = 0; block < block_max_.size(); ++block) {
    if (block_max_[block] < least) continue;
    const size_t end = std::min<size_t>((block + 1) * kScanBlock, vocab_);
    for (size_t i = block * kScanBlock; i < end; ++i) {
      ids_[n] = static_cast<uint32_t>(i);
      scores_[n] = logits[i];
      n += logits[i] >= least;
    }
  }
  count_ = n;
}

// Like vLLM and transformers: everything that equals the k-th stays.
void Sampler::KeepTopK(uint32_t k) {
  if (count_ <= k) return;
  std::copy_n(scores_.begin(), count_, select_.begin());
  std::nth_element(select_.begin(), select_.begin() + (k - 1),
                   select_.begin() + static_cast<ptrdiff_t>(count_), std::greater<float>());
  const float least = select_[k - 1];
  size_t n = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (scores_[i] >= least) Compact(i, n++);
  }
  count_ = n;
}

// Drops the tail whose ascending cumulative mass stays within 1 - p: lowest score first, of equals
// the highest id. Masses are integers (kernels/common/draw.h), so whoever adds them, in whatever
// order, finds the same tail. Only the bucket in which the sum crosses that line is sorted.
void Sampler::KeepTopP(float top_p) {
  const uint32_t shift = kernels::MassShift(vocab_);
  std::fill(mass_.begin(), mass_.end(), 0);
  uint64_t total = 0;
  for (size_t i = 0; i < count_; ++i) {
    const uint64_t mass = kernels::MassOf(weights_[i], shift);
    mass_[BucketOf(scores_[i])] += mass;
    total += mass;
  }
  const uint64_t limit = kernels::TailLimit(total, top_p);
  size_t bucket = kBuckets - 1;
  uint64_t sum = 0;
  while (bucket > 0 && sum + mass_[bucket] <= limit) sum += mass_[bucket--];

  size_t n = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (BucketOf(scores_[i]) == bucket) order_[n++] = static_cast<uint32_t>(i);
  }
  // ids_ ascend with i.
  std::sort(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(n),
            [&](uint32_t a, uint32_t b) {
              return scores_[a] != scores_[b] ? scores_[a] < scores_[b] : a > b;
            });
  size_t first = 0;
  while (first + 1 < n && (sum += kernels::MassOf(weights_[order_[first]], shift)) <= limit) {
    ++first;
  }
  // Compaction moves entries, so the least of those kept is remembered by value.
  const uint32_t least = order_[first];
  const float least_score = scores_[least];
  size_t kept = 0;
  for (size_t i = 0; i < count_; ++i) {
    const size_t b = BucketOf(scores_[i]);
    const bool above = scores_[i] > least_score || (scores_[i] == least_score && i <= least);
    if (b < bucket || (b == bucket && above)) Compact(i, kept++);
  }
  count_ = kept;
}

Status Sampler::Narrow(absl::Span<const float> logits, const SequenceOptions& o, bool masked) {
  const bool greedy = o.temperature < kGreedyBelow;
  const Peak peak = FindPeak(logits.data(), logits.size(), greedy ? nullptr : block_max_.data());
  if (!peak.sane) return InsaneLogit(logits);
  if (peak.value == -INFINITY) {
    return Error(Code::kInvalidArgument, "every one of the ", vocab_,
                 " tokens is banned by logit_bias", masked ? ", the mask" : "", " or min_tokens");
  }
  if (greedy) {
    ids_[0] = peak.index;
    weights_[0] = 1;
    count_ = 1;
    return OkStatus();
  }
  float least = -FLT_MAX;
  if (o.top_k > 0 && o.top_k < vocab_) least = AtLeastK(o.top_k);
  if (o.min_p > 0) {
    // Below the true bound by more than any rounding; the exact test follows.
    const double bound =
        peak.value + o.temperature * (NaturalLog(o.min_p) - 1e-3) - 1e-5 * std::fabs(peak.value);
    least = std::max(least, static_cast<float>(std::max<double>(bound, -FLT_MAX)));
  }
  Gather(logits, least);
  if (o.top_k > 0) KeepTopK(o.top_k);
  for (size_t i = 0; i < count_; ++i) scores_[i] = (scores_[i] - peak.value) / o.temperature;
  ExpInto(scores_.data(), count_, weights_.data());
  if (o.min_p > 0) {
    size_t n = 0;
    for (size_t i = 0; i < count_; ++i) {
      if (!(weights_[i] < o.min_p)) Compact(i, n++);
    }
    count_ = n;
  }
  if (o.top_p > 0 && o.top_p < 1) KeepTopP(o.top_p);
  return OkStatus();
}

// Nobody is dropped but who is banned, whose weight is 0: those lose without being sorted out.
bool Sampler::WeighAll(absl::Span<const float> logits, const SequenceOptions& o) {
  if (o.temperature < kGreedyBelow || o.top_k > 0 || o.min_p > 0 || (o.top_p > 0 && o.top_p < 1)) {
    return false;
  }
  const Peak peak = FindPeak(logits.data(), logits.size(), nullptr);
  if (!peak.sane || peak.value == -INFINITY) return false;
  for (size_t i = 0; i < vocab_; ++i) scores_[i] = (logits[i] - peak.value) / o.temperature;
  ExpInto(scores_.data(), vocab_, weights_.data());
  return true;
}

StatusOr<uint32_t> Sampler::Sample(absl::Span<float> raw, const SampleRequest& request) {
  const absl::Span<float> logits = Masked(raw, request.mask);
  ApplyEdits(logits, request);
  if (WeighAll(logits, *request.options)) {
    Restore(logits);
    return RaceAll(weights_.data(), vocab_, request.options->seed, request.position);
  }
  const Status status = Narrow(logits, *request.options, !request.mask.empty());
  Restore(logits);
  if (!status.ok()) return status;
  if (count_ == 1) return ids_[0];
  return Race(ids_.data(), weights_.data(), count_, request.options->seed, request.position);
}

StatusOr<absl::Span<const uint32_t>> Sampler::Kept(absl::Span<float> raw,
                                                   const SampleRequest& request) {
  const absl::Span<float> logits = Masked(raw, request.mask);
  ApplyEdits(logits, request);
  const Status status = Narrow(logits, *request.options, !request.mask.empty());
  Restore(logits);
  if (!status.ok()) return status;
  return absl::Span<const uint32_t>(ids_.data(), count_);
}

Status Sampler::Check(absl::Span<const float> logits) const {
  const Peak peak = FindPeak(logits.data(), logits.size(), nullptr);
  return peak.sane && peak.value != -INFINITY ? OkStatus() : InsaneLogit(logits);
}

Status Sampler::Logprobs(absl::Span<const float> logits, uint32_t token, absl::Span<Logprob> out) {
  const Peak peak = FindPeak(logits.data(), logits.size(), block_max_.data());
  if (!peak.sane || peak.value == -INFINITY) return InsaneLogit(logits);
  const double log_total = NaturalLog(SumExp(logits.data(), logits.size(), peak.value));
  const auto entry = [&](uint32_t id) {
    return Logprob{id,
                   static_cast<float>(static_cast<double>(logits[id]) - peak.value - log_total)};
  };
  std::fill(out.begin(), out.end(), entry(token));
  const size_t n = std::min<size_t>(out.size() - 1, vocab_);
  if (n == 0) return OkStatus();
  Gather(logits, AtLeastK(static_cast<uint32_t>(n)));
  for (size_t i = 0; i < count_; ++i) order_[i] = static_cast<uint32_t>(i);
  const size_t found = std::min(n, count_);
  std::partial_sort(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(found),
                    order_.begin() + static_cast<ptrdiff_t>(count_), [&](uint32_t a, uint32_t b) {
                      return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b;
                    });
  for (size_t i = 0; i < found; ++i) out[1 + i] = entry(ids_[order_[i]]);
  return OkStatus();
}

}  // namespace mainarch::decode
