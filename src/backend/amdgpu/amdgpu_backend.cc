// SPDX-License-Identifier: MIT
#include "backend/amdgpu/amdgpu_backend.h"

#include <algorithm>
#include <cstring>

#include "backend/amdgpu/context.h"
#include "backend/amdgpu/lower.h"
#include "backend/amdgpu/uploader.h"

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

bool IsMatrix(const Weight& weight) {
  return weight.layout == WeightLayout::kPanels || weight.layout == WeightLayout::kGateUp;
}

uint64_t PaddedVector(const Weight& weight, int32_t rank) {
  return RoundUp(static_cast<uint64_t>(backend::VectorSize(weight, rank)), kernels::kPadColumns) *
         4;
}

bool TableIsF32(const quant::Matrix& matrix) { return matrix.format != quant::Format::kBF16; }

uint64_t TableRowBytes(const quant::Matrix& matrix) {
  return static_cast<uint64_t>(matrix.cols) * (TableIsF32(matrix) ? 4 : 2);
}

// Output tiles of a plan, as many at a time as fit a chunk.
Status UploadTiles(const TilePlan& plan, uint64_t data, uint64_t scales, Uploader& uploader) {
  const uint64_t row_bytes = kernels::TileRowBytes(plan.format, plan.steps);
  const uint64_t row_scales = kernels::TileRowScaleBytes(plan.format, plan.steps);
  const uint32_t at_once = static_cast<uint32_t>(
      std::max<uint64_t>(1, Uploader::kChunk / std::max<uint64_t>(1, row_bytes)));
  std::vector<uint8_t> own_scales(row_scales * at_once);
  for (uint32_t first = 0; first < plan.outputs; first += at_once) {
    const uint32_t count = std::min(at_once, plan.outputs - first);
    ASSIGN_OR_RETURN(uint8_t* out, uploader.Begin(count * row_bytes));
    for (uint32_t i = 0; i < count; ++i) {
      PackOutputTile(plan, first + i, out + i * row_bytes, own_scales.data() + i * row_scales);
    }
    RETURN_IF_ERROR(uploader.Send(data + first * row_bytes, count * row_bytes));
    RETURN_IF_ERROR(
        uploader.Write(scales + first * row_scales, own_scales.data(), count * row_scales));
  }
  return OkStatus();
}

Status UploadTable(const quant::Matrix& matrix, uint64_t to, Uploader& uploader) {
  if (!TableIsF32(matrix)) return uploader.Write(to, matrix.data.data(), matrix.data.size());
  std::vector<float> row(static_cast<size_t>(matrix.cols));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    quant::DecodeRow(matrix, r, 0, matrix.cols, row.data());
    RETURN_IF_ERROR(uploader.Write(to + static_cast<uint64_t>(r) * row.size() * 4,
                                   reinterpret_cast<const uint8_t*>(row.data()), row.size() * 4));
  }
  return OkStatus();
}

Status UploadVector(const Weight& weight, int32_t rank, uint64_t to, Uploader& uploader) {
  std::vector<float> values(PaddedVector(weight, rank) / 4);
  backend::DecodeVector(weight, rank, values.data());
  return uploader.Write(to, reinterpret_cast<const uint8_t*>(values.data()), values.size() * 4);
}

}  // namespace

StatusOr<std::shared_ptr<backend::Backend>> AmdGpuBackend::Create(std::unique_ptr<Gpus> gpus,
                                                                  uint32_t step_timeout_ms) {
  std::shared_ptr<AmdGpuBackend> backend(new AmdGpuBackend());
  backend->gpus_ = std::move(gpus);
  backend->step_timeout_ms_ = step_timeout_ms != 0 ? step_timeout_ms : kStepTimeoutMs;
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
    info.free_bytes = info.memory_bytes;
    info.compute_units = ComputeUnits(device);
    infos.push_back(info);
  }
  return infos;
}

StatusOr<std::shared_ptr<const backend::LoadedModel>> AmdGpuBackend::Load(
    std::vector<std::shared_ptr<const Program>> programs, const backend::LoadOptions& options) {
  if (programs.size() != 1) {
    return Error(Code::kUnsupported, programs.size(),
                 " Programs over one model's weights: the GPU backend takes one");
  }
  std::lock_guard<std::mutex> lock(gpus_->mutex());
  RETURN_IF_ERROR(gpus_->status());
  ASSIGN_OR_RETURN(auto model,
                   AmdGpuModel::Create(shared_from_this(), std::move(programs[0]), options));
  return std::shared_ptr<const backend::LoadedModel>(std::move(model));
}

// What the weights leave; of as many such GPUs as the poorest of them is.
backend::KvRoom AmdGpuModel::kv_room(backend::KvType type) const {
  const Program& p = *program_;
  uint64_t least = UINT64_MAX;
  for (int32_t rank = 0; rank < p.ranks; ++rank) {
    const uint64_t weights = memory_[static_cast<size_t>(rank)].size();
    const uint64_t vram = gpus().at(rank).device->node().vram_size();
    least = std::min(least, vram - std::min(vram, weights));
  }
  const uint64_t ranks = static_cast<uint64_t>(p.ranks);
  const backend::PagedCache cache = KvShapeOf(p).cache;
  return {least * ranks,
          ranks * static_cast<uint64_t>(cache.layers) * static_cast<uint64_t>(cache.kv_heads) *
              kernels::KvPageBytes(type, static_cast<uint32_t>(cache.key_dim))};
}

StatusOr<std::shared_ptr<const AmdGpuModel>> AmdGpuModel::Create(
    std::shared_ptr<AmdGpuBackend> backend, std::shared_ptr<const Program> program,
    const backend::LoadOptions& options) {
  if (program->ranks != backend->ranks()) {
    return Error(Code::kInternal, "program of ", program->ranks, " ranks on a group of ",
                 backend->ranks());
  }
  RETURN_IF_ERROR(CheckProgram(*program));
  std::shared_ptr<AmdGpuModel> model(new AmdGpuModel());
  model->backend_ = std::move(backend);
  model->program_ = std::move(program);
  const int32_t ranks = model->program_->ranks;
  model->weights_.resize(static_cast<size_t>(ranks));
  std::vector<uint64_t> sizes;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    sizes.push_back(model->PlanRank(rank));
    model->bytes_ += sizes.back();
  }
  for (int32_t rank = 0; rank < ranks; ++rank) {
    gpu::BufferOptions place;
    place.label = "weights";
    ASSIGN_OR_RETURN(gpu::Buffer memory,
                     gpu::Buffer::Allocate(*model->gpus().at(rank).device,
                                           sizes[static_cast<size_t>(rank)], place));
    model->memory_.push_back(std::move(memory));
    RETURN_IF_ERROR(model->UploadRank(rank, options, model->bytes_));
  }
  return std::shared_ptr<const AmdGpuModel>(std::move(model));
}

// Decides formats and offsets from the start of the rank's memory; returns its size.
uint64_t AmdGpuModel::PlanRank(int32_t rank) {
  const Program& program = *program_;
  std::vector<PlacedWeight>& own = weights_[static_cast<size_t>(rank)];
  own.resize(program.weights.size());
  uint64_t at = 0;
  const auto take = [&at](uint64_t bytes) {
    const uint64_t begin = at;
    at += RoundUp(bytes, kAlign);
    return begin;
  };
  for (size_t id = 0; id < own.size(); ++id) {
    const Weight& weight = program.weights[id];
    PlacedWeight& placed = own[id];
    if (IsMatrix(weight)) {
      const TilePlan plan = PlanTiles(weight, rank, 0);
      placed.format = plan.format;
      placed.tiles.outputs = plan.gate_up ? plan.outputs / 2 : plan.outputs;
      placed.tiles.steps = plan.steps;
      placed.group_bytes = plan.data_bytes();
      placed.group_scale_bytes = plan.scale_bytes();
      const uint64_t groups = static_cast<uint64_t>(weight.groups);
      placed.tiles.data.address = take(groups * placed.group_bytes);
      placed.tiles.scales.address = take(groups * placed.group_scale_bytes);
    } else if (weight.layout == WeightLayout::kVector) {
      placed.vector = take(PaddedVector(weight, rank));
    } else {
      const quant::Matrix& table = weight.sources[0];
      placed.table_is_f32 = TableIsF32(table);
      placed.table = take(static_cast<uint64_t>(table.rows) * TableRowBytes(table));
    }
  }
  return at + kSlack;
}

Status AmdGpuModel::UploadRank(int32_t rank, const backend::LoadOptions& options, uint64_t total) {
  const Program& program = *program_;
  Gpu& gpu = gpus().at(rank);
  const uint64_t base = memory_[static_cast<size_t>(rank)].va();
  ASSIGN_OR_RETURN(const auto owned, Uploader::Create(*gpu.device, *gpu.copy));
  Uploader& uploader = *owned;
  for (size_t id = 0; id < program.weights.size(); ++id) {
    const Weight& weight = program.weights[id];
    PlacedWeight& placed = weights_[static_cast<size_t>(rank)][id];
    if (IsMatrix(weight)) {
      placed.tiles.data.address += base;
      placed.tiles.scales.address += base;
      for (int32_t group = 0; group < weight.groups; ++group) {
        const uint64_t g = static_cast<uint64_t>(group);
        RETURN_IF_ERROR(UploadTiles(
            PlanTiles(weight, rank, group), placed.tiles.data.address + g * placed.group_bytes,
            placed.tiles.scales.address + g * placed.group_scale_bytes, uploader));
      }
      done_ +=
          static_cast<uint64_t>(weight.groups) * (placed.group_bytes + placed.group_scale_bytes);
    } else if (weight.layout == WeightLayout::kVector) {
      placed.vector += base;
      RETURN_IF_ERROR(UploadVector(weight, rank, placed.vector, uploader));
    } else {
      placed.table += base;
      RETURN_IF_ERROR(UploadTable(weight.sources[0], placed.table, uploader));
      done_ += static_cast<uint64_t>(weight.sources[0].rows) * TableRowBytes(weight.sources[0]);
    }
    if (options.progress && !options.progress(std::min(done_, total), total)) {
      RETURN_IF_ERROR(uploader.Finish());
      return Error(Code::kCancelled, "load cancelled by the progress callback after ", done_,
                   " of ", total, " bytes");
    }
  }
  return uploader.Finish();
}

StatusOr<std::unique_ptr<backend::Context>> AmdGpuModel::CreateContext(
    const backend::ContextOptions& options) const {
  std::lock_guard<std::mutex> lock(gpus().mutex());
  RETURN_IF_ERROR(gpus().status());
  return AmdGpuContext::Create(shared_from_this(), options);
}

}  // namespace mainarch::amdgpu
