// SPDX-License-Identifier: MIT
//
// The weights of several Programs as one list, in which what they share stands once.
#ifndef MAINARCH_BACKEND_WEIGHT_MAP_H_
#define MAINARCH_BACKEND_WEIGHT_MAP_H_

#include <memory>
#include <vector>

#include "backend/program.h"

namespace mainarch::backend {

struct WeightMap {
  std::vector<const Weight*> weights;      // of the first Program that has each
  std::vector<std::vector<size_t>> index;  // [program][WeightId] into `weights`
};

// The same label, and the same shares of the same bytes. The Programs outlive the map.
WeightMap MapWeights(const std::vector<std::shared_ptr<const Program>>& programs);

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_WEIGHT_MAP_H_
