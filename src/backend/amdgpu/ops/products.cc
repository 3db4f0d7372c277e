// SPDX-License-Identifier: MIT
//
// Products with a weight, of x normalised or of a buffer.
#include "backend/amdgpu/kernel_names.h"
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {
namespace {

// The launch of this product is made with that of the attention behind it.
bool MakesHeads(const backend::NormMatmulOp& op, const Lowering& to) {
  const backend::Op* next = to.Next();
  const auto* attention = next == nullptr ? nullptr : std::get_if<backend::AttentionOp>(next);
  if (attention == nullptr || attention->qkv != op.out) return false;
  const PlacedWeight& w = to.WeightOf(op.w);
  QkvForm form;
  form.format = w.format;
  form.kv = to.shape.kv;
  form.head_dim = to.shape.heads.cache.key_dim;
  form.heads = static_cast<uint32_t>(attention->heads + 2 * to.shape.heads.cache.kv_heads);
  form.steps = w.tiles.steps;
  form.rows = to.rows;
  form.rounded = to.Rounds();
  form.compute_units = to.memory.compute_units;
  return FusesQkv(form);
}

}  // namespace

kernels::MatmulArgs Lowering::ArgsOf(const Product& m) const {
  const PlacedWeight& w = WeightOf(m.w);
  kernels::MatmulArgs args;
  SetStep(&args);
  args.x.address = m.in;
  args.out.address = m.out;
  args.w = w.tiles;
  args.norm = m.norm;
  args.x_stride = m.in_stride;
  args.out_stride = m.out_stride;
  args.flags = m.logits ? uint32_t{kernels::kMatmulLogitRows} : 0;
  args.parity_rows = m.logits ? shape.options.max_logit_rows : 0;
  return args;
}

void Lowering::Add(const Product& m) {
  const PlacedWeight& w = WeightOf(m.w);
  const bool rounded = Rounds() && !m.exact;
  Add(m.gate_up ? GateUpKernel(w.format, rounded) : MatmulKernel(w.format, rounded), ArgsOf(m),
      uint64_t{w.tiles.outputs} * CeilDivide(m.logits ? logit_rows : rows, kernels::kTileRows));
}

void Emit(const backend::NormMatmulOp& op, Lowering* to) {
  const Product product = {op.w,
                           to->At(op.x),
                           to->Stride(op.x),
                           to->At(op.out),
                           to->Stride(op.out),
                           /*gate_up=*/false,
                           /*logits=*/false,
                           to->Norm(op.x, op.norm)};
  // The attention op makes the launch for both.
  if (MakesHeads(op, *to)) {
    to->pending.heads = to->ArgsOf(product);
    to->pending.qkv = op.w;
    return;
  }
  to->Add(product);
}

void Emit(const backend::NormGateUpOp& op, Lowering* to) {
  to->Add(Product{op.w, to->At(op.x), to->Stride(op.x), to->At(op.act), to->Stride(op.act),
                  /*gate_up=*/true, /*logits=*/false, to->Norm(op.x, op.norm)});
}

void Emit(const backend::MatmulOp& op, Lowering* to) {
  to->Add(Product{op.w, to->At(op.in), to->Stride(op.in), to->memory.partial,
                  to->shape.hidden_stride});
}

void Emit(const backend::MatmulAddOp& op, Lowering* to) {
  Emit(backend::MatmulOp{op.in, op.w, backend::kNone}, to);
  to->ReduceInto(op.x, /*whole=*/true);
}

}  // namespace mainarch::amdgpu
