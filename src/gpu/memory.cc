// SPDX-License-Identifier: MIT
#include "gpu/memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/device.h"
#include "gpu/process.h"

namespace mainarch::gpu {
namespace {

namespace uapi = kfd::uapi;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLargePage = 2 << 20;
constexpr uint64_t kMaxBuffer = uint64_t{1} << 44;  // beyond any node; keeps the sums from wrapping

constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

uint32_t TypeFlags(const BufferOptions& o) {
  switch (o.place) {
    case Place::kVram:
      return uapi::kAllocVram | uapi::kAllocNoSubstitute |
             (o.host_access ? uapi::kAllocPublic : 0) | (o.contiguous ? uapi::kAllocContiguous : 0);
    case Place::kSystem:
      return uapi::kAllocGtt | uapi::kAllocNoSubstitute | uapi::kAllocCoherent;
    case Place::kUserMemory:
      return uapi::kAllocUserptr | uapi::kAllocNoSubstitute | uapi::kAllocCoherent;
    case Place::kDoorbell:
      return uapi::kAllocDoorbell | uapi::kAllocNoSubstitute | uapi::kAllocCoherent;
    case Place::kMmioRemap:
      return uapi::kAllocMmioRemap | uapi::kAllocNoSubstitute | uapi::kAllocCoherent;
  }
  return 0;
}

uint32_t AllocFlags(const BufferOptions& o) {
  uint32_t flags = TypeFlags(o);
  if (o.writable) flags |= uapi::kAllocWritable;
  if (o.executable) flags |= uapi::kAllocExecutable;
  switch (o.caching) {
    case Caching::kDefault:
      break;
    case Caching::kCoherent:
      flags |= uapi::kAllocCoherent;
      break;
    case Caching::kExtCoherent:
      flags |= uapi::kAllocExtCoherent;
      break;
    case Caching::kUncached:
      flags |= uapi::kAllocUncached;
      break;
  }
  return flags;
}

Status CheckOptions(const Device& device, uint64_t size, const BufferOptions& o) {
  if (size == 0 || size > kMaxBuffer) {
    return Error(Code::kInvalidArgument, o.label, ": size ", size, ", must be 1..", kMaxBuffer);
  }
  if (o.place == Place::kDoorbell && size != uapi::kDoorbellSliceSize) {
    return Error(Code::kInvalidArgument, o.label, ": a doorbell page has ",
                 uapi::kDoorbellSliceSize, " bytes, not ", size);
  }
  if (o.place == Place::kMmioRemap && size != uapi::kMmioRemapSize) {
    return Error(Code::kInvalidArgument, o.label, ": a remap page has ", uapi::kMmioRemapSize,
                 " bytes, not ", size);
  }
  const uint64_t user = reinterpret_cast<uint64_t>(o.user_address);
  if ((o.place == Place::kUserMemory) != (user != 0) || user % kPage != 0) {
    return Error(Code::kInvalidArgument, o.label, ": user address 0x", absl::Hex(user),
                 ", must be page aligned for user memory and null otherwise");
  }
  if (o.place == Place::kVram && o.host_access && !device.node().vram_is_host_visible()) {
    return Error(Code::kUnsupported, o.label, ": ", device.name(),
                 " has a small BAR, the CPU cannot map its memory; copy through the DMA engines");
  }
  return {};
}

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Release().IgnoreError();
  device_ = std::exchange(other.device_, nullptr);
  reservation_ = std::exchange(other.reservation_, nullptr);
  reservation_size_ = std::exchange(other.reservation_size_, 0);
  address_ = std::exchange(other.address_, nullptr);
  size_ = std::exchange(other.size_, 0);
  handle_ = std::exchange(other.handle_, 0);
  mmap_offset_ = std::exchange(other.mmap_offset_, 0);
  backed_ = std::exchange(other.backed_, false);
  host_mapped_ = std::exchange(other.host_mapped_, false);
  mapped_ = std::exchange(other.mapped_, {});
  return *this;
}

StatusOr<Buffer> Buffer::Allocate(Device& device, uint64_t size, const BufferOptions& options) {
  RETURN_IF_ERROR(device.Health());
  RETURN_IF_ERROR(CheckOptions(device, size, options));
  Buffer buffer;
  buffer.device_ = &device;
  buffer.size_ = AlignUp(size, kPage);
  std::vector<uint32_t> gpu_ids = {device.gpu_id()};
  for (Device* peer : options.peers) gpu_ids.push_back(peer->gpu_id());
  buffer.mapped_.reserve(gpu_ids.size());
  if (options.place == Place::kUserMemory) {
    buffer.address_ = static_cast<uint8_t*>(options.user_address);
    buffer.host_mapped_ = true;
  } else {
    RETURN_IF_ERROR(buffer.Reserve(buffer.size_, buffer.size_ >= kLargePage ? kLargePage : kPage));
  }
  Status status = buffer.Back(options);
  if (status.ok()) status = buffer.MapHost(options);
  if (status.ok()) status = buffer.MapGpus(gpu_ids);
  if (!status.ok()) {
    return WithContext(status,
                       absl::StrCat(options.label, " of ", size, " bytes on ", device.name()));
  }
  device.process().NoteAllocation(buffer.va(), buffer.size_, options.label);
  return buffer;
}

Status Buffer::Reserve(uint64_t size, uint64_t alignment) {
  // Reserving a little more and using the aligned middle keeps one mapping to give back.
  reservation_size_ = size + (alignment > kPage ? alignment : 0);
  void* address = nullptr;
  const int result =
      device_->process().sys().Mmap(nullptr, reservation_size_, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &address);
  if (result < 0) {
    return ErrnoError(Code::kOutOfHostMemory, -result, "mmap to reserve ", reservation_size_,
                      " bytes of address space");
  }
  reservation_ = static_cast<uint8_t*>(address);
  address_ = reinterpret_cast<uint8_t*>(AlignUp(reinterpret_cast<uint64_t>(address), alignment));
  return {};
}

Status Buffer::Back(const BufferOptions& options) {
  uapi::AllocMemoryArgs args = {};
  args.va_addr = va();
  args.size = size_;
  args.gpu_id = device_->gpu_id();
  args.flags = AllocFlags(options);
  if (options.place == Place::kUserMemory) args.mmap_offset = va();
  RETURN_IF_ERROR(device_->process().kfd().AllocMemory(&args));
  backed_ = true;
  handle_ = args.handle;
  mmap_offset_ = args.mmap_offset;
  return {};
}

Status Buffer::MapHost(const BufferOptions& options) {
  if (options.place == Place::kUserMemory) return {};
  if (options.place == Place::kVram && !options.host_access) return {};
  Process& process = device_->process();
  int fd = device_->render_fd();
  uint64_t offset = mmap_offset_;
  if (options.place == Place::kDoorbell) {
    fd = process.kfd().fd();
    offset = uapi::MmapCookie(uapi::kMmapTypeDoorbell, device_->gpu_id());
  } else if (options.place == Place::kMmioRemap) {
    fd = process.kfd().fd();
  }
  void* mapped = nullptr;
  int result = process.sys().Mmap(address_, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                                  fd, offset, &mapped);
  if (result < 0) {
    return ErrnoError(Code::kIo, -result, "mmap of ", size_, " bytes of device memory, offset 0x",
                      absl::Hex(offset));
  }
  host_mapped_ = true;
  // A child of fork must not see it: copy-on-write would move the parent's pages.
  result = process.sys().Madvise(reservation_, reservation_size_, MADV_DONTFORK);
  if (result < 0) {
    return ErrnoError(Code::kIo, -result, "madvise(MADV_DONTFORK) of ", reservation_size_,
                      " bytes");
  }
  return {};
}

Status Buffer::MapGpus(absl::Span<const uint32_t> gpu_ids) {
  uint32_t done = 0;
  mapped_.reserve(mapped_.size() + gpu_ids.size());
  const Status status = device_->process().kfd().MapMemory(handle_, gpu_ids, &done);
  mapped_.insert(mapped_.end(), gpu_ids.begin(), gpu_ids.begin() + done);
  return status;
}

Status Buffer::MapTo(Device& peer) {
  RETURN_IF_ERROR(peer.Health());
  const uint32_t id = peer.gpu_id();
  if (std::find(mapped_.begin(), mapped_.end(), id) != mapped_.end()) return {};
  return WithContext(MapGpus(absl::MakeConstSpan(&id, 1)),
                     absl::StrCat("mapping memory of ", device_->name(), " to ", peer.name()));
}

Status Unmap(Process& process, void* address, uint64_t size) {
  int result = 0;
  for (int i = 0; i < 2; ++i) {
    result = process.sys().Munmap(address, size);
    if (result >= 0) return {};
    process.log().Write(LogLevel::kWarning,
                        absl::StrCat("release: munmap of ", size, " bytes: errno ", -result));
  }
  return ErrnoError(Code::kIo, -result, "munmap of ", size, " bytes");
}

Status Buffer::UnmapGpus() {
  if (mapped_.empty()) return {};
  uint32_t done = 0;
  Status status = device_->process().kfd().UnmapMemory(handle_, mapped_, &done);
  if (!status.ok()) {
    device_->process().log().Write(LogLevel::kWarning, "release: ", status.message());
    status = device_->process().kfd().UnmapMemory(handle_, mapped_, &done);
  }
  mapped_.erase(mapped_.begin(), mapped_.begin() + done);
  if (status.ok()) mapped_.clear();
  return status;
}

Status Buffer::Free() {
  if (!backed_) return {};
  Status status = device_->process().kfd().FreeMemory(handle_);
  if (!status.ok()) {
    device_->process().log().Write(LogLevel::kWarning, "release: ", status.message());
    status = device_->process().kfd().FreeMemory(handle_);
  }
  backed_ = !status.ok();
  return status;
}

Status Buffer::ReleaseToKernel() {
  backed_ = false;
  return Release();
}

Status Buffer::Release() {
  if (device_ == nullptr) return {};
  Process& process = device_->process();
  Status status;
  if (process.in_opener()) {
    process.ForgetAllocation(va());
    status = UnmapGpus();
    // While a GPU still maps the range, the CPU must not hand its addresses to anything else.
    if (status.ok()) {
      if (reservation_ != nullptr) status = Unmap(process, reservation_, reservation_size_);
      const Status freed = Free();
      if (status.ok()) status = freed;
    }
    if (!status.ok()) process.log().Write(LogLevel::kError, "leaked: ", status.message());
  }
  device_ = nullptr;
  reservation_ = nullptr;
  address_ = nullptr;
  backed_ = host_mapped_ = false;
  mapped_.clear();
  return status;
}

}  // namespace mainarch::gpu
