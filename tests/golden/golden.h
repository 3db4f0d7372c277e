// SPDX-License-Identifier: MIT
//
// Reads tests/golden/data/*.safetensors, and runs Programs on hand-made steps.
#ifndef MAINARCH_TESTS_GOLDEN_GOLDEN_H_
#define MAINARCH_TESTS_GOLDEN_GOLDEN_H_

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "file/safetensors.h"
#include "model/model.h"

namespace mainarch::test {

class Golden {
 public:
  static StatusOr<Golden> Open(const std::string& name);  // "T1-bf16"
  static StatusOr<Golden> OpenFile(const std::string& path);

  bool Has(const std::string& tensor) const;
  // Empty when there is none.
  std::vector<float> Floats(const std::string& tensor) const;
  std::vector<int32_t> Ints(const std::string& tensor) const;
  std::vector<uint32_t> Tokens(const std::string& tensor) const;

 private:
  explicit Golden(file::SafetensorsFile file) : file_(std::move(file)) {}
  const file::TensorView* Find(const std::string& tensor) const;
  file::SafetensorsFile file_;
};

// MAINARCH_TEST_RESIDENT=1: tests of GPUs run their steps by the resident kernel, where it can.
backend::ResidentMode ResidentByDefault();

// One sequence on a context, pages 0, 1, 2 … of the pool from `first_page` on.
class Runner {
 public:
  static StatusOr<std::unique_ptr<Runner>> Create(
      std::shared_ptr<const model::Model> model, backend::KvType kv, uint32_t max_rows,
      backend::Activations activations = backend::Activations::kF32,
      uint32_t share_from = backend::ContextOptions().share_from,
      backend::ResidentMode resident = ResidentByDefault());

  // Runs tokens at the next positions in one step, logits for every row (or only the last).
  Status Extend(absl::Span<const uint32_t> tokens, bool all_logits);
  // Runs only ops [0, end).
  Status ExtendPrefix(absl::Span<const uint32_t> tokens, size_t end);
  std::vector<float> Logits(uint32_t row) const;
  // Runs one token and has the context choose the next, greedily. Nothing: it does not choose.
  StatusOr<absl::optional<uint32_t>> Choose(uint32_t token);
  // What the cache holds of a position that has run.
  StatusOr<backend::KvToken> ReadKv(int32_t layer, size_t position) const;
  // Where the model has states: to where a step ended, or one token before that, at most some steps ago.
  void Truncate(uint32_t position) { position_ = position; }
  uint32_t position() const { return position_; }
  backend::Context& context() { return *context_; }

 private:
  Status Step(absl::Span<const uint32_t> tokens, bool all_logits, size_t end);

  std::shared_ptr<const model::Model> model_;
  std::unique_ptr<backend::Context> context_;
  std::vector<uint32_t> pages_;
  uint32_t slots_ = 0;  // of each cache of states: that after p tokens in slot p % slots_
  backend::Choice choice_;  // of every logit row
  uint32_t position_ = 0;
};

bool Same(absl::Span<const float> a, absl::Span<const float> b);  // bit by bit
// The largest |a - b| over the largest |b|.
double WorstRelative(absl::Span<const float> a, absl::Span<const float> b);
// Row i of `all`, `rows` rows of equal width.
absl::Span<const float> RowOf(const std::vector<float>& all, size_t rows, size_t i);

// Logits of every position of `tokens`, fed in pieces of the given sizes (the last repeats).
StatusOr<std::vector<std::vector<float>>> AllLogits(Runner* runner,
                                                    absl::Span<const uint32_t> tokens,
                                                    std::vector<size_t> pieces);
// Sequences of the same tokens that decode and prefill together, each step taking other amounts of
// each: every row's logits against those of the tokens alone, in one step. An error says which row
// has other bits.
struct Mix {
  size_t tokens = 90;  // of each sequence
  uint32_t sequences = 6;
  uint32_t max_rows = 64;
  backend::Activations activations = backend::Activations::kF32;
};
Status RunBatchMix(std::shared_ptr<const model::Model> model, const Mix& mix);
// n token ids below `vocab`, the same ones every time.
std::vector<uint32_t> Prompt(size_t n, uint32_t vocab);

// Greedy choice: the lowest id of the largest logits.
uint32_t ArgMax(absl::Span<const float> logits);

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_GOLDEN_GOLDEN_H_
