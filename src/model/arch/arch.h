// SPDX-License-Identifier: MIT
//
// An architecture is one file, which says how its config.json is read and what a model of it computes,
// and one line in registry.cc.
#ifndef MAINARCH_MODEL_ARCH_ARCH_H_
#define MAINARCH_MODEL_ARCH_ARCH_H_

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "model/builder.h"
#include "model/config_reader.h"

namespace mainarch::model {

struct Arch {
  absl::string_view model_type;      // of config.json
  absl::string_view class_name;      // its architectures[0]
  bool experts;                      // its config.json says how many, 0 included
  Status (*read)(ConfigReader& reader);
  void (*build)(Builder& builder);
};

// Null when there is no such architecture.
const Arch* FindArch(absl::string_view model_type);
// "a, b and c", for messages.
std::string ArchNames();

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_ARCH_ARCH_H_
