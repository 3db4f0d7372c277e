// SPDX-License-Identifier: MIT
//
// A directory under TMPDIR (or /tmp) that is gone, with all that is in it, when the object is.
#ifndef MAINARCH_CLI_TEMPORARY_DIRECTORY_H_
#define MAINARCH_CLI_TEMPORARY_DIRECTORY_H_

#include <memory>
#include <string>

#include "base/status.h"

namespace mainarch::cli {

class TemporaryDirectory {
 public:
  static StatusOr<std::unique_ptr<TemporaryDirectory>> Create();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_TEMPORARY_DIRECTORY_H_
