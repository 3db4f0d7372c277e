// SPDX-License-Identifier: MIT
//
// Products with weights: how many panels an item takes, and what a worker prepares for them.
#include <algorithm>

#include "backend/cpu/workspace.h"

namespace mainarch::cpu {
namespace {

// Panels of one item: even, for gate-up pairs; few enough that a late worker's share can be taken. Of
// many rows fewer: the last item of a phase is what others wait for.
constexpr uint32_t kMaxItemPanels = 8;
constexpr uint32_t kManyRowsItemPanels = 4;
constexpr uint32_t kItemsPerWorker = 4;
// More than a Program has phases.
constexpr uint64_t kMaxPhases = uint64_t{1} << 20;

}  // namespace

uint32_t Workspace::ItemPanels(int64_t panels, bool pairs) const {
  // Alone a worker takes as much as it can: an item has its price, and nobody is there to take one over.
  const int64_t items = workers == 1 ? 1 : int64_t{kItemsPerWorker} * workers;
  const int64_t wanted = panels * ranks / items;
  const int64_t most = rows() > kMaxBlockRows ? kManyRowsItemPanels : kMaxItemPanels;
  // Never more items than the team can count.
  const int64_t least = panels * ranks / Team::kMaxItems + 1;
  // Panels that are no pairs go by two all the same, which share what they read of x, but where two would be
  // half of a worker's share: in a large team.
  if (!pairs && wanted < 2 && least == 1) return 1;
  const uint32_t even = static_cast<uint32_t>(std::clamp<int64_t>(wanted, 2, most)) & ~1u;
  return std::max(even, static_cast<uint32_t>((least + 1) & ~int64_t{1}));
}

// Shards may be uneven: of the rank that has most.
int64_t Workspace::MostPanels(backend::WeightId w) const {
  int64_t most = 0;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    most = std::max(most, weight(rank, w).GroupPanels());
  }
  return most;
}

bool Workspace::UsesBF16(backend::WeightId w) const {
  const std::vector<Panels>& panels = weight(0, w).panels;
  return bf16 && std::any_of(panels.begin(), panels.end(), [this](const Panels& one) {
           return HasBF16Dot(one.format) && !RunsInt8(one);
         });
}

// Those of all have rows of one layout: they have the same columns and parts.
const Panels* Workspace::UsesInt8(int32_t rank, backend::WeightId w) const {
  const std::vector<Panels>& panels = weight(rank, w).panels;
  const auto first = std::find_if(panels.begin(), panels.end(),
                                  [this](const Panels& one) { return RunsInt8(one); });
  return first == panels.end() ? nullptr : &*first;
}

// Names what a worker's scratch was filled for.
uint64_t Workspace::TagOf(uint32_t phase, int32_t rank) const {
  return (step_number_ * kMaxPhases + phase) * static_cast<uint64_t>(ranks) +
         static_cast<uint64_t>(rank) + 1;
}

// The normalised row `row` of `rows` (all rows of the step when null). Few rows: made once a worker,
// into its scratch, for a tag, so that no phase is spent on it. Many: NormOf holds them.
const float* Workspace::NormRow(int32_t rank, uint64_t tag, backend::WeightId norm,
                                const uint32_t* rows, int64_t count, int64_t row,
                                Worker* scratch) const {
  if (count > kMaxBlockRows) return NormOf(rank, row);
  if (scratch->norm_tag != tag) {
    for (int64_t i = 0; i < count; ++i) {
      const float* x = Row(rank, program.x, rows == nullptr ? i : rows[i]);
      kernels.rms_norm(x, weight(rank, norm).vector, program.rms_eps, program.hidden,
                        scratch->norm + i * hidden_stride);
    }
    scratch->norm_tag = tag;
  }
  return scratch->norm + row * hidden_stride;
}

// Panel `panel` of a group in memory, or null behind the last and for weights that are not there yet.
const uint8_t* Workspace::PanelAt(int32_t rank, backend::WeightId w, size_t group,
                                   int64_t panel) const {
  const RankWeight& own = weight(rank, w);
  if (own.segments) {
    while (group + 1 < own.plans.size() && panel >= own.plans[group].panels) {
      panel -= own.plans[group++].panels;
    }
  }
  if (panel >= own.plans[group].panels || !own.ready.load(std::memory_order_acquire)) {
    return nullptr;
  }
  return own.panels[group].data + static_cast<size_t>(panel) * own.panels[group].stride;
}

// scratch->x by columns, if that is of use: made once a worker for a tag that is not 0.
const float* Workspace::ColumnsOf(int64_t rows, int64_t width, uint64_t tag,
                                   Worker* scratch) const {
  if (rows <= 2 || rows > kMaxBlockRows || kernels.by_columns == nullptr) return nullptr;
  if (tag == 0 || scratch->columns_tag != tag) {
    kernels.by_columns(scratch->x, rows, width, scratch->columns);
    scratch->floats_made = false;
    scratch->columns_tag = tag;
  }
  return scratch->columns;
}

// scratch->x (rounded: rows16 and rows8, too, for panels that take them) and scratch->out hold the rows; out[i] points at where panel 0 would write.
void Workspace::RunPanels(int32_t rank, backend::WeightId w, size_t group, int64_t begin,
                          int64_t end, int64_t rows, const After& then, bool rounded,
                          const uint8_t* next, Worker* scratch, const float* columns) const {
  const RankWeight& own = weight(rank, w);
  if (!own.segments) {
    RunGroup(own, group, begin, end, rows, then, rounded, next, scratch, columns);
    return;
  }
  int64_t first = 0, moved = 0;  // of this segment; by how many panels `out` has been moved
  for (size_t segment = 0; segment < own.plans.size() && first < end; ++segment) {
    const int64_t last = first + own.plans[segment].panels;
    if (begin < last) {
      for (int64_t i = 0; i < rows; ++i) scratch->out[i] += (first - moved) * kLanes;
      moved = first;
      RunGroup(own, segment, std::max(begin, first) - first, std::min(end, last) - first, rows, then,
               rounded, last < end ? nullptr : next, scratch, columns);
    }
    first = last;
  }
}

// One group, or segment.
void Workspace::RunGroup(const RankWeight& own, size_t group, int64_t begin, int64_t end, int64_t rows,
                         const After& then, bool rounded, const uint8_t* next, Worker* scratch,
                         const float* columns) const {
  MatmulArgs args;
  args.w = own.panels[group];
  args.x = scratch->x;
  args.out = scratch->out;
  args.rows = rows;
  args.epilogue = then.epilogue;
  args.activation = then.activation;
  args.gate_bias = then.gate_bias;
  args.up_bias = then.up_bias;
  args.x16 = scratch->rows16;
  args.x8 = scratch->rows8;
  args.decoded = scratch->decoded;
  args.columns = columns;
  args.near = near_bytes;
  auto run = kernels.matmul;
  if (rounded && bf16 && HasBF16Dot(args.w.format)) {
    run = kernels.matmul_bf16;
    if (rows <= kMaxBlockRows && kernels.by_columns != nullptr) {
      args.floats = scratch->columns;
      args.floats_made = &scratch->floats_made;
      scratch->columns_tag = 0;
    }
  }
  if (rounded && RunsInt8(args.w)) run = kernels.matmul_int8;
  if (own.ready.load(std::memory_order_acquire)) {
    args.panel_begin = begin;
    args.panel_end = end;
    args.after = next;
    run(args);
    return;
  }
  // Pack a few panels at a time; they stand at index 0 on, so the rows' starts move instead.
  args.w.data = scratch->panels;
  const int64_t lanes = then.epilogue == Epilogue::kGateUp ? kLanes / 2 : kLanes;
  int64_t moved = 0;
  for (int64_t at = begin; at < end; at += kMaxItemPanels) {
    const int64_t count = std::min<int64_t>(kMaxItemPanels, end - at);
    for (int64_t p = 0; p < count; ++p) {
      PackPanel(own.plans[group], at + p, scratch->panels + static_cast<size_t>(p) * args.w.stride);
    }
    for (int64_t i = 0; i < rows; ++i) scratch->out[i] += (at - moved) * lanes;
    if (then.gate_bias != nullptr) {
      args.gate_bias += (at - moved) * lanes;
      args.up_bias += (at - moved) * lanes;
    }
    moved = at;
    args.panel_begin = 0;
    args.panel_end = count;
    run(args);
  }
  for (int64_t i = 0; i < rows; ++i) scratch->out[i] -= moved * lanes;
}

}  // namespace mainarch::cpu
