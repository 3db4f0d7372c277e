// SPDX-License-Identifier: MIT
#include "file/gguf_parts.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/os_errno.h"
#include "file/json.h"

namespace mainarch::file {
namespace {

constexpr absl::string_view kSuffix = ".gguf";

// "-00002-of-00003" at the end, with another number than 1: a part that is not the first.
bool IsLaterPart(absl::string_view name) {
  constexpr size_t kDigits = 5;
  constexpr size_t kLength = 1 + kDigits + 4 + kDigits;  // "-00002-of-00003"
  if (!absl::ConsumeSuffix(&name, kSuffix) || name.size() < kLength) return false;
  name.remove_prefix(name.size() - kLength);
  const auto digits = [&](size_t at) {
    return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(at),
                       name.begin() + static_cast<std::ptrdiff_t>(at + kDigits),
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  return name[0] == '-' && digits(1) && name.substr(1 + kDigits, 4) == "-of-" && digits(5 + kDigits) &&
         name.substr(1, kDigits) != "00001";
}

}  // namespace

std::string GgufPartSuffix(int64_t index, int64_t count) {
  return absl::StrCat("-", absl::Dec(index + 1, absl::kZeroPad5), "-of-", absl::Dec(count, absl::kZeroPad5), kSuffix);
}

std::string GgufPartPath(const std::string& first, int64_t index, int64_t count) {
  absl::string_view stem = first;
  if (!absl::ConsumeSuffix(&stem, GgufPartSuffix(0, count))) return "";
  return absl::StrCat(stem, GgufPartSuffix(index, count));
}

StatusOr<std::string> GgufIn(const std::string& directory) {
  const auto close = [](DIR* dir) { closedir(dir); };
  const std::unique_ptr<DIR, decltype(close)> dir(opendir(directory.c_str()), close);
  if (dir == nullptr) return ErrnoError(CodeOfFileErrno(errno), errno, directory);
  std::string found;
  while (const dirent* entry = readdir(dir.get())) {
    const absl::string_view name = entry->d_name;
    // Of a model that sees, the part that does so is a file of its own beside the text model's.
    if (!absl::EndsWith(name, kSuffix) || IsLaterPart(name) || absl::StartsWith(name, "mmproj")) continue;
    if (!found.empty()) {
      return Error(Code::kBadModel, directory, " has several GGUF files (", Quote(found), ", ", Quote(name),
                   "): open one of them");
    }
    found = std::string(name);
  }
  return found.empty() ? found : absl::StrCat(directory, "/", found);
}

}  // namespace mainarch::file
