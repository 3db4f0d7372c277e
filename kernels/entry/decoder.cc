// SPDX-License-Identifier: MIT
#include "kernels/common/kernel.h"
#include "kernels/ops/add_normed.h"
#include "kernels/ops/attend_latent.h"
#include "kernels/ops/attend_latent_tall.h"
#include "kernels/ops/attend_long.h"
#include "kernels/ops/attend_near.h"
#include "kernels/ops/attend_shared.h"
#include "kernels/ops/attend_prompt.h"
#include "kernels/ops/attend_tall.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/choose_share.h"
#include "kernels/ops/delta.h"
#include "kernels/ops/experts.h"
#include "kernels/ops/experts_any.h"
#include "kernels/ops/experts_bias.h"
#include "kernels/ops/experts_reduce.h"
#include "kernels/ops/experts_tall.h"
#include "kernels/ops/experts_tall_down.h"
#include "kernels/ops/gate_up_half.h"
#include "kernels/ops/heads.h"
#include "kernels/ops/heads_matmul.h"
#include "kernels/ops/latent.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/matmul_reduce.h"
#include "kernels/ops/prepare.h"
#include "kernels/ops/reduce.h"
#include "kernels/ops/route.h"
#include "kernels/ops/route_scored.h"
#include "kernels/ops/row_gate.h"
#include "kernels/ops/step.h"
#include "kernels/ops/tall.h"
#include "kernels/ops/taps.h"

namespace mainarch::kernels {

KERNEL(step_begin, StepBegin, "vgpr=32 sgpr=56")
KERNEL(step_tables, StepTables, "vgpr=32 sgpr=56")
KERNEL(embed, Embed, "vgpr=32 sgpr=56 lds=16")
KERNEL(tap, Tap, "vgpr=32 sgpr=56")
KERNEL(input, Input, "vgpr=32 sgpr=72 lds=16")
KERNEL(resplit, Resplit, "vgpr=32 sgpr=56")
KERNEL(row_gate, RowGate, "vgpr=32 sgpr=88")
KERNEL(add_normed, AddNormed, "vgpr=48 sgpr=80 lds=16")
KERNEL(head_squares, HeadSquares, "vgpr=32 sgpr=96")
KERNEL(wide_norm, WideNorm, "vgpr=16 sgpr=56")
KERNEL(widen_heads, WidenHeads, "vgpr=48 sgpr=112")
KERNEL(narrow_heads, NarrowHeads, "vgpr=24 sgpr=80")
KERNEL(experts_bias, ExpertsBias, "vgpr=48 sgpr=80 lds=16")
KERNEL(reduce, Reduce, "vgpr=64 sgpr=112 lds=16")
KERNEL(reduce_twice, ReduceTwice, "vgpr=64 sgpr=112 lds=16")
KERNEL(sum_slots, SumSlots, "vgpr=40 sgpr=64")
KERNEL(route, Route, "vgpr=96 sgpr=112")
KERNEL(experts_group, ExpertsGroup, "vgpr=64 sgpr=80")
KERNEL(route_scored, RouteScored, "vgpr=80 sgpr=112")
KERNEL(choose_share, ChooseShare, "vgpr=80 sgpr=112 lds=22656 gfx942.lds=19584")
KERNEL(choose_narrow, ChooseNarrow, "vgpr=80 sgpr=112 lds=18560")
KERNEL(choose_race, ChooseRace, "vgpr=48 sgpr=112 lds=64")
KERNEL(attend_merge, AttendMerge, "vgpr=72 sgpr=112 lds=5760")
KERNEL(attend_merge_rows, AttendMergeRows, "vgpr=72 sgpr=112 lds=5760")
KERNEL(attend_long_merge, AttendLongMerge, "vgpr=104 sgpr=112 lds=3712")
KERNEL(attend_long_merge_wide, AttendLongMergeWide, "vgpr=240 sgpr=112 lds=6784")
KERNEL(share_queries, ShareQueries, "vgpr=16 sgpr=88")
KERNEL(attend_shared_merge, AttendSharedMerge, "vgpr=96 sgpr=112 lds=3712")

using GatedDelta = Delta<128, 2>;
using GatedDeltaWide = Delta<256, 1>;
KERNEL(gated_delta, GatedDelta, "vgpr=216 sgpr=112 lds=8256")
KERNEL(gated_delta_wide, GatedDeltaWide, "vgpr=240 sgpr=112 lds=12352")
KERNEL(gated_delta_norm, GatedDeltaNorm, "vgpr=64 sgpr=112")

using MatmulBf16 = Matmul<TileFormat::kBf16, false>;
using MatmulPair = Matmul<TileFormat::kBf16Pair, false>;
using MatmulFp8 = Matmul<TileFormat::kFp8, false>;
using MatmulMxfp4 = Matmul<TileFormat::kMxfp4, false>;
using GateUpBf16 = Matmul<TileFormat::kBf16, true>;
using GateUpPair = Matmul<TileFormat::kBf16Pair, true>;
using GateUpFp8 = Matmul<TileFormat::kFp8, true>;
using GateUpMxfp4 = Matmul<TileFormat::kMxfp4, true>;
KERNEL(matmul_bf16, MatmulBf16, "vgpr=128 sgpr=112 lds=4096")
KERNEL(matmul_pair, MatmulPair, "vgpr=128 sgpr=112 lds=4096")
KERNEL(matmul_fp8, MatmulFp8, "vgpr=128 sgpr=112 lds=4096")
KERNEL(matmul_mxfp4, MatmulMxfp4, "vgpr=136 gfx942.vgpr=152 sgpr=112 lds=4096")
KERNEL(gate_up_bf16, GateUpBf16, "vgpr=128 sgpr=112 lds=4096")
KERNEL(gate_up_pair, GateUpPair, "vgpr=128 sgpr=112 lds=4096")
KERNEL(gate_up_fp8, GateUpFp8, "vgpr=128 sgpr=112 lds=4096")
KERNEL(gate_up_mxfp4, GateUpMxfp4, "vgpr=168 sgpr=112 lds=4096")

using ExpertsBf16 = Experts<TileFormat::kBf16>;
using ExpertsPair = Experts<TileFormat::kBf16Pair>;
using ExpertsFp8 = Experts<TileFormat::kFp8>;
using ExpertsMxfp4 = Experts<TileFormat::kMxfp4>;
KERNEL(experts_bf16, ExpertsBf16, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_pair, ExpertsPair, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_fp8, ExpertsFp8, "vgpr=256 sgpr=112 lds=14928")
KERNEL(experts_mxfp4, ExpertsMxfp4, "vgpr=256 sgpr=112 lds=23632")

// Biases of gate and up, and activations beside SiLU.
using GateUpBf16Any = GateUpAny<TileFormat::kBf16>;
using GateUpPairAny = GateUpAny<TileFormat::kBf16Pair>;
using GateUpFp8Any = GateUpAny<TileFormat::kFp8>;
using GateUpMxfp4Any = GateUpAny<TileFormat::kMxfp4>;
using ExpertsBf16Any = ExpertsAny<TileFormat::kBf16>;
using ExpertsPairAny = ExpertsAny<TileFormat::kBf16Pair>;
using ExpertsFp8Any = ExpertsAny<TileFormat::kFp8>;
using ExpertsMxfp4Any = ExpertsAny<TileFormat::kMxfp4>;
KERNEL(gate_up_bf16_any, GateUpBf16Any, "vgpr=128 sgpr=112 lds=4096")
KERNEL(gate_up_pair_any, GateUpPairAny, "vgpr=128 sgpr=112 lds=4096")
KERNEL(gate_up_fp8_any, GateUpFp8Any, "vgpr=128 sgpr=112 lds=4096")
KERNEL(gate_up_mxfp4_any, GateUpMxfp4Any, "vgpr=168 sgpr=112 lds=4096")
KERNEL(experts_bf16_any, ExpertsBf16Any, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_pair_any, ExpertsPairAny, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_fp8_any, ExpertsFp8Any, "vgpr=256 sgpr=112 lds=14928")
KERNEL(experts_mxfp4_any, ExpertsMxfp4Any, "vgpr=256 sgpr=112 lds=23632")

// Products of many rows.
#define MAINARCH_TALL_PRODUCTS(suffix, format, taken, lds, parts_lds)                               \
  using Tall_##suffix = Tall<TileFormat::format, TallKind::kMatmul, Taken::taken>;                  \
  using TallParts_##suffix = Tall<TileFormat::format, TallKind::kParts, Taken::taken>;              \
  using TallGateUp_##suffix = Tall<TileFormat::format, TallKind::kGateUp, Taken::taken>;            \
  using TallAny_##suffix = TallAny<TileFormat::format, Taken::taken>;                               \
  KERNEL(tall_##suffix, Tall_##suffix, "vgpr=512 agpr=256 sgpr=112 lds=" lds)                       \
  KERNEL(tall_parts_##suffix, TallParts_##suffix, "vgpr=512 agpr=256 sgpr=112 lds=" parts_lds)      \
  KERNEL(tall_gate_up_##suffix, TallGateUp_##suffix, "vgpr=512 agpr=256 sgpr=112 lds=" lds)         \
  KERNEL(tall_gate_up_any_##suffix, TallAny_##suffix, "vgpr=512 agpr=256 sgpr=112 lds=" lds)
#define MAINARCH_TALL(suffix, format, taken, lds, parts_lds)                                        \
  MAINARCH_TALL_PRODUCTS(suffix, format, taken, lds, parts_lds)                                     \
  using ExpertsTall_##suffix = ExpertsTall<TileFormat::format, Taken::taken>;                       \
  using ExpertsTallAny_##suffix = ExpertsTall<TileFormat::format, Taken::taken, true>;              \
  KERNEL(experts_tall_##suffix, ExpertsTall_##suffix, "vgpr=512 agpr=256 sgpr=112 lds=" lds)        \
  KERNEL(experts_tall_any_##suffix, ExpertsTallAny_##suffix, "vgpr=512 agpr=256 sgpr=112 lds=" lds)
#define MAINARCH_TALL_DOWN(suffix, format, taken, lds)                                              \
  using ExpertsTallDown_##suffix = ExpertsTallDown<TileFormat::format, Taken::taken>;               \
  KERNEL(experts_tall_down_##suffix, ExpertsTallDown_##suffix, "vgpr=256 sgpr=112 lds=" lds)
#define MAINARCH_TALL_ALL(suffix, format, taken, lds, parts_lds, down_lds) \
  MAINARCH_TALL(suffix, format, taken, lds, parts_lds)                     \
  MAINARCH_TALL_DOWN(suffix, format, taken, down_lds)
MAINARCH_TALL_ALL(bf16, kBf16, kBoth, "52224", "56320", "57344")
MAINARCH_TALL_ALL(bf16_rounded, kBf16, kRounded, "41472", "45568", "40960")
MAINARCH_TALL_ALL(fp8, kFp8, kBoth, "52224", "56320", "57344")
MAINARCH_TALL_ALL(fp8_rounded, kFp8, kRounded, "41472", "45568", "40960")
MAINARCH_TALL_ALL(mxfp4, kMxfp4, kBoth, "52224", "56320", "57344")
MAINARCH_TALL_ALL(mxfp4_rounded, kMxfp4, kRounded, "41472", "45568", "40960")
MAINARCH_TALL_ALL(nibble, kNibble, kBoth, "54272", "58368", "54800")
MAINARCH_TALL_ALL(byte, kByte, kBoth, "56320", "60416", "54800")

// Codes of four and eight bits.
using MatmulNibble = Matmul<TileFormat::kNibble, false>;
using MatmulByte = Matmul<TileFormat::kByte, false>;
using GateUpNibble = Matmul<TileFormat::kNibble, true>;
using GateUpByte = Matmul<TileFormat::kByte, true>;
using ExpertsNibble = Experts<TileFormat::kNibble>;
using ExpertsByte = Experts<TileFormat::kByte>;
using GateUpNibbleAny = GateUpAny<TileFormat::kNibble>;
using GateUpByteAny = GateUpAny<TileFormat::kByte>;
using ExpertsNibbleAny = ExpertsAny<TileFormat::kNibble>;
using ExpertsByteAny = ExpertsAny<TileFormat::kByte>;
// A file's down may have more bits than its gate and up, or fewer.
using ExpertsNibbleByte = Experts<TileFormat::kNibble, Taken::kBoth, false, TileFormat::kByte>;
using ExpertsByteNibble = Experts<TileFormat::kByte, Taken::kBoth, false, TileFormat::kNibble>;
using ExpertsNibbleByteAny = ExpertsAny<TileFormat::kNibble, Taken::kBoth, TileFormat::kByte>;
using ExpertsByteNibbleAny = ExpertsAny<TileFormat::kByte, Taken::kBoth, TileFormat::kNibble>;
// Small kernels lie between large ones: behind each one's end there are to be bytes that nobody runs, within a branch's reach
// (find_ends in tools/check.py), and what is left at the end of a kernel's 256 bytes may be too few.
KERNEL(experts_nibble, ExpertsNibble, "vgpr=168 sgpr=112 lds=14928")
KERNEL(matmul_nibble, MatmulNibble, "vgpr=152 sgpr=112 lds=4096")
KERNEL(experts_byte, ExpertsByte, "vgpr=168 sgpr=112 lds=14928")
KERNEL(matmul_byte, MatmulByte, "vgpr=144 sgpr=112 lds=4096")
KERNEL(experts_nibble_any, ExpertsNibbleAny, "vgpr=168 sgpr=112 lds=14928")
KERNEL(gate_up_nibble, GateUpNibble, "vgpr=128 gfx942.vgpr=136 sgpr=112 lds=4096")
KERNEL(experts_byte_any, ExpertsByteAny, "vgpr=168 sgpr=112 lds=14928")
KERNEL(gate_up_byte, GateUpByte, "vgpr=144 sgpr=112 lds=4096")
KERNEL(experts_nibble_byte, ExpertsNibbleByte, "vgpr=168 sgpr=112 lds=14928")
KERNEL(gate_up_nibble_any, GateUpNibbleAny, "vgpr=128 gfx942.vgpr=136 sgpr=112 lds=4096")
KERNEL(experts_byte_nibble, ExpertsByteNibble, "vgpr=168 sgpr=112 lds=14928")
KERNEL(gate_up_byte_any, GateUpByteAny, "vgpr=144 sgpr=112 lds=4096")
KERNEL(experts_nibble_byte_any, ExpertsNibbleByteAny, "vgpr=168 sgpr=112 lds=14928")
KERNEL(experts_byte_nibble_any, ExpertsByteNibbleAny, "vgpr=168 sgpr=112 lds=14928")

// bf16 activations.
using MatmulBf16Rounded = Matmul<TileFormat::kBf16, false, Taken::kRounded>;
using MatmulFp8Rounded = Matmul<TileFormat::kFp8, false, Taken::kRounded>;
using MatmulMxfp4Rounded = Matmul<TileFormat::kMxfp4, false, Taken::kRounded>;
using GateUpBf16Rounded = Matmul<TileFormat::kBf16, true, Taken::kRounded>;
using GateUpFp8Rounded = Matmul<TileFormat::kFp8, true, Taken::kRounded>;
using GateUpMxfp4Rounded = Matmul<TileFormat::kMxfp4, true, Taken::kRounded>;
using ExpertsBf16Rounded = Experts<TileFormat::kBf16, Taken::kRounded>;
using ExpertsFp8Rounded = Experts<TileFormat::kFp8, Taken::kRounded>;
using ExpertsMxfp4Rounded = Experts<TileFormat::kMxfp4, Taken::kRounded>;
using GateUpBf16AnyRounded = GateUpAny<TileFormat::kBf16, Taken::kRounded>;
using GateUpFp8AnyRounded = GateUpAny<TileFormat::kFp8, Taken::kRounded>;
using GateUpMxfp4AnyRounded = GateUpAny<TileFormat::kMxfp4, Taken::kRounded>;
using ExpertsBf16AnyRounded = ExpertsAny<TileFormat::kBf16, Taken::kRounded>;
using ExpertsFp8AnyRounded = ExpertsAny<TileFormat::kFp8, Taken::kRounded>;
using ExpertsMxfp4AnyRounded = ExpertsAny<TileFormat::kMxfp4, Taken::kRounded>;
KERNEL(matmul_bf16_rounded, MatmulBf16Rounded, "vgpr=128 sgpr=112 lds=4096")
KERNEL(matmul_fp8_rounded, MatmulFp8Rounded, "vgpr=128 sgpr=112 lds=4096")
KERNEL(matmul_mxfp4_rounded, MatmulMxfp4Rounded, "vgpr=136 gfx942.vgpr=152 sgpr=112 lds=4096")
KERNEL(gate_up_bf16_rounded, GateUpBf16Rounded, "vgpr=128 sgpr=112 lds=4096")
KERNEL(gate_up_fp8_rounded, GateUpFp8Rounded, "vgpr=128 sgpr=112 lds=4096")
KERNEL(gate_up_mxfp4_rounded, GateUpMxfp4Rounded, "vgpr=168 sgpr=112 lds=4096")
KERNEL(experts_bf16_rounded, ExpertsBf16Rounded, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_fp8_rounded, ExpertsFp8Rounded, "vgpr=256 sgpr=112 lds=14928")
KERNEL(experts_mxfp4_rounded, ExpertsMxfp4Rounded, "vgpr=256 sgpr=112 lds=23632")
KERNEL(gate_up_bf16_any_rounded, GateUpBf16AnyRounded, "vgpr=128 sgpr=112 lds=4096")
KERNEL(gate_up_fp8_any_rounded, GateUpFp8AnyRounded, "vgpr=128 sgpr=112 lds=4096")
KERNEL(gate_up_mxfp4_any_rounded, GateUpMxfp4AnyRounded, "vgpr=168 sgpr=112 lds=4096")
KERNEL(experts_bf16_any_rounded, ExpertsBf16AnyRounded, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_fp8_any_rounded, ExpertsFp8AnyRounded, "vgpr=256 sgpr=112 lds=14928")
KERNEL(experts_mxfp4_any_rounded, ExpertsMxfp4AnyRounded, "vgpr=256 sgpr=112 lds=23632")

// Gate and up of few rows, an output tile of both by two workgroups.
#define MAINARCH_GATE_UP_HALF(suffix, format, taken)                       \
  using GateUpHalf_##suffix = GateUpHalf<TileFormat::format, Taken::taken>; \
  KERNEL(gate_up_half_##suffix, GateUpHalf_##suffix, "vgpr=256 sgpr=112 lds=4096")
MAINARCH_GATE_UP_HALF(bf16, kBf16, kBoth)
MAINARCH_GATE_UP_HALF(pair, kBf16Pair, kBoth)
MAINARCH_GATE_UP_HALF(fp8, kFp8, kBoth)
MAINARCH_GATE_UP_HALF(mxfp4, kMxfp4, kBoth)
MAINARCH_GATE_UP_HALF(nibble, kNibble, kBoth)
MAINARCH_GATE_UP_HALF(byte, kByte, kBoth)
MAINARCH_GATE_UP_HALF(bf16_rounded, kBf16, kRounded)
MAINARCH_GATE_UP_HALF(fp8_rounded, kFp8, kRounded)
MAINARCH_GATE_UP_HALF(mxfp4_rounded, kMxfp4, kRounded)

// And the all-reduce behind it.
using MatmulReduceBf16 = MatmulReduce<TileFormat::kBf16>;
using MatmulReducePair = MatmulReduce<TileFormat::kBf16Pair>;
using MatmulReduceFp8 = MatmulReduce<TileFormat::kFp8>;
using MatmulReduceMxfp4 = MatmulReduce<TileFormat::kMxfp4>;
using MatmulReduceNibble = MatmulReduce<TileFormat::kNibble>;
using MatmulReduceByte = MatmulReduce<TileFormat::kByte>;
using MatmulReduceBf16Rounded = MatmulReduce<TileFormat::kBf16, Taken::kRounded>;
using MatmulReduceFp8Rounded = MatmulReduce<TileFormat::kFp8, Taken::kRounded>;
using MatmulReduceMxfp4Rounded = MatmulReduce<TileFormat::kMxfp4, Taken::kRounded>;
KERNEL(matmul_reduce_bf16, MatmulReduceBf16, "vgpr=128 sgpr=112 lds=4096")
KERNEL(matmul_reduce_pair, MatmulReducePair, "vgpr=128 sgpr=112 lds=4096")
KERNEL(matmul_reduce_fp8, MatmulReduceFp8, "vgpr=128 sgpr=112 lds=4096")
KERNEL(matmul_reduce_mxfp4, MatmulReduceMxfp4, "vgpr=136 gfx942.vgpr=152 sgpr=112 lds=4096")
KERNEL(matmul_reduce_nibble, MatmulReduceNibble, "vgpr=152 sgpr=112 lds=4096")
KERNEL(matmul_reduce_byte, MatmulReduceByte, "vgpr=144 sgpr=112 lds=4096")
KERNEL(matmul_reduce_bf16_rounded, MatmulReduceBf16Rounded, "vgpr=128 sgpr=112 lds=4096")
KERNEL(matmul_reduce_fp8_rounded, MatmulReduceFp8Rounded, "vgpr=128 sgpr=112 lds=4096")
KERNEL(matmul_reduce_mxfp4_rounded, MatmulReduceMxfp4Rounded, "vgpr=136 gfx942.vgpr=152 sgpr=112 lds=4096")

using ExpertsReduceBf16 = ExpertsReduce<TileFormat::kBf16>;
using ExpertsReducePair = ExpertsReduce<TileFormat::kBf16Pair>;
using ExpertsReduceFp8 = ExpertsReduce<TileFormat::kFp8>;
using ExpertsReduceMxfp4 = ExpertsReduce<TileFormat::kMxfp4>;
using ExpertsReduceNibble = ExpertsReduce<TileFormat::kNibble>;
using ExpertsReduceByte = ExpertsReduce<TileFormat::kByte>;
using ExpertsReduceNibbleByte = ExpertsReduce<TileFormat::kNibble, Taken::kBoth, false, TileFormat::kByte>;
using ExpertsReduceByteNibble = ExpertsReduce<TileFormat::kByte, Taken::kBoth, false, TileFormat::kNibble>;
using ExpertsReduceBf16Rounded = ExpertsReduce<TileFormat::kBf16, Taken::kRounded>;
using ExpertsReduceFp8Rounded = ExpertsReduce<TileFormat::kFp8, Taken::kRounded>;
using ExpertsReduceMxfp4Rounded = ExpertsReduce<TileFormat::kMxfp4, Taken::kRounded>;
KERNEL(experts_reduce_bf16, ExpertsReduceBf16, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_reduce_pair, ExpertsReducePair, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_reduce_fp8, ExpertsReduceFp8, "vgpr=256 sgpr=112 lds=14928")
KERNEL(experts_reduce_mxfp4, ExpertsReduceMxfp4, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_reduce_nibble, ExpertsReduceNibble, "vgpr=168 sgpr=112 lds=14928")
KERNEL(experts_reduce_byte, ExpertsReduceByte, "vgpr=168 sgpr=112 lds=14928")
KERNEL(experts_reduce_nibble_byte, ExpertsReduceNibbleByte, "vgpr=168 sgpr=112 lds=14928")
KERNEL(experts_reduce_byte_nibble, ExpertsReduceByteNibble, "vgpr=168 sgpr=112 lds=14928")
KERNEL(experts_reduce_bf16_rounded, ExpertsReduceBf16Rounded, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_reduce_fp8_rounded, ExpertsReduceFp8Rounded, "vgpr=256 sgpr=112 lds=14928")
KERNEL(experts_reduce_mxfp4_rounded, ExpertsReduceMxfp4Rounded, "vgpr=256 sgpr=112 lds=23632")

// Of codes with biases or another activation there is none: their reduction is a launch of its own.
using ExpertsReduceBf16Any = ExpertsReduce<TileFormat::kBf16, Taken::kBoth, true>;
using ExpertsReducePairAny = ExpertsReduce<TileFormat::kBf16Pair, Taken::kBoth, true>;
using ExpertsReduceFp8Any = ExpertsReduce<TileFormat::kFp8, Taken::kBoth, true>;
using ExpertsReduceMxfp4Any = ExpertsReduce<TileFormat::kMxfp4, Taken::kBoth, true>;
using ExpertsReduceBf16AnyRounded = ExpertsReduce<TileFormat::kBf16, Taken::kRounded, true>;
using ExpertsReduceFp8AnyRounded = ExpertsReduce<TileFormat::kFp8, Taken::kRounded, true>;
using ExpertsReduceMxfp4AnyRounded = ExpertsReduce<TileFormat::kMxfp4, Taken::kRounded, true>;
KERNEL(experts_reduce_bf16_any, ExpertsReduceBf16Any, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_reduce_pair_any, ExpertsReducePairAny, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_reduce_fp8_any, ExpertsReduceFp8Any, "vgpr=256 sgpr=112 lds=14928")
KERNEL(experts_reduce_mxfp4_any, ExpertsReduceMxfp4Any, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_reduce_bf16_any_rounded, ExpertsReduceBf16AnyRounded, "vgpr=256 sgpr=112 lds=23632")
KERNEL(experts_reduce_fp8_any_rounded, ExpertsReduceFp8AnyRounded, "vgpr=256 sgpr=112 lds=14928")
KERNEL(experts_reduce_mxfp4_any_rounded, ExpertsReduceMxfp4AnyRounded, "vgpr=256 sgpr=112 lds=23632")

#define MAINARCH_ATTENTION(suffix, format, head_dim, prepares)            \
  using Prepare_##suffix = Prepare<format, head_dim>;                     \
  using Attend_##suffix = Attend<format, head_dim>;                       \
  using AttendLong_##suffix = AttendLong<format, head_dim>;               \
  KERNEL(prepare_##suffix, Prepare_##suffix, prepares)                    \
  KERNEL(attend_##suffix, Attend_##suffix, "vgpr=256 sgpr=112 lds=17792") \
  KERNEL(attend_long_##suffix, AttendLong_##suffix, "vgpr=256 sgpr=112 lds=17792")

MAINARCH_ATTENTION(bf16_32, KvFormat::kBF16, 32, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(bf16_64, KvFormat::kBF16, 64, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(bf16_96, KvFormat::kBF16, 96, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(bf16_128, KvFormat::kBF16, 128, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(bf16_192, KvFormat::kBF16, 192, "vgpr=80 sgpr=112")
MAINARCH_ATTENTION(bf16_256, KvFormat::kBF16, 256, "vgpr=80 sgpr=112")
MAINARCH_ATTENTION(fp8_32, KvFormat::kFp8, 32, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(fp8_64, KvFormat::kFp8, 64, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(fp8_96, KvFormat::kFp8, 96, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(fp8_128, KvFormat::kFp8, 128, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(fp8_192, KvFormat::kFp8, 192, "vgpr=80 sgpr=112")
MAINARCH_ATTENTION(fp8_256, KvFormat::kFp8, 256, "vgpr=80 sgpr=112")
MAINARCH_ATTENTION(pair_32, KvFormat::kF32, 32, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(pair_64, KvFormat::kF32, 64, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(pair_96, KvFormat::kF32, 96, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(pair_128, KvFormat::kF32, 128, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(pair_192, KvFormat::kF32, 192, "vgpr=80 sgpr=112")
MAINARCH_ATTENTION(pair_256, KvFormat::kF32, 256, "vgpr=80 sgpr=112")

MAINARCH_ATTENTION(fp4_32, KvFormat::kFp4, 32, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(fp4_64, KvFormat::kFp4, 64, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(fp4_96, KvFormat::kFp4, 96, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(fp4_128, KvFormat::kFp4, 128, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(fp4_192, KvFormat::kFp4, 192, "vgpr=80 sgpr=112")
MAINARCH_ATTENTION(fp4_256, KvFormat::kFp4, 256, "vgpr=80 sgpr=112")
MAINARCH_ATTENTION(k8v4_32, KvFormat::kK8V4, 32, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(k8v4_64, KvFormat::kK8V4, 64, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(k8v4_96, KvFormat::kK8V4, 96, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(k8v4_128, KvFormat::kK8V4, 128, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION(k8v4_192, KvFormat::kK8V4, 192, "vgpr=80 sgpr=112")
MAINARCH_ATTENTION(k8v4_256, KvFormat::kK8V4, 256, "vgpr=80 sgpr=112")

// Of many rows.
#define MAINARCH_ATTENTION_TALL(suffix, format, head_dim)                \
  using AttendTall_##suffix = AttendTall<KvFormat::format, head_dim>;    \
  KERNEL(attend_tall_##suffix, AttendTall_##suffix, "vgpr=256 sgpr=112 lds=17792")
MAINARCH_ATTENTION_TALL(bf16_32, kBF16, 32)
MAINARCH_ATTENTION_TALL(bf16_64, kBF16, 64)
MAINARCH_ATTENTION_TALL(bf16_96, kBF16, 96)
MAINARCH_ATTENTION_TALL(bf16_128, kBF16, 128)
MAINARCH_ATTENTION_TALL(bf16_192, kBF16, 192)
MAINARCH_ATTENTION_TALL(bf16_256, kBF16, 256)
MAINARCH_ATTENTION_TALL(fp8_32, kFp8, 32)
MAINARCH_ATTENTION_TALL(fp8_64, kFp8, 64)
MAINARCH_ATTENTION_TALL(fp8_96, kFp8, 96)
MAINARCH_ATTENTION_TALL(fp8_128, kFp8, 128)
MAINARCH_ATTENTION_TALL(fp8_192, kFp8, 192)
MAINARCH_ATTENTION_TALL(fp8_256, kFp8, 256)
MAINARCH_ATTENTION_TALL(pair_32, kF32, 32)
MAINARCH_ATTENTION_TALL(pair_64, kF32, 64)
MAINARCH_ATTENTION_TALL(pair_96, kF32, 96)
MAINARCH_ATTENTION_TALL(pair_128, kF32, 128)
MAINARCH_ATTENTION_TALL(pair_192, kF32, 192)
MAINARCH_ATTENTION_TALL(pair_256, kF32, 256)
MAINARCH_ATTENTION_TALL(fp4_32, kFp4, 32)
MAINARCH_ATTENTION_TALL(fp4_64, kFp4, 64)
MAINARCH_ATTENTION_TALL(fp4_96, kFp4, 96)
MAINARCH_ATTENTION_TALL(fp4_128, kFp4, 128)
MAINARCH_ATTENTION_TALL(fp4_192, kFp4, 192)
MAINARCH_ATTENTION_TALL(fp4_256, kFp4, 256)
MAINARCH_ATTENTION_TALL(k8v4_32, kK8V4, 32)
MAINARCH_ATTENTION_TALL(k8v4_64, kK8V4, 64)
MAINARCH_ATTENTION_TALL(k8v4_96, kK8V4, 96)
MAINARCH_ATTENTION_TALL(k8v4_128, kK8V4, 128)
MAINARCH_ATTENTION_TALL(k8v4_192, kK8V4, 192)
MAINARCH_ATTENTION_TALL(k8v4_256, kK8V4, 256)

// Of prompts.
using AttendPrompt_64 = AttendPrompt<64>;
using AttendPrompt_128 = AttendPrompt<128>;
KERNEL(attend_prompt_bf16_64, AttendPrompt_64, "vgpr=512 agpr=256 sgpr=112 lds=16384")
KERNEL(attend_prompt_bf16_128, AttendPrompt_128, "vgpr=512 agpr=256 sgpr=112 lds=16384")

// Of two caches. Those of four bits are the far ones.
#define MAINARCH_ATTENTION_NEAR(head_dim, prepares)                                      \
  using AttendNear_##head_dim = AttendNear<head_dim>;                                    \
  using AttendTallNear_##head_dim = AttendTall<KvFormat::kFp8, head_dim, head_dim, SeesNear>;   \
  using AttendTallFarFp4_##head_dim = AttendTall<KvFormat::kFp4, head_dim, head_dim, SeesFar>;   \
  using AttendTallFarK8v4_##head_dim = AttendTall<KvFormat::kK8V4, head_dim, head_dim, SeesFar>; \
  using PrepareNear_##head_dim = PrepareNear<head_dim, false>;                           \
  using PrepareNearTurned_##head_dim = PrepareNear<head_dim, true>;                      \
  using AttendFarFp4_##head_dim = AttendLong<KvFormat::kFp4, head_dim, true>;            \
  using AttendFarK8v4_##head_dim = AttendLong<KvFormat::kK8V4, head_dim, true>;          \
  KERNEL(prepare_near_##head_dim, PrepareNear_##head_dim, prepares)                      \
  KERNEL(prepare_near_turned_##head_dim, PrepareNearTurned_##head_dim, prepares)         \
  KERNEL(attend_near_##head_dim, AttendNear_##head_dim, "vgpr=216 sgpr=112 lds=17792")   \
  KERNEL(attend_far_fp4_##head_dim, AttendFarFp4_##head_dim, "vgpr=256 sgpr=112 lds=17792") \
  KERNEL(attend_far_k8v4_##head_dim, AttendFarK8v4_##head_dim, "vgpr=256 sgpr=112 lds=17792") \
  KERNEL(attend_tall_near_##head_dim, AttendTallNear_##head_dim, "vgpr=256 sgpr=112 lds=17792") \
  KERNEL(attend_tall_far_fp4_##head_dim, AttendTallFarFp4_##head_dim, "vgpr=256 sgpr=112 lds=17792") \
  KERNEL(attend_tall_far_k8v4_##head_dim, AttendTallFarK8v4_##head_dim, "vgpr=256 sgpr=112 lds=17792")

MAINARCH_ATTENTION_NEAR(32, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION_NEAR(64, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION_NEAR(96, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION_NEAR(128, "vgpr=64 sgpr=112")
MAINARCH_ATTENTION_NEAR(192, "vgpr=80 sgpr=112")
MAINARCH_ATTENTION_NEAR(256, "vgpr=80 sgpr=112")

// Of heads whose V is smaller than K.
#define MAINARCH_ATTENTION_UNEQUAL(name, format, key, value)                                           \
  using Prepare_##name##_##key##_##value = PrepareUnequal<KvFormat::format, key, value>;               \
  using Attend_##name##_##key##_##value = Attend<KvFormat::format, key, value>;                        \
  using AttendLong_##name##_##key##_##value = AttendLong<KvFormat::format, key, false, value>;         \
  using AttendTall_##name##_##key##_##value = AttendTall<KvFormat::format, key, value>;                \
  KERNEL(prepare_##name##_##key##_##value, Prepare_##name##_##key##_##value, "vgpr=80 sgpr=112")       \
  KERNEL(attend_##name##_##key##_##value, Attend_##name##_##key##_##value, "vgpr=256 sgpr=112 lds=17792") \
  KERNEL(attend_long_##name##_##key##_##value, AttendLong_##name##_##key##_##value, "vgpr=256 sgpr=112 lds=17792") \
  KERNEL(attend_tall_##name##_##key##_##value, AttendTall_##name##_##key##_##value, "vgpr=256 sgpr=112 lds=17792")
#define MAINARCH_ATTENTION_NEAR_UNEQUAL(key, value)                                                    \
  using PrepareNear_##key##_##value = PrepareNearUnequal<key, value, false>;                           \
  using PrepareNearTurned_##key##_##value = PrepareNearUnequal<key, value, true>;                      \
  using AttendNear_##key##_##value = AttendNear<key, value>;                                           \
  using AttendFarFp4_##key##_##value = AttendLong<KvFormat::kFp4, key, true, value>;                   \
  using AttendFarK8v4_##key##_##value = AttendLong<KvFormat::kK8V4, key, true, value>;                 \
  using AttendTallNear_##key##_##value = AttendTall<KvFormat::kFp8, key, value, SeesNear>;             \
  using AttendTallFarFp4_##key##_##value = AttendTall<KvFormat::kFp4, key, value, SeesFar>;            \
  using AttendTallFarK8v4_##key##_##value = AttendTall<KvFormat::kK8V4, key, value, SeesFar>;          \
  KERNEL(prepare_near_##key##_##value, PrepareNear_##key##_##value, "vgpr=80 sgpr=112")                \
  KERNEL(prepare_near_turned_##key##_##value, PrepareNearTurned_##key##_##value, "vgpr=80 sgpr=112")   \
  KERNEL(attend_near_##key##_##value, AttendNear_##key##_##value, "vgpr=216 sgpr=112 lds=17792")       \
  KERNEL(attend_far_fp4_##key##_##value, AttendFarFp4_##key##_##value, "vgpr=256 sgpr=112 lds=17792")  \
  KERNEL(attend_far_k8v4_##key##_##value, AttendFarK8v4_##key##_##value, "vgpr=256 sgpr=112 lds=17792") \
  KERNEL(attend_tall_near_##key##_##value, AttendTallNear_##key##_##value, "vgpr=256 sgpr=112 lds=17792") \
  KERNEL(attend_tall_far_fp4_##key##_##value, AttendTallFarFp4_##key##_##value, "vgpr=256 sgpr=112 lds=17792") \
  KERNEL(attend_tall_far_k8v4_##key##_##value, AttendTallFarK8v4_##key##_##value, "vgpr=256 sgpr=112 lds=17792")
MAINARCH_ATTENTION_UNEQUAL(bf16, kBF16, 192, 128)
MAINARCH_ATTENTION_UNEQUAL(fp8, kFp8, 192, 128)
MAINARCH_ATTENTION_UNEQUAL(pair, kF32, 192, 128)
MAINARCH_ATTENTION_UNEQUAL(fp4, kFp4, 192, 128)
MAINARCH_ATTENTION_UNEQUAL(k8v4, kK8V4, 192, 128)
MAINARCH_ATTENTION_NEAR_UNEQUAL(192, 128)

KERNEL(attend_near_merge, AttendNearMerge, "vgpr=104 sgpr=112 lds=3712")
KERNEL(attend_near_merge_rows, AttendNearMergeRows, "vgpr=72 sgpr=112 lds=5760")

// Latent attention.
KERNEL(attend_latent_merge, AttendLatentMerge, "vgpr=72 sgpr=112 lds=5760")
KERNEL(norm_split, NormSplit, "vgpr=48 sgpr=80 lds=16")
using HeadsMatmulBf16 = HeadsMatmul<TileFormat::kBf16>;
using HeadsMatmulPair = HeadsMatmul<TileFormat::kBf16Pair>;
using HeadsMatmulFp8 = HeadsMatmul<TileFormat::kFp8>;
using HeadsMatmulMxfp4 = HeadsMatmul<TileFormat::kMxfp4>;
using HeadsMatmulNibble = HeadsMatmul<TileFormat::kNibble>;
using HeadsMatmulByte = HeadsMatmul<TileFormat::kByte>;
KERNEL(heads_matmul_bf16, HeadsMatmulBf16, "vgpr=128 sgpr=112 lds=4096")
KERNEL(heads_matmul_pair, HeadsMatmulPair, "vgpr=128 sgpr=112 lds=4096")
KERNEL(heads_matmul_fp8, HeadsMatmulFp8, "vgpr=128 sgpr=112 lds=4096")
KERNEL(heads_matmul_mxfp4, HeadsMatmulMxfp4, "vgpr=128 sgpr=112 lds=4096")
KERNEL(heads_matmul_nibble, HeadsMatmulNibble, "vgpr=128 sgpr=112 lds=4096")
KERNEL(heads_matmul_byte, HeadsMatmulByte, "vgpr=128 sgpr=112 lds=4096")
#define MAINARCH_LATENT(suffix, format, budget)                \
  using Latent_##suffix = Latent<format>;                      \
  using AttendLatent_##suffix = AttendLatent<format>;          \
  KERNEL(latent_##suffix, Latent_##suffix, "vgpr=64 sgpr=112") \
  KERNEL(attend_latent_##suffix, AttendLatent_##suffix, budget)
MAINARCH_LATENT(bf16, KvFormat::kBF16, "vgpr=256 sgpr=112 lds=45568")
MAINARCH_LATENT(fp8, KvFormat::kFp8, "vgpr=256 sgpr=112 lds=45568")
// Two planes are more than two waves of a SIMD hold, so it has one.
MAINARCH_LATENT(pair, KvFormat::kF32, "vgpr=344 agpr=88 sgpr=112 lds=45568")
// A wave a SIMD, which has all registers.
using AttendLatentTall_bf16 = AttendLatentTall<KvFormat::kBF16>;
using AttendLatentTall_fp8 = AttendLatentTall<KvFormat::kFp8>;
KERNEL(attend_latent_tall_bf16, AttendLatentTall_bf16, "vgpr=512 agpr=256 sgpr=112 lds=49152")
KERNEL(attend_latent_tall_fp8, AttendLatentTall_fp8, "vgpr=512 agpr=256 sgpr=112 lds=50176")

}  // namespace mainarch::kernels

#include "scaled_products.h"  // what this chip alone has
