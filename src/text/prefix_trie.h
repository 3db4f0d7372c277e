// SPDX-License-Identifier: MIT
//
// The tokens of a vocabulary by their bytes, to walk along a text. Immutable once built.
#ifndef MAINARCH_TEXT_PREFIX_TRIE_H_
#define MAINARCH_TEXT_PREFIX_TRIE_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "text/vocabulary.h"

namespace mainarch::text {

class PrefixTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNowhere = UINT32_MAX;

  // Texts that are not empty and differ, with their tokens. They must live until this returns.
  void Build(std::vector<std::pair<absl::string_view, uint32_t>> texts);

  // The node that `byte` leads to, or kNowhere.
  uint32_t Step(uint32_t node, unsigned char byte) const {
    if (node == kRoot) return root_[byte];
    const uint32_t end = nodes_[node].children + nodes_[node].count;
    for (uint32_t at = nodes_[node].children; at < end; ++at) {
      if (bytes_[at] == byte) return at;
    }
    return kNowhere;
  }
  // The token that ends at a node, or kNoToken.
  uint32_t TokenAt(uint32_t node) const { return nodes_[node].token; }

 private:
  struct Node {
    uint32_t children = 0;  // the first; they stand together
    uint32_t count = 0;
    uint32_t token = kNoToken;
  };

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<unsigned char> bytes_ = std::vector<unsigned char>(1);  // that leads to a node
  std::array<uint32_t, 256> root_{};
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_PREFIX_TRIE_H_
