// SPDX-License-Identifier: MIT
#include "cli/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "cli/interrupt.h"
#include "cli/model_path.h"
#include "file/checkpoint.h"
#include "model/checkpoint_tokenizer.h"

namespace mainarch::cli {
namespace {

constexpr size_t kLimit = size_t{1} << 30;
constexpr size_t kConfigLimit = size_t{16} << 20;  // bytes of a tokenizer_config.json

}  // namespace

StatusOr<std::string> ReadInput(const std::string& path) {
  UniqueFd file;
  int fd = STDIN_FILENO;
  const std::string name = path.empty() || path == "-" ? "stdin" : path;
  if (name != "stdin") {
    file = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid()) return ErrnoError(Code::kIo, errno, "open ", path);
    fd = file.get();
  }
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (Interrupted()) return Error(Code::kCancelled, "interrupted");
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError(Code::kIo, errno, "read ", name);
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kLimit) {
      return Error(Code::kInvalidArgument, name, ": more than ", kLimit, " bytes of text");
    }
  }
}

StatusOr<std::shared_ptr<const text::Tokenizer>> LoadTokenizer(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string found, ModelPath(directory));
  struct stat info;
  if (stat(found.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {  // a GGUF file
    ASSIGN_OR_RETURN(const auto checkpoint, file::Checkpoint::Open(found));
    return model::ReadTokenizer(*checkpoint);
  }
  const std::string path = absl::StrCat(found, "/tokenizer.json");
  ASSIGN_OR_RETURN(const std::string json, ReadWholeFile(path, text::kMaxTokenizerJson));
  auto config = ReadWholeFile(absl::StrCat(found, "/tokenizer_config.json"), kConfigLimit);
  if (!config.ok() && CodeOf(config.status()) != Code::kNotFound) return config.status();
  return text::Tokenizer::Load(json, config.ok() ? *config : std::string(), path);
}

}  // namespace mainarch::cli
