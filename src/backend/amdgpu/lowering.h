// SPDX-License-Identifier: MIT
//
// How an op becomes launches: a function an op, in ops/*.cc, and what they have in common. An op
// without one here is refused by its name (CheckProgram).
#ifndef MAINARCH_BACKEND_AMDGPU_LOWERING_H_
#define MAINARCH_BACKEND_AMDGPU_LOWERING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "absl/types/optional.h"
#include "backend/amdgpu/lower.h"
#include "kernels/experts_args.h"
#include "kernels/latent_args.h"

namespace mainarch::amdgpu {

inline uint32_t RoundUp(uint64_t n, uint32_t unit) {
  return static_cast<uint32_t>((n + unit - 1) / unit * unit);
}
inline uint32_t CeilDivide(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

// A matrix times rows, as one launch.
struct Product {
  backend::WeightId w;
  uint64_t in;  // split rows
  uint32_t in_stride;
  uint64_t out;
  uint32_t out_stride;
  bool gate_up = false;
  bool logits = false;
  bool exact = false;  // fp32 activations in every mode
  bool sums = false;   // who takes it adds what workgroups that share k leave
  bool beside = false;  // needs nothing of the launch before
  kernels::NormOf norm = {};
  absl::optional<kernels::GatingArgs> gating = absl::nullopt;  // of gate_up; none: silu(gate) * up
};
// Where a product is: [splits][rows, stride].
struct Sums {
  uint64_t at = 0;
  uint32_t splits = 1, rows = 0;
  kernels::NormOf norm = {};  // whose factor is not in them yet
};

template <class Args>
Launch MakeLaunch(absl::string_view kernel, const Args& args, uint32_t workers) {
  Launch launch;
  launch.kernel = std::string(kernel);
  launch.workers = workers;
  kernels::Kernarg<Args> kernarg;
  static_assert(offsetof(kernels::Kernarg<Args>, workers) == sizeof(kernarg) - 8);  // context_resident.cc changes it
  kernarg.args = args;
  kernarg.workers = workers;
  launch.args.resize(sizeof(kernarg));
  std::memcpy(launch.args.data(), &kernarg, sizeof(kernarg));
  return launch;
}

// Workgroups that share a value head's columns.
inline uint32_t DeltaGroups(const backend::GatedDeltaOp& op) {
  return CeilDivide(static_cast<uint64_t>(op.value_dim),
                    kernels::DeltaColumns(static_cast<uint32_t>(op.key_dim)));
}

// The launches of one rank, made op by op.
class Lowering {
 public:
  // For steps of up to `rows` rows.
  Lowering(const AmdGpuModel& model, const Shape& shape, const RankMemory& memory, int32_t rank,
           uint32_t rows);

  std::vector<Launch> Run();

  // `units` of work: a workgroup each, but for the most that a GPU is given. `resident`: of those
  // that wait for each other, and so must run at once.
  template <class Args>
  Launch& Add(absl::string_view kernel, const Args& args, uint64_t units, bool resident = false,
              When when = When::kAlways) {
    const uint64_t most = uint64_t{memory.compute_units} * (resident ? 1 : kGroupsPerUnit);
    Launch launch =
        MakeLaunch(kernel, args, static_cast<uint32_t>(std::clamp<uint64_t>(units, 1, most)));
    launch.when = when;
    launch.op = op_;
    pending.reduced.kernel = {};
    launches_.push_back(std::move(launch));
    return launches_.back();
  }

  const PlacedWeight& WeightOf(backend::WeightId id) const {
    return model_.weight(shape.options.program, rank, id);
  }
  uint64_t At(backend::BufferId id) const { return memory.buffers[static_cast<size_t>(id)]; }
  uint32_t Stride(backend::BufferId id) const { return shape.strides[static_cast<size_t>(id)]; }
  template <class Args>
  void SetStep(Args* args) const {
    args->step.address = memory.step;
  }
  const SlotShape& SlotsOf(int32_t cache) const { return shape.slots[static_cast<size_t>(cache)]; }
  // A layer's slot 0.
  uint64_t SlotsAt(int32_t cache, int32_t layer) const {
    const SlotShape& slots = SlotsOf(cache);
    return memory.slots[static_cast<size_t>(cache)] +
           static_cast<uint64_t>(layer) * slots.slots * slots.slot_bytes;
  }
  // Of a paged cache: a layer's page 0, and words from the first cache's page tables to its own.
  uint64_t PagesAt(int32_t cache, int32_t layer) const {
    const PoolShape& pool = shape.pools[static_cast<size_t>(cache)];
    return memory.kv[static_cast<size_t>(cache)] +
           static_cast<uint64_t>(layer) * pool.pages * pool.page_bytes;
  }
  uint32_t TablesAt(int32_t cache) const {
    return static_cast<uint32_t>(shape.pools[static_cast<size_t>(cache)].list) *
           shape.options.max_sequences * shape.table_words;
  }
  bool HasManyRows() const { return rows >= kManyRows; }
  // What products with a weight take of rows, if they are not exact: by its shape as well, but not by the number of rows or ranks.
  kernels::Taken TakenOf(const PlacedWeight& w) const {
    if (shape.options.activations == backend::Activations::kF32 || kernels::HasCodes(w.format)) return kernels::Taken::kBoth;
    const bool scaled = shape.options.activations == backend::Activations::kMxfp8 && memory.has_scaled_mfma;
    const bool has_kernel = w.format == kernels::TileFormat::kMxfp4 || w.fp8_blocks;
    return scaled && has_kernel ? kernels::Taken::kScaled : kernels::Taken::kRounded;
  }
  // The op before the one that is lowered, and the one behind it, or null.
  const backend::Op* Before() const {
    return op_ > 0 ? &program.ops[static_cast<size_t>(op_) - 1] : nullptr;
  }
  const backend::Op* Next(size_t further = 0) const;

  // The sums of squares of a buffer's rows, and its split rows.
  uint64_t SquaresOf(backend::BufferId x) const;
  uint64_t SplitOf(backend::BufferId x) const;
  // Who takes a product's sums: the op behind it, or the one behind that and its gate. Of heads: what norms or
  // widens all of them, or attention.
  bool GoesToHeads(backend::BufferId out) const;
  bool GoesToSum(const backend::MatmulOp& op) const;
  bool GoesToRowGate(const backend::NormMatmulOp& op) const;
  bool GoesToDelta(const backend::NormMatmulOp& op) const;
  // Whether the op before is a product of the same input, so that neither waits for the other.
  bool IsBeside(const backend::NormMatmulOp& op) const;
  // Split rows of what a product without a norm takes: the buffer itself, or those of x or an input as
  // it is.
  uint64_t FactorOf(backend::BufferId in);
  // What a kernel that writes rows of x leaves: split rows for the next op that norms or multiplies
  // them. Where x is written again before, nothing: what there is of the rows before stays, which
  // experts take.
  kernels::RowsOut RowsOf(backend::BufferId x);
  // The split rows of x with this norm, or with none, made again if the last that were made are for
  // another one.
  kernels::NormOf Norm(backend::BufferId x, backend::WeightId norm);
  // What a feed-forward makes of gate and up; nothing: silu(gate) * up. `groups`: experts.
  absl::optional<kernels::GatingArgs> GatingOf(backend::Activation activation,
                                               backend::WeightId gate_bias,
                                               backend::WeightId up_bias, int32_t groups) const;
  // For who takes heads: what their product has left of them in sums, or whole in `buffer`.
  template <class Args>
  void TakeHeads(backend::BufferId buffer, Args* args) {
    args->in.address = At(buffer);
    if (pending.heads.at != 0) {
      args->in.address = pending.heads.at;
      args->splits = pending.heads.splits;
      args->split_rows = pending.heads.rows;
      args->norm = pending.heads.norm;
    }
    pending.heads = {};
  }
  // Of a product's input.
  void AddNormed(backend::BufferId x, backend::WeightId norm, Product product);
  // What a kernel for many rows takes in place of the rows that `args` names, made by a launch of its own.
  void TakeRows(kernels::Taken taken, kernels::MatmulArgs* args);
  // By a kernel for many rows, where that is faster.
  static kernels::TallKind TallKindOf(const Product& product, const PlacedWeight& w);
  kernels::TallGrid TallGridOf(kernels::TallKind kind, const PlacedWeight& w, kernels::Taken taken) const;
  static uint64_t TilesOfTall(kernels::TallKind kind, const PlacedWeight& w, kernels::Taken taken);
  // Of all workgroups, in tiles as TilesOfTall counts them.
  uint64_t TimeOfTall(kernels::TallKind kind, const PlacedWeight& w, kernels::Taken taken) const;
  kernels::Taken TallTakenOf(const Product& product, const PlacedWeight& w, kernels::Taken taken) const;
  bool TallPays(const Product& product, const PlacedWeight& w, kernels::Taken taken) const;
  // The same of experts (ops/moe.cc).
  bool ExpertsTallPay(const PlacedWeight& up, const PlacedWeight& down) const;
  // Gate and up of few rows by two workgroups an output tile (kernels/ops/gate_up_half.h), where that is faster.
  bool GoesByHalves(const Product& product, const PlacedWeight& w) const;
  Launch& AddHalves(const Product& product, const PlacedWeight& w, kernels::MatmulArgs args, kernels::Taken taken);
  Launch& AddTall(const Product& product, const PlacedWeight& w, kernels::MatmulArgs args, kernels::Taken taken);
  void Add(const Product& product);
  // x += the sum of the ranks' partials, and what the next norm wants. `whole`: of this rank's
  // alone, which has all of the product, as every rank has.
  void ReduceInto(backend::BufferId x, bool whole = false, bool add = true);
  // Of one more launch that tells its sums.
  kernels::ToldWords NextTold();
  // The last launch, if it is the product that makes `in` of up to `most` rows, tells its sums instead, to a launch beside
  // it; else none.
  kernels::ToldWords Tell(uint64_t in, uint32_t stride, uint32_t most);
  size_t launches() const { return launches_.size(); }
  // Whether a launch of so many units has a workgroup for each, wherever the context's steps run.
  bool HasWorkers(uint64_t units) const {
    const bool stays = shape.options.resident != backend::ResidentMode::kOff;
    return units <= uint64_t{memory.compute_units} * (stays ? 1 : kGroupsPerUnit);
  }
  // Workgroups of a launch of `units` that runs beside the last one, and deals them out from its last workgroup on: where
  // the context's steps stay, as many more as the last one has, if there are places: who has no unit merges, and who has one
  // would begin to do so later (a step of Qwen3-8B then takes 1.6 % longer).
  uint64_t WorkersBeside(uint64_t units) const;
  // Rows of `width` numbers in RankMemory::partial, in place.
  void ReducePartial(uint32_t width);

  const backend::Program& program;
  const Shape& shape;
  const RankMemory& memory;
  const int32_t rank;
  const uint32_t rows, logit_rows;  // of a step, at most

  // What an op leaves to a later one.
  struct Pending {
    Sums sums;   // the last product's
    // Of the last launch, if it leaves sums: how it would be one with the all-reduce behind it.
    struct Reduced {
      absl::string_view kernel;  // empty: it would not
      std::variant<kernels::MatmulArgs, kernels::ExpertsAnyArgs> sums;
    };
    Reduced reduced;
    Sums heads;  // of the product that makes Q, K and V, until they are taken: the gate's may come behind it
    Sums gates;  // of a delta net
    backend::RouterOp router = {};
    kernels::RouteArgs route;  // experts 0: a launch of its own has chosen
    size_t route_launches = 0;  // there were so many behind the router's product
    uint32_t experts = 0;      // launches of experts so far
    backend::ExpertsGateUpOp gate_up = {};
  };
  Pending pending;

 private:
  // Workgroups of a launch at most, a compute unit: more only wait to be started.
  static constexpr uint32_t kGroupsPerUnit = 64;
  // Of a product, at least, if its k has parts enough: so many hide each other's latency.
  static constexpr uint32_t kProductGroupsPerUnit = 2;
  // From so many rows on there may be kernels for many.
  static constexpr uint32_t kManyRows = 33;

  // Of a reduction: where ranks meet. `alone`: it asks nobody.
  kernels::ReduceArgs ReduceOf(uint32_t width, bool alone);
  void AddReduce(const kernels::ReduceArgs& args);
  // In the launch of the product or the experts whose sums it adds up, in steps of few rows; false: there is none.
  bool JoinReduce(const kernels::ReduceArgs& args);
  // By how many workgroups k is shared.
  uint32_t SplitsOf(const PlacedWeight& w) const;
  // What the rows of x that the current op writes are wanted for.
  struct NextUse {
    bool multiplied = false;  // by a product, normed or not
    backend::WeightId norm = backend::kNone;
  };
  NextUse NextUseOf(backend::BufferId x) const;

  const AmdGpuModel& model_;
  std::vector<Launch> launches_;
  int32_t op_ = -1;
  uint32_t reduces_ = 0;
  uint32_t told_ = 0;  // launches that tell their sums
  std::vector<backend::WeightId> split_norms_;  // [buffer]: of what its split rows are for
};

void Emit(const backend::EmbedOp& op, Lowering* to);
void Emit(const backend::NormMatmulOp& op, Lowering* to);
void Emit(const backend::AttentionOp& op, Lowering* to);
void Emit(const backend::MatmulAddOp& op, Lowering* to);
void Emit(const backend::MatmulOp& op, Lowering* to);
void Emit(const backend::AllReduceAddOp& op, Lowering* to);
void Emit(const backend::NormGateUpOp& op, Lowering* to);
void Emit(const backend::RouterOp& op, Lowering* to);
void Emit(const backend::ExpertsGateUpOp& op, Lowering* to);
void Emit(const backend::ExpertsDownOp& op, Lowering* to);
void Emit(const backend::ExpertsBiasOp& op, Lowering* to);
void Emit(const backend::LogitsOp& op, Lowering* to);
void Emit(const backend::AddNormedOp& op, Lowering* to);
void Emit(const backend::AddBiasOp& op, Lowering* to);
void Emit(const backend::RowGateOp& op, Lowering* to);
void Emit(const backend::TapOp& op, Lowering* to);
void Emit(const backend::InputOp& op, Lowering* to);
void Emit(const backend::GatedDeltaOp& op, Lowering* to);
void Emit(const backend::WideNormOp& op, Lowering* to);
void Emit(const backend::ResizeHeadsOp& op, Lowering* to);
void Emit(const backend::HeadsMatmulOp& op, Lowering* to);
void Emit(const backend::LatentOp& op, Lowering* to);

// Of a cache of latents the op that makes what its attention takes, else null.
const backend::LatentOp* LatentOf(const backend::Program& program, int32_t cache);
void EmitAttendLatent(const backend::AttentionOp& op, Lowering* to);

Status CheckLatents(const backend::LatentOp& op, const backend::PagedCache& cache);
// ops/share.cc. Where this rank and the others that hold its KV head meet; nothing, where each attends alone.
kernels::AttendShare ShareOf(const backend::AttentionOp& op, const Lowering& to);
// Before shared attention, and behind it.
void EmitShareQueries(const backend::AttentionOp& op, const kernels::AttendShare& share, Lowering* to);
void EmitSharedMerge(const kernels::AttendMergeArgs& merge, const kernels::AttendShare& share, Lowering* to);
// Whether what these write is split rows: what a product takes.
bool LeavesSplit(const backend::Program& program, const backend::HeadsMatmulOp& op);
bool LeavesSplit(const backend::Program& program, const backend::AddNormedOp& op);

// What the kernels cannot do of ops that they have: Unsupported names it. `before`: the op before,
// or null.
Status CheckOp(const backend::Program& program, const backend::AttentionOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::MatmulOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::MatmulAddOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::AllReduceAddOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::AddNormedOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::AddBiasOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::WideNormOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::ResizeHeadsOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::RowGateOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::RouterOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::ExpertsDownOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::ExpertsBiasOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::TapOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::InputOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::GatedDeltaOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::HeadsMatmulOp& op,
               const backend::Op* before);
Status CheckOp(const backend::Program& program, const backend::LatentOp& op,
               const backend::Op* before);

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_LOWERING_H_
