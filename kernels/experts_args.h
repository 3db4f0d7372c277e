// SPDX-License-Identifier: MIT
//
// Argument structs of a router and its experts, read by host and device. What decoder_args.h says of
// steps, rows and tiles holds here.
#ifndef MAINARCH_KERNELS_EXPERTS_ARGS_H_
#define MAINARCH_KERNELS_EXPERTS_ARGS_H_

#include "kernels/decoder_args.h"

namespace mainarch::kernels {

inline constexpr uint32_t kToldExperts = 128;
struct RouteArgs {
  Address<const uint32_t> step;
  RouterArgs router;  // rows is taken from the step; logits [splits][split_rows, stride]
  uint32_t stride = 0;
  // 1: a shared expert. The logit after the experts' is its gate; ids and weights are [rows, top +
  // 1], the last of a row `experts` and sigmoid(gate).
  uint32_t shared = 0;
  uint32_t splits = 1;  // of the product that made the logits
  uint32_t split_rows = 0;
  NormOf norm;  // of the product's input, whose factor is not in the sums yet; or none
  ToldWords told;  // instead of logits; of experts' own choice among kToldExperts at most
};
static_assert(sizeof(RouteArgs) == 104);

inline constexpr uint32_t kRouterMaxGroups = 64;  // a lane each
// A router of more rules than a softmax of logits (RouterOp): p = softmax or sigmoid of logit + bias, the
// choice goes by p + correction, weights are p, over their sum if `renormalise`, times scale.
struct RouteScoredArgs {
  RouteArgs route;
  Address<const float> bias;        // [experts]; 0: none
  Address<const float> correction;  // [experts]; 0: none
  uint32_t sigmoid = 0;
  // The experts of the chosen_groups with the largest sums of two best choices count; 1: all do. A group
  // has at least two.
  uint32_t groups = 1;
  uint32_t chosen_groups = 1;
  float scale = 1;  // more than 0
};
static_assert(sizeof(RouteScoredArgs) == 136);

// A launch's workgroups hand over by a word each, which the launch's tag (LaunchTag) is stored in. There is a copy for each so many
// workgroups, so that few look at the same one.
inline constexpr uint32_t kMostArrivals = 512, kLookers = 32;  // workgroups, at most; those that look at a copy
inline constexpr uint32_t kArrivalCopies = kMostArrivals / kLookers;
constexpr uint32_t ArrivalCopies(uint32_t workers) { return (workers + kLookers - 1) / kLookers; }
// Of so many units of gate and up, of steps of so many rows, two workgroups may have one each. What one tells the other lies behind
// those: a word of 64 bits an element (ops/told.h), [unit][kApartRows][kTileRows].
inline constexpr uint32_t kApartUnits = 256, kApartRows = 4;
inline constexpr uint32_t kApartAt = kArrivalCopies * kMostArrivals;  // words of 32 bits
inline constexpr uint32_t kArrivalBytes = kApartAt * 4 + kApartUnits * kApartRows * kTileRows * 8;
// Rows of a step, at most, whose experts' workgroups each choose for themselves, of a plain router: a wave a row, and another one.
inline constexpr uint32_t kRouteHereRows = 8;

// out[row] = sum over the row's experts, in ascending id, of weight * down(silu(gate h) * up h),
// h = norm(x): one launch, in which workgroups wait for the first product of all before the second.
// All workers must be resident. Experts are added leaf by leaf of down's k, so that ranks, too, add
// what is left of its tree.
//
// In steps of few rows every workgroup works out which experts a plain router chose from its logits
// (`route`), unless biases of experts want to know: that is sooner than a launch that tells them.
struct ExpertsArgs {
  Address<const uint32_t> step;
  Address<const float> x;        // [rows, x_stride] split rows
  Address<const uint32_t> ids;   // [rows, top]
  Address<const float> weights;  // [rows, top]
  Address<float> act;            // [rows, top, act_stride] split rows
  Address<float> out;            // [rows, out_stride]
  Address<uint32_t> arrivals;    // [kArrivalCopies][kMostArrivals], and what is told behind them
  Tiles gate_up;                 // of one expert
  Tiles down;                    // of one expert
  // Bytes from expert to expert: data, then scales; each less than 4 GiB (CheckTiles).
  uint64_t gate_up_stride = 0;
  uint64_t gate_up_scale_stride = 0;
  uint64_t down_stride = 0;
  uint64_t down_scale_stride = 0;
  NormOf norm;  // there is one
  uint32_t x_stride = 0;
  uint32_t act_stride = 0;
  uint32_t out_stride = 0;
  uint32_t top = 0;      // slots of a row, at most kRouterMaxTop; a shared expert has the last
  uint32_t experts = 0;  // at most kRouterMaxExperts, and a shared one
  uint32_t most_rows = 0;  // of x: a step has no more
  uint32_t turn = 0;       // LaunchTag
  uint32_t turns = 0;
  RouteArgs route;  // experts 0: ids and weights are there; else most_rows is at most kRouteHereRows
};
static_assert(sizeof(ExpertsArgs) == 344);

struct ExpertsAnyArgs {
  ExpertsArgs experts;
  GatingArgs gating;
};
static_assert(sizeof(ExpertsAnyArgs) == 384);

// ---- of many rows ----

// Who chose an expert: of lists the first words are [experts][ExpertBlocks(most_rows) + 1], where an expert's pairs of each block of
// rows begin among those behind, and where its last one's end. A pair is of a row and a slot; an expert's are in the order of rows.
inline constexpr uint32_t kExpertRows = 64;  // of a block
constexpr uint32_t ExpertBlocks(uint32_t rows) { return (rows + kExpertRows - 1) / kExpertRows; }
constexpr uint32_t ExpertPair(uint32_t row, uint32_t slot) { return row << 8 | slot; }
constexpr uint32_t PairRow(uint32_t pair) { return pair >> 8; }
constexpr uint32_t PairSlot(uint32_t pair) { return pair & 0xff; }
constexpr uint64_t ExpertListWords(uint32_t experts, uint32_t rows, uint32_t top) {
  return uint64_t{experts} * (ExpertBlocks(rows) + 1) + uint64_t{rows} * top;
}
static_assert(kRouterMaxTop < 256);

struct ExpertsGroupArgs {
  Address<const uint32_t> step;
  Address<const uint32_t> ids;  // [rows, top]
  Address<uint32_t> lists;
  uint32_t experts = 0;  // a shared one counted
  uint32_t top = 0;
  uint32_t most_rows = 0;  // a step has no more
  uint32_t reserved = 0;
};
static_assert(sizeof(ExpertsGroupArgs) == 40);

// Gate and up of all experts, in workgroups as tall_gate_up_*'s, whose rows are pairs of one expert: each reads its expert's
// weights once. `any`: as of a dense product, w being the first expert's, out [rows, top, out_stride]; the kernels *_any alone
// read `gating`.
struct ExpertsTallArgs {
  GateUpAnyArgs any;
  Address<const uint32_t> lists;
  uint64_t stride = 0;  // from expert to expert: data, scales
  uint64_t scale_stride = 0;
  uint32_t experts = 0;
  uint32_t top = 0;
};
static_assert(sizeof(ExpertsTallArgs) == 216);

// Down behind it: `gate_up`, x and norm are not looked at; nobody arrives.
struct ExpertsTallDownArgs {
  ExpertsArgs experts;
  Address<const uint32_t> lists;
};
static_assert(sizeof(ExpertsTallDownArgs) == 352);

// Experts of up to kMatmulReduceRows rows, and the sum of all ranks' in the same launch. Of `any` the kernels *_any
// alone read `gating`, and none reads `out`; of `reduce` nobody reads `partial`.
struct ExpertsReduceArgs {
  ExpertsAnyArgs any;
  ReduceArgs reduce;
  ToldWords told;  // the experts' sums, one split of reduce.stride
};
static_assert(sizeof(ExpertsReduceArgs) == 584);

// x[row] += sum over the row's slots of weight * bias[id].
struct ExpertsBiasArgs {
  Address<const uint32_t> step;
  Address<const uint32_t> ids;   // [rows, top]
  Address<const float> weights;  // [rows, top]
  Address<const float> bias;     // [experts, hidden]
  RowsOut out;
  uint32_t hidden = 0;  // a multiple of 8
  uint32_t stride = 0;
  uint32_t chunks = 0;  // ceil(hidden / kRowChunk)
  uint32_t top = 0;
};
static_assert(sizeof(ExpertsBiasArgs) == 80);

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_EXPERTS_ARGS_H_
