// SPDX-License-Identifier: MIT
//
// Where the columns of a row-parallel weight are cut for ranks, from its shape alone.
#ifndef MAINARCH_MODEL_SPLITS_H_
#define MAINARCH_MODEL_SPLITS_H_

#include <cstdint>
#include <vector>

#include "backend/program.h"

namespace mainarch::model {

// MXFP4 groups are 32 columns; every other format's step divides 32.
inline constexpr int64_t kColumnUnit = 32;

// kSplitParts + 1 boundaries over n, at multiples of unit except the last.
inline std::vector<int64_t> SplitAt(int64_t n, int64_t unit) {
  std::vector<int64_t> splits;
  for (int i = 0; i < backend::kSplitParts; ++i) {
    splits.push_back(n / unit * i / backend::kSplitParts * unit);
  }
  splits.push_back(n);
  return splits;
}

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_SPLITS_H_
