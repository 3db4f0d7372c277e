// SPDX-License-Identifier: MIT
//
// Causal attention to latents (latent_args.h), through the matrix units: all heads of a rank see one
// key head, whose values are a part of its keys.
//
// A workgroup takes one row, one split of kSplitTokens and 16 heads, the columns of the matrix
// instructions. Queries lie in LDS as operands, because a wave's registers do not hold 576 elements of
// 16 heads beside anything else. Wave w makes the scores of tokens 32 w to 32 w + 31; with the largest
// score of all four, and all weights in LDS, each wave adds up every fourth step of the latent over all
// tokens. So there is one order of additions, by absolute positions, and a row's bits do not depend on
// the step, on other heads or on their number.
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

template <KvFormat kFormat>
struct AttendLatent {
  using Args = AttendLatentArgs;
  using PageOf = LatentPage<kFormat>;
  static constexpr KvForm kForm = KeyForm(kFormat);
  static constexpr bool kFp8 = kForm == KvForm::kFp8;
  static constexpr uint32_t kPlanes = KvPlanes(kForm);
  static constexpr uint32_t kHeads = kLatentHeads;
  static constexpr uint32_t kGroup = 32;  // tokens of a wave
  static_assert(kGroup * kWaves == kSplitTokens && kGroup == 2 * kPageTokens);
  // Operands of queries, and when all scores are made those of weights; then what waves tell each other.
  static constexpr uint32_t kOperandBytes = kWave * 16;
  static constexpr uint32_t kPeaksAt = kLatentMostSteps * 2 * kOperandBytes;
  static constexpr uint32_t kSumsAt = kPeaksAt + kWaves * kHeads * 4;
  static constexpr uint32_t kLdsBytes = kSumsAt + kWaves * kHeads * 4;

  struct Unit {
    uint32_t row, head, split, position;
    uint32_t first, last;  // tokens
  };

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t splits = step.splits(), tiles = CeilDiv(args.heads, kHeads);
    const uint32_t total = RowsHere(step, args.first_row, args.row_count) * tiles * splits;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t split = t % splits, unit = t / splits;
      const uint32_t row = args.first_row + unit / tiles, position = step.position(row);
      const uint32_t first = split * kSplitTokens;
      if (first > position) continue;
      OneSplit(args, step, {row, unit % tiles * kHeads, split, position, first,
                            Min(first + kSplitTokens - 1, position)}, arena);
    }
  }

  DEVICE static void OneSplit(const Args& args, const StepView& step, const Unit& unit,
                              Arena arena) {
    StageQueries(args, unit, arena);
    const Global<const uint32_t> pages = step.pages(unit.row) + args.tables_at;
    const uint32_t groups = (unit.last - unit.first) / kGroup + 1;
    const uint32_t token = unit.first + WaveId() * kGroup;
    Eight score;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) score.at[i] = -__builtin_inff();
    f32x4 multipliers[2] = {};
    if (WaveId() < groups) {
      const PageOf a = PageOfToken(args, pages, token, unit.position);
      const PageOf b = PageOfToken(args, pages, token + kPageTokens, unit.position);
      score = Scores(a, b, arena);
      if constexpr (kFp8) {
        multipliers[0] = FourOf(a, 1);
        multipliers[1] = FourOf(b, 1);
      }
      Mask(token, unit.position, score);
    }
    Weigh(score, multipliers, arena);
    Values(args, unit, pages, groups, arena);
    BarrierLds();
  }

  // The page of a token. One that may not exist lies beyond the row's position: then the page of
  // the position, of which nothing counts.
  DEVICE static PageOf PageOfToken(const Args& args, Global<const uint32_t> pages, uint32_t token,
                                   uint32_t position) {
    return LatentPageAt<kFormat>(At(Address<uint8_t>{args.pages.address}),
                                 pages[Min(token, position) / kPageTokens], args.turning,
                                 args.latent);
  }

  DEVICE static Lds<u32x4> Operands(Arena arena) { return arena.Get<u32x4>() + LaneId(); }

  DEVICE static void StageQueries(const Args& args, const Unit& unit, Arena arena) {
    const uint32_t turns = LatentSteps(args.turning), steps = turns + LatentSteps(args.latent);
    const uint32_t head = Min(unit.head + LaneRow(), args.heads - 1);
    const Global<const float> q = At(args.qkv) + uint64_t{unit.row} * args.q_stride +
                                  head * (args.turning + args.latent);
    for (uint32_t s = WaveId(); s < steps; s += kWaves) {
      const bool latent = s >= turns;
      const Global<const float> part = q + (latent ? args.turning : 0);
      const uint32_t columns = latent ? args.latent : args.turning;
      const uint32_t column = (latent ? s - turns : s) * kStepColumns + LanePart() * 4;
      Eight eight;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t at = column + 16 * i;
        const bool real = at < columns;
        const f32x4 four = *reinterpret_cast<Global<const f32x4>>(part + (real ? at : 0));
#pragma clang loop unroll(full)
        for (uint32_t e = 0; e < 4; ++e) eight.at[4 * i + e] = real ? four[e] * args.scale : 0.0f;
      }
      const SplitEight both = Split(eight);
      Operands(arena)[2 * s * kWave] = both.high;
      Operands(arena)[(2 * s + 1) * kWave] = both.low;
    }
    BarrierLds();
  }

  // ---- scores ----

  // A step of 16 tokens as it lies, this lane's share.
  struct Codes {
    using Word = typename LatentWordOf<kForm>::Type;
    Word words[kPlanes];

    DEVICE void Load(const PageOf& page, uint32_t step) {
      const uint32_t at = (step * kPageTokens + LaneRow()) * 4 + LanePart();
#pragma clang loop unroll(full)
      for (uint32_t p = 0; p < kPlanes; ++p) {
        words[p] = reinterpret_cast<Global<const Word>>(page.plane(p))[at];
      }
    }
    // Eight elements of one token as bf16.
    DEVICE u32x4 Operand(uint32_t plane) const {
      const Word word = words[plane];
      if constexpr (kFp8) {
        const uint32_t low = word[0], high = word[1];
        return Fp8ToBf16(low, high);
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

  template <uint32_t kCount>
  DEVICE static void AddSteps(const PageOf& a, const PageOf& b, uint32_t step, Arena arena,
                              f32x4& of_a, f32x4& of_b) {
    Codes codes_a[kCount], codes_b[kCount];
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kCount; ++i) {
      codes_a[i].Load(a, step + i);
      codes_b[i].Load(b, step + i);
    }
    KeepOrder();
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kCount; ++i) {
      const uint32_t at = 2 * (step + i) * kWave;
      const SplitEight query = {Operands(arena)[at], Operands(arena)[at + kWave]};
      of_a = AddPlanes([&](uint32_t p) { return codes_a[i].Operand(p); }, query, of_a);
      of_b = AddPlanes([&](uint32_t p) { return codes_b[i].Operand(p); }, query, of_b);
    }
  }
  // Of steps [step, end): in order, a batch at a time.
  DEVICE static void AddPart(const PageOf& a, const PageOf& b, uint32_t step, uint32_t end,
                             Arena arena, f32x4& of_a, f32x4& of_b) {
    constexpr uint32_t kBatch = 4;
#pragma clang loop unroll(disable)
    for (; step + kBatch <= end; step += kBatch) AddSteps<kBatch>(a, b, step, arena, of_a, of_b);
#pragma clang loop unroll(disable)
    for (; step < end; ++step) AddSteps<1>(a, b, step, arena, of_a, of_b);
  }

  // Lane (j, g) gets head j's of tokens 4 g .. 4 g + 3 of both pages.
  DEVICE static Eight Scores(const PageOf& a, const PageOf& b, Arena arena) {
    f32x4 turns_a = {0, 0, 0, 0}, turns_b = turns_a, latent_a = turns_a, latent_b = turns_a;
    AddPart(a, b, 0, a.turning_steps, arena, turns_a, turns_b);
    AddPart(a, b, a.turning_steps, a.steps, arena, latent_a, latent_b);
    if constexpr (kFp8) {
      turns_a = turns_a * FourOf(a, 0);
      turns_b = turns_b * FourOf(b, 0);
      latent_a = latent_a * FourOf(a, 1);
      latent_b = latent_b * FourOf(b, 1);
    }
    return Join(turns_a + latent_a, turns_b + latent_b);
  }
  // Multipliers of tokens 4 g .. 4 g + 3.
  DEVICE static f32x4 FourOf(const PageOf& page, uint32_t part) {
    return reinterpret_cast<Global<const f32x4>>(page.multipliers(part))[LanePart()];
  }
  DEVICE static Eight Join(f32x4 a, f32x4 b) {
    return {{a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]}};
  }
  // What lies beyond the position may be a NaN of some other sequence.
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

  // exp of what scores are above the largest of the split, as operands in place of the queries.
  DEVICE static void Weigh(Eight& score, const f32x4 (&multipliers)[2], Arena arena) {
    float largest = -1e30f;  // finite: of two -inf no difference can be taken
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 8; ++i) largest = __builtin_fmaxf(largest, score.at[i]);
    largest = ColumnMax(largest);
    if (LanePart() == 0) Peaks(arena)[WaveId() * kHeads] = largest;
    BarrierLds();
    largest = Peak(arena);
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
    Operands(arena)[2 * WaveId() * kWave] = weight.high;
    Operands(arena)[(2 * WaveId() + 1) * kWave] = weight.low;
    BarrierLds();
  }

  // ---- values ----

  // Columns j of the identity, of which this lane has rows 4 g .. 4 g + 3.
  DEVICE static u32x2 Identity() {
    const uint32_t mine = LaneRow() / 4 == LanePart() ? LaneRow() % 4 : 4;
    return u32x2{mine == 0 ? 0x3f80u : mine == 1 ? 0x3f800000u : 0u,
                 mine == 2 ? 0x3f80u : mine == 3 ? 0x3f800000u : 0u};
  }
  // Lane (i, g) gets of element i of the sixteen tokens 4 g .. 4 g + 3.
  DEVICE static u32x2 Transposed(u32x2 codes, u32x2 identity) {
    const f32x4 of = Mfma16x16x16Bf16(codes, identity, f32x4{0, 0, 0, 0});
    const float a = of[0], b = of[1], c = of[2], d = of[3];
    return u32x2{__builtin_amdgcn_perm(BitCast<uint32_t>(b), BitCast<uint32_t>(a), 0x07060302),
                 __builtin_amdgcn_perm(BitCast<uint32_t>(d), BitCast<uint32_t>(c), 0x07060302)};
  }
  // Masks: tokens beyond the position have weight 0, but what lies there may be a NaN.
  DEVICE static u32x4 RealTokens(uint32_t token, uint32_t position) {
    u32x4 masks;
#pragma clang loop unroll(full)
    for (uint32_t w = 0; w < 4; ++w) {
      const uint32_t first = token + w / 2 * kPageTokens + LanePart() * 4 + w % 2 * 2;
      masks[w] = (first <= position ? 0xffffu : 0u) | (first + 1 <= position ? 0xffff0000u : 0u);
    }
    return masks;
  }

  DEVICE static void Values(const Args& args, const Unit& unit, Global<const uint32_t> pages,
                            uint32_t groups, Arena arena) {
    PageOf a[kWaves], b[kWaves];
    SplitEight weight[kWaves];
    u32x4 real[kWaves];
#pragma clang loop unroll(full)
    for (uint32_t w = 0; w < kWaves; ++w) {
      const uint32_t token = unit.first + w * kGroup;
      a[w] = PageOfToken(args, pages, token, unit.position);
      b[w] = PageOfToken(args, pages, token + kPageTokens, unit.position);
      weight[w] = {Operands(arena)[2 * w * kWave], Operands(arena)[(2 * w + 1) * kWave]};
      real[w] = RealTokens(token, unit.position);
    }
    const u32x2 identity = Identity();
    const float total = Sum(arena);
    const uint32_t turns = a[0].turning_steps, steps = a[0].steps - turns;
#pragma clang loop unroll(disable)
    for (uint32_t s = WaveId(); s < steps; s += kWaves) {
      Codes codes_a[kWaves], codes_b[kWaves];
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kWaves; ++w) {
        codes_a[w].Load(a[w], turns + s);
        codes_b[w].Load(b[w], turns + s);
      }
      KeepOrder();
      f32x4 o[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma clang loop unroll(full)
      for (uint32_t w = 0; w < kWaves; ++w) {
        if (w >= groups) continue;
#pragma clang loop unroll(full)
        for (uint32_t h = 0; h < 2; ++h) {
          o[h] = AddPlanes(
              [&](uint32_t p) {
                const u32x4 of_a = codes_a[w].Operand(p), of_b = codes_b[w].Operand(p);
                const u32x2 x = Transposed(h == 0 ? of_a.lo : of_a.hi, identity);
                const u32x2 y = Transposed(h == 0 ? of_b.lo : of_b.hi, identity);
                return real[w] & u32x4{x[0], x[1], y[0], y[1]};
              },
              weight[w], o[h]);
        }
      }
#pragma clang loop unroll(full)
      for (uint32_t h = 0; h < 2; ++h) {
        Store(args, unit, s * kStepColumns + 16 * h + 4 * LanePart(), o[h], total);
      }
    }
    if (unit.position >= kSplitTokens && WaveId() == 0 && LanePart() == 0) {
      const uint32_t head = unit.head + LaneRow();
      const float largest = Peak(arena);
      if (head < args.heads) {
        const Global<float> part = PartOf(args, unit, head) + args.latent;
        part[0] = largest;
        part[1] = total;
      }
    }
  }

  DEVICE static Global<float> PartOf(const Args& args, const Unit& unit, uint32_t head) {
    const uint64_t of = uint64_t{unit.row - args.first_row} * args.heads + head;
    return At(args.parts) + (of * args.max_splits + unit.split) * AttendPartFloats(args.latent);
  }
  // Elements d .. d + 3 of this lane's head.
  DEVICE static void Store(const Args& args, const Unit& unit, uint32_t d, f32x4 o, float total) {
    const uint32_t head = unit.head + LaneRow();
    if (head >= args.heads) return;
    if (unit.position >= kSplitTokens) {
      *reinterpret_cast<Global<f32x4>>(PartOf(args, unit, head) + d) = o;
      return;
    }
    // There is no other split.
    const Global<float> row = At(args.out) + uint64_t{unit.row} * args.out_stride;
    const float e0 = o[0] / total, e1 = o[1] / total, e2 = o[2] / total, e3 = o[3] / total;
    StoreSplitPiece(row, head * args.latent + d, RowPiece{e0, e1});
    StoreSplitPiece(row, head * args.latent + d + 2, RowPiece{e2, e3});
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_ATTEND_LATENT_H_
