// SPDX-License-Identifier: MIT
//
// A directory under TMPDIR (or /tmp) that is gone, with all that is in it, when the object is, or when the
// command is ended by a signal.
#ifndef MAINARCH_CLI_TEMPORARY_DIRECTORY_H_
#define MAINARCH_CLI_TEMPORARY_DIRECTORY_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "cli/interrupt.h"

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
  void Abandon() const;

  const std::string path_;
  const InterruptHook hook_{InterruptHook::When::kAtEnd, [this] { Abandon(); }};
};

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_TEMPORARY_DIRECTORY_H_
