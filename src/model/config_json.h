// SPDX-License-Identifier: MIT
//
// A ModelConfig as the files that ParseConfig reads it from; the round trip is exact.
#ifndef MAINARCH_MODEL_CONFIG_JSON_H_
#define MAINARCH_MODEL_CONFIG_JSON_H_

#include <string>

#include "absl/strings/string_view.h"
#include "model/config.h"

namespace mainarch::model {

// `dtype` is what torch_dtype says. `quantization` is the text of quantization_config, or empty.
std::string ConfigJson(const ModelConfig& config, absl::string_view dtype,
                       absl::string_view quantization);

std::string GenerationConfigJson(const ModelConfig& config);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_CONFIG_JSON_H_
