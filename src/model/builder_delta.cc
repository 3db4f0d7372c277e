// SPDX-License-Identifier: MIT
//
// Layers of a gated delta net, and the head that drafts. A rank has key heads, with all value heads that go
// with them (models.md §3.3).
#include <algorithm>

#include "model/builder.h"
#include "model/linear.h"
#include "model/splits.h"
#include "model/tensor_names.h"

namespace mainarch::model {
namespace {

using backend::Weight;
using backend::WeightId;
using backend::WeightLayout;
using backend::WeightSlice;

// Which of a delta net's products a row belongs to, in the order of GatedDeltaOp::in.
enum Part { kQ, kK, kV, kZ };

// First row and number of rows of one key head's share of a part, among those of one matrix.
struct Share {
  int64_t begin, count;
};

// As the checkpoint has them: all heads' q, k and v in one matrix and z in another, or all in one, key
// head by key head.
Share ShareOf(const DeltaConfig& d, Part part, int64_t key_head) {
  const int64_t values = d.value_heads / d.key_heads * int64_t{d.value_dim}, keys = d.key_dim;
  const int64_t count = part == kQ || part == kK ? keys : values;
  if (d.by_key_head) {
    const int64_t before[] = {0, keys, 2 * keys, 2 * keys + values};
    return {key_head * 2 * (keys + values) + before[part], count};
  }
  const int64_t before[] = {0, keys * d.key_heads, 2 * keys * d.key_heads, 0};
  return {before[part] + key_head * count, count};
}

}  // namespace

bool Builder::DeltaHeadsDivide(int32_t ranks) const {
  return config_.delta.key_heads == 0 || config_.delta.key_heads % ranks == 0;
}

// Key heads [first, last) of a rank.
Builder::ColumnRange Builder::KeyHeads(int32_t rank) const {
  const int64_t heads = config_.delta.key_heads;
  return {heads * rank / ranks_, heads * (rank + 1) / ranks_};
}

// q, k, v and z of this rank's heads: one product.
WeightId Builder::DeltaProduct(const std::string& self) {
  const DeltaConfig& d = config_.delta;
  const int64_t keys = int64_t{d.key_heads} * d.key_dim;
  const int64_t values = int64_t{d.value_heads} * d.value_dim;
  Weight weight;
  weight.label = self + "in";
  if (d.by_key_head) {
    weight.sources = {Linear(self + "in_proj_qkvz", 2 * (keys + values), config_.hidden)};
  } else {
    weight.sources = {Linear(self + "in_proj_qkv", 2 * keys + values, config_.hidden),
                      Linear(self + "in_proj_z", values, config_.hidden)};
  }
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    std::vector<WeightSlice>& slices = weight.ranks.emplace_back();
    const auto [first, last] = KeyHeads(rank);
    for (const Part part : {kQ, kK, kV, kZ}) {
      const int32_t source = part == kZ && !d.by_key_head ? 1 : 0;
      for (int64_t head = first; head < last; ++head) {
        const Share share = ShareOf(d, part, head);
        WeightSlice* const before = slices.empty() ? nullptr : &slices.back();
        if (before != nullptr && before->source == source && before->row_end == share.begin) {
          before->row_end += share.count;
        } else {
          slices.push_back(
              {source, share.begin, share.begin + share.count, 0, config_.hidden});
        }
      }
    }
  }
  return AddWeight(std::move(weight));
}

// b, then a, of this rank's value heads.
WeightId Builder::DeltaGates(const std::string& self) {
  const DeltaConfig& d = config_.delta;
  const int64_t heads = d.value_heads, ratio = d.value_heads / d.key_heads;
  Weight weight;
  weight.label = self + "gates";
  if (d.by_key_head) {
    weight.sources = {Linear(self + "in_proj_ba", 2 * heads, config_.hidden)};
  } else {
    weight.sources = {Linear(self + "in_proj_b", heads, config_.hidden),
                      Linear(self + "in_proj_a", heads, config_.hidden)};
  }
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    std::vector<WeightSlice>& slices = weight.ranks.emplace_back();
    const auto [first, last] = KeyHeads(rank);
    for (int32_t which = 0; which < 2; ++which) {
      if (!d.by_key_head) {
        slices.push_back({which, first * ratio, last * ratio, 0, config_.hidden});
        continue;
      }
      for (int64_t head = first; head < last; ++head) {
        const int64_t begin = (2 * head + which) * ratio;
        slices.push_back({0, begin, begin + ratio, 0, config_.hidden});
      }
    }
  }
  return AddWeight(std::move(weight));
}

// [channels, 1, taps] of this rank's channels.
WeightId Builder::DeltaConvolution(const std::string& self) {
  const DeltaConfig& d = config_.delta;
  const int64_t keys = int64_t{d.key_heads} * d.key_dim;
  const int64_t values = int64_t{d.value_heads} * d.value_dim;
  const std::string name = self + "conv1d.weight";
  auto conv = FindConvolution(*checkpoint_, name, 2 * keys + values, d.taps);
  if (!conv.ok()) Fail(conv.status());
  std::vector<std::vector<WeightSlice>> ranks;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    std::vector<WeightSlice>& slices = ranks.emplace_back();
    const auto [first, last] = KeyHeads(rank);
    const int64_t each = values / d.key_heads, taps = d.taps;
    for (const auto& [begin, end] :
         {ColumnRange(first * d.key_dim, last * d.key_dim),
          ColumnRange(keys + first * d.key_dim, keys + last * d.key_dim),
          ColumnRange(2 * keys + first * each, 2 * keys + last * each)}) {
      slices.push_back({0, 0, 1, begin * taps, end * taps});
    }
  }
  return VectorShards(name, {conv.ok() ? *conv : quant::Matrix()}, std::move(ranks));
}

int32_t Builder::DeltaCache(const backend::GatedDeltaOp& op) {
  std::vector<backend::Cache>& caches = program_->caches;
  for (size_t i = 0; i < caches.size(); ++i) {
    if (std::holds_alternative<backend::SlotCache>(caches[i])) return static_cast<int32_t>(i);
  }
  caches.push_back(backend::SlotCache{"states", 0, backend::DeltaStateBytes(op)});
  return static_cast<int32_t>(caches.size()) - 1;
}

void Builder::Delta(const std::string& prefix) {
  if (!status_.ok()) return;
  backend::Program& p = *program_;
  const DeltaConfig& d = config_.delta;
  const std::string self = prefix + "linear_attn.";
  backend::GatedDeltaOp op = {};
  op.key_heads = d.key_heads / ranks_;
  op.value_heads = d.value_heads / ranks_;
  op.key_dim = d.key_dim;
  op.value_dim = d.value_dim;
  op.taps = d.taps;
  const int64_t width = int64_t{op.value_heads} * d.value_dim;
  if (delta_in_ < 0) {
    delta_in_ = AddBuffer("delta.in", backend::DeltaChannels(op) + width);
    delta_gates_ = AddBuffer("delta.gates", 2 * op.value_heads);
    delta_out_ = AddBuffer("delta.out", width);
  }
  op.in = delta_in_;
  op.gates = delta_gates_;
  op.out = delta_out_;
  op.cache = DeltaCache(op);
  op.layer = std::get<backend::SlotCache>(p.caches[static_cast<size_t>(op.cache)]).layers++;
  const WeightId norm = NormBefore(prefix, NormNamesOf(config_.norms).before_attention);
  p.ops.push_back(backend::NormMatmulOp{p.x, norm, DeltaProduct(self), delta_in_});
  p.ops.push_back(backend::NormMatmulOp{p.x, norm, DeltaGates(self), delta_gates_});
  op.conv = DeltaConvolution(self);
  op.decay = VectorShards(self + "A_log", {VectorOf(self + "A_log", d.value_heads)},
                          HeadSlices(d.value_heads, 1));
  op.dt_bias = VectorShards(self + "dt_bias", {VectorOf(self + "dt_bias", d.value_heads)},
                            HeadSlices(d.value_heads, 1));
  op.norm = Vector(self + "norm.weight", d.value_dim);
  p.ops.push_back(op);
  const int64_t all = int64_t{d.value_heads} * d.value_dim;
  const std::string out_proj = self + "out_proj";
  AddProduct(delta_out_, ColumnShards(out_proj, {Linear(out_proj, config_.hidden, all)},
                                      SplitAt(all, d.value_dim), 1), "", "");
}

void Builder::TapNormed(const std::string& norm) {
  backend::Program& p = *program_;
  if (normed_ < 0) normed_ = AddBuffer("normed", p.hidden);
  p.ops.push_back(backend::AddNormedOp{p.x, Norm(norm, p.hidden), 1, normed_, /*add=*/false});
  const backend::BufferId kept = AddBuffer(absl::StrCat("tap.", p.taps.size()), p.hidden);
  p.taps.push_back(kept);
  p.ops.push_back(backend::TapOp{normed_, kept});
}

// x = fc of (norm(embedding), norm(hidden)): the first half of fc's columns is the embedding's.
void Builder::JoinTapped(const std::string& prefix) {
  backend::Program& p = *program_;
  const int64_t h = config_.hidden;
  p.caches.push_back(backend::SlotCache{"hidden", 1, h * int64_t{sizeof(float)}});
  const quant::Matrix fc = Linear(prefix + "fc", h, 2 * h);
  const auto half = [&](int64_t begin, const char* norm, const char* label) {
    const backend::BufferId out = AddBuffer(label, h);
    Weight weight;
    weight.label = absl::StrCat(prefix, "fc.", label);
    weight.sources = {fc};
    weight.ranks.assign(static_cast<size_t>(ranks_), {WeightSlice{0, 0, h, begin, begin + h}});
    p.ops.push_back(backend::NormMatmulOp{p.x, Norm(prefix + norm, h), AddWeight(std::move(weight)),
                                          out});
    return out;
  };
  p.ops.push_back(backend::InputOp{0, p.x, static_cast<int32_t>(p.caches.size()) - 1, 0, 0});
  const backend::BufferId hidden = half(h, "pre_fc_norm_hidden.weight", "draft.hidden");
  Embed(model_ + "embed_tokens");
  const backend::BufferId embedding = half(0, "pre_fc_norm_embedding.weight", "draft.embedding");
  p.ops.push_back(backend::AddNormedOp{embedding, backend::kNone, 1, p.x, /*add=*/false});
  p.ops.push_back(backend::AddNormedOp{hidden, backend::kNone, 1, p.x});
}

void Builder::DraftHead() {
  const std::string prefix = kDraftPrefix, layer = prefix + "layers.0.";
  DecideShared({layer});
  JoinTapped(prefix);
  Attention(layer);
  if (config_.experts > 0) {
    MoeFfn(layer);
  } else {
    DenseFfn(layer);
  }
  EndLayer();
  TapNormed(prefix + "norm.weight");
  Logits(prefix + "norm.weight", FindHead(*checkpoint_, config_).name);
}

}  // namespace mainarch::model
