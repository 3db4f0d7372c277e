// SPDX-License-Identifier: MIT
//
// What the decoder's kernels share, and the arguments of those that move rows, multiply, attend and
// reduce, read by host and device; those of the rest are beside it (*_args.h). Everything that changes from
// step to step is in the step block, in the GPU's own memory: the arguments of a kernel, and so
// its packet, are made once for a context and stay as they are.
//
// Activations are fp32 [rows, stride], stride a multiple of kPadColumns; columns beyond the width
// are zero. What a product takes in lies as split rows, of the same size. Weights are tiles
// (TileFormat). Shapes are row-major.
#ifndef MAINARCH_KERNELS_DECODER_ARGS_H_
#define MAINARCH_KERNELS_DECODER_ARGS_H_

#include "kernels/args.h"
#include "kernels/quant/kv_type.h"
#include "kernels/quant/weight_format.h"

namespace mainarch::kernels {

inline constexpr uint32_t kPadColumns = 128;   // of an activation row
inline constexpr uint32_t kRowChunk = 512;     // columns of x that one workgroup writes
inline constexpr uint32_t kPageTokens = 16;    // of a KV page
inline constexpr uint32_t kSplitTokens = 128;  // attention splits lie at multiples of it
inline constexpr uint32_t kMaxRanks = 8;

// Sums that workgroups of one launch tell others, of the same launch or of one beside it, which wait for them: each
// beside the launch's tag, in a word of 64 bits. [splits][kToldRows][ToldStride], columns at ToldPlace; zeros at first,
// and written by such launches alone, one after the other: not by one that awaits words there, some of whose workgroups
// may tell when others still wait. Who runs beside a launch waits for workgroups that wait for nobody and are dealt out
// before its own.
struct ToldWords {
  Address<uint64_t> words;  // 0: none
  uint32_t turn = 0;        // of such launches within a step,
  uint32_t turns = 0;       // of so many at most
};
static_assert(sizeof(ToldWords) == 16);
inline constexpr uint32_t kToldRows = 8;
// Odd, and another for each launch of a kind.
constexpr uint32_t LaunchTag(uint32_t index, uint32_t turn, uint32_t turns) { return (index * turns + turn) * 2 + 1; }
// Of each kRowChunk columns the even ones lie before the odd ones: a thread has two neighbours, and lanes side by side
// are to have words side by side.
constexpr uint32_t ToldPlace(uint32_t column) {
  return column / kRowChunk * kRowChunk + column % 2 * (kRowChunk / 2) + column % kRowChunk / 2;
}
constexpr uint32_t ToldStride(uint32_t columns) { return (columns + kRowChunk - 1) / kRowChunk * kRowChunk; }

inline constexpr uint32_t kMaxSplits = 8;   // workgroups that share a product's k
inline constexpr uint32_t kSplitRows = 16;  // of a step, at most, if workgroups share a product's k
inline constexpr uint32_t kMaxGroup = 16;  // query heads to one key head that a workgroup has

// Two steps may be in flight: what the host reads, and what the next step reads of this one, lies
// twice, and a step has the half of its parity.
constexpr uint32_t Parity(uint32_t index) { return index & 1; }

// One step, as the host writes it and kernel step_begin copies it: this header, then rows [rows]
// StepRow, logit_rows [logit_rows] uint32, inputs [rows + 1] uint32 where the Program has InputOps
// (the last one: the first row of the half that the source's tap is read from), sequences: their
// number and [sequences] {first row, rows}, states [caches of slots][2][rows] uint32 where the
// Program has such caches (before and after a row, kNoSlot: none), choices [logit_rows] ChoiceRow
// with their edits and counts, LeaseHead and [rows] LeaseRow with their stop tokens where the step has
// rounds, each at the offset (in words, from the start of the block) that the header says; behind
// that, only in the host's copy, changes [changes] PageChange.
//
// Rounds: the same launches again, for the token behind. The GPU makes the next round's block out of
// this one's (StepBegin), and takes from the host only the word that none is wanted any more. Logit row
// i is row i's, and all that is asked of it is a token.
//
// Page tables lie behind the block in the GPU's own memory and stay from step to step: a step
// brings what has changed.
struct StepHeader {
  uint32_t rows = 0;
  uint32_t logit_rows = 0;
  uint32_t splits = 0;  // attention splits of the row with the longest context
  uint32_t index = 0;   // of the step, from 1, one more each; wraps
  uint32_t rows_at = 0;
  uint32_t logit_rows_at = 0;
  uint32_t pages_at = 0;  // of the page tables
  uint32_t words = 0;     // of the block without its changes, a multiple of 4
  uint32_t choices_at = 0;
  uint32_t changes_at = 0;  // a multiple of 2
  uint32_t changes = 0;
  uint32_t inputs_at = 0;  // of the rows of the source's tap, where there are any
  uint32_t sequences_at = 0;
  uint32_t states_at = 0;
  uint32_t rounds = 0;    // behind this one; or kNoRound: this one is none, they ended with the one before
  uint32_t lease_at = 0;  // of a step with rounds: a LeaseHead
};
static_assert(sizeof(StepHeader) == 64);
inline constexpr uint32_t kNoRound = 0xffffffff;

// Rounds behind a step, at most.
inline constexpr uint32_t kMostRounds = 31;
// What the host reads of a round lies until so many others have been begun.
inline constexpr uint32_t kResultSlots = 64;

struct LeaseHead {
  uint32_t number = 0;  // what the host writes to `recall` to end it
  uint32_t slot_lists = 0;  // caches of slots
  uint32_t reserved[2] = {};
};
static_assert(sizeof(LeaseHead) == 16);
struct LeaseRow {
  uint32_t rounds = 0;  // it may go on for; a row that does not go on runs its last token again
  uint32_t stops_at = 0, stops = 0;  // tokens behind which it does not
  uint32_t slots_at = 0;  // of the next round: where its states go, a slot of each cache of slots
};
static_assert(sizeof(LeaseRow) == 16);

inline constexpr uint32_t kHere = 0xffffffff;
struct StepRow {
  uint32_t token = 0;
  uint32_t position = 0;
  // Where the row's page table of the first paged cache starts, in words from pages_at; those of other
  // caches lie `tables_at` of an op's arguments behind it.
  uint32_t pages = 0;
  // Not kHere: the token is what logit row `from` of the step before chose.
  uint32_t from = kHere;
};
static_assert(sizeof(StepRow) == 16);

// Of a row's state: before a sequence's first row, that of an empty sequence; after a row, it is not
// kept.
inline constexpr uint32_t kNoSlot = 0xffffffff;

struct PageChange {
  uint32_t at = 0;  // words from the start of the tables
  uint32_t page = 0;
};
static_assert(sizeof(PageChange) == 8);

// Run by one workgroup. Which of the two blocks it is that comes next, the GPU knows by itself: the
// index of the step before is in the block that is overwritten.
struct StepBeginArgs {
  Address<const uint32_t> from;  // host memory: the blocks of even and of odd steps
  Address<uint32_t> to;          // the step block, and behind it the page tables
  uint32_t block_words = 0;      // from the block of even steps to that of odd ones; a multiple of 4, not 0
  uint32_t max_rows = 0;         // of `tokens`
  // Rounds, which a step has only where a resident kernel runs it. Every GPU's [2][max_rows] TaggedToken, and
  // behind them [2]: whether there is a round, as the first rank says a round ahead, so that none begins one
  // without the others.
  Address<uint64_t> tokens[kMaxRanks];
  Address<const uint32_t> recall;  // host memory
  uint32_t rank = 0, ranks = 0;
};
static_assert(sizeof(StepBeginArgs) == 104);
inline constexpr uint32_t kEndOfLease = 0, kGoOn = 1;  // what it says

// tables[at] = page for each change: those that are more than a step's block holds.
struct StepTablesArgs {
  Address<const PageChange> changes;  // host memory; the first one's `at` is their number
  Address<uint32_t> tables;
};
static_assert(sizeof(StepTablesArgs) == 16);

// A token as the GPU that chose it makes it known: it is there when the tag is its step's.
constexpr uint32_t TokenTag(uint32_t index) { return index | 1; }  // each parity has its own slots
inline constexpr uint32_t kNoToken = 0xffffffff;  // none could be chosen
constexpr uint64_t TaggedToken(uint32_t index, uint32_t token) {
  return uint64_t{TokenTag(index)} << 32 | token;
}

// k goes in steps of 32 columns. Of a step, lane l = 16 g + i of the wave that reads it holds row i
// and eight columns in two runs of four, 4 g .. 4 g + 3 and 16 + 4 g .. 16 + 4 g + 3: so a thread
// that has four columns of x stores them in one word.
inline constexpr uint32_t kStepColumns = 32;
// Where column c of a step lies when a lane's eight are neighbours: lane part, then element.
constexpr uint32_t StepPlace(uint32_t c) { return c % 16 / 4 * 8 + c / 16 * 4 + c % 4; }

// A split row: each element is two bf16, the value and what its rounding left. Of each step 64 bytes
// of values and then 64 of what was left, both in the order of StepPlace: the operands of a matrix
// instruction, as they are loaded.
inline constexpr uint32_t kSplitHalfBytes = 2 * kStepColumns;
inline constexpr uint32_t kSplitStepBytes = 2 * kSplitHalfBytes;
// Where the value of a column begins, in bytes from the start of the row.
constexpr uint32_t SplitPlace(uint32_t column) {
  return column / kStepColumns * kSplitStepBytes + StepPlace(column % kStepColumns) * 2;
}

// What a product takes of a split row: both halves; values alone; or these as MXFP8 (quant/mxfp8.h), which it makes of them
// itself, where weights are MXFP4, or fp8 in blocks of 128 columns, and the chip has the instruction. Of many rows values alone may
// lie in tiles (tall_args.h), and those as MXFP8 go through a ring in LDS.
enum class Taken : uint32_t { kBoth, kRounded, kScaled, kTiled, kRing };
inline constexpr uint32_t kTakens = 5;

// A row of x as kernels make it: x, the sums of squares of its chunks, and x times a norm's weights as
// split rows, which the next product takes.
struct RowsOut {
  Address<float> x;           // [rows, stride]
  Address<float> squares;     // [rows, chunks]; 0: nobody norms it before it changes again
  Address<float> split;       // [rows, stride] split rows; 0: none
  Address<const float> norm;  // [stride]; 0: the product takes x as it is
};
static_assert(sizeof(RowsOut) == 32);

// split[row] = x[row] times a norm's weights.
struct ResplitArgs {
  Address<const uint32_t> step;
  Address<const float> x;     // [rows, stride]
  Address<float> split;       // [rows, stride] split rows
  Address<const float> norm;  // [stride]; 0: the product takes x as it is
  uint32_t hidden = 0;        // a multiple of 8
  uint32_t stride = 0;
  uint32_t chunks = 0;  // ceil(hidden / kRowChunk)
  uint32_t reserved = 0;
};
static_assert(sizeof(ResplitArgs) == 48);

// x[row] = table[token of the row]; zeros for kNoToken.
struct EmbedArgs {
  Address<const uint32_t> step;
  Address<const uint8_t> table;  // [vocab, hidden], bf16 or fp32
  RowsOut out;
  uint32_t hidden = 0;  // a multiple of 8
  uint32_t stride = 0;
  uint32_t chunks = 0;  // ceil(hidden / kRowChunk)
  uint32_t is_f32 = 0;
  Address<const uint64_t> tokens;  // [2][max_rows] TaggedToken, in this GPU's memory
  uint32_t max_rows = 0;           // logit rows of a step
  float scale = 1;                 // of all that is in the table
};
static_assert(sizeof(EmbedArgs) == 80);

// ---- rows between contexts ----

// out[row of the half of the step's parity] = x[row].
struct TapArgs {
  Address<const uint32_t> step;
  Address<const float> x;  // [rows, stride]
  Address<float> out;      // [2][max_rows, stride]: of even and of odd steps
  uint32_t hidden = 0;     // a multiple of 8
  uint32_t stride = 0;
  uint32_t chunks = 0;  // ceil(hidden / kRowChunk)
  uint32_t max_rows = 0;
};
static_assert(sizeof(TapArgs) == 40);

// An input of a row: a row of the source's tap, with this bit one of this context's own (both count
// both halves), or what the state before the row carries on, zeros of an empty sequence.
inline constexpr uint32_t kOwnInput = 0x80000000;
inline constexpr uint32_t kCarriedInput = 0xffffffff;

// x[row] = what the row's input says; the state after a row is row i of the source's tap, i the row's
// own index.
struct InputArgs {
  Address<const uint32_t> step;
  Address<const float> tap;  // [2 * max_rows of its own context, stride]
  RowsOut out;
  Address<const float> own;  // the same of this context; 0: none
  Address<uint8_t> slots;    // [slots] of fp32 [hidden], slot_bytes apart; 0: nothing is carried on
  uint64_t slot_bytes = 0;   // a multiple of 16
  uint32_t hidden = 0;       // a multiple of 8
  uint32_t stride = 0;
  uint32_t chunks = 0;
  uint32_t states = 0;  // which of the step's lists of slots
};
static_assert(sizeof(InputArgs) == 88);

// ---- inputs that are normed ----

// RMSNorm of the input: y = x * w * rsqrt(mean(x^2) + epsilon). The input has x * w; the factor of
// the row multiplies what comes out.
struct NormOf {
  Address<const float> squares;  // [rows, chunks]; 0: no norm
  uint32_t chunks = 0;
  float inverse_hidden = 0;
  float epsilon = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(NormOf) == 24);

// ---- recurrent state ----

// A gated delta net (src/backend/ops.h, GatedDeltaOp), of this GPU's heads. A slot of a layer is S of
// every value head, [value_dim / 16][key_dim / 16][4][16][4]: sixteen columns, and of a column keys
// 16 q + 4 g + e at [q][g][column][e]; then the last taps - 1 rows of `in`, [taps - 1][channels].
//
// A workgroup takes `columns` columns of one value head through all rows of a sequence. If these are
// not all of the head's, o goes to `plain`, and gated_delta_norm makes `out` of it: the same bits.
// Columns of one workgroup, at most.
constexpr uint32_t DeltaColumns(uint32_t key_dim) { return key_dim > 128 ? 64 : 128; }
inline constexpr uint32_t kDeltaMostDim = 256;
inline constexpr uint32_t kDeltaMostTaps = 8;
struct DeltaArgs {
  Address<const uint32_t> step;
  Address<const float> in;     // [rows, in_stride]: channels (q, k, v), z
  Address<const float> gates;  // [rows, gates_stride]: b, a; of shared k [gates_splits] such
  Address<float> out;          // [rows, out_stride] split rows
  Address<float> plain;        // [rows, out_stride]; 0: columns are all of a head's
  Address<uint8_t> slots;      // this layer's, slot_bytes apart
  Address<const float> conv;   // [channels, taps]
  Address<const float> decay;  // [value_heads]
  Address<const float> dt_bias;
  Address<const float> norm;  // [value_dim]
  uint64_t slot_bytes = 0;    // a multiple of 16
  NormOf gates_norm;          // of shared k: what its sums are still to be multiplied by
  uint32_t gates_splits = 1, gates_split_rows = 0;
  uint32_t in_stride = 0;
  uint32_t gates_stride = 0;
  uint32_t out_stride = 0;
  uint32_t key_heads = 0;
  uint32_t value_heads = 0;
  uint32_t key_dim = 0;    // a multiple of 16; at most 128, of gated_delta_wide 256
  uint32_t value_dim = 0;  // a multiple of 16, at most 256
  uint32_t taps = 0;       // 2 to kDeltaMostTaps
  uint32_t columns = 0;    // a multiple of 16, at most DeltaColumns
  uint32_t states = 0;     // which of the step's lists of slots
  float epsilon = 0;       // of the norm of o
  uint32_t reserved = 0;
};
static_assert(sizeof(DeltaArgs) == 168);

// ---- matrices ----

// A tile is 16 output rows by n = 1, 2 or 4 steps: 1 KiB (bf16 pair: 2 KiB).
//   kBf16      [lane][8], n = 1
//   kBf16Pair  two such, the rounded value and what rounding left: F16 exactly, F32 to 2^-17
//   kFp8       [lane][n][8], n = 2; scales [tile][2] fp32, one a step; on chips that read e4m3fnuz alone bytes are
//              such, half of what they stand for
//   kMxfp4     [lane][n][4 bytes], n = 4; scales [four steps][row][4] E8M0, one a step
//   kNibble    the same, n = 4; scales [record][row][2] fp32, of one step or of 2^shift; then, if there
//              are factors, [step][row][2 bytes]; quant::TileCode and TileFactors say what they make
//   kByte      [lane][n][8], n = 2; likewise
//   kFp8Blocks two kFp8 as one, n = 4, where every leaf is of such and their four steps have one factor
// Tiles lie [output tile][k tile]. With gate and up, output tiles alternate gate, up.
//
// k is summed in parts (Tiles::ends), and tiles are counted from the start of each. If a part ends
// within a tile, that last one has only the steps there are: first two (n = 2) if there are two or
// three, then one (n = 1) if there are one or three. So step s of a row lies at s * StepBytes,
// whatever the parts are. Scales are counted over all of k, and a last tile's take as much room as
// a whole one's, so that every load is of whole 64 bytes.
using quant::TileCode;
using quant::TileFactors;
using quant::TileFormat;
inline constexpr uint32_t kTileRows = 16;
constexpr bool IsFp8(TileFormat format) { return format == TileFormat::kFp8 || format == TileFormat::kFp8Blocks; }
constexpr uint32_t TileSteps(TileFormat format) { return quant::InfoOf(format).steps; }
constexpr uint32_t TileBytes(TileFormat format) { return quant::InfoOf(format).bytes; }
constexpr uint32_t StepBytes(TileFormat format) { return TileBytes(format) / TileSteps(format); }
constexpr uint32_t TileScaleBytes(TileFormat format) { return quant::InfoOf(format).scale_bytes; }
// Tiles along k, the last one whole or not.
constexpr uint32_t TilesOf(TileFormat format, uint32_t steps) {
  return (steps + TileSteps(format) - 1) / TileSteps(format);
}
// Of one output tile.
constexpr uint64_t TileRowBytes(TileFormat format, uint32_t steps) {
  return uint64_t{steps} * StepBytes(format);
}
constexpr uint64_t TileRowScaleBytes(TileFormat format, uint32_t steps) {
  return uint64_t{TilesOf(format, steps)} * TileScaleBytes(format);
}

// Parts of a matrix' k are the same whatever number of ranks hold it (backend/program.h
// Weight::splits); a rank has 1, 2, 4 or 8 neighbouring ones, and all of a k that is not cut is one
// part. A part is four leaves, a quarter of its tiles each; a leaf is added up in order, leaves in
// the tree of common/tree.h. A wave takes as many neighbouring leaves as there are parts: a whole
// subtree, so that four waves are busy for any number of ranks.
inline constexpr uint32_t kMaxParts = 8;
inline constexpr uint32_t kPartLeaves = 4;
inline constexpr uint32_t kMaxSteps = 0xffff;  // of one rank's k: ends are 16 bits

struct Tiles {
  Address<const uint8_t> data;
  Address<const uint8_t> scales;
  uint32_t outputs = 0;  // output tiles; with gate and up, pairs
  uint32_t steps = 0;    // along k
  uint16_t leaf_tiles = 0;  // that every leaf has, all whole; 0: leaves differ
  uint8_t parts = 1;
  // Of nibbles and bytes: record (scale_first + step) >> scale_shift of a row of tiles is a step's.
  uint8_t scale_shift = 0;
  uint16_t scale_first = 0;
  TileCode code = TileCode::kAffine;
  TileFactors factors = TileFactors::kNone;
  // Where parts end, in steps, 16 bits each: of parts 0 to 3, then of 4 to 7. Not an array, which
  // the compiler would put into scratch memory to index it.
  uint64_t low_ends = 0;
  uint64_t high_ends = 0;
};
static_assert(sizeof(Tiles) == 48);
constexpr uint32_t PackedEnd(uint64_t low, uint64_t high, uint32_t part) {
  return static_cast<uint32_t>((part < 4 ? low : high) >> part % 4 * 16) & 0xffff;
}
constexpr void PackEnd(uint64_t* low, uint64_t* high, uint32_t part, uint32_t end) {
  *(part < 4 ? low : high) |= uint64_t{end} << part % 4 * 16;
}
constexpr uint32_t PartEnd(const Tiles& w, uint32_t part) { return PackedEnd(w.low_ends, w.high_ends, part); }
constexpr void SetPartEnd(Tiles* w, uint32_t part, uint32_t step) {
  PackEnd(&w->low_ends, &w->high_ends, part, step);
}
constexpr void SetLeafTiles(TileFormat format, Tiles* w) {
  const uint32_t leaf = TileSteps(format) * kPartLeaves;  // of one tile, in a part of such
  w->leaf_tiles = static_cast<uint16_t>(PartEnd(*w, 0) / leaf);
  for (uint32_t part = 0, begin = 0; part < w->parts; begin = PartEnd(*w, part++)) {
    if (PartEnd(*w, part) - begin != w->leaf_tiles * leaf) w->leaf_tiles = 0;
  }
}

// Of every leaf, as kernels of a format count tiles: Tiles has those of kFp8 where they take two for one.
[[gnu::always_inline]] constexpr uint32_t LeafTiles(TileFormat format, const Tiles& w) {
  return format == TileFormat::kFp8Blocks ? w.leaf_tiles / 2 : w.leaf_tiles;
}

// ---- codes of four and of eight bits ----

constexpr bool HasCodes(TileFormat format) {
  return format == TileFormat::kNibble || format == TileFormat::kByte;
}
inline constexpr uint32_t kRecordBytes = kTileRows * 2 * 4;
inline constexpr uint32_t kFactorBytes = kTileRows * 2;  // of a step
// Of one output tile: records, factors, and of kByTile one record more, which begins with the tile's code.
[[gnu::always_inline]] constexpr uint32_t RecordsBytes(const Tiles& w) {
  return w.steps == 0 ? 0 : (((w.scale_first + w.steps - 1) >> w.scale_shift) + 1) * kRecordBytes;
}
[[gnu::always_inline]] constexpr uint32_t FactorsBytes(const Tiles& w) {
  return w.factors == TileFactors::kNone ? 0 : w.steps * kFactorBytes;
}
[[gnu::always_inline]] constexpr uint64_t ScaleRowBytes(TileFormat format, const Tiles& w) {
  if (!HasCodes(format)) return TileRowScaleBytes(format, w.steps);
  return uint64_t{RecordsBytes(w)} + FactorsBytes(w) + (w.code == TileCode::kByTile ? kRecordBytes : 0);
}
// Which of a word's nibbles, from the lowest on, is element e of a lane's eight. kAffine: two of them are
// masked at once into a word of two bf16, kNibbleOffset more than the code each; kIq4Nl: the low nibbles of four bytes are
// looked up at once.
constexpr uint32_t NibblePlace(TileCode code, uint32_t e) {
  return code == TileCode::kAffine ? e / 2 + e % 2 * 4
         : code == TileCode::kIq4Nl ? e % 4 * 2 + e / 4
                                    : e;
}
inline constexpr float kNibbleOffset = 16;

// act[row] *= sigmoid(gate[row]), one number a row.
struct RowGateArgs {
  Address<const uint32_t> step;
  Address<const float> gate;  // [splits][split_rows, gate_stride], the first column
  Address<float> act;         // [rows, stride] split rows
  NormOf norm;  // of the product's input, whose factor is not in the gate yet; or none
  uint32_t gate_stride = 0;
  uint32_t stride = 0;
  uint32_t chunks = 0;  // ceil(stride / kRowChunk)
  uint32_t splits = 1;  // of the product that made the gate
  uint32_t split_rows = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(RowGateArgs) == 72);

// x[row] = scale * norm(y)[row], or is added to.
struct AddNormedArgs {
  Address<const uint32_t> step;
  Address<const float> y;     // [splits][split_rows, stride]
  Address<const float> norm;  // [stride]; 0: none
  RowsOut out;
  uint32_t hidden = 0;  // a multiple of 8
  uint32_t stride = 0;
  uint32_t chunks = 0;  // ceil(hidden / kRowChunk)
  uint32_t add = 0;
  float scale = 1;
  float inverse_hidden = 0;
  float epsilon = 0;
  uint32_t splits = 1;  // of the product that made y
  uint32_t split_rows = 0;
  uint32_t one_row = 0;  // 1: y is one row, of all rows: a bias
};
static_assert(sizeof(AddNormedArgs) == 96);

enum MatmulFlags : uint32_t {
  kMatmulLogitRows = 1,  // rows: those that ask for logits
  kMatmulGated = 2,      // of gate_up_half_*: by GateUpAnyArgs::gating, not silu(gate) * up
};

// out[row, o] = sum over k of norm(x)[row, k] * w[o, k]; the gate-up form gives
// silu(gate) * up instead, as split rows. Writes whole tiles: `out_stride` covers them.
//
// Workgroups may share k: with `splits` each makes a sum of w.parts / splits parts, and there are as
// many of out, split_rows rows apart, for who takes it to add in the tree. The bits are the same, if
// the factor of the norm multiplies the whole sum: there is no norm here then.
struct MatmulArgs {
  Address<const uint32_t> step;
  Address<const float> x;  // [rows, x_stride] split rows
  Address<float> out;      // [splits][split_rows, out_stride]
  Tiles w;
  NormOf norm;
  uint32_t x_stride = 0;
  uint32_t out_stride = 0;
  uint32_t flags = 0;
  uint32_t parity_rows = 0;  // of out, from an even step's to an odd one's
  uint32_t rows = 0;    // of x: a step has no more
  uint32_t splits = 1;  // 1, 2, 4 or 8, at most w.parts; 1 with gate and up
  uint32_t split_rows = 0;
  uint32_t reserved = 0;
  ToldWords told;  // instead of `out`, of up to kToldRows rows of out_stride; none with gate and up or logits
};
static_assert(sizeof(MatmulArgs) == 144);

// What a feed-forward makes of its gate g and its up u, where that is not silu(g) * u: biases are added,
// then g is cut at `limit` and u at both limits, and of these it is
// g * sigmoid(linear * g + cubic * g^3) * (u + up_offset).
struct GatingArgs {
  Address<const float> gate_bias;  // [experts, width], [width] of a dense one; 0: neither has one
  Address<const float> up_bias;
  uint32_t width = 0;  // of act on this GPU: columns behind it have no bias
  float linear = 1;
  float cubic = 0;
  float limit = __builtin_huge_valf();
  float up_offset = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(GatingArgs) == 40);

// The gate-up form of up to so many rows by two workgroups an output tile of both (gate_up_half_*), which read GateUpAnyArgs:
// of weights of whole tiles, of codes none of kByTile.
inline constexpr uint32_t kHalvesRows = kTileRows / 2;

// The gate-up form with that. The product comes first, as its kernel reads it.
struct GateUpAnyArgs {
  MatmulArgs product;
  GatingArgs gating;
};
static_assert(sizeof(GateUpAnyArgs) == 184);

// ---- attention ----

using KvFormat = quant::KvType;

// A KV page of one layer and head: K [planes][hd / 32][16 tokens][32], the 32 in the order of
// StepPlace, V [planes][hd][16 tokens], then the multipliers of K and of V: fp32 [16 tokens] of fp8,
// of fp4 a byte (KvFp4ScaleAt): K [16 tokens][hd / 32], so that a token's are neighbours, V [hd / 32][16 tokens]. kF32: two planes of bf16. V of fp4 is bytes
// [16][4][hd / 32][4]: lane (j, g) of a wave finds elements 32 t + j (low nibble) and 32 t + 16 + j of
// tokens 4 g to 4 g + 3, for all t; of heads beyond 128 so for each 64 elements, one behind the other. hd: of K and of V each its own. No byte holds two tokens: workgroups append them at the same time.
using KvForm = quant::KvForm;
constexpr KvForm KeyForm(KvFormat format) { return quant::InfoOf(format).k; }
constexpr KvForm ValueForm(KvFormat format) { return quant::InfoOf(format).v; }
constexpr uint32_t KvPlanes(KvForm form) { return quant::InfoOf(form).planes; }
constexpr uint32_t KvPlaneBytes(KvForm form, uint32_t head_dim) {
  return kPageTokens * head_dim * quant::InfoOf(form).plane_bits / 8;
}
constexpr uint32_t KvSideBytes(KvForm form, uint32_t head_dim) {
  return KvPlanes(form) * KvPlaneBytes(form, head_dim);
}
constexpr uint32_t KvScaleBytes(KvForm form, uint32_t head_dim) {
  return kPageTokens * static_cast<uint32_t>(quant::KvScaleBytes(form, head_dim));
}
constexpr uint32_t KvPageBytes(KvFormat format, uint32_t key_dim, uint32_t value_dim) {
  return KvSideBytes(KeyForm(format), key_dim) + KvSideBytes(ValueForm(format), value_dim) +
         KvScaleBytes(KeyForm(format), key_dim) + KvScaleBytes(ValueForm(format), value_dim);
}
// Where a V of four bits lies, in nibbles.
constexpr uint32_t KvFp4ValuePart(uint32_t head_dim) { return head_dim <= 128 ? head_dim : 64; }
constexpr uint32_t KvFp4ValueAt(uint32_t head_dim, uint32_t token, uint32_t d) {
  const uint32_t part = KvFp4ValuePart(head_dim), i = d % part;
  return d / part * part * kPageTokens + (((i % 16 * 4 + token / 4) * (part / 32) + i / 32) * 4 + token % 4) * 2 + i % 32 / 16;
}

// And the multiplier of block `block`, of those of its side.
constexpr uint32_t KvFp4ScaleAt(bool value, uint32_t head_dim, uint32_t token, uint32_t block) {
  return value ? block * kPageTokens + token : token * (head_dim / 32) + block;
}

// Bias, QK-norm and RoPE of q, K and V appended to the row's page. Without a bias,
// or without norms, their addresses are 0.
struct PrepareArgs {
  Address<const uint32_t> step;
  Address<const float> in;      // [splits][split_rows, stride]: heads, kv_heads of K, kv_heads of V
  Address<float> qkv;           // [rows, stride]: heads of q; may be `in`
  Address<const float> q_norm;  // [head_dim]
  Address<const float> k_norm;  // [head_dim]
  Address<const float> cosine;  // [positions, rotary / 2]
  Address<const float> sine;
  Address<uint8_t> kv;  // this layer's pages: [page][kv_head] KvPageBytes
  Address<const float> bias;    // [heads + 2 kv_heads, head_dim]
  uint32_t stride = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t tables_at = 0;  // words from the first cache's page tables to this one's
  uint32_t rotary = 0;    // a multiple of 2, at most head_dim: so many turn; 0: none
  float epsilon = 0;
  uint32_t splits = 1;  // of the product that made `in`
  uint32_t split_rows = 0;
  NormOf norm;  // of the product's input, whose factor is not in the sums yet; or none
  float value_scale = 1;  // of V
  uint32_t reserved = 0;
};
static_assert(sizeof(PrepareArgs) == 136);

// Of a cache with a window (0: none) a row sees the last `window` positions, its own among them.
constexpr uint32_t FirstSeen(uint32_t position, uint32_t window) {
  return window == 0 || position < window ? 0 : position + 1 - window;
}
// The split in which the row's first token lies, and splits from there to the position.
constexpr uint32_t FirstSplit(uint32_t position, uint32_t window) {
  return FirstSeen(position, window) / kSplitTokens;
}
constexpr uint32_t SplitsSeen(uint32_t position, uint32_t window) {
  return position / kSplitTokens + 1 - FirstSplit(position, window);
}
// Of any row, at most.
constexpr uint32_t MostSplits(uint32_t window) {
  return window == 0 ? UINT32_MAX : (window - 1) / kSplitTokens + 2;
}

// Of neighbouring rows together, at most.
constexpr uint32_t MostSplitsOfRows(uint32_t window, uint32_t rows) {
  return window == 0 ? UINT32_MAX : MostSplits(window + rows - 1);
}

// What a split leaves of a head: o [head_dim], m, l, and nothing up to whole 64 bytes.
constexpr uint32_t AttendPartFloats(uint32_t head_dim) { return head_dim + 16; }

// Causal grouped-query attention over the pages, by splits of kSplitTokens at absolute positions.
// A row with one split is finished; of others, parts for AttendMerge, counted from the row's first.
struct AttendArgs {
  Address<const uint32_t> step;
  Address<const float> qkv;   // [rows, q_stride]
  Address<const uint8_t> kv;  // as above
  Address<float> out;         // [rows, out_stride] split rows
  Address<float> parts;       // [row_count, heads, max_splits, AttendPartFloats]
  Address<const float> gate;  // [rows, gate_stride]: out *= sigmoid(gate); 0: there is none
  Address<const float> sinks;  // [heads]: one more score, of a token whose V is zero; 0: there is none
  uint32_t q_stride = 0;
  uint32_t out_stride = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t max_splits = 0;  // that a row sees
  float scale = 0;         // of the scores: 1 / sqrt(head_dim)
  uint32_t first_row = 0;  // this launch takes rows [first_row, first_row + row_count) of the step
  uint32_t row_count = 0;
  uint32_t gate_stride = 0;
  uint32_t window = 0;     // of the cache; 0: none
  uint32_t tables_at = 0;  // words from the first cache's page tables to this one's
  uint32_t kept = 0;       // of two caches (near_args.h)
  uint32_t group = 0;      // heads / kv_heads, at most kMaxGroup
  uint32_t page_heads = 0;  // key heads of the cache: kv_heads, or that over QueryParts
  uint32_t run_rows = 0;    // of many rows: whole runs of so many are attend_prompt_*'s (IsOneRun); 0: none are
  uint32_t reserved = 0;
};
static_assert(sizeof(AttendArgs) == 120);

// Of a key head that more than kMaxGroup query heads have: in how many equal parts these are attended with, each as if
// it had a key head of its own.
constexpr uint32_t QueryParts(uint32_t group) {
  uint32_t parts = (group + kMaxGroup - 1) / kMaxGroup;
  while (group % parts != 0) ++parts;
  return parts;
}

// Rows of a workgroup of attend_tall_*, in whose tiles those of so many query heads stand side by side.
inline constexpr uint32_t kAttendTiles = 4;
constexpr uint32_t AttendTallRows(uint32_t group) { return kMaxGroup / group * kAttendTiles; }
// The same of attend_prompt_*: two tiles a wave. Blocks of them hold whole blocks of attend_tall_*.
inline constexpr uint32_t kPromptTiles = 2 * kAttendTiles;
constexpr uint32_t AttendPromptRows(uint32_t group) { return kMaxGroup / group * kPromptTiles; }

// Of steps of few rows: what else attention's launch does. Its parts go as numbers beside the launch's tag, in words of
// 64 bits that arrive whole or not at all, so that nothing has to be ordered: who merges asks for all that it takes
// until all have the tag. Words are zeros at first, and are written by such launches alone.
struct AttendHere {
  Address<uint64_t> words;  // [row_count, heads, max_splits * AttendPartFloats], MergeHere's; 0: parts are for a launch of their own
  uint32_t turn = 0;        // of this attention within a step,
  uint32_t turns = 0;       // of so many
  uint32_t mergers = 0;     // workgroups that merge, and wait: no more than half of those that have room at once
  // Where heads of several rows are made in this launch: words from `words` to those that say whose K and V are appended,
  // [kv_heads][kToldRows][2]. Who wait for these, too, and mergers find room at once, and a workgroup has one unit at most:
  // a split of a row and key head. 0: of one row.
  uint32_t appended_at = 0;
};
static_assert(sizeof(AttendHere) == 24);
constexpr uint32_t AppendedWords(uint32_t kv_heads) { return kv_heads * kToldRows * 2; }

// Of attend_*. prepare: of a step of up to kToldRows rows, whose heads are made in this launch; without a step: they are
// there. told: instead of prepare.in.
struct AttendOnceArgs {
  AttendArgs attend;
  AttendHere here;
  PrepareArgs prepare;
  ToldWords told;
};
static_assert(sizeof(AttendOnceArgs) == 296);

inline constexpr uint32_t kMergeColumns = 64;  // of a head, that a workgroup of attend_merge has
struct AttendMergeArgs {
  Address<const uint32_t> step;
  Address<const float> parts;
  Address<float> out;         // split rows
  Address<const float> gate;  // as above
  uint32_t out_stride = 0;
  uint32_t heads = 0;
  uint32_t max_splits = 0;
  uint32_t head_dim = 0;
  uint32_t first_row = 0;
  uint32_t row_count = 0;
  uint32_t gate_stride = 0;
  uint32_t window = 0;
  Address<const float> sinks;
  uint32_t run_rows = 0;  // of attend_merge_rows, as above
  uint32_t reserved = 0;
};
static_assert(sizeof(AttendMergeArgs) == 80);

// ---- between GPUs ----

// x[row] += sum over ranks of their partials, in the tree of common/tree.h; and what the next norm
// and product want of x.
// Kernel `reduce`, one round, for up to pair_rows rows: each rank pushes its partial into its slot in
// every peer's memory, each element beside its epoch, and reads its own memory only. `reduce_twice`: a
// chunk is pushed to its owner alone, with a flag, who adds and pushes the sum to all. The same
// additions in the same order: the same bits.
enum ReduceFlags : uint32_t {
  kReducePlain = 1,  // x = the sum: no residual, no squares, no split rows
  kReduceSet = 2,    // x = the sum: no residual
};
struct ReduceArgs {
  Address<const uint32_t> step;
  Address<const float> partial;  // [splits][split_rows, stride], this rank's
  RowsOut out;                   // with kReducePlain only x
  // In each rank's memory (ExchangeBytes), zeroed once. `hidden` and `chunks` may differ from launch
  // to launch, stride and rows not.
  Address<uint8_t> exchange[kMaxRanks];
  Address<uint8_t> exchange_own;  // this rank's
  uint64_t flags_at = 0;
  uint64_t pairs_at = 0;
  uint32_t hidden = 0;
  uint32_t stride = 0;
  uint32_t chunks = 0;
  uint32_t max_rows = 0;
  uint32_t pair_rows = 0;
  uint32_t ranks = 0;
  uint32_t rank = 0;
  uint32_t sequence = 0;  // of this all-reduce within a step, from 0
  uint32_t per_step = 0;  // all-reduces a step
  uint32_t mode = 0;      // ReduceFlags
  uint32_t splits = 1;    // of the product that made the partial
  uint32_t split_rows = 0;
};
static_assert(sizeof(ReduceArgs) == 184);
// A product of up to kMatmulReduceRows rows, and the sum of all ranks' in the same launch.
inline constexpr uint32_t kMatmulReduceRows = kToldRows;
inline constexpr uint32_t kReduceChunks = 64;  // of x, at most
struct MatmulReduceArgs {
  MatmulArgs product;  // rows: at most kMatmulReduceRows; its sums are told
  ReduceArgs reduce;   // of them; `partial` is not read
};
static_assert(sizeof(MatmulReduceArgs) == 328);
// What lies in a rank's exchange memory: of two rounds slots [2][ranks][max_rows, stride] fp32, then
// the same again [2] for sums; flags [2][ranks][n] and [2][n] with n = max_rows * ceil(stride /
// kRowChunk); of one round [2][ranks][pair_rows, stride] of an element's bits and its epoch.
struct ExchangeBytes {
  uint64_t flags_at = 0, pairs_at = 0, bytes = 0;
};
constexpr ExchangeBytes ExchangeBytesOf(uint32_t ranks, uint64_t max_rows, uint64_t pair_rows,
                                        uint64_t stride) {
  ExchangeBytes out;
  const uint64_t units = 2 * uint64_t{ranks} + 2, align = 256;
  out.flags_at = (units * max_rows * stride * 4 + align - 1) / align * align;
  const uint64_t flags = units * max_rows * ((stride + kRowChunk - 1) / kRowChunk) * 4;
  out.pairs_at = out.flags_at + (flags + align - 1) / align * align;
  out.bytes = out.pairs_at + 2 * ranks * pair_rows * stride * 8;
  return out;
}

// out[i] = sum over ranks of slots[rank][i], in the same tree; out may be one of the slots. One shard
// of an all-reduce whose bytes the copy engines carry.
struct SumSlotsArgs {
  Address<const float> slots;  // [ranks, stride]
  Address<float> out;          // [count]
  uint64_t stride = 0;         // a multiple of 4
  uint64_t count = 0;          // slots are readable to the next multiple of 4
  uint32_t ranks = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(SumSlotsArgs) == 40);

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_DECODER_ARGS_H_
