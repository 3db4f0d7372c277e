// SPDX-License-Identifier: MIT
//
// What comes before attention: bias, QK-norm and RoPE of a head, and K and V appended to their page.
// A wave a (row, head).
#ifndef MAINARCH_KERNELS_OPS_PREPARE_H_
#define MAINARCH_KERNELS_OPS_PREPARE_H_

#include "kernels/ops/kv_page.h"
#include "kernels/ops/step.h"
#include "kernels/quant/kv_fp4.h"

namespace mainarch::kernels {

// e4m3fn: 448 is the largest number; the multiplier maps the largest element to it.
inline constexpr float kFp8Largest = 448.0f;

// `kTurns`: Q and K by a Hadamard matrix. `kHeadDim`: of the heads that are made, beside K and V of a cache.
template <KvFormat kFormat, uint32_t kHeadDim, bool kTurns = quant::InfoOf(kFormat).turns, uint32_t kKeyDim = kHeadDim,
          uint32_t kValueDim = kHeadDim>
struct Prepare {
  using Args = PrepareArgs;
  using PageOf = Page<kFormat, kKeyDim, kValueDim>;
  static_assert(kHeadDim == kKeyDim || kHeadDim == kValueDim);
  static constexpr uint32_t kLdsBytes = 0;
  // Of a head a lane holds elements l, l + kLanes, l + 2 kLanes ...: an even number of them.
  static constexpr uint32_t kHeld = kHeadDim > 2 * kWave ? 4 : 2;
  static constexpr uint32_t kLanes = kHeadDim / kHeld;
  static constexpr uint32_t kTwo = 2 * kLanes;  // elements of two that a lane holds
  struct Head {
    float at[kHeld];
  };
  using Pair = Vec<float, 2>;
  static constexpr uint32_t kPairs = kHeld / 2;
  // A lane and lane ^ 2^n hold the same elements of their blocks of 32 (of 16 where lanes are fewer).
  static constexpr bool kWholeBlocks = kLanes % 32 == 0 || kHeadDim == 32;
  static_assert(kHeadDim % 32 == 0 && kLanes % 16 == 0 && kLanes <= kWave);

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const StepView step(args.step);
    const uint32_t heads = args.heads + 2 * args.kv_heads;
    const uint32_t total = step.rows() * heads;
    for (uint32_t t = worker * kWaves + WaveId(); t < total; t += workers * kWaves) {
      OneHead(ReadArgumentsAgain<Args>(), step, t / heads, t % heads);
    }
  }

  // Where a head begins in a row. Where V has its own size, all heads before the first of V are of the other.
  DEVICE static uint32_t ColumnOf(const Args& args, uint32_t head) {
    if constexpr (kHeadDim == kKeyDim) return head * kHeadDim;
    return head * kHeadDim + (args.heads + args.kv_heads) * (kKeyDim - kHeadDim);
  }

  // Whether this lane holds anything, and where; one that does not reads what lane 0 does.
  DEVICE static bool Mine() { return kLanes == kWave || LaneId() < kLanes; }
  DEVICE static uint32_t Place() { return Mine() ? LaneId() : 0; }

  // What a head wants beside the sums of its product, asked for before these are there: the weights of its norm, its
  // row's rotation of each element, and the page that K and V go to.
  struct Ahead {
    float norm[kHeld], cosine[kHeld], sine[kHeld];
    uint32_t page, token;
  };
  DEVICE static Ahead AskAhead(const Args& args, const StepView::Place& place, uint32_t head) {
    Ahead ahead;
    const bool is_query = head < args.heads, is_value = head >= args.heads + args.kv_heads;
    const uint32_t position = Uniform(place.position), pages = Uniform(place.pages);
    if (!is_query) ahead.page = StepView(args.step).words(pages)[args.tables_at + position / kPageTokens];
    ahead.token = position % kPageTokens;
    if (is_value) return ahead;
    if (args.q_norm.address != 0) {
      const Global<const float> w = At(is_query ? args.q_norm : args.k_norm) + Place();
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; ++j) ahead.norm[j] = w[j * kLanes];
    }
    if (args.rotary == 0) return ahead;
    const uint32_t half = args.rotary / 2;
    const uint64_t first = uint64_t{position} * half;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t d = Place() + j * kLanes, pair = d < half ? d : d - half;
      const uint64_t at = first + (Mine() && d < args.rotary ? pair : 0);
      ahead.cosine[j] = At(args.cosine)[at];
      ahead.sine[j] = At(args.sine)[at];
    }
    return ahead;
  }

  DEVICE static void OneHead(const Args& args, const StepView& step, uint32_t row, uint32_t head) {
    const Ahead ahead = AskAhead(args, step.place(row), head);
    const RowFactor factor(args.norm, row, true);
    const Sums sums(args, row, head);
    KeepOrder();
    Head x = sums.Of(args.splits);
    KeepOrder();
    Scale(factor.Value(args.norm), x);
    const Args again = ReadArgumentsAgain<Args>();
    const bool is_value = head >= again.heads + again.kv_heads;
    Finish(again, head, is_value, ahead, x);
    if (head >= again.heads) {
      return AppendHead(again, head - again.heads - (is_value ? again.kv_heads : 0), is_value, ahead, x);
    }
    const Global<float> at = At(again.qkv) + uint64_t{row} * again.stride + ColumnOf(again, head) + Place();
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      if (Mine()) at[j * kLanes] = x.at[j];
    }
  }

  // What workgroups that shared a head's product have left of it, all asked for at once. They are a power of two: each
  // number has its own straight way, on which neighbouring elements of a lane are added two at once.
  struct Sums {
    Pair parts[kMaxSplits][kPairs];

    Sums() = default;
    DEVICE Sums(const Args& args, uint32_t row, uint32_t head) {
      // Behind a branch that may have asked or not, who waits for one load waits for all: so all kMaxSplits are asked for,
      // those that there are not in the last one's place.
      const Global<const float> base = At(args.in) + (uint64_t{row} * args.stride + ColumnOf(args, head));
      const uint32_t apart = args.split_rows * args.stride, own = Place();
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kMaxSplits; ++i) {
        const Global<const float> part = base + Uniform(Min(i, args.splits - 1) * apart);
#pragma clang loop unroll(full)
        for (uint32_t j = 0; j < kHeld; ++j) parts[i][j / 2][j % 2] = part[own + j * kLanes];
      }
    }
    // SumSplits of each of this lane's elements.
    DEVICE Head Of(uint32_t splits) const {
      Pair sum[kPairs];
      ForSplits(splits, [&](auto count) {
#pragma clang loop unroll(full)
        for (uint32_t p = 0; p < kPairs; ++p) {
          Pair own[count.value];
#pragma clang loop unroll(full)
          for (uint32_t i = 0; i < count.value; ++i) own[i] = parts[i][p];
          AddTree(own, count.value, [](Pair a, Pair b) { return a + b; });
          sum[p] = own[0];
        }
      });
      Head x;
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; ++j) x.at[j] = sum[j / 2][j % 2];
      return x;
    }
  };
  // By the factor of the norm before the product.
  DEVICE static void Scale(float by, Head& x) {
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) x.at[j] = Mine() ? x.at[j] * by : 0.0f;
  }
  template <uint32_t kCount>
  struct Count {
    static constexpr uint32_t value = kCount;
  };
  template <class F>
  DEVICE static void ForSplits(uint32_t splits, F f) {
    static_assert(kMaxSplits == 8);
    switch (splits) {
      case 1: return f(Count<1>());
      case 2: return f(Count<2>());
      case 4: return f(Count<4>());
      default: return f(Count<8>());
    }
  }

  // x: as the product gave it.
  DEVICE static void Finish(const Args& args, uint32_t head, bool is_value, const Ahead& ahead, Head& x) {
    if (args.bias.address != 0) {
      const Global<const float> bias = At(args.bias) + ColumnOf(args, head) + Place();
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; ++j) x.at[j] += Mine() ? bias[j * kLanes] : 0.0f;
    }
    if (is_value) {
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; ++j) x.at[j] *= args.value_scale;
      return;
    }
    if (args.q_norm.address != 0) Norm(args, ahead, x);
    Rotate(args, ahead, x);
    if constexpr (kTurns) Turn(x);
  }
  DEVICE static void AppendHead(const Args& args, uint32_t kv_head, bool is_value, const Ahead& ahead, const Head& x) {
    const auto page = PageAt<kFormat, kKeyDim, kValueDim>(At(args.kv), Uniform(ahead.page), args.kv_heads, kv_head);
    Append(page, ahead.token, is_value, x);
  }

  DEVICE static void Norm(const Args& args, const Ahead& ahead, Head& x) {
    float sum = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; j += 2) {
      const float two = Fma(x.at[j], x.at[j], x.at[j + 1] * x.at[j + 1]);
      sum = j == 0 ? two : sum + two;
    }
    const float factor = Rsqrt(WaveSum(sum) * (1.0f / kHeadDim) + args.epsilon);
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) x.at[j] = x.at[j] * factor * ahead.norm[j];
  }

  // Rotary dimension R <= head_dim: element i < R / 2 turns with i + R / 2, those from R on stay.
  DEVICE static void Rotate(const Args& args, const Ahead& ahead, Head& x) {
    if (args.rotary == 0) return;
    if (args.rotary != kHeadDim) return RotatePart(args, ahead, x);
    // Both of a pair are this lane's.
    constexpr uint32_t kApart = kHeld / 2;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kApart; ++j) {
      const float c = ahead.cosine[j], s = ahead.sine[j];
      const float a = x.at[j], b = x.at[j + kApart];
      x.at[j] = Fma(a, c, -(b * s));
      x.at[j + kApart] = Fma(b, c, a * s);
    }
  }
  // Element d of a head, whichever lane has it.
  DEVICE static float Element(const Head& x, uint32_t d) {
    float element = 0;
#pragma clang loop unroll(full)
    for (uint32_t k = 0; k < kHeld; ++k) {
      const float from = Shuffle(x.at[k], d % kLanes);
      element = d / kLanes == k ? from : element;
    }
    return element;
  }
  // The other of a pair is some other lane's.
  DEVICE static void RotatePart(const Args& args, const Ahead& ahead, Head& x) {
    const uint32_t half = args.rotary / 2;
    const Head old = x;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t d = Place() + j * kLanes;
      const bool turns = Mine() && d < args.rotary, lower = d < half;
      const float other = Element(old, turns ? lower ? d + half : d - half : 0);
      const float c = ahead.cosine[j], s = ahead.sine[j];
      const float turned = Fma(old.at[j], c, lower ? -(other * s) : other * s);
      x.at[j] = turns ? turned : old.at[j];
    }
  }

  // The head, or each of the blocks that are a power of two, times the orthonormal Hadamard matrix of its size.
  static constexpr uint32_t kTurned = quant::HadamardSize(kHeadDim);
  DEVICE static void Turn(Head& x) {
    if constexpr (kTurned == kHeadDim) {
      TurnWhole(x);
    } else {
      TurnBlocks(x);
    }
    constexpr float kFactor = kTurned == 256   ? 0.0625f
                              : kTurned == 128 ? 0.0883883461f
                              : kTurned == 64  ? 0.125f
                                               : 0.176776692f;
    static_assert(kTurned >= 32 && kTurned <= 256);
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) x.at[j] *= kFactor;
  }
  DEVICE static void TurnWhole(Head& x) {
#pragma clang loop unroll(full)
    for (uint32_t apart = kHeld / 2; apart > 0; apart /= 2) {
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; ++j) {
        if ((j & apart) != 0) continue;
        const float sum = x.at[j] + x.at[j + apart];
        x.at[j + apart] = x.at[j] - x.at[j + apart];
        x.at[j] = sum;
      }
    }
#pragma clang loop unroll(full)
    for (uint32_t bit = 1; bit < kLanes; bit *= 2) {
      const bool upper = LaneId() & bit;
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; ++j) {
        const float other = Shuffle(x.at[j], LaneId() ^ bit);
        x.at[j] = upper ? other - x.at[j] : x.at[j] + other;
      }
    }
  }
  // Of two that are sixteen or more apart a lane may have one as another of its elements than who has the other.
  DEVICE static void TurnBlocks(Head& x) {
#pragma clang loop unroll(full)
    for (uint32_t bit = 1; bit < kTurned; bit *= 2) {
      const Head old = x;
      const uint32_t own = MadeBefore(Place());  // or comparisons with it would be made before the loop over heads
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; ++j) {
        const uint32_t d = own + j * kLanes;
        const float other = bit < 16 ? Shuffle(old.at[j], LaneId() ^ bit) : Element(old, d ^ bit);
        x.at[j] = (d & bit) != 0 ? other - old.at[j] : old.at[j] + other;
      }
    }
  }

  // Elements `base` to base + kTwo - 1, a and b of each lane, into bytes of two elements each, and
  // a multiplier a block of 32 (quant/kv_fp4.h): up to four blocks at once, sixteen lanes for the
  // sixteen that a block's can be.
  DEVICE static void AppendFp4(const PageOf& page, uint32_t token, bool is_value,
                               uint32_t base, float a, float b) {
    constexpr uint32_t kBlocks = kTwo / 32, kLanesOf = quant::kCandidates;
    const uint32_t block = LaneId() / kLanesOf % kBlocks;
    // Its 32 magnitudes are two for each of the sixteen: elements l % 16 and 16 + l % 16.
    const auto magnitude = [&](uint32_t half) {
      const uint32_t d = block * 32 + half * kLanesOf + LaneId() % kLanesOf;
      const float from_a = Shuffle(a, d % kLanes), from_b = Shuffle(b, d % kLanes);
      return __builtin_fabsf(d < kLanes ? from_a : from_b);
    };
    const float low = magnitude(0), high = magnitude(1);
    const float largest = MaxRow16(__builtin_fmaxf(low, high));
    const uint32_t first = quant::FirstCandidate(largest);
    const uint32_t candidate = first + LaneId() % kLanesOf;
    const float scale = quant::FloatFromE5m3(static_cast<uint8_t>(candidate)), inverse = 1.0f / scale;
    const float sum = SumOfErrors<0>(high, inverse, SumOfErrors<0>(low, inverse, 0));
    Scored best = {-(sum * scale * scale), candidate};
#pragma clang loop unroll(full)
    for (uint32_t bit = 1; bit < kLanesOf; bit *= 2) {
      best = Better(best, {Shuffle(best.score, LaneId() ^ bit), Shuffle(best.index, LaneId() ^ bit)});
    }
    // Of zeros 0; of what clips with any the largest, because squares may overflow.
    uint32_t code = largest > 0.0f ? best.index : 0;
    if (largest >= 6 * 61440.0f) code = quant::kE5m3Largest;
    if (LaneId() < kBlocks * kLanesOf && LaneId() % kLanesOf == 0) {
      (is_value ? page.v_bytes()
                : page.k_bytes())[KvFp4ScaleAt(is_value, kHeadDim, token, base / 32 + block)] = static_cast<uint8_t>(code);
    }
    const uint32_t l = Place();
    const uint32_t code_a = Code(a, Shuffle(code, l / 32 * kLanesOf));
    const uint32_t code_b = Code(b, Shuffle(code, (l + kLanes) / 32 * kLanesOf));
    StoreCodes(page, token, is_value, base + l, code_a, code_b);
  }
  // sum + the squared errors of the sixteen lanes' elements, in order, if they are multiplied by `inverse`.
  template <int kLane>
  DEVICE static float SumOfErrors(float magnitude, float inverse, float sum) {
    if constexpr (kLane == quant::kCandidates) {
      return sum;
    } else {
      const float y = RowLane<kLane>(magnitude) * inverse, off = y - RoundToE2m1(y);
      return SumOfErrors<kLane + 1>(magnitude, inverse, Fma(off, off, sum));
    }
  }
  // Codes of elements d and d + kLanes.
  DEVICE static void StoreCodes(const PageOf& page, uint32_t token, bool is_value,
                                uint32_t d, uint32_t code_a, uint32_t code_b) {
    const Global<uint8_t> to = is_value ? page.v(0) : page.k(0);
    const uint32_t ia = is_value ? KvFp4ValueAt(kHeadDim, token, d) : page.KIndex(token, d);
    const uint32_t ib =
        is_value ? KvFp4ValueAt(kHeadDim, token, d + kLanes) : page.KIndex(token, d + kLanes);
    if (kLanes == 16 && is_value) {  // both halves of a byte are this lane's
      if (Mine()) to[ia / 2] = static_cast<uint8_t>(code_a | code_b << 4);
      return;
    }
    // The other element of a byte: the next of K, of V the one 16 further on.
    const uint32_t bit = is_value ? 16 : 1, a = Place(), b = a + kLanes;
    const uint32_t other_a = OtherCode(code_a, code_b, a, bit, 0), other_b = OtherCode(code_a, code_b, b, bit, 1);
    if (Mine() && (a & bit) == 0) to[ia / 2] = static_cast<uint8_t>(code_a | other_a << 4);
    if (Mine() && (b & bit) == 0) to[ib / 2] = static_cast<uint8_t>(code_b | other_b << 4);
  }
  // Of the two elements that a lane has, `own` is which: the code of the one that is `bit` from element d.
  DEVICE static uint32_t OtherCode(uint32_t code_a, uint32_t code_b, uint32_t d, uint32_t bit, uint32_t own) {
    if constexpr (kWholeBlocks) return Shuffle(own == 0 ? code_a : code_b, LaneId() ^ bit);
    const uint32_t other = d ^ bit;
    const uint32_t of_a = Shuffle(code_a, other % kLanes), of_b = Shuffle(code_b, other % kLanes);
    return other < kLanes ? of_a : of_b;
  }
  // Of magnitudes, to the nearest of 0 0.5 1 1.5 2 3 4 6, ties to the even code.
  DEVICE static float RoundToE2m1(float y) {
    const float step = y < 2.0f ? 0.5f : y < 4.0f ? 1.0f : 2.0f;
    const float per_step = y < 2.0f ? 2.0f : y < 4.0f ? 1.0f : 0.5f;
    return __builtin_fminf(__builtin_rintf(y * per_step) * step, 6.0f);
  }
  DEVICE static uint32_t Code(float x, uint32_t scale) {
    const float multiplier = quant::FloatFromE5m3(static_cast<uint8_t>(scale));
    return scale == 0 ? 0u : uint32_t{quant::E2m1FromFloat(x * (1.0f / multiplier))};
  }

  DEVICE static void Append(const PageOf& page, uint32_t token, bool is_value,
                            const Head& x) {
    constexpr bool kKeys = KeyForm(kFormat) == KvForm::kFp4;
    constexpr bool kValues = ValueForm(kFormat) == KvForm::kFp4;
    if (kKeys || (kValues && is_value)) {
      if constexpr (kKeys || kValues) {
#pragma clang loop unroll(full)
        for (uint32_t j = 0; j < kHeld; j += 2) {
          AppendFp4(page, token, is_value, j * kLanes, x.at[j], x.at[j + 1]);
        }
      }
    } else {
      AppendPlain(page, token, is_value, x);
    }
  }
  DEVICE static void AppendPlain(const PageOf& page, uint32_t token, bool is_value,
                                 Head x) {
    const auto index = [&](uint32_t j) {
      const uint32_t d = Place() + j * kLanes;
      return is_value ? page.VIndex(token, d) : page.KIndex(token, d);
    };
    if constexpr (KeyForm(kFormat) == KvForm::kFp8) {
      float most = 0;
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; ++j) most = __builtin_fmaxf(most, __builtin_fabsf(x.at[j]));
      const float largest = WaveMax(most);
      // Below the smallest of these everything rounds to zero anyway.
      const float scale = largest > 0x1p-117f ? largest * (1.0f / kFp8Largest) : 1.0f;
      const Global<uint8_t> to = is_value ? page.v(0) : page.k(0);
#pragma clang loop unroll(full)
      for (uint32_t j = 0; j < kHeld; j += 2) {
        const uint32_t codes = isa::Fp8OcpFromFloat2(x.at[j] / scale, x.at[j + 1] / scale);
        if (!Mine()) continue;
        to[index(j)] = static_cast<uint8_t>(codes);
        to[index(j + 1)] = static_cast<uint8_t>(codes >> 8);
      }
      if (LaneId() == 0) (is_value ? page.v_scales() : page.k_scales())[token] = scale;
    } else {
#pragma clang loop unroll(full)
      for (uint32_t plane = 0; plane < KvPlanes(KeyForm(kFormat)); ++plane) {
        const Global<uint16_t> to =
            reinterpret_cast<Global<uint16_t>>(is_value ? page.v(plane) : page.k(plane));
#pragma clang loop unroll(full)
        for (uint32_t j = 0; j < kHeld; ++j) {
          const uint16_t bits = ToBf16(x.at[j]);
          if (Mine()) to[index(j)] = bits;
          x.at[j] -= FromBf16(bits);
        }
      }
    }
  }
};

// Of heads whose V has its own size: those of Q and K, and those of V, each as if all were so.
template <KvFormat kFormat, uint32_t kKeyDim, uint32_t kValueDim, bool kTurns = quant::InfoOf(kFormat).turns>
struct PrepareUnequal {
  using Args = PrepareArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const StepView step(args.step);
    const uint32_t heads = args.heads + 2 * args.kv_heads, total = step.rows() * heads;
    for (uint32_t t = worker * kWaves + WaveId(); t < total; t += workers * kWaves) {
      OneHead(ReadArgumentsAgain<Args>(), step, t / heads, t % heads);
    }
  }
  DEVICE static void OneHead(const Args& args, const StepView& step, uint32_t row, uint32_t head) {
    if (Uniform(head) < args.heads + args.kv_heads) {
      Prepare<kFormat, kKeyDim, kTurns, kKeyDim, kValueDim>::OneHead(args, step, row, head);
    } else {
      Prepare<kFormat, kValueDim, kTurns, kKeyDim, kValueDim>::OneHead(args, step, row, head);
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_PREPARE_H_
