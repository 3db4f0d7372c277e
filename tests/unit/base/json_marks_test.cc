// SPDX-License-Identifier: MIT
#include "base/json_marks.h"

#include <string>

#include "support/test.h"

using namespace mainarch;

TEST(every_mark_counts_wherever_it_stands) {
  CHECK_EQ(CountJsonMarks(""), 0u);
  CHECK_EQ(CountJsonMarks("{\"a\":[1,2]}"), 4u);
  // No other byte does, and each does at each place of a block and behind the last whole one.
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool mark = c == ',' || c == ':' || c == '[' || c == '{';
    for (size_t at = 0; at < 37; ++at) {
      std::string text(37, 'x');
      text[at] = c;
      CHECK_EQ(CountJsonMarks(text), mark ? 1u : 0u);
    }
  }
}

TEST(counters_of_a_byte_do_not_wrap) {
  for (const size_t size : {4079u, 4080u, 4081u, 4096u, 100'003u}) {
    CHECK_EQ(CountJsonMarks(std::string(size, '[')), size);
  }
}
