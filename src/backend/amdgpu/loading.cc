// SPDX-License-Identifier: MIT
#include "backend/amdgpu/loading.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <thread>

#include "base/signal_block.h"

namespace mainarch::amdgpu {
namespace {

using backend::Weight;
using backend::WeightLayout;

// A thread packs some GB/s; so many fill a GPU's link, and more would only take staging memory.
constexpr uint32_t kMostThreads = 4;
// How often the caller's progress is asked at least.
constexpr std::chrono::milliseconds kSlice{50};

uint64_t CeilDivide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Of `count` units of `bytes` each: as many as fit a chunk.
uint64_t AtOnce(uint64_t bytes) {
  return std::max<uint64_t>(1, Uploader::kChunk / std::max<uint64_t>(1, bytes));
}

}  // namespace

bool IsMatrix(const Weight& weight) {
  return weight.layout == WeightLayout::kPanels || weight.layout == WeightLayout::kGateUp;
}

uint64_t PaddedVectorBytes(const Weight& weight, int32_t rank) {
  const uint64_t cols = static_cast<uint64_t>(backend::VectorSize(weight, rank));
  return CeilDivide(cols, kernels::kPadColumns) * kernels::kPadColumns * sizeof(float);
}

bool TableIsF32(const quant::Matrix& matrix) { return matrix.format != quant::Format::kBF16; }

uint64_t TableRowBytes(const quant::Matrix& matrix) {
  return static_cast<uint64_t>(matrix.cols) * (TableIsF32(matrix) ? 4 : 2);
}

Loading::Loading(const std::vector<const Weight*>& weights,
                 const std::vector<std::vector<PlacedWeight>>& placed)
    : weights_(weights), placed_(placed), ranks_(placed.size()) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) List(static_cast<int32_t>(rank));
}

Loading::~Loading() {
  for (Rank& rank : ranks_) rank.uploaders.clear();  // before their queues
}

void Loading::List(int32_t rank) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  for (size_t id = 0; id < weights_.size(); ++id) {
    const Weight& weight = *weights_[id];
    const PlacedWeight& placed = placed_[static_cast<size_t>(rank)][id];
    uint64_t units = 1, unit_bytes = 0;
    int32_t groups = 1;
    if (IsMatrix(weight)) {
      groups = weight.groups;
      units = PlanTiles(weight, rank, 0).outputs;
      unit_bytes = placed.group_bytes / std::max<uint64_t>(1, units);
      total_ += static_cast<uint64_t>(groups) * (placed.group_bytes + placed.group_scale_bytes);
    } else if (weight.layout == WeightLayout::kTable) {
      units = static_cast<uint64_t>(weight.sources[0].rows);
      unit_bytes = TableRowBytes(weight.sources[0]);
      total_ += units * unit_bytes;
    } else {
      total_ += PaddedVectorBytes(weight, rank);
    }
    const uint64_t at_once = AtOnce(unit_bytes);
    for (int32_t group = 0; group < groups; ++group) {
      for (uint64_t first = 0; first < units; first += at_once) {
        own.pieces.push_back({id, group, first, std::min(at_once, units - first)});
      }
    }
  }
}

Status Loading::Prepare(Gpus& gpus) {
  const uint32_t ranks = static_cast<uint32_t>(ranks_.size());
  const uint32_t threads =
      std::clamp<uint32_t>(std::thread::hardware_concurrency() / ranks, 1, kMostThreads);
  for (uint32_t r = 0; r < ranks; ++r) {
    gpu::Device& device = *gpus.at(static_cast<int32_t>(r)).device;
    ranks_[r].fnuz = !device.chip().has_ocp_fp8;
    gpu::CopyQueueOptions options;
    options.label = "load";
    for (uint32_t i = 0; i < threads; ++i) {
      ASSIGN_OR_RETURN(auto queue, gpu::CopyQueue::Create(device, options));
      ASSIGN_OR_RETURN(auto uploader, Uploader::Create(gpus, device, *queue));
      ranks_[r].queues.push_back(std::move(queue));
      ranks_[r].uploaders.push_back(std::move(uploader));
    }
  }
  return OkStatus();
}

Status Loading::Run(const std::function<bool(uint64_t, uint64_t)>& progress) {
  std::vector<std::thread> threads;
  Status status;
  {
    const SignalBlock no_signals;
    try {
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        for (const auto& uploader : ranks_[rank].uploaders) {
          std::lock_guard<std::mutex> lock(mutex_);
          threads.emplace_back([this, rank, raw = uploader.get()] {
            Work(static_cast<int32_t>(rank), *raw);
          });
          ++working_;
        }
      }
    } catch (const std::system_error& error) {
      status = ErrnoError(Code::kOutOfHostMemory, error.code().value(), "starting a thread to load");
      stop_ = true;
    }
  }
  if (status.ok()) status = Watch(progress);
  for (std::thread& thread : threads) thread.join();
  return status;
}

// Until all threads are done; an error, theirs or the callback's no, stops them.
Status Loading::Watch(const std::function<bool(uint64_t, uint64_t)>& progress) {
  Status cancelled;
  while (true) {
    bool all_done;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      all_done = changed_.wait_for(lock, kSlice, [&] { return working_ == 0; });
      if (all_done && !status_.ok()) return status_;
    }
    const uint64_t done = done_;
    if (cancelled.ok() && progress && !progress(done, total_)) {
      cancelled = Error(Code::kCancelled, "load cancelled by the progress callback after ", done,
                        " of ", total_, " bytes");
      stop_ = true;
    }
    if (all_done) return cancelled;
  }
}

void Loading::Work(int32_t rank, Uploader& uploader) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  Status status;
  try {
    while (status.ok() && !stop_) {
      const size_t i = own.next.fetch_add(1);
      if (i >= own.pieces.size()) break;
      status = Upload(rank, own.pieces[i], uploader);
    }
  } catch (const std::bad_alloc&) {
    status = Error(Code::kOutOfHostMemory, "packing weights of GPU ", rank);
  }
  const Status finished = uploader.Finish();
  if (status.ok()) status = finished;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!status.ok()) {
    if (status_.ok()) status_ = status;
    stop_ = true;
  }
  if (--working_ == 0) changed_.notify_all();
}

Status Loading::Upload(int32_t rank, const Piece& piece, Uploader& uploader) {
  const size_t id = piece.weight;
  const Weight& weight = *weights_[id];
  const PlacedWeight& placed = placed_[static_cast<size_t>(rank)][id];
  if (IsMatrix(weight)) return UploadTiles(rank, piece, uploader);
  if (weight.layout == WeightLayout::kTable) return UploadTable(rank, piece, uploader);
  std::vector<float> values(PaddedVectorBytes(weight, rank) / sizeof(float));
  backend::DecodeVector(weight, rank, values.data());
  done_ += values.size() * sizeof(float);
  return uploader.Write(placed.vector, reinterpret_cast<const uint8_t*>(values.data()),
                        values.size() * sizeof(float));
}

Status Loading::UploadTiles(int32_t rank, const Piece& piece, Uploader& uploader) {
  const size_t id = piece.weight;
  const PlacedWeight& placed = placed_[static_cast<size_t>(rank)][id];
  TilePlan plan = PlanTiles(*weights_[id], rank, piece.group);
  plan.fnuz = ranks_[static_cast<size_t>(rank)].fnuz;
  const uint64_t group = static_cast<uint64_t>(piece.group);
  const uint64_t row_bytes = plan.row_bytes();
  const uint64_t row_scales = plan.row_scale_bytes();
  const uint64_t data =
      placed.tiles.data.address + group * placed.group_bytes + piece.first * row_bytes;
  const uint64_t to_scales =
      placed.tiles.scales.address + group * placed.group_scale_bytes + piece.first * row_scales;
  std::vector<uint8_t> scales(row_scales * piece.count);
  ASSIGN_OR_RETURN(uint8_t* out, uploader.Begin(piece.count * row_bytes));
  for (uint64_t i = 0; i < piece.count; ++i) {
    PackOutputTile(plan, static_cast<uint32_t>(piece.first + i), out + i * row_bytes,
                   scales.data() + i * row_scales);
  }
  RETURN_IF_ERROR(uploader.Send(data, piece.count * row_bytes));
  done_ += piece.count * (row_bytes + row_scales);
  return uploader.Write(to_scales, scales.data(), scales.size());
}

Status Loading::UploadTable(int32_t rank, const Piece& piece, Uploader& uploader) {
  const size_t id = piece.weight;
  const quant::Matrix& table = weights_[id]->sources[0];
  const uint64_t row_bytes = TableRowBytes(table);
  const uint64_t to = placed_[static_cast<size_t>(rank)][id].table + piece.first * row_bytes;
  done_ += piece.count * row_bytes;
  if (!TableIsF32(table)) {
    return uploader.Write(to, table.data.data() + piece.first * row_bytes, piece.count * row_bytes);
  }
  ASSIGN_OR_RETURN(uint8_t* out, uploader.Begin(piece.count * row_bytes));
  for (uint64_t i = 0; i < piece.count; ++i) {
    quant::DecodeRow(table, static_cast<int64_t>(piece.first + i), 0, table.cols,
                     reinterpret_cast<float*>(out + i * row_bytes));
  }
  return uploader.Send(to, piece.count * row_bytes);
}

}  // namespace mainarch::amdgpu
