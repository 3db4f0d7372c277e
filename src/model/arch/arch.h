// SPDX-License-Identifier: MIT
//
// An architecture is one file, which says how its config.json is read and what a model of it computes,
// and one line in registry.cc.
#ifndef MAINARCH_MODEL_ARCH_ARCH_H_
#define MAINARCH_MODEL_ARCH_ARCH_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "model/builder.h"
#include "model/config_reader.h"

namespace mainarch::model {

struct Arch {
  absl::string_view model_type;      // of config.json
  absl::string_view class_name;      // its architectures[0]
  bool experts;                      // its config.json says how many, 0 included
  Status (*read)(ConfigReader& reader);
  void (*build)(Builder& builder);
  // A second Program over the same checkpoint, which drafts for the first and may read its taps
  // (Builder::Tap); null: there is none.
  void (*draft)(Builder& builder) = nullptr;
};

// The Programs of an architecture over a checkpoint: the model, then what drafts for it.
StatusOr<std::vector<std::shared_ptr<const backend::Program>>> BuildPrograms(
    const Arch& arch, const ModelConfig& config, std::shared_ptr<const file::Checkpoint> checkpoint,
    int32_t ranks);

// Null when there is no such architecture.
const Arch* FindArch(absl::string_view model_type);
// "a, b and c", for messages.
std::string ArchNames();

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_ARCH_ARCH_H_
