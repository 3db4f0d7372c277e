// SPDX-License-Identifier: MIT
//
// The gated delta net of a decoder layer (src/backend/ops.h, GatedDeltaOp).
//
// A workgroup takes some columns of one value head's S, all of them where it can, through all rows of
// one sequence, with S in registers: a wave has sixteen columns a tile, a lane a quarter of a column's
// keys. Rows go in blocks of four. All that does not depend on S is done first, a row a wave
// (delta_rows.h); then S walks through the rows, with no barrier on the way, while what the next
// block is made of comes. A row's arithmetic is the same wherever blocks, steps and groups of columns
// begin.
#ifndef MAINARCH_KERNELS_OPS_DELTA_H_
#define MAINARCH_KERNELS_OPS_DELTA_H_

#include "kernels/ops/delta_rows.h"

namespace mainarch::kernels {

// Keys are taken as kMostKeys, zeros beyond key_dim: they add nothing. `kTiles`: of sixteen columns
// each, that a wave has. Functions read the arguments again where they start: kept all along they, and
// conditions made of them, are more than there are scalar registers.
template <uint32_t kMostKeys, uint32_t kTiles>
struct Delta {
  using Args = DeltaArgs;
  static constexpr uint32_t kBlockRows = kWaves;
  static constexpr uint32_t kTile = 16;  // columns
  static constexpr uint32_t kQuadBytes = kWave * 16;  // of a tile
  static constexpr uint32_t kColumns = kTiles * kTile * kWaves;  // of a workgroup, at most
  static constexpr uint32_t kQuads = kMostKeys / 16;  // of a lane, of a column
  static constexpr uint32_t kKeyPairs = kMostKeys / kPairs;
  static_assert(kColumns <= kPairs);
  // While S walks through a block there are registers for the next one, but beside 256 keys.
  static constexpr bool kAhead = kKeyPairs == 1;
  // In LDS: q, k [kBlockRows, kMostKeys], v, o [kBlockRows, kPairs], {alpha, beta, q . k}
  // [kBlockRows, 4].
  static constexpr uint32_t kK = kBlockRows * kMostKeys * 4, kV = 2 * kK;
  static constexpr uint32_t kO = kV + kBlockRows * kPairs * 4;
  static constexpr uint32_t kScalars = kO + kBlockRows * kPairs * 4;
  static constexpr uint32_t kLdsBytes = kScalars + kBlockRows * 16;

  // A lane's part of S.
  struct State {
    f32x4 at[kTiles][kQuads];
  };
  // What this wave needs of its row of a block.
  struct Asked {
    DeltaRow<kKeyPairs> row;
    DeltaNorm<1> norm;
    uint32_t kept;  // lane i: the slot that the state after row i of the block goes to
  };

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const DeltaSteps steps(args);
    const uint32_t total = steps.sequences[0] * args.value_heads * DeltaHead::GroupsOf(args);
    for (uint32_t t = worker; t < total; t += workers) {
      const DeltaHead at = DeltaHead::Of(args, steps, t);
      Asked asked;
      State state;
      Begin(ReadArgumentsAgain<Args>(), steps, at, &asked, &state);
#pragma clang loop unroll(disable)
      for (uint32_t row = 0; row < at.rows; row += kBlockRows) {
        if (!kAhead) Ask(ReadArgumentsAgain<Args>(), steps, at, row, &asked);
        const uint32_t count = Min(kBlockRows, at.rows - row), kept = asked.kept;
        const DeltaNorm<1> norm = asked.norm;
        if (WaveId() < count) Prepare(ReadArgumentsAgain<Args>(), at, row, &asked, arena);
        BarrierLds();
        if (kAhead && row + kBlockRows < at.rows) {
          Ask(ReadArgumentsAgain<Args>(), steps, at, row + kBlockRows, &asked);
          KeepOrder();
        }
        Walk(ReadArgumentsAgain<Args>(), at, row, count, kept, &state, arena);
        BarrierLds();
        if (args.plain.address == 0 && WaveId() < count) {
          Finish(ReadArgumentsAgain<Args>(), at, row, norm, arena);
        }
      }
    }
    BarrierLds();
  }

  // What the first rows are made of is needed first.
  DEVICE static void Begin(const Args& args, const DeltaSteps& steps, const DeltaHead& at,
                           Asked* asked, State* state) {
    if (kAhead) Ask(args, steps, at, 0, asked);
    KeepOrder();
    Load(args, at, state);
    KeepOrder();
  }

  // Of the block that begins with `row`. A wave without a row asks for the last one's.
  DEVICE static void Ask(const Args& args, const DeltaSteps& steps, const DeltaHead& at,
                         uint32_t row, Asked* out) {
    const uint32_t last = at.rows - 1, mine = Min(row + WaveId(), last);
    out->row.Ask(args, at, mine);
    out->kept = steps.out[at.first + Min(row + LaneId() % kBlockRows, last)];
    out->norm.Ask(args, at.first + mine, at.head);
  }

  // o is written again behind the next block's first barrier.
  DEVICE static void Finish(const Args& args, const DeltaHead& at, uint32_t row,
                            const DeltaNorm<1>& norm, Arena arena) {
    const Lds<float> o = arena.Get<float>(kO) + WaveId() * kPairs;
    norm.Store(args, at.first + row + WaveId(), at.head,
               [&](uint32_t d) { return *reinterpret_cast<Lds<f32x2>>(o + d); });
  }

  // ---- S ----

  DEVICE static uint32_t TileOf(uint32_t i) { return WaveId() + i * kWaves; }
  // Where a tile of a slot begins, for this lane; a quad is 1 KiB of all lanes.
  DEVICE static Global<float> PlaceOf(const Args& args, const DeltaHead& at, uint32_t slot,
                                      uint32_t tile) {
    return DeltaSlot(args, slot) +
           (uint64_t{at.head} * args.value_dim + at.column + tile * kTile) * args.key_dim +
           LaneId() * 4;
  }
  // What a wave has beyond the columns and the keys is other columns and keys, which nobody looks at: no
  // load waits for a branch.
  DEVICE static void Load(const Args& args, const DeltaHead& at, State* state) {
    if (at.slot == kNoSlot) {
      *state = {};
      return;
    }
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kTiles; ++i) {
      const uint32_t tile = TileOf(i) * kTile < at.columns ? TileOf(i) : 0;
      const Global<const float> from = PlaceOf(args, at, at.slot, tile);
#pragma clang loop unroll(full)
      for (uint32_t q = 0; q < kQuads; ++q) {
        state->at[i][q] = BitCast<f32x4>(Load16(from, Min(q, args.key_dim / 16 - 1) * kWave));
      }
    }
  }
  // Where a wave's first tile goes in a slot, or nowhere; how far its second one is from there.
  struct Place {
    Global<uint8_t> at;
    uint32_t apart;
    bool whole;  // has all the keys
  };
  // A compute unit stores 64 bytes a clock, a quarter of what its waves compute in that time: a state
  // that is kept is stored by quarters, each where there is arithmetic to hide it behind.
  static constexpr uint32_t kQuarters = 4;
  template <uint32_t kQuarter>
  DEVICE static void StoreQuarter(const Args& args, const Place& to, const State& state) {
    constexpr uint32_t kEach = kTiles * kQuads / kQuarters;
    constexpr uint32_t kTileAt = kQuarter % kTiles, kFirst = kQuarter / kTiles * kEach;
    if (to.at == nullptr || (kTileAt != 0 && to.apart == 0)) return;
    const Global<uint8_t> at = to.at + kTileAt * to.apart + kFirst * kQuadBytes;
    const uint64_t lane = LaneId() * 16;
    if (__builtin_expect(to.whole, true)) {
#pragma clang loop unroll(full)
      for (uint32_t q = 0; q < kEach; ++q) {
        *reinterpret_cast<Global<f32x4>>(at + lane + q * kQuadBytes) =
            state.at[kTileAt][kFirst + q];
      }
      return;
    }
#pragma clang loop unroll(full)
    for (uint32_t q = kEach; q-- > 0;) {
      if ((kFirst + q) * 16 >= MadeHere(args.key_dim)) continue;
      *reinterpret_cast<Global<f32x4>>(at + lane + q * kQuadBytes) = state.at[kTileAt][kFirst + q];
    }
  }

  // ---- what does not depend on S, of this wave's row of a block ----

  DEVICE static void Prepare(const Args& args, const DeltaHead& at, uint32_t row, Asked* asked,
                             Arena arena) {
    const uint32_t i = WaveId();
    f32x2 made[DeltaRow<kKeyPairs>::kGroups];
    asked->row.Convolve(args, at, row + i, ReadLane(asked->kept, i), made);
    float qq = 0, kk = 0, qk = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kKeyPairs; ++j) {
#pragma clang loop unroll(full)
      for (uint32_t e = 0; e < 2; ++e) {
        const float q = made[j][e], k = made[kKeyPairs + j][e];
        qq = Fma(q, q, qq);
        kk = Fma(k, k, kk);
        qk = Fma(q, k, qk);
      }
    }
    constexpr float kEpsilon = 1e-6f;
    const float by_q = Rsqrt(WaveSum(qq) + kEpsilon) * Rsqrt(static_cast<float>(args.key_dim));
    const float by_k = Rsqrt(WaveSum(kk) + kEpsilon);
    const Lds<f32x2> to = arena.Get<f32x2>() + (i * kMostKeys / 2 + LaneId());
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kKeyPairs; ++j) {
      to[j * kWave] = made[j] * by_q;
      to[kK / 8 + j * kWave] = made[kKeyPairs + j] * by_k;
    }
    arena.Get<f32x2>(kV)[i * kWave + LaneId()] = made[2 * kKeyPairs];
    const f32x2 gates = asked->row.Gates(ReadArgumentsAgain<Args>());
    const f32x4 scalars = {gates[0], gates[1], WaveSum(qk) * by_q * by_k, 0};
    if (LaneId() == 0) arena.Get<f32x4>(kScalars)[i] = scalars;
  }

  // ---- S through the rows ----

  // Over the four quarters of a column, in all of them.
  DEVICE static float SumQuarters(f32x2 x) {
    return isa::AddHalves(isa::AddRows(x[0] + x[1]));
  }

  DEVICE static void Walk(const Args& args, const DeltaHead& at, uint32_t row, uint32_t count,
                          uint32_t kept, State* state, Arena arena) {
    if (TileOf(0) * kTile >= at.columns) return;
    const Global<uint8_t> slots =
        At(args.slots) +
        (uint64_t{at.head} * args.value_dim + at.column + TileOf(0) * kTile) * args.key_dim * 4;
    const uint32_t apart = TileOf(1) * kTile < at.columns ? kWaves * kTile * args.key_dim * 4 : 0;
    const bool whole = args.key_dim == kMostKeys;
    Place before = {nullptr, apart, whole};
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t slot = ReadLane(kept, i);
      const Place after = {slot == kNoSlot ? nullptr : slots + slot * args.slot_bytes, apart, whole};
      OneRow(args, at, row, i, before, after, state, arena);
      before = after;
    }
    StoreQuarter<2>(args, before, *state);
    StoreQuarter<3>(args, before, *state);
  }

  DEVICE static f32x2 Fma2(f32x2 a, f32x2 b, f32x2 c) {
    return __builtin_elementwise_fma(a, b, c);
  }

  // S is taken in two halves: of each tile half the quads.
  static constexpr uint32_t kHalf = kQuads / 2;
  // Adds a half's part to k . S and q . S.
  template <uint32_t kWhich>
  DEVICE static void Look(const f32x4 (&k)[kQuads], Lds<const f32x4> queries, const State& state,
                          f32x2 (&p)[kTiles], f32x2 (&r)[kTiles]) {
    f32x4 q[kHalf];
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kHalf; ++i) q[i] = queries[(kWhich * kHalf + i) * 4];
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kHalf; ++i) {
      const f32x4 keys = k[kWhich * kHalf + i];
#pragma clang loop unroll(full)
      for (uint32_t t = 0; t < kTiles; ++t) {
        const f32x4 s = state.at[t][kWhich * kHalf + i];
        p[t] = Fma2(keys.hi, s.hi, Fma2(keys.lo, s.lo, p[t]));
        r[t] = Fma2(q[i].hi, s.hi, Fma2(q[i].lo, s.lo, r[t]));
      }
    }
    // Not behind the stores that follow.
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTiles; ++t) {
      p[t] = MadeBefore(p[t]);
      r[t] = MadeBefore(r[t]);
    }
  }
  template <uint32_t kWhich>
  DEVICE static void Change(const f32x4 (&k)[kQuads], float alpha, const float (&u)[kTiles],
                            State* state) {
    const f32x2 keep = {alpha, alpha};
#pragma clang loop unroll(full)
    for (uint32_t i = kWhich * kHalf; i < (kWhich + 1) * kHalf; ++i) {
#pragma clang loop unroll(full)
      for (uint32_t t = 0; t < kTiles; ++t) {
        const f32x2 by = {u[t], u[t]};
        f32x4& s = state->at[t][i];
        s.lo = Fma2(k[i].lo, by, keep * s.lo);
        s.hi = Fma2(k[i].hi, by, keep * s.hi);
      }
    }
  }

  // Elements go by twos: the chip adds and multiplies two floats in the time of one. `before`: the slot of
  // the row before, of which a half is still to be stored.
  DEVICE static void OneRow(const Args& args, const DeltaHead& at, uint32_t row, uint32_t i,
                            const Place& before, const Place& after, State* state,
                            Arena arena) {
    const Lds<f32x4> from = arena.Get<f32x4>() + (i * kMostKeys / 4 + LaneId() / 16);
    const f32x4 scalars = arena.Get<f32x4>(kScalars)[i];
    f32x4 k[kQuads];
    float v[kTiles], u[kTiles] = {};
#pragma clang loop unroll(full)
    for (uint32_t quad = 0; quad < kQuads; ++quad) k[quad] = from[kK / 16 + quad * 4];
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTiles; ++t) v[t] = arena.Get<float>(kV)[i * kPairs + ColumnOf(t)];
    const float alpha = scalars[0], beta = scalars[1], qk = scalars[2];
    f32x2 p[kTiles] = {}, r[kTiles] = {};
    Look<0>(k, from, *state, p, r);
    StoreQuarter<2>(args, before, *state);
    Look<1>(k, from, *state, p, r);
    StoreQuarter<3>(args, before, *state);
#pragma clang loop unroll(full)
    for (uint32_t t = 0; t < kTiles; ++t) {
      u[t] = beta * (v[t] - alpha * SumQuarters(p[t]));
      const float o = Fma(qk, u[t], alpha * SumQuarters(r[t]));
      Give(args, at, row, i, t, o, arena);
    }
    Change<0>(k, alpha, u, state);
    StoreQuarter<0>(args, after, *state);
    Change<1>(k, alpha, u, state);
    StoreQuarter<1>(args, after, *state);
  }

  DEVICE static uint32_t ColumnOf(uint32_t t) { return TileOf(t) * kTile + LaneId() % kTile; }
  DEVICE static void Give(const Args& args, const DeltaHead& at, uint32_t row, uint32_t i,
                          uint32_t t, float o, Arena arena) {
    if (args.plain.address == 0) {
      // All quarters have it, and columns that are not there have room.
      arena.Get<float>(kO)[i * kPairs + ColumnOf(t)] = o;
    } else if (TileOf(t) * kTile < at.columns && LaneId() < kTile) {
      At(args.plain)[uint64_t{at.first + row + i} * args.out_stride + at.head * args.value_dim +
                     at.column + ColumnOf(t)] = o;
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
      DeltaNorm<kDeltaMostDim / kPairs> norm;
      norm.Ask(args, row, head);
      norm.Store(args, row, head,
                 [&](uint32_t d) { return *reinterpret_cast<Global<const f32x2>>(o + d); });
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_DELTA_H_
