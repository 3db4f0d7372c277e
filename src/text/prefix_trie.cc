// SPDX-License-Identifier: MIT
#include "text/prefix_trie.h"

#include <algorithm>

namespace mainarch::text {

void PrefixTrie::Build(std::vector<std::pair<absl::string_view, uint32_t>> texts) {
  std::sort(texts.begin(), texts.end());
  struct Range {
    size_t first, last, depth;
  };
  std::vector<Range> ranges = {{0, texts.size(), 0}};  // of the texts below each node
  for (uint32_t node = 0; node < ranges.size(); ++node) {
    auto [first, last, depth] = ranges[node];
    if (first < last && texts[first].first.size() == depth)
      nodes_[node].token = texts[first++].second;
    nodes_[node].children = static_cast<uint32_t>(nodes_.size());
    while (first < last) {
      const auto byte = static_cast<unsigned char>(texts[first].first[depth]);
      size_t end = first;
      while (end < last && static_cast<unsigned char>(texts[end].first[depth]) == byte) ++end;
      nodes_.emplace_back();
      bytes_.push_back(byte);
      ranges.push_back({first, end, depth + 1});
      ++nodes_[node].count;
      first = end;
    }
  }
  root_.fill(kNowhere);
  for (uint32_t at = 0; at < nodes_[kRoot].count; ++at) {
    root_[bytes_[nodes_[kRoot].children + at]] = nodes_[kRoot].children + at;
  }
}

}  // namespace mainarch::text
