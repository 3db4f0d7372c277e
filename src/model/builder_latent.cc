// SPDX-License-Identifier: MIT
//
// Latent attention, absorbed: what makes keys of latents is multiplied into queries, and what makes values into
// what attention gives, so that the cache holds latents alone and every head reads the same. Of one row and of many
// it is the same: bits do not depend on how a prompt is cut. Ranks have their own heads, and each the latents.
#include <cstring>
#include <utility>

#include "model/builder.h"
#include "model/splits.h"
#include "model/tensor_names.h"

namespace mainarch::model {

using backend::Weight;
using backend::WeightId;
using backend::WeightLayout;
using backend::WeightSlice;

int32_t Builder::LatentCache() {
  std::vector<backend::Cache>& caches = program_->caches;
  if (caches.empty()) {
    const LatentConfig& l = config_.latent;
    backend::PagedCache cache;
    cache.label = "latents";
    cache.kv_heads = 1;
    cache.key_dim = l.turning + l.latent;
    cache.value_dim = l.latent;
    cache.replicas = ranks_;
    caches.push_back(std::move(cache));
  }
  return 0;
}

// latent_q_: of each head of this rank what stays, then what turns.
void Builder::LatentQueries(const std::string& self, WeightId norm) {
  backend::Program& p = *program_;
  const LatentConfig& l = config_.latent;
  const int64_t rows = int64_t{config_.heads} * config_.head_dim;
  const int64_t cols = l.q_latent > 0 ? l.q_latent : config_.hidden;
  const std::string name = self + (l.q_latent > 0 ? "q_b_proj" : "q_proj");
  Weight weight;
  weight.label = name;
  weight.sources = {Linear(name, rows, cols)};
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    weight.ranks.push_back({WeightSlice{0, rows * rank / ranks_, rows * (rank + 1) / ranks_, 0, cols}});
  }
  const WeightId w = AddWeight(std::move(weight));
  if (l.q_latent == 0) {
    p.ops.push_back(backend::NormMatmulOp{p.x, norm, w, latent_q_});
    return;
  }
  p.ops.push_back(backend::NormMatmulOp{
      p.x, norm, Replicated(self + "q_a_proj", cols, config_.hidden, WeightLayout::kPanels), latent_q_a_});
  p.ops.push_back(backend::AddNormedOp{latent_q_a_, Norm(self + "q_a_layernorm.weight", cols), 1,
                                       latent_q_normed_, /*add=*/false, kLatentEps});
  p.ops.push_back(backend::MatmulOp{latent_q_normed_, w, latent_q_});
}

// A group a head of each rank; `heads`: of all.
WeightId Builder::LatentHeads(const std::string& label, std::vector<quant::Matrix> sources,
                              std::vector<WeightSlice> heads) {
  Weight weight;
  weight.label = label;
  weight.sources = std::move(sources);
  weight.groups = config_.heads / ranks_;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const auto first = heads.begin() + int64_t{rank} * weight.groups;
    weight.ranks.emplace_back(first, first + weight.groups);
  }
  return AddWeight(std::move(weight));
}

namespace {

// Whether FP8 blocks of each head's rows of keys are its own and whole, so that they can be turned as they are.
bool HasOwnBlocks(const quant::Matrix& kv_b, const LatentConfig& l) {
  return kv_b.format == quant::Format::kFp8Block && l.still % kv_b.block_rows == 0 &&
         (l.still + l.value) % kv_b.block_rows == 0;
}

// Bytes of one head's codes and scales.
size_t TurnedBytes(const quant::Matrix& kv_b, const LatentConfig& l) {
  const int64_t blocks = l.still / kv_b.block_rows * ((l.latent + kv_b.block_cols - 1) / kv_b.block_cols);
  return static_cast<size_t>(l.still * int64_t{l.latent}) + static_cast<size_t>(blocks) * BytesOf(kv_b.scale_dtype);
}

// `still` rows of FP8 blocks from `row` on, a block's first, turned: codes and then scales into `to`.
quant::Matrix TurnBlocks(const quant::Matrix& kv_b, const LatentConfig& l, int64_t row, uint8_t* to) {
  const int64_t across = (l.latent + kv_b.block_cols - 1) / kv_b.block_cols, down = l.still / kv_b.block_rows;
  const size_t codes = static_cast<size_t>(l.still * int64_t{l.latent}), size = BytesOf(kv_b.scale_dtype);
  for (int64_t i = 0; i < l.still; ++i) {
    for (int64_t j = 0; j < l.latent; ++j) to[j * l.still + i] = kv_b.data[static_cast<size_t>((row + i) * l.latent + j)];
  }
  for (int64_t i = 0; i < down; ++i) {
    for (int64_t j = 0; j < across; ++j) {
      const size_t from = static_cast<size_t>((row / kv_b.block_rows + i) * across + j);
      std::memcpy(to + codes + static_cast<size_t>(j * down + i) * size, kv_b.scale.data() + from * size, size);
    }
  }
  quant::Matrix turned = kv_b;
  turned.data = {to, codes};
  turned.scale = {to + codes, static_cast<size_t>(across * down) * size};
  std::swap(turned.block_rows, turned.block_cols);
  return turned;
}

}  // namespace

// [latent, still] of each head: the rows of kv_b_proj that make its keys, turned. Plain types are where they lie, whole
// FP8 blocks are turned; others become fp32.
WeightId Builder::LatentKeys(const std::string& self, const quant::Matrix& kv_b) {
  const LatentConfig& l = config_.latent;
  const bool plain = (kv_b.format == quant::Format::kBF16 || kv_b.format == quant::Format::kF16 ||
                      kv_b.format == quant::Format::kF32) &&
                     kv_b.col_step == 0 && kv_b.paired_rows == 0;
  const size_t count = static_cast<size_t>(l.still) * static_cast<size_t>(l.latent);
  std::vector<quant::Matrix> sources;
  std::vector<WeightSlice> heads;
  const bool blocks = HasOwnBlocks(kv_b, l);
  const size_t bytes = blocks ? (TurnedBytes(kv_b, l) + 3) / 4 * 4 : count * sizeof(float);
  uint8_t* const kept = plain ? nullptr : Keep(static_cast<size_t>(config_.heads) * bytes);
  for (int32_t h = 0; h < config_.heads; ++h) {
    const int64_t row = int64_t{h} * (l.still + l.value);
    quant::Matrix turned = kv_b;
    if (plain) {
      const size_t size = static_cast<size_t>(quant::RowBytes(kv_b.format, 1));
      turned.data = kv_b.data.subspan(static_cast<size_t>(row * l.latent) * size, count * size);
      turned.row_step = 1;
      turned.col_step = l.latent;
    } else if (blocks) {
      turned = TurnBlocks(kv_b, l, row, kept + static_cast<size_t>(h) * bytes);
    } else {
      uint8_t* const values = kept + static_cast<size_t>(h) * bytes;
      for (int64_t i = 0; i < l.still; ++i) {
        quant::DecodeRow(kv_b, row + i, 0, l.latent, reinterpret_cast<float*>(values) + i * l.latent);
      }
      turned = quant::Matrix();
      turned.name = kv_b.name;
      turned.format = quant::Format::kF32;
      turned.data = {values, bytes};
      turned.row_step = 1;
      turned.col_step = l.latent;
    }
    turned.rows = l.latent;
    turned.cols = l.still;
    sources.push_back(turned);
    heads.push_back({h, 0, l.latent, 0, l.still});
  }
  return LatentHeads(self + "kv_b_proj.k", std::move(sources), std::move(heads));
}

// [value, latent] of each head.
WeightId Builder::LatentValues(const std::string& self, const quant::Matrix& kv_b) {
  const LatentConfig& l = config_.latent;
  std::vector<WeightSlice> heads;
  for (int32_t h = 0; h < config_.heads; ++h) {
    const int64_t row = int64_t{h} * (l.still + l.value) + l.still;
    heads.push_back({0, row, row + l.value, 0, l.latent});
  }
  return LatentHeads(self + "kv_b_proj.v", {kv_b}, std::move(heads));
}

WeightId Builder::LatentApart(const std::string& self, const char* name, int64_t rows, int64_t cols) {
  std::vector<quant::Matrix> sources;
  std::vector<WeightSlice> heads;
  for (int32_t h = 0; h < config_.heads; ++h) {
    sources.push_back(Linear(absl::StrCat(self, "heads.", h, ".", name), rows, cols));
    heads.push_back({h, 0, rows, 0, cols});
  }
  return LatentHeads(self + name, std::move(sources), std::move(heads));
}

void Builder::LatentAttention(const std::string& prefix) {
  if (!status_.ok()) return;
  backend::Program& p = *program_;
  const LatentConfig& l = config_.latent;
  const int32_t heads = config_.heads / ranks_, key = l.turning + l.latent;
  const std::string self = prefix + "self_attn.";
  if (latent_q_ < 0) {
    latent_q_ = AddBuffer("latent.q", int64_t{heads} * config_.head_dim);
    latent_kv_ = AddBuffer("latent.kv", key);
    if (l.q_latent > 0) {
      latent_q_a_ = AddBuffer("latent.q_a", l.q_latent);
      latent_q_normed_ = AddBuffer("latent.q_a.normed", l.q_latent);
    }
    qkv_ = AddBuffer("qkv", int64_t{heads + 1} * key + l.latent);
    attention_ = AddBuffer("attention", int64_t{heads} * l.latent);
    latent_out_ = AddBuffer("latent.out", int64_t{heads} * config_.StoredHeads().value);
    if (config_.StoredHeads().value != l.value) {
      narrow_attention_ = AddBuffer("latent.out.narrow", int64_t{heads} * l.value);
    }
  }
  const WeightId norm = NormBefore(prefix, NormNamesOf(config_.norms).before_attention);
  LatentQueries(self, norm);
  p.ops.push_back(backend::NormMatmulOp{
      p.x, norm, Replicated(self + "kv_a_proj_with_mqa", key, config_.hidden, WeightLayout::kPanels), latent_kv_});
  const bool apart = checkpoint_->Find(self + "heads.0.k_b_proj.weight") != nullptr;
  quant::Matrix kv_b;
  if (!apart) kv_b = Linear(self + "kv_b_proj", int64_t{config_.heads} * (l.still + l.value), l.latent);
  if (!status_.ok()) return;
  const WeightId keys = apart ? LatentApart(self, "k_b_proj", l.latent, l.still) : LatentKeys(self, kv_b);
  const WeightId values = apart ? LatentApart(self, "v_b_proj", l.value, l.latent) : LatentValues(self, kv_b);
  p.ops.push_back(backend::HeadsMatmulOp{latent_q_, keys, qkv_, 0, config_.head_dim, l.turning, key});
  p.ops.push_back(backend::LatentOp{latent_q_, latent_kv_, qkv_, Norm(self + "kv_a_layernorm.weight", l.latent),
                                    kLatentEps, 0, heads, l.still, l.turning, l.latent, l.pairs});
  backend::AttentionOp attention = {};
  attention.qkv = qkv_;
  attention.out = attention_;
  attention.cache = LatentCache();
  attention.layer = std::get<backend::PagedCache>(p.caches[static_cast<size_t>(attention.cache)]).layers++;
  attention.heads = heads;
  attention.rope = backend::kNone;
  attention.scale = config_.AttentionScale();
  p.ops.push_back(attention);
  // As far apart as heads of that size are elsewhere, and cut like those.
  const int32_t wide = config_.StoredHeads().value;
  p.ops.push_back(backend::HeadsMatmulOp{attention_, values, latent_out_, 0, l.latent, 0, wide});
  if (wide != l.value) p.ops.push_back(backend::ResizeHeadsOp{latent_out_, narrow_attention_, wide, l.value});
  const std::string o_proj = self + "o_proj";
  const int64_t width = int64_t{config_.heads} * l.value;
  AddProduct(wide == l.value ? latent_out_ : narrow_attention_, ColumnShards(o_proj, {Linear(o_proj, config_.hidden, width)}, SplitAt(width, l.value), 1),
             "", "");
}

}  // namespace mainarch::model
