// SPDX-License-Identifier: MIT
//
// The arithmetic of synthetic weights: values from a hash of the tensor's name, and panels of rows
// in the formats of checkpoints. The numpy twin is tests/golden/{fixtures,formats}.py; both make
// the same bytes, so nothing here may be reordered or contracted.
#ifndef MAINARCH_MODEL_SYNTHETIC_VALUES_H_
#define MAINARCH_MODEL_SYNTHETIC_VALUES_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "quant/matrix.h"

namespace mainarch::model {

uint64_t Fnv1a64(absl::string_view text);

inline uint64_t SplitMix64(uint64_t x) {
  uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// What the values of a tensor named `name` hash from.
uint64_t SyntheticKey(absl::string_view name, uint64_t seed);

// sqrt(3 / fan_in) to the nearest power of two, halves of the exponent to even.
float LinearScale(int64_t fan_in);

// out[i] = offset + scale * u(first + i), u in [-1, 1), rounded to bf16. `scale` is a power of two.
void FillValues(uint64_t key, uint64_t first, int64_t count, float offset, float scale, float* out);

// `rows` x `cols` values as they are stored: `data` has rows * RowBytes(format, cols) bytes,
// `scale` what the format needs for these rows. kFp8Block takes one block of rows (at most 128).
struct Panel {
  std::vector<uint8_t> data;
  std::vector<uint8_t> scale;
};
void EncodePanel(quant::Format format, const float* values, int64_t rows, int64_t cols,
                 Panel* panel);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_SYNTHETIC_VALUES_H_
