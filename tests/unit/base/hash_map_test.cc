// SPDX-License-Identifier: MIT
#include "base/hash_map.h"

#include <algorithm>
#include <string>
#include <vector>

#include "support/test.h"

using namespace mainarch;

// In tables of a prime size or a power of two alike: low bits and high bits must both be spread.
TEST(numbers_in_a_row_and_multiples_spread) {
  for (const uint64_t step : {uint64_t{1}, uint64_t{8}, uint64_t{4096}, uint64_t{1} << 32}) {
    for (const int shift : {0, 54}) {
      std::vector<int> filled(1024);
      for (uint64_t i = 0; i < 4096; ++i) ++filled[HashNumber(i * step) >> shift & 1023];
      int empty = 0, most = 0;
      for (const int each : filled) {
        empty += each == 0;
        most = std::max(most, each);
      }
      // Of random ones: 19 of 1024 empty, 13 in the fullest.
      CHECK(empty < 150);
      CHECK(most < 40);
    }
  }
}

TEST(texts_are_found_by_any_view_of_them) {
  HashMap<std::string, int> map;
  for (int i = 0; i < 1000; ++i) map["name " + std::to_string(i)] = i;
  const std::string text = "a name 77";
  const auto found = map.find(absl::string_view(text).substr(2));
  CHECK(found != map.end());
  CHECK_EQ(found->second, 77);
  CHECK(!map.contains("name 1000"));
  HashSet<const int*> pointers;
  const int two[2] = {};
  pointers.insert(&two[0]);
  CHECK(pointers.contains(&two[0]) && !pointers.contains(&two[1]));
}
