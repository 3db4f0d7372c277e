// SPDX-License-Identifier: MIT
#include "backend/cpu/transpose.h"

#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
// The intrinsics' own undefined vectors are taken for uninitialised variables by gcc 12.
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif

#include "base/cpu_features.h"

namespace mainarch::cpu {
namespace {

constexpr int kRows = 16;

uint32_t SplitNibbles(uint32_t word) {
  const auto even = [](uint32_t x) {
    x &= 0x0f0f0f0f;
    x = (x | x >> 4) & 0x00ff00ff;
    return (x | x >> 8) & 0xffff;
  };
  return even(word) | even(word >> 4) << 16;
}

#if defined(__x86_64__)

#define MAINARCH_AVX512 __attribute__((target("avx512f,avx512bw")))

template <WordOrder kOrder>
MAINARCH_AVX512 inline __m512i Reorder(__m512i x) {
  if constexpr (kOrder == WordOrder::kFp8) {
    // Byte i of the result is byte [i / 2 % 4][2 (i / 8) + i % 2] of four words of four bytes.
    const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(order));
  } else if constexpr (kOrder == WordOrder::kMxfp4) {
    const __m512i nibbles = _mm512_set1_epi32(0x0f0f0f0f), pairs = _mm512_set1_epi32(0x00ff00ff);
    const __m512i low = _mm512_set1_epi32(0xffff);
    __m512i even = _mm512_and_si512(x, nibbles);
    even = _mm512_and_si512(_mm512_or_si512(even, _mm512_srli_epi32(even, 4)), pairs);
    even = _mm512_and_si512(_mm512_or_si512(even, _mm512_srli_epi32(even, 8)), low);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 4), nibbles);
    odd = _mm512_and_si512(_mm512_or_si512(odd, _mm512_srli_epi32(odd, 4)), pairs);
    odd = _mm512_and_si512(_mm512_or_si512(odd, _mm512_srli_epi32(odd, 8)), low);
    return _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
  } else {
    return x;
  }
}

// 16 x 16 words, in four rounds of interleaving.
MAINARCH_AVX512 inline __attribute__((always_inline)) void Transpose16(__m512i* r) {
  __m512i t[kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

template <WordOrder kOrder>
MAINARCH_AVX512 void TransposeAvx512(const uint8_t* const* rows, int64_t words, uint8_t* out) {
  for (int64_t at = 0; at < words; at += kRows) {
    const int64_t count = words - at < kRows ? words - at : kRows;
    const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
    __m512i r[kRows];
#pragma GCC unroll 16
    for (int lane = 0; lane < kRows; ++lane) {
      r[lane] = rows[lane] == nullptr ? _mm512_setzero_si512()
                                      : _mm512_maskz_loadu_epi32(mask, rows[lane] + 4 * at);
    }
    Transpose16(r);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      if (i < count) _mm512_storeu_si512(out + 64 * (at + i), Reorder<kOrder>(r[i]));
    }
  }
}

bool HasAvx512() { return CPU_FEATURE_ACTIVE(AVX512F) && CPU_FEATURE_ACTIVE(AVX512BW); }

#endif  // __x86_64__

}  // namespace

void PortableTransposeWords(const uint8_t* const* rows, int64_t words, WordOrder order,
                            uint8_t* out) {
  for (int lane = 0; lane < kRows; ++lane) {
    for (int64_t i = 0; i < words; ++i) {
      uint32_t word = 0;
      if (rows[lane] != nullptr) std::memcpy(&word, rows[lane] + 4 * i, sizeof(word));
      uint8_t* step = out + 64 * i;
      if (order == WordOrder::kFp8) {
        uint8_t* to = step + 16 * (lane / 4) + 2 * (lane % 4);
        const uint16_t low = static_cast<uint16_t>(word), high = static_cast<uint16_t>(word >> 16);
        std::memcpy(to, &low, sizeof(low));
        std::memcpy(to + 8, &high, sizeof(high));
        continue;
      }
      if (order == WordOrder::kMxfp4) word = SplitNibbles(word);
      std::memcpy(step + 4 * lane, &word, sizeof(word));
    }
  }
}

void TransposeWords(const uint8_t* const* rows, int64_t words, WordOrder order, uint8_t* out) {
#if defined(__x86_64__)
  if (HasAvx512()) {
    switch (order) {
      case WordOrder::kPlain:
        return TransposeAvx512<WordOrder::kPlain>(rows, words, out);
      case WordOrder::kFp8:
        return TransposeAvx512<WordOrder::kFp8>(rows, words, out);
      case WordOrder::kMxfp4:
        return TransposeAvx512<WordOrder::kMxfp4>(rows, words, out);
    }
  }
#endif
  PortableTransposeWords(rows, words, order, out);
}

}  // namespace mainarch::cpu
