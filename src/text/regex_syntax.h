// SPDX-License-Identifier: MIT
//
// Patterns as Oniguruma reads them (its Ruby syntax, which the `tokenizers` package uses), as
// trees. What is taken: literals; . ^ $ \A \z \Z \b \B; \s \S \d \D \w \W \h \H \p{..} \P{..}
// \p{^..};
// \r \n \t \f \v \a \e \xHH \x{H..} \uHHHH and escaped punctuation; classes with ranges, classes
// inside, && and [:name:]; groups (..) (?:..) (?<name>..) (?>..) (?i:..) (?i); (?=..) (?!..), and
// (?<=.) (?<!.) around one character; | and ? * + {n} {n,} {,m} {n,m}, greedy or lazy, and ?+ *+ ++
// possessive. Anything else is refused by name and offset.
#ifndef MAINARCH_TEXT_REGEX_SYNTAX_H_
#define MAINARCH_TEXT_REGEX_SYNTAX_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/char_set.h"

namespace mainarch::text {

inline constexpr uint32_t kNoLimit = UINT32_MAX;

enum class RegexKind : uint8_t {
  kEmpty,
  kSet,       // one character of `set`
  kSequence,  // the children, one after another
  kEither,    // the first child that works
  kRepeat,    // the child, `min` to `max` times
  kAhead,     // the child would match here (or not: `negated`)
  kBehind,    // the character before is of `set` (or not)
  kAtomic,    // the child, and no second thoughts
  kAssert,    // a place
};

enum class RegexPlace : uint8_t {
  kLineStart,     // ^
  kLineEnd,       // $
  kTextStart,     // \A
  kTextEnd,       // \z
  kTextEndOrEol,  // \Z
  kWordEdge,      // \b
  kNoWordEdge,    // \B
};

enum class RegexGreed : uint8_t { kGreedy, kLazy, kPossessive };

struct RegexNode {
  RegexKind kind = RegexKind::kEmpty;
  RegexGreed greed = RegexGreed::kGreedy;
  RegexPlace place = RegexPlace::kLineStart;
  bool negated = false;
  uint32_t min = 1, max = 1;
  PointRanges set;
  std::vector<RegexNode> children;
};

// kUnsupported names what is not taken and where it stands.
StatusOr<RegexNode> ParseRegex(absl::string_view pattern);

// Whether a node can match without taking a character.
bool CanBeEmpty(const RegexNode& node);
// Every character that a match of the node can begin with, or more; only for one that cannot be
// empty.
PointRanges FirstOf(const RegexNode& node);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_REGEX_SYNTAX_H_
