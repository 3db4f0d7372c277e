// SPDX-License-Identifier: MIT
//
// Attention over one split of one KV head by tiles (tiles.h), as attention.cc has it by vectors: scores, weights, the
// weighted sum of V. One decoding of K and V serves all queries, and products take the matrix unit's time: with four
// queries to a KV head the fused multiply-adds of fp32 alone, 64 vectors a token, take longer than memory to bring eight
// bits or four.
//
// What is fp32 goes as three bf16, which hold its 24 bits (Thirds): a query's, and a weight's, are three rows of a left
// tile, whose sums are added up from the smallest on. K and V are bf16 exactly: elements of eight bits as they are, of
// four times their block's multiplier. So products are exact, and sums fp32, in an order that absolute positions
// give: tiles of 32 columns of K, of 32 tokens of V from the split's begin on. Queries are rows, which know nothing of each other.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_ATTEND_TILES_H_
#define MAINARCH_BACKEND_CPU_KERNELS_ATTEND_TILES_H_

#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/kernels/tables.h"
#include "backend/cpu/kernels/tiles.h"

namespace mainarch::cpu::MAINARCH_TARGET {

inline constexpr int kThirds = 3;                 // bf16 of an fp32
inline constexpr int kTileQueries = 16 / kThirds;  // of one left tile
inline constexpr int kChunkPages = 2;             // pages of a step
inline constexpr int kChunkTokens = 16 * kChunkPages;
inline constexpr int kChunks = kAttentionSplit / kChunkTokens;

inline constexpr int kMostKeys = 640, kMostValues = 512;  // elements of a head

// Whether tiles take heads of this layout; others are attention.cc's.
inline constexpr bool TilesAttend(const KvLayout& kv) {
  return kv.format != KvFormat::kF32 && kv.key_dim % 32 == 0 && kv.value_dim % 64 == 0 && kv.key_dim <= kMostKeys &&
         kv.value_dim <= kMostValues;
}

// The high halves of 32 floats, in order, and what is left of these.
static inline __attribute__((always_inline)) void TakeThird(V (&x)[2], uint16_t* out) {
#if defined(MAINARCH_TARGET_avx512)
  const __m512i a = _mm512_castps_si512(x[0]), b = _mm512_castps_si512(x[1]);
  alignas(64) static constexpr uint16_t kOdd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                    33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  StorePairs(out, _mm512_permutex2var_epi16(a, _mm512_load_si512(kOdd), b));
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  x[0] = Sub(x[0], _mm512_castsi512_ps(_mm512_and_si512(a, high)));
  x[1] = Sub(x[1], _mm512_castsi512_ps(_mm512_and_si512(b, high)));
#else
  for (int half = 0; half < 2; ++half) {
    float values[16];
    Store(values, x[half]);
    for (int i = 0; i < 16; ++i) {
      uint32_t bits;
      __builtin_memcpy(&bits, &values[i], 4);
      out[16 * half + i] = static_cast<uint16_t>(bits >> 16);
      bits &= 0xffff0000;
      float high;
      __builtin_memcpy(&high, &bits, 4);
      values[i] -= high;
    }
    x[half] = Load(values);
  }
#endif
}

// 32 floats as a column of a left tile's rows: row third * queries + query.
static inline __attribute__((always_inline)) void StoreThirds(const float* from, int query, int queries, uint16_t* tile) {
  V x[2] = {Load(from), Load(from + 16)};
  MAINARCH_UNROLL for (int third = 0; third < kThirds; ++third) TakeThird(x, tile + 32 * (third * queries + query));
}

// Elements by their place, where there are no faster ways: what the layout says (kernels.h).
template <KvForm kForm>
inline uint16_t ElementBits(const uint8_t* elements, int32_t at, float scale) {
  uint16_t bits;
  if constexpr (kForm == KvForm::kBF16) {
    __builtin_memcpy(&bits, elements + 2 * at, 2);
  } else if constexpr (kForm == KvForm::kFp8) {
    const uint8_t code = elements[at];
    bits = static_cast<uint16_t>(kTables.fp8_high[code & 0x7f] << 8 | kTables.fp8_low[code & 0x7f] | (code & 0x80) << 8);
  } else {
    bits = kTables.fp4[elements[at / 2] >> at % 2 * 4 & 0xf];
  }
  if (kForm != KvForm::kFp4) return bits;
  uint32_t word = uint32_t{bits} << 16;
  float x;
  __builtin_memcpy(&x, &word, 4);
  x *= scale;
  __builtin_memcpy(&word, &x, 4);
  return static_cast<uint16_t>(word >> 16);
}

// Columns [32 step, 32 step + 32) of K of a page as a right tile [16 pairs of columns][16 tokens][2]; of four bits
// without their multipliers.
template <KvForm kForm>
static inline __attribute__((always_inline)) void KeyTile(const uint8_t* k, int step, [[maybe_unused]] const DecodeTables& tables, uint16_t* tile) {
#if defined(MAINARCH_TARGET_avx512)
  if constexpr (kForm == KvForm::kFp8) {
    MAINARCH_UNROLL for (int i = 0; i < 8; ++i) {
      Pairs pairs[2];
      DecodeFp8Pairs(k + (8 * step + i) * 64, tables, pairs);
      StorePairs(tile + 64 * i, pairs[0]);
      StorePairs(tile + 64 * i + 32, pairs[1]);
    }
  } else {
    MAINARCH_UNROLL for (int i = 0; i < 4; ++i) {
      const __m512i codes = _mm512_loadu_si512(k + (4 * step + i) * 64), nibble = _mm512_set1_epi8(0xf);
      MAINARCH_UNROLL for (int half = 0; half < 2; ++half) {
        const __m512i code = _mm512_and_si512(half == 0 ? codes : _mm512_srli_epi16(codes, 4), nibble);
        const __m512i low = _mm512_shuffle_epi8(tables.fp4_low, code), high = _mm512_shuffle_epi8(tables.fp4_high, code);
        StorePairs(tile + 128 * i + 64 * half, _mm512_unpacklo_epi8(low, high));
        StorePairs(tile + 128 * i + 64 * half + 32, _mm512_unpackhi_epi8(low, high));
      }
    }
  }
#else
  for (int32_t d = 0; d < 32; ++d) {
    for (int32_t slot = 0; slot < 16; ++slot) {
      tile[d / 2 * 32 + 2 * slot + d % 2] = ElementBits<kForm>(k, KeyAt(kForm, slot, 32 * step + d), 1);
    }
  }
#endif
}

// V of a chunk: two pages [16 tokens][dim], and, of four bits, their multipliers [dim / 32][16 tokens].
struct ValuePages {
  const uint8_t* v[kChunkPages];
  const uint8_t* scales[kChunkPages];
  size_t row;  // bytes of a token
};

// Elements [64 part, 64 part + 64) of a chunk as four right tiles [16 pairs of tokens][16 elements][2]. Lane j of tile t
// is element ValueDim(t, j) of these.
template <KvForm kForm>
inline constexpr int ValueDim(int tile, int lane) {
#if defined(MAINARCH_TARGET_avx512)
  if (kForm == KvForm::kBF16) return 32 * (tile / 2) + 8 * (lane / 4) + 4 * (tile % 2) + lane % 4;
  if (kForm == KvForm::kFp8) return 16 * (lane / 4) + 4 * tile + lane % 4;
#endif
  return 16 * tile + lane;
}
template <KvForm kForm>
static inline __attribute__((always_inline)) void ValueTiles(const ValuePages& v, int part, [[maybe_unused]] const DecodeTables& tables, uint16_t* tiles) {
  constexpr int kTile = 16 * 32;  // words
#if defined(MAINARCH_TARGET_avx512)
  [[maybe_unused]] float scales[2][kChunkTokens];
  if constexpr (kForm == KvForm::kFp4) {
    for (int b = 0; b < 2; ++b) {
      for (int p = 0; p < kChunkPages; ++p) Store(scales[b] + 16 * p, LoadE5M3(v.scales[p] + (2 * part + b) * 16));
    }
  }
  constexpr int kBytes = 64 * static_cast<int>(quant::InfoOf(kForm).bits) / 8;  // of a part of a token
  for (int pair = 0; pair < 16; ++pair) {
    const uint8_t* const a = v.v[pair / 8] + static_cast<size_t>(2 * pair % 16) * v.row + part * kBytes;
    const uint8_t* const b = a + v.row;
    uint16_t* const to = tiles + 32 * pair;
    if constexpr (kForm == KvForm::kBF16) {
      MAINARCH_UNROLL for (int half = 0; half < 2; ++half) {
        const __m512i x = _mm512_loadu_si512(a + 64 * half), y = _mm512_loadu_si512(b + 64 * half);
        StorePairs(to + (2 * half) * kTile, _mm512_unpacklo_epi16(x, y));
        StorePairs(to + (2 * half + 1) * kTile, _mm512_unpackhi_epi16(x, y));
      }
    } else if constexpr (kForm == KvForm::kFp8) {
      const __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b);
      MAINARCH_UNROLL for (int half = 0; half < 2; ++half) {
        Pairs pairs[2];
        DecodeFp8Codes(half == 0 ? _mm512_unpacklo_epi8(x, y) : _mm512_unpackhi_epi8(x, y), tables, pairs);
        StorePairs(to + (2 * half) * kTile, pairs[0]);
        StorePairs(to + (2 * half + 1) * kTile, pairs[1]);
      }
    } else {
      MAINARCH_UNROLL for (int block = 0; block < 2; ++block) {
        V x[2], y[2];
        DecodeKvFp4Block(a + 16 * block, tables, x);
        DecodeKvFp4Block(b + 16 * block, tables, y);
        const V scale_x = Set(scales[block][2 * pair]), scale_y = Set(scales[block][2 * pair + 1]);
        MAINARCH_UNROLL for (int i = 0; i < 2; ++i) {
          const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(Mul(x[i], scale_x)), 16);
          StorePairs(to + (2 * block + i) * kTile, _mm512_or_si512(low, _mm512_castps_si512(Mul(y[i], scale_y))));
        }
      }
    }
  }
#else
  for (int token = 0; token < kChunkTokens; ++token) {
    for (int d = 0; d < 64; ++d) {
      float scale = 1;
      if constexpr (kForm == KvForm::kFp4) {
        float all[16];
        Store(all, LoadE5M3(v.scales[token / 16] + (64 * part + d) / 32 * 16));
        scale = all[token % 16];
      }
      const uint8_t* const row = v.v[token / 16] + static_cast<size_t>(token % 16) * v.row;
      const uint16_t bits = ElementBits<kForm>(row, ValueAt(kForm, 0, 0, 64 * part + d), scale);
      tiles[d / 16 * kTile + token / 2 * 32 + d % 16 * 2 + token % 2] = bits;
    }
  }
#endif
}

// Of queries [q0, q0 + count) of a split, at most two left tiles of them.
template <class T, KvForm kKey, KvForm kValue>
class TileAttention {
 public:
  TileAttention(T& unit, const AttendArgs& a)
      : unit_(unit), a_(a), tables_(LoadTables(kTables.fp8_high, kTables.fp8_low, kTables.fp4)) {
    lefts_ = a.queries > kTileQueries ? 2 : 1;
    for (int m = 0; m < lefts_; ++m) {
      first_[m] = a.queries * m / lefts_;
      count_[m] = a.queries * (m + 1) / lefts_ - first_[m];
    }
    int64_t seen = a.begin, least = a.end;
    for (int q = 0; q < a.queries; ++q) {
      seen = a.visible[q] > seen ? a.visible[q] : seen;
      least = a.first[q] < least ? a.first[q] : least;
    }
    begin_ = least > a.begin ? least / 16 * 16 : a.begin;
    end_ = seen < a.end ? seen : a.end;
    next_ = seen >= a.end + kAttentionSplit;
    pieces_ = PiecesOf(a.kv);
    for (int64_t token = begin_; token < end_; token += 16) pages_[(token - a.begin) / 16] = Found(token);
  }

  void Run() {
    for (int q = 0; q < a_.queries; ++q) a_.max_sum[q][0] = -__builtin_inff(), a_.max_sum[q][1] = 0;
    if (begin_ >= end_) {
      for (int q = 0; q < a_.queries; ++q) {
        for (int32_t d = 0; d < a_.kv.value_dim; d += 16) Store(a_.out[q] + d, Zero());
      }
      return;
    }
    unit_.Configure(count_[0] * kThirds, lefts_ > 1 ? count_[1] * kThirds : 0);
    lefts_ > 1 ? AllScores<2>() : AllScores<1>();
    for (int q = 0; q < a_.queries; ++q) Weights(q);
    MakeLefts();
    lefts_ > 1 ? AllValues<2>() : AllValues<1>();
  }

 private:
  static constexpr int kMostSteps = kMostKeys / 32;
  using KeyTiles = uint16_t[kKey == KvForm::kBF16 ? 1 : kMostSteps][512];  // of a page
  static constexpr bool kBlocks = kKey == KvForm::kFp4;  // multipliers of 32 columns, which a sum of its own takes
  int FirstChunk() const { return static_cast<int>((begin_ - a_.begin) / kChunkTokens); }
  int EndChunk() const { return static_cast<int>((end_ - a_.begin + kChunkTokens - 1) / kChunkTokens); }
  int64_t TokenOf(int chunk) const { return a_.begin + int64_t{chunk} * kChunkTokens; }

  // Null where no query sees any of it: it may not exist.
  struct PageAt {
    const uint8_t *k = nullptr, *v = nullptr, *k_scales = nullptr, *v_scales = nullptr;
  };
  PageAt Found(int64_t token) const {
    const size_t id = a_.page_ids[token / 16 - a_.first_page], page = id % kKvChunkPages;
    const uint8_t* chunk = a_.chunks + id / kKvChunkPages * a_.chunk_stride;
    const uint8_t* v = chunk + kKvChunkPages * pieces_.k;
    const uint8_t* scales = v + kKvChunkPages * pieces_.v + page * pieces_.scales;
    return {chunk + page * pieces_.k, v + page * pieces_.v, scales, scales + pieces_.k_scales};
  }
  static void Fetch(const uint8_t* from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
  }

  // ---- scores ----

  template <int kLefts>
  void AllScores() {
    const int steps = a_.kv.key_dim / 32;
    for (int m = 0; m < kLefts; ++m) {
      for (int q = 0; q < count_[m]; ++q) {
        for (int s = 0; s < steps; ++s) StoreThirds(a_.q[first_[m] + q] + 32 * s, q, count_[m], left_[m][s]);
      }
    }
    // Products of several pages do not wait for each other. K of the next pages is decoded before these are multiplied:
    // the unit cannot take what has not left the store buffer; and of what is decoded the caches have no more room.
    constexpr int kPages = kKey == KvForm::kBF16 && kLefts == 1 ? 4 : 2;
    const int end = kChunkPages * EndChunk();
    int page = kChunkPages * FirstChunk() / kPages * kPages;
    DecodeKeys<kPages>(page, steps);
    for (; page < end; page += kPages) {
      if (page + kPages < end) DecodeKeys<kPages>(page + kPages, steps);
      Scores<kLefts, kPages>(page, steps);
    }
  }
  template <int kPages>
  void DecodeKeys(int first, int steps) {
    for (int p = 0; p < kPages; ++p) {
      const PageAt& page = pages_[first + p];
      if (page.k == nullptr) continue;
      Fetch(page.v, pieces_.v);
      if constexpr (kKey != KvForm::kBF16) {
        for (int s = 0; s < steps; ++s) KeyTile<kKey>(page.k, s, tables_, keys_[first / kPages % 2][p][s]);
      }
    }
  }
  template <int kLefts, int kPages>
  void Scores(int first, int steps) {
    const PageAt* const pages = pages_ + first;
    V sums[2 * kTileQueries][kPages] = {};
    if constexpr (!kBlocks) ZeroSums<kLefts * kPages>();
    for (int s = 0; s < steps; ++s) {
      if constexpr (kBlocks) ZeroSums<kLefts * kPages>();
      unit_.template Load<4>(left_[0][s], 64);
      if constexpr (kLefts > 1) unit_.template Load<5>(left_[1][s], 64);
      MultiplyPages<kLefts, kPages>(pages, keys_[first / kPages % 2], s);
      if constexpr (kBlocks) AddSums<kLefts, kPages>(pages, s, sums);
    }
    if constexpr (!kBlocks) AddSums<kLefts, kPages>(pages, 0, sums);
    for (int q = 0; q < a_.queries; ++q) {
      for (int p = 0; p < kPages; ++p) StoreScores(pages[p], a_.begin + 16 * (first + p), q, sums[q][p]);
    }
  }
  template <int kLefts, int kPages, int P = 0>
  void MultiplyPages(const PageAt* pages, const KeyTiles* keys, int s) {
    if (pages[P].k != nullptr) {
      const void* tile = pages[P].k + kTileBytes * static_cast<size_t>(s);  // bf16 as it lies
      if constexpr (kKey != KvForm::kBF16) tile = keys[P][s];
      unit_.template Load<6 + P % 2>(tile, 64);
      unit_.template Dot<P, 4, 6 + P % 2>();
      if constexpr (kLefts > 1) unit_.template Dot<2 + P, 5, 6 + P % 2>();
    }
    if constexpr (P + 1 < kPages) MultiplyPages<kLefts, kPages, P + 1>(pages, keys, s);
  }
  // What pages' tiles have, added to sums: of four bits times the multipliers of block `s`.
  template <int kLefts, int kPages>
  void AddSums(const PageAt* pages, int s, V (&sums)[2 * kTileQueries][kPages]) {
    alignas(64) float dots[4][kTileFloats];
    StoreSums<kLefts * kPages>(dots);
    for (int p = 0; p < kPages; ++p) {
      if (pages[p].k == nullptr) continue;
      [[maybe_unused]] const V scale = kBlocks ? LoadE5M3(pages[p].k_scales + 16 * s) : Zero();
      for (int m = 0; m < kLefts; ++m) {
        for (int q = 0; q < count_[m]; ++q) {
          V& sum = sums[first_[m] + q][p];
          const V dot = Whole(dots[2 * m + p], q, count_[m]);
          sum = kBlocks ? Fma(dot, scale, sum) : dot;
        }
      }
    }
  }
  // A query's three rows together.
  static V Whole(const float* sums, int query, int queries) {
    V whole = Load(sums + 16 * (2 * queries + query));
    whole = Add(whole, Load(sums + 16 * (queries + query)));
    return Add(whole, Load(sums + 16 * query));
  }
  void StoreScores(const PageAt& page, int64_t token, int q, V score) {
    if (page.k != nullptr && kKey == KvForm::kFp8) score = Mul(score, Load(reinterpret_cast<const float*>(page.k_scales)));
    const int64_t visible = page.k == nullptr ? 0 : a_.visible[q] - token, behind = a_.first[q] - token;
    score = First(visible > 16 ? 16 : visible < 0 ? 0 : static_cast<int>(visible), score, Set(-__builtin_inff()));
    if (behind > 0) score = First(behind > 16 ? 16 : static_cast<int>(behind), Set(-__builtin_inff()), score);
    Store(a_.scratch + q * kAttentionSplit + (token - a_.begin), score);
  }

  // ---- weights ----

  // Of all tokens of whole chunks: what a query does not see has none. (attention.cc has the same.)
  void Weights(int q) {
    float* const s = a_.scratch + q * kAttentionSplit;
    const int64_t from = int64_t{FirstChunk()} * kChunkTokens, to = int64_t{EndChunk()} * kChunkTokens;
    V max = Load(s + from);
    for (int64_t i = from + 16; i < to; i += 16) max = Max(max, Load(s + i));
    const float m = HorizontalMax(max);
    if (m == -__builtin_inff()) {
      for (int64_t i = from; i < to; i += 16) Store(s + i, Zero());
      return;
    }
    // From the split's begin on, wherever the first token is: what is not seen adds nothing.
    V sum = Zero();
    for (int64_t i = from; i < to; i += 16) {
      V p = Exp(Sub(Load(s + i), Set(m)));
      sum = Add(sum, p);
      if constexpr (kValue == KvForm::kFp8) {
        const PageAt& page = pages_[i / 16];
        if (page.k != nullptr) p = Mul(p, Load(reinterpret_cast<const float*>(page.v_scales)));
        // A token that nobody has written has no multiplier, and a weight of zero.
        const int64_t written = end_ - a_.begin - i;
        if (written < 16) p = First(written < 0 ? 0 : static_cast<int>(written), p, Zero());
      }
      Store(s + i, p);
    }
    a_.max_sum[q][0] = m;
    a_.max_sum[q][1] = HorizontalSum(sum);
  }

  // ---- values ----

  // 64 elements at a time with one left tile; with two, whose sums take all tiles, 32 of these.
  template <int kLefts>
  void AllValues() {
    const int parts = a_.kv.value_dim / 64;
    for (int part = 0; part < parts; ++part) {
      if constexpr (kLefts == 1) {
        Part<kLefts>(part, 0);
      } else {
        Part<kLefts>(part, 0);
        Part<kLefts>(part, 2);
      }
    }
  }
  template <int kLefts>
  void Part(int part, int tile0) {
    ZeroSums<4>();
    const int end = EndChunk();
    const bool fetch = part == 0 && tile0 == 0 && next_;
    DecodeValues(FirstChunk(), part);
    for (int chunk = FirstChunk(); chunk < end; ++chunk) {
      if (chunk + 1 < end) DecodeValues(chunk + 1, part);
      for (int p = 0; fetch && p < kChunkPages; ++p) {
        Fetch(Found(TokenOf(chunk) + 16 * p + kAttentionSplit).k, pieces_.k);
      }
      const uint16_t* tiles = values_[chunk % 2] + tile0 * 512;
      unit_.template Load<4>(left_[0][chunk], 64);
      if constexpr (kLefts > 1) unit_.template Load<5>(left_[1][chunk], 64);
      if constexpr (kLefts == 1) {
        MultiplyValues<0>(tiles);
        MultiplyValues<1>(tiles);
        MultiplyValues<2>(tiles);
        MultiplyValues<3>(tiles);
      } else {
        unit_.template Load<6>(tiles, 64);
        unit_.template Load<7>(tiles + 512, 64);
        unit_.template Dot<0, 4, 6>();
        unit_.template Dot<1, 4, 7>();
        unit_.template Dot<2, 5, 6>();
        unit_.template Dot<3, 5, 7>();
      }
    }
    alignas(64) float dots[4][kTileFloats];
    StoreSums<4>(dots);
    for (int m = 0; m < kLefts; ++m) {
      for (int q = 0; q < count_[m]; ++q) {
        for (int t = 0; t < 4 / kLefts; ++t) {
          float lanes[16];
          Store(lanes, Whole(dots[kLefts == 1 ? t : 2 * m + t], q, count_[m]));
          float* const out = a_.out[first_[m] + q] + 64 * part;
          for (int lane = 0; lane < 16; ++lane) out[ValueDim<kValue>(tile0 + t, lane)] = lanes[lane];
        }
      }
    }
  }
  template <int I>
  void MultiplyValues(const uint16_t* tiles) {
    constexpr int kB = 6 + I % 2;
    unit_.template Load<kB>(tiles + I * 512, 64);
    unit_.template Dot<I, 4, kB>();
  }
  // Weights as left tiles.
  void MakeLefts() {
    for (int m = 0; m < lefts_; ++m) {
      for (int q = 0; q < count_[m]; ++q) {
        const float* const weights = a_.scratch + (first_[m] + q) * kAttentionSplit;
        for (int chunk = FirstChunk(); chunk < EndChunk(); ++chunk) {
          StoreThirds(weights + chunk * kChunkTokens, q, count_[m], left_[m][chunk]);
        }
      }
    }
  }
  void DecodeValues(int chunk, int part) {
    ValuePages values;
    values.row = pieces_.v / 16;
    for (int p = 0; p < kChunkPages; ++p) {
      const PageAt& page = pages_[kChunkPages * chunk + p];
      values.v[p] = page.v;
      values.scales[p] = page.v_scales;
      const int64_t there = page.v == nullptr ? 0 : end_ - TokenOf(chunk) - 16 * p;
      if (there < 16) Pad(page, there, p, &values);
    }
    ValueTiles<kValue>(values, part, tables_, values_[chunk % 2]);
  }
  // Tokens that no query sees may be anything: zeros in their place.
  void Pad(const PageAt& page, int64_t there, int p, ValuePages* values) {
    const size_t bytes = there <= 0 ? 0 : static_cast<size_t>(there) * values->row;
    if (bytes > 0) __builtin_memcpy(padded_[p], page.v, bytes);
    __builtin_memset(padded_[p] + bytes, 0, pieces_.v - bytes);
    values->v[p] = padded_[p];
    if constexpr (kValue == KvForm::kFp4) {
      for (int32_t block = 0; block < a_.kv.value_dim / 32; ++block) {
        for (int token = 0; token < 16; ++token) {
          padded_scales_[p][16 * block + token] = token < there ? page.v_scales[16 * block + token] : 0;
        }
      }
      values->scales[p] = padded_scales_[p];
    }
  }

  // Sums of one left tile are tiles 0 to 3, of two 0 and 1, and 2 and 3. The first `kTiles` of them, 2 or 4.
  template <int kTiles>
  void ZeroSums() {
    unit_.template Zero<0>();
    unit_.template Zero<1>();
    if constexpr (kTiles == 2) return;
    unit_.template Zero<2>();
    unit_.template Zero<3>();
  }
  template <int kTiles>
  void StoreSums(float (&sums)[4][kTileFloats]) {
    unit_.template Store<0>(sums[0], 64);
    unit_.template Store<1>(sums[1], 64);
    if constexpr (kTiles == 2) return;
    unit_.template Store<2>(sums[2], 64);
    unit_.template Store<3>(sums[3], 64);
  }

  T& unit_;
  const AttendArgs& a_;
  const DecodeTables tables_;
  int lefts_ = 1, first_[2] = {}, count_[2] = {};
  int64_t begin_ = 0, end_ = 0;  // tokens that some query sees, from a page's first on
  bool next_ = false;            // some query sees all of the next split
  KvPieces pieces_ = {};
  PageAt pages_[kAttentionSplit / 16];
  alignas(64) uint16_t left_[2][kMostSteps][512];  // queries by steps; then weights by chunks
  static_assert(kMostSteps >= kChunks);
  alignas(64) KeyTiles keys_[2][2];  // of the pages that are multiplied, and of the next
  alignas(64) uint16_t values_[2][4 * 512];
  alignas(64) uint8_t padded_[kChunkPages][16 * kMostValues * 2];
  uint8_t padded_scales_[kChunkPages][kMostValues / 32 * 16];
};

template <class T>
static inline void TileAttend(T& unit, const AttendArgs& a) {
  switch (a.kv.format) {
    case KvFormat::kBF16:
      return TileAttention<T, KvForm::kBF16, KvForm::kBF16>(unit, a).Run();
    case KvFormat::kFp8:
      return TileAttention<T, KvForm::kFp8, KvForm::kFp8>(unit, a).Run();
    case KvFormat::kFp4:
      return TileAttention<T, KvForm::kFp4, KvForm::kFp4>(unit, a).Run();
    case KvFormat::kK8V4:
      return TileAttention<T, KvForm::kFp8, KvForm::kFp4>(unit, a).Run();
    case KvFormat::kF32:
      return;
  }
}

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_ATTEND_TILES_H_
