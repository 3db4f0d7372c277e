// SPDX-License-Identifier: MIT
#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "model/arch/arch.h"
#include "support/checkpoint_files.h"
#include "support/test.h"

namespace mainarch::model {
namespace {

// key -> JSON text of its value
using Json = std::map<std::string, std::string>;

std::string Text(const Json& members) {
  std::string text;
  for (const auto& [key, value] : members) {
    text += (text.empty() ? "{\"" : ",\"") + key + "\":" + value;
  }
  return text + "}";
}

// As published for the 8B.
Json Dense() {
  return {{"architectures", "[\"Qwen3ForCausalLM\"]"},
          {"attention_bias", "false"},
          {"attention_dropout", "0.0"},
          {"bos_token_id", "151643"},
          {"eos_token_id", "151645"},
          {"head_dim", "128"},
          {"hidden_act", "\"silu\""},
          {"hidden_size", "4096"},
          {"intermediate_size", "12288"},
          {"max_position_embeddings", "40960"},
          {"max_window_layers", "36"},
          {"model_type", "\"qwen3\""},
          {"num_attention_heads", "32"},
          {"num_hidden_layers", "36"},
          {"num_key_value_heads", "8"},
          {"rms_norm_eps", "1e-06"},
          {"rope_scaling", "null"},
          {"rope_theta", "1000000"},
          {"sliding_window", "null"},
          {"tie_word_embeddings", "false"},
          {"torch_dtype", "\"bfloat16\""},
          {"use_cache", "true"},
          {"use_sliding_window", "false"},
          {"vocab_size", "151936"}};
}

Json Moe() {
  Json json = Dense();
  json["architectures"] = "[\"Qwen3MoeForCausalLM\"]";
  json["model_type"] = "\"qwen3_moe\"";
  json["num_hidden_layers"] = "6";
  json["num_experts"] = "128";
  json["num_experts_per_tok"] = "8";
  json["moe_intermediate_size"] = "768";
  json["norm_topk_prob"] = "true";
  json["decoder_sparse_step"] = "1";
  json["mlp_only_layers"] = "[]";
  return json;
}

StatusOr<ModelConfig> Parse(const Json& json, const std::string& generation = "") {
  return ParseConfig(Text(json), generation, "dir");
}

Json With(Json json, const std::string& key, const std::string& value) {
  json[key] = value;
  return json;
}

Json Without(Json json, const std::string& key) {
  json.erase(key);
  return json;
}

// A file of arch/ without its line in the registry would be compiled and never found.
TEST(every_architecture_is_registered) {
  size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::SourcePath("src/model/arch"))) {
    const std::string name = entry.path().stem();
    if (entry.path().extension() != ".cc" || name == "registry") continue;
    ++files;
    const Arch* arch = FindArch(name);
    if (arch == nullptr) std::printf("# %s\n", name.c_str());
    CHECK(arch != nullptr);
    CHECK_EQ(std::string(arch->model_type), name);
  }
  CHECK_LE(2u, files);
  CHECK(absl::StrContains(ArchNames(), "qwen3"));
  CHECK(absl::StrContains(ArchNames(), " and "));
}

TEST(a_dense_config) {
  const auto config = Parse(Dense());
  CHECK_OK(config);
  CHECK_EQ(config->model_type, "qwen3");
  CHECK_EQ(config->hidden, 4096);
  CHECK_EQ(config->layers, 36);
  CHECK_EQ(config->heads, 32);
  CHECK_EQ(config->kv_heads, 8);
  CHECK_EQ(config->head_dim, 128);
  CHECK_EQ(config->intermediate, 12288);
  CHECK_EQ(config->vocab, 151936);
  CHECK_EQ(config->rms_eps, 1e-6f);
  CHECK_EQ(config->max_position, 40960);
  CHECK(!config->tied_embeddings);
  CHECK_EQ(config->rope.theta, 1e6);
  CHECK_EQ(config->rope.rotary_dim, 128);
  CHECK(config->rope.kind == RopeKind::kPlain);
  CHECK_EQ(config->experts, 0);
  CHECK_EQ(config->sparse_layer.size(), 36u);
  CHECK(std::count(config->sparse_layer.begin(), config->sparse_layer.end(), true) == 0);
  CHECK(config->eos_ids == std::vector<uint32_t>{151645});
  CHECK_EQ(config->temperature, 0.0f);
  CHECK_EQ(config->repetition_penalty, 1.0f);
}

TEST(a_moe_config) {
  auto config = Parse(Moe());
  CHECK_OK(config);
  CHECK_EQ(config->experts, 128);
  CHECK_EQ(config->experts_per_token, 8);
  CHECK_EQ(config->moe_intermediate, 768);
  CHECK(config->norm_topk_prob);
  CHECK(config->sparse_layer == std::vector<bool>(6, true));
  config = Parse(With(With(Moe(), "decoder_sparse_step", "2"), "mlp_only_layers", "[3]"));
  CHECK_OK(config);
  CHECK(config->sparse_layer == (std::vector<bool>{false, true, false, false, false, true}));
  config = Parse(Without(Moe(), "norm_topk_prob"));
  CHECK_OK(config);
  CHECK(!config->norm_topk_prob);  // the class default
  // No dense layer needs no dense width; one does.
  CHECK_OK(Parse(Without(Moe(), "intermediate_size")));
  CHECK_REFUSED(Parse(Without(With(Moe(), "mlp_only_layers", "[0]"), "intermediate_size")),
                Code::kBadModel, "dir/config.json", "intermediate_size", "missing");
  config = Parse(With(Moe(), "num_experts", "0"));
  CHECK_OK(config);
  CHECK(config->sparse_layer == std::vector<bool>(6, false));
  CHECK_OK(Parse(With(Without(Moe(), "num_experts"), "num_local_experts", "128")));
}

// As transformers' classes have it: Qwen3's says 128, most take the quotient, rounded down.
TEST(missing_head_dim_is_the_class_default_and_null_is_the_quotient) {
  auto config = Parse(With(Without(Dense(), "head_dim"), "hidden_size", "2048"));
  CHECK_OK(config);
  CHECK_EQ(config->head_dim, 128);
  config = Parse(With(With(Dense(), "head_dim", "null"), "hidden_size", "2048"));
  CHECK_OK(config);
  CHECK_EQ(config->head_dim, 64);
  config = Parse(Without(With(Moe(), "hidden_size", "2050"), "head_dim"));
  CHECK_OK(config);
  CHECK_EQ(config->head_dim, 64);
  CHECK_REFUSED(Parse(With(With(Dense(), "head_dim", "null"), "hidden_size", "2080")),
                Code::kBadModel, "head_dim is 65", "num_attention_heads", "even");
}

TEST(missing_keys_are_the_class_defaults) {
  auto config = Parse(Without(Dense(), "num_key_value_heads"));
  CHECK_OK(config);
  CHECK_EQ(config->kv_heads, 32);
  config = Parse(Without(Moe(), "num_key_value_heads"));
  CHECK_OK(config);
  CHECK_EQ(config->kv_heads, 4);
  config = Parse(With(Moe(), "num_key_value_heads", "null"));
  CHECK_OK(config);
  CHECK_EQ(config->kv_heads, 32);
  config = Parse(Without(Dense(), "max_position_embeddings"));
  CHECK_OK(config);
  CHECK_EQ(config->max_position, 32768);
  config = Parse(Without(Dense(), "rms_norm_eps"));
  CHECK_OK(config);
  CHECK_EQ(config->rms_eps, 1e-6f);
}

TEST(tied_embeddings_nested_first) {
  Json outer = {{"text_config", Text(Without(Dense(), "tie_word_embeddings"))},
                {"tie_word_embeddings", "true"}};
  auto config = Parse(outer);
  CHECK_OK(config);
  CHECK(config->tied_embeddings);
  outer["text_config"] = Text(Dense());  // false
  config = Parse(outer);
  CHECK_OK(config);
  CHECK(!config->tied_embeddings);
  config = Parse(Without(Dense(), "tie_word_embeddings"));
  CHECK_OK(config);
  CHECK(!config->tied_embeddings);
}

TEST(rope_in_every_spelling) {
  // transformers 5
  auto config = Parse(With(Without(Dense(), "rope_theta"), "rope_parameters",
                           R"({"rope_type":"default","rope_theta":5000000})"));
  CHECK_OK(config);
  CHECK_EQ(config->rope.theta, 5e6);
  // rope_parameters wins over the flat key, which fills what it lacks
  config = Parse(With(Dense(), "rope_parameters", R"({"rope_theta":7.5})"));
  CHECK_OK(config);
  CHECK_EQ(config->rope.theta, 7.5);
  config = Parse(With(With(Dense(), "rope_parameters", R"({"rope_type":"default"})"),
                      "partial_rotary_factor", "0.25"));
  CHECK_OK(config);
  CHECK_EQ(config->rope.theta, 1e6);
  CHECK_EQ(config->rope.rotary_dim, 128);  // Qwen3 turns whole heads, whatever the key says
  config = Parse(Without(Without(Dense(), "rope_theta"), "rope_scaling"));
  CHECK_OK(config);
  CHECK_EQ(config->rope.theta, 1e4);
}

TEST(yarn_in_every_spelling) {
  for (const char* type : {"rope_type", "type"}) {
    const std::string scaling = "{\"" + std::string(type) +
                                R"(":"yarn","factor":4,"original_max_position_embeddings":32768})";
    const auto config = Parse(With(Dense(), "rope_scaling", scaling));
    CHECK_OK(config);
    CHECK(config->rope.kind == RopeKind::kYarn);
    CHECK_EQ(config->rope.theta, 1e6);
    CHECK_EQ(config->rope.factor, 4.0);
    CHECK_EQ(config->rope.original_max_position, 32768);
    CHECK_LT(std::fabs(config->rope.attention_factor - 1.1386294361119891), 1e-15);
    CHECK_EQ(config->rope.beta_fast, 32.0);
    CHECK_EQ(config->rope.beta_slow, 1.0);
    CHECK(config->rope.truncate);
    CHECK_EQ(config->max_position, 131072);
  }
  const auto config = Parse(With(
      Dense(), "rope_parameters",
      R"({"rope_type":"yarn","rope_theta":5e6,"factor":2.0,"attention_factor":1.5,"beta_fast":16,
          "beta_slow":2,"truncate":false,"mrope_section":[11,11,10],"mrope_interleaved":true})"));
  CHECK_OK(config);
  CHECK_EQ(config->rope.attention_factor, 1.5);
  CHECK_EQ(config->rope.original_max_position, 40960);  // absent: max_position_embeddings
  CHECK_EQ(config->rope.beta_fast, 16.0);
  CHECK_EQ(config->rope.beta_slow, 2.0);
  CHECK(!config->rope.truncate);
}

TEST(llama3_scaling) {
  const auto config = Parse(With(
      Dense(), "rope_scaling",
      R"({"rope_type":"llama3","factor":32.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
          "original_max_position_embeddings":8192})"));
  CHECK_OK(config);
  CHECK(config->rope.kind == RopeKind::kLlama3);
  CHECK_EQ(config->rope.factor, 32.0);
  CHECK_EQ(config->rope.low_freq_factor, 1.0);
  CHECK_EQ(config->rope.high_freq_factor, 4.0);
  CHECK_EQ(config->rope.original_max_position, 8192);
  CHECK_EQ(config->max_position, 40960);  // the file says it whole
}

TEST(bad_rope_is_refused) {
  const struct {
    const char* scaling;
    Code code;
    std::initializer_list<const char*> parts;
  } cases[] = {
      {R"({"rope_type":"proportional","factor":8})",
       Code::kUnsupported,
       {"rope_type", "\"proportional\"", "longrope"}},
      {R"({"rope_type":"longrope","factor":8})", Code::kBadModel, {"short_factor has 0", "64"}},
      {R"({"rope_type":"linear"})", Code::kBadModel, {"factor is missing"}},
      {R"({"rope_type":"llama3"})", Code::kBadModel, {"factor", "missing", "1024"}},
      {R"({"rope_type":"llama3","factor":8,"high_freq_factor":4})",
       Code::kBadModel,
       {"low_freq_factor is missing"}},
      {R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})",
       Code::kBadModel,
       {"high_freq_factor is 4", "low_freq_factor 4"}},
      {R"({"rope_type":"llama3","factor":8,"low_freq_factor":0,"high_freq_factor":4})",
       Code::kBadModel,
       {"low_freq_factor is 0"}},
      {R"({"type":"dynamic"})", Code::kBadModel, {"factor is missing"}},
      {R"({"rope_type":"yarn"})", Code::kBadModel, {"factor", "missing", "1024"}},
      {R"({"rope_type":"yarn","factor":0.5})", Code::kBadModel, {"factor is 0.5", "1 and 1024"}},
      {R"({"rope_type":"yarn","factor":"4"})", Code::kBadModel, {"factor is \"4\""}},
      {R"({"rope_type":"yarn","factor":4,"llama_4_scaling_beta":1})",
       Code::kUnsupported,
       {"\"llama_4_scaling_beta\" is 1"}},
      {R"({"rope_type":"yarn","factor":4,"mscale":-1})", Code::kBadModel, {"mscale is -1"}},
      {R"({"rope_type":"yarn","factor":4,"attention_factor":0})",
       Code::kBadModel,
       {"attention_factor is 0", "more than 0"}},
      {R"({"rope_type":"yarn","factor":4,"beta_fast":0.5})",
       Code::kBadModel,
       {"beta_fast is 0.5", "beta_slow 1"}},
      {R"({"rope_type":"yarn","factor":4,"truncate":1})", Code::kBadModel, {"truncate is 1"}},
      {R"({"rope_type":"yarn","factor":4,"original_max_position_embeddings":32768.0})",
       Code::kBadModel,
       {"original_max_position_embeddings is 32768.0", "integer"}},
      {R"({"rope_theta":0.5})", Code::kBadModel, {"rope_theta is 0.5"}},
      {R"({"full_attention":{"rope_type":"default"}})", Code::kUnsupported, {"full_attention"}},
      {R"([])", Code::kBadModel, {"rope_scaling is an array"}},
  };
  for (const auto& one : cases) {
    const auto result = Parse(With(Dense(), "rope_scaling", one.scaling));
    CHECK_REFUSED(result, one.code, "dir/config.json", "rope_scaling");
    for (const char* part : one.parts) CHECK_REFUSED(result, one.code, part);
  }
  Json partial = Dense();
  partial["model_type"] = "\"glm4_moe\"";
  partial["architectures"] = "[\"Glm4MoeForCausalLM\"]";
  for (const auto& [key, value] : Json{{"n_routed_experts", "8"},
                                       {"num_experts_per_tok", "2"},
                                       {"moe_intermediate_size", "64"}}) {
    partial[key] = value;
  }
  const auto half = Parse(partial);
  CHECK_OK(half);
  CHECK_EQ(half->rope.rotary_dim, 64);  // the class default
  CHECK_REFUSED(Parse(With(partial, "partial_rotary_factor", "0.01")), Code::kBadModel,
                "partial_rotary_factor is 0.01", "128");
  CHECK_REFUSED(Parse(With(partial, "partial_rotary_factor", "1.5")), Code::kBadModel,
                "partial_rotary_factor is 1.5");
}

TEST(linear_and_dynamic_scaling) {
  auto config = Parse(With(Dense(), "rope_scaling", R"({"type":"linear","factor":2.5})"));
  CHECK_OK(config);
  CHECK(config->rope.kind == RopeKind::kLinear);
  CHECK_EQ(config->rope.factor, 2.5);
  CHECK_EQ(config->max_position, 40960);
  // Its changes begin behind max_position_embeddings, where no sequence gets.
  config = Parse(With(Dense(), "rope_scaling", R"({"rope_type":"dynamic","factor":2.5})"));
  CHECK_OK(config);
  CHECK(config->rope == RopeConfig({.theta = 1e6, .rotary_dim = 128}));
}

TEST(longrope_takes_the_long_list_if_the_model_reaches_beyond_its_original_range) {
  Json json = With(Dense(), "head_dim", "8");
  const char* scaling =
      R"({"rope_type":"longrope","short_factor":[1,2,3,4],"long_factor":[5,6,7,8.5],
          "original_max_position_embeddings":4096})";
  auto config = Parse(With(json, "rope_scaling", scaling));
  CHECK_OK(config);
  CHECK(config->rope.divisors == (std::vector<double>{5, 6, 7, 8.5}));
  // sqrt(1 + ln(10) / ln(4096))
  CHECK_LT(std::fabs(config->rope.attention_factor - 1.129967849649101), 1e-14);
  // A flat key comes before the object's.
  config =
      Parse(With(With(json, "rope_scaling", scaling), "original_max_position_embeddings", "40960"));
  CHECK_OK(config);
  CHECK(config->rope.divisors == (std::vector<double>{1, 2, 3, 4}));
  CHECK_EQ(config->rope.attention_factor, 1.0);
  CHECK_REFUSED(
      Parse(With(json, "rope_scaling",
                 R"({"rope_type":"longrope","short_factor":[1,2,3,4],"long_factor":[1,2,3]})")),
      Code::kBadModel, "long_factor has 3", "4");
  CHECK_REFUSED(
      Parse(With(json, "rope_scaling",
                 R"({"rope_type":"longrope","short_factor":[1,0,3,4],"long_factor":[1,2,3,4]})")),
      Code::kBadModel, "short_factor[1] is 0");
}

TEST(yarn_scale_from_mscale) {
  const auto config =
      Parse(With(Dense(), "rope_scaling",
                 R"({"rope_type":"yarn","factor":40,"mscale":1.0,"mscale_all_dim":0.5,
          "original_max_position_embeddings":4096,"attn_factor":7})"));
  CHECK_OK(config);
  // (0.1 ln(40) + 1) / (0.05 ln(40) + 1)
  CHECK_LT(std::fabs(config->rope.attention_factor - 1.1557219901962655), 1e-12);
}

TEST(every_number_is_ranged) {
  const struct {
    const char* key;
    const char* below;
    const char* above;
    const char* limit;
  } cases[] = {
      {"hidden_size", "0", "65537", "65536"},
      {"num_hidden_layers", "0", "1025", "1024"},
      {"num_attention_heads", "-1", "1025", "1024"},
      {"num_key_value_heads", "0", "1025", "1024"},
      {"head_dim", "1", "1025", "1024"},
      {"intermediate_size", "0", "1048577", "1048576"},
      {"moe_intermediate_size", "0", "1048577", "1048576"},
      {"vocab_size", "0", "16777217", "16777216"},
      {"max_position_embeddings", "0", "268435457", "268435456"},
      {"num_experts", "-1", "4097", "4096"},
      {"num_experts_per_tok", "0", "129", "128"},
      {"decoder_sparse_step", "0", "1025", "1024"},
      {"eos_token_id", "-2", "4294967296", "4294967295"},
  };
  for (const auto& one : cases) {
    for (const char* value :
         {one.below, one.above, "9223372036854775808", "-9223372036854775808"}) {
      const std::string is = std::string(" is ") + value;
      CHECK_REFUSED(Parse(With(Moe(), one.key, value)), Code::kBadModel, "dir/config.json", one.key,
                    is.c_str(), one.limit);
    }
    for (const char* value : {"1.0", "\"1\"", "true", "[[]]", "{}"}) {
      CHECK_REFUSED(Parse(With(Moe(), one.key, value)), Code::kBadModel, "dir/config.json",
                    one.key);
    }
    CHECK_REFUSED(Parse(With(Moe(), one.key, "1.0")), Code::kBadModel, " is 1.0, not an integer");
    CHECK_REFUSED(Parse(With(Moe(), one.key, "NaN")), Code::kBadModel, "dir/config.json");
    CHECK_REFUSED(Parse(With(Moe(), one.key, "1e400")), Code::kBadModel, "dir/config.json");
    CHECK_REFUSED(Parse(With(Moe(), one.key, "99999999999999999999999")), Code::kBadModel,
                  "dir/config.json");
  }
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                          "num_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
    CHECK_REFUSED(Parse(Without(Moe(), key)), Code::kBadModel, "dir/config.json", key, "missing");
    CHECK_REFUSED(Parse(With(Moe(), key, "null")), Code::kBadModel, key, "missing");
  }
}

TEST(fractions_are_ranged) {
  CHECK_OK(Parse(With(Dense(), "rms_norm_eps", "0.125")));
  for (const char* value : {"0", "-1e-6", "0.2", "\"1e-6\"", "1e-60"}) {
    CHECK_REFUSED(Parse(With(Dense(), "rms_norm_eps", value)), Code::kBadModel, "dir/config.json",
                  "rms_norm_eps is");
  }
  for (const char* value : {"0", "1e13", "-5"}) {
    CHECK_REFUSED(Parse(With(Dense(), "rope_theta", value)), Code::kBadModel, "rope_theta is",
                  "limits are 1 and");
  }
}

TEST(heads_must_divide) {
  CHECK_REFUSED(Parse(With(Dense(), "num_key_value_heads", "7")), Code::kBadModel,
                "num_key_value_heads is 7", "32");
  CHECK_REFUSED(Parse(With(Dense(), "head_dim", "127")), Code::kBadModel, "head_dim is 127",
                "even");
}

TEST(other_architectures_are_refused_by_name) {
  CHECK_REFUSED(Parse(With(Dense(), "model_type", "\"mamba\"")), Code::kUnsupported,
                "dir/config.json", "model_type", "\"mamba\"", "qwen3_moe");
  CHECK_REFUSED(Parse(Without(Dense(), "model_type")), Code::kBadModel, "model_type", "missing");
  CHECK_REFUSED(Parse(With(Dense(), "architectures", "[\"Qwen3ForSequenceClassification\"]")),
                Code::kUnsupported, "architectures[0]", "Qwen3ForSequenceClassification",
                "Qwen3ForCausalLM");
  CHECK_REFUSED(Parse(With(Dense(), "architectures", "[\"Qwen3MoeForCausalLM\"]")),
                Code::kUnsupported, "architectures[0]");
  CHECK_REFUSED(Parse(With(Dense(), "architectures", "[7]")), Code::kUnsupported,
                "architectures[0] is 7");
  CHECK_OK(Parse(Without(Dense(), "architectures")));
  // A vision-language wrapper: the outer type, and the nested one, by name.
  const Json wrapper = {{"architectures", "[\"Qwen4ExpForConditionalGeneration\"]"},
                        {"model_type", "\"qwen4_exp\""},
                        {"text_config", Text(With(Dense(), "model_type", "\"qwen4_exp_text\""))}};
  CHECK_REFUSED(Parse(wrapper), Code::kUnsupported, "model_type", "\"qwen4_exp\"");
  CHECK_REFUSED(Parse(Without(wrapper, "model_type")), Code::kUnsupported, "text_config.model_type",
                "\"qwen4_exp_text\"");
  const Json good = {{"text_config", Text(Dense())}};
  CHECK_OK(Parse(good));
  CHECK_REFUSED(Parse({{"text_config", Text(With(Dense(), "hidden_size", "0"))}}), Code::kBadModel,
                "text_config.hidden_size is 0");
  CHECK_REFUSED(Parse({{"text_config", "3"}}), Code::kBadModel, "text_config is 3");
}

// As published for the 0.8B, but for what else such files say; inside the wrapper that sees.
Json Hybrid() {
  return {{"hidden_size", "1024"},           {"num_hidden_layers", "24"},
          {"num_attention_heads", "8"},      {"num_key_value_heads", "2"},
          {"head_dim", "256"},               {"intermediate_size", "3584"},
          {"vocab_size", "248320"},          {"max_position_embeddings", "262144"},
          {"linear_num_value_heads", "16"},  {"full_attention_interval", "4"},
          {"mamba_ssm_dtype", "\"float32\""}, {"attn_output_gate", "true"},
          {"model_type", "\"qwen3_5_text\""},
          {"rope_parameters",
           R"({"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
               "mrope_section": [11, 11, 10], "mrope_interleaved": true})"}};
}
Json Wrapped(const Json& text) {
  return {{"architectures", "[\"Qwen3_5ForConditionalGeneration\"]"},
          {"model_type", "\"qwen3_5\""},
          {"tie_word_embeddings", "true"},
          {"text_config", Text(text)}};
}

TEST(hybrids_inside_and_outside_their_wrapper) {
  for (const Json& json : {Wrapped(Hybrid()), With(Hybrid(), "tie_word_embeddings", "true")}) {
    const auto config = Parse(json);
    CHECK_OK(config);
    CHECK(config->tied_embeddings && config->norms.plus_one && config->attention.output_gate);
    CHECK(config->delta == (DeltaConfig{16, 16, 128, 128, 4, false}));
    CHECK_EQ(config->rope.rotary_dim, 64);
    for (size_t i = 0; i < 24; ++i) CHECK_EQ(config->IsDelta(i), i % 4 != 3);
  }
  // Which layers, by name; the old names, too.
  const auto types = Parse(With(With(Hybrid(), "num_hidden_layers", "3"), "layer_types",
                                R"(["mamba", "attention", "linear_attention"])"));
  CHECK_OK(types);
  CHECK(types->delta_layer == std::vector<bool>({true, false, true}));
  // Experts in every layer, whatever the keys of Qwen3-Next say, their weights always divided.
  Json moe = With(Hybrid(), "model_type", "\"qwen3_5_moe_text\"");
  for (const auto& [key, value] : Json{{"num_experts", "16"},
                                       {"num_experts_per_tok", "4"},
                                       {"moe_intermediate_size", "64"},
                                       {"mlp_only_layers", "[1]"},
                                       {"norm_topk_prob", "false"}}) {
    moe[key] = value;
  }
  auto config = Parse(moe);
  CHECK_OK(config);
  CHECK(config->norm_topk_prob && config->sparse_layer[1] && config->shared_gate);
  CHECK_EQ(config->shared_intermediate, 512);
  moe["model_type"] = "\"qwen3_next\"";
  config = Parse(moe);
  CHECK_OK(config);
  CHECK(!config->norm_topk_prob && !config->sparse_layer[1] && config->delta.by_key_head);
}

TEST(what_hybrids_cannot_have_is_refused_by_name) {
  const auto refused = [&](const char* key, const char* value) {
    return Parse(With(Hybrid(), key, value));
  };
  CHECK_REFUSED(refused("linear_key_head_dim", "24"), Code::kUnsupported, "linear_key_head_dim is 24",
                "16");
  CHECK_REFUSED(refused("linear_value_head_dim", "512"), Code::kBadModel,
                "linear_value_head_dim is 512", "256");
  CHECK_REFUSED(refused("linear_num_key_heads", "3"), Code::kBadModel, "linear_num_value_heads is 16",
                "3");
  CHECK_REFUSED(refused("linear_conv_kernel_dim", "9"), Code::kBadModel, "linear_conv_kernel_dim is 9",
                "8");
  CHECK_REFUSED(refused("output_gate_type", "\"sigmoid\""), Code::kUnsupported,
                "output_gate_type is \"sigmoid\"", "swish");
  CHECK_REFUSED(refused("attn_output_gate", "false"), Code::kUnsupported, "attn_output_gate");
  CHECK_REFUSED(refused("layer_types", "[\"linear_attention\"]"), Code::kBadModel, "layer_types", "24");
  CHECK_REFUSED(Parse(With(With(Hybrid(), "num_hidden_layers", "1"), "layer_types",
                           "[\"sliding_attention\"]")),
                Code::kUnsupported, "layer_types[0]", "\"sliding_attention\"", "linear_attention");
}

TEST(other_features_are_refused_by_name) {
  for (const char* key : {"mlp_bias", "attn_output_gate"}) {
    CHECK_REFUSED(Parse(With(Dense(), key, "true")), Code::kUnsupported, "dir/config.json", key,
                  "true");
    CHECK_REFUSED(Parse(With(Dense(), key, "0")), Code::kBadModel, key, "is 0");
  }
  CHECK_REFUSED(Parse(With(Dense(), "hidden_act", "\"gelu\"")), Code::kUnsupported, "hidden_act",
                "\"gelu\"", "silu");
  CHECK_REFUSED(Parse(With(Dense(), "quantization_config", R"({"quant_method":"bitsandbytes"})")),
                Code::kUnsupported, "quantization_config.quant_method", "\"bitsandbytes\"");
  for (const char* method : {"fp8", "quark", "compressed-tensors", "modelopt"}) {
    CHECK_OK(Parse(With(Dense(), "quantization_config",
                        R"({"quant_method":")" + std::string(method) + R"("})")));
  }
  CHECK_REFUSED(Parse(With(Dense(), "num_experts", "8")), Code::kBadModel, "num_experts is 8",
                "qwen3");
}

TEST(gpt_oss_has_one_swiglu) {
  Json json = Without(Without(Dense(), "architectures"), "sliding_window");
  json["model_type"] = "\"gpt_oss\"";
  json["num_local_experts"] = "32";
  json["num_experts_per_tok"] = "4";
  CHECK_OK(Parse(json));
  CHECK_OK(Parse(With(With(json, "swiglu_limit", "7.0"), "swiglu_alpha", "1.702")));
  CHECK_REFUSED(Parse(With(json, "swiglu_limit", "10")), Code::kUnsupported, "swiglu_limit is 10", "must be 7");
  CHECK_REFUSED(Parse(With(json, "swiglu_alpha", "1")), Code::kUnsupported, "swiglu_alpha is 1", "must be 1.702");
}

TEST(layers_have_the_window_that_layer_types_say) {
  const auto types = [](const std::string& last, int count) {
    std::string text = "[";
    for (int i = 0; i + 1 < count; ++i) text += "\"full_attention\",";
    return text + "\"" + last + "\"]";
  };
  auto config = Parse(With(Dense(), "layer_types", types("full_attention", 36)));
  CHECK_OK(config);
  CHECK(config->layer_attention.empty());
  const Json slides = With(With(Dense(), "use_sliding_window", "true"), "sliding_window", "77");
  config = Parse(With(slides, "layer_types", types("sliding_attention", 36)));
  CHECK_OK(config);
  CHECK_EQ(config->AttentionOf(34).window, 0);
  CHECK_EQ(config->AttentionOf(35).window, 77);
  // By default from max_window_layers on, here 36; and none where the window is null.
  config = Parse(slides);
  CHECK_OK(config);
  CHECK(config->layer_attention.empty());
  config = Parse(With(slides, "max_window_layers", "20"));
  CHECK_OK(config);
  CHECK_EQ(config->AttentionOf(19).window, 0);
  CHECK_EQ(config->AttentionOf(20).window, 77);
  config = Parse(With(With(slides, "max_window_layers", "20"), "sliding_window", "null"));
  CHECK_OK(config);
  CHECK(config->layer_attention.empty());
  CHECK_REFUSED(Parse(With(Dense(), "layer_types", types("sliding_attention", 36))),
                Code::kBadModel, "layer_types[35]", "sliding_window says that there is none");
  CHECK_REFUSED(Parse(With(Dense(), "layer_types", types("chunked_attention", 36))),
                Code::kUnsupported, "layer_types[35]", "\"chunked_attention\"");
  CHECK_REFUSED(Parse(With(Dense(), "layer_types", types("full_attention", 35))), Code::kBadModel,
                "layer_types", "35", "36");
}

// Missing, it is that of the first Mistral; null, there is none.
TEST(mistral_has_its_window_in_every_layer) {
  Json json = With(Dense(), "model_type", "\"mistral\"");
  json["architectures"] = "[\"MistralForCausalLM\"]";
  auto config = Parse(json);
  CHECK_OK(config);
  CHECK(config->layer_attention.empty());
  config = Parse(Without(json, "sliding_window"));
  CHECK_OK(config);
  CHECK_EQ(config->AttentionOf(0).window, 4096);
  CHECK_EQ(config->AttentionOf(35).window, 4096);
}

// As published, in MiMo's own keys; its layers cut to six.
Json Mimo() {
  Json json = Dense();
  for (const char* key : {"architectures", "head_dim", "max_window_layers", "rms_norm_eps", "use_sliding_window"}) json.erase(key);
  json["model_type"] = "\"mimo_v2_flash\"";
  json["num_hidden_layers"] = "6";
  json["num_attention_heads"] = "64";
  json["num_key_value_heads"] = "4";
  json["head_dim"] = json["swa_head_dim"] = "192";
  json["v_head_dim"] = json["swa_v_head_dim"] = "128";
  json["swa_num_attention_heads"] = "64";
  json["swa_num_key_value_heads"] = "8";
  json["layernorm_epsilon"] = "1e-05";
  json["hybrid_layer_pattern"] = "[0,1,1,1,0,1]";
  json["sliding_window"] = json["sliding_window_size"] = "128";
  json["rope_theta"] = "5000000";
  json["swa_rope_theta"] = "10000";
  json["partial_rotary_factor"] = "0.334";
  json["attention_value_scale"] = "0.707";
  json["add_swa_attention_sink_bias"] = "true";
  json["add_full_attention_sink_bias"] = "false";
  json["moe_layer_freq"] = "[0,1,1,1,1,1]";
  json["n_routed_experts"] = "256";
  json["num_experts_per_tok"] = "8";
  json["moe_intermediate_size"] = "2048";
  json["n_shared_experts"] = "null";
  json["routed_scaling_factor"] = "null";
  json["n_group"] = json["topk_group"] = "1";
  json["norm_topk_prob"] = "true";
  return json;
}

TEST(mimo_in_its_own_keys_and_in_those_of_transformers) {
  const auto own = Parse(Mimo());
  CHECK_OK(own);
  CHECK_EQ(own->head_dim, 192);
  CHECK_EQ(own->ValueDim(), 128);
  CHECK_EQ(own->rms_eps, 1e-5f);
  CHECK_EQ(own->rope.rotary_dim, 64);
  CHECK_EQ(own->rope.theta, 5e6);
  CHECK_EQ(own->more_ropes.size(), 1u);
  CHECK_EQ(own->more_ropes[0].theta, 1e4);
  CHECK_EQ(own->more_ropes[0].rotary_dim, 64);
  CHECK_EQ(own->attention.value_scale, 0.707);
  CHECK_EQ(own->shared_intermediate, 0);
  CHECK(own->sparse_layer == (std::vector<bool>{false, true, true, true, true, true}));
  for (const size_t layer : {1, 2, 3, 5}) {
    CHECK(own->AttentionOf(layer) == (LayerAttention{129, 1, 8, true}));
    CHECK_EQ(own->KvHeadsOf(layer), 8);
    CHECK(own->HasSinks(layer));
  }
  for (const size_t layer : {0, 4}) {
    CHECK(own->AttentionOf(layer) == (LayerAttention{0, 0, 0, false}));
    CHECK_EQ(own->KvHeadsOf(layer), 4);
    CHECK(!own->HasSinks(layer));
  }
  Json json = Dense();
  for (const auto& [key, value] : Mimo()) {
    if (json.count(key) > 0 || key.starts_with("n_") || key.ends_with("_size") || key == "num_experts_per_tok") json[key] = value;
  }
  for (const char* key : {"architectures", "head_dim", "sliding_window_size", "rms_norm_eps"}) json.erase(key);
  json["sliding_window"] = "129";
  json["layer_types"] = R"(["full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention"])";
  json["mlp_layer_types"] = R"(["dense","sparse","sparse","sparse","sparse","sparse"])";
  json["rope_parameters"] = R"({"full_attention":{"rope_type":"default","rope_theta":5e6,"partial_rotary_factor":0.334},
                               "sliding_attention":{"rope_type":"default","rope_theta":1e4,"partial_rotary_factor":0.334}})";
  const auto theirs = Parse(json);
  CHECK_OK(theirs);
  CHECK_EQ(theirs->head_dim, own->head_dim);
  CHECK_EQ(theirs->value_dim, own->value_dim);
  CHECK_EQ(theirs->rms_eps, own->rms_eps);
  CHECK(theirs->layer_attention == own->layer_attention);
  CHECK(theirs->rope == own->rope);
  CHECK(theirs->more_ropes == own->more_ropes);
  CHECK(theirs->attention == own->attention);
  CHECK(theirs->router == own->router);
  CHECK(theirs->sparse_layer == own->sparse_layer);
  // What the class has where keys are missing, and where they are null.
  for (const char* key : {"layer_types", "mlp_layer_types", "rope_parameters", "sliding_window"}) json.erase(key);
  auto config = Parse(json);
  CHECK_OK(config);
  CHECK_EQ(config->AttentionOf(4).window, 129);
  CHECK_EQ(config->AttentionOf(5).window, 0);
  CHECK(config->rope == own->rope);
  CHECK(config->sparse_layer == own->sparse_layer);
  config = Parse(With(json, "attention_value_scale", "null"));
  CHECK_OK(config);
  CHECK_EQ(config->attention.value_scale, 1.0);
}

TEST(what_mimo_cannot_have_is_refused_by_name) {
  CHECK_REFUSED(Parse(With(Mimo(), "swa_head_dim", "128")), Code::kUnsupported, "swa_head_dim is 128", "must be 192");
  CHECK_REFUSED(Parse(With(Mimo(), "swa_v_head_dim", "192")), Code::kUnsupported, "swa_v_head_dim is 192", "must be 128");
  CHECK_REFUSED(Parse(With(Mimo(), "swa_num_attention_heads", "32")), Code::kUnsupported, "swa_num_attention_heads is 32");
  CHECK_REFUSED(Parse(With(Mimo(), "swa_num_key_value_heads", "5")), Code::kBadModel, "swa_num_key_value_heads is 5", "64");
  CHECK_REFUSED(Parse(With(Mimo(), "v_head_dim", "1025")), Code::kBadModel, "v_head_dim is 1025", "1024");
  CHECK_REFUSED(Parse(With(Mimo(), "hybrid_layer_pattern", "[0,1]")), Code::kBadModel, "hybrid_layer_pattern has 2 entries", "6");
  CHECK_REFUSED(Parse(With(Mimo(), "hybrid_layer_pattern", "[0,1,1,1,2,1]")), Code::kBadModel, "hybrid_layer_pattern[4] is 2");
  CHECK_REFUSED(Parse(With(Mimo(), "moe_layer_freq", "1")), Code::kBadModel, "moe_layer_freq is 1");
  CHECK_REFUSED(Parse(With(Mimo(), "mlp_layer_types", "[\"dense\"]")), Code::kBadModel, "mlp_layer_types has 1 entries");
  CHECK_REFUSED(Parse(With(Mimo(), "mlp_layer_types", R"(["dense","sparse","both","dense","dense","dense"])")),
                Code::kUnsupported, "mlp_layer_types[2] is \"both\"", "\"sparse\"");
  CHECK_REFUSED(Parse(With(Mimo(), "layernorm_epsilon", "-1")), Code::kBadModel, "layernorm_epsilon");
}

TEST(an_end_token_beyond_the_vocabulary_never_comes) {
  const auto config = Parse(With(Dense(), "eos_token_id", "[151936, -1, 7]"),
                            R"({"eos_token_id":[4294967295, 9]})");
  CHECK_OK(config);
  CHECK(config->eos_ids == (std::vector<uint32_t>{7, 9}));
}

TEST(mlp_only_layers_are_ranged) {
  CHECK_REFUSED(Parse(With(Moe(), "mlp_only_layers", "[1,6]")), Code::kBadModel,
                "mlp_only_layers[1] is 6", "0 and 5");
  CHECK_REFUSED(Parse(With(Moe(), "mlp_only_layers", "3")), Code::kBadModel,
                "mlp_only_layers is 3");
}

TEST(eos_is_the_union_of_both_files) {
  auto config = Parse(Dense(), R"({"eos_token_id":[151645,151643]})");
  CHECK_OK(config);
  CHECK(config->eos_ids == (std::vector<uint32_t>{151643, 151645}));
  config = Parse(Without(Dense(), "eos_token_id"), R"({"eos_token_id":7})");
  CHECK_OK(config);
  CHECK(config->eos_ids == std::vector<uint32_t>{7});
  config = Parse(With(Dense(), "eos_token_id", "null"));
  CHECK_OK(config);
  CHECK(config->eos_ids.empty());
  CHECK_REFUSED(Parse(Dense(), R"({"eos_token_id":[1,4294967296]})"), Code::kBadModel,
                "dir/generation_config.json", "eos_token_id[1] is 4294967296", "4294967295");
  std::string many = "[0";
  for (int i = 0; i < 64; ++i) many += ",0";
  CHECK_REFUSED(Parse(With(Dense(), "eos_token_id", many + "]")), Code::kBadModel, "limit of 64");
}

TEST(generation_defaults) {
  auto config = Parse(Dense(),
                      R"({"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.01,
                          "repetition_penalty":1.05,"pad_token_id":151643})");
  CHECK_OK(config);
  CHECK_EQ(config->temperature, 0.6f);
  CHECK_EQ(config->top_k, 20u);
  CHECK_EQ(config->top_p, 0.95f);
  CHECK_EQ(config->min_p, 0.01f);
  CHECK_EQ(config->repetition_penalty, 1.05f);
  config = Parse(Dense(), R"({"do_sample":false,"temperature":0.6})");
  CHECK_OK(config);
  CHECK_EQ(config->temperature, 0.0f);
  config = Parse(Dense(), R"({"do_sample":true})");
  CHECK_OK(config);
  CHECK_EQ(config->temperature, 1.0f);
  config = Parse(Dense(), "{}");
  CHECK_OK(config);
  CHECK_EQ(config->temperature, 0.0f);
  for (const char* bad : {R"({"temperature":-1})", R"({"temperature":"hot"})", R"({"top_p":1.1})",
                          R"({"top_p":0})", R"({"top_p":1e-60})", R"({"repetition_penalty":1e-60})",
                          R"({"top_k":-1})", R"({"top_k":2.0})", R"({"min_p":2})",
                          R"({"repetition_penalty":0})", R"({"do_sample":1})"}) {
    CHECK_REFUSED(Parse(Dense(), bad), Code::kBadModel, "dir/generation_config.json");
  }
}

TEST(bad_json_names_its_file) {
  CHECK_REFUSED(ParseConfig("", "", "dir"), Code::kBadModel, "dir/config.json", "empty");
  CHECK_REFUSED(ParseConfig("[]", "", "dir"), Code::kBadModel, "dir/config.json", "an array");
  CHECK_REFUSED(Parse(Dense(), "[]"), Code::kBadModel, "dir/generation_config.json", "an array");
  CHECK_REFUSED(ParseConfig(R"({"hidden_size":1,"hidden_size":2})", "", "dir"), Code::kBadModel,
                "hidden_size", "twice");
  CHECK_REFUSED(ParseConfig(R"({"quantization_config":{"a":1,"a":1}})", "", "dir"), Code::kBadModel,
                "\"a\"", "quantization_config");
}

}  // namespace
}  // namespace mainarch::model
