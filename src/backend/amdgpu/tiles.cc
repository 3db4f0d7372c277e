// SPDX-License-Identifier: MIT
#include "backend/amdgpu/tiles.h"

#include <algorithm>
#include <cstring>

#include "backend/row_places.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/mxfp4.h"

namespace mainarch::amdgpu {
namespace {

using backend::PlaceRows;
using backend::RowPlace;
using backend::RowsOf;
using backend::Weight;
using backend::WeightSlice;
using kernels::kTileRows;
using kernels::TileFormat;
using quant::Format;
using quant::Matrix;

constexpr int64_t kStep = 32;  // columns that share a scale and one turn of the matrix unit
constexpr int kEight = 8;      // of which a lane holds so many

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct TilePlace {
  RowPlace rows[kTileRows];
};

TilePlace PlaceOf(const TilePlan& plan, uint32_t output) {
  TilePlace place;
  PlaceRows(*plan.weight, absl::MakeConstSpan(plan.slices, static_cast<size_t>(plan.slice_count)),
            plan.gate_up, output, absl::MakeSpan(place.rows));
  return place;
}

float LoadScale(const Matrix& matrix, int64_t index) {
  if (matrix.scale_dtype == DType::kBF16) {
    uint16_t bits;
    std::memcpy(&bits, matrix.scale.data() + 2 * index, 2);
    return quant::FloatFromBf16(bits);
  }
  float value;
  std::memcpy(&value, matrix.scale.data() + 4 * index, 4);
  return value;
}

float BlockScale(const Matrix& matrix, int64_t row, int64_t col) {
  const int64_t across = CeilDivide(matrix.cols, matrix.block_cols);
  return LoadScale(matrix, row / matrix.block_rows * across + col / matrix.block_cols);
}

// Every 16 rows by 32 columns of every tile lie within one block of multipliers.
bool BlocksFitTiles(const TilePlan& plan) {
  for (uint32_t output = 0; output < plan.outputs; ++output) {
    const TilePlace place = PlaceOf(plan, output);
    const Matrix* matrix = nullptr;
    int64_t block = -1;
    for (const RowPlace& row : place.rows) {
      if (row.matrix == nullptr) continue;
      const int64_t own = row.row / row.matrix->block_rows;
      if (matrix != nullptr && (row.matrix != matrix || own != block)) return false;
      matrix = row.matrix;
      block = own;
    }
  }
  const WeightSlice& first = plan.slices[0];
  const Matrix& matrix = plan.weight->sources[static_cast<size_t>(first.source)];
  return matrix.block_cols % kStep == 0 && first.col_begin % kStep == 0;
}

TileFormat FormatOf(const TilePlan& plan) {
  const Weight& weight = *plan.weight;
  const Format format = weight.sources[0].format;
  for (const Matrix& source : weight.sources) {
    if (source.format != format) return TileFormat::kBf16Pair;
  }
  const int64_t col = plan.slices[0].col_begin;
  switch (format) {
    case Format::kBF16:
      return TileFormat::kBf16;
    case Format::kFp8Block:
      return BlocksFitTiles(plan) ? TileFormat::kFp8 : TileFormat::kBf16Pair;
    case Format::kMxfp4:
      return col % kStep == 0 ? TileFormat::kMxfp4 : TileFormat::kBf16Pair;
    case Format::kF16:
    case Format::kF32:
    case Format::kFp8Channel:
      return TileFormat::kBf16Pair;
  }
  return TileFormat::kBf16Pair;
}

// Calls fill(lane's row, first column, place of its eight columns in the lane) for each real eight.
template <class Fill>
void ForEachEight(const TilePlan& plan, const TilePlace& place, uint32_t tile, Fill fill) {
  const int64_t columns = kernels::TileColumns(plan.format);
  for (uint32_t i = 0; i < kTileRows; ++i) {
    if (place.rows[i].matrix == nullptr) continue;
    for (int64_t c = 0; c < columns; c += kEight) {
      const int64_t col = tile * columns + c;
      const int64_t count = std::min<int64_t>(kEight, plan.cols - col);
      if (count <= 0) break;
      const uint32_t lane = static_cast<uint32_t>(c % kStep / kEight) * kTileRows + i;
      fill(place.rows[i], i, lane, c / kStep, plan.slices[0].col_begin + col, count);
    }
  }
}

void PackBf16(const TilePlan& plan, const TilePlace& place, uint32_t tile, uint8_t* out) {
  ForEachEight(
      plan, place, tile,
      [&](const RowPlace& from, uint32_t, uint32_t lane, int64_t, int64_t col, int64_t count) {
        const uint8_t* src = from.matrix->data.data() + (from.row * from.matrix->cols + col) * 2;
        std::memcpy(out + lane * 16, src, static_cast<size_t>(count) * 2);
      });
}

void PackPair(const TilePlan& plan, const TilePlace& place, uint32_t tile, uint8_t* out) {
  ForEachEight(
      plan, place, tile,
      [&](const RowPlace& from, uint32_t, uint32_t lane, int64_t, int64_t col, int64_t count) {
        float values[kEight] = {};
        quant::DecodeRow(*from.matrix, from.row, col, count, values);
        uint16_t high[kEight], low[kEight];
        for (int e = 0; e < kEight; ++e) {
          high[e] = quant::Bf16FromFloat(values[e]);
          low[e] = quant::Bf16FromFloat(values[e] - quant::FloatFromBf16(high[e]));
        }
        std::memcpy(out + lane * 16, high, sizeof(high));
        std::memcpy(out + 1024 + lane * 16, low, sizeof(low));
      });
}

void PackFp8(const TilePlan& plan, const TilePlace& place, uint32_t tile, uint8_t* out,
             uint8_t* scales) {
  ForEachEight(
      plan, place, tile,
      [&](const RowPlace& from, uint32_t, uint32_t lane, int64_t step, int64_t col, int64_t count) {
        const uint8_t* src = from.matrix->data.data() + from.row * from.matrix->cols + col;
        std::memcpy(out + lane * 16 + step * kEight, src, static_cast<size_t>(count));
        const float scale = BlockScale(*from.matrix, from.row, col);
        std::memcpy(scales + step * 4, &scale, 4);
      });
}

void PackMxfp4(const TilePlan& plan, const TilePlace& place, uint32_t tile, uint8_t* out,
               uint8_t* scales) {
  ForEachEight(plan, place, tile,
               [&](const RowPlace& from, uint32_t i, uint32_t lane, int64_t step, int64_t col,
                   int64_t count) {
                 const Matrix& m = *from.matrix;
                 std::memcpy(out + lane * 16 + step * 4,
                             m.data.data() + (from.row * m.cols + col) / 2,
                             static_cast<size_t>(count) / 2);
                 scales[i * 4 + step] =
                     m.scale[static_cast<size_t>(from.row * (m.cols / kStep) + col / kStep)];
               });
}

}  // namespace

TilePlan PlanTiles(const Weight& weight, int32_t rank, int32_t group) {
  const std::vector<WeightSlice>& slices = weight.ranks[static_cast<size_t>(rank)];
  TilePlan plan;
  plan.weight = &weight;
  plan.slice_count = static_cast<int32_t>(slices.size()) / weight.groups;
  plan.slices = slices.data() + group * plan.slice_count;
  plan.gate_up = weight.layout == backend::WeightLayout::kGateUp;
  plan.cols = plan.slices[0].col_end - plan.slices[0].col_begin;
  int64_t rows = 0;
  for (int32_t s = 0; s < plan.slice_count; ++s) rows += RowsOf(plan.slices[s]);
  plan.outputs = static_cast<uint32_t>(plan.gate_up ? 2 * CeilDivide(rows / 2, kTileRows)
                                                    : CeilDivide(rows, kTileRows));
  plan.format = FormatOf(plan);
  plan.k = static_cast<uint32_t>(CeilDivide(plan.cols, kernels::TileColumns(plan.format)));
  return plan;
}

void PackOutputTile(const TilePlan& plan, uint32_t output, uint8_t* data, uint8_t* scales) {
  const TilePlace place = PlaceOf(plan, output);
  const size_t bytes = kernels::TileBytes(plan.format);
  const size_t scale_bytes = kernels::TileScaleBytes(plan.format);
  std::memset(data, 0, plan.k * bytes);
  if (scale_bytes != 0) std::memset(scales, 0, plan.k * scale_bytes);  // else it may be null
  for (uint32_t tile = 0; tile < plan.k; ++tile) {
    uint8_t* out = data + tile * bytes;
    uint8_t* out_scales = scales + tile * scale_bytes;
    switch (plan.format) {
      case TileFormat::kBf16:
        PackBf16(plan, place, tile, out);
        break;
      case TileFormat::kBf16Pair:
        PackPair(plan, place, tile, out);
        break;
      case TileFormat::kFp8:
        PackFp8(plan, place, tile, out, out_scales);
        break;
      case TileFormat::kMxfp4:
        PackMxfp4(plan, place, tile, out, out_scales);
        break;
    }
  }
}

}  // namespace mainarch::amdgpu
