// SPDX-License-Identifier: MIT
#include "cli/geometry.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/fd.h"
#include "cli/progress.h"

namespace mainarch::cli {
namespace {

constexpr size_t kConfigLimit = 1 << 20;  // bytes of a config.json

model::ModelConfig Common(int32_t layers, int32_t hidden, int32_t heads, int32_t kv_heads,
                          int32_t head_dim) {
  model::ModelConfig c;
  c.model_type = "qwen3";
  c.hidden = hidden;
  c.layers = layers;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.vocab = 151936;
  c.max_position = 40960;
  c.rope.theta = 1e6;
  c.rope.rotary_dim = head_dim;
  c.sparse_layer.assign(static_cast<size_t>(layers), false);
  c.eos_ids = {151643, 151645};
  return c;
}

model::ModelConfig Dense(int32_t layers, int32_t hidden, int32_t heads, int32_t kv_heads,
                         int32_t intermediate, bool tied) {
  model::ModelConfig c = Common(layers, hidden, heads, kv_heads, 128);
  c.intermediate = intermediate;
  c.tied_embeddings = tied;
  return c;
}

model::ModelConfig Sparse(model::ModelConfig c, int32_t experts, int32_t per_token, int32_t width) {
  c.model_type = "qwen3_moe";
  c.intermediate = 3 * c.hidden;
  c.experts = experts;
  c.experts_per_token = per_token;
  c.moe_intermediate = width;
  c.norm_topk_prob = true;
  c.sparse_layer.assign(static_cast<size_t>(c.layers), true);
  return c;
}

constexpr int32_t kFullInterval = 4;  // of Qwen's hybrids: attention in every fourth layer

std::vector<bool> DeltaLayers(int32_t layers) {
  std::vector<bool> out;
  for (int32_t i = 0; i < layers; ++i) out.push_back((i + 1) % kFullInterval != 0);
  return out;
}

// Qwen3.5, dense; heads of delta nets are of 128.
model::ModelConfig Hybrid(model::ModelConfig c, int32_t key_heads, int32_t value_heads) {
  c.model_type = "qwen3_5_text";
  c.vocab = 248320;
  c.max_position = 262144;
  c.rope.theta = 1e7;
  c.rope.rotary_dim = c.head_dim / 4;
  c.attention.output_gate = true;
  c.norms.plus_one = true;
  c.delta = {key_heads, value_heads, 128, 128, 4};
  c.delta_layer = DeltaLayers(c.layers);
  c.eos_ids = {248044, 248046};
  return c;
}

model::ModelConfig HybridDense(int32_t layers, int32_t hidden, int32_t heads, int32_t kv_heads,
                               int32_t intermediate, bool tied, int32_t value_heads) {
  model::ModelConfig c = Common(layers, hidden, heads, kv_heads, 256);
  c.intermediate = intermediate;
  c.tied_embeddings = tied;
  return Hybrid(std::move(c), 16, value_heads);
}

model::ModelConfig HybridSparse(int32_t layers, int32_t hidden, int32_t heads, int32_t experts,
                                int32_t per_token, int32_t width, int32_t value_heads) {
  model::ModelConfig c =
      Hybrid(Sparse(Common(layers, hidden, heads, 2, 256), experts, per_token, width), 16,
             value_heads);
  c.model_type = "qwen3_5_moe_text";
  c.shared_intermediate = width;
  c.shared_gate = true;
  return c;
}

// All but the first and every sixth layer see a window, and have sinks and twice the key heads.
std::vector<model::LayerAttention> MimoLayers(int32_t layers, int32_t window, int32_t kv_heads) {
  std::vector<model::LayerAttention> out;
  for (int32_t layer = 0; layer < layers; ++layer) {
    const bool full = layer == 0 || (layer + 1) % 6 == 0;
    out.push_back(full ? model::LayerAttention{0, 0, 0, false} : model::LayerAttention{window, 1, 2 * kv_heads, true});
  }
  return out;
}

// MiMo-V2-Flash, and smaller.
model::ModelConfig Mimo(model::ModelConfig c, int32_t value_dim, int32_t window, int32_t rotary) {
  c.model_type = "mimo_v2_flash";
  c.value_dim = value_dim;
  c.rms_eps = 1e-5f;
  c.rope.theta = 5e6;
  c.rope.rotary_dim = rotary;
  c.more_ropes = {c.rope};
  c.more_ropes[0].theta = 1e4;
  c.attention.qk_norm = false;
  c.attention.sinks = true;
  c.attention.value_scale = 0.707;
  c.layer_attention = MimoLayers(c.layers, window, c.kv_heads);
  c.router.sigmoid = c.router.correction = true;
  c.sparse_layer[0] = false;
  return c;
}

// DeepSeek V3 and what has its geometry: the first `dense` layers without experts.
model::ModelConfig DeepSeek(int32_t heads, int32_t experts, int32_t groups, int32_t dense, double scale, int32_t vocab,
                            double factor) {
  model::ModelConfig c = Common(61, 7168, heads, heads, 192);
  c.model_type = "deepseek_v3";
  c.vocab = vocab;
  c.eos_ids = {1};
  c.latent = {512, 1536, 128, 64, 128, true};
  c.attention.qk_norm = false;
  c.rope.kind = model::RopeKind::kYarn;
  c.rope.rotary_dim = c.latent.turning;
  c.rope.theta = 1e4;
  c.rope.factor = factor;
  c.rope.original_max_position = 4096;
  c.rope.attention_factor = 1;
  c.max_position = static_cast<int64_t>(4096 * factor);
  const double by = 0.1 * std::log(factor) + 1;  // mscale_all_dim 1
  c.attention.scale = by * by / std::sqrt(192.0);
  c.intermediate = 18432;
  c.experts = experts;
  c.experts_per_token = 8;
  c.moe_intermediate = c.shared_intermediate = 2048;
  c.norm_topk_prob = c.router.sigmoid = c.router.correction = true;
  c.router.groups = groups;
  c.router.chosen_groups = std::max(1, groups / 2);
  c.router.scale = scale;
  for (int32_t i = 0; i < c.layers; ++i) c.sparse_layer[static_cast<size_t>(i)] = i >= dense;
  return c;
}

model::ModelConfig Vocab(model::ModelConfig c, int32_t vocab) {
  c.vocab = vocab;
  c.eos_ids.clear();
  return c;
}

model::ModelConfig Tiny(model::ModelConfig c) {
  c.delta.key_dim = c.delta.value_dim = 32;
  c.max_position = 40960;
  return Vocab(std::move(c), 1024);
}

template <class T>
void Override(int64_t given, T* field) {
  if (given > 0) *field = static_cast<T>(given);
}

}  // namespace

std::vector<Preset> Presets() {
  return {
      {"tiny", "Qwen3, 4 layers of 256; seconds to write and verify",
       Vocab(
           [] {
             auto c = Common(4, 256, 8, 4, 64);
             c.intermediate = 768;
             c.tied_embeddings = true;
             return c;
           }(),
           1024)},
      {"tiny-moe", "Qwen3-MoE, 4 layers of 256, 16 experts of which 4 work",
       Vocab(Sparse(Common(4, 256, 8, 4, 64), 16, 4, 128), 1024)},
      {"tiny-hybrid", "Qwen3.5, 4 layers of 256, three of them delta nets",
       Tiny([] {
         auto c = Common(4, 256, 8, 4, 64);
         c.intermediate = 768;
         c.tied_embeddings = true;
         return Hybrid(std::move(c), 8, 16);
       }())},
      {"tiny-hybrid-moe", "Qwen3.5-MoE, 4 layers of 256, 16 experts of which 4 work, and one for all",
       Tiny([] {
         auto c = Hybrid(Sparse(Common(4, 256, 8, 4, 64), 16, 4, 128), 8, 16);
         c.model_type = "qwen3_5_moe_text";
         c.shared_intermediate = 128;
         c.shared_gate = true;
         return c;
       }())},
      {"moe-64x", "Qwen3-MoE of 1.0 B, 64 experts of which 8 work: benches",
       Vocab(Sparse(Common(12, 1024, 16, 4, 128), 64, 8, 384), 32768)},
      {"qwen3-0.6b", "Qwen3-0.6B", Dense(28, 1024, 16, 8, 3072, true)},
      {"qwen3-1.7b", "Qwen3-1.7B", Dense(28, 2048, 16, 8, 6144, true)},
      {"qwen3-4b", "Qwen3-4B", Dense(36, 2560, 32, 8, 9728, true)},
      {"qwen3-8b", "Qwen3-8B", Dense(36, 4096, 32, 8, 12288, false)},
      {"qwen3-14b", "Qwen3-14B", Dense(40, 5120, 40, 8, 17408, false)},
      {"qwen3-32b", "Qwen3-32B", Dense(64, 5120, 64, 8, 25600, false)},
      {"qwen3-30b-a3b", "Qwen3-30B-A3B", Sparse(Common(48, 2048, 32, 4, 128), 128, 8, 768)},
      {"qwen3-235b-a22b", "Qwen3-235B-A22B", Sparse(Common(94, 4096, 64, 4, 128), 128, 8, 1536)},
      {"qwen3.5-0.8b", "Qwen3.5-0.8B", HybridDense(24, 1024, 8, 2, 3584, true, 16)},
      {"qwen3.5-4b", "Qwen3.5-4B", HybridDense(32, 2560, 16, 4, 9216, true, 32)},
      {"qwen3.5-9b", "Qwen3.5-9B", HybridDense(32, 4096, 16, 4, 12288, false, 32)},
      {"qwen3.5-27b", "Qwen3.5-27B", HybridDense(64, 5120, 24, 4, 17408, false, 48)},
      {"qwen3-next-80b-a3b", "Qwen3-Next-80B-A3B",
       [] {
         auto c = Vocab(HybridSparse(48, 2048, 16, 512, 10, 512, 32), 151936);
         c.model_type = "qwen3_next";
         c.delta.by_key_head = true;
         c.eos_ids = {151643, 151645};
         return c;
       }()},
      {"qwen3.5-35b-a3b", "Qwen3.5-35B-A3B", HybridSparse(40, 2048, 16, 256, 8, 512, 32)},
      {"qwen3.5-122b-a10b", "Qwen3.5-122B-A10B", HybridSparse(48, 3072, 32, 256, 8, 1024, 64)},
      {"qwen3.5-397b-a17b", "Qwen3.5-397B-A17B", HybridSparse(60, 4096, 32, 512, 10, 1024, 64)},
      {"tiny-latent", "DeepSeek V3, 4 layers of 256, latents of 64, 16 experts of which 4 work",
       [] {
         auto c = DeepSeek(8, 16, 4, 1, 2.5, 1024, 40);
         c.hidden = 256;
         c.layers = 4;
         c.sparse_layer.resize(4);
         c.latent = {64, 96, 32, 32, 32, true};
         c.head_dim = 64;
         c.rope.rotary_dim = 32;
         c.attention.scale *= std::sqrt(192.0 / 64);
         c.intermediate = 512;
         c.moe_intermediate = c.shared_intermediate = 128;
         c.experts_per_token = 4;
         c.max_position = 40960;
         c.eos_ids.clear();
         return c;
       }()},
      {"tiny-mimo", "MiMo-V2-Flash, 3 layers of 256, 16 experts of which 4 work",
       [] {
         auto c = Mimo(Sparse(Common(3, 256, 8, 2, 64), 16, 4, 128), 32, 129, 20);
         c.vocab = 1024;
         c.intermediate = 512;
         c.eos_ids.clear();
         return c;
       }()},
      {"mimo-v2-flash", "MiMo-V2-Flash",
       [] {
         auto c = Mimo(Sparse(Common(48, 4096, 64, 4, 192), 256, 8, 2048), 128, 129, 64);
         c.vocab = 152576;
         c.max_position = 262144;
         c.intermediate = 16384;
         return c;
       }()},
      {"deepseek-v3", "DeepSeek V3 and R1", DeepSeek(128, 256, 8, 3, 2.5, 129280, 40)},
      {"kimi-k2", "Kimi K2", [] {
         auto c = DeepSeek(64, 384, 1, 1, 2.827, 163840, 32);
         c.rope.theta = 5e4;
         return c;
       }()},
  };
}

StatusOr<model::ModelConfig> PresetConfig(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return preset.config;
    names.push_back(preset.name);
  }
  const absl::string_view near = Nearest(name, names);
  return Error(Code::kInvalidArgument, "--preset ", name, ": ",
               near.empty() ? "" : absl::StrCat("did you mean ", near, "? "), "there are ",
               absl::StrJoin(names, ", "));
}

StatusOr<model::ModelConfig> ConfigLike(const std::string& path) {
  struct stat info;
  const bool directory = stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  const std::string file = directory ? absl::StrCat(path, "/config.json") : path;
  ASSIGN_OR_RETURN(const std::string json, ReadWholeFile(file, kConfigLimit));
  return model::ParseConfig(json, "", directory ? path : file);
}

std::vector<std::string> FormatNames() {
  return {"bf16", "f16", "f32", "fp8-block", "fp8-channel", "mxfp4", "mxfp4-attnfp8"};
}

void GeometryOptions::Declare(Options* options) {
  options->Text("preset", "NAME", &preset_,
                absl::StrCat("geometry: ",
                             absl::StrJoin(Presets(), ", ", [](std::string* out, const Preset& p) {
                               *out += p.name;
                             })));
  options->Text("like", "PATH", &like_, "geometry of this config.json or checkpoint directory");
}

void GeometryOptions::DeclareFields(Options* options) {
  constexpr int64_t kMost = 1 << 24;
  const auto field = [&](absl::string_view name, int64_t* value, absl::string_view help) {
    options->Integer(name, value, 0, kMost, help);
  };
  options->Section("Fields (0: as the preset has it)");
  field("hidden", &hidden_, "width of the residual stream");
  field("layers", &layers_, "layers");
  field("heads", &heads_, "query heads");
  field("kv-heads", &kv_heads_, "key and value heads");
  field("head-dim", &head_dim_, "elements of a head");
  field("intermediate", &intermediate_, "width of a dense feed-forward block");
  field("vocab", &vocab_, "rows of the embedding");
  options->Integer("experts", &experts_, -1, kMost,
                   "experts of a layer; 0 makes a dense model, -1: as the preset");
  field("experts-per-token", &experts_per_token_, "of which so many work for a token");
  field("moe-intermediate", &moe_intermediate_, "width of an expert");
  field("max-position", &max_position_, "tokens of a sequence");
  options->Choice("tied", {"yes", "no"}, &tied_, "whether the head is the embedding");
}

// Experts stay where they are: the first layers are dense.
StatusOr<model::ModelConfig> GeometryOptions::ResolveFixed(model::ModelConfig config) const {
  const bool latent = config.latent.latent > 0;
  if (head_dim_ > 0 || kv_heads_ > 0 || config.experts == 0) {
    return Error(Code::kInvalidArgument, "--head-dim, --kv-heads and --experts 0: ", config.model_type,
                 latent ? " has latents, and experts" : " has heads of its own, and experts");
  }
  if (latent) config.kv_heads = config.heads;
  if (!latent && config.layer_attention.size() != static_cast<size_t>(config.layers)) {
    const auto windowed = std::find_if(config.layer_attention.begin(), config.layer_attention.end(),
                                       [](const model::LayerAttention& own) { return own.window > 0; });
    const int32_t window = windowed == config.layer_attention.end() ? 0 : windowed->window;
    config.layer_attention = MimoLayers(config.layers, window, config.kv_heads);
  }
  config.sparse_layer.resize(static_cast<size_t>(config.layers), true);
  return config;
}

StatusOr<model::ModelConfig> GeometryOptions::Resolve() const {
  model::ModelConfig config;
  if (like_.empty()) {
    ASSIGN_OR_RETURN(config, PresetConfig(preset_));
  } else {
    ASSIGN_OR_RETURN(config, ConfigLike(like_));
  }
  Override(hidden_, &config.hidden);
  Override(layers_, &config.layers);
  Override(heads_, &config.heads);
  Override(kv_heads_, &config.kv_heads);
  Override(intermediate_, &config.intermediate);
  Override(max_position_, &config.max_position);
  if (head_dim_ > 0) {
    config.head_dim = static_cast<int32_t>(head_dim_);
    config.rope.rotary_dim = config.delta.key_heads > 0 ? config.head_dim / 4 : config.head_dim;
  }
  if (vocab_ > 0) {
    config.vocab = static_cast<int32_t>(vocab_);
    config.eos_ids.clear();  // they may not be in it
  }
  if (!tied_.empty()) config.tied_embeddings = tied_ == "yes";
  if (experts_ > 0 && config.experts == 0) {
    config.norm_topk_prob = true;
    config.experts_per_token = static_cast<int32_t>(std::min<int64_t>(experts_, 8));
    config.moe_intermediate = config.intermediate;
  }
  if (experts_ >= 0) config.experts = static_cast<int32_t>(experts_);
  Override(experts_per_token_, &config.experts_per_token);
  Override(moe_intermediate_, &config.moe_intermediate);
  const bool hybrid = config.delta.key_heads > 0, latent = config.latent.latent > 0;
  if (latent || config.model_type == "mimo_v2_flash") return ResolveFixed(std::move(config));
  if (!hybrid) config.model_type = config.experts > 0 ? "qwen3_moe" : "qwen3";
  if (hybrid && config.model_type != "qwen3_next") {
    config.model_type = config.experts > 0 ? "qwen3_5_moe_text" : "qwen3_5_text";
  }
  if (config.experts == 0) {
    config.experts_per_token = config.moe_intermediate = config.shared_intermediate = 0;
    config.shared_gate = false;
  }
  const size_t layers = static_cast<size_t>(config.layers);
  const bool layers_fit = config.sparse_layer.size() == layers;
  if (hybrid && config.delta_layer.size() != layers) config.delta_layer = DeltaLayers(config.layers);
  if (experts_ >= 0 || !layers_fit) config.sparse_layer.assign(layers, config.experts > 0);
  return config;
}

StatusOr<std::unique_ptr<TemporaryDirectory>> MakeTemporaryCheckpoint(
    const model::ModelConfig& config, model::SyntheticFormat format, uint64_t seed) {
  ASSIGN_OR_RETURN(auto directory, TemporaryDirectory::Create());
  Progress progress("making a checkpoint", Progress::Unit::kBytes);
  model::SyntheticOptions options;
  options.format = format;
  options.seed = seed;
  options.progress = progress.Callback();
  RETURN_IF_ERROR(model::WriteSyntheticCheckpoint(config, directory->path(), options));
  return directory;
}

}  // namespace mainarch::cli
