// SPDX-License-Identifier: MIT
//
// Sixteen fp32 lanes on AVX-512 (F, BW, VL, DQ, VBMI). Same names and meaning as avx2.h and
// portable.h. Included once, through simd.h, inside the target's own namespace: nothing here may
// become an inline function that the linker could hand to code built for another target.

using V = __m512;

static inline V Zero() { return _mm512_setzero_ps(); }
static inline V Set(float x) { return _mm512_set1_ps(x); }
static inline V Load(const float* p) { return _mm512_loadu_ps(p); }
static inline void Store(float* p, V a) { _mm512_storeu_ps(p, a); }
static inline V Add(V a, V b) { return _mm512_add_ps(a, b); }
static inline V Sub(V a, V b) { return _mm512_sub_ps(a, b); }
static inline V Mul(V a, V b) { return _mm512_mul_ps(a, b); }
static inline V Div(V a, V b) { return _mm512_div_ps(a, b); }
static inline V Fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
static inline V Max(V a, V b) { return _mm512_max_ps(a, b); }
static inline V Min(V a, V b) { return _mm512_min_ps(a, b); }
static inline V Abs(V a) { return _mm512_abs_ps(a); }
static inline V Round(V a) { return _mm512_roundscale_ps(a, 0); }
// a * 2^n for integral n.
static inline V ScaleByPower(V a, V n) { return _mm512_scalef_ps(a, n); }
// The first n lanes of a, `other` in the rest.
static inline V First(int n, V a, V other) {
  const __mmask16 m = n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
  return _mm512_mask_blend_ps(m, other, a);
}

static inline V FromBits(__m512i a) { return _mm512_castsi512_ps(a); }
static inline V BF16ToF32(__m256i a) {
  return FromBits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(a), 16));
}
static inline V LoadBF16(const uint16_t* p) {
  return BF16ToF32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
static inline V LoadF16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// Round to nearest even; NaN stays NaN.
static inline void StoreBF16(uint16_t* p, V a) {
  const __m512i bits = _mm512_castps_si512(a);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_add_epi32(bits, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
  const __m512i out = _mm512_mask_blend_epi32(nan, rounded, _mm512_set1_epi32(0x7fc00000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(out, 16)));
}

// 16 e4m3fn bytes.
static inline V LoadFp8(const uint8_t* p) {
  const __m512i b =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(b, _mm512_set1_epi32(0x80)), 24);
  const __m512i mag = _mm512_slli_epi32(_mm512_and_si512(b, _mm512_set1_epi32(0x7f)), 20);
  // Exponent bias 7 against 127; denormal codes become fp32 denormals, both mended by 2^120.
  const V value = Mul(FromBits(mag), Set(0x1p120f));
  return FromBits(_mm512_or_si512(_mm512_castps_si512(value), sign));
}

// Eight rows of eight become eight columns.
static inline void Transpose8(__m256 r[8]) {
  __m256 pair[8], quad[8];
  for (int i = 0; i < 4; ++i) {  // columns 0 1 4 5 and 2 3 6 7 of rows 2 i and 2 i + 1
    pair[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    pair[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {  // columns c and c + 4 of rows 4 i to 4 i + 3
    for (int half = 0; half < 2; ++half) {
      const __m256 a = pair[4 * i + half], b = pair[4 * i + 2 + half];
      quad[4 * i + 2 * half] = _mm256_shuffle_ps(a, b, 0x44);
      quad[4 * i + 2 * half + 1] = _mm256_shuffle_ps(a, b, 0xee);
    }
  }
  for (int c = 0; c < 4; ++c) {
    r[c] = _mm256_permute2f128_ps(quad[c], quad[4 + c], 0x20);
    r[c + 4] = _mm256_permute2f128_ps(quad[c], quad[4 + c], 0x31);
  }
}

// Panels: a lane is a row; a step of 64 bytes (fp32: 128) holds kStep consecutive columns.

static inline void PairsToF32(__m512i pairs, V* w) {
  w[0] = FromBits(_mm512_slli_epi32(pairs, 16));
  w[1] = FromBits(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

static inline void DecodeBF16(const uint8_t* p, V w[2]) { PairsToF32(_mm512_loadu_si512(p), w); }

static inline void DecodeF16(const uint8_t* p, V w[2]) {
  const __m512i pairs = _mm512_loadu_si512(p);
  w[0] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs));
  w[1] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16)));
}

static inline void DecodeF32(const uint8_t* p, V w[2]) {
  w[0] = Load(reinterpret_cast<const float*>(p));
  w[1] = Load(reinterpret_cast<const float*>(p) + 16);
}

// Tables of the bf16 bytes of the 128 non-negative e4m3fn codes (built by kernels/tables.h).
struct DecodeTables {
  __m512i fp8_high[2], fp8_low[2];  // 64 codes each
  __m512i fp4;                      // 16 words, twice
  __m512i fp4_low, fp4_high;        // their bytes, in every 128 bits
  V fp4_floats;
};

static inline DecodeTables LoadTables(const uint8_t* fp8_high, const uint8_t* fp8_low,
                                      const uint16_t* fp4) {
  DecodeTables t;
  for (int i = 0; i < 2; ++i) {
    t.fp8_high[i] = _mm512_loadu_si512(fp8_high + 64 * i);
    t.fp8_low[i] = _mm512_loadu_si512(fp8_low + 64 * i);
  }
  t.fp4 = _mm512_loadu_si512(fp4);
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(fp4));
  t.fp4_low = _mm512_broadcast_i32x4(_mm256_cvtepi16_epi8(words));
  t.fp4_high = _mm512_broadcast_i32x4(_mm256_cvtepi16_epi8(_mm256_srli_epi16(words, 8)));
  t.fp4_floats = BF16ToF32(words);
  return t;
}

// Pairs of columns as bf16: 16 rows of two.
static inline void DecodeFp8Words(const uint8_t* p, const DecodeTables& t, __m512i w[2]) {
  const __m512i code = _mm512_loadu_si512(p);
  const __m512i low = _mm512_permutex2var_epi8(t.fp8_low[0], code, t.fp8_low[1]);
  __m512i high = _mm512_permutex2var_epi8(t.fp8_high[0], code, t.fp8_high[1]);
  high = _mm512_ternarylogic_epi64(high, code, _mm512_set1_epi8(static_cast<char>(0x80)),
                                   0xf8);  // high | (code & 0x80)
  w[0] = _mm512_unpacklo_epi8(low, high);
  w[1] = _mm512_unpackhi_epi8(low, high);
}
static inline void DecodeFp4Words(const uint8_t* p, const DecodeTables& t, __m512i w[4]) {
  const __m512i codes = _mm512_loadu_si512(p);
  // Only 5 bits of a word index count, and the table holds its 16 words twice.
  w[0] = _mm512_permutexvar_epi16(codes, t.fp4);
  w[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), t.fp4);
  w[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), t.fp4);
  w[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 12), t.fp4);
}

static inline void DecodeFp8(const uint8_t* p, const DecodeTables& t, V w[4]) {
  __m512i pairs[2];
  DecodeFp8Words(p, t, pairs);
  PairsToF32(pairs[0], w);
  PairsToF32(pairs[1], w + 2);
}

static inline void DecodeFp4(const uint8_t* p, const DecodeTables& t, V w[8]) {
  __m512i pairs[4];
  DecodeFp4Words(p, t, pairs);
  PairsToF32(pairs[0], w);
  PairsToF32(pairs[1], w + 2);
  PairsToF32(pairs[2], w + 4);
  PairsToF32(pairs[3], w + 6);
}

static inline V LoadU8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
static inline V LoadI8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// Four columns of bytes with a sign.
static inline void DecodeInt8(const uint8_t* p, V w[4]) {
  const __m512i codes = _mm512_loadu_si512(p);
  w[0] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(codes, 24), 24));
  w[1] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(codes, 16), 24));
  w[2] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(codes, 8), 24));
  w[3] = _mm512_cvtepi32_ps(_mm512_srai_epi32(codes, 24));
}
// Sixteen columns of five bits (kernels.h, q5k); t.fp4 holds the 32 values.
static inline void DecodeUint5Words(const uint8_t* p, const DecodeTables& t, __m512i w[8]) {
  const __m512i high =
      _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 128)));
  const __m512i first = _mm512_loadu_si512(p), second = _mm512_loadu_si512(p + 64);
  const __m512i fifth = _mm512_set1_epi16(0x10);
  // 0xca: of `fifth` bits those of the second operand, the others of the third. Five bits count.
  const auto word = [&](__m512i up, __m512i codes) {
    return _mm512_permutexvar_epi16(_mm512_ternarylogic_epi64(fifth, up, codes, 0xca), t.fp4);
  };
  w[0] = word(_mm512_slli_epi16(high, 4), first);
  w[1] = word(_mm512_slli_epi16(high, 3), _mm512_srli_epi16(first, 4));
  w[2] = word(_mm512_slli_epi16(high, 2), _mm512_srli_epi16(first, 8));
  w[3] = word(_mm512_slli_epi16(high, 1), _mm512_srli_epi16(first, 12));
  w[4] = word(high, second);
  w[5] = word(_mm512_srli_epi16(high, 1), _mm512_srli_epi16(second, 4));
  w[6] = word(_mm512_srli_epi16(high, 2), _mm512_srli_epi16(second, 8));
  w[7] = word(_mm512_srli_epi16(high, 3), _mm512_srli_epi16(second, 12));
}
template <int kLess>  // what the table has codes less
static inline void DecodeUint5(const uint8_t* p, const DecodeTables& t, V w[16]) {
  __m512i pairs[8];
  DecodeUint5Words(p, t, pairs);
  for (int i = 0; i < 8; ++i) PairsToF32(pairs[i], w + 2 * i);
}
// Eight columns of six bits (kernels.h, q6k); t.fp4 holds the first 32 of the values, `codes` all.
static inline void DecodeInt6Words(const uint8_t* p, const uint16_t* codes, const DecodeTables& t,
                                   __m512i w[4]) {
  const __m512i high =
      _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 64)));
  const __m512i low = _mm512_loadu_si512(p), more = _mm512_loadu_si512(codes + 32);
  const __m512i both = _mm512_set1_epi16(0x30);
  const auto word = [&](__m512i up, __m512i nibbles) {  // six bits count
    return _mm512_permutex2var_epi16(t.fp4, _mm512_ternarylogic_epi64(both, up, nibbles, 0xca), more);
  };
  w[0] = word(_mm512_slli_epi16(high, 4), low);
  w[1] = word(_mm512_slli_epi16(high, 2), _mm512_srli_epi16(low, 4));
  w[2] = word(high, _mm512_srli_epi16(low, 8));
  w[3] = word(_mm512_srli_epi16(high, 2), _mm512_srli_epi16(low, 12));
}
static inline void DecodeInt6(const uint8_t* p, const uint16_t* codes, const DecodeTables& t,
                              V w[8]) {
  __m512i pairs[4];
  DecodeInt6Words(p, codes, t, pairs);
  for (int i = 0; i < 4; ++i) PairsToF32(pairs[i], w + 2 * i);
}

// 16 e8m0 bytes; 0 is 2^-127, a denormal.
static inline V LoadE8M0(const uint8_t* p) {
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i bits = _mm512_slli_epi32(e, 23);
  return FromBits(_mm512_mask_blend_epi32(_mm512_test_epi32_mask(e, e),
                                          _mm512_set1_epi32(0x00400000), bits));
}

// 16 e5m3 bytes: the tops of fp16 without sign.
static inline V LoadE5M3(const uint8_t* p) {
  const __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtph_ps(_mm256_slli_epi16(codes, 7));
}
// 64 bytes of K of four bits (cpu/kernels.h KeyAt): eight columns of 16 tokens.
static inline void DecodeKvFp4(const uint8_t* p, const DecodeTables& t, V w[8]) {
  const __m512i codes = _mm512_loadu_si512(p), nibble = _mm512_set1_epi8(0xf);
  for (int half = 0; half < 2; ++half) {
    const __m512i code = _mm512_and_si512(half == 0 ? codes : _mm512_srli_epi16(codes, 4), nibble);
    const __m512i low = _mm512_shuffle_epi8(t.fp4_low, code);
    const __m512i high = _mm512_shuffle_epi8(t.fp4_high, code);
    PairsToF32(_mm512_unpacklo_epi8(low, high), w + 4 * half);
    PairsToF32(_mm512_unpackhi_epi8(low, high), w + 4 * half + 2);
  }
}
// 16 bytes of V of four bits (ValueAt): a block of 32.
static inline void DecodeKvFp4Block(const uint8_t* p, const DecodeTables& t, V v[2]) {
  const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  v[0] = _mm512_permutexvar_ps(codes, t.fp4_floats);  // only four bits of an index count
  v[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), t.fp4_floats);
}
static inline int KvFp4Dim(int i, int lane) { return 16 * i + lane; }

// Pairs of bf16 in 16 lanes.
using Pairs = __m512i;
static inline Pairs LoadPairs(const void* p) { return _mm512_loadu_si512(p); }
static inline void StorePairs(void* p, Pairs a) { _mm512_storeu_si512(p, a); }
static inline void DecodeFp8Pairs(const uint8_t* p, const DecodeTables& t, Pairs w[2]) {
  DecodeFp8Words(p, t, w);
}
static inline void DecodeFp4Pairs(const uint8_t* p, const DecodeTables& t, Pairs w[4]) {
  DecodeFp4Words(p, t, w);
}
static inline void DecodeUint5Pairs(const uint8_t* p, const DecodeTables& t, Pairs w[8]) {
  DecodeUint5Words(p, t, w);
}
static inline void DecodeInt6Pairs(const uint8_t* p, const uint16_t* codes, const DecodeTables& t,
                                   Pairs w[4]) {
  DecodeInt6Words(p, codes, t, w);
}
// Of columns that bf16 holds exactly.
static inline void PairsOfF32(const V* columns, int count, Pairs* pairs) {
  for (int i = 0; i < count; ++i) {
    const __m512i even = _mm512_srli_epi32(_mm512_castps_si512(columns[2 * i]), 16);
    pairs[i] = _mm512_ternarylogic_epi64(_mm512_set1_epi32(0xffff), even,
                                         _mm512_castps_si512(columns[2 * i + 1]), 0xca);
  }
}
#if defined(MAINARCH_BF16_DOT)
static inline Pairs Ones() { return _mm512_set1_epi16(0x3f80); }
static inline Pairs SetPair(const uint16_t* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, 4);
  return _mm512_set1_epi32(pair);
}
// acc + w.odd * x.odd + w.even * x.even: exact products, each sum rounded to nearest even, denormals
// taken for and made zero.
static inline V DotPairs(V acc, Pairs w, Pairs x) {
  return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);
}
#endif
