// SPDX-License-Identifier: MIT
#include "text/scanner.h"

namespace mainarch::text {
namespace {

// One scan at one place.
class Scan {
 public:
  Scan(absl::string_view text, const CharClasses& classes)
      : begin_(text.data()), end_(text.data() + text.size()), classes_(classes) {}

 protected:
  static constexpr uint8_t kEnd = 128;

  size_t Since(const char* stop) const { return static_cast<size_t>(stop - begin_); }

  uint8_t ClassAt(const char* at) const {
    size_t length;
    return classes_.At(at, &length);
  }

  // Past the characters whose class has a bit of `Bits` (or has none, if not Having).
  template <uint8_t Bits, bool Having>
  const char* Run(const char* at) const {
    while (at < end_) {
      size_t length;
      if (((classes_.At(at, &length) & Bits) != 0) != Having) break;
      at += length;
    }
    return at;
  }

  // \s+(?!\S)|\s+ at white space, and before that, if `Newlines`, \s*[\r\n]+: up to the last line
  // end in the run; else the run without its last character, which goes with what follows; else the
  // run.
  template <bool Newlines>
  size_t SpaceLength() const {
    const char* at = begin_;
    const char* last = begin_;
    const char* after_newline = nullptr;
    while (at < end_) {
      size_t length;
      const uint8_t bits = classes_.At(at, &length);
      if (!(bits & kSpace)) break;
      last = at;
      at += length;
      if (bits & kNewline) after_newline = at;
    }
    if (Newlines && after_newline != nullptr) return Since(after_newline);
    return Since(at == end_ || last == begin_ ? at : last);
  }

  const char* begin_;
  const char* end_;
  const CharClasses& classes_;
};

// `Letters` are the bits that make a word: L, and for Qwen3.5 M as well. A number has up to
// `Digits`.
template <uint8_t Letters, int Digits>
class WordScan : Scan {
 public:
  using Scan::Scan;

  size_t PieceLength() const {
    if (*begin_ == '\'') {
      if (const size_t length = Contraction()) return length;
    }
    size_t length;
    const uint8_t first = classes_.At(begin_, &length);
    const char* next = begin_ + length;
    if (first & Letters) return Since(Run<Letters, true>(next));
    if (first & kNumber) return Since(Number(next));
    const uint8_t second = next < end_ ? ClassAt(next) : kEnd;
    // One character that is no number and no line end may lead a word.
    if (!(first & kNewline) && second & Letters) return Since(Run<Letters, true>(next));
    if (!(first & kSpace)) return Since(Symbols(next));
    if (*begin_ == ' ' && !(second & (kNotSymbol | kEnd))) return Since(Symbols(next));
    return SpaceLength<true>();
  }

 private:
  static constexpr uint8_t kNotSymbol = kSpace | kNumber | Letters;

  // \p{N}{1,Digits}, its first character passed already.
  const char* Number(const char* at) const {
    for (int i = 1; i < Digits && at < end_; ++i) {
      size_t length;
      if (!(classes_.At(at, &length) & kNumber)) break;
      at += length;
    }
    return at;
  }

  // [^\s\p{L}\p{N}]+[\r\n]*, its first character passed already.
  const char* Symbols(const char* at) const {
    at = Run<kNotSymbol, false>(at);
    while (at < end_ && (*at == '\r' || *at == '\n')) ++at;
    return at;
  }

  // (?i:'s|'t|'re|'ve|'m|'ll|'d) at an apostrophe; 0 when there is none. Without case, U+017F is an
  // s, and no other letter outside ASCII is one of these.
  size_t Contraction() const {
    const size_t left = static_cast<size_t>(end_ - begin_);
    if (left < 2) return 0;
    const char one = begin_[1] | 0x20;  // letters of ASCII to lower case
    if (one == 's' || one == 't' || one == 'm' || one == 'd') return 2;
    if (left < 3) return 0;
    if (begin_[1] == '\xC5' && begin_[2] == '\xBF') return 3;
    const char two = begin_[2] | 0x20;
    if (two == 'e' && (one == 'r' || one == 'v')) return 3;
    return one == 'l' && two == 'l' ? 3 : 0;
  }
};

class Gpt2Scan : Scan {
 public:
  using Scan::Scan;

  size_t PieceLength() const {
    if (*begin_ == '\'') {
      if (const size_t length = Contraction()) return length;
    }
    // One space may lead a run of letters, of numbers or of symbols.
    const char* at = begin_;
    if (*at == ' ' && at + 1 < end_ && !(ClassAt(at + 1) & kSpace)) ++at;
    const uint8_t bits = ClassAt(at);
    if (bits & kLetter) return Since(Run<kLetter, true>(at));
    if (bits & kNumber) return Since(Run<kNumber, true>(at));
    if (!(bits & kSpace)) return Since(Run<kSpace | kLetter | kNumber, false>(at));
    return SpaceLength<false>();
  }

 private:
  // 's|'t|'re|'ve|'m|'ll|'d at an apostrophe; 0 when there is none.
  size_t Contraction() const {
    const size_t left = static_cast<size_t>(end_ - begin_);
    if (left < 2) return 0;
    const char one = begin_[1];
    if (one == 's' || one == 't' || one == 'm' || one == 'd') return 2;
    if (left < 3) return 0;
    const char two = begin_[2];
    return (two == 'e' && (one == 'r' || one == 'v')) || (one == 'l' && two == 'l') ? 3 : 0;
  }
};

template <class T>
size_t Next(absl::string_view text, const CharClasses& classes) {
  return T(text, classes).PieceLength();
}

}  // namespace

Scanner FindScanner(absl::string_view pattern) {
  if (pattern == kQwen3Pattern) return &Next<WordScan<kLetter, 1>>;
  if (pattern == kLlama3Pattern) return &Next<WordScan<kLetter, 3>>;
  if (pattern == kQwen35Pattern) return &Next<WordScan<kLetter | kMark, 1>>;
  if (pattern == kGpt2Pattern) return &Next<Gpt2Scan>;
  return nullptr;
}

}  // namespace mainarch::text
