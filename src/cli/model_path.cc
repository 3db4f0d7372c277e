// SPDX-License-Identifier: MIT
#include "cli/model_path.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/fd.h"

namespace mainarch::cli {
namespace {

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

std::string Variable(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

// As huggingface_hub finds it.
std::string CacheDirectory() {
  std::string path = Variable("HF_HUB_CACHE");
  if (path.empty()) path = Variable("HUGGINGFACE_HUB_CACHE");  // its older name
  if (!path.empty()) return path;
  path = Variable("HF_HOME");
  if (!path.empty()) return absl::StrCat(path, "/hub");
  path = Variable("XDG_CACHE_HOME");
  if (path.empty()) path = absl::StrCat(Variable("HOME"), "/.cache");
  return absl::StrCat(path, "/huggingface/hub");
}

// A name has one or two parts of letters, digits, and -_. within.
bool IsName(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  if (parts.size() > 2) return false;
  for (const absl::string_view part : parts) {
    if (part.empty() || part[0] == '.' || part[0] == '-' || part.size() > 96) return false;
    for (const char c : part) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') {
        return false;
      }
    }
  }
  return true;
}

// The names in a directory but for those that begin with a dot, sorted.
std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  const auto close = [](DIR* dir) { closedir(dir); };
  const std::unique_ptr<DIR, decltype(close)> dir(opendir(directory.c_str()), close);
  while (const dirent* entry = dir == nullptr ? nullptr : readdir(dir.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The snapshot of a revision, which is a branch (in refs/) or a commit.
StatusOr<std::string> Snapshot(const std::string& name, const std::string& directory,
                               const std::string& revision) {
  constexpr size_t kMaxRef = 256;  // a commit has 40 letters
  const std::string snapshots = absl::StrCat(directory, "/snapshots");
  std::string commit = revision;
  const StatusOr<std::string> ref =
      ReadWholeFile(absl::StrCat(directory, "/refs/", revision), kMaxRef);
  if (ref.ok()) {
    commit = std::string(absl::StripAsciiWhitespace(*ref));
  } else if (CodeOf(ref.status()) != Code::kNotFound) {
    return ref.status();
  }
  const std::string path = absl::StrCat(snapshots, "/", commit);
  // What a reference holds is from a file, and must not lead elsewhere.
  if (IsName(commit) && !absl::StrContains(commit, "/") && Exists(path)) return path;
  const std::vector<std::string> there = NamesIn(snapshots);
  return Error(Code::kNotFound, name, ": revision ", revision, " is not in ", snapshots,
               there.empty() ? ", which is empty; is the download complete?"
                             : absl::StrCat("; there is ", absl::StrJoin(there, ", "),
                                            ": name one as ", name, "@REVISION"));
}

}  // namespace

StatusOr<std::string> ModelPath(const std::string& name) {
  if (Exists(name)) return name;
  const std::vector<std::string> parts = absl::StrSplit(name, absl::MaxSplits('@', 1));
  const std::string revision = parts.size() > 1 ? parts[1] : "main";
  // Anything else is a path, and whoever opens it says what is wrong with it.
  if (!IsName(parts[0]) || !IsName(revision)) return name;
  const std::string cache = CacheDirectory();
  const std::string directory =
      absl::StrCat(cache, "/models--", absl::StrReplaceAll(parts[0], {{"/", "--"}}));
  if (!Exists(directory)) {
    return Error(Code::kNotFound, name,
                 ": no such file or directory, and no model of that name in ", cache,
                 "; download it (hf download ", parts[0], ") or say where it is with HF_HUB_CACHE");
  }
  return Snapshot(parts[0], directory, revision);
}

}  // namespace mainarch::cli
