// SPDX-License-Identifier: MIT
//
// Products with a weight, of x normalised or of a buffer.
#include <algorithm>

#include "backend/amdgpu/kernel_names.h"
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {
namespace {

// Products take split rows, which only some ops leave.
Status CheckSplitInput(const backend::Program& program, backend::BufferId in) {
  const bool taken = std::any_of(program.ops.begin(), program.ops.end(), [&](const backend::Op& op) {
    const auto* input = std::get_if<backend::InputOp>(&op);
    return input != nullptr && input->x == in;
  });
  if (taken || LiesSplit(program, in)) return OkStatus();
  return Error(Code::kUnsupported, "a product with \"",
               program.buffers[static_cast<size_t>(in)].label,
               "\": the GPU kernels multiply with what attention, gate-up and inputs leave");
}

// Whether a product's sums go to the op that adds them, or else into the buffer that it names.
bool IsAdded(const backend::Program& program, backend::BufferId partial) {
  if (partial == backend::kNone) return true;
  return std::any_of(program.ops.begin(), program.ops.end(), [&](const backend::Op& op) {
    const auto* reduce = std::get_if<backend::AllReduceAddOp>(&op);
    const auto* added = std::get_if<backend::AddNormedOp>(&op);
    return (reduce != nullptr && reduce->partial == partial) || (added != nullptr && added->y == partial);
  });
}

}  // namespace

uint32_t Lowering::SplitsOf(const PlacedWeight& w) const {
  if (rows > kernels::kSplitRows) return 1;
  const uint32_t least = kProductGroupsPerUnit * memory.compute_units;
  // Leaves that are not all whole tiles are asked for one after the other: of small ones a wave is to
  // have one.
  constexpr uint32_t kSmallLeaf = 4, kMostGroupsPerUnit = 16;
  const uint32_t leaf = CeilDivide(kernels::TilesOf(w.format, w.tiles.steps),
                                   uint64_t{w.tiles.parts} * kernels::kPartLeaves);
  const uint32_t most =
      leaf < kSmallLeaf && w.tiles.leaf_tiles == 0 ? kMostGroupsPerUnit * memory.compute_units : least;
  uint32_t splits = 1;
  while (splits < w.tiles.parts && w.tiles.outputs * splits < most) splits *= 2;
  return splits;
}

void Lowering::AddNormed(backend::BufferId x, backend::WeightId norm, Product product) {
  product.norm = Norm(x, norm);
  product.in = SplitOf(x);
  Add(product);
}

void Lowering::Add(const Product& m) {
  const PlacedWeight& w = WeightOf(m.w);
  pending.sums = {m.out};
  if (m.sums) pending.sums.splits = SplitsOf(w);
  if (pending.sums.splits > 1) {
    pending.sums.at = memory.sums;
    pending.sums.rows = shape.sum_rows;
    pending.sums.norm = m.norm;
  }
  kernels::MatmulArgs args;
  SetStep(&args);
  args.x.address = m.in;
  args.out.address = pending.sums.at;
  args.w = w.tiles;
  if (pending.sums.splits == 1) args.norm = m.norm;
  args.x_stride = m.in_stride;
  args.out_stride = m.out_stride;
  args.flags = m.logits ? uint32_t{kernels::kMatmulLogitRows} : 0;
  args.parity_rows = m.logits ? shape.options.max_logit_rows : 0;
  args.rows = m.logits ? logit_rows : rows;
  args.splits = pending.sums.splits;
  args.split_rows = pending.sums.rows;
  const bool rounded = Rounds() && !m.exact;
  Launch& launch =
      Add(m.gate_up ? GateUpKernel(w.format, rounded) : MatmulKernel(w.format, rounded), args,
          uint64_t{w.tiles.outputs} * args.splits * CeilDivide(args.rows, kernels::kTileRows));
  launch.beside = m.beside;
}

// The product of its gate, which leaves no sums, may lie between.
bool Lowering::GoesToAttention(const backend::NormMatmulOp& op) const {
  const backend::Op* next = Next();
  const auto* gate = next == nullptr ? nullptr : std::get_if<backend::NormMatmulOp>(next);
  if (gate != nullptr) next = Next(1);
  const auto* attention = next == nullptr ? nullptr : std::get_if<backend::AttentionOp>(next);
  if (attention == nullptr || attention->qkv != op.out) return false;
  return gate == nullptr || gate->out == attention->gate;
}

bool Lowering::GoesToRowGate(const backend::NormMatmulOp& op) const {
  const auto* gate = Next() == nullptr ? nullptr : std::get_if<backend::RowGateOp>(Next());
  return gate != nullptr && gate->gate == op.out;
}

// Its gates: of few outputs, and long.
bool Lowering::GoesToDelta(const backend::NormMatmulOp& op) const {
  const auto* delta = Next() == nullptr ? nullptr : std::get_if<backend::GatedDeltaOp>(Next());
  return delta != nullptr && delta->gates == op.out && delta->in != op.out;
}

bool Lowering::IsBeside(const backend::NormMatmulOp& op) const {
  const auto* other = Before() == nullptr ? nullptr : std::get_if<backend::NormMatmulOp>(Before());
  return other != nullptr && other->x == op.x && other->norm == op.norm && other->out != op.out &&
         other->out != op.x;
}

void Emit(const backend::NormMatmulOp& op, Lowering* to) {
  Product product = {op.w, 0, to->Stride(op.x), to->At(op.out), to->Stride(op.out)};
  const bool to_attention = to->GoesToAttention(op);
  product.sums = to_attention || to->GoesToRowGate(op) || to->GoesToDelta(op);
  // What the product before left as sums is not written over while it is being made.
  product.beside = to->IsBeside(op) && (!product.sums || to->pending.sums.splits == 1);
  to->AddNormed(op.x, op.norm, product);
  if (to_attention) to->pending.heads = to->pending.sums;
  if (to->GoesToDelta(op)) to->pending.gates = to->pending.sums;
}

void Emit(const backend::NormGateUpOp& op, Lowering* to) {
  Product product = {op.w, 0, to->Stride(op.x), to->At(op.act), to->Stride(op.act)};
  product.gate_up = true;
  to->AddNormed(op.x, op.norm, product);
}

void Emit(const backend::MatmulOp& op, Lowering* to) {
  Product product = {op.w, to->FactorOf(op.in), to->Stride(op.in), to->memory.partial,
                     to->shape.hidden_stride};
  product.sums = IsAdded(to->program, op.partial);
  if (!product.sums) {
    product.out = to->At(op.partial);
    product.out_stride = to->Stride(op.partial);
  }
  to->Add(product);
}

void Emit(const backend::MatmulAddOp& op, Lowering* to) {
  Emit(backend::MatmulOp{op.in, op.w, backend::kNone}, to);
  to->ReduceInto(op.x, /*whole=*/true);
}

Status CheckOp(const backend::Program& program, const backend::MatmulOp& op, const backend::Op*) {
  return CheckSplitInput(program, op.in);
}
Status CheckOp(const backend::Program& program, const backend::MatmulAddOp& op,
               const backend::Op*) {
  return CheckSplitInput(program, op.in);
}

}  // namespace mainarch::amdgpu
