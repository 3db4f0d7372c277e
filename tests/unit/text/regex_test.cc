// SPDX-License-Identifier: MIT
// The engine of split patterns: what it takes, what it refuses, and that it comes to an end.
#include "text/regex.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "support/test.h"
#include "text/char_class.h"
#include "text/utf8.h"

using namespace mainarch;
using namespace mainarch::text;

namespace {

// "begin-end " of each match, or what is wrong.
std::string Find(absl::string_view pattern, absl::string_view text) {
  const auto regex = Regex::Create(pattern);
  if (!regex.ok()) return std::string(regex.status().message());
  std::vector<RegexMatch> matches;
  const Status status = (*regex)->FindAll(text, &matches);
  if (!status.ok()) return std::string(status.message());
  std::string out;
  for (const RegexMatch& match : matches) absl::StrAppend(&out, match.begin, "-", match.end, " ");
  return out;
}

}  // namespace

TEST(matches_are_leftmost_and_by_the_order_of_alternatives) {
  CHECK_EQ(Find("a|ab", "xabab"), "1-2 3-4 ");
  CHECK_EQ(Find("ab|a", "xabaa"), "1-3 3-4 4-5 ");
  CHECK_EQ(Find("(?:a|ab)(?:c|bcd)", "abcd"), "0-4 ");
  CHECK_EQ(Find("x", ""), "");
  CHECK_EQ(Find("\\p{L}+", "12ab12"), "2-4 ");
}

TEST(repeats_are_greedy_lazy_or_possessive_as_in_oniguruma) {
  CHECK_EQ(Find("a{2,3}", "aaaaa"), "0-3 3-5 ");
  CHECK_EQ(Find("a{2,3}?", "aaaaa"), "0-2 2-4 ");
  CHECK_EQ(Find("a{,2}b", "aaab"), "1-4 ");
  CHECK_EQ(Find("a++a", "aaa"), "");
  CHECK_EQ(Find("a?+a", "a"), "");
  CHECK_EQ(Find("(?>a+)a", "aaa"), "");
  CHECK_EQ(Find("a{1,2}+b", "aaaaab"), "0-6 ");  // {1,2} again and again: not possessive
  CHECK_EQ(Find("a{2}?b", "aaab"), "1-4 ");      // two or none: the two are tried first
  CHECK_EQ(Find("a{2}?b", "ab"), "1-2 ");
  CHECK_EQ(Find("(?:ab){1,2}c", "ababababc"), "4-9 ");
  CHECK_EQ(Find("(?:ab)*?c", "ababc"), "0-5 ");
}

TEST(empty_matches_count_unless_one_ended_there) {
  CHECK_EQ(Find("a*", "aab"), "0-2 3-3 ");
  CHECK_EQ(Find("(?=b)", "abab"), "1-1 3-3 ");
}

TEST(places_are_those_of_the_ruby_syntax) {
  CHECK_EQ(Find("^a", "a\na"), "0-1 2-3 ");
  CHECK_EQ(Find("a$", "a\na"), "0-1 2-3 ");
  CHECK_EQ(Find("\\Aa", "aa"), "0-1 ");
  CHECK_EQ(Find("a\\z", "aa"), "1-2 ");
  CHECK_EQ(Find("a\\Z", "a\n"), "0-1 ");
  CHECK_EQ(Find("\\ba", "a ba a"), "0-1 5-6 ");
  CHECK_EQ(Find("\\Ba", "a ba a"), "3-4 ");
  CHECK_EQ(Find("a.", "a\nab"), "2-4 ");
  CHECK_EQ(Find("(?<=b)a", "abaca"), "2-3 ");
  CHECK_EQ(Find("(?<!b)a", "abaca"), "0-1 4-5 ");
  CHECK_EQ(Find("a(?!b)", "abac"), "2-3 ");
}

TEST(classes_have_ranges_properties_unions_and_intersections) {
  CHECK_EQ(Find("[a-c&&[^b]]+", "abc"), "0-1 2-3 ");
  CHECK_EQ(Find("[[a-b]x]+", "abxc"), "0-3 ");
  CHECK_EQ(Find("[[:alpha:]\\d_-]+", "a1_-."), "0-4 ");
  CHECK_EQ(Find("[^\\p{L}]", "a1"), "1-2 ");
  CHECK_EQ(Find("\\p{^L}", "a1"), "1-2 ");
  CHECK_EQ(Find("\\P{L}", "a1"), "1-2 ");
  CHECK_EQ(Find("\\p{Han}", "\xE4\xB8\xAD"), "0-3 ");
  CHECK_EQ(Find("\\x{4E2D}|\\u4e2d", "\xE4\xB8\xAD"), "0-3 ");
}

TEST(case_is_ignored_as_unicode_folds_it) {
  CHECK_EQ(Find("(?i:s)", "sS\xC5\xBF"), "0-1 1-2 2-4 ");
  CHECK_EQ(Find("(?i)k|x", "K\xE2\x84\xAAX"), "0-1 1-4 4-5 ");
  CHECK_EQ(Find("(?i:[k-l])", "K\xE2\x84\xAAL"), "0-1 1-4 4-5 ");
  CHECK_EQ(Find("(?i:a)b", "AB Ab"), "3-5 ");
  CHECK_EQ(Find("(?i:\\p{L}\\d)", "A1"), "0-2 ");
}

TEST(space_is_the_white_space_property_in_every_spelling) {
  const CharClasses classes;
  for (const char* pattern : {R"(\s)", R"([\s])", R"([^\S])", R"((?!\S)[\s\p{L}\p{M}\p{C}])"}) {
    const auto regex = Regex::Create(pattern);
    CHECK_OK(regex);
    for (uint32_t point = 0; point < 0x3100; ++point) {
      std::string text = "==";
      AppendUtf8(point, &text);
      std::vector<RegexMatch> matches;
      CHECK_OK((*regex)->FindAll(text, &matches));
      CHECK_EQ(matches.size() == 1, (classes.Of(point) & kSpace) != 0);
    }
  }
}

TEST(what_is_not_run_is_refused_by_name_and_place) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"a\\G", "\\G at offset 1"},
      {"(a)\\1", "\\1 at offset 3"},
      {"(?~a)", "a group of an unknown kind"},
      {"(?<=ab)c", "a look behind at more than one character"},
      {"(?i:st)", "\"st\" that ignores case"},
      {"(?i:\xC3\xA9)", "outside ASCII that ignores case"},
      {"(?i:\\p{Lu})", "a class that ignores case"},
      {"\\p{Klingon}", "\\p{Klingon}"},
      {"[[:klingon:]]", "[:klingon:]"},
      {"\\pL", "\\p without braces"},
      {"a{x}", "a {"},
      {"a{2,1}", "a count that runs backwards"},
      {"a{1001}", "a {"},
      {"(a*)*", "endless repeats of nothing"},
      {"(?=a)+", "a quantifier after a place"},
      {"*a", "a *"},
      {"(a", "an open group"},
      {"a)", "an unopened )"},
      {"[a", "an open class"},
      {"[]", "an empty class"},
      {"[z-a]", "a range that runs backwards"},
      {"[a-\\d]", "a range that ends with a set"},
      {"\\xFF", "a character number"},
      {"a\\", "\\ at offset 1"},
      {"(?:(?:a{1000}b){1000}c){1000}", "steps when written out"},
  };
  for (const auto& [pattern, says] : kRefused) {
    const auto regex = Regex::Create(pattern);
    CHECK(!regex.ok());
    CHECK_EQ(static_cast<int>(CodeOf(regex.status())), static_cast<int>(Code::kUnsupported));
    if (!absl::StrContains(std::string(regex.status().message()), says)) {
      CHECK_EQ(regex.status().message(), says);
    }
  }
  CHECK(!Regex::Create(std::string(100, '(')).ok());
  CHECK(!Regex::Create(std::string(100, '[')).ok());
  CHECK(!Regex::Create(std::string(10000, 'a')).ok());
}

TEST(long_texts_take_no_stack_and_linear_time) {
  std::string text(2000001, 'a');
  text.back() = 'c';
  CHECK_EQ(Find("(?:(a)|(b))+c", text), "0-2000001 ");
  CHECK_EQ(Find("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", std::string(2000000, ' ') + "x"),
           "0-1999999 1999999-2000000 ");
}

TEST(a_pattern_that_backtracks_for_ever_ends_with_a_status) {
  CHECK(absl::StrContains(Find("(?:a|a|aa)+(?=b)", std::string(5000, 'a')), "steps a byte"));
  CHECK(absl::StrContains(Find("(?:a+)+b", std::string(100000, 'a')), "steps a byte"));
  CHECK(absl::StrContains(Find("(?:(?!(?:a+)+b)a)+b", std::string(5000, 'a')), "steps a byte"));
}
