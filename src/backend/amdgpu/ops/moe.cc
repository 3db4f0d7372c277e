// SPDX-License-Identifier: MIT
//
// A mixture of experts: the router's product and choice, then both products of the chosen.
#include <algorithm>
#include <cmath>

#include "backend/amdgpu/kernel_names.h"
#include "backend/amdgpu/lowering.h"
#include "backend/amdgpu/tiles.h"
#include "kernels/experts_args.h"

namespace mainarch::amdgpu {
namespace {

// Whether the softmax of its logits is all that a router goes by.
bool IsPlain(const backend::RouterOp& op) {
  return !op.sigmoid && op.bias == backend::kNone && op.correction == backend::kNone &&
         op.groups == op.chosen_groups && op.scale == 1;
}

// Whether experts' workgroups choose for themselves: of few rows, whose choices nobody else wants. No op lies
// between that might write over the router's sums.
bool RoutesHere(const Lowering& to, const backend::RouterOp& op) {
  return IsPlain(op) && to.rows <= kernels::kRouteHereRows && to.Next() != nullptr &&
         std::holds_alternative<backend::ExpertsGateUpOp>(*to.Next()) &&
         std::none_of(to.program.ops.begin(), to.program.ops.end(), [&](const backend::Op& any) {
           const auto* bias = std::get_if<backend::ExpertsBiasOp>(&any);
           return bias != nullptr && bias->ids == op.ids;
         });
}

// Launches of experts in a step.
uint32_t ExpertsOf(const backend::Program& program) {
  return static_cast<uint32_t>(
      std::count_if(program.ops.begin(), program.ops.end(), [](const backend::Op& any) {
        return std::holds_alternative<backend::ExpertsDownOp>(any);
      }));
}

// How many experts so many rows choose, if all are as likely.
double ChosenBy(double rows, double top, double experts) { return experts * (1 - std::pow(1 - top / experts, rows)); }

// Rows are grouped by expert; gate and up are made of each group, and down of blocks of rows.
void EmitTall(const kernels::ExpertsArgs& experts, const PlacedWeight& up, const PlacedWeight& down,
              const absl::optional<kernels::GatingArgs>& gating, Lowering* to) {
  kernels::ExpertsGroupArgs group;
  to->SetStep(&group);
  group.ids = experts.ids;
  group.lists.address = to->memory.expert_lists;
  group.experts = experts.experts;
  group.top = experts.top;
  group.most_rows = experts.most_rows;
  to->Add("experts_group", group, CeilDivide(group.experts, kernels::kWaves));
  kernels::ExpertsTallArgs tall;
  kernels::MatmulArgs& product = tall.any.product;
  to->SetStep(&product);
  product.x = experts.x;
  product.out = experts.act;
  product.w = experts.gate_up;
  product.norm = experts.norm;
  product.x_stride = experts.x_stride;
  product.out_stride = experts.act_stride;
  product.rows = experts.most_rows;
  const kernels::Taken taken = to->TakenOf(up);
  if (taken == kernels::Taken::kScaled) to->TakeRows(taken, &product);
  if (gating) tall.any.gating = *gating;
  tall.lists.address = group.lists.address;
  tall.stride = experts.gate_up_stride;
  tall.scale_stride = experts.gate_up_scale_stride;
  tall.experts = experts.experts;
  tall.top = experts.top;
  constexpr kernels::TallKind kKind = kernels::TallKind::kGateUp;
  const uint64_t groups = CeilDivide(product.w.outputs, kernels::TallOutputs(kKind));
  to->Add(ExpertsTallKernel(up.format, gating.has_value(), taken), tall,
          groups * tall.experts * CeilDivide(to->rows, kernels::TallRowsOf(up.format, up.tiles, kKind, taken)));
  const uint64_t units = CeilDivide(experts.down.outputs, kernels::TallGrid::kDies) * kernels::TallGrid::kDies;
  to->Add(ExpertsTallDownKernel(down.format, taken), kernels::ExpertsTallDownArgs{experts, {group.lists.address}},
          units * kernels::ExpertBlocks(experts.most_rows));
}

}  // namespace

bool Lowering::ExpertsTallPay(const PlacedWeight& up, const PlacedWeight& down) const {
  const kernels::TallKind kind = kernels::TallKind::kGateUp;
  const kernels::Taken taken = TakenOf(up);
  if (!HasManyRows() || !kernels::TallTakes(up.format, up.tiles, kind, taken)) return false;
  if (ExpertsTallDownKernel(down.format, taken).empty() || down.tiles.outputs == 0) return false;
  const double experts = program.experts, top = program.experts_per_token, all = rows, outputs = up.tiles.outputs;
  const double blocks = static_cast<double>(CeilDivide(rows, kernels::kTileRows));
  const double tiles = 2 * outputs * blocks * ChosenBy(kernels::kTileRows, top, experts);
  const double groups = static_cast<double>(CeilDivide(up.tiles.outputs, kernels::TallOutputs(kind)));
  const double units = groups * (ChosenBy(all, top, experts) + all * top / kernels::TallRowsOf(up.format, up.tiles, kind, taken));
  return units * static_cast<double>(TilesOfTall(kind, up, taken)) <= tiles;
}

void Emit(const backend::RouterOp& op, Lowering* to) {
  to->pending.router = op;
  Product product = {op.w, 0, to->Stride(op.x), to->memory.router_logits,
                     to->shape.router_stride};
  product.exact = product.sums = true;
  to->AddNormed(op.x, op.norm, product);
  kernels::RouteArgs args;
  to->SetStep(&args);
  args.router.logits.address = to->pending.sums.at;
  args.splits = to->pending.sums.splits;
  args.split_rows = to->pending.sums.rows;
  args.norm = to->pending.sums.norm;
  args.router.ids.address = to->At(op.ids);
  args.router.weights.address = to->At(op.weights);
  args.shared = to->program.shared_expert ? 1 : 0;
  args.router.experts = static_cast<uint32_t>(to->program.experts) - args.shared;
  args.router.top = static_cast<uint32_t>(to->program.experts_per_token) - args.shared;
  args.router.renormalise = op.renormalise;
  args.stride = to->shape.router_stride;
  to->pending.route = {};
  if (RoutesHere(*to, op)) {
    if (args.router.experts <= kernels::kToldExperts) {
      args.told = to->Tell(args.router.logits.address, args.stride, /*most=*/1);
    }
    to->pending.route = args;
    to->pending.route_launches = to->launches();
    return;
  }
  const uint64_t workgroups = CeilDivide(to->rows, kernels::kWaves);
  if (IsPlain(op)) {
    to->Add("route", args, workgroups);
    return;
  }
  kernels::RouteScoredArgs scored;
  scored.route = args;
  if (op.bias != backend::kNone) scored.bias.address = to->WeightOf(op.bias).vector;
  if (op.correction != backend::kNone) {
    scored.correction.address = to->WeightOf(op.correction).vector;
  }
  scored.sigmoid = op.sigmoid;
  scored.groups = static_cast<uint32_t>(op.groups);
  scored.chosen_groups = static_cast<uint32_t>(op.chosen_groups);
  scored.scale = op.scale;
  to->Add("route_scored", scored, workgroups);
}

// That weights are not negative is what tells the experts' kernel who is chosen.
Status CheckOp(const backend::Program& program, const backend::RouterOp& op, const backend::Op*) {
  const int32_t experts = program.experts - (program.shared_expert ? 1 : 0);
  const auto most = static_cast<int32_t>(kernels::kRouterMaxGroups);
  if (op.groups < 1 || op.groups > most) {
    return Error(Code::kUnsupported, "op router with ", op.groups,
                 " groups of experts: the GPU kernels take ", most);
  }
  if (op.chosen_groups < op.groups && (experts % op.groups != 0 || experts / op.groups < 2)) {
    return Error(Code::kUnsupported, "op router with ", experts, " experts in ", op.groups,
                 " groups: the GPU kernels take groups of equally many, at least two");
  }
  if (op.scale > 0) return OkStatus();
  return Error(Code::kUnsupported, "op router with weights times ", op.scale,
               ": the GPU kernels take a factor above 0");
}

// Both products are one launch, which the second op makes.
void Emit(const backend::ExpertsGateUpOp& op, Lowering* to) { to->pending.gate_up = op; }

void Emit(const backend::ExpertsDownOp& op, Lowering* to) {
  const PlacedWeight& up = to->WeightOf(to->pending.gate_up.w);
  const PlacedWeight& down = to->WeightOf(op.w);
  kernels::ExpertsArgs args;
  to->SetStep(&args);
  args.norm = to->Norm(to->pending.router.x, to->pending.router.norm);
  args.x.address = to->SplitOf(to->pending.router.x);
  args.ids.address = to->At(op.ids);
  args.weights.address = to->At(op.weights);
  args.act.address = to->At(op.act);
  args.out.address = to->memory.partial;
  args.arrivals.address = to->memory.arrivals;
  args.gate_up = up.tiles;
  args.down = down.tiles;
  args.gate_up_stride = up.group_bytes;
  args.gate_up_scale_stride = up.group_scale_bytes;
  args.down_stride = down.group_bytes;
  args.down_scale_stride = down.group_scale_bytes;
  args.x_stride = to->Stride(to->pending.router.x);
  args.act_stride = to->Stride(op.act);
  args.out_stride = to->shape.hidden_stride;
  args.top = static_cast<uint32_t>(to->program.experts_per_token);
  args.experts = static_cast<uint32_t>(to->program.experts);
  args.most_rows = to->rows;
  args.turn = to->pending.experts++;
  args.turns = ExpertsOf(to->program);
  args.route = to->pending.route;
  to->pending.sums = {to->memory.partial};
  const uint64_t blocks = CeilDivide(to->rows, kernels::kTileRows);
  const uint64_t most = std::min<uint64_t>(args.experts, uint64_t{to->rows} * args.top);
  // Of one row gate and up may be two workgroups (Experts::GateUpApart).
  const uint64_t apart = to->rows <= kernels::kApartRows ? 2 : 1;
  const uint64_t units = std::max<uint64_t>(most * args.gate_up.outputs * apart, args.down.outputs);
  const uint64_t workers = std::min<uint64_t>(units * blocks, kernels::kMostArrivals);
  const backend::ExpertsGateUpOp& gate_up = to->pending.gate_up;
  const auto gating = to->GatingOf(gate_up.activation, gate_up.gate_bias, gate_up.up_bias,
                                   to->program.experts);
  // Beside the router's product, whose words they wait for.
  const kernels::Taken taken = to->TakenOf(up);
  const bool beside = args.route.told.turns != 0 && to->pending.route_launches == to->launches();
  if (to->ExpertsTallPay(up, down)) {
    EmitTall(args, up, down, gating, to);
    to->pending.reduced = {};
  } else if (gating) {
    const kernels::ExpertsAnyArgs any = {args, *gating};
    to->Add(ExpertsAnyKernel(up.format, down.format, taken), any, workers, /*resident=*/true).beside = beside;
    to->pending.reduced = {ExpertsReduceAnyKernel(up.format, down.format, taken), any};
  } else {
    to->Add(ExpertsKernel(up.format, down.format, taken), args, workers, /*resident=*/true).beside = beside;
    to->pending.reduced = {ExpertsReduceKernel(up.format, down.format, taken), kernels::ExpertsAnyArgs{args, {}}};
  }
  if (op.add) to->ReduceInto(to->program.x);
}

Status CheckOp(const backend::Program& program, const backend::ExpertsDownOp& op,
               const backend::Op* before) {
  const auto weight = [&](backend::WeightId id) -> const backend::Weight& {
    return program.weights[static_cast<size_t>(id)];
  };
  const auto have_kernel = [](const backend::Weight& up, const backend::Weight& down) {
    bool out = true;
    for (size_t rank = 0; out && rank < down.ranks.size(); ++rank) {
      const int32_t r = static_cast<int32_t>(rank);
      out = !ExpertsKernel(PlanTiles(up, r, 0).format, PlanTiles(down, r, 0).format, kernels::Taken::kBoth).empty();
    }
    return out;
  };
  const auto* up = before == nullptr ? nullptr : std::get_if<backend::ExpertsGateUpOp>(before);
  if (up != nullptr && have_kernel(weight(up->w), weight(op.w))) return OkStatus();
  return Error(Code::kUnsupported, program.weights[static_cast<size_t>(op.w)].label,
               ": the experts' two products must have weights of one format, or of codes of four and of eight bits");
}

// Once, not once a rank: behind the sum over ranks, which all of them have.
void Emit(const backend::ExpertsBiasOp& op, Lowering* to) {
  kernels::ExpertsBiasArgs args;
  to->SetStep(&args);
  args.ids.address = to->At(op.ids);
  args.weights.address = to->At(op.weights);
  args.bias.address = to->WeightOf(op.bias).vector;
  args.out = to->RowsOf(op.x);
  args.hidden = static_cast<uint32_t>(to->program.hidden);
  args.stride = to->shape.hidden_stride;
  args.chunks = to->shape.chunks;
  args.top = static_cast<uint32_t>(to->program.experts_per_token);
  to->Add("experts_bias", args, uint64_t{to->rows} * to->shape.chunks);
}

// Choices lie one row behind the other where experts take them (ShapeOf).
Status CheckOp(const backend::Program& program, const backend::ExpertsBiasOp& op,
               const backend::Op*) {
  for (const backend::Op& any : program.ops) {
    const auto* down = std::get_if<backend::ExpertsDownOp>(&any);
    if (down != nullptr && down->ids == op.ids && down->weights == op.weights) return OkStatus();
  }
  return Error(Code::kUnsupported, "op experts_bias of \"",
               program.buffers[static_cast<size_t>(op.ids)].label,
               "\": the GPU kernels take what experts were chosen by");
}

}  // namespace mainarch::amdgpu
