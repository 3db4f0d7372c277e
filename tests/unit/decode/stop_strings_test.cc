// SPDX-License-Identifier: MIT
//
// Stop strings, against the plain definition: the whole text searched anew.
#include "decode/stop_strings.h"

#include <algorithm>
#include <random>

#include "support/test.h"
#include "text/stream_decoder.h"
#include "unit/text/small_tokenizer.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

std::shared_ptr<const text::Tokenizer> Small() {
  static const auto tokenizer = text::SmallTokenizer().Load();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

SequenceOptions With(std::vector<std::string> stops, bool special = false) {
  SequenceOptions o;
  o.stop_strings = std::move(stops);
  o.stop_tokenizer = Small();
  o.stop_special = special;
  return o;
}

std::vector<uint32_t> Bytes(absl::string_view text) {
  std::vector<uint32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

// What is shown of these tokens, one after another; `*stopped`: at a stop string.
std::string Shown(const SequenceOptions& o, const std::vector<uint32_t>& tokens, bool* stopped) {
  StopStrings stops(o);
  stops.Begin();
  text::StreamDecoder decoder(o.stop_tokenizer, !o.stop_special);
  std::string text;
  *stopped = false;
  for (size_t i = 0; i < tokens.size() && !*stopped; ++i) {
    // What is foreseen and taken back leaves no trace.
    if (stops.can_go_back()) {
      stops.Mark();
      for (size_t k = 0; k < 3; ++k) stops.Push(tokens[(7 * i + k) % tokens.size()], true);
      stops.GoBack();
    }
    *stopped = stops.Push(tokens[i], true);
    text += decoder.Push(tokens[i]);
  }
  text += decoder.Finish();
  stops.Finish();
  return text.substr(0, stops.text_bytes());
}

struct Stop {
  size_t begin = std::string::npos, end = std::string::npos;
};
// The stop that ends first, of those the longest.
Stop Plain(const std::string& text, const std::vector<std::string>& stops) {
  Stop best;
  for (const std::string& stop : stops) {
    const size_t begin = text.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best.end || (end == best.end && begin < best.begin)) best = {begin, end};
  }
  return best;
}

}  // namespace

TEST(the_text_ends_at_the_first_stop_string) {
  const struct {
    const char* text;
    std::vector<std::string> stops;
    const char* shown;
  } cases[] = {
      {"one two three", {"two"}, "one "},
      {"one two three", {"three", "o t"}, "one tw"},
      {"aaab", {"aab"}, "a"},
      {"abcabd", {"abd", "bca"}, "a"},
      {"stop", {"stop"}, ""},
      {"an end with sto", {"stop"}, "an end with sto"},
      {"xabcd", {"bcd", "abcd"}, "x"},
      {"xabcd", {"bc", "abcd"}, "xa"},
  };
  for (const auto& c : cases) {
    bool stopped = false;
    CHECK_EQ(Shown(With(c.stops), Bytes(c.text), &stopped), c.shown);
    CHECK_EQ(stopped, std::string(c.text) != c.shown);
  }
}

TEST(only_what_may_be_a_stop_is_held_back) {
  StopStrings stops(With({"END", "NO"}));
  stops.Begin();
  const auto push = [&](absl::string_view text) {
    for (const uint32_t token : Bytes(text)) stops.Push(token, true);
    return stops.text_bytes();
  };
  CHECK_EQ(push("abcE"), 3u);
  CHECK_EQ(push("x"), 5u);
  CHECK_EQ(push("EN"), 5u);
  CHECK_EQ(push("D"), 5u);
  CHECK_EQ(push("more"), 5u);
}

TEST(characters_that_tokens_share_and_bytes_that_are_none) {
  bool stopped = false;
  const std::string thai = "\xE0\xB8\x81";  // its first two bytes are one token here
  const std::vector<uint32_t> tokens = text::Ids(*Small(), "a" + thai + "b");
  CHECK_EQ(Shown(With({thai}), tokens, &stopped), "a");
  CHECK(stopped);
  // Half of it is held back, and then it is U+FFFD.
  StopStrings stops(With({"b"}));
  stops.Begin();
  stops.Push(0xE0, true);
  CHECK_EQ(stops.text_bytes(), 0u);
  stops.Finish();
  CHECK_EQ(stops.text_bytes(), 3u);
  CHECK_EQ(Shown(With({"\xEF\xBF\xBD!"}), {'x', 0xFF, '!'}, &stopped), "x");
  CHECK(stopped);
}

TEST(special_tokens_are_text_when_asked_for) {
  const uint32_t end = text::SmallTokenizer().first_added();  // <|endoftext|>
  bool stopped = false;
  CHECK_EQ(Shown(With({"ab"}), {'a', end, 'b'}, &stopped), "");
  CHECK(stopped);
  CHECK_EQ(Shown(With({"ab"}, true), {'a', end, 'b'}, &stopped), "a<|endoftext|>b");
  CHECK(!stopped);
  CHECK_EQ(Shown(With({"<|end"}, true), {'a', end, 'b'}, &stopped), "a");
  CHECK(stopped);
}

TEST(a_stop_that_may_not_stop_yet_is_text) {
  StopStrings stops(With({"aa"}));
  stops.Begin();
  CHECK(!stops.Push('a', false));
  CHECK(!stops.Push('a', false));
  CHECK_EQ(stops.text_bytes(), 1u);
  CHECK(stops.Push('a', true));  // the second and the third
  CHECK_EQ(stops.text_bytes(), 1u);
}

TEST(any_text_any_stops_any_tokens) {
  std::mt19937 random(5);
  const auto piece = [&](size_t most) {
    std::string out;
    for (size_t n = 1 + random() % most; n > 0; --n) {
      out += random() % 9 == 0 ? "\xC3\xA9" : std::string(1, "abc"[random() % 3]);
    }
    return out;
  };
  int stops_seen = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> texts;
    for (size_t n = 1 + random() % 4; n > 0; --n) texts.push_back(piece(5));
    const std::string text = piece(40);
    const Stop plain = Plain(text, texts);
    // The tokens of the merges, or a token a byte: the same.
    for (const auto& tokens : {text::Ids(*Small(), text), Bytes(text)}) {
      bool stopped = false;
      const std::string shown = Shown(With(texts), tokens, &stopped);
      CHECK_EQ(stopped, plain.end != std::string::npos);
      CHECK_EQ(shown, text.substr(0, plain.begin));
      stops_seen += stopped;
    }
  }
  CHECK_GT(stops_seen, 3000);
}

TEST(what_no_stop_string_may_be) {
  const auto refused = [](SequenceOptions o, absl::string_view says) {
    const Status status = CheckOptions(o, 300);
    return CodeOf(status) == Code::kInvalidArgument &&
           status.message().find(says) != absl::string_view::npos;
  };
  CHECK(refused(With({"a", ""}), "stop_strings[1] is empty"));
  CHECK(refused(With({"\xC3"}), "stop_strings[0] is not UTF-8"));
  CHECK(refused(With({std::string(70'000, 'a')}), "70000 bytes are more than 65536"));
  CHECK(refused(With(std::vector<std::string>(1025, "a")), "1025 are more than 1024"));
  SequenceOptions o = With({"a"});
  o.stop_tokenizer = nullptr;
  CHECK(refused(o, "stop_tokenizer"));
  CHECK_OK(CheckOptions(With({"a", "b"}), 300));
}
