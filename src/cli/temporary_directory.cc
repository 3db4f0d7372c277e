// SPDX-License-Identifier: MIT
#include "cli/temporary_directory.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace mainarch::cli {

StatusOr<std::unique_ptr<TemporaryDirectory>> TemporaryDirectory::Create() {
  const char* parent = std::getenv("TMPDIR");
  if (parent == nullptr || parent[0] == '\0') parent = "/tmp";
  std::string path = absl::StrCat(parent, "/mainarch-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return ErrnoError(Code::kIo, errno, "making a temporary directory in ", parent,
                      " (set TMPDIR to another place)");
  }
  return std::unique_ptr<TemporaryDirectory>(new TemporaryDirectory(std::move(path)));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

// While another thread may still be writing into it: under another name it finds no place to go on.
void TemporaryDirectory::Abandon() const {
  std::error_code ignored;
  const std::string renamed = path_ + ".gone";
  std::filesystem::rename(path_, renamed, ignored);
  std::filesystem::remove_all(renamed, ignored);
}

}  // namespace mainarch::cli
