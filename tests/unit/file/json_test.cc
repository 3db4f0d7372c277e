// SPDX-License-Identifier: MIT
#include "file/json.h"

#include "support/checkpoint_files.h"
#include "support/test.h"

namespace mainarch::file {
namespace {

Status Parse(const std::string& text, size_t bytes = 1 << 20, size_t depth = 32) {
  return JsonDocument::Parse(text, "x.json", {bytes, depth}).status();
}

std::string Nested(int levels) { return std::string(levels, '[') + "0" + std::string(levels, ']'); }

TEST(good_json_is_read) {
  const auto document = JsonDocument::Parse(R"({"a":[1,{"b":"c"}],"d":null} )", "x", {});
  CHECK_OK(document);
  CHECK_OK(document->RootObject());
  CHECK(document->root()["a"].is_array());
  CHECK_OK(Parse("3"));
}

TEST(the_root_may_have_to_be_an_object) {
  const auto document = JsonDocument::Parse("[1]", "x.json", {});
  CHECK_OK(document);
  CHECK_REFUSED(document->RootObject(), Code::kBadModel, "x.json", "an array, not an object");
}

TEST(malformed_json_is_refused) {
  for (const char* text : {"",          " ",
                           "{",         "}",
                           "{\"a\":}",  "{\"a\":1,}",
                           "[1 2]",     "tru",
                           "nul",       "\"abc",
                           "{'a':1}",   "01",
                           "+1",        "1.",
                           ".5",        "1e",
                           "NaN",       "Infinity",
                           "-",         "[1]]",
                           "{} {}",     "\xEF\xBB\xBF{}",
                           "\"\\u12\"", "\"\\ud800\"",
                           "\"a\nb\"",  "// x\n{}"}) {
    CHECK_REFUSED(Parse(text), Code::kBadModel, "x.json");
  }
  CHECK_REFUSED(Parse("\"\xff\xfe\""), Code::kBadModel, "x.json", "utf-8");
  CHECK_REFUSED(Parse("[1e999]"), Code::kBadModel, "x.json");
  CHECK_REFUSED(Parse(std::string("{\"a\":1}\0", 8)), Code::kBadModel, "x.json");
}

TEST(integers_beyond_64_bits_are_fractions) {
  const auto document = JsonDocument::Parse(
      R"({"model_max_length": 1000000000000000019884624838656, "n": [-99999999999999999999, 7]})",
      "x.json", {});
  CHECK_OK(document);
  CHECK_EQ(Show(document->root()["model_max_length"]), "1e+30");
  CHECK_EQ(Show(document->root()["n"].at(0)), "-1e+20");
  CHECK_EQ(Show(document->root()["n"].at(1)), "7");
  CHECK_OK(Parse("[" + std::string(1000, '9') + "]"));
  // Beside other mistakes they excuse nothing.
  CHECK_REFUSED(Parse("[123456789012345678901234567890, 1e999]"), Code::kBadModel, "x.json");
  CHECK_REFUSED(Parse("[123456789012345678901234567890, 01]"), Code::kBadModel, "x.json");
}

TEST(size_is_limited) {
  CHECK_OK(Parse(std::string(100, ' ') + "[]", 102));
  CHECK_REFUSED(Parse(std::string(101, ' ') + "[]", 102), Code::kBadModel, "x.json", "103", "102");
}

TEST(the_number_of_values_is_limited_before_they_are_built) {
  const auto with = [](size_t values, const std::string& text) {
    return JsonDocument::Parse(text, "x.json", {1 << 20, 32, values}).status();
  };
  CHECK_OK(with(4, "[1,2,3]"));  // two commas and a bracket, and one
  CHECK_REFUSED(with(3, "[1,2,3]"), Code::kBadModel, "x.json", "4 values", "limit of 3");
  CHECK_REFUSED(with(4, R"({"a":[{}]})"), Code::kBadModel, "x.json", "5 values", "limit of 4");
}

TEST(depth_is_limited) {
  CHECK_OK(Parse(Nested(32)));
  CHECK_REFUSED(Parse(Nested(33)), Code::kBadModel, "x.json", "limit of 32");
  CHECK_REFUSED(Parse(Nested(100000)), Code::kBadModel, "x.json", "limit of 32");
  CHECK_REFUSED(Parse(std::string(300000, '[')), Code::kBadModel, "x.json");
  // An empty array holds no level of its own.
  CHECK_OK(Parse(std::string(33, '[') + std::string(33, ']')));
  CHECK_REFUSED(Parse(std::string(34, '[') + std::string(34, ']')), Code::kBadModel, "limit of 32");
  CHECK_OK(Parse(Nested(5), 1 << 20, 5));
  CHECK_REFUSED(Parse(Nested(6), 1 << 20, 5), Code::kBadModel, "limit of 5");
}

TEST(duplicate_keys_are_refused_at_every_level) {
  CHECK_REFUSED(Parse(R"({"a":1,"b":2,"a":3})"), Code::kBadModel, "x.json", "\"a\"", "outermost");
  CHECK_REFUSED(Parse(R"({"p":[{},{"q":{"k":1,"k":1}}]})"), Code::kBadModel, "\"k\"", "\"p.q\"");
  CHECK_REFUSED(Parse(R"({"a\u0000\n":{"k":1,"k":1}})"), Code::kBadModel, "\"k\"",
                "in \"a\\000\\n\"");
  // The same key in another spelling.
  CHECK_REFUSED(Parse(R"({"a":1,"\u0061":2})"), Code::kBadModel, "\"a\"");
  CHECK_OK(Parse(R"({"a":{"a":{"a":1}},"b":{"a":1}})"));
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) many += "\"k" + std::to_string(i) + "\":0,";
  CHECK_OK(Parse(many + "\"z\":0}"));
  CHECK_REFUSED(Parse(many + "\"k517\":0}"), Code::kBadModel, "\"k517\"");
}

TEST(messages_stay_one_printable_line) {
  CHECK_EQ(Quote("a\nb\x01"), "\"a\\nb\\001\"");
  CHECK_LT(Quote(std::string(100000, 'x')).size(), 300u);
  const auto document = JsonDocument::Parse(R"([1,-1,1.0,"s\n",true,null,[],{}])", "x", {});
  CHECK_OK(document);
  std::string all;
  for (size_t i = 0; i < 8; ++i) all += Show(document->root().at(i).value_unsafe()) + " ";
  CHECK_EQ(all, "1 -1 1.0 \"s\\n\" true null an array an object ");
}

}  // namespace
}  // namespace mainarch::file
