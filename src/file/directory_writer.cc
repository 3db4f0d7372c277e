// SPDX-License-Identifier: MIT
#include "file/directory_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/os_errno.h"

namespace mainarch::file {
namespace {

// What is to be made is not there yet: a part of the path that is missing is no file that was not found.
Code CodeOfErrno(int err) {
  const Code code = CodeOfFileErrno(err);
  return code == Code::kNotFound ? Code::kIo : code;
}

}  // namespace

StatusOr<std::unique_ptr<DirectoryWriter>> DirectoryWriter::Create(const std::string& directory) {
  std::unique_ptr<DirectoryWriter> writer(new DirectoryWriter(directory));
  if (mkdir(directory.c_str(), 0777) == 0) {
    writer->made_directory_ = true;
  } else if (errno != EEXIST) {
    const int err = errno;
    return ErrnoError(CodeOfErrno(err), err, "make directory ", directory);
  }
  return writer;
}

DirectoryWriter::~DirectoryWriter() {
  if (committed_) return;
  for (File& file : files_) unlink((file.renamed ? file.path : file.temporary).c_str());
  if (made_directory_) rmdir(directory_.c_str());
}

StatusOr<size_t> DirectoryWriter::Add(const std::string& name, uint64_t size) {
  File file;
  file.temporary = absl::StrCat(directory_, "/.", name, ".partial");
  file.path = absl::StrCat(directory_, "/", name);
  struct stat info;
  if (lstat(file.path.c_str(), &info) == 0) {
    return Error(Code::kInvalidArgument, file.path, " exists; it is not replaced");
  }
  // Before the file exists, so that an allocation that fails cannot leave it behind.
  files_.reserve(files_.size() + 1);
  const int fd = open(file.temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    const int err = errno;
    return ErrnoError(CodeOfErrno(err), err, "create ", file.temporary);
  }
  file.fd = UniqueFd(fd);
  files_.push_back(std::move(file));
  if (size > 0 && fallocate(fd, 0, 0, static_cast<off_t>(size)) != 0) {
    const int err = errno;
    if (err != EOPNOTSUPP && err != ENOSYS && err != EINVAL && err != EINTR) {
      return ErrnoError(Code::kIo, err, "reserve ", size, " bytes for ", files_.back().path);
    }
  }
  return files_.size() - 1;
}

Status DirectoryWriter::Write(size_t file, uint64_t offset, absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n =
        pwrite(files_[file].fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0) {
      const int err = errno;
      if (err == EINTR) continue;
      return ErrnoError(Code::kIo, err, "write ", bytes.size(), " bytes at ", offset, " of ",
                        files_[file].path);
    }
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return OkStatus();
}

Status DirectoryWriter::AddText(const std::string& name, absl::string_view text) {
  ASSIGN_OR_RETURN(const size_t file, Add(name, text.size()));
  return Write(file, 0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

Status DirectoryWriter::Commit() {
  for (File& file : files_) {
    // Some file systems tell only here that the disk is full.
    if (close(file.fd.release()) != 0 && errno != EINTR) {
      return ErrnoError(Code::kIo, errno, "close ", file.path);
    }
  }
  for (File& file : files_) {
    if (rename(file.temporary.c_str(), file.path.c_str()) != 0) {
      return ErrnoError(Code::kIo, errno, "rename ", file.temporary, " to ", file.path);
    }
    file.renamed = true;
  }
  committed_ = true;
  return OkStatus();
}

}  // namespace mainarch::file
