// SPDX-License-Identifier: MIT
//
// Attention over one split of one KV head, for up to eight queries that share the pass over K and V.
// Three passes over the split: scores with lane = token, then max / exp / sum, then the weighted sum
// of V with lane = head dimension. A query's arithmetic depends on absolute positions only.
#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/kernels/tables.h"
#include "backend/cpu/simd/simd.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

struct KvBF16 {
  static constexpr int kCols = 2, kBytes = 64;
  static inline void DecodeK(const uint8_t* p, const DecodeTables&, V* k) { DecodeBF16(p, k); }
  static inline V LoadV(const uint8_t* v, int64_t i) {
    return LoadBF16(reinterpret_cast<const uint16_t*>(v) + i);
  }
};
struct KvFp8 {
  static constexpr int kCols = 4, kBytes = 64;
  static inline void DecodeK(const uint8_t* p, const DecodeTables& t, V* k) { DecodeFp8(p, t, k); }
  static inline V LoadV(const uint8_t* v, int64_t i) { return LoadFp8(v + i); }
};
struct KvF32 {
  static constexpr int kCols = 2, kBytes = 128;
  static inline void DecodeK(const uint8_t* p, const DecodeTables&, V* k) { DecodeF32(p, k); }
  static inline V LoadV(const uint8_t* v, int64_t i) {
    return Load(reinterpret_cast<const float*>(v) + i);
  }
};

template <class F>
constexpr bool kHasScales = false;
template <>
constexpr bool kHasScales<KvFp8> = true;

struct Page {
  const uint8_t* k;
  const uint8_t* v;
  const float* k_scale;  // [16], fp8 only
  const float* v_scale;
};

template <class F>
inline Page PageAt(const AttendArgs& a, int64_t token) {
  const size_t side = static_cast<size_t>(a.head_dim) * 16 * F::kBytes / (F::kCols * 16);
  const uint8_t* base = a.pages + static_cast<size_t>(a.page_ids[token / 16]) * a.page_stride;
  const float* scales = reinterpret_cast<const float*>(base + 2 * side);
  return {base, base + side, scales, scales + 16};
}

// Scores of NQ queries against one page into scratch[query][token - begin].
template <class F, int NQ>
inline void Scores(const AttendArgs& a, int q0, int64_t token, const DecodeTables& tables) {
  const Page page = PageAt<F>(a, token);
  V acc[NQ][2];
  for (int q = 0; q < NQ; ++q) acc[q][0] = acc[q][1] = Zero();
  for (int d = 0; d < a.head_dim; d += F::kCols) {
    V k[F::kCols];
    F::DecodeK(page.k + d / F::kCols * F::kBytes, tables, k);
    for (int c = 0; c < F::kCols; ++c) {
      for (int q = 0; q < NQ; ++q) {
        acc[q][c & 1] = Fma(k[c], Set(a.q[q0 + q][d + c]), acc[q][c & 1]);
      }
    }
  }
  for (int q = 0; q < NQ; ++q) {
    V s = Add(acc[q][0], acc[q][1]);
    if (kHasScales<F>) s = Mul(s, Load(page.k_scale));
    const int64_t visible = a.visible[q0 + q] - token;
    s = First(visible > 16 ? 16 : static_cast<int>(visible), s, Set(-__builtin_inff()));
    Store(a.scratch + (q0 + q) * kAttentionSplit + (token - a.begin), s);
  }
}

// Turns the scores of one query into weights; returns false when it sees no token of this split.
inline bool Weights(const AttendArgs& a, int q, int64_t end) {
  float* s = a.scratch + q * kAttentionSplit;
  a.max_sum[q][0] = -__builtin_inff();
  a.max_sum[q][1] = 0;
  if (a.visible[q] <= a.begin) return false;
  const int64_t n = end - a.begin;
  V max = Load(s);
  for (int64_t i = 16; i < n; i += 16) max = Max(max, Load(s + i));
  const float m = HorizontalMax(max);
  V sum = Zero();
  for (int64_t i = 0; i < n; i += 16) {
    const V p = Exp(Sub(Load(s + i), Set(m)));
    sum = Add(sum, p);
    Store(s + i, p);
  }
  a.max_sum[q][0] = m;
  a.max_sum[q][1] = HorizontalSum(sum);
  return true;
}

// out[q][d .. d + 16 ND) = sum over tokens of weight * V.
template <class F, int NQ, int ND>
inline void Values(const AttendArgs& a, int q0, int d, int64_t end) {
  V acc[NQ][ND];
  for (int q = 0; q < NQ; ++q) {
    for (int i = 0; i < ND; ++i) acc[q][i] = Zero();
  }
  for (int64_t token = a.begin; token < end; token += 16) {
    const Page page = PageAt<F>(a, token);
    const int count = end - token < 16 ? static_cast<int>(end - token) : 16;
    for (int t = 0; t < count; ++t) {
      V v[ND];
      for (int i = 0; i < ND; ++i) v[i] = F::LoadV(page.v, int64_t{t} * a.head_dim + d + 16 * i);
      for (int q = 0; q < NQ; ++q) {
        float p = a.scratch[(q0 + q) * kAttentionSplit + (token - a.begin) + t];
        if (kHasScales<F>) p *= page.v_scale[t];
        for (int i = 0; i < ND; ++i) acc[q][i] = Fma(Set(p), v[i], acc[q][i]);
      }
    }
  }
  for (int q = 0; q < NQ; ++q) {
    for (int i = 0; i < ND; ++i) Store(a.out[q0 + q] + d + 16 * i, acc[q][i]);
  }
}

template <class F, int NQ>
void AttendQueries(const AttendArgs& a, int q0, const DecodeTables& tables) {
  int64_t end = a.begin;  // the last token any of these queries sees, within the split
  for (int q = q0; q < q0 + NQ; ++q) end = a.visible[q] > end ? a.visible[q] : end;
  end = end < a.end ? end : a.end;
  const int64_t padded = a.begin + (end - a.begin + 15) / 16 * 16;
  for (int64_t token = a.begin; token < padded; token += 16) Scores<F, NQ>(a, q0, token, tables);
  for (int q = q0; q < q0 + NQ; ++q) {
    if (Weights(a, q, padded)) continue;
    for (int64_t i = 0; i < padded - a.begin; ++i) a.scratch[q * kAttentionSplit + i] = 0;
  }
  int d = 0;
  for (; d + 64 <= a.head_dim; d += 64) Values<F, NQ, 4>(a, q0, d, end);
  for (; d < a.head_dim; d += 16) Values<F, NQ, 1>(a, q0, d, end);
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
  float* scales = reinterpret_cast<float*>(v + 16 * a.head_dim);
  for (int side = 0; side < 2; ++side) {
    const float* x = side == 0 ? a.k : a.v;
    const float max = MaxAbs(x, a.head_dim);
    // The smallest normal keeps the quotient finite; below it everything rounds to zero.
    const float scale = max > 0x1p-117f ? max * (1.0f / 448) : 1.0f;
    scales[16 * side + a.slot] = scale;
    for (int d = 0; d < a.head_dim; ++d) {
      const uint8_t code = EncodeFp8(x[d] / scale);
      if (side == 1) {
        v[a.slot * a.head_dim + d] = code;
      } else {
        const int c = d % 4;
        k[d / 4 * 64 + 16 * (a.slot / 4) + 2 * (a.slot % 4) + 8 * (c / 2) + c % 2] = code;
      }
    }
  }
}

void WriteBF16(const KvWriteArgs& a, uint8_t* k, uint8_t* v) {
  uint16_t bits[16];
  uint16_t* k16 = reinterpret_cast<uint16_t*>(k);
  for (int d = 0; d < a.head_dim; d += 16) {
    StoreBF16(bits, Load(a.k + d));
    for (int i = 0; i < 16; ++i) k16[(d + i) / 2 * 32 + a.slot * 2 + (i & 1)] = bits[i];
    StoreBF16(reinterpret_cast<uint16_t*>(v) + a.slot * a.head_dim + d, Load(a.v + d));
  }
}

void WriteF32(const KvWriteArgs& a, uint8_t* k, uint8_t* v) {
  float* k32 = reinterpret_cast<float*>(k);
  float* v32 = reinterpret_cast<float*>(v) + a.slot * a.head_dim;
  for (int d = 0; d < a.head_dim; ++d) {
    k32[d * 16 + a.slot] = a.k[d];
    v32[d] = a.v[d];
  }
}

}  // namespace

void RunAttend(const AttendArgs& a) {
  switch (a.format) {
    case KvFormat::kBF16: return Attend<KvBF16>(a);
    case KvFormat::kFp8: return Attend<KvFp8>(a);
    case KvFormat::kF32: return Attend<KvF32>(a);
  }
}

void RunMergeSplit(const float* part, const float* part_max_sum, int32_t head_dim, float* out,
                   float* max_sum) {
  const float before = max_sum[0], here = part_max_sum[0];
  if (here == -__builtin_inff()) return;  // the query sees nothing of this split
  if (before == -__builtin_inff()) {
    max_sum[0] = here;
    max_sum[1] = part_max_sum[1];
    for (int32_t d = 0; d < head_dim; d += 16) Store(out + d, Load(part + d));
    return;
  }
  const float max = before > here ? before : here;
  const V keep = Exp(Set(before - max)), add = Exp(Set(here - max));
  for (int32_t d = 0; d < head_dim; d += 16) {
    Store(out + d, Fma(Load(part + d), add, Mul(Load(out + d), keep)));
  }
  float sum[16];
  Store(sum, Fma(Set(part_max_sum[1]), add, Mul(Set(max_sum[1]), keep)));
  max_sum[0] = max;
  max_sum[1] = sum[0];
}

void RunKvWrite(const KvWriteArgs& a) {
  uint8_t* v = a.page + static_cast<size_t>(16) * static_cast<size_t>(a.head_dim) * KvElementBytes(a.format);
  switch (a.format) {
    case KvFormat::kBF16: return WriteBF16(a, a.page, v);
    case KvFormat::kFp8: return WriteFp8(a, a.page, v);
    case KvFormat::kF32: return WriteF32(a, a.page, v);
  }
}

}  // namespace mainarch::cpu::MAINARCH_TARGET
