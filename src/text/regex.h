// SPDX-License-Identifier: MIT
//
// Patterns of tokenizers, matched as Oniguruma matches them: the leftmost place, and there what
// comes first by the order of alternatives and the greed of repeats (backtracking). The sets are of
// tables of our own (unicode_property.h), so that ids do not depend on a library of the machine.
// regex_syntax.h says what a pattern may hold. A compiled pattern is immutable and may be shared.
#ifndef MAINARCH_TEXT_REGEX_H_
#define MAINARCH_TEXT_REGEX_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/char_set.h"
#include "text/regex_syntax.h"

namespace mainarch::text {

struct RegexMatch {
  size_t begin;
  size_t end;
};

class Regex {
 public:
  static StatusOr<std::shared_ptr<const Regex>> Create(absl::string_view pattern);

  // Appends all matches in `text`, valid UTF-8, from left to right. One that is empty counts unless
  // it stands where the one before ends. Fails when the pattern takes over kStepsPerByte steps a
  // byte (and kSteps), which bounds the time; patterns in use take fewer than ten.
  Status FindAll(absl::string_view text, std::vector<RegexMatch>* matches) const;

  static constexpr uint64_t kSteps = 1u << 20;
  static constexpr uint64_t kStepsPerByte = 256;

 private:
  friend class RegexCompiler;
  friend class RegexRun;

  enum class Op : uint8_t {
    kSet,      // one character of set `a`
    kLoop,     // characters of set `a`, as many as `loop` says
    kFork,     // goes on here, and if that fails at `a`
    kForkIf,   // likewise, but at once at `a` unless the next character is of set `b`
    kForkFar,  // goes on at `a`, and if that fails here
    kJump,     // to `a`
    kAhead,    // the code up to kEnd would match (b: or would not); on at `a`
    kBehind,   // the character before is of set `a` (b: or is not)
    kAtomic,   // the code up to kEnd, first try only; on at `a`
    kPlace,    // RegexPlace `a`
    kEnd,      // the end of the pattern, or of what kAhead or kAtomic run
  };
  struct Loop {
    uint32_t min = 0, max = kNoLimit;
    RegexGreed greed = RegexGreed::kGreedy;
  };
  struct Instruction {
    Op op;
    uint32_t a = 0;
    uint32_t b = 0;
    Loop loop;
  };

  Regex() = default;

  std::vector<Instruction> code_;
  std::vector<CharSet> sets_;
  bool may_be_empty_ = false;
  uint32_t first_ = 0;  // the set that every match begins with, if it may not be empty
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_REGEX_H_
