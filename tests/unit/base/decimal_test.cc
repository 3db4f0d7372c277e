// SPDX-License-Identifier: MIT
#include "base/decimal.h"

#include <string>

#include "support/test.h"

using namespace mainarch;

TEST(one_spelling_a_number) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{10}, uint64_t{4096}, UINT64_MAX}) {
    CHECK(ParseDecimal(std::to_string(value)) == value);
  }
  for (const char* text : {"", " ", "1 ", " 1", "+1", "-1", "-0", "01", "00", "0x1", "1.0", "1e3", "1,2",
                           "18446744073709551616", "99999999999999999999", "\t1", "1\n", "\xD9\xA1"}) {
    if (ParseDecimal(text).has_value()) test_context.Fail(__FILE__, __LINE__, text);
  }
  CHECK(!ParseDecimal(absl::string_view("1\0", 2)).has_value());
}

TEST(places_count_from_one) {
  const absl::string_view whole = "cpu:x";
  CHECK_EQ(CharacterOf(whole, whole.substr(4)), 5u);
}
