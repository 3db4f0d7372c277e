// SPDX-License-Identifier: MIT
//
// Of products of many rows (ops/tall.h): weights of MXFP4, or of fp8 in blocks of 128 columns, by rows as MXFP8, as
// ops/tall_scaled.h has them, to the same bits, but of twice as many rows a workgroup (Taken::kRing).
//
// What bounds such a product is what a compute unit asks of its L2. All of it goes past registers, into a ring of chunks in LDS: that
// leaves registers for 128 rows, and asks for a chunk as many ahead as the ring has. A chunk is a tile of a weight, 128 columns, and
// a line of memory of a row. Scales of weights and factors of rows come for several chunks at once: of one they would be pieces of lines.
#ifndef MAINARCH_KERNELS_OPS_TALL_RING_H_
#define MAINARCH_KERNELS_OPS_TALL_RING_H_

#include "kernels/ops/tall_core.h"

namespace mainarch::kernels {

// Of a tile of the weight what a lane brings to LDS, and what it takes from there for a chunk, as the matrix instruction wants it.
// `kApart`: products are not added by the instruction, but later, by Add; so what multiplies them is read later, too.
//   AskFrom      where in memory's tile the 16 bytes lie that go to this lane's place in LDS; so in each KiB
//   CodesFrom    where what this lane reads begins, of LDS' tile at `tile`; ScaleFrom: of its scales there
template <TileFormat kFormat>
struct TallRingWeight {
  static constexpr bool kApart = false;
  u32x4 codes;
  uint32_t scale;  // E8M0 of a block of 32 columns of a row

  // Parts of steps go to LDS in the order of operands.
  DEVICE static uint32_t AskFrom() { return (ScaledPart(LanePart()) * kTileRows + LaneRow()) * 16; }
  DEVICE static uint32_t CodesFrom(uint32_t tile) { return tile + LaneRow() * 16 + LanePart() * 4; }
  DEVICE static uint32_t ScaleFrom(uint32_t tile) { return tile + LaneRow() * 4 + LanePart(); }
  // As isa::TransposeRows would turn what memory has: a lane there has a part of each of its row's four blocks.
  DEVICE void ReadCodes(uint32_t from) {
    const auto words = reinterpret_cast<Lds<const uint32_t>>(from);
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 4; ++i) codes[i] = words[i * kWave];
  }
  DEVICE void ReadScale(uint32_t from) { scale = *reinterpret_cast<Lds<const uint8_t>>(from); }
  DEVICE f32x4 Multiply(const isa::Mxfp8Operand& x, f32x4 sum) const { return isa::Mxfp4ByMxfp8(codes, scale, x, sum); }
};
template <>
struct TallRingWeight<TileFormat::kFp8Blocks> {
  static constexpr bool kApart = true;
  i32x8 codes;
  f32x2 factors;  // of two steps, which are alike

  DEVICE static uint32_t AskFrom() { return LaneId() * 16; }
  DEVICE static uint32_t CodesFrom(uint32_t tile) { return tile + (LanePart() % 2 * kTileRows + LaneRow()) * 16 + LanePart() / 2 * 8; }
  DEVICE static uint32_t ScaleFrom(uint32_t tile) { return tile; }
  // As isa::Fp8Operand would: two parts of one step, and two of that two steps on.
  DEVICE void ReadCodes(uint32_t from) {
    constexpr uint32_t kHalfBytes = kWave / 2 * 16;  // two parts of two steps
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 4; ++i) {
      const u32x2 words = *reinterpret_cast<Lds<const u32x2>>(from + i * kHalfBytes);
      codes[2 * i] = static_cast<int32_t>(words[0]);
      codes[2 * i + 1] = static_cast<int32_t>(words[1]);
    }
  }
  DEVICE void ReadScale(uint32_t from) { factors = *reinterpret_cast<Lds<const f32x2>>(from); }
  DEVICE f32x4 Multiply(const isa::Mxfp8Operand& x, f32x4) const { return isa::Fp8ByMxfp8(codes, x); }
  // AddScaledBlock, two at once.
  DEVICE f32x4 Add(f32x4 products, f32x4 sum) const {
    f32x4 out;
    out.lo = __builtin_elementwise_fma(products.lo, factors, sum.lo);
    out.hi = __builtin_elementwise_fma(products.hi, factors, sum.hi);
    return MadeBefore(out);  // here, not when all are multiplied
  }
};

// In LDS: the ring, of a chunk each wave's tiles of the weight, `kOut` of them, and the workgroup's rows; then two windows of several
// chunks' factors of rows, and two of scales. A wave brings its own tiles' codes and scales, and a quarter of the rows.
template <TileFormat kFormat, uint32_t kTiles, uint32_t kOut>
struct TallRingRows {
  using Weight = TallRingWeight<kFormat>;
  static constexpr uint32_t kRowTiles = kTiles, kRows = kRowTiles * kTileRows, kWords = 1;
  static constexpr uint32_t kSteps = TileSteps(kFormat), kRowBytes = kSteps * kStepColumns;  // of a chunk, by row
  static constexpr uint32_t kAskBytes = kWave * 16, kTileBytes = TileBytes(kFormat), kScaleBytes = TileScaleBytes(kFormat);
  static constexpr uint32_t kRowsAt = kWaves * kOut * kTileBytes, kSlotBytes = kRowsAt + kRows * kRowBytes;
  // Rows of an ask, those that a wave brings, and its asks for them; for a tile, and for its tiles; for a chunk, but for those for windows.
  static constexpr uint32_t kAskRows = kAskBytes / kRowBytes, kOwn = kRows / kWaves, kRowAsks = kOwn / kAskRows;
  static constexpr uint32_t kTileAsks = kTileBytes / kAskBytes, kWeightAsks = kOut * kTileAsks, kAsks = kWeightAsks + kRowAsks;
  // Chunks of a window: of so many a wave has an ask.
  static constexpr uint32_t kFactorChunks = kAskBytes / (kOwn * kSteps), kScaleChunks = kAskBytes / (kOut * kScaleBytes);
  static constexpr uint32_t kWindowBytes = kWaves * kAskBytes;
  static constexpr uint32_t kSlots = (isa::kFacts.lds_bytes - 4 * kWindowBytes) / kSlotBytes;
  static constexpr uint32_t kFactorsAt = kSlots * kSlotBytes, kScalesAt = kFactorsAt + 2 * kWindowBytes;
  static constexpr uint32_t kLdsBytes = kScalesAt + 2 * kWindowBytes;
  static_assert(kTileBytes % kAskBytes == 0 && kAskRows * 16 == kRowBytes && kOwn * 2 == kWave);
  static_assert(kSlots - 1 <= kFactorChunks && kSlots - 1 <= kScaleChunks);  // two windows are enough

  Global<const uint8_t> x;
  Lds<uint8_t> lds;
  uint32_t from[kRowAsks], factors_from;  // this lane's, in x

  // Words of a row lie in an order of its own, so that neighbouring rows' come from other banks.
  template <class List>
  DEVICE TallRingRows(const MatmulArgs& args, const List& list, Lds<uint8_t> ring)
      : x(reinterpret_cast<Global<const uint8_t>>(At(args.x))), lds(ring) {
    const uint32_t row = LaneId() / kAskRows, word = LaneId() % kAskRows ^ row, bytes = args.x_stride * 4, first = WaveId() * kOwn;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kRowAsks; ++i) from[i] = list.In(args, first + i * kAskRows + row) * bytes + word * 16;
    factors_from = list.In(args, first + LaneId() % kOwn) * bytes + args.w.steps * kStepColumns;
  }
};

// A workgroup's rows in LDS, as `kTaken` has them.
template <TileFormat kFormat, Taken kTaken, uint32_t kTiles, uint32_t kTurns>
struct TallPlaceOfRows {
  using Rows = TallRowsInLds<kTaken, kTiles, kTurns>;
};
template <TileFormat kFormat, uint32_t kTiles, uint32_t kOut>
struct TallPlaceOfRows<kFormat, Taken::kRing, kTiles, kOut> {
  using Rows = TallRingRows<kFormat, kTiles, kOut>;
};

template <class RowsInLds, uint32_t kOut, uint32_t kLevels>
struct TallRingCore {
  using Rows = RowsInLds;
  using Weight = typename Rows::Weight;
  static constexpr uint32_t kOutputs = kOut, kRowTiles = Rows::kRowTiles, kAsks = Rows::kAsks, kSlots = Rows::kSlots;
  static constexpr uint32_t kHeld = 2;                              // tiles of rows in registers: one that is multiplied, and the next
  static constexpr uint32_t kWaiting = Weight::kApart ? 2 : 0;      // products, until they are there
  static constexpr uint32_t kPlaces = kOut * kRowTiles;             // products of a chunk
  static constexpr uint32_t kMeeting = (kRowTiles - 1) * kOut - 1;  // behind this one waves meet: what they read last has come
  // Behind which products of a chunk other work stands.
  static constexpr uint32_t kAskFactors = Weight::kApart ? 0 : 1;
  static constexpr uint32_t kAskScales = Weight::kApart ? 2 : kOut + 1;
  static constexpr uint32_t kFindWeights = Weight::kApart ? kMeeting - 1 : 2 * kOut + 1;
  static constexpr uint32_t kFindRows = Weight::kApart ? kMeeting : kMeeting - kOut + 2;
  static_assert(kRowTiles % kHeld == 0);
  using Tree = TallTurnsTree<Rows, kOut, kLevels>;
  using Sums = typename Tree::Sums;

  // Where in LDS a lane's parts of a chunk lie: of rows the first half of its codes and the second, and the factor; of a weight's tiles.
  struct Places {
    uint32_t first, second, factor, codes, scale;
  };

  const TileRow (&rows)[kOut];
  Rows* x;
  Weight w[kOut];
  isa::Mxfp8Operand in[kHeld];
  uint32_t chunk, ask, last;           // that is multiplied; that is asked for next, and the last one
  uint32_t free, own, behind;          // slots of the chunk before the one that is multiplied, of that one and of the next
  uint32_t base, weights_to, rows_to;  // in LDS: where all begins, and where this wave's part of the first slot does
  // What this lane asks for: where it begins in a tile; in the scales of the first of this wave's tiles, and where the last ones of its
  // own tile do.
  uint32_t lane, scales_from, last_scales;
  uint32_t first_from, factor_from, codes_from, scale_from;  // Places of the first chunk; `first` from `base` on
  Places at;                                                 // of the chunk that is read
  Tree tree;

  DEVICE TallRingCore(const TileRow (&tiles)[kOut], Rows* ring) : rows(tiles), x(ring) {}
  DEVICE f32x4 Of(uint32_t output, uint32_t tile) const { return tree.sums[0][output][tile]; }

  // `parts` of four leaves of `chunks` chunks.
  DEVICE void Sum(uint32_t parts, uint32_t chunks) {
    Begin(parts * kPartLeaves * chunks);
#pragma clang loop unroll(disable)
    for (uint32_t slot = 0; slot + 1 < kSlots; ++slot) AskChunk(slot * Rows::kSlotBytes);
    WaitVectorMemoryBut<(kSlots - 2) * kAsks>();
    BarrierLds();
    free = (kSlots - 1) * Rows::kSlotBytes;
    own = 0;
    behind = Rows::kSlotBytes;
    FindWeights(0, 0);
    FindRows(0, 0);
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      ReadWeight(o);
      ReadScale(o);
    }
    ReadFirst(0);
    ReadSecond(0);
    TallInTurns<TallRingCore>::Sum(*this, parts, chunks);
    WaitVectorMemory();
    BarrierLds();
  }

  // A chunk, the first of a leaf or not: between any two matrix instructions as much else as one of them takes, so far as it can be.
  // What is asked for goes where the chunk before this one was.
  template <bool kFirst>
  DEVICE void Multiply(Sums& to) {
    uint32_t asked = 0;
    f32x4 products[kWaiting + 1];
#pragma clang loop unroll(full)
    for (uint32_t place = 0; place < kPlaces; ++place) {
      const uint32_t o = place % kOut, r = place / kOut;
      if constexpr (Weight::kApart) {
        products[place % (kWaiting + 1)] = w[o].Multiply(in[r % kHeld], f32x4{0, 0, 0, 0});
      } else {
        to[o][r] = w[o].Multiply(in[r % kHeld], kFirst ? f32x4{0, 0, 0, 0} : to[o][r]);
      }
      KeepOrder();
      if (place >= kWaiting) AddApart<kFirst>(to, products, place - kWaiting);
      if (o == 0) ReadFirst(r + 1);
      if (o == kOut / 4) ReadSecond(r + 1);
      if (place == kAskFactors) AskFactors();
      if (place == kAskScales) AskScales();
      if (place == kFindWeights) FindWeights(MadeHere(chunk) + 1, behind);
      if (place == kFindRows) FindRows(MadeHere(chunk) + 1, behind);
      for (; asked < AskedBy(place); ++asked) Ask(free, asked);
      if (place == kMeeting) Meet();
      if (r + 1 == kRowTiles) {
        ReadWeight(o);
        if (!Weight::kApart) ReadScale(o);
      }
      KeepOrder();
    }
#pragma clang loop unroll(full)
    for (uint32_t place = kPlaces - kWaiting; place < kPlaces; ++place) AddApart<kFirst>(to, products, place);
    ++chunk;
    ask = Min(ask + 1, last);
    free = own;
    own = behind;
    behind = behind + Rows::kSlotBytes < Rows::kFactorsAt ? behind + Rows::kSlotBytes : 0;
  }

 private:
  DEVICE void Begin(uint32_t chunks) {
    chunk = ask = 0;
    last = chunks - 1;
    lane = MadeBefore(Weight::AskFrom());
    base = Uniform(reinterpret_cast<uint32_t>(x->lds));
    weights_to = base + WaveId() * (kOut * Rows::kTileBytes);
    rows_to = base + Rows::kRowsAt + WaveId() * (Rows::kOwn * Rows::kRowBytes);
    constexpr uint32_t kLanes = kWave / kOut;  // have a tile's scales
    last_scales = chunks * Rows::kScaleBytes - 16;
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      if (LaneId() / kLanes == o) last_scales += static_cast<uint32_t>(rows[o].scales - rows[0].scales);
    }
    scales_from = last_scales - (chunks * Rows::kScaleBytes - 16) + LaneId() % kLanes * 16;
    first_from = Rows::kRowsAt + LaneRow() * Rows::kRowBytes + (LanePart() ^ LaneRow() % Rows::kAskRows) * 16;
    factor_from = base + Rows::kFactorsAt + LaneRow() * 16 + LanePart();
    codes_from = Weight::CodesFrom(weights_to);
    scale_from = Weight::ScaleFrom(base + Rows::kScalesAt + WaveId() * Rows::kAskBytes);
  }

  // So many of a chunk's asks. Where a chunk takes more of a slot all are made by its third quarter: the last ones have little time.
  static constexpr uint32_t AskedBy(uint32_t place) {
    if (!Weight::kApart) return (place + 2) * kAsks / kPlaces;
    const uint32_t asked = (place + 1) * kAsks * 4 / (kPlaces * 3);
    return asked < kAsks ? asked : kAsks;
  }
  // The next chunk is there, and all waves have read this one. What windows take of those that may be on their way makes it wait for more.
  DEVICE static void Meet() {
    WaitVectorMemoryBut<(kSlots - 3) * kAsks + AskedBy(kMeeting)>();
    BarrierLds();
  }

  // Ask i of this wave for a chunk, into a slot.
  DEVICE void Ask(uint32_t slot, uint32_t i) const {
    if (i < Rows::kWeightAsks) {
      const uint32_t from = ask * Rows::kTileBytes + i % Rows::kTileAsks * Rows::kAskBytes;
      isa::AskToLds(rows[i / Rows::kTileAsks].data, lane + from, weights_to + slot, i * Rows::kAskBytes);
    } else {
      const uint32_t own = i - Rows::kWeightAsks;
      isa::AskToLds(x->x, x->from[own] + ask * Rows::kRowBytes, rows_to + slot, own * Rows::kAskBytes);
    }
  }
  // For windows, if one begins with the chunk that is asked for next.
  DEVICE void AskFactors() const {
    const uint32_t window = base + WaveId() * Rows::kAskBytes + ask / Rows::kFactorChunks % 2 * Rows::kWindowBytes;
    const uint32_t own = ask * Rows::kSteps + LaneId() / Rows::kOwn * 16, end = last * Rows::kSteps / 16 * 16;
    isa::AskToLdsUnless(ask % Rows::kFactorChunks, x->x, x->factors_from + Min(own, end), window, Rows::kFactorsAt);
  }
  DEVICE void AskScales() const {
    const uint32_t window = base + WaveId() * Rows::kAskBytes + ask / Rows::kScaleChunks % 2 * Rows::kWindowBytes;
    isa::AskToLdsUnless(ask % Rows::kScaleChunks, rows[0].scales, Min(scales_from + ask * Rows::kScaleBytes, last_scales), window,
                        Rows::kScalesAt);
  }
  DEVICE void AskChunk(uint32_t slot) {
    AskFactors();
    AskScales();
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kAsks; ++i) Ask(slot, i);
    ask = Min(ask + 1, last);
  }
  // What is read from here on is of this chunk. Where it lies is found here, not where it is read: there would be too much at once.
  DEVICE void FindWeights(uint32_t of, uint32_t slot) {
    const uint32_t window = of / Rows::kScaleChunks % 2 * Rows::kWindowBytes + of % Rows::kScaleChunks * Rows::kScaleBytes;
    at.codes = MadeBefore(codes_from + slot);
    at.scale = MadeBefore(scale_from + window);
  }
  DEVICE void FindRows(uint32_t of, uint32_t slot) {
    const uint32_t in_window = of % Rows::kFactorChunks, word = in_window / 4 * (Rows::kOwn * 16) + in_window % 4 * Rows::kSteps;
    at.first = MadeBefore(first_from + (base + slot));
    at.second = MadeBefore((first_from ^ Rows::kRowBytes / 2) + (base + slot));
    at.factor = MadeBefore(factor_from + (of / Rows::kFactorChunks % 2 * Rows::kWindowBytes + word));
  }
  DEVICE void ReadWeight(uint32_t o) { w[o].ReadCodes(at.codes + o * Rows::kTileBytes); }
  DEVICE void ReadScale(uint32_t o) { w[o].ReadScale(at.scale + o * (Rows::kAskBytes / kOut)); }
  // Of products those of a place, which have waited.
  template <bool kFirst>
  DEVICE void AddApart(Sums& to, const f32x4 (&products)[kWaiting + 1], uint32_t place) {
    if constexpr (Weight::kApart) {
      const uint32_t o = place % kOut, r = place / kOut;
      to[o][r] = w[o].Add(products[place % (kWaiting + 1)], kFirst ? f32x4{0, 0, 0, 0} : to[o][r]);
      if (r + 1 == kRowTiles) ReadScale(o);
    }
  }
  // Of a tile of rows, or the next chunk's first one, the factor and the first half of the codes, and then the second: waves go in step,
  // and LDS takes little at once.
  DEVICE void ReadFirst(uint32_t tile) {
    constexpr uint32_t kHalf = kTileRows * 16;  // of factors: a wave brings two tiles'
    const uint32_t own = tile % kRowTiles;
    in[tile % kHeld].scale = reinterpret_cast<Lds<const uint8_t>>(at.factor)[own / 2 * Rows::kAskBytes + own % 2 * kHalf];
    ReadCodes(tile, at.first, 0);
  }
  DEVICE void ReadSecond(uint32_t tile) { ReadCodes(tile, at.second, 4); }
  DEVICE void ReadCodes(uint32_t tile, uint32_t from, uint32_t first) {
    const u32x4 words = *reinterpret_cast<Lds<const u32x4>>(from + tile % kRowTiles * (kTileRows * Rows::kRowBytes));
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < 4; ++i) in[tile % kHeld].codes[first + i] = static_cast<int32_t>(words[i]);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_RING_H_
