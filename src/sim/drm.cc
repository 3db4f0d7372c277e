// SPDX-License-Identifier: MIT
#include "sim/drm.h"

#include <amdgpu_drm.h>
#include <drm.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "sim/process.h"

namespace mainarch::sim {
namespace {

constexpr uint32_t kDrmMajor = 3, kDrmMinor = 61;  // amdgpu of Linux 6.12
constexpr uint64_t kGttBytes = uint64_t{512} << 30;

int CopyName(const char* text, char* user, size_t room) {
  const size_t size = std::min(std::strlen(text), room);
  return CopyToUser(reinterpret_cast<uint64_t>(user), text, size) ? 0 : -EFAULT;
}

int Version(void* argument) {
  drm_version version = {};
  if (!CopyFromUser(&version, reinterpret_cast<uint64_t>(argument), sizeof(version))) {
    return -EFAULT;
  }
  version.version_major = kDrmMajor;
  version.version_minor = kDrmMinor;
  version.version_patchlevel = 0;
  constexpr const char* kName = "amdgpu";
  constexpr const char* kDate = "20150101";
  constexpr const char* kDescription = "AMD GPU";
  const auto put = [](const char* text, char* user, __kernel_size_t* room) {
    const int error = user == nullptr ? 0 : CopyName(text, user, *room);
    *room = std::strlen(text);
    return error;
  };
  if (put(kName, version.name, &version.name_len) != 0 ||
      put(kDate, version.date, &version.date_len) != 0 ||
      put(kDescription, version.desc, &version.desc_len) != 0) {
    return -EFAULT;
  }
  return CopyToUser(reinterpret_cast<uint64_t>(argument), &version, sizeof(version)) ? 0 : -EFAULT;
}

drm_amdgpu_info_device DeviceInfo(const Node& node) {
  const GpuProfile& chip = node.profile();
  drm_amdgpu_info_device info = {};
  info.device_id = chip.device_id;
  info.family = AMDGPU_FAMILY_AI;
  info.external_rev = 0x46;
  info.num_shader_engines = std::min(chip.array_count, 4u);
  info.num_shader_arrays_per_engine = 1;
  info.gpu_counter_freq = 100000;
  info.max_engine_clock = uint64_t{chip.clock_mhz} * 1000;
  info.max_memory_clock = uint64_t{chip.memory_mhz} * 1000;
  info.cu_active_number = chip.simd_count / chip.facts.simds_per_cu;
  info.virtual_address_offset = kGpuVmBase;
  info.virtual_address_max = kGpuVmLimit + 1;
  info.virtual_address_alignment = 4096;
  info.pte_fragment_size = 2 << 20;
  info.gart_page_size = 4096;
  info.vram_type = AMDGPU_VRAM_TYPE_HBM;
  info.vram_bit_width = chip.memory_width;
  info.wave_front_size = 64;
  info.num_shader_visible_vgprs = 512;
  info.num_cu_per_sh = chip.cu_per_array;
  return info;
}

int Reply(const drm_amdgpu_info& args, const void* data, size_t size) {
  const size_t part = std::min<size_t>(args.return_size, size);
  return CopyToUser(args.return_pointer, data, part) ? 0 : -EFAULT;
}

int Info(const Node& node, uint32_t gpu, void* argument) {
  drm_amdgpu_info args = {};
  if (!CopyFromUser(&args, reinterpret_cast<uint64_t>(argument), sizeof(args))) return -EFAULT;
  const uint64_t used = node.vram_used(gpu);
  switch (args.query) {
    case AMDGPU_INFO_ACCEL_WORKING: {
      const uint32_t working = 1;
      return Reply(args, &working, sizeof(working));
    }
    case AMDGPU_INFO_DEV_INFO: {
      const drm_amdgpu_info_device info = DeviceInfo(node);
      return Reply(args, &info, sizeof(info));
    }
    case AMDGPU_INFO_READ_MMR_REG: {
      // Golden registers of no interest to compute: zeros.
      const std::vector<uint32_t> zeros(std::min(args.read_mmr_reg.count, 128u));
      return Reply(args, zeros.data(), zeros.size() * 4);
    }
    case AMDGPU_INFO_HW_IP_INFO: {  // what ioctl_submit.cc has
      drm_amdgpu_info_hw_ip ip = {};
      if (args.query_hw_ip.ip_instance != 0) return -EINVAL;
      if (args.query_hw_ip.type == AMDGPU_HW_IP_DMA) {
        ip.hw_ip_version_major = 4;
        ip.ib_start_alignment = 256;
        ip.ib_size_alignment = 4;
        ip.available_rings = 1;
      }
      return Reply(args, &ip, sizeof(ip));
    }
    case AMDGPU_INFO_VRAM_USAGE:
      return Reply(args, &used, sizeof(used));
    case AMDGPU_INFO_VRAM_GTT: {
      drm_amdgpu_info_vram_gtt sizes = {};
      sizes.vram_size = sizes.vram_cpu_accessible_size = node.profile().vram_bytes;
      sizes.gtt_size = kGttBytes;
      return Reply(args, &sizes, sizeof(sizes));
    }
    case AMDGPU_INFO_MEMORY: {
      drm_amdgpu_memory_info memory = {};
      memory.vram = {node.profile().vram_bytes, node.profile().vram_bytes, used,
                     node.profile().vram_bytes};
      memory.cpu_accessible_vram = memory.vram;
      memory.gtt = {kGttBytes, kGttBytes, 0, kGttBytes};
      return Reply(args, &memory, sizeof(memory));
    }
    default:
      return -EINVAL;
  }
}

}  // namespace

bool IsGem(uint32_t request) {
  switch (request & 0xff) {
    case 0x09:  // DRM_IOCTL_GEM_CLOSE
    case 0x2d:  // DRM_IOCTL_PRIME_HANDLE_TO_FD
    case 0x2e:  // DRM_IOCTL_PRIME_FD_TO_HANDLE
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_CREATE:
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_MMAP:
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_VA:
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_WAIT_IDLE:
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_METADATA:
    case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_OP:
    case DRM_COMMAND_BASE + DRM_AMDGPU_CTX:
    case DRM_COMMAND_BASE + DRM_AMDGPU_BO_LIST:
    case DRM_COMMAND_BASE + DRM_AMDGPU_CS:
    case DRM_COMMAND_BASE + DRM_AMDGPU_WAIT_CS:
      return true;
    default:
      return false;
  }
}

int DrmIoctl(Node& node, uint32_t gpu, uint32_t request, void* argument) {
  if (node.gone(gpu)) return -ENODEV;
  switch (request & 0xff) {
    case 0x00:  // DRM_IOCTL_VERSION
      return Version(argument);
    case DRM_COMMAND_BASE + DRM_AMDGPU_INFO:
      return Info(node, gpu, argument);
    default:
      return -EINVAL;
  }
}

}  // namespace mainarch::sim
