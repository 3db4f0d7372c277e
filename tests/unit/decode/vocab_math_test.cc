// SPDX-License-Identifier: MIT
#include "decode/vocab_math.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "support/test.h"

using namespace mainarch::decode;

TEST(peak_and_block_maxima) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (const size_t n : {1u, 2u, 15u, 255u, 256u, 257u, 1000u, 4096u}) {
    std::vector<float> v(n);
    for (float& x : v) x = normal(random);
    std::vector<float> blocks((n + kScanBlock - 1) / kScanBlock);
    const Peak peak = FindPeak(v.data(), n, blocks.data());
    const auto best = std::max_element(v.begin(), v.end());
    CHECK(peak.sane);
    CHECK_EQ(peak.index, static_cast<uint32_t>(best - v.begin()));
    CHECK_EQ(peak.value, *best);
    for (size_t b = 0; b < blocks.size(); ++b) {
      const size_t end = std::min(n, (b + 1) * kScanBlock);
      CHECK_EQ(blocks[b], *std::max_element(v.begin() + b * kScanBlock, v.begin() + end));
    }
  }
}

TEST(minus_infinity_is_sane_and_loses) {
  std::vector<float> v(300, -INFINITY);
  CHECK(FindPeak(v.data(), v.size(), nullptr).sane);
  CHECK_EQ(FindPeak(v.data(), v.size(), nullptr).value, -INFINITY);
  v[299] = -1e38f;
  CHECK_EQ(FindPeak(v.data(), v.size(), nullptr).index, 299u);
}

TEST(exp_is_within_two_ulps_and_the_same_at_every_offset) {
  std::vector<float> x;
  for (float v = 0; v > -90; v -= 0.00117f) x.push_back(v);
  x.push_back(-INFINITY);
  std::vector<float> y(x.size());
  ExpInto(x.data(), x.size(), y.data());
  CHECK_EQ(y[0], 1.0f);
  CHECK_EQ(y.back(), 0.0f);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = x[i] < -87 ? 0 : std::exp(double(x[i]));
    CHECK_LE(std::fabs(y[i] - exact), 2e-7 * exact);
    float alone = 0;
    ExpInto(&x[i], 1, &alone);
    CHECK_EQ(alone, y[i]);
  }
}

TEST(sum_of_exps) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 3);
  for (const size_t n : {1u, 3u, 16u, 17u, 255u, 270u, 5000u}) {
    std::vector<float> v(n);
    for (float& x : v) x = normal(random);
    const float top = *std::max_element(v.begin(), v.end());
    double exact = 0;
    for (float x : v) exact += std::exp(double(x) - top);
    CHECK_LT(std::fabs(SumExp(v.data(), n, top) - exact), 1e-6 * exact);
  }
}

TEST(log_is_within_a_few_ulps) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200'000; ++i) {
    double x = (double(random() >> 32) + 0.5) / 4294967296.0;
    if (i % 3 == 0) x = std::exp(double(random() % 600) - 300);
    CHECK_LE(std::fabs(NaturalLog(x) - std::log(x)), 1e-15 * std::fabs(std::log(x)));
  }
  CHECK_EQ(NaturalLog(1), 0.0);
}

TEST(every_cpu_gives_the_same_bits) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 9);
  for (const size_t n : {1u, 5u, 16u, 250u, 256u, 1023u, 1024u, 3000u, 151'936u}) {
    std::vector<float> v(n);
    for (float& x : v) x = normal(random);
    for (const float bad : {0.0f, NAN, INFINITY}) {
      if (bad != 0) v[random() % n] = bad;
      std::vector<float> a((n + kScanBlock - 1) / kScanBlock), b(a.size());
      for (const bool blocks : {false, true}) {
        const Peak x = FindPeak(v.data(), n, blocks ? a.data() : nullptr);
        const Peak y = PortableFindPeak(v.data(), n, blocks ? b.data() : nullptr);
        CHECK_EQ(x.sane, y.sane);
        CHECK_EQ(x.sane, bad == 0);
        if (!x.sane) continue;
        CHECK_EQ(x.index, y.index);
        CHECK_EQ(x.value, y.value);
        CHECK(a == b);
      }
    }
    for (float& x : v) x = -std::fabs(normal(random)) * 3;
    std::vector<float> a(n), b(n);
    ExpInto(v.data(), n, a.data());
    PortableExpInto(v.data(), n, b.data());
    CHECK(a == b);
    CHECK_EQ(SumExp(v.data(), n, 0), PortableSumExp(v.data(), n, 0));
  }
}
