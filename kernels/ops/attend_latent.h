// SPDX-License-Identifier: MIT
//
// Causal attention to latents (latent_args.h), through the matrix units: all heads of a rank see one
// key head, whose values are a part of its keys.
//
// A workgroup takes one row, one split and 16 heads, the columns of the matrix instructions, and goes through the split
// in blocks of kSplitTokens. Queries lie in LDS as operands, because a wave's registers do not hold 576 elements of
// 16 heads beside anything else. Wave w makes the scores of tokens 32 w to 32 w + 31 of a block; with the largest
// score of all four, and all weights in LDS, each wave adds up every fourth step of the latent over all tokens. So
// there is one order of additions, by absolute positions, and a row's bits do not depend on the step, on other heads
// or on their number.
//
// A value's operand has four tokens of one element side by side, a key's eight elements of one token:
// the one is made of the other by a product with a part of the identity, which is exact.
#ifndef MAINARCH_KERNELS_OPS_ATTEND_LATENT_H_
#define MAINARCH_KERNELS_OPS_ATTEND_LATENT_H_

#include "kernels/ops/attention.h"
#include "kernels/ops/latent.h"

namespace mainarch::kernels {

// Of a step of one token what a lane loads at once.
template <KvForm kForm>
struct LatentWordOf {
  using Type = u32x4;
};
template <>
struct LatentWordOf<KvForm::kFp8> {
  using Type = u32x2;
};

// Neighbouring rows of a launch.
struct LatentGroup {
  uint32_t row, count, rows;  // rows: of the launch
  // That of row `number` of `all`, from `first_row` on.
  DEVICE LatentGroup(uint32_t first_row, uint32_t all, uint32_t number) {
    const uint32_t begin = number / kLatentTallRows * kLatentTallRows;
    row = first_row + begin;
    count = Min(all - begin, kLatentTallRows);
    rows = all;
  }
  // Whether ops/attend_latent_tall.h takes them: they are of one sequence, one behind the other, their splits are of as
  // many blocks, and there is enough to do.
  DEVICE bool Together(const StepView& step, uint32_t least_blocks) const {
    const StepView::Place first = step.place(row);
    bool together = count > 1 && (first.position / kSplitTokens + 1) * rows >= least_blocks;
#pragma clang loop unroll(full)
    for (uint32_t i = 1; i < kLatentTallRows; ++i) {
      const uint32_t behind = Min(i, count - 1);
      const StepView::Place own = step.place(row + behind);
      together = together && own.pages == first.pages && own.position == first.position + behind;
    }
    return together && LatentSplitBlocks(first.position) == LatentSplitBlocks(first.position + count - 1);
  }
};
// Whether it takes all rows: a group a lane.
DEVICE bool LatentAllTogether(const StepView& step, const AttendLatentArgs& args, uint32_t rows) {
  for (uint32_t first = 0; first < rows; first += kWave * kLatentTallRows) {
    const LatentGroup own(args.first_row, rows, Min(first + LaneId() * kLatentTallRows, rows - 1));
    if (Ballot(!own.Together(step, args.least_blocks)) != 0) return false;
  }
  return true;
}

template <KvFormat kFormat>
struct AttendLatent {
  using Args = AttendLatentArgs;
  static constexpr KvForm kForm = KeyForm(kFormat);
  static constexpr bool kFp8 = kForm == KvForm::kFp8;
  static constexpr uint32_t kPlanes = KvPlanes(kForm);
  using Word = typename LatentWordOf<kForm>::Type;
  static constexpr uint32_t kWordBytes = static_cast<uint32_t>(sizeof(Word));
  static constexpr uint32_t kHeads = kLatentHeads;
  static constexpr uint32_t kGroup = 32;  // tokens of a wave
  static_assert(kGroup * kWaves == kSplitTokens && kGroup == 2 * kPageTokens);
  // Operands of queries, those of weights, and what waves tell each other.
  static constexpr uint32_t kOperandBytes = kWave * 16;
  static constexpr uint32_t kWeightsAt = kLatentMostSteps * 2 * kOperandBytes;
  static constexpr uint32_t kPeaksAt = kWeightsAt + kWaves * 2 * kOperandBytes;
  static constexpr uint32_t kSumsAt = kPeaksAt + kWaves * kHeads * 4;
  static constexpr uint32_t kLdsBytes = kSumsAt + kWaves * kHeads * 4;

  struct Unit {
    uint32_t row, head, split, splits, position;
  };

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t splits = Min(step.splits(), kLatentMostSplits), tiles = CeilDiv(args.heads, kHeads);
    const uint32_t rows = RowsHere(step, args.first_row, args.row_count), total = rows * tiles * splits;
    if (args.others != 0 && LatentAllTogether(step, args, rows)) return;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t split = t % splits, unit = t / splits;
      if (args.others != 0) {
        const LatentGroup group(args.first_row, rows, unit / tiles);
        if (group.Together(step, args.least_blocks)) continue;
      }
      const uint32_t row = args.first_row + unit / tiles, position = step.position(row);
      const Unit one = {row, unit % tiles * kHeads, split, LatentSplits(position), position};
      if (split < one.splits) OneSplit(args, step, one, arena);
    }
  }

  // What a wave will want of memory is asked for ahead: the first of a block's keys before queries are made, or
  // before the values of the block before are added; the first of its values before weights are made.
  DEVICE static void OneSplit(const Args& args, const StepView& step, const Unit& unit,
                              Arena arena) {
    const uint32_t tokens = LatentSplitBlocks(unit.position) * kSplitTokens;
    uint32_t first = unit.split * tokens;
    const uint32_t end = Min(first + tokens - 1, unit.position);
    BlockPages pages(args, step, unit, first);
    Keys keys(pages);
    StageQueries(args, unit, arena);
    Running run;
#pragma clang loop unroll(disable)
    while (true) {
      Eight score = keys.Scores(arena);
      Mask(first + WaveId() * kGroup, unit.position, score);
      Values values(pages);
      const float keep = Weigh(score, keys.latent_multipliers, run, arena);
      values.Add(keep, run, arena);
      BarrierLds();
      first += kSplitTokens;
      if (first > end) break;
      pages = BlockPages(ReadArgumentsAgain<Args>(), step, unit, first);
      keys = Keys(pages);
    }
    Finish(ReadArgumentsAgain<Args>(), unit, run);
  }

  // ---- pages ----

  struct Sizes {
    uint32_t turning_steps, steps, plane_bytes;
  };
  // A page of tokens of which some are real. The lanes of others read the last real one instead, so
  // that no NaN of another sequence comes in.
  struct TokenPage {
    Global<const uint8_t> base;
    uint32_t lane;  // where this lane's eight elements of a step begin, in bytes
  };
  // The eight pages of a block. Those beyond the position, which may not exist, are the position's.
  struct BlockPages {
    Sizes sizes;
    Global<const uint8_t> at;
    uint32_t page_bytes, first, position;
    uint32_t ids;  // lane l has that of page l % 8

    DEVICE BlockPages(const Args& args, const StepView& step, const Unit& unit, uint32_t token)
        : at(kernels::At(args.pages)),
          page_bytes(LatentPageBytes(kFormat, args.turning, args.latent)),
          first(token),
          position(unit.position) {
      sizes.turning_steps = LatentSteps(args.turning);
      sizes.steps = sizes.turning_steps + LatentSteps(args.latent);
      sizes.plane_bytes = LatentPlaneBytes(kForm, sizes.steps);
      const uint32_t page = first / kPageTokens + LaneId() % (kSplitTokens / kPageTokens);
      ids = (step.pages(unit.row) + args.tables_at)[Min(page, position / kPageTokens)];
    }
    DEVICE TokenPage At(uint32_t index) const {
      const uint32_t token = first + index * kPageTokens;
      const uint32_t last = token + kPageTokens - 1 <= position ? kPageTokens - 1 : position % kPageTokens;
      return {at + uint64_t{ReadLane(ids, index)} * page_bytes,
              (Min(LaneRow(), last) * 4 + LanePart()) * kWordBytes};
    }
  };

  DEVICE static Lds<u32x4> Operands(Arena arena) { return arena.Get<u32x4>() + LaneId(); }
  DEVICE static Lds<u32x4> Weights(Arena arena) { return arena.Get<u32x4>(kWeightsAt) + LaneId(); }

  DEVICE static void StageQueries(const Args& args, const Unit& unit, Arena arena) {
    const uint32_t turns = LatentSteps(args.turning), steps = turns + LatentSteps(args.latent);
    const uint32_t head = Min(unit.head + LaneRow(), args.heads - 1);
    const Global<const float> q = At(args.qkv) + uint64_t{unit.row} * args.q_stride +
                                  head * (args.turning + args.latent);
    constexpr uint32_t kMine = CeilDiv(kLatentMostSteps, kWaves);
    f32x4 four[kMine][2];
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kMine; ++k) {
      const uint32_t s = WaveId() + k * kWaves;
      const bool latent = s >= turns;
      const Global<const float> part = q + (latent ? args.turning : 0);
      const uint32_t columns = latent ? args.latent : args.turning;
      const uint32_t column = (latent ? s - turns : s) * kStepColumns + LanePart() * 4;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t at = column + 16 * i;
        const bool real = at < columns;
        const f32x4 there = *reinterpret_cast<Global<const f32x4>>(part + (real ? at : 0));
        four[k][i] = real ? there : f32x4{0, 0, 0, 0};
      }
    }
    KeepOrder();
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kMine; ++k) {
      const f32x4 low = MadeBefore(four[k][0]), high = MadeBefore(four[k][1]);
      const uint32_t s = WaveId() + k * kWaves;
      if (s >= steps) continue;
      const SplitEight both = Split(Join(low * args.scale, high * args.scale));
      Operands(arena)[2 * s * kWave] = both.high;
      Operands(arena)[(2 * s + 1) * kWave] = both.low;
    }
    BarrierLds();
  }
  DEVICE static Eight Join(f32x4 a, f32x4 b) {
    return {{a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]}};
  }

  // ---- scores ----

  // A step of 16 tokens as it lies, this lane's share.
  struct Codes {
    Word words[kPlanes];

    DEVICE void Load(const Sizes& sizes, const TokenPage& page, uint32_t step) {
#pragma clang loop unroll(full)
      for (uint32_t p = 0; p < kPlanes; ++p) {
        const Global<const uint8_t> from = page.base + (p * sizes.plane_bytes + step * (kWave * kWordBytes));
        words[p] = *reinterpret_cast<Global<const Word>>(from + page.lane);
      }
    }
    // Eight elements of one token as bf16.
    DEVICE u32x4 Operand(uint32_t plane) const {
      const Word word = words[plane];
      if constexpr (kFp8) {
        const uint32_t low = word[0], high = word[1];
        return isa::Fp8TileToBf16(low, high);
      } else {
        return word;
      }
    }
  };

  DEVICE static f32x4 Product(u32x4 w, const SplitEight& x, f32x4 acc) {
    return isa::Mfma16x16x32Bf16(w, x.high, isa::Mfma16x16x32Bf16(w, x.low, acc));
  }
  // All planes of an element times x: first what rounding left.
  template <class PlaneOf>
  DEVICE static f32x4 AddPlanes(PlaneOf plane, const SplitEight& x, f32x4 acc) {
    if constexpr (kPlanes == 2) acc = isa::Mfma16x16x32Bf16(plane(1), x.high, acc);
    return Product(plane(0), x, acc);
  }

  // Steps of two pages from `first` on.
  template <uint32_t kCount>
  struct KeySteps {
    Codes a[kCount], b[kCount];

    // Beyond the end the last one again.
    DEVICE void Load(const Sizes& sizes, const TokenPage& page_a, const TokenPage& page_b,
                     uint32_t first) {
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kCount; ++i) {
        const uint32_t step = Min(first + i, sizes.steps - 1);
        a[i].Load(sizes, page_a, step);
        b[i].Load(sizes, page_b, step);
      }
    }
    // to += step i times its queries.
    DEVICE void Add(uint32_t i, uint32_t step, Arena arena, f32x4 (&to)[2]) const {
      const uint32_t at = 2 * step * kWave;
      const SplitEight query = {Operands(arena)[at], Operands(arena)[at + kWave]};
      to[0] = AddPlanes([&](uint32_t p) { return a[i].Operand(p); }, query, to[0]);
      to[1] = AddPlanes([&](uint32_t p) { return b[i].Operand(p); }, query, to[1]);
    }
  };

  // Scores of a wave's 32 tokens: of what turns and of latents a sum each, steps in order.
  struct Keys {
    f32x4 latent_multipliers[2] = {};  // of fp8: of tokens 4 g .. 4 g + 3 of both pages

    DEVICE explicit Keys(const BlockPages& pages)
        : sizes_(pages.sizes), a_(pages.At(2 * WaveId())), b_(pages.At(2 * WaveId() + 1)) {
      if constexpr (kFp8) {
        turning_multipliers_[0] = FourOf(a_, 0);
        turning_multipliers_[1] = FourOf(b_, 0);
        latent_multipliers[0] = FourOf(a_, 1);
        latent_multipliers[1] = FourOf(b_, 1);
      }
      turns_.Load(sizes_, a_, b_, 0);
      next_.Load(sizes_, a_, b_, sizes_.turning_steps);
    }

    // Lane (j, g) gets head j's of tokens 4 g .. 4 g + 3 of both pages.
    DEVICE Eight Scores(Arena arena) {
      f32x4 turns[2] = {}, latent[2] = {};
      turns_.Add(0, 0, arena, turns);
      if (sizes_.turning_steps > 1) turns_.Add(1, 1, arena, turns);
      uint32_t step = sizes_.turning_steps;
#pragma clang loop unroll(disable)
      for (; step + kBatch <= sizes_.steps; step += kBatch) {
        const KeySteps<kBatch> now = next_;
        if (step + kBatch < sizes_.steps) next_.Load(sizes_, a_, b_, step + kBatch);
        KeepOrder();
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kBatch; ++i) now.Add(i, step + i, arena, latent);
      }
#pragma clang loop unroll(disable)
      for (; step < sizes_.steps; ++step) {
        KeySteps<1> one;
        one.Load(sizes_, a_, b_, step);
        one.Add(0, step, arena, latent);
      }
      if constexpr (kFp8) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < 2; ++i) {
          turns[i] = turns[i] * turning_multipliers_[i];
          latent[i] = latent[i] * latent_multipliers[i];
        }
      }
      return Join(turns[0] + latent[0], turns[1] + latent[1]);
    }

   private:
    static constexpr uint32_t kBatch = kPlanes == 2 ? 2 : 4;
    static constexpr uint32_t kMostTurns = kLatentMostTurning / kStepColumns;
    static_assert(kMostTurns == 2);

    // Multipliers of tokens 4 g .. 4 g + 3, of part `part`.
    DEVICE f32x4 FourOf(const TokenPage& page, uint32_t part) const {
      return reinterpret_cast<Global<const f32x4>>(page.base + kPlanes * sizes_.plane_bytes)
          [part * (kPageTokens / 4) + LanePart()];
    }

    Sizes sizes_;
    TokenPage a_, b_;
    f32x4 turning_multipliers_[2] = {};
    KeySteps<kMostTurns> turns_;
    KeySteps<kBatch> next_;
  };

  // Tokens beyond the position do not count.
  DEVICE static void Mask(uint32_t token, uint32_t position, Eight& score) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t at = token + i / 4 * kPageTokens + LanePart() * 4 + i % 4;
      if (at > position) score.at[i] = -__builtin_inff();
    }
  }

  // ---- weights ----

  DEVICE static Lds<float> Peaks(Arena arena) { return arena.Get<float>(kPeaksAt) + LaneRow(); }
  DEVICE static Lds<float> Sums(Arena arena) { return arena.Get<float>(kSumsAt) + LaneRow(); }
  // Over the waves.
  DEVICE static float Peak(Arena arena) {
    float largest = Peaks(arena)[0];
#pragma clang loop unroll(full)
    for (uint32_t w = 1; w < kWaves; ++w) {
      largest = __builtin_fmaxf(largest, Peaks(arena)[w * kHeads]);
    }
    return largest;
  }
  DEVICE static float Sum(Arena arena) {
    float sum = Sums(arena)[0];
#pragma clang loop unroll(full)
    for (uint32_t w = 1; w < kWaves; ++w) sum += Sums(arena)[w * kHeads];
    return sum;
  }

  // What a wave has so far: for its column (head) the largest score and the sum of exp, and exp-weighted latents:
  // of its k-th step elements 16 h + 4 g + r of lane (j, g) in o[k][h][r].
  struct Running {
    float largest = -1e30f;  // finite: of two -inf no difference can be taken
    float sum = 0;
    f32x4 o[CeilDiv(kLatentMost / kStepColumns, kWaves)][2] = {};
  };

  // exp of what scores are above the largest of all so far, as operands. Gives what multiplies what has been added
  // before.
  DEVICE static float Weigh(Eight& score, const f32x4 (&multipliers)[2], Running& run, Arena arena) {
    float largest = run.largest;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) largest = __builtin_fmaxf(largest, score.at[i]);
    largest = ColumnMax(largest);
    if (LanePart() == 0) Peaks(arena)[WaveId() * kHeads] = largest;
    BarrierLds();
    largest = Peak(arena);
    const float keep = Exp(run.largest - largest);
    run.largest = largest;
    float sum = 0;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) {
      score.at[i] = Exp(score.at[i] - largest);
      sum += score.at[i];
    }
    sum = ColumnSum(sum);
    if (LanePart() == 0) Sums(arena)[WaveId() * kHeads] = sum;
    if constexpr (kFp8) {
      // A token beyond the position has no multiplier yet: its weight is 0, and stays so.
      const Eight scale = Join(multipliers[0], multipliers[1]);
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 8; ++i) {
        score.at[i] = score.at[i] == 0.0f ? 0.0f : score.at[i] * scale.at[i];
      }
    }
    const SplitEight weight = Split(score);
    Weights(arena)[2 * WaveId() * kWave] = weight.high;
    Weights(arena)[(2 * WaveId() + 1) * kWave] = weight.low;
    BarrierLds();
    run.sum = Fma(run.sum, keep, Sum(arena));
    return keep;
  }

  // ---- values ----

  // Columns j of the identity, of which this lane has rows 4 g .. 4 g + 3.
  DEVICE static u32x2 Identity() {
    const uint32_t mine = LaneRow() / 4 == LanePart() ? LaneRow() % 4 : 4;
    return u32x2{mine == 0 ? 0x3f80u : mine == 1 ? 0x3f800000u : 0u,
                 mine == 2 ? 0x3f80u : mine == 3 ? 0x3f800000u : 0u};
  }
  // Lane (i, g) gets of element i of the sixteen tokens 4 g .. 4 g + 3.
  DEVICE static u32x2 Transposed(u32x2 codes, u32x2 identity) { return Rounded(Turn(codes, identity)); }
  // The same in two: the product, and its elements as the bf16 that they are.
  DEVICE static f32x4 Turn(u32x2 codes, u32x2 identity) {
    return Mfma16x16x16Bf16(codes, identity, f32x4{0, 0, 0, 0});
  }
  DEVICE static u32x2 Rounded(f32x4 of) {
    const float a = of[0], b = of[1], c = of[2], d = of[3];
    return u32x2{__builtin_amdgcn_perm(BitCast<uint32_t>(b), BitCast<uint32_t>(a), 0x07060302),
                 __builtin_amdgcn_perm(BitCast<uint32_t>(d), BitCast<uint32_t>(c), 0x07060302)};
  }
  // A wave's steps of the latent over all tokens of a block: every fourth step. Tokens beyond the position have
  // weight 0.
  class Values {
   public:
    DEVICE explicit Values(const BlockPages& pages) : pages_(pages), sizes_(pages.sizes) { Ask(0); }

    // o = o * keep + weights * values.
    DEVICE void Add(float keep, Running& run, Arena arena) {
      SplitEight weight[kWaves];
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kWaves; ++w) {
        weight[w] = {Weights(arena)[2 * w * kWave], Weights(arena)[(2 * w + 1) * kWave]};
      }
      const u32x2 identity = Identity();
#pragma clang loop unroll(full)
      for (uint32_t k = 0; k < sizeof(run.o) / sizeof(run.o[0]); ++k) {
        if (StepOf(sizes_, k) >= sizes_.steps) break;
        Codes now[kPages];
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kPages; ++i) now[i] = next_[i];
        if (StepOf(sizes_, k + 1) < sizes_.steps) Ask(k + 1);
        KeepOrder();
#pragma clang loop unroll(full)
        for (uint32_t h = 0; h < 2; ++h) {
          f32x4 o = run.o[k][h] * keep;
#pragma clang loop unroll(full)
          for (uint32_t w = 0; w < kWaves; ++w) {
            o = AddPlanes(
                [&](uint32_t p) {
                  const u32x4 of_a = now[2 * w].Operand(p), of_b = now[2 * w + 1].Operand(p);
                  const u32x2 x = Transposed(h == 0 ? of_a.lo : of_a.hi, identity);
                  const u32x2 y = Transposed(h == 0 ? of_b.lo : of_b.hi, identity);
                  return u32x4{x[0], x[1], y[0], y[1]};
                },
                weight[w], o);
          }
          run.o[k][h] = o;
        }
      }
    }

   private:
    static constexpr uint32_t kPages = kSplitTokens / kPageTokens;
    DEVICE void Ask(uint32_t k) {
      const uint32_t step = Min(StepOf(sizes_, k), sizes_.steps - 1);
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kPages; ++i) next_[i].Load(sizes_, pages_.At(i), step);
    }

    const BlockPages pages_;
    const Sizes sizes_;
    Codes next_[kPages];
  };
  // A wave's k-th step of the latent, among a page's.
  DEVICE static uint32_t StepOf(const Sizes& sizes, uint32_t k) {
    return sizes.turning_steps + WaveId() + k * kWaves;
  }

  // The answer, or a part of it.
  DEVICE static void Finish(const Args& args, const Unit& unit, const Running& run) {
    const uint32_t head = unit.head + LaneRow();
    if (head >= args.heads) return;
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < sizeof(run.o) / sizeof(run.o[0]); ++k) {
      const uint32_t column = (WaveId() + k * kWaves) * kStepColumns + 4 * LanePart();
      if (column >= args.latent) break;
      Store(args, unit, column, run.o[k][0], run.sum);
      Store(args, unit, column + 16, run.o[k][1], run.sum);
    }
    if (unit.splits == 1 || WaveId() != 0 || LanePart() != 0) return;
    const Global<float> part = PartOf(args, unit, head) + args.latent;
    part[0] = run.largest;
    part[1] = run.sum;
  }

  DEVICE static Global<float> PartOf(const Args& args, const Unit& unit, uint32_t head) {
    const uint64_t of = uint64_t{unit.row - args.first_row} * args.heads + head;
    return At(args.parts) + (of * args.max_splits + unit.split) * AttendPartFloats(args.latent);
  }
  // Elements d .. d + 3 of this lane's head.
  DEVICE static void Store(const Args& args, const Unit& unit, uint32_t d, f32x4 o, float total) {
    const uint32_t head = unit.head + LaneRow();
    if (unit.splits > 1) {
      *reinterpret_cast<Global<f32x4>>(PartOf(args, unit, head) + d) = o;
      return;
    }
    const Global<float> row = At(args.out) + uint64_t{unit.row} * args.out_stride;
    const float e0 = o[0] / total, e1 = o[1] / total, e2 = o[2] / total, e3 = o[3] / total;
    StoreSplitPiece(row, head * args.latent + d, RowPiece{e0, e1});
    StoreSplitPiece(row, head * args.latent + d + 2, RowPiece{e2, e3});
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_LATENT_H_
