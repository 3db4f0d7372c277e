// SPDX-License-Identifier: MIT
//
// Buffers of the render node (GEM): what runtimes make or import there to place memory at addresses
// of their choice, to hand it to each other as dma-bufs, and to map it on the CPU. Submission
// through DRM is not modelled, so an address that is mapped through a file whose VM the compute
// driver has not taken over is read by nobody, and accepted.
#include <amdgpu_drm.h>
#include <drm.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sim/process.h"
#include "sim/sdma_queue.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

constexpr uint64_t kCookieBase = uint64_t{1} << 32;  // as of the compute driver's buffers
constexpr uint32_t kDomains = AMDGPU_GEM_DOMAIN_GTT | AMDGPU_GEM_DOMAIN_VRAM;

// What the compute driver's flags would be.
uint32_t FlagsOf(uint64_t domains) {
  const uint32_t place =
      (domains & AMDGPU_GEM_DOMAIN_VRAM) != 0 ? uapi::kAllocVram : uapi::kAllocGtt;
  return place | uapi::kAllocWritable | uapi::kAllocExecutable | uapi::kAllocPublic;
}

Mtype MtypeOfFlags(uint64_t flags, Mtype otherwise) {
  switch (flags & AMDGPU_VM_MTYPE_MASK) {
    case AMDGPU_VM_MTYPE_NC:
      return Mtype::kNc;
    case AMDGPU_VM_MTYPE_CC:
      return Mtype::kCc;
    case AMDGPU_VM_MTYPE_UC:
      return Mtype::kUc;
    case AMDGPU_VM_MTYPE_RW:
      return Mtype::kRw;
    default:
      return otherwise;
  }
}

// Runs `call` on a copy of the client's block and copies that back.
template <class Args, class Call>
int WithArgs(void* argument, Call call) {
  Args args = {};
  const uint64_t user = reinterpret_cast<uint64_t>(argument);
  if (!CopyFromUser(&args, user, sizeof(args))) return -EFAULT;
  const int result = call(args);
  if (result == 0 && !CopyToUser(user, &args, sizeof(args))) return -EFAULT;
  return result;
}

}  // namespace

uint32_t Process::AddObject(GemFile& file, std::shared_ptr<Buffer> buffer) {
  for (const auto& [handle, object] : file.objects) {
    if (object == buffer) return handle;  // one handle for one buffer, as in the kernel
  }
  uint32_t handle = 1;
  while (file.objects.count(handle) != 0) ++handle;
  file.objects[handle] = std::move(buffer);
  return handle;
}

int Process::CreateObject(GemFile& file, drm_amdgpu_gem_create& args) {
  const auto in = args.in;
  if (in.bo_size == 0 || (in.domains & kDomains) == 0 || (in.domains & ~uint64_t{kDomains}) != 0) {
    return -EINVAL;
  }
  auto buffer = std::make_shared<Buffer>();
  buffer->gpu = file.gpu;
  buffer->size = PageUp(in.bo_size);
  if (buffer->size < in.bo_size) return -EINVAL;
  buffer->flags = FlagsOf(in.domains);
  buffer->domains = in.domains;
  buffer->create_flags = in.domain_flags;
  if ((buffer->flags & uapi::kAllocVram) != 0) {
    if (!node_->ChargeVram(buffer->gpu, buffer->size)) return -ENOMEM;
    buffer->vram_charge = buffer->size;
  }
  StatusOr<Block> block = node_->arena().Allocate(buffer->size);
  if (!block.ok()) {
    Release(*buffer);
    return -ENOMEM;
  }
  buffer->block = *std::move(block);
  const bool cleared = (in.domain_flags & AMDGPU_GEM_CREATE_VRAM_CLEARED) != 0;
  if (node_->config().poison && !cleared) buffer->block.Poison(node_->config().seed);
  buffer->host = buffer->block.data();
  buffer->mmap_offset = kCookieBase + buffer->block.offset();
  const uint32_t handle = AddObject(file, std::move(buffer));
  std::memset(&args, 0, sizeof(args));
  args.out.handle = handle;
  return 0;
}

std::shared_ptr<Buffer> Process::ObjectOf(const GemFile& file, uint32_t handle) {
  const auto found = file.objects.find(handle);
  return found == file.objects.end() ? nullptr : found->second;
}

// The VRAM of a buffer that was made here goes with its last handle.
void Process::CloseObject(GemFile& file, uint32_t handle) {
  const std::shared_ptr<Buffer> buffer = ObjectOf(file, handle);
  file.objects.erase(handle);
  PageTable& table = vms_[file.gpu]->table;
  for (auto at = file.mapped.begin(); at != file.mapped.end();) {
    if (at->second != buffer) {
      ++at;
      continue;
    }
    table.Unmap(at->first);
    at = file.mapped.erase(at);
  }
  bool kept = buffer->handle != 0;  // the compute driver's
  for (const auto& [id, other] : gem_) {
    for (const auto& [number, object] : other.objects) kept |= object == buffer;
  }
  if (!kept) Release(*buffer);
}

int Process::MapObject(GemFile& file, uint64_t file_id, const drm_amdgpu_gem_va& args) {
  const std::shared_ptr<Buffer> buffer = ObjectOf(file, args.handle);
  const bool map = args.operation == AMDGPU_VA_OP_MAP || args.operation == AMDGPU_VA_OP_REPLACE;
  const bool unmap = args.operation == AMDGPU_VA_OP_UNMAP || args.operation == AMDGPU_VA_OP_CLEAR;
  if (!map && !unmap) return -EINVAL;
  if (buffer == nullptr && args.operation != AMDGPU_VA_OP_CLEAR) return -ENOENT;
  if (((args.va_address | args.offset_in_bo | args.map_size) & (kPageSize - 1)) != 0) {
    return -EINVAL;
  }
  GpuVm& vm = *vms_[file.gpu];
  if (vm.drm_file != file_id) return 0;
  Gate::Closed closed(node_->gate_);
  node_->TablesChanged();
  if (args.operation != AMDGPU_VA_OP_MAP) {
    const auto found = file.mapped.find(args.va_address);
    if (found == file.mapped.end()) {
      if (args.operation == AMDGPU_VA_OP_UNMAP) return -ENOENT;
    } else {
      const VmMapping* mapping = vm.table.At(args.va_address);
      if (mapping != nullptr && mapping->queue_refs > 0) return -EBUSY;
      vm.table.Unmap(args.va_address);
      file.mapped.erase(found);
    }
    if (unmap) return 0;
  }
  if (args.map_size == 0 || args.offset_in_bo > buffer->size ||
      args.map_size > buffer->size - args.offset_in_bo) {
    return -EINVAL;
  }
  const bool vram = (buffer->flags & uapi::kAllocVram) != 0;
  VmMapping mapping;
  mapping.va = args.va_address;
  mapping.size = args.map_size;
  mapping.host = buffer->host + args.offset_in_bo;
  mapping.mtype = MtypeOfFlags(
      args.flags, MtypeOf(node_->profile().facts, buffer->flags, vram && buffer->gpu == file.gpu));
  mapping.writable = (args.flags & AMDGPU_VM_PAGE_WRITEABLE) != 0;
  mapping.executable = (args.flags & AMDGPU_VM_PAGE_EXECUTABLE) != 0;
  mapping.system_memory = !vram;
  mapping.home_gpu = buffer->gpu;
  mapping.buffer = buffer;
  if (!vm.table.Map(std::move(mapping))) return -EINVAL;
  file.mapped[args.va_address] = buffer;
  return 0;
}

int Process::ObjectMetadata(const GemFile& file, drm_amdgpu_gem_metadata& args) {
  const std::shared_ptr<Buffer> buffer = ObjectOf(file, args.handle);
  if (buffer == nullptr) return -ENOENT;
  if (args.op == AMDGPU_GEM_METADATA_OP_SET_METADATA) {
    if (args.data.data_size_bytes > sizeof(args.data.data)) return -EINVAL;
    buffer->metadata.assign(reinterpret_cast<const char*>(args.data.data),
                            args.data.data_size_bytes);
    buffer->tiling = args.data.tiling_info;
    return 0;
  }
  if (args.op != AMDGPU_GEM_METADATA_OP_GET_METADATA) return -EINVAL;
  args.data.flags = 0;
  args.data.tiling_info = buffer->tiling;
  args.data.data_size_bytes = static_cast<uint32_t>(buffer->metadata.size());
  std::memcpy(args.data.data, buffer->metadata.data(), buffer->metadata.size());
  return 0;
}

int Process::ObjectOperation(const GemFile& file, const drm_amdgpu_gem_op& args) {
  const std::shared_ptr<Buffer> buffer = ObjectOf(file, args.handle);
  if (buffer == nullptr) return -ENOENT;
  if (args.op != AMDGPU_GEM_OP_GET_GEM_CREATE_INFO) return -EINVAL;
  drm_amdgpu_gem_create_in info = {};
  info.bo_size = buffer->size;
  info.alignment = kPageSize;
  info.domains = buffer->domains != 0                      ? buffer->domains
                 : (buffer->flags & uapi::kAllocVram) != 0 ? AMDGPU_GEM_DOMAIN_VRAM
                                                           : AMDGPU_GEM_DOMAIN_GTT;
  info.domain_flags = buffer->create_flags;
  return CopyToUser(args.value, &info, sizeof(info)) ? 0 : -EFAULT;
}

int Process::GemIoctl(const Caller& caller, RenderFile render, uint32_t request, void* argument) {
  bool busy = false;
  switch (request & 0xff) {  // those that wait hold no lock
    case DRM_COMMAND_BASE + DRM_AMDGPU_WAIT_CS:
      return WithArgs<drm_amdgpu_wait_cs>(argument, [&](drm_amdgpu_wait_cs& args) {
        const int error = WaitSubmitted(render, args.in.handle, false, args.in.timeout, &busy);
        std::memset(&args, 0, sizeof(args));
        args.out.status = busy ? 1 : 0;
        return error;
      });
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_WAIT_IDLE:
      return WithArgs<drm_amdgpu_gem_wait_idle>(argument, [&](drm_amdgpu_gem_wait_idle& args) {
        {
          std::lock_guard lock(node_->mutex());
          if (ObjectOf(gem_[render.id], args.in.handle) == nullptr) return -ENOENT;
        }
        const int error = WaitSubmitted(render, 0, true, args.in.timeout, &busy);
        std::memset(&args, 0, sizeof(args));
        args.out.status = busy ? 1 : 0;
        return error;
      });
    default:
      break;
  }
  std::lock_guard lock(node_->mutex());
  GemFile& file = gem_[render.id];
  file.gpu = render.gpu;
  switch (request & 0xff) {
    case 0x09:  // DRM_IOCTL_GEM_CLOSE
      return WithArgs<drm_gem_close>(argument, [&](drm_gem_close& args) {
        if (ObjectOf(file, args.handle) == nullptr) return -EINVAL;
        Gate::Closed closed(node_->gate_);
        node_->TablesChanged();
        CloseObject(file, args.handle);
        return 0;
      });
    case 0x2d:  // DRM_IOCTL_PRIME_HANDLE_TO_FD
      return WithArgs<drm_prime_handle>(argument, [&](drm_prime_handle& args) {
        std::shared_ptr<Buffer> buffer = ObjectOf(file, args.handle);
        if (buffer == nullptr) return -ENOENT;
        args.fd = caller.export_fd(std::move(buffer), static_cast<int>(args.flags));
        return std::min(args.fd, 0);
      });
    case 0x2e:  // DRM_IOCTL_PRIME_FD_TO_HANDLE
      return WithArgs<drm_prime_handle>(argument, [&](drm_prime_handle& args) {
        std::shared_ptr<Buffer> buffer = caller.import_fd(args.fd);
        if (buffer == nullptr) return -EINVAL;
        args.handle = AddObject(file, std::move(buffer));
        return 0;
      });
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_CREATE:
      return WithArgs<drm_amdgpu_gem_create>(
          argument, [&](drm_amdgpu_gem_create& args) { return CreateObject(file, args); });
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_MMAP:
      return WithArgs<drm_amdgpu_gem_mmap>(argument, [&](drm_amdgpu_gem_mmap& args) {
        const std::shared_ptr<Buffer> buffer = ObjectOf(file, args.in.handle);
        if (buffer == nullptr) return -ENOENT;
        args.out.addr_ptr = buffer->mmap_offset;
        return 0;
      });
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_VA:
      return WithArgs<drm_amdgpu_gem_va>(
          argument, [&](drm_amdgpu_gem_va& args) { return MapObject(file, render.id, args); });
    case DRM_COMMAND_BASE + DRM_AMDGPU_CTX:
      return WithArgs<drm_amdgpu_ctx>(
          argument, [&](drm_amdgpu_ctx& args) { return ContextCall(file, args); });
    case DRM_COMMAND_BASE + DRM_AMDGPU_BO_LIST:
      return WithArgs<drm_amdgpu_bo_list>(
          argument, [&](drm_amdgpu_bo_list& args) { return BufferListCall(file, args); });
    case DRM_COMMAND_BASE + DRM_AMDGPU_CS:
      return WithArgs<drm_amdgpu_cs>(
          argument, [&](drm_amdgpu_cs& args) { return Submit(file, render.id, args); });
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_METADATA:
      return WithArgs<drm_amdgpu_gem_metadata>(
          argument, [&](drm_amdgpu_gem_metadata& args) { return ObjectMetadata(file, args); });
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_OP:
      return WithArgs<drm_amdgpu_gem_op>(
          argument, [&](drm_amdgpu_gem_op& args) { return ObjectOperation(file, args); });
    default:
      return -EINVAL;
  }
}

void Process::CloseDrmFile(uint64_t id) {
  std::lock_guard lock(node_->mutex());
  const auto found = gem_.find(id);
  if (found == gem_.end()) return;
  Gate::Closed closed(node_->gate_);
  node_->TablesChanged();
  DropEngine(found->second);
  while (!found->second.objects.empty()) {
    CloseObject(found->second, found->second.objects.begin()->first);
  }
  gem_.erase(found);
}

}  // namespace mainarch::sim
