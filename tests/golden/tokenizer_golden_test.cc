// SPDX-License-Identifier: MIT
// Ids and texts that the `tokenizers` package gave (data/tokenizer/, see README.md).
#include <fstream>
#include <sstream>

#include <simdjson.h>
#include "support/test.h"
#include "text/chat.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

using namespace mainarch;
using namespace mainarch::text;

namespace {

using simdjson::dom::array;
using simdjson::dom::element;

std::string ReadFile(const std::string& name) {
  std::ifstream in(test::SourcePath("tests/golden/" + name), std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

const std::pair<const char*, const char*> kVocabularies[] = {
    {"a", "data/tokenizer/a"}, {"b", "data/tokenizer/b"}, {"trained", "trained"}};

StatusOr<std::shared_ptr<const Tokenizer>> LoadGolden(const std::string& directory) {
  return Tokenizer::Load(ReadFile(directory + "/tokenizer.json"),
                         ReadFile(directory + "/tokenizer_config.json"),
                         directory + "/tokenizer.json");
}

std::string TextOf(const element& value) {
  const std::string_view text = value.get_string().value_unsafe();
  return std::string(text);
}

std::vector<uint32_t> IdsOf(const element& value) {
  std::vector<uint32_t> ids;
  const array list = value.get_array().value_unsafe();
  for (const element id : list)
    ids.push_back(static_cast<uint32_t>(id.get_uint64().value_unsafe()));
  return ids;
}

// [ids, text, text without special tokens]
void CheckDecode(test::Context& test_context, const std::shared_ptr<const Tokenizer>& tokenizer,
                 const element& golden, bool skip) {
  const std::vector<uint32_t> ids = IdsOf(golden.at(0).value_unsafe());
  const std::string want = TextOf(golden.at(skip ? 2 : 1).value_unsafe());
  CHECK_EQ(tokenizer->Decode(ids, skip), want);
  StreamDecoder stream(tokenizer, skip);
  std::string joined;
  for (uint32_t id : ids) joined += stream.Push(id);
  CHECK_EQ(joined + stream.Finish(), want);
}

}  // namespace

TEST(ids_and_texts_are_those_of_the_package) {
  const std::string json = ReadFile("data/tokenizer/cases.json");
  simdjson::dom::parser parser;
  element root;
  CHECK(!parser.parse(json).get(root));
  array strings;
  CHECK(!root["strings"].get(strings));
  size_t encoded = 0, decoded = 0;
  for (const auto& [name, directory] : kVocabularies) {
    array encode, decode;
    if (root[std::string("encode.") + name].get(encode)) continue;  // trained later, or not at all
    CHECK(!root[std::string("decode.") + name].get(decode));
    const auto tokenizer = LoadGolden(directory);
    CHECK_OK(tokenizer);
    auto text = strings.begin();
    for (const element golden : encode) {
      std::vector<uint32_t> ids;
      CHECK_OK((*tokenizer)->Encode(TextOf(*text), {}, &ids));
      if (ids != IdsOf(golden.at(0).value_unsafe())) CHECK_EQ(TextOf(*text), std::string(name));
      CheckDecode(test_context, *tokenizer, golden, false);
      CheckDecode(test_context, *tokenizer, golden, true);
      ++text;
      ++encoded;
    }
    for (const element golden : decode) {
      CheckDecode(test_context, *tokenizer, golden, false);
      CheckDecode(test_context, *tokenizer, golden, true);
      ++decoded;
    }
  }
  CHECK_GE(encoded, 600u);
  CHECK_GE(decoded, 120u);
}

// What tokenizer_goldens.py renders, as Jinja.
std::string ChatTemplate(const std::string& style) {
  const std::string content = style == "plain" ? "message.content" : "parts[-1].lstrip('\\n')";
  const std::string opening = style == "plain"     ? "''"
                              : style == "qwen3.5" ? "'<think>\\n' if enable_thinking else empty"
                                                   : "'' if enable_thinking else empty";
  return "{%- set empty = '<think>\\n\\n</think>\\n\\n' %}"
         "{%- for message in messages %}"
         "{{- '<|im_start|>' + message.role + '\\n' }}"
         "{%- set parts = message.content.split('</think>') %}"
         "{%- if message.role == 'assistant' and parts|length > 1 %}{{- " + content + " }}"
         "{%- else %}{{- message.content }}{%- endif %}"
         "{{- '<|im_end|>\\n' }}{%- endfor %}"
         "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{{- " + opening +
         " }}{%- endif %}";
}

TEST(conversations_are_rendered_as_the_templates_do) {
  const std::string json = ReadFile("data/tokenizer/chat.json");
  simdjson::dom::parser parser;
  array cases;
  CHECK(!parser.parse(json).get(cases));
  std::vector<std::pair<std::string, std::shared_ptr<const Tokenizer>>> tokenizers;
  for (const auto& [name, directory] : kVocabularies) {
    auto tokenizer = LoadGolden(directory);
    if (tokenizer.ok()) tokenizers.emplace_back(name, *tokenizer);
  }
  CHECK_GE(tokenizers.size(), 2u);
  size_t checked = 0;
  for (const element golden : cases) {
    std::vector<ChatMessage> messages;
    array list;
    CHECK(!golden["messages"].get(list));
    for (const element message : list) {
      messages.push_back(
          {TextOf(message["role"].value_unsafe()), TextOf(message["content"].value_unsafe())});
    }
    const std::string style = TextOf(golden["style"].value_unsafe());
    const bool thinking = golden["thinking"].get_bool().value_unsafe();
    const bool prompt = golden["add_generation_prompt"].get_bool().value_unsafe();
    const Chat chat(ChatConfig{{{"default", ChatTemplate(style)}}, {}});
    const auto text =
        chat.Render(messages, prompt, thinking ? Thinking::kOn : Thinking::kOff, std::tm{});
    CHECK_OK(text);
    CHECK_EQ(*text, TextOf(golden["text"].value_unsafe()));
    for (const auto& [name, tokenizer] : tokenizers) {
      element want;
      if (golden["ids"][name].get(want)) continue;
      std::vector<uint32_t> ids;
      CHECK_OK(tokenizer->Encode(*text, {}, &ids));
      CHECK(ids == IdsOf(want));
      ++checked;
    }
  }
  CHECK_GE(checked, 100u);
}
