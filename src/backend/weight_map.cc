// SPDX-License-Identifier: MIT
#include "backend/weight_map.h"

#include <algorithm>
#include <map>
#include <string>

namespace mainarch::backend {
namespace {

bool SameSource(const quant::Matrix& a, const quant::Matrix& b) {
  return a.format == b.format && a.rows == b.rows && a.cols == b.cols &&
         a.data.data() == b.data.data() && a.scale.data() == b.scale.data() &&
         a.zero.data() == b.zero.data() && a.factor == b.factor &&
         a.block_rows == b.block_rows && a.block_cols == b.block_cols &&
         a.row_step == b.row_step && a.col_step == b.col_step && a.paired_rows == b.paired_rows;
}

bool SameSlice(const WeightSlice& a, const WeightSlice& b) {
  return a.source == b.source && a.row_begin == b.row_begin && a.row_end == b.row_end &&
         a.col_begin == b.col_begin && a.col_end == b.col_end;
}

bool Same(const Weight& a, const Weight& b) {
  const auto same_slices = [](const std::vector<WeightSlice>& x, const std::vector<WeightSlice>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), SameSlice);
  };
  return a.layout == b.layout && a.groups == b.groups && a.splits == b.splits &&
         a.offset == b.offset && a.factor == b.factor &&
         std::equal(a.sources.begin(), a.sources.end(), b.sources.begin(), b.sources.end(),
                    SameSource) &&
         std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(), same_slices);
}

}  // namespace

WeightMap MapWeights(const std::vector<std::shared_ptr<const Program>>& programs) {
  WeightMap map;
  std::multimap<std::string, size_t> seen;  // by label
  for (const std::shared_ptr<const Program>& program : programs) {
    std::vector<size_t> index;
    for (const Weight& weight : program->weights) {
      auto [at, end] = seen.equal_range(weight.label);
      while (at != end && !Same(*map.weights[at->second], weight)) ++at;
      if (at == end) {
        at = seen.emplace(weight.label, map.weights.size());
        map.weights.push_back(&weight);
      }
      index.push_back(at->second);
    }
    map.index.push_back(std::move(index));
  }
  return map;
}

}  // namespace mainarch::backend
