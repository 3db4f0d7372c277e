// SPDX-License-Identifier: MIT
#include "text/regex.h"

#include "text/unicode_property.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

// The start of the character that ends at `at`.
size_t Before(absl::string_view text, size_t at) {
  do --at;
  while ((text[at] & 0xC0) == 0x80);
  return at;
}

}  // namespace

// One search over one text.
class RegexRun {
 public:
  RegexRun(const Regex& regex, absl::string_view text)
      : regex_(regex), text_(text), steps_(Regex::kSteps + Regex::kStepsPerByte * text.size()) {}

  bool exhausted() const { return steps_ == 0; }

  // Whether the pattern matches at `at`, and where it ends.
  bool Match(size_t at, size_t* end) { return Walk(0, at, end); }

  bool OfSet(uint32_t set, size_t at, size_t* length) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) {
      *length = 1;
      return regex_.sets_[set].HasAscii(byte);
    }
    return regex_.sets_[set].Has(DecodeValid(text_.data() + at, length));
  }

 private:
  using Op = Regex::Op;

  // What to try when the present way fails.
  struct Choice {
    uint32_t at;    // code to go on with
    uint32_t set;   // kNoSet: a fork. Else a loop over this set:
    size_t place;   // where in the text
    size_t least;   // greedy: may give back down to here
    uint32_t more;  // lazy: may take so many more; 0 for a greedy one
  };
  static constexpr uint32_t kNoSet = UINT32_MAX;

  bool Spend(uint64_t steps) {
    steps_ = steps_ > steps ? steps_ - steps : 0;
    return steps_ > 0;
  }

  // Runs code from `pc` up to a kEnd, with a stack of choices of its own above `choices_`.
  bool Walk(uint32_t pc, size_t at, size_t* end) {
    const size_t floor = choices_.size();
    while (true) {
      if (!Spend(1)) {
        choices_.resize(floor);
        return false;
      }
      const Regex::Instruction& step = regex_.code_[pc];
      if (step.op == Op::kEnd) {
        choices_.resize(floor);
        *end = at;
        return true;
      }
      if (Step(step, &pc, &at)) continue;
      if (!Retry(floor, &pc, &at)) return false;
    }
  }

  // One instruction; false when it fails.
  bool Step(const Regex::Instruction& step, uint32_t* pc, size_t* at) {
    size_t length = 0;
    switch (step.op) {
      case Op::kSet:
        if (*at == text_.size() || !OfSet(step.a, *at, &length)) return false;
        *at += length;
        ++*pc;
        return true;
      case Op::kLoop:
        return RunLoop(step, pc, at);
      case Op::kForkIf:
        if (*at == text_.size() || !OfSet(step.b, *at, &length)) {
          *pc = step.a;
          return true;
        }
        [[fallthrough]];
      case Op::kFork:
        choices_.push_back({step.a, kNoSet, *at, 0, 0});
        ++*pc;
        return true;
      case Op::kForkFar:
        choices_.push_back({*pc + 1, kNoSet, *at, 0, 0});
        *pc = step.a;
        return true;
      case Op::kJump:
        *pc = step.a;
        return true;
      case Op::kAhead: {
        size_t ignored;
        if (Walk(*pc + 1, *at, &ignored) == (step.b != 0) || exhausted()) return false;
        *pc = step.a;
        return true;
      }
      case Op::kAtomic:
        if (!Walk(*pc + 1, *at, at)) return false;
        *pc = step.a;
        return true;
      case Op::kBehind: {
        const bool found = *at > 0 && OfSet(step.a, Before(text_, *at), &length);
        if (found == (step.b != 0)) return false;
        ++*pc;
        return true;
      }
      case Op::kPlace:
        if (!AtPlace(static_cast<RegexPlace>(step.a), *at)) return false;
        ++*pc;
        return true;
      case Op::kEnd:
        break;
    }
    return false;
  }

  bool RunLoop(const Regex::Instruction& step, uint32_t* pc, size_t* at) {
    const bool lazy = step.loop.greed == RegexGreed::kLazy;
    const uint32_t most = lazy ? step.loop.min : step.loop.max;
    const size_t begin = *at;
    size_t least = begin;  // the place where enough have been taken
    uint32_t taken = 0;
    while (taken < most && *at < text_.size()) {
      size_t length;
      if (!OfSet(step.a, *at, &length)) break;
      *at += length;
      ++taken;
      if (taken == step.loop.min) least = *at;
    }
    Spend(taken / 4);
    if (taken < step.loop.min) return false;
    ++*pc;
    if (lazy && step.loop.max > taken) {
      choices_.push_back({*pc, step.a, *at, 0, step.loop.max - taken});
    } else if (step.loop.greed == RegexGreed::kGreedy && *at > least) {
      choices_.push_back({*pc, step.a, *at, least, 0});
    }
    return true;
  }

  // Takes the last choice above `floor`; false when there is none.
  bool Retry(size_t floor, uint32_t* pc, size_t* at) {
    while (choices_.size() > floor) {
      Choice& choice = choices_.back();
      *pc = choice.at;
      if (choice.set == kNoSet) {
        *at = choice.place;
        choices_.pop_back();
        return true;
      }
      if (choice.more > 0) {
        size_t length;
        if (choice.place == text_.size() || !OfSet(choice.set, choice.place, &length)) {
          choices_.pop_back();
          continue;
        }
        choice.place += length;
        *at = choice.place;
        if (choice.more != kNoLimit) --choice.more;
        if (choice.more == 0) choices_.pop_back();
        return true;
      }
      choice.place = Before(text_, choice.place);
      *at = choice.place;
      if (choice.place == choice.least) choices_.pop_back();
      return true;
    }
    return false;
  }

  bool IsWord(size_t at) const {
    static const CharSet& words = *new CharSet(WordSet());
    size_t length;
    return words.Has(DecodeValid(text_.data() + at, &length));
  }

  bool AtPlace(RegexPlace place, size_t at) const {
    const size_t size = text_.size();
    switch (place) {
      case RegexPlace::kLineStart:
        return at == 0 || (text_[at - 1] == '\n' && at < size);
      case RegexPlace::kLineEnd:
        return at == size || text_[at] == '\n';
      case RegexPlace::kTextStart:
        return at == 0;
      case RegexPlace::kTextEnd:
        return at == size;
      case RegexPlace::kTextEndOrEol:
        return at == size || (at + 1 == size && text_[at] == '\n');
      case RegexPlace::kWordEdge:
      case RegexPlace::kNoWordEdge: {
        const bool before = at > 0 && IsWord(Before(text_, at));
        const bool after = at < size && IsWord(at);
        return (before != after) == (place == RegexPlace::kWordEdge);
      }
    }
    return false;
  }

  const Regex& regex_;
  absl::string_view text_;
  uint64_t steps_;
  std::vector<Choice> choices_;
};

Status Regex::FindAll(absl::string_view text, std::vector<RegexMatch>* matches) const {
  RegexRun run(*this, text);
  size_t last_end = SIZE_MAX;  // of the match before
  size_t at = 0;               // where to look from
  while (at <= text.size()) {
    size_t length = 1, end = 0;
    bool found = false;
    for (; at <= text.size(); at += length) {
      if (at == text.size()) {
        length = 1;
        if (!may_be_empty_) break;
      } else if (!may_be_empty_) {
        if (!run.OfSet(first_, at, &length)) continue;
      } else {
        DecodeValid(text.data() + at, &length);
      }
      found = run.Match(at, &end);
      if (run.exhausted()) {
        return Error(Code::kUnsupported, "pattern takes over ", kStepsPerByte,
                     " steps a byte on this text, at byte ", at, " of ", text.size());
      }
      if (found) break;
    }
    if (!found) break;
    if (end == at && end == last_end) {
      at += length;
      continue;
    }
    matches->push_back({at, end});
    last_end = end;
    at = end;
  }
  return OkStatus();
}

}  // namespace mainarch::text
