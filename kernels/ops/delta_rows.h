// SPDX-License-Identifier: MIT
//
// What a gated delta net does to a row on both sides of S: before it convolutions, norms and gates, and
// behind it the norm of o. A wave has a row, a lane two neighbouring channels of each 128; all that
// a row is made of is asked for at once, and long before it is used.
#ifndef MAINARCH_KERNELS_OPS_DELTA_ROWS_H_
#define MAINARCH_KERNELS_OPS_DELTA_ROWS_H_

#include "kernels/common/kernel.h"
#include "kernels/ops/step.h"
#include "kernels/ops/tiles.h"

namespace mainarch::kernels {

inline constexpr uint32_t kPairs = 2 * kWave;  // channels that a wave has as a pair a lane

// The lists of the step block that a delta net needs. None of it changes while the kernel runs, so it
// is read by the scalar unit, and its header once.
struct DeltaSteps {
  Constant<uint32_t> sequences, in, out;

  DEVICE explicit DeltaSteps(const DeltaArgs& args) {
    const Constant<uint32_t> words = reinterpret_cast<Constant<uint32_t>>(args.step.address);
    const uint32_t rows = words[0];
    sequences = words + words[12];
    in = words + words[13] + args.states * 2 * rows;
    out = in + rows;
  }
};

// One sequence's rows [first, first + rows) and one value head's columns, uniform.
struct DeltaHead {
  uint32_t first, rows, head, column, columns;
  uint32_t key_head;
  bool has_keys;  // the first of its key head's that has the columns
  uint32_t slot;  // before the first row, or kNoSlot

  // Divisions take long: the usual head is not cut.
  DEVICE static uint32_t GroupsOf(const DeltaArgs& args) {
    return args.columns >= args.value_dim ? 1 : CeilDiv(args.value_dim, args.columns);
  }
  DEVICE static DeltaHead Of(const DeltaArgs& args, const DeltaSteps& steps, uint32_t item) {
    const uint32_t groups = GroupsOf(args), whole = groups == 1 ? item : item / groups;
    const uint32_t sequence = whole / args.value_heads;
    DeltaHead out;
    out.column = (item - whole * groups) * args.columns;
    out.columns = Min(args.columns, args.value_dim - out.column);
    out.head = whole - sequence * args.value_heads;
    const uint32_t place = out.head * args.key_heads;
    out.key_head = place / args.value_heads;
    out.has_keys = place == out.key_head * args.value_heads && out.column == 0;
    out.first = steps.sequences[1 + sequence * 2];
    out.rows = steps.sequences[2 + sequence * 2];
    out.slot = steps.in[out.first];
    return out;
  }
};

DEVICE Global<float> DeltaSlot(const DeltaArgs& args, uint32_t slot) {
  return reinterpret_cast<Global<float>>(At(args.slots) + slot * args.slot_bytes);
}
// Where a slot's rows of `in` begin.
DEVICE Global<float> DeltaTail(const DeltaArgs& args, uint32_t slot) {
  return DeltaSlot(args, slot) + uint64_t{args.value_heads} * args.key_dim * args.value_dim;
}
DEVICE uint32_t DeltaChannels(const DeltaArgs& args) {
  return 2 * args.key_heads * args.key_dim + args.value_heads * args.value_dim;
}

// log(1 + e), 0 <= e <= 1, to 2^-22 of itself: 2 atanh(e / (2 + e)), whose series ends soon. What
// decays slowly must do so exactly.
DEVICE float Log1p(float e) {
  const float s = e * Rcp(2.0f + e), t = s * s;
  float sum = 1.0f / 15;
  sum = Fma(sum, t, 1.0f / 13);
  sum = Fma(sum, t, 1.0f / 11);
  sum = Fma(sum, t, 1.0f / 9);
  sum = Fma(sum, t, 1.0f / 7);
  sum = Fma(sum, t, 1.0f / 5);
  sum = Fma(sum, t, 1.0f / 3);
  return 2.0f * Fma(s * t, sum, s);
}
DEVICE float Softplus(float x) {
  return __builtin_fmaxf(x, 0.0f) + Log1p(Exp(-__builtin_fabsf(x)));
}

// The convolved channels of a row that one value head needs: q and k, a pair a lane of each 128, then
// v.
template <uint32_t kKeyPairs>
struct DeltaRow {
  static constexpr uint32_t kGroups = 2 * kKeyPairs + 1;
  static constexpr uint32_t kAtOnce = 4;  // taps

  f32x2 x[kGroups][kAtOnce];  // of `in`, some taps of them
  f32x4 w[kGroups][2];        // their weights, of each channel of the pair
  float gate, dt_bias, decay;  // gate: of even lanes a part of b, of odd ones of a, a lane a split
  RowFactor factor;            // of the gates' product

  // This lane's first channel of group g, and whether it has one: lanes without have what the first has.
  DEVICE static bool IsReal(const DeltaArgs& args, const DeltaHead& at, uint32_t g) {
    return PairOf(g) < DimOf(args, at, g);
  }
  DEVICE static uint32_t ChannelOf(const DeltaArgs& args, const DeltaHead& at, uint32_t g) {
    const uint32_t keys = args.key_heads * args.key_dim, key = at.key_head * args.key_dim;
    const uint32_t first = g < kKeyPairs       ? key
                           : g < 2 * kKeyPairs ? keys + key
                                               : 2 * keys + at.head * args.value_dim + at.column;
    return first + (IsReal(args, at, g) ? PairOf(g) : 0);
  }

  // `row` counts from the sequence's first row of the step.
  DEVICE void Ask(const DeltaArgs& args, const DeltaHead& at, uint32_t row) {
    AskTaps(args, at, row, 0);
    AskGates(ReadArgumentsAgain<DeltaArgs>(), at, row);
  }
  DEVICE void AskGates(const DeltaArgs& args, const DeltaHead& at, uint32_t row) {
    const uint32_t split = LaneId() / 2;
    const bool has_split = split < args.gates_splits;
    const uint64_t place = uint64_t{has_split ? split : 0} * args.gates_split_rows + at.first + row;
    const uint32_t column = at.head + LaneId() % 2 * args.value_heads;
    gate = At(args.gates)[place * args.gates_stride + column];
    gate = has_split ? gate : 0.0f;
    factor = RowFactor(args.gates_norm, at.first + row, true);
    dt_bias = At(args.dt_bias)[at.head];
    decay = At(args.decay)[at.head];
  }

  // All that was asked for comes in here; it is q, k and v, and beyond their dims zeros. `kept`: the
  // slot that the state after this row goes to.
  DEVICE void Convolve(const DeltaArgs& args, const DeltaHead& at, uint32_t row, uint32_t kept,
                       f32x2 (&out)[kGroups]) {
    float low[kGroups] = {}, high[kGroups] = {};
#pragma clang loop unroll(disable)
    for (uint32_t tap = 0; tap < args.taps; tap += kAtOnce) {
      if (tap != 0) AskTaps(args, at, row, tap);
      ClearBeforeFirst(args, at, row, tap);
#pragma clang loop unroll(full)
      for (uint32_t g = 0; g < kGroups; ++g) {
#pragma clang loop unroll(full)
        for (uint32_t t = 0; t < kAtOnce; ++t) {
          low[g] = Fma(w[g][0][t], x[g][t][0], low[g]);
          high[g] = Fma(w[g][1][t], x[g][t][1], high[g]);
        }
      }
      if (kept != kNoSlot) KeepTaps(args, at, kept, tap);
    }
#pragma clang loop unroll(full)
    for (uint32_t g = 0; g < kGroups; ++g) {
      out[g] = IsReal(args, at, g) ? f32x2{Silu(low[g]), Silu(high[g])} : f32x2{0, 0};
    }
  }

  // Alpha and beta, of the splits' sums in the tree (common/tree.h).
  DEVICE f32x2 Gates(const DeltaArgs& args) const {
    float sum = gate;
#pragma clang loop unroll(full)
    for (uint32_t apart = 2; apart < 2 * kMaxSplits; apart *= 2) {
      sum += Shuffle(sum, LaneId() ^ apart);
    }
    sum *= factor.Value(args.gates_norm);
    const float b = ReadLane(sum, 0), a = ReadLane(sum, 1);
    return f32x2{Exp(-(Exp(decay) * Softplus(a + dt_bias))), Rcp(1.0f + Exp(-b))};
  }

 private:
  DEVICE static uint32_t PairOf(uint32_t g) {
    return 2 * LaneId() + (g < 2 * kKeyPairs ? g % kKeyPairs * kPairs : 0);
  }
  DEVICE static uint32_t DimOf(const DeltaArgs& args, const DeltaHead& at, uint32_t g) {
    return g < 2 * kKeyPairs ? args.key_dim : at.columns;
  }
  DEVICE static bool HasTail(const DeltaHead& at) { return at.slot != kNoSlot; }

  // Taps [tap, tap + kAtOnce). Of the rows before the step's, those of the slot; where there are none,
  // and beyond the last tap, something that is there.
  DEVICE void AskTaps(const DeltaArgs& args, const DeltaHead& at, uint32_t row, uint32_t tap) {
    const uint32_t back = args.taps - 1;
    const Global<const float> rows = At(args.in) + uint64_t{at.first} * args.in_stride;
    const Global<const float> tail =
        HasTail(at) ? DeltaTail(args, at.slot) : const_cast<Global<float>>(rows);
    const uint32_t tail_stride = HasTail(at) ? DeltaChannels(args) : 0;
    uint32_t channel[kGroups];
#pragma clang loop unroll(full)
    for (uint32_t g = 0; g < kGroups; ++g) channel[g] = ChannelOf(args, at, g);
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kAtOnce; ++t) {
      const uint32_t place = row + Min(tap + t, back);
      const bool before = place < back;
      const Global<const float> from = (before ? tail : rows) +
                                       uint64_t{before ? place : place - back} *
                                           (before ? tail_stride : args.in_stride);
#pragma clang loop unroll(full)
      for (uint32_t g = 0; g < kGroups; ++g) x[g][t] = *PairAt(from, channel[g]);
    }
    AskWeights(args, channel, tap);
  }
  // A lane's place behind one that is the same in all lanes, in so few bytes that 32 bits hold them.
  template <class T>
  DEVICE static Global<T> LaneAt(Global<T> base, uint32_t element) {
    return reinterpret_cast<Global<T>>(reinterpret_cast<uint64_t>(base) + uint64_t{element * 4});
  }
  template <class T>
  DEVICE static auto PairAt(Global<T> base, uint32_t element) {
    return PieceAt(LaneAt(base, element));
  }
  // Those beyond the last tap are zero.
  DEVICE void AskWeights(const DeltaArgs& args, const uint32_t (&channel)[kGroups], uint32_t tap) {
    const Global<const float> conv = At(args.conv);
    if (args.taps == kAtOnce) {
#pragma clang loop unroll(full)
      for (uint32_t g = 0; g < kGroups; ++g) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < 2; ++i) {
          w[g][i] = BitCast<f32x4>(Load16(LaneAt(conv, channel[g] * kAtOnce), i));
        }
      }
      return;
    }
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kGroups * 2 * kAtOnce; ++i) {
      const uint32_t g = i / (2 * kAtOnce), e = i / kAtOnce % 2, t = i % kAtOnce;
      const Global<const float> from = conv + (e * args.taps + Min(tap + t, args.taps - 1));
      const float weight = *LaneAt(from, channel[g] * args.taps);
      w[g][e][t] = tap + t < args.taps ? weight : 0.0f;
    }
  }
  // Before a sequence's first row there are zeros.
  DEVICE void ClearBeforeFirst(const DeltaArgs& args, const DeltaHead& at, uint32_t row,
                               uint32_t tap) {
    if (HasTail(at) || row + tap + 1 >= args.taps) return;
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kAtOnce; ++t) {
      const uint32_t mask = row + tap + t + 1 < args.taps ? 0 : ~0u;
#pragma clang loop unroll(full)
      for (uint32_t g = 0; g < kGroups; ++g) {
        x[g][t] = BitCast<f32x2>(BitCast<u32x2>(x[g][t]) & mask);
      }
    }
  }
  // All rows of the convolution but the oldest are what the next row needs of those before it: the
  // columns' own channels, and, by the first value head of each, its key head's.
  DEVICE void KeepTaps(const DeltaArgs& args, const DeltaHead& at, uint32_t slot, uint32_t tap) {
    const uint32_t channels = DeltaChannels(args);
    const Global<float> to = DeltaTail(args, slot);
#pragma clang loop unroll(full)
    for (uint32_t g = 0; g < kGroups; ++g) {
      if ((g < 2 * kKeyPairs && !at.has_keys) || !IsReal(args, at, g)) continue;
      const uint32_t channel = ChannelOf(args, at, g);
#pragma clang loop unroll(full)
      for (uint32_t t = 0; t < kAtOnce; ++t) {
        if (t == 0 && tap == 0) continue;
        const uint32_t place = Min(tap + t, args.taps - 1) - 1;  // what is beyond is the last one again
        *PairAt(to + uint64_t{place} * channels, channel) = x[g][t];
      }
    }
  }
};

// out = norm * rmsnorm(o) * silu(z) of one row and head, by a wave that has `kEach` pairs of columns
// a lane.
template <uint32_t kEach>
struct DeltaNorm {
  f32x2 z[kEach], norm[kEach];

  DEVICE static uint32_t ColumnOf(uint32_t i) { return i * kPairs + 2 * LaneId(); }

  DEVICE void Ask(const DeltaArgs& args, uint32_t row, uint32_t head) {
    const Global<const float> from =
        At(args.in) +
        (uint64_t{row} * args.in_stride + DeltaChannels(args) + head * args.value_dim);
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t d = ColumnOf(i) < args.value_dim ? ColumnOf(i) : 0;
      z[i] = *reinterpret_cast<Global<const f32x2>>(from + d);
      norm[i] = *reinterpret_cast<Global<const f32x2>>(At(args.norm) + d);
    }
  }

  // `o(d)` gives two neighbouring elements.
  template <class Elements>
  DEVICE void Store(const DeltaArgs& args, uint32_t row, uint32_t head, Elements o) const {
    f32x2 value[kEach];
    float sum = 0;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kEach; ++i) {
      value[i] = f32x2{0, 0};
      if (ColumnOf(i) < args.value_dim) value[i] = o(ColumnOf(i));
      const float low = value[i][0], high = value[i][1];
      sum = Fma(high, high, Fma(low, low, sum));
    }
    const float mean = WaveSum(sum) / static_cast<float>(args.value_dim);
    const float factor = Rsqrt(mean + args.epsilon);
    const Global<float> out = At(args.out) + uint64_t{row} * args.out_stride;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kEach; ++i) {
      const float low = z[i][0], high = z[i][1];
      const f32x2 by = {Silu(low), Silu(high)};
      if (ColumnOf(i) < args.value_dim) {
        StoreSplitPiece(out, head * args.value_dim + ColumnOf(i), value[i] * factor * norm[i] * by);
      }
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_DELTA_ROWS_H_
