// SPDX-License-Identifier: MIT
//
// One sequence of the engine: tokens, what caches hold of it, what was produced and not yet taken, penalties'
// counts and stop rules. Knows nothing of steps or other sequences.
//
// Threads: the engine's one. Open and Append get memory; Commit, which ends a step, never does.
#ifndef MAINARCH_DECODE_SEQUENCE_H_
#define MAINARCH_DECODE_SEQUENCE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "decode/engine.h"
#include "decode/export.h"
#include "decode/sampler.h"
#include "decode/stop_strings.h"
#include "decode/token_mask.h"
#include "model/prefix_tree.h"
#include "model/sequence_caches.h"

namespace mainarch::decode {

// What all sequences of an engine share.
struct SequenceLimits {
  uint32_t vocab = 0;
  uint32_t logit_width = 0;  // vocab, or numbers of a vector
  uint64_t max_tokens = 0;  // held by one sequence: both the sequence limit and the pool's
  std::vector<uint32_t> eos_ids;
  uint32_t max_drafts = 0;
  uint32_t snapshot_tokens = backend::kPageTokens;
  uint32_t snapshots = 0;  // of one sequence
  bool prefixes = false;   // there is a prefix cache
};

// Rows of the last step whose logits it made: those of positions [position, position + rows).
struct StepLogits {
  uint64_t position = 0;
  uint32_t first = 0;  // logit row
  uint32_t rows = 0;
};

class Sequence {
 public:
  // Where the logits of the last position are. kRows: nowhere, but those of rows before it are with
  // the step.
  enum class LogitsPlace : uint8_t { kNone, kRows, kStep, kOwn };

  void Open(const SequenceOptions& options, const SequenceLimits* limits,
            std::vector<model::CachePool>* pools);
  void Close();
  void ForkFrom(const Sequence& other);
  void Append(absl::Span<const uint32_t> tokens);
  void Truncate(uint64_t tokens);
  size_t Take(absl::Span<uint32_t> out);
  // Gives up what caches hold of it but for the first `tokens`, or for those before the nearest position
  // that it can go back to: the others are pending again, run when the sequence next works.
  void Evict(uint64_t tokens);
  bool evicted() const { return evicted_; }  // and has not run since

  // The prefix cache. Looks, before it runs, whether others have run what it begins with, once for each
  // thing new there; true: it has more now, tokens so many.
  bool FindPrefix(model::PrefixTree* tree);
  // Hands in what it has run. Nothing of one whose content came from outside: others would believe it.
  void FeedPrefix(model::PrefixTree* tree);
  void set_foreign() { foreign_ = true; }

  // Has something to run in the next step.
  bool Works() const { return finish_ == Finish::kNone && !dormant_ && pending() > 0; }
  uint64_t pending() const { return tokens_.size() - position(); }
  uint64_t position() const { return caches_.position(); }
  // Of the pending rows, so many at the beginning make no logits.
  uint64_t silent() const;
  uint64_t prompt_end() const { return turn_start_; }
  // How many tokens may be guessed ahead now.
  uint32_t DraftsTaken() const;
  absl::Span<const uint32_t> tokens() const { return tokens_; }
  const SequenceOptions& options() const { return options_; }
  SequenceInfo info() const;
  absl::Span<const Logprob> TakenLogprobs(size_t j) const;
  size_t last_taken() const { return last_taken_; }
  model::SequenceCaches& caches() { return caches_; }
  const model::SequenceCaches& caches() const { return caches_; }
  void set_seed(uint64_t seed) {
    caches_.Abort();
    options_.seed = seed;
  }
  // Whether SetOptions may be given these: Engine::SetOptions says what they may not change.
  Status CanTake(const SequenceOptions& options) const;
  void SetOptions(const SequenceOptions& options);
  Status SetMask(absl::Span<const uint32_t> words);  // none: every token may come
  SequenceState Save() const;
  // Of one just opened with the state's options.
  Status Restore(const SequenceState& state);
  // Has something for the caller: Engine::Ready.
  bool Ready() const {
    return untaken_ > 0 || (finish_ != Finish::kNone && !told_) ||
           (options_.manual &&
            (logits_place_ == LogitsPlace::kStep || logits_place_ == LogitsPlace::kOwn));
  }

  // The step: `rows` tokens more are stored; then, when that was all, the sampled token.
  // `logprobs`: of the sampled token, empty if not asked for. Cannot fail once PrepareCommit was
  // called for at least as many rows.
  void PrepareCommit(uint64_t rows, uint64_t sampled);
  // `ahead`: of the token after so many that are not known yet.
  SampleRequest Request(uint64_t ahead = 0) const;
  // Whatever the token is that the step prepared samples, it will be the last one.
  bool EndsWithNext() const;
  // What the one after it may be does not depend on it, but for the model.
  bool AsksTheSame() const {
    return !options_.manual && mask_.words().empty() && !WantsCounts(options_);
  }
  // Steps of one token each, from the one on that runs the token which is not known yet, ask for the same but for
  // the position, and nothing is wanted of them but tokens ...
  bool WantsOnlyTokens() const;
  // ... so many more than that one, at most.
  uint64_t RoundsAhead() const { return LastLength() - std::min<uint64_t>(LastLength(), tokens_.size() + 2); }
  // What its caches have reserved, and the tokens that end it.
  backend::Lease Reserved() const;
  void CommitRows(uint64_t rows, uint64_t step);
  void CommitToken(uint32_t token, absl::Span<const Logprob> logprobs);
  void CommitFull() { End(Finish::kLength); }
  // As if `token` had been sampled, to ask for what comes behind it; true if it ends the sequence.
  // Only where DraftsTaken() is not 0.
  bool Foresee(uint32_t token);
  void Forget();  // all that was foreseen

  // Log-probabilities of an appended token under the logits of the row before it: where they go, and
  // whether they are still wanted.
  bool WantsScore(uint64_t position) const;
  absl::Span<Logprob> ScoreAt(uint64_t position);
  void SetScored(uint64_t position) { scored_ = std::max(scored_, position + 1); }
  StatusOr<absl::Span<const Logprob>> Score(uint64_t position) const;
  // The step came to nothing for this sequence.
  void CommitFault(Status fault);
  const Status& fault() const { return fault_; }  // OK unless it ended by one
  bool full() const { return tokens_.size() >= limits_->max_tokens; }

  // Logits of a step's row live with the step until the next one; a manual sequence keeps a copy.
  void SetStepLogits(const StepLogits& rows, bool last) {
    logits_place_ = last ? LogitsPlace::kStep : LogitsPlace::kRows;
    step_logits_ = rows;
  }
  void KeepLogits(absl::Span<const float> logits);
  void DropLogits() { logits_place_ = LogitsPlace::kNone; }
  void DropStepLogits() {
    if (logits_place_ != LogitsPlace::kOwn) DropLogits();
  }
  LogitsPlace logits_place() const { return logits_place_; }
  uint32_t logits_row() const { return step_logits_.first + step_logits_.rows - 1; }  // kStep
  const StepLogits& step_logits() const { return step_logits_; }  // kStep, kRows
  StepLogits rows_with_logits() const {
    const bool with_step = logits_place_ == LogitsPlace::kStep || logits_place_ == LogitsPlace::kRows;
    return with_step ? step_logits_ : StepLogits();
  }
  absl::Span<const float> own_logits() const { return {own_logits_.get(), limits_->logit_width}; }

  // Kept by the engine.
  bool open = false;
  uint32_t generation = 0;
  uint64_t arrival = 0;
  uint64_t last_step = 0;

 private:
  uint64_t LastLength() const;
  Finish FinishAfter(uint32_t token);
  void End(Finish finish);
  void Unend();
  // Follows the text of the turn so far, which only its last token may have stopped.
  void Reread(StopStrings* stops) const;
  // What caches hold has been cut back.
  void ForgetPlace();
  bool EndsAStopSequence() const;
  void Recount();
  size_t LogprobStride() const { return options_.logprobs == 0 ? 0 : 1 + options_.logprobs; }
  size_t ScoreStride() const { return size_t{1} + options_.prompt_logprobs; }

  SequenceOptions options_;
  const SequenceLimits* limits_ = nullptr;
  model::SequenceCaches caches_;
  std::vector<uint32_t> tokens_;      // reserved to max_tokens; untouched memory costs nothing
  std::vector<uint8_t> is_produced_;  // beside tokens_
  uint64_t turn_start_ = 0;  // tokens from here on were produced since the last Append
  uint64_t produced_ = 0;
  uint64_t take_from_ = 0;  // produced tokens before it are taken
  uint64_t untaken_ = 0;
  size_t last_taken_ = 0;
  Finish finish_ = Finish::kNone;
  bool told_ = false;  // a Take has found nothing more since it ended
  Status fault_;
  bool dormant_ = false;  // evicted while idle
  bool evicted_ = false;
  model::PrefixTree::Place place_;
  uint64_t looked_ = 0;   // the tree's stamp then; 0: not yet
  bool foreign_ = false;  // content of its caches is an import's
  TokenCounts counts_;
  TokenMask mask_;
  StopStrings stops_;
  // LogprobStride() entries a token: those of the last Take, then the untaken ones.
  std::vector<Logprob> logprobs_;
  // ScoreStride() entries a position; nothing of position 0 and of produced tokens.
  std::vector<Logprob> scores_;
  uint64_t scored_ = 0;  // appended tokens before it have theirs
  size_t foreseen_ = 0, distinct_ = 0;  // tokens at the end, and counts_.tokens() before them
  StepLogits step_logits_;
  LogitsPlace logits_place_ = LogitsPlace::kNone;
  std::unique_ptr<float[]> own_logits_;  // [logit_width], manual sequences
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_SEQUENCE_H_
