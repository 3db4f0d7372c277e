// SPDX-License-Identifier: MIT
#include "cli/step_cost.h"

#include <algorithm>

namespace mainarch::cli {
namespace {

using backend::Cost;

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
  const backend::Work work = {/*rows=*/1, context, /*sequences=*/batch, kv};
  return Times(backend::CostOf(program, op, work), static_cast<uint64_t>(program.ranks));
}

Cost StepCost(const backend::Program& program, int64_t batch, int64_t context, backend::KvType kv) {
  Cost sum;
  for (const backend::Op& op : program.ops) Add(OpCost(program, op, batch, context, kv), &sum);
  return sum;
}

Cost PrefillCost(const backend::Program& program, int64_t tokens, int64_t chunk,
                 backend::KvType kv) {
  Cost sum;
  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    const int64_t rows = std::min(chunk, tokens - begin);
    const bool last = begin + rows == tokens;
    for (const backend::Op& op : program.ops) {
      const bool logits = std::holds_alternative<backend::LogitsOp>(op);
      if (logits && !last) continue;
      const backend::Work work = {logits ? 1 : rows, begin, /*sequences=*/1, kv};
      Add(Times(backend::CostOf(program, op, work), static_cast<uint64_t>(program.ranks)), &sum);
    }
  }
  return sum;
}

}  // namespace mainarch::cli
