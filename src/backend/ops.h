// SPDX-License-Identifier: MIT
//
// The operators of a Program, as data. What each reads, writes, demands and costs is said once, in
// ops.cc, under the op's name; a backend has one function or object an op.
#ifndef MAINARCH_BACKEND_OPS_H_
#define MAINARCH_BACKEND_OPS_H_

#include <cstdint>
#include <variant>

#include "backend/activation.h"

namespace mainarch::backend {

using WeightId = int32_t;  // index into Program::weights
using BufferId = int32_t;  // index into Program::buffers

inline constexpr int32_t kNone = -1;  // of an id: the op does without

// x = table[token] * scale.                               x [rows, hidden]
struct EmbedOp {
  WeightId table;
  BufferId x;
  float scale = 1;
};

// out = W · rmsnorm(x).                                   out [rows, W.rows]
struct NormMatmulOp {
  BufferId x;
  WeightId norm;
  WeightId w;
  BufferId out;
};

// RMSNorms of Q as a whole and of K as a whole, over the heads of all ranks, in place: what every
// rank has of them is multiplied by one number a row, and by its part of the weights.
// qkv as AttentionOp has it.
struct WideNormOp {
  BufferId qkv;
  WeightId q_norm;        // [heads * key_dim], of this rank
  WeightId k_norm;        // [kv_heads * key_dim]
  int32_t heads;          // of this rank
  int32_t kv_heads;
  int32_t key_dim;
  int32_t total_kv_heads;  // of all ranks; where there are fewer than ranks, some have the same one
};

// What of it is there: bias, QK-norm, RoPE; then K and V are appended to the cache, and queries see
// it causally, in groups to a KV head. Of a cache with a window a query sees the last `window`
// positions, its own among them. A sink is one more score, of a token whose V is zero.
// qkv [rows, heads * key_dim + kv_heads * (key_dim + value_dim)] -> out [rows, heads * value_dim];
// heads of this rank.
struct AttentionOp {
  BufferId qkv;
  BufferId out;
  int32_t cache;  // index into Program::caches, of a paged one
  int32_t layer;  // of the cache
  int32_t heads;
  int32_t rope;             // index into Program::ropes; kNone: positions do not matter
  double scale;             // of the scores
  double value_scale = 1;   // of V, before it is appended
  WeightId q_norm = kNone;  // [key_dim]
  WeightId k_norm = kNone;  // [key_dim]
  WeightId sinks = kNone;   // [heads]
  WeightId bias = kNone;    // [width of qkv], added first
  BufferId gate = kNone;    // [rows, width of out]: out *= sigmoid(gate)
  // A second cache of the same layers and heads, with a window and kept tokens: K and V are appended to both, and a
  // query takes from this one what it sees of it, all other tokens from `cache`.
  int32_t near = kNone;
};

// Heads of another width: what is wider ends in zeros, what is narrower is cut. Attention has heads of the sizes that
// the backend stores (Backend::StoredHeads), models of any multiple of 8. The first `heads` are queries, then come `kv_heads`
// keys, then what else there is: of heads of another size, values.
struct ResizeHeadsOp {
  BufferId in;   // [rows, n * from + m * value_from]
  BufferId out;  // [rows, n * to + m * value_to]
  int32_t from, to;
  int32_t heads = 0, kv_heads = 0;
  WeightId q_norm = kNone;  // [from]: out = norm * rmsnorm(in), by head
  WeightId k_norm = kNone;  // [from]
  int32_t value_from = 0, value_to = 0;  // of the heads behind keys; 0: as all
};

// Of each head h of this rank: out's elements from out_at + h * out_step on = W_h · in's from in_at + h * in_step
// on. W has a group a head.
struct HeadsMatmulOp {
  BufferId in;
  WeightId w;
  BufferId out;
  int32_t in_at, in_step;
  int32_t out_at, out_step;
};

// What latent attention (DeepSeek-AI, "DeepSeek-V2", 2024, §2.1) needs of a token, absorbed: attention has one key
// head, [what turns | latent], whose values are the latent. Here the latent is normed and what turns is turned;
// the latent parts of queries are there already.
struct LatentOp {
  BufferId q;     // [rows, heads * (still + turning)]: of each head what stays, then what turns
  BufferId kv;    // [rows, latent + turning]: before the norm
  BufferId qkv;   // [rows, heads * (turning + latent) + turning + latent + latent], as AttentionOp has it
  WeightId norm;  // [latent]
  float epsilon;  // of that norm
  int32_t rope;   // index into Program::ropes, which turn `turning` dimensions
  int32_t heads;
  int32_t still, turning, latent;
  bool pairs;  // elements 2 i and 2 i + 1 turn together; else i and i + turning / 2
};

// x += W · in: the whole sum, on one rank.                x [rows, hidden]
struct MatmulAddOp {
  BufferId in;
  WeightId w;
  BufferId x;
};

// partial = W · in over this rank's K, or all of it.      partial [rows, W.rows]
struct MatmulOp {
  BufferId in;
  WeightId w;
  BufferId partial;
};

// x += bias, in every row.
struct AddBiasOp {
  WeightId bias;  // [width of x]
  BufferId x;
};

// x += sum over ranks of partial, in the fixed tree; or x = that sum.
struct AllReduceAddOp {
  BufferId partial;
  BufferId x;
  bool add = true;
};

// x += scale * rmsnorm(y), or, without a norm, x += scale * y; or x = that.
struct AddNormedOp {
  BufferId y;
  WeightId norm;  // kNone: none
  float scale;
  BufferId x;
  bool add = true;
  float epsilon = 0;  // 0: Program::rms_eps
};

// act = the activation of G · h and U · h, h = rmsnorm(x), or x itself.   act [rows, W.rows / 2]
struct NormGateUpOp {
  BufferId x;
  WeightId norm;  // kNone: none
  WeightId w;
  BufferId act;
  Activation activation = Activation::kSilu;
  WeightId gate_bias = kNone;  // [width of act]
  WeightId up_bias = kNone;
};

// h = rmsnorm(x); s = W · h + bias; p = softmax(s) over all experts, or sigmoid of each; the top k of
// p + correction, ties to the lowest id, listed in ascending expert id; their weights are p, divided
// by their sum if `renormalise`, times scale. An expert of all tokens (Program::shared_expert) is not
// among all experts there: it comes last, its weight sigmoid(s). With groups, of equally many experts each, only the
// `chosen_groups` count whose two best sums of p + correction are largest.
struct RouterOp {
  BufferId x;
  WeightId norm;
  WeightId w;        // [experts, hidden]
  BufferId h;        // [rows, hidden]
  BufferId ids;      // kI32 [rows, k]
  BufferId weights;  // [rows, k]
  bool renormalise;
  bool sigmoid = false;
  WeightId bias = kNone;        // [experts]
  WeightId correction = kNone;  // [experts]
  int32_t groups = 1;
  int32_t chosen_groups = 1;
  float scale = 1;
};

// act[row, slot] = the activation of G_e · h and U_e · h, e = ids[row, slot].   act [rows, k, width]
struct ExpertsGateUpOp {
  BufferId h;
  BufferId ids;
  WeightId w;
  BufferId act;
  Activation activation = Activation::kSilu;
  WeightId gate_bias = kNone;  // [experts, width of act]
  WeightId up_bias = kNone;
};

// x += sum over slots of weights[row, slot] * bias[ids[row, slot]].
struct ExpertsBiasOp {
  BufferId ids;
  BufferId weights;
  WeightId bias;  // [experts, width of x]
  BufferId x;
};

// act *= sigmoid(gate), one number a row.                  gate [rows, 1]
struct RowGateOp {
  BufferId gate;
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

// logits = W · rmsnorm(x) for the rows of the step that ask for them; W sharded by rows, which are those of
// the vocabulary, or (Program::vectors) of the identity.
struct LogitsOp {
  BufferId x;
  WeightId norm;
  WeightId w;
};

// A gated linear recurrence over the rows of each sequence, one a channel: h = (1 - z) h + z v, z =
// sigmoid of the first half of in's row, v its second half; out is h. No row may be run twice. No
// architecture has it; tests do, as the plainest op with a state.
struct RecurrentOp {
  BufferId in;    // [rows, 2 * width]
  BufferId out;   // [rows, width]
  int32_t cache;  // index into Program::caches, of one of slots: fp32 [width]
  int32_t layer;  // of the cache
};

// A gated delta net (Yang et al., "Gated Delta Networks", 2024; as Qwen3-Next has it), over the rows of
// each sequence in turn; no row may be run twice. All of it is of this rank's heads: value head j
// goes with key head j / (value_heads / key_heads).
//   in [rows, channels + value_heads * value_dim]: channels = q of all key heads, k of all key
//     heads, v of all value heads; then z of all value heads.
//   gates [rows, 2 * value_heads]: b of all value heads, then a.
//   c_t = silu(sum over i < taps of conv[channel][i] * in_(t - taps + 1 + i)[channel]), zeros before
//     the sequence; q, k, v are c's parts, q and k of a head divided by sqrt(|.|^2 + 1e-6), q by
//     sqrt(key_dim) beside.
//   alpha = exp(-exp(decay) * softplus(a + dt_bias)), beta = sigmoid(b), S [key_dim, value_dim] of a
//     value head, zeros at first: u = beta (v - alpha S^T k); S = alpha S + k u^T; o = S^T q.
//   out [rows, value_heads * value_dim] = norm * rmsnorm(o), by head, * silu(z).
// The cache's slots hold the last taps - 1 rows of in's channels, and S of every value head, in fp32
// (DeltaStateBytes), in an order of the backend's own.
struct GatedDeltaOp {
  BufferId in;
  BufferId gates;
  BufferId out;
  int32_t cache;  // index into Program::caches, of one of slots
  int32_t layer;  // of the cache
  int32_t key_heads;
  int32_t value_heads;
  int32_t key_dim;    // a multiple of 16, as is value_dim
  int32_t value_dim;
  int32_t taps;       // 2 to kMostTaps
  WeightId conv;      // [channels * taps]
  WeightId decay;     // [value_heads]: A_log
  WeightId dt_bias;   // [value_heads]
  WeightId norm;      // [value_dim]
};
inline constexpr int32_t kMostTaps = 8;
inline constexpr int64_t DeltaChannels(const GatedDeltaOp& op) {
  return 2 * int64_t{op.key_heads} * op.key_dim + int64_t{op.value_heads} * op.value_dim;
}
inline constexpr int64_t DeltaStateBytes(const GatedDeltaOp& op) {
  return 4 * ((op.taps - 1) * DeltaChannels(op) +
              int64_t{op.value_heads} * op.key_dim * op.value_dim);
}

// out = x, kept for other contexts' steps (InputOp) as long as the logits of this one's step are.
struct TapOp {
  BufferId x;
  BufferId out;  // one of Program::taps
};

// x = rows of a tap of the source context (ContextOptions::source), those that Step::inputs names.
// With a cache of slots (fp32, as wide as x) a row may also be what a state carries on
// (kCarriedInput), and the state after a row is row i of the source's tap, i the row's own index in
// the step: where states are written, the steps of both have the same rows. With a tap of its own
// (`own`) a row may be one of that in this context's step before (kOwnInput).
struct InputOp {
  int32_t tap;  // index into Program::taps of the source's Program
  BufferId x;
  int32_t cache = kNone;
  int32_t layer = 0;  // of the cache
  int32_t own = kNone;  // index into Program::taps of this Program
};

using Op = std::variant<EmbedOp, NormMatmulOp, AttentionOp, MatmulAddOp, MatmulOp, AddBiasOp,
                        AllReduceAddOp, NormGateUpOp, RouterOp, ExpertsGateUpOp, ExpertsDownOp,
                        LogitsOp, RecurrentOp, TapOp, InputOp, WideNormOp, AddNormedOp,
                        ExpertsBiasOp, RowGateOp, GatedDeltaOp, HeadsMatmulOp, LatentOp, ResizeHeadsOp>;

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_OPS_H_
