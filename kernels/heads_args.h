// SPDX-License-Identifier: MIT
//
// Argument structs of what is done to heads before and behind attention, read by host and device. What
// decoder_args.h says of steps, rows and tiles holds here.
#ifndef MAINARCH_KERNELS_HEADS_ARGS_H_
#define MAINARCH_KERNELS_HEADS_ARGS_H_

#include "kernels/decoder_args.h"

namespace mainarch::kernels {

// RMSNorms of Q as a whole and of K as a whole, over the heads of all ranks. head_squares makes whole rows of what a
// product leaves and of each head of Q and K its sum of squares, in its own place of a row of all ranks' heads: Q's,
// then K's, and a zero where their number is odd. Other ranks' places are zeros, so that `reduce` leaves on every rank
// what one rank would have made; wide_norm adds a row up in one order.
struct HeadSquaresArgs {
  Address<const uint32_t> step;
  Address<const float> in;  // [splits][split_rows, stride]: heads, kv_heads of K, kv_heads of V
  Address<float> qkv;       // [rows, stride]: the same, whole; may be `in` where splits is 1
  Address<float> squares;   // [rows, squares_stride]
  NormOf norm;              // of the product's input, whose factor is not in the sums yet; or none
  uint32_t stride = 0;
  uint32_t squares_stride = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;     // a multiple of 8
  uint32_t first_head = 0;   // of all ranks' heads, and of all their K heads: this rank's first
  uint32_t first_kv = 0;
  uint32_t total_heads = 0;
  uint32_t total_kv_heads = 0;
  uint32_t kv_counts = 0;  // 1: this is the first rank that has these K heads
  uint32_t splits = 1;     // of the product that made `in`
  uint32_t split_rows = 0;
};
static_assert(sizeof(HeadSquaresArgs) == 104);

struct WideNormArgs {
  Address<const uint32_t> step;
  Address<float> qkv;  // [rows, stride]: heads of Q, then of K, in place
  Address<const float> squares;
  Address<const float> q_norm;  // [heads * head_dim]
  Address<const float> k_norm;  // [kv_heads * head_dim]
  uint32_t stride = 0;
  uint32_t squares_stride = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t total_heads = 0;
  uint32_t total_kv_heads = 0;
  float epsilon = 0;
  float inverse_q = 0;  // 1 / (total_heads * head_dim)
  float inverse_k = 0;
};
static_assert(sizeof(WideNormArgs) == 80);

// out: heads of `to` from heads of `from`, with zeros behind, normed by head: the first `heads` by q_norm, then
// kv_heads by k_norm; then heads of value_to from heads of value_from.
struct WidenHeadsArgs {
  Address<const uint32_t> step;
  Address<const float> in;      // [splits][split_rows, in_stride]
  Address<float> out;           // [rows, out_stride]
  Address<const float> q_norm;  // [from]; 0: none
  Address<const float> k_norm;
  NormOf norm;  // of the product's input, whose factor is not in the sums yet; or none
  uint32_t in_stride = 0;
  uint32_t out_stride = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t count = 0;  // of all heads
  float inverse_from = 0;
  float epsilon = 0;
  uint32_t splits = 1;  // of the product that made `in`
  uint32_t split_rows = 0;
  uint32_t value_from = 0;  // of those behind heads and kv_heads, in place of from and to
  uint32_t value_to = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(WidenHeadsArgs) == 120);

// out: the first `to` elements of each head of `from`, as the parts of the product that takes them want it: each part
// from a whole step on, zeros behind its heads. Both are split rows, and no bit of an element changes.
struct NarrowHeadsArgs {
  Address<const uint32_t> step;
  Address<const float> in;  // [rows, in_stride]
  Address<float> out;       // [rows, out_stride]
  // Where parts end, in steps and in heads, as in Tiles.
  uint64_t low_ends = 0;
  uint64_t high_ends = 0;
  uint64_t low_heads = 0;
  uint64_t high_heads = 0;
  uint32_t in_stride = 0;
  uint32_t out_stride = 0;
  uint32_t from = 0;  // multiples of 8
  uint32_t to = 0;
  uint32_t parts = 1;
  uint32_t chunks = 0;  // of a row: ceil(steps / kNarrowSteps)
};
static_assert(sizeof(NarrowHeadsArgs) == 80);
inline constexpr uint32_t kNarrowSteps = 32;  // of a row, that a workgroup has

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_HEADS_ARGS_H_
