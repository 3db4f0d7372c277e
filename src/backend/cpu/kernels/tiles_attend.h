// SPDX-License-Identifier: MIT
//
// Attention over one split of one KV head by tiles (tiles.h), for up to sixteen queries and caches of bf16: queries
// and weights are rounded to bf16, sums are fp32. As attention.cc in three passes: scores by tiles of 16 tokens, K
// being one as it lies; the weights; then 32 tokens of V at a time, turned to pairs of tokens.
//
// A query's bits depend on absolute positions only: steps of 32 tokens begin at multiples of 32, and what is
// not seen weighs zero there.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_TILES_ATTEND_H_
#define MAINARCH_BACKEND_CPU_KERNELS_TILES_ATTEND_H_

#include "backend/cpu/kernels/attention_fetch.h"
#include "backend/cpu/kernels/tiles.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

struct SideBF16 {
  static constexpr KvForm kForm = KvForm::kBF16;
  static constexpr int kCols = 2, kBytes = 64;
};
struct PairBF16 {
  using Key = SideBF16;
  using Value = SideBF16;
};

// Of the values of two tokens of 32 dimensions pairs, of dimensions 2 n and of dimensions 2 n + 1.
static inline void PairTokens(const uint8_t* first, const uint8_t* second, uint8_t* even, uint8_t* odd) {
#if defined(MAINARCH_TARGET_avx512)
  const __m512i a = _mm512_loadu_si512(first), b = _mm512_loadu_si512(second), low = _mm512_set1_epi32(0xffff);
  // 0xca: of `low` bits those of the second operand, the others of the third.
  _mm512_store_si512(even, _mm512_ternarylogic_epi64(low, a, _mm512_slli_epi32(b, 16), 0xca));
  _mm512_store_si512(odd, _mm512_ternarylogic_epi64(low, _mm512_srli_epi32(a, 16), b, 0xca));
#else
  for (int n = 0; n < 16; ++n) {
    __builtin_memcpy(even + 4 * n, first + 4 * n, 2);
    __builtin_memcpy(even + 4 * n + 2, second + 4 * n, 2);
    __builtin_memcpy(odd + 4 * n, first + 4 * n + 2, 2);
    __builtin_memcpy(odd + 4 * n + 2, second + 4 * n + 2, 2);
  }
#endif
}
// out[2 n] = even[n], out[2 n + 1] = odd[n].
static inline void StoreInTurns(const float* even, const float* odd, float* out) {
#if defined(MAINARCH_TARGET_avx512)
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const V a = Load(even), b = Load(odd);
  Store(out, _mm512_permutex2var_ps(a, low, b));
  Store(out + 16, _mm512_permutex2var_ps(a, _mm512_add_epi32(low, _mm512_set1_epi32(8)), b));
#else
  for (int n = 0; n < 16; ++n) {
    out[2 * n] = even[n];
    out[2 * n + 1] = odd[n];
  }
#endif
}

// What of it does not depend on how many queries there are.
class RoundedAttention {
 public:
  static bool Takes(const KvLayout& kv) {
    return kv.format == KvFormat::kBF16 && kv.key_dim % kTileCols == 0 && kv.value_dim % 32 == 0;
  }

 protected:
  explicit RoundedAttention(const AttendArgs& a)
      : a_(a), room_(*reinterpret_cast<Room*>(a.room)), q_(reinterpret_cast<uint16_t*>(a.room + sizeof(Room))) {
    int64_t seen = a.begin, least = a.end;
    for (int q = 0; q < a.queries; ++q) {
      seen = a.visible[q] > seen ? a.visible[q] : seen;
      least = a.first[q] < least ? a.first[q] : least;
    }
    begin_ = least > a.begin ? least / 16 * 16 : a.begin;
    end_ = seen < a.end ? seen : a.end;
    padded_ = a.begin + (end_ - a.begin + 15) / 16 * 16;
    in_ = {begin_, padded_, seen >= a.end + kAttentionSplit};
  }

  // Rows of weights are no power of two apart: they would meet in the same sets of the cache.
  static constexpr int64_t kWeightStride = kAttentionSplit + 32;
  struct Room {  // AttendArgs::room; behind it the queries, [kMaxQueries, key_dim]
    uint16_t weights[kMaxQueries][kWeightStride];
    uint8_t pairs[2][4][kTileBytes];  // of steps in turns
    float sums[4][kTileFloats];
  };
  static_assert(sizeof(Room) + kMaxQueries * 64 * 2 <= AttendRoomBytes(64));
  static constexpr Fetch kFetch = Fetch::kNextPage;  // whatever AttendArgs say: the units that there are are Intel's
  static constexpr int kPagesAhead = 2;  // a step of V

  // Of no query any token is seen here.
  bool Nothing() const {
    if (begin_ < end_) return false;
    for (int q = 0; q < a_.queries; ++q) {
      a_.max_sum[q][0] = -__builtin_inff();
      a_.max_sum[q][1] = 0;
      for (int32_t d = 0; d < a_.kv.value_dim; d += 16) Store(a_.out[q] + d, Zero());
    }
    return true;
  }

  // A query's scores, as bf16 weights; zeros to both sides, as far as steps of V go. kFloats: as floats in place of
  // the scores, too.
  template <bool kFloats>
  void Weights(int q) const {
    float* s = a_.scratch + q * kAttentionSplit;
    uint16_t* out = room_.weights[q];
    const int64_t from = begin_ - a_.begin, n = padded_ - a_.begin;
    a_.max_sum[q][0] = -__builtin_inff();
    a_.max_sum[q][1] = 0;
    const bool sees = a_.visible[q] > begin_ && a_.first[q] < padded_;
    for (int64_t i = from / 32 * 32; i < (n + 31) / 32 * 32; i += 16) {
      if (sees && i >= from && i < n) continue;
      StoreBF16(out + i, Zero());
      if (kFloats) Store(s + i, Zero());
    }
    if (!sees) return;
    V max = Set(-__builtin_inff());
    for (int64_t i = from; i < n; i += 16) {
      V score = Load(s + i);
      const int64_t visible = a_.visible[q] - a_.begin - i, behind = a_.first[q] - a_.begin - i;
      if (visible < 16) score = First(visible < 0 ? 0 : static_cast<int>(visible), score, Set(-__builtin_inff()));
      if (behind > 0) score = First(behind > 16 ? 16 : static_cast<int>(behind), Set(-__builtin_inff()), score);
      if (visible < 16 || behind > 0) Store(s + i, score);
      max = Max(max, score);
    }
    const float m = HorizontalMax(max);
    V sum = Zero();
    for (int64_t i = from; i < n; i += 16) {
      const V p = Exp(Sub(Load(s + i), Set(m)));
      sum = Add(sum, p);
      StoreBF16(out + i, p);
      if (kFloats) Store(s + i, LoadBF16(out + i));
    }
    a_.max_sum[q][0] = m;
    a_.max_sum[q][1] = HorizontalSum(sum);
  }

  // Sixteen runs of lines, to be fetched into the second level.
  struct NextLines {
    const uint8_t* first = nullptr;
    size_t stride = 0, lines = 0;
    inline __attribute__((always_inline)) void Fetch(int run) const {
      for (size_t i = 0; i < lines; ++i) PrefetchSecond(first + static_cast<size_t>(run) * stride + 64 * i);
    }
  };
  // While 32 ND dimensions of a page of V are read: the same of a page further on, so that memory has as much to do
  // under each pass over V; at the end K of the next split's first pages. (FetchKeys has seen to V of the first ones.)
  template <int ND>
  NextLines After(int64_t token, int32_t d) const {
    const int64_t to = token + kPagesAhead * 16;
    if (to < padded_) return {PageAt<PairBF16>(a_, to).v + 2 * d, static_cast<size_t>(a_.kv.value_dim) * 2, ND};
    if (!in_.next || d + 32 * ND < a_.kv.value_dim) return {};
    const size_t row = static_cast<size_t>(a_.kv.key_dim) * 2;
    return {PageAt<PairBF16>(a_, to).k, row, (row + 63) / 64};
  }

  const AttendArgs& a_;
  Room& room_;
  uint16_t* const q_;  // [queries, key_dim]
  int64_t begin_ = 0, end_ = 0, padded_ = 0;  // what any query sees; to whole pages
  Extent in_ = {};
};

template <class T>
class TileAttend : RoundedAttention {
 public:
  using RoundedAttention::Takes;
  TileAttend(T& unit, const AttendArgs& a) : RoundedAttention(a), unit_(unit) {}

  void Run() {
    if (Nothing()) return;
    for (int q = 0; q < a_.queries; ++q) {
      for (int32_t d = 0; d < a_.kv.key_dim; d += 16) StoreBF16(q_ + q * a_.kv.key_dim + d, Load(a_.q[q] + d));
    }
    unit_.Configure(a_.queries, 0);
    int64_t token = begin_;
    for (; token + 64 <= padded_; token += 64) Scores<4>(token);
    for (; token < padded_; token += 16) Scores<1>(token);
    for (int q = 0; q < a_.queries; ++q) Weights<false>(q);
    int32_t d = 0;
    for (; d + 64 <= a_.kv.value_dim; d += 64) Values<2>(d);
    if (d < a_.kv.value_dim) Values<1>(d);
  }

 private:
  // Of all queries, against NT pages.
  template <int NT>
  void Scores(int64_t token) {
    const uint8_t* k[NT];
    for (int t = 0; t < NT; ++t) k[t] = PageAt<PairBF16>(a_, token + 16 * t).k;
    FetchKeys<PairBF16, NT> keys(a_, token, in_, kFetch);
    unit_.template Zero<0>();
    if constexpr (NT > 1) unit_.template Zero<1>();
    if constexpr (NT > 1) unit_.template Zero<2>();
    if constexpr (NT > 1) unit_.template Zero<3>();
    for (int32_t d = 0; d < a_.kv.key_dim; d += kTileCols) {
      unit_.template Load<4>(q_ + d, static_cast<size_t>(a_.kv.key_dim) * 2);
      unit_.template Load<5>(k[0] + 32 * d, 64);
      unit_.template Dot<0, 4, 5>();
      if constexpr (NT > 1) {
        unit_.template Load<6>(k[1] + 32 * d, 64);
        unit_.template Dot<1, 4, 6>();
        unit_.template Load<7>(k[2] + 32 * d, 64);
        unit_.template Dot<2, 4, 7>();
        unit_.template Load<5>(k[3] + 32 * d, 64);
        unit_.template Dot<3, 4, 5>();
      }
      for (int32_t c = 0; c < kTileCols; c += SideBF16::kCols) keys.Step(d + c);
    }
    float* to = a_.scratch + (token - a_.begin);
    constexpr size_t kStride = kAttentionSplit * sizeof(float);
    unit_.template Store<0>(to, kStride);
    if constexpr (NT > 1) unit_.template Store<1>(to + 16, kStride);
    if constexpr (NT > 1) unit_.template Store<2>(to + 32, kStride);
    if constexpr (NT > 1) unit_.template Store<3>(to + 48, kStride);
  }

  // 32 ND dimensions from d on, of all queries.
  template <int ND>
  void Values(int32_t d) {
    unit_.template Zero<0>();
    unit_.template Zero<1>();
    if constexpr (ND > 1) unit_.template Zero<2>();
    if constexpr (ND > 1) unit_.template Zero<3>();
    // The unit cannot take what has not left the store buffer: a step is paired while the one before is multiplied.
    int64_t step = begin_ / 32 * 32;
    PairStep<ND>(step, d, room_.pairs[0]);
    for (int turn = 0; step < end_; step += 32, turn ^= 1) {
      if (step + 32 < end_) PairStep<ND>(step + 32, d, room_.pairs[turn ^ 1]);
      const uint8_t(&pairs)[4][kTileBytes] = room_.pairs[turn];
      unit_.template Load<4>(room_.weights[0] + (step - a_.begin), kWeightStride * 2);
      unit_.template Load<5>(pairs[0], 64);
      unit_.template Dot<0, 4, 5>();
      unit_.template Load<6>(pairs[1], 64);
      unit_.template Dot<1, 4, 6>();
      if constexpr (ND > 1) {
        unit_.template Load<7>(pairs[2], 64);
        unit_.template Dot<2, 4, 7>();
        unit_.template Load<5>(pairs[3], 64);
        unit_.template Dot<3, 4, 5>();
      }
    }
    unit_.template Store<0>(room_.sums[0], 64);
    unit_.template Store<1>(room_.sums[1], 64);
    if constexpr (ND > 1) unit_.template Store<2>(room_.sums[2], 64);
    if constexpr (ND > 1) unit_.template Store<3>(room_.sums[3], 64);
    for (int q = 0; q < a_.queries; ++q) {
      for (int i = 0; i < ND; ++i) StoreInTurns(room_.sums[2 * i] + 16 * q, room_.sums[2 * i + 1] + 16 * q, a_.out[q] + d + 32 * i);
    }
  }

  // Of 32 tokens; zeros for those that nobody sees, whose pages may be gone, or hold anything.
  template <int ND>
  void PairStep(int64_t step, int32_t d, uint8_t (&out)[4][kTileBytes]) const {
    alignas(64) static constexpr uint8_t kZeros[64] = {};
    const size_t row = static_cast<size_t>(a_.kv.value_dim) * 2;
    for (int half = 0; half < 2; ++half) {
      const int64_t token = step + 16 * half;
      const int64_t there = token < begin_ ? 0 : end_ - token;
      const uint8_t* v = there > 0 ? PageAt<PairBF16>(a_, token).v + 2 * d : nullptr;
      const NextLines next = there > 0 ? After<ND>(token, d) : NextLines{};
      for (int i = 0; i < 8; ++i) {
        next.Fetch(2 * i);
        next.Fetch(2 * i + 1);
        const uint8_t* first = 2 * i < there ? v + 2 * static_cast<size_t>(i) * row : nullptr;
        const size_t at = static_cast<size_t>(64 * (8 * half + i));
        for (int n = 0; n < ND; ++n) {
          PairTokens(2 * i < there ? first + 64 * n : kZeros, 2 * i + 1 < there ? first + row + 64 * n : kZeros,
                     out[2 * n] + at, out[2 * n + 1] + at);
        }
      }
    }
  }

  T& unit_;
};

}  // namespace
}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_TILES_ATTEND_H_
