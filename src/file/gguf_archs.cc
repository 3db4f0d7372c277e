// SPDX-License-Identifier: MIT
#include "file/gguf_archs.h"

#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace mainarch::file {
namespace {

constexpr absl::string_view kBlock = "blk.";
constexpr size_t kMaxLayerDigits = 6;

constexpr GgufName kModelNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

constexpr GgufName kBlockNames[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    {"ffn_up_exps", "mlp.experts.*.up_proj"},
    {"ffn_down_exps", "mlp.experts.*.down_proj"},
};

constexpr GgufName kMixtralNames[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.*.w2"},
};

constexpr GgufName kMiniMaxNames[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.*.w2"},
    {"exp_probs_b", "block_sparse_moe.e_score_correction_bias", true},
};

constexpr GgufName kGptOssNames[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"attn_sinks", "self_attn.sinks", true},
    {"ffn_gate_inp", "mlp.router"},
};

constexpr GgufName kGlm4MoeNames[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"exp_probs_b", "mlp.gate.e_score_correction_bias", true},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};
constexpr GgufKey kRoutedKeys[] = {
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
};

constexpr GgufName kDeepSeekNames[] = {
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},  // of older files; in newer ones a head's are apart, that of keys turned
    {"attn_k_b", "self_attn.heads.*.k_b_proj"},
    {"attn_v_b", "self_attn.heads.*.v_b_proj"},
    {"exp_probs_b", "mlp.gate.e_score_correction_bias", true},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};

constexpr GgufName kOlmoNames[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

// A shared expert beside the others, behind a gate.
constexpr GgufName kQwen2MoeNames[] = {
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};
constexpr GgufKey kQwen2MoeKeys[] = {
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
};

// Norms before and behind.
constexpr GgufName kGemma3Names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr GgufKey kWindowKeys[] = {{"attention.sliding_window", "sliding_window"}};

constexpr GgufName kPhi3Names[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_up", "mlp.gate_up_proj"},
};

constexpr GgufKey kGraniteKeys[] = {
    {"attention.scale", "attention_multiplier"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"logit_scale", "logits_scaling"},
};

constexpr GgufArch kArchs[] = {
    {.name = "llama",
     .model_type = "llama",
     .class_name = "LlamaForCausalLM",
     .paired_heads = true},
    {.name = "llama",
     .model_type = "mixtral",
     .class_name = "MixtralForCausalLM",
     .paired_heads = true,
     .experts = true,
     .expert_count = "num_local_experts",
     .names = kMixtralNames},
    {.name = "granite",
     .model_type = "granite",
     .class_name = "GraniteForCausalLM",
     .paired_heads = true,
     .keys = kGraniteKeys},
    {.name = "qwen2", .model_type = "qwen2", .class_name = "Qwen2ForCausalLM"},
    {.name = "qwen2moe",
     .model_type = "qwen2_moe",
     .class_name = "Qwen2MoeForCausalLM",
     .experts = true,
     .more_config = ", \"norm_topk_prob\": false",
     .keys = kQwen2MoeKeys,
     .names = kQwen2MoeNames},
    {.name = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM"},
    {.name = "qwen3moe",
     .model_type = "qwen3_moe",
     .class_name = "Qwen3MoeForCausalLM",
     .experts = true,
     .more_config = ", \"norm_topk_prob\": true"},
    {.name = "gemma3",
     .model_type = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .norms_plus_one = true,
     .activation = "\"hidden_activation\": \"gelu_pytorch_tanh\"",
     .keys = kWindowKeys,
     .names = kGemma3Names},
    {.name = "phi3",
     .model_type = "phi3",
     .class_name = "Phi3ForCausalLM",
     .keys = kWindowKeys,
     .names = kPhi3Names},
    {.name = "smollm3",
     .model_type = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .paired_heads = true},
    {.name = "olmo2",  // 3, too
     .model_type = "olmo3",
     .class_name = "Olmo3ForCausalLM",
     .keys = kWindowKeys,
     .names = kOlmoNames},
    {.name = "gpt-oss",
     .model_type = "gpt_oss",
     .class_name = "GptOssForCausalLM",
     .experts = true,
     .expert_count = "num_local_experts",
     .keys = kWindowKeys,
     .names = kGptOssNames},
    {.name = "glm4moe",
     .model_type = "glm4_moe",
     .class_name = "Glm4MoeForCausalLM",
     .experts = true,
     .expert_count = "n_routed_experts",
     .keys = kRoutedKeys,
     .names = kGlm4MoeNames},
    {.name = "minimax-m2",
     .model_type = "minimax_m2",
     .class_name = "MiniMaxM2ForCausalLM",
     .experts = true,
     .expert_count = "num_local_experts",
     .names = kMiniMaxNames},
    {.name = "deepseek2",
     .model_type = "deepseek_v3",
     .class_name = "DeepseekV3ForCausalLM",
     .experts = true,
     .expert_count = "n_routed_experts",
     .keys = kRoutedKeys,
     .names = kDeepSeekNames},
};

const GgufName* FindName(absl::Span<const GgufName> names, absl::string_view stem) {
  for (const GgufName& name : names) {
    if (name.gguf == stem) return &name;
  }
  return nullptr;
}

// The digits at the start of `text`, and the dot behind them, are taken off; empty when there are
// none.
absl::string_view TakeLayer(absl::string_view* text) {
  size_t digits = 0;
  while (digits < text->size() && (*text)[digits] >= '0' && (*text)[digits] <= '9') ++digits;
  if (digits == 0 || digits > kMaxLayerDigits || digits == text->size() || (*text)[digits] != '.' ||
      (digits > 1 && text->front() == '0')) {
    return {};
  }
  const absl::string_view layer = text->substr(0, digits);
  text->remove_prefix(digits + 1);
  return layer;
}

}  // namespace

const GgufArch* FindGgufArch(absl::string_view name, bool experts) {
  const GgufArch* found = nullptr;
  for (const GgufArch& arch : kArchs) {
    if (arch.name == name && (found == nullptr || arch.experts == experts)) found = &arch;
  }
  return found;
}

std::string GgufArchNames() {
  std::string names;
  for (const GgufArch& arch : kArchs) {
    if (&arch != kArchs && (&arch)[-1].name == arch.name) continue;
    const bool last = &arch == &kArchs[std::size(kArchs) - 1];
    absl::StrAppend(&names, names.empty() ? "" : last ? " and " : ", ", arch.name);
  }
  return names;
}

GgufTensorName HuggingFaceName(const GgufArch& arch, absl::string_view gguf) {
  const size_t dot = gguf.rfind('.');
  if (dot == absl::string_view::npos) return {};
  absl::string_view stem = gguf.substr(0, dot);
  const absl::string_view kind = gguf.substr(dot);  // ".weight" or ".bias"
  if (kind != ".weight" && kind != ".bias") return {};
  std::string prefix;
  absl::Span<const GgufName> general = kModelNames;
  if (absl::StartsWith(stem, kBlock)) {
    stem.remove_prefix(kBlock.size());
    const absl::string_view layer = TakeLayer(&stem);
    if (layer.empty()) return {};
    prefix = absl::StrCat("model.layers.", layer, ".");
    general = kBlockNames;
  }
  const GgufName* name = FindName(arch.names, stem);
  if (name == nullptr) name = FindName(general, stem);
  if (name == nullptr) return {};
  GgufTensorName found;
  found.experts = absl::StrContains(name->hugging_face, '*');
  found.name = absl::StrCat(prefix, name->hugging_face, name->whole ? "" : kind);
  if (found.experts && kind == ".bias") {
    found.experts = false;
    found.name = absl::StrReplaceAll(found.name, {{"*.", ""}});
  }
  return found;
}

}  // namespace mainarch::file
