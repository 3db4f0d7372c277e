// SPDX-License-Identifier: MIT
//
// What the tensors of a checkpoint are called: where the text model begins, where the head is, and
// how a layer's norms and experts are named. The names follow from the config alone, but for what
// stands before all of them and for the head, which follow from the tensors.
#ifndef MAINARCH_MODEL_TENSOR_NAMES_H_
#define MAINARCH_MODEL_TENSOR_NAMES_H_

#include <string>

#include "file/checkpoint.h"
#include "model/config.h"

namespace mainarch::model {

// Of the layer that drafts, and what is there if it is.
inline constexpr char kDraftPrefix[] = "mtp.";
bool HasDraftHead(const file::Checkpoint& checkpoint);

// "model.", or "" of a file of the model without a head, or what a wrapper puts before it.
std::string ModelPrefix(const file::Checkpoint& checkpoint);

enum class HeadSource : uint8_t {
  kOwn,      // a matrix of its own: not tied, or tied and yet other values in the file, which count
  kTied,     // the embedding, as the config says
  kMissing,  // the file has none, being of a model without a head: the embedding stands in
};
struct Head {
  HeadSource source;
  std::string name;  // of the matrix, without ".weight"
};
Head FindHead(const file::Checkpoint& checkpoint, const ModelConfig& config);

// Names of a layer's norms behind its prefix; empty: there is none.
struct NormNames {
  std::string before_attention, after_attention, before_ffn, after_ffn;
};
NormNames NormNamesOf(const NormConfig& norms);

// Of an attention's sinks, `self` before it.
std::string SinksName(const file::Checkpoint& checkpoint, const std::string& self);

// Behind a layer's prefix: "mlp.experts.", "mlp.gate" and so on.
struct ExpertTensors {
  std::string experts, router, correction;
  const char* gate;  // of one expert, behind "mlp.experts.7."
  const char* up;
  const char* down;
  std::string shared;       // prefix of the expert for all tokens
  std::string shared_gate;  // its product
};
ExpertTensors ExpertTensorsOf(const ModelConfig& config);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_TENSOR_NAMES_H_
