// SPDX-License-Identifier: MIT
//
// What a whole step moves and computes, on all ranks, from backend::CostOf. Weight bytes are as
// stored in the checkpoint; the bytes of experts are those of as many as the rows can hit, so on
// batches they are an upper bound. Activations are not counted.
#ifndef MAINARCH_CLI_STEP_COST_H_
#define MAINARCH_CLI_STEP_COST_H_

#include <cstdint>

#include "backend/backend.h"
#include "backend/program.h"

namespace mainarch::cli {

// One op of a decode step: `batch` sequences, each one row at position `context`.
backend::Cost OpCost(const backend::Program& program, const backend::Op& op, int64_t batch,
                     int64_t context, backend::KvType kv);
// All ops; `all_reduces` are those of one rank.
backend::Cost StepCost(const backend::Program& program, int64_t batch, int64_t context,
                       backend::KvType kv);
// `tokens` of one sequence from position 0 in steps of at most `chunk`, logits of the last.
backend::Cost PrefillCost(const backend::Program& program, int64_t tokens, int64_t chunk,
                          backend::KvType kv);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_STEP_COST_H_
