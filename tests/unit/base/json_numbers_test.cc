// SPDX-License-Identifier: MIT
#include "base/json_numbers.h"

#include "support/test.h"

using namespace mainarch;

TEST(integers_that_64_bits_hold_stay) {
  for (const char* text : {"", "0", "[1,-2, 3]", "18446744073709551615", "-9223372036854775808",
                           "1e400", "1.5", "1E+999", "{\"a\":\"123456789012345678901234567890\"}",
                           "\"a\\\"123456789012345678901\"", "00000000000000000000000000000001",
                           "123456789012345678901234567890.5", "123456789012345678901234567890e5",
                           "123456789012345678901x", "\"unterminated 99999999999999999999\\"}) {
    CHECK_EQ(WideIntegersAsFractions(text), std::string(text));
  }
}

TEST(integers_that_they_do_not_become_fractions) {
  CHECK_EQ(WideIntegersAsFractions("18446744073709551616"), "18446744073709551616.0");
  CHECK_EQ(WideIntegersAsFractions("[-9223372036854775809,1]"), "[-9223372036854775809.0,1]");
  CHECK_EQ(WideIntegersAsFractions("{\"a\\\\\":1000000000000000019884624838656}"),
           "{\"a\\\\\":1000000000000000019884624838656.0}");
  const std::string nines(308, '9');
  CHECK_EQ(WideIntegersAsFractions("-" + nines), "-" + nines + ".0");
  CHECK_EQ(WideIntegersAsFractions("-9" + nines), "-1e308");
}
