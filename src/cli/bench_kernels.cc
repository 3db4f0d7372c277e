// SPDX-License-Identifier: MIT
#include "cli/bench_kernels.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/cpu_features.h"

namespace mainarch::cli {
namespace {

constexpr size_t kBlock = 256;     // bytes of a stream read before the next one's turn
constexpr int kAccumulators = 16;  // more than the latency of an instruction times its rate

uint64_t FoldXor(const uint64_t* words, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum ^= words[i];
  return sum;
}

template <int kStreams>
uint64_t ReadPortable(const uint8_t* bytes, size_t size) {
  const size_t part = size / kStreams;
  uint64_t sum[4] = {};
  for (size_t at = 0; at < part; at += kBlock) {
    for (int s = 0; s < kStreams; ++s) {
      const uint8_t* p = bytes + static_cast<size_t>(s) * part + at;
      for (size_t i = 0; i < kBlock; i += 32) {
        uint64_t words[4];
        std::memcpy(words, p + i, sizeof(words));
        for (int w = 0; w < 4; ++w) sum[w] ^= words[w];
      }
    }
  }
  return FoldXor(sum, 4);
}

uint64_t Fp32Portable(uint64_t iterations) {
  volatile float start = 0.5f;
  float sum[kAccumulators];
  for (float& value : sum) value = start;
  for (uint64_t i = 0; i < iterations; ++i) {
    for (float& value : sum) value = value * 0.999f + 0.001f;
  }
  float total = 0;
  for (const float value : sum) total += value;
  start = total;
  return iterations * kAccumulators * 2;
}

#if defined(__x86_64__)

template <int kStreams>
__attribute__((target("avx2"))) uint64_t ReadAvx2(const uint8_t* bytes, size_t size) {
  const size_t part = size / kStreams;
  __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                    _mm256_setzero_si256()};
  for (size_t at = 0; at < part; at += kBlock) {
    for (int s = 0; s < kStreams; ++s) {
      const uint8_t* p = bytes + static_cast<size_t>(s) * part + at;
      for (int i = 0; i < 8; ++i) {
        sum[i % 4] = _mm256_xor_si256(
            sum[i % 4], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * i)));
      }
    }
  }
  uint64_t words[16];
  std::memcpy(words, sum, sizeof(words));
  return FoldXor(words, 16);
}

template <int kStreams>
__attribute__((target("avx512f"))) uint64_t ReadAvx512(const uint8_t* bytes, size_t size) {
  const size_t part = size / kStreams;
  __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                    _mm512_setzero_si512()};
  for (size_t at = 0; at < part; at += kBlock) {
    for (int s = 0; s < kStreams; ++s) {
      const uint8_t* p = bytes + static_cast<size_t>(s) * part + at;
      for (int i = 0; i < 4; ++i) sum[i] = _mm512_xor_si512(sum[i], _mm512_loadu_si512(p + 64 * i));
    }
  }
  uint64_t words[32];
  std::memcpy(words, sum, sizeof(words));
  return FoldXor(words, 32);
}

__attribute__((target("avx2,fma"))) uint64_t Fp32Avx2(uint64_t iterations) {
  volatile float start = 0.5f;
  constexpr int kSums = 12;  // of 16 registers
  __m256 sum[kSums];
  for (__m256& value : sum) value = _mm256_set1_ps(start);
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (uint64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) sum[s] = _mm256_fmadd_ps(sum[s], a, b);
  }
  __m256 total = sum[0];
  for (int s = 1; s < kSums; ++s) total = _mm256_add_ps(total, sum[s]);
  start = _mm256_cvtss_f32(total);
  return iterations * kSums * 8 * 2;
}

__attribute__((target("avx512f"))) uint64_t Fp32Avx512(uint64_t iterations) {
  volatile float start = 0.5f;
  __m512 sum[kAccumulators];
  for (__m512& value : sum) value = _mm512_set1_ps(start);
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (uint64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kAccumulators; ++s) sum[s] = _mm512_fmadd_ps(sum[s], a, b);
  }
  __m512 total = sum[0];
  for (int s = 1; s < kAccumulators; ++s) total = _mm512_add_ps(total, sum[s]);
  start = _mm512_cvtss_f32(total);
  return iterations * kAccumulators * 16 * 2;
}

__attribute__((target("avx512f,avx512bf16"))) uint64_t Bf16Avx512(uint64_t iterations) {
  volatile float start = 0.5f;
  __m512 sum[kAccumulators];
  for (__m512& value : sum) value = _mm512_set1_ps(start);
  const __m512i ones = _mm512_set1_epi32(0x3F803F80);  // pairs of bf16 1.0
  __m512bh a, b;
  std::memcpy(&a, &ones, sizeof(a));
  std::memcpy(&b, &ones, sizeof(b));
  for (uint64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kAccumulators; ++s) sum[s] = _mm512_dpbf16_ps(sum[s], a, b);
  }
  __m512 total = sum[0];
  for (int s = 1; s < kAccumulators; ++s) total = _mm512_add_ps(total, sum[s]);
  start = _mm512_cvtss_f32(total);
  return iterations * kAccumulators * 32 * 2;
}

#endif  // __x86_64__

template <int kStreams>
ReadFunction Reader() {
#if defined(__x86_64__)
  if (CPU_FEATURE_ACTIVE(AVX512F)) return ReadAvx512<kStreams>;
  if (CPU_FEATURE_ACTIVE(AVX2)) return ReadAvx2<kStreams>;
#endif
  return ReadPortable<kStreams>;
}

}  // namespace

ReadFunction ReaderOf(int streams) {
  if (streams == 1) return Reader<1>();
  return streams == 2 ? Reader<2>() : Reader<4>();
}

FlopsFunction Fp32Function() {
#if defined(__x86_64__)
  if (CPU_FEATURE_ACTIVE(AVX512F)) return Fp32Avx512;
  if (CPU_FEATURE_ACTIVE(AVX2) && CPU_FEATURE_ACTIVE(FMA)) return Fp32Avx2;
#endif
  return Fp32Portable;
}

FlopsFunction Bf16Function() {
#if defined(__x86_64__)
  if (CPU_FEATURE_ACTIVE(AVX512_BF16)) return Bf16Avx512;
#endif
  return nullptr;
}

}  // namespace mainarch::cli
