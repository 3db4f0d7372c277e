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

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "backend/backend.h"
#include "base/status.h"
#include "decode/drafts.h"
#include "decode/options.h"
#include "model/kv_tiers.h"
#include "model/model.h"

namespace mainarch::decode {

using SequenceId = uint64_t;  // slot and generation, of one engine; 0 is never valid

// Who drafts.
enum class DraftKind : uint8_t {
  kNone = 0,   // EngineOptions::drafts, if there is one
  kHead = 1,   // a Program of the model's own (decode/draft_head.h); InvalidArgument: it has none
  kNgram = 2,  // what followed the same tokens before (decode/ngram_drafts.h)
  kAuto = 3,   // kHead where the model has one, else kNgram
};

inline constexpr uint32_t kCountedDrafts = 8;

struct EngineOptions {
  uint32_t max_sequences = 0;        // 0: 1
  uint32_t max_sequence_tokens = 0;  // 0: the model's own limit; more than it is refused
  uint32_t max_step_tokens = 0;      // rows a step, 0: chosen
  // Capacity of the KV pool; 0: max_sequences * max_sequence_tokens, or as many as there is room for.
  uint64_t kv_tokens = 0;
  // Pages, windows, states and activations take no more; 0: no limit but the devices'. Where it is too little, slots for
  // a resident kernel's rounds are given up first, then snapshots, then, if kv_tokens is 0, pages of the caches without a
  // window. The least is one of these (or kv_tokens), the pages that windows touch, and 2 +
  // max_drafts slots a sequence (or state_slots); with activations that is OutOfDeviceMemory.
  uint64_t memory_bytes = 0;
  // Rows of logits a step can make, 0: one a sequence and draft. More of them let prompts of
  // sequences with prompt_logprobs or all_logits run in larger chunks.
  uint32_t logit_rows = 0;
  // Where the model has states or windows: how far apart positions are kept to go back to (0:
  // chosen), and how many of each sequence.
  uint32_t snapshot_tokens = 0;
  uint32_t snapshots = 4;
  // Of each cache of states; 0: enough for all of these. Fewer than (2 + max_drafts) *
  // max_sequences are refused; none of them is given up for memory_bytes.
  uint32_t state_slots = 0;
  std::shared_ptr<DraftSource> drafts;
  DraftKind draft_kind = DraftKind::kNone;
  // Of one sequence and step; 0: without a kind none, else 3. A kind takes at most 8.
  uint32_t max_drafts = 0;
  // Sequences take what caches hold of the tokens that they begin with from others, open or closed
  // (model/prefix_tree.h). It keeps units of the pools that nobody uses, of KV at most prefix_bytes
  // (0: all of them).
  bool prefix_cache = false;
  uint64_t prefix_bytes = 0;
  backend::KvType kv_type = backend::KvType::kBF16;
  model::KvTiers kv_tiers;  // with fp4 and k8v4: what is held in fp8 all the same
  backend::Activations activations = backend::Activations::kF32;
  backend::ResidentMode resident = backend::ResidentMode::kOff;
};

enum class Finish : uint32_t {
  kNone = 0,
  kEos = 1,        // an end token of the model; it is the last token produced
  kStopToken = 2,  // one of stop_tokens; it is the last token produced
  kStopSequence = 3,
  kMaxTokens = 4,
  kLength = 5,  // max_sequence_tokens reached
  kFault = 6,   // no token could be sampled: Take says why
  kStopString = 7,  // one of stop_strings is complete: SequenceInfo::text_bytes
};

struct SequenceInfo {
  uint64_t position = 0;  // tokens whose KV is stored; falls when others needed its pages
  uint64_t tokens = 0;    // prompt and produced tokens held
  uint64_t pending = 0;   // tokens held, but not yet run through the model
  uint64_t produced = 0;  // tokens sampled so far
  uint64_t untaken = 0;   // produced, not yet taken
  // Of the text of tokens produced since the last Append: bytes that stand. 0 without stop strings.
  uint64_t text_bytes = 0;
  // Of a sequence with all_logits: what LogitsAt gives now.
  uint64_t logit_position = 0;
  uint64_t logit_rows = 0;
  Finish finish = Finish::kNone;
};

struct SequenceState;  // decode/export.h

struct EngineInfo {
  uint64_t kv_tokens_total = 0;
  uint64_t kv_tokens_free = 0;
  uint64_t steps = 0;
  uint64_t ahead = 0;     // of these, submitted to the backend before they were asked for
  uint64_t rows = 0;      // tokens run through the model
  uint64_t produced = 0;  // tokens sampled
  uint64_t step_ns_last = 0;
  uint32_t sequences = 0;
  uint32_t max_sequences = 0;
  uint32_t max_step_tokens = 0;
  uint32_t logit_rows = 0;
  uint64_t memory_bytes = 0;
  uint32_t vocab = 0;
  uint32_t vectors = 0;  // not 0: numbers of a row, which are no logits
  uint64_t prefix_hits = 0;       // sequences that began with tokens that others had run ...
  uint64_t prefix_tokens = 0;     // ... and how many these were
  uint64_t prefix_evictions = 0;  // blocks of 16 tokens that the prefix cache has given up
  uint64_t prefix_held = 0;       // tokens that it holds, those of open sequences among them
  DraftKind draft_kind = DraftKind::kNone;  // never kAuto
  uint32_t max_drafts = 0;
  uint64_t drafts = 0;           // tokens guessed that steps have run ...
  uint64_t drafts_accepted = 0;  // ... and those of them that were what was sampled
  // The same of first guesses, second ones, and so on.
  std::array<uint64_t, kCountedDrafts> drafts_at = {};
  std::array<uint64_t, kCountedDrafts> drafts_accepted_at = {};
  backend::ResidentCounts resident;
  std::string resident_refusal;  // why there is no resident kernel, where one was asked for
  uint64_t fingerprint = 0;  // of the model: engines of equal ones understand each other's sequences
};

// What caches hold of a sequence is given out as steps need it: states and windows from pools that
// suffice for all, KV pages from one of kv_tokens. When they run out, idle sequences lose theirs first,
// then the youngest working ones, from their ends and no more than are wanted; their tokens are re-run
// when their turn comes, from the nearest position that they can go back to, with the same results.
// That is the one trace a failed step may leave: an earlier position.
//
// A sequence whose logits are not numbers, or ban every token, ends alone (kFault): nothing of it is
// committed, other sequences of the step go on. Append or Truncate lets it try again.
//
// min_tokens, max_tokens and stop sequences count what was produced since the last Append.
class Engine {
 public:
  static StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<const model::Model> model,
                                                  const EngineOptions& options);
  virtual ~Engine() = default;

  // Starts one step over all sequences that have work; false: none has. Busy while one is in
  // flight.
  virtual StatusOr<bool> Submit() = 0;
  // True when the step in flight has ended well (or none was); false on time-out. timeout_ns < 0
  // waits for ever. The error of a failed or cancelled step; its sequences are as they were before
  // it.
  virtual StatusOr<bool> Wait(int64_t timeout_ns) = 0;
  // Submit and Wait on the calling thread; false: no sequence had work.
  virtual StatusOr<bool> RunStep() = 0;
  // Readable when a submitted step has ended, until Wait has said so.
  virtual int event_fd() const = 0;
  virtual void Cancel() = 0;

  virtual StatusOr<SequenceId> Open(const SequenceOptions& options) = 0;
  virtual Status Close(SequenceId id) = 0;
  // The copy shares KV pages until either writes into them, has its own sampling state (same
  // options and seed, so the same tokens follow unless SetSeed or Append changes that), and nothing
  // to take. Logits of a manual sequence are copied. Busy when max_sequences are open.
  virtual StatusOr<SequenceId> Fork(SequenceId id) = 0;
  virtual Status SetSeed(SequenceId id, uint64_t seed) = 0;
  // All options anew, for the tokens to come; what is there stays, a finish reason, too. Whether it
  // is manual cannot change (InvalidArgument), nor, while tokens are untaken, `logprobs` (Busy).
  virtual Status SetOptions(SequenceId id, const SequenceOptions& options) = 0;
  // Only tokens whose bits are set may be sampled next (decode/token_mask.h). For one token: it is
  // dropped with the step that samples it. No words: none. InvalidArgument of a manual sequence.
  virtual Status SetMask(SequenceId id, absl::Span<const uint32_t> words) = 0;
  // Sequences that have tokens to take, or an end that Take has not been told of, or, of manual
  // ones, logits; in the order in which they came to have it. How many; more than `out` holds:
  // nothing is written.
  virtual StatusOr<size_t> Ready(absl::Span<SequenceId> out) = 0;
  // All of a sequence, of its caches only where `content` says so (Unsupported where the backend
  // cannot), and a sequence made of it. That runs the tokens again whose content is not there, or not of
  // this engine's form, or for which there is no room now. Busy when max_sequences are open; KvFull
  // when the tokens could never fit; InvalidArgument for options, and content of another size.
  virtual StatusOr<SequenceState> Save(SequenceId id, bool content = false) = 0;
  virtual StatusOr<SequenceId> Restore(const SequenceState& state) = 0;
  // Drops every token from `position` on; clears `finish`. The last token left is run again by the
  // next step, so the sequence goes on from there: it samples anew, or has logits anew if manual.
  // (Where the model has states, from the last snapshot before that token; the results are the same.)
  virtual Status Truncate(SequenceId id, uint64_t position) = 0;
  // KvFull when the tokens could never fit, NotFound for a stale id, InvalidArgument for token ids;
  // then nothing was appended. Clears `finish`. No tokens: no change.
  virtual Status Append(SequenceId id, absl::Span<const uint32_t> tokens) = 0;
  // Moves produced tokens out; logprobs (if asked for) land in the caller's vectors beside them.
  // Of a sequence that ended by a fault and has nothing more to take: the fault.
  virtual StatusOr<size_t> Take(SequenceId id, absl::Span<uint32_t> out) = 0;
  // Log-probabilities of the j-th token of the last Take: the token's own first, then the top n.
  virtual StatusOr<absl::Span<const Logprob>> TakenLogprobs(SequenceId id, size_t j) = 0;
  // Logits [vocab] of the last position run, raw; Busy when there are none. Those of a manual
  // sequence stay until it is appended to or truncated, those of others until the next step.
  virtual StatusOr<absl::Span<const float>> Logits(SequenceId id) = 0;
  // Of a sequence with all_logits: after the row of `position`, one of those that its last step ran.
  // Until the next step; InvalidArgument says which there are.
  virtual StatusOr<absl::Span<const float>> LogitsAt(SequenceId id, uint64_t position) = 0;
  // Of a sequence with prompt_logprobs: log-probabilities of the appended token at `position`, given
  // those before it; its own first, then the top n. Busy until the row before it has run.
  virtual StatusOr<absl::Span<const Logprob>> PromptLogprobs(SequenceId id, uint64_t position) = 0;

  // Of what the prefix cache holds: the longest beginning of these tokens is not given up until it is
  // dropped; how many tokens that is. KvFull, and nothing is pinned, where what is left would not hold
  // the longest sequence. 0 without a prefix cache.
  virtual StatusOr<uint64_t> PinPrefix(absl::Span<const uint32_t> tokens, uint64_t salt) = 0;
  // What begins with these tokens is forgotten from their last whole block on, pinned or not, and what
  // was pinned before that for its sake may go again; no tokens: everything is, of all salts.
  virtual Status DropPrefix(absl::Span<const uint32_t> tokens, uint64_t salt) = 0;

  // What the cache holds of a position that has run (InfoOf's position is the first that has not),
  // to be checked against a reference; `near`: the cache of the first and last tokens. Slow.
  virtual StatusOr<backend::KvToken> ReadKv(SequenceId id, int32_t layer, uint64_t position, bool near = false) = 0;

  virtual StatusOr<SequenceInfo> InfoOf(SequenceId id) const = 0;
  virtual EngineInfo info() const = 0;
  // Of the last step, where the backend counts; not while a step runs.
  virtual backend::StepCounts counts() const = 0;
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_ENGINE_H_
