// SPDX-License-Identifier: MIT
//
// A vocabulary that was put into a GGUF file tokenises as the tokenizer.json that it was taken
// from, where text is in NFC.
#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "file/gguf_checkpoint.h"
#include "file/json.h"
#include "model/checkpoint_tokenizer.h"
#include "support/gguf_writer.h"
#include "support/test.h"

namespace mainarch {
namespace {

using file::JsonDocument;
using test::GgufWriter;

std::string Read(const std::string& path) {
  std::ifstream in(test::SourcePath(path), std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

constexpr file::JsonLimits kLimits = {size_t{64} << 20, 32, size_t{1} << 22};

// What converters make of a tokenizer.json.
std::string GgufOf(const std::string& json, const std::string& pre) {
  auto document = JsonDocument::Parse(json, "tokenizer.json", kLimits);
  if (!document.ok()) return "";
  std::map<int64_t, std::pair<std::string, int32_t>> tokens;
  const auto root = document->root();
  for (const auto& field : root["model"]["vocab"].get_object()) {
    tokens[field.value.get_int64()] = {std::string(std::string_view(field.key)), 1};
  }
  for (const auto token : root["added_tokens"].get_array()) {
    const bool special = token["special"].get_bool();
    tokens[token["id"].get_int64()] = {std::string(std::string_view(token["content"])),
                                       special ? 3 : 4};
  }
  std::vector<std::string> texts, merges;
  std::vector<int32_t> types;
  for (const auto& [id, token] : tokens) {
    while (texts.size() < static_cast<size_t>(id)) {
      texts.push_back("[PAD" + std::to_string(texts.size()) + "]");
      types.push_back(5);
    }
    texts.push_back(token.first);
    types.push_back(token.second);
  }
  for (const auto merge : root["model"]["merges"].get_array()) {
    std::string_view text;
    if (!merge.get(text)) {
      merges.push_back(std::string(text));
    } else {
      merges.push_back(std::string(std::string_view(merge.at(0))) + " " +
                       std::string(std::string_view(merge.at(1))));
    }
  }
  GgufWriter w;
  w.Text("general.architecture", "qwen3");
  for (const char* key :
       {"context_length", "embedding_length", "block_count", "attention.head_count"}) {
    w.U32(std::string("qwen3.") + key, 1);
  }
  w.F32("qwen3.attention.layer_norm_rms_epsilon", 1e-6f);
  w.Text("tokenizer.ggml.model", "gpt2");
  w.Text("tokenizer.ggml.pre", pre);
  w.Texts("tokenizer.ggml.tokens", texts);
  w.Numbers("tokenizer.ggml.token_type", 5, types);
  w.Texts("tokenizer.ggml.merges", merges);
  w.Tensor("token_embd.weight", {1, texts.size()}, 0, std::string(4 * texts.size(), '\0'));
  return w.Done();
}

TEST(a_vocabulary_from_gguf_gives_the_ids_of_its_tokenizer_json) {
  const auto cases = Read("tests/golden/data/tokenizer/cases.json");
  auto document = JsonDocument::Parse(cases, "cases.json", kLimits);
  CHECK_OK(document);
  for (const auto& [directory, pre] : {std::pair("tests/golden/data/tokenizer/a", "qwen2"),
                                       std::pair("tests/golden/data/tokenizer/b", "qwen35"),
                                       std::pair("tests/golden/trained", "qwen2")}) {
    const std::string json = Read(std::string(directory) + "/tokenizer.json");
    const std::string bytes = GgufOf(json, pre);
    const auto checkpoint = file::GgufCheckpoint::Parse(
        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "f.gguf");
    CHECK_OK(checkpoint);
    const auto ours = model::ReadTokenizer(**checkpoint);
    const auto theirs = text::Tokenizer::Load(json, "", "tokenizer.json");
    CHECK_OK(ours);
    CHECK_OK(theirs);
    CHECK_EQ((*ours)->vocab_size(), (*theirs)->vocab_size());
    size_t compared = 0, differ = 0;
    for (const auto element : document->root()["strings"].get_array()) {
      const std::string_view view = element;
      const absl::string_view string(view.data(), view.size());
      std::vector<uint32_t> a, b;
      CHECK_OK((*ours)->Encode(string, {}, &a));
      CHECK_OK((*theirs)->Encode(string, {}, &b));
      // What NFC changes: of normalisers GGUF says nothing, and llama.cpp has none.
      if (absl::string_view((*theirs)->Decode(b, /*skip_special=*/false)) != string) continue;
      differ += a != b;
      ++compared;
    }
    CHECK(compared > 300);
    if (differ != 0) std::printf("# %s: %zu of %zu differ\n", directory, differ, compared);
    CHECK_EQ(differ, 0u);
  }
}

}  // namespace
}  // namespace mainarch
