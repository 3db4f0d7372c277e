// SPDX-License-Identifier: MIT
//
// Attention of few queries that rounds as tiles_attend.h does, by vectors and to the same bits: what tiles cost does not
// depend on how many queries there are, and few of them wait for memory. Sums are those of a tile: even and odd columns
// of 32 (for V, tokens) apart from zero on, both added, then that to the sum. Under Flushing.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_TILES_ATTEND_FEW_H_
#define MAINARCH_BACKEND_CPU_KERNELS_TILES_ATTEND_FEW_H_

#include "backend/cpu/kernels/tiles_attend.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

// More, and tiles are as fast.
inline constexpr int kFewQueries = 4;

class FewAttend : RoundedAttention {
 public:
  explicit FewAttend(const AttendArgs& a) : RoundedAttention(a), x_(reinterpret_cast<float*>(q_)) {}

  void Run() {
    if (Nothing()) return;
    for (int q = 0; q < a_.queries; ++q) {
      for (int32_t d = 0; d < a_.kv.key_dim; d += 16) {
        uint16_t rounded[16];
        StoreBF16(rounded, Load(a_.q[q] + d));
        Store(x_ + q * a_.kv.key_dim + d, LoadBF16(rounded));
      }
    }
    int q = 0;
    for (; q + 4 <= a_.queries; q += 4) AllScores<4, 2>(q);
    for (; q + 2 <= a_.queries; q += 2) AllScores<2, 4>(q);
    for (; q < a_.queries; ++q) AllScores<1, 4>(q);
    for (q = 0; q < a_.queries; ++q) Weights<true>(q);
    q = 0;
    for (; q + 4 <= a_.queries; q += 4) AllValues<4, 2>(q);
    for (; q + 2 <= a_.queries; q += 2) AllValues<2, 4>(q);
    for (; q < a_.queries; ++q) AllValues<1, 4>(q);
  }

 private:
  static_assert(kFewQueries * sizeof(float) <= kMaxQueries * sizeof(uint16_t));

  // Of NQ queries from q0 on, against NT pages at a time.
  template <int NQ, int NT>
  void AllScores(int q0) const {
    int64_t token = begin_;
    for (; token + 16 * NT <= padded_; token += 16 * NT) Scores<NQ, NT>(q0, token);
    for (; token < padded_; token += 16) Scores<NQ, 1>(q0, token);
  }
  template <int NQ, int NT>
  void Scores(int q0, int64_t token) const {
    const uint8_t* k[NT];
    for (int t = 0; t < NT; ++t) k[t] = PageAt<PairBF16>(a_, token + 16 * t).k;
    FetchKeys<PairBF16, NT> keys(a_, token, in_, q0 == 0 ? kFetch : Fetch::kNothing);
    V sums[NT][NQ];
    MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
      MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) sums[t][q] = Zero();
    }
    for (int32_t tile = 0; tile < a_.kv.key_dim; tile += kTileCols) {
      V acc[NT][NQ][2];
      MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
        MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) acc[t][q][0] = acc[t][q][1] = Zero();
      }
      for (int32_t d = tile; d < tile + kTileCols; d += 2) {
        keys.Step(d);
        V w[NT][2];
        MAINARCH_UNROLL for (int t = 0; t < NT; ++t) DecodeBF16(k[t] + 32 * d, w[t]);
        MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) {
          const float* x = x_ + (q0 + q) * a_.kv.key_dim + d;
          MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
            acc[t][q][0] = Fma(w[t][0], Set(x[0]), acc[t][q][0]);
            acc[t][q][1] = Fma(w[t][1], Set(x[1]), acc[t][q][1]);
          }
        }
      }
      MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
        MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) sums[t][q] = Add(sums[t][q], Add(acc[t][q][0], acc[t][q][1]));
      }
    }
    for (int t = 0; t < NT; ++t) {
      for (int q = 0; q < NQ; ++q) Store(a_.scratch + (q0 + q) * kAttentionSplit + (token + 16 * t - a_.begin), sums[t][q]);
    }
  }

  // 32 ND dimensions at a time.
  template <int NQ, int ND>
  void AllValues(int q0) const {
    int32_t d = 0;
    for (; d + 32 * ND <= a_.kv.value_dim; d += 32 * ND) Values<NQ, ND>(q0, d);
    if constexpr (ND > 2) {
      for (; d + 64 <= a_.kv.value_dim; d += 64) Values<NQ, 2>(q0, d);
    }
    for (; d < a_.kv.value_dim; d += 32) Values<NQ, 1>(q0, d);
  }
  template <int NQ, int ND>
  void Values(int q0, int32_t d) const {
    constexpr int kAll = 2 * ND;  // of 32 dimensions the even ones, and the odd ones
    const size_t row = static_cast<size_t>(a_.kv.value_dim) * 2;
    V sums[NQ][kAll], even[NQ][kAll];
    for (int q = 0; q < NQ; ++q) {
      for (int i = 0; i < kAll; ++i) sums[q][i] = Zero();
    }
    for (int64_t tile = begin_ / 32 * 32; tile < end_; tile += 32) {
      const int64_t first = tile < begin_ ? 16 : 0, last = end_ - tile < 32 ? end_ - tile : 32;
      const uint8_t* v[2] = {};
      NextLines next[2];
      for (int64_t half = first / 16; half * 16 < last; ++half) {
        v[half] = PageAt<PairBF16>(a_, tile + 16 * half).v + 2 * d;
        if (q0 == 0) next[half] = After<ND>(tile + 16 * half, d);
      }
      for (int odd = 0; odd < 2; ++odd) {
        V acc[NQ][kAll];
        MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) {
          MAINARCH_UNROLL for (int i = 0; i < kAll; ++i) acc[q][i] = Zero();
        }
        const float* p = a_.scratch + q0 * kAttentionSplit + (tile - a_.begin);
        for (int64_t t = first + odd; t < last; t += 2) {
          next[t / 16].Fetch(static_cast<int>(t % 16));
          const uint8_t* from = v[t / 16] + static_cast<size_t>(t % 16) * row;
          V w[kAll];
          MAINARCH_UNROLL for (int i = 0; i < ND; ++i) DecodeBF16(from + 64 * i, w + 2 * i);
          MAINARCH_UNROLL for (int q = 0; q < NQ; ++q) {
            const V by = Set(p[q * kAttentionSplit + t]);
            MAINARCH_UNROLL for (int i = 0; i < kAll; ++i) acc[q][i] = Fma(by, w[i], acc[q][i]);
          }
        }
        for (int q = 0; q < NQ; ++q) {
          for (int i = 0; i < kAll; ++i) {
            if (odd == 0) {
              even[q][i] = acc[q][i];
            } else {
              sums[q][i] = Add(sums[q][i], Add(even[q][i], acc[q][i]));
            }
          }
        }
      }
    }
    for (int q = 0; q < NQ; ++q) {
      for (int i = 0; i < ND; ++i) {
        float both[2][16];
        Store(both[0], sums[q][2 * i]);
        Store(both[1], sums[q][2 * i + 1]);
        StoreInTurns(both[0], both[1], a_.out[q0 + q] + d + 32 * i);
      }
    }
  }

  float* const x_;  // [queries, key_dim], in place of q_
};

}  // namespace
}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_TILES_ATTEND_FEW_H_
