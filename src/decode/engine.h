// SPDX-License-Identifier: MIT
//
// The engine: sequences in, tokens out. Continuous batching over one Context: each step takes
// waiting prompt tokens (chunked) and one token of every sequence that decodes, runs the Program
// once, samples, applies the stop rules. A step is all or nothing.
//
// Threads: one thread at a time (the second gets Busy), except Cancel, event_fd and info, which any
// thread may call. The engine never calls the user.
#ifndef MAINARCH_DECODE_ENGINE_H_
#define MAINARCH_DECODE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "backend/backend.h"
#include "base/status.h"
#include "model/model.h"

namespace mainarch::decode {

using SequenceId = uint64_t;  // slot and generation; 0 is never valid

struct EngineOptions {
  uint32_t max_sequences = 0;        // 0: 1
  uint32_t max_sequence_tokens = 0;  // 0: the model's own limit; more than it is refused
  uint32_t max_step_tokens = 0;      // rows a step, 0: chosen
  uint64_t kv_tokens = 0;            // capacity of the KV pool, 0: max_sequences * max_sequence_tokens
  backend::KvType kv_type = backend::KvType::kBF16;
};

struct LogitBias {
  uint32_t token;
  float bias;  // added to the raw logit; -INFINITY bans the token
};

// Zero values are the defaults: greedy, no limits.
struct SequenceOptions {
  bool manual = false;  // the caller samples: read logits, append the chosen token
  bool ignore_eos = false;
  uint64_t seed = 0;
  float temperature = 0;  // < 1e-5: greedy
  float top_p = 0;        // 0 or >= 1: off
  float min_p = 0;
  uint32_t top_k = 0;
  float repetition_penalty = 0;  // 0 or 1: off
  float frequency_penalty = 0;
  float presence_penalty = 0;
  uint32_t min_tokens = 0;  // EOS and stop tokens are banned before so many produced tokens
  uint32_t max_tokens = 0;  // 0: until a stop token or the length limit
  uint32_t logprobs = 0;    // top-n log-probabilities (raw logits) kept per produced token, <= 32
  std::vector<uint32_t> stop_tokens;
  std::vector<std::vector<uint32_t>> stop_sequences;  // token sequences that end generation
  std::vector<LogitBias> logit_bias;
};

enum class Finish : uint32_t {
  kNone = 0,
  kEos = 1,         // an end token of the model; it is the last token produced
  kStopToken = 2,   // one of stop_tokens; it is the last token produced
  kStopSequence = 3,
  kMaxTokens = 4,
  kLength = 5,      // max_sequence_tokens reached
};

struct Logprob {
  uint32_t token = 0;
  float logprob = 0;
};

struct SequenceInfo {
  uint64_t position = 0;  // tokens whose KV is stored
  uint64_t tokens = 0;    // prompt and produced tokens held
  uint64_t pending = 0;   // tokens held, but not yet run through the model
  uint64_t produced = 0;  // tokens sampled so far
  uint64_t untaken = 0;   // produced, not yet taken
  Finish finish = Finish::kNone;
};

struct EngineInfo {
  uint64_t kv_tokens_total = 0;
  uint64_t kv_tokens_free = 0;
  uint64_t steps = 0;
  uint64_t rows = 0;      // tokens run through the model
  uint64_t produced = 0;  // tokens sampled
  uint64_t step_ns_last = 0;
  uint32_t sequences = 0;
  uint32_t max_sequences = 0;
  uint32_t max_step_tokens = 0;
  uint64_t memory_bytes = 0;
};

class Engine {
 public:
  static StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<const model::Model> model,
                                                  const EngineOptions& options);
  virtual ~Engine() = default;

  // Starts one step over all sequences that have work; false: none has. Busy while one is in flight.
  virtual StatusOr<bool> Submit() = 0;
  // True when the step in flight has ended well (or none was); false on time-out. timeout_ns < 0 waits
  // for ever. The error of a failed or cancelled step; its sequences are as they were before it.
  virtual StatusOr<bool> Wait(int64_t timeout_ns) = 0;
  // Submit and Wait on the calling thread; false: no sequence had work.
  virtual StatusOr<bool> RunStep() = 0;
  // Readable when a submitted step has ended, until Wait has said so.
  virtual int event_fd() const = 0;
  virtual void Cancel() = 0;

  virtual StatusOr<SequenceId> Open(const SequenceOptions& options) = 0;
  virtual Status Close(SequenceId id) = 0;
  // The copy shares full KV pages, has its own sampling state, and nothing to take.
  virtual StatusOr<SequenceId> Fork(SequenceId id) = 0;
  // Drops every token from `position` on; clears `finish`.
  virtual Status Truncate(SequenceId id, uint64_t position) = 0;
  // KvFull when the tokens could never fit, NotFound for a stale id, InvalidArgument for token ids.
  virtual Status Append(SequenceId id, absl::Span<const uint32_t> tokens) = 0;
  // Moves produced tokens out; logprobs (if asked for) land in the caller's vectors beside them.
  virtual StatusOr<size_t> Take(SequenceId id, absl::Span<uint32_t> out) = 0;
  // Log-probabilities of the j-th token of the last Take: the token's own first, then the top n.
  virtual StatusOr<absl::Span<const Logprob>> TakenLogprobs(SequenceId id, size_t j) = 0;
  // Logits [vocab] of the last position run, raw; FailedPrecondition-like Busy when there are none.
  virtual StatusOr<absl::Span<const float>> Logits(SequenceId id) = 0;

  virtual StatusOr<SequenceInfo> InfoOf(SequenceId id) const = 0;
  virtual EngineInfo info() const = 0;
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_ENGINE_H_
