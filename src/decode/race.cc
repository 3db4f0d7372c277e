// SPDX-License-Identifier: MIT
#include "decode/race.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/cpu_features.h"
#include "decode/philox.h"
#include "kernels/common/draw.h"

namespace mainarch::decode {
namespace {

constexpr double kScale = 1.0 / 4294967296.0;
constexpr double kLeastE = 1e-10;  // below -log(1 - 2^-33)

using Runner = kernels::RaceRunner;

// Candidates [begin, end) one by one; null ids are their own indices.
void RunOnes(const uint32_t* ids, const float* weights, size_t begin, size_t end, uint64_t seed,
             uint64_t position, Runner* runner) {
  uint32_t quad = UINT32_MAX;
  PhiloxBlock block = {};
  for (size_t i = begin; i < end; ++i) {
    const double weight = weights[i];
    if (weight <= runner->best * kLeastE) continue;  // cannot win, whatever it draws
    const uint32_t id = ids == nullptr ? static_cast<uint32_t>(i) : ids[i];
    if (id / 4 != quad) {
      quad = id / 4;
      block = RandomBlock(seed, position, quad, Stream::kSample);
    }
    runner->Consider(id, weight, block[id % 4]);
  }
}

#if defined(__x86_64__)

constexpr size_t kQuads = 8;            // Philox blocks at a time
constexpr size_t kTokens = 4 * kQuads;  // that they are for
constexpr double kLeastBest = 1e-25;    // so that the bound below is a normal number
constexpr float kSafe = 1 - 1e-6f;      // more than all roundings of the bound

#define MAINARCH_AVX2 __attribute__((target("avx2")))

// 32 x 32 -> 64 bits of eight lanes.
MAINARCH_AVX2 inline void Multiply(__m256i a, __m256i m, __m256i* high, __m256i* low) {
  const __m256i even = _mm256_mul_epu32(a, m);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);
  *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}

// Random numbers of tokens [4 quad, 4 quad + 32), in order: Philox of philox.h, lane = block.
MAINARCH_AVX2 inline void RandomTokens(uint64_t seed, uint64_t position, uint32_t quad,
                                       __m256i* tokens) {
  const __m256i m0 = _mm256_set1_epi32(static_cast<int>(0xD2511F53));
  const __m256i m1 = _mm256_set1_epi32(static_cast<int>(0xCD9E8D57));
  __m256i c0 = _mm256_set1_epi32(static_cast<int>(position));
  __m256i c1 = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(quad)),
                                _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256i c2 = _mm256_set1_epi32(static_cast<int>(Stream::kSample));
  __m256i c3 = _mm256_set1_epi32(static_cast<int>(position >> 32));
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    __m256i high0, low0, high1, low1;
    Multiply(c0, m0, &high0, &low0);
    Multiply(c2, m1, &high1, &low1);
    c0 = _mm256_xor_si256(_mm256_xor_si256(high1, c1), _mm256_set1_epi32(static_cast<int>(k0)));
    c2 = _mm256_xor_si256(_mm256_xor_si256(high0, c3), _mm256_set1_epi32(static_cast<int>(k1)));
    c1 = low1;
    c3 = low0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  // Word j of block q belongs to token 4 q + j.
  const __m256i a = _mm256_unpacklo_epi32(c0, c1), b = _mm256_unpacklo_epi32(c2, c3);
  const __m256i c = _mm256_unpackhi_epi32(c0, c1), d = _mm256_unpackhi_epi32(c2, c3);
  const __m256i q04 = _mm256_unpacklo_epi64(a, b), q15 = _mm256_unpackhi_epi64(a, b);
  const __m256i q26 = _mm256_unpacklo_epi64(c, d), q37 = _mm256_unpackhi_epi64(c, d);
  tokens[0] = _mm256_permute2x128_si256(q04, q15, 0x20);
  tokens[1] = _mm256_permute2x128_si256(q26, q37, 0x20);
  tokens[2] = _mm256_permute2x128_si256(q04, q15, 0x31);
  tokens[3] = _mm256_permute2x128_si256(q26, q37, 0x31);
}

// All tokens of a vocabulary. Few can beat the best so far: a bound a little below the one of
// Consider sorts the others out, 32 at a time; who passes goes through Consider, in order.
MAINARCH_AVX2 uint32_t RaceAllAvx2(const float* weights, size_t count, uint64_t seed,
                                   uint64_t position) {
  Runner runner;
  size_t at = 0;
  for (; at + kTokens <= count; at += kTokens) {
    if (runner.best < kLeastBest) {
      RunOnes(nullptr, weights, at, at + kTokens, seed, position, &runner);
      continue;
    }
    __m256i random[4];
    RandomTokens(seed, position, static_cast<uint32_t>(at / 4), random);
    // 1 - u = (~random + 0.5) 2^-32; half of ~random, so that it is a signed number.
    const __m256 scale = _mm256_set1_ps(static_cast<float>(runner.best * 2 * kScale) * kSafe);
    const __m256i ones = _mm256_set1_epi32(-1);
    uint32_t passed = 0;
    for (int i = 0; i < 4; ++i) {
      const __m256i half = _mm256_srli_epi32(_mm256_xor_si256(random[i], ones), 1);
      const __m256 bound = _mm256_mul_ps(_mm256_cvtepi32_ps(half), scale);
      const __m256 weight = _mm256_loadu_ps(weights + at + 8 * static_cast<size_t>(i));
      passed |= static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(weight, bound, _CMP_GT_OQ)))
                << (8 * i);
    }
    if (passed == 0) continue;
    alignas(32) uint32_t words[kTokens];
    for (int i = 0; i < 4; ++i) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(words + 8 * i), random[i]);
    }
    for (; passed != 0; passed &= passed - 1) {
      const size_t token = static_cast<size_t>(__builtin_ctz(passed));
      runner.Consider(static_cast<uint32_t>(at + token), weights[at + token], words[token]);
    }
  }
  RunOnes(nullptr, weights, at, count, seed, position, &runner);
  return runner.winner;
}

#endif  // __x86_64__

}  // namespace

uint32_t Race(const uint32_t* ids, const float* weights, size_t count, uint64_t seed,
              uint64_t position) {
  Runner runner;
  runner.winner = ids[0];
  RunOnes(ids, weights, 0, count, seed, position, &runner);
  return runner.winner;
}

uint32_t RaceAll(const float* weights, size_t count, uint64_t seed, uint64_t position) {
#if defined(__x86_64__)
  if (CPU_FEATURE_ACTIVE(AVX2)) return RaceAllAvx2(weights, count, seed, position);
#endif
  Runner runner;
  RunOnes(nullptr, weights, 0, count, seed, position, &runner);
  return runner.winner;
}

}  // namespace mainarch::decode
