// SPDX-License-Identifier: MIT
//
// The engine over any LoadedModel. engine_impl.cc has what callers do to sequences, engine_step.cc
// the step: prepare (plan, pages), execute (run, sample), and commit or abort; engine_ahead.cc the step
// ahead, engine_drafts.cc what is guessed ahead, engine_prefix.cc the prefix cache, engine_sizes.cc
// how large all is.
//
// Threads: `busy_` is held by the one call that may touch anything; between Submit and Wait the
// step thread has it all. `cancel_mutex_` guards the three flags that Cancel needs.
#ifndef MAINARCH_DECODE_ENGINE_IMPL_H_
#define MAINARCH_DECODE_ENGINE_IMPL_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "decode/draft_head.h"
#include "decode/engine.h"
#include "decode/kv_budget.h"
#include "decode/process_guard.h"
#include "decode/ready.h"
#include "decode/sampler.h"
#include "decode/scheduler.h"
#include "decode/sequence.h"
#include "decode/step_runner.h"
#include "model/prefix_tree.h"
#include "model/sequence_caches.h"

namespace mainarch::decode {

// Where a layer's K and V are: a cache, and its layer there.
struct KvPlace {
  size_t cache;
  int32_t layer;
  size_t near = SIZE_MAX;  // the cache of its first and last tokens; SIZE_MAX: there is none
};

inline constexpr uint32_t kMaxSequences = 1 << 16;

// What the engine must know of a model.
struct ModelFacts {
  uint32_t vocab = 0;
  uint64_t max_position = 0;
  std::vector<uint32_t> eos_ids;
  std::vector<model::CacheForm> caches = {{}};
  // Of each layer; a cache that is not there, where it has no attention. Empty: the first cache
  // without a window has all.
  std::vector<KvPlace> kv_places;
  uint64_t fingerprint = 0;
  std::vector<model::CacheForm> head_caches = {};  // of the Program that drafts; none: there is none
  uint32_t vectors = 0;  // not 0: in place of logits rows give so many numbers (backend::Program::vectors)
  std::shared_ptr<const backend::Program> variant = nullptr;  // ContextOptions::variant
};

// `owner` keeps alive what `weights` is part of.
StatusOr<std::unique_ptr<Engine>> CreateEngine(std::shared_ptr<const void> owner,
                                               const backend::LoadedModel& weights,
                                               const ModelFacts& facts,
                                               const EngineOptions& options);

class EngineImpl final : public Engine {
 public:
  // Options with every default resolved, and the pools they need.
  struct Sizes {
    EngineOptions options;
    std::vector<uint32_t> pools;  // of each cache
  };
  static StatusOr<Sizes> Resolve(const ModelFacts& facts, const EngineOptions& options,
                                 const Budget& budget);
  // Who drafts, and, of options, what a model of these facts makes of that: the facts then have no
  // head but one that is used, whose caches are the last of `caches`.
  static Status ResolveDrafts(ModelFacts* facts, EngineOptions* options);
  static StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<const void> owner,
                                                  const backend::LoadedModel& weights,
                                                  const ModelFacts& facts,
                                                  const EngineOptions& options);
  ~EngineImpl() override;

  StatusOr<bool> Submit() override;
  StatusOr<bool> Wait(int64_t timeout_ns) override;
  StatusOr<bool> RunStep() override;
  int event_fd() const override { return runner_->event_fd(); }
  void Cancel() override;

  StatusOr<SequenceId> Open(const SequenceOptions& options) override;
  Status Close(SequenceId id) override;
  StatusOr<SequenceId> Fork(SequenceId id) override;
  Status SetSeed(SequenceId id, uint64_t seed) override;
  Status SetOptions(SequenceId id, const SequenceOptions& options) override;
  Status SetMask(SequenceId id, absl::Span<const uint32_t> words) override;
  StatusOr<size_t> Ready(absl::Span<SequenceId> out) override;
  StatusOr<SequenceState> Save(SequenceId id, bool content) override;
  StatusOr<SequenceId> Restore(const SequenceState& state) override;
  Status Truncate(SequenceId id, uint64_t position) override;
  Status Append(SequenceId id, absl::Span<const uint32_t> tokens) override;
  StatusOr<size_t> Take(SequenceId id, absl::Span<uint32_t> out) override;
  StatusOr<absl::Span<const Logprob>> TakenLogprobs(SequenceId id, size_t j) override;
  StatusOr<absl::Span<const float>> Logits(SequenceId id) override;
  StatusOr<absl::Span<const float>> LogitsAt(SequenceId id, uint64_t position) override;
  StatusOr<absl::Span<const Logprob>> PromptLogprobs(SequenceId id, uint64_t position) override;
  StatusOr<backend::KvToken> ReadKv(SequenceId id, int32_t layer, uint64_t position, bool near) override;
  StatusOr<SequenceInfo> InfoOf(SequenceId id) const override;
  EngineInfo info() const override;
  backend::StepCounts counts() const override { return context_->counts(); }
  StatusOr<uint64_t> PinPrefix(absl::Span<const uint32_t> tokens, uint64_t salt) override;
  Status DropPrefix(absl::Span<const uint32_t> tokens, uint64_t salt) override;
  // For tests that look for leaks.
  const std::vector<model::CachePool>& pools() const { return pools_; }

 private:
  class Call;
  class NewSlot;
  struct Undo;

  // A chunk of the step in flight and what it came to. Its last logit_rows rows make logits; of
  // them the last 1 + drafts are followed by a token, which is sampled unless the caller does that.
  struct Outcome {
    Sequence* sequence = nullptr;
    uint32_t rows = 0;  // drafts counted
    uint32_t drafts = 0;
    uint32_t first_logit = 0;
    uint32_t logit_rows = 0;
    bool ends = false;     // with its last row nothing of the sequence is pending
    bool samples = false;
    bool chosen_there = false;  // the backend was asked to choose the first token
    uint32_t sampled = 0;  // tokens, of 1 + drafts
    Status fault;          // why none could be, or what is wrong with its logits

    uint32_t kept() const { return rows - drafts + (sampled > 1 ? sampled - 1 : 0); }
    uint32_t first_sample() const { return first_logit + logit_rows - 1 - drafts; }
  };

  // The model's, and of a head that drafts.
  struct Contexts {
    std::unique_ptr<backend::Context> model, head;

    uint64_t memory_bytes() const {
      return model->memory_bytes() + (head == nullptr ? 0 : head->memory_bytes());
    }
  };
  // Makes the pools smaller until the budget suffices, as far as the caller left their sizes open.
  static StatusOr<Contexts> CreateContexts(const backend::LoadedModel& weights,
                                           const ModelFacts& facts, const EngineOptions& wanted,
                                           Sizes* sizes);
  static StatusOr<Contexts> ContextsOf(const backend::LoadedModel& weights,
                                       const ModelFacts& facts, const Sizes& sizes);
  EngineImpl(std::shared_ptr<const void> owner, const ModelFacts& facts, const Sizes& sizes,
             const Budget& room);

  StatusOr<Sequence*> Find(SequenceId id);
  StatusOr<uint32_t> IndexOf(SequenceId id) const;
  StatusOr<absl::Span<const float>> LogitsOf(const Sequence& s);
  SequenceId IdOf(uint32_t index) const;
  uint32_t IndexOf(const Sequence& s) const { return static_cast<uint32_t>(&s - slots_.data()); }
  size_t TokenAt(const Outcome& outcome) const;  // place of its first one in tokens_ of the step
  absl::Span<Logprob> LogprobsAt(size_t token, const Sequence& s);
  bool ReclaimSnapshot();
  uint32_t MostBlocks(const Budget& room) const;
  void FindPrefixes();
  StatusOr<uint64_t> Pin(absl::Span<const uint32_t> tokens, uint64_t salt);
  void Drop(absl::Span<const uint32_t> tokens, uint64_t salt);
  void Publish();
  // What a sequence with these options makes the sampler edit.
  Status CheckSequence(const SequenceOptions& options) const;
  void ReserveEdits(const SequenceOptions& options);
  void UpdateReady(const Sequence& sequence);
  // Whose a cache of a sequence is, and which one there.
  struct CachePlace {
    backend::Context* context;
    int32_t cache;
  };
  CachePlace PlaceOf(size_t cache) const;
  std::string content_form() const;
  Status Health() const;
  Status SaveContent(const Sequence& sequence, SequenceState* state);
  Status LoadContent(const SequenceState& state, Sequence* sequence);

  // Plans a step and gets its pages; false: nothing works. Aborts what it began if it fails.
  StatusOr<bool> Prepare();
  const Plan& MakePlan();
  Status TakePages(const Plan& plan);
  uint32_t Propose(uint32_t index);
  uint32_t* DraftsOf(const Sequence& s) {
    return drafts_.data() + size_t{IndexOf(s)} * options_.max_drafts;
  }
  backend::Step StepNow() const;
  Status DraftRows();
  Status MirrorRows();
  void CountDrafts(const Outcome& outcome);
  void FillStep();
  void FillRows(Outcome& outcome);
  void FillChoices(Outcome& outcome);
  // Runs the prepared step; commits it, or aborts and reports or throws.
  Status Execute();
  Status RunContext();
  Status SubmitRows();
  Status RunAgain();
  Status KeepLogits();
  // The step ahead: engine_ahead.cc.
  void SubmitAhead();
  bool Foresee();
  Status SubmitNext();
  Status TakeRound();
  uint32_t Rounds() const;
  Status PrepareAhead(uint32_t rounds);
  void FillAhead();
  bool Adopt(const Plan& plan);
  void DropAhead();
  void Drain();
  void LandAll();
  uint32_t PagesAhead() const;
  Status SampleAll();
  Status ReadOutcome(Outcome& outcome, Status* fault);
  Status ScoreRows(const Outcome& outcome, Status* fault);
  Status CheckRows(const Outcome& outcome, Status* fault);
  Status SampleRows(Outcome& outcome, Status* fault);
  void CommitOutcome(Outcome& outcome, uint64_t step);
  Status Commit();
  void Abort();
  bool BeginRun();  // false: cancelled before it could run
  void EndRun();

  std::shared_ptr<const void> owner_;
  const uint64_t id_mask_;  // of this engine, so that another's ids are none here
  ProcessGuard process_;
  std::unique_ptr<backend::Context> context_;
  std::unique_ptr<DraftHead> head_;  // null: none. After context_, which it reads
  const EngineOptions options_;
  const uint64_t fingerprint_;
  const std::vector<KvPlace> kv_places_;  // of each layer
  SequenceLimits limits_;
  uint32_t vectors_ = 0;  // ModelFacts::vectors
  std::vector<model::CachePool> pools_;  // of each cache
  const uint32_t state_rounds_;          // rounds that there are slots for
  const size_t model_caches_;            // so many are the model's, the others the head's
  const size_t whole_cache_;             // the first one without a window ...
  model::PagePool* const whole_;         // ... and its pool; null: there is none
  std::unique_ptr<model::PrefixTree> prefixes_;  // null: no prefix cache
  model::SequenceCaches::Hooks hooks_;
  model::SequenceCaches::Hooks ahead_hooks_;  // that change nothing that is not the step's own
  model::IdSet free_slots_;
  std::vector<Sequence> slots_;  // [max_sequences]
  ReadyList ready_;
  Scheduler scheduler_;
  Sampler sampler_;

  mutable std::atomic<bool> busy_{false};
  bool in_flight_ = false;  // submitted, not yet waited for
  bool may_work_ = false;   // false: no sequence works, known without a look
  uint64_t arrivals_ = 0;
  int64_t step_start_ns_ = 0;

  // The step being prepared or run; all sized once.
  std::vector<SequenceView> views_;     // [max_sequences]
  std::vector<backend::StepRow> rows_;  // [max_step_tokens]
  uint32_t step_rows_ = 0;              // of rows_
  std::vector<backend::StepSequence> step_sequences_;
  std::vector<uint32_t> drafts_;        // [max_sequences][max_drafts]
  std::vector<DraftHead::Wish> wishes_;  // of a head, one an outcome
  std::vector<uint32_t> logit_rows_;
  std::vector<backend::Choice> choices_;  // beside logit_rows_
  std::vector<backend::Lease> leases_;    // beside rows_, or none
  std::vector<Outcome> outcomes_;         // one a chunk
  std::vector<Outcome> ahead_;  // of the step that was submitted behind this one, or the last one
  bool adopted_ = false;        // the step prepared is in flight already
  uint32_t flying_ = 0;         // steps that were submitted and not polled, and their rounds
  std::vector<uint32_t> tokens_;          // sampled: [chunks][1 + max_drafts]
  std::vector<Logprob> logprobs_;         // beside tokens_: [1 + kMaxLogprobs]

  std::mutex cancel_mutex_;
  bool step_active_ = false;  // from Submit or RunStep to commit or abort
  bool in_run_ = false;       // inside Context::Run
  bool cancelled_ = false;

  // Mirrors for info(), which any thread may call.
  std::atomic<uint64_t> free_pages_{0};
  std::atomic<uint32_t> open_{0};
  std::atomic<uint64_t> steps_{0};
  std::atomic<uint64_t> ahead_steps_{0};
  std::atomic<uint64_t> rows_run_{0};
  std::atomic<uint64_t> produced_{0};
  std::atomic<uint64_t> step_ns_last_{0};
  std::atomic<uint64_t> drafts_run_{0};
  std::atomic<uint64_t> drafts_accepted_{0};
  std::array<std::atomic<uint64_t>, kCountedDrafts> drafts_at_{};
  std::array<std::atomic<uint64_t>, kCountedDrafts> drafts_accepted_at_{};
  std::atomic<uint64_t> prefix_hits_{0};
  std::atomic<uint64_t> prefix_tokens_{0};
  std::atomic<uint64_t> prefix_evictions_{0};
  std::atomic<uint64_t> prefix_held_{0};

  // Last, so that its thread ends before what it uses.
  std::unique_ptr<StepRunner> runner_;
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_ENGINE_IMPL_H_
