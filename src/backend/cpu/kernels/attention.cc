// SPDX-License-Identifier: MIT
//
// Attention over one split of one KV head, for up to kMaxQueries queries, of which four share a pass over K and
// V. Three passes over the split: scores with lane = token, then max / exp / sum, then the weighted
// sum of V with lane = head dimension. A query's arithmetic depends on absolute positions only.
//
// Arithmetic alone leaves too few loads in flight to fill the memory's bandwidth, so each pass
// fetches what the next one reads; or, where AttendArgs::fetch_next_page asks for it, what it reads itself a page
// later, into the second level.
#include "backend/cpu/kernels/attention_fetch.h"
#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/kernels/tables.h"
#include "backend/cpu/simd/simd.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

// K: kCols columns of 16 tokens a step. V: kDims dimensions of a token a step, as kVectors vectors,
// of which lane `lane` of vector `i` is dimension Dim(i, lane).
struct KvBF16 {
  static constexpr KvForm kForm = KvForm::kBF16;
  static constexpr int kCols = 2, kBytes = 64;
  static inline void DecodeK(const uint8_t* p, const DecodeTables&, V* k) { DecodeBF16(p, k); }
#if defined(MAINARCH_TARGET_avx512)
  static constexpr int kDims = 32, kVectors = 2;
  static inline void DecodeV(const uint8_t* p, const DecodeTables&, V* v) { DecodeBF16(p, v); }
  static inline int Dim(int i, int lane) { return 2 * lane + i; }
#else
  static constexpr int kDims = 16, kVectors = 1;
  static inline void DecodeV(const uint8_t* p, const DecodeTables&, V* v) {
    *v = LoadBF16(reinterpret_cast<const uint16_t*>(p));
  }
  static inline int Dim(int, int lane) { return lane; }
#endif
};
struct KvFp8 {
  static constexpr KvForm kForm = KvForm::kFp8;
  static constexpr int kCols = 4, kBytes = 64;
  static inline void DecodeK(const uint8_t* p, const DecodeTables& t, V* k) { DecodeFp8(p, t, k); }
#if defined(MAINARCH_TARGET_avx512)
  static constexpr int kDims = 64, kVectors = 4;
  static inline void DecodeV(const uint8_t* p, const DecodeTables& t, V* v) { DecodeFp8(p, t, v); }
  static inline int Dim(int i, int lane) {
    return lane / 4 * 16 + i / 2 * 8 + lane % 4 * 2 + i % 2;
  }
#else
  static constexpr int kDims = 16, kVectors = 1;
  static inline void DecodeV(const uint8_t* p, const DecodeTables&, V* v) { *v = LoadFp8(p); }
  static inline int Dim(int, int lane) { return lane; }
#endif
};
struct KvF32 {
  static constexpr KvForm kForm = KvForm::kF32;
  static constexpr int kCols = 2, kBytes = 128;
  static inline void DecodeK(const uint8_t* p, const DecodeTables&, V* k) { DecodeF32(p, k); }
  static constexpr int kDims = 16, kVectors = 1;
  static inline void DecodeV(const uint8_t* p, const DecodeTables&, V* v) {
    *v = Load(reinterpret_cast<const float*>(p));
  }
  static inline int Dim(int, int lane) { return lane; }
};
// A step of V is a block, whose elements share a scale.
struct KvFp4 {
  static constexpr KvForm kForm = KvForm::kFp4;
  static constexpr int kCols = 8, kBytes = 64;
  static inline void DecodeK(const uint8_t* p, const DecodeTables& t, V* k) { DecodeKvFp4(p, t, k); }
  static constexpr int kDims = 32, kVectors = 2;
  static inline void DecodeV(const uint8_t* p, const DecodeTables& t, V* v) { DecodeKvFp4Block(p, t, v); }
  static inline int Dim(int i, int lane) { return KvFp4Dim(i, lane); }
};
// Sixteen dimensions, where a head is no multiple of kDims.
struct NarrowBF16 : KvBF16 {
  static constexpr int kDims = 16, kVectors = 1;
  static inline void DecodeV(const uint8_t* p, const DecodeTables&, V* v) {
    *v = LoadBF16(reinterpret_cast<const uint16_t*>(p));
  }
  static inline int Dim(int, int lane) { return lane; }
};
struct NarrowFp8 : KvFp8 {
  static constexpr int kDims = 16, kVectors = 1;
  static inline void DecodeV(const uint8_t* p, const DecodeTables&, V* v) { *v = LoadFp8(p); }
  static inline int Dim(int, int lane) { return lane; }
};
template <class F>
struct NarrowOf {
  using Type = F;
};
template <>
struct NarrowOf<KvBF16> {
  using Type = NarrowBF16;
};
template <>
struct NarrowOf<KvFp8> {
  using Type = NarrowFp8;
};

// What K and what V are held as.
template <class K, class W>
struct Pair {
  using Key = K;
  using Value = W;
};

template <class F>
constexpr bool kTokenScales = F::kForm == KvForm::kFp8;  // one for all elements of a token
template <class F>
constexpr bool kBlockScales = F::kForm == KvForm::kFp4;  // one for 32

// acc[t][q][0] + acc[t][q][1], over the columns [d, end).
template <class F, int NQ, int NT>
inline __attribute__((always_inline)) void Columns(const AttendArgs& a, int q0, int32_t d,
                                                   const Page (&page)[NT],
                                                   const DecodeTables& tables, V (&acc)[NT][NQ][2]) {
  V k[NT][F::kCols];
  MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
    F::DecodeK(page[t].k + d / F::kCols * F::kBytes, tables, k[t]);
  }
  MAINARCH_UNROLL for (int c = 0; c < F::kCols; ++c) {
    MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) {
      const V x = Set(a.q[q0 + q][d + c]);
      MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
        acc[t][q][c & 1] = Fma(k[t][c], x, acc[t][q][c & 1]);
      }
    }
  }
}

// Scores of NQ queries against NT pages into scratch[query][token - begin]. Fetched meanwhile: kNextPass, V of
// those pages; kNextPage, FetchKeys.
template <class F, int NQ, int NT>
inline void Scores(const AttendArgs& a, int q0, int64_t token, const Extent& in, Fetch fetch,
                   const DecodeTables& tables) {
  using K = typename F::Key;
  Page page[NT];
  for (int t = 0; t < NT; ++t) page[t] = PageAt<F>(a, token + 16 * t);
  FetchValues<F, NT> values(a, page, fetch);
  FetchKeys<F, NT> keys(a, token, in, fetch);
  V sums[NT][NQ];
  if constexpr (kBlockScales<K>) {
    MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
      MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) sums[t][q] = Zero();
    }
    for (int32_t block = 0; block < a.kv.key_dim; block += 32) {
      V acc[NT][NQ][2];
      MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
        MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) acc[t][q][0] = acc[t][q][1] = Zero();
      }
      for (int32_t d = block; d < block + 32; d += K::kCols) {
        values.Step();
        keys.Step(d);
        Columns<K>(a, q0, d, page, tables, acc);
      }
      MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
        const V scale = LoadE5M3(page[t].k_scale + block / 32 * 16);
        MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) {
          sums[t][q] = Fma(Add(acc[t][q][0], acc[t][q][1]), scale, sums[t][q]);
        }
      }
    }
  } else {
    V acc[NT][NQ][2];
    MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
      MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) acc[t][q][0] = acc[t][q][1] = Zero();
    }
    for (int d = 0; d < a.kv.key_dim; d += K::kCols) {
      values.Step();
      keys.Step(d);
      Columns<K>(a, q0, d, page, tables, acc);
    }
    MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
      MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) sums[t][q] = Add(acc[t][q][0], acc[t][q][1]);
    }
  }
  for (int t = 0; t < NT; ++t) {
    const int64_t at = token + 16 * t;
    for (int q = 0; q < NQ; ++q) {
      V s = sums[t][q];
      if (kTokenScales<K>) s = Mul(s, Load(reinterpret_cast<const float*>(page[t].k_scale)));
      const int64_t visible = a.visible[q0 + q] - at;
      s = First(visible > 16 ? 16 : static_cast<int>(visible), s, Set(-__builtin_inff()));
      const int64_t behind = a.first[q0 + q] - at;  // the window
      if (behind > 0) {
        s = First(behind > 16 ? 16 : static_cast<int>(behind), Set(-__builtin_inff()), s);
      }
      Store(a.scratch + (q0 + q) * kAttentionSplit + (at - a.begin), s);
    }
  }
}

// Turns the scores of one query into weights, times the scales of V's tokens if they have any; returns false when it
// sees no token of this split. There are scores of tokens [begin, end).
template <class F>
inline bool Weights(const AttendArgs& a, int q, int64_t begin, int64_t end) {
  float* s = a.scratch + q * kAttentionSplit;
  a.max_sum[q][0] = -__builtin_inff();
  a.max_sum[q][1] = 0;
  if (a.visible[q] <= begin || a.first[q] >= end) return false;
  const int64_t from = begin - a.begin, n = end - a.begin;
  V max = Load(s + from);
  for (int64_t i = from + 16; i < n; i += 16) max = Max(max, Load(s + i));
  const float m = HorizontalMax(max);
  V sum = Zero();
  for (int64_t i = from; i < n; i += 16) {
    const V p = Exp(Sub(Load(s + i), Set(m)));
    sum = Add(sum, p);
    Store(s + i, kTokenScales<typename F::Value>
                     ? Mul(p, Load(reinterpret_cast<const float*>(PageAt<F>(a, a.begin + i).v_scale)))
                     : p);
  }
  a.max_sum[q][0] = m;
  a.max_sum[q][1] = HorizontalSum(sum);
  return true;
}

// out[q][d .. d + kDims ND) = sum over tokens of weight * V; W is F's form of V or its narrow one. Meanwhile
// FetchRows.
template <class F, class W, int NQ, int ND>
inline void Values(const AttendArgs& a, int q0, int d, int64_t end, const Extent& in, Fetch fetch,
                   const DecodeTables& tables) {
  constexpr int kAll = ND * W::kVectors;
  V acc[NQ][kAll];
  MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) {
    MAINARCH_UNROLL for (int i = 0; i < kAll; ++i) acc[q][i] = Zero();
  }
  const int64_t row = int64_t{a.kv.value_dim} * kBits<W> / 8;
  for (int64_t token = in.begin; token < end; token += 16) {
    const Page page = PageAt<F>(a, token);
    FetchRows<F, W> rows(a, token, in, fetch);
    const int count = end - token < 16 ? static_cast<int>(end - token) : 16;
    const float* weights = a.scratch + q0 * kAttentionSplit + (token - a.begin);
    [[maybe_unused]] float scales[ND][16];
    if constexpr (kBlockScales<W>) {
      for (int i = 0; i < ND; ++i) Store(scales[i], LoadE5M3(page.v_scale + (d / 32 + i) * 16));
    }
    for (int t = 0; t < count; ++t) {
      rows.Step(t);
      V v[kAll];
      MAINARCH_UNROLL for (int i = 0; i < ND; ++i) {
        W::DecodeV(page.v + t * row + (d + i * W::kDims) * kBits<W> / 8, tables,
                   v + i * W::kVectors);
        if constexpr (kBlockScales<W>) {
          const V scale = Set(scales[i][t]);  // the product is exact
          MAINARCH_UNROLL for (int j = 0; j < W::kVectors; ++j) {
            v[i * W::kVectors + j] = Mul(v[i * W::kVectors + j], scale);
          }
        }
      }
      MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) {
        const V p = Set(weights[q * kAttentionSplit + t]);
        MAINARCH_UNROLL for (int i = 0; i < kAll; ++i) acc[q][i] = Fma(p, v[i], acc[q][i]);
      }
    }
  }
  for (int q = 0; q < NQ; ++q) {
    for (int i = 0; i < kAll; ++i) {
      float lanes[16];
      Store(lanes, acc[q][i]);
      float* out = a.out[q0 + q] + d + i / W::kVectors * W::kDims;
      for (int lane = 0; lane < 16; ++lane) out[W::Dim(i % W::kVectors, lane)] = lanes[lane];
    }
  }
}

template <class F, int NQ>
void AttendQueries(const AttendArgs& a, int q0, const DecodeTables& tables) {
  // What any of these queries sees; pages behind all windows may be gone.
  int64_t seen = a.begin, least = a.end;
  for (int q = q0; q < q0 + NQ; ++q) {
    seen = a.visible[q] > seen ? a.visible[q] : seen;
    least = a.first[q] < least ? a.first[q] : least;
  }
  const int64_t begin = least > a.begin ? least / 16 * 16 : a.begin;
  const int64_t end = seen < a.end ? seen : a.end;
  const int64_t padded = a.begin + (end - a.begin + 15) / 16 * 16;
  // Only the first queries' pass comes from memory. kNextPass has the other side fetched while it works on
  // one: V under the scores, the next split's K under the values.
  const Fetch fetch = q0 > 0 ? Fetch::kNothing : a.fetch_next_page ? Fetch::kNextPage : Fetch::kNextPass;
  const Extent in = {begin, padded, seen >= a.end + kAttentionSplit};
  // NQ * kPages * 2 chains, and kPages * kCols columns, in registers.
  constexpr int kPages = kQuarters ? 2 / NQ : NQ == 4 || (NQ == 2 && F::Key::kCols >= 4) ? 2 : 4;
  int64_t token = begin;
  for (; token + 16 * kPages <= padded; token += 16 * kPages) {
    Scores<F, NQ, kPages>(a, q0, token, in, fetch, tables);
  }
  for (; token < padded; token += 16) Scores<F, NQ, 1>(a, q0, token, in, fetch, tables);
  for (int q = q0; q < q0 + NQ; ++q) {
    if (Weights<F>(a, q, begin, padded)) continue;
    for (int64_t i = begin - a.begin; i < padded - a.begin; ++i) a.scratch[q * kAttentionSplit + i] = 0;
  }
  // As much of a row of V at once as there are registers for sums: 16 of them.
  using W = typename F::Value;
  using Narrow = typename NarrowOf<W>::Type;
  constexpr int kWide = (kQuarters ? 4 / NQ : NQ <= 2 ? 8 : 4) / W::kVectors;
  const auto under = [&](int at) { return at == 0 ? fetch : Fetch::kNothing; };
  int d = 0;
  for (; d + W::kDims * kWide <= a.kv.value_dim; d += W::kDims * kWide) {
    Values<F, W, NQ, kWide>(a, q0, d, end, in, under(d), tables);
  }
  if constexpr (!kQuarters) {
    for (; d + 64 <= a.kv.value_dim; d += 64) {
      Values<F, W, NQ, 64 / W::kDims>(a, q0, d, end, in, under(d), tables);
    }
  }
  for (; d < a.kv.value_dim; d += Narrow::kDims) {
    Values<F, Narrow, NQ, 1>(a, q0, d, end, in, under(d), tables);
  }
}

template <class F>
void Attend(const AttendArgs& a) {
  const Tables& t = kTables;
  const DecodeTables tables = LoadTables(t.fp8_high, t.fp8_low, t.fp4);
  int q = 0;
  if constexpr (!kQuarters) {
    for (; q + 4 <= a.queries; q += 4) AttendQueries<F, 4>(a, q, tables);
  }
  for (; q + 2 <= a.queries; q += 2) AttendQueries<F, 2>(a, q, tables);
  for (; q < a.queries; ++q) AttendQueries<F, 1>(a, q, tables);
}

// fp32 -> e4m3fn, nearest even, saturating at 448; the scale keeps |x| there anyway.
inline uint8_t EncodeFp8(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  const uint8_t sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  float mag = __builtin_fabsf(x);
  if (!(mag < 448.0f)) return sign | 0x7e;
  if (mag < 0x1p-6f) {
    // Denormals count in units of 2^-9; adding 2^14 makes the fp32 adder round to that grid.
    const float shifted = mag + 0x1p14f;
    uint32_t grid;
    __builtin_memcpy(&grid, &shifted, 4);
    return static_cast<uint8_t>(sign | (grid & 0xf));
  }
  __builtin_memcpy(&bits, &mag, 4);
  bits += 0x7ffff + (bits >> 20 & 1);  // nearest even at bit 20
  return static_cast<uint8_t>(sign | ((bits >> 20) - ((127 - 7) << 3)));
}

inline float MaxAbs(const float* x, int n) {
  V max = Zero();
  for (int i = 0; i < n; i += 16) max = Max(max, Abs(Load(x + i)));
  return HorizontalMax(max);
}

// One side of a token, in the page whose elements and multipliers of that side these are.
struct Side {
  KvForm form;
  bool is_value;
  int32_t dim, slot;
  const float* x;  // [dim]
  uint8_t* elements;
  uint8_t* scales;

  int32_t At(int32_t d) const { return is_value ? ValueAt(form, slot, dim, d) : KeyAt(form, slot, d); }
};

void WriteFp8(const Side& side) {
  const float max = MaxAbs(side.x, side.dim);
  // The smallest normal keeps the quotient finite; below it everything rounds to zero.
  const float scale = max > 0x1p-117f ? max * (1.0f / 448) : 1.0f;
  reinterpret_cast<float*>(side.scales)[side.slot] = scale;
  for (int32_t d = 0; d < side.dim; ++d) side.elements[side.At(d)] = EncodeFp8(side.x[d] / scale);
}

void WriteBF16(const Side& side) {
  uint16_t bits[16];
  uint16_t* to = reinterpret_cast<uint16_t*>(side.elements);
  for (int32_t d = 0; d < side.dim; d += 16) {
    StoreBF16(bits, Load(side.x + d));
    for (int i = 0; i < 16; ++i) to[side.At(d + i)] = bits[i];
  }
}

void WriteF32(const Side& side) {
  float* to = reinterpret_cast<float*>(side.elements);
  for (int32_t d = 0; d < side.dim; ++d) to[side.At(d)] = side.x[d];
}

// Of magnitudes, to the nearest of 0 0.5 1 1.5 2 3 4 6, ties to the even code: the parts below 2, from 2
// to 4 and from 4 to 6, each rounded to its grid.
inline V RoundToE2m1(V y) {
  const V low = Min(y, Set(2.0f));
  const V middle = Min(Max(Sub(y, Set(2.0f)), Zero()), Set(2.0f));
  const V high = Min(Max(Sub(y, Set(4.0f)), Zero()), Set(2.0f));
  const V rest = Fma(Round(Mul(high, Set(0.5f))), Set(2.0f), Round(middle));
  return Fma(Round(Mul(low, Set(2.0f))), Set(0.5f), rest);
}

// The scale with the least sum of squared errors (kernels/quant/kv_fp4.h says which can be it): a lane is
// a candidate. Of equals the smallest.
inline uint8_t ChooseE5M3(const float* x) {
  const float largest = MaxAbs(x, 32);
  if (!(largest > 0)) return 0;
  // The least scale that is not below a sixth of the largest.
  const float want = largest * (1.0f / 6);
  if (want >= 61440.0f) return 0xf7;  // all clip, and squares of them may overflow
  int code = 0;
  if (want >= 0x1p-14f) {
    uint32_t bits;
    __builtin_memcpy(&bits, &want, 4);
    code = static_cast<int>((bits - (112u << 23) + 0xfffffu) >> 20);
  } else {
    code = static_cast<int>(want * 0x1p17f);
    code += want * 0x1p17f > static_cast<float>(code);
  }
  int first = code - 7;
  first = first < 1 ? 1 : first > 0xf7 - 15 ? 0xf7 - 15 : first;
  uint8_t codes[16];
  for (int i = 0; i < 16; ++i) codes[i] = static_cast<uint8_t>(first + i);
  const V scale = LoadE5M3(codes), inverse = Div(Set(1.0f), scale);
  V sum = Zero();
  for (int i = 0; i < 32; ++i) {
    const V y = Mul(Set(__builtin_fabsf(x[i])), inverse);
    const V off = Sub(y, RoundToE2m1(y));
    sum = Fma(off, off, sum);
  }
  float sums[16];
  Store(sums, Mul(sum, Mul(scale, scale)));
  int best = 0;
  for (int i = 1; i < 16; ++i) best = sums[i] < sums[best] ? i : best;
  return codes[best];
}

void WriteFp4(const Side& side) {
  constexpr uint8_t kCodes[] = {0, 1, 2, 3, 4, 0, 5, 0, 6, 0, 0, 0, 7};  // of twice the magnitude
  for (int32_t block = 0; block < side.dim; block += 32) {
    const float* x = side.x + block;
    const uint8_t scale = ChooseE5M3(x);
    side.scales[KvScaleAt(KvForm::kFp4, side.slot, block)] = scale;
    uint8_t scales[16];
    for (uint8_t& each : scales) each = scale;
    // A block of zeros has the scale 0, by which nothing can be divided.
    const V inverse = scale == 0 ? Zero() : Div(Set(1.0f), LoadE5M3(scales));
    float grid[32];
    for (int i = 0; i < 32; i += 16) Store(grid + i, RoundToE2m1(Mul(Abs(Load(x + i)), inverse)));
    for (int i = 0; i < 32; ++i) {
      const int32_t at = side.At(block + i);
      const int shift = at % 2 * 4;
      uint8_t& byte = side.elements[at / 2];
      const int code = kCodes[static_cast<int>(grid[i] * 2)] | (x[i] < 0 ? 8 : 0);
      byte = static_cast<uint8_t>((byte & (0xf0 >> shift)) | code << shift);
    }
  }
}

void WriteSide(const Side& side) {
  switch (side.form) {
    case KvForm::kBF16:
      return WriteBF16(side);
    case KvForm::kFp8:
      return WriteFp8(side);
    case KvForm::kF32:
      return WriteF32(side);
    case KvForm::kFp4:
      return WriteFp4(side);
  }
}

}  // namespace

void RunAttend(const AttendArgs& a) {
  switch (a.kv.format) {
    case KvFormat::kBF16:
      return Attend<Pair<KvBF16, KvBF16>>(a);
    case KvFormat::kFp8:
      return Attend<Pair<KvFp8, KvFp8>>(a);
    case KvFormat::kF32:
      return Attend<Pair<KvF32, KvF32>>(a);
    case KvFormat::kFp4:
      return Attend<Pair<KvFp4, KvFp4>>(a);
    case KvFormat::kK8V4:
      return Attend<Pair<KvFp8, KvFp4>>(a);
  }
}

void RunMergeSplit(const float* part, const float* part_max_sum, int32_t value_dim, float* out,
                   float* max_sum) {
  const float before = max_sum[0], here = part_max_sum[0];
  if (here == -__builtin_inff()) return;  // the query sees nothing of this split
  if (before == -__builtin_inff()) {
    max_sum[0] = here;
    max_sum[1] = part_max_sum[1];
    for (int32_t d = 0; d < value_dim; d += 16) Store(out + d, Load(part + d));
    return;
  }
  const float max = before > here ? before : here;
  const V keep = Exp(Set(before - max)), add = Exp(Set(here - max));
  for (int32_t d = 0; d < value_dim; d += 16) {
    Store(out + d, Fma(Load(part + d), add, Mul(Load(out + d), keep)));
  }
  float sum[16];
  Store(sum, Fma(Set(part_max_sum[1]), add, Mul(Set(max_sum[1]), keep)));
  max_sum[0] = max;
  max_sum[1] = sum[0];
}

void RunKvWrite(const KvWriteArgs& a) {
  const KvPieces pieces = PiecesOf(a.kv);
  const size_t page = static_cast<size_t>(a.page);
  uint8_t* v = a.chunk + kKvChunkPages * pieces.k;
  uint8_t* scales = v + kKvChunkPages * pieces.v + page * pieces.scales;
  WriteSide({KeyForm(a.kv), false, a.kv.key_dim, a.slot, a.k, a.chunk + page * pieces.k, scales});
  WriteSide({ValueForm(a.kv), true, a.kv.value_dim, a.slot, a.v, v + page * pieces.v,
             scales + pieces.k_scales});
}

}  // namespace mainarch::cpu::MAINARCH_TARGET
