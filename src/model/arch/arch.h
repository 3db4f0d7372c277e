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
#include "model/part.h"

namespace mainarch::model {

// By which keys a config.json speaks of experts.
enum class ExpertKeys : uint8_t {
  kNone,    // dense
  kNumber,  // num_experts, 0 included, and which layers have them
  kLocal,   // num_local_experts in every layer, of width intermediate_size
  kRouted,  // n_routed_experts behind first_k_dense_replace layers
};

struct Arch {
  absl::string_view model_type;      // of config.json
  absl::string_view class_name;      // its architectures[0]
  ExpertKeys experts;
  Status (*read)(ConfigReader& reader);
  void (*build)(Builder& builder);
  // A second Program over the same checkpoint, which drafts for the first and may read its taps
  // (Builder::Tap); null: there is none.
  void (*draft)(Builder& builder) = nullptr;
  // rope_parameters has an object for layers with a window, and one for the rest.
  bool ropes_by_window = false;
  // Other names that such a checkpoint may go by: of a wrapper that holds the text model, of the
  // model without its head. Empty ones are none.
  absl::string_view other_types[2] = {};
  absl::string_view other_classes[2] = {};
};

// The Programs of an architecture over a checkpoint: the model, then, if wanted, what drafts for it, of
// which the checkpoint must have the tensors (HasDraftHead).
StatusOr<std::vector<std::shared_ptr<const backend::Program>>> BuildPrograms(
    const Arch& arch, const ModelConfig& config, std::shared_ptr<const file::Checkpoint> checkpoint,
    int32_t ranks, Part part = Part::kModel);

// By its own type or another. Null when there is no such architecture.
const Arch* FindArch(absl::string_view model_type);
// "a, b and c", for messages.
std::string ArchNames();

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_ARCH_ARCH_H_
