// SPDX-License-Identifier: MIT
//
// Writes a set of files into a directory, all of them or none: each goes to a temporary name first,
// Commit renames them in the order they were added, and a writer that goes away uncommitted removes
// what it made, the directory too if it made that. (A process that is killed leaves its temporary
// files, never a half-written file under its own name.) One thread.
#ifndef MAINARCH_FILE_DIRECTORY_WRITER_H_
#define MAINARCH_FILE_DIRECTORY_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/fd.h"
#include "base/status.h"

namespace mainarch::file {

class DirectoryWriter {
 public:
  // Makes the last component of `directory` if it is absent.
  static StatusOr<std::unique_ptr<DirectoryWriter>> Create(const std::string& directory);
  ~DirectoryWriter();

  DirectoryWriter(const DirectoryWriter&) = delete;
  DirectoryWriter& operator=(const DirectoryWriter&) = delete;

  // A new file of `size` bytes, of a name that is not taken; its room on the disk is asked for at once where the file system
  // can. Returns its number.
  StatusOr<size_t> Add(const std::string& name, uint64_t size);
  Status Write(size_t file, uint64_t offset, absl::Span<const uint8_t> bytes);
  Status AddText(const std::string& name, absl::string_view text);

  Status Commit();

 private:
  struct File {
    std::string temporary;  // paths
    std::string path;
    UniqueFd fd;
    bool renamed = false;
  };

  explicit DirectoryWriter(const std::string& directory) : directory_(directory) {}

  std::string directory_;
  bool made_directory_ = false;
  bool committed_ = false;
  std::vector<File> files_;
};

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_DIRECTORY_WRITER_H_
