// SPDX-License-Identifier: MIT
//
// An architecture is one function that says what a model computes, in its own file, and one line in
// registry.cc.
#ifndef MAINARCH_MODEL_ARCH_ARCH_H_
#define MAINARCH_MODEL_ARCH_ARCH_H_

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "model/builder.h"

namespace mainarch::model {

using ArchFunction = void (*)(Builder& builder);

void BuildQwen3(Builder& builder);
void BuildQwen3Moe(Builder& builder);

// Unsupported names the model_type and those there are.
StatusOr<ArchFunction> FindArch(absl::string_view model_type);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_ARCH_ARCH_H_
