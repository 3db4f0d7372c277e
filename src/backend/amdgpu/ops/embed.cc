// SPDX-License-Identifier: MIT
//
// Rows of the embedding, of tokens that the host or the step before has chosen.
#include "backend/amdgpu/lowering.h"

namespace mainarch::amdgpu {

void Emit(const backend::EmbedOp& op, Lowering* to) {
  kernels::EmbedArgs args;
  to->SetStep(&args);
  args.table.address = to->WeightOf(op.table).table;
  args.out = to->RowsOf(op.x);
  args.hidden = static_cast<uint32_t>(to->program.hidden);
  args.stride = to->shape.hidden_stride;
  args.chunks = to->shape.chunks;
  args.is_f32 = to->WeightOf(op.table).table_is_f32;
  args.tokens.address = to->memory.choices[to->rank] + ExchangeOf(to->program, to->shape).tokens;
  args.max_rows = to->shape.options.max_logit_rows;
  args.scale = op.scale;
  to->Add("embed", args, uint64_t{to->rows} * to->shape.chunks);
}

}  // namespace mainarch::amdgpu
