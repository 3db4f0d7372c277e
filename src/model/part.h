// SPDX-License-Identifier: MIT
#ifndef MAINARCH_MODEL_PART_H_
#define MAINARCH_MODEL_PART_H_

#include <cstdint>

namespace mainarch::model {

// What of a checkpoint is loaded.
enum class Part : uint8_t {
  kModel,
  kModelAndDrafts,  // and the layer that drafts, if it has one
  kVectors,         // the model without its head: what logits would be made of (Builder::set_vectors)
};

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_PART_H_
