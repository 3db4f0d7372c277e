// SPDX-License-Identifier: MIT
//
// Random weights in every tile format: the tiles as the backend packs them, and the values that
// they stand for.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_DECODER_WEIGHTS_H_
#define MAINARCH_TESTS_UNIT_KERNELS_DECODER_WEIGHTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unit/kernels/decoder_cases.h"

namespace mainarch::kernels_test {

struct TiledWeights {
  kernels::TileFormat format = kernels::TileFormat::kBf16;
  uint32_t rows = 0, cols = 0;              // of one matrix
  uint32_t outputs = 0;                     // tiles; with gate and up, pairs
  kernels::Tiles shape;                     // but for addresses
  Bytes data, scales;                       // never empty
  std::vector<std::vector<double>> values;  // [matrix][rows * cols]; gate and up: two

  // Adds buffers `name` and `name`_scales.
  void AddBuffers(const std::string& name, std::vector<Buffer>* buffers) const;
  kernels::Tiles At(const std::string& name, const Addresses& at) const;
};
// Formats of a checkpoint that codes are made of. `below`: of the lower half of the rows, from a multiple of
// 16 on; with gate and up, of up.
struct CodesFrom {
  std::optional<quant::Format> format, below;
};
// `parts`: of k, uneven where 32 columns are too many to deal out evenly.
TiledWeights RandomTiles(Random& random, kernels::TileFormat format, uint32_t rows, uint32_t cols,
                         bool gate_up, uint32_t parts = 1, const CodesFrom& from = {});

// Of these values [rows, cols], which are bf16.
TiledWeights Bf16Tiles(const std::vector<float>& values, uint32_t rows, uint32_t cols, uint32_t parts);

const char* NameOf(kernels::TileFormat format);

// One row of `w` times x, with the error that fp32 sums and inputs in two bf16 may make.
// `taken`: with inputs in one bf16, 2^-8 of each, or as MXFP8, which is what x is then made of if it is exact. `x_error[i]`: how
// far off the kernel's x[i] may be already; null: not at all.
Near Dot(const TiledWeights& w, size_t matrix, uint32_t row, const std::vector<double>& x,
         const std::vector<double>* x_error = nullptr, kernels::Taken taken = kernels::Taken::kBoth);
inline constexpr char kProductBound[] =
    "(2^-15.9 + (k/4 + 8) * 2^-23) of the sum of |x * w|: two bf16 of each input (pairs: and of "
    "each "
    "weight), fp32 sums of four waves";

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_DECODER_WEIGHTS_H_
