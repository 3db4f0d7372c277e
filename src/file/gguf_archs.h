// SPDX-License-Identifier: MIT
//
// The architectures of GGUF files: what each is called in a config.json, and what its tensors are
// called in a Hugging Face checkpoint. One that is not here is refused by name.
#ifndef MAINARCH_FILE_GGUF_ARCHS_H_
#define MAINARCH_FILE_GGUF_ARCHS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace mainarch::file {

// "blk.3.attn_q.weight" becomes "model.layers.3.self_attn.q_proj.weight". Names are given without
// "blk.N." and "model.layers.N.", and without what follows the last dot.
struct GgufName {
  absl::string_view gguf;
  absl::string_view hugging_face;
  bool whole = false;  // nothing follows it: it is no "weight" or "bias" there
};

// A key of the metadata, without the architecture, and the one of config.json that says the same.
struct GgufKey {
  absl::string_view gguf;
  absl::string_view hugging_face;
};

struct GgufArch {
  absl::string_view name;        // general.architecture
  absl::string_view model_type;  // config.json
  absl::string_view class_name;
  // The rows of Q and K of a head are turned in pairs (i, i + 1), and have been put in that order.
  bool paired_heads = false;
  // Weights of norms have 1 added: x * w is what this architecture calls x * (1 + w).
  bool norms_plus_one = false;
  // The form that an architecture takes where a file has experts (a Llama with them is a Mixtral).
  bool experts = false;
  absl::string_view expert_count = "num_experts";  // key of config.json
  absl::string_view activation = "\"hidden_act\": \"silu\"";  // of config.json
  // Keys of config.json that GGUF does not state, because all models of the architecture have them.
  absl::string_view more_config = {};     // ", ..." in JSON
  absl::Span<const GgufKey> keys = {};    // beside those that all have
  absl::Span<const GgufName> names = {};  // where they differ from what others have
};

const GgufArch* FindGgufArch(absl::string_view name, bool experts);
std::string GgufArchNames();

struct GgufTensorName {
  std::string name;      // of a Hugging Face checkpoint; with "*" where an expert's number belongs
  bool experts = false;  // its outermost dimension counts experts
};
// Biases of experts stay one tensor, without the experts' number in its name. Nothing ("") where the
// architecture has no such tensor.
GgufTensorName HuggingFaceName(const GgufArch& arch, absl::string_view gguf);

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_GGUF_ARCHS_H_
