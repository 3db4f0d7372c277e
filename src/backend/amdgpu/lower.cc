// SPDX-License-Identifier: MIT
#include "backend/amdgpu/lower.h"

#include <type_traits>

#include "backend/amdgpu/kernel_names.h"
#include "backend/amdgpu/long_context.h"
#include "backend/amdgpu/lowering.h"
#include "backend/ops_info.h"

namespace mainarch::amdgpu {

using backend::BufferId;
using backend::Program;

namespace {

// Ops that ops/*.cc have kernels for, and those of which they check more than that.
template <class T>
concept HasKernel = requires(const T& op, Lowering* to) { Emit(op, to); };
template <class T>
concept HasCheck = requires(const Program& program, const T& op, const backend::Op* before) {
  CheckOp(program, op, before);
};

// Those that read or make sums of squares of their x. Some write rows of any buffer: what norms or multiplies
// them is refused by itself.
template <class T>
concept IsResidual = requires(const T& op) { op.x; } && !std::is_same_v<T, backend::TapOp> &&
                     !std::is_same_v<T, backend::InputOp> &&
                     !std::is_same_v<T, backend::AddNormedOp> &&
                     !std::is_same_v<T, backend::AddBiasOp> &&
                     !std::is_same_v<T, backend::AllReduceAddOp>;

// Those that take their x, normed, into a product.
template <class T>
concept IsNormed = requires(const T& op) { op.x, op.norm; } &&
                   !std::is_same_v<T, backend::AddNormedOp>;

Status CheckCaches(const Program& program) {
  for (const backend::Cache& any : program.caches) {
    const auto* cache = std::get_if<backend::PagedCache>(&any);
    if (cache == nullptr) continue;
    const auto index = static_cast<int32_t>(&any - program.caches.data());
    if (const backend::LatentOp* latent = LatentOf(program, index); latent != nullptr) {
      RETURN_IF_ERROR(CheckLatents(*latent, *cache));
      continue;
    }
    if (!AttendKernel(kernels::KvFormat::kBF16, HeadsOf(*cache)).empty()) continue;
    if (cache->key_dim != cache->value_dim) {
      return Error(Code::kUnsupported, "keys of ", cache->key_dim, " and values of ", cache->value_dim,
                   ": the GPU kernels take one size, or 192 and 128");
    }
    return Error(Code::kUnsupported, "heads of ", cache->key_dim,
                 ": the GPU kernels take 32, 64, 96, 128, 192 and 256");
  }
  return OkStatus();
}

// Sums of squares are kept of x, and of what InputOps write.
Status CheckResidual(const Program& program, const backend::Op& op, BufferId x) {
  if (x == program.x || InputsOf(program)[static_cast<size_t>(x)]) return OkStatus();
  return Error(Code::kUnsupported, "op ", backend::OpName(op), " of \"",
               program.buffers[static_cast<size_t>(x)].label,
               "\": the GPU kernels have sums of squares of x and of inputs only");
}

// A tap lies twice, which no op but its own knows.
Status CheckTaps(const Program& program, const backend::Op& op) {
  if (program.taps.empty()) return OkStatus();
  const std::vector<bool> taps = TapsOf(program);
  const bool is_tap = std::holds_alternative<backend::TapOp>(op);
  const backend::OpUses uses = backend::UsesOf(program, op);
  for (const auto* ids : {&uses.reads, &uses.writes}) {
    for (const BufferId id : *ids) {
      if (!taps[static_cast<size_t>(id)] || (is_tap && ids == &uses.writes)) continue;
      return Error(Code::kUnsupported, "op ", backend::OpName(op), " of \"",
                   program.buffers[static_cast<size_t>(id)].label,
                   "\": the GPU kernels keep a tap for other contexts only");
    }
  }
  return OkStatus();
}

Status CheckOneOp(const Program& program, const backend::Op& op, const backend::Op* before) {
  return std::visit(
      [&](const auto& o) -> Status {
        using T = std::decay_t<decltype(o)>;
        if constexpr (!HasKernel<T>) {
          return Error(Code::kUnsupported, "op ", backend::OpName(op),
                       ": the GPU has no kernel for it");
        } else if constexpr (IsResidual<T>) {
          RETURN_IF_ERROR(CheckResidual(program, op, o.x));
        }
        if constexpr (HasKernel<T> && HasCheck<T>) {
          return CheckOp(program, o, before);
        } else {
          return OkStatus();
        }
      },
      op);
}

// Whether a product takes the buffer as it is, without a norm.
bool Multiplies(const backend::Op& op, BufferId buffer) {
  const auto* gate_up = std::get_if<backend::NormGateUpOp>(&op);
  return ProductWith(op, buffer) != backend::kNone ||
         (gate_up != nullptr && gate_up->x == buffer && gate_up->norm == backend::kNone);
}

// The norm with which an op takes x into a product, or none.
backend::WeightId NormOfX(const backend::Op& any, BufferId x) {
  return std::visit(
      [&](const auto& op) -> backend::WeightId {
        if constexpr (IsNormed<std::decay_t<decltype(op)>>) {
          if (op.x == x) return op.norm;
        }
        return backend::kNone;
      },
      any);
}

bool Writes(const Program& program, const backend::Op& op, BufferId buffer) {
  const std::vector<BufferId> writes = backend::UsesOf(program, op).writes;
  return std::find(writes.begin(), writes.end(), buffer) != writes.end();
}

// Experts take the split rows that their router took, though x may have become another in between:
// its rows of then must still be there.
Status CheckRouted(const Program& program, size_t router) {
  const auto& op = std::get<backend::RouterOp>(program.ops[router]);
  bool written = false;
  for (size_t i = router + 1; i < program.ops.size(); ++i) {
    const backend::Op& other = program.ops[i];
    const auto* up = std::get_if<backend::ExpertsGateUpOp>(&other);
    if (up != nullptr && up->h == op.h) return OkStatus();
    const backend::WeightId norm = NormOfX(other, op.x);
    const bool again = norm != backend::kNone && (written || norm != op.norm);
    if (again || std::holds_alternative<backend::RouterOp>(other) || Multiplies(other, op.x)) {
      return Error(Code::kUnsupported, "op ", backend::OpName(other), " of \"",
                   program.buffers[static_cast<size_t>(op.x)].label,
                   "\" between a router and its experts: the GPU kernels keep one norm of it");
    }
    written |= Writes(program, other, op.x);
  }
  return OkStatus();
}

// Weights whose input's parts lie as theirs do, from whole steps on: narrowed heads are put so.
std::vector<bool> LieApart(const Program& program) {
  std::vector<bool> out(program.weights.size());
  for (const backend::Op& op : program.ops) {
    const auto* resize = std::get_if<backend::ResizeHeadsOp>(&op);
    if (resize == nullptr) continue;
    for (const backend::Op& any : program.ops) {
      const backend::WeightId w = ProductWith(any, resize->out);
      if (w != backend::kNone) out[static_cast<size_t>(w)] = true;
    }
  }
  return out;
}

}  // namespace

Status CheckProgram(const Program& program) {
  RETURN_IF_ERROR(CheckCaches(program));
  const backend::Op* before = nullptr;
  for (const backend::Op& op : program.ops) {
    RETURN_IF_ERROR(CheckTaps(program, op));
    RETURN_IF_ERROR(CheckOneOp(program, op, before));
    if (std::holds_alternative<backend::RouterOp>(op)) {
      RETURN_IF_ERROR(CheckRouted(program, static_cast<size_t>(&op - program.ops.data())));
    }
    before = &op;
  }
  if (program.hidden % 8 != 0) {
    return Error(Code::kUnsupported, "hidden size ", program.hidden, " is not a multiple of 8");
  }
  // An expert of all tokens is not among those that the router chooses from.
  const int32_t chosen_from = program.experts - (program.shared_expert ? 1 : 0);
  if (chosen_from > static_cast<int32_t>(kernels::kRouterMaxExperts) ||
      program.experts_per_token > static_cast<int32_t>(kernels::kRouterMaxTop)) {
    return Error(Code::kUnsupported, chosen_from, " experts, ", program.experts_per_token,
                 " a token: the GPU kernels take ", kernels::kRouterMaxExperts, " and ",
                 kernels::kRouterMaxTop);
  }
  const std::vector<bool> apart = LieApart(program);
  for (size_t id = 0; id < program.weights.size(); ++id) {
    RETURN_IF_ERROR(CheckTiles(program.weights[id], apart[id]));
  }
  return OkStatus();
}

Status CheckKvType(const Program& program, backend::KvType type) {
  for (const backend::Op& op : program.ops) {
    const auto* attention = std::get_if<backend::AttentionOp>(&op);
    if (attention == nullptr || attention->near == backend::kNone) continue;
    const auto& near = std::get<backend::PagedCache>(program.caches[static_cast<size_t>(attention->near)]);
    const backend::PagedCache& far = backend::CacheOf(program, *attention);
    if (TypeOf(near, type) == backend::KvType::kFp8 && !AttendFarKernel(TypeOf(far, type), HeadsOf(far)).empty()) continue;
    return Error(Code::kUnsupported, "KV type ", quant::kKvTypeNames[static_cast<uint32_t>(TypeOf(far, type))],
                 " in cache \"", far.label, "\" beside ", quant::kKvTypeNames[static_cast<uint32_t>(TypeOf(near, type))],
                 ": the GPU kernels have fp4 and k8v4 beside fp8");
  }
  for (const backend::Cache& any : program.caches) {
    const auto* cache = std::get_if<backend::PagedCache>(&any);
    const auto index = static_cast<int32_t>(&any - program.caches.data());
    if (cache == nullptr || LatentOf(program, index) == nullptr || kernels::HoldsLatents(type)) continue;
    return Error(Code::kUnsupported, "KV type ", quant::kKvTypeNames[static_cast<uint32_t>(type)], " in cache \"",
                 cache->label, "\": the GPU kernels hold latents in bf16, fp8 and f32");
  }
  return OkStatus();
}

Lowering::Lowering(const AmdGpuModel& model, const Shape& shape, const RankMemory& memory,
                   int32_t rank, uint32_t rows)
    : program(backend::ProgramOf(model, shape.options)),
      shape(shape),
      memory(memory),
      rank(rank),
      rows(rows),
      logit_rows(std::min(rows, shape.options.max_logit_rows)),
      model_(model),
      split_norms_(program.buffers.size(), backend::kNone) {}

std::vector<Launch> Lowering::Run() {
  kernels::StepBeginArgs begin;
  begin.from.address = memory.host_step;
  begin.to.address = memory.step;
  begin.block_words = shape.step_words;
  begin.max_rows = shape.options.max_logit_rows;
  const uint64_t tokens = ExchangeOf(program, shape).tokens;
  for (int32_t r = 0; r < program.ranks; ++r) begin.tokens[r].address = memory.choices[r] + tokens;
  begin.recall.address = memory.recall;
  begin.rank = static_cast<uint32_t>(rank);
  begin.ranks = static_cast<uint32_t>(program.ranks);
  Add("step_begin", begin, 1);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    op_ = static_cast<int32_t>(i);
    std::visit(
        [this](const auto& op) {
          if constexpr (HasKernel<std::decay_t<decltype(op)>>) Emit(op, this);
        },
        program.ops[i]);
  }
  return std::move(launches_);
}

const backend::Op* Lowering::Next(size_t further) const {
  const size_t next = static_cast<size_t>(op_) + 1 + further;
  return next < program.ops.size() ? &program.ops[next] : nullptr;
}

uint64_t Lowering::SquaresOf(backend::BufferId x) const {
  const size_t at = static_cast<size_t>(x);
  const uint64_t own = at < memory.input_squares.size() ? memory.input_squares[at] : 0;
  return own != 0 ? own : memory.squares;
}

uint64_t Lowering::SplitOf(backend::BufferId x) const {
  const size_t at = static_cast<size_t>(x);
  const uint64_t own = at < memory.input_splits.size() ? memory.input_splits[at] : 0;
  return own != 0 ? own : memory.split;
}

uint64_t Lowering::FactorOf(backend::BufferId in) {
  if (LiesSplit(program, in)) return At(in);
  Norm(in, backend::kNone);
  return SplitOf(in);
}

Lowering::NextUse Lowering::NextUseOf(backend::BufferId x) const {
  for (size_t i = static_cast<size_t>(op_) + 1; i < program.ops.size(); ++i) {
    const backend::Op& op = program.ops[i];
    const backend::WeightId norm = NormOfX(op, x);
    if (norm != backend::kNone) return {true, norm};
    if (Multiplies(op, x)) return {true, backend::kNone};
    if (Writes(program, op, x)) break;
  }
  return {};
}

kernels::RowsOut Lowering::RowsOf(backend::BufferId x) {
  kernels::RowsOut out;
  out.x.address = At(x);
  const NextUse use = NextUseOf(x);
  if (!use.multiplied) return out;
  split_norms_[static_cast<size_t>(x)] = use.norm;
  out.squares.address = SquaresOf(x);
  out.split.address = SplitOf(x);
  if (use.norm != backend::kNone) out.norm.address = WeightOf(use.norm).vector;
  return out;
}

kernels::NormOf Lowering::Norm(backend::BufferId x, backend::WeightId norm) {
  backend::WeightId& made = split_norms_[static_cast<size_t>(x)];
  if (made != norm) {
    kernels::ResplitArgs args;
    SetStep(&args);
    args.x.address = At(x);
    args.split.address = SplitOf(x);
    if (norm != backend::kNone) args.norm.address = WeightOf(norm).vector;
    args.hidden = static_cast<uint32_t>(program.hidden);
    args.stride = shape.hidden_stride;
    args.chunks = shape.chunks;
    Add("resplit", args, uint64_t{rows} * shape.chunks);
    made = norm;
  }
  if (norm == backend::kNone) return {};
  kernels::NormOf out;
  out.squares.address = SquaresOf(x);
  out.chunks = shape.chunks;
  out.inverse_hidden = 1.0f / static_cast<float>(program.hidden);
  out.epsilon = program.rms_eps;
  return out;
}

std::vector<Launch> Lower(const AmdGpuModel& model, const Shape& shape, const RankMemory& memory,
                          int32_t rank, uint32_t rows) {
  return Lowering(model, shape, memory, rank, rows).Run();
}

Launch LowerTables(const Shape& shape, const RankMemory& memory) {
  kernels::StepTablesArgs args;
  args.changes.address = memory.host_step + uint64_t{2} * shape.step_words * 4;
  args.tables.address = memory.step + uint64_t{shape.step_words} * 4;
  return MakeLaunch("step_tables", args, CeilDivide(kListChanges, kernels::kThreads));
}

void SetChip(const gpu::Device& device, RankMemory* memory) {
  memory->compute_units = ComputeUnits(device);
  memory->has_scaled_mfma = device.chip().has_scaled_mfma;
  memory->has_tiled_rows = HasTiledRows(device.chip());
}

uint32_t ComputeUnits(const gpu::Device& device) {
  const kfd::NodeProperties& p = device.node().properties;
  return static_cast<uint32_t>(p.simd_count / std::max<uint64_t>(1, p.simd_per_cu));
}

}  // namespace mainarch::amdgpu
