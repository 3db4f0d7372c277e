// SPDX-License-Identifier: MIT
#include "text/tokenizer.h"

#include <ctime>
#include <random>
#include <thread>

#include "support/test.h"
#include "text/stream_decoder.h"
#include "unit/text/small_tokenizer.h"

using namespace mainarch;
using namespace mainarch::text;

TEST(merges_go_by_rank_then_from_the_left) {
  for (bool pairs : {false, true}) {
    SmallTokenizer small;
    small.pairs = pairs;
    const auto t = small.Load();
    CHECK_OK(t);
    CHECK_EQ(Pieces(**t, "hello world"), "hello| world");
    CHECK_EQ(Pieces(**t, "helloworld"), "hello|w|or|ld");
    CHECK_EQ(Pieces(**t, "aaaaaaa"), "aaaaaa|a");
    CHECK_EQ(Pieces(**t, "he's"), "he|'s");
    CHECK_EQ(Pieces(**t, "12"), "1|2");  // digits are pieces by themselves
    CHECK(Ids(**t, "").empty());
  }
}

TEST(ignore_merges_takes_a_piece_that_is_a_token) {
  SmallTokenizer small;
  small.merges.pop_back();  // 1 2
  small.merges.push_back({"x", "y"});
  small.more_vocab = R"(,"xyz": 279)";  // of no merge
  auto t = small.Load();
  CHECK_OK(t);
  CHECK_EQ(Pieces(**t, "xyz"), "xy|z");
  CHECK_EQ(Pieces(**t, "xyz"), "xy|z");  // and when the tokenizer remembers it
  small.model_options += R"("ignore_merges": true,)";
  t = small.Load();
  CHECK_OK(t);
  CHECK_EQ(Pieces(**t, "xyz"), "xyz");
  CHECK_EQ(Pieces(**t, "xyzz"), "xy|z|z");
}

TEST(added_tokens_are_cut_out_before_all_else) {
  SmallTokenizer small;
  small.added = {"<|a|>", "<|a|>b", "<b>"};
  const auto t = small.Load();
  CHECK_OK(t);
  CHECK_EQ(Pieces(**t, "x<|a|>hello"), "x|<|a|>|hello");
  CHECK_EQ(Pieces(**t, "<|a|>bb"), "<|a|>b|b");
  CHECK_EQ(Pieces(**t, "<|a|<b><|a|>"), "<|||a|||<b>|<|a|>");
  // Special ones can be plain text; the others are looked for still, unless none are.
  CHECK_EQ(Pieces(**t, "<b><think>", {.parse_special = false}), "<|b|>|<think>");
  CHECK_EQ(Pieces(**t, "<b>", {.parse_added = false}), "<|b|>");
  CHECK_EQ((*t)->Decode(Ids(**t, "<b>he<think>"), true), "he<think>");
  CHECK_EQ((*t)->Decode(Ids(**t, "<b>he<think>"), false), "<b>he<think>");
}

TEST(added_tokens_strip_and_normalise_as_they_say) {
  SmallTokenizer small;
  const uint32_t id = small.first_added() + 5;
  small.more_added = absl::StrCat(
      R"(,{"id":)", id, R"(,"content":"<m>","special":true,"lstrip":true,"rstrip":true},{"id":)",
      id + 1, R"(,"content":"n\u006f\u0308","normalized":true})");
  const auto t = small.Load();
  CHECK_OK(t);
  CHECK_EQ(Ids(**t, "he \t<m> \n\xC2\xA0he"), (std::vector<uint32_t>{256, id, 256}));
  CHECK_EQ(Ids(**t, "<m> <m>"), (std::vector<uint32_t>{id, id}));
  CHECK_EQ(Ids(**t, "n\xC3\xB6"), (std::vector<uint32_t>{id + 1}));
  CHECK_EQ(Ids(**t, "no\xCC\x88"), (std::vector<uint32_t>{id + 1}));
}

TEST(text_is_normalised_to_nfc_unless_the_file_says_no) {
  SmallTokenizer small;
  auto t = small.Load();
  CHECK_OK(t);
  CHECK_EQ((*t)->Decode(Ids(**t, "e\xCC\x81"), false), "\xC3\xA9");
  small.normalizer = "null";
  t = small.Load();
  CHECK_OK(t);
  CHECK_EQ((*t)->Decode(Ids(**t, "e\xCC\x81"), false), "e\xCC\x81");
}

TEST(invalid_utf8_is_read_as_replacement_characters) {
  const auto t = SmallTokenizer().Load();
  CHECK_OK(t);
  const auto read = [&](absl::string_view text) { return (*t)->Decode(Ids(**t, text), false); };
  CHECK_EQ(read("a\xFFz"), "a\xEF\xBF\xBDz");
  CHECK_EQ(read("\xE2\x82"), "\xEF\xBF\xBD");  // cut short: one
  CHECK_EQ(read("\xE2\x82z\xF0\x9F\x98"), "\xEF\xBF\xBDz\xEF\xBF\xBD");
  CHECK_EQ(read("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate: each
  CHECK_EQ(read("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
}

// Of this thread: what others take from the machine is no time of ours.
double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

TEST(a_megabyte_of_one_letter_takes_no_quadratic_time) {
  const auto t = SmallTokenizer().Load();
  CHECK_OK(t);
  const std::string text(1 << 20, 'a');
  const double start = CpuSeconds();
  const std::vector<uint32_t> ids = Ids(**t, text);
  const double took = CpuSeconds() - start;
  CHECK_EQ((*t)->Decode(ids, false), text);
  CHECK_EQ(ids.size(), text.size() / 4);  // no pair of aa is left when aaaa aa comes
  CHECK_LT(took, 20.0);  // quadratic time would be minutes; a sanitizer build takes seconds
}

TEST(a_megabyte_of_marks_takes_no_quadratic_time) {
  const auto t = SmallTokenizer().Load();
  CHECK_OK(t);
  std::string text = "a";
  for (int i = 0; i < 250000; ++i) text += "\xCC\x81\xCC\x96";  // classes 230 and 220
  const double start = CpuSeconds();
  const std::string back = (*t)->Decode(Ids(**t, text), false);
  const double took = CpuSeconds() - start;
  CHECK_EQ(back.size(), text.size() - 1);  // a and the first acute are one, of two bytes
  CHECK_EQ(back.substr(0, 6), "\xC3\xA1\xCC\x96\xCC\x96");
  CHECK_LT(took, 20.0);
}

TEST(long_pieces_are_merged_as_short_ones) {
  // The two engines meet at 64 bytes: the same text, with and without a tail that changes nothing.
  const auto t = SmallTokenizer().Load();
  CHECK_OK(t);
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    while (text.size() < 60) text += "ahelowrd"[random() % 8];
    std::vector<uint32_t> ids = Ids(**t, text + "xxxx"), longer = Ids(**t, text + "xxxxxxxx");
    ids.insert(ids.end(), 4, 'x');
    CHECK_EQ((*t)->Decode(ids, false), (*t)->Decode(longer, false));
    CHECK(ids == longer);
  }
}

TEST(stream_decoder_never_gives_half_a_character) {
  const auto t = SmallTokenizer().Load();
  CHECK_OK(t);
  StreamDecoder stream(*t, false);
  CHECK_EQ(stream.Push(0xE2), "");
  CHECK_EQ(stream.Push(0x82), "");
  CHECK_EQ(stream.Push(0xAC), "\xE2\x82\xAC");
  CHECK_EQ(stream.Push(0xF0), "");
  CHECK_EQ(stream.Push('x'), "\xEF\xBF\xBDx");
  CHECK_EQ(stream.Push(0xC3), "");
  CHECK_EQ(stream.Push(1u << 30), "");  // no such token
  CHECK_EQ(stream.Finish(), "\xEF\xBF\xBD");
  CHECK_EQ(stream.Finish(), "");
}

TEST(stream_decoder_gives_what_decode_gives) {
  const auto t = SmallTokenizer().Load();
  CHECK_OK(t);
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint32_t> ids(random() % 12);
    for (uint32_t& id : ids) id = (random() % 3 ? 128 + random() % 128 : random() % 290);
    for (bool skip : {false, true}) {
      StreamDecoder stream(*t, skip);
      std::string joined;
      for (uint32_t id : ids) {
        const std::string piece = stream.Push(id);
        CHECK(IsValidUtf8(piece));
        joined += piece;
      }
      CHECK_EQ(joined + stream.Finish(), (*t)->Decode(ids, skip));
    }
  }
}

TEST(encode_then_decode_gives_the_text) {
  SmallTokenizer small;
  small.normalizer = "null";
  for (absl::string_view pattern : {kQwen3Pattern, kQwen35Pattern}) {
    small.pattern = std::string(pattern);
    const auto t = small.Load();
    CHECK_OK(t);
    std::mt19937 random(11);
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      for (size_t n = random() % 20; n > 0; --n) {
        uint32_t point = random() % (random() % 2 ? 0x300 : 0x110000);
        if (point >= 0xD800 && point < 0xE000) point = '<';
        AppendUtf8(point, &text);
      }
      CHECK_EQ((*t)->Decode(Ids(**t, text), false), text);
    }
  }
}

TEST(threads_share_a_tokenizer) {
  const auto t = SmallTokenizer().Load();
  CHECK_OK(t);
  const std::string text = "hello world, he's aaaaaaa 12 <think> \xE0\xB8\x81";
  const auto alone = SmallTokenizer().Load();
  CHECK_OK(alone);
  const std::vector<uint32_t> want = Ids(**alone, text);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 500; ++k) wrong += Ids(**t, text) != want;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
}

TEST(tokens_are_found_by_id_and_by_text) {
  const SmallTokenizer small;
  const auto t = small.Load(R"({"eos_token": {"content": "<|im_end|>", "special": true},
      "pad_token": "<|endoftext|>", "bos_token": null, "other": [1]})");
  CHECK_OK(t);
  const uint32_t first = small.first_added();
  CHECK_EQ((*t)->vocab_size(), first + 5);
  CHECK_EQ((*t)->TokenBytes(264), " world");
  CHECK_EQ((*t)->TokenBytes(first + 3), "<think>");
  CHECK_EQ((*t)->TokenBytes(first + 5), "");
  CHECK_EQ((*t)->TokenId("<think>").value_or(0), first + 3);
  CHECK_EQ((*t)->TokenId("\xC4\xA0world").value_or(0), 264u);
  CHECK(!(*t)->TokenId(" world"));
  CHECK(!(*t)->TokenId(""));
  CHECK_EQ((*t)->TokenOfBytes(" world").value_or(0), 264u);
  CHECK_EQ((*t)->eos_token().value_or(0), first + 2);
  CHECK_EQ((*t)->pad_token().value_or(0), first);
  CHECK(!(*t)->bos_token());
  CHECK((*t)->SpecialTokens() == (std::vector<uint32_t>{first, first + 1, first + 2}));
  CHECK((*t)->IsAdded(first + 3));
  CHECK(!(*t)->IsSpecial(first + 3));
  CHECK_EQ((*t)->Decode({{264, first + 5, UINT32_MAX, 256}}, false), " worldhe");
}

TEST(encode_appends_and_takes_text_of_any_place_in_memory) {
  const auto t = SmallTokenizer().Load();
  CHECK_OK(t);
  std::vector<uint32_t> ids = {7};
  CHECK_OK((*t)->Encode("he", {}, &ids));
  CHECK(ids == (std::vector<uint32_t>{7, 256}));
  // An exact copy on the heap: a read past its end is seen by the address sanitizer.
  const std::vector<char> exact = {'h', 'e', ' ', '\'', 'l'};
  CHECK_OK((*t)->Encode(absl::string_view(exact.data(), exact.size()), {}, &ids));
}

TEST(a_byte_without_a_token_is_left_out_before_merges_as_in_the_package) {
  std::string json = SmallTokenizer().Json();
  const std::string from = R"("Q":81)";
  json.replace(json.find(from), from.size(), R"("QQQQ":81)");
  const auto t = Tokenizer::Load(json, "", "small.json");
  CHECK_OK(t);
  CHECK_EQ(Pieces(**t, "heQll"), "hell");
}

TEST(added_tokens_of_the_config_alone_are_taken_and_its_options_count) {
  const std::string json = SmallTokenizer().Json();
  const auto t = Tokenizer::Load(json, R"({"added_tokens_decoder": {
      "900": {"content": "<new>", "special": true, "normalized": false, "lstrip": true},
      "278": {"content": "</think>", "special": true, "rstrip": true, "normalized": false}}})",
                                 "small.json");
  CHECK_OK(t);
  CHECK_EQ((*t)->vocab_size(), 901u);
  CHECK(Ids(**t, "he  <new>") == (std::vector<uint32_t>{256, 900}));
  CHECK((*t)->IsSpecial(900));
  CHECK((*t)->IsSpecial(278));
  CHECK(Ids(**t, "</think>  he") == (std::vector<uint32_t>{278, 256}));
  CHECK_EQ((*t)->TokenBytes(500), "");  // an id between has no token, and is no text
  CHECK_EQ((*t)->Decode(std::vector<uint32_t>{256, 500, 256}, false), "hehe");
}

TEST(add_bos_token_decides_what_is_put_around_a_text) {
  const std::string json = SmallTokenizer().Json();
  const auto around = [&](const char* config) {
    const auto t = Tokenizer::Load(json, config, "small.json");
    return t.ok() ? Ids(**t, "he", {.add_special = true}) : std::vector<uint32_t>();
  };
  using Tokens = std::vector<uint32_t>;
  CHECK(around("{}") == Tokens{256});
  CHECK(around(R"({"add_bos_token": true, "bos_token": "<|im_start|>"})") == (Tokens{275, 256}));
  CHECK(around(R"({"add_eos_token": true, "eos_token": "<|im_end|>"})") == (Tokens{256, 276}));
  CHECK(around(R"({"add_bos_token": true})") == Tokens{256});  // which has no name
  CHECK(around(R"({"add_bos_token": null, "bos_token": "<|im_start|>"})") == Tokens{256});
}

TEST(a_single_word_stands_beside_no_letter) {
  SmallTokenizer small;
  small.more_added = R"(,{"id": 279, "content": "word", "single_word": true, "normalized": false})";
  const auto t = small.Load();
  CHECK_OK(t);
  CHECK_EQ(Ids(**t, "word").size(), 1u);
  CHECK_EQ(Ids(**t, "(word)").size(), 3u);
  CHECK_GT(Ids(**t, "words").size(), 1u);
  CHECK_GT(Ids(**t, "\xC3\xA9word").size(), 3u);
}
