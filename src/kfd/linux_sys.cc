// SPDX-License-Identifier: MIT
#include "kfd/linux_sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "base/fd.h"

namespace mainarch::kfd {
namespace {

int OrErrno(int result) { return result < 0 ? -errno : result; }

// The machine's own namespace of processes: the kernel's PROC_PID_INIT_INO, 0xeffffffc, since Linux 3.8.
constexpr char kFirstNamespace[] = "pid:[4026531836]";

}  // namespace

int LinuxSys::Open(const char* path, int flags) { return OrErrno(::open(path, flags)); }

int LinuxSys::Close(int fd) { return OrErrno(::close(fd)); }

int LinuxSys::Dup(int fd) { return OrErrno(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

int LinuxSys::Ioctl(int fd, uint32_t request, void* argument) {
  return OrErrno(::ioctl(fd, request, argument));
}

int64_t LinuxSys::Read(int fd, void* buffer, size_t size) {
  const ssize_t n = ::read(fd, buffer, size);
  return n < 0 ? -errno : n;
}

int64_t LinuxSys::Write(int fd, const void* buffer, size_t size) {
  const ssize_t n = ::write(fd, buffer, size);
  return n < 0 ? -errno : n;
}

int LinuxSys::Poll(pollfd* fds, size_t count, int timeout_ms) {
  return OrErrno(::poll(fds, count, timeout_ms));
}

int LinuxSys::Mmap(void* hint, size_t size, int protection, int flags, int fd, uint64_t offset,
                   void** address) {
  // Cookies of /dev/kfd use the top bits: off_t is signed, the kernel's is not.
  void* result = ::mmap(hint, size, protection, flags, fd, static_cast<off_t>(offset));
  if (result == MAP_FAILED) return -errno;
  *address = result;
  return 0;
}

int LinuxSys::Munmap(void* address, size_t size) { return OrErrno(::munmap(address, size)); }

int LinuxSys::Madvise(void* address, size_t size, int advice) {
  return OrErrno(::madvise(address, size, advice));
}

int LinuxSys::ReadFile(const std::string& path, size_t limit, std::string* text) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return -errno;
  text->clear();
  char block[4096];
  for (;;) {
    const ssize_t n = ::read(fd.get(), block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -errno;
    if (n == 0) return 0;
    if (text->size() + static_cast<size_t>(n) > limit) return -EFBIG;
    text->append(block, static_cast<size_t>(n));
  }
}

int LinuxSys::ListDir(const std::string& path, std::vector<std::string>* names) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (dir == nullptr) return -errno;
  names->clear();
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) return -errno;
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
      names->emplace_back(entry->d_name);
    }
  }
}

int LinuxSys::Stat(const std::string& path, FileStat* out) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return -errno;
  out->mode = st.st_mode;
  out->uid = st.st_uid;
  out->gid = st.st_gid;
  out->rdev = st.st_rdev;
  out->size = static_cast<uint64_t>(st.st_size);
  return 0;
}

Identity LinuxSys::WhoAmI() {
  Identity who;
  who.uid = ::geteuid();
  who.gid = ::getegid();
  const int count = ::getgroups(0, nullptr);
  if (count > 0) {
    std::vector<gid_t> groups(static_cast<size_t>(count));
    const int got = ::getgroups(count, groups.data());
    for (int i = 0; i < got; ++i) who.groups.push_back(groups[static_cast<size_t>(i)]);
  }
  return who;
}

int64_t LinuxSys::DriverPid() {
  char name[sizeof kFirstNamespace] = {};
  const ssize_t size = ::readlink("/proc/self/ns/pid", name, sizeof name);
  const bool first = size == sizeof kFirstNamespace - 1 && memcmp(name, kFirstNamespace, sizeof kFirstNamespace - 1) == 0;
  return first ? ::getpid() : -ENOENT;
}

}  // namespace mainarch::kfd
