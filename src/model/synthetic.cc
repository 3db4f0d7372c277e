// SPDX-License-Identifier: MIT
#include "model/synthetic.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "file/directory_writer.h"
#include "file/safetensors_layout.h"
#include "kernels/quant/mxfp4.h"
#include "model/config_json.h"
#include "model/synthetic_values.h"
#include "model/tensor_names.h"
#include "quant/matrix.h"

namespace mainarch::model {
namespace {

using file::StoredTensor;
using quant::Format;

constexpr struct {
  absl::string_view name;
  SyntheticFormat format;
} kFormats[] = {{"bf16", SyntheticFormat::kBF16},
                {"f16", SyntheticFormat::kF16},
                {"f32", SyntheticFormat::kF32},
                {"fp8-block", SyntheticFormat::kFp8Block},
                {"fp8-channel", SyntheticFormat::kFp8Channel},
                {"mxfp4", SyntheticFormat::kMxfp4},
                {"mxfp4-attnfp8", SyntheticFormat::kMxfp4AttnFp8}};

constexpr int32_t kMaxShards = 256;          // all are open at once
constexpr int64_t kPanelElements = 1 << 16;  // fits the second-level cache as fp32
constexpr int64_t kFp8Block = 128;
// At the scale of a linear layer the logits of an untied head lie so close together that greedy
// decoding cannot be compared; this is what a tied head has.
constexpr float kHeadGain = 8;
constexpr float kRouterGain = 4;  // spreads the top experts

enum class Part : uint8_t { kNorm, kHeadNorm, kDecay, kBias, kSinks, kEmbedding, kHead, kRouter, kGates, kConvolution, kAttention, kMlp };

// One weight before it is stored as one tensor or two.
struct Weight {
  std::string name;  // of its tensor
  Part part;
  int64_t rows;
  int64_t cols;
  Format format = Format::kBF16;
  size_t stored = 0;  // index of its data among the stored tensors
  size_t scale = 0;   // and of its scales, where the format has them
};

Format FormatOf(Part part, SyntheticFormat format) {
  switch (format) {
    case SyntheticFormat::kBF16:
      return Format::kBF16;
    case SyntheticFormat::kF16:
      return Format::kF16;
    case SyntheticFormat::kF32:
      return Format::kF32;
    default:
      break;
  }
  if (part != Part::kAttention && part != Part::kMlp) return Format::kBF16;
  switch (format) {
    case SyntheticFormat::kFp8Block:
      return Format::kFp8Block;
    case SyntheticFormat::kFp8Channel:
      return Format::kFp8Channel;
    case SyntheticFormat::kMxfp4AttnFp8:
      return part == Part::kAttention ? Format::kFp8Channel : Format::kMxfp4;
    default:
      return Format::kMxfp4;
  }
}

bool IsVector(Part part) {
  return part == Part::kNorm || part == Part::kHeadNorm || part == Part::kDecay ||
         part == Part::kBias || part == Part::kSinks;
}

// Tensors under `name`, "model.layers.0.self_attn.".
void AddLatentAttention(const ModelConfig& config, const std::string& name, std::vector<Weight>* out) {
  const LatentConfig& l = config.latent;
  const int64_t hidden = config.hidden, heads = config.heads;
  const auto linear = [&](const char* proj, int64_t rows, int64_t cols) {
    out->push_back({absl::StrCat(name, proj, ".weight"), Part::kAttention, rows, cols});
  };
  if (l.q_latent > 0) {
    linear("q_a_proj", l.q_latent, hidden);
    out->push_back({name + "q_a_layernorm.weight", Part::kNorm, 1, l.q_latent});
    linear("q_b_proj", heads * config.head_dim, l.q_latent);
  } else {
    linear("q_proj", heads * config.head_dim, hidden);
  }
  linear("kv_a_proj_with_mqa", l.latent + l.turning, hidden);
  out->push_back({name + "kv_a_layernorm.weight", Part::kNorm, 1, l.latent});
  linear("kv_b_proj", heads * (l.still + l.value), l.latent);
  linear("o_proj", hidden, heads * l.value);
}

void AddAttention(const ModelConfig& config, size_t layer, const std::string& name, std::vector<Weight>* out) {
  if (config.latent.latent > 0) return AddLatentAttention(config, name, out);
  const AttentionConfig& has = config.attention;
  const int64_t hidden = config.hidden, head_dim = config.head_dim;
  const int64_t kv_heads = config.KvHeadsOf(layer), width = config.heads * head_dim, k_rows = kv_heads * head_dim;
  const int64_t v_rows = kv_heads * config.ValueDim();
  const int64_t q_rows = has.output_gate ? 2 * width : width;
  const auto linear = [&](const char* proj, int64_t rows, int64_t cols, bool bias) {
    out->push_back({absl::StrCat(name, proj, ".weight"), Part::kAttention, rows, cols});
    if (bias) out->push_back({absl::StrCat(name, proj, ".bias"), Part::kBias, 1, rows});
  };
  if (has.fused_qkv) {
    linear("qkv_proj", q_rows + k_rows + v_rows, hidden, has.qkv_bias);
  } else {
    linear("q_proj", q_rows, hidden, has.qkv_bias);
    linear("k_proj", k_rows, hidden, has.qkv_bias);
    linear("v_proj", v_rows, hidden, has.qkv_bias);
  }
  linear("o_proj", hidden, int64_t{config.heads} * config.ValueDim(), has.o_bias);
  if (has.qk_norm || has.wide_qk_norm) {
    const bool wide = has.wide_qk_norm;
    out->push_back({name + "q_norm.weight", Part::kNorm, 1, wide ? width : head_dim});
    out->push_back({name + "k_norm.weight", Part::kNorm, 1, wide ? k_rows : head_dim});
  }
  if (config.HasSinks(layer)) out->push_back({name + "sinks", Part::kSinks, 1, config.heads});
}

void AddMlp(const ModelConfig& config, const std::string& prefix, int64_t width,
            std::vector<Weight>* out) {
  const auto linear = [&](const char* proj, int64_t rows, int64_t cols) {
    out->push_back({absl::StrCat(prefix, proj, ".weight"), Part::kMlp, rows, cols});
    if (config.mlp_bias) {
      out->push_back({absl::StrCat(prefix, proj, ".bias"), Part::kBias, 1, rows});
    }
  };
  if (config.fused_gate_up) {
    linear("gate_up_proj", 2 * width, config.hidden);
  } else {
    linear("gate_proj", width, config.hidden);
    linear("up_proj", width, config.hidden);
  }
  linear("down_proj", config.hidden, width);
}

// Experts one by one: the forms in which all are in one tensor are transformers' to write.
void AddExperts(const ModelConfig& config, const std::string& prefix, std::vector<Weight>* out) {
  const ExpertTensors names = ExpertTensorsOf(config);
  const int64_t hidden = config.hidden, width = config.moe_intermediate;
  out->push_back({prefix + names.router + ".weight", Part::kRouter, config.experts, hidden});
  if (config.router.bias) {
    out->push_back({prefix + names.router + ".bias", Part::kBias, 1, config.experts});
  }
  if (config.router.correction) {
    out->push_back({prefix + names.correction, Part::kBias, 1, config.experts});
  }
  for (int32_t expert = 0; expert < config.experts; ++expert) {
    const std::string own = absl::StrCat(prefix, names.experts, expert, ".");
    out->push_back({absl::StrCat(own, names.gate, ".weight"), Part::kMlp, width, hidden});
    out->push_back({absl::StrCat(own, names.up, ".weight"), Part::kMlp, width, hidden});
    out->push_back({absl::StrCat(own, names.down, ".weight"), Part::kMlp, hidden, width});
  }
  if (config.shared_intermediate > 0) {
    AddMlp(config, prefix + names.shared, config.shared_intermediate, out);
  }
  if (config.shared_gate) {
    out->push_back({prefix + names.shared_gate + ".weight", Part::kRouter, 1, hidden});
  }
}

// Tensors under `name`, "model.layers.0.linear_attn.".
void AddDelta(const ModelConfig& config, const std::string& name, std::vector<Weight>* out) {
  const DeltaConfig& d = config.delta;
  const int64_t hidden = config.hidden, keys = int64_t{d.key_heads} * d.key_dim;
  const int64_t values = int64_t{d.value_heads} * d.value_dim, heads = d.value_heads;
  const auto linear = [&](const char* proj, int64_t rows, int64_t cols, Part part) {
    out->push_back({absl::StrCat(name, proj, ".weight"), part, rows, cols});
  };
  if (d.by_key_head) {
    linear("in_proj_qkvz", 2 * (keys + values), hidden, Part::kAttention);
    linear("in_proj_ba", 2 * heads, hidden, Part::kGates);
  } else {
    linear("in_proj_qkv", 2 * keys + values, hidden, Part::kAttention);
    linear("in_proj_z", values, hidden, Part::kAttention);
    linear("in_proj_b", heads, hidden, Part::kGates);
    linear("in_proj_a", heads, hidden, Part::kGates);
  }
  linear("conv1d", 2 * keys + values, d.taps, Part::kConvolution);
  linear("out_proj", hidden, values, Part::kAttention);
  out->push_back({name + "A_log", Part::kDecay, 1, heads});
  out->push_back({name + "dt_bias", Part::kBias, 1, heads});
  out->push_back({name + "norm.weight", Part::kHeadNorm, 1, d.value_dim});
}

// The layer that drafts.
void AddDraftHead(const ModelConfig& config, std::vector<Weight>* out) {
  const std::string prefix = kDraftPrefix, layer = prefix + "layers.0.";
  const int64_t hidden = config.hidden;
  out->push_back({prefix + "fc.weight", Part::kMlp, hidden, 2 * hidden});
  const NormNames norms = NormNamesOf(config.norms);
  for (const std::string& name :
       {prefix + "pre_fc_norm_embedding.weight", prefix + "pre_fc_norm_hidden.weight",
        prefix + "norm.weight", layer + norms.before_attention, layer + norms.before_ffn}) {
    out->push_back({name, Part::kNorm, 1, hidden});
  }
  AddAttention(config, 0, layer + "self_attn.", out);
  if (config.experts > 0) {
    AddExperts(config, layer, out);
  } else {
    AddMlp(config, layer + "mlp.", config.intermediate, out);
  }
}

std::vector<Weight> ListWeights(const ModelConfig& config, bool draft_head) {
  const int64_t hidden = config.hidden;
  std::vector<Weight> out;
  out.push_back({"model.embed_tokens.weight", Part::kEmbedding, config.vocab, hidden});
  out.push_back({"model.norm.weight", Part::kNorm, 1, hidden});
  if (!config.tied_embeddings) {
    out.push_back({"lm_head.weight", Part::kHead, config.vocab, hidden});
  }
  const NormNames norms = NormNamesOf(config.norms);
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    for (const std::string& name :
         {norms.before_attention, norms.after_attention, norms.before_ffn, norms.after_ffn}) {
      if (!name.empty()) out.push_back({prefix + name, Part::kNorm, 1, hidden});
    }
    if (config.IsDelta(static_cast<size_t>(layer))) {
      AddDelta(config, prefix + "linear_attn.", &out);
    } else {
      AddAttention(config, static_cast<size_t>(layer), prefix + "self_attn.", &out);
    }
    if (config.sparse_layer[static_cast<size_t>(layer)]) {
      AddExperts(config, prefix, &out);
    } else {
      AddMlp(config, prefix + "mlp.", config.intermediate, &out);
    }
  }
  if (draft_head) AddDraftHead(config, &out);
  return out;
}

DType DataDType(Format format) {
  switch (format) {
    case Format::kBF16:
      return DType::kBF16;
    case Format::kF16:
      return DType::kF16;
    case Format::kF32:
      return DType::kF32;
    case Format::kFp8Block:
    case Format::kFp8Channel:
      return DType::kF8E4M3;
    default:  // MXFP4: no other format is made here
      return DType::kU8;
  }
}

StoredTensor DataOf(const Weight& weight) {
  StoredTensor tensor;
  tensor.name = weight.name;
  tensor.dtype = DataDType(weight.format);
  const int64_t row_bytes = quant::RowBytes(weight.format, weight.cols);
  if (IsVector(weight.part)) {
    tensor.shape = {weight.cols};
  } else if (weight.part == Part::kConvolution) {
    tensor.shape = {weight.rows, 1, weight.cols};
  } else {
    tensor.shape = {weight.rows, row_bytes / static_cast<int64_t>(BytesOf(tensor.dtype))};
  }
  tensor.bytes = static_cast<uint64_t>(weight.rows * row_bytes);
  return tensor;
}

bool HasScales(Format format) { return quant::InfoOf(format).scale_bytes != 0; }

StoredTensor ScalesOf(const Weight& weight) {
  StoredTensor tensor;
  tensor.dtype = DType::kF32;
  absl::string_view suffix = "_scale";
  if (weight.format == Format::kFp8Block) {
    suffix = "_scale_inv";
    tensor.shape = {(weight.rows + kFp8Block - 1) / kFp8Block,
                    (weight.cols + kFp8Block - 1) / kFp8Block};
  } else if (weight.format == Format::kFp8Channel) {
    tensor.shape = {weight.rows, 1};
  } else {
    tensor.dtype = DType::kU8;
    tensor.shape = {weight.rows, weight.cols / quant::kMxfp4Block};
  }
  tensor.name = absl::StrCat(weight.name, suffix);
  tensor.bytes = static_cast<uint64_t>(tensor.shape[0] * tensor.shape[1]) * BytesOf(tensor.dtype);
  return tensor;
}

// What the released checkpoints say of themselves. Readers go by the tensors, not by this.
std::string QuantizationJson(SyntheticFormat format) {
  constexpr absl::string_view kFp8 =
      R"({"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 0, "is_dynamic": false}})";
  constexpr absl::string_view kFp4 =
      R"({"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "ch_axis": -1, )"
      R"("scale_format": "e8m0", "scale_calculation_mode": "even", "round_method": "half_even", )"
      R"("is_dynamic": false}})";
  const auto quark = [](absl::string_view global, absl::string_view layers) {
    return absl::StrCat(R"({"quant_method": "quark", "exclude": ["lm_head"], )",
                        R"("global_quant_config": )", global, R"(, "layer_quant_config": )", layers,
                        "}");
  };
  switch (format) {
    case SyntheticFormat::kFp8Block:
      return R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", )"
             R"("weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]})";
    case SyntheticFormat::kFp8Channel:
      return quark(kFp8, "{}");
    case SyntheticFormat::kMxfp4:
      return quark(kFp4, "{}");
    case SyntheticFormat::kMxfp4AttnFp8:
      return quark(kFp4, absl::StrCat(R"({"*self_attn*": )", kFp8, "}"));
    default:
      return "";
  }
}

absl::string_view TorchDType(SyntheticFormat format) {
  if (format == SyntheticFormat::kF32) return "float32";
  return format == SyntheticFormat::kF16 ? "float16" : "bfloat16";
}

Status CheckNoCheckpoint(const std::string& directory) {
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"}) {
    struct stat info;
    const std::string path = absl::StrCat(directory, "/", name);
    if (lstat(path.c_str(), &info) == 0) {
      return Error(Code::kInvalidArgument, path,
                   " exists; a synthetic checkpoint needs a directory without one");
    }
  }
  return OkStatus();
}

class SyntheticWriter {
 public:
  SyntheticWriter(const ModelConfig& config, const std::string& directory,
                  const SyntheticOptions& options)
      : requested_(config), directory_(directory), options_(options) {}

  Status Run() {
    ModelConfig said = requested_;
    if (options_.beyond_json) {
      said.attention = {};
      said.layer_attention.clear();
      said.activation = backend::Activation::kSilu;
      said.mlp_bias = false;
    }
    config_json_ =
        ConfigJson(said, TorchDType(options_.format), QuantizationJson(options_.format));
    generation_json_ = GenerationConfigJson(requested_);
    // The reader's own limits are the writer's, and what it reads is what gets written.
    ASSIGN_OR_RETURN(config_, ParseConfig(config_json_, generation_json_, directory_));
    if (config_.sparse_layer != requested_.sparse_layer || config_.experts != requested_.experts) {
      return Error(Code::kInvalidArgument, "model_type ", config_.model_type, " of ",
                   config_.layers, " layers cannot have ", requested_.experts, " experts in ",
                   std::count(requested_.sparse_layer.begin(), requested_.sparse_layer.end(), true),
                   " of ", requested_.sparse_layer.size(), " layers");
    }
    RETURN_IF_ERROR(TakeRest());
    RETURN_IF_ERROR(Plan());
    RETURN_IF_ERROR(CheckNoCheckpoint(directory_));
    ASSIGN_OR_RETURN(writer_, file::DirectoryWriter::Create(directory_));
    RETURN_IF_ERROR(AddFiles());
    for (const Weight& weight : weights_) RETURN_IF_ERROR(WriteWeight(weight));
    RETURN_IF_ERROR(AddTexts());
    return writer_->Commit();
  }

 private:
  // What a layer has must come back from config.json, or be said beside it.
  Status TakeRest() {
    if (options_.beyond_json) {
      ModelConfig all = requested_;
      all.eos_ids = config_.eos_ids;
      config_ = std::move(all);
      return OkStatus();
    }
    const ModelConfig &a = config_, &b = requested_;
    bool same = a.attention == b.attention && a.ValueDim() == b.ValueDim() && a.rope == b.rope && a.more_ropes == b.more_ropes &&
                a.norms == b.norms && a.delta == b.delta && a.delta_layer == b.delta_layer &&
                a.activation == b.activation && a.mlp_bias == b.mlp_bias &&
                a.fused_gate_up == b.fused_gate_up && a.router == b.router &&
                a.expert_names == b.expert_names &&
                a.shared_intermediate == b.shared_intermediate && a.shared_gate == b.shared_gate &&
                a.embedding_scale == b.embedding_scale && a.residual_scale == b.residual_scale &&
                a.logits_scale == b.logits_scale;
    for (size_t layer = 0; same && layer < config_.sparse_layer.size(); ++layer) {
      same = config_.AttentionOf(layer) == requested_.AttentionOf(layer);
    }
    if (same) return OkStatus();
    return Error(Code::kInvalidArgument, "model_type ", config_.model_type,
                 " does not have the attention or feed-forward that is asked for");
  }

  // Decides every stored tensor, sorted by name.
  Status Plan() {
    weights_ = ListWeights(config_, options_.draft_head);
    for (Weight& weight : weights_) {
      weight.format = FormatOf(weight.part, options_.format);
      if (weight.format == Format::kMxfp4 && weight.cols % quant::kMxfp4Block != 0) {
        return Error(Code::kInvalidArgument, "tensor \"", weight.name, "\" of ", weight.cols,
                     " columns cannot be mxfp4, the limit is a multiple of ", quant::kMxfp4Block);
      }
      stored_.push_back(DataOf(weight));
      if (HasScales(weight.format)) stored_.push_back(ScalesOf(weight));
    }
    std::sort(stored_.begin(), stored_.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
    for (const StoredTensor& tensor : stored_) total_ += tensor.bytes;
    for (Weight& weight : weights_) {
      weight.stored = IndexOf(weight.name);
      if (HasScales(weight.format)) weight.scale = IndexOf(ScalesOf(weight).name);
    }
    const auto most = std::min<int64_t>(kMaxShards, static_cast<int64_t>(stored_.size()));
    if (options_.shards < 1 || options_.shards > most) {
      return Error(Code::kInvalidArgument, "shards is ", options_.shards,
                   ", the limits for this model are 1 and ", most);
    }
    return OkStatus();
  }

  size_t IndexOf(const std::string& name) const {
    const auto at = std::lower_bound(
        stored_.begin(), stored_.end(), name,
        [](const StoredTensor& tensor, const std::string& key) { return tensor.name < key; });
    return static_cast<size_t>(at - stored_.begin());
  }

  std::string ShardName(size_t shard) const {
    if (options_.shards == 1) return "model.safetensors";
    return absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1, options_.shards);
  }

  // Runs of equally many names a shard: a weight and its scales may part, as they do in real files.
  size_t ShardBegin(size_t shard) const {
    return stored_.size() * shard / static_cast<size_t>(options_.shards);
  }

  Status AddFiles() {
    shard_of_.resize(stored_.size());
    for (size_t shard = 0; shard < static_cast<size_t>(options_.shards); ++shard) {
      std::vector<StoredTensor*> tensors;
      uint64_t bytes = 0;
      for (size_t i = ShardBegin(shard); i < ShardBegin(shard + 1); ++i) {
        shard_of_[i] = shard;
        tensors.push_back(&stored_[i]);
        bytes += stored_[i].bytes;
      }
      const std::string header = file::LayOut(tensors);
      ASSIGN_OR_RETURN(const size_t file, writer_->Add(ShardName(shard), header.size() + bytes));
      if (file != shard) return Error(Code::kInternal, "shard ", shard, " became file ", file);
      RETURN_IF_ERROR(writer_->Write(
          file, 0, {reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
    }
    return OkStatus();
  }

  // Panel by panel of rows: blocks of FP8 are whole, and no more than a panel is in memory.
  Status WriteWeight(const Weight& weight) {
    float offset = 0, scale = 1;
    switch (weight.part) {
      case Part::kNorm:
      case Part::kHeadNorm:  // of a delta net's heads: never stored less one
        offset = weight.part == Part::kNorm && config_.norms.plus_one ? 0 : 1;
        scale = 0.25f;
        break;
      case Part::kDecay:  // states that last: alpha from a half to nearly one
        offset = -2;
        scale = 1;
        break;
      case Part::kBias:
        scale = 0.5f;
        break;
      case Part::kSinks:
        scale = 2;
        break;
      case Part::kEmbedding:
        break;
      case Part::kHead:
        scale = kHeadGain * LinearScale(weight.cols);
        break;
      case Part::kGates:
      case Part::kConvolution:
        scale = LinearScale(weight.cols);
        break;
      case Part::kRouter:
        scale = kRouterGain * LinearScale(weight.cols);
        break;
      case Part::kAttention:
      case Part::kMlp:
        scale = LinearScale(weight.cols);
        break;
    }
    const uint64_t key = SyntheticKey(weight.name, options_.seed);
    const int64_t panel_rows = weight.format == Format::kFp8Block
                                   ? kFp8Block
                                   : std::max<int64_t>(1, kPanelElements / weight.cols);
    uint64_t data_at = 0, scale_at = 0;
    for (int64_t row = 0; row < weight.rows; row += panel_rows) {
      const int64_t rows = std::min(panel_rows, weight.rows - row);
      values_.resize(static_cast<size_t>(rows * weight.cols));
      FillValues(key, static_cast<uint64_t>(row * weight.cols), rows * weight.cols, offset, scale,
                 values_.data());
      EncodePanel(weight.format, values_.data(), rows, weight.cols, &panel_);
      RETURN_IF_ERROR(WriteAt(weight.stored, panel_.data, &data_at));
      RETURN_IF_ERROR(WriteAt(weight.scale, panel_.scale, &scale_at));
      if (options_.progress && !options_.progress(written_, total_)) {
        return Error(Code::kCancelled, "synthetic checkpoint ", directory_, " cancelled after ",
                     written_, " of ", total_, " bytes");
      }
    }
    return OkStatus();
  }

  Status WriteAt(size_t stored, absl::Span<const uint8_t> bytes, uint64_t* at) {
    if (bytes.empty()) return OkStatus();
    RETURN_IF_ERROR(writer_->Write(shard_of_[stored], stored_[stored].offset + *at, bytes));
    *at += bytes.size();
    written_ += bytes.size();
    return OkStatus();
  }

  // config.json comes last: without it nobody takes the directory for a checkpoint.
  Status AddTexts() {
    if (options_.shards > 1) {
      std::string index =
          absl::StrCat("{\n  \"metadata\": {\"total_size\": ", total_, "},\n  \"weight_map\": {\n");
      for (size_t i = 0; i < stored_.size(); ++i) {
        absl::StrAppend(&index, "    \"", stored_[i].name, "\": \"", ShardName(shard_of_[i]),
                        i + 1 < stored_.size() ? "\",\n" : "\"\n");
      }
      index += "  }\n}\n";
      RETURN_IF_ERROR(writer_->AddText("model.safetensors.index.json", index));
    }
    RETURN_IF_ERROR(writer_->AddText("generation_config.json", generation_json_));
    return writer_->AddText("config.json", config_json_);
  }

  const ModelConfig& requested_;
  const std::string& directory_;
  const SyntheticOptions& options_;
  ModelConfig config_;
  std::string config_json_;
  std::string generation_json_;
  std::unique_ptr<file::DirectoryWriter> writer_;
  std::vector<Weight> weights_;
  std::vector<StoredTensor> stored_;  // sorted by name
  std::vector<size_t> shard_of_;      // of each stored tensor
  std::vector<float> values_;
  Panel panel_;
  uint64_t written_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

StatusOr<SyntheticFormat> SyntheticFormatFromName(absl::string_view name) {
  std::string known;
  for (const auto& one : kFormats) {
    if (one.name == name) return one.format;
    absl::StrAppend(&known, known.empty() ? "" : ", ", one.name);
  }
  return Error(Code::kInvalidArgument, "format \"", name.substr(0, 64),
               "\" is not known; known are ", known);
}

Status WriteSyntheticCheckpoint(const ModelConfig& config, const std::string& directory,
                                const SyntheticOptions& options) {
  return SyntheticWriter(config, directory, options).Run();
}

}  // namespace mainarch::model
