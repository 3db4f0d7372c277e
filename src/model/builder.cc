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
  for (const RopeConfig& rope : config.more_ropes) p.ropes.push_back(MakeRope(rope));
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

quant::Matrix Builder::VectorOf(const std::string& name, int64_t size) {
  if (!status_.ok()) return {};
  auto vector = FindVector(*checkpoint_, name, size);
  if (!vector.ok()) {
    Fail(vector.status());
    return {};
  }
  return *vector;
}

WeightId Builder::Vector(const std::string& name, int64_t size) {
  return VectorShards(name, {VectorOf(name, size)},
                      std::vector<std::vector<WeightSlice>>(static_cast<size_t>(ranks_),
                                                            {WeightSlice{0, 0, 1, 0, size}}));
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

// With fewer key/value heads than ranks, several ranks hold the same one. Of a bias, which is a row,
// slices are columns.
std::vector<std::vector<WeightSlice>> Builder::QkvSlices(bool bias) const {
  const int64_t hd = config_.head_dim, heads = config_.heads, kv = config_.kv_heads;
  std::vector<std::vector<WeightSlice>> ranks;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    std::vector<WeightSlice>& slices = ranks.emplace_back();
    const auto add = [&](int32_t source, int64_t begin, int64_t end) {
      slices.push_back(bias ? WeightSlice{source, 0, 1, begin, end}
                            : WeightSlice{source, begin, end, 0, config_.hidden});
    };
    const int64_t first = heads * rank / ranks_, last = heads * (rank + 1) / ranks_;
    if (!config_.attention.output_gate) add(0, first * hd, last * hd);
    for (int64_t h = first; config_.attention.output_gate && h < last; ++h) {
      add(0, 2 * h * hd, (2 * h + 1) * hd);
    }
    const int64_t kv_begin = kv * rank / ranks_;
    const int64_t kv_end = kv_begin + std::max<int64_t>(1, kv / ranks_);
    add(1, kv_begin * hd, kv_end * hd);
    add(2, kv_begin * hd, kv_end * hd);
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

WeightId Builder::VectorShards(const std::string& label, std::vector<quant::Matrix> sources,
                               std::vector<std::vector<WeightSlice>> ranks) {
  Weight weight;
  weight.label = label;
  weight.layout = WeightLayout::kVector;
  weight.sources = std::move(sources);
  weight.ranks = std::move(ranks);
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

int32_t Builder::CacheOfWindow(int32_t window) {
  std::vector<backend::Cache>& caches = program_->caches;
  for (size_t i = 0; i < caches.size(); ++i) {
    const auto* cache = std::get_if<backend::PagedCache>(&caches[i]);
    if (cache != nullptr && cache->window == window) return static_cast<int32_t>(i);
  }
  backend::PagedCache cache;
  cache.label = window == 0 ? "kv" : absl::StrCat("kv of the last ", window);
  cache.kv_heads = std::max(1, config_.kv_heads / ranks_);
  cache.key_dim = cache.value_dim = config_.head_dim;
  cache.window = window;
  caches.push_back(std::move(cache));
  return static_cast<int32_t>(caches.size()) - 1;
}

// The products that make Q, K, V and the gate, and the biases of all.
void Builder::AddHeads(backend::AttentionOp* attention, const std::string& prefix) {
  backend::Program& p = *program_;
  const AttentionConfig& has = config_.attention;
  const int64_t hd = config_.head_dim, kv_rows = config_.kv_heads * hd;
  const int64_t q_rows = config_.heads * hd * (has.output_gate ? 2 : 1);
  const std::string self = prefix + "self_attn.";
  const WeightId norm = Vector(prefix + "input_layernorm.weight", p.hidden);
  Weight qkv;
  qkv.label = self + "qkv";
  qkv.sources = {Linear(self + "q_proj", q_rows, config_.hidden),
                 Linear(self + "k_proj", kv_rows, config_.hidden),
                 Linear(self + "v_proj", kv_rows, config_.hidden)};
  qkv.ranks = QkvSlices(/*bias=*/false);
  const quant::Matrix q_proj = qkv.sources[0];
  p.ops.push_back(
      backend::NormMatmulOp{p.x, norm, AddWeight(std::move(qkv)), attention->qkv});
  quant::Matrix q_bias;
  if (has.qkv_bias) {
    q_bias = VectorOf(self + "q_proj.bias", q_rows);
    attention->bias = VectorShards(self + "qkv.bias",
                                   {q_bias, VectorOf(self + "k_proj.bias", kv_rows),
                                    VectorOf(self + "v_proj.bias", kv_rows)},
                                   QkvSlices(/*bias=*/true));
  }
  if (!has.output_gate) return;
  if (gate_ < 0) gate_ = AddBuffer("gate", int64_t{attention->heads} * hd);
  attention->gate = gate_;
  Weight gate;
  gate.label = self + "gate";
  gate.sources = {q_proj};
  gate.ranks = GateSlices(/*bias=*/false);
  p.ops.push_back(backend::NormMatmulOp{p.x, norm, AddWeight(std::move(gate)), gate_});
  if (!has.qkv_bias) return;
  p.ops.push_back(backend::AddBiasOp{
      VectorShards(self + "gate.bias", {q_bias}, GateSlices(/*bias=*/true)), gate_});
}

void Builder::Attention(const std::string& prefix) {
  backend::Program& p = *program_;
  const AttentionConfig& has = config_.attention;
  const LayerAttention own = config_.AttentionOf(p.layer_ends.size());
  const std::string self = prefix + "self_attn.";
  const int32_t heads = config_.heads / ranks_;
  backend::AttentionOp attention = {};
  attention.cache = CacheOfWindow(own.window);
  auto& cache = std::get<backend::PagedCache>(p.caches[static_cast<size_t>(attention.cache)]);
  attention.layer = cache.layers++;
  if (qkv_ < 0) {
    qkv_ = AddBuffer("qkv", int64_t{heads + 2 * cache.kv_heads} * config_.head_dim);
    attention_ = AddBuffer("attention", int64_t{heads} * config_.head_dim);
  }
  attention.qkv = qkv_;
  attention.out = attention_;
  attention.heads = heads;
  attention.rope = own.rope == kNoRope ? backend::kNone : own.rope;
  attention.scale = 1 / std::sqrt(static_cast<double>(config_.head_dim));
  AddHeads(&attention, prefix);
  if (has.qk_norm) {
    attention.q_norm = Vector(self + "q_norm.weight", config_.head_dim);
    attention.k_norm = Vector(self + "k_norm.weight", config_.head_dim);
  }
  if (has.sinks) {
    std::vector<std::vector<WeightSlice>> ranks;
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      ranks.push_back({{0, 0, 1, int64_t{heads} * rank, int64_t{heads} * (rank + 1)}});
    }
    attention.sinks =
        VectorShards(self + "sinks", {VectorOf(self + "sinks", config_.heads)}, std::move(ranks));
  }
  p.ops.push_back(attention);
  // Parts end where heads end, so that a rank's part is its own heads.
  const std::string o_proj = self + "o_proj";
  const int64_t width = int64_t{config_.heads} * config_.head_dim;
  const std::vector<int64_t> splits = SplitAt(width, config_.head_dim);
  AddProduct(attention_,
             ColumnShards(o_proj, {Linear(o_proj, config_.hidden, width)}, splits, 1));
  if (has.o_bias) p.ops.push_back(backend::AddBiasOp{Vector(o_proj + ".bias", p.hidden), p.x});
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

void Builder::Tap() {
  backend::Program& p = *program_;
  const BufferId kept = AddBuffer(absl::StrCat("tap.", p.taps.size()), p.hidden);
  p.taps.push_back(kept);
  p.ops.push_back(backend::TapOp{p.x, kept});
}

void Builder::AddTapped(int32_t tap, const std::string& name) {
  backend::Program& p = *program_;
  const BufferId input = AddBuffer(absl::StrCat("input.", tap), p.hidden);
  p.ops.push_back(backend::InputOp{tap, input});
  // Every rank has all of the input, and makes the whole product.
  p.ops.push_back(backend::MatmulAddOp{
      input, Replicated(name, p.hidden, p.hidden, WeightLayout::kPanels), p.x});
}

void Builder::EndLayer() {
  program_->layer_ends.push_back(static_cast<int32_t>(program_->ops.size()) - 1);
}

void Builder::Decoder() {
  Embed("model.embed_tokens");
  for (int32_t layer = 0; layer < config_.layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    Attention(prefix);
    if (config_.sparse_layer[static_cast<size_t>(layer)]) {
      MoeFfn(prefix);
    } else {
      DenseFfn(prefix);
    }
    EndLayer();
  }
  Logits("model.norm.weight", config_.tied_embeddings ? "model.embed_tokens" : "lm_head");
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
