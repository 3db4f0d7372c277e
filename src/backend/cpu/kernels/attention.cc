// SPDX-License-Identifier: MIT
//
// Attention over one split of one KV head, for up to eight queries that share the pass over K and
// V. Three passes over the split: scores with lane = token, then max / exp / sum, then the weighted
// sum of V with lane = head dimension. A query's arithmetic depends on absolute positions only.
//
// Arithmetic alone leaves too few loads in flight to fill the memory's bandwidth, so each pass
// fetches what the next one reads.
#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/kernels/tables.h"
#include "backend/cpu/simd/simd.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

// (Inlined early, or else gcc takes the call for one without effects.)
template <int kBytes>
inline __attribute__((always_inline)) void Prefetch(const uint8_t* p) {
  for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(p + i);
}

// K: kCols columns of 16 tokens a step. V: kDims dimensions of a token a step, as kVectors vectors,
// of which lane `lane` of vector `i` is dimension Dim(i, lane).
struct KvBF16 {
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
  static constexpr int kCols = 2, kBytes = 128;
  static inline void DecodeK(const uint8_t* p, const DecodeTables&, V* k) { DecodeF32(p, k); }
  static constexpr int kDims = 16, kVectors = 1;
  static inline void DecodeV(const uint8_t* p, const DecodeTables&, V* v) {
    *v = Load(reinterpret_cast<const float*>(p));
  }
  static inline int Dim(int, int lane) { return lane; }
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

template <class F>
constexpr bool kHasScales = false;
template <>
constexpr bool kHasScales<KvFp8> = true;
template <>
constexpr bool kHasScales<NarrowFp8> = true;

// Bytes of one element.
template <class F>
constexpr int kElement = F::kBytes / (16 * F::kCols);

struct Page {
  const uint8_t* k;
  const uint8_t* v;
  const float* k_scale;  // [16], fp8 only
  const float* v_scale;
};

template <class F>
inline Page PageAt(const AttendArgs& a, int64_t token) {
  const size_t k_side = static_cast<size_t>(a.kv.key_dim) * 16 * kElement<F>;
  const size_t v_side = static_cast<size_t>(a.kv.value_dim) * 16 * kElement<F>;
  const size_t id = a.page_ids[token / 16 - a.first_page];
  const size_t page = id % kKvChunkPages;
  const uint8_t* k = a.chunks + id / kKvChunkPages * a.chunk_stride;
  const uint8_t* v = k + kKvChunkPages * k_side;
  const float* scales = reinterpret_cast<const float*>(v + kKvChunkPages * v_side) + page * 32;
  return {k + page * k_side, v + page * v_side, scales, scales + 16};
}

// Scores of NQ queries against NT pages into scratch[query][token - begin]. With `fetch`, V of
// those pages is fetched meanwhile, one page after the other: the memory likes that better than NT
// at a time.
template <class F, int NQ, int NT>
inline void Scores(const AttendArgs& a, int q0, int64_t token, bool fetch,
                   const DecodeTables& tables) {
  Page page[NT];
  for (int t = 0; t < NT; ++t) page[t] = PageAt<F>(a, token + 16 * t);
  V acc[NT][NQ][2];
  MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
    MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) acc[t][q][0] = acc[t][q][1] = Zero();
  }
  const int32_t side = a.kv.key_dim / F::kCols * F::kBytes;
  int32_t fetched = 0, fetched_page = 0;
  for (int d = 0; d < a.kv.key_dim; d += F::kCols) {
    if (fetch) {
      Prefetch<NT * F::kBytes>(page[fetched_page].v + fetched);
      fetched += NT * F::kBytes;
      if (fetched == side) {  // a multiple: key_dim is one of 16
        fetched = 0;
        ++fetched_page;
      }
    }
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
  for (int t = 0; t < NT; ++t) {
    const int64_t at = token + 16 * t;
    for (int q = 0; q < NQ; ++q) {
      V s = Add(acc[t][q][0], acc[t][q][1]);
      if (kHasScales<F>) s = Mul(s, Load(page[t].k_scale));
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

// Turns the scores of one query into weights, times V's scales if it has any; returns false when it
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
    Store(s + i, kHasScales<F> ? Mul(p, Load(PageAt<F>(a, a.begin + i).v_scale)) : p);
  }
  a.max_sum[q][0] = m;
  a.max_sum[q][1] = HorizontalSum(sum);
  return true;
}

// out[q][d .. d + kDims ND) = sum over tokens of weight * V. With `fetch`, K of the next split is
// fetched meanwhile.
template <class F, int NQ, int ND>
inline void Values(const AttendArgs& a, int q0, int d, int64_t begin, int64_t end, bool fetch,
                   const DecodeTables& tables) {
  constexpr int kAll = ND * F::kVectors;
  V acc[NQ][kAll];
  MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) {
    MAINARCH_UNROLL for (int i = 0; i < kAll; ++i) acc[q][i] = Zero();
  }
  const int64_t row = int64_t{a.kv.value_dim} * kElement<F>;
  for (int64_t token = begin; token < end; token += 16) {
    const Page page = PageAt<F>(a, token);
    const uint8_t* next = fetch ? PageAt<F>(a, token + kAttentionSplit).k : nullptr;
    const int count = end - token < 16 ? static_cast<int>(end - token) : 16;
    const float* weights = a.scratch + q0 * kAttentionSplit + (token - a.begin);
    for (int t = 0; t < count; ++t) {
      if (fetch) {
        for (int64_t i = 0; i < row; i += 64) __builtin_prefetch(next + t * row + i);
      }
      V v[kAll];
      MAINARCH_UNROLL for (int i = 0; i < ND; ++i) {
        F::DecodeV(page.v + t * row + (d + i * F::kDims) * kElement<F>, tables,
                   v + i * F::kVectors);
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
      float* out = a.out[q0 + q] + d + i / F::kVectors * F::kDims;
      for (int lane = 0; lane < 16; ++lane) out[F::Dim(i % F::kVectors, lane)] = lanes[lane];
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
  // Only the first queries' pass comes from memory. It has the other side fetched while it works on
  // one: V under the scores, the next split's K under the values.
  const bool first = q0 == 0;
  // NQ * kPages * 2 chains, and kPages * kCols columns, in registers.
  constexpr int kPages = NQ == 4 || (NQ == 2 && F::kCols == 4) ? 2 : 4;
  int64_t token = begin;
  for (; token + 16 * kPages <= padded; token += 16 * kPages) {
    Scores<F, NQ, kPages>(a, q0, token, first, tables);
  }
  for (; token < padded; token += 16) Scores<F, NQ, 1>(a, q0, token, first, tables);
  for (int q = q0; q < q0 + NQ; ++q) {
    if (Weights<F>(a, q, begin, padded)) continue;
    for (int64_t i = begin - a.begin; i < padded - a.begin; ++i) a.scratch[q * kAttentionSplit + i] = 0;
  }
  const bool next = first && seen >= a.end + kAttentionSplit;
  // As much of a row of V at once as there are registers for sums: 16 of them.
  constexpr int kWide = (NQ <= 2 ? 8 : 4) / F::kVectors;
  using Narrow = typename NarrowOf<F>::Type;
  int d = 0;
  for (; d + F::kDims * kWide <= a.kv.value_dim; d += F::kDims * kWide) {
    Values<F, NQ, kWide>(a, q0, d, begin, end, next && d == 0, tables);
  }
  for (; d + 64 <= a.kv.value_dim; d += 64) {
    Values<F, NQ, 64 / F::kDims>(a, q0, d, begin, end, next && d == 0, tables);
  }
  for (; d < a.kv.value_dim; d += 16) Values<Narrow, NQ, 1>(a, q0, d, begin, end, next && d == 0, tables);
}

template <class F>
void Attend(const AttendArgs& a) {
  const Tables& t = kTables;
  const DecodeTables tables = LoadTables(t.fp8_high, t.fp8_low, t.fp4);
  int q = 0;
  for (; q + 4 <= a.queries; q += 4) AttendQueries<F, 4>(a, q, tables);
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

void WriteFp8(const KvWriteArgs& a, uint8_t* k, uint8_t* v) {
  float* scales =
      reinterpret_cast<float*>(a.chunk + kKvChunkPages * (KvSideBytes(a.kv.format, a.kv.key_dim) +
                                                           KvSideBytes(a.kv.format, a.kv.value_dim)));
  for (int side = 0; side < 2; ++side) {
    const float* x = side == 0 ? a.k : a.v;
    const int32_t dim = side == 0 ? a.kv.key_dim : a.kv.value_dim;
    const float max = MaxAbs(x, dim);
    // The smallest normal keeps the quotient finite; below it everything rounds to zero.
    const float scale = max > 0x1p-117f ? max * (1.0f / 448) : 1.0f;
    scales[KvScaleAt(a.page, side, a.slot)] = scale;
    for (int d = 0; d < dim; ++d) {
      const uint8_t code = EncodeFp8(x[d] / scale);
      if (side == 1) {
        v[ValueAt(a.slot, dim, d)] = code;
      } else {
        k[KeyAt(KvFormat::kFp8, a.slot, d)] = code;
      }
    }
  }
}

void WriteBF16(const KvWriteArgs& a, uint8_t* k, uint8_t* v) {
  uint16_t bits[16];
  uint16_t* k16 = reinterpret_cast<uint16_t*>(k);
  for (int d = 0; d < a.kv.key_dim; d += 16) {
    StoreBF16(bits, Load(a.k + d));
    for (int i = 0; i < 16; ++i) k16[KeyAt(KvFormat::kBF16, a.slot, d + i)] = bits[i];
  }
  uint16_t* v16 = reinterpret_cast<uint16_t*>(v) + ValueAt(a.slot, a.kv.value_dim, 0);
  for (int d = 0; d < a.kv.value_dim; d += 16) StoreBF16(v16 + d, Load(a.v + d));
}

void WriteF32(const KvWriteArgs& a, uint8_t* k, uint8_t* v) {
  float* k32 = reinterpret_cast<float*>(k);
  float* v32 = reinterpret_cast<float*>(v);
  for (int d = 0; d < a.kv.key_dim; ++d) k32[KeyAt(KvFormat::kF32, a.slot, d)] = a.k[d];
  for (int d = 0; d < a.kv.value_dim; ++d) v32[ValueAt(a.slot, a.kv.value_dim, d)] = a.v[d];
}

}  // namespace

void RunAttend(const AttendArgs& a) {
  switch (a.kv.format) {
    case KvFormat::kBF16:
      return Attend<KvBF16>(a);
    case KvFormat::kFp8:
      return Attend<KvFp8>(a);
    case KvFormat::kF32:
      return Attend<KvF32>(a);
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
  const size_t k_side = KvSideBytes(a.kv.format, a.kv.key_dim);
  const size_t page = static_cast<size_t>(a.page);
  uint8_t* k = a.chunk + page * k_side;
  uint8_t* v = a.chunk + kKvChunkPages * k_side + page * KvSideBytes(a.kv.format, a.kv.value_dim);
  switch (a.kv.format) {
    case KvFormat::kBF16:
      return WriteBF16(a, k, v);
    case KvFormat::kFp8:
      return WriteFp8(a, k, v);
    case KvFormat::kF32:
      return WriteF32(a, k, v);
  }
}

}  // namespace mainarch::cpu::MAINARCH_TARGET
