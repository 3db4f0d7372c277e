// SPDX-License-Identifier: MIT
#include "golden/fixtures.h"

#include "base/fd.h"

#include <cstdlib>
#include <map>

#include "backend/cpu/dispatch.h"
#include "file/json.h"
#include "model/synthetic.h"
#include "support/test.h"

namespace mainarch::test {
namespace {

StatusOr<file::JsonDocument> Manifest() {
  const std::string path = SourcePath("tests/golden/data/manifest.json");
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, 1 << 22));
  return file::JsonDocument::Parse(text, path, {1 << 22});
}

}  // namespace

std::vector<FixtureCase> AllFixtureCases() {
  std::vector<FixtureCase> cases;
  auto manifest = Manifest();
  // One that cannot be written: a loop over no fixture would pass.
  if (!manifest.ok()) return {{"no manifest", std::string(manifest.status().message()), 0}};
  const char* only = std::getenv("MAINARCH_FIXTURE");
  const simdjson::dom::object models = manifest->root()["models"].get_object().value_unsafe();
  for (const auto& member : models) {
    FixtureCase fixture;
    fixture.fixture = member.value["fixture"].get_string().value_unsafe();
    fixture.variant = member.value["variant"].get_string().value_unsafe();
    fixture.seed = member.value["weight_seed"].get_uint64().value_unsafe();
    if (only == nullptr || fixture.Name() == only) cases.push_back(fixture);
  }
  if (cases.empty()) return {{"MAINARCH_FIXTURE names no fixture", only == nullptr ? "" : only, 0}};
  return cases;
}

StatusOr<model::ModelConfig> FixtureConfig(const std::string& fixture) {
  ASSIGN_OR_RETURN(const auto manifest, Manifest());
  return model::ParseConfig(simdjson::minify(manifest.root()["configs"][fixture].value_unsafe()), "",
                            fixture);
}

std::string WriteFixture(const FixtureCase& fixture, int64_t max_position) {
  static std::map<std::string, std::string> written;
  std::string& directory = written[fixture.Name() + "-" + std::to_string(max_position)];
  if (!directory.empty()) return directory;
  auto config = FixtureConfig(fixture.fixture);
  auto format = model::SyntheticFormatFromName(fixture.variant);
  if (!config.ok() || !format.ok()) return "";
  if (max_position != 0) config->max_position = max_position;
  model::SyntheticOptions options;
  options.format = *format;
  options.seed = fixture.seed;
  const std::string fresh = ScratchDirectory();
  if (!model::WriteSyntheticCheckpoint(*config, fresh, options).ok()) return "";
  return directory = fresh;
}

StatusOr<std::shared_ptr<const model::Model>> LoadOn(const std::string& directory,
                                                     const Setting& setting) {
  backend::BackendOptions options;
  options.device = setting.device;
  options.cpu_target = setting.target;
  options.threads = setting.threads;
  ASSIGN_OR_RETURN(auto backend, backend::CreateBackend(options));
  backend::LoadOptions load;
  load.in_place = setting.in_place;
  return model::Model::Load(std::move(backend), directory, load);
}

std::vector<Setting> AllSettings() {
  std::vector<Setting> settings;
  for (const cpu::Kernels* kernels : cpu::UsableKernels()) {
    settings.push_back({"cpu", kernels->name, 1, false});
  }
  settings.push_back({"cpu:2", "", 2, false});
  settings.push_back({"cpu:4", "", 2, false});
  settings.push_back({"cpu", "", 2, true});
  return settings;
}

model::ModelConfig SmallDense(int64_t max_position) {
  model::ModelConfig c;
  c.model_type = "qwen3";
  c.hidden = 64;
  c.layers = 4;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 32;
  c.intermediate = 96;
  c.vocab = 256;
  c.max_position = max_position;
  c.sparse_layer.assign(4, false);
  c.rope.rotary_dim = 32;
  c.attention.qk_norm = true;
  return c;
}

model::ModelConfig SmallHybrid(bool experts) {
  model::ModelConfig c = SmallDense(256);
  c.model_type = experts ? "qwen3_next" : "qwen3_5_text";
  c.sparse_layer.assign(4, experts);
  c.rope.rotary_dim = 8;
  c.attention.output_gate = true;
  c.norms.plus_one = true;
  c.delta = {4, 8, 16, 32, 4, experts};
  c.delta_layer = {true, false, true, true};
  if (!experts) return c;
  c.experts = 8;
  c.experts_per_token = 3;
  c.moe_intermediate = 64;
  c.norm_topk_prob = true;
  c.shared_intermediate = 64;
  c.shared_gate = true;
  return c;
}

}  // namespace mainarch::test
