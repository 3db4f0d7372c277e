// SPDX-License-Identifier: MIT
//
// Logits to a token. The order is vLLM's: bans and bias, repetition, frequency and presence
// penalties; greedy below T 1e-5; temperature, min_p, top_k, top_p; then a race of exponentials
// whose random numbers depend on (seed, position, token) alone, never on batch or history.
//
// Threads: one at a time; it owns scratch for one row of logits and allocates in its constructor.
#ifndef MAINARCH_DECODE_SAMPLER_H_
#define MAINARCH_DECODE_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "decode/options.h"

namespace mainarch::decode {

// Which tokens a sequence holds and how often it produced them, for the penalties.
class TokenCounts {
 public:
  // Room for `tokens` distinct tokens of `vocab`; without it the counts stay empty.
  void Enable(uint32_t vocab, uint64_t tokens);
  bool enabled() const { return !state_.empty(); }
  void Add(uint32_t token, bool produced);
  void Clear();
  void CopyFrom(const TokenCounts& other);
  // Takes back the last Add(token, true); `distinct`: of tokens() at some time before it.
  void TakeBack(uint32_t token, size_t distinct);

  absl::Span<const uint32_t> tokens() const { return tokens_; }
  // [vocab]: 0 absent, else 1 + times produced; empty unless enabled.
  absl::Span<const uint32_t> times() const { return state_; }
  uint32_t produced(uint32_t token) const { return state_[token] - 1; }

 private:
  std::vector<uint32_t> tokens_;  // distinct, in order of first appearance
  std::vector<uint32_t> state_;   // [vocab]: 0 absent, else 1 + times produced
};

bool WantsCounts(const SequenceOptions& options);

struct SampleRequest {
  const SequenceOptions* options = nullptr;
  const TokenCounts* counts = nullptr;  // may be null when WantsCounts is false
  absl::Span<const uint32_t> ban_eos;   // more tokens that must not be sampled
  absl::Span<const uint32_t> ban_stop;
  absl::Span<const uint32_t> mask;  // decode/token_mask.h; empty: every token may be sampled
  uint64_t position = 0;  // that the sampled token will have
};

// The request as a backend takes it that chooses by itself; the spans are the request's.
backend::Choice ChoiceOf(const SampleRequest& request);

class Sampler {
 public:
  explicit Sampler(uint32_t vocab);

  // `logits` [vocab] are edited in place and restored. BadModel for nan or +infinity.
  StatusOr<uint32_t> Sample(absl::Span<float> logits, const SampleRequest& request);

  // The tokens that sampling would choose from, ascending; valid until the next call.
  StatusOr<absl::Span<const uint32_t>> Kept(absl::Span<float> logits, const SampleRequest& request);

  // Log-probabilities under raw logits: out[0] is `token`, then the most probable ones in order,
  // ties to the lowest id. out.size() - 1 <= kMaxLogprobs; entries past the vocabulary repeat
  // `token`.
  Status Logprobs(absl::Span<const float> logits, uint32_t token, absl::Span<Logprob> out);

  // BadModel for nan or +infinity, or nothing but -infinity.
  Status Check(absl::Span<const float> logits) const;

  // Makes room for a request with so many distinct penalised, biased and banned tokens.
  void Reserve(uint64_t edits);
  // Makes room for a request with a mask.
  void ReserveMask() { masked_.resize(vocab_); }

 private:
  struct Edit {
    uint32_t token;
    float before;
  };

  // The logits to edit: themselves, or with a mask a copy that has it added.
  absl::Span<float> Masked(absl::Span<float> logits, absl::Span<const uint32_t> mask);
  void Change(absl::Span<float> logits, uint32_t token, float value);
  void ApplyEdits(absl::Span<float> logits, const SampleRequest& request);
  void Restore(absl::Span<float> logits);

  // With a temperature alone: weights_ of the whole vocabulary; false: something else is asked for.
  bool WeighAll(absl::Span<const float> logits, const SequenceOptions& options);
  // Steps 4 to 8 on edited logits: candidates in ids_, exp(score - best) in weights_.
  // `masked`: to name what banned all.
  Status Narrow(absl::Span<const float> logits, const SequenceOptions& options, bool masked);
  // Entries of at least `least`, ids ascending, by way of the block maxima.
  void Gather(absl::Span<const float> logits, float least);
  // A value that at least k entries reach.
  float AtLeastK(uint32_t k);
  void KeepTopK(uint32_t k);
  void KeepTopP(float top_p);
  void Compact(size_t from, size_t to) {
    ids_[to] = ids_[from];
    scores_[to] = scores_[from];
    weights_[to] = weights_[from];
  }

  uint32_t vocab_;
  size_t count_ = 0;            // candidates
  std::vector<uint32_t> ids_;   // [vocab]
  std::vector<float> scores_;   // [vocab] logits, then (logit - best) / T
  std::vector<float> weights_;  // [vocab]
  std::vector<float> block_max_;
  std::vector<float> select_;    // [vocab] scratch of selections
  std::vector<uint32_t> order_;  // [vocab] scratch of sorts
  std::vector<uint64_t> mass_;   // [buckets of a score's leading bits]
  std::vector<Edit> edits_;
  std::vector<float> masked_;  // [vocab] once a mask is asked for
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_SAMPLER_H_
