// SPDX-License-Identifier: MIT
//
// Drafts by the model's own second Program (LoadedModel::programs()[1]): a layer that sees the normed
// hidden row of a token beside the token after it, and guesses the one after that.
//
// What its caches hold at position t is made of the hidden row of t - 1 (zeros at 0) and of token t,
// so it depends on tokens up to t alone, as K and V of the model do: pages and states of both are
// shared, cut back and found again together (model::SequenceCaches has the caches of both). The hidden
// row before a sequence's next token is a state, in the head's own cache of slots.
//
// Threads: the engine's one. Nothing here allocates after construction.
#ifndef MAINARCH_DECODE_DRAFT_HEAD_H_
#define MAINARCH_DECODE_DRAFT_HEAD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "backend/backend.h"
#include "base/status.h"
#include "decode/sampler.h"
#include "decode/sequence.h"

namespace mainarch::decode {

class DraftHead {
 public:
  // Of one sequence, whose step is prepared.
  struct Wish {
    Sequence* sequence = nullptr;
    uint32_t table = 0;  // StepSequence::table
    uint32_t drafts = 0;
    uint32_t* out = nullptr;  // [drafts]
  };

  // `context`: of the second Program, its source the model's. The head's caches are those of a
  // sequence from `first_cache` on.
  DraftHead(std::unique_ptr<backend::Context> context, size_t first_cache, size_t caches,
            uint32_t max_sequences, uint32_t max_rows);

  backend::Context& context() { return *context_; }
  const backend::Context& context() const { return *context_; }
  size_t first_cache() const { return first_cache_; }

  // Guesses all that is wished for, a token of every sequence at a time. What it writes to pages lies
  // behind the sequences' positions, where the step that is prepared writes too.
  Status Draft(absl::Span<const Wish> wishes, Sampler* sampler);
  // Behind a step of the model that has run and has not been committed: the head's caches take in its
  // rows. wishes[i]: of the step's sequence i.
  Status Mirror(const backend::Step& step, absl::Span<const Wish> wishes);

 private:
  Status DraftOne(absl::Span<const Wish> wishes, uint32_t index, Sampler* sampler);
  absl::Span<const backend::StepCache> CachesOf(const Wish& wish) const;
  void FillRow(const Wish& wish, uint32_t index);
  StatusOr<uint32_t> Choose(const Wish& wish, uint32_t row, Sampler* sampler);

  std::unique_ptr<backend::Context> context_;
  const size_t first_cache_;
  const size_t cache_count_;
  std::vector<backend::StepRow> rows_;            // [max_sequences]
  std::vector<backend::StepSequence> sequences_;  // [max_sequences]
  std::vector<backend::StepCache> caches_;        // [max_sequences][caches]
  std::vector<uint32_t> logit_rows_;              // [max_sequences]
  std::vector<backend::Choice> choices_;          // [max_sequences]
  std::vector<uint32_t> inputs_;                  // [max_rows]
  std::vector<uint32_t> own_rows_;  // [max_sequences]: where a wish's row was in the step before
};

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_DRAFT_HEAD_H_
