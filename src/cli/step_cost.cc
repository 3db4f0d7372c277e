// SPDX-License-Identifier: MIT
#include "cli/step_cost.h"

#include <algorithm>

namespace mainarch::cli {
namespace {

using backend::Cost;

// CostOf counts 2 bytes an element.
uint64_t KvBytes(uint64_t at_two, const backend::Program& program, backend::KvType kv) {
  if (kv == backend::KvType::kF32) return at_two * 2;
  if (kv == backend::KvType::kBF16) return at_two;
  const uint64_t dim = static_cast<uint64_t>(program.head_dim);
  return at_two / 2 * (dim + 4) / dim;  // a byte an element and an fp32 scale a head
}

Cost Times(Cost cost, uint64_t ranks) {
  cost.weight_bytes *= ranks;
  cost.kv_bytes *= ranks;
  cost.flops *= ranks;
  return cost;
}

void Add(const Cost& more, Cost* sum) {
  sum->weight_bytes += more.weight_bytes;
  sum->kv_bytes += more.kv_bytes;
  sum->flops += more.flops;
  sum->all_reduces += more.all_reduces;
}

}  // namespace

Cost OpCost(const backend::Program& program, const backend::Op& op, int64_t batch, int64_t context,
            backend::KvType kv) {
  const uint64_t ranks = static_cast<uint64_t>(program.ranks);
  if (!std::holds_alternative<backend::AttentionOp>(op)) {
    return Times(backend::CostOf(program, op, batch, context), ranks);
  }
  // Every sequence has a context of its own.
  Cost cost = Times(backend::CostOf(program, op, 1, context), ranks * static_cast<uint64_t>(batch));
  cost.kv_bytes = KvBytes(cost.kv_bytes, program, kv);
  return cost;
}

Cost StepCost(const backend::Program& program, int64_t batch, int64_t context, backend::KvType kv) {
  Cost sum;
  for (const backend::Op& op : program.ops) Add(OpCost(program, op, batch, context, kv), &sum);
  return sum;
}

Cost PrefillCost(const backend::Program& program, int64_t tokens, int64_t chunk,
                 backend::KvType kv) {
  Cost sum;
  const uint64_t ranks = static_cast<uint64_t>(program.ranks);
  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    const int64_t rows = std::min(chunk, tokens - begin);
    for (const backend::Op& op : program.ops) {
      if (std::holds_alternative<backend::LogitsOp>(op)) {
        if (begin + rows == tokens) Add(Times(backend::CostOf(program, op, 1, 0), ranks), &sum);
        continue;
      }
      Cost cost = Times(backend::CostOf(program, op, rows, begin), ranks);
      if (std::holds_alternative<backend::AttentionOp>(op)) {
        cost.kv_bytes = KvBytes(cost.kv_bytes, program, kv);
        // Row r of the chunk attends to begin + r + 1 tokens.
        const uint64_t pairs = static_cast<uint64_t>(rows * begin + rows * (rows + 1) / 2);
        cost.flops = ranks * 4 * static_cast<uint64_t>(program.heads) *
                     static_cast<uint64_t>(program.head_dim) * pairs;
      }
      Add(cost, &sum);
    }
  }
  return sum;
}

}  // namespace mainarch::cli
