// SPDX-License-Identifier: MIT
//
// Sixteen fp32 lanes on AArch64, as four registers. Same names and meaning as avx512.h.

struct V {
  float32x4_t a, b, c, d;
};

// The same of each quarter.
template <class Op>
static inline __attribute__((always_inline)) V Quarters(const Op& op, V x) {
  return {op(x.a), op(x.b), op(x.c), op(x.d)};
}
template <class Op>
static inline __attribute__((always_inline)) V Quarters(const Op& op, V x, V y) {
  return {op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)};
}
// op(i), i the quarter, gives a float32x4_t.
template <class Op>
static inline __attribute__((always_inline)) V QuartersOf(const Op& op) {
  return {op(0), op(1), op(2), op(3)};
}
static inline float32x4_t& Quarter(V& v, int i) { return i == 0 ? v.a : i == 1 ? v.b : i == 2 ? v.c : v.d; }

static inline V Set(float x) {
  const float32x4_t all = vdupq_n_f32(x);
  return {all, all, all, all};
}
static inline V Zero() { return Set(0); }
static inline V Load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
static inline void Store(float* p, V x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
static inline V Add(V x, V y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)}; }
static inline V Sub(V x, V y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)}; }
static inline V Mul(V x, V y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)}; }
static inline V Div(V x, V y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c), vdivq_f32(x.d, y.d)}; }
static inline V Fma(V x, V y, V z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c), vfmaq_f32(z.d, x.d, y.d)};
}
// As elsewhere y where one is no number; NEON's own would give a NaN.
static inline V Max(V x, V y) {
  return Quarters([](float32x4_t p, float32x4_t q) { return vbslq_f32(vcgtq_f32(p, q), p, q); }, x, y);
}
static inline V Min(V x, V y) {
  return Quarters([](float32x4_t p, float32x4_t q) { return vbslq_f32(vcltq_f32(p, q), p, q); }, x, y);
}
static inline V Abs(V x) { return {vabsq_f32(x.a), vabsq_f32(x.b), vabsq_f32(x.c), vabsq_f32(x.d)}; }
static inline V Round(V x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b), vrndnq_f32(x.c), vrndnq_f32(x.d)}; }
static inline V ScaleByPower(V x, V n) {
  return Quarters(
      [](float32x4_t of, float32x4_t power) {
        // In two steps, so that results in the denormal range come out right.
        const int32x4_t whole = vcvtq_s32_f32(power), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
        const int32x4_t rest = vsubq_s32(whole, half);
        of = vmulq_f32(of, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
        return vmulq_f32(of, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23)));
      },
      x, n);
}
static inline V First(int n, V x, V other) {
  const int32_t lanes[4] = {0, 1, 2, 3};
  const auto quarter = [&](float32x4_t p, float32x4_t q, int first) {
    return vbslq_f32(vcltq_s32(vld1q_s32(lanes), vdupq_n_s32(n - first)), p, q);
  };
  return {quarter(x.a, other.a, 0), quarter(x.b, other.b, 4), quarter(x.c, other.c, 8), quarter(x.d, other.d, 12)};
}

static inline float32x4_t Bits(uint32x4_t x) { return vreinterpretq_f32_u32(x); }
static inline V LoadBF16(const uint16_t* p) {
  return QuartersOf([p](int i) { return Bits(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
}
static inline V LoadF16(const uint16_t* p) {
  return QuartersOf([p](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
// Round to nearest even; NaN stays NaN.
static inline uint16x4_t QuarterToBF16(float32x4_t x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x);
  const uint32x4_t lsb = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(lsb, vdupq_n_u32(0x7fff)));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, vdupq_n_u32(0x7fc00000)), 16);
}
static inline void StoreBF16(uint16_t* p, V x) {
  vst1_u16(p, QuarterToBF16(x.a));
  vst1_u16(p + 4, QuarterToBF16(x.b));
  vst1_u16(p + 8, QuarterToBF16(x.c));
  vst1_u16(p + 12, QuarterToBF16(x.d));
}
// Sixteen bytes, each in 32 bits.
static inline uint32x4_t QuarterOfBytes(const uint8_t* p, int i) {
  uint32_t four;
  __builtin_memcpy(&four, p + 4 * i, 4);
  return vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)))));
}
// 16 e4m3fn bytes.
static inline V LoadFp8(const uint8_t* p) {
  return QuartersOf([p](int i) {
    const uint32x4_t code = QuarterOfBytes(p, i);
    const uint32x4_t sign = vshlq_n_u32(vandq_u32(code, vdupq_n_u32(0x80)), 24);
    const uint32x4_t magnitude = vshlq_n_u32(vandq_u32(code, vdupq_n_u32(0x7f)), 20);
    // Exponent bias 7 against 127; denormal codes become fp32 denormals, both mended by 2^120.
    const float32x4_t value = vmulq_n_f32(Bits(magnitude), 0x1p120f);
    return Bits(vorrq_u32(vreinterpretq_u32_f32(value), sign));
  });
}

// Panels: a lane is a row; a quarter of a step is 16 bytes of its four rows.

// Words of four rows and two columns, as bf16.
static inline float32x4_t EvenWords(uint16x8_t words) { return Bits(vshlq_n_u32(vreinterpretq_u32_u16(words), 16)); }
static inline float32x4_t OddWords(uint16x8_t words) {
  return Bits(vandq_u32(vreinterpretq_u32_u16(words), vdupq_n_u32(0xffff0000)));
}
static inline uint16x8_t LoadWords(const uint8_t* p) { return vreinterpretq_u16_u8(vld1q_u8(p)); }
// Pairs of columns, of sixteen rows.
struct Pairs {
  uint16x8_t a, b, c, d;
};
static inline uint16x8_t& Quarter(Pairs& pairs, int i) {
  return i == 0 ? pairs.a : i == 1 ? pairs.b : i == 2 ? pairs.c : pairs.d;
}
static inline Pairs LoadPairs(const void* from) {
  const uint8_t* p = static_cast<const uint8_t*>(from);
  return {LoadWords(p), LoadWords(p + 16), LoadWords(p + 32), LoadWords(p + 48)};
}
static inline void PairsToF32(Pairs pairs, V* w) {
  w[0] = {EvenWords(pairs.a), EvenWords(pairs.b), EvenWords(pairs.c), EvenWords(pairs.d)};
  w[1] = {OddWords(pairs.a), OddWords(pairs.b), OddWords(pairs.c), OddWords(pairs.d)};
}
static inline void DecodeBF16(const uint8_t* p, V w[2]) { PairsToF32(LoadPairs(p), w); }
static inline void DecodeF16(const uint8_t* p, V w[2]) {
  w[0] = QuartersOf([p](int i) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_u8(vld1q_u8(p + 16 * i)))));
  });
  w[1] = QuartersOf([p](int i) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(vreinterpretq_u32_u8(vld1q_u8(p + 16 * i)), 16)));
  });
}
static inline void DecodeF32(const uint8_t* p, V w[2]) {
  w[0] = Load(reinterpret_cast<const float*>(p));
  w[1] = Load(reinterpret_cast<const float*>(p) + 16);
}

// The bytes of the bf16 that the first 32 codes stand for.
struct DecodeTables {
  uint8x16x2_t low, high;
};
static inline DecodeTables LoadTables(const uint8_t*, const uint8_t*, const uint16_t* fp4) {
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(fp4);
  const uint8x16x2_t first = vld2q_u8(bytes), second = vld2q_u8(bytes + 32);
  return {{{first.val[0], second.val[0]}}, {{first.val[1], second.val[1]}}};
}

// A code in the high byte of a word; sign in place, the rest moved to where bf16 keeps it: 2^-120 of what it is.
static inline uint16x8_t Fp8Words(uint8x8_t codes) {
  const uint16x8_t word = vshll_n_u8(codes, 8);
  const uint16x8_t magnitude = vshrq_n_u16(vandq_u16(word, vdupq_n_u16(0x7f00)), 4);
  return vorrq_u16(vandq_u16(word, vdupq_n_u16(0x8000)), magnitude);
}
static inline void DecodeFp8(const uint8_t* p, const DecodeTables&, V w[4]) {
  const V mend = Set(0x1p120f);
  Pairs first, second;
  MAINARCH_UNROLL for (int i = 0; i < 4; ++i) {
    const uint8x16_t codes = vld1q_u8(p + 16 * i);
    Quarter(first, i) = Fp8Words(vget_low_u8(codes));
    Quarter(second, i) = Fp8Words(vget_high_u8(codes));
  }
  PairsToF32(first, w);
  PairsToF32(second, w + 2);
  MAINARCH_UNROLL for (int c = 0; c < 4; ++c) w[c] = Mul(w[c], mend);
}

// Words of the codes in the even bytes, and in the odd ones.
struct WordsOfCodes {
  uint16x8_t even, odd;
};
static inline WordsOfCodes Lookup(uint8x16_t codes, const DecodeTables& t) {
  const uint8x16_t low = vqtbl1q_u8(t.low.val[0], codes), high = vqtbl1q_u8(t.high.val[0], codes);
  return {vreinterpretq_u16_u8(vtrn1q_u8(low, high)), vreinterpretq_u16_u8(vtrn2q_u8(low, high))};
}
static inline uint8x16_t LowNibbles(uint8x16_t codes) { return vandq_u8(codes, vdupq_n_u8(0xf)); }
static inline uint8x16_t HighNibbles(uint8x16_t codes) { return vshrq_n_u8(codes, 4); }
// Of a word's four nibbles the first and third are low ones of its bytes.
static inline void DecodeFp4Pairs(const uint8_t* p, const DecodeTables& t, Pairs w[4]) {
  MAINARCH_UNROLL for (int i = 0; i < 4; ++i) {
    const uint8x16_t codes = vld1q_u8(p + 16 * i);
    const WordsOfCodes low = Lookup(LowNibbles(codes), t), high = Lookup(HighNibbles(codes), t);
    Quarter(w[0], i) = low.even;
    Quarter(w[1], i) = high.even;
    Quarter(w[2], i) = low.odd;
    Quarter(w[3], i) = high.odd;
  }
}
static inline void DecodeFp4(const uint8_t* p, const DecodeTables& t, V w[8]) {
  Pairs pairs[4];
  DecodeFp4Pairs(p, t, pairs);
  MAINARCH_UNROLL for (int i = 0; i < 4; ++i) PairsToF32(pairs[i], w + 2 * i);
}
static inline V LoadU8(const uint8_t* p) {
  return QuartersOf([p](int i) { return vcvtq_f32_u32(QuarterOfBytes(p, i)); });
}
static inline V LoadI8(const uint8_t* p) {
  return QuartersOf([p](int i) {
    return vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_u32(vshlq_n_u32(QuarterOfBytes(p, i), 24)), 24));
  });
}
// Four columns of bytes with a sign.
static inline void DecodeInt8(const uint8_t* p, V w[4]) {
  const auto column = [p]<int kUp>() {
    return QuartersOf([p](int i) {
      const int32x4_t codes = vreinterpretq_s32_u8(vld1q_u8(p + 16 * i));
      return vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(codes, kUp), 24));
    });
  };
  w[0] = column.template operator()<24>();
  w[1] = column.template operator()<16>();
  w[2] = column.template operator()<8>();
  w[3] = column.template operator()<0>();
}
// Words of integers below 128, as floats less `offset` - 128: with the bits of bf16's 128 such a word is 128 plus the
// integer.
static inline void IntegersToF32(Pairs words, float offset, V* w) {
  const uint16x8_t bits = vdupq_n_u16(0x4300);
  MAINARCH_UNROLL for (int i = 0; i < 4; ++i) Quarter(words, i) = vorrq_u16(Quarter(words, i), bits);
  PairsToF32(words, w);
  const V less = Set(offset);
  w[0] = Sub(w[0], less);
  w[1] = Sub(w[1], less);
}
static inline uint16x8_t WideBytes(const uint8_t* p) { return vmovl_u8(vld1_u8(p)); }
// `bits` of a, the others of b.
static inline uint16x8_t Mixed(uint16_t bits, uint16x8_t a, uint16x8_t b) { return vbslq_u16(vdupq_n_u16(bits), a, b); }
// Sixteen columns of five bits (kernels.h, q5k), as words.
static inline void Words5(const uint8_t* p, Pairs w[8]) {
  const uint16x8_t five = vdupq_n_u16(0x1f);
  MAINARCH_UNROLL for (int i = 0; i < 4; ++i) {
    const uint16x8_t high = WideBytes(p + 128 + 8 * i);
    const uint16x8_t first = LoadWords(p + 16 * i), second = LoadWords(p + 64 + 16 * i);
    const auto word = [five](uint16x8_t up, uint16x8_t codes) { return vandq_u16(Mixed(0x10, up, codes), five); };
    Quarter(w[0], i) = word(vshlq_n_u16(high, 4), first);
    Quarter(w[1], i) = word(vshlq_n_u16(high, 3), vshrq_n_u16(first, 4));
    Quarter(w[2], i) = word(vshlq_n_u16(high, 2), vshrq_n_u16(first, 8));
    Quarter(w[3], i) = word(vshlq_n_u16(high, 1), vshrq_n_u16(first, 12));
    Quarter(w[4], i) = word(high, second);
    Quarter(w[5], i) = word(vshrq_n_u16(high, 1), vshrq_n_u16(second, 4));
    Quarter(w[6], i) = word(vshrq_n_u16(high, 2), vshrq_n_u16(second, 8));
    Quarter(w[7], i) = word(vshrq_n_u16(high, 3), vshrq_n_u16(second, 12));
  }
}
template <int kLess>
static inline void DecodeUint5(const uint8_t* p, const DecodeTables&, V w[16]) {
  Pairs words[8];
  Words5(p, words);
  MAINARCH_UNROLL for (int i = 0; i < 8; ++i) IntegersToF32(words[i], 128 + kLess, w + 2 * i);
}
// Eight columns of six bits (kernels.h, q6k), as words.
static inline void Words6(const uint8_t* p, Pairs w[4]) {
  const uint16x8_t six = vdupq_n_u16(0x3f);
  MAINARCH_UNROLL for (int i = 0; i < 4; ++i) {
    const uint16x8_t high = WideBytes(p + 64 + 8 * i), low = LoadWords(p + 16 * i);
    const auto word = [six](uint16x8_t up, uint16x8_t codes) { return vandq_u16(Mixed(0x30, up, codes), six); };
    Quarter(w[0], i) = word(vshlq_n_u16(high, 4), low);
    Quarter(w[1], i) = word(vshlq_n_u16(high, 2), vshrq_n_u16(low, 4));
    Quarter(w[2], i) = word(high, vshrq_n_u16(low, 8));
    Quarter(w[3], i) = word(vshrq_n_u16(high, 2), vshrq_n_u16(low, 12));
  }
}
static inline void DecodeInt6(const uint8_t* p, const uint16_t*, const DecodeTables&, V w[8]) {
  Pairs words[4];
  Words6(p, words);
  MAINARCH_UNROLL for (int i = 0; i < 4; ++i) IntegersToF32(words[i], 128 + 32, w + 2 * i);
}

// 16 e8m0 bytes; 0 is 2^-127, a denormal.
static inline V LoadE8M0(const uint8_t* p) {
  return QuartersOf([p](int i) {
    const uint32x4_t code = QuarterOfBytes(p, i);
    return Bits(vbslq_u32(vceqzq_u32(code), vdupq_n_u32(0x00400000), vshlq_n_u32(code, 23)));
  });
}
// 16 e5m3 bytes: the tops of fp16 without sign.
static inline V LoadE5M3(const uint8_t* p) {
  return QuartersOf([p](int i) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vshlq_n_u32(QuarterOfBytes(p, i), 7))));
  });
}
// Sixteen codes as bf16: the first eight, the others.
static inline void CodesToWords(uint8x16_t codes, const DecodeTables& t, uint16x8_t words[2]) {
  const uint8x16_t low = vqtbl1q_u8(t.low.val[0], codes), high = vqtbl1q_u8(t.high.val[0], codes);
  words[0] = vreinterpretq_u16_u8(vzip1q_u8(low, high));
  words[1] = vreinterpretq_u16_u8(vzip2q_u8(low, high));
}
// 64 bytes of K of four bits (cpu/kernels.h KeyAt): eight columns of 16 tokens.
static inline void DecodeKvFp4(const uint8_t* p, const DecodeTables& t, V w[8]) {
  Pairs pairs[4];
  MAINARCH_UNROLL for (int i = 0; i < 4; ++i) {
    const uint8x16_t codes = vld1q_u8(p + 16 * i);
    uint16x8_t low[2], high[2];
    CodesToWords(LowNibbles(codes), t, low);
    CodesToWords(HighNibbles(codes), t, high);
    Quarter(pairs[0], i) = low[0];
    Quarter(pairs[1], i) = low[1];
    Quarter(pairs[2], i) = high[0];
    Quarter(pairs[3], i) = high[1];
  }
  MAINARCH_UNROLL for (int i = 0; i < 4; ++i) PairsToF32(pairs[i], w + 2 * i);
}
// 16 bytes of V of four bits (ValueAt): a block of 32.
static inline V WordsInOrder(const uint16x8_t words[2]) {
  return {Bits(vshll_n_u16(vget_low_u16(words[0]), 16)), Bits(vshll_n_u16(vget_high_u16(words[0]), 16)),
          Bits(vshll_n_u16(vget_low_u16(words[1]), 16)), Bits(vshll_n_u16(vget_high_u16(words[1]), 16))};
}
static inline void DecodeKvFp4Block(const uint8_t* p, const DecodeTables& t, V v[2]) {
  const uint8x16_t codes = vld1q_u8(p);
  uint16x8_t words[2];
  CodesToWords(LowNibbles(codes), t, words);
  v[0] = WordsInOrder(words);
  CodesToWords(HighNibbles(codes), t, words);
  v[1] = WordsInOrder(words);
}
static inline int KvFp4Dim(int i, int lane) { return 16 * i + lane; }

#if defined(MAINARCH_PAIRS)
static inline void StorePairs(void* to, Pairs pairs) {
  uint16_t* p = static_cast<uint16_t*>(to);
  vst1q_u16(p, pairs.a);
  vst1q_u16(p + 8, pairs.b);
  vst1q_u16(p + 16, pairs.c);
  vst1q_u16(p + 24, pairs.d);
}
// Of columns that bf16 holds exactly.
static inline uint16x8_t Together(float32x4_t even, float32x4_t odd) {
  return vreinterpretq_u16_u32(vsriq_n_u32(vreinterpretq_u32_f32(odd), vreinterpretq_u32_f32(even), 16));
}
static inline void PairsOfF32(const V* columns, int count, Pairs* pairs) {
  MAINARCH_UNROLL for (int i = 0; i < count; ++i) {
    const V even = columns[2 * i], odd = columns[2 * i + 1];
    pairs[i] = {Together(even.a, odd.a), Together(even.b, odd.b), Together(even.c, odd.c), Together(even.d, odd.d)};
  }
}
static inline void DecodeFp8Pairs(const uint8_t* p, const DecodeTables& t, Pairs w[2]) {
  V columns[4];
  DecodeFp8(p, t, columns);
  PairsOfF32(columns, 2, w);
}
// t holds the 32 values.
static inline void DecodeUint5Pairs(const uint8_t* p, const DecodeTables& t, Pairs w[8]) {
  Words5(p, w);
  MAINARCH_UNROLL for (int c = 0; c < 8; ++c) {
    MAINARCH_UNROLL for (int i = 0; i < 4; ++i) {
      const uint8x16_t codes = vreinterpretq_u8_u16(Quarter(w[c], i));  // every other is 0
      const uint8x16_t low = vqtbl2q_u8(t.low, codes), high = vqtbl2q_u8(t.high, codes);
      Quarter(w[c], i) = vreinterpretq_u16_u8(vtrn1q_u8(low, high));
    }
  }
}
static inline void DecodeInt6Pairs(const uint8_t* p, const uint16_t* codes, const DecodeTables& t, Pairs w[4]) {
  V columns[8];
  DecodeInt6(p, codes, t, columns);
  PairsOfF32(columns, 4, w);
}
static inline Pairs Ones() {
  const uint16x8_t ones = vdupq_n_u16(0x3f80);
  return {ones, ones, ones, ones};
}
static inline Pairs SetPair(const uint16_t* p) {
  uint32_t pair;
  __builtin_memcpy(&pair, p, 4);
  const uint16x8_t all = vreinterpretq_u16_u32(vdupq_n_u32(pair));
  return {all, all, all, all};
}
// acc + (w.even * x.even + w.odd * x.odd): exact products, both sums rounded to odd (an error of up to 2^-23 each), denormals
// taken for and made zero.
static inline float32x4_t DotQuarter(float32x4_t acc, uint16x8_t w, uint16x8_t x) {
  return vbfdotq_f32(acc, vreinterpretq_bf16_u16(w), vreinterpretq_bf16_u16(x));
}
static inline V DotPairs(V acc, Pairs w, Pairs x) {
  return {DotQuarter(acc.a, w.a, x.a), DotQuarter(acc.b, w.b, x.b), DotQuarter(acc.c, w.c, x.c), DotQuarter(acc.d, w.d, x.d)};
}
#endif
