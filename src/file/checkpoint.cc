// SPDX-License-Identifier: MIT
#include "file/checkpoint.h"

#include "file/safetensors_directory.h"

namespace mainarch::file {

StatusOr<std::shared_ptr<const Checkpoint>> Checkpoint::Open(const std::string& path) {
  return SafetensorsDirectory::Open(path);
}

}  // namespace mainarch::file
