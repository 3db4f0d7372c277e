// SPDX-License-Identifier: MIT
//
// The parts of the command that are worth testing without a process around them.
#include <string>
#include <vector>

#include "cli/json_writer.h"
#include "cli/options.h"
#include "cli/output.h"
#include "support/test.h"

namespace mainarch::cli {
namespace {

TEST(json_is_escaped_and_separated) {
  JsonWriter out;
  out.BeginObject().Field("a\"b", "x\n\x01\xff").List("l", std::vector<int>{1, 2});
  out.Key("o").BeginObject().EndObject().Field("n", 0.0 / 0.0).Field("t", true);
  out.Field("u", UINT64_MAX).EndObject();
  CHECK_EQ(out.text(),
           "{\"a\\\"b\": \"x\\n\\u0001\xEF\xBF\xBD\", \"l\": [1, 2], \"o\": {}, \"n\": null, "
           "\"t\": true, \"u\": 18446744073709551615}");
}

TEST(tables_align) {
  Table table({"<name", "value"});
  table.Row({"d\xC3\xA9j\xC3\xA0", "1"});
  table.Row({"x", "12345"});
  CHECK_EQ(table.Text(), "name  value\nd\xC3\xA9j\xC3\xA0      1\nx     12345\n");
}

TEST(numbers_have_three_digits_and_a_unit) {
  CHECK_EQ(Bytes(0), "0 B");
  CHECK_EQ(Bytes(999), "999 B");
  CHECK_EQ(Bytes(1000), "1.00 kB");
  CHECK_EQ(Bytes(99'960), "100 kB");
  CHECK_EQ(Bytes(1'192'000'000), "1.19 GB");
  CHECK_EQ(Count(595'776'512), "596 M");
  CHECK_EQ(Percent(0.853), "85.3 %");
  CHECK_EQ(Seconds(0.0000012), "1.2 us");
}

TEST(options_are_parsed) {
  bool yes = false, no = true;
  int64_t n = 1;
  std::vector<int64_t> list;
  std::vector<std::string> words, texts;
  Options options("x", "", "", "");
  options.Flag("yes", &yes, "");
  options.Flag("no-op", &no, "");
  options.Integer("n", &n, -5, 5, "");
  options.Integers("list", &list, 0, 9, "");
  options.Texts("text", "T", &texts, "");
  options.Positional("WORD", &words, 0, 3);
  const std::vector<std::string> arguments = {
      "--yes", "--n=-5", "w", "--list", "1,2", "--text", "--no-op", "--text=a=b", "--", "--n", "-"};
  CHECK(!options.Parse(arguments).has_value());
  CHECK(yes);
  CHECK(no);  // it was a value
  CHECK_EQ(n, -5);
  CHECK((list == std::vector<int64_t>{1, 2}));
  CHECK((texts == std::vector<std::string>{"--no-op", "a=b"}));
  CHECK((words == std::vector<std::string>{"w", "--n", "-"}));
  CHECK(options.given("n"));
}

TEST(near_words_are_found) {
  const std::vector<std::string> names = {"format", "seed", "max-tokens"};
  CHECK_EQ(Nearest("fromat", names), "format");
  CHECK_EQ(Nearest("for", names), "format");
  CHECK_EQ(Nearest("max-token", names), "max-tokens");
  CHECK_EQ(Nearest("prompt", names), "");
}

}  // namespace
}  // namespace mainarch::cli
