// SPDX-License-Identifier: MIT
//
// A Sys of canned answers for the tests of parsers and of error texts: files by path, one function
// for every ioctl. Not a model of a driver; that is sim/.
#ifndef MAINARCH_TESTS_UNIT_KFD_FAKE_SYS_H_
#define MAINARCH_TESTS_UNIT_KFD_FAKE_SYS_H_

#include <errno.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kfd/sys.h"

namespace mainarch::test {

class FakeSys : public kfd::Sys {
 public:
  std::map<std::string, std::string> files;
  std::map<std::string, int> read_errors;  // path -> errno
  std::map<std::string, int> open_errors;
  std::map<std::string, kfd::FileStat> stats;
  kfd::Identity identity;
  std::function<int(uint32_t request, void* argument)> ioctl = [](uint32_t, void*) { return 0; };
  std::function<void(const std::string& path)> on_read = [](const std::string&) {};
  std::set<int> open_fds;
  int next_fd = 100;

  int Open(const char* path, int) override {
    auto error = open_errors.find(path);
    if (error != open_errors.end()) return -error->second;
    open_fds.insert(next_fd);
    return next_fd++;
  }
  int Close(int fd) override { return open_fds.erase(fd) == 1 ? 0 : -EBADF; }
  int Ioctl(int, uint32_t request, void* argument) override { return ioctl(request, argument); }
  int64_t Read(int, void*, size_t) override { return 0; }
  int64_t Write(int, const void*, size_t size) override { return static_cast<int64_t>(size); }
  int Poll(pollfd*, size_t, int) override { return 0; }
  int Mmap(void*, size_t, int, int, int, uint64_t, void**) override { return -ENOMEM; }
  int Munmap(void*, size_t) override { return 0; }
  int Madvise(void*, size_t, int) override { return 0; }
  int ReadFile(const std::string& path, size_t limit, std::string* text) override {
    on_read(path);
    auto error = read_errors.find(path);
    if (error != read_errors.end()) return -error->second;
    auto file = files.find(path);
    if (file == files.end()) return -ENOENT;
    if (file->second.size() > limit) return -EFBIG;
    *text = file->second;
    return 0;
  }
  int ListDir(const std::string& path, std::vector<std::string>* names) override {
    std::set<std::string> found;
    const std::string prefix = path + "/";
    for (const auto& [name, text] : files) {
      if (name.compare(0, prefix.size(), prefix) == 0) {
        found.insert(name.substr(prefix.size(), name.find('/', prefix.size()) - prefix.size()));
      }
    }
    names->assign(found.begin(), found.end());
    return found.empty() ? -ENOENT : 0;
  }
  int Stat(const std::string& path, kfd::FileStat* out) override {
    auto stat = stats.find(path);
    if (stat == stats.end()) return -ENOENT;
    *out = stat->second;
    return 0;
  }
  kfd::Identity WhoAmI() override { return identity; }
};

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_UNIT_KFD_FAKE_SYS_H_
