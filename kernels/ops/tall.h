// SPDX-License-Identifier: MIT
//
// A product of many rows (prompts), of weights whose leaves are all alike and whole: to the bit what ops/matmul.h
// gives, in the same order of additions, but of a workgroup that has 64 rows of x and 128 or 256 rows of the weight.
//
// Each wave has output tiles of its own, which it takes from memory straight into registers, a block ahead; x goes
// through LDS, where all four read it. So a word of x from LDS is multiplied kOut times, and a word of the weight
// kRowTiles times. A wave adds up all leaves itself, one after the other: what is not yet added to a neighbour waits in
// registers, a set for each level of the tree.
#ifndef MAINARCH_KERNELS_OPS_TALL_H_
#define MAINARCH_KERNELS_OPS_TALL_H_

#include "kernels/ops/matmul.h"

namespace mainarch::kernels {

// x is brought in chunks, and a weight in blocks, of so many steps.
inline constexpr uint32_t kChunkSteps = 2, kBlockSteps = 4;
static_assert(kBlockSteps == kTallSteps);

// Of an output tile of a weight the next kHeld steps. What has been multiplied makes room for what comes so many later.
template <TileFormat kFormat, uint32_t kHeld>
struct TallWeight {
  static constexpr bool kFp8 = kFormat == TileFormat::kFp8, kMxfp4 = kFormat == TileFormat::kMxfp4;
  static constexpr uint32_t kTileSteps = TileSteps(kFormat), kTiles = kHeld / kTileSteps;
  u32x4 codes[kTiles];
  uint32_t scales = 0;          // MXFP4: E8M0 of four steps
  f32x2 factors[kFp8 ? kTiles : 1];  // fp8: of a tile's steps

  // The tile that begins at `step`, into place kStep of those held. Others want it soon: it stays in the caches.
  template <uint32_t kStep>
  DEVICE void Load(const TileRow& w, uint32_t step) {
    constexpr uint32_t kTile = kStep % kHeld / kTileSteps;
    codes[kTile] = *reinterpret_cast<Global<const u32x4>>(w.data + (step * StepBytes(kFormat) + LaneId() * 16));
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
  DEVICE void Reload(const TileRow& w, uint32_t step, uint32_t next) {
    if constexpr ((kStep + 1) % kTileSteps == 0) {
      constexpr uint32_t kFirst = kStep + 1 - kTileSteps, kTarget = kFirst + kHeld;
      Load<kFirst>(w, kTarget < kBlockSteps ? step + kTarget : next + (kTarget - kBlockSteps));
    }
  }
  template <uint32_t kStep>
  DEVICE u32x4 Decode() const {
    const u32x4 c = codes[kStep % kHeld / kTileSteps];
    constexpr uint32_t kOwn = kStep % kTileSteps;
    if constexpr (kFormat == TileFormat::kBf16) return c;
    if constexpr (kFp8) return isa::CachedFp8ToBf16(c[2 * kOwn], c[2 * kOwn + 1]);
    if constexpr (kMxfp4) return isa::Fp4ToBf16<kOwn>(c[kOwn], scales);
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

// A workgroup's rows of x in LDS, in three buffers of a chunk each: one is read, one is there for who reads ahead, and
// one is written.
template <bool kRounded, uint32_t kTiles>
struct TallRowsInLds {
  static constexpr uint32_t kRowTiles = kTiles, kRows = kRowTiles * kTileRows, kBuffers = 3;
  static constexpr uint32_t kTurns = kTiles > 4 ? 1 : 2;
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

  DEVICE TallRowsInLds(const MatmulArgs& args, uint32_t first, Lds<uint8_t> buffers)
      : x(reinterpret_cast<Global<const uint8_t>>(At(args.x))), lds(buffers) {
    const uint32_t word = ThreadId() % kPerRow, row = ThreadId() / kPerRow;
    const uint32_t place = kRounded ? word / 4 * kSplitStepBytes + word % 4 * 16 : word * 16;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kLoads; ++i) {
      from[i] = Min(first + row + i * kRowsApart, args.rows - 1) * args.x_stride * 4 + place;
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
  // It goes into the buffer that begins at `at`.
  template <uint32_t kTurn>
  DEVICE void Put(uint32_t i, uint32_t at) const {
    *reinterpret_cast<Lds<u32x4>>(lds + (to + at) + i * kRowsApart * kStride) = words[kTurn % kTurns][i];
  }
  // Of step `step` of the chunk in the buffer that begins at `at`: of a tile of rows, one of its words.
  DEVICE u32x4 Get(uint32_t at, uint32_t step, uint32_t tile, uint32_t word) const {
    return *reinterpret_cast<Lds<u32x4>>(lds + (read + at) +
                                         (tile * kTileRows * kStride + (step * kWords + word) * kSplitHalfBytes));
  }
};

// `kLevels`: of the tree, at most: there are 2^kLevels leaves.
template <TileFormat kFormat, class Rows, uint32_t kOut, uint32_t kLevels>
class TallSums {
 public:
  // Of bf16 there is no room for more where there are many rows.
  static constexpr bool kFull = kFormat == TileFormat::kBf16 && Rows::kRowTiles > 4 && kOut > 2;
  using Weight = TallWeight<kFormat, kFull ? kChunkSteps : kBlockSteps>;
  static constexpr uint32_t kRowTiles = Rows::kRowTiles, kWords = Rows::kWords;
  using Sums = f32x4[kOut][kRowTiles];

  // Of `leaves` leaves, 2^n, of `blocks` blocks each.
  DEVICE TallSums(const TileRow (&rows)[kOut], uint32_t leaves, uint32_t blocks, Rows* x)
      : rows_(rows), x_(x), steps_(leaves * blocks * kBlockSteps) {
    Bring<0>(0);
    if constexpr (Rows::kTurns == 2) Bring<1>(kChunkSteps);
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      Fill<0>(weights_[o], rows_[o]);
    }
    Store<0>(0);
    if constexpr (Rows::kTurns == 1) Bring<1>(kChunkSteps);
    if constexpr (Rows::kTurns == 2) Bring<0>(Min(kBlockSteps, steps_ - kBlockSteps));
    Store<1>(Rows::kBufferBytes);
    Bring<1>(Min(kBlockSteps, steps_ - kBlockSteps) + (Rows::kTurns == 2 ? kChunkSteps : 0));
    BarrierLds();
    Read(0, 0, first_);
    uint32_t step = 0;
#pragma clang loop unroll(disable)
    for (uint32_t leaf = 0; leaf < leaves; ++leaf) {
      Clear(sums_);
#pragma clang loop unroll(disable)
      for (uint32_t b = 0; b < blocks; ++b) {
        Chunk<0>(step);
        Chunk<1>(step);
        step += kBlockSteps;
      }
      if constexpr (kWords == 2) Add(sums_[0], sums_[1]);
      Carry<0>(leaf, leaves);
    }
  }
  DEVICE f32x4 Of(uint32_t output, uint32_t tile) const { return sums_[0][output][tile]; }

 private:
  template <uint32_t kSets>
  DEVICE static void Clear(Sums (&sums)[kSets]) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < kSets; ++i) {
#pragma clang loop unroll(full)
      for (uint32_t o = 0; o < kOut; ++o) {
#pragma clang loop unroll(full)
        for (uint32_t r = 0; r < kRowTiles; ++r) sums[i][o][r] = f32x4{0, 0, 0, 0};
      }
    }
  }
  DEVICE static void Add(Sums& to, const Sums& more) {
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kRowTiles; ++r) to[o][r] = to[o][r] + more[o][r];
    }
  }
  template <uint32_t kTile>
  DEVICE static void Fill(Weight& weight, const TileRow& row) {
    if constexpr (kTile < Weight::kTiles) {
      weight.template Load<kTile * Weight::kTileSteps>(row, kTile * Weight::kTileSteps);
      Fill<kTile + 1>(weight, row);
    }
  }
  template <uint32_t kTurn>
  DEVICE void Bring(uint32_t step) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) x_->template Ask<kTurn>(i, step);
  }
  template <uint32_t kTurn>
  DEVICE void Store(uint32_t at) {
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < Rows::kLoads; ++i) x_->template Put<kTurn>(i, at);
  }
  DEVICE void Read(uint32_t at, uint32_t step, typename Rows::Step& to) {
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < kRowTiles; ++r) {
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kWords; ++i) to[r][i] = x_->Get(at, step, r, i);
    }
  }

  // Chunk kChunk of the block that begins at `step`. An output tile's codes come a block ahead, x four chunks ahead to
  // registers and two to LDS, and from there a step ahead; beyond the end it is the end once more. All that stands
  // between matrix instructions, a piece behind each pair of them.
  template <uint32_t kChunk>
  DEVICE void Chunk(uint32_t step) {
    constexpr uint32_t kFirst = kChunk * kChunkSteps;
    const uint32_t next = Min(step + kBlockSteps, steps_ - kBlockSteps);
    const uint32_t own = x_->buffer, behind = x_->Behind(1), to = x_->Behind(2);
    const uint32_t ask = Rows::kTurns == 2  ? Min(step + 2 * kBlockSteps, steps_ - kBlockSteps) + kFirst
                         : kChunk == 0 ? next + kChunkSteps
                                       : Min(step + 2 * kBlockSteps, steps_ - kBlockSteps);
    typename Rows::Step second;
    if constexpr (Weight::kFp8) {
      Read(own, 1, second);
      KeepOrder();
#pragma clang loop unroll(full)
      for (uint32_t o = 0; o < kOut; ++o) {
        const u32x4 w0 = weights_[o].template Decode<kFirst>(), w1 = weights_[o].template Decode<kFirst + 1>();
#pragma clang loop unroll(full)
        for (uint32_t r = 0; r < kRowTiles; ++r) {
#pragma clang loop unroll(full)
          for (uint32_t i = 0; i < kWords; ++i) {
            weights_[o].template Add<kChunk>(w0, w1, first_[r][i], second[r][i], sums_[i][o][r]);
          }
        }
        weights_[o].template Reload<kFirst + 1>(rows_[o], step, next);
        KeepOrder();
      }
      Read(behind, 0, first_);
      Store<kChunk>(to);
      Bring<kChunk>(ask);
    } else {
      constexpr uint32_t kReads = kRowTiles * kWords;
      const auto read = [&](uint32_t at, uint32_t of, uint32_t piece, typename Rows::Step& into) {
        into[piece / kWords][piece % kWords] = x_->Get(at, of, piece / kWords, piece % kWords);
      };
      Multiply<kFirst, kReads>(first_, step, next, [&](uint32_t piece) { read(own, 1, piece, second); });
      Multiply<kFirst + 1, kReads + Rows::kLoads>(second, step, next, [&](uint32_t piece) {
        if (piece < kReads) {
          read(behind, 0, piece, first_);
        } else {
          x_->template Put<kChunk>(piece - kReads, to);
          x_->template Ask<kChunk>(piece - kReads, ask);
        }
      });
    }
    x_->buffer = behind;
    BarrierLds();
  }
  // All output tiles by step kStep of the block, and between them so many pieces of other work.
  template <uint32_t kStep, uint32_t kPieces, class Work>
  DEVICE void Multiply(const typename Rows::Step& x, uint32_t step, uint32_t next, Work work) {
    constexpr uint32_t kPlaces = kOut * kRowTiles;
    uint32_t piece = 0;
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      const u32x4 w = weights_[o].template Decode<kStep>();
#pragma clang loop unroll(full)
      for (uint32_t r = 0; r < kRowTiles; ++r) {
#pragma clang loop unroll(full)
        for (uint32_t i = 0; i < kWords; ++i) sums_[i][o][r] = MatrixStep(w, x[r][i], sums_[i][o][r]);
        KeepOrder();
        const uint32_t place = o * kRowTiles + r;
#pragma clang loop unroll(full)
        for (; piece < (place + 1) * kPieces / kPlaces; ++piece) work(piece);
        if (r + 1 == kRowTiles) weights_[o].template Reload<kStep>(rows_[o], step, next);
        KeepOrder();
      }
    }
  }

  // sums_[0] is the sum of 2^kLevel leaves, the last of which is `index`: the left one of two, which waits, or the right
  // one. It stays there when it is the sum of all.
  template <uint32_t kLevel>
  DEVICE void Carry(uint32_t index, uint32_t leaves) {
    if constexpr (kLevel < kLevels) {
      if (leaves == 1u << kLevel) return;
      if (!(index >> kLevel & 1)) {
#pragma clang loop unroll(full)
        for (uint32_t o = 0; o < kOut; ++o) {
#pragma clang loop unroll(full)
          for (uint32_t r = 0; r < kRowTiles; ++r) tree_[kLevel][o][r] = sums_[0][o][r];
        }
        return;
      }
      Add(sums_[0], tree_[kLevel]);
      Carry<kLevel + 1>(index, leaves);
    }
  }

  const TileRow (&rows_)[kOut];
  Rows* x_;
  const uint32_t steps_;
  Weight weights_[kOut];
  typename Rows::Step first_;  // of the present chunk
  Sums sums_[kWords], tree_[kLevels] = {};
};

template <TileFormat kFormat, TallKind kKind, bool kRounded = false>
struct Tall {
  using Args = MatmulArgs;
  static constexpr bool kGateUp = kKind == TallKind::kGateUp || kKind == TallKind::kGateUpAny;
  static constexpr bool kAny = kKind == TallKind::kGateUpAny, kParts = kKind == TallKind::kParts;
  // Output tiles of a wave, and tiles of rows: as many as registers hold beside the tree, which is higher where k is in
  // parts.
  static constexpr uint32_t kOut = kParts ? 2 : 4, kPerOutput = kGateUp ? 2 : 1, kLevels = kParts ? 5 : 2;
  using Rows = TallRowsInLds<kRounded, TallRows(kRounded) / kTileRows>;
  using Sums = TallSums<kFormat, Rows, kOut, kLevels>;
  static constexpr uint32_t kOutputs = kWaves * kOut / kPerOutput, kLdsBytes = Rows::kLdsBytes;
  static_assert(kOutputs == TallOutputs(kKind));

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const uint32_t rows = StepView(args.step).rows();
    const TallGrid grid(CeilDiv(args.w.outputs, kOutputs), CeilDiv(rows, Rows::kRows));
    for (uint32_t u = worker; u < grid.units(); u += workers) {
      const uint32_t output = grid.output(u) * kOutputs, row = grid.row(u) * Rows::kRows;
      if (output < args.w.outputs) Unit(args, output + WaveId() * (kOut / kPerOutput), row, rows, arena);
    }
  }

 private:
  DEVICE static void Unit(const Args& args, uint32_t output, uint32_t first, uint32_t rows, Arena arena) {
    Rows x(args, first, arena.Get<uint8_t>());
    TileRow w[kOut];
#pragma clang loop unroll(full)
    for (uint32_t o = 0; o < kOut; ++o) {
      const uint32_t own = Min(output + o / kPerOutput, args.w.outputs - 1);
      w[o] = RowOf<kFormat>(args.w, Uniform(own * kPerOutput + o % kPerOutput));
    }
    const uint32_t leaves = kParts ? args.w.parts * kPartLeaves : kPartLeaves;
    const Sums sums(w, leaves, args.w.leaf_tiles * TileSteps(kFormat) / kBlockSteps, &x);
    Factors(args, first, arena);
#pragma clang loop unroll(full)
    for (uint32_t r = 0; r < Rows::kRowTiles; ++r) {
      const uint32_t own = r * kTileRows + LaneRow(), row = first + own;
      const float by = arena.Get<float>()[own];
      if (row >= rows) continue;
#pragma clang loop unroll(full)
      for (uint32_t o = 0; o < kOut; o += kPerOutput) {
        if (output + o / kPerOutput >= args.w.outputs) continue;
        const uint32_t column = (output + o / kPerOutput) * kTileRows + LanePart() * 4;
        Store(args, row, column, sums.Of(o, r) * by, sums.Of(o + kPerOutput - 1, r) * by);
      }
    }
    BarrierLds();
  }
  // Of the norm, by rows of the workgroup: 16 threads each, as elsewhere.
  DEVICE static void Factors(const Args& args, uint32_t first, Arena arena) {
#pragma clang loop unroll(disable)
    for (uint32_t i = 0; i < Rows::kRowTiles; ++i) {
      const uint32_t own = i * kTileRows + ThreadId() / kTileRows;
      const RowFactor factor(args.norm, first + own, first + own < args.rows);
      const float by = factor.Value(args.norm);
      if (ThreadId() % kTileRows == 0) arena.Get<float>()[own] = by;
    }
    BarrierLds();
  }
  // Four neighbouring columns.
  DEVICE static void Store(const Args& args, uint32_t row, uint32_t column, f32x4 first, f32x4 up) {
    const Global<float> to = At(args.out) + uint64_t{row} * args.out_stride;
    if constexpr (!kGateUp) {
      *reinterpret_cast<Global<f32x4>>(to + column) = first;
    } else {
      f32x4 value;
      GatingArgs any;
      if constexpr (kAny) any = ReadArgumentsAgain<GateUpAnyArgs>().gating;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < 4; ++i) {
        if constexpr (kAny) {
          value[i] = Gating(any, 0, column + i).Value(any, first[i], up[i]);
        } else {
          value[i] = Silu(first[i]) * up[i];
        }
      }
      StoreSplitPiece(to, column, RowPiece{value[0], value[1]});
      StoreSplitPiece(to, column + 2, RowPiece{value[2], value[3]});
    }
  }
};

template <TileFormat kFormat, bool kRounded = false>
struct TallAny {
  using Args = GateUpAnyArgs;
  using Product = Tall<kFormat, TallKind::kGateUpAny, kRounded>;
  static constexpr uint32_t kLdsBytes = Product::kLdsBytes;
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    Product::Run(args.product, worker, workers, arena);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TALL_H_
