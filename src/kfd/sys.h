// SPDX-License-Identifier: MIT
//
// The seam between the driver and whatever it drives: the few system calls that reach the kernel's
// GPU interface. Two classes stand behind it: LinuxSys (this machine's kernel) and the virtual
// node.
//
// What this is: system calls with their exact semantics. A call returns >= 0 or -errno, makes one
// attempt (EINTR comes back to the caller, arguments updated as the kernel would have), never
// allocates policy of its own, never logs. What it is not: a filesystem or a GPU interface.
// Anything that the hardware sees without the kernel (rings, doorbells, signals) is plain memory
// returned by Mmap: a 64-bit store to a doorbell goes through no call here, and a virtual node
// polls its doorbell pages as firmware does.
//
// Every memory mapping that a GPU may be told of goes through Mmap, anonymous reservations
// included, so that an implementation knows the whole address space of its client.
//
// Threads: every method may be called from any thread at any time; Ioctl may block (WAIT_EVENTS).
// Owner: whoever opened the devices; a Sys outlives every fd and mapping made through it.
#ifndef MAINARCH_KFD_SYS_H_
#define MAINARCH_KFD_SYS_H_

#include <errno.h>
#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mainarch::kfd {

// What stat(2) says of a path, as far as anyone here asks.
struct FileStat {
  uint32_t mode = 0;  // type and permission bits, as st_mode
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t rdev = 0;  // device number of a character device
  uint64_t size = 0;
};

// Who is asking: what permission checks are made against.
struct Identity {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups;
};

// How long the devices have stood still, in a time of their own that stands still while they work.
struct DeviceTime {
  int64_t now_ns = -1;   // negative: cannot be told, the clock on the wall must do
  int64_t moved_ns = 0;  // when something moved last, other than waits that went on
};

class Sys {
 public:
  virtual ~Sys() = default;
  Sys() = default;
  Sys(const Sys&) = delete;
  Sys& operator=(const Sys&) = delete;

  // open(2). `flags` as given (callers pass O_CLOEXEC). Returns the fd, or -errno.
  virtual int Open(const char* path, int flags) = 0;
  // close(2). The fd is gone whatever is returned.
  virtual int Close(int fd) = 0;
  // A second descriptor of the same open file, close-on-exec (fcntl F_DUPFD_CLOEXEC). The fd, or
  // -errno; -ENOSYS where there is no such thing.
  virtual int Dup(int) { return -ENOSYS; }
  // ioctl(2) with a pointer argument. The argument block is updated even on most errors.
  virtual int Ioctl(int fd, uint32_t request, void* argument) = 0;
  // read(2) and write(2) on an fd made through this seam (SMI event streams). Bytes, or -errno.
  virtual int64_t Read(int fd, void* buffer, size_t size) = 0;
  virtual int64_t Write(int fd, const void* buffer, size_t size) = 0;
  // poll(2) over fds made through this seam. Ready count, 0 on time-out, or -errno.
  virtual int Poll(pollfd* fds, size_t count, int timeout_ms) = 0;

  // mmap(2); fd -1 with MAP_ANONYMOUS for anonymous memory. On success stores the address and
  // returns 0.
  virtual int Mmap(void* hint, size_t size, int protection, int flags, int fd, uint64_t offset,
                   void** address) = 0;
  virtual int Munmap(void* address, size_t size) = 0;
  // madvise(2): DONTFORK on device mappings, WIPEONFORK on the fork guard.
  virtual int Madvise(void* address, size_t size, int advice) = 0;

  // Reads a text file whole (open, read to the end, close). -EFBIG beyond `limit` bytes. An errno
  // of the read itself (EPERM of a device cgroup) is returned as it is.
  virtual int ReadFile(const std::string& path, size_t limit, std::string* text) = 0;
  // Names in a directory, without "." and "..", in no order.
  virtual int ListDir(const std::string& path, std::vector<std::string>* names) = 0;
  // stat(2); follows symbolic links.
  virtual int Stat(const std::string& path, FileStat* out) = 0;
  // Credentials of the caller.
  virtual Identity WhoAmI() = 0;
  // The number under which the driver's sysfs has this process. -ENOENT where a process cannot know it, because it has
  // other numbers than the machine's.
  virtual int64_t DriverPid() { return -ENOENT; }

  // What the machine itself says of why something went wrong, a line; empty where it says nothing,
  // as a real one never does through this seam.
  virtual std::string Diagnose() { return std::string(); }

  virtual DeviceTime Time() { return {}; }
};

}  // namespace mainarch::kfd

#endif  // MAINARCH_KFD_SYS_H_
