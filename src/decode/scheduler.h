// SPDX-License-Identifier: MIT
//
// Which rows of which sequences run in the next step, and who gives up its KV pages for that: a
// pure function of what it is shown. It changes nothing; the engine carries the plan out.
//
// Rows: every decoding sequence (one pending token) gets its row; what is left of the step goes to
// prompts, first come first served, in chunks. While prompts wait, an eighth of the step (one row
// at least) is theirs, so neither side starves the other; when there are more decoders than rows,
// the ones that ran longest ago go first. Pages: older sequences come first. A decoder without a
// page, and the oldest sequence in any case, takes those of idle sequences (longest unused first),
// then those of the youngest working one, which re-runs its tokens later. The oldest always gets
// on, so everyone's turn comes. Who gives pages gives them from its end, and no more than are wanted:
// the rest need not be run again. A prompt starts only when pages for all of it are free beside one
// for each running sequence: else it would be thrown out again half way. What rows are left in the
// end go to drafts, as far as pages are free.
//
// Rows of logits: every chunk is sure of one. What a step can make beyond that is for those who want
// logits of several rows, first come first served.
#ifndef MAINARCH_DECODE_SCHEDULER_H_
#define MAINARCH_DECODE_SCHEDULER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace mainarch::decode {

struct SequenceView {
  uint64_t arrival = 0;    // unique, ascending with age of the request
  uint64_t last_step = 0;  // number of the step it last ran in, 0: never
  uint64_t position = 0;   // tokens whose KV is stored
  uint64_t pending = 0;    // tokens to run, 0: idle
  // Of a cache without a window; of several such caches the tables are alike. None: no pool limits.
  absl::Span<const uint32_t> pages;
  uint64_t silent = 0;  // of the pending rows, so many at the beginning make no logits
  uint32_t drafts = 0;  // guesses behind the last pending token, each of which makes logits
  bool evicted = false;  // has given up pages and not run since: it starts as a prompt does
};

struct StepLimits {
  uint32_t max_rows = 0;
  uint32_t free_pages = 0;
  absl::Span<const uint32_t> page_refs;  // [pages of the pool]
  uint32_t max_logit_rows = UINT32_MAX;  // at least the lesser of max_rows and all sequences
};

struct Chunk {
  uint32_t sequence = 0;  // index into the views
  uint32_t rows = 0;      // its next tokens, at least 1, and drafts
  uint32_t drafts = 0;    // of these
};

struct Plan {
  std::vector<uint32_t> preempted;  // lose pages, before chunks take theirs ...
  std::vector<uint32_t> kept;       // ... but for so many, each, at the beginning
  std::vector<Chunk> chunks;        // ascending `sequence`
};

// Owns scratch only, so that planning allocates nothing.
class Scheduler {
 public:
  Scheduler(uint32_t max_sequences, uint32_t pool_pages);

  // Valid until the next call. At least one chunk if any sequence is working and the oldest of them
  // fits into the pool.
  const Plan& Make(absl::Span<const SequenceView> sequences, const StepLimits& limits);

 private:
  struct Grant {
    uint32_t rows = 0;
    uint32_t pages = 0;
    uint32_t drafts = 0;
    bool preempted = false;
  };

  void Sort(absl::Span<const SequenceView> sequences);
  uint32_t DecoderShare() const;
  void GrantDecoder(uint32_t index);
  bool GrantPrompt(uint32_t index);
  void GrantDrafts(uint32_t index);
  void Admit(uint32_t index, uint64_t rows, uint32_t pages);
  // Preempts one for the sake of `index`; `preempt`: working ones younger than it may lose, too.
  bool Relieve(uint32_t index, bool preempt);
  uint32_t Victim(uint32_t index, bool preempt) const;
  void Preempt(uint32_t index);
  void KeepPages();
  bool Runs(uint32_t index) const;
  uint32_t Needed(uint32_t index, uint64_t rows) const;
  absl::Span<const uint32_t> refs() const;

  absl::Span<const SequenceView> sequences_;
  StepLimits limits_;
  uint32_t rows_left_ = 0;
  uint64_t pages_left_ = 0;
  uint64_t spare_logits_ = 0;  // rows beyond one a chunk
  uint32_t oldest_ = 0;
  bool refs_changed_ = false;
  std::vector<uint32_t>
      refs_;  // [pool_pages] reference counts after the preemptions planned so far
  std::vector<Grant> grants_;
  std::vector<uint32_t> decoders_;
  std::vector<uint32_t> prompts_;
  Plan plan_;
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_SCHEDULER_H_
