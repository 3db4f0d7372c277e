// SPDX-License-Identifier: MIT
//
// Where the fp64 decoder finds its weights.
#include "absl/strings/str_cat.h"
#include "model/linear.h"
#include "model/tensor_names.h"
#include "reference/decoder.h"

namespace mainarch::reference {

Status Decoder::Linear(const std::string& name, int64_t rows, int64_t cols,
                       quant::Matrix* out) const {
  ASSIGN_OR_RETURN(*out, model::FindLinear(*checkpoint_, name, rows, cols));
  return OkStatus();
}

Status Decoder::VectorOf(const std::string& name, int64_t size, quant::Matrix* out) const {
  ASSIGN_OR_RETURN(*out, model::FindVector(*checkpoint_, name, size));
  return OkStatus();
}

Status Decoder::FindWeights() {
  const int64_t h = config_.hidden;
  const std::string model = model::ModelPrefix(*checkpoint_);
  RETURN_IF_ERROR(Linear(model + "embed_tokens", config_.vocab, h, &embedding_));
  RETURN_IF_ERROR(VectorOf(model + "norm.weight", h, &final_norm_));
  RETURN_IF_ERROR(Linear(model::FindHead(*checkpoint_, config_).name, config_.vocab, h, &head_));
  const model::NormNames norms = model::NormNamesOf(config_.norms);
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const std::string p = absl::StrCat(model, "layers.", i, ".");
    for (const auto& [name, out] : {std::pair(norms.before_attention, &layer.input_norm),
                                    std::pair(norms.after_attention, &layer.attention_norm),
                                    std::pair(norms.before_ffn, &layer.ffn_norm),
                                    std::pair(norms.after_ffn, &layer.output_norm)}) {
      if (!name.empty()) RETURN_IF_ERROR(VectorOf(p + name, h, out));
    }
    layer.is_delta = config_.IsDelta(i);
    RETURN_IF_ERROR(layer.is_delta ? FindDelta(p + "linear_attn.", &layer)
                                   : FindAttention(p + "self_attn.", i, &layer));
    layer.sparse = config_.sparse_layer[i];
    RETURN_IF_ERROR(FindFfn(p, &layer));
  }
  return OkStatus();
}

Status Decoder::FindAttention(const std::string& p, size_t index, Layer* layer) const {
  if (config_.latent.latent > 0) return FindLatent(p, layer);
  const int64_t h = config_.hidden, hd = config_.head_dim;
  const int64_t kv_heads = config_.KvHeadsOf(index);
  const int64_t q = config_.heads * hd, kv = kv_heads * hd, v = kv_heads * config_.ValueDim();
  const model::AttentionConfig& has = config_.attention;
  const int64_t q_rows = has.output_gate ? 2 * q : q;
  if (has.qk_norm || has.wide_qk_norm) {
    RETURN_IF_ERROR(VectorOf(p + "q_norm.weight", has.wide_qk_norm ? q : hd, &layer->q_norm));
    RETURN_IF_ERROR(VectorOf(p + "k_norm.weight", has.wide_qk_norm ? kv : hd, &layer->k_norm));
  }
  if (has.o_bias) RETURN_IF_ERROR(VectorOf(p + "o_proj.bias", h, &layer->o_bias));
  if (config_.HasSinks(index)) {
    RETURN_IF_ERROR(VectorOf(model::SinksName(*checkpoint_, p), config_.heads, &layer->sinks));
  }
  RETURN_IF_ERROR(Linear(p + "o_proj", h, int64_t{config_.heads} * config_.ValueDim(), &layer->o));
  if (has.fused_qkv) {
    if (has.qkv_bias) {
      RETURN_IF_ERROR(VectorOf(p + "qkv_proj.bias", q_rows + kv + v, &layer->qkv_bias));
    }
    return Linear(p + "qkv_proj", q_rows + kv + v, h, &layer->qkv);
  }
  if (has.qkv_bias) {
    RETURN_IF_ERROR(VectorOf(p + "q_proj.bias", q_rows, &layer->q_bias));
    RETURN_IF_ERROR(VectorOf(p + "k_proj.bias", kv, &layer->k_bias));
    RETURN_IF_ERROR(VectorOf(p + "v_proj.bias", v, &layer->v_bias));
  }
  RETURN_IF_ERROR(Linear(p + "q_proj", q_rows, h, &layer->q));
  RETURN_IF_ERROR(Linear(p + "k_proj", kv, h, &layer->k));
  return Linear(p + "v_proj", v, h, &layer->v);
}

Status Decoder::FindMlp(const std::string& p, int64_t width, Mlp* mlp) const {
  const int64_t h = config_.hidden;
  RETURN_IF_ERROR(Linear(p + "down_proj", h, width, &mlp->down));
  if (config_.mlp_bias) RETURN_IF_ERROR(VectorOf(p + "down_proj.bias", h, &mlp->down_bias));
  if (config_.fused_gate_up) {
    if (config_.mlp_bias) {
      RETURN_IF_ERROR(VectorOf(p + "gate_up_proj.bias", 2 * width, &mlp->gate_up_bias));
    }
    return Linear(p + "gate_up_proj", 2 * width, h, &mlp->gate_up);
  }
  if (config_.mlp_bias) {
    RETURN_IF_ERROR(VectorOf(p + "gate_proj.bias", width, &mlp->gate_bias));
    RETURN_IF_ERROR(VectorOf(p + "up_proj.bias", width, &mlp->up_bias));
  }
  RETURN_IF_ERROR(Linear(p + "gate_proj", width, h, &mlp->gate));
  return Linear(p + "up_proj", width, h, &mlp->up);
}

Status Decoder::FindFfn(const std::string& p, Layer* layer) const {
  if (!layer->sparse) return FindMlp(p + "mlp.", config_.intermediate, &layer->dense);
  const model::ExpertTensors names = model::ExpertTensorsOf(config_);
  const int64_t experts = config_.experts;
  RETURN_IF_ERROR(Linear(p + names.router, experts, config_.hidden, &layer->router));
  if (config_.router.bias) {
    RETURN_IF_ERROR(VectorOf(p + names.router + ".bias", experts, &layer->router_bias));
  }
  if (config_.router.correction) {
    RETURN_IF_ERROR(VectorOf(p + names.correction, experts, &layer->correction));
  }
  if (config_.shared_intermediate > 0) {
    RETURN_IF_ERROR(FindMlp(p + names.shared, config_.shared_intermediate, &layer->shared));
  }
  if (config_.shared_gate) {
    RETURN_IF_ERROR(Linear(p + names.shared_gate, 1, config_.hidden, &layer->shared_gate));
  }
  ASSIGN_OR_RETURN(layer->experts, model::FindExperts(*checkpoint_, config_, p));
  if (config_.mlp_bias) {
    ASSIGN_OR_RETURN(layer->expert_biases, model::FindExpertBiases(*checkpoint_, config_, p));
  }
  return OkStatus();
}

}  // namespace mainarch::reference
