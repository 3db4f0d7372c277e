// SPDX-License-Identifier: MIT
#include "file/checkpoint.h"

#include <sys/stat.h>

#include "file/gguf_checkpoint.h"
#include "file/gguf_parts.h"
#include "file/safetensors_directory.h"

namespace mainarch::file {

StatusOr<std::shared_ptr<const Checkpoint>> Checkpoint::Open(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) return GgufCheckpoint::Open(path);
  const std::string config = absl::StrCat(path, "/config.json");
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && stat(config.c_str(), &info) != 0) {
    ASSIGN_OR_RETURN(const std::string file, GgufIn(path));
    if (!file.empty()) return GgufCheckpoint::Open(file);
  }
  return SafetensorsDirectory::Open(path);
}

}  // namespace mainarch::file
