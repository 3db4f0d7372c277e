// SPDX-License-Identifier: MIT
// What is wrong with a tokenizer.json, or not followed, is said with the name of the field.
#include "absl/strings/match.h"
#include "support/peak_memory.h"
#include "support/test.h"
#include "unit/text/small_tokenizer.h"

using namespace mainarch;
using namespace mainarch::text;

namespace {

std::string MessageOf(const std::string& json, absl::string_view config = "") {
  const auto t = Tokenizer::Load(json, config, "small.json");
  return t.ok() ? "loaded" : std::string(t.status().message());
}

// The small file with `from`, which must be in it, replaced.
std::string Changed(absl::string_view from, absl::string_view to) {
  const std::string json = SmallTokenizer().Json();
  if (!absl::StrContains(json, from)) return "";
  return absl::StrReplaceAll(json, {{from, to}});
}

}  // namespace

#define CHECK_SAYS(json, text)                                        \
  do {                                                                \
    const std::string message_ = MessageOf(json);                     \
    if (!absl::StrContains(message_, text)) CHECK_EQ(message_, text); \
    CHECK(absl::StartsWith(message_, "small.json: "));                \
  } while (0)

TEST(what_is_not_followed_is_refused_by_key_and_value) {
  CHECK_EQ(MessageOf(SmallTokenizer().Json()), "loaded");
  CHECK_SAYS(Changed(R"("BPE")", R"("WordLevel")"),
             "model.type is \"WordLevel\"; mainarch takes BPE, Unigram and WordPiece");
  CHECK_SAYS(Changed(R"("BPE")", R"("Unigram")"), "model.type is \"Unigram\" behind a ByteLevel");
  CHECK_SAYS(Changed(R"("NFC")", R"("NFX")"), "normalizer.type is \"NFX\"");
  CHECK_SAYS(Changed(R"("dropout": null)", R"("dropout": 0.1)"), "model.dropout is a number");
  CHECK_SAYS(Changed(R"("dropout": null)", R"("end_of_word_suffix": "</w>")"),
             "model.end_of_word_suffix is \"</w>\"");
  CHECK_SAYS(Changed(R"("dropout": null)", R"("speed": 1)"), "model.speed is 1, a key");
  CHECK_SAYS(Changed(R"("Isolated")", R"("Dropped")"), ".behavior is \"Dropped\"");
  CHECK_SAYS(Changed(R"("invert": false)", R"("invert": 1)"), ".invert is an integer");
  CHECK_SAYS(Changed(R"("Split")", R"("Splat")"), "pretokenizers[0].type is \"Splat\"");
  CHECK_SAYS(Changed(R"("Sequence")", R"("UnicodeScripts")"),
             "pre_tokenizer.type is \"UnicodeScripts\"");
  CHECK_SAYS(Changed(R"("version": "1.0")", R"("version": "2.0")"), "version is \"2.0\"");
  CHECK_SAYS(Changed(R"("post_processor": {"type": "ByteLevel")",
                     R"("post_processor": {"type": "Other")"),
             "post_processor.type is \"Other\"");
  CHECK_SAYS(Changed(R"("decoder": {"type": "ByteLevel")", R"("decoder": {"type": "CTC")"),
             "decoder.type is \"CTC\"");
  SmallTokenizer small;
  small.more_root = R"("magic": true,)";
  CHECK_SAYS(small.Json(), "magic is true, a key that mainarch does not know");
}

TEST(what_is_missing_or_of_another_type_is_named) {
  CHECK_SAYS(Changed(R"("model")", R"("pre_tokenizer2")"), "pre_tokenizer2 is an object, a key");
  CHECK_SAYS("{}", "model is missing");
  CHECK_SAYS("[]", "the root is an array, not an object");
  CHECK_SAYS("", "is not json");
  CHECK_SAYS(R"({"a": "\xFF"})", "is not json");
  CHECK_SAYS(Changed("<think>", "<\xFF>"), "is not json");
  CHECK_SAYS(Changed(R"("merges": [)", R"("merges": [1,)"),
             "model.merges[0] is an integer, not a string or a pair of strings");
  CHECK_SAYS(Changed(R"("merges": [)", R"("merges": [["h"],)"), "merges[0] is not a pair");
  CHECK_SAYS(Changed(R"("merges": [)", R"("merges": [["h","e","l"],)"), "merges[0] is not a pair");
  CHECK_SAYS(Changed(R"("merges": [)", R"("merges": ["h",)"), "not two tokens with a space");
  CHECK_SAYS(Changed(R"("merges": [)", R"("merges": ["h e l",)"), "not two tokens with a space");
  CHECK_SAYS(Changed(R"("vocab": {)", R"("vocab": {"zz": "1",)"), "has \"1\" for an id");
  CHECK_SAYS(Changed(R"("vocab": {)", R"("vocab": {"zz": -1,)"), "has -1 for an id");
  CHECK_SAYS(Changed(R"("vocab": {)", R"("vocab": {"zz": 1.5,)"), "has a number for an id");
  CHECK_SAYS(Changed(R"("merges": [)", R"("merges": 3, "m": [)"), "model.m is an array, a key");
  CHECK_SAYS(Changed(R"("normalizer")", R"("version")"), "version stands twice");
  CHECK_SAYS(Changed(R"("special": true)", R"("special": 1)"),
             "special is an integer, not a boolean");
}

TEST(vocabularies_that_contradict_themselves_are_refused) {
  SmallTokenizer small;
  small.more_vocab = R"(,"hello": 900)";
  CHECK_SAYS(small.Json(), "token \"hello\" stands twice, with ids 259 and 900");
  small.more_vocab = R"(,"zz": 3)";
  CHECK_SAYS(small.Json(), "model.vocab: id 3 belongs to");
  small.more_vocab = R"(,"zz": 900)";
  CHECK_EQ(MessageOf(small.Json()), "loaded");  // ids between may be free
  small.more_vocab = R"(,"zz": 4194303)";
  CHECK_SAYS(small.Json(), "ids go up to 4194303, but there are only 280 tokens");
  small.more_vocab = R"(,"zz": 4194304)";
  CHECK_SAYS(small.Json(), "id 4194304, over the limit 4194303");
  small.more_vocab = R"(,"": 279)";
  CHECK_SAYS(small.Json(), "token 279 is empty");
  small.more_vocab = absl::StrCat(",\"", std::string(20000, 'z'), "\": 279");
  CHECK_SAYS(small.Json(), "token 279 has 20000 bytes, over the limit 16384");
  small = {};
  small.more_added = R"(,{"id": 279, "content": "hello"})";
  CHECK_SAYS(small.Json(), "\"hello\" has id 279, but 259 in model.vocab");
  small.more_added = R"(,{"id": 5, "content": "<n>"})";
  CHECK_SAYS(small.Json(), "\"<n>\" has id 5, which belongs to another token");
  small.more_added = R"(,{"id": 279, "content": "<think>"})";
  CHECK_SAYS(small.Json(), "added_tokens[5].content \"<think>\" stands twice");
  small.more_added = R"(,{"id": 279, "content": ""})";
  CHECK_SAYS(small.Json(), "added_tokens[5].content has 0 bytes, not 1 to 1024");
  small.more_added = R"(,{"id": 99999999999, "content": "<n>"})";
  CHECK_SAYS(small.Json(), "added_tokens[5].id is 99999999999, over the limit");
}

TEST(merges_that_cannot_be_are_refused) {
  SmallTokenizer small;
  small.more_merges = R"(,"h e")";
  CHECK_SAYS(small.Json(), "model.merges[17] \"h\" \"e\" is the same pair as merge 0");
  small.more_merges = R"(,"h z")";
  CHECK_SAYS(small.Json(), "model.merges[17]: \"hz\" is no token of model.vocab");
  small.more_merges = R"(,"hz h")";
  CHECK_SAYS(small.Json(), "model.merges[17]: \"hz\" is no token of model.vocab");
  // A merge with nothing would go round for ever.
  small.more_merges = R"(," h")";
  CHECK_SAYS(small.Json(), "model.merges[17]: \"\" is no token of model.vocab");
  small.more_merges = R"(,"h ")";
  CHECK_SAYS(small.Json(), "model.merges[17]: \"\" is no token of model.vocab");
  small.more_merges = absl::StrCat(",\"h ", std::string(3000, 'z'), "\"");
  CHECK_SAYS(small.Json(), "model.merges[17] has 3001 bytes, over the limit 2048");
  small.more_merges = ",\"h \xE4\xB8\xAD\"";  // not byte-level
  CHECK_SAYS(small.Json(), "is no token of model.vocab");
}

TEST(deep_and_huge_files_are_refused_with_the_limit) {
  const std::string open(100000, '['), close(100000, ']');
  CHECK_SAYS(open + close, "is nested deeper than the limit 64");
  CHECK_SAYS(absl::StrCat("{\"model\":", open, close, "}"), "is nested deeper than the limit 64");
  CHECK_SAYS(open, "is not json");
  // Never read: only its size is looked at.
  const auto t = Tokenizer::Load(absl::string_view("{", kMaxTokenizerJson + 1), "", "small.json");
  CHECK_EQ(t.status().message(), absl::StrCat("small.json: has ", kMaxTokenizerJson + 1,
                                              " bytes, over the limit ", kMaxTokenizerJson));
}

TEST(a_file_of_junk_is_refused_for_what_it_would_take) {
  // The most that a file may take is some times its size; these would take twelve times.
  for (const absl::string_view junk : {",1", ",[]", ",{}", ",\"\""}) {
    std::string text = "{\"added_tokens\":[1";
    while (text.size() + junk.size() + 2 < kMaxTokenizerJson) absl::StrAppend(&text, junk);
    text += "]}";
    std::string message;
    const auto peak = test::PeakBytes([&] { message = MessageOf(text); });
    CHECK(absl::StrContains(message, "values and keys, over the limit 8388608"));
    if (peak.has_value()) CHECK_LT(*peak, uint64_t{64} << 20);
  }
  // As many values as there may be.
  std::string text = "{\"added_tokens\":[1";
  for (size_t i = 0; i + 4 < kMaxTokenizerValues; ++i) text += ",1";
  text += "]}";
  std::string message;
  const auto peak = test::PeakBytes([&] { message = MessageOf(text); });
  CHECK_EQ(message, "small.json: added_tokens[0] is an integer, not an object");  // it was read
  if (peak.has_value()) CHECK_LT(*peak, uint64_t{400} << 20);
}

TEST(every_cut_of_a_good_file_is_refused) {
  const std::string json = SmallTokenizer().Json();
  for (size_t size = 0; size < json.size(); size += 7) {
    CHECK_EQ(MessageOf(json.substr(0, size)).find("small.json: "), 0u);
  }
}

TEST(errors_of_the_config_name_it) {
  const std::string json = SmallTokenizer().Json();
  CHECK_EQ(MessageOf(json, R"({"eos_token": "<eos>"})"),
           "tokenizer_config.json: eos_token \"<eos>\" is no token of the tokenizer");
  CHECK_EQ(MessageOf(json, R"({"eos_token": 3})"),
           "tokenizer_config.json: eos_token is an integer, not a string");
  CHECK_EQ(MessageOf(json, R"({"eos_token": {"text": "a"}})"),
           "tokenizer_config.json: eos_token.content is missing");
  CHECK(absl::StartsWith(MessageOf(json, "{"), "tokenizer_config.json: is not json"));
  // transformers writes this one by default.
  CHECK_OK(Tokenizer::Load(json, R"({"model_max_length": 1000000000000000019884624838656})", "t"));
}
