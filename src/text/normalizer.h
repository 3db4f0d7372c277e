// SPDX-License-Identifier: MIT
//
// What is done to a text, between its added tokens, before it is cut into pieces: a chain of steps
// from text to text, each as the `tokenizers` package does it. Immutable once made.
#ifndef MAINARCH_TEXT_NORMALIZER_H_
#define MAINARCH_TEXT_NORMALIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/char_class.h"
#include "text/charsmap.h"
#include "text/normal_form.h"
#include "text/regex.h"

namespace mainarch::text {

enum class NormalizerKind : uint8_t {
  kForm,          // `form`
  kPrepend,       // `content` before a text that is not empty
  kReplace,       // `pattern`, or each match of `regex`, becomes `content`
  kStrip,         // white space at the ends that `left` and `right` name
  kLowercase,     // Rust's
  kStripAccents,  // marks go
  kCharsmap,      // SentencePiece's table
  kNmt,           // controls go, odd spaces become spaces
  kBertClean,     // controls go, white space becomes spaces
  kBertChinese,   // spaces around ideographs
  kBertAccents,   // NFD, and nonspacing marks go
  kOneSpace,      // runs of spaces become one (SentencePiece's remove_extra_whitespaces)
};

struct NormalizerStep {
  NormalizerKind kind = NormalizerKind::kForm;
  NormalForm form = NormalForm::kNfc;
  bool left = true, right = true;
  std::string pattern, content;
  std::shared_ptr<const Regex> regex;
  std::shared_ptr<const Charsmap> charsmap;
};

class Normalizer {
 public:
  void Add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  size_t size() const { return steps_.size(); }

  // `utf8` must be valid. Returns `utf8` itself where nothing changes; otherwise fills `*storage`
  // and returns a view of it. Fails where a pattern takes too long, or the text grows past
  // kMaxGrowth.
  StatusOr<absl::string_view> Run(absl::string_view utf8, const CharClasses& classes,
                                  std::string* storage) const;

  // A text may become this many times as long, and 64 KiB.
  static constexpr size_t kMaxGrowth = 64;

 private:
  std::vector<NormalizerStep> steps_;
};

// `text` with each `pattern`, which is not empty, replaced.
std::string ReplaceAll(absl::string_view text, absl::string_view pattern,
                       absl::string_view content);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_NORMALIZER_H_
