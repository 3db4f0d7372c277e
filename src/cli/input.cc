// SPDX-License-Identifier: MIT
#include "cli/input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "cli/interrupt.h"

namespace mainarch::cli {
namespace {

constexpr size_t kLimit = size_t{1} << 30;

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

}  // namespace mainarch::cli
