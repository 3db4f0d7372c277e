// SPDX-License-Identifier: MIT
//
// Weights into the GPUs' memory: cut into pieces of at most a chunk, which several
// threads a GPU pack and send, each through a copy queue of its own. Steps go on meanwhile: nothing
// here needs the group's mutex or its queues.
#ifndef MAINARCH_BACKEND_AMDGPU_LOADING_H_
#define MAINARCH_BACKEND_AMDGPU_LOADING_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/amdgpu/amdgpu_backend.h"
#include "backend/amdgpu/uploader.h"

namespace mainarch::amdgpu {

// What a weight that is no matrix takes in a GPU's memory.
uint64_t PaddedVectorBytes(const backend::Weight& weight, int32_t rank);
bool TableIsF32(const quant::Matrix& matrix);
uint64_t TableRowBytes(const quant::Matrix& matrix);
bool IsMatrix(const backend::Weight& weight);

// Threads: those that it starts itself. One Run.
class Loading {
 public:
  // `weights`, and where they are `placed` [rank][weight]; both outlive this.
  Loading(const std::vector<const backend::Weight*>& weights,
          const std::vector<std::vector<PlacedWeight>>& placed);
  ~Loading();

  // Makes the copy queues and the staging memory of one thread or more a GPU.
  Status Prepare(Gpus& gpus);
  // Returns when everything has landed, or with the first error. `progress` as in LoadOptions, on
  // this thread.
  Status Run(const std::function<bool(uint64_t, uint64_t)>& progress);

 private:
  // Output tiles of one group of a matrix, or rows of a table; of a vector all.
  struct Piece {
    size_t weight = 0;
    int32_t group = 0;
    uint64_t first = 0, count = 0;
  };
  // What its threads share, of one rank.
  struct Rank {
    std::vector<Piece> pieces;
    std::vector<std::unique_ptr<gpu::CopyQueue>> queues;  // one a thread
    std::vector<std::unique_ptr<Uploader>> uploaders;     // one a thread, after its queue
    std::atomic<size_t> next{0};
    bool fnuz = false;  // what fp8 its chip reads: TilePlan::fnuz
  };

  void List(int32_t rank);
  void Work(int32_t rank, Uploader& uploader);
  Status Upload(int32_t rank, const Piece& piece, Uploader& uploader);
  Status UploadTiles(int32_t rank, const Piece& piece, Uploader& uploader);
  Status UploadTable(int32_t rank, const Piece& piece, Uploader& uploader);
  Status Watch(const std::function<bool(uint64_t, uint64_t)>& progress);

  const std::vector<const backend::Weight*>& weights_;
  const std::vector<std::vector<PlacedWeight>>& placed_;
  std::vector<Rank> ranks_;
  uint64_t total_ = 0;
  std::atomic<uint64_t> done_{0};  // bytes
  std::atomic<bool> stop_{false};

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  int32_t working_ = 0;
  Status status_;
};

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_LOADING_H_
