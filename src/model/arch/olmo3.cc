// SPDX-License-Identifier: MIT
//
// OLMo 3: norms behind attention and feed-forward alone, norms of Q and of K over all heads
// together, windows in three layers of four.
#include "model/arch/arch.h"

namespace mainarch::model {
namespace {

Status Read(ConfigReader& reader) {
  RETURN_IF_ERROR(reader.Common({.max_position = 2048, .rms_eps = 1e-5f, .theta = 5e5}));
  ModelConfig& config = reader.config();
  config.attention.qk_norm = false;
  config.attention.wide_qk_norm = true;
  config.norms.before = false;
  config.norms.after = true;
  ASSIGN_OR_RETURN(const int32_t window, reader.Window(4096));
  std::vector<bool> pattern;
  for (int32_t i = 0; i < config.layers; ++i) pattern.push_back((i + 1) % 4 != 0);
  RETURN_IF_ERROR(reader.LayerWindows(window, pattern));
  RETURN_IF_ERROR(reader.NoExperts());
  RETURN_IF_ERROR(reader.AttentionBias());
  // Layers with a window turn by the class' own theta, whatever rope_theta says.
  return reader.RopeByWindow("", 5e5);
}

void Build(Builder& builder) { builder.Decoder(); }

}  // namespace

extern const Arch kOlmo3 = {
    .model_type = "olmo3",
    .class_name = "Olmo3ForCausalLM",
    .experts = ExpertKeys::kNone,
    .read = Read,
    .build = Build,
    .ropes_by_window = true,
};

}  // namespace mainarch::model
