// SPDX-License-Identifier: MIT
//
// Causal grouped-query attention over pages, through the matrix units. What its splits leave is merged by a launch of its
// own (attend_merge.h) or, of few rows, in this one (attend_here.h).
//
// A workgroup takes one row, one key head and one split of kSplitTokens; its query heads (at most 16)
// are the columns of the matrix instructions, tokens and then head elements the rows. Waves take
// every fourth group of 32 tokens. What a row does not see, splits and groups before a cache's window, is
// not read. Which wave sees which token depends on its absolute position
// alone, waves and splits are merged in index order: a row's bits do not depend on the step.
#ifndef MAINARCH_KERNELS_OPS_ATTENTION_H_
#define MAINARCH_KERNELS_OPS_ATTENTION_H_

#include "kernels/ops/attend_here.h"
#include "kernels/ops/kv_page.h"
#include "kernels/ops/tiles.h"
#include "kernels/quant/kv_fp4.h"

namespace mainarch::kernels {

using f16x2 = Vec<_Float16, 2>;

// What lane kLane of these four lanes has.
template <int kLane>
DEVICE uint32_t DppQuad(uint32_t x) {
  return static_cast<uint32_t>(__builtin_amdgcn_mov_dpp(static_cast<int>(x), kLane * 0x55, 0xf, 0xf, true));
}

// Eight fp32 as the two bf16 operands of a matrix instruction.
struct SplitEight {
  u32x4 high, low;
};
DEVICE SplitEight Split(const Eight& x) {
  SplitEight out;
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) {
    const float a = x.at[2 * i], b = x.at[2 * i + 1];
    const uint32_t high = isa::NearBf16Pair(a, b);
    out.high[i] = high;
    out.low[i] = isa::NearBf16Pair(a - Bf16Low(high), b - Bf16High(high));
  }
  return out;
}

// The same as f16, of what these hold.
DEVICE SplitEight SplitF16(const Eight& x) {
  SplitEight out;
  float minus = -1.0f;
  __asm__("" : "+s"(minus));  // so that an f16 is taken as it is, and not made a float first
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) {
    const float a = x.at[2 * i], b = x.at[2 * i + 1];
    out.high[i] = BitCast<uint32_t>(__builtin_amdgcn_cvt_pkrtz(a, b));
    const f16x2 high = BitCast<f16x2>(out.high[i]);
    const float of_a = static_cast<float>(high[0]), of_b = static_cast<float>(high[1]);
    out.low[i] = BitCast<uint32_t>(__builtin_amdgcn_cvt_pkrtz(Fma(of_a, minus, a), Fma(of_b, minus, b)));
  }
  return out;
}
DEVICE uint32_t TimesF16Pair(uint32_t a, uint32_t b) { return BitCast<uint32_t>(BitCast<f16x2>(a) * BitCast<f16x2>(b)); }

// Of the cache, that of a launch's key head.
DEVICE uint32_t PageHead(const AttendArgs& args, uint32_t head) {
  return args.page_heads == args.kv_heads ? head : head * args.page_heads / args.kv_heads;
}

// This lane's eight columns of a step, as floats (StepPlace). Steps are counted in 64 bits: with 32
// the compiler may not fold neighbouring ones into one address.
DEVICE Eight LoadStep(Global<const float> row, uint64_t step) {
  const Global<const float> at = row + step * kStepColumns + LanePart() * 4;
  return Unpack(RawEight<float>{{Load16(at, 0), Load16(at, 4)}});
}

// What a wave has so far: for its column (query head) the largest score, this lane's part of the
// sum of exp, and exp-weighted V: element 16 t + 4 g + r of lane (j, g) in o[t][r].
template <uint32_t kValueDim>
struct Running {
  float largest = -1e30f;  // finite: of two -inf no difference can be taken
  float sum = 0;
  float unit = 1;  // what scores and `largest` are to be multiplied by, a power of two
  f32x4 o[kValueDim / 16] = {};
};

// A part of what a row's attention leaves: which one, of how many.
struct RowPart {
  uint32_t index, count;
};
// A workgroup has one row: its part is known.
struct OneRow {};

// `kHeadDim`: of Q and K. `kMakesHeads`: in this launch, too (HeadsHere), which leaves fewer registers.
template <KvFormat kFormat, uint32_t kHeadDim, uint32_t kValueDim = kHeadDim, bool kMakesHeads = kHeadDim == kValueDim>
struct Attend {
  using Args = AttendOnceArgs;
  using Here = HeadsHere<kFormat, kHeadDim>;
  using Merge = MergeHere<kValueDim>;
  using PageOf = Page<kFormat, kHeadDim, kValueDim>;
  static_assert(!kMakesHeads || kHeadDim == kValueDim);
  static constexpr KvForm kKey = KeyForm(kFormat), kValue = ValueForm(kFormat);
  static constexpr uint32_t kSteps = kHeadDim / 32;
  // Of a wide head registers do not hold all at once: K and V are asked for in parts of kPart
  // columns of the head, two parts at a time.
  static constexpr bool kFewBytes = kKey == KvForm::kFp4 || (kKey == KvForm::kBF16 && kHeadDim <= 192);
  static constexpr bool kInParts = kHeadDim > 128 && kKey != KvForm::kFp8 && (kMakesHeads || !kFewBytes);
  static constexpr uint32_t kPart = !kInParts ? kHeadDim : kKey == KvForm::kFp4 ? 64 : 64 / KvPlanes(kKey);
  static constexpr uint32_t kLeastPart = kValue == KvForm::kFp4 ? KvFp4ValuePart(kValueDim) : 0;
  static constexpr uint32_t kValuePart = kPart >= kValueDim ? kValueDim : kPart < kLeastPart ? kLeastPart : kPart;
  static constexpr uint32_t kParts = kHeadDim / kPart, kValueParts = kValueDim / kValuePart;
  static constexpr bool kWhole = kParts == 1 && kValueParts == 1;
  // An element of four bits times its block's multiplier has six significant bits, and an eighth of it is an f16,
  // exactly: so these products are of f16, and their blocks need no arithmetic of their own. What is multiplied by V are
  // weights times 2^15, of which what is small beside 1 keeps its bits; by K queries whose largest is about as large.
  static constexpr bool kF16Keys = kKey == KvForm::kFp4, kF16Values = kValue == KvForm::kFp4;
  static constexpr float kOfWeights = kF16Values ? 0x1p-15f : 1;  // what sums of weights are to be multiplied by
  static constexpr float kOfO = kF16Values ? 0x1p-12f : 1;        // and o
  // What waves leave of every column: o, so many elements of a head at a time, [4 waves][16 columns]; m and l, [4][16]
  // each; and of all waves shares [4][16], m and l [16]. Two workgroups and more fit a compute unit.
  static constexpr uint32_t kMerged = kValueDim % 64 == 0 ? 64 : 32;
  static constexpr uint32_t kColumn = kMerged + 2;
  static constexpr uint32_t kPeaksAt = kWaves * kMaxGroup * kColumn * 4;
  static constexpr uint32_t kOfWaves = kWaves * kMaxGroup;  // floats
  static constexpr uint32_t kFinishBytes = kPeaksAt + (3 * kOfWaves + 2 * kMaxGroup) * 4;
  static constexpr uint32_t kLdsBytes = kMakesHeads && kFinishBytes < Here::kLdsBytes ? Here::kLdsBytes : kFinishBytes;
  static_assert(Merge::kLdsBytes <= kLdsBytes);

  // Arguments are read again for each piece of work: in registers they would be in the way of all the rest.
  // From the last workgroup on: beside a product the first ones have its units.
  DEVICE static void Run(const Args& once, uint32_t from_first, uint32_t workers, Arena arena) {
    const uint32_t worker = workers - 1 - from_first;
    const AttendArgs& args = once.attend;
    const StepView step(args.step);
    const uint32_t splits = Min(step.splits(), MostSplits(args.window));
    const uint32_t total = RowsHere(step, args.first_row, args.row_count) * args.kv_heads * splits;
    for (uint32_t t = worker; t < total; t += workers) {
      const AttendArgs again = ReadArgumentsAgain<Args>().attend;
      const uint32_t unit = t / splits, split = t - unit * splits;
      const uint32_t r = again.row_count == 1 ? 0 : unit / again.kv_heads;  // a division is some thirty instructions
      const uint32_t row = again.first_row + r, head = unit - r * again.kv_heads;
      const StepView here(again.step);
      const StepView::Place place = here.place(row);
      if (split < SplitsSeen(place.position, again.window)) OneSplit(here, place, row, head, split, arena);
    }
    Merge::template Run<Args, SeenSplits>((worker + workers - total % workers) % workers, workers, arena);
  }

  // Of the group's queries this lane's column, times the factor of the scores; and in what units scores of them are.
  DEVICE static void LoadQueries(const AttendArgs& args, uint32_t row, uint32_t head, SplitEight (&query)[kSteps],
                                 Running<kValueDim>& run) {
    const uint32_t column = head * args.group + Min(LaneRow(), args.group - 1);
    const Global<const float> q = At(args.qkv) + uint64_t{row} * args.q_stride + column * kHeadDim;
    SplitQueries(args, [=](uint32_t s) { return LoadStep(q, s); }, query, run);
  }
  // The same of those that HeadsHere has made.
  DEVICE static void TakeQueries(const AttendArgs& args, SplitEight (&query)[kSteps], Running<kValueDim>& run,
                                 Arena arena) {
    const Lds<const float> q = arena.Get<float>() + Min(LaneRow(), args.group - 1) * Here::kQueryStride;
    const auto step = [=](uint32_t s) {
      const Lds<const f32x4> at = reinterpret_cast<Lds<const f32x4>>(q + s * kStepColumns + LanePart() * 4);
      return Join(at[0], at[4]);
    };
    SplitQueries(args, step, query, run);
  }
  template <class Step>
  DEVICE static void SplitQueries(const AttendArgs& args, Step step, SplitEight (&query)[kSteps],
                                  Running<kValueDim>& run) {
    Eight all[kSteps];
    float largest = 0;
#pragma clang loop unroll(full)
    for (uint32_t s = 0; s < kSteps; ++s) {
      all[s] = step(s);
#pragma clang loop unroll(full)
      for (int i = 0; i < 8; ++i) {
        all[s].at[i] *= args.scale;
        if constexpr (kF16Keys) largest = __builtin_fmaxf(largest, __builtin_fabsf(all[s].at[i]));
      }
      if constexpr (!kF16Keys) query[s] = Split(all[s]);
    }
    if constexpr (!kF16Keys) return;
    // The largest becomes 2^13 and a bit, unless that is more than floats allow.
    uint32_t exponent = BitCast<uint32_t>(ColumnMax(largest)) >> 23;
    exponent = exponent < 14 ? 14 : exponent > 253 ? 253 : exponent;
    const float by = BitCast<float>((267 - exponent) << 23);
    run.unit = 8 * BitCast<float>((exponent - 13) << 23);
#pragma clang loop unroll(full)
    for (uint32_t s = 0; s < kSteps; ++s) {
#pragma clang loop unroll(full)
      for (int i = 0; i < 8; ++i) all[s].at[i] *= by;
      query[s] = SplitF16(all[s]);
    }
  }

  // Splits are counted from the row's first.
  DEVICE static void OneSplit(const StepView& step, const StepView::Place& place, uint32_t row, uint32_t head,
                              uint32_t split, Arena arena) {
    const Args once = ReadArgumentsAgain<Args>();
    const uint32_t position = place.position, window = once.attend.window;
    Running<kValueDim> run;
    static_assert(kWaves * 32 == kSplitTokens);
    const uint32_t seen = FirstSeen(position, window), splits = SplitsSeen(position, window);
    const uint32_t token = (seen / kSplitTokens + split) * kSplitTokens + WaveId() * 32;
    const bool sees = token <= position && token + 32 > seen;
    if constexpr (!kMakesHeads) {
      if (sees) OneGroup(once.attend, step, place, row, head, token, seen, position, run);
    } else if (once.prepare.step.address != 0) {
      WithHeads(once.attend, step, place, row, head, token, seen, sees, split + 1 == splits, run, arena);
    } else if (sees) {
      OneGroup(once.attend, step, place, row, head, token, seen, position, run);
    }
    const Args again = ReadArgumentsAgain<Args>();
    Unit unit = {row, head, split, splits, again.attend.group, {}};
    if (again.here.words.address != 0) unit.words = PartWords(again.here, step);
    Finish(again.attend, unit, run, arena);
  }
  // K and V of a wave's group are on their way while heads are made, where registers have room for both; but for new ones,
  // which of several rows of a sequence are side by side: the row's own, and so many before and behind it as there are
  // others.
  static constexpr bool kEarly = kHeadDim <= 128 && KvPlanes(kKey) == 1;
  DEVICE static bool IsFresh(uint32_t token, uint32_t position) { return token + 31 + Here::Rows() > position; }
  DEVICE static void WithHeads(const AttendArgs& args, const StepView& step, const StepView::Place& place, uint32_t row,
                               uint32_t head, uint32_t token, uint32_t seen, bool sees, bool owns,
                               Running<kValueDim>& run, Arena arena) {
    const uint32_t position = place.position;
    const bool early = kEarly && sees && !IsFresh(token, position);
    PagesOf pages;
    Parts parts(pages.a, pages.b);
    if constexpr (kEarly) {
      pages.Find(args, step, place, head, token, seen, position, sees);
      if (early) parts.AskFirst();
    }
    Here::Make(place, row, head, owns, arena);
    if (!sees) return;
    if (kEarly ? !early : IsFresh(token, position)) Here::AwaitRows(head);
    if constexpr (!kEarly) {
      const AttendArgs again = ReadArgumentsAgain<Args>().attend;
      pages.Find(again, StepView(again.step), place, head, token, seen, position, sees);
    }
    if (!early) parts.AskFirst();
    SplitEight query[kSteps];
    TakeQueries(ReadArgumentsAgain<Args>().attend, query, run, arena);
    const Tokens own = {token - seen, position - seen};
    Group(parts, own, own, query, run);
  }
  // Of the 32 tokens from `token` on those from `seen` to `position`; there are some.
  DEVICE static void OneGroup(const AttendArgs& args, const StepView& step, const StepView::Place& place, uint32_t row,
                              uint32_t head, uint32_t token, uint32_t seen, uint32_t position,
                              Running<kValueDim>& run) {
    PagesOf pages;
    pages.Find(args, step, place, head, token, seen, position, true);
    Parts parts(pages.a, pages.b);
    parts.AskFirst();  // on their way while queries are made
    SplitEight query[kSteps];
    LoadQueries(args, row, head, query, run);
    // Counted from the first token seen: those before it are far behind the last then.
    const Tokens own = {token - seen, position - seen};
    Group(parts, own, own, query, run);
  }

  // The two pages of a group of 32 tokens.
  struct PagesOf {
    PageOf a, b;
    DEVICE void Find(const AttendArgs& args, const StepView& step, const StepView::Place& place, uint32_t head,
                     uint32_t token, uint32_t seen, uint32_t position, bool real) {
      const Global<const uint32_t> pages = step.words(place.pages) + args.tables_at + (real ? token / kPageTokens : 0);
      const Global<uint8_t> kv = At(Address<uint8_t>{args.kv.address});
      // The second page may not exist, then its tokens lie beyond the row's position; nor may the first,
      // whose tokens then lie behind its window.
      const uint32_t second = real && token + kPageTokens <= position ? 1 : 0;
      const uint32_t first = token + kPageTokens > seen ? 0 : second;
      const uint32_t own = PageHead(args, head);
      a = PageAt<kFormat, kHeadDim, kValueDim>(kv, pages[first], args.page_heads, own);
      b = PageAt<kFormat, kHeadDim, kValueDim>(kv, pages[second], args.page_heads, own);
    }
  };

  // Of fp4, of tokens 4 g .. 4 g + 3 multipliers of kCount blocks, a byte each. Of four blocks they are 64 bytes, asked
  // for at once: a block by every fourth lane of a row, who tells the others; where there are fewer, the last one again.
  template <uint32_t kCount>
  struct BlockScales {
    static constexpr bool kFours = kCount > 1;
    uint32_t words[CeilDiv(kCount, 4)];

    DEVICE void Load(Global<const uint8_t> bytes, uint32_t first) {
      const Global<const uint32_t> from = reinterpret_cast<Global<const uint32_t>>(bytes) + LanePart();
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < sizeof(words) / 4; ++i) {
        const uint32_t block = first + Min(4 * i + LaneRow() % 4, kCount - 1);
        words[i] = from[block * (kPageTokens / 4)];
      }
    }
    DEVICE uint32_t Of(uint32_t i) const {
      if constexpr (!kFours) return words[i];
      const uint32_t word = words[i / 4];
      switch (i % 4) {
        case 0: return DppQuad<0>(word);
        case 1: return DppQuad<1>(word);
        case 2: return DppQuad<2>(word);
        default: return DppQuad<3>(word);
      }
    }
  };

  // A part of K of 16 tokens as it lies, this lane's share, and what multiplies it.
  struct Keys {
    static constexpr bool kFp4 = kKey == KvForm::kFp4, kFp8 = kKey == KvForm::kFp8;
    static constexpr uint32_t kPlanes = KvPlanes(kKey), kCount = kPart / 32;
    u32x4 words[kFp4 || kFp8 ? 1 : kPlanes * kCount];
    u32x2 pairs[kFp8 ? kCount : 1];
    uint32_t codes[kFp4 ? kCount : 1];
    static constexpr uint32_t kScaleWords = CeilDiv(kCount, 4);
    uint32_t scales[kScaleWords];  // of fp4, a byte each, of this lane's token
    f32x4 multipliers;

    DEVICE void Load(const PageOf& page, uint32_t part) {
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kCount; ++i) {
        const uint32_t s = part * kCount + i, at = (s * 16 + LaneRow()) * 4 + LanePart();
        if constexpr (kFp4) {
          codes[i] = reinterpret_cast<Global<const uint32_t>>(page.k(0))[at];
        } else if constexpr (kFp8) {
          pairs[i] = reinterpret_cast<Global<const u32x2>>(page.k(0))[at];
        } else {
#pragma clang loop unroll(full)
          for (uint32_t p = 0; p < kPlanes; ++p) words[p * kCount + i] = Load16(page.k(p), at);
        }
      }
      if constexpr (kFp4) {
        const uint32_t first = LaneRow() * (kHeadDim / 32) + part * kCount;
        const Global<const uint8_t> at = page.k_bytes() + first;
        if constexpr (kCount % 4 == 0) {
#pragma clang loop unroll(full)
          for (uint32_t w = 0; w < kScaleWords; ++w) scales[w] = reinterpret_cast<Global<const uint32_t>>(at)[w];
        } else if constexpr (kCount == 3 || kCount == 6) {  // of one word or two
          const Global<const uint32_t> words_at = reinterpret_cast<Global<const uint32_t>>(page.k_bytes()) + first / 4;
          const uint32_t low = words_at[0], high = words_at[(first % 4 + kCount - 1) / 4];
          const uint64_t both = (uint64_t{high} << 32 | low) >> first % 4 * 8;
          scales[0] = static_cast<uint32_t>(both);
          if constexpr (kCount == 6) scales[1] = static_cast<uint32_t>(both >> 32);
        } else if constexpr (kCount == 2) {
          scales[0] = *reinterpret_cast<Global<const uint16_t>>(at);
        } else {
          static_assert(kCount == 1);
          scales[0] = *at;
        }
      }
      if constexpr (kFp8) multipliers = FourFloats(page.k_scales());
    }
    // acc + this part times the queries.
    DEVICE f32x4 Scores(const SplitEight (&query)[kSteps], uint32_t part, f32x4 acc) const {
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kCount; ++i) {
        const SplitEight& q = query[part * kCount + i];
        if constexpr (kFp4) {
          u32x4 keys = isa::Fp4ToF16Eighths(codes[i]);
          const uint32_t pair = (scales[i / 4] >> 8 * (i % 4) & 0xff) * 0x00800080;  // twice, the top of an f16 without its sign
#pragma clang loop unroll(full)
          for (uint32_t k = 0; k < 4; ++k) keys[k] = TimesF16Pair(keys[k], pair);
          acc = ProductF16(keys, q, acc);
        } else if constexpr (kFp8) {
          const u32x2 both = pairs[i];
          const uint32_t c0 = both[0], c1 = both[1];
          acc = Product(isa::CachedFp8ToBf16(c0, c1), q, acc);
        } else {
          if constexpr (kPlanes == 2) acc = ProductHigh(words[kCount + i], q, acc);
          acc = Product(words[i], q, acc);
        }
      }
      return acc;
    }
  };
  // A part of V of 32 tokens as it lies, this lane's share: of tile t tokens 4 g .. 4 g + 3 of both
  // pages.
  struct Values {
    static constexpr bool kFp4 = kValue == KvForm::kFp4, kFp8 = kValue == KvForm::kFp8;
    static constexpr uint32_t kPlanes = KvPlanes(kValue), kWords = kValuePart / 32, kTiles = kValuePart / 16;
    u32x2 a[kFp4 || kFp8 ? 1 : kPlanes * kTiles], b[kFp4 || kFp8 ? 1 : kPlanes * kTiles];
    uint32_t codes_a[kFp8 ? kTiles : kFp4 ? kWords : 1];
    uint32_t codes_b[kFp8 ? kTiles : kFp4 ? kWords : 1];
    BlockScales<kFp4 ? kWords : 1> scales_a, scales_b;
    f32x4 multipliers_a, multipliers_b;

    DEVICE void Load(const PageOf& page_a, const PageOf& page_b, uint32_t part) {
      if constexpr (kFp4) {
        constexpr uint32_t kOfPart = KvFp4ValuePart(kValueDim) / 32;  // words of a lane
        static_assert(kWords % kOfPart == 0);
        const uint32_t at = (LaneRow() * 4 + LanePart()) * kOfPart;
        using Lane = uint32_t __attribute__((ext_vector_type(kOfPart), aligned(4 * (kOfPart & (~kOfPart + 1)))));
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kWords; i += kOfPart) {
          const uint32_t word = at + (part * kWords + i) * kWave;
          const Lane a_words = *reinterpret_cast<Global<const Lane>>(reinterpret_cast<Global<const uint32_t>>(page_a.v(0)) + word);
          const Lane b_words = *reinterpret_cast<Global<const Lane>>(reinterpret_cast<Global<const uint32_t>>(page_b.v(0)) + word);
#pragma clang loop unroll(full)
          for (uint32_t w = 0; w < kOfPart; ++w) {
            codes_a[i + w] = a_words[w];
            codes_b[i + w] = b_words[w];
          }
        }
        scales_a.Load(page_a.v_bytes(), part * kWords);
        scales_b.Load(page_b.v_bytes(), part * kWords);
      } else {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kTiles; ++i) {
          const uint32_t t = part * kTiles + i, at = (t * 16 + LaneRow()) * 4 + LanePart();
          if constexpr (kFp8) {
            codes_a[i] = reinterpret_cast<Global<const uint32_t>>(page_a.v(0))[at];
            codes_b[i] = reinterpret_cast<Global<const uint32_t>>(page_b.v(0))[at];
          } else {
#pragma clang loop unroll(full)
            for (uint32_t p = 0; p < kPlanes; ++p) {
              a[p * kTiles + i] = reinterpret_cast<Global<const u32x2>>(page_a.v(p))[at];
              b[p * kTiles + i] = reinterpret_cast<Global<const u32x2>>(page_b.v(p))[at];
            }
          }
        }
        if constexpr (kFp8) {
          multipliers_a = FourFloats(page_a.v_scales());
          multipliers_b = FourFloats(page_b.v_scales());
        }
      }
    }
    // Of plane p tile i of the part, those of real tokens.
    DEVICE u32x4 Tile(uint32_t p, uint32_t i, u32x4 real) const {
      if constexpr (kFp8) {
        return real & isa::CachedFp8ToBf16(codes_a[i], codes_b[i]);
      } else {
        const u32x2 low = a[p * kTiles + i], high = b[p * kTiles + i];
        return real & u32x4{low[0], low[1], high[0], high[1]};
      }
    }
  };
  // Of fp8, of tokens 4 g .. 4 g + 3.
  DEVICE static f32x4 FourFloats(Global<const float> scales) {
    return reinterpret_cast<Global<const f32x4>>(scales)[LanePart()] * isa::kCachedFp8Scale;
  }
  DEVICE static f32x4 Product(u32x4 w, const SplitEight& x, f32x4 acc) {
    return isa::Mfma16x16x32Bf16(w, x.high, isa::Mfma16x16x32Bf16(w, x.low, acc));
  }
  DEVICE static f32x4 ProductF16(u32x4 w, const SplitEight& x, f32x4 acc) {
    return isa::Mfma16x16x32F16(w, x.high, isa::Mfma16x16x32F16(w, x.low, acc));
  }
  DEVICE static f32x4 ProductHigh(u32x4 w, const SplitEight& x, f32x4 acc) {
    return isa::Mfma16x16x32Bf16(w, x.high, acc);
  }

  // All parts of K and then of V, in the order in which they are asked for: two before any is used,
  // and one more whenever one has been.
  struct Parts {
    const PageOf &a, &b;
    static constexpr uint32_t kAll = kParts + kValueParts;
    Keys key_a[kParts], key_b[kParts];
    Values values[kValueParts];

    DEVICE Parts(const PageOf& page_a, const PageOf& page_b) : a(page_a), b(page_b) {}
    DEVICE void AskFirst() {
      Ask(0);
      Ask(1);
      KeepOrder();
    }
    DEVICE void Ask(uint32_t i) {
      if (i < kParts) {
        key_a[i].Load(a, i);
        key_b[i].Load(b, i);
      } else if (i < kAll) {
        values[i - kParts].Load(a, b, i - kParts);
      }
    }
    DEVICE void AskBehind(uint32_t i) {
      if (i + 2 >= kAll) return;
      Ask(i + 2);
      KeepOrder();
    }
  };

  // A group's first token and the last one that is seen, both counted from the first one seen.
  struct Tokens {
    uint32_t token, last;
  };
  // Lane (j, g) holds tokens 4g .. 4g+3 of each page: their scores and then weights are both what
  // the first product gives and what the second one takes, with no move between lanes.
  // `own`: of this lane's column; `all`: of all columns together.
  DEVICE static void Group(Parts& parts, Tokens own, Tokens all, const SplitEight (&query)[kSteps],
                           Running<kValueDim>& run) {
    f32x4 score_a = {0, 0, 0, 0}, score_b = {0, 0, 0, 0};
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kParts; ++i) {
      score_a = parts.key_a[i].Scores(query, i, score_a);
      score_b = parts.key_b[i].Scores(query, i, score_b);
      parts.AskBehind(i);
    }
    Eight score = Join(score_a, score_b);
    if constexpr (kKey == KvForm::kFp8) {
      Times(score, parts.key_a[0].multipliers, parts.key_b[0].multipliers);
    }
    Weigh(own.token, own.last, score, run);
    if constexpr (kValue == KvForm::kFp8) {
      Times(score, parts.values[0].multipliers_a, parts.values[0].multipliers_b);
    }
    const SplitEight weight = kValue == KvForm::kFp4 ? TurnWeights(score) : Split(score);
    const u32x4 real = RealTokens(all.token, all.last);
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kValueParts; ++i) {
      if constexpr (kValue == KvForm::kFp4) {
        AddFp4Values(parts.values[i], i, weight, real, run);
      } else {
        AddValues(parts.values[i], i, weight, real, run);
      }
      parts.AskBehind(kParts + i);
    }
  }
  // Tokens from `token` on, the last one seen is `position`; both counted from the first one seen, so
  // that those before it, being unsigned, are beyond it too.
  // Scores become weights: exp of what they are above the largest of all so far, to which what has been added
  // before is brought.
  // `kWhole`: all 32 tokens are seen.
  template <bool kWhole = false>
  DEVICE static void Weigh(uint32_t token, uint32_t position, Eight& score,
                            Running<kValueDim>& run) {
    float largest = -__builtin_inff();
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t at = token + i / 4 * kPageTokens + LanePart() * 4 + i % 4;
      if (!kWhole && at > position) score.at[i] = -__builtin_inff();
      largest = __builtin_fmaxf(largest, score.at[i]);
    }
    const float now = __builtin_fmaxf(run.largest, ColumnMax(largest));
    const float by = run.unit * kLog2E;
    const float keep = kF16Keys ? Exp2((run.largest - now) * by) : Exp(run.largest - now);
    run.largest = now;
    float sum = 0;
    const float least = Fma(now, -by, 15.0f);
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) {
      score.at[i] = kF16Values ? Exp2(Fma(score.at[i], by, least)) : Exp(score.at[i] - now);
      sum += score.at[i];
    }
    run.sum = Fma(run.sum, keep, sum);
    // A larger score is rare once a wave has seen some.
    if (Ballot(keep != 1.0f) != 0) {
#pragma clang loop unroll(full)
      for (f32x4& o : run.o) o = o * keep;
    }
  }
  // o += weight * V, of a part.
  DEVICE static void AddValues(const Values& values, uint32_t part, const SplitEight& weight,
                               u32x4 real, Running<kValueDim>& run) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Values::kTiles; ++i) {
      const uint32_t t = part * Values::kTiles + i;
      f32x4 o = run.o[t];
      if constexpr (Values::kPlanes == 2) o = ProductHigh(values.Tile(1, i, real), weight, o);
      run.o[t] = Product(values.Tile(0, i, real), weight, o);
    }
  }
  // The same of four bits. Of the tokens 4 g .. 4 g + 3 of both pages those of one and the other take turns, in V and
  // so in the weights.
  DEVICE static SplitEight TurnWeights(const Eight& weight) {
    Eight turned;
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < 8; ++k) turned.at[k] = weight.at[k / 2 + k % 2 * 4];
    return SplitF16(turned);
  }
  template <bool kWhole = false>
  DEVICE static void AddFp4Values(const Values& values, uint32_t part, const SplitEight& weight, u32x4 real,
                                  Running<kValueDim>& run) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Values::kWords; ++i) {
      const uint32_t scales_a = values.scales_a.Of(i), scales_b = values.scales_b.Of(i);
      const uint32_t word_a = values.codes_a[i], word_b = values.codes_b[i];
      u32x4 low = isa::Fp4ToF16Eighths((word_a & 0x0f0f0f0f) | (word_b & 0x0f0f0f0f) << 4);
      u32x4 high = isa::Fp4ToF16Eighths((word_a >> 4 & 0x0f0f0f0f) | (word_b & 0xf0f0f0f0));
#pragma clang loop unroll(full)
      for (uint32_t k = 0; k < 4; ++k) {
        // The tops of two f16 without their signs: token k's of both pages. A token beyond the position has none yet.
        uint32_t pair = __builtin_amdgcn_perm(scales_b, scales_a, 0x040c000c + k * 0x01000100) >> 1;
        if (!kWhole) pair &= TokenMask(real, k);
        low[k] = TimesF16Pair(low[k], pair);
        high[k] = TimesF16Pair(high[k], pair);
      }
      const uint32_t t = 2 * (part * Values::kWords + i);
      run.o[t] = ProductF16(low, weight, run.o[t]);
      run.o[t + 1] = ProductF16(high, weight, run.o[t + 1]);
    }
  }
  // Of RealTokens, which has those of a page and then of the other, token k of both.
  DEVICE static uint32_t TokenMask(u32x4 real, uint32_t k) {
    const uint32_t a = real[k / 2], b = real[2 + k / 2];
    return k % 2 == 0 ? (a & 0xffff) | b << 16 : a >> 16 | (b & 0xffff0000);
  }
  DEVICE static Eight Join(f32x4 a, f32x4 b) {
    return {{a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]}};
  }
  // Multipliers of the eight tokens. A token beyond the position has no multiplier yet, whatever
  // lies there: its product must not become NaN, so it is left alone (the mask, the zero weight).
  DEVICE static void Times(Eight& x, f32x4 low, f32x4 high) {
    const Eight scale = Join(low, high);
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; ++i) x.at[i] = x.at[i] == 0.0f ? 0.0f : x.at[i] * scale.at[i];
  }
  // Masks for what Values loads: tokens beyond the position have weight 0, but what lies there may
  // be a NaN of some other sequence.
  DEVICE static u32x4 RealTokens(uint32_t token, uint32_t position) {
    u32x4 masks;
#pragma clang loop unroll(full)
    for (uint32_t w = 0; w < 4; ++w) {
      const uint32_t first = token + w / 2 * kPageTokens + LanePart() * 4 + w % 2 * 2;
      masks[w] = (first <= position ? 0xffffu : 0u) | (first + 1 <= position ? 0xffff0000u : 0u);
    }
    return masks;
  }
  // Where what is merged goes.
  struct Unit {
    uint32_t row, head, split, splits, group;
    PartWords words;
    uint32_t rows = 1, position = 0;  // of many: from `row` on, and the first one's
  };
  // Of the waves together: what each has to be multiplied by, the largest score, the sum.
  struct Joined {
    Lds<float> peaks, sums, shares, largest, total;
    DEVICE explicit Joined(Arena arena)
        : peaks(arena.Get<float>(kPeaksAt)),
          sums(peaks + kOfWaves),
          shares(sums + kOfWaves),
          largest(shares + kOfWaves),
          total(largest + kMaxGroup) {}
    // By a thread for each column.
    DEVICE void Column(uint32_t column) const {
      float most = peaks[column];
#pragma clang loop unroll(full)
      for (uint32_t w = 1; w < kWaves; ++w) most = __builtin_fmaxf(most, peaks[w * kMaxGroup + column]);
      float all = 0;
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kWaves; ++w) {
        const float share = Exp(peaks[w * kMaxGroup + column] - most);
        shares[column * kWaves + w] = share;
        all = Fma(sums[w * kMaxGroup + column], share, all);
      }
      largest[column] = most;
      total[column] = all;
    }
  };
  // Merges the four waves in order and writes the answer, or a part of it.
  // `Rows`: of several rows' groups of columns, which part of each `unit.split` is.
  template <class Rows = OneRow>
  DEVICE static void Finish(const AttendArgs& args, const Unit& unit, Running<kValueDim>& run,
                            Arena arena, Rows rows = {}) {
    constexpr bool kRows = !__is_same(Rows, OneRow);
    const uint32_t columns = kRows ? unit.rows * unit.group : unit.group;
    const Joined joined(arena);
    const Lds<float> mine = arena.Get<float>() + (WaveId() * kMaxGroup + LaneRow()) * kColumn;
    const float sum = ColumnSum(run.sum) * kOfWeights;
    if (LanePart() == 0) {
      joined.peaks[WaveId() * kMaxGroup + LaneRow()] = run.largest * run.unit;
      joined.sums[WaveId() * kMaxGroup + LaneRow()] = sum;
    }
    BarrierLds();
    if (ThreadId() < kMaxGroup) joined.Column(ThreadId());
#pragma clang loop unroll(full)
    for (uint32_t first = 0; first < kValueDim; first += kMerged) {
#pragma clang loop unroll(full)
      for (uint32_t t = 0; t < kMerged / 16; ++t) {
#pragma clang loop unroll(full)
        for (uint32_t r = 0; r < 4; ++r) {
          mine[16 * t + 4 * LanePart() + r] = run.o[first / 16 + t][r] * kOfO;
        }
      }
      BarrierLds();
      // Neighbouring lanes have neighbouring elements; of a wave's width and more a wave has whole columns.
      constexpr uint32_t kColumns = kMerged < kWave ? kWave / kMerged : 1;
      const uint32_t d = LaneId() % kMerged, lane_column = kColumns == 1 ? 0 : LaneId() / kMerged;
      for (uint32_t c = Uniform(WaveId()) * kColumns; c < columns; c += kWaves * kColumns) {
        const uint32_t column = c + lane_column;
        if (column >= columns) continue;
        if constexpr (kRows) {
          const uint32_t r = column / unit.group;
          const RowPart part = rows.Part(args, unit.position + r, unit.split);
          if (part.index >= part.count) continue;
          const Unit own = {unit.row + r, unit.head, part.index, part.count, unit.group, {}};
          OneElement(args, own, joined, column, column - r * unit.group, first, d, arena);
        } else {
          OneElement(args, unit, joined, column, column, first, d, arena);
        }
      }
      BarrierLds();
    }
  }
  // Element first + d of the column's head, which is `head` of the group's, d of what the LDS holds.
  DEVICE static void OneElement(const AttendArgs& args, const Unit& unit, const Joined& joined, uint32_t column,
                                uint32_t head, uint32_t first, uint32_t d, Arena arena) {
    const Lds<float> parts = arena.Get<float>() + column * kColumn + d;
    const f32x4 shares = *reinterpret_cast<Lds<const f32x4>>(joined.shares + column * kWaves);
    float o = 0;
#pragma clang loop unroll(full)
    for (uint32_t w = 0; w < kWaves; ++w) {
      const float share = shares[w];
      o = Fma(parts[w * kMaxGroup * kColumn], share, o);
    }
    const uint32_t query_head = unit.head * unit.group + head;
    if (unit.splits == 1) {
      float total = joined.total[column];
      if (args.sinks.address != 0) AddSink(At(args.sinks)[query_head], joined.largest[column], o, total);
      StoreGated(args, unit.row, query_head * kValueDim + first + d, o / total);
      return;
    }
    const bool scores = first == 0 && d < 2;  // the largest score and the sum beside
    const float score = d == 0 ? joined.largest[column] : joined.total[column];
    const uint64_t of_head = (uint64_t{unit.row - args.first_row} * args.heads + query_head) * args.max_splits;
    if (unit.words.words != nullptr) {
      const uint64_t base = of_head * AttendPartFloats(kValueDim);
      unit.words.Tell(base + Merge::ElementAt(unit.split, first + d), o);
      if (scores) unit.words.Tell(base + Merge::ScoreAt(args.max_splits, unit.split) + d, score);
      return;
    }
    const Global<float> part = At(args.parts) + (of_head + unit.split) * AttendPartFloats(kValueDim);
    part[first + d] = o;
    if (scores) part[kValueDim + d] = score;
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTENTION_H_
