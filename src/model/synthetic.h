// SPDX-License-Identifier: MIT
//
// Synthetic checkpoints of any geometry in any supported format, from hashed tensor names: no
// weights are stored anywhere, yet every run and every language makes the same bytes
// (models.md §8.1; tests/golden/fixtures.py is the numpy twin).
#ifndef MAINARCH_MODEL_SYNTHETIC_H_
#define MAINARCH_MODEL_SYNTHETIC_H_

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "model/config.h"

namespace mainarch::model {

enum class SyntheticFormat : uint8_t {
  kBF16,
  kF16,
  kF32,
  kFp8Block,
  kFp8Channel,
  kMxfp4,
  kMxfp4AttnFp8,
};

StatusOr<SyntheticFormat> SyntheticFormatFromName(absl::string_view name);  // "fp8-block", …

struct SyntheticOptions {
  SyntheticFormat format = SyntheticFormat::kBF16;
  uint64_t seed = 0;
  int32_t shards = 1;
  // For readers who have the ModelConfig itself: the tensors of all that it says, though no
  // architecture's config.json says as much. The file leaves it out.
  bool beyond_json = false;
  bool draft_head = false;  // with the layer that drafts, of architectures that have one
  // Called with bytes written and in total; false cancels (nothing is left behind).
  std::function<bool(uint64_t, uint64_t)> progress;
};

// Writes config.json, generation_config.json and the safetensors file(s) into `directory`, which is
// made if absent and must hold no checkpoint. Memory use is bounded by one tensor.
Status WriteSyntheticCheckpoint(const ModelConfig& config, const std::string& directory,
                                const SyntheticOptions& options);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_SYNTHETIC_H_
