// SPDX-License-Identifier: MIT
//
// Who is added to whom, in letters.
#include "kernels/common/tree.h"

#include <string>
#include <vector>

#include "support/test.h"

using namespace mainarch;

namespace {

std::string Join(const std::string& a, const std::string& b) { return "(" + a + "+" + b + ")"; }
std::string Name(uint32_t i) { return std::string(1, static_cast<char>('a' + i)); }

std::string AtOnce(uint32_t n) {
  std::string v[8];
  for (uint32_t i = 0; i < 8; ++i) v[i] = i < n ? Name(i) : "not one of them";
  kernels::AddTree(v, n, Join);
  return v[0];
}

// As carries: whoever holds sums keeps one for each power of two.
std::string OneByOne(uint32_t n) {
  std::string level[4], sum;
  for (uint32_t i = 0; i < n; ++i) {
    sum = Name(i);
    for (uint32_t c = 0; c < kernels::TreeCarries(i); ++c) sum = Join(level[c], sum);
    level[kernels::TreeCarries(i)] = sum;
  }
  return sum;
}

}  // namespace

TEST(neighbours_first) {
  const std::vector<std::string> want = {"a",
                                         "(a+b)",
                                         "((a+b)+c)",
                                         "((a+b)+(c+d))",
                                         "(((a+b)+(c+d))+e)",
                                         "(((a+b)+(c+d))+(e+f))",
                                         "(((a+b)+(c+d))+((e+f)+g))",
                                         "(((a+b)+(c+d))+((e+f)+(g+h)))"};
  for (uint32_t n = 1; n <= 8; ++n) CHECK_EQ(AtOnce(n), want[n - 1]);
}

TEST(one_by_one_is_the_same_tree) {
  for (uint32_t n : {1u, 2u, 4u, 8u}) CHECK_EQ(OneByOne(n), AtOnce(n));
}

// Each of n ranks adds its share of eight parts, then the ranks are added.
TEST(ranks_do_the_rest_of_the_tree) {
  for (uint32_t ranks : {1u, 2u, 4u, 8u}) {
    const uint32_t parts = 8 / ranks;
    std::string sums[8];
    for (uint32_t r = 0; r < ranks; ++r) {
      std::string v[8];
      for (uint32_t i = 0; i < parts; ++i) v[i] = Name(r * parts + i);
      kernels::AddTree(v, parts, Join);
      sums[r] = v[0];
    }
    kernels::AddTree(sums, ranks, Join);
    CHECK_EQ(sums[0], AtOnce(8));
  }
}
