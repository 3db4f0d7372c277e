// SPDX-License-Identifier: MIT
//
// A Program: the ordered, typed operators and collectives of one step of one model on one group of
// ranks, with every weight, buffer, shape and shard explicit. It is data: built once by
// model/arch/*, then replayed by a backend for every step; it can be printed, counted and checked.
//
// Rows are the tokens of a step, at most max_rows; how many there are is known only at each step.
// Every rank runs the same ops on its own shard; `x` (the residual stream) is replicated.
//
// Same bits for every rank count: a weight whose input dimension K is sharded carries `splits`, K
// boundaries fixed by the weight's shape alone. The product over each part is summed by itself, and
// parts are added in one fixed binary tree (0+1)+(2+3)…; a rank holds a whole subtree, and the
// all-reduce adds ranks in the upper part of the same tree.
#ifndef MAINARCH_BACKEND_PROGRAM_H_
#define MAINARCH_BACKEND_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/optional.h"
#include "backend/ops.h"
#include "base/status.h"
#include "kernels/quant/kv_type.h"
#include "quant/matrix.h"

namespace mainarch::backend {

using quant::KvType;

// Of a token's experts, with the one that is every token's; GPUs have no room for more.
inline constexpr int32_t kMostExpertSlots = 16;

// Parts of a row-parallel weight's K; ranks must divide it.
inline constexpr int kSplitParts = 8;

enum class WeightLayout : uint8_t {
  kPanels,   // a matrix to multiply by, slices stacked along rows
  kGateUp,   // two slices of equal shape, gate then up, multiplied together
  kTable,    // rows looked up by index, never multiplied
  kVector,   // one row of fp32 values, its slices one behind the other
};

// Rows [row_begin, row_end) and columns [col_begin, col_end) of sources[source].
struct WeightSlice {
  int32_t source = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t col_begin = 0;
  int64_t col_end = 0;
};

struct Weight {
  std::string label;  // "layers.3.qkv"
  WeightLayout layout = WeightLayout::kPanels;
  int32_t groups = 1;  // experts; each group has the same number of slices
  std::vector<quant::Matrix> sources;
  // [ranks][groups * slices_per_group]: what each rank holds, group by group.
  std::vector<std::vector<WeightSlice>> ranks;
  // Of kVector: a value is (what is stored + offset) * factor.
  float offset = 0;
  float factor = 1;
  // Global column boundaries of the K parts, which ranks share evenly: kSplitParts + 1 of them, fewer
  // where this is only a share of a model; empty: K is not split.
  std::vector<int64_t> splits;
};

// A kVector weight on one rank: its values, and how many.
int64_t VectorSize(const Weight& weight, int32_t rank);
void DecodeVector(const Weight& weight, int32_t rank, float* out);

enum class BufferType : uint8_t { kF32, kI32 };

struct Buffer {
  std::string label;
  BufferType type = BufferType::kF32;
  int64_t width = 0;  // elements, on each rank: [max_rows, slots, width]
  int32_t slots = 1;  // experts a token
};

struct Rope {
  int32_t rotary_dim = 0;
  std::vector<double> inv_freq;  // [rotary_dim / 2], YaRN applied
  double scale = 1;              // multiplies cos and sin
};

// What a sequence leaves behind for its later tokens. K and V of a paged cache lie in pages of
// tokens, whose type a context chooses; one of slots holds what a recurrent layer carries on, of a
// size that does not grow.
struct PagedCache {
  std::string label;
  int32_t layers = 0;
  int32_t kv_heads = 0;  // on one rank
  int32_t key_dim = 0;   // elements of a head's K, and of its V
  int32_t value_dim = 0;
  int32_t window = 0;  // tokens that a query sees, its own among them; 0: all
  int32_t replicas = 1;  // neighbouring ranks that hold the same heads
  // Of one with a window: the first tokens, whole pages, which are kept and which every query sees, too.
  int32_t kept = 0;
  absl::optional<KvType> type = absl::nullopt;  // of its elements, whatever the context says
};
struct SlotCache {
  std::string label;
  int32_t layers = 0;
  int64_t bytes = 0;  // of one sequence in one layer, on one rank
};
using Cache = std::variant<PagedCache, SlotCache>;

struct Program {
  int32_t ranks = 1;
  // Model facts every backend needs.
  int32_t hidden = 0;
  int32_t vocab = 0;
  // What LogitsOp gives a row is not logits but what their product would take: one number a column.
  bool vectors = false;
  int32_t experts = 0;
  int32_t experts_per_token = 0;
  // The last expert is every token's: it is in the last slot, its weight the sigmoid of its score.
  bool shared_expert = false;
  float rms_eps = 0;
  int64_t max_position = 0;
  std::vector<Rope> ropes;
  std::vector<Cache> caches;

  std::vector<Weight> weights;
  std::vector<Buffer> buffers;
  std::vector<Op> ops;
  // Index into `ops` of the last op of each layer: x holds that layer's output after it.
  std::vector<int32_t> layer_ends;
  BufferId x = 0;
  std::vector<BufferId> taps;  // what TapOps write

  // Keeps what `weights` borrow from: the mapped checkpoint.
  std::shared_ptr<const void> storage;

  // Numbers that LogitsOp gives a row.
  int32_t logit_width() const { return vectors ? hidden : vocab; }
};

// The paged cache that an attention op names.
inline const PagedCache& CacheOf(const Program& program, const AttentionOp& op) {
  return std::get<PagedCache>(program.caches[static_cast<size_t>(op.cache)]);
}

inline KvType TypeOf(const PagedCache& cache, KvType of_context) { return cache.type.value_or(of_context); }

// The types of all paged caches: the context's where no cache has one of its own. For Context::content_form.
std::string KvTypesText(const Program& program, KvType of_context);

// What a step is asked to do: of each sequence `rows` tokens, after `context` others.
struct Work {
  int64_t rows = 1;
  int64_t context = 0;
  int64_t sequences = 1;
  KvType kv_type = KvType::kBF16;
};

// What one step moves and computes, per rank. MoE: as many distinct experts as its rows can hit.
struct Cost {
  uint64_t weight_bytes = 0;  // as stored in the checkpoint
  uint64_t kv_bytes = 0;      // read and written
  uint64_t flops = 0;
  uint32_t all_reduces = 0;
};

absl::string_view OpName(const Op& op);
Cost CostOf(const Program& program, const Op& op, const Work& work);
// One line an op: name, buffers, weights, shapes, bytes.
std::string Print(const Program& program);
// Shapes agree, ids are in range, shards tile their sources: a wrong Program is our bug, found here.
Status Check(const Program& program);

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_PROGRAM_H_
