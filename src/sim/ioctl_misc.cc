// SPDX-License-Identifier: MIT
//
// The driver's remaining calls: versions, apertures, clocks, policies.
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/clock.h"
#include "sim/process.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

constexpr uint64_t kApertureBytes = uint64_t{1} << 32;
// What RUNTIME_ENABLE says the debugger can do; nothing here depends on it.
constexpr uint32_t kRuntimeCapabilities = 1;

uapi::ProcessDeviceApertures Apertures(uint32_t gpu_id) {
  uapi::ProcessDeviceApertures a = {};
  a.lds_base = kLdsAperture;
  a.lds_limit = kLdsAperture + kApertureBytes - 1;
  a.scratch_base = kScratchAperture;
  a.scratch_limit = kScratchAperture + kApertureBytes - 1;
  a.gpuvm_base = kGpuVmBase;
  a.gpuvm_limit = kGpuVmLimit;
  a.gpu_id = gpu_id;
  return a;
}

uint64_t NsOf(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace

int Process::GetVersion(uapi::GetVersionArgs& args) {
  args.major_version = 1;
  args.minor_version = node_->config().kfd_minor;
  return 0;
}

int Process::GetApertures(uapi::GetProcessAperturesArgs& args) {
  args.num_of_nodes = std::min(node_->config().gpus, 7u);
  for (uint32_t i = 0; i < args.num_of_nodes; ++i) {
    args.process_apertures[i] = Apertures(node_->gpus()[i].gpu_id);
  }
  return 0;
}

int Process::GetAperturesNew(uapi::GetProcessAperturesNewArgs& args) {
  const uint32_t gpus = node_->config().gpus;
  if (args.num_of_nodes == 0) {
    args.num_of_nodes = gpus;
    return 0;
  }
  // kfd_topology_get_num_devices: nodes of CPUs count, and runtimes ask for as many as there are.
  const uint32_t nodes = node_->gpus()[0].topology_node + gpus;
  if (args.num_of_nodes > nodes) return -EINVAL;
  args.num_of_nodes = std::min(args.num_of_nodes, gpus);
  std::vector<uapi::ProcessDeviceApertures> all;
  for (uint32_t i = 0; i < args.num_of_nodes; ++i) {
    all.push_back(Apertures(node_->gpus()[i].gpu_id));
  }
  const size_t bytes = all.size() * sizeof(all[0]);
  return CopyToUser(args.process_device_apertures_ptr, all.data(), bytes) ? 0 : -EFAULT;
}

int Process::SetMemoryPolicy(uapi::SetMemoryPolicyArgs& args) {
  if (args.default_policy > uapi::kCachePolicyNonCoherent ||
      args.alternate_policy > uapi::kCachePolicyNonCoherent) {
    return -EINVAL;
  }
  uint32_t gpu = 0;
  if (const int error = KnownGpu(args.gpu_id, &gpu); error != 0) return error;
  return vms_[gpu]->drm_file != 0 ? 0 : -ESRCH;
}

int Process::GetClockCounters(uapi::GetClockCountersArgs& args) {
  uint32_t gpu = 0;
  args.gpu_clock_counter = KnownGpu(args.gpu_id, &gpu) == 0 ? node_->Clock(gpu) : 0;
  args.cpu_clock_counter = NsOf(CLOCK_MONOTONIC_RAW);
  args.system_clock_counter = NsOf(CLOCK_BOOTTIME);
  args.system_clock_freq = 1'000'000'000;
  return 0;
}

int Process::SetScratchBackingVa(uapi::SetScratchBackingVaArgs& args) {
  uint32_t gpu = 0;
  return KnownGpu(args.gpu_id, &gpu);
}

int Process::GetTileConfig(uapi::GetTileConfigArgs& args) {
  uint32_t gpu = 0;
  if (const int error = KnownGpu(args.gpu_id, &gpu); error != 0) return error;
  // A compute chip tiles nothing; zeros for as many entries as the kernel keeps.
  args.num_tile_configs = std::min(args.num_tile_configs, 32u);
  args.num_macro_tile_configs = std::min(args.num_macro_tile_configs, 16u);
  const std::vector<uint32_t> zeros(32);
  if (!CopyToUser(args.tile_config_ptr, zeros.data(), args.num_tile_configs * 4) ||
      !CopyToUser(args.macro_tile_config_ptr, zeros.data(), args.num_macro_tile_configs * 4)) {
    return -EFAULT;
  }
  args.gb_addr_config = 0x22010042;  // GB_ADDR_CONFIG golden value of GC 9.4.x
  args.num_banks = args.num_ranks = 0;
  return 0;
}

int Process::SetTrapHandler(uapi::SetTrapHandlerArgs& args) {
  uint32_t gpu = 0;
  if (const int error = KnownGpu(args.gpu_id, &gpu); error != 0) return error;
  if (vms_[gpu]->drm_file == 0) return -ESRCH;
  Gate::Closed closed(node_->gate_);
  vms_[gpu]->trap_handler = args.tba_addr;
  vms_[gpu]->trap_memory = args.tma_addr;
  return 0;
}

int Process::RuntimeEnable(uapi::RuntimeEnableArgs& args) {
  Gate::Closed closed(node_->gate_);
  if ((args.mode_mask & uapi::kRuntimeEnableMode) == 0) {
    runtime_enabled_ = false;
    return 0;
  }
  if (runtime_enabled_) return -EBUSY;
  if (!queues_.empty()) return -EEXIST;
  runtime_enabled_ = true;
  args.capabilities_mask = kRuntimeCapabilities;
  return 0;
}

int Process::SetXnackMode(uapi::SetXnackModeArgs& args) {
  if (args.xnack_enabled < 0) {
    args.xnack_enabled = 0;
    return 0;
  }
  if (args.xnack_enabled > 0) return -EPERM;  // the whole node runs with XNACK off
  return queues_.empty() ? 0 : -EBUSY;
}

int Process::SmiEvents(const Caller& caller, uapi::SmiEventsArgs& args) {
  uint32_t gpu = 0;
  if (const int error = KnownGpu(args.gpu_id, &gpu); error != 0) return error;
  SmiStream stream;
  stream.gpu = gpu;
  const int fd = caller.smi_fd(gpu, &stream.end);
  if (fd < 0) return fd;
  std::lock_guard lock(smi_mutex_);
  smi_.push_back(std::move(stream));
  args.anon_fd = static_cast<uint32_t>(fd);
  return 0;
}

}  // namespace mainarch::sim
