// SPDX-License-Identifier: MIT
#include "backend/cpu/workspace.h"

#include <algorithm>

#include "backend/cpu/dispatch.h"

namespace mainarch::cpu {
namespace {

constexpr int64_t kLineFloats = 16;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Workspace::Workspace(std::shared_ptr<const CpuModel> of, const backend::ContextOptions& wanted,
                     const Workspace* from)
    : model(std::move(of)),
      program(backend::ProgramOf(*model, wanted)),
      kernels(model->backend().kernels()),
      near_bytes(NearBytes(CpuVendor())),
      options(wanted),
      bf16(options.activations != backend::Activations::kF32 && model->backend().MayRound()),
      int8(options.activations == backend::Activations::kInt8),
      ranks(program.ranks),
      workers(model->backend().team().workers()),
      hidden_stride(RoundUp(program.hidden, 2 * kLineFloats)),
      logit_stride(RoundUp(program.logit_width(), kLineFloats) + kLineFloats),
      source(from) {
  for (const backend::Buffer& buffer : program.buffers) {
    slot_stride_.push_back(RoundUp(buffer.width, 2 * kLineFloats));
    row_stride_.push_back(buffer.slots * slot_stride_.back());
  }
}

Status Workspace::Allocate() {
  size_t panel_bytes = 0;
  int64_t widest = hidden_stride, longest = 0;  // rows that a product takes in, a panel decoded
  for (int64_t stride : row_stride_) widest = std::max(widest, stride);
  for (size_t id = 0; id < program.weights.size(); ++id) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      for (const Panels& panels : weight(rank, static_cast<int32_t>(id)).panels) {
        // Lazily backed: what no step packs costs nothing.
        if (!model->settled()) panel_bytes = std::max(panel_bytes, panels.stride);
        longest = std::max(longest, panels.cols);
      }
    }
  }
  const size_t count = static_cast<size_t>(workers);
  worker_rows16_.resize(count * options.max_rows);
  worker_rows8_.resize(count * options.max_rows);
  worker_x_.resize(count * options.max_rows);
  worker_out_.resize(count * options.max_rows);
  workers_.resize(count);
  Carver sizes(nullptr);
  Carve(&sizes, panel_bytes, widest, longest);
  ASSIGN_OR_RETURN(memory_, Mapping::Anonymous(sizes.used(), /*huge_pages=*/false));
  Carver memory(memory_.data());
  Carve(&memory, panel_bytes, widest, longest);
  return caches.Allocate(program, options);
}

// Of a row of what any product takes in, all its slots.
int64_t Workspace::MostBytes8() const {
  if (!int8) return 0;
  size_t most = Int8LayoutOf(hidden_stride).bytes;
  for (size_t b = 0; b < slot_stride_.size(); ++b) {
    most = std::max(most, static_cast<size_t>(program.buffers[b].slots) * Int8LayoutOf(slot_stride_[b]).bytes);
  }
  return static_cast<int64_t>(most);
}

void Workspace::Carve(Carver* carve, size_t panel_bytes, int64_t widest, int64_t longest) {
  const int64_t rows = options.max_rows;
  const size_t count = static_cast<size_t>(ranks);
  logits_ = carve->Take<float>(int64_t{options.max_logit_rows} * logit_stride);
  buffers_.assign(count, std::vector<float*>(program.buffers.size()));
  norm_.resize(count);
  rounded_.resize(count);
  rounded8_.resize(count);
  const int64_t bytes8 = MostBytes8();
  for (size_t r = 0; r < count; ++r) {
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      buffers_[r][b] = carve->Take<float>(rows * row_stride_[b]);
    }
    norm_[r] = carve->Take<float>(rows * hidden_stride);
    rounded_[r] = carve->Take<uint16_t>(bf16 ? rows * widest : 0);
    rounded8_[r] = carve->Take<uint8_t>(rows * bytes8);
  }
  for (size_t w = 0; w < workers_.size(); ++w) {
    Worker& worker = workers_[w];
    worker.norm = carve->Take<float>(kMaxBlockRows * hidden_stride);
    worker.panels = carve->Take<uint8_t>(static_cast<int64_t>(panel_bytes) * kMaxBlockRows);
    worker.x16 = carve->Take<uint16_t>(bf16 ? rows * widest : 0);
    worker.x8 = carve->Take<uint8_t>(rows * bytes8);
    worker.columns =
        carve->Take<float>(kernels.by_columns == nullptr ? 0 : kMaxBlockRows * widest);
    worker.decoded = carve->Take<uint8_t>(static_cast<int64_t>(DecodedBytes(longest)));
    worker.rows16 = worker_rows16_.data() + w * options.max_rows;
    worker.rows8 = worker_rows8_.data() + w * options.max_rows;
    worker.x = worker_x_.data() + w * options.max_rows;
    worker.out = worker_out_.data() + w * options.max_rows;
  }
  for (auto& [key, shared] : shared_) shared->Carve(carve);
}

void Workspace::BeginStep(const backend::Step& step) {
  step_ = &step;
  ++step_number_;
  rows_ = static_cast<int64_t>(step.rows.size());
  for (auto& [key, shared] : shared_) shared->BeginStep(step);
}

}  // namespace mainarch::cpu
