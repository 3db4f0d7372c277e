// SPDX-License-Identifier: MIT
//
// One engine's state on the CPU: activations, KV pages, scratch; and the walk over a Program. Each op
// becomes one or more phases of the team's job (context.cc lists them), each phase a number of items
// that any worker may run.
#ifndef MAINARCH_BACKEND_CPU_CONTEXT_H_
#define MAINARCH_BACKEND_CPU_CONTEXT_H_

#include <atomic>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "base/fd.h"
#include "base/team.h"

namespace mainarch::cpu {

class CpuContext : public backend::ImmediateContext, private Team::Job {
 public:
  static StatusOr<std::unique_ptr<backend::Context>> Create(std::shared_ptr<const CpuModel> model,
                                                            const backend::ContextOptions& options);

  absl::Span<float> Logits(uint32_t i) override;
  Status CopyPage(int32_t cache, uint32_t from, uint32_t to) override;
  // Of one page, over all ranks and layers.
  static uint64_t KvPageBytesOf(const backend::Program& program, backend::KvType type);
  uint64_t memory_bytes() const override { return memory_.size() + kv_.size(); }
  StatusOr<backend::KvToken> ReadKv(int32_t cache, int32_t kv_layer, uint32_t page,
                                    uint32_t slot) const override;
  Status RunPrefix(const backend::Step& step, size_t end) override;
  std::vector<float> ReadBuffer(int32_t rank, backend::BufferId buffer,
                                uint32_t rows) const override;

 private:
  enum class PhaseKind : uint8_t {
    kEmbed,
    kNorm,         // of all rows into norm_, when they are too many to redo on every worker
    kRound,        // of all input rows to bf16 into rounded_, likewise
    kMatmul,
    kAllReduce,
    kAttendPrepare,
    kAttend,
    kAttendMerge,
    kRouterMatmul,
    kRouterTopK,
    kExpertsGateUp,
    kExpertsDown,
    kLogits,
  };
  struct Phase {
    PhaseKind kind;
    uint32_t op;
  };
  // Rows of one sequence that attend together.
  struct AttendBlock {
    uint32_t first_row, rows, sequence;
    uint32_t splits;
    uint32_t first_unit;   // units of all blocks before this one, on one rank
    uint32_t first_part;   // stored parts before this one, on one rank
  };
  // What a worker needs for itself; all sized at creation.
  struct Worker {
    float* norm = nullptr;        // [kFusedRows, hidden_stride_]
    uint64_t norm_tag = 0;        // which phase and rank `norm` holds
    uint16_t* x16 = nullptr;      // a phase's input rows as bf16
    uint64_t x16_tag = 0;         // which phase and rank
    float* columns = nullptr;     // a phase's input rows by columns (MatmulArgs::columns)
    uint64_t columns_tag = 0;     // which phase and rank
    uint8_t* decoded = nullptr;   // panels as bf16 (MatmulArgs::decoded)
    float* attend = nullptr;      // scores, then one part per query
    float* experts = nullptr;     // [max_rows * kMaxParts * kExpertPanels * 16]
    uint8_t* panels = nullptr;    // [kMaxItemPanels * largest stride], weights in place
    const float** x = nullptr;    // [max_rows]
    float** out = nullptr;        // [max_rows]
    const uint16_t** rows16 = nullptr;  // [max_rows]
  };
  // A matmul as the kernels want it.
  struct MatmulPlan {
    backend::WeightId w;
    backend::BufferId in;    // -1: the normalised x
    backend::WeightId norm;  // -1: none
    backend::BufferId out;
    Epilogue epilogue;
  };

  CpuContext(std::shared_ptr<const CpuModel> model, const backend::ContextOptions& options);

  Status RunNow(const backend::Step& step) override;
  Status Allocate();
  void BuildPhases();
  Status CheckStep(const backend::Step& step) const;
  void PrepareStep(const backend::Step& step);

  uint32_t Open(uint32_t phase) override;
  void Run(uint32_t phase, uint32_t item, int worker) override;

  // Buffers.
  float* Row(int32_t rank, backend::BufferId buffer, int64_t row) const;
  int32_t* IdRow(int32_t rank, backend::BufferId buffer, int64_t row) const;
  int64_t SlotStride(backend::BufferId buffer) const;

  // context_matmul.cc
  MatmulPlan PlanOf(const backend::Op& op) const;
  int64_t MostPanels(backend::WeightId w) const;
  uint32_t ItemPanels(int64_t panels) const;
  uint32_t MatmulItems(const MatmulPlan& plan);
  void RunMatmul(const MatmulPlan& plan, uint32_t phase, uint32_t item, int worker);
  void RunPanels(int32_t rank, backend::WeightId w, size_t group, int64_t begin, int64_t end,
                 int64_t rows, Epilogue epilogue, bool bf16, const uint8_t* after, Worker* scratch,
                 const float* columns = nullptr);
  const float* ColumnsOf(int64_t rows, int64_t width, uint64_t tag, Worker* scratch) const;
  const uint8_t* PanelAt(int32_t rank, backend::WeightId w, size_t group, int64_t panel) const;
  const float* NormRow(int32_t rank, uint32_t phase, backend::WeightId norm, const uint32_t* rows,
                       int64_t count, int64_t row, Worker* scratch);
  bool UsesBF16(backend::WeightId w) const;
  uint64_t TagOf(uint32_t phase, int32_t rank) const;
  void RunNorm(const backend::Op& op, uint32_t item);
  void RunRound(const backend::Op& op, uint32_t item);
  void RunEmbed(const backend::EmbedOp& op, uint32_t item);
  void RunAllReduce(const backend::AllReduceAddOp& op, uint32_t item);
  uint32_t LogitsItems(const backend::LogitsOp& op) const;
  void RunLogits(const backend::LogitsOp& op, uint32_t phase, uint32_t item, int worker);

  // context_attention.cc
  void PlanAttention();
  uint32_t AttendPrepareItems() const;
  void RunAttendPrepare(const backend::AttentionOp& op, uint32_t item);
  void PrepareHead(const backend::AttentionOp& op, int32_t rank, int64_t row, int64_t kv);
  void RunAttend(const backend::AttentionOp& op, uint32_t item, int worker);
  void AttendUnit(const backend::AttentionOp& op, int32_t rank, const AttendBlock& block,
                  int32_t kv_head, uint32_t split_begin, uint32_t split_end, Worker* scratch);
  void RunAttendMerge(const backend::AttentionOp& op, uint32_t item);
  size_t KvChunkStride() const;
  uint32_t pages() const { return options_.pages[0]; }
  // Chunk 0 of a head, as AttendArgs::chunks.
  uint8_t* KvHead(int32_t rank, int32_t layer, int32_t kv_head) const;

  // context_moe.cc
  uint32_t ExpertsDownItems(const backend::ExpertsDownOp& op) const;
  int64_t RouterItemPanels(const backend::RouterOp& op) const;
  uint32_t RouterItems(const backend::RouterOp& op) const;
  void RunRouterMatmul(const backend::RouterOp& op, uint32_t item, int worker);
  void RunTopK(const backend::RouterOp& op, uint32_t item);
  void ListExperts(const backend::ExpertsGateUpOp& op);
  void RunExpertsGateUp(const backend::ExpertsGateUpOp& op, uint32_t phase, uint32_t item, int worker);
  void RunExpertsDown(const backend::ExpertsDownOp& op, uint32_t phase, uint32_t item, int worker);

  const std::shared_ptr<const CpuModel> model_;
  const backend::Program& program_;
  const Kernels& kernels_;
  Team& team_;
  const backend::ContextOptions options_;
  const KvFormat kv_format_;
  const bool bf16_;  // activations are rounded to bf16 for products with weights
  const int32_t ranks_;
  const int64_t hidden_stride_;
  const int64_t vocab_stride_;

  Mapping memory_;  // everything but KV
  Mapping kv_;      // [chunk of pages][rank][layer][kv head][a chunk of one head]
  std::vector<std::vector<float*>> buffers_;  // [rank][buffer]
  std::vector<int64_t> slot_stride_;          // [buffer], elements
  std::vector<float*> norm_;                  // [rank]: [max_rows, hidden_stride_]
  std::vector<uint16_t*> rounded_;            // [rank]: [max_rows, width of the input]
  std::vector<float*> router_logits_;         // [rank]: [max_rows, experts]
  std::vector<float*> parts_;                 // [rank]: [part, head_dim]
  std::vector<float*> part_max_sum_;          // [rank]: [part, 2]
  float* logits_ = nullptr;                   // [max_logit_rows, vocab_stride_]
  float* cos_ = nullptr;                      // [max_rows, rotary_dim / 2]
  float* sin_ = nullptr;
  uint64_t part_capacity_ = 0;  // on one rank
  std::vector<Worker> workers_;
  std::vector<const float*> worker_x_;
  std::vector<float*> worker_out_;
  std::vector<const uint16_t*> worker_rows16_;

  std::vector<Phase> phases_;

  // The step in progress.
  const backend::Step* step_ = nullptr;
  uint64_t step_number_ = 0;
  int64_t rows_ = 0;
  size_t op_end_ = 0;
  // Of the open phase, if it is a product: panels of an item, items of a rank.
  uint32_t item_panels_ = 0;
  uint32_t rank_items_ = 0;
  bool stopped_ = false;
  std::vector<AttendBlock> blocks_;
  uint32_t block_count_ = 0;
  uint32_t attend_units_ = 0;    // on one rank
  uint32_t attend_items_ = 0;    // on one rank
  bool store_parts_ = false;     // a unit is one split, merged later; else a unit is a whole block
  uint32_t prepare_units_per_item_ = 1;
  bool prepare_with_attend_ = false;  // by the unit itself
  // Rows by expert (the same on every rank).
  std::vector<int32_t> expert_offsets_;  // [experts + 1]
  std::vector<int32_t> expert_entries_;  // [max_rows * k]
  std::vector<int32_t> active_experts_;
  int32_t active_count_ = 0;
  uint32_t expert_chunks_ = 1;
};

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_CONTEXT_H_
