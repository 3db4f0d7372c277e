// SPDX-License-Identifier: MIT
// Tokenizers of every kind that models use, and what the `tokenizers` package says with them
// (data/tokenizer/kinds.json, see README.md).
#include <simdjson.h>

#include <fstream>
#include <sstream>

#include "support/test.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

using namespace mainarch;
using namespace mainarch::text;

namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

std::string Json(const element& value) { return simdjson::to_string(value); }

// A tokenizer.json of the kind's own sections and the vocabulary that it names.
std::string FileOf(const element& kind, const element& models) {
  std::string file = "{";
  object sections;
  if (kind["tokenizer"].get(sections)) return "";
  for (const auto field : sections) {
    if (field.key == "model") continue;
    file += "\"" + std::string(field.key) + "\": " + Json(field.value) + ",";
  }
  std::string model = Json(sections["model"].value_unsafe());
  model.pop_back();
  const std::string_view vocabulary = kind["vocabulary"].get_string().value_unsafe();
  const element lists = models[vocabulary].value_unsafe();
  const object own = lists.get_object().value_unsafe();
  for (const auto field : own) {
    model += ",\"" + std::string(field.key) + "\": " + Json(field.value);
  }
  return file + "\"model\": " + model + "}}";
}

std::vector<uint32_t> IdsOf(const element& value) {
  std::vector<uint32_t> ids;
  const array list = value.get_array().value_unsafe();
  for (const element id : list) {
    ids.push_back(static_cast<uint32_t>(id.get_uint64().value_unsafe()));
  }
  return ids;
}

std::string TextOf(const element& value) {
  const std::string_view text = value.get_string().value_unsafe();
  return std::string(text);
}

std::string Streamed(const std::shared_ptr<const Tokenizer>& tokenizer,
                     const std::vector<uint32_t>& ids) {
  StreamDecoder stream(tokenizer, false);
  std::string text;
  for (const uint32_t id : ids) text += stream.Push(id);
  return text + stream.Finish();
}

}  // namespace

TEST(every_kind_has_the_tokens_and_texts_of_the_package) {
  std::ifstream in(test::SourcePath("tests/golden/data/tokenizer/kinds.json"), std::ios::binary);
  std::stringstream file;
  file << in.rdbuf();
  simdjson::dom::parser parser;
  element root;
  CHECK(!parser.parse(file.str()).get(root));
  const element models = root["models"].value_unsafe();
  size_t kinds = 0, cases = 0;
  const object all = root["kinds"].get_object().value_unsafe();
  for (const auto field : all) {
    const std::string name(field.key);
    const auto loaded = Tokenizer::Load(FileOf(field.value, models), "", name);
    CHECK_OK(loaded);
    const Tokenizer& tokenizer = **loaded;
    ++kinds;
    const array goldens = field.value["cases"].get_array().value_unsafe();
    for (const element golden : goldens) {
      const std::string text = TextOf(golden.at(0).value_unsafe());
      const std::vector<uint32_t> want = IdsOf(golden.at(1).value_unsafe());
      std::vector<uint32_t> ids;
      CHECK_OK(tokenizer.Encode(text, {}, &ids));
      if (ids != want) CHECK_EQ(name + ": " + text, "the tokens of the package");
      const std::string decoded = TextOf(golden.at(2).value_unsafe());
      if (tokenizer.Decode(ids, false) != decoded) CHECK_EQ(name + ": " + text, decoded);
      CHECK_EQ(Streamed(*loaded, ids), decoded);
      ++cases;
    }
    const element around = field.value["around"].value_unsafe();
    std::vector<uint32_t> want = IdsOf(around.at(0).value_unsafe());
    CHECK_OK(tokenizer.Encode("x", {}, &want));
    for (const uint32_t id : IdsOf(around.at(1).value_unsafe())) want.push_back(id);
    std::vector<uint32_t> ids;
    CHECK_OK(tokenizer.Encode("x", {.add_special = true}, &ids));
    CHECK(ids == want);
  }
  CHECK_GE(kinds, 22u);
  CHECK_GE(cases, 2000u);
}
