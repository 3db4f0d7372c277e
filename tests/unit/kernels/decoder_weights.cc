// SPDX-License-Identifier: MIT
#include "unit/kernels/decoder_weights.h"

#include <cmath>

#include "backend/amdgpu/tiles.h"
#include "quant/matrix.h"

namespace mainarch::kernels_test {
namespace {

using kernels::TileFormat;

// A matrix of a checkpoint.
struct Stored {
  Bytes data, scale;
  quant::Matrix matrix;
};

Stored RandomMatrix(Random& random, TileFormat format, int64_t rows, int64_t cols) {
  Stored out;
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
  }
  return out;
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
  }
  return "";
}

TiledWeights RandomTiles(Random& random, TileFormat format, uint32_t rows, uint32_t cols,
                         bool gate_up, uint32_t parts) {
  TiledWeights out;
  out.format = format;
  out.rows = rows;
  out.cols = cols;
  const size_t matrices = gate_up ? 2 : 1;
  std::vector<Stored> stored(matrices);
  backend::Weight weight;
  weight.layout = gate_up ? backend::WeightLayout::kGateUp : backend::WeightLayout::kPanels;
  weight.ranks.resize(1);
  for (size_t i = 0; i < matrices; ++i) {
    stored[i] = RandomMatrix(random, format, rows, cols);
    stored[i].matrix.data = stored[i].data;
    stored[i].matrix.scale = stored[i].scale;
    weight.sources.push_back(stored[i].matrix);
    weight.ranks[0].push_back({static_cast<int32_t>(i), 0, rows, 0, cols});
    std::vector<float> row(cols);
    out.values.emplace_back();
    for (uint32_t r = 0; r < rows; ++r) {
      quant::DecodeRow(stored[i].matrix, r, 0, cols, row.data());
      out.values[i].insert(out.values[i].end(), row.begin(), row.end());
    }
  }
  if (parts > 1) {  // those of the first of 8 / parts ranks
    weight.ranks.resize(backend::kSplitParts / parts);
    for (uint32_t i = 0; i < parts; ++i) weight.splits.push_back(cols / 32 * i / parts * 32);
    weight.splits.resize(backend::kSplitParts + 1, cols);
  }
  const amdgpu::TilePlan plan = amdgpu::PlanTiles(weight, 0, 0);
  out.ends.assign(plan.ends, plan.ends + plan.parts);
  out.outputs = gate_up ? plan.outputs / 2 : plan.outputs;
  out.steps = plan.steps;
  out.data.resize(plan.data_bytes());
  out.scales.resize(plan.scale_bytes() + 16);
  for (uint32_t o = 0; o < plan.outputs; ++o) {
    amdgpu::PackOutputTile(plan, o, out.data.data() + plan.data_bytes() / plan.outputs * o,
                           out.scales.data() + plan.scale_bytes() / plan.outputs * o);
  }
  // A wrong format would make other kernels read these tiles.
  if (plan.format != format) out.data.clear();
  return out;
}

void TiledWeights::AddBuffers(const std::string& name, std::vector<Buffer>* buffers) const {
  buffers->push_back({name, data});
  buffers->push_back({name + "_scales", scales});
}

kernels::Tiles TiledWeights::At(const std::string& name, const Addresses& at) const {
  kernels::Tiles tiles;
  tiles.data = at.Of<const uint8_t>(name);
  tiles.scales = at.Of<const uint8_t>(name + "_scales");
  tiles.outputs = outputs;
  tiles.steps = steps;
  tiles.parts = static_cast<uint32_t>(ends.size());
  for (uint32_t i = 0; i < tiles.parts; ++i) kernels::SetPartEnd(&tiles, i, ends[i]);
  kernels::SetLeafTiles(format, &tiles);
  return tiles;
}

Near Dot(const TiledWeights& w, size_t matrix, uint32_t row, const std::vector<double>& x,
         const std::vector<double>* x_error, bool rounded) {
  double sum = 0, magnitude = 0, inherited = 0;
  for (uint32_t i = 0; i < w.cols; ++i) {
    const double weight = w.values[matrix][size_t{row} * w.cols + i];
    sum += weight * x[i];
    magnitude += std::abs(weight * x[i]);
    if (x_error != nullptr) inherited += std::abs(weight) * (*x_error)[i];
  }
  // An input that is off may be rounded the other way: by as much more as it is off.
  const double split = rounded ? 0x1p-8 : 0x1.1p-16;
  return {sum, magnitude * (split + (w.cols / 4 + 8) * 0x1p-23) + inherited * (1 + split) + 1e-30};
}

}  // namespace mainarch::kernels_test
