// SPDX-License-Identifier: MIT
#include "backend/amdgpu/tiles.h"

#include <algorithm>
#include <cstring>

#include "backend/amdgpu/tile_codes.h"
#include "backend/row_places.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/gguf_blocks.h"
#include "kernels/quant/mxfp4.h"
#include "kernels/tall_args.h"

namespace mainarch::amdgpu {
namespace {

using backend::PlaceRows;
using backend::RowPlace;
using backend::RowsOf;
using backend::Weight;
using backend::WeightLayout;
using backend::WeightSlice;
using kernels::kTileRows;
using kernels::TileCode;
using kernels::TileFactors;
using kernels::TileFormat;
using quant::Format;
using quant::Matrix;

// Columns that share a scale and one turn of the matrix unit, of which a lane holds eight.
constexpr int64_t kStep = kernels::kStepColumns;
constexpr int64_t kEight = 8, kFour = 4;

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

// Whether parts of K, but for empty ones at its end, begin with whole steps of its own.
bool PartsAreSteps(const Weight& weight) {
  return std::all_of(weight.splits.begin(), weight.splits.end(), [&](int64_t begin) {
    return begin % kStep == 0 || begin == weight.splits.back();
  });
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

bool HasCodes(const Matrix& matrix) {
  return kernels::HasCodes(quant::InfoOf(matrix.format).tile) && CodesFitSteps(matrix);
}

// As bytes: of a tile without rows any.
TileCode ByteCodeOf(const TilePlace& place) {
  for (const RowPlace& row : place.rows) {
    if (row.matrix != nullptr) return CodeOf(row.matrix->format, TileFormat::kByte);
  }
  return TileCode::kScaled;
}

// Every output tile has codes of one kind.
bool TilesHaveOneCode(const TilePlan& plan) {
  for (uint32_t output = 0; output < plan.outputs; ++output) {
    const TilePlace place = PlaceOf(plan, output);
    const TileCode code = ByteCodeOf(place);
    for (const RowPlace& row : place.rows) {
      if (row.matrix != nullptr && CodeOf(row.matrix->format, TileFormat::kByte) != code) return false;
    }
  }
  return true;
}

// All sources', for one kernel reads all experts.
bool AllAlike(const Weight& weight) {
  const Matrix& first = weight.sources[0];
  return std::all_of(weight.sources.begin(), weight.sources.end(), [&](const Matrix& source) {
    return source.format == first.format && source.block_rows == first.block_rows &&
           source.block_cols == first.block_cols;
  });
}

TileFormat FormatOf(const TilePlan& plan) {
  const Weight& weight = *plan.weight;
  bool aligned = PartsAreSteps(weight), together = aligned;
  for (int32_t s = 0; s < plan.slice_count; ++s) {
    aligned = aligned && plan.slices[s].col_begin % kStep == 0;
    together = together && plan.slices[s].col_begin == plan.slices[0].col_begin;
  }
  const bool codes = aligned && std::all_of(weight.sources.begin(), weight.sources.end(), HasCodes);
  bool fits = true;
  TileFormat tile = quant::InfoOf(weight.sources[0].format).tile;
  if (!AllAlike(weight)) {
    tile = TileFormat::kByte;
    fits = codes && weight.groups == 1 && TilesHaveOneCode(plan);
  } else if (tile == TileFormat::kFp8) {
    fits = together && BlocksFitTiles(plan);
  } else if (tile == TileFormat::kMxfp4) {
    fits = aligned;
  } else if (kernels::HasCodes(tile)) {
    fits = codes;
  }
  return fits ? tile : TileFormat::kBf16Pair;
}

// Where p and q of a step are.
void SetScales(TilePlan* plan) {
  if (!kernels::HasCodes(plan->format)) return;
  const Weight& weight = *plan->weight;
  const Matrix& first = weight.sources[0];
  const bool one_format = AllAlike(weight);
  plan->code = one_format ? CodeOf(first.format, plan->format) : TileCode::kByTile;
  // Of several formats p and q are there themselves.
  if (one_format) plan->factors = FactorsOf(first.format);
  const auto steps_of = [&](const Matrix& m) { return one_format ? StepsOfRecord(m) : StepsOfScale(m); };
  const int64_t steps = steps_of(first), begin = plan->slices[0].col_begin;
  bool alike = std::all_of(weight.sources.begin(), weight.sources.end(),
                           [&](const Matrix& source) { return steps_of(source) == steps; });
  for (int32_t s = 0; s < plan->slice_count; ++s) alike = alike && plan->slices[s].col_begin == begin;
  if (!alike) return;  // each step its own
  if (steps == 0) {
    plan->scale_shift = 31;  // one for all steps
    return;
  }
  while (int64_t{1} << plan->scale_shift < steps) ++plan->scale_shift;
  plan->scale_first = static_cast<uint16_t>(begin / kStep % steps);
}

// Steps of one output tile that lie together: a whole tile, or two or one at the end of a part.
struct Piece {
  int64_t first, steps;
  int64_t col, end;  // its first column, and the end of its part's
};

// A k that every rank holds whole has parts too, for workgroups to share where outputs are too few to
// fill a chip: by the weight's shape alone, so that sums are the same on every number of ranks. A
// leaf of a part has two tiles at least. Vocabularies are long enough, and gate and up are
// multiplied with each other when their sums are whole.
uint32_t PartsOfWhole(const Weight& weight, TileFormat format, uint32_t steps) {
  constexpr int64_t kManyRows = 32768;
  int64_t rows = 0;
  for (const Matrix& source : weight.sources) rows += source.rows;
  if (weight.layout != WeightLayout::kPanels || weight.groups > 1 || rows >= kManyRows) return 1;
  const uint32_t least = kernels::kPartLeaves * std::max(4u, 2 * kernels::TileSteps(format));
  uint32_t parts = 1;
  while (parts < kernels::kMaxParts && steps / (2 * parts) >= least) parts *= 2;
  return parts;
}

// Where the parts of a rank's share end, in steps.
void SetParts(const Weight& weight, int32_t rank, TilePlan* plan) {
  plan->ends[0] = plan->steps;
  if (weight.splits.empty()) {
    const uint32_t parts = PartsOfWhole(weight, plan->format, plan->steps);
    constexpr uint32_t kUnit = 4;  // steps: whole tiles of every format
    plan->parts = parts;
    for (uint32_t i = 1; i < parts; ++i) {
      plan->ends[i - 1] = plan->steps / kUnit * i / parts * kUnit;
    }
    plan->ends[parts - 1] = plan->steps;
    for (uint32_t i = 0; i < parts; ++i) plan->cols_end[i] = std::min(plan->ends[i] * kStep, plan->cols);
    return;
  }
  const std::vector<uint32_t> ends = PartEnds(weight, rank);
  plan->parts = static_cast<uint32_t>(ends.size());
  std::copy(ends.begin(), ends.end(), plan->ends);
  plan->steps = ends.back();
  const auto begin = weight.splits.begin() + rank * static_cast<ptrdiff_t>(plan->parts);
  for (uint32_t i = 0; i < plan->parts; ++i) plan->cols_end[i] = begin[i + 1] - begin[0];
}

// Four columns of a row, or as many as there are.
struct Four {
  RowPlace row;
  uint32_t i;     // row of the tile
  uint32_t lane;  // that holds them
  int64_t step;   // of the weight's
  int64_t in;     // place of the step within the piece
  int64_t half;   // of the lane's eight of that step
  int64_t col;    // first column, of the matrix
  size_t count = 0;
};

// Calls fill for each four of a piece that is real.
template <class Fill>
void ForEachFour(const TilePlace& place, Piece piece, Fill fill) {
  for (uint32_t i = 0; i < kTileRows; ++i) {
    if (place.rows[i].matrix == nullptr) continue;
    for (int64_t c = 0; c < piece.steps * kStep; c += kFour) {
      const int64_t col = piece.col + c;
      const int64_t count = std::min(kFour, piece.end - col);
      if (count <= 0) break;
      const uint32_t at = kernels::StepPlace(static_cast<uint32_t>(c % kStep));
      Four four;
      four.row = place.rows[i];
      four.i = i;
      four.lane = static_cast<uint32_t>(at / kEight * kTileRows + i);
      four.step = piece.first + c / kStep;
      four.in = c / kStep;
      four.half = at % kEight / kFour;
      four.col = place.rows[i].col + col;
      four.count = static_cast<size_t>(count);
      fill(four);
    }
  }
}

void PackBf16(const TilePlace& place, Piece piece, uint8_t* out) {
  ForEachFour(place, piece, [&](const Four& four) {
    const Matrix& m = *four.row.matrix;
    uint8_t* const at = out + four.lane * 16 + four.half * 8;
    if (m.col_step == 0) {
      std::memcpy(at, quant::RowData(m, four.row.row) + four.col * 2, four.count * 2);
      return;
    }
    const uint8_t* const from = m.data.data() + (four.row.row * m.row_step + four.col * m.col_step) * 2;
    for (size_t i = 0; i < four.count; ++i) std::memcpy(at + 2 * i, from + static_cast<int64_t>(2 * i) * m.col_step, 2);
  });
}

void PackPair(const TilePlace& place, Piece piece, uint8_t* out) {
  ForEachFour(place, piece, [&](const Four& four) {
    float values[kFour] = {};
    quant::DecodeRow(*four.row.matrix, four.row.row, four.col, static_cast<int64_t>(four.count),
                     values);
    uint16_t high[kFour], low[kFour];
    for (int e = 0; e < kFour; ++e) {
      high[e] = quant::Bf16FromFloat(values[e]);
      low[e] = quant::Bf16FromFloat(values[e] - quant::FloatFromBf16(high[e]));
    }
    uint8_t* at = out + four.lane * 16 + four.half * 8;
    std::memcpy(at, high, sizeof(high));
    std::memcpy(at + 1024, low, sizeof(low));
  });
}

// Four codes of e4m3fn as e4m3fnuz, each half of what it was: the same byte, but for -0 and NaN (quant::FnuzFromFn).
uint32_t FnuzFromFn(uint32_t four) {
  const uint32_t magnitudes = four & 0x7f7f7f7f;
  const uint32_t is_zero = ~(magnitudes + 0x7f7f7f7f) & 0x80808080;
  const uint32_t is_nan = (magnitudes + 0x01010101) & 0x80808080;
  const uint32_t nan_bytes = (is_nan >> 7) * 0xff;
  return ((four & ~is_zero) & ~nan_bytes) | is_nan;
}

void PackFp8(const TilePlace& place, Piece piece, bool fnuz, uint8_t* out, uint8_t* scales) {
  ForEachFour(place, piece, [&](const Four& four) {
    const Matrix& m = *four.row.matrix;
    uint32_t codes = 0;
    std::memcpy(&codes, m.data.data() + four.row.row * m.cols + four.col, four.count);
    if (fnuz) codes = FnuzFromFn(codes);
    std::memcpy(out + (four.lane * piece.steps + four.in) * kEight + four.half * kFour, &codes, four.count);
    const float scale = BlockScale(m, four.row.row, four.col);
    std::memcpy(scales + four.step * 4, &scale, 4);
  });
}

// GGUF's blocks, whose codes lie sixteen columns apart.
void PackMxfp4Blocks(const TilePlace& place, Piece piece, uint8_t* out, uint8_t* scales) {
  ForEachFour(place, piece, [&](const Four& four) {
    const Matrix& m = *four.row.matrix;
    const uint8_t* block = quant::RowData(m, four.row.row) +
                           four.col / kStep * quant::InfoOf(m.format).block_bytes;
    uint8_t* const at = out + (four.lane * piece.steps + four.in) * 4 + four.half * 2;
    for (int i = 0; i < kFour; ++i) {
      const uint32_t code = quant::SplitNibble(block + 1, static_cast<int>(four.col % kStep) + i);
      at[i / 2] |= static_cast<uint8_t>(code << i % 2 * 4);
    }
    scales[(four.step / 4 * kTileRows + four.i) * 4 + four.step % 4] = block[0];
  });
}

void PackMxfp4(const TilePlace& place, Piece piece, uint8_t* out,
               uint8_t* scales) {
  ForEachFour(place, piece, [&](const Four& four) {
    const Matrix& m = *four.row.matrix;
    std::memcpy(out + (four.lane * piece.steps + four.in) * 4 + four.half * 2,
                m.data.data() + (four.row.row * m.cols + four.col) / 2, four.count / 2);
    scales[(four.step / 4 * kTileRows + four.i) * 4 + four.step % 4] =
        m.scale[static_cast<size_t>(four.row.row * (m.cols / kStep) + four.col / kStep)];
  });
}

// Of the steps of a piece.
void PackScales(const TilePlan& plan, const TilePlace& place, Piece piece, uint8_t* scales) {
  const bool factors = plan.factors != TileFactors::kNone;
  uint8_t* const to_factors = scales + kernels::RecordsBytes(plan.Shape());
  for (uint32_t i = 0; i < kTileRows; ++i) {
    const auto [matrix, row, begin] = place.rows[i];
    if (matrix == nullptr) continue;
    for (int64_t s = 0; s < piece.steps && piece.col + s * kStep < piece.end; ++s) {
      const int64_t col = begin + piece.col + s * kStep;
      const auto step = static_cast<uint64_t>(piece.first + s);
      const CodeScale scale = factors || plan.code != TileCode::kByTile
                                  ? RecordAt(*matrix, plan.format, row, col)
                                  : ScaleAt(*matrix, plan.format, row, col);
      const float both[] = {scale.p, scale.q};
      const uint64_t record = (plan.scale_first + step) >> plan.scale_shift;
      std::memcpy(scales + record * kernels::kRecordBytes + i * sizeof(both), both, sizeof(both));
      if (!factors) continue;
      const uint16_t own = FactorsAt(*matrix, row, col);
      std::memcpy(to_factors + step * kernels::kFactorBytes + i * sizeof(own), &own, sizeof(own));
    }
  }
}

void PackCodes(const TilePlan& plan, const TilePlace& place, Piece piece, uint8_t* out,
               uint8_t* scales) {
  const bool nibbles = plan.format == TileFormat::kNibble;
  ForEachFour(place, piece, [&](const Four& four) {
    const Matrix& m = *four.row.matrix;
    uint8_t* const at = out + (four.lane * piece.steps + four.in) * (nibbles ? 4 : 8);
    for (size_t i = 0; i < four.count; ++i) {
      const uint8_t code = CodeAt(m, plan.format, four.row.row, four.col + static_cast<int64_t>(i));
      const auto e = static_cast<uint32_t>(four.half * kFour) + static_cast<uint32_t>(i);
      if (nibbles) {
        const uint32_t to = kernels::NibblePlace(plan.code, e);
        at[to / 2] |= static_cast<uint8_t>(code << to % 2 * 4);
      } else {
        at[e] = code;
      }
    }
  });
  PackScales(plan, place, piece, scales);
}

void PackPiece(const TilePlan& plan, const TilePlace& place, Piece piece, uint8_t* out,
               uint8_t* scales) {
  switch (plan.format) {
    case TileFormat::kBf16:
      return PackBf16(place, piece, out);
    case TileFormat::kBf16Pair:
      return PackPair(place, piece, out);
    case TileFormat::kFp8:
      return PackFp8(place, piece, plan.fnuz, out, scales);
    case TileFormat::kMxfp4:
      return plan.weight->sources[0].format == Format::kMxfp4
                 ? PackMxfp4(place, piece, out, scales)
                 : PackMxfp4Blocks(place, piece, out, scales);
    case TileFormat::kNibble:
    case TileFormat::kByte:
      return PackCodes(plan, place, piece, out, scales);
    case TileFormat::kFp8Blocks:
      return;  // no weight's
  }
}

}  // namespace

std::vector<uint32_t> PartEnds(const Weight& weight, int32_t rank) {
  const size_t parts = (weight.splits.size() - 1) / weight.ranks.size();
  const auto begin = weight.splits.begin() + rank * static_cast<ptrdiff_t>(parts);
  std::vector<uint32_t> ends;
  int64_t steps = 0;
  for (size_t i = 0; i < parts; ++i) {
    steps += CeilDivide(begin[static_cast<ptrdiff_t>(i) + 1] - begin[static_cast<ptrdiff_t>(i)], kStep);
    ends.push_back(static_cast<uint32_t>(steps));
  }
  return ends;
}

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
  plan.steps = static_cast<uint32_t>(CeilDivide(plan.cols, kStep));
  SetParts(weight, rank, &plan);
  SetScales(&plan);
  return plan;
}

kernels::Tiles TilePlan::Shape() const {
  kernels::Tiles tiles;
  tiles.outputs = gate_up ? outputs / 2 : outputs;
  tiles.steps = steps;
  tiles.parts = static_cast<uint8_t>(parts);
  for (uint32_t i = 0; i < parts; ++i) kernels::SetPartEnd(&tiles, i, ends[i]);
  kernels::SetLeafTiles(format, &tiles);
  tiles.scale_first = scale_first;
  tiles.scale_shift = scale_shift;
  tiles.code = code;
  tiles.factors = factors;
  return tiles;
}

bool TakesFp8Blocks(const Weight& weight) {
  constexpr int64_t kBlock = kernels::TileSteps(TileFormat::kFp8Blocks) * kStep;  // columns
  if (quant::InfoOf(weight.sources[0].format).tile != TileFormat::kFp8) return false;
  const auto whole = [](int64_t column) { return column % kBlock == 0; };
  if (!std::all_of(weight.sources.begin(), weight.sources.end(), [&](const Matrix& source) { return whole(source.block_cols); })) {
    return false;
  }
  if (!std::all_of(weight.splits.begin(), weight.splits.end(),
                   [&](int64_t begin) { return whole(begin) || begin == weight.splits.back(); })) {
    return false;
  }
  uint32_t leaf_tiles = 0;
  for (size_t rank = 0; rank < weight.ranks.size(); ++rank) {
    const std::vector<WeightSlice>& slices = weight.ranks[rank];
    if (slices.empty()) continue;
    if (!std::all_of(slices.begin(), slices.end(), [&](const WeightSlice& s) { return whole(s.col_begin); })) return false;
    const TilePlan plan = PlanTiles(weight, static_cast<int32_t>(rank), 0);
    const kernels::Tiles shape = plan.Shape();
    if (plan.format != TileFormat::kFp8 || !kernels::IsOfBlocks(plan.format, shape)) return false;
    if (leaf_tiles != 0 && shape.leaf_tiles != leaf_tiles) return false;
    leaf_tiles = shape.leaf_tiles;
  }
  return leaf_tiles != 0;
}

Status CheckTiles(const Weight& weight, bool apart) {
  static_assert(backend::kSplitParts == kernels::kMaxParts);
  if (weight.layout == WeightLayout::kTable || weight.layout == WeightLayout::kVector) {
    return OkStatus();
  }
  for (const std::vector<WeightSlice>& slices : weight.ranks) {
    const int64_t cols = slices.empty() ? 0 : slices[0].col_end - slices[0].col_begin;
    if (cols <= int64_t{kernels::kMaxSteps} * kStep) continue;
    return Error(Code::kUnsupported, weight.label, ": ", cols, " columns; the GPU kernels take ",
                 int64_t{kernels::kMaxSteps} * kStep);
  }
  // Kernels find an expert by 32 bits of its size.
  for (size_t rank = 0; weight.groups > 1 && rank < weight.ranks.size(); ++rank) {
    const uint64_t bytes = PlanTiles(weight, static_cast<int32_t>(rank), 0).data_bytes();
    if (bytes <= UINT32_MAX) continue;
    return Error(Code::kUnsupported, weight.label, ": an expert of ", bytes, " bytes; the GPU kernels take ",
                 UINT32_MAX);
  }
  for (size_t i = 0; !apart && i + 1 < weight.splits.size(); ++i) {
    if (weight.splits[i] % kStep == 0) continue;
    return Error(Code::kUnsupported, weight.label, ": a part of its columns begins at ",
                 weight.splits[i], ", which is not a multiple of ", kStep, ": the GPU kernels take whole steps");
  }
  return OkStatus();
}

void PackOutputTile(const TilePlan& plan, uint32_t output, uint8_t* data, uint8_t* scales) {
  const TilePlace place = PlaceOf(plan, output);
  std::memset(data, 0, plan.row_bytes());
  const size_t scale_bytes = plan.row_scale_bytes();
  if (scale_bytes != 0) std::memset(scales, 0, scale_bytes);  // else it may be null
  if (plan.code == TileCode::kByTile) {
    scales[scale_bytes - kernels::kRecordBytes] = static_cast<uint8_t>(ByteCodeOf(place));
  }
  int64_t step = 0, col = 0;
  for (uint32_t part = 0; part < plan.parts; ++part) {
    Piece piece = {step, kernels::TileSteps(plan.format), col, plan.cols_end[part]};
    step = plan.ends[part];
    col = plan.cols_end[part];
    for (; piece.first < step; piece.first += piece.steps, piece.col += piece.steps * kStep) {
      while (piece.steps > step - piece.first) piece.steps /= 2;
      const uint32_t at = static_cast<uint32_t>(piece.first);
      PackPiece(plan, place, piece, data + kernels::TileRowBytes(plan.format, at), scales);
    }
  }
}

}  // namespace mainarch::amdgpu
