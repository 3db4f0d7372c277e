// SPDX-License-Identifier: MIT
//
// The same model under every name that its tensors may have: the same bits. And which matrix the
// logits come from.
#include "model/tensor_names.h"

#include <algorithm>
#include <map>

#include "base/fd.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "model/synthetic.h"
#include "support/checkpoint_files.h"
#include "support/test.h"

namespace mainarch::model {
namespace {

using test::FileTensor;

ModelConfig Config(bool experts, bool tied) {
  ModelConfig c;
  c.model_type = experts ? "qwen3_moe" : "qwen3";
  c.hidden = 64;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 16;
  c.intermediate = 96;
  c.vocab = 80;
  c.max_position = 64;
  c.tied_embeddings = tied;
  c.rope.rotary_dim = 16;
  c.sparse_layer.assign(2, experts);
  if (experts) {
    c.experts = 4;
    c.experts_per_token = 2;
    c.moe_intermediate = 32;
  }
  return c;
}

using Tensors = std::map<std::string, FileTensor>;

// What a synthetic checkpoint of it holds.
Tensors TensorsOf(const ModelConfig& config, std::string* directory) {
  *directory = test::ScratchDirectory() + "/model";
  Tensors out;
  if (!WriteSyntheticCheckpoint(config, *directory, {}).ok()) return out;
  const auto checkpoint = file::Checkpoint::Open(*directory);
  if (!checkpoint.ok()) return out;
  for (const file::TensorView& tensor : (*checkpoint)->tensors()) {
    const std::string name(tensor.name);
    out[name] = {name, std::string(NameOf(tensor.dtype)), tensor.shape,
                 std::string(tensor.bytes.begin(), tensor.bytes.end())};
  }
  return out;
}

// The checkpoint with these tensors instead, and what is changed in its config.json.
std::string Rewritten(const std::string& directory, const Tensors& tensors,
                      const std::string& from = "", const std::string& to = "") {
  const std::string other = test::ScratchDirectory();
  auto config = ReadWholeFile(directory + "/config.json", 1 << 20);
  if (!config.ok()) return "";
  if (const size_t at = config->find(from); !from.empty() && at != std::string::npos) {
    config->replace(at, from.size(), to);
  }
  std::vector<FileTensor> list;
  for (const auto& [name, tensor] : tensors) {
    list.push_back(tensor);
    list.back().name = name;
  }
  test::WriteFile(other + "/config.json", *config);
  test::WriteFile(other + "/model.safetensors", test::Safetensors(list));
  return other;
}

StatusOr<std::vector<std::vector<float>>> LogitsOf(const std::string& directory) {
  ASSIGN_OR_RETURN(auto model, test::LoadOn(directory, {"cpu", "", 1, false}));
  ASSIGN_OR_RETURN(auto runner, test::Runner::Create(model, backend::KvType::kF32, 16));
  return test::AllLogits(runner.get(), test::Prompt(16, 80), {16});
}

bool SameLogits(const std::string& a, const std::string& b) {
  const auto first = LogitsOf(a), second = LogitsOf(b);
  if (!first.ok() || !second.ok() || first->size() != 16) return false;
  return std::equal(first->begin(), first->end(), second->begin(), second->end(),
                    [](const auto& x, const auto& y) { return test::Same(x, y); });
}

StatusOr<HeadSource> HeadOf(const std::string& directory, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto checkpoint, file::Checkpoint::Open(directory));
  return FindHead(*checkpoint, config).source;
}

TEST(what_stands_before_the_names_changes_nothing) {
  std::string directory;
  const Tensors tensors = TensorsOf(Config(false, false), &directory);
  CHECK(!tensors.empty());
  for (const std::string prefix : {"", "language_model.model.", "model.language_model."}) {
    Tensors renamed;
    for (const auto& [name, tensor] : tensors) {
      const bool head = name == "lm_head.weight";
      const std::string other = !head                               ? prefix + name.substr(6)
                                : prefix == "language_model.model." ? "language_model." + name
                                                                    : name;
      renamed[other] = tensor;
    }
    CHECK(SameLogits(directory, Rewritten(directory, renamed)));
  }
}

TEST(a_head_in_the_file_counts_though_the_config_says_tied) {
  std::string untied, tied;
  const Tensors with_head = TensorsOf(Config(false, false), &untied);
  const Tensors without = TensorsOf(Config(false, true), &tied);
  CHECK_EQ(with_head.size(), without.size() + 1);
  CHECK(!SameLogits(untied, tied));
  const std::string other = Rewritten(tied, with_head);
  CHECK(SameLogits(untied, other));
  const auto own = HeadOf(other, Config(false, true));
  CHECK_OK(own);
  CHECK(*own == HeadSource::kOwn);
  // The embedding again, under the head's name, is held once.
  Tensors twice = without;
  twice["lm_head.weight"] = without.at("model.embed_tokens.weight");
  const std::string both = Rewritten(tied, twice);
  CHECK(SameLogits(tied, both));
  const auto same = HeadOf(both, Config(false, true));
  CHECK_OK(same);
  CHECK(*same == HeadSource::kTied);
}

TEST(a_model_without_a_head_has_its_embedding_for_one) {
  std::string untied, tied;
  Tensors headless = TensorsOf(Config(false, false), &untied);
  headless.erase("lm_head.weight");
  // Under full names a head is missed.
  const auto missed = LogitsOf(Rewritten(untied, headless));
  CHECK_REFUSED(missed, Code::kNotFound, "lm_head.weight");
  Tensors bare;
  for (const auto& [name, tensor] : headless) bare[name.substr(6)] = tensor;
  const std::string directory = Rewritten(untied, bare, "Qwen3ForCausalLM", "Qwen3Model");
  const auto source = HeadOf(directory, Config(false, false));
  CHECK_OK(source);
  CHECK(*source == HeadSource::kMissing);
  CHECK(!TensorsOf(Config(false, true), &tied).empty());
  CHECK(SameLogits(tied, directory));
}

// transformers 5 may write a layer's experts as two tensors.
TEST(experts_in_one_tensor_are_those_of_many) {
  std::string directory;
  const ModelConfig config = Config(true, false);
  const Tensors tensors = TensorsOf(config, &directory);
  CHECK(!tensors.empty());
  Tensors fused;
  for (const auto& [name, tensor] : tensors) {
    if (name.find(".experts.") == std::string::npos) fused[name] = tensor;
  }
  for (int layer = 0; layer < 2; ++layer) {
    const std::string base = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    FileTensor up = {"", "BF16", {4, 64, 64}, ""}, down = {"", "BF16", {4, 64, 32}, ""};
    for (int e = 0; e < 4; ++e) {
      const std::string own = base + std::to_string(e) + ".";
      up.bytes += tensors.at(own + "gate_proj.weight").bytes;
      up.bytes += tensors.at(own + "up_proj.weight").bytes;
      down.bytes += tensors.at(own + "down_proj.weight").bytes;
    }
    fused[base + "gate_up_proj"] = up;
    fused[base + "down_proj"] = down;
  }
  CHECK(SameLogits(directory, Rewritten(directory, fused)));
}

}  // namespace
}  // namespace mainarch::model
