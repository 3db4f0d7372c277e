// SPDX-License-Identifier: MIT
//
// Geometries of models: presets by name, those of another checkpoint's config.json, and options
// that change single fields of either. For synthetic checkpoints.
#ifndef MAINARCH_CLI_GEOMETRY_H_
#define MAINARCH_CLI_GEOMETRY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "cli/options.h"
#include "cli/temporary_directory.h"
#include "model/config.h"
#include "model/synthetic.h"

namespace mainarch::cli {

struct Preset {
  std::string name;
  std::string about;
  model::ModelConfig config;
};
std::vector<Preset> Presets();
// InvalidArgument names the presets there are.
StatusOr<model::ModelConfig> PresetConfig(const std::string& name);
// The config of a checkpoint directory or of a config.json.
StatusOr<model::ModelConfig> ConfigLike(const std::string& path);

std::vector<std::string> FormatNames();

// --preset, --like and one option a field, as make-checkpoint and bench take them.
class GeometryOptions {
 public:
  explicit GeometryOptions(std::string preset) : preset_(std::move(preset)) {}
  void Declare(Options* options);
  void DeclareFields(Options* options);
  StatusOr<model::ModelConfig> Resolve() const;
  const std::string& preset() const { return preset_; }
  const std::string& like() const { return like_; }

 private:
  StatusOr<model::ModelConfig> ResolveFixed(model::ModelConfig config) const;
  std::string preset_, like_;
  // 0: not given.
  int64_t hidden_ = 0, layers_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0, intermediate_ = 0;
  int64_t vocab_ = 0, experts_ = -1, experts_per_token_ = 0, moe_intermediate_ = 0;
  int64_t max_position_ = 0;
  std::string tied_;
};

// Writes a synthetic checkpoint into a temporary directory, with a bar.
StatusOr<std::unique_ptr<TemporaryDirectory>> MakeTemporaryCheckpoint(
    const model::ModelConfig& config, model::SyntheticFormat format, uint64_t seed);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_GEOMETRY_H_
