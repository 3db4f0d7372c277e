// SPDX-License-Identifier: MIT
//
// mainarch kv-accuracy --ingredients: every way of KvVariants on a checkpoint, by the fp64 reference, and
// on made-up attention.
#ifndef MAINARCH_CLI_KV_INGREDIENTS_H_
#define MAINARCH_CLI_KV_INGREDIENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace mainarch::cli {

struct IngredientSettings {
  std::string directory;         // of the checkpoint
  std::vector<uint32_t> tokens;  // of the text
  size_t window = 0;             // tokens of a sequence; then another begins
  bool json = false;
};

// Prints; returns the exit code.
StatusOr<int> MeasureIngredients(const IngredientSettings& settings);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_KV_INGREDIENTS_H_
