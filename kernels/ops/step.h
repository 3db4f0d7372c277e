// SPDX-License-Identifier: MIT
//
// What every op of the decoder needs of the step: its header and rows, read from the step block,
// and the norm that is applied to an input on its way into a product.
#ifndef MAINARCH_KERNELS_OPS_STEP_H_
#define MAINARCH_KERNELS_OPS_STEP_H_

#include "kernels/choice_args.h"
#include "kernels/common/eight.h"
#include "kernels/common/math.h"
#include "kernels/common/sync.h"
#include "kernels/ops/splits.h"
#include "prims.h"

namespace mainarch::kernels {

class StepView {
 public:
  DEVICE explicit StepView(Address<const uint32_t> block) : words_(At(block)) {}
  DEVICE uint32_t rows() const { return words_[0]; }
  DEVICE uint32_t logit_rows() const { return words_[1]; }
  DEVICE uint32_t splits() const { return words_[2]; }
  DEVICE uint32_t index() const { return words_[3]; }
  DEVICE uint32_t token(uint32_t row) const { return words_[words_[4] + row * 4]; }
  // Of the step before this one, whose logit row it is; or kHere: token() is the token.
  DEVICE uint32_t from(uint32_t row) const { return words_[words_[4] + row * 4 + 3]; }
  DEVICE uint32_t position(uint32_t row) const { return words_[words_[4] + row * 4 + 1]; }
  // The same and where in words() the row's page table is, with as few waits as that takes.
  struct Place {
    uint32_t position, pages;
  };
  DEVICE Place place(uint32_t row) const {
    const uint32_t rows_at = words_[4], pages_at = words_[6];
    const Global<const uint32_t> own = words_ + rows_at + row * 4;
    return {own[1], pages_at + own[2]};
  }
  // Of the source's tap: which of its rows, both halves counted.
  DEVICE uint32_t input(uint32_t row) const { return words_[words_[11] + row]; }
  // The first of the rows of the half of the source's tap that inputs are of.
  DEVICE uint32_t first_input() const { return input(rows()); }
  DEVICE uint32_t sequences() const { return words_[words_[12]]; }
  DEVICE uint32_t first_row(uint32_t sequence) const {
    return words_[words_[12] + 1 + sequence * 2];
  }
  DEVICE uint32_t row_count(uint32_t sequence) const {
    return words_[words_[12] + 2 + sequence * 2];
  }
  // Slots of one of the caches of slots: kNoSlot where there is none.
  DEVICE uint32_t state_in(uint32_t states, uint32_t row) const {
    return words_[words_[13] + states * 2 * rows() + row];
  }
  DEVICE uint32_t state_out(uint32_t states, uint32_t row) const {
    return words_[words_[13] + (states * 2 + 1) * rows() + row];
  }
  DEVICE uint32_t logit_row(uint32_t i) const { return words_[words_[5] + i]; }
  DEVICE Global<const ChoiceRow> choice(uint32_t logit_row) const {
    return reinterpret_cast<Global<const ChoiceRow>>(words_ + words_[8]) + logit_row;
  }
  DEVICE Global<const uint32_t> words(uint32_t at) const { return words_ + at; }
  DEVICE Global<const uint32_t> pages(uint32_t row) const {
    return words_ + words_[6] + words_[words_[4] + row * 4 + 2];
  }

 private:
  Global<const uint32_t> words_;
};

// A token that a GPU has chosen: one word of 64 bits, so that it needs no flag beside it.
DEVICE void TellToken(Global<uint64_t> slot, uint32_t index, uint32_t token) {
  StoreFlag<Scope::kSystem>(slot, TaggedToken(index, token));
}
DEVICE uint32_t AwaitToken(Global<const uint64_t> slot, uint32_t index) {
  while (true) {
    const uint64_t word = LoadFlag<Scope::kSystem>(slot);
    if (static_cast<uint32_t>(word >> 32) == TokenTag(index)) return static_cast<uint32_t>(word);
    Pause();
  }
}

// tables[at] = page, by one workgroup of `workers`; no entry is named twice.
DEVICE void ChangePages(Global<const u32x2> changes, uint32_t count, Global<uint32_t> tables,
                        uint32_t worker, uint32_t workers) {
  for (uint32_t i = worker * kThreads + ThreadId(); i < count; i += workers * kThreads) {
    const u32x2 change = changes[i];
    tables[change[0]] = change[1];
  }
}

struct StepBegin {
  using Args = StepBeginArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena) {
    if (worker != 0) return;
    const Global<uint32_t> to = At(args.to);
    const uint32_t index = to[3] + 1, rounds = to[14];
    Barrier();  // it is overwritten now
    if (rounds == 0 || rounds == kNoRound) {
      const Global<const uint32_t> from = At(args.from) + Parity(index) * args.block_words;
      // Host memory is far: what most blocks are is asked for with the header, which says how long they are.
      const uint32_t lane = Min(ThreadId(), args.block_words / 4 - 1);
      const u32x4 own = Load16(from, lane), b = Load16(from, 1), c = Load16(from, 2), d = Load16(from, 3);
      const uint32_t quads = b[3] / 4;
      if (ThreadId() < quads) Store16(to, ThreadId(), own);
      for (uint32_t i = ThreadId() + kThreads; i < quads; i += kThreads) Store16(to, i, Load16(from, i));
      ChangePages(reinterpret_cast<Global<const u32x2>>(from + c[1]), c[2], to + b[2], 0, 1);
      if (d[2] != 0) TellRound(args, from[d[3]], index + 1);
    } else if (WaveId() == 0 && BeginRound(args, to, index, rounds) && rounds > 1) {
      TellRound(args, to[to[15]], index + 1);
    }
  }

 private:
  static constexpr uint32_t kRowWords = sizeof(StepRow) / 4;
  static_assert(sizeof(LeaseRow) / 4 == kRowWords && sizeof(LeaseHead) / 4 == kRowWords);

  DEVICE static Global<uint64_t> RoundSlot(Address<uint64_t> tokens, uint32_t max_rows, uint32_t index) {
    return At(tokens) + 2 * max_rows + Parity(index);
  }

  // The first rank, to all: whether step `index` is a round.
  DEVICE static void TellRound(const Args& args, uint32_t number, uint32_t index) {
    if (args.rank != 0 || ThreadId() != 0) return;
    const bool recalled = LoadFlag<Scope::kSystem>(At(args.recall)) == number;
    for (uint32_t r = 0; r < args.ranks; ++r) {
      TellToken(RoundSlot(args.tokens[r], args.max_rows, index), index, recalled ? kEndOfLease : kGoOn);
    }
  }

  // What the step before has chosen becomes rows of this one, a lane a row. False: nobody goes on, or a row has
  // no token, which the host must see to.
  DEVICE static bool BeginRound(const Args& args, Global<uint32_t> to, uint32_t index, uint32_t rounds) {
    const Global<uint64_t> tokens = At(args.tokens[args.rank]);
    const uint32_t lane = LaneId(), before = index - 1;
    const bool has_row = lane < to[0];
    const Global<uint32_t> row = to + to[4] + lane * kRowWords;
    const Global<uint32_t> lease = to + to[15] + (1 + lane) * kRowWords;
    bool goes_on = false, lost = false;
    uint32_t token = 0;
    if (has_row) {
      token = AwaitToken(tokens + Parity(before) * args.max_rows + lane, before);
      lost = token == kNoToken;
      goes_on = lease[0] > 0 && !lost && !IsIn(to + lease[1], lease[2], token);
    }
    const bool told = AwaitToken(RoundSlot(args.tokens[args.rank], args.max_rows, index), index) == kGoOn;
    if (!told || Ballot(lost) != 0 || Ballot(goes_on) == 0) {
      if (lane == 0) to[14] = kNoRound;
      return false;
    }
    if (goes_on) {
      row[0] = token;
      ++row[1];
      row[3] = kHere;
      --lease[0];
      TakeSlots(to, lane, lease);
      ++reinterpret_cast<Global<ChoiceRow>>(to + to[8])[lane].position;
    } else if (has_row) {
      // The same again: what it writes is what is there.
      const uint32_t from = row[3];
      if (from != kHere) row[0] = AwaitToken(tokens + Parity(before - 1) * args.max_rows + from, before - 1);
      row[3] = kHere;
      lease[0] = 0;
    }
    const uint32_t splits = WaveMax(has_row ? row[1] / kSplitTokens + 1 : 0);
    if (lane == 0) {
      to[2] = splits;
      to[3] = index;
      to[14] = rounds - 1;
    }
    return true;
  }

  // The row's states: from where the row before has left them, to the next slots that it was given.
  DEVICE static void TakeSlots(Global<uint32_t> to, uint32_t row, Global<uint32_t> lease) {
    const uint32_t rows = to[0], lists = to[to[15] + 1], at = lease[3];
    for (uint32_t i = 0; i < lists; ++i) {
      const Global<uint32_t> in = to + to[13] + i * 2 * rows + row, out = in + rows;
      *in = *out;
      *out = to[at + i];
    }
    lease[3] = at + lists;
  }

  DEVICE static bool IsIn(Global<const uint32_t> tokens, uint32_t count, uint32_t token) {
    bool found = false;
    for (uint32_t i = 0; i < count; ++i) found |= tokens[i] == token;
    return found;
  }
};

struct StepTables {
  using Args = StepTablesArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const Global<const u32x2> changes = reinterpret_cast<Global<const u32x2>>(At(args.changes));
    const u32x2 head = changes[0];
    ChangePages(changes + 1, head[0], At(args.tables), worker, workers);
  }
};

// ---- split rows (decoder_args.h) ----

// Columns of a row that a thread has, of a chunk of it that a workgroup has.
inline constexpr uint32_t kPieceColumns = 2;
using RowPiece = Vec<float, kPieceColumns>;
static_assert(kRowChunk == kPieceColumns * kThreads);
DEVICE Global<RowPiece> PieceAt(Global<float> at) { return reinterpret_cast<Global<RowPiece>>(at); }
DEVICE Global<const RowPiece> PieceAt(Global<const float> at) {
  return reinterpret_cast<Global<const RowPiece>>(at);
}

// Two bf16 of each of a piece of a split row.
DEVICE void StoreSplitPiece(Global<float> row, uint32_t column, RowPiece value) {
  const float a = value[0], b = value[1];
  const uint32_t high = ToBf16Pair(a, b);
  const Global<uint8_t> at = reinterpret_cast<Global<uint8_t>>(row) + SplitPlace(column);
  *reinterpret_cast<Global<uint32_t>>(at) = high;
  *reinterpret_cast<Global<uint32_t>>(at + kSplitHalfBytes) =
      ToBf16Pair(a - Bf16Low(high), b - Bf16High(high));
}
DEVICE RowPiece LoadSplitPiece(Global<const float> row, uint32_t column) {
  const Global<const uint8_t> at =
      reinterpret_cast<Global<const uint8_t>>(row) + SplitPlace(column);
  const uint32_t high = *reinterpret_cast<Global<const uint32_t>>(at);
  const uint32_t low = *reinterpret_cast<Global<const uint32_t>>(at + kSplitHalfBytes);
  return RowPiece{Bf16Low(high) + Bf16Low(low), Bf16High(high) + Bf16High(low)};
}
// The same of one column.
DEVICE void StoreSplit(Global<float> row, uint32_t column, float value) {
  const uint16_t high = ToBf16(value), low = ToBf16(value - FromBf16(high));
  const Global<uint8_t> at = reinterpret_cast<Global<uint8_t>>(row) + SplitPlace(column);
  *reinterpret_cast<Global<uint16_t>>(at) = high;
  *reinterpret_cast<Global<uint16_t>>(at + kSplitHalfBytes) = low;
}

// The factor of the norm of a thread's row, which is that of its 16 neighbours too:
// rsqrt(mean of squares + epsilon), 1 where there is no norm. Asked for at once, worked out later.
class RowFactor {
 public:
  RowFactor() = default;
  DEVICE RowFactor(const NormOf& norm, uint32_t row, bool real) {
    if (norm.squares.address == 0) return;
    at_ = At(norm.squares) + (uint64_t{real ? row : 0} * norm.chunks + LaneId() % 16);
    first_ = LaneId() % 16 < norm.chunks ? *at_ : 0.0f;
  }
  // All lanes of a wave call it.
  DEVICE float Value(const NormOf& norm) const {
    if (norm.squares.address == 0) return 1.0f;
    float sum = first_;
    for (uint32_t c = 16; c < norm.chunks; c += 16) {
      sum += c + LaneId() % 16 < norm.chunks ? at_[c] : 0.0f;
    }
    return Rsqrt(Fma(SumRow16(sum), norm.inverse_hidden, norm.epsilon));
  }

 private:
  Global<const float> at_ = nullptr;
  float first_ = 0;
};

// A thread's piece of a chunk of x: stored, once more as the next product wants it, and its squares
// added over the workgroup.
inline constexpr uint32_t kRowLdsBytes = kWaves * 4;
struct RowChunk {
  RowsOut out;
  uint32_t hidden, stride, chunks;

  // The norm's weights, which who waits for the piece asks for before: no load may pass a store.
  DEVICE RowPiece Weights(uint32_t chunk) const {
    const uint32_t column = chunk * kRowChunk + ThreadId() * kPieceColumns;
    RowPiece w = {1, 1};
    if (out.split.address != 0 && out.norm.address != 0 && column < hidden) {
      w = *PieceAt(At(out.norm) + column);
    }
    return w;
  }
  DEVICE void Store(uint32_t row, uint32_t chunk, RowPiece value, Arena arena) const {
    Store(row, chunk, value, Weights(chunk), arena);
  }
  DEVICE void Store(uint32_t row, uint32_t chunk, RowPiece value, RowPiece w, Arena arena) const {
    const uint32_t column = chunk * kRowChunk + ThreadId() * kPieceColumns;
    float sum = 0;
    if (column < hidden) {
      *PieceAt(At(out.x) + (uint64_t{row} * stride + column)) = value;
      if (out.split.address != 0) {
        StoreSplitPiece(At(out.split) + uint64_t{row} * stride, column, value * w);
      }
      const float a = value[0], b = value[1];
      sum = Fma(a, a, b * b);
    }
    if (out.squares.address == 0) return;
    sum = GroupSum<kWaves>(sum, arena.Get<float>());
    if (ThreadId() == 0) At(out.squares)[uint64_t{row} * chunks + chunk] = sum;
  }
};

// The norm of a product's input changes, or it has none: split rows are made again of x.
struct Resplit {
  using Args = ResplitArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t total = StepView(args.step).rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t column = t % args.chunks * kRowChunk + ThreadId() * kPieceColumns;
      if (column >= args.hidden) continue;
      const uint64_t at = uint64_t{t / args.chunks} * args.stride;
      const RowPiece x = *PieceAt(At(args.x) + (at + column));
      RowPiece w = {1, 1};
      if (args.norm.address != 0) w = *PieceAt(At(args.norm) + column);
      StoreSplitPiece(At(args.split) + at, column, x * w);
    }
  }
};

struct Embed {
  using Args = EmbedArgs;
  static constexpr uint32_t kLdsBytes = kRowLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const RowChunk out = {args.out, args.hidden, args.stride, args.chunks};
    const uint32_t total = step.rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = t / args.chunks, chunk = t % args.chunks;
      const uint32_t column = chunk * kRowChunk + ThreadId() * kPieceColumns;
      RowPiece value = {0, 0};
      if (column < args.hidden) {
        const uint32_t token = TokenOf(args, step, row);
        if (token != kNoToken) {
          value = Piece(args, uint64_t{token} * args.hidden + column) * args.scale;
        }
      }
      out.Store(row, chunk, value, arena);
    }
  }

  DEVICE static uint32_t TokenOf(const Args& args, const StepView& step, uint32_t row) {
    const uint32_t from = step.from(row);
    if (from == kHere) return step.token(row);
    const uint32_t before = step.index() - 1;
    return AwaitToken(At(args.tokens) + Parity(before) * args.max_rows + from, before);
  }

  DEVICE static RowPiece Piece(const Args& args, uint64_t index) {
    if (args.is_f32) return *PieceAt(reinterpret_cast<Global<const float>>(At(args.table)) + index);
    const uint32_t pair =
        reinterpret_cast<Global<const uint32_t>>(At(args.table))[index / kPieceColumns];
    return RowPiece{Bf16Low(pair), Bf16High(pair)};
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_STEP_H_
