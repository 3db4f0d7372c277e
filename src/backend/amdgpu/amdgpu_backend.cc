// SPDX-License-Identifier: MIT
#include "backend/amdgpu/amdgpu_backend.h"

#include <algorithm>
#include <cstring>

#include "backend/amdgpu/context.h"
#include "backend/amdgpu/kernel_names.h"
#include "backend/amdgpu/loading.h"
#include "backend/amdgpu/lower.h"

namespace mainarch::amdgpu {
namespace {

using backend::Program;
using backend::Weight;
using backend::WeightLayout;

// Of every placed array: a tile is read as whole 1 KiB lines.
constexpr uint64_t kAlign = 1024;
// Beyond the last tile of a rank: nothing reads there, but an empty model has memory too.
constexpr uint64_t kSlack = 4096;

uint64_t RoundUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

// Of each cache a page or slot of all its layers, on one rank.
std::vector<uint64_t> UnitBytes(const Program& program, backend::KvType type) {
  std::vector<uint64_t> out;
  for (const SlotShape& slots : SlotShapesOf(program, {})) {
    out.push_back(static_cast<uint64_t>(slots.layers) * slots.slot_bytes);
  }
  backend::ContextOptions options;
  options.kv_type = type;
  const std::vector<PoolShape> pools = PoolShapesOf(program, options);
  for (size_t i = 0; i < out.size(); ++i) {
    if (pools[i].list == backend::kNone) continue;
    out[i] = static_cast<uint64_t>(pools[i].layers) * pools[i].page_bytes;
  }
  return out;
}

}  // namespace

StatusOr<std::shared_ptr<backend::Backend>> AmdGpuBackend::Create(std::unique_ptr<Gpus> gpus) {
  std::shared_ptr<AmdGpuBackend> backend(new AmdGpuBackend());
  backend->gpus_ = std::move(gpus);
  return std::shared_ptr<backend::Backend>(std::move(backend));
}

std::vector<backend::DeviceInfo> AmdGpuBackend::devices() const {
  std::vector<backend::DeviceInfo> infos;
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    const gpu::Device& device = *gpus_->at(rank).device;
    backend::DeviceInfo info;
    info.name = device.name();
    info.isa = device.chip().name;
    info.memory_bytes = device.node().vram_size();
    // Before 1.9 the driver does not say.
    const auto free = device.process().kfd().AvailableMemory(device.gpu_id());
    info.free_bytes = free.ok() ? std::min(*free, info.memory_bytes) : info.memory_bytes;
    info.compute_units = ComputeUnits(device);
    infos.push_back(info);
  }
  return infos;
}

backend::HeadDims AmdGpuBackend::StoredHeads(backend::HeadDims of) const { return StoredHeadDims(of); }

StatusOr<std::shared_ptr<const backend::LoadedModel>> AmdGpuBackend::Load(
    std::vector<std::shared_ptr<const Program>> programs, const backend::LoadOptions& options) {
  ASSIGN_OR_RETURN(auto model,
                   AmdGpuModel::Create(shared_from_this(), std::move(programs), options));
  return std::shared_ptr<const backend::LoadedModel>(std::move(model));
}

// What the weights leave; of as many such GPUs as the poorest of them is.
backend::KvRoom AmdGpuModel::kv_room(backend::KvType type, const Program* variant) const {
  const Program& p = program();
  uint64_t least = UINT64_MAX;
  for (int32_t rank = 0; rank < p.ranks; ++rank) {
    const uint64_t weights = memory_[static_cast<size_t>(rank)].size();
    const uint64_t vram = gpus().at(rank).device->node().vram_size();
    least = std::min(least, vram - std::min(vram, weights));
  }
  const uint64_t ranks = static_cast<uint64_t>(p.ranks);
  backend::KvRoom room = {least * ranks, {}};
  for (size_t i = 0; i < programs_.size(); ++i) {
    const Program& program = i == 0 && variant != nullptr ? *variant : *programs_[i];
    for (const uint64_t bytes : UnitBytes(program, type)) {
      room.unit_bytes.push_back(ranks * bytes);
    }
  }
  return room;
}

StatusOr<std::shared_ptr<const AmdGpuModel>> AmdGpuModel::Create(
    std::shared_ptr<AmdGpuBackend> backend, std::vector<std::shared_ptr<const Program>> programs,
    const backend::LoadOptions& options) {
  for (const std::shared_ptr<const Program>& program : programs) {
    if (program->ranks != backend->ranks()) {
      return Error(Code::kInternal, "program of ", program->ranks, " ranks on a group of ",
                   backend->ranks());
    }
    RETURN_IF_ERROR(CheckProgram(*program));
  }
  std::shared_ptr<AmdGpuModel> model(new AmdGpuModel());
  model->backend_ = std::move(backend);
  model->programs_ = std::move(programs);
  model->map_ = backend::MapWeights(model->programs_);
  const int32_t ranks = model->program().ranks;
  model->weights_.resize(static_cast<size_t>(ranks));
  std::vector<uint64_t> sizes;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    sizes.push_back(model->PlanRank(rank));
    model->bytes_ += sizes.back();
  }
  RETURN_IF_ERROR(model->Upload(sizes, options));
  return std::shared_ptr<const AmdGpuModel>(std::move(model));
}

// The mutex that steps need is held while memory and queues are made, not while weights are packed.
Status AmdGpuModel::Upload(const std::vector<uint64_t>& sizes,
                           const backend::LoadOptions& options) {
  std::unique_lock<std::mutex> lock(gpus().mutex());
  RETURN_IF_ERROR(gpus().Settle(gpus().Health()));
  for (int32_t rank = 0; rank < program().ranks; ++rank) {
    gpu::BufferOptions place;
    place.label = "weights";
    ASSIGN_OR_RETURN(gpu::Buffer memory,
                     gpu::Buffer::Allocate(*gpus().at(rank).device,
                                           sizes[static_cast<size_t>(rank)], place));
    memory_.push_back(std::move(memory));
    Place(rank);
  }
  Loading loading(map_.weights, weights_);
  RETURN_IF_ERROR(gpus().Settle(loading.Prepare(gpus())));
  lock.unlock();
  const Status loaded = loading.Run(options.progress);
  lock.lock();
  RETURN_IF_ERROR(gpus().Settle(loaded));
  return gpus().Settle(gpus().Health());
}

// Decides formats and offsets from the start of the rank's memory; returns its size.
uint64_t AmdGpuModel::PlanRank(int32_t rank) {
  std::vector<PlacedWeight>& own = weights_[static_cast<size_t>(rank)];
  own.resize(map_.weights.size());
  uint64_t at = 0;
  const auto take = [&at](uint64_t bytes) {
    const uint64_t begin = at;
    at += RoundUp(bytes, kAlign);
    return begin;
  };
  for (size_t id = 0; id < own.size(); ++id) {
    const Weight& weight = *map_.weights[id];
    PlacedWeight& placed = own[id];
    if (IsMatrix(weight)) {
      const TilePlan plan = PlanTiles(weight, rank, 0);
      placed.format = plan.format;
      placed.tiles = plan.Shape();
      placed.fp8_blocks = rank == 0 ? TakesFp8Blocks(weight) : weights_[0][id].fp8_blocks;  // the same of all ranks
      placed.group_bytes = plan.data_bytes();
      placed.group_scale_bytes = plan.scale_bytes();
      const uint64_t groups = static_cast<uint64_t>(weight.groups);
      placed.tiles.data.address = take(groups * placed.group_bytes);
      placed.tiles.scales.address = take(groups * placed.group_scale_bytes);
    } else if (weight.layout == WeightLayout::kVector) {
      placed.vector = take(PaddedVectorBytes(weight, rank));
    } else {
      const quant::Matrix& table = weight.sources[0];
      placed.table_is_f32 = TableIsF32(table);
      placed.table = take(static_cast<uint64_t>(table.rows) * TableRowBytes(table));
    }
  }
  return at + kSlack;
}

// Offsets become addresses.
void AmdGpuModel::Place(int32_t rank) {
  const uint64_t base = memory_[static_cast<size_t>(rank)].va();
  for (size_t id = 0; id < map_.weights.size(); ++id) {
    const Weight& weight = *map_.weights[id];
    PlacedWeight& placed = weights_[static_cast<size_t>(rank)][id];
    if (IsMatrix(weight)) {
      placed.tiles.data.address += base;
      placed.tiles.scales.address += base;
    } else if (weight.layout == WeightLayout::kVector) {
      placed.vector += base;
    } else {
      placed.table += base;
    }
  }
}

std::vector<const Program*> AmdGpuModel::programs() const {
  std::vector<const Program*> out;
  for (const std::shared_ptr<const Program>& program : programs_) out.push_back(program.get());
  return out;
}

StatusOr<std::unique_ptr<backend::Context>> AmdGpuModel::CreateContext(
    const backend::ContextOptions& options) const {
  if (options.program >= programs_.size()) {
    return Error(Code::kInternal, "no Program ", options.program, " of ", programs_.size());
  }
  std::lock_guard<std::mutex> lock(gpus().mutex());
  RETURN_IF_ERROR(gpus().Settle(gpus().Health()));
  auto context = AmdGpuContext::Create(shared_from_this(), options);
  RETURN_IF_ERROR(gpus().Settle(context.status()));
  return context;
}

}  // namespace mainarch::amdgpu
