// SPDX-License-Identifier: MIT
#include "file/chat_templates.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "base/fd.h"
#include "base/os_errno.h"

namespace mainarch::file {
namespace {

// As text/jinja/parser.h; fifteen times the largest released.
constexpr size_t kMaxTemplate = size_t{256} << 10;
constexpr size_t kMaxFiles = 64;

// The names of the files in a directory that end in `suffix`, sorted; none when it does not exist.
StatusOr<std::vector<std::string>> NamesIn(const std::string& directory, absl::string_view suffix) {
  std::vector<std::string> names;
  const auto close = [](DIR* dir) { closedir(dir); };
  const std::unique_ptr<DIR, decltype(close)> dir(opendir(directory.c_str()), close);
  if (dir == nullptr) {
    const int err = errno;
    if (err == ENOENT || err == ENOTDIR) return names;
    return ErrnoError(CodeOfFileErrno(err), err, directory);
  }
  while (const dirent* entry = readdir(dir.get())) {
    if (!absl::EndsWith(entry->d_name, suffix)) continue;
    if (names.size() == kMaxFiles) {
      return Error(Code::kBadModel, directory, ": more than ", kMaxFiles, " chat templates");
    }
    names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

StatusOr<std::vector<ChatTemplateFile>> ReadChatTemplates(const std::string& directory) {
  constexpr absl::string_view kSuffix = ".jinja";
  std::vector<ChatTemplateFile> out;
  const std::string usual = absl::StrCat(directory, "/chat_template.jinja");
  StatusOr<std::string> text = ReadWholeFile(usual, kMaxTemplate);
  if (text.ok()) {
    out.push_back({"default", *std::move(text)});
  } else if (CodeOf(text.status()) != Code::kNotFound) {
    return text.status();
  }
  const std::string others = absl::StrCat(directory, "/additional_chat_templates");
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(others, kSuffix));
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(std::string source,
                     ReadWholeFile(absl::StrCat(others, "/", name), kMaxTemplate));
    out.push_back({std::string(absl::StripSuffix(name, kSuffix)), std::move(source)});
  }
  return out;
}

}  // namespace mainarch::file
