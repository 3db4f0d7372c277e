// SPDX-License-Identifier: MIT
//
// A small model with a layer that drafts, loaded on one thread of the CPU: three gated delta nets and an
// attention; weights are hashes.
#ifndef MAINARCH_TESTS_UNIT_DECODE_HYBRID_MODEL_H_
#define MAINARCH_TESTS_UNIT_DECODE_HYBRID_MODEL_H_

#include <memory>
#include <string>

#include "model/config.h"
#include "model/model.h"
#include "model/synthetic.h"

namespace mainarch::test {

inline constexpr char kHybrid[] = R"({"architectures": ["Qwen3_5ForCausalLM"],
  "model_type": "qwen3_5_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 97,
  "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000,
  "tie_word_embeddings": false, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
  "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4})";

inline Status WriteHybrid(const std::string& directory) {
  ASSIGN_OR_RETURN(const model::ModelConfig config, model::ParseConfig(kHybrid, "", "dir"));
  model::SyntheticOptions options;
  options.draft_head = true;
  return model::WriteSyntheticCheckpoint(config, directory, options);
}

inline StatusOr<std::shared_ptr<const model::Model>> LoadHybrid(const std::string& directory,
                                                                bool draft_head,
                                                                const std::string& name = "cpu") {
  backend::BackendOptions device;
  device.device = name;
  device.threads = 1;
  ASSIGN_OR_RETURN(auto backend, backend::CreateBackend(device));
  return model::Model::Load(std::move(backend), directory, {},
                            draft_head ? model::Part::kModelAndDrafts : model::Part::kModel);
}

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_UNIT_DECODE_HYBRID_MODEL_H_
