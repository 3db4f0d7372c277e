// SPDX-License-Identifier: MIT
#include "backend/cpu/pack.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/transpose.h"
#include "backend/row_places.h"

namespace mainarch::cpu {
namespace {

using backend::RowPlace;
using backend::WeightSlice;
using quant::Format;
using quant::Matrix;

constexpr int32_t kWholeRow = 1 << 30;  // one scale for all columns
constexpr int kMxfp4Group = 32;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

bool SameKind(const Matrix& a, const Matrix& b) {
  return a.format == b.format && a.block_rows == b.block_rows && a.block_cols == b.block_cols;
}

// Where the sixteen rows of a panel lie.
struct Place {
  RowPlace rows[kLanes];
  int64_t col = 0;  // first column
};

Place PlaceOf(const PanelPlan& plan, int64_t panel) {
  Place place;
  place.col = plan.slices[0].col_begin;
  backend::PlaceRows(*plan.weight,
                     absl::MakeConstSpan(plan.slices, static_cast<size_t>(plan.slice_count)),
                     plan.gate_up, panel, absl::MakeSpan(place.rows));
  return place;
}

// Whole 32-bit words of every row to lanes, `element_bits` a column; then the columns of a word
// begun, if there is one, which goes through a copy of its own: no row is read past its end.
void PackWords(const Place& place, int64_t cols, int64_t element_bits, WordOrder order,
               uint8_t* out) {
  const uint8_t* rows[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const RowPlace& from = place.rows[lane];
    rows[lane] = from.matrix == nullptr
                     ? nullptr
                     : from.matrix->data.data() +
                           (from.row * from.matrix->cols + place.col) * element_bits / 8;
  }
  const int64_t bytes = cols * element_bits / 8, words = bytes / 4;
  TransposeWords(rows, words, order, out);
  if (bytes % 4 == 0) return;
  uint8_t tails[kLanes][4] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    if (rows[lane] == nullptr) continue;
    std::memcpy(tails[lane], rows[lane] + 4 * words, static_cast<size_t>(bytes % 4));
    rows[lane] = tails[lane];
  }
  TransposeWords(rows, 1, order, out + 64 * words);
}

void PackDecoded(const Place& place, int64_t cols, uint8_t* out) {
  float* lanes = reinterpret_cast<float*>(out);
  float chunk[256];
  for (int lane = 0; lane < kLanes; ++lane) {
    const RowPlace& from = place.rows[lane];
    if (from.matrix == nullptr) continue;
    for (int64_t c = 0; c < cols; c += 256) {
      const int64_t n = std::min<int64_t>(256, cols - c);
      quant::DecodeRow(*from.matrix, from.row, place.col + c, n, chunk);
      for (int64_t i = 0; i < n; ++i) lanes[(c + i) * kLanes + lane] = chunk[i];
    }
  }
}

float LoadScale(const Matrix& matrix, int64_t index) {
  if (matrix.scale_dtype == DType::kBF16) {
    uint16_t half;
    std::memcpy(&half, matrix.scale.data() + 2 * index, 2);
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  float value;
  std::memcpy(&value, matrix.scale.data() + 4 * index, 4);
  return value;
}

float Fp8Scale(const Matrix& matrix, int64_t row, int64_t col) {
  if (matrix.format == Format::kFp8Channel) {
    const bool one = matrix.scale.size() == BytesOf(matrix.scale_dtype);
    return LoadScale(matrix, one ? 0 : row);
  }
  const int64_t across = (matrix.cols + matrix.block_cols - 1) / matrix.block_cols;
  return LoadScale(matrix, row / matrix.block_rows * across + col / matrix.block_cols);
}

void PackFp8(const PanelPlan& plan, const Place& place, uint8_t* out) {
  const Panels& layout = plan.layout;
  PackWords(place, plan.real_cols, 8, WordOrder::kFp8, out);
  float* scales = reinterpret_cast<float*>(out + layout.scale_offset);
  const int64_t groups = (layout.group_offset + layout.cols + layout.group_cols - 1) / layout.group_cols;
  for (int lane = 0; lane < kLanes; ++lane) {
    const RowPlace& from = place.rows[lane];
    if (from.matrix == nullptr) continue;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t col = std::max<int64_t>(place.col, place.col - layout.group_offset + g * layout.group_cols);
      scales[g * kLanes + lane] = Fp8Scale(*from.matrix, from.row, std::min(col, from.matrix->cols - 1));
    }
  }
}

void PackMxfp4(const PanelPlan& plan, const Place& place, uint8_t* out) {
  PackWords(place, plan.real_cols, 4, WordOrder::kMxfp4, out);
  uint8_t* scales = out + plan.layout.scale_offset;
  const int64_t groups = plan.real_cols / kMxfp4Group;
  for (int lane = 0; lane < kLanes; ++lane) {
    const RowPlace& from = place.rows[lane];
    if (from.matrix == nullptr) continue;
    const int64_t across = from.matrix->cols / kMxfp4Group;
    const uint8_t* scale = from.matrix->scale.data() + from.row * across + place.col / kMxfp4Group;
    for (int64_t g = 0; g < groups; ++g) scales[g * kLanes + lane] = scale[g];
  }
}

// Fills in the sizes of a layout from its format and columns.
void SizeLayout(const Matrix& first, const WeightSlice& slice, PanelPlan* plan) {
  Panels& layout = plan->layout;
  const quant::PanelInfo& step = quant::InfoOf(layout.format);
  layout.cols = RoundUp(plan->real_cols, step.step_cols);
  const size_t data = static_cast<size_t>(layout.cols / step.step_cols * step.step_bytes);
  layout.scale_offset = data;
  size_t scales = 0;
  if (layout.format == PanelFormat::kFp8) {
    const bool block = first.format == Format::kFp8Block;
    layout.group_cols = block ? first.block_cols : kWholeRow;
    layout.group_offset = block ? static_cast<int32_t>(slice.col_begin % first.block_cols) : 0;
    const int64_t groups =
        (layout.group_offset + layout.cols + layout.group_cols - 1) / layout.group_cols;
    scales = static_cast<size_t>(groups) * kLanes * sizeof(float);
  } else if (layout.format == PanelFormat::kMxfp4) {
    layout.group_cols = kMxfp4Group;
    scales = static_cast<size_t>(layout.cols / kMxfp4Group) * kLanes;
  }
  layout.stride = static_cast<size_t>(RoundUp(static_cast<int64_t>(data + scales), 64));
}

// The rank's share of the K parts, from its own first column on.
Status SetParts(const backend::Program& program, const WeightSlice& slice, int32_t rank,
                PanelPlan* plan) {
  Panels& layout = plan->layout;
  layout.parts = 1;
  layout.bounds[1] = layout.cols;
  const std::vector<int64_t>& splits = plan->weight->splits;
  if (splits.empty()) return OkStatus();
  layout.parts = backend::kSplitParts / program.ranks;
  const int32_t unit = quant::InfoOf(layout.format).step_cols;
  for (int32_t i = 0; i < layout.parts; ++i) {
    const int64_t split = splits[static_cast<size_t>(rank * layout.parts + i)];
    layout.bounds[i] = split - slice.col_begin;
    if (layout.bounds[i] % unit != 0) {
      return Error(Code::kUnsupported, plan->weight->label, ": a part begins at column ", split,
                   ", which is not a multiple of ", unit);
    }
  }
  layout.bounds[layout.parts] = layout.cols;
  return OkStatus();
}

}  // namespace

StatusOr<PanelPlan> PlanPanels(const backend::Program& program, const backend::Weight& weight,
                               int32_t rank, int32_t group) {
  const std::vector<WeightSlice>& slices = weight.ranks[static_cast<size_t>(rank)];
  PanelPlan plan;
  plan.weight = &weight;
  plan.slice_count = static_cast<int32_t>(slices.size()) / weight.groups;
  plan.slices = slices.data() + group * plan.slice_count;
  plan.gate_up = weight.layout == backend::WeightLayout::kGateUp;
  const WeightSlice& first = plan.slices[0];
  const Matrix& matrix = weight.sources[static_cast<size_t>(first.source)];
  // One format for all groups: kernels take it from group 0.
  for (const WeightSlice& slice : slices) {
    if (!SameKind(weight.sources[static_cast<size_t>(slice.source)],
                  weight.sources[static_cast<size_t>(slices[0].source)])) {
      plan.decode_to_f32 = true;
    }
  }
  if (matrix.format == Format::kMxfp4 && first.col_begin % kMxfp4Group != 0) {
    return Error(Code::kUnsupported, weight.label, ": a shard begins at column ", first.col_begin,
                 ", inside a group of ", kMxfp4Group, "; use fewer ranks");
  }
  int64_t rows = 0;
  for (int32_t s = 0; s < plan.slice_count; ++s) {
    rows += plan.slices[s].row_end - plan.slices[s].row_begin;
  }
  plan.real_cols = first.col_end - first.col_begin;
  plan.panels = plan.gate_up ? 2 * ((rows / 2 + kLanes - 1) / kLanes) : (rows + kLanes - 1) / kLanes;
  plan.layout.format = plan.decode_to_f32 ? PanelFormat::kF32 : quant::InfoOf(matrix.format).panel;
  SizeLayout(matrix, first, &plan);
  RETURN_IF_ERROR(SetParts(program, first, rank, &plan));
  return plan;
}

void PackPanel(const PanelPlan& plan, int64_t panel, uint8_t* out) {
  const Place place = PlaceOf(plan, panel);
  const Panels& layout = plan.layout;
  // Transposing writes every byte of the columns there are: only the rest needs zeros.
  const quant::PanelInfo& step = quant::InfoOf(layout.format);
  const size_t written =
      plan.decode_to_f32 ? 0 : static_cast<size_t>(plan.real_cols / step.step_cols * step.step_bytes);
  std::memset(out + written, 0, layout.stride - written);
  if (plan.decode_to_f32) return PackDecoded(place, plan.real_cols, out);
  switch (layout.format) {
    case PanelFormat::kBF16:
    case PanelFormat::kF16: return PackWords(place, plan.real_cols, 16, WordOrder::kPlain, out);
    case PanelFormat::kF32: return PackWords(place, plan.real_cols, 32, WordOrder::kPlain, out);
    case PanelFormat::kFp8: return PackFp8(plan, place, out);
    case PanelFormat::kMxfp4: return PackMxfp4(plan, place, out);
    case PanelFormat::kCount: return;
  }
}

}  // namespace mainarch::cpu
