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

#include "base/status.h"
#include "quant/matrix.h"

namespace mainarch::backend {

using WeightId = int32_t;  // index into Program::weights
using BufferId = int32_t;  // index into Program::buffers

// Parts of a row-parallel weight's K; ranks must divide it.
inline constexpr int kSplitParts = 8;

enum class WeightLayout : uint8_t {
  kPanels,   // a matrix to multiply by, slices stacked along rows
  kGateUp,   // two slices of equal shape, gate then up, multiplied together
  kTable,    // rows looked up by index, never multiplied
  kVector,   // one row of fp32 values
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
  // Global column boundaries of the K parts, kSplitParts + 1 of them; empty: K is not split.
  std::vector<int64_t> splits;
};

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

// x = table[token].                                       x [rows, hidden]
struct EmbedOp {
  WeightId table;
  BufferId x;
};

// out = W · rmsnorm(x).                                   out [rows, W.rows]
struct NormMatmulOp {
  BufferId x;
  WeightId norm;
  WeightId w;
  BufferId out;
};

// QK-norm, RoPE, append K and V to the cache, causal grouped-query attention.
// qkv [rows, (heads + 2 * kv_heads) * head_dim] -> out [rows, heads * head_dim]; heads of this rank.
struct AttentionOp {
  BufferId qkv;
  WeightId q_norm;  // [head_dim]
  WeightId k_norm;  // [head_dim]
  int32_t kv_layer;
  BufferId out;
};

// x += W · in: the whole sum, on one rank.                x [rows, hidden]
struct MatmulAddOp {
  BufferId in;
  WeightId w;
  BufferId x;
};

// partial = W · in over this rank's K.                    partial [rows, hidden]
struct MatmulOp {
  BufferId in;
  WeightId w;
  BufferId partial;
};

// x += sum over ranks of partial, in the fixed tree.
struct AllReduceAddOp {
  BufferId partial;
  BufferId x;
};

// act = silu(G · h) * (U · h), h = rmsnorm(x).            act [rows, W.rows / 2]
struct NormGateUpOp {
  BufferId x;
  WeightId norm;
  WeightId w;
  BufferId act;
};

// h = rmsnorm(x); p = softmax(W · h) over all experts; the top k of p, ties to the lowest id,
// listed in ascending expert id; weights divided by their sum if `renormalise`.
struct RouterOp {
  BufferId x;
  WeightId norm;
  WeightId w;        // [experts, hidden]
  BufferId h;        // [rows, hidden]
  BufferId ids;      // kI32 [rows, k]
  BufferId weights;  // [rows, k]
  bool renormalise;
};

// act[row, slot] = silu(G_e · h) * (U_e · h), e = ids[row, slot].   act [rows, k, width]
struct ExpertsGateUpOp {
  BufferId h;
  BufferId ids;
  WeightId w;
  BufferId act;
};

// out (+)= sum over slots of weights[row, slot] * (D_e · act[row, slot]).
struct ExpertsDownOp {
  BufferId act;
  BufferId ids;
  BufferId weights;
  WeightId w;
  BufferId out;  // x (added to) on one rank, a partial (overwritten) on more
  bool add;
};

// logits = W · rmsnorm(x) for the rows of the step that ask for them; vocabulary sharded by rows.
struct LogitsOp {
  BufferId x;
  WeightId norm;
  WeightId w;
};

using Op = std::variant<EmbedOp, NormMatmulOp, AttentionOp, MatmulAddOp, MatmulOp, AllReduceAddOp,
                        NormGateUpOp, RouterOp, ExpertsGateUpOp, ExpertsDownOp, LogitsOp>;

struct Program {
  int32_t ranks = 1;
  // Model facts every backend needs.
  int32_t hidden = 0;
  int32_t vocab = 0;
  int32_t kv_layers = 0;
  int32_t heads = 0;     // on one rank
  int32_t kv_heads = 0;  // on one rank
  int32_t head_dim = 0;
  int32_t experts = 0;
  int32_t experts_per_token = 0;
  float rms_eps = 0;
  int64_t max_position = 0;
  Rope rope;

  std::vector<Weight> weights;
  std::vector<Buffer> buffers;
  std::vector<Op> ops;
  // Index into `ops` of the last op of each layer: x holds that layer's output after it.
  std::vector<int32_t> layer_ends;
  BufferId x = 0;

  // Keeps the checkpoint mapped that `weights` borrow from.
  std::shared_ptr<const void> storage;
};

// What one step moves and computes, per rank.
struct Cost {
  uint64_t weight_bytes = 0;  // as stored in the checkpoint
  uint64_t kv_bytes = 0;      // read and written, at 2 bytes an element
  uint64_t flops = 0;
  uint32_t all_reduces = 0;
};

absl::string_view OpName(const Op& op);
// `rows` tokens, each attending to `context` tokens. MoE: as many distinct experts as rows can hit.
Cost CostOf(const Program& program, const Op& op, int64_t rows, int64_t context);
// One line an op: name, buffers, weights, shapes, bytes.
std::string Print(const Program& program);
// Shapes agree, ids are in range, shards tile their sources: a wrong Program is our bug, found here.
Status Check(const Program& program);

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_PROGRAM_H_
