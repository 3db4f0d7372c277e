// SPDX-License-Identifier: MIT
//
// A checkpoint on a group: config, Program, placed weights, tokenizer. Immutable once loaded; any
// thread; shared by every engine made from it.
#ifndef MAINARCH_MODEL_MODEL_H_
#define MAINARCH_MODEL_MODEL_H_

#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/status.h"
#include "file/checkpoint.h"
#include "model/config.h"
#include "model/part.h"

namespace mainarch::model {

class Model {
 public:
  static StatusOr<std::shared_ptr<const Model>> Load(std::shared_ptr<backend::Backend> backend,
                                                     const std::string& directory,
                                                     const backend::LoadOptions& options,
                                                     Part part = Part::kModel);

  const ModelConfig& config() const { return config_; }
  Part part() const { return part_; }
  const file::Checkpoint& checkpoint() const { return *checkpoint_; }
  std::shared_ptr<const file::Checkpoint> shared_checkpoint() const { return checkpoint_; }
  const backend::LoadedModel& weights() const { return *weights_; }
  const backend::Backend& backend() const { return *backend_; }

 private:
  Model() = default;

  std::shared_ptr<backend::Backend> backend_;
  std::shared_ptr<const file::Checkpoint> checkpoint_;
  ModelConfig config_;
  Part part_ = Part::kModel;
  std::shared_ptr<const backend::LoadedModel> weights_;
};

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_MODEL_H_
