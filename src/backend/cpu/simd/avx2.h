// SPDX-License-Identifier: MIT
//
// Sixteen fp32 lanes on AVX2 + FMA + F16C, as two registers. See avx512.h.

struct V {
  __m256 lo, hi;
};

static inline V Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline V Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline V Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void Store(float* p, V a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
static inline V Add(V a, V b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
static inline V Sub(V a, V b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
static inline V Mul(V a, V b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
static inline V Div(V a, V b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
static inline V Fma(V a, V b, V c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline V Max(V a, V b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
static inline V Min(V a, V b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
static inline V Abs(V a) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(a.lo, mask), _mm256_and_ps(a.hi, mask)};
}
static inline V Round(V a) { return {_mm256_round_ps(a.lo, 8), _mm256_round_ps(a.hi, 8)}; }

static inline __m256 ScaleHalf(__m256 a, __m256 n) {
  // In two steps, so that results in the denormal range come out right.
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half);
  const __m256i bias = _mm256_set1_epi32(127);
  a = _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
  return _mm256_mul_ps(a,
                       _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}
static inline V ScaleByPower(V a, V n) { return {ScaleHalf(a.lo, n.lo), ScaleHalf(a.hi, n.hi)}; }

static inline V First(int n, V a, V other) {
  const __m256i at = _mm256_set1_epi32(n);
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i lo = _mm256_cmpgt_epi32(at, lane);
  const __m256i hi = _mm256_cmpgt_epi32(at, _mm256_add_epi32(lane, _mm256_set1_epi32(8)));
  return {_mm256_blendv_ps(other.lo, a.lo, _mm256_castsi256_ps(lo)),
          _mm256_blendv_ps(other.hi, a.hi, _mm256_castsi256_ps(hi))};
}

static inline __m256 Bits(__m256i a) { return _mm256_castsi256_ps(a); }
static inline __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
static inline __m256i Load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
static inline V LoadBF16(const uint16_t* p) {
  return {Bits(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p)), 16)),
          Bits(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p + 8)), 16))};
}
static inline V LoadF16(const uint16_t* p) {
  return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 8))};
}
static inline void StoreBF16(uint16_t* p, V a) {
  float lanes[16];
  Store(lanes, a);
  for (int i = 0; i < 16; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, &lanes[i], 4);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    p[i] = nan ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}
static inline __m256 Fp8Half(__m128i bytes) {
  const __m256i b = _mm256_cvtepu8_epi32(bytes);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(b, _mm256_set1_epi32(0x80)), 24);
  const __m256i mag = _mm256_slli_epi32(_mm256_and_si256(b, _mm256_set1_epi32(0x7f)), 20);
  // Exponent bias 7 against 127; denormal codes become fp32 denormals, both mended by 2^120.
  return _mm256_or_ps(_mm256_mul_ps(Bits(mag), _mm256_set1_ps(0x1p120f)), Bits(sign));
}
static inline V LoadFp8(const uint8_t* p) {
  const __m128i b = Load128(p);
  return {Fp8Half(b), Fp8Half(_mm_srli_si128(b, 8))};
}

static inline void HalfPairs(__m256i pairs, __m256* even, __m256* odd) {
  *even = Bits(_mm256_slli_epi32(pairs, 16));
  *odd = Bits(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
}
static inline void DecodeBF16(const uint8_t* p, V w[2]) {
  HalfPairs(Load256(p), &w[0].lo, &w[1].lo);
  HalfPairs(Load256(p + 32), &w[0].hi, &w[1].hi);
}
static inline __m256 LowWordsF16(__m256i pairs) {
  // The low word of each 32-bit lane, packed to eight words in order.
  const __m256i masked = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff));
  const __m256i packed = _mm256_packus_epi32(masked, masked);
  return _mm256_cvtph_ps(
      _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0))));
}
static inline void DecodeF16(const uint8_t* p, V w[2]) {
  const __m256i lo = Load256(p), hi = Load256(p + 32);
  w[0] = {LowWordsF16(lo), LowWordsF16(hi)};
  w[1] = {LowWordsF16(_mm256_srli_epi32(lo, 16)), LowWordsF16(_mm256_srli_epi32(hi, 16))};
}
static inline void DecodeF32(const uint8_t* p, V w[2]) {
  w[0] = Load(reinterpret_cast<const float*>(p));
  w[1] = Load(reinterpret_cast<const float*>(p) + 16);
}

struct DecodeTables {
  __m256i fp4_high, fp4_low;  // bf16 bytes of the 16 codes, in both 128-bit lanes
};
static inline DecodeTables LoadTables(const uint8_t*, const uint8_t*, const uint16_t* fp4) {
  uint8_t high[16], low[16];
  for (int i = 0; i < 16; ++i) {
    high[i] = static_cast<uint8_t>(fp4[i] >> 8);
    low[i] = static_cast<uint8_t>(fp4[i]);
  }
  return {_mm256_broadcastsi128_si256(Load128(high)), _mm256_broadcastsi128_si256(Load128(low))};
}

static inline void DecodeFp8(const uint8_t* p, const DecodeTables&, V w[4]) {
  // A code in the high byte of a word; sign in place, the rest moved to where bf16 keeps it, times
  // 2^120 for the exponent bias.
  for (int half = 0; half < 2; ++half) {
    const __m256i codes = Load256(p + 32 * half);
    for (int pair = 0; pair < 2; ++pair) {
      const __m256i zero = _mm256_setzero_si256();
      const __m256i word = pair == 0 ? _mm256_unpacklo_epi8(zero, codes)
                                     : _mm256_unpackhi_epi8(zero, codes);
      const __m256i sign = _mm256_and_si256(word, _mm256_set1_epi16(static_cast<int16_t>(0x8000)));
      const __m256i mag =
          _mm256_srli_epi16(_mm256_and_si256(word, _mm256_set1_epi16(0x7f00)), 4);
      __m256 even, odd;
      HalfPairs(_mm256_or_si256(sign, mag), &even, &odd);
      even = _mm256_mul_ps(even, _mm256_set1_ps(0x1p120f));
      odd = _mm256_mul_ps(odd, _mm256_set1_ps(0x1p120f));
      (half == 0 ? w[2 * pair].lo : w[2 * pair].hi) = even;
      (half == 0 ? w[2 * pair + 1].lo : w[2 * pair + 1].hi) = odd;
    }
  }
}

static inline __m256i Fp4Words(__m256i codes, const DecodeTables& t) {
  // codes: one nibble in the low byte of each word. The high byte of the index selects code 0 of
  // `low` in the wrong byte, so build both bytes from the nibble.
  const __m256i low = _mm256_shuffle_epi8(t.fp4_low, codes);
  const __m256i high = _mm256_shuffle_epi8(t.fp4_high, codes);
  return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi16(0x00ff)),
                         _mm256_slli_epi16(high, 8));
}
static inline void DecodeFp4(const uint8_t* p, const DecodeTables& t, V w[8]) {
  for (int half = 0; half < 2; ++half) {
    __m256i codes = Load256(p + 32 * half);
    for (int i = 0; i < 4; ++i) {
      const __m256i words = Fp4Words(_mm256_and_si256(codes, _mm256_set1_epi16(0xf)), t);
      __m256 even, odd;
      HalfPairs(words, &even, &odd);
      (half == 0 ? w[2 * i].lo : w[2 * i].hi) = even;
      (half == 0 ? w[2 * i + 1].lo : w[2 * i + 1].hi) = odd;
      codes = _mm256_srli_epi16(codes, 4);
    }
  }
}
static inline V LoadU8(const uint8_t* p) {
  const __m128i b = Load128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(b)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(b, 8)))};
}
static inline V LoadI8(const uint8_t* p) {
  const __m128i b = Load128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8)))};
}
static inline void DecodeInt8(const uint8_t* p, V w[4]) {
  for (int half = 0; half < 2; ++half) {
    __m256i codes = Load256(p + 32 * half);
    const __m256 c[4] = {
        _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(codes, 24), 24)),
        _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(codes, 16), 24)),
        _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(codes, 8), 24)),
        _mm256_cvtepi32_ps(_mm256_srai_epi32(codes, 24))};
    for (int i = 0; i < 4; ++i) (half == 0 ? w[i].lo : w[i].hi) = c[i];
  }
}
// Words of integers below 128 as floats, less `offset` - 128: with the bits of bf16's 128 such a word is
// 128 plus the integer.
static inline void WordsToF32(__m256i words, __m256 offset, __m256* even, __m256* odd) {
  HalfPairs(_mm256_or_si256(words, _mm256_set1_epi16(0x4300)), even, odd);
  *even = _mm256_sub_ps(*even, offset);
  *odd = _mm256_sub_ps(*odd, offset);
}
// Sixteen columns of five bits (kernels.h, q5k), less kLess.
template <int kLess>
static inline void DecodeUint5(const uint8_t* p, const DecodeTables&, V w[16]) {
  const __m256i nibble = _mm256_set1_epi16(0xf), fifth = _mm256_set1_epi16(0x10);
  const __m256 offset = _mm256_set1_ps(128 + kLess);
  for (int half = 0; half < 2; ++half) {
    __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(Load128(p + 128 + 16 * half)), 4);
    for (int i = 0; i < 8; ++i) {
      const __m256i codes = _mm256_srli_epi16(Load256(p + i / 4 * 64 + 32 * half), i % 4 * 4);
      __m256 even, odd;
      WordsToF32(_mm256_or_si256(_mm256_and_si256(codes, nibble), _mm256_and_si256(high, fifth)),
                 offset, &even, &odd);
      (half == 0 ? w[2 * i].lo : w[2 * i].hi) = even;
      (half == 0 ? w[2 * i + 1].lo : w[2 * i + 1].hi) = odd;
      high = _mm256_srli_epi16(high, 1);
    }
  }
}
static inline void DecodeInt6(const uint8_t* p, const uint16_t*, const DecodeTables&, V w[8]) {
  const __m256i nibble = _mm256_set1_epi16(0xf), both = _mm256_set1_epi16(0x30);
  const __m256 offset = _mm256_set1_ps(128 + 32);
  for (int half = 0; half < 2; ++half) {
    __m256i codes = Load256(p + 32 * half);
    __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(Load128(p + 64 + 16 * half)), 4);
    for (int i = 0; i < 4; ++i) {
      __m256 even, odd;
      WordsToF32(_mm256_or_si256(_mm256_and_si256(codes, nibble), _mm256_and_si256(high, both)),
                 offset, &even, &odd);
      (half == 0 ? w[2 * i].lo : w[2 * i].hi) = even;
      (half == 0 ? w[2 * i + 1].lo : w[2 * i + 1].hi) = odd;
      codes = _mm256_srli_epi16(codes, 4);
      high = _mm256_srli_epi16(high, 2);
    }
  }
}
static inline __m256 E8M0Half(__m128i bytes) {
  const __m256i e = _mm256_cvtepu8_epi32(bytes);
  const __m256i zero = _mm256_cmpeq_epi32(e, _mm256_setzero_si256());
  return Bits(_mm256_or_si256(_mm256_slli_epi32(e, 23),
                              _mm256_and_si256(zero, _mm256_set1_epi32(0x00400000))));
}
static inline V LoadE8M0(const uint8_t* p) {
  const __m128i b = Load128(p);
  return {E8M0Half(b), E8M0Half(_mm_srli_si128(b, 8))};
}

// 16 e5m3 bytes: the tops of fp16 without sign.
static inline V LoadE5M3(const uint8_t* p) {
  const __m256i words = _mm256_slli_epi16(_mm256_cvtepu8_epi16(Load128(p)), 7);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(words)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1))};
}
// The low nibbles of 32 bytes as bf16: bytes 0 to 7 of each 128 bits, then 8 to 15.
static inline void NibblesToBF16(__m256i codes, const DecodeTables& t, __m256i words[2]) {
  codes = _mm256_and_si256(codes, _mm256_set1_epi8(0xf));
  const __m256i low = _mm256_shuffle_epi8(t.fp4_low, codes);
  const __m256i high = _mm256_shuffle_epi8(t.fp4_high, codes);
  words[0] = _mm256_unpacklo_epi8(low, high);
  words[1] = _mm256_unpackhi_epi8(low, high);
}
// 64 bytes of K of four bits (cpu/kernels.h KeyAt): eight columns of 16 tokens.
static inline void DecodeKvFp4(const uint8_t* p, const DecodeTables& t, V w[8]) {
  const __m256i first = Load256(p), second = Load256(p + 32);
  for (int half = 0; half < 2; ++half) {
    __m256i lo[2], hi[2];
    NibblesToBF16(half == 0 ? first : _mm256_srli_epi16(first, 4), t, lo);
    NibblesToBF16(half == 0 ? second : _mm256_srli_epi16(second, 4), t, hi);
    for (int pair = 0; pair < 2; ++pair) {
      V* out = w + 4 * half + 2 * pair;
      HalfPairs(lo[pair], &out[0].lo, &out[1].lo);
      HalfPairs(hi[pair], &out[0].hi, &out[1].hi);
    }
  }
}
// 16 bytes of V of four bits (ValueAt): a block of 32.
static inline void DecodeKvFp4Block(const uint8_t* p, const DecodeTables& t, V v[2]) {
  const __m128i codes = Load128(p);
  __m256i words[2];
  NibblesToBF16(_mm256_set_m128i(_mm_srli_epi16(codes, 4), codes), t, words);
  HalfPairs(words[0], &v[0].lo, &v[1].lo);
  HalfPairs(words[1], &v[0].hi, &v[1].hi);
}
// Lane 8 h + 4 s + j of vector i came from word 2 j + i of 128 bits s of words h.
static inline int KvFp4Dim(int i, int lane) { return lane % 8 / 4 * 16 + lane / 8 * 8 + lane % 4 * 2 + i; }
