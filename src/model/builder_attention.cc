// SPDX-License-Identifier: MIT
//
// The attention block, and how its heads are dealt out to ranks (models.md §3).
#include <algorithm>
#include <cmath>

#include "model/builder.h"
#include "model/splits.h"
#include "model/tensor_names.h"

namespace mainarch::model {
namespace {

using backend::Weight;
using backend::WeightId;
using backend::WeightSlice;

}  // namespace

// With fewer key/value heads than ranks, several ranks hold the same one. Of a bias, which is a
// row, slices are columns. In one matrix of all, K stands behind Q, and V behind K.
std::vector<std::vector<WeightSlice>> Builder::QkvSlices(int32_t kv_heads, bool bias) const {
  const int64_t hd = config_.head_dim, vd = config_.ValueDim(), heads = config_.heads, kv = kv_heads;
  const bool fused = config_.attention.fused_qkv;
  std::vector<std::vector<WeightSlice>> ranks;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    std::vector<WeightSlice>& slices = ranks.emplace_back();
    const auto add = [&](int32_t source, int64_t head, int64_t count) {
      const int64_t above = !fused || source == 0 ? 0 : source == 1 ? heads : heads + kv, dim = source == 2 ? vd : hd;
      const int64_t begin = above * hd + head * dim, end = begin + count * dim;
      const int32_t from = fused ? 0 : source;
      slices.push_back(bias ? WeightSlice{from, 0, 1, begin, end}
                            : WeightSlice{from, begin, end, 0, config_.hidden});
    };
    const int64_t first = heads * rank / ranks_, last = heads * (rank + 1) / ranks_;
    if (!config_.attention.output_gate) add(0, first, last - first);
    for (int64_t h = first; config_.attention.output_gate && h < last; ++h) add(0, 2 * h, 1);
    const int64_t kv_begin = kv * rank / ranks_;
    const int64_t kv_count = std::max<int64_t>(1, kv / ranks_);
    add(1, kv_begin, kv_count);
    add(2, kv_begin, kv_count);
  }
  return ranks;
}

std::vector<std::vector<WeightSlice>> Builder::GateSlices(bool bias) const {
  const int64_t hd = config_.head_dim, heads = config_.heads;
  std::vector<std::vector<WeightSlice>> ranks(static_cast<size_t>(ranks_));
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t begin = (2 * h + 1) * hd, end = (2 * h + 2) * hd;
    ranks[static_cast<size_t>(h * ranks_ / heads)].push_back(
        bias ? WeightSlice{0, 0, 1, begin, end} : WeightSlice{0, begin, end, 0, config_.hidden});
  }
  return ranks;
}

std::vector<std::vector<WeightSlice>> Builder::HeadSlices(int64_t heads, int64_t each) const {
  std::vector<std::vector<WeightSlice>> ranks;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const int64_t first = heads * rank / ranks_;
    const int64_t count = std::max<int64_t>(1, heads / ranks_);
    ranks.push_back({WeightSlice{0, 0, 1, first * each, (first + count) * each}});
  }
  return ranks;
}

int32_t Builder::CacheOf(int32_t window, int32_t kv_heads) {
  std::vector<backend::Cache>& caches = program_->caches;
  backend::PagedCache cache;
  cache.label = window == 0 ? "kv" : absl::StrCat("kv of the last ", window);
  if (kv_heads != config_.kv_heads) absl::StrAppend(&cache.label, ", ", kv_heads, " heads");
  for (size_t i = 0; i < caches.size(); ++i) {
    const auto* other = std::get_if<backend::PagedCache>(&caches[i]);
    if (other != nullptr && other->label == cache.label) return static_cast<int32_t>(i);
  }
  cache.kv_heads = std::max(1, kv_heads / ranks_);
  cache.key_dim = config_.StoredHeads().key;
  cache.value_dim = config_.StoredHeads().value;
  cache.window = window;
  cache.replicas = std::max(1, ranks_ / kv_heads);
  caches.push_back(std::move(cache));
  return static_cast<int32_t>(caches.size()) - 1;
}

Builder::QkvBuffers Builder::QkvOf(const backend::PagedCache& cache, int32_t heads) {
  for (const QkvBuffers& buffers : qkvs_) {
    if (buffers.kv_heads == cache.kv_heads) return buffers;
  }
  const std::string label = qkvs_.empty() ? "qkv" : absl::StrCat("qkv of ", cache.kv_heads);
  const int64_t keys = int64_t{heads} + cache.kv_heads;
  QkvBuffers buffers;
  buffers.kv_heads = cache.kv_heads;
  buffers.own = buffers.stored = AddBuffer(label, keys * cache.key_dim + int64_t{cache.kv_heads} * cache.value_dim);
  if (config_.StoredHeads() != config_.Heads()) {
    buffers.own = AddBuffer(label + ".narrow", keys * config_.head_dim + int64_t{cache.kv_heads} * config_.ValueDim());
  }
  qkvs_.push_back(buffers);
  return buffers;
}

// The products that make Q, K, V and the gate, and the biases of all.
void Builder::AddHeads(backend::AttentionOp* attention, const std::string& prefix, int32_t kv_heads) {
  backend::Program& p = *program_;
  const AttentionConfig& has = config_.attention;
  const int64_t hd = config_.head_dim, k_rows = kv_heads * hd, v_rows = int64_t{kv_heads} * config_.ValueDim();
  const int64_t q_rows = config_.heads * hd * (has.output_gate ? 2 : 1);
  const std::string self = prefix + "self_attn.";
  const WeightId norm = NormBefore(prefix, NormNamesOf(config_.norms).before_attention);
  Weight qkv;
  qkv.label = self + "qkv";
  if (has.fused_qkv) {
    qkv.sources = {Linear(self + "qkv_proj", q_rows + k_rows + v_rows, config_.hidden)};
  } else {
    qkv.sources = {Linear(self + "q_proj", q_rows, config_.hidden),
                   Linear(self + "k_proj", k_rows, config_.hidden),
                   Linear(self + "v_proj", v_rows, config_.hidden)};
  }
  qkv.ranks = QkvSlices(kv_heads, /*bias=*/false);
  const quant::Matrix q_proj = qkv.sources[0];
  const WeightId product = AddWeight(std::move(qkv));
  if (norm == backend::kNone) {
    p.ops.push_back(backend::MatmulOp{p.x, product, attention->qkv});
  } else {
    p.ops.push_back(backend::NormMatmulOp{p.x, norm, product, attention->qkv});
  }
  quant::Matrix q_bias;
  if (has.qkv_bias) {
    std::vector<quant::Matrix> biases;
    if (has.fused_qkv) {
      biases = {VectorOf(self + "qkv_proj.bias", q_rows + k_rows + v_rows)};
    } else {
      biases = {VectorOf(self + "q_proj.bias", q_rows), VectorOf(self + "k_proj.bias", k_rows),
                VectorOf(self + "v_proj.bias", v_rows)};
    }
    q_bias = biases[0];
    attention->bias = VectorShards(self + "qkv.bias", std::move(biases), QkvSlices(kv_heads, /*bias=*/true));
  }
  if (has.output_gate) AddGate(attention, self, norm, q_proj, q_bias);
}

void Builder::AddGate(backend::AttentionOp* attention, const std::string& self, WeightId norm,
                      const quant::Matrix& q_proj, const quant::Matrix& q_bias) {
  backend::Program& p = *program_;
  if (gate_ < 0) gate_ = AddBuffer("gate", int64_t{attention->heads} * config_.head_dim);
  attention->gate = gate_;
  Weight gate;
  gate.label = self + "gate";
  gate.sources = {q_proj};
  gate.ranks = GateSlices(/*bias=*/false);
  p.ops.push_back(backend::NormMatmulOp{p.x, norm, AddWeight(std::move(gate)), gate_});
  if (!config_.attention.qkv_bias) return;
  p.ops.push_back(backend::AddBiasOp{
      VectorShards(self + "gate.bias", {q_bias}, GateSlices(/*bias=*/true)), gate_});
}

// Norms of each head, which attention makes itself, or of all heads together, before it.
void Builder::AddHeadNorms(backend::AttentionOp* attention, const std::string& self, int32_t kv_heads) {
  backend::Program& p = *program_;
  if (config_.attention.qk_norm) {
    attention->q_norm = Norm(self + "q_norm.weight", config_.head_dim);
    attention->k_norm = Norm(self + "k_norm.weight", config_.head_dim);
  }
  if (!config_.attention.wide_qk_norm) return;
  if (attention->bias != backend::kNone) {  // which comes first
    p.ops.push_back(backend::AddBiasOp{attention->bias, attention->qkv});
    attention->bias = backend::kNone;
  }
  const int64_t hd = config_.head_dim;
  backend::WideNormOp norm = {};
  norm.qkv = attention->qkv;
  norm.heads = attention->heads;
  norm.kv_heads = std::max(1, kv_heads / ranks_);
  norm.key_dim = config_.head_dim;
  norm.total_kv_heads = kv_heads;
  norm.q_norm =
      VectorShards(self + "q_norm", {VectorOf(self + "q_norm.weight", config_.heads * hd)},
                   HeadSlices(config_.heads, hd));
  norm.k_norm =
      VectorShards(self + "k_norm", {VectorOf(self + "k_norm.weight", kv_heads * hd)},
                   HeadSlices(kv_heads, hd));
  p.ops.push_back(norm);
}

// Heads as wide as attention wants them, behind all that goes by their own width.
void Builder::WidenHeads(backend::AttentionOp* attention, const QkvBuffers& buffers) {
  if (buffers.own == buffers.stored) return;
  backend::Program& p = *program_;
  if (attention->bias != backend::kNone) p.ops.push_back(backend::AddBiasOp{attention->bias, buffers.own});
  const backend::HeadDims own = config_.Heads(), stored = config_.StoredHeads();
  backend::ResizeHeadsOp resize = {buffers.own, buffers.stored, own.key, stored.key, attention->heads, buffers.kv_heads,
                                   attention->q_norm, attention->k_norm};
  if (own.value != own.key || stored.value != stored.key) {
    resize.value_from = own.value;
    resize.value_to = stored.value;
  }
  p.ops.push_back(resize);
  attention->bias = attention->q_norm = attention->k_norm = backend::kNone;
  attention->qkv = buffers.stored;
}

// What attention gives, in heads of the model's own width.
backend::BufferId Builder::NarrowHeads() {
  if (narrow_attention_ < 0) return attention_;
  program_->ops.push_back(
      backend::ResizeHeadsOp{attention_, narrow_attention_, config_.StoredHeads().value, config_.ValueDim()});
  return narrow_attention_;
}

void Builder::Attention(const std::string& prefix) {
  backend::Program& p = *program_;
  const AttentionConfig& has = config_.attention;
  const size_t layer = p.layer_ends.size();
  const LayerAttention own = config_.AttentionOf(layer);
  const int32_t kv_heads = config_.KvHeadsOf(layer);
  const std::string self = prefix + "self_attn.";
  const int32_t heads = config_.heads / ranks_;
  backend::AttentionOp attention = {};
  // A window that no position can be behind is none: no pages to free, and one pool for all layers.
  attention.cache = CacheOf(own.window >= config_.max_position ? 0 : own.window, kv_heads);
  auto& cache = std::get<backend::PagedCache>(p.caches[static_cast<size_t>(attention.cache)]);
  attention.layer = cache.layers++;
  const QkvBuffers buffers = QkvOf(cache, heads);
  if (attention_ < 0) {
    attention_ = AddBuffer("attention", int64_t{heads} * cache.value_dim);
    if (cache.value_dim != config_.ValueDim()) {
      narrow_attention_ = AddBuffer("attention.narrow", int64_t{heads} * config_.ValueDim());
    }
  }
  attention.qkv = buffers.own;
  attention.out = attention_;
  attention.heads = heads;
  attention.rope = own.rope == kNoRope ? backend::kNone : own.rope;
  attention.scale = config_.AttentionScale();
  attention.value_scale = has.value_scale;
  AddHeads(&attention, prefix, kv_heads);
  AddHeadNorms(&attention, self, kv_heads);
  if (config_.HasSinks(layer)) {
    attention.sinks = VectorShards(self + "sinks", {VectorOf(SinksName(*checkpoint_, self), config_.heads)},
                                   HeadSlices(config_.heads, 1));
  }
  WidenHeads(&attention, buffers);
  p.ops.push_back(attention);
  // Parts end where heads end, so that a rank's part is its own heads.
  const std::string o_proj = self + "o_proj";
  const int64_t width = int64_t{config_.heads} * config_.ValueDim();
  const std::vector<int64_t> splits = SplitAt(width, config_.ValueDim());
  const std::string norm_after = NormNamesOf(config_.norms).after_attention;
  AddProduct(NarrowHeads(), ColumnShards(o_proj, {Linear(o_proj, config_.hidden, width)}, splits, 1),
             has.o_bias ? o_proj + ".bias" : "", norm_after.empty() ? "" : prefix + norm_after);
}

}  // namespace mainarch::model
