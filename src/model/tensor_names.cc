// SPDX-License-Identifier: MIT
#include "model/tensor_names.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace mainarch::model {
namespace {

bool Has(const file::Checkpoint& checkpoint, const std::string& name) {
  return checkpoint.Find(name) != nullptr;
}

}  // namespace

bool HasDraftHead(const file::Checkpoint& checkpoint) {
  return Has(checkpoint, absl::StrCat(kDraftPrefix, "norm.weight"));
}

std::string ModelPrefix(const file::Checkpoint& checkpoint) {
  for (const char* prefix :
       {"model.", "", "language_model.model.", "model.language_model.", "language_model."}) {
    if (Has(checkpoint, absl::StrCat(prefix, "embed_tokens.weight"))) return prefix;
  }
  return "model.";
}

Head FindHead(const file::Checkpoint& checkpoint, const ModelConfig& config) {
  const std::string prefix = ModelPrefix(checkpoint);
  const std::string embedding = prefix + "embed_tokens";
  const file::TensorView* table = checkpoint.Find(embedding + ".weight");
  for (const char* name : {"lm_head", "language_model.lm_head"}) {
    const file::TensorView* head = checkpoint.Find(absl::StrCat(name, ".weight"));
    if (head == nullptr) continue;
    const bool same = table != nullptr && head->dtype == table->dtype &&
                      std::equal(head->bytes.begin(), head->bytes.end(), table->bytes.begin(),
                                 table->bytes.end());
    if (config.tied_embeddings && same) return {HeadSource::kTied, embedding};
    return {HeadSource::kOwn, name};
  }
  if (config.tied_embeddings) return {HeadSource::kTied, embedding};
  if (prefix.empty()) return {HeadSource::kMissing, embedding};
  return {HeadSource::kOwn, "lm_head"};
}

std::string SinksName(const file::Checkpoint& checkpoint, const std::string& self) {
  const std::string other = self + "attention_sink_bias";  // MiMo's own files
  return Has(checkpoint, other) ? other : self + "sinks";
}

NormNames NormNamesOf(const NormConfig& norms) {
  NormNames names;
  if (norms.before) {
    names.before_attention = "input_layernorm.weight";
    names.before_ffn =
        norms.after ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight";
  }
  if (norms.after) {
    names.after_attention = "post_attention_layernorm.weight";
    names.after_ffn = "post_feedforward_layernorm.weight";
  }
  return names;
}

ExpertTensors ExpertTensorsOf(const ModelConfig& config) {
  ExpertTensors names = {"mlp.experts.",
                         "mlp.gate",
                         "mlp.gate.e_score_correction_bias",
                         "gate_proj",
                         "up_proj",
                         "down_proj",
                         "mlp.shared_experts.",
                         "mlp.shared_expert_gate"};
  if (config.shared_gate) names.shared = "mlp.shared_expert.";
  if (config.expert_names == ExpertNames::kGptOss) names.router = "mlp.router";
  if (config.expert_names == ExpertNames::kMixtral) {
    names.experts = "block_sparse_moe.experts.";
    names.router = "block_sparse_moe.gate";
    names.correction = "block_sparse_moe.e_score_correction_bias";
    names.gate = "w1";
    names.up = "w3";
    names.down = "w2";
  }
  return names;
}

}  // namespace mainarch::model
