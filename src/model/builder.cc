// SPDX-License-Identifier: MIT
#include "model/builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "model/linear.h"
#include "model/rope.h"
#include "model/tensor_names.h"

namespace mainarch::model {
namespace {

using backend::BufferId;
using backend::BufferType;
using backend::kSplitParts;
using backend::Weight;
using backend::WeightId;
using backend::WeightLayout;
using backend::WeightSlice;

// Rows of a vocabulary shard: whole panels, so that shards do not meet inside one.
constexpr int64_t kVocabUnit = 16;

}  // namespace

Builder::Builder(const ModelConfig& config, std::shared_ptr<const file::Checkpoint> checkpoint,
                 int32_t ranks)
    : config_(config),
      checkpoint_(std::move(checkpoint)),
      ranks_(ranks),
      model_(ModelPrefix(*checkpoint_)),
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

bool Builder::HeadsDivide(int32_t ranks) const {
  for (size_t layer = 0; layer < static_cast<size_t>(config_.layers); ++layer) {
    const int32_t kv_heads = config_.KvHeadsOf(layer);
    if (std::max(kv_heads, ranks) % std::min(kv_heads, ranks) != 0) return false;
  }
  return DeltaHeadsDivide(ranks) && config_.heads % ranks == 0;
}

void Builder::CheckHeads() {
  const int32_t multiple = config_.attention.output_gate || config_.latent.latent > 0 ? 16 : 8;
  const backend::HeadDims own = config_.Heads(), stored = config_.StoredHeads();
  if (config_.head_dim % multiple != 0) {
    Fail(Error(Code::kUnsupported, checkpoint_->directory(), ": head_dim ", config_.head_dim,
               " is not a multiple of ", multiple));
  } else if (config_.latent.latent == 0 && own.value % multiple != 0) {
    Fail(Error(Code::kUnsupported, checkpoint_->directory(), ": v_head_dim ", own.value, " is not a multiple of ", multiple));
  } else if (config_.attention.output_gate && stored != own) {
    Fail(Error(Code::kUnsupported, checkpoint_->directory(), ": head_dim ", config_.head_dim,
               " with a gate, which caches here store as ", stored.key));
  }
  if (HeadsDivide(ranks_)) return;
  std::string counts;
  for (int32_t ranks = 1; ranks <= backend::kSplitParts; ranks *= 2) {
    if (HeadsDivide(ranks)) absl::StrAppend(&counts, counts.empty() ? "" : ", ", ranks);
  }
  const bool queries = config_.heads % ranks_ != 0;
  const bool delta = !queries && !DeltaHeadsDivide(ranks_);
  Fail(Error(Code::kUnsupported, checkpoint_->directory(), ": ",
             queries ? config_.heads : delta ? config_.delta.key_heads : config_.kv_heads,
             queries ? " attention heads" : delta ? " linear key heads" : " key/value heads",
             " do not divide over ", ranks_, " ranks; numbers of ranks that do: ", counts));
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

WeightId Builder::Norm(const std::string& name, int64_t size) {
  const WeightId id = Vector(name, size);
  if (config_.norms.plus_one) program_->weights[static_cast<size_t>(id)].offset = 1;
  return id;
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

WeightId Builder::VectorShards(const std::string& label, std::vector<quant::Matrix> sources,
                               std::vector<std::vector<WeightSlice>> ranks) {
  Weight weight;
  weight.label = label;
  weight.layout = WeightLayout::kVector;
  weight.sources = std::move(sources);
  weight.ranks = std::move(ranks);
  return AddWeight(std::move(weight));
}

void Builder::AddProduct(BufferId in, WeightId w, const std::string& bias,
                         const std::string& norm_after) {
  backend::Program& p = *program_;
  const bool plain = norm_after.empty() && config_.residual_scale == 1;
  BufferId to = p.x;
  if (!plain) {
    if (sum_ < 0) sum_ = AddBuffer("sum", config_.hidden);
    to = sum_;
  }
  if (ranks_ > 1) {
    if (partial_ < 0) partial_ = AddBuffer("partial", config_.hidden);
    p.ops.push_back(backend::MatmulOp{in, w, partial_});
    p.ops.push_back(backend::AllReduceAddOp{partial_, to, /*add=*/plain});
  } else if (plain) {
    p.ops.push_back(backend::MatmulAddOp{in, w, to});
  } else {
    p.ops.push_back(backend::MatmulOp{in, w, to});
  }
  if (!bias.empty()) p.ops.push_back(backend::AddBiasOp{Vector(bias, config_.hidden), to});
  if (plain) return;
  const WeightId norm = norm_after.empty() ? backend::kNone : Norm(norm_after, config_.hidden);
  p.ops.push_back(backend::AddNormedOp{to, norm, static_cast<float>(config_.residual_scale), p.x});
}

void Builder::Embed(const std::string& table) {
  const WeightId w = Replicated(table, config_.vocab, config_.hidden, WeightLayout::kTable);
  const quant::Format format = program_->weights[static_cast<size_t>(w)].sources[0].format;
  // As transformers does it, which has the factor in the type of the weights.
  double scale = config_.embedding_scale;
  if (scale != 1 && format == quant::Format::kBF16) {
    scale = double{quant::FloatFromBf16(quant::Bf16FromFloat(static_cast<float>(scale)))};
  } else if (scale != 1 && format == quant::Format::kF16) {
    scale = double{quant::FloatFromF16(quant::F16FromFloat(static_cast<float>(scale)))};
  }
  program_->ops.push_back(backend::EmbedOp{w, program_->x, static_cast<float>(scale)});
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
  std::vector<std::string> sparse;
  for (int32_t layer = 0; layer < config_.layers; ++layer) {
    if (!config_.sparse_layer[static_cast<size_t>(layer)]) continue;
    sparse.push_back(absl::StrCat(model_, "layers.", layer, "."));
  }
  DecideShared(sparse);
  Embed(model_ + "embed_tokens");
  for (int32_t layer = 0; layer < config_.layers; ++layer) {
    const std::string prefix = absl::StrCat(model_, "layers.", layer, ".");
    if (config_.IsDelta(static_cast<size_t>(layer))) {
      Delta(prefix);
    } else if (config_.latent.latent > 0) {
      LatentAttention(prefix);
    } else {
      Attention(prefix);
    }
    if (config_.sparse_layer[static_cast<size_t>(layer)]) {
      MoeFfn(prefix);
    } else {
      DenseFfn(prefix);
    }
    EndLayer();
  }
  if (drafted_) TapNormed(model_ + "norm.weight");
  const std::string norm = model_ + "norm.weight";
  if (program_->vectors) return LogitProduct(norm, 1, "identity", Identity());
  Logits(norm, FindHead(*checkpoint_, config_).name);
}

uint8_t* Builder::Keep(size_t bytes) {
  struct Storage {
    std::shared_ptr<const void> before;
    std::vector<uint8_t> bytes;
  };
  const auto storage = std::make_shared<Storage>();
  storage->before = program_->storage;
  storage->bytes.resize(bytes);
  program_->storage = storage;
  return storage->bytes.data();
}

quant::Matrix Builder::Identity() {
  const size_t n = static_cast<size_t>(config_.hidden);
  uint8_t* const values = Keep(2 * n * n);  // bf16
  const uint16_t one = quant::Bf16FromFloat(1);
  for (size_t i = 0; i < n; ++i) std::memcpy(values + 2 * (i * n + i), &one, sizeof(one));
  quant::Matrix matrix;
  matrix.name = "identity";
  matrix.rows = matrix.cols = config_.hidden;
  matrix.data = {values, 2 * n * n};
  return matrix;
}

void Builder::Logits(const std::string& norm, const std::string& head) {
  LogitProduct(norm, static_cast<float>(config_.logits_scale), head,
               Linear(head, config_.vocab, config_.hidden));
}

void Builder::LogitProduct(const std::string& norm, float factor, const std::string& label,
                           quant::Matrix head) {
  const int64_t rows = program_->logit_width(), unit = rows / kVocabUnit;
  Weight weight;
  weight.label = label;
  weight.sources.push_back(std::move(head));
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const int64_t begin = unit * rank / ranks_ * kVocabUnit;
    const int64_t end = rank + 1 == ranks_ ? rows : unit * (rank + 1) / ranks_ * kVocabUnit;
    weight.ranks.push_back({WeightSlice{0, begin, end, 0, config_.hidden}});
  }
  const WeightId norm_id = Norm(norm, config_.hidden);
  program_->weights[static_cast<size_t>(norm_id)].factor = factor;
  program_->ops.push_back(
      backend::LogitsOp{program_->x, norm_id, AddWeight(std::move(weight))});
}

StatusOr<std::shared_ptr<const backend::Program>> Builder::Finish() {
  RETURN_IF_ERROR(status_);
  RETURN_IF_ERROR(backend::Check(*program_));
  return std::shared_ptr<const backend::Program>(std::move(program_));
}

}  // namespace mainarch::model
