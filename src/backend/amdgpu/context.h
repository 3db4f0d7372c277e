// SPDX-License-Identifier: MIT
//
// What one engine owns on the GPUs: activations, the KV pool, the step block, the slots of the
// all-reduce, logits in host memory, and the packets of a step, made once.
//
//   per rank, VRAM    activations (one buffer), KV pool; all-reduce slots and flags, and what is
//                     sent to the chooser of a row (uncached, mapped by every peer)
//   per rank, host    kernel arguments
//   once, host        step block, chosen tokens and logits, mapped by every GPU
//
// Threads: one at a time, except RequestStop.
#ifndef MAINARCH_BACKEND_AMDGPU_CONTEXT_H_
#define MAINARCH_BACKEND_AMDGPU_CONTEXT_H_

#include <atomic>
#include <memory>
#include <vector>

#include "backend/amdgpu/amdgpu_backend.h"
#include "backend/amdgpu/choices.h"
#include "backend/amdgpu/lower.h"
#include "backend/backend.h"

namespace mainarch::amdgpu {

class AmdGpuContext : public backend::ImmediateContext {
 public:
  static StatusOr<std::unique_ptr<backend::Context>> Create(
      std::shared_ptr<const AmdGpuModel> model, const backend::ContextOptions& options);
  ~AmdGpuContext() override;

  absl::Span<float> Logits(uint32_t i) override;
  absl::optional<uint32_t> Chosen(uint32_t i) const override;
  Status FetchLogits(uint32_t i) override;
  Status CopyPage(int32_t cache, uint32_t from, uint32_t to) override;
  backend::StepCounts counts() const override { return counts_; }
  uint64_t memory_bytes() const override { return memory_bytes_; }
  StatusOr<backend::KvToken> ReadKv(int32_t cache, int32_t kv_layer, uint32_t page,
                                    uint32_t slot) const override;
  Status RunPrefix(const backend::Step& step, size_t end) override;
  std::vector<float> ReadBuffer(int32_t rank, backend::BufferId buffer,
                                uint32_t rows) const override;

 private:
  // A packet with all but its completion signal.
  struct Packet {
    gpu::AqlPacket packet;
    const char* label = "";
    int32_t op = -1;
    When when = When::kAlways;
  };
  struct Rank {
    gpu::Buffer activations;  // everything that RankMemory names, but what follows
    gpu::Buffer kv;
    gpu::Buffer exchange;  // slots, then flags
    gpu::Buffer choices;   // ChoiceExchange
    gpu::Buffer kernargs;
    RankMemory memory;
    std::vector<std::vector<Packet>> packets;  // of each of row_classes_
    uint64_t point = 0;                        // of the last submission
  };

  AmdGpuContext(std::shared_ptr<const AmdGpuModel> model, const backend::ContextOptions& options);
  Status RunNow(const backend::Step& step) override;
  Status AllocateShared();
  Status AllocateRank(int32_t rank);
  Status AllocateExchange(int32_t rank);
  Status FillRank(int32_t rank);
  void ShareExchange();
  Status MakePackets(int32_t rank);
  StatusOr<Packet> MakePacket(int32_t rank, const Launch& launch, uint64_t kernarg, bool first);
  Status CheckStep(const backend::Step& step) const;
  bool TakesPart(const Packet& packet, int32_t end) const;
  void WriteStep(const backend::Step& step);
  void Count(const backend::Step& step);
  Status SubmitRank(Rank& rank, Gpu& gpu, int32_t end, gpu::Deadline deadline);
  // Out of line, so that bench/host-overhead finds it by name.
  [[gnu::noinline]] Status Wait(gpu::Deadline deadline);
  Status WaitForRank(size_t rank, gpu::Deadline deadline);
  Status Hung();

  const std::shared_ptr<const AmdGpuModel> model_;
  const backend::Program& program_;
  const Shape shape_;
  const std::vector<uint32_t> row_classes_;
  gpu::Buffer host_step_;
  gpu::Buffer logits_;  // [max_logit_rows, logits_stride]
  std::vector<Rank> ranks_;
  gpu::Buffer results_;        // kernels::ChoiceResult [max_logit_rows]
  std::vector<uint8_t> read_;  // [max_logit_rows]: of the last step, logits are in host memory
  ChoiceWork work_;            // of the last step
  size_t row_class_ = 0;       // of the last step
  uint32_t step_index_ = 0;
  backend::StepCounts counts_;
  uint64_t memory_bytes_ = 0;
};

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_CONTEXT_H_
