// SPDX-License-Identifier: MIT
//
// The gated delta net of a decoder layer (src/backend/ops.h, GatedDeltaOp).
//
// A workgroup takes some columns of one value head's S, all of them where it can, through all rows of
// one sequence, with S in registers: a wave has sixteen columns a tile, a lane a quarter of a column's
// keys. Rows go in blocks. All that does not depend on S is done first, rows side by side:
// convolutions, norms, gates, q . k; then S walks through the rows, with no barrier on the way. A
// row's arithmetic is the same wherever blocks, steps and groups of columns begin.
#ifndef MAINARCH_KERNELS_OPS_DELTA_H_
#define MAINARCH_KERNELS_OPS_DELTA_H_

#include "kernels/common/kernel.h"
#include "kernels/ops/step.h"

namespace mainarch::kernels {

// One sequence's rows [first, first + rows) and one value head's columns, uniform.
struct DeltaHead {
  uint32_t first, rows, head, column, columns;
  uint32_t slot;  // before the first row, or kNoSlot

  DEVICE static uint32_t GroupsOf(const DeltaArgs& args) {
    return CeilDiv(args.value_dim, args.columns);
  }
  DEVICE static DeltaHead Of(const DeltaArgs& args, const StepView& step, uint32_t item) {
    const uint32_t groups = GroupsOf(args);
    DeltaHead out;
    out.column = item % groups * args.columns;
    out.columns = Min(args.columns, args.value_dim - out.column);
    out.head = item / groups % args.value_heads;
    const uint32_t sequence = item / groups / args.value_heads;
    out.first = Uniform(step.first_row(sequence));
    out.rows = Uniform(step.row_count(sequence));
    out.slot = Uniform(step.state_in(args.states, out.first));
    return out;
  }
};

DEVICE Global<float> DeltaSlot(const DeltaArgs& args, uint32_t slot) {
  return reinterpret_cast<Global<float>>(At(args.slots) + slot * args.slot_bytes);
}
// Where a slot's rows of `in` begin.
DEVICE uint64_t DeltaTailAt(const DeltaArgs& args) {
  return uint64_t{args.value_heads} * args.key_dim * args.value_dim;
}
DEVICE uint32_t DeltaChannels(const DeltaArgs& args) {
  return 2 * args.key_heads * args.key_dim + args.value_heads * args.value_dim;
}

// Rows of `in` as convolutions see them: those of the step, before them the slot's, and before a
// sequence zeros. `row` counts from the sequence's first row of the step.
struct DeltaRows {
  Global<const float> rows, tail;  // no slot: no tail
  uint32_t stride, channels, taps;

  DEVICE DeltaRows(const DeltaArgs& args, const DeltaHead& at)
      : rows(At(args.in) + uint64_t{at.first} * args.in_stride),
        tail(at.slot == kNoSlot ? nullptr : DeltaSlot(args, at.slot) + DeltaTailAt(args)),
        stride(args.in_stride),
        channels(DeltaChannels(args)),
        taps(args.taps) {}

  DEVICE float Element(int32_t row, uint32_t channel) const {
    if (row >= 0) return rows[static_cast<uint64_t>(row) * stride + channel];
    if (tail == nullptr) return 0.0f;
    return tail[static_cast<uint64_t>(static_cast<int32_t>(taps) - 1 + row) * channels + channel];
  }
  // What the convolution of a channel gives; four taps are asked for at once.
  DEVICE float Convolve(Global<const float> conv, uint32_t row, uint32_t channel) const {
    constexpr uint32_t kAtOnce = 4;
    float sum = 0;
#pragma clang loop unroll(disable)
    for (uint32_t first = 0; first < taps; first += kAtOnce) {
      float x[kAtOnce], w[kAtOnce];
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t tap = Min(first + i, taps - 1);
        x[i] = Element(static_cast<int32_t>(row + tap + 1 - taps), channel);
        w[i] = conv[channel * taps + tap];
      }
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (first + i < taps) sum = Fma(w[i], x[i], sum);
      }
    }
    return Silu(sum);
  }
};

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

// out = norm * rmsnorm(o) * silu(z) of one row and head, by a wave. `o` gives an element.
template <class Element>
DEVICE void DeltaNorm(const DeltaArgs& args, uint32_t row, uint32_t head, Element o) {
  constexpr uint32_t kEach = kDeltaMostDim / kWave;
  const uint32_t first = head * args.value_dim;
  const Global<const float> z =
      At(args.in) + (uint64_t{row} * args.in_stride + DeltaChannels(args) + first);
  float value[kEach], gate[kEach], norm[kEach], sum = 0;
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kEach; ++i) {
    const uint32_t d = i * kWave + LaneId();
    value[i] = gate[i] = norm[i] = 0;
    if (d < args.value_dim) {
      value[i] = o(d);
      gate[i] = z[d];
      norm[i] = At(args.norm)[d];
    }
  }
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kEach; ++i) sum = Fma(value[i], value[i], sum);
  const float mean = WaveSum(sum) / static_cast<float>(args.value_dim);
  const float factor = Rsqrt(mean + args.epsilon);
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < kEach; ++i) {
    const uint32_t d = i * kWave + LaneId();
    if (d < args.value_dim) {
      StoreSplit(At(args.out) + uint64_t{row} * args.out_stride, first + d,
                 value[i] * factor * norm[i] * Silu(gate[i]));
    }
  }
}

// Keys are taken as kMostKeys, zeros beyond key_dim: they add nothing. `kTiles`: of sixteen columns
// each, that a wave has. Functions read the arguments again where they start: kept all along they, and
// conditions made of them, are more than there are scalar registers.
template <uint32_t kMostKeys, uint32_t kTiles>
struct Delta {
  using Args = DeltaArgs;
  static constexpr uint32_t kBlockRows = 8;
  static constexpr uint32_t kTile = 16;  // columns
  static constexpr uint32_t kColumns = kTiles * kTile * kWaves;  // of a workgroup, at most
  static constexpr uint32_t kQuads = kMostKeys / 16;  // of a lane, of a column
  // In LDS: q, k [kBlockRows, kMostKeys], v, o [kBlockRows, kColumns], alpha, beta, q . k
  // [kBlockRows] each.
  static constexpr uint32_t kK = kBlockRows * kMostKeys * 4, kV = 2 * kK;
  static constexpr uint32_t kO = kV + kBlockRows * kColumns * 4;
  static constexpr uint32_t kAlpha = kO + kBlockRows * kColumns * 4;
  static constexpr uint32_t kBeta = kAlpha + kBlockRows * 4, kQk = kBeta + kBlockRows * 4;
  static constexpr uint32_t kLdsBytes = kQk + kBlockRows * 4;

  // A lane's part of S.
  struct State {
    f32x4 at[kTiles][kQuads];
  };

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const uint32_t total = step.sequences() * args.value_heads * DeltaHead::GroupsOf(args);
    for (uint32_t t = worker; t < total; t += workers) {
      const DeltaHead at = DeltaHead::Of(args, step, t);
      State state;
      Load(ReadArgumentsAgain<Args>(), at, &state);
#pragma clang loop unroll(disable)
      for (uint32_t row = 0; row < at.rows; row += kBlockRows) {
        const uint32_t count = Min(kBlockRows, at.rows - row);
        Prepare(ReadArgumentsAgain<Args>(), at, row, count, arena);
        KeepTails(ReadArgumentsAgain<Args>(), step, at, row, count);
        BarrierLds();
        Walk(ReadArgumentsAgain<Args>(), step, at, row, count, &state, arena);
        BarrierLds();
        if (args.plain.address == 0) {
          Finish(ReadArgumentsAgain<Args>(), at, row, count, arena);
        }
      }
    }
    BarrierLds();
  }

  // o is written again behind the next block's first barrier.
  DEVICE static void Finish(const Args& args, const DeltaHead& at, uint32_t row, uint32_t count,
                            Arena arena) {
    for (uint32_t i = WaveId(); i < count; i += kWaves) {
      const Lds<float> o = arena.Get<float>(kO) + i * kColumns;
      DeltaNorm(args, at.first + row + i, at.head, [&](uint32_t d) { return o[d]; });
    }
  }

  // ---- S ----

  DEVICE static uint32_t TileOf(uint32_t i) { return WaveId() + i * kWaves; }
  // Of this lane, of a tile.
  DEVICE static uint64_t PlaceOf(const Args& args, const DeltaHead& at, uint32_t tile) {
    return (uint64_t{at.head} * args.value_dim + at.column + tile * kTile) * args.key_dim +
           LaneId() * 4;
  }
  DEVICE static void Load(const Args& args, const DeltaHead& at, State* state) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kTiles; ++i) {
#pragma clang loop unroll(full)
      for (uint32_t q = 0; q < kQuads; ++q) state->at[i][q] = f32x4{0, 0, 0, 0};
      if (at.slot == kNoSlot || TileOf(i) * kTile >= at.columns) continue;
      const Global<const float> from = DeltaSlot(args, at.slot) + PlaceOf(args, at, TileOf(i));
#pragma clang loop unroll(full)
      for (uint32_t q = 0; q < kQuads; ++q) {
        if (q * 16 >= MadeHere(args.key_dim)) break;
        state->at[i][q] = BitCast<f32x4>(Load16(from, q * kWave));
      }
    }
  }
  DEVICE static void Store(const Args& args, const DeltaHead& at, uint32_t slot,
                           const State& state) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kTiles; ++i) {
      if (TileOf(i) * kTile >= at.columns) continue;
      const Global<float> to = DeltaSlot(args, slot) + PlaceOf(args, at, TileOf(i));
#pragma clang loop unroll(full)
      for (uint32_t q = 0; q < kQuads; ++q) {
        if (q * 16 >= MadeHere(args.key_dim)) break;
        Store16(to, q * kWave, BitCast<u32x4>(state.at[i][q]));
      }
    }
  }

  // ---- what does not depend on S: rows [row, row + count) of the sequence ----

  DEVICE static void Prepare(const Args& args, const DeltaHead& at, uint32_t row, uint32_t count,
                             Arena arena) {
    const DeltaRows rows(args, at);
#pragma clang loop unroll(disable)
    for (uint32_t i = WaveId(); i < 2 * count; i += kWaves) {
      if (i % 2 == 0) {
        Keys(args, rows, at, row, i / 2, arena);
      } else {
        Values(args, rows, at, row, i / 2, arena);
      }
    }
  }

  DEVICE static void Keys(const Args& args, const DeltaRows& rows, const DeltaHead& at,
                          uint32_t row, uint32_t i, Arena arena) {
    constexpr uint32_t kEach = kMostKeys / kWave;
    const uint32_t keys = args.key_heads * args.key_dim;
    const uint32_t first = at.head / (args.value_heads / args.key_heads) * args.key_dim;
    float q[kEach], k[kEach], qq = 0, kk = 0, qk = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kEach; ++j) {
      const uint32_t d = j * kWave + LaneId();
      q[j] = k[j] = 0;
      if (d < args.key_dim) {
        q[j] = rows.Convolve(At(args.conv), row + i, first + d);
        k[j] = rows.Convolve(At(args.conv), row + i, keys + first + d);
      }
      qq = Fma(q[j], q[j], qq);
      kk = Fma(k[j], k[j], kk);
    }
    constexpr float kEpsilon = 1e-6f;
    const float by_q = Rsqrt(WaveSum(qq) + kEpsilon) * Rsqrt(static_cast<float>(args.key_dim));
    const float by_k = Rsqrt(WaveSum(kk) + kEpsilon);
    const Lds<float> to = arena.Get<float>() + i * kMostKeys;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kEach; ++j) {
      q[j] *= by_q;
      k[j] *= by_k;
      qk = Fma(q[j], k[j], qk);
      to[j * kWave + LaneId()] = q[j];
      to[kK / 4 + j * kWave + LaneId()] = k[j];
    }
    qk = WaveSum(qk);
    if (LaneId() == 0) arena.Get<float>(kQk)[i] = qk;
  }

  DEVICE static void Values(const Args& args, const DeltaRows& rows, const DeltaHead& at,
                            uint32_t row, uint32_t i, Arena arena) {
    const uint32_t first =
        2 * args.key_heads * args.key_dim + at.head * args.value_dim + at.column;
    const Lds<float> to = arena.Get<float>(kV) + i * kColumns;
    for (uint32_t d = LaneId(); d < at.columns; d += kWave) {
      to[d] = rows.Convolve(At(args.conv), row + i, first + d);
    }
    Gates(ReadArgumentsAgain<Args>(), at, row, i, arena);
  }

  // Of a row and head, b in even lanes and a in odd ones, as the product's sums.
  DEVICE static void Gates(const Args& args, const DeltaHead& at, uint32_t row, uint32_t i,
                           Arena arena) {
    const RowFactor factor(args.gates_norm, at.first + row + i, true);
    const uint64_t place = uint64_t{at.first + row + i} * args.gates_stride + at.head +
                           LaneId() % 2 * args.value_heads;
    const float gate = SumSplits(At(args.gates) + place, args.gates_splits,
                                 uint64_t{args.gates_split_rows} * args.gates_stride) *
                       factor.Value(args.gates_norm);
    const float a = ReadLane(gate, 1) + At(args.dt_bias)[at.head];
    const float alpha = Exp(-(Exp(At(args.decay)[at.head]) * Softplus(a)));
    const float beta = Rcp(1.0f + Exp(-ReadLane(gate, 0)));
    if (LaneId() == 0) {
      arena.Get<float>(kAlpha)[i] = alpha;
      arena.Get<float>(kBeta)[i] = beta;
    }
  }

  // The last rows of `in` up to each row whose state is kept: the columns' own channels, and, by the
  // first value head of each, its key head's.
  DEVICE static void KeepTails(const Args& args, const StepView& step, const DeltaHead& at,
                               uint32_t row, uint32_t count) {
    const DeltaRows rows(args, at);
    const uint32_t ratio = args.value_heads / args.key_heads, both = 2 * args.key_dim;
    const uint32_t keys = args.key_heads * args.key_dim, key = at.head / ratio * args.key_dim;
    const bool has_keys = at.head % ratio == 0 && at.column == 0;
    for (uint32_t i = row; i < row + count; ++i) {
      const uint32_t slot = Uniform(step.state_out(args.states, at.first + i));
      if (slot == kNoSlot) continue;
      const Global<float> to = DeltaSlot(args, slot) + DeltaTailAt(args);
      for (uint32_t c = (has_keys ? 0 : both) + ThreadId(); c < both + at.columns; c += kThreads) {
        const uint32_t channel = c < args.key_dim ? key + c
                                 : c < both       ? keys + key + (c - args.key_dim)
                                                  : 2 * keys + at.head * args.value_dim +
                                                        at.column + (c - both);
        for (uint32_t tap = 0; tap + 1 < args.taps; ++tap) {
          to[uint64_t{tap} * rows.channels + channel] =
              rows.Element(static_cast<int32_t>(i + tap + 2 - args.taps), channel);
        }
      }
    }
  }

  // ---- S through the rows ----

  // Over the four quarters of a column, in all of them.
  DEVICE static float SumQuarters(float x) {
    x += BitCast<float>(isa::SwapRows(BitCast<uint32_t>(x)));
    return x + BitCast<float>(isa::SwapHalves(BitCast<uint32_t>(x)));
  }

  DEVICE static void Walk(const Args& args, const StepView& step, const DeltaHead& at, uint32_t row,
                          uint32_t count, State* state, Arena arena) {
    if (TileOf(0) * kTile >= at.columns) return;
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < count; ++i) {
      OneRow(args, at, row, i, state, arena);
      const uint32_t slot = Uniform(step.state_out(args.states, at.first + row + i));
      if (slot != kNoSlot) Store(ReadArgumentsAgain<Args>(), at, slot, *state);
    }
  }

  DEVICE static void OneRow(const Args& args, const DeltaHead& at, uint32_t row, uint32_t i,
                            State* state, Arena arena) {
    const Lds<f32x4> from = arena.Get<f32x4>() + (i * kMostKeys / 4 + LaneId() / 16);
    f32x4 k[kQuads];
    float p[kTiles] = {}, r[kTiles] = {};
#pragma clang loop unroll(full)
    for (uint32_t quad = 0; quad < kQuads; ++quad) {
      const f32x4 q = from[quad * 4];
      k[quad] = from[kK / 16 + quad * 4];
#pragma clang loop unroll(full)
      for (uint32_t t = 0; t < kTiles; ++t) {
#pragma clang loop unroll(full)
        for (uint32_t e = 0; e < 4; ++e) {
          p[t] = Fma(k[quad][e], state->at[t][quad][e], p[t]);
          r[t] = Fma(q[e], state->at[t][quad][e], r[t]);
        }
      }
    }
    const float alpha = arena.Get<float>(kAlpha)[i], beta = arena.Get<float>(kBeta)[i];
    const float qk = arena.Get<float>(kQk)[i];
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTiles; ++t) {
      const uint32_t column = TileOf(t) * kTile + LaneId() % kTile;
      const bool real = TileOf(t) * kTile < at.columns;
      const float v = arena.Get<float>(kV)[i * kColumns + (real ? column : LaneId() % kTile)];
      const float u = beta * (v - alpha * SumQuarters(p[t]));
      const float o = Fma(qk, u, alpha * SumQuarters(r[t]));
#pragma clang loop unroll(full)
      for (uint32_t quad = 0; quad < kQuads; ++quad) {
#pragma clang loop unroll(full)
        for (uint32_t e = 0; e < 4; ++e) {
          state->at[t][quad][e] = Fma(k[quad][e], u, alpha * state->at[t][quad][e]);
        }
      }
      if (!real || LaneId() >= kTile) continue;
      if (args.plain.address == 0) {
        arena.Get<float>(kO)[i * kColumns + column] = o;
      } else {
        At(args.plain)[uint64_t{at.first + row + i} * args.out_stride + at.head * args.value_dim +
                       at.column + column] = o;
      }
    }
  }
};

// Of heads whose columns several workgroups have: a wave a row and head.
struct GatedDeltaNorm {
  using Args = DeltaArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t total = StepView(args.step).rows() * args.value_heads;
    for (uint32_t t = worker * kWaves + WaveId(); t < total; t += workers * kWaves) {
      const uint32_t row = t / args.value_heads, head = t % args.value_heads;
      const Global<const float> o =
          At(args.plain) + (uint64_t{row} * args.out_stride + head * args.value_dim);
      DeltaNorm(args, row, head, [&](uint32_t d) { return o[d]; });
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_DELTA_H_
