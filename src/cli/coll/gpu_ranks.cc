// SPDX-License-Identifier: MIT
#include "cli/coll/gpu_ranks.h"

#include <algorithm>
#include <cstring>

#include "kernels/decoder_args.h"

namespace mainarch::coll {
namespace {

// From so many bytes on the second round costs less than the bytes it saves, and from so many the
// copy engines' set-up costs less than the compute units they leave free. Choices, not measured.
constexpr size_t kTwoShotBytes = 256 << 10;
constexpr size_t kEngineBytes = 4 << 20;
constexpr uint32_t kMostWorkers = 64;  // resident on every chip, so that peers meet

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

GpuRanks::GpuRanks(std::unique_ptr<amdgpu::Gpus> gpus, size_t max_count, uint32_t timeout_ms)
    : gpus_(std::move(gpus)),
      max_count_(max_count),
      padded_(RoundUp(std::max<size_t>(max_count, 1), kernels::kRowChunk)),
      timeout_ms_(timeout_ms),
      ranks_(static_cast<size_t>(gpus_->count())) {}

StatusOr<std::unique_ptr<Ranks>> GpuRanks::Create(std::unique_ptr<amdgpu::Gpus> gpus,
                                                  size_t max_count, uint32_t timeout_ms) {
  std::unique_ptr<GpuRanks> group(new GpuRanks(std::move(gpus), max_count, timeout_ms));
  const std::vector<gpu::Device*> devices = group->gpus_->devices();
  gpu::BufferOptions step;
  step.place = gpu::Place::kSystem;
  step.caching = gpu::Caching::kUncached;
  step.peers = absl::MakeConstSpan(devices).subspan(1);
  step.label = "step block";
  ASSIGN_OR_RETURN(group->step_, gpu::Buffer::Allocate(*devices[0], 4096, step));
  for (int32_t r = 0; r < group->ranks(); ++r) RETURN_IF_ERROR(group->Allocate(r));
  for (int32_t r = 0; r < group->ranks(); ++r) RETURN_IF_ERROR(group->MakeQueues(r));
  return std::unique_ptr<Ranks>(std::move(group));
}

kernels::ExchangeBytes GpuRanks::Exchange() const {
  return kernels::ExchangeBytesOf(static_cast<uint32_t>(ranks()), 1, 1, padded_);
}

Status GpuRanks::Allocate(int32_t rank) {
  const std::vector<gpu::Device*> devices = gpus_->devices();
  gpu::Device& own = *devices[static_cast<size_t>(rank)];
  std::vector<gpu::Device*> peers;
  for (gpu::Device* device : devices) {
    if (device != &own) peers.push_back(device);
  }
  Rank& r = ranks_[static_cast<size_t>(rank)];
  gpu::BufferOptions options;
  options.peers = peers;
  options.host_access = true;
  options.caching = gpu::Caching::kUncached;
  options.label = "vector";
  ASSIGN_OR_RETURN(r.data, gpu::Buffer::Allocate(own, padded_ * sizeof(float), options));
  std::memset(r.data.host(), 0, r.data.size());
  options.host_access = false;
  options.label = "all-reduce slots";
  ASSIGN_OR_RETURN(r.exchange, gpu::Buffer::Allocate(own, Exchange().bytes, options));
  amdgpu::Gpu& gpu = gpus_->at(rank);
  const gpu::Deadline deadline = gpu::Deadline::In(timeout_ms_);
  RETURN_IF_ERROR(gpu.copy->Fill(r.exchange.va(), 0, r.exchange.size(), deadline));
  ASSIGN_OR_RETURN(const uint64_t filled, gpu.copy->Submit(deadline));
  RETURN_IF_ERROR(gpu.copy->Wait(filled, deadline));
  gpu::BufferOptions host;
  host.place = gpu::Place::kSystem;
  host.caching = gpu::Caching::kUncached;
  host.label = "kernel arguments";
  ASSIGN_OR_RETURN(r.kernargs, gpu::Buffer::Allocate(own, 4096, host));
  return own.FlushHostWrites();
}

Status GpuRanks::MakeQueues(int32_t rank) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  gpu::Device& own = *gpus_->at(rank).device;
  for (int32_t peer = 0; peer < ranks(); ++peer) {
    gpu::CopyQueueOptions options;
    options.engine = peer == rank ? gpu::kAnyEngine : gpu::PeerEngine(own, *gpus_->at(peer).device);
    options.xgmi_class = peer != rank;
    options.label = "shards";
    ASSIGN_OR_RETURN(auto queue, gpu::CopyQueue::Create(own, options));
    r.to.push_back(std::move(queue));
  }
  return OkStatus();
}

StatusOr<Counts> GpuRanks::AllReduce(size_t count, Algorithm algorithm) {
  if (count > max_count_) {
    return Error(Code::kInvalidArgument, "all-reduce of ", count, " elements; the limit is ",
                 max_count_);
  }
  Counts counts;
  const size_t bytes = count * sizeof(float);
  if (algorithm == Algorithm::kAuto) {
    algorithm = bytes >= kEngineBytes    ? Algorithm::kEngines
                : bytes >= kTwoShotBytes ? Algorithm::kTwoShot
                                         : Algorithm::kOneShot;
  }
  counts.algorithm = algorithm;
  if (count == 0 || ranks() == 1) return counts;
  std::lock_guard<std::mutex> lock(gpus_->mutex());
  RETURN_IF_ERROR(gpus_->Settle(gpus_->Health()));
  const Status status = algorithm == Algorithm::kEngines
                            ? Engines(count, &counts)
                            : Shots(count, algorithm == Algorithm::kTwoShot, &counts);
  if (!status.ok()) return gpus_->Fail(status);
  return counts;
}

template <class Args>
StatusOr<uint64_t> GpuRanks::Launch(int32_t rank, const char* kernel, const Args& args,
                                    uint64_t units) {
  amdgpu::Gpu& gpu = gpus_->at(rank);
  const Rank& r = ranks_[static_cast<size_t>(rank)];
  ASSIGN_OR_RETURN(const gpu::Kernel* code, gpu.code->Find(kernel));
  kernels::Kernarg<Args> kernarg;
  kernarg.args = args;
  kernarg.workers = static_cast<uint32_t>(std::clamp<uint64_t>(units, 1, kMostWorkers));
  std::memcpy(r.kernargs.host(), &kernarg, sizeof(kernarg));
  gpu::Dispatch dispatch;
  dispatch.kernel_object = code->object;
  dispatch.kernarg = r.kernargs.va();
  dispatch.workgroup.x = kernels::kThreads;
  dispatch.grid.x = kernarg.workers * kernels::kThreads;
  dispatch.group_bytes = code->group_bytes;
  return gpu.queue->SubmitSignalled(gpu::MakeDispatch(dispatch, {}), kernel,
                                    gpu::Deadline::In(timeout_ms_));
}

Status GpuRanks::RingAndWait(absl::Span<const uint64_t> points) {
  for (int32_t r = 0; r < ranks(); ++r) gpus_->at(r).queue->Ring();
  const gpu::Deadline deadline = gpu::Deadline::In(timeout_ms_);
  for (int32_t r = 0; r < ranks(); ++r) {
    RETURN_IF_ERROR(gpus_->at(r).queue->Wait(points[static_cast<size_t>(r)], deadline));
  }
  return OkStatus();
}

Status GpuRanks::Shots(size_t count, bool two, Counts* counts) {
  kernels::StepHeader header;
  header.rows = 1;
  header.index = epoch_++;
  std::memcpy(step_.host(), &header, sizeof(header));
  kernels::ReduceArgs args;
  args.step.address = step_.va();
  for (size_t r = 0; r < ranks_.size(); ++r) {
    args.exchange[r].address = ranks_[r].exchange.va();
  }
  args.flags_at = Exchange().flags_at;
  args.pairs_at = Exchange().pairs_at;
  args.hidden = static_cast<uint32_t>(count);
  args.stride = static_cast<uint32_t>(padded_);
  args.chunks = static_cast<uint32_t>((count + kernels::kRowChunk - 1) / kernels::kRowChunk);
  args.max_rows = args.pair_rows = 1;
  args.ranks = static_cast<uint32_t>(ranks());
  args.per_step = 1;
  args.mode = kernels::kReducePlain;
  std::vector<uint64_t> points(ranks_.size());
  for (int32_t r = 0; r < ranks(); ++r) {
    args.rank = static_cast<uint32_t>(r);
    args.exchange_own = args.exchange[r];
    args.out.x.address = ranks_[static_cast<size_t>(r)].data.va();
    args.partial.address = args.out.x.address;
    ASSIGN_OR_RETURN(points[static_cast<size_t>(r)],
                     Launch(r, two ? "reduce_twice" : "reduce", args, args.chunks));
  }
  RETURN_IF_ERROR(RingAndWait(points));
  const uint64_t n = static_cast<uint64_t>(ranks()), bytes = count * sizeof(float);
  counts->packets = 1;
  counts->rounds = two ? 2 : 1;
  counts->handoffs = 1;
  // Whole chunks have owners, so that a rank may send a chunk more or less than another.
  // In one round each element goes with its epoch.
  counts->link_bytes = two ? 2 * bytes * (n - 1) / n : 2 * bytes * (n - 1);
  return OkStatus();
}

// Shard r of every vector to its owner r (in whose slots it lands), or the owner's sum to all.
Status GpuRanks::CopyShards(size_t shard, size_t count, bool gather, Counts* counts) {
  const gpu::Deadline deadline = gpu::Deadline::In(timeout_ms_);
  std::vector<std::vector<uint64_t>> points(ranks_.size(), std::vector<uint64_t>(ranks_.size()));
  for (size_t from = 0; from < ranks_.size(); ++from) {
    for (size_t to = 0; to < ranks_.size(); ++to) {
      const size_t part = gather ? from : to;
      const size_t begin = std::min(count, part * shard), end = std::min(count, begin + shard);
      if (begin == end || (gather && from == to)) continue;
      gpu::CopyQueue& queue = *ranks_[from].to[to];
      const uint64_t source = ranks_[from].data.va() + begin * sizeof(float);
      const uint64_t target = gather ? ranks_[to].data.va() + begin * sizeof(float)
                                     : ranks_[to].exchange.va() + from * padded_ * sizeof(float);
      RETURN_IF_ERROR(queue.Copy(target, source, (end - begin) * sizeof(float), deadline));
      ASSIGN_OR_RETURN(points[from][to], queue.Submit(deadline));
      if (from == 0) {
        ++counts->copies;
        if (to != from) counts->link_bytes += (end - begin) * sizeof(float);
      }
    }
  }
  for (size_t from = 0; from < ranks_.size(); ++from) {
    for (size_t to = 0; to < ranks_.size(); ++to) {
      if (points[from][to] == 0) continue;
      RETURN_IF_ERROR(ranks_[from].to[to]->Wait(points[from][to], deadline));
    }
  }
  ++counts->rounds;
  ++counts->handoffs;
  return OkStatus();
}

Status GpuRanks::SumShards(size_t shard, size_t count) {
  std::vector<uint64_t> points(ranks_.size());
  for (int32_t r = 0; r < ranks(); ++r) {
    const Rank& own = ranks_[static_cast<size_t>(r)];
    const size_t begin = std::min(count, static_cast<size_t>(r) * shard);
    const size_t end = std::min(count, begin + shard);
    kernels::SumSlotsArgs args;
    args.slots.address = own.exchange.va();
    args.out.address = own.data.va() + begin * sizeof(float);
    args.stride = padded_;
    args.count = end - begin;
    args.ranks = static_cast<uint32_t>(ranks());
    ASSIGN_OR_RETURN(points[static_cast<size_t>(r)],
                     Launch(r, "sum_slots", args, args.count / (4 * kernels::kThreads) + 1));
  }
  return RingAndWait(points);
}

Status GpuRanks::Engines(size_t count, Counts* counts) {
  const size_t shard = RoundUp((count + ranks_.size() - 1) / ranks_.size(), 4);
  RETURN_IF_ERROR(CopyShards(shard, count, false, counts));
  RETURN_IF_ERROR(SumShards(shard, count));
  counts->packets = 1;
  ++counts->handoffs;
  return CopyShards(shard, count, true, counts);
}

}  // namespace mainarch::coll
