// SPDX-License-Identifier: MIT
//
// A Program's ops as kernel launches: which kernel (kernel_names.h), with which arguments, on how many
// workgroups. Pure: addresses and sizes in, plain data out; no GPU is touched. What changes from
// step to step is in the step block, so launches are made once for a context.
#ifndef MAINARCH_BACKEND_AMDGPU_LOWER_H_
#define MAINARCH_BACKEND_AMDGPU_LOWER_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backend/amdgpu/amdgpu_backend.h"
#include "backend/backend.h"
#include "kernels/long_args.h"
#include "kernels/tall_args.h"

namespace mainarch::amdgpu {

// An all-reduce of more rows takes two rounds: of fewer, the second costs more than the bytes it
// saves.
inline constexpr uint32_t kOneRoundRows = 16;

// In which steps a launch takes part.
enum class When : uint8_t { kAlways, kRaces };

struct Launch {
  std::string kernel;
  std::vector<uint8_t> args;  // kernels::Kernarg<Args>
  uint32_t workers = 1;       // workgroups of kernels::kThreads
  int32_t op = -1;            // of the Program; -1: the step's beginning
  When when = When::kAlways;  // kRaces: a row is drawn that is not chosen at once
  bool beside = false;        // needs nothing of the launch before, and may run beside it
  bool together = false;      // no rank ends it before all have begun it
  // What workgroup n reads whatever came before: weights, so many bytes from reads + n * reads_stride on.
  uint64_t reads = 0;
  uint64_t reads_stride = 0;
};

// A paged cache: [layer][page][page_bytes], on each rank.
struct PoolShape {
  int32_t list = backend::kNone;  // of page tables; kNone: the cache is one of slots
  int32_t layers = 0;
  uint32_t pages = 0;
  uint64_t page_bytes = 0;  // of one layer: all its heads
};
// Of each of Program::caches.
std::vector<PoolShape> PoolShapesOf(const backend::Program& program,
                                    const backend::ContextOptions& options);

// A cache of slots: [layer][slot][slot_bytes], on each rank.
struct SlotShape {
  int32_t list = backend::kNone;  // of the step's lists of slots; kNone: the cache is a paged one
  int32_t layers = 0;
  uint32_t slots = 0;
  uint64_t bytes = 0;       // of a layer's state
  uint64_t slot_bytes = 0;  // the same in whole lines
};
// Of each of Program::caches.
std::vector<SlotShape> SlotShapesOf(const backend::Program& program,
                                    const backend::ContextOptions& options);

// Unsupported names what these kernels cannot run of a Program: head sizes, groups, experts.
Status CheckProgram(const backend::Program& program);

// The same of a KV type.
Status CheckKvType(const backend::Program& program, backend::KvType type);

// Attention that ranks with the same KV head share (kernels/long_args.h).
struct ShareShape {
  uint64_t at = 0;  // of their words, from the start of a rank's exchange memory
  uint64_t ranks = 0, heads = 0, head_dim = 0;  // the most that any has; heads of one rank
  kernels::ShareBytes words;                    // with room for these
  uint32_t per_step = 0;                        // such attentions
  // Queries of all of a head's ranks, of all rows.
  uint64_t query_floats() const { return kernels::kShareRows * ranks * heads * head_dim; }
};

// Sizes of a context that do not depend on the rank.
struct Shape {
  backend::ContextOptions options;
  kernels::KvFormat kv = kernels::KvFormat::kBF16;
  std::vector<PoolShape> pools;  // of each of Program::caches
  uint32_t page_lists = 0;       // of a sequence: paged caches
  uint64_t positions = 0;        // that a sequence can have
  uint64_t attend_floats = 0;    // of one row, all its heads and splits: attention's parts
  ShareShape share;
  uint32_t hidden_stride = 0;
  uint32_t chunks = 0;       // of a row of x
  uint32_t max_splits = 0;   // of the longest context
  uint32_t sum_rows = 0, sum_stride = 0;  // of RankMemory::sums
  kernels::ExchangeBytes exchange;        // of ranks that add
  uint32_t pair_rows = 0;
  uint32_t attend_rows = 0;  // rows of one attention launch
  uint64_t attend_words = 0;  // what is left of one row, where that is merged in the same launch (kernels::AttendHere)
  uint32_t here_rows = 0;     // steps of up to so many rows do that
  uint32_t appended_words = 0;  // that say whose K and V are there (kernels::AppendedWords)
  uint32_t router_stride = 0;
  uint32_t logits_stride = 0;  // a row of all ranks' logits
  uint32_t share_stride = 0;   // a row of the largest rank's
  uint32_t choice_chunks = 0;  // of kernels::kChoiceChunk, in the largest rank's
  uint32_t choice_slots = 0;   // logit rows that one rank chooses for
  uint32_t all_reduces = 0;    // a step
  // Of these, those of sums of squares of heads, and such a row's numbers.
  uint32_t square_reduces = 0, square_width = 0;
  bool reads_tap = false;         // of a source context: steps say which rows
  uint32_t step_words = 0;        // of one step block in host memory
  uint32_t choices_end = 0;       // of them, before its changes of page tables
  uint32_t step_changes = 0;      // as many of those at most
  uint32_t table_words = 0;       // of one sequence's page table, of any cache
  std::vector<SlotShape> slots;   // of each of Program::caches
  uint32_t slot_lists = 0;        // of a step: caches of slots
  uint32_t plain_stride = 0;      // of RankMemory::plain
  std::vector<uint32_t> strides;  // of each Program buffer's rows
};
// Changes of page tables in a step block: a step begins few pages, unless a sequence takes over a
// prefix.
inline constexpr uint32_t kStepChanges = 2048;
// And that one run of step_tables makes, beyond those.
inline constexpr uint32_t kListChanges = 4095;
Shape ShapeOf(const backend::Program& program, const backend::ContextOptions& options);

// Of each buffer, whether it is one of Program::taps.
std::vector<bool> TapsOf(const backend::Program& program);
// Whether an InputOp writes it.
std::vector<bool> InputsOf(const backend::Program& program);

// Where things are in one rank's address space.
struct RankMemory {
  uint64_t host_step = 0;  // two blocks, then the list of step_tables
  uint64_t step = 0;       // page tables step_words behind it
  uint64_t arrivals = 0;          // kernels::kArrivalBytes: of experts
  // kernels::ToldWords, in turns: who awaits a launch's words may tell its own while others still await them.
  std::array<uint64_t, 2> told_words = {};
  std::vector<uint64_t> buffers;  // of the Program; its taps are there twice, for both parities
  std::vector<uint64_t> source_taps;  // of the source's Program, in its memory of this rank
  uint64_t partial = 0;
  uint64_t sums = 0;     // of products whose k workgroups share: [kMaxSplits][kSplitRows, stride]
  uint64_t squares = 0;  // of Program::x
  uint64_t split = 0;    // its split rows
  // Of each buffer that an InputOp writes, x apart; else 0, or, where there are none, empty.
  std::vector<uint64_t> input_squares, input_splits;
  uint64_t attend_parts = 0;
  uint64_t attend_words = 0;  // [Shape::here_rows][Shape::attend_words] words of 64 bits, [Shape::appended_words] such
  uint64_t shared_queries = 0;  // of ShareShape::query_floats
  uint64_t router_logits = 0;
  uint64_t expert_lists = 0;  // kernels::ExpertListWords
  // Rows as products of many take them: of each kernels::ScaledRowBytes, or kernels::TiledRowsBytes; 0: there are none.
  uint64_t taken_rows = 0;
  uint64_t logits = 0;       // this rank's share
  uint64_t host_logits = 0;  // all ranks', in host memory
  uint64_t results = 0;      // kernels::ChoiceResult [kResultSlots][max_logit_rows], in host memory
  uint64_t recall = 0;       // kernels::StepBeginArgs::recall; 0: steps have no rounds
  uint64_t teams = 0;        // that narrow rows: kernels::ChooseArgs::teams
  uint64_t fields = 0;       // who runs in rows' races, and who has run best in each chunk
  uint64_t races = 0;
  std::vector<uint64_t> kv;     // of each of Program::caches, layer 0
  std::vector<uint64_t> slots;  // of each of Program::caches, layer 0
  uint64_t plain = 0;        // a gated delta net's o, of heads that several workgroups share
  std::vector<uint64_t> cosine, sine;  // of each of Program::ropes
  uint64_t exchange[kernels::kMaxRanks] = {};  // kernels::ExchangeBytes, of every rank
  uint64_t choices[kernels::kMaxRanks] = {};  // ChoiceExchange, of every rank
  uint32_t compute_units = 1;
  bool has_scaled_mfma = false;
  bool has_tiled_rows = false;  // kernels for rows in tiles (Taken::kTiled)
};

// What the ranks send to the owner of a row, and the tokens that owners send to all: offsets in the owner's exchange memory.
struct ChoiceExchange {
  uint64_t values = 0, found = 0, flags = 0, tokens = 0, bytes = 0;
};
ChoiceExchange ExchangeOf(const backend::Program& program, const Shape& shape);

// Columns of the LM head that a rank has.
struct VocabShare {
  uint32_t first = 0, count = 0;
};
VocabShare ShareOf(const backend::Program& program, int32_t rank);

// Launches are made for steps of up to so many rows each, so that a grid is as large as its work:
// 1, 4, 8, 16, 64 … and max_rows. What is computed does not depend on it.
std::vector<uint32_t> RowClasses(uint32_t max_rows);

// Whether a buffer holds split rows (kernels/decoder_args.h): what products take in without a norm. Narrowed heads
// lie by parts of the product that takes them (PartEnds).
bool LiesSplit(const backend::Program& program, backend::BufferId buffer);

// The weight with which an op multiplies a buffer, as a product without a norm does, or kNone.
backend::WeightId ProductWith(const backend::Op& op, backend::BufferId in);
// That of the first op that does, or null.
const backend::Weight* TakerOf(const backend::Program& program, backend::BufferId in);
// Heads of Q of all ranks, and of K, each once.
uint32_t HeadsOfAll(const backend::Program& program, const backend::WideNormOp& op);

// Whether sums of squares and split rows are kept beside a buffer: x, and what InputOps write.
bool KeepsRows(const backend::Program& program, backend::BufferId buffer);

// An activation as the kernels have it: the numbers of their one expression.
kernels::GatingArgs GatingOf(backend::Activation activation);

// For steps of up to `rows` rows.
std::vector<Launch> Lower(const AmdGpuModel& model, const Shape& shape, const RankMemory& memory,
                          int32_t rank, uint32_t rows);

// step_tables, beside the steps.
Launch LowerTables(const Shape& shape, const RankMemory& memory);

uint32_t ComputeUnits(const gpu::Device& device);
// What launches depend on of the chip itself.
void SetChip(const gpu::Device& device, RankMemory* memory);
// Whether the chip has kernels for rows in tiles (kernels::Taken::kTiled), which want gfx950's LDS.
inline bool HasTiledRows(const isa::ChipFacts& chip) { return chip.lds_bytes >= 160 * 1024; }

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_LOWER_H_
