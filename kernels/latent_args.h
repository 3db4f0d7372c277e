// SPDX-License-Identifier: MIT
//
// Argument structs of the kernels of latent attention (src/backend/ops.h, LatentOp), read by host and
// device. What decoder_args.h says of steps, rows and tiles holds here.
#ifndef MAINARCH_KERNELS_LATENT_ARGS_H_
#define MAINARCH_KERNELS_LATENT_ARGS_H_

#include "kernels/decoder_args.h"

namespace mainarch::kernels {

// A key is what turns and then the latent, and a value the latent of the same bytes. Both parts are
// whole steps; what turns ends in zeros if it is none.
inline constexpr uint32_t kLatentMostTurning = 64;
inline constexpr uint32_t kLatentMost = 512;  // a multiple of kStepColumns, and beyond 64 one of 64
inline constexpr uint32_t kLatentMostSteps = (kLatentMostTurning + kLatentMost) / kStepColumns;
constexpr uint32_t LatentSteps(uint32_t columns) {
  return (columns + kStepColumns - 1) / kStepColumns;
}

// A page of a layer: [planes][steps of what turns, steps of the latent][16 tokens][32], the 32 in the
// order of StepPlace; of fp8 then multipliers, fp32 [2][16 tokens]: of what turns, of the latent. KV
// types of four bits are not held so.
constexpr bool HoldsLatents(KvFormat format) {
  return KeyForm(format) == ValueForm(format) && KeyForm(format) != KvForm::kFp4;
}
constexpr uint32_t LatentPlaneBytes(KvForm form, uint32_t steps) {
  return steps * kPageTokens * kStepColumns * quant::InfoOf(form).plane_bits / 8;
}
constexpr uint32_t LatentPageBytes(KvFormat format, uint32_t turning, uint32_t latent) {
  const KvForm form = KeyForm(format);
  const uint32_t steps = LatentSteps(turning) + LatentSteps(latent);
  return KvPlanes(form) * LatentPlaneBytes(form, steps) +
         2 * kPageTokens * quant::InfoOf(form).token_bytes;
}
// Where an element of a token lies in a plane, in elements. `step`: of the page's.
constexpr uint32_t LatentPlace(uint32_t step, uint32_t token, uint32_t column) {
  return (step * kPageTokens + token) * kStepColumns + StepPlace(column);
}

// Of each head the part of q that turns is turned, of kv it too, and the latent is normed; both are
// appended to the row's page.
struct LatentArgs {
  Address<const uint32_t> step;
  Address<const float> q;       // [rows, q_stride]: of each head what stays, then what turns
  Address<const float> kv;      // [rows, kv_stride]: latent, then what turns
  Address<float> qkv;           // [rows, qkv_stride]: of each head what turns, then a latent, which is left alone
  Address<const float> norm;    // [latent]
  Address<const float> cosine;  // [positions, turning / 2]
  Address<const float> sine;
  Address<uint8_t> pages;  // this layer's, LatentPageBytes each
  uint32_t q_stride = 0;
  uint32_t kv_stride = 0;
  uint32_t qkv_stride = 0;
  uint32_t heads = 0;
  uint32_t still = 0;
  uint32_t turning = 0;  // even, at most kLatentMostTurning
  uint32_t latent = 0;
  uint32_t pairs = 0;  // 1: elements 2 i and 2 i + 1 turn together; else i and i + turning / 2
  float inverse_latent = 0;
  float epsilon = 0;
  uint32_t tables_at = 0;  // words from the first cache's page tables to this one's
  uint32_t reserved = 0;
};
static_assert(sizeof(LatentArgs) == 112);

// Of head h, out's columns from out_at + h * out_step on = W_h times x's from x_at + h * x_step on.
struct HeadsMatmulArgs {
  Address<const uint32_t> step;
  Address<const float> x;  // [rows, x_stride], or split rows: then x_at and x_step are whole steps
  Address<float> out;      // [rows, out_stride], or split rows
  Tiles w;                 // of one head
  uint64_t head_bytes = 0;  // from head to head: data, then scales
  uint64_t head_scale_bytes = 0;
  uint32_t x_stride = 0, x_at = 0, x_step = 0;
  uint32_t out_stride = 0, out_at = 0, out_step = 0;
  uint32_t heads = 0;
  uint32_t columns = 0;  // of x that a head has, a multiple of 4; x_at and x_step are such, too
  uint32_t width = 0;    // of a head's out
  uint32_t rows = 0;     // of x: a step has no more
  uint32_t x_split = 0, out_split = 0;
};
static_assert(sizeof(HeadsMatmulArgs) == 136);

// out[row] = w * rmsnorm(y[row]), as split rows.
struct NormSplitArgs {
  Address<const uint32_t> step;
  Address<const float> y;     // [rows, stride]
  Address<const float> norm;  // [width]
  Address<float> out;         // [rows, stride] split rows
  uint32_t width = 0;         // even
  uint32_t stride = 0;
  float inverse_width = 0;
  float epsilon = 0;
};
static_assert(sizeof(NormSplitArgs) == 48);

// A row's context is cut into splits of so many blocks of kSplitTokens, at absolute positions: one, or a power of two,
// so that no row has more splits than kLatentMostSplits: what a split leaves of 16 heads is 33 KiB. That many fill a chip.
inline constexpr uint32_t kLatentMostSplits = 512;
constexpr uint32_t LatentSplitBlocks(uint32_t position) {
  uint32_t blocks = 1;
  while (blocks <= position / (kSplitTokens * kLatentMostSplits)) blocks *= 2;
  return blocks;
}
constexpr uint32_t LatentSplits(uint32_t position) {
  return position / (LatentSplitBlocks(position) * kSplitTokens) + 1;
}

inline constexpr uint32_t kLatentHeads = 16;  // of a workgroup of attend_latent
// Causal attention of all heads to the one key head, by splits; parts as AttendArgs has them, with a head_dim of
// `latent`.
struct AttendLatentArgs {
  Address<const uint32_t> step;
  Address<const float> qkv;      // [rows, q_stride]: of each head what turns, then its latent
  Address<const uint8_t> pages;  // as above
  Address<float> out;            // [rows, out_stride] split rows: of each head [latent]
  Address<float> parts;          // [row_count, heads, max_splits, AttendPartFloats(latent)]
  uint32_t q_stride = 0;
  uint32_t out_stride = 0;
  uint32_t heads = 0;
  uint32_t turning = 0;  // a multiple of 4
  uint32_t latent = 0;
  uint32_t max_splits = 0;
  float scale = 0;
  uint32_t first_row = 0;  // this launch takes rows [first_row, first_row + row_count) of the step
  uint32_t row_count = 0;
  uint32_t tables_at = 0;  // words from the first cache's page tables to this one's
  // Of attend_latent_*: 1: but for the rows that attend_latent_tall_* takes, which is launched beside it.
  uint32_t others = 0;
  uint32_t least_blocks = 0;  // attend_latent_tall_* takes rows whose blocks times the launch's rows are as many
};
static_assert(sizeof(AttendLatentArgs) == 88);

// attend_latent_tall_* takes such heads, and of a launch's rows each so many that are neighbours in one sequence. It
// begins with some 20 us in which nothing is multiplied: by the timing model it is the faster one (MI355X, 16 heads)
// from 128 rows at 1,024 tokens on, and of a prompt of 512 rows but for its first block.
inline constexpr uint32_t kLatentTallRows = 4, kLatentTallBlocks = 1024;
constexpr bool LatentTallTakes(KvFormat format, uint32_t turning, uint32_t latent) {
  return KvPlanes(KeyForm(format)) == 1 && turning == kLatentMostTurning && latent == kLatentMost;
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_LATENT_ARGS_H_
