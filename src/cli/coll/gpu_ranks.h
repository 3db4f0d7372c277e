// SPDX-License-Identifier: MIT
//
// Ranks that are GPUs. Small vectors: one packet a GPU, in which it pushes to its peers' memory and
// polls its own (kernels/ops/reduce.h). Large ones: copy engines carry the shards, and a kernel
// adds them. Memory is the receiver's: nobody reads a peer's.
//
// Nothing here has run on silicon.
#ifndef MAINARCH_CLI_COLL_GPU_RANKS_H_
#define MAINARCH_CLI_COLL_GPU_RANKS_H_

#include <vector>

#include "backend/amdgpu/gpus.h"
#include "cli/coll/ranks.h"
#include "kernels/decoder_args.h"

namespace mainarch::coll {

class GpuRanks final : public Ranks {
 public:
  static StatusOr<std::unique_ptr<Ranks>> Create(std::unique_ptr<amdgpu::Gpus> gpus,
                                                 size_t max_count, uint32_t timeout_ms);

  int32_t ranks() const override { return gpus_->count(); }
  size_t max_count() const override { return max_count_; }
  absl::Span<float> data(int32_t rank) override {
    return {ranks_[static_cast<size_t>(rank)].data.host<float>(), max_count_};
  }
  StatusOr<Counts> AllReduce(size_t count, Algorithm algorithm) override;

 private:
  struct Rank {
    gpu::Buffer data;      // [padded] fp32, every GPU maps it
    gpu::Buffer exchange;  // slots and flags of kernel "reduce", uncached, every GPU maps it
    gpu::Buffer kernargs;  // one slot
    // To each peer, by the engine that drives that link.
    std::vector<std::unique_ptr<gpu::CopyQueue>> to;
  };

  GpuRanks(std::unique_ptr<amdgpu::Gpus> gpus, size_t max_count, uint32_t timeout_ms);
  Status Allocate(int32_t rank);
  Status MakeQueues(int32_t rank);
  Status Shots(size_t count, bool two, Counts* counts);
  Status Engines(size_t count, Counts* counts);
  Status CopyShards(size_t shard, size_t count, bool gather, Counts* counts);
  Status SumShards(size_t shard, size_t count);
  template <class Args>
  StatusOr<uint64_t> Launch(int32_t rank, const char* kernel, const Args& args, uint64_t units);
  Status RingAndWait(absl::Span<const uint64_t> points);
  kernels::ExchangeBytes Exchange() const;

  // Before what is on it.
  const std::unique_ptr<amdgpu::Gpus> gpus_;
  const size_t max_count_;
  const size_t padded_;  // of kernels::kRowChunk
  const uint32_t timeout_ms_;
  gpu::Buffer step_;  // a step block of one row, in host memory
  std::vector<Rank> ranks_;
  uint32_t epoch_ = 0;
};

}  // namespace mainarch::coll

#endif  // MAINARCH_CLI_COLL_GPU_RANKS_H_
