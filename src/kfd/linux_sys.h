// SPDX-License-Identifier: MIT
//
// Sys as this machine's kernel answers it. Stateless: every call is the system call of that name.
#ifndef MAINARCH_KFD_LINUX_SYS_H_
#define MAINARCH_KFD_LINUX_SYS_H_

#include <string>
#include <vector>

#include "kfd/sys.h"

namespace mainarch::kfd {

class LinuxSys final : public Sys {
 public:
  int Open(const char* path, int flags) override;
  int Close(int fd) override;
  int Dup(int fd) override;
  int Ioctl(int fd, uint32_t request, void* argument) override;
  int64_t Read(int fd, void* buffer, size_t size) override;
  int64_t Write(int fd, const void* buffer, size_t size) override;
  int Poll(pollfd* fds, size_t count, int timeout_ms) override;
  int Mmap(void* hint, size_t size, int protection, int flags, int fd, uint64_t offset,
           void** address) override;
  int Munmap(void* address, size_t size) override;
  int Madvise(void* address, size_t size, int advice) override;
  int ReadFile(const std::string& path, size_t limit, std::string* text) override;
  int ListDir(const std::string& path, std::vector<std::string>* names) override;
  int Stat(const std::string& path, FileStat* out) override;
  Identity WhoAmI() override;
  int64_t DriverPid() override;
};

}  // namespace mainarch::kfd

#endif  // MAINARCH_KFD_LINUX_SYS_H_
