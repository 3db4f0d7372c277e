// SPDX-License-Identifier: MIT
#include "sim/sim_sys.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kfd/linux_sys.h"
#include "kfd/uapi/kfd_sysfs.h"
#include "sim/drm.h"
#include "sim/virtual_paths.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

// Inode numbers alone are not enough: those of our memory files and of a disk's files may be equal.
FileKey KeyOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? FileKey(info.st_dev, info.st_ino) : FileKey();
}

// What the file that stands for a dma-buf says of it, for other processes, whose nodes are others: where
// its bytes are, which they map. The file has the buffer's size, and nothing else in it.
struct SharedRecord {
  uint64_t magic = 0;
  int32_t pid = 0, memory_fd = 0;  // of the exporter's arena
  uint64_t offset = 0, size = 0;
  uint32_t gpu = 0, flags = 0;
  uint64_t domains = 0, create_flags = 0;
};
constexpr uint64_t kSharedMagic = 0x3146554244534d4d;
constexpr absl::string_view kDmabufName = "mainarch-sim-dmabuf";

// What /proc says that a descriptor is of.
std::string TargetOf(const std::string& link) {
  char target[64] = {};
  const ssize_t size = readlink(link.c_str(), target, sizeof target);
  return std::string(target, size < 0 ? 0 : static_cast<size_t>(size));
}

// Another process' buffer in this one. It is gone when its maker frees it, which a kernel's would not.
struct ForeignBuffer : Buffer {
  Mapping bytes;
};

std::shared_ptr<Buffer> MapForeign(int fd, uint32_t gpus) {
  SharedRecord record;
  struct stat info = {};
  if (!absl::StartsWith(TargetOf(absl::StrCat("/proc/self/fd/", fd)), absl::StrCat("/memfd:", kDmabufName)) ||
      pread(fd, &record, sizeof record, 0) != sizeof record || record.magic != kSharedMagic ||
      fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) != record.size ||
      record.size % kPageSize != 0 || record.offset % kPageSize != 0 || record.gpu >= gpus) {
    return nullptr;
  }
  const std::string memory = absl::StrCat("/proc/", record.pid, "/fd/", record.memory_fd);
  if (!absl::StartsWith(TargetOf(memory), absl::StrCat("/memfd:", kArenaName))) return nullptr;
  const UniqueFd file(open(memory.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid() || fstat(file.get(), &info) != 0 ||
      record.offset > static_cast<uint64_t>(info.st_size) ||
      record.size > static_cast<uint64_t>(info.st_size) - record.offset) {
    return nullptr;
  }
  void* address = mmap(nullptr, record.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(),
                       static_cast<off_t>(record.offset));
  if (address == MAP_FAILED) return nullptr;
  auto buffer = std::make_shared<ForeignBuffer>();
  buffer->bytes = Mapping(address, record.size);
  buffer->host = static_cast<uint8_t*>(address);
  buffer->gpu = record.gpu;
  buffer->size = record.size;
  buffer->flags = record.flags;
  buffer->domains = record.domains;
  buffer->create_flags = record.create_flags;
  return buffer;
}

// A real fd that stands for something of the node's.
int StandIn(const char* name, int flags) {
  const int fd = memfd_create(name, (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0);
  return fd < 0 ? -errno : fd;
}

}  // namespace

SimSys::SimSys(std::shared_ptr<Node> node)
    : node_(std::move(node)), process_(std::make_unique<Process>(node_)) {
  caller_.render_file = [this](int fd) {
    const std::shared_ptr<File> file = Lookup(fd);
    if (file == nullptr || file->kind != File::Kind::kRender) return Process::RenderFile();
    return Process::RenderFile{file->id, file->gpu};
  };
  caller_.export_fd = [this](std::shared_ptr<Buffer> buffer, int flags) {
    return ExportFd(std::move(buffer), flags);
  };
  caller_.import_fd = [this](int fd) { return ImportFd(fd); };
  caller_.smi_fd = [this](uint32_t gpu, UniqueFd* end) { return SmiFd(gpu, end); };
}

SimSys::~SimSys() = default;

std::shared_ptr<SimSys::File> SimSys::Lookup(int fd) const {
  const FileKey key = KeyOf(fd);
  std::lock_guard lock(mutex_);
  const auto found = files_.find(key);
  return found == files_.end() ? nullptr : found->second;
}

int SimSys::Install(int fd, std::shared_ptr<File> file) {
  if (fd < 0) return fd;
  file->owner = getpid();
  std::lock_guard lock(mutex_);
  files_[KeyOf(fd)] = std::move(file);
  return fd;
}

int SimSys::OpenText(const std::string& text, int flags) {
  if ((flags & O_ACCMODE) != O_RDONLY) return -EACCES;
  const int fd = StandIn("mainarch-sim-text", flags);
  if (fd < 0) return fd;
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t part = write(fd, text.data() + done, text.size() - done);
    if (part <= 0) {
      close(fd);
      return -EIO;
    }
    done += static_cast<size_t>(part);
  }
  lseek(fd, 0, SEEK_SET);
  return Install(fd, std::make_shared<File>());
}

int SimSys::Open(const char* path, int flags) {
  if (!IsVirtualPath(path)) {
    const int fd = open(path, flags);
    return fd < 0 ? -errno : fd;
  }
  if (const int error = node_->script().OnOpen(); error != 0) return -error;
  const VirtualFs::Entry* entry = node_->fs().Find(path);
  if (entry == nullptr) {
    std::vector<std::string> names;
    std::string text;
    if (ReadFile(path, SIZE_MAX, &text) == 0) return OpenText(text, flags);
    return ListDir(path, &names) == 0 ? -EISDIR : -ENOENT;
  }
  if (entry->kind != VirtualFs::Entry::Kind::kDevice) {
    if (entry->error != 0) return -entry->error;
    std::string text;
    const int error = ReadFile(path, SIZE_MAX, &text);
    return error < 0 ? error : OpenText(text, flags);
  }
  auto file = std::make_shared<File>();
  if (absl::StartsWith(path, uapi::kKfdDevice)) {
    file->kind = File::Kind::kKfd;
    return Install(StandIn("mainarch-sim-kfd", flags), std::move(file));
  }
  file->kind = File::Kind::kRender;
  for (size_t i = 0; i < node_->gpus().size(); ++i) {
    if (node_->gpus()[i].render_minor == entry->minor) file->gpu = static_cast<uint32_t>(i);
  }
  if (entry->minor < 128) file->gpu = entry->minor;  // a card node
  if (node_->gone(file->gpu)) return -ENODEV;
  {
    std::lock_guard lock(node_->mutex());
    file->id = node_->next_file_++;
  }
  return Install(StandIn("mainarch-sim-render", flags), std::move(file));
}

int SimSys::Close(int fd) {
  const FileKey key = KeyOf(fd);
  if (close(fd) != 0) return -errno;
  std::shared_ptr<File> dropped;
  {
    std::lock_guard lock(mutex_);
    const auto found = files_.find(key);
    if (found != files_.end() && --found->second->opens == 0) {
      dropped = found->second;
      files_.erase(found);
    }
  }
  Dropped(dropped.get());
  return 0;
}

void SimSys::Dropped(const File* file) {
  if (file != nullptr && file->kind == File::Kind::kRender) process_->CloseDrmFile(file->id);
}

int SimSys::CloseShared(int fd) {
  const FileKey key = KeyOf(fd);
  if (close(fd) != 0) return -errno;
  std::vector<std::string> names;
  if (ListDir("/proc/self/fd", &names) != 0) return 0;
  for (const std::string& name : names) {
    int other = -1;
    if (absl::SimpleAtoi(name, &other) && KeyOf(other) == key) return 0;
  }
  std::shared_ptr<File> dropped;
  {
    std::lock_guard lock(mutex_);
    const auto found = files_.find(key);
    if (found == files_.end()) return 0;
    dropped = found->second;
    files_.erase(found);
  }
  Dropped(dropped.get());
  return 0;
}

int SimSys::Dup(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return -errno;
  std::lock_guard lock(mutex_);
  const auto found = files_.find(KeyOf(copy));
  if (found != files_.end()) ++found->second->opens;
  return copy;
}

int SimSys::Ioctl(int fd, uint32_t request, void* argument) {
  const std::shared_ptr<File> file = Lookup(fd);
  if (file == nullptr) return fcntl(fd, F_GETFD) < 0 ? -EBADF : -ENOTTY;
  switch (file->kind) {
    case File::Kind::kKfd:
      // An fd that came over fork, or over a socket, is dead here.
      if (file->owner != getpid()) return -EBADF;
      return process_->Ioctl(caller_, request, argument);
    case File::Kind::kRender:
      if (IsGem(request) && !node_->gone(file->gpu)) {
        if (file->owner != getpid()) return -EBADF;
        return process_->GemIoctl(caller_, {file->id, file->gpu}, request, argument);
      }
      return DrmIoctl(*node_, file->gpu, request, argument);
    default:
      return -ENOTTY;
  }
}

int64_t SimSys::Read(int fd, void* buffer, size_t size) {
  const std::shared_ptr<File> file = Lookup(fd);
  // Neither device has a read operation.
  if (file != nullptr && (file->kind == File::Kind::kKfd || file->kind == File::Kind::kRender)) {
    return -EINVAL;
  }
  const ssize_t result = read(fd, buffer, size);
  return result < 0 ? -errno : result;
}

int64_t SimSys::Write(int fd, const void* buffer, size_t size) {
  const std::shared_ptr<File> file = Lookup(fd);
  if (file != nullptr && file->kind != File::Kind::kSmi) return -EINVAL;
  if (file != nullptr) {
    // The mask of wanted events, and nothing else, can be written to a stream.
    if (size < sizeof(uint64_t)) return -EFAULT;
    size = sizeof(uint64_t);
  }
  const ssize_t result = write(fd, buffer, size);
  return result < 0 ? -errno : result;
}

int SimSys::Poll(pollfd* fds, size_t count, int timeout_ms) {
  const int result = poll(fds, count, timeout_ms);
  return result < 0 ? -errno : result;
}

int64_t SimSys::DeviceOffset(const File& file, uint64_t cookie, uint64_t size) {
  if (file.owner != getpid()) return -EBADF;
  if (file.kind == File::Kind::kKfd) return process_->KfdMapping(cookie, size);
  if (file.kind == File::Kind::kRender) return process_->RenderMapping(file.id, cookie, size);
  return -ENODEV;
}

int SimSys::Mmap(void* hint, size_t size, int protection, int flags, int fd, uint64_t offset,
                 void** address) {
  if (const int error = node_->script().OnMmap(); error != 0) return -error;
  int target = fd;
  if (fd >= 0) {
    const std::shared_ptr<File> file = Lookup(fd);
    if (file != nullptr && file->kind != File::Kind::kText) {
      // A private mapping of device memory would be a copy the GPU never sees.
      if ((flags & MAP_TYPE) == MAP_PRIVATE && (protection & PROT_WRITE) != 0) return -EINVAL;
      const int64_t at = DeviceOffset(*file, offset, size);
      if (at < 0) return static_cast<int>(at);
      offset = static_cast<uint64_t>(at);
      target = node_->arena().fd();
    }
  }
  void* result = mmap(hint, size, protection, flags, target, static_cast<off_t>(offset));
  if (result == MAP_FAILED) return -errno;
  NoteMapped(reinterpret_cast<uint64_t>(result), PageUp(size));
  *address = result;
  return 0;
}

int SimSys::Munmap(void* address, size_t size) {
  if (const int error = node_->script().OnMunmap(); error != 0) return -error;
  process_->UserMemoryGoes(reinterpret_cast<uint64_t>(address), PageUp(size));
  if (munmap(address, size) != 0) return -errno;
  NoteUnmapped(reinterpret_cast<uint64_t>(address), PageUp(size));
  return 0;
}

int SimSys::Madvise(void* address, size_t size, int advice) {
  if (const int error = node_->script().OnMadvise(); error != 0) return -error;
  return madvise(address, size, advice) == 0 ? 0 : -errno;
}

void SimSys::NoteMapped(uint64_t address, uint64_t size) {
  NoteUnmapped(address, size);
  std::lock_guard lock(mutex_);
  mapped_[address] = address + size;
}

void SimSys::NoteUnmapped(uint64_t address, uint64_t size) {
  const uint64_t end = address + size;
  std::lock_guard lock(mutex_);
  auto at = mapped_.upper_bound(address);
  if (at != mapped_.begin()) --at;
  while (at != mapped_.end() && at->first < end) {
    const uint64_t first = at->first, last = at->second;
    if (last <= address) {
      ++at;
      continue;
    }
    at = mapped_.erase(at);
    if (first < address) mapped_[first] = address;
    if (last > end) at = mapped_.emplace(end, last).first;
  }
}

int SimSys::ReadFile(const std::string& path, size_t limit, std::string* text) {
  if (!IsVirtualPath(path)) return kfd::LinuxSys().ReadFile(path, limit, text);
  // What changes while the node lives.
  for (size_t gpu = 0; gpu < node_->gpus().size(); ++gpu) {
    const std::string card = absl::StrCat("renderD", node_->gpus()[gpu].render_minor);
    if (path == absl::StrCat("/sys/class/drm/", card, "/device/mem_info_vram_used")) {
      *text = absl::StrCat(node_->vram_used(static_cast<uint32_t>(gpu)), "\n");
      return 0;
    }
  }
  const std::string place = node_->fs().Resolve(path);
  if (IsUnder(place, ProcessFiles::kRoot)) {
    const int error = node_->process_files().Read(place, text);
    return error == 0 && text->size() > limit ? -EFBIG : error;
  }
  const VirtualFs::Entry* entry = node_->fs().Find(path);
  if (entry == nullptr) return -ENOENT;
  if (entry->error != 0) return -entry->error;
  if (entry->kind == VirtualFs::Entry::Kind::kDevice) return -EINVAL;
  if (entry->text.size() > limit) return -EFBIG;
  *text = entry->text;
  return 0;
}

int SimSys::ListDir(const std::string& path, std::vector<std::string>* names) {
  if (!IsVirtualPath(path)) return kfd::LinuxSys().ListDir(path, names);
  const std::string place = node_->fs().Resolve(path);
  if (IsUnder(place, ProcessFiles::kRoot)) return node_->process_files().List(place, names);
  return node_->fs().List(path, names) ? 0 : -ENOENT;
}

int SimSys::Stat(const std::string& path, kfd::FileStat* out) {
  *out = {};
  absl::string_view number = path;
  int fd = -1;
  if (absl::ConsumePrefix(&number, "/proc/self/fd/") && absl::SimpleAtoi(number, &fd) &&
      StatDevice(fd, out)) {
    return 0;
  }
  if (!IsVirtualPath(path)) return kfd::LinuxSys().Stat(path, out);
  const VirtualFs::Entry* entry = node_->fs().Find(path);
  std::vector<std::string> names;
  std::string text;
  if (entry == nullptr) {
    const bool is_file = ReadFile(path, SIZE_MAX, &text) == 0;
    if (!is_file && ListDir(path, &names) != 0) return -ENOENT;
    out->mode = is_file ? S_IFREG | 0444 : S_IFDIR | 0555;
    if (is_file) out->size = 4096;
  } else if (entry->kind == VirtualFs::Entry::Kind::kDevice) {
    out->mode = S_IFCHR | 0666;
    out->rdev = makedev(entry->major, entry->minor);
  } else {
    out->mode = S_IFREG | 0444;
    out->size = 4096;  // as sysfs says of every attribute
  }
  return 0;
}

kfd::Identity SimSys::WhoAmI() { return kfd::LinuxSys().WhoAmI(); }

int SimSys::ExportFd(std::shared_ptr<Buffer> buffer, int flags) {
  auto file = std::make_shared<File>();
  file->kind = File::Kind::kDmabuf;
  file->buffer = buffer;
  const int fd = Install(StandIn(kDmabufName.data(), flags), std::move(file));
  // libdrm asks a dma-buf's size of lseek.
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(buffer->size)) != 0) return close(fd), -ENOMEM;
  if (fd >= 0 && buffer->block.size() != 0) {
    const SharedRecord record = {kSharedMagic,  getpid(),       node_->arena().fd(), buffer->block.offset(), buffer->size,
                                 buffer->gpu,   buffer->flags,  buffer->domains,     buffer->create_flags};
    if (pwrite(fd, &record, sizeof record, 0) != sizeof record) return close(fd), -ENOMEM;
  }
  // Another process on this node finds it through the node. The caller holds the node's mutex.
  if (fd >= 0) node_->exports_[KeyOf(fd)] = buffer;
  return fd;
}

std::shared_ptr<Buffer> SimSys::ImportFd(int fd) const {
  std::weak_ptr<Buffer>& known = node_->exports_[KeyOf(fd)];
  std::shared_ptr<Buffer> buffer = known.lock();
  if (buffer != nullptr) return buffer;
  buffer = MapForeign(fd, node_->config().gpus);
  if (buffer == nullptr) {
    node_->exports_.erase(KeyOf(fd));
  } else {
    known = buffer;
  }
  return buffer;
}

int SimSys::SmiFd(uint32_t gpu, UniqueFd* driver_end) {
  // Reading an empty stream is EAGAIN, whatever the descriptor's flags.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return -errno;
  auto file = std::make_shared<File>();
  file->kind = File::Kind::kSmi;
  file->gpu = gpu;
  *driver_end = UniqueFd(ends[1]);
  return Install(ends[0], std::move(file));
}

std::string SimSys::Diagnose() {
  for (const std::string& line : node_->log()) {
    if (absl::StrContains(line, kHaltedWave)) return line;
  }
  return std::string();
}

bool SimSys::IsDevice(int fd) const {
  const std::shared_ptr<File> file = Lookup(fd);
  return file != nullptr && file->kind != File::Kind::kText;
}

bool SimSys::StatDevice(int fd, kfd::FileStat* out) const {
  const std::shared_ptr<File> file = Lookup(fd);
  if (file == nullptr) return false;
  *out = {};
  if (file->kind == File::Kind::kKfd) {
    out->rdev = makedev(234, 0);
  } else if (file->kind == File::Kind::kRender) {
    out->rdev = makedev(226, node_->gpus()[file->gpu].render_minor);
  } else {
    return false;
  }
  out->mode = S_IFCHR | 0666;
  return true;
}

Ledger SimSys::ledger() {
  Ledger ledger = process_->ledger();
  std::lock_guard lock(mutex_);
  ledger.fds = files_.size();
  ledger.client_mappings = mapped_.size();
  return ledger;
}

}  // namespace mainarch::sim
