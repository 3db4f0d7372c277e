// SPDX-License-Identifier: MIT
// The hand-written scanners are PCRE2 on the same patterns, for any text.
#include <random>

#include "absl/strings/match.h"
#include "support/test.h"
#include "text/qwen_scanner.h"
#include "text/regex_split.h"
#include "text/utf8.h"
#include "unit/text/small_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

using namespace mainarch;
using namespace mainarch::text;

namespace {

// Whether PCRE2 finds `pattern` in one code point.
class OnePoint {
 public:
  explicit OnePoint(const char* pattern) {
    int error;
    PCRE2_SIZE offset;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);
    data_ = pcre2_match_data_create(4, nullptr);
  }
  ~OnePoint() {
    pcre2_match_data_free(data_);
    pcre2_code_free(code_);
  }
  bool In(uint32_t point) const {
    std::string text;
    AppendUtf8(point, &text);
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                       PCRE2_NO_UTF_CHECK, data_, nullptr) > 0;
  }

 private:
  pcre2_code* code_;
  pcre2_match_data* data_;
};

constexpr bool IsScalar(uint32_t point) {
  return point < 0xD800 || (point > 0xDFFF && point < 0x110000);
}

// Characters that some alternative of the patterns cares for, and any others.
std::string RandomText(std::mt19937& random, const CharClasses& classes, const OnePoint& known) {
  static constexpr const char* kPool[] = {"'",
                                          "s",
                                          "S",
                                          "t",
                                          "re",
                                          "VE",
                                          "m",
                                          "Ll",
                                          "d",
                                          "\xC5\xBF",
                                          "\xE2\x84\xAA",
                                          "a",
                                          "Z",
                                          "\xC3\xA9",
                                          "\xD0\x96",
                                          "\xE4\xB8\xAD",
                                          "\xF0\x9D\x92\x9C",
                                          "0",
                                          "9",
                                          "\xC2\xBD",
                                          "\xD9\xA3",
                                          "\xE2\x85\xA7",
                                          " ",
                                          " ",
                                          "  ",
                                          "\t",
                                          "\n",
                                          "\r",
                                          "\r\n",
                                          "\v",
                                          "\f",
                                          "\xC2\x85",
                                          "\xC2\xA0",
                                          "\xE2\x80\xA8",
                                          "\xE2\x80\xA9",
                                          "\xE3\x80\x80",
                                          "\xE1\xA0\x8E",
                                          "\xE2\x80\x8B",
                                          "\xE2\x80\x8D",
                                          "\xEF\xBB\xBF",
                                          "\x1C",
                                          "\x01",
                                          "\x7F",
                                          ".",
                                          "!",
                                          "_",
                                          "<|",
                                          "\xE2\x82\xAC",
                                          "\xF0\x9F\x98\x80",
                                          "\xCC\x81",
                                          "\xE0\xB9\x88",
                                          "\xE0\xB8\xB2",
                                          "\xE0\xA5\x8D",
                                          "\xE0\xA4\x95",
                                          "\xE2\x83\xA3",
                                          "\xEF\xB8\x8F",
                                          "\xF3\xA0\x84\x80"};
  std::string text;
  for (size_t n = 1 + random() % 14; n > 0; --n) {
    if (random() % 8 != 0) {
      text += kPool[random() % std::size(kPool)];
      continue;
    }
    const uint32_t point = random() % (random() % 2 ? 0x3100 : 0x110000);
    // Assigned by PCRE2's Unicode, or unassigned by ours as well.
    if (IsScalar(point) && (known.In(point) || classes.Of(point) == 0)) AppendUtf8(point, &text);
  }
  return text;
}

}  // namespace

TEST(classes_agree_with_pcre2_wherever_it_knows_the_code_point) {
  const CharClasses classes;
  const OnePoint assigned("[^\\p{Cn}]"), letter("\\p{L}"), mark("\\p{M}"), number("\\p{N}");
  size_t newer = 0;
  for (uint32_t point = 0; point < 0x110000; ++point) {
    if (!IsScalar(point)) continue;
    const uint8_t bits = classes.Of(point);
    if (!assigned.In(point)) {
      newer += (bits & (kLetter | kMark | kNumber)) != 0;
      continue;
    }
    CHECK_EQ((bits & kLetter) != 0, letter.In(point));
    CHECK_EQ((bits & kMark) != 0, mark.In(point));
    CHECK_EQ((bits & kNumber) != 0, number.In(point));
  }
  CHECK_LT(newer, 10000u);  // Unicode 16 against 14: 9485
}

TEST(space_is_the_white_space_property) {
  const CharClasses classes;
  std::string found;
  for (uint32_t point = 0; point < 0x110000; ++point) {
    if (classes.Of(point) & kSpace) absl::StrAppend(&found, absl::Hex(point), " ");
  }
  CHECK_EQ(found,
           "9 a b c d 20 85 a0 1680 2000 2001 2002 2003 2004 2005 2006 2007 2008 2009 200a 2028 "
           "2029 202f 205f 3000 ");
}

TEST(scanners_are_pcre2_on_any_text) {
  const CharClasses classes;
  const OnePoint known("[^\\p{Cn}]");
  for (absl::string_view pattern : {kQwen3Pattern, kQwen35Pattern}) {
    const auto next = pattern == kQwen3Pattern ? &NextQwen3Piece : &NextQwen35Piece;
    const auto regex = RegexSplit::Create(pattern);
    CHECK_OK(regex);
    std::mt19937 random(20260101);
    for (int round = 0; round < 100000; ++round) {
      const std::string text = RandomText(random, classes, known);
      std::vector<size_t> want, got;
      CHECK_OK((*regex)->Cut(text, &want));
      for (size_t at = 0; at < text.size();) {
        at += next(absl::string_view(text).substr(at), classes);
        got.push_back(at);
      }
      if (got != want) CHECK_EQ(text, "cut as by PCRE2");
    }
  }
}

TEST(marks_stay_with_their_letters_in_the_newer_pattern_only) {
  // Thai KO KAI, SARA I (a mark), SARA AA (a letter).
  const std::string text = "\xE0\xB8\x81\xE0\xB8\xB4\xE0\xB8\xB2";
  const CharClasses classes;
  CHECK_EQ(NextQwen3Piece(text, classes), 3u);
  CHECK_EQ(NextQwen35Piece(text, classes), 9u);
}

TEST(other_patterns_run_through_pcre2) {
  SmallTokenizer small;
  small.pattern = R"(\p{N}{1,3}|(?i:'s|'t)| ?\p{L}+|\s+(?!\S)|[^\s\p{L}\p{N}]+)";
  const auto t = small.Load();
  CHECK_OK(t);
  CHECK_EQ(Pieces(**t, "1212 hello"), "12|1|2| |hello");
  const auto cut = [](const char* pattern, absl::string_view text) {
    std::vector<size_t> ends;
    const auto regex = RegexSplit::Create(pattern);
    if (!regex.ok() || !(*regex)->Cut(text, &ends).ok()) return std::string("an error");
    std::string out;
    for (size_t end : ends) absl::StrAppend(&out, end, " ");
    return out;
  };
  CHECK_EQ(cut(small.pattern.c_str(), "1234 ab'S  cd!"), "3 4 7 9 10 13 14 ");
  CHECK_EQ(cut("\\p{L}+", "12ab12"), "2 4 6 ");  // what lies between matches is a piece too
  CHECK_EQ(cut("x", ""), "");
}

TEST(translated_space_is_the_white_space_property) {
  // PCRE2's own \s takes U+180E as well.
  const CharClasses classes;
  for (const char* pattern : {R"(\s)", R"([\s])", R"([^\S])", R"((?!\S)[\s\p{L}\p{M}\p{C}])"}) {
    const auto regex = RegexSplit::Create(pattern);
    CHECK_OK(regex);
    for (uint32_t point = 0; point < 0x3100; ++point) {
      std::string text = "==";
      AppendUtf8(point, &text);
      std::vector<size_t> ends;
      CHECK_OK((*regex)->Cut(text, &ends));
      CHECK_EQ(ends.size() == 2, (classes.Of(point) & kSpace) != 0);
    }
  }
}

TEST(constructs_that_engines_disagree_on_are_refused_by_name) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"a.", "a . at offset 1"},
      {"^a", "a ^"},
      {"\\bx", "\\b at offset 0"},
      {"\\wx", "\\w at offset 0"},
      {"[[:alpha:]]", "a class in a class"},
      {"[a&&b]", "&& in a class"},
      {"(?<n>a)", "a group of an unknown kind"},
      {"(?<=a)b", "a group of an unknown kind"},
      {"(?i:st)", "(?i:..) around \"st\""},
      {"(?i:\xC3\xA9)", "more than letters"},
      {"(?i:[a-z])", "more than letters"},
      {"\\p{Greek}", "\\p{Greek}"},
      {"\\p{^L}", "\\p{^L}"},
      {"\\pL", "\\p without braces"},
      {"a{1,2}+", "a quantifier after a quantifier"},
      {"a{,2}", "a {"},
      {"a++b**", "a quantifier after a quantifier"},
      {"(a", "an open group"},
      {"a)", "an unopened )"},
      {"[a", "an open class"},
      {"a\\", "\\"},
      {"a*", "can match the empty string"},
      {"\\p{L}*(?!x)", "can match the empty string"},
      {"[z-a]", "does not compile"},
  };
  for (const auto& [pattern, says] : kRefused) {
    const auto regex = RegexSplit::Create(pattern);
    CHECK(!regex.ok());
    CHECK_EQ(static_cast<int>(CodeOf(regex.status())), static_cast<int>(Code::kUnsupported));
    if (!absl::StrContains(std::string(regex.status().message()), says)) {
      CHECK_EQ(regex.status().message(), says);
    }
  }
}

TEST(a_match_that_needs_more_stack_than_the_jit_has_is_found) {
  const auto regex = RegexSplit::Create(R"((?:(a)|(b))+c)");
  CHECK_OK(regex);
  std::vector<size_t> ends;
  std::string text(20001, 'a');
  text.back() = 'c';
  CHECK_OK((*regex)->Cut(text, &ends));
  CHECK(ends == (std::vector<size_t>{20001}));
}

TEST(a_pattern_that_backtracks_for_ever_ends_with_a_status) {
  SmallTokenizer small;
  small.pattern = "(?:a|a|aa)+(?=b)";
  const auto t = small.Load();
  CHECK_OK(t);
  std::vector<uint32_t> ids = {1};
  const Status status = (*t)->Encode(std::string(5000, 'a'), {}, &ids);
  CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kUnsupported));
  CHECK_EQ(ids.size(), 1u);
}
