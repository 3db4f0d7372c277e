// SPDX-License-Identifier: MIT
#include "unit/kernels/decoder_weights.h"

#include <algorithm>
#include <cmath>

#include "backend/amdgpu/tiles.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/mxfp8.h"
#include "ops/random_matrices.h"
#include "quant/matrix.h"

namespace mainarch::kernels_test {
namespace {

using kernels::TileFormat;

// One with codes. Of groups of int4 they have 128 columns where that is possible.
test::Source RandomCodes(Random& random, quant::Format format, int64_t rows, int64_t cols) {
  std::mt19937 rng(static_cast<uint32_t>(random.Next()));
  test::Source out = test::RandomMatrix(format, rows, cols, &rng);
  if (out.matrix.block_cols == 32 && cols % 128 == 0) out.matrix.block_cols = 128;
  return out;
}

test::Source RandomMatrix(Random& random, TileFormat format, int64_t rows, int64_t cols,
                          std::optional<quant::Format> from) {
  if (kernels::HasCodes(format)) {
    const quant::Format plain = format == TileFormat::kNibble ? quant::Format::kInt4Packed
                                                              : quant::Format::kInt8Channel;
    return RandomCodes(random, from.value_or(plain), rows, cols);
  }
  test::Source out;
  quant::Matrix& m = out.matrix;
  m.rows = rows;
  m.cols = cols;
  const size_t count = static_cast<size_t>(rows * cols);
  switch (format) {
    case TileFormat::kBf16:
      m.format = quant::Format::kBF16;
      out.data = ToBytes(random.Bf16(count));
      break;
    case TileFormat::kBf16Pair:
      m.format = quant::Format::kF32;
      out.data = ToBytes(random.Floats(count));
      break;
    case TileFormat::kFp8: {
      m.format = quant::Format::kFp8Block;
      m.block_rows = m.block_cols = 128;
      out.data = random.Raw(count);
      for (uint8_t& code : out.data) {
        if ((code & 0x7f) == 0x7f) code ^= 0x40;  // a NaN
        if (code == 0x80) code = 0;  // so that the bytes are right for either chip
      }
      std::vector<float> scales;
      for (int64_t i = 0; i < (rows + 127) / 128 * ((cols + 127) / 128); ++i) {
        scales.push_back(static_cast<float>(0.001 + 0.01 * random.Uniform()));
      }
      out.scale = ToBytes(scales);
      break;
    }
    case TileFormat::kMxfp4:
      m.format = quant::Format::kMxfp4;
      m.scale_dtype = DType::kU8;
      out.data = random.Raw(count / 2);
      for (size_t i = 0; i < count / 32; ++i) {
        out.scale.push_back(static_cast<uint8_t>(123 + random.Next() % 6));
      }
      break;
    default:
      break;
  }
  m.data = out.data;
  m.scale = out.scale;
  return out;
}

// The first rank's tiles of `weight`, whose columns are in so many parts: those of the first of 8 / parts ranks.
void Pack(backend::Weight weight, uint32_t parts, TiledWeights* out) {
  if (parts > 1) {
    weight.ranks.resize(backend::kSplitParts / parts);
    for (uint32_t i = 0; i < parts; ++i) weight.splits.push_back(out->cols / 32 * i / parts * 32);
    weight.splits.resize(backend::kSplitParts + 1, out->cols);
  }
  const amdgpu::TilePlan plan = amdgpu::PlanTiles(weight, 0, 0);
  out->shape = plan.Shape();
  out->outputs = out->shape.outputs;
  out->data.resize(plan.data_bytes());
  out->scales.resize(plan.scale_bytes() + 16);
  for (uint32_t o = 0; o < plan.outputs; ++o) {
    amdgpu::PackOutputTile(plan, o, out->data.data() + plan.row_bytes() * o,
                           out->scales.data() + plan.row_scale_bytes() * o);
  }
  // A wrong format would make other kernels read these tiles.
  if (plan.format != out->format) out->data.clear();
}

}  // namespace

const char* NameOf(TileFormat format) {
  switch (format) {
    case TileFormat::kBf16:
      return "bf16";
    case TileFormat::kBf16Pair:
      return "pair";
    case TileFormat::kFp8:
      return "fp8";
    case TileFormat::kMxfp4:
      return "mxfp4";
    case TileFormat::kNibble:
      return "nibble";
    case TileFormat::kByte:
      return "byte";
    case TileFormat::kFp8Blocks:
      break;  // no weight's
  }
  return "";
}

TiledWeights RandomTiles(Random& random, TileFormat format, uint32_t rows, uint32_t cols,
                         bool gate_up, uint32_t parts, const CodesFrom& from) {
  TiledWeights out;
  out.format = format;
  out.rows = rows;
  out.cols = cols;
  backend::Weight weight;
  weight.layout = gate_up ? backend::WeightLayout::kGateUp : backend::WeightLayout::kPanels;
  weight.ranks.resize(1);
  // Matrices, and the parts that each is stacked of.
  const uint32_t upper = from.below.has_value() && !gate_up ? rows / 32 * 16 : rows;
  std::vector<test::Source> stored;
  stored.reserve(4);
  for (size_t i = 0; i < (gate_up ? 2u : 1u); ++i) {
    out.values.emplace_back();
    for (const uint32_t part : {upper, rows - upper}) {
      if (part == 0) continue;
      const bool below = from.below.has_value() && (gate_up ? i == 1 : out.values[i].size() != 0);
      stored.push_back(RandomMatrix(random, format, part, cols, below ? from.below : from.format));
      const quant::Matrix& matrix = stored.back().matrix;
      weight.ranks[0].push_back({static_cast<int32_t>(weight.sources.size()), 0, part, 0, cols});
      weight.sources.push_back(matrix);
      std::vector<float> row(cols);
      for (uint32_t r = 0; r < part; ++r) {
        quant::DecodeRow(matrix, r, 0, cols, row.data());
        out.values[i].insert(out.values[i].end(), row.begin(), row.end());
      }
    }
  }
  Pack(std::move(weight), parts, &out);
  return out;
}

TiledWeights Bf16Tiles(const std::vector<float>& values, uint32_t rows, uint32_t cols, uint32_t parts) {
  TiledWeights out;
  out.format = TileFormat::kBf16;
  out.rows = rows;
  out.cols = cols;
  out.values.emplace_back(values.begin(), values.end());
  std::vector<uint16_t> stored;
  for (const float value : values) stored.push_back(quant::Bf16FromFloat(value));
  const Bytes bytes = ToBytes(stored);
  quant::Matrix matrix;
  matrix.format = quant::Format::kBF16;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.data = bytes;
  backend::Weight weight;
  weight.layout = backend::WeightLayout::kPanels;
  weight.ranks.resize(1);
  weight.ranks[0].push_back({0, 0, rows, 0, cols});
  weight.sources.push_back(matrix);
  Pack(std::move(weight), parts, &out);
  return out;
}

void TiledWeights::AddBuffers(const std::string& name, std::vector<Buffer>* buffers) const {
  buffers->push_back({name, data});
  buffers->push_back({name + "_scales", scales});
}

kernels::Tiles TiledWeights::At(const std::string& name, const Addresses& at) const {
  kernels::Tiles tiles = shape;
  tiles.data = at.Of<const uint8_t>(name);
  tiles.scales = at.Of<const uint8_t>(name + "_scales");
  return tiles;
}

namespace {

// Blocks of 32 as MXFP8, and back.
std::vector<double> ThroughMxfp8(const std::vector<double>& x) {
  std::vector<double> out;
  for (size_t first = 0; first < x.size(); first += quant::kMxfp8Block) {
    const size_t end = std::min(x.size(), first + quant::kMxfp8Block);
    uint32_t largest = 0;
    for (size_t i = first; i < end; ++i) {
      largest = std::max<uint32_t>(largest, quant::Bf16FromFloat(static_cast<float>(x[i])) & 0x7fffu);
    }
    const double scale = std::ldexp(1.0, static_cast<int>(quant::Mxfp8Scale(largest)) - 127);
    for (size_t i = first; i < end; ++i) {
      const double value = quant::FloatFromBf16(quant::Bf16FromFloat(static_cast<float>(x[i])));
      out.push_back(quant::FloatFromFp8E4m3(quant::Fp8E4m3FromFloat(static_cast<float>(value / scale))) * scale);
    }
  }
  return out;
}

// What inputs that are not exact may be off by as MXFP8: of each 2^-4, or half of the least step of its block, whose factor is
// 2^-7.8 of its largest value at most, and twice that where an error moves it.
Near ScaledDot(const TiledWeights& w, const double* weights, const std::vector<double>& x, const std::vector<double>& x_error) {
  double sum = 0, magnitude = 0, inherited = 0, steps = 0;
  for (uint32_t first = 0; first < w.cols; first += quant::kMxfp8Block) {
    const uint32_t end = std::min(w.cols, first + quant::kMxfp8Block);
    double largest = 0, own = 0;
    for (uint32_t i = first; i < end; ++i) {
      const double weight = weights[i];
      sum += weight * x[i];
      magnitude += std::abs(weight * x[i]);
      inherited += std::abs(weight) * x_error[i];
      own += std::abs(weight);
      largest = std::max(largest, std::abs(x[i]) + x_error[i]);
    }
    steps += own * largest * 0x1p-17;
  }
  const double split = 0x1p-4 + 0x1p-8;
  return {sum, magnitude * (split + (w.cols / 4 + 8) * 0x1p-23) + inherited * (1 + split) + steps + 1e-30};
}

}  // namespace

Near Dot(const TiledWeights& w, size_t matrix, uint32_t row, const std::vector<double>& given,
         const std::vector<double>* x_error, kernels::Taken taken) {
  const bool scaled = taken == kernels::Taken::kScaled;
  const bool exact = x_error == nullptr || std::all_of(x_error->begin(), x_error->end(), [](double e) { return e == 0; });
  if (scaled && !exact) return ScaledDot(w, &w.values[matrix][size_t{row} * w.cols], given, *x_error);
  const std::vector<double> x = scaled ? ThroughMxfp8(given) : given;
  double sum = 0, magnitude = 0, inherited = 0;
  for (uint32_t i = 0; i < w.cols; ++i) {
    const double weight = w.values[matrix][size_t{row} * w.cols + i];
    sum += weight * x[i];
    magnitude += std::abs(weight * x[i]);
    if (x_error != nullptr) inherited += std::abs(weight) * (*x_error)[i];
  }
  // An input that is off may be rounded the other way: by as much more as it is off.
  const double split = scaled ? 0 : taken == kernels::Taken::kRounded ? 0x1p-8 : 0x1.1p-16;
  return {sum, magnitude * (split + (w.cols / 4 + 8) * 0x1p-23) + inherited * (1 + split) + 1e-30};
}

}  // namespace mainarch::kernels_test
