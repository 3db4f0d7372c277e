// SPDX-License-Identifier: MIT
//
// A tokenizer.json small enough to read, whose parts the tests replace one at a time.
#ifndef MAINARCH_TESTS_UNIT_TEXT_SMALL_TOKENIZER_H_
#define MAINARCH_TESTS_UNIT_TEXT_SMALL_TOKENIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "text/byte_level.h"
#include "text/scanner.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace mainarch::text {

inline std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppend(&out, "\\u00", c < 16 ? "0" : "1", absl::Hex(c & 15));
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

// The byte-level spelling of bytes.
inline std::string Spelling(absl::string_view bytes) {
  const ByteLevel byte_level;
  std::string out;
  for (char c : bytes) AppendUtf8(byte_level.PointOf(static_cast<unsigned char>(c)), &out);
  return out;
}

struct SmallTokenizer {
  // The parts of each merge, as bytes; merge i makes token 256 + i unless it has been made before.
  std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"},   {"l", "l"},     {"he", "ll"}, {"hell", "o"},    {" ", "w"},
      {"o", "r"},   {" w", "or"},   {"l", "d"},   {" wor", "ld"},   {"a", "a"},
      {"aa", "aa"}, {"aaaa", "aa"}, {"'", "s"},   {"\xE0", "\xB8"}, {"\xF0\x9F", "\x98"},
      {"\n", "\n"}, {"1", "2"}};
  std::string pattern{kQwen3Pattern};
  bool pairs = false;  // ["a", "b"] instead of "a b"
  std::string normalizer = R"({"type": "NFC"})";
  std::string model_options = R"("dropout": null, "unk_token": null, "byte_fallback": false,)";
  std::string more_vocab;   // ", \"x\": 300"
  std::string more_merges;  // ", \"a b\""
  std::string more_root;    // "\"key\": value,"
  std::vector<std::string> added = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};  // special
  std::vector<std::string> plain = {"<think>", "</think>"};                          // not special
  std::string more_added;                                                            // ", {...}"

  uint32_t first_added() const { return 256 + static_cast<uint32_t>(merges.size()) + 1; }

  std::string Json() const {
    std::string vocab, merge_list, added_list;
    for (int byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      absl::StrAppend(&vocab, byte ? "," : "", JsonString(Spelling({&text, 1})), ":", byte);
    }
    // \xF0\x9F has no merge: a token that no text gives.
    absl::StrAppend(&vocab, ",", JsonString(Spelling("\xF0\x9F")), ":", 256 + merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      const auto& [left, right] = merges[i];
      absl::StrAppend(&vocab, ",", JsonString(Spelling(left + right)), ":", 256 + i);
      absl::StrAppend(&merge_list, i ? "," : "");
      if (pairs) {
        absl::StrAppend(&merge_list, "[", JsonString(Spelling(left)), ",",
                        JsonString(Spelling(right)), "]");
      } else {
        absl::StrAppend(&merge_list, JsonString(Spelling(left) + " " + Spelling(right)));
      }
    }
    uint32_t id = first_added();
    for (const auto* list : {&added, &plain}) {
      for (const std::string& content : *list) {
        absl::StrAppend(&added_list, added_list.empty() ? "" : ",", R"({"id": )", id,
                        R"(, "content": )", JsonString(content), R"(, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false, "special": )",
                        list == &added ? "true" : "false", "}");
        ++id;
      }
    }
    return absl::StrCat(
        "{", more_root,
        R"("version": "1.0", "truncation": null, "padding": null, "added_tokens": [)", added_list,
        more_added, R"(], "normalizer": )", normalizer,
        R"(, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern":
        {"Regex": )",
        JsonString(pattern), R"(}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel",
        "add_prefix_space": false, "trim_offsets": false, "use_regex": false}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
        "use_regex": false}, "decoder": {"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": false, "use_regex": false}, "model": {"type": "BPE", )",
        model_options, R"("vocab": {)", vocab, more_vocab, R"(}, "merges": [)", merge_list,
        more_merges, "]}}");
  }

  StatusOr<std::shared_ptr<const Tokenizer>> Load(absl::string_view config = "") const {
    return Tokenizer::Load(Json(), config, "small.json");
  }
};

inline std::vector<uint32_t> Ids(const Tokenizer& tokenizer, absl::string_view text,
                                 EncodeOptions options = {}) {
  std::vector<uint32_t> ids;
  if (!tokenizer.Encode(text, options, &ids).ok()) return {kNoToken};
  return ids;
}

// The tokens of `text` as their bytes, with bars between them.
inline std::string Pieces(const Tokenizer& tokenizer, absl::string_view text,
                          EncodeOptions options = {}) {
  std::string out;
  for (uint32_t id : Ids(tokenizer, text, options)) {
    absl::StrAppend(&out, out.empty() ? "" : "|", tokenizer.TokenBytes(id));
  }
  return out;
}

}  // namespace mainarch::text

#endif  // MAINARCH_TESTS_UNIT_TEXT_SMALL_TOKENIZER_H_
