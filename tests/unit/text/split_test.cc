// SPDX-License-Identifier: MIT
// The hand-written scanners are the engine on the same patterns, for any text.
#include <random>

#include "support/test.h"
#include "text/regex.h"
#include "text/scanner.h"
#include "text/utf8.h"
#include "unit/text/small_tokenizer.h"

using namespace mainarch;
using namespace mainarch::text;

namespace {

// Characters that some alternative of the patterns cares for, and any others.
std::string RandomText(std::mt19937& random) {
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
                                          "0",
                                          "9",
                                          "12345",
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
                                          "\xE3\x80\x80",
                                          "\xE1\xA0\x8E",
                                          "\xE2\x80\x8B",
                                          "\xE2\x80\x8D",
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
                                          "\xEF\xB8\x8F"};
  std::string text;
  for (size_t n = 1 + random() % 14; n > 0; --n) {
    if (random() % 8 != 0) {
      text += kPool[random() % std::size(kPool)];
      continue;
    }
    const uint32_t point = random() % (random() % 2 ? 0x3100 : 0x110000);
    if (point < 0xD800 || point > 0xDFFF) AppendUtf8(point, &text);
  }
  return text;
}

std::vector<size_t> Ends(const Regex& regex, const std::string& text) {
  std::vector<RegexMatch> matches;
  if (!regex.FindAll(text, &matches).ok()) return {SIZE_MAX};
  std::vector<size_t> ends;
  for (const RegexMatch& match : matches) ends.push_back(match.end);
  return ends;
}

}  // namespace

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

TEST(scanners_are_the_engine_on_any_text) {
  const CharClasses classes;
  for (absl::string_view pattern : {kQwen3Pattern, kQwen35Pattern, kLlama3Pattern, kGpt2Pattern}) {
    const Scanner next = FindScanner(pattern);
    CHECK(next != nullptr);
    const auto regex = Regex::Create(pattern);
    CHECK_OK(regex);
    std::mt19937 random(20260101);
    for (int round = 0; round < 100000; ++round) {
      const std::string text = RandomText(random);
      std::vector<size_t> got;
      for (size_t at = 0; at < text.size();) {
        at += next(absl::string_view(text).substr(at), classes);
        got.push_back(at);
      }
      if (got != Ends(**regex, text)) CHECK_EQ(text, "cut as by the engine");
    }
  }
}

TEST(marks_stay_with_their_letters_in_the_newer_pattern_only) {
  // Thai KO KAI, SARA I (a mark), SARA AA (a letter).
  const std::string text = "\xE0\xB8\x81\xE0\xB8\xB4\xE0\xB8\xB2";
  const CharClasses classes;
  CHECK_EQ(FindScanner(kQwen3Pattern)(text, classes), 3u);
  CHECK_EQ(FindScanner(kQwen35Pattern)(text, classes), 9u);
}

TEST(other_patterns_run_through_the_engine) {
  SmallTokenizer small;
  small.pattern = R"(\p{N}{1,3}|(?i:'s|'t)| ?\p{L}+|\s+(?!\S)|[^\s\p{L}\p{N}]+)";
  const auto t = small.Load();
  CHECK_OK(t);
  CHECK_EQ(Pieces(**t, "1212 hello"), "12|1|2| |hello");
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
