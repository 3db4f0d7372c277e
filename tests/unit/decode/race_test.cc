// SPDX-License-Identifier: MIT
#include "decode/race.h"

#include <cmath>
#include <random>
#include <vector>

#include "support/test.h"

using namespace mainarch::decode;

namespace {

// Weights as a softmax makes them, of a spread between flat and one that takes all.
std::vector<float> Weights(size_t count, float spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> weights(count);
  float top = -INFINITY;
  for (float& w : weights) top = std::max(top, w = normal(random) * spread);
  for (float& w : weights) w = w - top < -87 ? 0 : std::exp(w - top);
  return weights;
}

std::vector<uint32_t> AllIds(size_t count) {
  std::vector<uint32_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<uint32_t>(i);
  return ids;
}

}  // namespace

TEST(every_cpu_draws_the_same_token) {
  uint64_t seed = 1;
  for (const size_t count : {1u, 3u, 31u, 32u, 33u, 100u, 1000u, 20001u}) {
    const std::vector<uint32_t> ids = AllIds(count);
    for (const float spread : {0.0f, 0.5f, 2.0f, 8.0f, 40.0f}) {
      const std::vector<float> weights = Weights(count, spread, static_cast<uint32_t>(count));
      for (int i = 0; i < (count > 10000 ? 20 : 100); ++i) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t position = seed >> 7;
        CHECK_EQ(RaceAll(weights.data(), count, seed, position),
                 Race(ids.data(), weights.data(), count, seed, position));
      }
    }
  }
}

// The bound must not sort anyone out while the best so far is minute: here the first weights are
// zero or denormal, and the real ones come last.
TEST(minute_weights_first) {
  const size_t count = 400;
  const std::vector<uint32_t> ids = AllIds(count);
  std::vector<float> weights(count, 0.0f);
  for (size_t i = 64; i < 128; ++i) weights[i] = 1e-40f;
  for (size_t i = 128; i < 192; ++i) weights[i] = 2e-38f;
  for (size_t i = 192; i < 256; ++i) weights[i] = 1e-26f;
  weights[399] = 1e-20f;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    CHECK_EQ(RaceAll(weights.data(), count, seed, 3),
             Race(ids.data(), weights.data(), count, seed, 3));
    CHECK_EQ(RaceAll(weights.data(), count - 1, seed, 3),
             Race(ids.data(), weights.data(), count - 1, seed, 3));
  }
  const std::vector<float> zeros(count, 0.0f);
  CHECK_EQ(RaceAll(zeros.data(), count, 1, 1), Race(ids.data(), zeros.data(), count, 1, 1));
}

TEST(candidates_that_are_not_all_keep_their_own_numbers) {
  // A token's chance does not depend on who else is there: take losers away, and the winner stays.
  const size_t count = 500;
  const std::vector<float> weights = Weights(count, 2, 5);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const uint32_t winner = RaceAll(weights.data(), count, seed, 9);
    std::vector<uint32_t> some;
    std::vector<float> their;
    for (uint32_t id = 0; id < count; ++id) {
      if (id != winner && id % 3 != 0) continue;
      some.push_back(id);
      their.push_back(weights[id]);
    }
    CHECK_EQ(Race(some.data(), their.data(), some.size(), seed, 9), winner);
  }
}
