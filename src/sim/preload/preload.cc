// SPDX-License-Identifier: MIT
//
// libmainarch-sim-preload.so: put in front of the C library by LD_PRELOAD, it lets an unmodified program
// see the virtual node named by its environment (sim/launcher.h). Paths that the node owns lead
// into the directory of its files; opening a device loads and makes the node, inside this process; ioctl,
// mmap, read and stat on a device's fd go to it. Everything else passes through untouched.
//
// This library is for tests and development and is no part of libmainarch: it reads the
// environment and has mutable statics because a preloaded library has no other way in.
//
// Not covered: system calls made without the C library's functions, and processes that share the
// node: every process that opens a device has a node of its own. What they share are the bytes of
// dma-bufs.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"
#include "kfd/sim_part.h"
#include "sim/launcher.h"
#include "sim/virtual_paths.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace mainarch::sim {
namespace {

using kfd::VirtualSys;

// For programs from outside: ms of a wait before it is nudged; encodings with an erratum run.
constexpr char kOutside[] = ",nudge=1000,errata=1";

// Calls from inside the node must reach the C library.
thread_local int inside = 0;
struct Inside {
  Inside() { ++inside; }
  ~Inside() { --inside; }
};

void* Next(const char* name, std::atomic<void*>* cache) {
  void* found = cache->load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = dlsym(RTLD_NEXT, name);
    cache->store(found, std::memory_order_relaxed);
  }
  return found;
}
// The C library's function behind a hook of the same name and type.
#define NEXT(name)                               \
  reinterpret_cast<decltype(&::name)>([] {       \
    static std::atomic<void*> cache{nullptr};    \
    return ::mainarch::sim::Next(#name, &cache); \
  }())

// The node of this process. Made at the first device that is opened; never destroyed, because a
// client's threads may be inside of it until the process is gone.
struct World {
  std::mutex mutex;
  std::shared_ptr<VirtualSys> sys;
};
std::atomic<World*> the_world{nullptr};
std::atomic<VirtualSys*> the_sys{nullptr};
std::atomic<pid_t> the_owner{0};  // the process that `the_sys` belongs to
std::atomic<bool> inherited{false};  // this process was forked from one that had a node

World& TheWorld() {
  World* world = the_world.load();
  if (world != nullptr) return *world;
  auto fresh = std::make_unique<World>();
  if (the_world.compare_exchange_strong(world, fresh.get())) return *fresh.release();
  return *world;
}

// In a child the parent's machine threads do not exist and its locks may be held for ever by
// threads that do not exist either. So nothing of it is touched again: a child that opens a device
// gets a node of its own, and the fds it inherited are dead, as the driver says.
void ForgetParent() {
  if (the_sys.exchange(nullptr) != nullptr) inherited = true;
  the_world = nullptr;
}

const std::string& Root() {
  static const std::string* root = [] {
    const char* value = getenv(kRootVariable);
    return new std::string(value == nullptr ? "" : value);
  }();
  return *root;
}

void Complain(const std::string& text) {
  const std::string line = "mainarch-sim: " + text + "\n";
  [[maybe_unused]] const ssize_t written = write(2, line.data(), line.size());
}

// Programs of any age run here. Some lose wake-ups of their own accord: the node nudges them. Some
// were compiled to forms that silicon gets wrong now and then: those run. A setting of the user's
// stands later and wins.
std::string NodeText(absl::string_view given) {
  const size_t chip = std::min(given.find(','), given.size());
  return absl::StrCat(given.substr(0, chip), kOutside, given.substr(chip));
}

VirtualSys* MakeSys() {
  World& world = TheWorld();
  std::lock_guard lock(world.mutex);
  if (world.sys != nullptr) return world.sys.get();
  const char* text = getenv(kNodeVariable);
  const char* faults = getenv(kScriptVariable);
  StatusOr<std::shared_ptr<VirtualSys>> sys = kfd::OpenVirtual(
      NodeText(text == nullptr ? "gfx950x8" : text), faults == nullptr ? "" : faults);
  if (!sys.ok()) return Complain(std::string(sys.status().message())), nullptr;
  world.sys = *std::move(sys);
  if (const char* log = getenv(kLogVariable); log != nullptr) {
    UniqueFd file(NEXT(open)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!file.valid()) Complain(absl::StrCat("no log in ", log, ": errno ", errno));
    world.sys->LogTo(std::move(file));
  }
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, ForgetParent); });
  the_owner = getpid();
  the_sys = world.sys.get();
  return world.sys.get();
}

// As late as can be (the program's own exit handlers may still wait for its GPUs): stops the
// machine's threads. The node itself stays: other threads of the program may sleep in it.
__attribute__((destructor)) void Finish() {
  const World* world = the_world.load();
  if (world == nullptr || world->sys == nullptr) return;
  const Inside guard;
  world->sys->Stop();
}

// A child of vfork runs in its parent's memory, but its descriptors are its own: what it closes
// must not be gone for the parent.
VirtualSys* OwnSys() {
  VirtualSys* sys = inside > 0 ? nullptr : the_sys.load();
  return sys != nullptr && the_owner.load() == getpid() ? sys : nullptr;
}

VirtualSys* SysOf(int fd) {
  VirtualSys* sys = OwnSys();
  if (sys == nullptr || fd < 0) return nullptr;
  const Inside guard;
  return sys->IsDevice(fd) ? sys : nullptr;
}

// Is it a device that the parent opened? Asked of the kernel: the parent's tables are out of reach.
bool IsParents(int fd) {
  if (!inherited.load() || inside > 0 || fd < 0) return false;
  char target[64] = {};
  const std::string link = absl::StrCat("/proc/self/fd/", fd);
  if (syscall(SYS_readlink, link.c_str(), target, sizeof target - 1) <= 0) return false;
  const absl::string_view name = target;
  return absl::StartsWith(name, "/memfd:mainarch-sim-kfd") ||
         absl::StartsWith(name, "/memfd:mainarch-sim-render");
}

bool IsOurs(const char* path) {
  return path != nullptr && inside == 0 && !Root().empty() && IsVirtualPath(path);
}
bool IsDevicePath(absl::string_view path) {
  return path == "/dev/kfd" || absl::StartsWith(path, "/dev/dri/renderD") ||
         absl::StartsWith(path, "/dev/dri/card");
}

// The path to use instead of `path`.
class Redirected {
 public:
  explicit Redirected(const char* path) : path_(path) {
    if (!IsOurs(path)) return;
    text_ = Root() + path;
    path_ = text_.c_str();
  }
  const char* get() const { return path_; }

 private:
  std::string text_;
  const char* path_;
};

int Result(int result) {
  if (result >= 0) return result;
  errno = -result;
  return -1;
}

// Opens a device; -2 when the path is none, so that the caller goes on.
int OpenDevice(const char* path, int flags) {
  if (!IsOurs(path) || !IsDevicePath(path)) return -2;
  const Inside guard;
  VirtualSys* sys = MakeSys();
  return sys == nullptr ? Result(-ENODEV) : Result(sys->Open(path, flags));
}

// A device's node in the tree is an empty file: give it the look of a device.
template <class S>
void Dress(const char* path, S* info) {
  if (!IsOurs(path) || !IsDevicePath(path)) return;
  const absl::string_view text = path;
  info->st_mode = S_IFCHR | 0666;
  const size_t digit = text.find_first_of("0123456789");
  const unsigned minor =
      digit == absl::string_view::npos ? 0 : static_cast<unsigned>(atoi(path + digit));
  info->st_rdev = text == "/dev/kfd" ? makedev(234, 0) : makedev(226, minor);
}

template <class S>
void DressFd(int fd, S* info) {
  VirtualSys* sys = SysOf(fd);
  if (sys == nullptr) return;
  const Inside guard;
  kfd::FileStat device;
  if (!sys->StatDevice(fd, &device)) return;
  info->st_mode = device.mode;
  info->st_rdev = device.rdev;
}

mode_t ModeOf(int flags, va_list list) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
}

}  // namespace
}  // namespace mainarch::sim

using namespace mainarch::sim;  // NOLINT: hooks live outside of every namespace

#define OPEN_HOOK(name)                                     \
  EXPORT int name(const char* path, int flags, ...) {       \
    va_list list;                                           \
    va_start(list, flags);                                  \
    const mode_t mode = ModeOf(flags, list);                \
    va_end(list);                                           \
    const int device = OpenDevice(path, flags);             \
    if (device != -2) return device;                        \
    return NEXT(name)(Redirected(path).get(), flags, mode); \
  }
OPEN_HOOK(open)
OPEN_HOOK(open64)

#define OPENAT_HOOK(name)                                              \
  EXPORT int name(int directory, const char* path, int flags, ...) {   \
    va_list list;                                                      \
    va_start(list, flags);                                             \
    const mode_t mode = ModeOf(flags, list);                           \
    va_end(list);                                                      \
    const int device = OpenDevice(path, flags);                        \
    if (device != -2) return device;                                   \
    return NEXT(name)(directory, Redirected(path).get(), flags, mode); \
  }
OPENAT_HOOK(openat)
OPENAT_HOOK(openat64)

// What _FORTIFY_SOURCE makes of open without a mode.
EXPORT int __open_2(const char* path, int flags) { return open(path, flags); }
EXPORT int __open64_2(const char* path, int flags) { return open64(path, flags); }
EXPORT int __openat_2(int directory, const char* path, int flags) {
  return openat(directory, path, flags);
}
EXPORT int __openat64_2(int directory, const char* path, int flags) {
  return openat64(directory, path, flags);
}

EXPORT FILE* fopen(const char* path, const char* mode) {
  return NEXT(fopen)(Redirected(path).get(), mode);
}
EXPORT FILE* fopen64(const char* path, const char* mode) {
  return NEXT(fopen64)(Redirected(path).get(), mode);
}
EXPORT DIR* opendir(const char* path) { return NEXT(opendir)(Redirected(path).get()); }
EXPORT int scandir(const char* path, struct dirent*** names, int (*filter)(const struct dirent*),
                   int (*compare)(const struct dirent**, const struct dirent**)) {
  return NEXT(scandir)(Redirected(path).get(), names, filter, compare);
}
EXPORT int access(const char* path, int mode) noexcept {
  return NEXT(access)(Redirected(path).get(), IsOurs(path) && IsDevicePath(path) ? F_OK : mode);
}
EXPORT int faccessat(int directory, const char* path, int mode, int flags) noexcept {
  return NEXT(faccessat)(directory, Redirected(path).get(),
                         IsOurs(path) && IsDevicePath(path) ? F_OK : mode, flags);
}

#define STAT_HOOK(name, type)                                     \
  EXPORT int name(const char* path, struct type* info) noexcept { \
    const int result = NEXT(name)(Redirected(path).get(), info);  \
    if (result == 0) Dress(path, info);                           \
    return result;                                                \
  }
STAT_HOOK(stat, stat)
STAT_HOOK(stat64, stat64)
STAT_HOOK(lstat, stat)
STAT_HOOK(lstat64, stat64)

#define FSTAT_HOOK(name, type)                          \
  EXPORT int name(int fd, struct type* info) noexcept { \
    const int result = NEXT(name)(fd, info);            \
    if (result == 0) DressFd(fd, info);                 \
    return result;                                      \
  }
FSTAT_HOOK(fstat, stat)
FSTAT_HOOK(fstat64, stat64)

#define FSTATAT_HOOK(name, type)                                                            \
  EXPORT int name(int directory, const char* path, struct type* info, int flags) noexcept { \
    const int result = NEXT(name)(directory, Redirected(path).get(), info, flags);          \
    if (result == 0) Dress(path, info);                                                     \
    return result;                                                                          \
  }
FSTATAT_HOOK(fstatat, stat)
FSTATAT_HOOK(fstatat64, stat64)

EXPORT int statx(int directory, const char* path, int flags, unsigned mask,
                 struct statx* info) noexcept {
  const int result = NEXT(statx)(directory, Redirected(path).get(), flags, mask, info);
  if (result == 0 && IsOurs(path) && IsDevicePath(path)) {
    struct stat device = {};
    Dress(path, &device);
    info->stx_mode = static_cast<uint16_t>(device.st_mode);
    info->stx_rdev_major = major(device.st_rdev);
    info->stx_rdev_minor = minor(device.st_rdev);
  }
  return result;
}

// Links of the tree lead to places inside of it: tell the place as it is outside.
static ssize_t Outside(char* buffer, ssize_t size) {
  const std::string& root = Root();
  const absl::string_view text(buffer, size < 0 ? 0 : static_cast<size_t>(size));
  if (root.empty() || !absl::StartsWith(text, root)) return size;
  std::memmove(buffer, buffer + root.size(), text.size() - root.size());
  return size - static_cast<ssize_t>(root.size());
}

EXPORT ssize_t readlink(const char* path, char* buffer, size_t size) noexcept {
  if (!IsOurs(path)) return NEXT(readlink)(path, buffer, size);
  char target[4096];
  const ssize_t length =
      Outside(target, NEXT(readlink)(Redirected(path).get(), target, sizeof(target)));
  if (length < 0) return length;
  const size_t part = std::min(size, static_cast<size_t>(length));
  std::memcpy(buffer, target, part);
  return static_cast<ssize_t>(part);
}
EXPORT char* realpath(const char* path, char* resolved) noexcept {
  char* result = NEXT(realpath)(Redirected(path).get(), resolved);
  if (result == nullptr || !IsOurs(path)) return result;
  const size_t length = std::strlen(result);
  result[Outside(result, static_cast<ssize_t>(length))] = '\0';
  return result;
}
EXPORT char* __realpath_chk(const char* path, char* resolved, size_t) {
  return realpath(path, resolved);
}

EXPORT ssize_t getxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  return NEXT(getxattr)(Redirected(path).get(), name, value, size);
}
EXPORT ssize_t lgetxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  return NEXT(lgetxattr)(Redirected(path).get(), name, value, size);
}

EXPORT int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* argument = va_arg(list, void*);
  va_end(list);
  VirtualSys* sys = SysOf(fd);
  if (sys == nullptr) {
    return IsParents(fd) ? Result(-EBADF) : NEXT(ioctl)(fd, request, argument);
  }
  const Inside guard;
  return Result(sys->Ioctl(fd, static_cast<uint32_t>(request), argument));
}

// A program that has seen the node's memory (sim/virtual_fs.cc) may map as much of it in one piece, which
// Linux refuses where the host has far less, unless nothing has to be reserved.
static int WithoutReserve(size_t size, int flags) {
  constexpr size_t kLarge = size_t{16} << 30;
  return (flags & MAP_ANONYMOUS) != 0 && size >= kLarge && OwnSys() != nullptr ? flags | MAP_NORESERVE : flags;
}

#define MMAP_HOOK(name, offset_type)                                                           \
  EXPORT void* name(void* hint, size_t size, int protection, int flags, int fd,                \
                    offset_type offset) noexcept {                                             \
    VirtualSys* sys = SysOf(fd);                                                                   \
    if (sys == nullptr) {                                                                      \
      if (IsParents(fd)) return errno = EBADF, MAP_FAILED;                                     \
      return NEXT(name)(hint, size, protection, WithoutReserve(size, flags), fd, offset);      \
    }                                                                                          \
    const Inside guard;                                                                        \
    void* address = nullptr;                                                                   \
    const int error =                                                                          \
        sys->Mmap(hint, size, protection, flags, fd, static_cast<uint64_t>(offset), &address); \
    return Result(error) < 0 ? MAP_FAILED : address;                                           \
  }
MMAP_HOOK(mmap, off_t)
MMAP_HOOK(mmap64, off64_t)

// The GPUs must lose what the program unmaps before it is gone.
EXPORT int munmap(void* address, size_t size) noexcept {
  VirtualSys* sys = OwnSys();
  if (sys == nullptr) return NEXT(munmap)(address, size);
  const Inside guard;
  return Result(sys->Munmap(address, size));
}

// And what it may no longer write.
EXPORT int mprotect(void* address, size_t size, int protection) noexcept {
  VirtualSys* sys = OwnSys();
  if (sys == nullptr) return NEXT(mprotect)(address, size, protection);
  const Inside guard;
  return Result(sys->Mprotect(address, size, protection));
}

EXPORT int close(int fd) {
  VirtualSys* sys = SysOf(fd);
  if (sys == nullptr) return NEXT(close)(fd);
  const Inside guard;
  return Result(sys->CloseShared(fd));
}

EXPORT ssize_t read(int fd, void* buffer, size_t size) {
  VirtualSys* sys = SysOf(fd);
  if (sys == nullptr) return NEXT(read)(fd, buffer, size);
  const Inside guard;
  const int64_t result = sys->Read(fd, buffer, size);
  return result < 0 ? Result(static_cast<int>(result)) : result;
}

// Programs that look libc's functions up by hand (Python's ctypes does) get the hooks as well.
using Lookup = void* (*)(void*, const char*) noexcept;

static Lookup RealDlsym() noexcept {
  static std::atomic<Lookup> cache{nullptr};
  Lookup real = cache.load(std::memory_order_relaxed);
  if (real == nullptr) {
    real = reinterpret_cast<Lookup>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
    cache.store(real, std::memory_order_relaxed);
  }
  return real;
}

__attribute__((noinline)) static void* LookUpIn(void* handle, const char* name) noexcept {
  struct Hook {
    const char* name;
    void* hook;
  };
#define HOOK(function)                            \
  {                                               \
    #function, reinterpret_cast<void*>(&function) \
  }
  static const Hook hooks[] = {
      HOOK(open),     HOOK(open64),   HOOK(fopen),    HOOK(fopen64),   HOOK(opendir), HOOK(access),
      HOOK(ioctl),    HOOK(readlink), HOOK(realpath), HOOK(faccessat), HOOK(openat),  HOOK(mmap),
      HOOK(openat64), HOOK(mmap64),   HOOK(munmap),   HOOK(close),    HOOK(mprotect),
  };
#undef HOOK
  const Lookup real = RealDlsym();
  void* found = real(handle, name);
  if (found == nullptr) return found;
  for (const Hook& one : hooks) {
    // Only when it is the C library's own that was found.
    if (std::strcmp(name, one.name) == 0 && found == real(RTLD_NEXT, name)) return one.hook;
  }
  return found;
}

EXPORT void* dlsym(void* handle, const char* name) noexcept {
  if (handle != RTLD_NEXT && handle != RTLD_DEFAULT) return LookUpIn(handle, name);
  // It tells the caller's library from the return address: this must stay a jump.
  return RealDlsym()(handle, name);
}
