// SPDX-License-Identifier: MIT
//
// A GGUF file is the checkpoint that it was made of: names, shapes, configuration, vocabulary.
#include "file/gguf_checkpoint.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numbers>

#include "absl/strings/match.h"
#include "file/json.h"
#include "support/gguf_writer.h"
#include "support/test.h"

namespace mainarch::file {
namespace {

using test::Context;
using test::GgufWriter;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}
std::string Counting(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i);
  return Floats(values);
}

GgufWriter Keys(const std::string& arch) {
  GgufWriter w;
  w.Text("general.architecture", arch);
  w.U32(arch + ".context_length", 4096);
  w.U32(arch + ".embedding_length", 8);
  w.U32(arch + ".block_count", 2);
  w.U32(arch + ".feed_forward_length", 16);
  w.U32(arch + ".attention.head_count", 2);
  w.U32(arch + ".attention.head_count_kv", 1);
  w.F32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  w.F32(arch + ".rope.freq_base", 500000);
  w.Tensor("token_embd.weight", {8, 10}, 0, Counting(80));
  return w;
}

StatusOr<std::shared_ptr<const Checkpoint>> Open(const std::string& bytes) {
  return GgufCheckpoint::Parse(Bytes(bytes), "f.gguf");
}

// A number or string of config.json, as text.
std::string Config(const Checkpoint& checkpoint, absl::string_view key) {
  auto document = JsonDocument::Parse(checkpoint.config_json(), "config", {});
  if (!document.ok()) return "not json";
  simdjson::dom::element value;
  if (document->root().at_pointer(std::string_view(key.data(), key.size())).get(value))
    return "absent";
  return Show(value);
}

void Refused(Context& test_context, const GgufWriter& writer, absl::string_view what, Code code) {
  const std::string bytes = writer.Done();
  const auto checkpoint = Open(bytes);
  CHECK(!checkpoint.ok());
  if (checkpoint.ok()) return;
  CHECK(CodeOf(checkpoint.status()) == code);
  CHECK(absl::StrContains(checkpoint.status().message(), what));
  if (!absl::StrContains(checkpoint.status().message(), what)) {
    std::printf("# %s\n", std::string(checkpoint.status().message()).c_str());
  }
}

TEST(metadata_becomes_a_config) {
  GgufWriter w = Keys("llama");
  w.U32("tokenizer.ggml.eos_token_id", 7);
  w.U32("tokenizer.ggml.eot_token_id", 9);
  const std::string bytes = w.Done();
  const auto checkpoint = Open(bytes);
  CHECK_OK(checkpoint);
  const Checkpoint& c = **checkpoint;
  const auto is = [&](const char* key, const char* value) {
    if (Config(c, key) != value) std::printf("# %s is %s\n", key, Config(c, key).c_str());
    CHECK(Config(c, key) == value);
  };
  is("/architectures/0", "\"LlamaForCausalLM\"");
  is("/model_type", "\"llama\"");
  is("/hidden_size", "8");
  is("/num_hidden_layers", "2");
  is("/intermediate_size", "16");
  is("/num_attention_heads", "2");
  is("/num_key_value_heads", "1");
  is("/head_dim", "4");
  is("/max_position_embeddings", "4096");
  is("/vocab_size", "10");
  is("/rope_theta", "500000.0");
  is("/rope_scaling", "absent");
  is("/hidden_act", "\"silu\"");
  is("/tie_word_embeddings", "true");
  is("/attention_bias", "false");
  is("/eos_token_id/0", "7");
  is("/eos_token_id/1", "9");
  CHECK(c.directory() == "f.gguf");
  CHECK_EQ(c.file_bytes(), bytes.size());
}

TEST(tensors_get_the_names_of_hugging_face) {
  GgufWriter w = Keys("qwen3moe");
  w.U32("qwen3moe.attention.key_length", 4);
  w.U32("qwen3moe.attention.value_length", 4);
  w.U32("qwen3moe.expert_count", 3);
  w.U32("qwen3moe.expert_used_count", 2);
  w.U32("qwen3moe.expert_feed_forward_length", 4);
  w.Tensor("output_norm.weight", {8}, 0, Counting(8));
  w.Tensor("output.weight", {8, 10}, 0, Counting(80));
  const std::pair<const char*, const char*> names[] = {
      {"attn_norm.weight", "input_layernorm.weight"},
      {"attn_q.weight", "self_attn.q_proj.weight"},
      {"attn_k.weight", "self_attn.k_proj.weight"},
      {"attn_v.weight", "self_attn.v_proj.weight"},
      {"attn_output.weight", "self_attn.o_proj.weight"},
      {"attn_q_norm.weight", "self_attn.q_norm.weight"},
      {"attn_k_norm.weight", "self_attn.k_norm.weight"},
      {"ffn_norm.weight", "post_attention_layernorm.weight"},
      {"ffn_gate_inp.weight", "mlp.gate.weight"},
  };
  for (const auto& [gguf, name] : names)
    w.Tensor(std::string("blk.1.") + gguf, {8}, 0, Counting(8));
  w.Tensor("blk.1.ffn_down_exps.weight", {4, 8, 3}, 0, Counting(96));
  w.Tensor("blk.01.attn_q.weight", {8}, 0, Counting(8));  // no layer's number
  const std::string bytes = w.Done();
  const auto checkpoint = Open(bytes);
  CHECK_OK(checkpoint);
  const Checkpoint& c = **checkpoint;
  CHECK(c.Find("model.embed_tokens.weight") != nullptr);
  CHECK(c.Find("model.norm.weight") != nullptr);
  CHECK(c.Find("lm_head.weight") != nullptr);
  CHECK(Config(c, "/tie_word_embeddings") == "false");
  CHECK(Config(c, "/norm_topk_prob") == "true");
  CHECK(Config(c, "/num_experts") == "3");
  for (const auto& [gguf, name] : names) {
    CHECK(c.Find(std::string("model.layers.1.") + name) != nullptr);
    CHECK(c.Find(std::string("blk.1.") + gguf) == nullptr);
  }
  // Each expert's bytes are its share of what lies together.
  for (int e = 0; e < 3; ++e) {
    const TensorView* down =
        c.Find(absl::StrCat("model.layers.1.mlp.experts.", e, ".down_proj.weight"));
    CHECK(down != nullptr);
    if (down == nullptr) continue;
    CHECK((down->shape == std::vector<int64_t>{8, 4}));
    float first;
    std::memcpy(&first, down->bytes.data(), 4);
    CHECK_EQ(first, 32.0f * static_cast<float>(e));
  }
  // What has no known name keeps its own.
  CHECK(c.Find("blk.01.attn_q.weight") != nullptr);
}

TEST(paired_rows_of_a_llama_are_marked_and_its_biases_put_in_order) {
  GgufWriter w = Keys("llama");
  w.Tensor("blk.0.attn_q.weight", {8, 8}, 0, Counting(64));
  w.Tensor("blk.0.attn_k.weight", {8, 4}, 0, Counting(32));
  w.Tensor("blk.0.attn_v.weight", {8, 4}, 0, Counting(32));
  w.Tensor("blk.0.attn_q.bias", {8}, 0, Counting(8));
  const std::string bytes = w.Done();
  const auto checkpoint = Open(bytes);
  CHECK_OK(checkpoint);
  const std::string self = "model.layers.0.self_attn.";
  CHECK_EQ((*checkpoint)->Find(self + "q_proj.weight")->paired_rows, 4);
  CHECK_EQ((*checkpoint)->Find(self + "k_proj.weight")->paired_rows, 4);
  CHECK_EQ((*checkpoint)->Find(self + "v_proj.weight")->paired_rows, 0);
  CHECK(Config(**checkpoint, "/attention_bias") == "true");
  float bias[8];
  std::memcpy(bias, (*checkpoint)->Find(self + "q_proj.bias")->bytes.data(), sizeof(bias));
  const float want[] = {0, 2, 1, 3, 4, 6, 5, 7};
  for (int i = 0; i < 8; ++i) CHECK_EQ(bias[i], want[i]);
}

TEST(llama_3s_scaling_is_recognised_by_its_factors) {
  GgufWriter w = Keys("llama");
  w.U32("llama.attention.key_length", 128);
  w.U32("llama.attention.value_length", 128);
  std::vector<float> factors(64);
  for (size_t i = 0; i < 64; ++i) {
    const double turns =
        8192 * std::pow(5e5, -static_cast<double>(i) / 64) / (2 * std::numbers::pi);
    const double share = std::min(1.0, std::max(0.0, (turns - 1) / 3));
    factors[i] = static_cast<float>(1 / ((1 - share) / 32 + share));
  }
  GgufWriter other = w;
  w.Tensor("rope_freqs.weight", {64}, 0, Floats(factors));
  const std::string bytes = w.Done();
  const auto checkpoint = Open(bytes);
  CHECK_OK(checkpoint);
  CHECK(Config(**checkpoint, "/rope_scaling/rope_type") == "\"llama3\"");
  CHECK(Config(**checkpoint, "/rope_scaling/factor") == "32.0");
  CHECK(Config(**checkpoint, "/rope_scaling/original_max_position_embeddings") == "8192");
  factors[30] *= 1.01f;
  other.Tensor("rope_freqs.weight", {64}, 0, Floats(factors));
  Refused(test_context, other, "\"rope_freqs.weight\" has factor", Code::kUnsupported);
}

TEST(yarn_and_partial_rotation_are_handed_on) {
  GgufWriter w = Keys("qwen3");
  w.Text("qwen3.rope.scaling.type", "yarn");
  w.F32("qwen3.rope.scaling.factor", 4);
  w.U32("qwen3.rope.scaling.original_context_length", 1024);
  w.U32("qwen3.rope.dimension_count", 2);
  const std::string bytes = w.Done();
  const auto checkpoint = Open(bytes);
  CHECK_OK(checkpoint);
  CHECK(Config(**checkpoint, "/rope_scaling/rope_type") == "\"yarn\"");
  CHECK(Config(**checkpoint, "/rope_scaling/factor") == "4.0");
  CHECK(Config(**checkpoint, "/rope_scaling/original_max_position_embeddings") == "1024");
  CHECK(Config(**checkpoint, "/partial_rotary_factor") == "0.5625");  // 2 of 4
}

TEST(what_cannot_be_a_model_is_refused_by_key) {
  GgufWriter none;
  Refused(test_context, none, "general.architecture is missing", Code::kBadModel);
  Refused(test_context, Keys("mamba"),
          "general.architecture is \"mamba\", which is not supported; known are llama, granite, "
          "qwen2, qwen2moe, qwen3, qwen3moe, gemma3, phi3, smollm3, olmo2, gpt-oss, glm4moe, minimax-m2 and deepseek2",
          Code::kUnsupported);
  GgufWriter heads = Keys("qwen3");
  heads.keys.erase(heads.keys.begin() + 5);
  Refused(test_context, heads, "qwen3.attention.head_count is missing", Code::kBadModel);
  GgufWriter twice = Keys("qwen3");
  twice.Tensor("model.embed_tokens.weight", {8, 10}, 0, Counting(80));
  Refused(test_context, twice, "two tensors are what is called \"model.embed_tokens.weight\"",
          Code::kBadModel);
  GgufWriter pairs = Keys("llama");
  pairs.Tensor("blk.0.attn_q.weight", {8, 6}, 0, Counting(48));
  Refused(test_context, pairs, "6 rows are not pairs of 2 heads", Code::kBadModel);
  GgufWriter bos = Keys("qwen3");
  bos.Texts("tokenizer.ggml.tokens", {"a", "b"});
  bos.U32("tokenizer.ggml.bos_token_id", 2);
  Refused(test_context, bos, "bos_token_id is 2, the limits are 0 and 1", Code::kBadModel);
}

// Keys are the first part's; tensors lie in all of them.
struct Split {
  std::vector<GgufWriter> parts;

  static Split Of(uint32_t count) {
    Split split;
    for (uint32_t i = 0; i < count; ++i) {
      GgufWriter w = i == 0 ? Keys("qwen3") : GgufWriter();
      w.Tensor(absl::StrCat("blk.0.", i == 0 ? "attn_norm" : i == 1 ? "ffn_norm" : "attn_q_norm", ".weight"), {8}, 0,
               Counting(8));
      Key(&w, i, count, count + 1);
      split.parts.push_back(w);
    }
    return split;
  }
  static void Key(GgufWriter* w, uint32_t number, uint32_t count, int32_t tensors) {
    w->Key("split.no", 2, test::LittleEndian(static_cast<uint16_t>(number)));
    w->Key("split.count", 2, test::LittleEndian(static_cast<uint16_t>(count)));
    w->Key("split.tensors.count", 5, test::LittleEndian(tensors));
  }
  // Another number than the one that part `i` has.
  void Change(size_t i, uint32_t number, uint32_t count, int32_t tensors) {
    parts[i].keys.resize(parts[i].keys.size() - 3);
    Key(&parts[i], number, count, tensors);
  }
  StatusOr<std::shared_ptr<const Checkpoint>> Parse() {
    files.clear();
    for (const GgufWriter& part : parts) files.push_back(part.Done());
    std::vector<absl::Span<const uint8_t>> spans;
    for (const std::string& file : files) spans.push_back(Bytes(file));
    return GgufCheckpoint::Parse(spans, "f.gguf");
  }
  void Write(const std::string& directory, const std::string& stem) {
    std::filesystem::create_directories(directory);
    for (size_t i = 0; i < parts.size(); ++i) {
      std::ofstream(absl::StrCat(directory, "/", stem, "-0000", i + 1, "-of-0000", parts.size(), ".gguf"),
                    std::ios::binary)
          << parts[i].Done();
    }
  }
  std::vector<std::string> files;
};

TEST(a_file_in_parts_is_one_checkpoint) {
  Split split = Split::Of(3);
  const auto checkpoint = split.Parse();
  CHECK_OK(checkpoint);
  CHECK_EQ((*checkpoint)->tensors().size(), 4u);
  for (const char* name : {"input_layernorm", "post_attention_layernorm", "self_attn.q_norm"}) {
    CHECK((*checkpoint)->Find(absl::StrCat("model.layers.0.", name, ".weight")) != nullptr);
  }
  uint64_t bytes = 0;
  for (const std::string& file : split.files) bytes += file.size();
  CHECK_EQ((*checkpoint)->file_bytes(), bytes);
  // From files, by the first one's name or the directory's.
  const std::string directory = test::ScratchDirectory() + "/parts";
  split.Write(directory, "m");
  for (const char* name : {"/m-00001-of-00003.gguf", ""}) {
    const auto opened = Checkpoint::Open(directory + name);
    CHECK_OK(opened);
    CHECK_EQ((*opened)->tensors().size(), 4u);
    CHECK((*opened)->Find("model.layers.0.self_attn.q_norm.weight")->file == directory + "/m-00003-of-00003.gguf");
  }
  const auto second = Checkpoint::Open(directory + "/m-00002-of-00003.gguf");
  CHECK(CodeOf(second.status()) == Code::kUnsupported);
  CHECK(absl::StrContains(second.status().message(), "split.no is 1: the first part is the one to open"));
  std::filesystem::remove(directory + "/m-00002-of-00003.gguf");
  const auto missing = Checkpoint::Open(directory + "/m-00001-of-00003.gguf");
  CHECK(CodeOf(missing.status()) == Code::kNotFound);
  CHECK(absl::StrContains(missing.status().message(), "m-00002-of-00003.gguf"));
  std::filesystem::rename(directory + "/m-00001-of-00003.gguf", directory + "/other.gguf");
  const auto renamed = Checkpoint::Open(directory + "/other.gguf");
  CHECK(CodeOf(renamed.status()) == Code::kBadModel);
  CHECK(absl::StrContains(renamed.status().message(), "-00001-of-00003.gguf"));
}

TEST(a_directory_is_its_one_file) {
  const std::string directory = test::ScratchDirectory() + "/one";
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/a.gguf", std::ios::binary) << Keys("qwen3").Done();
  CHECK_OK(Checkpoint::Open(directory));
  std::ofstream(directory + "/mmproj-a.gguf") << "of what sees";
  CHECK_OK(Checkpoint::Open(directory));
  std::ofstream(directory + "/b.gguf", std::ios::binary) << Keys("qwen3").Done();
  const auto two = Checkpoint::Open(directory);
  CHECK(CodeOf(two.status()) == Code::kBadModel);
  CHECK(absl::StrContains(two.status().message(), "several GGUF files"));
}

TEST(parts_that_do_not_belong_together_are_refused) {
  const auto refused = [&](Split split, absl::string_view what, Code code = Code::kBadModel) {
    const auto checkpoint = split.Parse();
    if (checkpoint.ok() || CodeOf(checkpoint.status()) != code ||
        !absl::StrContains(checkpoint.status().message(), what)) {
      std::printf("# %s: %s\n", std::string(what).c_str(), std::string(checkpoint.status().message()).c_str());
      return false;
    }
    return true;
  };
  Split split = Split::Of(2);
  split.Change(1, 0, 2, 3);
  CHECK(refused(split, "f.gguf[1]: split.no is 0, not 1"));
  split = Split::Of(2);
  split.Change(1, 1, 3, 3);
  CHECK(refused(split, "split.count is 3, not 2"));
  split = Split::Of(2);
  split.Change(1, 1, 2, 4);
  CHECK(refused(split, "split.tensors.count is 4, not 3"));
  split = Split::Of(2);
  split.Change(0, 0, 2, 4);
  split.Change(1, 1, 2, 4);
  CHECK(refused(split, "split.tensors.count is 4, and the 2 parts have 3"));
  split = Split::Of(2);
  split.parts[1].keys.clear();
  CHECK(refused(split, "split.no is missing"));
  split = Split::Of(2);
  split.parts[0].keys.pop_back();
  CHECK(refused(split, "split.tensors.count is missing"));
  split = Split::Of(3);
  split.parts.pop_back();
  CHECK(refused(split, "split.count is 3, and there are 2"));
  split = Split::Of(2);
  split.parts.push_back(split.parts[1]);
  CHECK(refused(split, "split.count is 2, and there are 3"));
  split = Split::Of(2);
  split.parts[1] = split.parts[0];
  split.Change(0, 0, 2, 4);
  split.Change(1, 1, 2, 4);
  CHECK(refused(split, "two tensors are what is called"));
  split = Split::Of(2);
  split.Change(0, 0, 2000, 3);
  CHECK(refused(split, "split.count is 2000"));
}

TEST(gpt_oss_sinks_and_biases_of_experts) {
  GgufWriter w = Keys("gpt-oss");
  w.U32("gpt-oss.expert_count", 3);
  w.U32("gpt-oss.attention.sliding_window", 64);
  w.Text("gpt-oss.rope.scaling.type", "yarn");
  w.F32("gpt-oss.rope.scaling.factor", 32);
  w.Tensor("blk.0.attn_sinks.weight", {2}, 0, Counting(2));
  w.Tensor("blk.0.ffn_gate_exps.weight", {8, 16, 3}, 0, Counting(384));
  w.Tensor("blk.0.ffn_gate_exps.bias", {16, 3}, 0, Counting(48));
  w.Tensor("blk.0.ffn_gate_inp.bias", {3}, 0, Counting(3));
  const std::string bytes = w.Done();
  const auto checkpoint = Open(bytes);
  CHECK_OK(checkpoint);
  const std::string layer = "model.layers.0.";
  for (const char* name : {"self_attn.sinks", "mlp.experts.2.gate_proj.weight", "mlp.experts.gate_proj.bias",
                           "mlp.router.bias"}) {
    CHECK((*checkpoint)->Find(layer + name) != nullptr);
  }
  CHECK(((*checkpoint)->Find(layer + "mlp.experts.gate_proj.bias")->shape == std::vector<int64_t>{3, 16}));
  CHECK(Config(**checkpoint, "/num_local_experts") == "3");
  CHECK(Config(**checkpoint, "/sliding_window") == "64");
  CHECK(Config(**checkpoint, "/rope_scaling/truncate") == "false");
}

TEST(layers_that_draft_are_not_the_models) {
  GgufWriter w = Keys("glm4moe");
  w.U32("glm4moe.nextn_predict_layers", 1);
  w.U32("glm4moe.expert_count", 4);
  w.U32("glm4moe.leading_dense_block_count", 1);
  w.Bool("glm4moe.expert_weights_norm", true);
  w.F32("glm4moe.expert_weights_scale", 2.5f);
  w.Tensor("blk.0.exp_probs_b.bias", {4}, 0, Counting(4));
  const std::string bytes = w.Done();
  const auto checkpoint = Open(bytes);
  CHECK_OK(checkpoint);
  CHECK(Config(**checkpoint, "/num_hidden_layers") == "1");
  CHECK(Config(**checkpoint, "/n_routed_experts") == "4");
  CHECK(Config(**checkpoint, "/first_k_dense_replace") == "1");
  CHECK(Config(**checkpoint, "/norm_topk_prob") == "true");
  CHECK(Config(**checkpoint, "/routed_scaling_factor") == "2.5");
  CHECK(Config(**checkpoint, "/use_qk_norm") == "false");
  CHECK((*checkpoint)->Find("model.layers.0.mlp.gate.e_score_correction_bias") != nullptr);
}

TEST(special_tokens_and_the_template_become_a_tokenizer_config) {
  GgufWriter w = Keys("qwen3");
  w.Texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<|\"end\"|>"});
  w.U32("tokenizer.ggml.eos_token_id", 3);
  w.Text("tokenizer.chat_template", "{{ \"x\\n\" }}\n");
  const std::string bytes = w.Done();
  const auto checkpoint = Open(bytes);
  CHECK_OK(checkpoint);
  CHECK((*checkpoint)->gguf() != nullptr);
  const auto config = JsonDocument::Parse((*checkpoint)->tokenizer_config_json(), "t", {});
  CHECK_OK(config);
  simdjson::dom::element value;
  CHECK(!config->root()["chat_template"].get(value));
  CHECK(std::string_view(value) == "{{ \"x\\n\" }}\n");
  CHECK(!config->root()["eos_token"].get(value));
  CHECK(std::string_view(value) == "<|\"end\"|>");
  CHECK(config->root()["bos_token"].get(value) != simdjson::SUCCESS);
}

}  // namespace
}  // namespace mainarch::file
