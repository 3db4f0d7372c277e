// SPDX-License-Identifier: MIT
//
// This rank's share of the logits, and the choice of tokens from all shares.
#include "backend/amdgpu/lowering.h"
#include "kernels/choice_args.h"
#include "kernels/common/draw.h"

namespace mainarch::amdgpu {

void Emit(const backend::LogitsOp& op, Lowering* to) {
  Product product = {op.w, 0, to->Stride(op.x), to->memory.logits, to->shape.share_stride};
  product.logits = true;
  to->AddNormed(op.x, op.norm, product);
  const VocabShare share = ShareOf(to->program, to->rank);
  const ChoiceExchange exchange = ExchangeOf(to->program, to->shape);
  kernels::ChooseArgs args;
  to->SetStep(&args);
  args.logits.address = to->memory.logits;
  args.host_logits.address = to->memory.host_logits;
  args.results.address = to->memory.results;
  args.teams.address = to->memory.teams;
  args.fields.address = to->memory.fields;
  args.races.address = to->memory.races;
  for (uint32_t r = 0; r < kernels::kMaxRanks; ++r) {
    args.values[r].address = to->memory.choices[r] + exchange.values;
    args.found[r].address = to->memory.choices[r] + exchange.found;
    args.flags[r].address = to->memory.choices[r] + exchange.flags;
    args.tokens[r].address = to->memory.choices[r] + exchange.tokens;
  }
  args.vocab = static_cast<uint32_t>(to->program.logit_width());
  args.vocab_stride = to->shape.logits_stride;
  args.share = share.count;
  args.share_first = share.first;
  args.share_stride = to->shape.share_stride;
  args.chunks = to->shape.choice_chunks;
  args.slots = to->shape.choice_slots;
  args.ranks = static_cast<uint32_t>(to->program.ranks);
  args.rank = static_cast<uint32_t>(to->rank);
  args.mass_shift = kernels::MassShift(args.vocab);
  args.max_rows = to->shape.options.max_logit_rows;
  const uint32_t owned = CeilDivide(to->logit_rows, args.ranks);
  const bool apart = owned > to->memory.compute_units;
  if (apart) args.part = kernels::kChooseTell;
  to->Add("choose_share", args, uint64_t{to->logit_rows} * args.chunks);
  if (apart) {
    args.part = kernels::kChooseWait;
    to->Add("choose_share", args, owned);
  }
  const uint64_t chunks = uint64_t{owned} * CeilDivide(args.vocab, kernels::kChoiceChunk);
  to->Add("choose_narrow", args, chunks, /*resident=*/true, When::kRaces);
  to->Add("choose_race", args, chunks, /*resident=*/true, When::kRaces);
}

}  // namespace mainarch::amdgpu
