// SPDX-License-Identifier: MIT
//
// Of products of many rows (ops/tall.h): a wave's codes, a workgroup's rows of x.
#ifndef MAINARCH_KERNELS_OPS_TALL_TILES_H_
#define MAINARCH_KERNELS_OPS_TALL_TILES_H_

#include "kernels/ops/matmul.h"
#include "kernels/tall_args.h"

namespace mainarch::kernels {

// x is brought in chunks, and a weight in blocks, of so many steps.
inline constexpr uint32_t kChunkSteps = 2, kBlockSteps = 4;
static_assert(kBlockSteps == kTallBlock);

// Of an output tile of a weight the next kHeld steps. What has been multiplied makes room for what comes so many later.
template <TileFormat kFormat, uint32_t kHeld>
struct TallWeight {
  static constexpr bool kFp8 = kFormat == TileFormat::kFp8, kMxfp4 = kFormat == TileFormat::kMxfp4;
  static constexpr uint32_t kTileSteps = TileSteps(kFormat), kTiles = kHeld / kTileSteps;
  u32x4 codes[kTiles];
  uint32_t scales = 0;          // MXFP4: E8M0 of four steps
  f32x2 factors[kFp8 ? kTiles : 1];  // fp8: of a tile's steps

  // The tile that begins at `step`, into place kStep of those held. Others want it soon: it stays in the caches. `half`, of
  // MXFP4: it has two steps alone. A lane's codes of these come in the upper two words, for k ends behind them.
  template <uint32_t kStep>
  DEVICE void Load(const TileRow& w, uint32_t step, bool half = false) {
    constexpr uint32_t kTile = kStep % kHeld / kTileSteps;
    const uint32_t lane = half ? LaneId() * 8 - 8 : LaneId() * 16;
    codes[kTile] = *reinterpret_cast<Global<const u32x4>>(w.data + (step * StepBytes(kFormat) + lane));
    if constexpr (kFp8) {
      // Not by the scalar unit, whose registers are too few.
      const uint32_t at = MadeBefore(step * 4);
      factors[kTile] = *reinterpret_cast<Global<const f32x2>>(w.scales + at);
    } else if constexpr (kMxfp4) {
      scales = *reinterpret_cast<Global<const uint32_t>>(w.scales + (step / 4 * TileScaleBytes(kFormat) + LaneRow() * 4));
    }
  }
  // When step kStep of the block that begins at `step` has been multiplied: the next block begins at `next`.
  template <uint32_t kStep>
  DEVICE void ReloadBlock(const TileRow& w, uint32_t step, uint32_t next) {
    if constexpr ((kStep + 1) % kTileSteps == 0) {
      constexpr uint32_t kFirst = kStep + 1 - kTileSteps, kTarget = kFirst + kHeld;
      Load<kFirst>(w, kTarget < kBlockSteps ? step + kTarget : next + (kTarget - kBlockSteps));
    }
  }
  // The same of blocks that may reach beyond k, which has `steps`: x is zeros there. `half`: as Load, of the next one.
  template <uint32_t kStep>
  DEVICE void ReloadRagged(const TileRow& w, uint32_t step, uint32_t next, uint32_t steps, bool half) {
    if constexpr ((kStep + 1) % kTileSteps == 0) {
      constexpr uint32_t kFirst = kStep + 1 - kTileSteps, kTarget = kFirst + kHeld;
      LoadRagged<kFirst>(w, kTarget < kBlockSteps ? step + kTarget : next + (kTarget - kBlockSteps), steps, half);
    }
  }
  template <uint32_t kStep>
  DEVICE void LoadRagged(const TileRow& w, uint32_t step, uint32_t steps, bool half) {
    constexpr uint32_t kOwn = kStep % kChunkSteps;
    Load<kStep>(w, kMxfp4 ? step : Min(step - kOwn, steps - kChunkSteps) + kOwn, kMxfp4 && half);
  }
  // The same of chunks: `next` and `after` are where those behind the present one begin, `last` is the last step of k.
  template <uint32_t kStep>
  DEVICE void ReloadChunk(const TileRow& w, uint32_t next, uint32_t after, uint32_t last) {
    if constexpr ((kStep + 1) % kTileSteps != 0) return;
    const uint32_t chunk = kTileSteps > kChunkSteps ? next / kTileSteps * kTileSteps : after;  // beyond k: its last one
    if constexpr (kTileSteps == 1) {
      Load<kStep>(w, Min(chunk + kStep % kChunkSteps, last));
    } else {
      Load<kStep / kTileSteps * kTileSteps>(w, chunk);
    }
  }
  template <uint32_t kStep>
  DEVICE u32x4 Decode(bool half) const {
    u32x4 c = codes[kStep % kHeld / kTileSteps];
    constexpr uint32_t kOwn = kStep % kTileSteps;
    if constexpr (kMxfp4 && kOwn < 2) {
      const uint32_t whole = c[kOwn], of_half = c[kOwn + 2];
      c[kOwn] = half ? of_half : whole;
    }
    if constexpr (kFormat == TileFormat::kBf16) return c;
    if constexpr (kFp8) return isa::CachedFp8ToBf16(c[2 * kOwn], c[2 * kOwn + 1]);
    if constexpr (kMxfp4) return isa::Fp4ToBf16<kOwn>(c[kOwn], scales);
  }
  // Of codes: without their scales.
  template <TileCode kCode, uint32_t kStep>
  DEVICE u32x4 DecodeCodes() const {
    const u32x4 c = codes[kStep % kHeld / kTileSteps];
    constexpr uint32_t kEach = kFormat == TileFormat::kByte ? 2 : 1, kOwn = kStep % kTileSteps * kEach;
    const uint32_t first = c[kOwn], second = c[kOwn + kEach - 1];
    return CodesToBf16<kFormat, kCode>(first, second);
  }
  // fp8: sum += w * x of both steps of a chunk, as AddTile adds.
  template <uint32_t kChunk>
  DEVICE void Add(u32x4 w0, u32x4 w1, u32x4 first, u32x4 second, f32x4& sum) const {
    const f32x4 a = MatrixStep(w0, first, f32x4{0, 0, 0, 0});
    const f32x4 b = MatrixStep(w1, second, f32x4{0, 0, 0, 0});
    const f32x2 by = factors[kChunk % kTiles] * isa::kCachedFp8Scale;
    sum = sum + (a * by[0] + b * by[1]);
  }
};

// The rows of x that a workgroup has: neighbours. `rows`: of the step.
struct TallNeighbours {
  uint32_t first, rows;
  static constexpr uint32_t expert = 0;
  DEVICE uint32_t In(const MatmulArgs& args, uint32_t i) const { return Min(first + i, args.rows - 1); }
  DEVICE uint32_t Factor(uint32_t i) const { return first + i; }
  DEVICE bool HasFactor(const MatmulArgs& args, uint32_t i) const { return first + i < args.rows; }
  DEVICE bool Has(uint32_t i) const { return first + i < rows; }
  DEVICE uint32_t Out(uint32_t i) const { return first + i; }
};

// A workgroup's rows of x in LDS, in three buffers of a chunk each: one is read, one is there for who reads ahead, and
// one is written.
// `kTurnsAtOnce`: chunks on their way to there.
template <Taken kTaken, uint32_t kTiles, uint32_t kTurnsAtOnce>
struct TallRowsInLds {
  static constexpr uint32_t kRowTiles = kTiles, kRows = kRowTiles * kTileRows, kBuffers = 3;
  static constexpr uint32_t kTurns = kTurnsAtOnce;
  static constexpr bool kRounded = kTaken == Taken::kRounded;
  static constexpr uint32_t kWords = kRounded ? 1 : 2;  // of a step: the value, and what rounding left
  static constexpr uint32_t kOwn = kChunkSteps * kWords * kSplitHalfBytes;
  static constexpr uint32_t kStride = kOwn + 16;  // so that neighbouring rows lie in other banks
  static constexpr uint32_t kBufferBytes = kRows * kStride, kLdsBytes = kBuffers * kBufferBytes;
  static constexpr uint32_t kPerRow = kOwn / 16, kLoads = kRows * kPerRow / kThreads;  // words of 16 bytes; of a thread
  static constexpr uint32_t kRowsApart = kThreads / kPerRow;  // from one of a thread's words to its next
  using Step = u32x4[kRowTiles][kWords];

  Global<const uint8_t> x;
  Lds<uint8_t> lds;
  uint32_t from[kLoads], to, read;  // offsets: in x and in a buffer, of what this thread writes; of what it reads
  uint32_t buffer = 0;              // that is read: where it begins
  u32x4 words[kTurns][kLoads];      // on their way: of chunks in turns

  template <class List>
  DEVICE TallRowsInLds(const MatmulArgs& args, const List& list, Lds<uint8_t> buffers)
      : x(reinterpret_cast<Global<const uint8_t>>(At(args.x))), lds(buffers) {
    const uint32_t word = ThreadId() % kPerRow, row = ThreadId() / kPerRow;
    const uint32_t place = kRounded ? word / 4 * kSplitStepBytes + word % 4 * 16 : word * 16;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kLoads; ++i) {
      from[i] = list.In(args, row + i * kRowsApart) * args.x_stride * 4 + place;
    }
    to = row * kStride + word * 16;
    read = LaneRow() * kStride + LanePart() * 16;
  }
  // So many buffers behind the one that is read.
  DEVICE uint32_t Behind(uint32_t count) const {
    const uint32_t at = buffer + count * kBufferBytes;
    return at < kLdsBytes ? at : at - kLdsBytes;
  }
  // Word i of what this thread brings of the chunk that begins at `step`.
  template <uint32_t kTurn>
  DEVICE void Ask(uint32_t i, uint32_t step) {
    words[kTurn % kTurns][i] = *reinterpret_cast<Global<const u32x4>>(x + (from[i] + step * kSplitStepBytes));
  }
  // The same of a chunk that has a first step alone: it stands for the second one, too.
  template <uint32_t kTurn>
  DEVICE void AskHalf(uint32_t i, uint32_t step, bool half) {
    const uint32_t back = OwnStep() * (half ? kSplitStepBytes : 0);
    words[kTurn % kTurns][i] = *reinterpret_cast<Global<const u32x4>>(x + (from[i] + step * kSplitStepBytes - back));
  }
  // Of a chunk's steps that of this thread's words.
  DEVICE static uint32_t OwnStep() { return ThreadId() % kPerRow / (kPerRow / kChunkSteps); }
  // It goes into the buffer that begins at `at`, as far as `mask` lets it.
  template <uint32_t kTurn>
  DEVICE void Put(uint32_t i, uint32_t at, uint32_t mask) const {
    *reinterpret_cast<Lds<u32x4>>(lds + (to + at) + i * kRowsApart * kStride) = words[kTurn % kTurns][i] & mask;
  }
  // Of step `step` of the chunk in the buffer that begins at `at`: of a tile of rows, one of its words.
  DEVICE u32x4 Get(uint32_t at, uint32_t step, uint32_t tile, uint32_t word) const {
    return *reinterpret_cast<Lds<u32x4>>(lds + (read + at) +
                                         (tile * kTileRows * kStride + (step * kWords + word) * kSplitHalfBytes));
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_TILES_H_
