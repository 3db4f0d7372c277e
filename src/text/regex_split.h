// SPDX-License-Identifier: MIT
//
// Split patterns through PCRE2: the engine for patterns that have no scanner of their own, and the
// second opinion of the tests on those that have.
//
// A pattern is written for another engine (Oniguruma, in the `tokenizers` package), so it is
// translated construct by construct, and a construct that the two engines do not agree on is
// refused by name. What is taken: literals, . is not; escapes \r \n \t \s \S \d \p{..} \P{..} and
// escaped punctuation; classes without set operations; groups (..) (?:..); (?i:..) around ASCII
// letters; look-ahead (?=..) (?!..); | and ? * + {n} {n,} {n,m}, greedy, lazy or possessive
// (?+ *+ ++ only). \p{..} of code points newer than PCRE2's Unicode (14.0 in its release 10.42)
// says "unassigned".
#ifndef MAINARCH_TEXT_REGEX_SPLIT_H_
#define MAINARCH_TEXT_REGEX_SPLIT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::text {

// The same pattern for PCRE2 with UTF and UCP, or kUnsupported naming the construct and its offset.
StatusOr<std::string> TranslatePattern(absl::string_view pattern);

// A compiled pattern: immutable, and may be shared by threads.
class RegexSplit {
 public:
  static StatusOr<std::unique_ptr<const RegexSplit>> Create(absl::string_view pattern);
  ~RegexSplit();
  RegexSplit(const RegexSplit&) = delete;
  RegexSplit& operator=(const RegexSplit&) = delete;

  // Cuts `text`, valid UTF-8, into the matches and what lies between them (the behaviour
  // "Isolated"): appends the end of each piece to `ends`. Fails when the pattern backtracks past
  // PCRE2's limits on this text.
  Status Cut(absl::string_view text, std::vector<size_t>* ends) const;

 private:
  RegexSplit() = default;
  void* code_ = nullptr;  // pcre2_code, whose header stays out of this one
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_REGEX_SPLIT_H_
