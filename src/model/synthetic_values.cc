// SPDX-License-Identifier: MIT
#include "model/synthetic_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/mxfp4.h"

namespace mainarch::model {
namespace {

using quant::Format;

constexpr int64_t kFp8Block = 128;

template <class T>
void Store(std::vector<uint8_t>* bytes, size_t index, T value) {
  std::memcpy(bytes->data() + index * sizeof(T), &value, sizeof(T));
}

// A rectangle of the panel's values, with one scale.
struct Rectangle {
  int64_t row, rows, col, cols;
};

void EncodeFp8(const float* values, int64_t stride, const Rectangle& at, size_t scale_index,
               Panel* panel) {
  const int64_t first = at.row * stride + at.col;
  float amax = 0;
  for (int64_t r = 0; r < at.rows; ++r) {
    const float* row = values + first + r * stride;
    for (int64_t c = 0; c < at.cols; ++c) amax = std::max(amax, std::fabs(row[c]));
  }
  const float scale = amax == 0 ? 1.0f : amax / quant::kFp8E4m3Max;
  Store(&panel->scale, scale_index, scale);
  for (int64_t r = 0; r < at.rows; ++r) {
    const float* row = values + first + r * stride;
    uint8_t* out = panel->data.data() + first + r * stride;
    for (int64_t c = 0; c < at.cols; ++c) out[c] = quant::Fp8E4m3FromFloat(row[c] / scale);
  }
}

void EncodeFp8Block(const float* values, int64_t rows, int64_t cols, Panel* panel) {
  const int64_t blocks = (cols + kFp8Block - 1) / kFp8Block;
  panel->scale.resize(static_cast<size_t>(blocks) * sizeof(float));
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t col = b * kFp8Block;
    EncodeFp8(values, cols, {0, rows, col, std::min(kFp8Block, cols - col)}, static_cast<size_t>(b),
              panel);
  }
}

void EncodeFp8Channel(const float* values, int64_t rows, int64_t cols, Panel* panel) {
  panel->scale.resize(static_cast<size_t>(rows) * sizeof(float));
  for (int64_t r = 0; r < rows; ++r) {
    EncodeFp8(values, cols, {r, 1, 0, cols}, static_cast<size_t>(r), panel);
  }
}

void EncodeMxfp4(const float* values, int64_t rows, int64_t cols, Panel* panel) {
  const int64_t blocks = rows * cols / quant::kMxfp4Block;
  panel->scale.resize(static_cast<size_t>(blocks));
  for (int64_t b = 0; b < blocks; ++b) {
    panel->scale[static_cast<size_t>(b)] = quant::QuantizeMxfp4Block(
        values + b * quant::kMxfp4Block, panel->data.data() + b * (quant::kMxfp4Block / 2),
        quant::Mxfp4ScaleMode::kEven);
  }
}

}  // namespace

uint64_t Fnv1a64(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

uint64_t SyntheticKey(absl::string_view name, uint64_t seed) {
  const uint64_t key = Fnv1a64(name);
  return seed == 0 ? key : key ^ SplitMix64(seed);
}

float LinearScale(int64_t fan_in) {
  const double exact = 0.5 * std::log2(3.0 / static_cast<double>(fan_in));
  // Not nearbyint: the host program may have changed the rounding mode.
  double rounded = std::floor(exact + 0.5);
  if (rounded - exact == 0.5 && std::fmod(rounded, 2) != 0) rounded -= 1;
  return std::ldexp(1.0f, static_cast<int>(rounded));
}

void FillValues(uint64_t key, uint64_t first, int64_t count, float offset, float scale,
                float* out) {
  const float step = scale * 0x1p-23f;
  for (int64_t i = 0; i < count; ++i) {
    // 24 bits less 2^23: u * 2^23, exact in fp32, and so is its product with a power of two.
    const auto bits =
        static_cast<int32_t>(SplitMix64(key + first + static_cast<uint64_t>(i)) >> 40);
    const float value = offset + static_cast<float>(bits - (1 << 23)) * step;
    out[i] = quant::FloatFromBf16(quant::Bf16FromFloat(value));
  }
}

void EncodePanel(Format format, const float* values, int64_t rows, int64_t cols, Panel* panel) {
  const auto count = static_cast<size_t>(rows * cols);
  panel->data.resize(static_cast<size_t>(rows * quant::RowBytes(format, cols)));
  panel->scale.clear();
  switch (format) {
    case Format::kBF16:
      for (size_t i = 0; i < count; ++i) Store(&panel->data, i, quant::Bf16FromFloat(values[i]));
      return;
    case Format::kF16:
      for (size_t i = 0; i < count; ++i) Store(&panel->data, i, quant::F16FromFloat(values[i]));
      return;
    case Format::kF32:
      std::memcpy(panel->data.data(), values, count * sizeof(float));
      return;
    case Format::kFp8Block:
      return EncodeFp8Block(values, rows, cols, panel);
    case Format::kFp8Channel:
      return EncodeFp8Channel(values, rows, cols, panel);
    default:  // no other format is made here
      return EncodeMxfp4(values, rows, cols, panel);
  }
}

}  // namespace mainarch::model
