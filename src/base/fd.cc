// SPDX-License-Identifier: MIT
#include "base/fd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/os_errno.h"

namespace mainarch {
namespace {

constexpr size_t kReadStep = 4096;

struct OpenedFile {
  UniqueFd fd;
  size_t size = 0;
};

StatusOr<OpenedFile> OpenRegularFile(const std::string& path) {
  OpenedFile file;
  int fd;
  do {
    // O_NONBLOCK: a FIFO in a checkpoint directory must not hang us.
    fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    const int err = errno;
    return ErrnoError(CodeOfFileErrno(err), err, "open ", path);
  }
  file.fd = UniqueFd(fd);
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoError(Code::kIo, errno, "stat ", path);
  if (!S_ISREG(info.st_mode)) return Error(Code::kIo, path, ": not a regular file");
  file.size = static_cast<size_t>(info.st_size);
  return file;
}

}  // namespace

void UniqueFd::Reset() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

Mapping::~Mapping() {
  if (address_ != nullptr) munmap(address_, size_);
}

StatusOr<Mapping> Mapping::OfFile(const std::string& path) {
  ASSIGN_OR_RETURN(OpenedFile file, OpenRegularFile(path));
  if (file.size == 0) return Mapping();
  void* address = mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, file.fd.get(), 0);
  if (address == MAP_FAILED) {
    const int err = errno;
    return ErrnoError(CodeOfFileErrno(err), err, "mmap ", file.size, " bytes of ", path);
  }
  return Mapping(address, file.size);
}

StatusOr<Mapping> Mapping::Anonymous(size_t size, bool huge_pages) {
  if (size == 0) return Mapping();
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return ErrnoError(Code::kOutOfHostMemory, errno, "mmap ", size, " anonymous bytes");
  }
  // A refusal (THP disabled) costs speed only.
  if (huge_pages) madvise(address, size, MADV_HUGEPAGE);
  return Mapping(address, size);
}

StatusOr<std::string> ReadWholeFile(const std::string& path, size_t limit) {
  ASSIGN_OR_RETURN(OpenedFile file, OpenRegularFile(path));
  if (file.size > limit) {
    return Error(Code::kBadModel, path, ": ", file.size, " bytes, more than the limit of ", limit);
  }
  // Files of /proc and /sys have no size of their own: read to the end, whatever stat said.
  std::string text;
  size_t done = 0;
  while (true) {
    text.resize(std::min(limit + 1, std::max(file.size + 1, done + kReadStep)));
    const ssize_t n = read(file.fd.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError(Code::kIo, errno, "read ", path);
    if (n == 0) break;
    done += static_cast<size_t>(n);
    if (done > limit) {
      return Error(Code::kBadModel, path, ": more than the limit of ", limit, " bytes");
    }
  }
  text.resize(done);
  return text;
}

}  // namespace mainarch
