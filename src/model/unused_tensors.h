// SPDX-License-Identifier: MIT
//
// What a checkpoint holds beside what its Programs read: adapters that were never merged, heads of other
// tasks, leftovers of training. Not wrong, but what is ignored is said.
#ifndef MAINARCH_MODEL_UNUSED_TENSORS_H_
#define MAINARCH_MODEL_UNUSED_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "backend/program.h"
#include "file/checkpoint.h"

namespace mainarch::model {

struct UnusedTensors {
  std::vector<absl::string_view> names;  // sorted; they live as long as the checkpoint
  uint64_t bytes = 0;
};

// Tensors of no bytes are no matter.
UnusedTensors FindUnusedTensors(const file::Checkpoint& checkpoint,
                                absl::Span<const backend::Program* const> programs);

// "3 tensors (4096 bytes) are not used: "a", "b", "c"", with the first names only; "" when there are none.
std::string Describe(const UnusedTensors& unused);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_UNUSED_TENSORS_H_
