// SPDX-License-Identifier: MIT
#include "backend/cpu/pack.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/pack_blocks.h"
#include "backend/cpu/transpose.h"
#include "backend/row_places.h"
#include "kernels/quant/mxfp4.h"

namespace mainarch::cpu {
namespace {

using backend::RowPlace;
using backend::WeightSlice;
using quant::Format;
using quant::Matrix;

constexpr int32_t kWholeRow = 1 << 30;  // one scale for all columns
constexpr int kMxfp4Group = 32;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

bool InBlocks(Format format) { return quant::InfoOf(format).block_cols != 0; }
bool InGroups(Format format) {
  return format == Format::kInt4Packed || format == Format::kGptq || format == Format::kAwq;
}

bool SameKind(const Matrix& a, const Matrix& b) {
  return a.format == b.format && (a.col_step == 0) == (b.col_step == 0) &&
         a.block_rows == b.block_rows && a.block_cols == b.block_cols && a.order.empty() == b.order.empty();
}

// Where the sixteen rows of a panel lie.
struct Place {
  RowPlace rows[kLanes];
};

Place PlaceOf(const PanelPlan& plan, int64_t panel) {
  Place place;
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
                     : quant::RowData(*from.matrix, from.row) + from.col * element_bits / 8;
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
      quant::DecodeRow(*from.matrix, from.row, from.col + c, n, chunk);
      for (int64_t i = 0; i < n; ++i) lanes[(c + i) * kLanes + lane] = chunk[i];
    }
  }
}

// Of plain formats whose elements lie apart: `bytes` an element, sixteen rows of a step side by
// side.
void PackStrided(const Place& place, int64_t cols, int64_t bytes, uint8_t* out) {
  const int64_t pair = 4 / bytes;  // columns of a word
  for (int lane = 0; lane < kLanes; ++lane) {
    const RowPlace& from = place.rows[lane];
    if (from.matrix == nullptr) continue;
    const Matrix& m = *from.matrix;
    const uint8_t* at = m.data.data() + (from.row * m.row_step + from.col * m.col_step) * bytes;
    for (int64_t c = 0; c < cols; ++c, at += m.col_step * bytes) {
      std::memcpy(out + (c / pair * kLanes + lane) * 4 + c % pair * bytes, at,
                  static_cast<size_t>(bytes));
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

float FloatScale(const Matrix& matrix, int64_t row, int64_t col) {
  if (matrix.format != Format::kFp8Block) {
    const bool one = matrix.scale.size() == BytesOf(matrix.scale_dtype);
    return LoadScale(matrix, one ? 0 : row);
  }
  const int64_t across = (matrix.cols + matrix.block_cols - 1) / matrix.block_cols;
  return LoadScale(matrix, row / matrix.block_rows * across + col / matrix.block_cols);
}

// Bytes of one element, and scales of fp32.
void PackBytes(const PanelPlan& plan, const Place& place, WordOrder order, uint8_t* out) {
  const Panels& layout = plan.layout;
  PackWords(place, plan.real_cols, 8, order, out);
  float* scales = reinterpret_cast<float*>(out + layout.scale_offset);
  const int64_t groups = (layout.group_offset + layout.cols + layout.group_cols - 1) / layout.group_cols;
  for (int lane = 0; lane < kLanes; ++lane) {
    const RowPlace& from = place.rows[lane];
    if (from.matrix == nullptr) continue;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t col =
          std::max<int64_t>(from.col, from.col - layout.group_offset + g * layout.group_cols);
      scales[g * kLanes + lane] = FloatScale(*from.matrix, from.row, std::min(col, from.matrix->cols - 1));
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
    const uint8_t* scale = from.matrix->scale.data() + from.row * across + from.col / kMxfp4Group;
    for (int64_t g = 0; g < groups; ++g) scales[g * kLanes + lane] = scale[g];
  }
}

void PackNvfp4(const PanelPlan& plan, const Place& place, uint8_t* out) {
  PackWords(place, plan.real_cols, 4, WordOrder::kMxfp4, out);
  uint8_t* scales = out + plan.layout.scale_offset;
  for (int lane = 0; lane < kLanes; ++lane) {
    const RowPlace& from = place.rows[lane];
    if (from.matrix == nullptr) continue;
    std::memcpy(scales + 4 * lane, &from.matrix->factor, 4);
    const int64_t across = from.matrix->cols / quant::kNvfp4Group;
    const uint8_t* scale = from.matrix->scale.data() + from.row * across + from.col / quant::kNvfp4Group;
    for (int64_t g = 0; g < plan.real_cols / quant::kNvfp4Group; ++g) {
      scales[(4 + g) * kLanes + lane] = scale[g];
    }
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
  if (layout.format == PanelFormat::kFp8 || layout.format == PanelFormat::kInt8Row) {
    const bool block = first.format == Format::kFp8Block;
    layout.group_cols = block ? first.block_cols : kWholeRow;
    layout.group_offset = block ? static_cast<int32_t>(slice.col_begin % first.block_cols) : 0;
    const int64_t groups =
        (layout.group_offset + layout.cols + layout.group_cols - 1) / layout.group_cols;
    scales = static_cast<size_t>(groups) * kLanes * sizeof(float);
  } else if (InBlocks(first.format) && layout.format != PanelFormat::kF32) {
    scales = SizeBlockScales(first.format, slice.col_begin, &layout);
  } else if (layout.format == PanelFormat::kInt4Min) {
    scales = SizeInt4Groups(first, slice.col_begin, &layout);
  } else if (layout.format == PanelFormat::kInt4Order) {
    scales = SizeInt4Order(first, &layout);
  } else if (layout.format == PanelFormat::kNvfp4) {
    layout.group_cols = quant::kNvfp4Group;
    scales = kLanes * sizeof(float) +
             static_cast<size_t>(RoundUp(layout.cols, quant::kNvfp4Group) / quant::kNvfp4Group) * kLanes;
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
  layout.parts = static_cast<int32_t>(splits.size() - 1) / program.ranks;
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

// `own` into panels, in a format that all `slices` have, or decoded.
StatusOr<PanelPlan> PlanSlices(const backend::Program& program, const backend::Weight& weight,
                               int32_t rank, absl::Span<const WeightSlice> own,
                               absl::Span<const WeightSlice> slices) {
  PanelPlan plan;
  plan.weight = &weight;
  plan.slice_count = static_cast<int32_t>(own.size());
  plan.slices = own.data();
  plan.gate_up = weight.layout == backend::WeightLayout::kGateUp;
  const WeightSlice& first = plan.slices[0];
  const Matrix& matrix = weight.sources[static_cast<size_t>(first.source)];
  for (const WeightSlice& slice : slices) {
    if (!SameKind(weight.sources[static_cast<size_t>(slice.source)],
                  weight.sources[static_cast<size_t>(slices[0].source)]) ||
        ((matrix.format == Format::kFp8Block || InBlocks(matrix.format) || InGroups(matrix.format)) &&
         slice.col_begin != first.col_begin)) {
      plan.decode_to_f32 = true;
    }
  }
  const int32_t group_cols = InBlocks(matrix.format)               ? GroupColumns(matrix.format)
                             : matrix.format == Format::kMxfp4 ? kMxfp4Group
                             : matrix.format == Format::kNvfp4 ? quant::kNvfp4Group
                             : InGroups(matrix.format)         ? 8
                                                                : 1;
  int64_t rows = 0;
  for (int32_t s = 0; s < plan.slice_count; ++s) {
    const int64_t begin = plan.slices[s].col_begin;
    if (begin % group_cols != 0) {
      return Error(Code::kUnsupported, weight.label, ": a shard begins at column ", begin,
                   ", inside a group of ", group_cols, "; use fewer ranks");
    }
    rows += plan.slices[s].row_end - plan.slices[s].row_begin;
  }
  // Columns of any group have a panel if all rows have them in one order.
  const bool ordered = !matrix.order.empty();
  constexpr int64_t kMostGroups = 65535;
  for (const WeightSlice& slice : slices) {
    const Matrix& other = weight.sources[static_cast<size_t>(slice.source)];
    plan.decode_to_f32 |= ordered && (other.cols != matrix.cols || other.order != matrix.order ||
                                      matrix.cols / matrix.block_cols > kMostGroups);
  }
  plan.real_cols = first.col_end - first.col_begin;
  plan.panels = plan.gate_up ? 2 * ((rows / 2 + kLanes - 1) / kLanes) : (rows + kLanes - 1) / kLanes;
  plan.layout.format = plan.decode_to_f32 ? PanelFormat::kF32
                       : ordered          ? PanelFormat::kInt4Order
                                          : quant::InfoOf(matrix.format).panel;
  SizeLayout(matrix, first, &plan);
  plan.layout.first_col = static_cast<int32_t>(first.col_begin % kInt8Run);
  RETURN_IF_ERROR(SetParts(program, first, rank, &plan));
  return plan;
}

}  // namespace

StatusOr<PanelPlan> PlanPanels(const backend::Program& program, const backend::Weight& weight,
                               int32_t rank, int32_t group) {
  const std::vector<WeightSlice>& all = weight.ranks[static_cast<size_t>(rank)];
  const size_t count = all.size() / static_cast<size_t>(weight.groups);
  const auto own = absl::MakeConstSpan(all).subspan(static_cast<size_t>(group) * count, count);
  // One format for all groups: kernels take it from group 0.
  return PlanSlices(program, weight, rank, own, absl::MakeConstSpan(all));
}

StatusOr<std::vector<PanelPlan>> PlanSegments(const backend::Program& program,
                                              const backend::Weight& weight, int32_t rank) {
  std::vector<PanelPlan> plans;
  const auto slices = absl::MakeConstSpan(weight.ranks[static_cast<size_t>(rank)]);
  const auto matrix = [&](size_t i) -> const Matrix& {
    return weight.sources[static_cast<size_t>(slices[i].source)];
  };
  if (weight.groups != 1 || weight.layout != backend::WeightLayout::kPanels) return plans;
  for (size_t begin = 0, end = 0; begin < slices.size(); begin = end) {
    int64_t rows = 0;
    for (end = begin; end < slices.size() && SameKind(matrix(begin), matrix(end)); ++end) {
      rows += slices[end].row_end - slices[end].row_begin;
    }
    if (end - begin == slices.size()) return std::vector<PanelPlan>();
    // Not at panels' ends: all in one, then.
    if (rows % kLanes != 0 && end < slices.size()) return std::vector<PanelPlan>();
    const auto part = slices.subspan(begin, end - begin);
    ASSIGN_OR_RETURN(PanelPlan plan, PlanSlices(program, weight, rank, part, part));
    plans.push_back(plan);
  }
  return plans;
}

void PackPanel(const PanelPlan& plan, int64_t panel, uint8_t* out) {
  const Place place = PlaceOf(plan, panel);
  const Panels& layout = plan.layout;
  // Transposing writes every byte of the columns there are: only the rest needs zeros.
  const quant::PanelInfo& step = quant::InfoOf(layout.format);
  const Matrix& kind = plan.weight->sources[static_cast<size_t>(plan.slices[0].source)];
  const bool strided = kind.col_step != 0, blocks = InBlocks(kind.format), groups = InGroups(kind.format);
  const size_t written =
      plan.decode_to_f32 || strided || blocks || groups
          ? 0
          : static_cast<size_t>(plan.real_cols / step.step_cols * step.step_bytes);
  if (layout.stride == 0) return;  // a rank's share of nothing
  std::memset(out + written, 0, layout.stride - written);
  if (plan.decode_to_f32) return PackDecoded(place, plan.real_cols, out);
  if (blocks) return PackBlocks(kind.format, layout, place.rows, plan.real_cols, out);
  if (layout.format == PanelFormat::kInt4Order) return PackInt4Order(layout, place.rows, plan.real_cols, out);
  if (groups) return PackInt4Groups(layout, place.rows, plan.real_cols, out);
  if (strided) {
    return PackStrided(place, plan.real_cols, layout.format == PanelFormat::kF32 ? 4 : 2, out);
  }
  switch (layout.format) {
    case PanelFormat::kBF16:
    case PanelFormat::kF16: return PackWords(place, plan.real_cols, 16, WordOrder::kPlain, out);
    case PanelFormat::kF32: return PackWords(place, plan.real_cols, 32, WordOrder::kPlain, out);
    case PanelFormat::kFp8: return PackBytes(plan, place, WordOrder::kFp8, out);
    case PanelFormat::kInt8Row: return PackBytes(plan, place, WordOrder::kPlain, out);
    case PanelFormat::kMxfp4: return PackMxfp4(plan, place, out);
    case PanelFormat::kNvfp4: return PackNvfp4(plan, place, out);
    default: return;
  }
}

}  // namespace mainarch::cpu
