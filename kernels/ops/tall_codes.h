// SPDX-License-Identifier: MIT
//
// Of products of many rows (ops/tall.h) those with weights of codes (ops/codes.h): a wave's sums, and how it multiplies a
// chunk while the next ones come. What AddCodes adds to a sum tile by tile is added here, too, in its order.
//
// Sums of x, which addends want, do not depend on the weight: of a tile's steps each wave makes those of one tile of rows,
// and all take them from LDS.
#ifndef MAINARCH_KERNELS_OPS_TALL_CODES_H_
#define MAINARCH_KERNELS_OPS_TALL_CODES_H_

#include "kernels/ops/tall_core.h"

namespace mainarch::kernels {

// What makes p and q of the next tile of each of a wave's output tiles, on its way; and of the present ones p and q, of
// one row and step a lane (ScaleLane). Without a branch, which would cut the loop's code in pieces: so of each code only
// what TallFactors says.
template <TileFormat kFormat, TileCode kCode, uint32_t kOut>
struct TallScales {
  static constexpr uint32_t kTileSteps = TileSteps(kFormat);
  static constexpr bool kSigned = kCode == TileCode::kHalves, kBytes = kSigned || kCode == TileCode::kAffine;
  static constexpr bool kIsF16 = kCode == TileCode::kIq4Nl;  // always; others may be
  static constexpr bool kMayBeF16 = kCode == TileCode::kScaled || (kCode == TileCode::kAffine && kFormat == TileFormat::kNibble);
  uint32_t first, shift, factors_at, factor_bytes;  // of a step; without factors zeros: anything may come
  uint32_t mask, ones;                              // of what comes: without factors two ones
  bool is_f16;
  ScaleLane lanes[kOut];
  f32x2 pq[kOut];

  DEVICE void Of(const Tiles& w) {
    const bool none = w.factors == TileFactors::kNone;
    first = w.scale_first;
    shift = w.scale_shift;
    factors_at = none ? 0 : RecordsBytes(w);
    factor_bytes = none ? 0 : kFactorBytes;
    mask = none ? 0 : 0xffff;
    ones = !none ? 0 : kMayBeF16 && !kBytes ? kF16One : 0x0101;
    is_f16 = w.factors == TileFactors::kF16;
  }
  DEVICE void Load(const TileRow (&rows)[kOut], uint32_t step) {
    const uint32_t mine = step + Min(LaneRow() / 4, kTileSteps - 1), row = LanePart() * 4 + LaneRow() % 4;
    const uint32_t record = ((first + mine) >> shift) * kRecordBytes + row * 8;
    const uint32_t factor = factors_at + mine * factor_bytes + row * 2;
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      lanes[o].record = *reinterpret_cast<Global<const f32x2>>(rows[o].scales + record);
      if constexpr (kCode != TileCode::kE4m3) {
        lanes[o].factors = *reinterpret_cast<Global<const uint16_t>>(rows[o].scales + factor);
      }
    }
  }
  DEVICE void Make() {
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) pq[o] = Value(lanes[o]);
  }

 private:
  static constexpr uint32_t kF16One = 0x3c00;

  DEVICE f32x2 Value(const ScaleLane& lane) const {
    if constexpr (kCode == TileCode::kE4m3) return lane.record;
    if constexpr (kCode == TileCode::kE2m1) return lane.template Value<TileFactors::kE4m3>();
    if constexpr (kIsF16) return lane.template Value<TileFactors::kF16>();
    const ScaleLane own = {lane.record, (lane.factors & mask) | ones};
    if constexpr (!kBytes) return own.template Value<TileFactors::kF16>();
    if constexpr (kSigned) return own.template Value<TileFactors::kSignedBytes>();
    const f32x2 bytes = own.template Value<TileFactors::kBytes>();
    if constexpr (!kMayBeF16) return bytes;
    const f32x2 halves = own.template Value<TileFactors::kF16>();
    return is_f16 ? halves : bytes;
  }
};

// Of sums of x in LDS: [lane][tile of rows][word], of two tiles by turns where a tile is a chunk.
inline constexpr uint32_t kTallLaneSums = kWaves * 2 * 4, kTallTileSums = kWave * kTallLaneSums;
[[gnu::always_inline]] constexpr uint32_t TallSumsBytes(TileFormat format) {
  return kBlockSteps / TileSteps(format) * kTallTileSums;
}

// Other than that as TallCore.
template <TileFormat kFormat, TileCode kTileCode, class RowsInLds, uint32_t kOut, uint32_t kLevels, uint32_t kHeld>
struct TallCodesCore : TallCore<kFormat, RowsInLds, kOut, kLevels, kHeld> {
  using Base = TallCore<kFormat, RowsInLds, kOut, kLevels, kHeld>;
  using Rows = RowsInLds;
  using Step = typename Rows::Step;
  static constexpr TileCode kCode = kTileCode;
  static constexpr uint32_t kRowTiles = Rows::kRowTiles, kWords = Rows::kWords, kTileSteps = TileSteps(kFormat);
  static constexpr bool kAffine = kCode == TileCode::kAffine;
  static constexpr bool kInHalves = kCode == TileCode::kHalves || kCode == TileCode::kE2m1;
  static_assert(kRowTiles == kWaves && kWords == 2);

  TallScales<kFormat, kCode, kOut> scales;
  Lds<uint8_t> sums_lds;
  f32x4 x_sums[kRowTiles / 2];  // of the present tile: of two tiles of rows, each of the value and of what rounding left

  DEVICE TallCodesCore(const TileRow (&tiles)[kOut], Rows* in) : Base(tiles, in) {}
  DEVICE void SetCodes(const Tiles& w, Lds<uint8_t> sums) {
    scales.Of(w);
    sums_lds = sums;
  }
  // Before all else that is asked for: within a tile more is asked for behind its scales, so they alone are waited for.
  DEVICE void AskFirst(uint32_t step) { scales.Load(this->rows, step); }
  // Two chunks of x are in LDS.
  DEVICE void Begin() {
    if constexpr (kAffine) {
      PutSums(0, Rows::kBufferBytes, 0);
      BarrierLds();
    }
  }

  // As TallCore's, but that x goes to LDS in the first step: where a tile of four steps ends, it is in LDS before the sums
  // of the next one are made.
  template <uint32_t kTurn, class Plan>
  DEVICE void Chunk(const Plan& plan) {
    constexpr uint32_t kFirst = kTurn * kChunkSteps, kReads = kRowTiles * kWords, kLoads = Rows::kLoads;
    constexpr bool kBegins = kFirst % kTileSteps == 0, kEnds = (kFirst + kChunkSteps) % kTileSteps == 0;
    constexpr uint32_t kNextSums = kBegins ? (1 - kTurn) * kTallTileSums : 0;
    Rows* const x = this->x;
    const uint32_t own = x->buffer, behind = x->Behind(1), to = x->Behind(2);
    if constexpr (kBegins) BeginTile<kTurn>(plan);
    Step second;
    const auto read_or_pass = [&](uint32_t at, uint32_t of, uint32_t piece, Step& into) {
      if (piece < kReads) {
        into[piece / kWords][piece % kWords] = x->Get(at, of, piece / kWords, piece % kWords);
      } else {
        x->template Put<kTurn>(piece - kReads, to, plan.template Mask<kTurn>());
        plan.template Ask<kTurn>(x, piece - kReads);
      }
    };
    MultiplyCodes<kFirst, kReads + kLoads>(this->first, plan, [&](uint32_t piece) { read_or_pass(own, 1, piece, second); });
    if constexpr (kAffine && kEnds && !kBegins) BarrierLds();
    if constexpr (kAffine && kEnds) PutSums(behind, to, kNextSums);
    MultiplyCodes<kFirst + 1, kReads>(second, plan, [&](uint32_t piece) { read_or_pass(behind, 0, piece, this->first); });
    x->buffer = behind;
    BarrierLds();
  }

 private:
  template <uint32_t kTurn, class Plan>
  DEVICE void BeginTile(const Plan& plan) {
    if constexpr (kAffine) {
      const uint32_t from = LaneId() * kTallLaneSums + (kTileSteps == kChunkSteps ? kTurn * kTallTileSums : 0);
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kRowTiles / 2; ++i) x_sums[i] = *reinterpret_cast<Lds<f32x4>>(sums_lds + (from + i * 16));
    }
    scales.Make();
    scales.Load(this->rows, plan.template NextTile<kTurn, kTileSteps>());
    KeepOrder();
  }
  // Of the tile of x whose first two steps are in the buffer that begins at `first`, the others, if there are, in that at
  // `second`: this wave's tile of rows.
  DEVICE void PutSums(uint32_t first, uint32_t second, uint32_t to) {
    const uint32_t g = MadeBefore(LanePart());
    float sums[kWords];
#pragma clang loop unroll(full)
    for (uint32_t word = 0; word < kWords; ++word) {
      u32x4 in[kTileSteps][1];
#pragma clang loop unroll(full)
      for (uint32_t s = 0; s < kTileSteps; ++s) {
        in[s][0] = this->x->Get(s < kChunkSteps ? first : second, s % kChunkSteps, WaveId(), word);
      }
      sums[word] = SumOverStep(g, in, 0);
    }
    *reinterpret_cast<Lds<f32x2>>(sums_lds + (to + LaneId() * kTallLaneSums + WaveId() * (kWords * 4))) = f32x2{sums[0], sums[1]};
  }

  // What matrix instructions give of an output tile and of values, or what rounding left, of a tile of rows.
  struct Products {
    f32x4 of, high, addends;
  };
  static constexpr uint32_t kBehind = kInHalves ? 1 : 2;  // there are twice as many, and registers for so many
  // All output tiles by step kStep of those held. The products of one place are scaled and added when those of kBehind more
  // have been asked for; between places stand so many pieces of other work.
  template <uint32_t kStep, uint32_t kPieces, class Plan, class Work>
  DEVICE void MultiplyCodes(const Step& in, const Plan& plan, Work work) {
    constexpr uint32_t kOwn = kStep % kTileSteps, kOfOutput = kRowTiles * kWords, kPlaces = kOut * kOfOutput;
    constexpr bool kAdds = kAffine && kOwn == 0;
    constexpr f32x4 kNothing = {0, 0, 0, 0};
    Products made[kBehind + 1];
    u32x4 w = {};
    float q = 0;
    f32x4 p[kOut], p_high[kOut];
    uint32_t piece = 0;
#pragma clang loop unroll(full)
    for (uint32_t place = 0; place < kPlaces + kBehind; ++place) {
      if (place < kPlaces) {
        const uint32_t o = place / kOfOutput, r = place / kWords % kRowTiles, i = place % kWords;
        if (place % kOfOutput == 0) {
          w = this->weights[o].template DecodeCodes<kCode, kStep>();
          p[o] = OfRows<kOwn>(scales.pq[o][0]);
          if constexpr (kInHalves) p_high[o] = OfRows<kOwn>(scales.pq[o][1]);
          if constexpr (kAdds) q = ShuffleAddend<kFormat>(scales.pq[o]);
        }
        Products& now = made[place % (kBehind + 1)];
        if constexpr (kAdds) now.addends = FloatStep(q, x_sums[r / 2][r % 2 * kWords + i], kNothing);
        if constexpr (kInHalves) {
          now.of = HalfStep(w.lo, in[r][i].lo, kNothing);
          now.high = HalfStep(w.hi, in[r][i].hi, kNothing);
        } else {
          now.of = MatrixStep(w, in[r][i], kNothing);
        }
      }
      if (place >= kBehind) {
        const uint32_t from = place - kBehind, o = from / kOfOutput, r = from / kWords % kRowTiles, i = from % kWords;
        const Products& last = made[from % (kBehind + 1)];
        f32x4 sum = this->tree.sums[i][o][r];
        if constexpr (kAdds) sum = sum + last.addends;
        if constexpr (kInHalves) {
          sum = sum + (last.of * p[o] + last.high * p_high[o]);
        } else {
          sum = sum + last.of * p[o];
        }
        this->tree.sums[i][o][r] = sum;
      }
      if (place >= kPlaces) continue;
      KeepOrder();
#pragma clang loop unroll(full)
      for (; piece < (place + 1) * kPieces / kPlaces; ++piece) work(piece);
      if (place % kOfOutput == 0) {
        plan.template Reload<kStep>(this->weights[place / kOfOutput], this->rows[place / kOfOutput]);
      }
      KeepOrder();
    }
  }
};

// A wave's sums, of a tile's code.
template <TileFormat kFormat, TileCode kCode, class Rows, uint32_t kOut, uint32_t kLevels, uint32_t kHeld>
struct TallCoreOf {
  using Core = TallCore<kFormat, Rows, kOut, kLevels, kHeld>;
};
template <TileCode kCode, class Rows, uint32_t kOut, uint32_t kLevels, uint32_t kHeld>
struct TallCoreOf<TileFormat::kNibble, kCode, Rows, kOut, kLevels, kHeld> {
  using Core = TallCodesCore<TileFormat::kNibble, kCode, Rows, kOut, kLevels, kHeld>;
};
template <TileCode kCode, class Rows, uint32_t kOut, uint32_t kLevels, uint32_t kHeld>
struct TallCoreOf<TileFormat::kByte, kCode, Rows, kOut, kLevels, kHeld> {
  using Core = TallCodesCore<TileFormat::kByte, kCode, Rows, kOut, kLevels, kHeld>;
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_CODES_H_
