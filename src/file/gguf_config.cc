// SPDX-License-Identifier: MIT
#include "file/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "file/json_text.h"

namespace mainarch::file {
namespace {

// Wide: who reads the text has its own limits, and names them by its own keys.
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

// What Llama 3's scaling is made from; the files have only what comes of it, and the factor.
constexpr double kLlama3Low = 1, kLlama3High = 4;
constexpr double kLlama3Positions = 8192;  // where no frequency is blended

class ConfigWriter {
 public:
  ConfigWriter(const GgufContents& contents, const GgufArch& arch)
      : contents_(contents), metadata_(contents.metadata), arch_(arch) {}

  StatusOr<std::string> Run() {
    json_.Raw("architectures", absl::StrCat("[", JsonString(arch_.class_name), "]"));
    json_.Text("model_type", arch_.model_type);
    RETURN_IF_ERROR(Geometry());
    RETURN_IF_ERROR(Experts());
    RETURN_IF_ERROR(Rope());
    RETURN_IF_ERROR(Own());
    json_.Flag("tie_word_embeddings", FindTensor("output.weight") == nullptr);
    json_.Flag("attention_bias", FindTensor("blk.0.attn_q.bias") != nullptr);
    RETURN_IF_ERROR(Tokens());
    std::string text = json_.Done();
    text.insert(text.size() - 1, absl::StrCat(", ", arch_.activation, arch_.more_config));
    return text;
  }

 private:
  std::string Key(absl::string_view name) const { return absl::StrCat(arch_.name, ".", name); }

  const TensorView* FindTensor(absl::string_view name) const {
    for (const TensorView& tensor : contents_.tensors) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }

  StatusOr<int64_t> Required(absl::string_view name) const {
    const std::string key = Key(name);
    ASSIGN_OR_RETURN(const auto value, metadata_.Integer(key, 1, kMost));
    if (!value) return metadata_.Bad(Code::kBadModel, key, "is missing");
    return *value;
  }

  Status Copy(absl::string_view name, absl::string_view to) {
    ASSIGN_OR_RETURN(const auto value, metadata_.Integer(Key(name), 0, kMost));
    if (value) json_.Integer(to, *value);
    return OkStatus();
  }

  Status Geometry() {
    ASSIGN_OR_RETURN(const int64_t hidden, Required("embedding_length"));
    ASSIGN_OR_RETURN(int64_t layers, Required("block_count"));
    // Layers that draft are counted, too, and come last.
    ASSIGN_OR_RETURN(const auto drafting, metadata_.Integer(Key("nextn_predict_layers"), 0, layers - 1));
    layers -= drafting.value_or(0);
    ASSIGN_OR_RETURN(const int64_t heads, Required("attention.head_count"));
    ASSIGN_OR_RETURN(const int64_t positions, Required("context_length"));
    ASSIGN_OR_RETURN(const auto kv_heads,
                     metadata_.Integer(Key("attention.head_count_kv"), 1, kMost));
    ASSIGN_OR_RETURN(const auto head_dim, metadata_.Integer(Key("attention.key_length"), 1, kMost));
    ASSIGN_OR_RETURN(const auto value_dim,
                     metadata_.Integer(Key("attention.value_length"), 1, kMost));
    hidden_ = hidden;
    layers_ = layers;
    heads_ = heads;
    head_dim_ = head_dim.value_or(hidden / heads);
    if (!head_dim && hidden % heads != 0) {
      return metadata_.Bad(Code::kBadModel, Key("attention.key_length"), "is missing, and ", heads,
                           " heads do not divide ", hidden);
    }
    latent_ = arch_.model_type == "deepseek_v3";
    if (value_dim && *value_dim != head_dim_ && !latent_) {
      return metadata_.Bad(Code::kUnsupported, Key("attention.value_length"), "is ", *value_dim,
                           ", which is not supported beside keys of ", head_dim_);
    }
    const TensorView* embedding = FindTensor("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
      return Error(Code::kBadModel, metadata_.file(),
                   ": no tensor \"token_embd.weight\" of two dimensions");
    }
    json_.Integer("vocab_size", embedding->shape[0]);
    json_.Integer("hidden_size", hidden);
    json_.Integer("num_hidden_layers", layers);
    json_.Integer("num_attention_heads", heads);
    json_.Integer("num_key_value_heads", kv_heads.value_or(heads));
    json_.Integer("head_dim", head_dim_);
    json_.Integer("max_position_embeddings", positions);
    ASSIGN_OR_RETURN(const auto eps,
                     metadata_.Number(Key("attention.layer_norm_rms_epsilon"), 0, 1));
    if (!eps) {
      return metadata_.Bad(Code::kBadModel, Key("attention.layer_norm_rms_epsilon"), "is missing");
    }
    json_.Number("rms_norm_eps", *eps);
    return Copy("feed_forward_length", "intermediate_size");
  }

  Status Experts() {
    ASSIGN_OR_RETURN(const auto experts, metadata_.Integer(Key("expert_count"), 0, kMost));
    if (!experts || *experts == 0) return OkStatus();
    json_.Integer(arch_.expert_count, *experts);
    RETURN_IF_ERROR(Copy("expert_used_count", "num_experts_per_tok"));
    ASSIGN_OR_RETURN(const auto normed, metadata_.Boolean(Key("expert_weights_norm")));
    if (normed) json_.Flag("norm_topk_prob", *normed);
    return Copy("expert_feed_forward_length", "moe_intermediate_size");
  }

  Status Rope() {
    ASSIGN_OR_RETURN(const auto theta, metadata_.Number(Key("rope.freq_base"), 0x1p-20, 1e15));
    ASSIGN_OR_RETURN(const auto turned, metadata_.Integer(Key("rope.dimension_count"), 2, kMost));
    json_.Number("rope_theta", theta.value_or(1e4));
    if (turned && *turned != head_dim_ && !latent_) {
      // A hair more than the quotient, since readers cut off what is behind the point.
      json_.Number("partial_rotary_factor",
                   (static_cast<double>(*turned) + 0.25) / static_cast<double>(head_dim_));
    }
    ASSIGN_OR_RETURN(const auto type, metadata_.String(Key("rope.scaling.type")));
    JsonObjectText rope;
    if (const TensorView* factors = FindTensor("rope_freqs.weight")) {
      RETURN_IF_ERROR(Llama3(*factors, theta.value_or(1e4), &rope));
    } else if (FindTensor("rope_factors_long.weight") != nullptr) {
      RETURN_IF_ERROR(LongRope(&rope));
    } else if (type && *type != "none") {
      RETURN_IF_ERROR(Scaling(*type, &rope));
    } else {
      return OkStatus();
    }
    json_.Raw("rope_scaling", rope.Done());
    return OkStatus();
  }

  // What frequencies are divided by, up to the original range and beyond.
  Status LongRope(JsonObjectText* rope) {
    rope->Text("rope_type", "longrope");
    for (const char* name : {"long", "short"}) {
      const std::string tensor_name = absl::StrCat("rope_factors_", name, ".weight");
      const TensorView* tensor = FindTensor(tensor_name);
      if (tensor == nullptr || tensor->dtype != DType::kF32 ||
          tensor->bytes.size() > 4096 * sizeof(float)) {
        return Error(Code::kBadModel, metadata_.file(), ": tensor \"", tensor_name,
                     "\" is missing, or not F32, or of more than 4096 factors");
      }
      std::string list;
      for (size_t at = 0; at < tensor->bytes.size(); at += sizeof(float)) {
        float factor;
        std::memcpy(&factor, tensor->bytes.data() + at, sizeof(factor));
        if (!std::isfinite(factor)) {
          return Error(Code::kBadModel, metadata_.file(), ": tensor \"", tensor_name,
                       "\" has factor ", factor, " at ", at / sizeof(float));
        }
        absl::StrAppend(&list, list.empty() ? "" : ", ", JsonNumber(static_cast<double>(factor)));
      }
      rope->Raw(absl::StrCat(name, "_factor"), absl::StrCat("[", list, "]"));
    }
    return Copy("rope.scaling.original_context_length", "original_max_position_embeddings");
  }

  // What this architecture alone has.
  Status Own() {
    for (const GgufKey& key : arch_.keys) {
      ASSIGN_OR_RETURN(const auto value, metadata_.Number(Key(key.gguf), -1e9, 1e9));
      if (!value) continue;
      if (*value == std::floor(*value)) {
        json_.Integer(key.hugging_face, static_cast<int64_t>(*value));
      } else {
        json_.Number(key.hugging_face, *value);
      }
    }
    if (arch_.model_type == "olmo3") RETURN_IF_ERROR(OlmoWindows());
    if (latent_) RETURN_IF_ERROR(Latent());
    if (arch_.model_type == "glm4_moe") json_.Flag("use_qk_norm", FindTensor("blk.0.attn_q_norm.weight") != nullptr);
    if (arch_.model_type == "gemma3_text") {
      // Of the largest model alone, which is told by its layers, scores are divided by another
      // root.
      const bool largest = layers_ == 62;
      json_.Integer("query_pre_attn_scalar", largest ? hidden_ / heads_ : head_dim_);
    }
    return OkStatus();
  }

  // Heads before they are absorbed, and the router, of which not all files say everything.
  Status Latent() {
    ASSIGN_OR_RETURN(const auto gating, metadata_.Integer(Key("expert_gating_func"), 0, 64));
    constexpr int64_t kSigmoid = 2;
    if (gating.value_or(kSigmoid) != kSigmoid || FindCorrection() == nullptr) {
      return metadata_.Bad(Code::kUnsupported, Key("expert_gating_func"),
                           "is not that of sigmoids with corrections (DeepSeek V3): DeepSeek V2 is not supported");
    }
    ASSIGN_OR_RETURN(const int64_t turning, Required("rope.dimension_count"));
    ASSIGN_OR_RETURN(const int64_t head, Required("attention.key_length_mla"));
    ASSIGN_OR_RETURN(const int64_t value, Required("attention.value_length_mla"));
    ASSIGN_OR_RETURN(const int64_t latent, Required("attention.kv_lora_rank"));
    ASSIGN_OR_RETURN(const auto queries, metadata_.Integer(Key("attention.q_lora_rank"), 1, kMost));
    json_.Integer("kv_lora_rank", latent);
    json_.Raw("q_lora_rank", queries ? absl::StrCat(*queries) : "null");
    json_.Integer("qk_rope_head_dim", turning);
    json_.Integer("qk_nope_head_dim", head - turning);
    json_.Integer("v_head_dim", value);
    if (metadata_.Find(Key("expert_group_count")) != nullptr) return OkStatus();
    // Files of before this key: of 256 experts it is DeepSeek's own model.
    ASSIGN_OR_RETURN(const auto experts, metadata_.Integer(Key("expert_count"), 1, kMost));
    json_.Integer("n_group", experts.value_or(0) == 256 ? 8 : 1);
    json_.Integer("topk_group", experts.value_or(0) == 256 ? 4 : 1);
    return OkStatus();
  }

  const TensorView* FindCorrection() const {
    for (const TensorView& tensor : contents_.tensors) {
      if (absl::EndsWith(tensor.name, ".exp_probs_b.bias")) return &tensor;
    }
    return nullptr;
  }

  // OLMo 2 has none, and is OLMo 3 otherwise.
  Status OlmoWindows() {
    if (metadata_.Find(Key("attention.sliding_window")) == nullptr) {
      json_.Integer("sliding_window", 0);
      return OkStatus();
    }
    constexpr absl::string_view kPattern = "attention.sliding_window_pattern";
    ASSIGN_OR_RETURN(const auto slides, metadata_.Booleans(Key(kPattern)));
    if (!slides) return OkStatus();
    std::vector<absl::string_view> types;
    for (const bool window : *slides) types.push_back(window ? "\"sliding_attention\"" : "\"full_attention\"");
    json_.Raw("layer_types", absl::StrCat("[", absl::StrJoin(types, ", "), "]"));
    return OkStatus();
  }

  Status Scaling(absl::string_view type, JsonObjectText* rope) const {
    rope->Text("rope_type", type);
    // The model's own way, which the file does not state.
    if (arch_.model_type == "gpt_oss") rope->Flag("truncate", false);
    ASSIGN_OR_RETURN(const auto factor, metadata_.Number(Key("rope.scaling.factor"), 0, 1e6));
    if (factor) rope->Number("factor", *factor);
    ASSIGN_OR_RETURN(const auto positions,
                     metadata_.Integer(Key("rope.scaling.original_context_length"), 1, kMost));
    if (positions) rope->Integer("original_max_position_embeddings", *positions);
    ASSIGN_OR_RETURN(const auto attention,
                     metadata_.Number(Key("rope.scaling.attn_factor"), 0, 100));
    if (attention && *attention != 1) rope->Number("attention_factor", *attention);
    ASSIGN_OR_RETURN(const auto multiplier, metadata_.Number(Key("rope.scaling.yarn_log_multiplier"), 0, 10));
    if (latent_ && multiplier) {  // a tenth of both
      rope->Number("mscale", *multiplier * 10);
      rope->Number("mscale_all_dim", *multiplier * 10);
    }
    for (const auto& [key, to] : {std::pair("rope.scaling.yarn_beta_fast", "beta_fast"),
                                  std::pair("rope.scaling.yarn_beta_slow", "beta_slow")}) {
      ASSIGN_OR_RETURN(const auto beta, metadata_.Number(Key(key), 0, 1e6));
      if (beta) rope->Number(to, *beta);
    }
    return OkStatus();
  }

  // The file has what every frequency is divided by: 1, the factor, or a blend, which says over how
  // many positions the frequencies are counted. Between which counts of turns there is a blend all
  // models of Llama 3 have alike; factors that do not come of that are refused.
  Status Llama3(const TensorView& tensor, double base, JsonObjectText* rope) const {
    const auto bad = [&](const auto&... parts) {
      return Error(Code::kUnsupported, metadata_.file(), ": tensor \"rope_freqs.weight\" ",
                   parts...);
    };
    const auto half = static_cast<size_t>(head_dim_ / 2);
    if (tensor.dtype != DType::kF32 || tensor.bytes.size() != half * sizeof(float)) {
      return bad("has ", tensor.bytes.size(), " bytes of ", NameOf(tensor.dtype),
                 ", not a factor of F32 for each of ", half, " frequencies");
    }
    std::vector<float> factors(half);
    std::memcpy(factors.data(), tensor.bytes.data(), tensor.bytes.size());
    const double factor = static_cast<double>(*std::max_element(factors.begin(), factors.end()));
    const auto frequency = [&](size_t i) {
      return std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim_)) /
             (2 * std::numbers::pi);
    };
    double positions = kLlama3Positions;
    for (size_t i = 0; i < half; ++i) {
      const double share = (1 / static_cast<double>(factors[i]) - 1 / factor) / (1 - 1 / factor);
      if (!(share > 1e-3 && share < 1 - 1e-3)) continue;
      positions = std::round((kLlama3Low + share * (kLlama3High - kLlama3Low)) / frequency(i));
      break;
    }
    if (!(factor >= 1 && positions >= 1 && positions <= kMost))
      return bad("has no scaling of Llama 3");
    for (size_t i = 0; i < half; ++i) {
      const double turns = positions * frequency(i);
      const double share = std::clamp((turns - kLlama3Low) / (kLlama3High - kLlama3Low), 0.0, 1.0);
      const double expected = 1 / ((1 - share) / factor + share);
      if (!(std::abs(static_cast<double>(factors[i]) - expected) <= 1e-4 * expected)) {
        return bad("has factor ", factors[i], " at ", i, "; Llama 3's scaling by ", factor,
                   " over ", positions, " positions has ", expected);
      }
    }
    rope->Text("rope_type", "llama3");
    rope->Number("factor", factor);
    rope->Number("low_freq_factor", kLlama3Low);
    rope->Number("high_freq_factor", kLlama3High);
    rope->Integer("original_max_position_embeddings", static_cast<int64_t>(positions));
    return OkStatus();
  }

  // Where a model's answer ends: each of these is an end for llama.cpp, too.
  Status Tokens() {
    std::vector<int64_t> ends;
    for (const absl::string_view name : {"eos", "eot", "eom"}) {
      ASSIGN_OR_RETURN(
          const auto id,
          metadata_.Integer(absl::StrCat("tokenizer.ggml.", name, "_token_id"), 0, kMost));
      if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
    }
    if (!ends.empty()) json_.Raw("eos_token_id", absl::StrCat("[", absl::StrJoin(ends, ", "), "]"));
    ASSIGN_OR_RETURN(const auto bos, metadata_.Integer("tokenizer.ggml.bos_token_id", 0, kMost));
    if (bos) json_.Integer("bos_token_id", *bos);
    return OkStatus();
  }

  const GgufContents& contents_;
  const GgufMetadata& metadata_;
  const GgufArch& arch_;
  JsonObjectText json_;
  bool latent_ = false;  // keys and values of heads are made of latents
  int64_t hidden_ = 0, layers_ = 0, heads_ = 1, head_dim_ = 0;
};

}  // namespace

StatusOr<std::string> GgufConfigJson(const GgufContents& contents, const GgufArch& arch) {
  return ConfigWriter(contents, arch).Run();
}

}  // namespace mainarch::file
