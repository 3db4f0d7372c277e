// SPDX-License-Identifier: MIT
//
// model.safetensors.index.json: which shard holds which tensor. Only names of plain files are let
// through; what the shards really hold is checked by whoever opens them.
#ifndef MAINARCH_FILE_INDEX_H_
#define MAINARCH_FILE_INDEX_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::file {

inline constexpr size_t kMaxIndexBytes = size_t{64} << 20;

struct CheckpointIndex {
  struct Entry {
    std::string tensor;
    size_t shard;  // into shards
  };
  std::vector<std::string> shards;  // file names, sorted, unique
  std::vector<Entry> entries;       // in the order of the file
};

// `file` is for messages only.
StatusOr<CheckpointIndex> ParseCheckpointIndex(absl::string_view json, absl::string_view file);

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_INDEX_H_
