// SPDX-License-Identifier: MIT
//
// Memory calls of the driver: VMs, buffers, page tables, dma-bufs.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "sim/process.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

// Render-node mmap cookies are arena offsets above this: no cookie is small.
constexpr uint64_t kCookieBase = uint64_t{1} << 32;
constexpr uint32_t kMostDevices = 64;

// Is every page of the range part of a mapping of this process?
bool IsMapped(uint64_t address, uint64_t size) {
  constexpr uint64_t kStep = uint64_t{256} << 20;
  std::vector<unsigned char> residency(kStep / kPageSize);
  for (uint64_t at = 0; at < size; at += kStep) {
    const uint64_t part = std::min(kStep, size - at);
    if (mincore(reinterpret_cast<void*>(address + at), part, residency.data()) != 0) return false;
  }
  return true;
}

}  // namespace

int Process::AcquireVm(const Caller& caller, uapi::AcquireVmArgs& args) {
  const RenderFile file = caller.render_file(static_cast<int>(args.drm_fd));
  if (file.id == 0) return -EINVAL;
  uint32_t gpu = 0;
  if (const int error = KnownGpu(args.gpu_id, &gpu); error != 0) return error;
  GpuVm& vm = *vms_[gpu];
  if (vm.drm_file != 0) return vm.drm_file == file.id ? 0 : -EBUSY;
  if (file.gpu != gpu) return -EINVAL;
  for (Process* other : node_->processes_) {
    if (other != this && other->vms_[gpu]->drm_file == file.id) return -EINVAL;
  }
  vm.drm_file = file.id;
  return 0;
}

int Process::AllocMemory(uapi::AllocMemoryArgs& args) {
  if (args.size == 0) return -EINVAL;
  if (OverlapsSvm(args.va_addr, PageUp(args.size))) return -EADDRINUSE;
  uint32_t gpu = 0;
  if (const int error = KnownGpu(args.gpu_id, &gpu); error != 0) return error;
  GpuVm& vm = *vms_[gpu];
  if (vm.drm_file == 0) return -ENODEV;
  auto buffer = std::make_shared<Buffer>();
  buffer->gpu = gpu;
  buffer->va = args.va_addr;
  buffer->size = PageUp(args.size);
  buffer->flags = args.flags;
  buffer->drm_file = vm.drm_file;
  if (const int error = FillBuffer(args, vm, *buffer); error != 0) return error;
  uint32_t id = 0;
  while (vm.buffers.count(id) != 0) ++id;
  buffer->handle = uint64_t{args.gpu_id} << 32 | id;
  vm.buffers[id] = buffer;
  args.handle = buffer->handle;
  if ((args.flags & uapi::kAllocUserptr) == 0) args.mmap_offset = buffer->mmap_offset;
  return 0;
}

// Finds the memory behind a new buffer.
int Process::FillBuffer(const uapi::AllocMemoryArgs& args, GpuVm& vm, Buffer& buffer) {
  const uint32_t flags = args.flags;
  if ((flags & uapi::kAllocDoorbell) != 0) {
    if (args.size != uapi::kDoorbellSliceSize) return -EINVAL;
    if (const int error = EnsureDoorbells(vm); error != 0) return error;
    buffer.host = vm.doorbells.data();
    buffer.mmap_offset = 0;
    return 0;
  }
  if ((flags & uapi::kAllocMmioRemap) != 0) {
    if (args.size != uapi::kMmioRemapSize) return -EINVAL;
    if (mmio_page_.size() == 0) {
      StatusOr<Block> page = node_->arena().Allocate(uapi::kMmioRemapSize);
      if (!page.ok()) return -ENOMEM;
      mmio_page_ = *std::move(page);
    }
    buffer.host = mmio_page_.data();
    buffer.mmap_offset = uapi::MmapCookie(uapi::kMmapTypeMmio, args.gpu_id);
    return 0;
  }
  if ((flags & uapi::kAllocUserptr) != 0) {
    if (args.mmap_offset % kPageSize != 0) return -EINVAL;
    if (!IsMapped(args.mmap_offset, buffer.size)) return -EFAULT;
    buffer.host = reinterpret_cast<uint8_t*>(args.mmap_offset);
    ++user_ranges_;
    return 0;
  }
  if ((flags & (uapi::kAllocVram | uapi::kAllocGtt)) == 0) return -EINVAL;
  const uint32_t visible = uapi::kAllocVram | uapi::kAllocPublic;
  if ((flags & visible) == visible && node_->config().small_bar) return -EINVAL;
  if ((flags & uapi::kAllocVram) != 0) {
    if (!node_->ChargeVram(buffer.gpu, buffer.size)) return -ENOMEM;
    buffer.vram_charge = buffer.size;
  }
  StatusOr<Block> block = node_->arena().Allocate(buffer.size);
  if (!block.ok()) {
    Release(buffer);
    return -ENOMEM;
  }
  buffer.block = *std::move(block);
  if (node_->config().poison) buffer.block.Poison(node_->config().seed);
  buffer.host = buffer.block.data();
  buffer.mmap_offset = kCookieBase + buffer.block.offset();
  return 0;
}

void Process::Release(Buffer& buffer) {
  node_->ReturnVram(buffer.gpu, buffer.vram_charge);
  buffer.vram_charge = 0;
}

std::shared_ptr<Buffer> Process::Find(uint64_t handle, bool* gpu_known) {
  const int gpu = node_->GpuIndex(static_cast<uint32_t>(handle >> 32));
  *gpu_known = gpu >= 0;
  if (gpu < 0) return nullptr;
  const auto& buffers = vms_[static_cast<size_t>(gpu)]->buffers;
  const auto found = buffers.find(static_cast<uint32_t>(handle));
  return found == buffers.end() ? nullptr : found->second;
}

int Process::FreeMemory(uapi::FreeMemoryArgs& args) {
  if (event_page_handle_ != 0 && args.handle == event_page_handle_) return -EPERM;
  bool gpu_known = false;
  const std::shared_ptr<Buffer> buffer = Find(args.handle, &gpu_known);
  if (buffer == nullptr) return -EINVAL;
  if (!buffer->mapped.empty()) return -EBUSY;
  Release(*buffer);
  if ((buffer->flags & uapi::kAllocUserptr) != 0) --user_ranges_;
  const int owner = node_->GpuIndex(static_cast<uint32_t>(args.handle >> 32));
  vms_[static_cast<size_t>(owner)]->buffers.erase(static_cast<uint32_t>(args.handle));
  return 0;
}

int Process::MapOn(const std::shared_ptr<Buffer>& buffer, uint32_t gpu) {
  if (buffer->mapped.count(gpu) != 0) return 0;
  VmMapping mapping;
  mapping.va = buffer->va;
  mapping.size = buffer->size;
  mapping.host = buffer->host;
  const bool vram = (buffer->flags & uapi::kAllocVram) != 0;
  mapping.mtype = MtypeOf(node_->profile().facts, buffer->flags, vram && buffer->gpu == gpu);
  // The driver maps doorbells and the remap page writable whatever the flags say.
  mapping.writable =
      (buffer->flags & (uapi::kAllocWritable | uapi::kAllocDoorbell | uapi::kAllocMmioRemap)) != 0;
  mapping.executable = (buffer->flags & uapi::kAllocExecutable) != 0;
  mapping.system_memory = !vram;
  mapping.home_gpu = buffer->gpu;
  mapping.buffer = buffer;
  if (!vms_[gpu]->table.Map(std::move(mapping))) return -EINVAL;
  buffer->mapped.insert(gpu);
  // A script learns addresses from the client, and so late.
  for (const uint64_t page : node_->script().BadPages(gpu)) vms_[gpu]->table.Poison(page);
  return 0;
}

// What mapping and unmapping check alike.
template <class Args>
int Process::TakeDevices(const Args& args, std::vector<uint32_t>* devices,
                         std::shared_ptr<Buffer>* buffer) {
  if (args.n_devices == 0 || args.n_success > args.n_devices || args.n_devices > kMostDevices) {
    return -EINVAL;
  }
  devices->resize(args.n_devices);
  if (!CopyFromUser(devices->data(), args.device_ids_array_ptr, devices->size() * 4)) {
    return -EFAULT;
  }
  bool gpu_known = false;
  *buffer = Find(args.handle, &gpu_known);
  if (!gpu_known) return -EINVAL;
  return *buffer == nullptr ? -ENOMEM : 0;
}

int Process::MapMemory(uapi::MapMemoryArgs& args) {
  std::vector<uint32_t> devices;
  std::shared_ptr<Buffer> buffer;
  if (const int error = TakeDevices(args, &devices, &buffer); error != 0) return error;
  if ((buffer->flags & uapi::kAllocUserptr) != 0 &&
      !IsMapped(reinterpret_cast<uint64_t>(buffer->host), buffer->size)) {
    return -EFAULT;
  }
  Gate::Closed closed(node_->gate_);
  node_->TablesChanged();
  for (uint32_t i = args.n_success; i < args.n_devices; ++i) {
    uint32_t gpu = 0;
    if (const int error = KnownGpu(devices[i], &gpu); error != 0) return error;
    if (vms_[gpu]->drm_file == 0) return -ENODEV;
    if (const int error = MapOn(buffer, gpu); error != 0) return error;
    args.n_success = i + 1;
  }
  return 0;
}

int Process::UnmapMemory(uapi::UnmapMemoryArgs& args) {
  std::vector<uint32_t> devices;
  std::shared_ptr<Buffer> buffer;
  if (const int error = TakeDevices(args, &devices, &buffer); error != 0) return error;
  Gate::Closed closed(node_->gate_);
  node_->TablesChanged();
  for (uint32_t i = args.n_success; i < args.n_devices; ++i) {
    const int gpu = node_->GpuIndex(devices[i]);
    if (gpu < 0) return -EINVAL;
    PageTable& table = vms_[static_cast<size_t>(gpu)]->table;
    if (buffer->mapped.count(static_cast<uint32_t>(gpu)) != 0) {
      const VmMapping* mapping = table.At(buffer->va);
      if (mapping != nullptr && mapping->queue_refs > 0) return -EBUSY;
      table.Unmap(buffer->va);
      buffer->mapped.erase(static_cast<uint32_t>(gpu));
    }
    args.n_success = i + 1;
  }
  return 0;
}

void Process::UserMemoryGoes(uint64_t address, uint64_t size) {
  if (user_ranges_.load() == 0) return;
  std::lock_guard lock(node_->mutex());
  DropSvm(address, address + size);
  for (auto& vm : vms_) {
    for (auto& [id, buffer] : vm->buffers) {
      const uint64_t start = reinterpret_cast<uint64_t>(buffer->host);
      if ((buffer->flags & uapi::kAllocUserptr) == 0 || start >= address + size ||
          address >= start + buffer->size) {
        continue;
      }
      Gate::Closed closed(node_->gate_);
      node_->TablesChanged();
      for (const uint32_t gpu : buffer->mapped) {
        VmMapping* mapping = vms_[gpu]->table.At(buffer->va);
        if (mapping != nullptr) mapping->host = nullptr;
      }
    }
  }
}

int Process::AvailableMemory(uapi::AvailableMemoryArgs& args) {
  uint32_t gpu = 0;
  if (const int error = KnownGpu(args.gpu_id, &gpu); error != 0) return error;
  args.available = node_->profile().vram_bytes - node_->vram_used(gpu);
  return 0;
}

int Process::ExportDmabuf(const Caller& caller, uapi::ExportDmabufArgs& args) {
  bool gpu_known = false;
  std::shared_ptr<Buffer> buffer = Find(args.handle, &gpu_known);
  if (buffer == nullptr || buffer->block.size() == 0) return -EINVAL;
  const int fd = caller.export_fd(std::move(buffer), static_cast<int>(args.flags));
  if (fd < 0) return fd;
  args.dmabuf_fd = static_cast<uint32_t>(fd);
  return 0;
}

// The importer shares the exporter's memory; the VRAM stays charged to the exporter.
int Process::ImportDmabuf(const Caller& caller, uapi::ImportDmabufArgs& args) {
  uint32_t gpu = 0;
  if (const int error = KnownGpu(args.gpu_id, &gpu); error != 0) return error;
  if (vms_[gpu]->drm_file == 0) return -ENODEV;
  const std::shared_ptr<Buffer> shared = caller.import_fd(static_cast<int>(args.dmabuf_fd));
  if (shared == nullptr) return -EINVAL;
  // Keeps the exporter's block alive as long as the importer's handle.
  struct Imported : Buffer {
    std::shared_ptr<Buffer> from;
  };
  auto buffer = std::make_shared<Imported>();
  buffer->from = shared;
  buffer->gpu = shared->gpu;
  buffer->va = args.va_addr;
  buffer->size = shared->size;
  buffer->flags = shared->flags;
  buffer->host = shared->host;
  buffer->drm_file = vms_[gpu]->drm_file;
  uint32_t id = 0;
  while (vms_[gpu]->buffers.count(id) != 0) ++id;
  buffer->handle = uint64_t{args.gpu_id} << 32 | id;
  vms_[gpu]->buffers[id] = buffer;
  args.handle = buffer->handle;
  return 0;
}

int Process::GetDmabufInfo(const Caller& caller, uapi::GetDmabufInfoArgs& args) {
  const std::shared_ptr<Buffer> buffer = caller.import_fd(static_cast<int>(args.dmabuf_fd));
  if (buffer == nullptr) return -EINVAL;
  args.size = buffer->size;
  const uint32_t room = args.metadata_size;
  args.metadata_size = static_cast<uint32_t>(buffer->metadata.size());
  if (args.metadata_ptr != 0 && !buffer->metadata.empty()) {
    if (room < buffer->metadata.size()) return -EINVAL;
    if (!CopyToUser(args.metadata_ptr, buffer->metadata.data(), buffer->metadata.size())) {
      return -EFAULT;
    }
  }
  args.gpu_id = node_->gpus()[buffer->gpu].gpu_id;
  args.flags = buffer->flags;
  return 0;
}

}  // namespace mainarch::sim
