// SPDX-License-Identifier: MIT
#include "model/builder.h"

#include <algorithm>
#include <cmath>

#include "model/linear.h"
#include "model/rope.h"

namespace mainarch::model {
namespace {

using backend::BufferId;
using backend::BufferType;
using backend::kSplitParts;
using backend::Weight;
using backend::WeightId;
using backend::WeightLayout;
using backend::WeightSlice;

// MXFP4 groups are 32 columns; every other format's step divides 32.
constexpr int64_t kColumnUnit = 32;
// Rows of a vocabulary shard: whole panels, so that shards do not meet inside one.
constexpr int64_t kVocabUnit = 16;

// kSplitParts + 1 boundaries over n, at multiples of unit except the last.
std::vector<int64_t> SplitAt(int64_t n, int64_t unit) {
  std::vector<int64_t> splits;
  for (int i = 0; i < kSplitParts; ++i) splits.push_back(n / unit * i / kSplitParts * unit);
  splits.push_back(n);
  return splits;
}

}  // namespace

Builder::Builder(const ModelConfig& config, std::shared_ptr<const file::Checkpoint> checkpoint,
                 int32_t ranks)
    : config_(config),
      checkpoint_(std::move(checkpoint)),
      ranks_(ranks),
      program_(std::make_shared<backend::Program>()) {
  backend::Program& p = *program_;
  p.ranks = ranks;
  p.hidden = config.hidden;
  p.vocab = config.vocab;
  p.experts = config.experts;
  p.experts_per_token = config.experts_per_token;
  p.rms_eps = config.rms_eps;
  p.max_position = config.max_position;
  p.ropes.push_back(MakeRope(config.rope));
  p.storage = checkpoint_;
  p.x = AddBuffer("x", config.hidden);
  CheckHeads();
}

void Builder::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void Builder::CheckHeads() {
  if (config_.head_dim % 16 != 0) {
    Fail(Error(Code::kUnsupported, checkpoint_->directory(), ": head_dim ", config_.head_dim,
               " is not a multiple of 16"));
  }
  if (config_.heads % ranks_ != 0) {
    Fail(Error(Code::kUnsupported, checkpoint_->directory(), ": ", config_.heads,
               " attention heads do not divide over ", ranks_, " ranks"));
  }
  const int32_t small = std::min(config_.kv_heads, ranks_);
  if (std::max(config_.kv_heads, ranks_) % small != 0) {
    Fail(Error(Code::kUnsupported, checkpoint_->directory(), ": ", config_.kv_heads,
               " key/value heads do not divide over ", ranks_, " ranks"));
  }
}

BufferId Builder::AddBuffer(const std::string& label, int64_t width, int32_t slots,
                            BufferType type) {
  program_->buffers.push_back({label, type, width, slots});
  return static_cast<BufferId>(program_->buffers.size() - 1);
}

WeightId Builder::AddWeight(Weight weight) {
  program_->weights.push_back(std::move(weight));
  return static_cast<WeightId>(program_->weights.size() - 1);
}

quant::Matrix Builder::Linear(const std::string& name, int64_t rows, int64_t cols) {
  if (!status_.ok()) return {};
  auto matrix = FindLinear(*checkpoint_, name, rows, cols);
  if (!matrix.ok()) {
    Fail(matrix.status());
    return {};
  }
  return *matrix;
}

WeightId Builder::Vector(const std::string& name, int64_t size) {
  Weight weight;
  weight.label = name;
  weight.layout = WeightLayout::kVector;
  if (status_.ok()) {
    auto vector = FindVector(*checkpoint_, name, size);
    if (vector.ok()) {
      weight.sources.push_back(*vector);
    } else {
      Fail(vector.status());
    }
  }
  weight.ranks.assign(static_cast<size_t>(ranks_), {WeightSlice{0, 0, 1, 0, size}});
  return AddWeight(std::move(weight));
}

WeightId Builder::Replicated(const std::string& name, int64_t rows, int64_t cols,
                             WeightLayout layout) {
  Weight weight;
  weight.label = name;
  weight.layout = layout;
  weight.sources.push_back(Linear(name, rows, cols));
  weight.ranks.assign(static_cast<size_t>(ranks_), {WeightSlice{0, 0, rows, 0, cols}});
  return AddWeight(std::move(weight));
}

Builder::ColumnRange Builder::RankPart(const std::vector<int64_t>& splits, int32_t rank) const {
  const int32_t parts = kSplitParts / ranks_;
  return {splits[static_cast<size_t>(rank * parts)], splits[static_cast<size_t>((rank + 1) * parts)]};
}

int64_t Builder::WidestPart(const std::vector<int64_t>& splits) const {
  int64_t widest = 0;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const auto [begin, end] = RankPart(splits, rank);
    widest = std::max(widest, end - begin);
  }
  return widest;
}

WeightId Builder::ColumnShards(const std::string& label, std::vector<quant::Matrix> sources,
                               const std::vector<int64_t>& splits, int32_t groups) {
  Weight weight;
  weight.label = label;
  weight.groups = groups;
  weight.splits = splits;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const auto [begin, end] = RankPart(splits, rank);
    std::vector<WeightSlice> slices;
    for (int32_t g = 0; g < groups; ++g) {
      slices.push_back({g, 0, sources[static_cast<size_t>(g)].rows, begin, end});
    }
    weight.ranks.push_back(std::move(slices));
  }
  weight.sources = std::move(sources);
  return AddWeight(std::move(weight));
}

WeightId Builder::GateUpShards(const std::string& label, std::vector<quant::Matrix> sources,
                               const std::vector<int64_t>& splits, int32_t groups) {
  Weight weight;
  weight.label = label;
  weight.layout = WeightLayout::kGateUp;
  weight.groups = groups;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const auto [begin, end] = RankPart(splits, rank);
    std::vector<WeightSlice> slices;
    for (int32_t g = 0; g < 2 * groups; ++g) {
      slices.push_back({g, begin, end, 0, sources[static_cast<size_t>(g)].cols});
    }
    weight.ranks.push_back(std::move(slices));
  }
  weight.sources = std::move(sources);
  return AddWeight(std::move(weight));
}

// Rows of this rank's query heads, then of its key head(s), then value head(s). With fewer key/value
// heads than ranks, several ranks hold the same one.
WeightId Builder::QkvShards(const std::string& prefix) {
  const int64_t hd = config_.head_dim, heads = config_.heads, kv = config_.kv_heads;
  Weight weight;
  weight.label = prefix + "self_attn.qkv";
  weight.sources = {Linear(prefix + "self_attn.q_proj", heads * hd, config_.hidden),
                    Linear(prefix + "self_attn.k_proj", kv * hd, config_.hidden),
                    Linear(prefix + "self_attn.v_proj", kv * hd, config_.hidden)};
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const int64_t kv_begin = kv * rank / ranks_;
    const int64_t kv_end = kv_begin + std::max<int64_t>(1, kv / ranks_);
    weight.ranks.push_back(
        {{0, heads * rank / ranks_ * hd, heads * (rank + 1) / ranks_ * hd, 0, config_.hidden},
         {1, kv_begin * hd, kv_end * hd, 0, config_.hidden},
         {2, kv_begin * hd, kv_end * hd, 0, config_.hidden}});
  }
  return AddWeight(std::move(weight));
}

void Builder::AddProduct(BufferId in, WeightId w) {
  if (ranks_ == 1) {
    program_->ops.push_back(backend::MatmulAddOp{in, w, program_->x});
    return;
  }
  if (partial_ < 0) partial_ = AddBuffer("partial", config_.hidden);
  program_->ops.push_back(backend::MatmulOp{in, w, partial_});
  program_->ops.push_back(backend::AllReduceAddOp{partial_, program_->x});
}

void Builder::Embed(const std::string& table) {
  const WeightId w = Replicated(table, config_.vocab, config_.hidden, WeightLayout::kTable);
  const quant::Format format = program_->weights[static_cast<size_t>(w)].sources[0].format;
  if (format != quant::Format::kBF16 && format != quant::Format::kF16 &&
      format != quant::Format::kF32) {
    Fail(Error(Code::kUnsupported, checkpoint_->directory(), ": ", table, " is ",
               quant::NameOf(format), "; an embedding must be BF16, F16 or F32"));
  }
  program_->ops.push_back(backend::EmbedOp{w, program_->x});
}

void Builder::Attention(const std::string& prefix) {
  backend::Program& p = *program_;
  const int32_t heads = config_.heads / ranks_;
  if (qkv_ < 0) {
    backend::PagedCache cache;
    cache.label = "kv";
    cache.kv_heads = std::max(1, config_.kv_heads / ranks_);
    cache.key_dim = cache.value_dim = config_.head_dim;
    qkv_ = AddBuffer("qkv", int64_t{heads + 2 * cache.kv_heads} * config_.head_dim);
    attention_ = AddBuffer("attention", int64_t{heads} * config_.head_dim);
    p.caches.push_back(std::move(cache));
  }
  p.ops.push_back(backend::NormMatmulOp{p.x, Vector(prefix + "input_layernorm.weight", p.hidden),
                                        QkvShards(prefix), qkv_});
  backend::AttentionOp attention = {};
  attention.qkv = qkv_;
  attention.out = attention_;
  attention.layer = std::get<backend::PagedCache>(p.caches[0]).layers++;
  attention.heads = heads;
  attention.scale = 1 / std::sqrt(static_cast<double>(config_.head_dim));
  attention.q_norm = Vector(prefix + "self_attn.q_norm.weight", config_.head_dim);
  attention.k_norm = Vector(prefix + "self_attn.k_norm.weight", config_.head_dim);
  p.ops.push_back(attention);
  // Parts end where heads end, so that a rank's part is its own heads.
  const std::string o_proj = prefix + "self_attn.o_proj";
  const int64_t width = int64_t{config_.heads} * config_.head_dim;
  const std::vector<int64_t> splits = SplitAt(width, config_.head_dim);
  AddProduct(attention_,
             ColumnShards(o_proj, {Linear(o_proj, config_.hidden, width)}, splits, 1));
}

void Builder::DenseFfn(const std::string& prefix) {
  const std::vector<int64_t> splits = SplitAt(config_.intermediate, kColumnUnit);
  if (act_ < 0) act_ = AddBuffer("act", WidestPart(splits));
  const WeightId gate_up =
      GateUpShards(prefix + "mlp.gate_up",
                   {Linear(prefix + "mlp.gate_proj", config_.intermediate, config_.hidden),
                    Linear(prefix + "mlp.up_proj", config_.intermediate, config_.hidden)},
                   splits, 1);
  program_->ops.push_back(backend::NormGateUpOp{
      program_->x, Vector(prefix + "post_attention_layernorm.weight", config_.hidden), gate_up,
      act_});
  const std::string down = prefix + "mlp.down_proj";
  AddProduct(act_, ColumnShards(down, {Linear(down, config_.hidden, config_.intermediate)}, splits, 1));
}

void Builder::MoeFfn(const std::string& prefix) {
  backend::Program& p = *program_;
  const int32_t k = config_.experts_per_token;
  const int64_t width = config_.moe_intermediate;
  const std::vector<int64_t> splits = SplitAt(width, kColumnUnit);
  if (moe_h_ < 0) {
    moe_h_ = AddBuffer("moe.h", config_.hidden);
    moe_ids_ = AddBuffer("moe.ids", k, 1, BufferType::kI32);
    moe_weights_ = AddBuffer("moe.weights", k);
    moe_act_ = AddBuffer("moe.act", WidestPart(splits), k);
  }
  std::vector<quant::Matrix> gate_up, down;
  for (int32_t e = 0; e < config_.experts && status_.ok(); ++e) {
    const std::string expert = absl::StrCat(prefix, "mlp.experts.", e, ".");
    gate_up.push_back(Linear(expert + "gate_proj", width, config_.hidden));
    gate_up.push_back(Linear(expert + "up_proj", width, config_.hidden));
    down.push_back(Linear(expert + "down_proj", config_.hidden, width));
  }
  if (!status_.ok()) return;
  p.ops.push_back(backend::RouterOp{
      p.x, Vector(prefix + "post_attention_layernorm.weight", config_.hidden),
      Replicated(prefix + "mlp.gate", config_.experts, config_.hidden, WeightLayout::kPanels),
      moe_h_, moe_ids_, moe_weights_, config_.norm_topk_prob});
  p.ops.push_back(backend::ExpertsGateUpOp{
      moe_h_, moe_ids_,
      GateUpShards(prefix + "mlp.experts.gate_up", std::move(gate_up), splits, config_.experts),
      moe_act_});
  const WeightId down_id =
      ColumnShards(prefix + "mlp.experts.down_proj", std::move(down), splits, config_.experts);
  if (ranks_ == 1) {
    p.ops.push_back(
        backend::ExpertsDownOp{moe_act_, moe_ids_, moe_weights_, down_id, p.x, /*add=*/true});
    return;
  }
  if (partial_ < 0) partial_ = AddBuffer("partial", config_.hidden);
  p.ops.push_back(
      backend::ExpertsDownOp{moe_act_, moe_ids_, moe_weights_, down_id, partial_, /*add=*/false});
  p.ops.push_back(backend::AllReduceAddOp{partial_, p.x});
}

void Builder::EndLayer() {
  program_->layer_ends.push_back(static_cast<int32_t>(program_->ops.size()) - 1);
}

void Builder::Logits(const std::string& norm, const std::string& head) {
  Weight weight;
  weight.label = head;
  weight.sources.push_back(Linear(head, config_.vocab, config_.hidden));
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const int64_t unit = config_.vocab / kVocabUnit;
    const int64_t begin = unit * rank / ranks_ * kVocabUnit;
    const int64_t end = rank + 1 == ranks_ ? config_.vocab : unit * (rank + 1) / ranks_ * kVocabUnit;
    weight.ranks.push_back({WeightSlice{0, begin, end, 0, config_.hidden}});
  }
  const WeightId norm_id = Vector(norm, config_.hidden);
  program_->ops.push_back(
      backend::LogitsOp{program_->x, norm_id, AddWeight(std::move(weight))});
}

StatusOr<std::shared_ptr<const backend::Program>> Builder::Finish() {
  RETURN_IF_ERROR(status_);
  RETURN_IF_ERROR(backend::Check(*program_));
  return std::shared_ptr<const backend::Program>(std::move(program_));
}

}  // namespace mainarch::model
