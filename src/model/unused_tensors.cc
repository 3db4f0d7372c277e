// SPDX-License-Identifier: MIT
#include "model/unused_tensors.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "base/hash_map.h"
#include "file/json.h"
#include "model/tensor_names.h"

namespace mainarch::model {
namespace {

constexpr size_t kNamesShown = 4;

// Small tensors that a quantised weight's finder has looked at, or that speak of activations.
bool SaysOfAnother(absl::string_view name) {
  for (const absl::string_view end : {".weight_shape", ".weight_global_scale", ".weight_scale_2", ".g_idx",
                                      ".input_scale", ".input_global_scale"}) {
    if (absl::EndsWith(name, end)) return true;
  }
  // The layer that drafts is loaded where somebody asks for it.
  if (absl::StartsWith(name, kDraftPrefix)) return true;
  return name == "rope_freqs.weight" || absl::StartsWith(name, "rope_factors_");
}

}  // namespace

UnusedTensors FindUnusedTensors(const file::Checkpoint& checkpoint,
                                absl::Span<const backend::Program* const> programs) {
  HashSet<const uint8_t*> used;
  for (const backend::Program* program : programs) {
    for (const backend::Weight& weight : program->weights) {
      for (const quant::Matrix& matrix : weight.sources) {
        used.insert(matrix.data.data());
        if (!matrix.scale.empty()) used.insert(matrix.scale.data());
        if (!matrix.zero.empty()) used.insert(matrix.zero.data());
      }
    }
  }
  UnusedTensors unused;
  for (const file::TensorView& tensor : checkpoint.tensors()) {
    if (tensor.bytes.empty() || used.contains(tensor.bytes.data()) || SaysOfAnother(tensor.name)) continue;
    unused.names.push_back(tensor.name);
    unused.bytes += tensor.bytes.size();
  }
  return unused;
}

std::string Describe(const UnusedTensors& unused) {
  const size_t count = unused.names.size();
  if (count == 0) return "";
  std::string text = absl::StrCat(count, count == 1 ? " tensor (" : " tensors (", unused.bytes,
                                  count == 1 ? " bytes) is not used: " : " bytes) are not used: ");
  for (size_t i = 0; i < std::min(count, kNamesShown); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", file::Quote(unused.names[i]));
  }
  if (count > kNamesShown) absl::StrAppend(&text, ", ...");
  return text;
}

}  // namespace mainarch::model
