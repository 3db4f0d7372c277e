// SPDX-License-Identifier: MIT
//
// The backend for AMD GPUs, stepped: every op of a Program is some kernel dispatches or part of
// another's, all the packets of a step are written before one doorbell a GPU is rung (of a step that
// the resident kernel runs there are none, but a command), and the host waits once. Here: the group of
// GPUs, and the weights of one Program or of several placed in their memory.
//
// Nothing here has run on silicon; it runs on the virtual node (sim:).
#ifndef MAINARCH_BACKEND_AMDGPU_AMDGPU_BACKEND_H_
#define MAINARCH_BACKEND_AMDGPU_AMDGPU_BACKEND_H_

#include <memory>
#include <vector>

#include "backend/amdgpu/gpus.h"
#include "backend/amdgpu/tiles.h"
#include "backend/backend.h"
#include "backend/weight_map.h"
#include "kernels/decoder_args.h"

namespace mainarch::amdgpu {

class AmdGpuBackend : public backend::Backend, public std::enable_shared_from_this<AmdGpuBackend> {
 public:
  static StatusOr<std::shared_ptr<backend::Backend>> Create(std::unique_ptr<Gpus> gpus);

  int32_t ranks() const override { return gpus_->count(); }
  std::vector<backend::DeviceInfo> devices() const override;
  backend::HeadDims StoredHeads(backend::HeadDims of) const override;
  StatusOr<std::shared_ptr<const backend::LoadedModel>> Load(
      std::vector<std::shared_ptr<const backend::Program>> programs,
      const backend::LoadOptions& options) override;
  using Backend::Load;

  Gpus& gpus() const { return *gpus_; }

 private:
  std::unique_ptr<Gpus> gpus_;
};

// A weight in one GPU's memory.
struct PlacedWeight {
  kernels::TileFormat format = kernels::TileFormat::kBf16;
  kernels::Tiles tiles;      // of group 0; `outputs` as the kernels want it
  uint64_t group_bytes = 0;  // from group to group
  uint64_t group_scale_bytes = 0;
  uint64_t vector = 0;  // kVector: fp32, padded with zeros to kPadColumns
  uint64_t table = 0;   // kTable: rows, bf16 or fp32
  bool table_is_f32 = false;
  bool fp8_blocks = false;  // TakesFp8Blocks
};

class AmdGpuModel : public backend::LoadedModel, public std::enable_shared_from_this<AmdGpuModel> {
 public:
  static StatusOr<std::shared_ptr<const AmdGpuModel>> Create(
      std::shared_ptr<AmdGpuBackend> backend,
      std::vector<std::shared_ptr<const backend::Program>> programs,
      const backend::LoadOptions& options);

  StatusOr<std::unique_ptr<backend::Context>> CreateContext(
      const backend::ContextOptions& options) const override;
  const backend::Program& program() const override { return *programs_[0]; }
  const backend::Program& program(size_t index) const { return *programs_[index]; }
  std::vector<const backend::Program*> programs() const override;
  uint64_t weight_bytes() const override { return bytes_; }
  backend::KvRoom kv_room(backend::KvType type, const backend::Program* variant = nullptr) const override;

  Gpus& gpus() const { return backend_->gpus(); }
  const PlacedWeight& weight(size_t program, int32_t rank, backend::WeightId id) const {
    return weights_[static_cast<size_t>(rank)][map_.index[program][static_cast<size_t>(id)]];
  }

 private:
  AmdGpuModel() = default;
  uint64_t PlanRank(int32_t rank);
  Status Upload(const std::vector<uint64_t>& sizes, const backend::LoadOptions& options);
  void Place(int32_t rank);

  std::shared_ptr<AmdGpuBackend> backend_;
  std::vector<std::shared_ptr<const backend::Program>> programs_;
  backend::WeightMap map_;
  std::vector<std::vector<PlacedWeight>> weights_;  // [rank][map_.weights], offsets until placed
  std::vector<gpu::Buffer> memory_;                 // [rank]
  uint64_t bytes_ = 0;
};

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_AMDGPU_BACKEND_H_
