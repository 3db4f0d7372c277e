// SPDX-License-Identifier: MIT
#include "backend/cpu/context.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace mainarch::cpu {
namespace {

using backend::AttentionOp;
using backend::BufferId;
using backend::Program;
using backend::Step;

constexpr int64_t kLineFloats = 16;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

KvFormat KvFormatOf(backend::KvType type) {
  switch (type) {
    case backend::KvType::kBF16: return KvFormat::kBF16;
    case backend::KvType::kFp8: return KvFormat::kFp8;
    case backend::KvType::kF32: return KvFormat::kF32;
  }
  return KvFormat::kBF16;
}

// Hands out pieces of a region whose size it finds out first: run once without memory, once with.
class Carver {
 public:
  explicit Carver(uint8_t* base) : base_(base) {}
  template <class T>
  T* Take(int64_t count) {
    uint8_t* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += static_cast<size_t>(RoundUp(count * static_cast<int64_t>(sizeof(T)), 64));
    return reinterpret_cast<T*>(at);
  }
  size_t used() const { return used_; }

 private:
  uint8_t* base_;
  size_t used_ = 0;
};

}  // namespace

CpuContext::CpuContext(std::shared_ptr<const CpuModel> model,
                       const backend::ContextOptions& options)
    : model_(std::move(model)),
      program_(model_->program()),
      kernels_(model_->backend().kernels()),
      team_(model_->backend().team()),
      options_(options),
      kv_format_(KvFormatOf(options.kv_type)),
      bf16_(options.activations == backend::Activations::kBF16 &&
            model_->backend().rounds_to_bf16()),
      ranks_(program_.ranks),
      hidden_stride_(RoundUp(program_.hidden, 2 * kLineFloats)),
      vocab_stride_(RoundUp(program_.vocab, kLineFloats) + kLineFloats) {}

StatusOr<std::unique_ptr<backend::Context>> CpuContext::Create(
    std::shared_ptr<const CpuModel> model, const backend::ContextOptions& options) {
  if (options.max_rows == 0 || options.max_logit_rows == 0) {
    return Error(Code::kInvalidArgument, "a context needs at least one row and one logit row");
  }
  RETURN_IF_ERROR(backend::CheckOneCache(options));
  std::unique_ptr<CpuContext> context(new CpuContext(std::move(model), options));
  context->BuildPhases();
  RETURN_IF_ERROR(context->Allocate());
  return std::unique_ptr<backend::Context>(std::move(context));
}

Status CpuContext::Allocate() {
  const Program& p = program_;
  const int64_t rows = options_.max_rows;
  const size_t ranks = static_cast<size_t>(ranks_);
  const size_t workers = static_cast<size_t>(team_.workers());
  slot_stride_.clear();
  for (const backend::Buffer& buffer : p.buffers) {
    slot_stride_.push_back(RoundUp(buffer.width, 2 * kLineFloats));
  }
  // Parts are stored only while whole blocks would leave workers idle (PlanAttention).
  const int64_t group = p.heads / p.kv_heads;
  const int64_t max_splits = (p.max_position + kAttentionSplit - 1) / kAttentionSplit;
  part_capacity_ = static_cast<uint64_t>(4 * static_cast<int64_t>(workers) *
                                         std::max<int64_t>(kMaxBlockRows, group) * max_splits);
  size_t panel_scratch = 0;
  // Lazily backed: what no step packs costs nothing.
  if (!model_->settled()) {
    for (size_t id = 0; id < p.weights.size(); ++id) {
      for (int32_t rank = 0; rank < ranks_; ++rank) {
        for (const Panels& panels : model_->weight(rank, static_cast<int32_t>(id)).panels) {
          panel_scratch = std::max(panel_scratch, panels.stride);
        }
      }
    }
  }
  // The widest rows that a product takes in, and the longest panel that is ever decoded.
  int64_t widest = hidden_stride_, longest = 0;
  for (size_t b = 0; b < p.buffers.size(); ++b) {
    widest = std::max(widest, p.buffers[b].slots * slot_stride_[b]);
  }
  for (size_t id = 0; rows > kMaxBlockRows && id < p.weights.size(); ++id) {
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      for (const Panels& panels : model_->weight(rank, static_cast<int32_t>(id)).panels) {
        if (panels.group_cols > 0) longest = std::max(longest, panels.cols);
      }
    }
  }
  worker_rows16_.resize(workers * options_.max_rows);
  worker_x_.resize(workers * options_.max_rows);
  worker_out_.resize(workers * options_.max_rows);
  workers_.resize(workers);
  buffers_.assign(ranks, std::vector<float*>(p.buffers.size()));
  rounded_.resize(ranks);
  for (auto* list : {&norm_, &router_logits_, &parts_, &part_max_sum_}) list->resize(ranks);

  for (int pass = 0; pass < 2; ++pass) {
    Carver carve(memory_.data());
    logits_ = carve.Take<float>(int64_t{options_.max_logit_rows} * vocab_stride_);
    cos_ = carve.Take<float>(rows * p.rope.rotary_dim / 2);
    sin_ = carve.Take<float>(rows * p.rope.rotary_dim / 2);
    for (size_t r = 0; r < ranks; ++r) {
      for (size_t b = 0; b < p.buffers.size(); ++b) {
        buffers_[r][b] = carve.Take<float>(rows * p.buffers[b].slots * slot_stride_[b]);
      }
      norm_[r] = carve.Take<float>(rows * hidden_stride_);
      rounded_[r] = carve.Take<uint16_t>(bf16_ ? rows * widest : 0);
      router_logits_[r] = carve.Take<float>(rows * RoundUp(p.experts, kLineFloats));
      parts_[r] = carve.Take<float>(static_cast<int64_t>(part_capacity_) * p.head_dim);
      part_max_sum_[r] = carve.Take<float>(static_cast<int64_t>(part_capacity_) * 2);
    }
    for (size_t w = 0; w < workers; ++w) {
      Worker& worker = workers_[w];
      worker.norm = carve.Take<float>(kMaxBlockRows * hidden_stride_);
      worker.attend =
          carve.Take<float>(kMaxBlockRows * (kAttentionSplit + p.head_dim + kLineFloats));
      worker.experts = carve.Take<float>(p.experts > 0 ? rows * kMaxParts * kExpertPanels * kLanes : 0);
      worker.panels = carve.Take<uint8_t>(static_cast<int64_t>(panel_scratch) * kMaxBlockRows);
      worker.x16 = carve.Take<uint16_t>(bf16_ ? rows * widest : 0);
      worker.columns = carve.Take<float>(kernels_.by_columns == nullptr ? 0 : kMaxBlockRows * widest);
      worker.decoded = carve.Take<uint8_t>(static_cast<int64_t>(DecodedBytes(longest)));
      worker.rows16 = worker_rows16_.data() + w * options_.max_rows;
      worker.x = worker_x_.data() + w * options_.max_rows;
      worker.out = worker_out_.data() + w * options_.max_rows;
    }
    if (pass == 0) {
      ASSIGN_OR_RETURN(memory_, Mapping::Anonymous(carve.used(), /*huge_pages=*/false));
    }
  }
  const uint64_t chunks = (uint64_t{pages()} + kKvChunkPages - 1) / kKvChunkPages;
  ASSIGN_OR_RETURN(kv_, Mapping::Anonymous(chunks * KvChunkStride(), /*huge_pages=*/true));
  blocks_.resize(options_.max_rows);
  expert_offsets_.resize(static_cast<size_t>(p.experts) + 1);
  expert_entries_.resize(options_.max_rows * static_cast<size_t>(p.experts_per_token));
  active_experts_.resize(static_cast<size_t>(p.experts));
  return OkStatus();
}

void CpuContext::BuildPhases() {
  using K = PhaseKind;
  for (uint32_t i = 0; i < program_.ops.size(); ++i) {
    const backend::Op& op = program_.ops[i];
    auto add = [&](std::initializer_list<K> kinds) {
      for (K kind : kinds) phases_.push_back({kind, i});
    };
    if (std::holds_alternative<backend::EmbedOp>(op)) add({K::kEmbed});
    if (std::holds_alternative<backend::NormMatmulOp>(op)) add({K::kNorm, K::kMatmul});
    if (std::holds_alternative<backend::NormGateUpOp>(op)) add({K::kNorm, K::kMatmul});
    if (std::holds_alternative<backend::MatmulOp>(op) ||
        std::holds_alternative<backend::MatmulAddOp>(op)) {
      if (bf16_) add({K::kRound});
      add({K::kMatmul});
    }
    if (std::holds_alternative<backend::AllReduceAddOp>(op)) add({K::kAllReduce});
    if (std::holds_alternative<AttentionOp>(op)) {
      add({K::kAttendPrepare, K::kAttend, K::kAttendMerge});
    }
    if (std::holds_alternative<backend::RouterOp>(op)) {
      add({K::kNorm, K::kRouterMatmul, K::kRouterTopK});
    }
    if (std::holds_alternative<backend::ExpertsGateUpOp>(op)) add({K::kExpertsGateUp});
    if (std::holds_alternative<backend::ExpertsDownOp>(op)) add({K::kExpertsDown});
    if (std::holds_alternative<backend::LogitsOp>(op)) add({K::kLogits});
  }
}

uint8_t* CpuContext::KvHead(int32_t rank, int32_t layer, int32_t kv_head) const {
  const size_t index =
      (static_cast<size_t>(rank) * static_cast<size_t>(program_.kv_layers) +
       static_cast<size_t>(layer)) * static_cast<size_t>(program_.kv_heads) +
      static_cast<size_t>(kv_head);
  return kv_.data() + index * kKvChunkPages * KvPageBytes(kv_format_, program_.head_dim);
}

uint64_t CpuContext::KvPageBytesOf(const Program& program, backend::KvType type) {
  return static_cast<uint64_t>(program.ranks) * static_cast<uint64_t>(program.kv_layers) *
         static_cast<uint64_t>(program.kv_heads) * KvPageBytes(KvFormatOf(type), program.head_dim);
}

size_t CpuContext::KvChunkStride() const {
  return kKvChunkPages * static_cast<size_t>(ranks_) * static_cast<size_t>(program_.kv_layers) *
         static_cast<size_t>(program_.kv_heads) * KvPageBytes(kv_format_, program_.head_dim);
}

absl::Span<float> CpuContext::Logits(uint32_t i) {
  return {logits_ + int64_t{i} * vocab_stride_, static_cast<size_t>(program_.vocab)};
}

float* CpuContext::Row(int32_t rank, BufferId buffer, int64_t row) const {
  const size_t b = static_cast<size_t>(buffer);
  return buffers_[static_cast<size_t>(rank)][b] +
         row * program_.buffers[b].slots * slot_stride_[b];
}

int32_t* CpuContext::IdRow(int32_t rank, BufferId buffer, int64_t row) const {
  return reinterpret_cast<int32_t*>(Row(rank, buffer, row));
}

int64_t CpuContext::SlotStride(BufferId buffer) const {
  return slot_stride_[static_cast<size_t>(buffer)];
}

std::vector<float> CpuContext::ReadBuffer(int32_t rank, BufferId buffer, uint32_t rows) const {
  const backend::Buffer& b = program_.buffers[static_cast<size_t>(buffer)];
  std::vector<float> out;
  for (uint32_t row = 0; row < rows; ++row) {
    for (int32_t slot = 0; slot < b.slots; ++slot) {
      const float* at = Row(rank, buffer, row) + slot * SlotStride(buffer);
      for (int64_t i = 0; i < b.width; ++i) {
        float value = at[i];
        if (b.type == backend::BufferType::kI32) {
          int32_t id;
          std::memcpy(&id, &at[i], sizeof(id));
          value = static_cast<float>(id);
        }
        out.push_back(value);
      }
    }
  }
  return out;
}

Status CpuContext::CheckStep(const Step& step) const {
  if (step.rows.empty() || step.rows.size() > options_.max_rows) {
    return Error(Code::kInternal, "step of ", step.rows.size(), " rows; this context takes 1 to ",
                 options_.max_rows);
  }
  if (step.logit_rows.size() > options_.max_logit_rows) {
    return Error(Code::kInternal, "step asks for ", step.logit_rows.size(), " rows of logits of ",
                 options_.max_logit_rows);
  }
  RETURN_IF_ERROR(backend::CheckOneCache(step, pages()));
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const backend::StepRow& row = step.rows[i];
    if (row.token >= static_cast<uint32_t>(program_.vocab) ||
        row.sequence >= step.sequences.size() ||
        int64_t{row.position} >= program_.max_position) {
      return Error(Code::kInternal, "row ", i, ": token ", row.token, ", position ", row.position,
                   ", sequence ", row.sequence, " out of range");
    }
    const absl::Span<const uint32_t> pages = step.sequences[row.sequence].caches[0].pages;
    if (row.position / backend::kPageTokens >= pages.size()) {
      return Error(Code::kInternal, "row ", i, ": position ", row.position, " has no page");
    }
    if (i > 0 && step.rows[i - 1].sequence == row.sequence &&
        step.rows[i - 1].position + 1 != row.position) {
      return Error(Code::kInternal, "row ", i, ": position ", row.position,
                   " does not follow the row before");
    }
  }
  for (uint32_t row : step.logit_rows) {
    if (row >= step.rows.size()) return Error(Code::kInternal, "logits of row ", row, " asked for");
  }
  return OkStatus();
}

void CpuContext::PrepareStep(const Step& step) {
  step_ = &step;
  ++step_number_;
  rows_ = static_cast<int64_t>(step.rows.size());
  stopped_ = false;
  const backend::Rope& rope = program_.rope;
  const int64_t half = rope.rotary_dim / 2;
  for (int64_t row = 0; row < rows_; ++row) {
    const double position = step.rows[static_cast<size_t>(row)].position;
    for (int64_t i = 0; i < half; ++i) {
      // In fp64: an fp32 angle is wrong by 0.06 rad at a million tokens.
      const double angle = position * rope.inv_freq[static_cast<size_t>(i)];
      cos_[row * half + i] = static_cast<float>(std::cos(angle) * rope.scale);
      sin_[row * half + i] = static_cast<float>(std::sin(angle) * rope.scale);
    }
  }
  PlanAttention();
}

Status CpuContext::RunNow(const Step& step) { return RunPrefix(step, program_.ops.size()); }

Status CpuContext::RunPrefix(const Step& step, size_t end) {
  RETURN_IF_ERROR(CheckStep(step));
  PrepareStep(step);
  op_end_ = end;
  team_.Execute(this);
  model_->StepEnded();
  step_ = nullptr;
  if (stopped_) {
    return Error(Code::kCancelled, "step cancelled");
  }
  return OkStatus();
}

uint32_t CpuContext::Open(uint32_t phase) {
  if (stop_requested()) {
    stopped_ = true;
    return kEnd;
  }
  if (phase >= phases_.size() || phases_[phase].op >= op_end_) return kEnd;
  const backend::Op& op = program_.ops[phases_[phase].op];
  const uint32_t ranks = static_cast<uint32_t>(ranks_);
  const uint32_t rows = static_cast<uint32_t>(rows_);
  switch (phases_[phase].kind) {
    case PhaseKind::kEmbed:
    case PhaseKind::kAllReduce:
    case PhaseKind::kRouterTopK: return ranks * rows;
    case PhaseKind::kNorm: {
      const bool fused = rows <= kMaxBlockRows && !std::holds_alternative<backend::RouterOp>(op);
      return fused ? 0 : ranks * rows;
    }
    case PhaseKind::kRound:
      return rows > kMaxBlockRows && UsesBF16(PlanOf(op).w) ? ranks * rows : 0;
    case PhaseKind::kMatmul: return MatmulItems(PlanOf(op));
    case PhaseKind::kAttendPrepare: return AttendPrepareItems();
    case PhaseKind::kAttend: return ranks * attend_items_;
    case PhaseKind::kAttendMerge: return store_parts_ ? ranks * rows : 0;
    case PhaseKind::kRouterMatmul: return RouterItems(std::get<backend::RouterOp>(op));
    case PhaseKind::kExpertsGateUp: {
      const auto& gate_up = std::get<backend::ExpertsGateUpOp>(op);
      ListExperts(gate_up);
      return ranks * static_cast<uint32_t>(active_count_) * expert_chunks_;
    }
    case PhaseKind::kExpertsDown: {
      const auto& down = std::get<backend::ExpertsDownOp>(op);
      return ranks * ExpertsDownItems(down);
    }
    case PhaseKind::kLogits: return LogitsItems(std::get<backend::LogitsOp>(op));
  }
  return kEnd;
}

void CpuContext::Run(uint32_t phase, uint32_t item, int worker) {
  const backend::Op& op = program_.ops[phases_[phase].op];
  switch (phases_[phase].kind) {
    case PhaseKind::kEmbed: return RunEmbed(std::get<backend::EmbedOp>(op), item);
    case PhaseKind::kNorm: return RunNorm(op, item);
    case PhaseKind::kRound: return RunRound(op, item);
    case PhaseKind::kMatmul: return RunMatmul(PlanOf(op), phase, item, worker);
    case PhaseKind::kAllReduce: return RunAllReduce(std::get<backend::AllReduceAddOp>(op), item);
    case PhaseKind::kAttendPrepare: return RunAttendPrepare(std::get<AttentionOp>(op), item);
    case PhaseKind::kAttend: return RunAttend(std::get<AttentionOp>(op), item, worker);
    case PhaseKind::kAttendMerge: return RunAttendMerge(std::get<AttentionOp>(op), item);
    case PhaseKind::kRouterMatmul:
      return RunRouterMatmul(std::get<backend::RouterOp>(op), item, worker);
    case PhaseKind::kRouterTopK: return RunTopK(std::get<backend::RouterOp>(op), item);
    case PhaseKind::kExpertsGateUp:
      return RunExpertsGateUp(std::get<backend::ExpertsGateUpOp>(op), phase, item, worker);
    case PhaseKind::kExpertsDown:
      return RunExpertsDown(std::get<backend::ExpertsDownOp>(op), phase, item, worker);
    case PhaseKind::kLogits: return RunLogits(std::get<backend::LogitsOp>(op), phase, item, worker);
  }
}

}  // namespace mainarch::cpu
