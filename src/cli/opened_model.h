// SPDX-License-Identifier: MIT
//
// A group, a model on it and its tokenizer, by the public C ABI.
#ifndef MAINARCH_CLI_OPENED_MODEL_H_
#define MAINARCH_CLI_OPENED_MODEL_H_

#include "cli/abi.h"
#include "cli/model_options.h"

namespace mainarch::cli {

struct OpenedModel {
  Group group;
  AbiModel model;
  AbiTokenizer tokenizer;
  mainarch_model_info info = {};
};

// `flags`: MAINARCH_MODEL_*, beside what the options say.
StatusOr<OpenedModel> OpenModel(const ModelOptions& options, bool device_given, uint64_t flags);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_OPENED_MODEL_H_
