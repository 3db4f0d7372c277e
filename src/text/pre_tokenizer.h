// SPDX-License-Identifier: MIT
//
// How a normalised text is cut into pieces for the model: a chain of steps, each of which cuts or
// rewrites the pieces of the one before, as in the `tokenizers` package. Immutable once made.
#ifndef MAINARCH_TEXT_PRE_TOKENIZER_H_
#define MAINARCH_TEXT_PRE_TOKENIZER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/byte_level.h"
#include "text/char_class.h"
#include "text/char_set.h"
#include "text/regex.h"
#include "text/scanner.h"

namespace mainarch::text {

// What becomes of a match, and of what lies between matches.
enum class SplitBehavior : uint8_t {
  kRemoved,             // a match is dropped
  kIsolated,            // it is a piece
  kMergedWithPrevious,  // it ends the piece before
  kMergedWithNext,      // it begins the piece behind
  kContiguous,          // neighbouring matches are one piece
};

enum class PreTokenizerKind : uint8_t {
  kScan,       // by `scanner`, every piece isolated
  kRegex,      // by matches of `regex`
  kText,       // by `text`, which is not empty
  kCharacter,  // by characters of `set`
  kByteLevel,  // each byte becomes the character that it is written as
  kPrefix,     // `text` before every piece that does not begin with it
  kMetaspace,  // spaces become `text`, which goes before the first piece, all or none
};

enum class PrependScheme : uint8_t { kAlways, kFirst, kNever };

struct PreTokenizerStep {
  PreTokenizerKind kind = PreTokenizerKind::kScan;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // a match is what lies between matches
  Scanner scanner = nullptr;
  std::shared_ptr<const Regex> regex;
  std::shared_ptr<const CharSet> set;
  std::string text;
  PrependScheme scheme = PrependScheme::kAlways;
};

// The pieces of a text, in order; none is empty. They need not cover it.
struct Pieces {
  absl::string_view text;                        // that they lie in
  std::string storage;                           // its bytes, where they are not the caller's
  std::vector<std::pair<size_t, size_t>> spans;  // begin and end
};

class PreTokenizer {
 public:
  void Add(PreTokenizerStep step) { steps_.push_back(std::move(step)); }

  // The one step of a chain that is a scanner and no more, so that nobody needs a list.
  Scanner only_scanner() const {
    return steps_.size() == 1 && steps_[0].kind == PreTokenizerKind::kScan ? steps_[0].scanner
                                                                           : nullptr;
  }
  size_t size() const { return steps_.size(); }

  // Cuts `utf8`, valid and not empty. `first`: it stands at the front of the whole text.
  Status Run(absl::string_view utf8, bool first, const CharClasses& classes,
             const ByteLevel& byte_level, Pieces* pieces) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_PRE_TOKENIZER_H_
