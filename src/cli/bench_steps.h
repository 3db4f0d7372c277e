// SPDX-License-Identifier: MIT
//
// Drives a backend::Context as an engine would, without the engine: prefill in chunks and decode
// steps of a batch at a given depth. Sampling is not in it: tokens are hashed, so that experts
// vary.
#ifndef MAINARCH_CLI_BENCH_STEPS_H_
#define MAINARCH_CLI_BENCH_STEPS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "cli/interrupt.h"
#include "model/model.h"

namespace mainarch::cli {

class StepDriver {
 public:
  struct Shape {
    uint32_t batch = 1;     // sequences
    uint32_t tokens = 0;    // that each may hold
    uint32_t max_rows = 1;  // of a step
    backend::Activations activations = backend::Activations::kF32;
  };
  static StatusOr<std::unique_ptr<StepDriver>> Create(std::shared_ptr<const model::Model> model,
                                                      const Shape& shape, backend::KvType kv);

  // Runs positions [0, tokens) of the first sequence in steps of at most max_rows.
  Status Prefill(uint32_t tokens);
  // Gives every sequence `depth` tokens of context: one page is computed, and copied over the pages
  // of all others. Values repeat, bytes and arithmetic are those of a real context.
  Status FillContext(uint32_t depth);
  // One row of every sequence at `position`.
  Status Decode(uint32_t position);
  // As Decode, but the first `ops` operators only.
  Status DecodePrefix(uint32_t position, size_t ops);

 private:
  StepDriver(std::shared_ptr<const model::Model> model, const Shape& shape);
  uint32_t Token(uint32_t sequence, uint32_t position) const;
  backend::Step DecodeStep(uint32_t position);
  bool IsPaged(size_t cache) const;
  Status FillPages(int32_t cache, uint32_t used);
  // Of the caches of slots: what a step reads before a sequence's row at `position`, and leaves behind
  // its last.
  void SetStates(uint32_t sequence, uint32_t position, uint32_t last_row);
  // Of a step that has run: the sequence stands on what it left.
  void KeepStates(uint32_t sequence);

  const std::shared_ptr<const model::Model> model_;
  const Shape shape_;
  std::unique_ptr<backend::Context> context_;
  std::optional<InterruptHook> cancel_;  // ends the step in flight
  size_t caches_a_sequence_ = 0;
  std::vector<std::vector<uint32_t>> pages_;  // of each sequence, in every paged cache
  std::vector<backend::StepCache> caches_;    // [batch][caches of the Program]
  // Of each sequence, in every cache of slots: where it stands, and where the step leaves it. Its own are
  // 2 i and 2 i + 1.
  std::vector<uint32_t> states_;
  std::vector<backend::StateOut> outs_;
  std::vector<backend::StepSequence> sequences_;
  std::vector<backend::StepRow> rows_;
  std::vector<uint32_t> logit_rows_;
};

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_BENCH_STEPS_H_
