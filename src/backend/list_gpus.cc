// SPDX-License-Identifier: MIT
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backend/devices.h"
#include "gpu/queue_sizes.h"
#include "isa/chip.h"
#include "kfd/drm.h"
#include "kfd/ioctl.h"
#include "kfd/topology.h"

namespace mainarch::backend {
namespace {

Status Usable(kfd::Sys& sys, const kfd::NodeProperties& p, const isa::ChipFacts* chip) {
  if (chip == nullptr || !chip->is_target) {
    return Error(Code::kUnsupported, "this library has no kernels for gfx version ",
                 p.gfx_target_version);
  }
  return kfd::RenderNode::Open(sys, static_cast<uint32_t>(p.drm_render_minor)).status();
}

}  // namespace

StatusOr<std::vector<ListedDevice>> ListGpus(kfd::Sys& sys) {
  std::vector<ListedDevice> list;
  const StatusOr<kfd::Topology> topology = kfd::ReadTopology(sys);
  if (!topology.ok()) {
    if (CodeOf(topology.status()) == Code::kNoDevice) return list;
    return topology.status();
  }
  const std::vector<const kfd::Node*> nodes = topology->Gpus();
  if (nodes.empty()) return list;
  const Status driver = kfd::Kfd::Open(sys).status();
  for (const kfd::Node* node : nodes) {
    const kfd::NodeProperties& p = node->properties;
    const isa::ChipFacts* chip = isa::ChipByVersion(p.gfx_target_version);
    const kfd::CardFacts card = kfd::ReadCardFacts(sys, static_cast<uint32_t>(p.drm_render_minor));
    ListedDevice gpu;
    gpu.device = absl::StrCat("gpu:", list.size());
    gpu.info.name = node->name;
    gpu.info.isa = chip != nullptr ? std::string(chip->name) : "";
    gpu.info.memory_bytes = node->vram_size();
    gpu.info.free_bytes = gpu.info.memory_bytes - std::min(gpu.info.memory_bytes, card.vram_used);
    gpu.info.compute_units = gpu::ComputeUnits(p);
    gpu.status = driver.ok() ? Usable(sys, p, chip) : driver;
    list.push_back(std::move(gpu));
  }
  return list;
}

}  // namespace mainarch::backend
