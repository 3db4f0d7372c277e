// SPDX-License-Identifier: MIT
//
// Sixteen fp32 lanes in plain C++, for any CPU. See avx512.h. Multiply-add rounds twice here, so
// results differ in the last bits from the other targets.

struct V {
  float lane[16];
};

#define MAINARCH_LANES for (int i = 0; i < 16; ++i)

static inline float FloatOfBits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}
static inline uint32_t BitsOfFloat(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}

static inline V Set(float x) {
  V r;
  MAINARCH_LANES r.lane[i] = x;
  return r;
}
static inline V Zero() { return Set(0); }
static inline V Load(const float* p) {
  V r;
  MAINARCH_LANES r.lane[i] = p[i];
  return r;
}
static inline void Store(float* p, V a) { MAINARCH_LANES p[i] = a.lane[i]; }
static inline V Add(V a, V b) {
  MAINARCH_LANES a.lane[i] += b.lane[i];
  return a;
}
static inline V Sub(V a, V b) {
  MAINARCH_LANES a.lane[i] -= b.lane[i];
  return a;
}
static inline V Mul(V a, V b) {
  MAINARCH_LANES a.lane[i] *= b.lane[i];
  return a;
}
static inline V Div(V a, V b) {
  MAINARCH_LANES a.lane[i] /= b.lane[i];
  return a;
}
static inline V Fma(V a, V b, V c) {
  MAINARCH_LANES c.lane[i] += a.lane[i] * b.lane[i];
  return c;
}
static inline V Max(V a, V b) {
  MAINARCH_LANES a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
static inline V Min(V a, V b) {
  MAINARCH_LANES a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
static inline V Abs(V a) {
  MAINARCH_LANES a.lane[i] = __builtin_fabsf(a.lane[i]);
  return a;
}
static inline V Round(V a) {
  // |a| < 2^22 here: adding and taking away 1.5 * 2^23 rounds to nearest even.
  MAINARCH_LANES {
    volatile float shifted = a.lane[i] + 12582912.0f;
    a.lane[i] = shifted - 12582912.0f;
  }
  return a;
}
static inline V ScaleByPower(V a, V n) {
  MAINARCH_LANES {
    const int whole = static_cast<int>(n.lane[i]);
    const int half = whole >> 1;
    a.lane[i] *= FloatOfBits(static_cast<uint32_t>(half + 127) << 23);
    a.lane[i] *= FloatOfBits(static_cast<uint32_t>(whole - half + 127) << 23);
  }
  return a;
}
static inline V First(int n, V a, V other) {
  MAINARCH_LANES a.lane[i] = i < n ? a.lane[i] : other.lane[i];
  return a;
}

static inline V LoadBF16(const uint16_t* p) {
  V r;
  MAINARCH_LANES r.lane[i] = FloatOfBits(static_cast<uint32_t>(p[i]) << 16);
  return r;
}
static inline float F16ToF32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t mag = h & 0x7fff;
  if (mag >= 0x7c00) return FloatOfBits(sign | 0x7f800000 | (mag & 0x3ff) << 13);
  // Exponent bias 15 against 127; denormals fall out of the multiplication.
  return FloatOfBits(sign | BitsOfFloat(FloatOfBits(mag << 13) * 0x1p112f));
}
static inline V LoadF16(const uint16_t* p) {
  V r;
  MAINARCH_LANES r.lane[i] = F16ToF32(p[i]);
  return r;
}
static inline void StoreBF16(uint16_t* p, V a) {
  MAINARCH_LANES {
    const uint32_t bits = BitsOfFloat(a.lane[i]);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    p[i] = nan ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}
static inline float Fp8ToF32(uint8_t b) {
  const float mag = FloatOfBits(static_cast<uint32_t>(b & 0x7f) << 20) * 0x1p120f;
  return FloatOfBits(BitsOfFloat(mag) | static_cast<uint32_t>(b & 0x80) << 24);
}
static inline V LoadFp8(const uint8_t* p) {
  V r;
  MAINARCH_LANES r.lane[i] = Fp8ToF32(p[i]);
  return r;
}

static inline uint16_t Word(const uint8_t* p) {
  uint16_t w;
  __builtin_memcpy(&w, p, 2);
  return w;
}
static inline void DecodeBF16(const uint8_t* p, V w[2]) {
  MAINARCH_LANES {
    w[0].lane[i] = FloatOfBits(static_cast<uint32_t>(Word(p + 4 * i)) << 16);
    w[1].lane[i] = FloatOfBits(static_cast<uint32_t>(Word(p + 4 * i + 2)) << 16);
  }
}
static inline void DecodeF16(const uint8_t* p, V w[2]) {
  MAINARCH_LANES {
    w[0].lane[i] = F16ToF32(Word(p + 4 * i));
    w[1].lane[i] = F16ToF32(Word(p + 4 * i + 2));
  }
}
static inline void DecodeF32(const uint8_t* p, V w[2]) {
  w[0] = Load(reinterpret_cast<const float*>(p));
  w[1] = Load(reinterpret_cast<const float*>(p) + 16);
}

struct DecodeTables {
  const uint16_t* fp4;
};
static inline DecodeTables LoadTables(const uint8_t*, const uint8_t*, const uint16_t* fp4) {
  return {fp4};
}
static inline void DecodeFp8(const uint8_t* p, const DecodeTables&, V w[4]) {
  MAINARCH_LANES {
    const uint8_t* row = p + 16 * (i / 4) + 2 * (i % 4);
    w[0].lane[i] = Fp8ToF32(row[0]);
    w[1].lane[i] = Fp8ToF32(row[1]);
    w[2].lane[i] = Fp8ToF32(row[8]);
    w[3].lane[i] = Fp8ToF32(row[9]);
  }
}
static inline void DecodeFp4(const uint8_t* p, const DecodeTables& t, V w[8]) {
  MAINARCH_LANES {
    for (int odd = 0; odd < 2; ++odd) {
      const uint16_t codes = Word(p + 4 * i + 2 * odd);
      for (int s = 0; s < 4; ++s) {
        w[2 * s + odd].lane[i] =
            FloatOfBits(static_cast<uint32_t>(t.fp4[codes >> (4 * s) & 0xf]) << 16);
      }
    }
  }
}
static inline V LoadU8(const uint8_t* p) {
  V r;
  MAINARCH_LANES r.lane[i] = static_cast<float>(p[i]);
  return r;
}
static inline V LoadI8(const uint8_t* p) {
  V r;
  MAINARCH_LANES r.lane[i] = static_cast<float>(static_cast<int8_t>(p[i]));
  return r;
}
static inline void DecodeInt8(const uint8_t* p, V w[4]) {
  for (int c = 0; c < 4; ++c) {
    MAINARCH_LANES w[c].lane[i] = static_cast<float>(static_cast<int8_t>(p[4 * i + c]));
  }
}
template <int kLess>
static inline void DecodeUint5(const uint8_t* p, const DecodeTables&, V w[16]) {
  for (int c = 0; c < 16; ++c) {
    const int s = c % 8 / 2;
    MAINARCH_LANES {
      const int word = 2 * i + c % 2;
      const int low = Word(p + c / 8 * 64 + 2 * word) >> (4 * s) & 0xf;
      w[c].lane[i] = static_cast<float>(low | (p[128 + word] >> (s + c / 8 * 4) & 1) << 4) - kLess;
    }
  }
}
static inline void DecodeInt6(const uint8_t* p, const uint16_t*, const DecodeTables&, V w[8]) {
  for (int c = 0; c < 8; ++c) {
    const int s = c / 2;
    MAINARCH_LANES {
      const int word = 2 * i + c % 2;
      const int low = Word(p + 2 * word) >> (4 * s) & 0xf;
      w[c].lane[i] = static_cast<float>(low | (p[64 + word] >> (2 * s) & 3) << 4) - 32.0f;
    }
  }
}
static inline V LoadE8M0(const uint8_t* p) {
  V r;
  MAINARCH_LANES r.lane[i] =
      FloatOfBits(p[i] == 0 ? 0x00400000u : static_cast<uint32_t>(p[i]) << 23);
  return r;
}

static inline V LoadE5M3(const uint8_t* p) {
  V r;
  MAINARCH_LANES r.lane[i] = F16ToF32(static_cast<uint16_t>(p[i] << 7));
  return r;
}
static inline float Fp4ToF32(uint32_t code, const DecodeTables& t) {
  return FloatOfBits(static_cast<uint32_t>(t.fp4[code & 0xf]) << 16);
}
static inline void DecodeKvFp4(const uint8_t* p, const DecodeTables& t, V w[8]) {
  MAINARCH_LANES {
    const uint8_t* row = p + 16 * (i / 4) + 2 * (i % 4);
    for (int c = 0; c < 4; ++c) {
      const uint8_t byte = row[8 * (c / 2) + c % 2];
      w[c].lane[i] = Fp4ToF32(byte, t);
      w[4 + c].lane[i] = Fp4ToF32(byte >> 4, t);
    }
  }
}
static inline void DecodeKvFp4Block(const uint8_t* p, const DecodeTables& t, V v[2]) {
  MAINARCH_LANES {
    v[0].lane[i] = Fp4ToF32(p[i], t);
    v[1].lane[i] = Fp4ToF32(p[i] >> 4, t);
  }
}
static inline int KvFp4Dim(int i, int lane) { return 16 * i + lane; }
