// SPDX-License-Identifier: MIT
//
// Sixty-four bytes, four columns of a panel's sixteen rows (row r's four are bytes 4 r to 4 r + 3), and
// their products with four bytes that all rows share, summed in integers: exact, in whatever order.
//
//   LoadB, SetB             64 bytes; one byte, or one 16-bit word, everywhere
//   AndB, OrB, ShiftLeftB<n>, ShiftRightB<n>   of 16-bit words
//   WidenB                  32 bytes as words
//   LookupB(table, codes)   table[code] of 16 bytes, codes of four bits
//   SignedB(codes)          bytes with a sign as DotB<true> takes them: kSignedLess more than they are
//   DotB<kSigned>(sums, codes, x)   sums += codes . x, x being four bytes with a sign, of at most 127
//   FloatsOfB<kSigned>(sums, less)  sums less `less`, as floats; of two sums, both
//
// Matrices of bytes (AArch64's I8MM, kMatrixB) take two rows of x:
//   DotRowsB(sums, first, second, x)  of two times four columns, and eight bytes of either row
//   SumsOfRow<i>(sums)                of row i
//
// Where sums are of 16 bits (AVX2 without VNNI, codes without a sign) they hold 2 * 127 * code of so many additions as
// fit into 32767: the caller sees to that (kNarrowSums).
#ifndef MAINARCH_BACKEND_CPU_SIMD_BYTES_H_
#define MAINARCH_BACKEND_CPU_SIMD_BYTES_H_

#include "backend/cpu/simd/simd.h"

namespace mainarch::cpu::MAINARCH_TARGET {

// Vectors of bytes are registers, but for those of portable code, whose loops gcc takes minutes to unroll.
#if defined(MAINARCH_TARGET_avx512) || defined(MAINARCH_TARGET_avx2) || defined(MAINARCH_TARGET_neon)
#define MAINARCH_UNROLL_BYTES MAINARCH_UNROLL
#define MAINARCH_INLINE_BYTES inline __attribute__((always_inline))
#else
#define MAINARCH_UNROLL_BYTES
#define MAINARCH_INLINE_BYTES inline
#endif

#if defined(MAINARCH_TARGET_neon_i8mm)
static constexpr bool kMatrixB = true;
#else
static constexpr bool kMatrixB = false;
#endif

static inline int32_t FourBytes(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return four;
}

#if defined(MAINARCH_TARGET_avx512)

static constexpr bool kNarrowSums = false;
static constexpr int kSignedLess = 128;  // the instruction takes codes without a sign
using Bytes = __m512i;
using ByteSums = __m512i;
static inline Bytes LoadB(const uint8_t* p) { return _mm512_loadu_si512(p); }
static inline Bytes SetB(uint8_t byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
static inline Bytes SetWordsB(uint16_t word) { return _mm512_set1_epi16(static_cast<int16_t>(word)); }
static inline Bytes AndB(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
static inline Bytes OrB(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
template <int n>
static inline Bytes ShiftLeftB(Bytes a) { return _mm512_slli_epi16(a, n); }
template <int n>
static inline Bytes ShiftRightB(Bytes a) { return _mm512_srli_epi16(a, n); }
static inline Bytes WidenB(const uint8_t* p) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
static inline Bytes LookupB(const uint8_t* table, Bytes codes) {
  return _mm512_shuffle_epi8(
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), codes);
}
static inline Bytes SignedB(Bytes codes) { return _mm512_xor_si512(codes, SetB(0x80)); }
static inline ByteSums ZeroB() { return _mm512_setzero_si512(); }
template <bool>
static inline void DotB(ByteSums& sums, Bytes codes, const int8_t* x) {
  sums = _mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(FourBytes(x)));
}
template <bool>
static inline V FloatsOfB(ByteSums sums, int32_t less) {
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(sums, _mm512_set1_epi32(less)));
}
template <bool>
static inline V FloatsOfB(ByteSums a, ByteSums b, int32_t less) {
  return FloatsOfB<true>(_mm512_add_epi32(a, b), less);
}
// Sixteen floats, rounded already, as bytes with a sign.
static inline void StoreInt8(int8_t* out, V a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}

#elif defined(MAINARCH_TARGET_avx2)

#if defined(MAINARCH_TARGET_avx2_vnni)
static constexpr bool kNarrowSums = false;
static constexpr int kSignedLess = 128;  // as AVX-512's
#else
static constexpr bool kNarrowSums = true;
static constexpr int kSignedLess = 0;
#endif
struct Bytes {
  __m256i lo, hi;
};
using ByteSums = Bytes;
static inline Bytes LoadB(const uint8_t* p) { return {Load256(p), Load256(p + 32)}; }
static inline Bytes Both(__m256i a) { return {a, a}; }
static inline Bytes SetB(uint8_t byte) { return Both(_mm256_set1_epi8(static_cast<char>(byte))); }
static inline Bytes SetWordsB(uint16_t word) { return Both(_mm256_set1_epi16(static_cast<int16_t>(word))); }
static inline Bytes AndB(Bytes a, Bytes b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
static inline Bytes OrB(Bytes a, Bytes b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
template <int n>
static inline Bytes ShiftLeftB(Bytes a) { return {_mm256_slli_epi16(a.lo, n), _mm256_slli_epi16(a.hi, n)}; }
template <int n>
static inline Bytes ShiftRightB(Bytes a) { return {_mm256_srli_epi16(a.lo, n), _mm256_srli_epi16(a.hi, n)}; }
static inline Bytes WidenB(const uint8_t* p) {
  return {_mm256_cvtepu8_epi16(Load128(p)), _mm256_cvtepu8_epi16(Load128(p + 16))};
}
static inline Bytes LookupB(const uint8_t* table, Bytes codes) {
  const __m256i t = _mm256_broadcastsi128_si256(Load128(table));
  return {_mm256_shuffle_epi8(t, codes.lo), _mm256_shuffle_epi8(t, codes.hi)};
}
static inline ByteSums ZeroB() { return Both(_mm256_setzero_si256()); }
static inline V FloatsLess(__m256i lo, __m256i hi, int32_t less) {
  const __m256i by = _mm256_set1_epi32(less);
  return {_mm256_cvtepi32_ps(_mm256_sub_epi32(lo, by)), _mm256_cvtepi32_ps(_mm256_sub_epi32(hi, by))};
}
#if defined(MAINARCH_TARGET_avx2_vnni)
static inline Bytes SignedB(Bytes codes) {
  const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
  return {_mm256_xor_si256(codes.lo, sign), _mm256_xor_si256(codes.hi, sign)};
}
template <bool>
static inline void DotB(ByteSums& sums, Bytes codes, const int8_t* x) {
  const __m256i four = _mm256_set1_epi32(FourBytes(x));
  sums = {_mm256_dpbusd_avx_epi32(sums.lo, codes.lo, four), _mm256_dpbusd_avx_epi32(sums.hi, codes.hi, four)};
}
template <bool>
static inline V FloatsOfB(ByteSums sums, int32_t less) {
  return FloatsLess(sums.lo, sums.hi, less);
}
template <bool>
static inline V FloatsOfB(ByteSums a, ByteSums b, int32_t less) {
  return FloatsLess(_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi), less);
}
#else
static inline Bytes SignedB(Bytes codes) { return codes; }
static inline __m256i SignedPairs(__m256i codes, __m256i x) {
  // At most 2 * 128 * 127: no sum saturates.
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
template <bool kSigned>
static inline void DotB(ByteSums& sums, Bytes codes, const int8_t* x) {
  const __m256i four = _mm256_set1_epi32(FourBytes(x));
  if constexpr (kSigned) {
    sums.lo = _mm256_add_epi32(sums.lo, SignedPairs(codes.lo, four));
    sums.hi = _mm256_add_epi32(sums.hi, SignedPairs(codes.hi, four));
  } else {
    sums.lo = _mm256_add_epi16(sums.lo, _mm256_maddubs_epi16(codes.lo, four));
    sums.hi = _mm256_add_epi16(sums.hi, _mm256_maddubs_epi16(codes.hi, four));
  }
}
template <bool kSigned>
static inline __m256i WideSums(__m256i sums) {
  return kSigned ? sums : _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}
template <bool kSigned>
static inline V FloatsOfB(ByteSums sums, int32_t less) {
  return FloatsLess(WideSums<kSigned>(sums.lo), WideSums<kSigned>(sums.hi), less);
}
template <bool kSigned>
static inline V FloatsOfB(ByteSums a, ByteSums b, int32_t less) {
  return FloatsLess(_mm256_add_epi32(WideSums<kSigned>(a.lo), WideSums<kSigned>(b.lo)),
                    _mm256_add_epi32(WideSums<kSigned>(a.hi), WideSums<kSigned>(b.hi)), less);
}
// Codes with a sign as words: out [2][16][2], two columns and two more.
static inline void StoreWords(Bytes codes, int16_t* out) {
  const __m256i mask = _mm256_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1, 0, -1, 1, -1, 4, -1, 5, -1,
                                        8, -1, 9, -1, 12, -1, 13);
  __m256i* to = reinterpret_cast<__m256i*>(out);
  for (int half = 0; half < 2; ++half) {
    const __m256i of = half == 0 ? codes.lo : codes.hi;
    _mm256_storeu_si256(to + half, _mm256_srai_epi16(_mm256_shuffle_epi8(of, mask), 8));
    _mm256_storeu_si256(to + half + 2, _mm256_srai_epi16(_mm256_shuffle_epi8(_mm256_srli_epi32(of, 16), mask), 8));
  }
}
// Bytes as words; n is a multiple of 4.
static inline void WidenWords(const int8_t* x, int64_t n, int16_t* out) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_cvtepi8_epi16(Load128(x + i)));
  }
  for (; i < n; ++i) out[i] = x[i];
}
// sums += pairs of words [16][2] . the two of x.
static inline void DotWords(ByteSums& sums, Bytes pairs, const int16_t* x) {
  int32_t both;
  __builtin_memcpy(&both, x, 4);
  const __m256i two = _mm256_set1_epi32(both);
  sums.lo = _mm256_add_epi32(sums.lo, _mm256_madd_epi16(pairs.lo, two));
  sums.hi = _mm256_add_epi32(sums.hi, _mm256_madd_epi16(pairs.hi, two));
  // Here and now: gcc 12 would load all rows' words first, and have no registers left for sums.
  asm volatile("" : "+x"(sums.lo), "+x"(sums.hi));
}
#endif
static inline void StoreInt8(int8_t* out, V a) {
  const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
  const __m256i in_order = _mm256_permute4x64_epi64(words, _MM_SHUFFLE(3, 1, 2, 0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                   _mm_packs_epi16(_mm256_castsi256_si128(in_order),
                                   _mm256_extracti128_si256(in_order, 1)));
}

#elif defined(MAINARCH_TARGET_neon)

static constexpr bool kNarrowSums = false;
static constexpr int kSignedLess = 0;
struct Bytes {
  uint8x16_t a, b, c, d;
};
struct ByteSums {
  int32x4_t a, b, c, d;
};
template <class Op>
static inline __attribute__((always_inline)) Bytes Each(const Op& op, Bytes x) {
  return {op(x.a), op(x.b), op(x.c), op(x.d)};
}
static inline Bytes LoadB(const uint8_t* p) { return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}; }
static inline Bytes All(uint8x16_t x) { return {x, x, x, x}; }
static inline Bytes SetB(uint8_t byte) { return All(vdupq_n_u8(byte)); }
static inline Bytes SetWordsB(uint16_t word) { return All(vreinterpretq_u8_u16(vdupq_n_u16(word))); }
static inline Bytes AndB(Bytes x, Bytes y) { return {vandq_u8(x.a, y.a), vandq_u8(x.b, y.b), vandq_u8(x.c, y.c), vandq_u8(x.d, y.d)}; }
static inline Bytes OrB(Bytes x, Bytes y) { return {vorrq_u8(x.a, y.a), vorrq_u8(x.b, y.b), vorrq_u8(x.c, y.c), vorrq_u8(x.d, y.d)}; }
template <int n>
static inline Bytes ShiftLeftB(Bytes x) {
  return Each([](uint8x16_t p) { return vreinterpretq_u8_u16(vshlq_n_u16(vreinterpretq_u16_u8(p), n)); }, x);
}
template <int n>
static inline Bytes ShiftRightB(Bytes x) {
  return Each([](uint8x16_t p) { return vreinterpretq_u8_u16(vshrq_n_u16(vreinterpretq_u16_u8(p), n)); }, x);
}
static inline Bytes WidenB(const uint8_t* p) {
  const auto eight = [p](int i) { return vreinterpretq_u8_u16(vmovl_u8(vld1_u8(p + 8 * i))); };
  return {eight(0), eight(1), eight(2), eight(3)};
}
static inline Bytes LookupB(const uint8_t* table, Bytes codes) {
  const uint8x16_t t = vld1q_u8(table);
  return Each([t](uint8x16_t p) { return vqtbl1q_u8(t, p); }, codes);
}
static inline Bytes SignedB(Bytes codes) { return codes; }
static inline ByteSums ZeroB() {
  const int32x4_t zero = vdupq_n_s32(0);
  return {zero, zero, zero, zero};
}
// Codes without a sign are of at most six bits: bytes with a sign hold them, too.
static inline int32x4_t DotOfB(int32x4_t sums, uint8x16_t codes, int8x16_t x) {
  const int8x16_t q = vreinterpretq_s8_u8(codes);
#if defined(MAINARCH_TARGET_neon_dot)
  return vdotq_s32(sums, q, x);
#else
  // A product fits into 16 bits; sums of two are of 32.
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(q), vget_low_s8(x)));
  const int32x4_t high = vpaddlq_s16(vmull_high_s8(q, x));
  return vaddq_s32(sums, vpaddq_s32(low, high));
#endif
}
template <bool>
static inline void DotB(ByteSums& sums, Bytes codes, const int8_t* x) {
  const int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(FourBytes(x)));
  sums = {DotOfB(sums.a, codes.a, four), DotOfB(sums.b, codes.b, four), DotOfB(sums.c, codes.c, four), DotOfB(sums.d, codes.d, four)};
}
template <bool>
static inline V FloatsOfB(ByteSums sums, int32_t less) {
  const int32x4_t by = vdupq_n_s32(less);
  return {vcvtq_f32_s32(vsubq_s32(sums.a, by)), vcvtq_f32_s32(vsubq_s32(sums.b, by)), vcvtq_f32_s32(vsubq_s32(sums.c, by)),
          vcvtq_f32_s32(vsubq_s32(sums.d, by))};
}
#if defined(MAINARCH_TARGET_neon_i8mm)
// Of two rows of x: in each four, rows 2 i and 2 i + 1 of the panel with the first and the second.
struct RowSums {
  int32x4_t pairs[8];
};
static inline RowSums ZeroRows() {
  const int32x4_t zero = vdupq_n_s32(0);
  return {{zero, zero, zero, zero, zero, zero, zero, zero}};
}
static inline void DotRowsOf(int32x4_t* pairs, uint8x16_t first, uint8x16_t second, int8x16_t x) {
  const uint32x4_t a = vreinterpretq_u32_u8(first), b = vreinterpretq_u32_u8(second);
  pairs[0] = vmmlaq_s32(pairs[0], vreinterpretq_s8_u32(vzip1q_u32(a, b)), x);
  pairs[1] = vmmlaq_s32(pairs[1], vreinterpretq_s8_u32(vzip2q_u32(a, b)), x);
}
static inline void DotRowsB(RowSums& sums, Bytes first, Bytes second, int8x16_t x) {
  DotRowsOf(sums.pairs, first.a, second.a, x);
  DotRowsOf(sums.pairs + 2, first.b, second.b, x);
  DotRowsOf(sums.pairs + 4, first.c, second.c, x);
  DotRowsOf(sums.pairs + 6, first.d, second.d, x);
}
template <int i>
static inline ByteSums SumsOfRow(const RowSums& sums) {
  const auto of = [&sums](int quarter) {
    const int32x4_t a = sums.pairs[2 * quarter], b = sums.pairs[2 * quarter + 1];
    return i == 0 ? vuzp1q_s32(a, b) : vuzp2q_s32(a, b);
  };
  return {of(0), of(1), of(2), of(3)};
}
#endif
static inline void StoreInt8(int8_t* out, V x) {
  const auto words = [](float32x4_t p, float32x4_t q) {
    return vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(p)), vqmovn_s32(vcvtnq_s32_f32(q)));
  };
  vst1q_s8(out, vcombine_s8(vqmovn_s16(words(x.a, x.b)), vqmovn_s16(words(x.c, x.d))));
}

#else

static constexpr bool kNarrowSums = false;
static constexpr int kSignedLess = 0;
struct Bytes {
  uint16_t words[32];
};
struct ByteSums {
  int32_t rows[16];
};
static inline Bytes LoadB(const uint8_t* p) {
  Bytes out;
  __builtin_memcpy(out.words, p, sizeof(out.words));
  return out;
}
static inline Bytes SetWordsB(uint16_t word) {
  Bytes out;
  for (uint16_t& w : out.words) w = word;
  return out;
}
static inline Bytes SetB(uint8_t byte) { return SetWordsB(static_cast<uint16_t>(byte | byte << 8)); }
static inline Bytes AndB(Bytes a, const Bytes& b) {
  for (int i = 0; i < 32; ++i) a.words[i] = static_cast<uint16_t>(a.words[i] & b.words[i]);
  return a;
}
static inline Bytes OrB(Bytes a, const Bytes& b) {
  for (int i = 0; i < 32; ++i) a.words[i] = static_cast<uint16_t>(a.words[i] | b.words[i]);
  return a;
}
template <int n>
static inline Bytes ShiftLeftB(Bytes a) {
  for (uint16_t& w : a.words) w = static_cast<uint16_t>(w << n);
  return a;
}
template <int n>
static inline Bytes ShiftRightB(Bytes a) {
  for (uint16_t& w : a.words) w = static_cast<uint16_t>(w >> n);
  return a;
}
static inline Bytes WidenB(const uint8_t* p) {
  Bytes out;
  for (int i = 0; i < 32; ++i) out.words[i] = p[i];
  return out;
}
static inline Bytes LookupB(const uint8_t* table, const Bytes& codes) {
  Bytes out;
  for (int i = 0; i < 32; ++i) {
    out.words[i] = static_cast<uint16_t>(table[codes.words[i] & 0xf] | table[codes.words[i] >> 8 & 0xf] << 8);
  }
  return out;
}
static inline Bytes SignedB(const Bytes& codes) { return codes; }
static inline ByteSums ZeroB() { return {}; }
template <bool kSigned>
static inline void DotB(ByteSums& sums, const Bytes& codes, const int8_t* x) {
  for (int row = 0; row < 16; ++row) {
    for (int i = 0; i < 4; ++i) {
      const int code = codes.words[2 * row + i / 2] >> (8 * (i % 2)) & 0xff;
      sums.rows[row] += (kSigned && code >= 128 ? code - 256 : code) * x[i];
    }
  }
}
template <bool>
static inline V FloatsOfB(const ByteSums& sums, int32_t less) {
  float out[16];
  for (int row = 0; row < 16; ++row) out[row] = static_cast<float>(sums.rows[row] - less);
  return Load(out);
}
template <bool>
static inline V FloatsOfB(ByteSums a, const ByteSums& b, int32_t less) {
  for (int row = 0; row < 16; ++row) a.rows[row] += b.rows[row];
  return FloatsOfB<true>(a, less);
}
static inline void StoreInt8(int8_t* out, V a) {
  float values[16];
  Store(values, a);
  for (int i = 0; i < 16; ++i) out[i] = static_cast<int8_t>(values[i]);
}

#endif

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_SIMD_BYTES_H_
