// SPDX-License-Identifier: MIT
//
// Weights as tiles: every element of every format is where kernels/decoder_args.h says, with the
// value that the checkpoint gives it, and all else is zero.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/amdgpu/tile_codes.h"
#include "backend/amdgpu/tiles.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/e8m0.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/mxfp4.h"
#include "ops/random_matrices.h"
#include "quant/matrix.h"
#include "support/test.h"

namespace mainarch::amdgpu {
namespace {

using backend::Weight;
using backend::WeightLayout;
using backend::WeightSlice;
using kernels::TileCode;
using kernels::TileFactors;
using kernels::TileFormat;
using quant::Format;

// Matrices and the weight that borrows from them.
class Fixture {
 public:
  // block: of kFp8Block, rows and columns.
  void Add(Format format, int64_t rows, int64_t cols, int32_t block = 128) {
    bytes_.emplace_back(static_cast<size_t>(rows * quant::RowBytes(format, cols)));
    for (uint8_t& byte : bytes_.back()) byte = Next();
    quant::Matrix m;
    m.format = format;
    m.rows = rows;
    m.cols = cols;
    if (format == Format::kFp8Block) m.block_rows = m.block_cols = block;
    Tame(format, &bytes_.back());
    m.data = bytes_.back();
    bytes_.emplace_back();
    std::vector<uint8_t>& scale = bytes_.back();
    if (format == Format::kMxfp4) {
      m.scale_dtype = DType::kU8;
      for (int64_t i = 0; i < rows * cols / 32; ++i) {
        scale.push_back(static_cast<uint8_t>(120 + Next() % 16));
      }
    } else if (format == Format::kFp8Block || format == Format::kFp8Channel || format == Format::kInt8Channel) {
      const int64_t count = format != Format::kFp8Block
                                ? rows
                                : (rows + block - 1) / block * ((cols + block - 1) / block);
      for (int64_t i = 0; i < count; ++i) {
        const float value = 0.01f * static_cast<float>(1 + Next());
        scale.resize(scale.size() + 4);
        std::memcpy(scale.data() + scale.size() - 4, &value, 4);
      }
    }
    m.scale = scale;
    weight.sources.push_back(m);
  }
  // Of any format, at random; of groups of int4 those of so many columns.
  void AddRandom(Format format, int64_t rows, int64_t cols, int32_t group = 32) {
    std::mt19937 rng(static_cast<uint32_t>(Next()));
    test::Source source = test::RandomMatrix(format, rows, cols, &rng);
    if (source.matrix.block_cols == 32) source.matrix.block_cols = group;
    source.matrix.order = {};
    for (std::vector<uint8_t>* bytes : {&source.data, &source.scale, &source.zero, &source.order}) {
      bytes_.push_back(std::move(*bytes));
    }
    weight.sources.push_back(source.matrix);
  }
  void Slice(int32_t source, int64_t row_begin, int64_t row_end, int64_t col_begin,
             int64_t col_end) {
    weight.ranks.resize(1);
    weight.ranks[0].push_back({source, row_begin, row_end, col_begin, col_end});
  }

  // K of all ranks ends its parts there; rank 0 of `ranks` holds the first ones.
  void Split(std::vector<int64_t> ends, size_t ranks) {
    weight.splits = std::move(ends);
    weight.splits.insert(weight.splits.begin(), 0);
    weight.ranks.resize(ranks);
  }

  Weight weight;

 private:
  uint8_t Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint8_t>(state_ >> 56);
  }
  // No NaN, no infinity, and fp32 that two bf16 can hold.
  static void Tame(Format format, std::vector<uint8_t>* bytes) {
    const size_t size = format == Format::kF32 ? 4 : 2;
    if (format == Format::kFp8Block || format == Format::kFp8Channel) {
      for (uint8_t& byte : *bytes) byte = (byte & 0x7f) == 0x7f ? byte ^ 1 : byte;
    } else if (format != Format::kMxfp4 && format != Format::kInt8Channel) {
      // The exponent's highest bit off, its next on: neither huge nor tiny.
      for (size_t i = size - 1; i < bytes->size(); i += size) {
        (*bytes)[i] = static_cast<uint8_t>(((*bytes)[i] & 0xbf) | 0x30);
      }
    }
  }

  std::vector<std::vector<uint8_t>> bytes_;
  uint64_t state_ = 1;
};

// Steps of 32 columns that lie together: in each part of k whole tiles, then two, then one, as there
// are.
struct Piece {
  uint32_t first, steps;
};
std::vector<Piece> PiecesOf(TileFormat format, const std::vector<uint32_t>& ends) {
  const uint32_t tile = format == TileFormat::kMxfp4 || format == TileFormat::kNibble ? 4
                        : format == TileFormat::kFp8 || format == TileFormat::kByte   ? 2
                                                                                      : 1;
  std::vector<Piece> out;
  uint32_t at = 0;
  for (uint32_t end : ends) {
    for (; at + tile <= end; at += tile) out.push_back({at, tile});
    if (end - at >= 2) out.push_back({at, 2}), at += 2;
    if (end - at == 1) out.push_back({at, 1}), at += 1;
  }
  return out;
}
std::vector<uint32_t> EndsOf(const TilePlan& plan) {
  const std::vector<int64_t>& splits = plan.weight->splits;
  if (splits.empty()) return {plan.steps};
  std::vector<uint32_t> ends;
  int64_t steps = 0;
  for (size_t i = 1; i <= 8 / plan.weight->ranks.size(); ++i) {
    steps += (splits[i] - splits[i - 1] + 31) / 32;
    ends.push_back(static_cast<uint32_t>(steps));
  }
  return ends;
}

// Of each column of a row of tiles the share's that is there, or -1: parts begin with whole steps.
std::vector<int64_t> ColumnsOf(const TilePlan& plan) {
  const std::vector<int64_t>& splits = plan.weight->splits;
  const std::vector<uint32_t> ends = EndsOf(plan);
  std::vector<int64_t> out;
  for (size_t i = 0; i < ends.size(); ++i) {
    int64_t column = splits.empty() ? 0 : splits[i];
    const int64_t end = splits.empty() ? plan.cols : splits[i + 1];
    for (; column < end; ++column) out.push_back(column);
    out.resize(size_t{ends[i]} * 32, -1);
  }
  return out;
}

// Element e of a lane's eight of a step, in nibbles or bytes.
float CodedElement(const TilePlan& plan, const uint8_t* at, const std::vector<uint8_t>& scales,
                   uint32_t r, uint32_t step, uint32_t e) {
  const size_t record = (plan.scale_first + step) >> plan.scale_shift;
  float both[2];
  std::memcpy(both, scales.data() + record * 128 + r * 8, 8);
  // Two bytes of the step's own multiply these.
  const size_t steps = plan.steps, shared = plan.scale_shift < 31 ? size_t{1} << plan.scale_shift : steps;
  const size_t factors_at = (plan.scale_first + steps + shared - 1) / shared * 128;
  uint16_t own = 0;
  if (plan.factors != TileFactors::kNone) std::memcpy(&own, scales.data() + factors_at + step * 32 + r * 2, 2);
  const auto low = static_cast<uint8_t>(own), high = static_cast<uint8_t>(own >> 8);
  switch (plan.factors) {
    case TileFactors::kNone:
      break;
    case TileFactors::kBytes:
      both[0] *= low, both[1] *= high;
      break;
    case TileFactors::kSignedBytes:
      both[0] *= static_cast<int8_t>(low), both[1] *= static_cast<int8_t>(high);
      break;
    case TileFactors::kE4m3:
      both[0] *= quant::FloatFromFp8E4m3(low), both[1] *= quant::FloatFromFp8E4m3(high);
      break;
    case TileFactors::kF16:
      both[0] *= quant::FloatFromF16(own), both[1] *= quant::FloatFromF16(own);
      break;
  }
  TileCode code = plan.code;
  if (code == TileCode::kByTile) {
    code = static_cast<TileCode>(scales[plan.row_scale_bytes() - 128]);
  }
  const bool nibble = plan.format == TileFormat::kNibble;
  const auto nibble_at = [&](uint32_t place) {
    return static_cast<uint8_t>(at[place / 2] >> place % 2 * 4 & 0xf);
  };
  constexpr uint32_t kPairs[] = {0, 4, 1, 5, 2, 6, 3, 7}, kHalves[] = {0, 2, 4, 6, 1, 3, 5, 7};
  switch (code) {
    case TileCode::kAffine:
      return both[0] * static_cast<float>(nibble ? nibble_at(kPairs[e]) : static_cast<int8_t>(at[e])) +
             both[1];
    case TileCode::kScaled:
      return both[0] * static_cast<float>(static_cast<int8_t>(at[e]));
    case TileCode::kHalves:
      return both[e / 4] * static_cast<float>(static_cast<int8_t>(at[e]));
    case TileCode::kE2m1:
      return both[e / 4] * quant::FloatFromE2m1(nibble_at(e));
    case TileCode::kIq4Nl:
      return both[0] * static_cast<float>(quant::kIq4NlValues[nibble_at(kHalves[e])]);
    case TileCode::kE4m3:
      return both[0] * quant::FloatFromFp8E4m3(at[e]);
    default:
      return std::nanf("");
  }
}

// Row r of an output tile, column c, as the documentation reads it.
float ElementOf(const TilePlan& plan, const std::vector<uint8_t>& data,
                const std::vector<uint8_t>& scales, uint32_t r, uint32_t c) {
  const uint32_t step = c / 32, half = c % 32 / 16, part = c % 16 / 4, e = half * 4 + c % 4;
  const uint32_t lane = 16 * part + r;
  const bool pair = plan.format == TileFormat::kBf16Pair;
  const uint32_t step_bytes =  // 64 lanes of eight elements
      pair                               ? 2048
      : plan.format == TileFormat::kBf16 ? 1024
      : plan.format == TileFormat::kFp8 || plan.format == TileFormat::kByte ? 512
                                                                            : 256;
  Piece piece = {};
  for (const Piece& each : PiecesOf(plan.format, EndsOf(plan))) {
    if (each.first <= step) piece = each;
  }
  const uint8_t* begin = data.data() + size_t{piece.first} * step_bytes;
  const uint8_t* at =
      begin + (pair ? 1024 : step_bytes) / 64 * (lane * piece.steps + step - piece.first);
  const auto bf16 = [&](uint32_t offset) {
    uint16_t bits;
    std::memcpy(&bits, at + offset + e * 2, 2);
    return quant::FloatFromBf16(bits);
  };
  switch (plan.format) {
    case TileFormat::kBf16:
      return bf16(0);
    case TileFormat::kBf16Pair:
      return bf16(0) + bf16(1024);
    case TileFormat::kFp8: {
      float scale;
      std::memcpy(&scale, scales.data() + step * 4, 4);
      if (plan.fnuz) return quant::FloatFromFp8E4m3Fnuz(at[e]) * (scale * 2);
      return quant::FloatFromFp8E4m3(at[e]) * scale;
    }
    case TileFormat::kMxfp4: {
      const uint8_t code = quant::Mxfp4Nibble(at, e);
      return quant::FloatFromE2m1(code) *
             quant::FloatFromE8m0(scales[step / 4 * 64 + r * 4 + step % 4]);
    }
    case TileFormat::kNibble:
    case TileFormat::kByte:
      return CodedElement(plan, at, scales, r, step, e);
    case TileFormat::kFp8Blocks:
      break;  // no weight's
  }
  return 0;
}

// Bytes that a row of tiles takes: 512 codes of a step, one scale a step or row and step. The last
// tile's scales have the room of a whole one's.
struct RowSize {
  uint64_t data, scales;
};
RowSize SizeOf(const TilePlan& plan, int64_t cols) {
  const uint64_t steps = static_cast<uint64_t>(cols + 31) / 32;
  // Groups that begin in the share or before it, and one record that says which codes these are.
  const uint64_t shared = plan.scale_shift < 31 ? uint64_t{1} << plan.scale_shift : steps;
  const uint64_t records = (plan.scale_first + steps + shared - 1) / shared +
                           (plan.code == TileCode::kByTile);
  const uint64_t factors = plan.factors != TileFactors::kNone ? steps * 32 : 0;
  switch (plan.format) {
    case TileFormat::kBf16:
      return {steps * 512 * 2, 0};
    case TileFormat::kBf16Pair:
      return {steps * 512 * 4, 0};
    case TileFormat::kFp8:
      return {steps * 512, (steps + 1) / 2 * 2 * 4};
    case TileFormat::kMxfp4:
      return {steps * 512 / 2, (steps + 3) / 4 * 64};
    case TileFormat::kNibble:
      return {steps * 512 / 2, records * 128 + factors};
    case TileFormat::kByte:
      return {steps * 512, records * 128 + factors};
    case TileFormat::kFp8Blocks:
      break;
  }
  return {};
}

// Every tile of rank 0, group 0. "" or what is wrong.
std::string Wrong(const Fixture& fixture, TileFormat format, bool fnuz = false) {
  TilePlan plan = PlanTiles(fixture.weight, 0, 0);
  plan.fnuz = fnuz;
  if (plan.format != format) return "another format";
  std::vector<float> want(static_cast<size_t>(plan.cols));
  const std::vector<int64_t> columns = ColumnsOf(plan);
  if (plan.steps * 32 != columns.size()) return "another number of steps";
  for (uint32_t output = 0; output < plan.outputs; ++output) {
    const RowSize size = SizeOf(plan, int64_t{plan.steps} * 32);
    if (plan.data_bytes() != plan.outputs * size.data) return "another number of bytes";
    if (plan.scale_bytes() != plan.outputs * size.scales) return "another number of scales";
    // What lies behind must stay.
    std::vector<uint8_t> data(size.data + 16, 0xee), scales(size.scales + 16, 0xee);
    PackOutputTile(plan, output, data.data(), scales.data());
    for (size_t i = 0; i < 16; ++i) {
      if (data[size.data + i] != 0xee || scales[size.scales + i] != 0xee) return "written beyond";
    }
    for (uint32_t r = 0; r < kernels::kTileRows; ++r) {
      int64_t row = int64_t{output} * 16 + r;
      int32_t slice = 0;
      if (plan.gate_up) {
        slice = static_cast<int32_t>(output % 2);
        row = int64_t{output / 2} * 16 + r;
      }
      const auto rows_of = [&](int32_t s) {
        return plan.slices[s].row_end - plan.slices[s].row_begin;
      };
      while (!plan.gate_up && slice + 1 < plan.slice_count && row >= rows_of(slice)) {
        row -= rows_of(slice++);
      }
      const bool real = row < rows_of(slice);
      const WeightSlice& from = plan.slices[slice];
      if (real) {
        quant::DecodeRow(fixture.weight.sources[static_cast<size_t>(from.source)],
                         from.row_begin + row, from.col_begin, plan.cols, want.data());
      }
      float largest = 0;
      for (float value : want) largest = std::max(largest, std::abs(value));
      for (uint32_t c = 0; c < plan.steps * 32; ++c) {
        const float value = real && columns[c] >= 0 ? want[static_cast<size_t>(columns[c])] : 0.0f;
        const float got = ElementOf(plan, data, scales, r, c);
        // Codes behind a part's end meet columns of x that are zero.
        if (kernels::HasCodes(format) && (!real || columns[c] < 0)) continue;
        const bool pair = format == TileFormat::kBf16Pair && value != 0;
        const float near = largest * 0x1p-23f;  // rounded once more, p q and c in another order
        const float off = std::abs(got - value);
        if (pair                       ? off <= std::abs(value) * 0x1.01p-17
            : kernels::HasCodes(format) ? off <= near
                                        : got == value) {
          continue;
        }
        return absl::StrCat("output ", output, " row ", r, " column ", c, " is ", got,
                            ", expected ", value);
      }
    }
  }
  return "";
}

struct Kind {
  Format from;
  TileFormat to;
  int64_t unit;  // of columns
};
constexpr Kind kKinds[] = {
    {Format::kBF16, TileFormat::kBf16, 1},           {Format::kF16, TileFormat::kBf16Pair, 1},
    {Format::kF32, TileFormat::kBf16Pair, 1},        {Format::kFp8Block, TileFormat::kFp8, 1},
    {Format::kFp8Channel, TileFormat::kByte, 1},     {Format::kMxfp4, TileFormat::kMxfp4, 32},
    {Format::kInt8Channel, TileFormat::kByte, 1},
};

TEST(every_element_is_where_the_kernels_look) {
  for (const Kind& kind : kKinds) {
    for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
             {16, 32}, {1, 160}, {33, 96}, {20, 192}, {5, 224}, {17, 256}, {130, 416}}) {
      Fixture f;
      f.Add(kind.from, rows, cols);
      f.Slice(0, 0, rows, 0, cols);
      CHECK_EQ(Wrong(f, kind.to), "");
      if (kind.to == TileFormat::kFp8) CHECK_EQ(Wrong(f, kind.to, /*fnuz=*/true), "");
    }
    if (kind.unit > 1) continue;
    for (int64_t cols : {1, 7, 9, 63, 65, 135}) {
      Fixture f;
      f.Add(kind.from, 20, cols);
      f.Slice(0, 0, 20, 0, cols);
      CHECK_EQ(Wrong(f, kind.to), "");
    }
  }
}

// Of every code, of -0 and NaN too, half of what it stands for.
TEST(fp8_for_chips_that_read_fnuz_is_half_of_what_it_was) {
  Fixture f;
  f.Add(Format::kFp8Block, 32, 256);
  std::string codes(32 * 256, 0);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<char>(i + i / 256);
  f.weight.sources[0].data = absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(codes.data()), codes.size());
  f.Slice(0, 0, 32, 0, 256);
  TilePlan plan = PlanTiles(f.weight, 0, 0);
  const RowSize size = SizeOf(plan, int64_t{plan.steps} * 32);
  std::vector<uint8_t> fn(size.data), fnuz(size.data), scales(size.scales), same(size.scales);
  PackOutputTile(plan, 1, fn.data(), scales.data());
  plan.fnuz = true;
  PackOutputTile(plan, 1, fnuz.data(), same.data());
  CHECK(scales == same);
  bool nan = false, zero = false;
  for (size_t i = 0; i < fn.size(); ++i) {
    CHECK_EQ(fnuz[i], quant::FnuzFromFn(fn[i]));
    nan |= fn[i] == 0xff;
    zero |= fn[i] == 0x80;
  }
  CHECK(nan && zero);
}

TEST(a_rank_takes_its_rows_and_columns) {
  for (const Kind& kind : kKinds) {
    Fixture f;
    f.Add(kind.from, 160, 320);
    f.Slice(0, 128, 160, 64, 224);
    CHECK_EQ(Wrong(f, kind.to), "");
  }
}

// Parts of k that are even, uneven, empty, and within what would be one tile; of all ranks and of
// the first of two and of eight.
TEST(tiles_begin_where_parts_of_k_begin) {
  for (const Kind& kind : kKinds) {
    for (const std::vector<int64_t>& ends : std::vector<std::vector<int64_t>>{
             {192, 384, 576, 768, 960, 1152, 1344, 1536},
             {32, 64, 128, 160, 256, 416, 416, 640},
             {0, 32, 64, 96, 96, 128, 160, 192},
             {64, 64, 64, 64, 64, 64, 64, 160}}) {
      for (size_t ranks : {size_t{1}, size_t{2}, size_t{8}}) {
        Fixture f;
        f.Add(kind.from, 20, ends.back());
        f.Slice(0, 0, 20, 0, ends[8 / ranks - 1]);
        f.Split(ends, ranks);
        const TilePlan plan = PlanTiles(f.weight, 0, 0);
        CHECK_EQ(plan.parts, 8 / ranks);
        const std::vector<uint32_t> want = EndsOf(plan);
        for (size_t i = 0; i < want.size(); ++i) CHECK_EQ(plan.ends[i], want[i]);
        if (plan.cols > 0) CHECK_EQ(Wrong(f, kind.to), "");
        CHECK_OK(CheckTiles(f.weight));
      }
    }
  }
}

// Parts of heads of 24 and of 80, of uneven numbers of them: each begins with a whole step. Scales of what is in blocks
// belong to steps of the file, so that such weights become pairs.
TEST(parts_that_end_within_a_step_are_put_apart) {
  for (const Kind& kind : kKinds) {
    if (kind.unit > 1) continue;
    for (const std::vector<int64_t>& ends : std::vector<std::vector<int64_t>>{
             {24, 48, 72, 96, 120, 144, 168, 192}, {0, 80, 80, 160, 400, 400, 480, 560}, {72, 72, 144, 144, 216, 216, 288, 296}}) {
      for (size_t ranks : {size_t{1}, size_t{2}, size_t{8}}) {
        Fixture f;
        f.Add(kind.from, 20, ends.back());
        f.Slice(0, 0, 20, 0, ends[8 / ranks - 1]);
        f.Split(ends, ranks);
        CHECK_OK(CheckTiles(f.weight, /*apart=*/true));
        const bool coded = kind.to == TileFormat::kFp8 || kernels::HasCodes(kind.to);
        CHECK_EQ(Wrong(f, coded ? TileFormat::kBf16Pair : kind.to), "");
      }
    }
  }
}

TEST(parts_begin_at_whole_steps) {
  Fixture f;
  f.Add(Format::kBF16, 16, 320);
  f.Slice(0, 0, 16, 0, 320);
  f.Split({32, 64, 96, 128, 176, 192, 256, 320}, 1);
  f.weight.label = "down";
  CHECK(CodeOf(CheckTiles(f.weight)) == Code::kUnsupported);
  CHECK(CheckTiles(f.weight).message().find("176") != std::string::npos);
}

// Rank by rank the same columns, of a K that is cut at `ends`; of none one rank has all.
bool FixtureTakesBlocks(Format format, int64_t cols, const std::vector<int64_t>& ends = {}, size_t ranks = 1, int32_t block = 128,
                        bool gate_up = false) {
  Fixture f;
  for (int i = 0; i < (gate_up ? 2 : 1); ++i) f.Add(format, 32, cols, block);
  f.weight.layout = gate_up ? backend::WeightLayout::kGateUp : backend::WeightLayout::kPanels;
  if (!ends.empty()) f.Split(ends, ranks);
  f.weight.ranks.resize(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto end = [&](size_t parts) { return parts == 0 ? 0 : ends.empty() ? cols : ends[parts - 1]; };
    const size_t parts = ends.empty() ? 1 : ends.size() / ranks;
    for (int i = 0; i < (gate_up ? 2 : 1); ++i) f.weight.ranks[rank].push_back({i, 0, 32, end(rank * parts), end((rank + 1) * parts)});
  }
  return TakesFp8Blocks(f.weight);
}

TEST(fp8_is_taken_by_blocks_where_all_leaves_are_of_such) {
  // Leaves of a block, of whole parts and of several: 1,024 columns are two parts, 5,120 eight, but of gate and up one.
  for (const int64_t cols : {512, 1024, 2048, 4096, 8192}) CHECK(FixtureTakesBlocks(Format::kFp8Block, cols));
  for (const int64_t cols : {256, 640, 1536, 5120}) CHECK(!FixtureTakesBlocks(Format::kFp8Block, cols));
  CHECK(FixtureTakesBlocks(Format::kFp8Block, 5120, {}, 1, 128, /*gate_up=*/true));
  CHECK(!FixtureTakesBlocks(Format::kFp8Block, 512, {}, 1, 64));
  CHECK(FixtureTakesBlocks(Format::kFp8Block, 512, {}, 1, 256));
  for (const Format other : {Format::kMxfp4, Format::kBF16, Format::kFp8Channel}) CHECK(!FixtureTakesBlocks(other, 512));
  for (const size_t ranks : {size_t{1}, size_t{2}, size_t{8}}) {
    CHECK(FixtureTakesBlocks(Format::kFp8Block, 4096, {512, 1024, 1536, 2048, 2560, 3072, 3584, 4096}, ranks));
    // Parts that would do alone, but are not alike; that are too short; that do not begin with a block.
    CHECK(!FixtureTakesBlocks(Format::kFp8Block, 4608, {512, 1024, 1536, 2048, 2560, 3072, 3584, 4608}, ranks));
    CHECK(!FixtureTakesBlocks(Format::kFp8Block, 2048, {256, 512, 768, 1024, 1280, 1536, 1792, 2048}, ranks));
    CHECK(!FixtureTakesBlocks(Format::kFp8Block, 4096, {544, 1056, 1568, 2080, 2592, 3104, 3616, 4096}, ranks));
  }
}

TEST(experts_beyond_four_gigabytes_are_refused) {
  constexpr int64_t kRows = int64_t{1} << 20;
  for (const int64_t columns : {2016, 2048}) {
    Fixture f;
    f.weight.groups = 2;
    for (int expert = 0; expert < 2; ++expert) {
      quant::Matrix matrix;  // which nobody reads
      matrix.format = Format::kBF16;
      matrix.rows = kRows;
      matrix.cols = columns;
      f.weight.sources.push_back(matrix);
      f.Slice(expert, 0, kRows, 0, columns);
    }
    f.weight.label = "experts";
    const Status checked = CheckTiles(f.weight);
    if (columns < 2048) {
      CHECK_OK(checked);
    } else {
      CHECK(CodeOf(checked) == Code::kUnsupported);
      CHECK(checked.message().find("4294967296 bytes") != std::string::npos);
    }
  }
}

TEST(slices_are_stacked) {
  for (const Kind& kind : kKinds) {
    Fixture f;
    f.Add(kind.from, 64, 96);
    f.Add(kind.from, 32, 96);
    f.Add(kind.from, 40, 96);
    f.Slice(0, 16, 48, 0, 96);
    f.Slice(1, 0, 16, 0, 96);
    f.Slice(2, 0, 40, 0, 96);
    CHECK_EQ(Wrong(f, kind.to), "");
  }
  // A tile with rows of two matrices.
  Fixture f;
  f.Add(Format::kBF16, 24, 40);
  f.Add(Format::kBF16, 24, 40);
  f.Slice(0, 0, 20, 0, 40);
  f.Slice(1, 3, 24, 0, 40);
  CHECK_EQ(Wrong(f, TileFormat::kBf16), "");
}

TEST(gate_and_up_alternate) {
  for (const Kind& kind : kKinds) {
    Fixture f;
    f.weight.layout = WeightLayout::kGateUp;
    f.Add(kind.from, 40, 96);
    f.Add(kind.from, 40, 96);
    f.Slice(0, 0, 40, 0, 96);
    f.Slice(1, 0, 40, 0, 96);
    CHECK_EQ(PlanTiles(f.weight, 0, 0).outputs, 6u);
    CHECK_EQ(Wrong(f, kind.to), "");
  }
}

// What does not fit the tiles of a format goes as pairs, and keeps its values.
TEST(what_does_not_fit_becomes_pairs) {
  Fixture columns;  // a scale group cut in two
  columns.Add(Format::kMxfp4, 16, 96);
  columns.Slice(0, 0, 16, 16, 80);
  CHECK_EQ(Wrong(columns, TileFormat::kBf16Pair), "");
  Fixture block_columns;
  block_columns.Add(Format::kFp8Block, 16, 300);
  block_columns.Slice(0, 0, 16, 120, 300);
  CHECK_EQ(Wrong(block_columns, TileFormat::kBf16Pair), "");
  Fixture block_rows;  // rows 120 .. 135 have two multipliers
  block_rows.Add(Format::kFp8Block, 200, 64);
  block_rows.Slice(0, 120, 152, 0, 64);
  CHECK_EQ(Wrong(block_rows, TileFormat::kBf16Pair), "");
  Fixture small_blocks;
  small_blocks.Add(Format::kFp8Block, 32, 64, 16);
  small_blocks.Slice(0, 0, 32, 0, 64);
  CHECK_EQ(Wrong(small_blocks, TileFormat::kBf16Pair), "");
  Fixture two_matrices;  // of fp8, in one tile
  two_matrices.Add(Format::kFp8Block, 24, 64);
  two_matrices.Add(Format::kFp8Block, 24, 64);
  two_matrices.Slice(0, 0, 24, 0, 64);
  two_matrices.Slice(1, 0, 24, 0, 64);
  CHECK_EQ(Wrong(two_matrices, TileFormat::kBf16Pair), "");
  Fixture mixed;
  mixed.Add(Format::kBF16, 16, 64);
  mixed.Add(Format::kFp8Block, 16, 64);
  mixed.Slice(0, 0, 16, 0, 64);
  mixed.Slice(1, 0, 16, 0, 64);
  CHECK_EQ(Wrong(mixed, TileFormat::kBf16Pair), "");
  Fixture experts;  // of blocks of two sizes: what one cannot be, no other is
  experts.weight.groups = 2;
  for (const int32_t block : {128, 64}) experts.Add(Format::kFp8Block, 16, 128, block);
  for (int32_t expert = 0; expert < 2; ++expert) experts.Slice(expert, 0, 16, 0, 128);
  for (int32_t expert = 0; expert < 2; ++expert) {
    CHECK(PlanTiles(experts.weight, 0, expert).format == TileFormat::kBf16Pair);
  }
}

// Every format that has codes, whole and as a rank's share of columns, whose first step may be any of a group.
TEST(codes_keep_their_values) {
  for (uint32_t i = 0; i < quant::kFormatCount; ++i) {
    const auto format = static_cast<Format>(i);
    const TileFormat tile = quant::InfoOf(format).tile;
    if (!kernels::HasCodes(tile) && format != Format::kMxfp4Blocks) continue;
    for (const int32_t group : {32, 64, 128, 96}) {
      Fixture f;
      f.AddRandom(format, 40, 768, group);
      f.Slice(0, 0, 40, 0, 768);
      CHECK_EQ(Wrong(f, tile), "");
      Fixture share;
      share.AddRandom(format, 40, 1536, group);
      share.Slice(0, 16, 40, 352, 1024);
      CHECK_EQ(Wrong(share, tile), "");
      Fixture parts;
      parts.AddRandom(format, 24, 1536, group);
      parts.Slice(0, 0, 24, 0, 672);
      parts.Split({96, 96, 288, 672, 672, 736, 1024, 1536}, 2);
      CHECK_EQ(Wrong(parts, tile), "");
    }
  }
}

// What a file's blocks say in few bytes is not made fp32 of.
TEST(factors_stay_as_small_as_in_the_file) {
  const std::vector<std::pair<Format, double>> kBits = {
      {Format::kQ4_0, 4.5},  {Format::kIq4Nl, 4.5}, {Format::kNvfp4, 4.5}, {Format::kQ4K, 4.75}, {Format::kQ4_1, 6},
      {Format::kQ8_0, 8.5},  {Format::kQ5_0, 8.5},  {Format::kQ5K, 8.75},  {Format::kQ6K, 8.75}, {Format::kQ5_1, 10},
      {Format::kAwq, 6},     {Format::kInt8Channel, 8}, {Format::kFp8Channel, 8}};
  for (const auto& [format, bits] : kBits) {
    Fixture f;
    f.AddRandom(format, 16, 4096);
    f.Slice(0, 0, 16, 0, 4096);
    const TilePlan plan = PlanTiles(f.weight, 0, 0);
    const double own = static_cast<double>(plan.data_bytes() + plan.scale_bytes()) * 8 / (16 * 4096);
    CHECK_GE(own, bits);
    CHECK_LE(own, bits + 0.02);  // a record for the whole row
  }
}

TEST(groups_have_one_record_each) {
  for (const auto& [group, records] : {std::pair{32, 24}, {64, 12}, {128, 6}, {96, 24}, {256, 3}, {768, 3}}) {
    Fixture f;
    f.AddRandom(Format::kInt4Packed, 16, 768, group);
    f.Slice(0, 0, 16, 0, 768);
    CHECK_EQ(PlanTiles(f.weight, 0, 0).row_scale_bytes(), static_cast<uint64_t>(records) * 128);
  }
  Fixture f;
  f.AddRandom(Format::kInt8Channel, 16, 768);
  f.Slice(0, 0, 16, 0, 768);
  CHECK_EQ(PlanTiles(f.weight, 0, 0).row_scale_bytes(), 128u);
}

// Slices of several formats, as a Q4_K_M file has them: bytes, and each output tile says which.
TEST(formats_of_codes_stand_together) {
  for (const auto& [above, below] : {std::pair{Format::kQ4K, Format::kQ6K}, {Format::kNvfp4, Format::kFp8Channel},
                                     {Format::kIq4Nl, Format::kQ5_1}, {Format::kAwq, Format::kQ8_0},
                                     {Format::kQ4_0, Format::kInt8Channel}, {Format::kQ5K, Format::kQ4_1}}) {
    Fixture f;
    f.AddRandom(above, 32, 512);
    f.AddRandom(below, 40, 512);
    f.Slice(0, 0, 32, 0, 512);
    f.Slice(1, 8, 40, 0, 512);
    CHECK_EQ(Wrong(f, TileFormat::kByte), "");
    Fixture one_tile;  // of rows of both
    one_tile.AddRandom(above, 24, 512);
    one_tile.AddRandom(below, 24, 512);
    one_tile.Slice(0, 0, 24, 0, 512);
    one_tile.Slice(1, 0, 24, 0, 512);
    CHECK_EQ(Wrong(one_tile, CodeOf(above, TileFormat::kByte) == CodeOf(below, TileFormat::kByte)
                                 ? TileFormat::kByte
                                 : TileFormat::kBf16Pair),
             "");
  }
}

TEST(groups_in_any_order_become_pairs) {
  std::mt19937 rng(1);
  test::Source source;
  while (source.order.empty()) source = test::RandomMatrix(Format::kGptq, 16, 128, &rng);
  Fixture f;
  f.weight.sources.push_back(source.matrix);
  f.Slice(0, 0, 16, 0, 128);
  CHECK_EQ(Wrong(f, TileFormat::kBf16Pair), "");
  Fixture small;  // two groups in a step
  small.AddRandom(Format::kInt4Packed, 16, 128, 16);
  small.Slice(0, 0, 16, 0, 128);
  CHECK(PlanTiles(small.weight, 0, 0).format == TileFormat::kBf16Pair);
}

// gpt-oss has a gate's row and an up's behind each other: two halves of the columns of one matrix.
TEST(gate_and_up_in_turns_stay_mxfp4) {
  Fixture f;
  f.weight.layout = WeightLayout::kGateUp;
  f.Add(Format::kMxfp4, 40, 2 * 96);
  f.Slice(0, 8, 40, 0, 96);
  f.Slice(0, 8, 40, 96, 192);
  CHECK_EQ(Wrong(f, TileFormat::kMxfp4), "");
}

}  // namespace
}  // namespace mainarch::amdgpu
