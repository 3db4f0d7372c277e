// SPDX-License-Identifier: MIT
//
// The tokens of a file's "added_tokens", which are cut out of the text before the model sees it:
// the leftmost match, and of those the longest. Immutable once made.
#ifndef MAINARCH_TEXT_ADDED_TOKENS_H_
#define MAINARCH_TEXT_ADDED_TOKENS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/hash_map.h"
#include "text/char_class.h"
#include "text/vocabulary.h"

namespace mainarch::text {

struct AddedToken {
  std::string content;
  uint32_t id = 0;
  bool special = false;      // left out of decoded text on demand
  bool normalized = false;   // looked for in normalised text, not in the raw text
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool verbatim = false;     // decoded as it is written, whatever the decoder does with others
  bool single_word = false;  // not beside a letter or the like
};

// A set of added tokens as a trie.
class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin;
    size_t end;
    uint32_t id;
  };

  // `content` must not be empty.
  void Add(absl::string_view content, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  // Where a walk through one text stands. Start with a default one.
  struct Cursor {
    size_t search = 0;  // where to look from
    size_t taken = 0;   // the end of the match before
  };

  // The next match in `text`, valid UTF-8; false when there is none. Tokens with `special` are
  // passed over, as one piece, unless `special` is set.
  bool Next(absl::string_view text, bool special, const CharClasses& classes, Cursor* cursor,
            Match* match) const;

 private:
  struct Info {
    uint32_t id;
    bool special;
    bool lstrip;
    bool rstrip;
    bool single_word;
  };
  static constexpr uint32_t kRoot = 0;

  // The longest token at `at`: its index and end; false when there is none.
  bool Longest(absl::string_view text, size_t at, uint32_t* index, size_t* end) const;

  std::vector<Info> tokens_;
  std::vector<uint32_t> token_of_node_ = {kNoToken};  // index into tokens_, by node
  HashMap<uint64_t, uint32_t> edges_;                 // node << 8 | byte -> node
  std::array<uint32_t, 256> root_edges_{};            // 0: none
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_ADDED_TOKENS_H_
