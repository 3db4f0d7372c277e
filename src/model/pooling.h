// SPDX-License-Identifier: MIT
//
// What a checkpoint of the package sentence-transformers says of the vectors that are made of texts:
// modules.json, the pooling module's config.json, config_sentence_transformers.json.
#ifndef MAINARCH_MODEL_POOLING_H_
#define MAINARCH_MODEL_POOLING_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace mainarch::model {

// Of which tokens' vectors a text's is made.
enum class Pooling : uint8_t {
  kLast = 1,
  kMean = 2,   // of all
  kFirst = 3,  // "cls"
};

struct PoolingConfig {
  bool stated = false;  // there is a modules.json; without one the rest is Qwen3-Embedding's
  Pooling pooling = Pooling::kLast;
  bool normalise = true;
  bool include_prompt = true;  // a prompt's tokens count for the mean
  // What is put before a text, by the name of a use ("query"), in the file's order.
  std::vector<std::pair<std::string, std::string>> prompts;
  std::string default_prompt;  // a name; empty: none
};

// `directory` may be a file (GGUF): it has none of these. What would make other vectors than this library
// does (weighted means, several poolings, a dense layer behind) is Unsupported by name.
StatusOr<PoolingConfig> ReadPooling(const std::string& directory);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_POOLING_H_
