// SPDX-License-Identifier: MIT
//
// What every op of the decoder needs of the step: its header and rows, read from the step block,
// and the norm that is applied to an input on its way into a product.
#ifndef MAINARCH_KERNELS_OPS_STEP_H_
#define MAINARCH_KERNELS_OPS_STEP_H_

#include "kernels/common/eight.h"
#include "kernels/common/math.h"
#include "kernels/common/sync.h"
#include "kernels/decoder_args.h"
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
  // Of the source's tap: which of its rows, both halves counted.
  DEVICE uint32_t input(uint32_t row) const { return words_[words_[11] + row]; }
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
    const uint32_t index = to[3] + 1;
    Barrier();  // it is overwritten now
    const Global<const uint32_t> from = At(args.from) + Parity(index) * args.block_words;
    const uint32_t quads = from[7] / 4;
    for (uint32_t i = ThreadId(); i < quads; i += kThreads) Store16(to, i, Load16(from, i));
    for (uint32_t i = ThreadId(); i < args.arrival_count; i += kThreads) At(args.arrivals)[i] = 0;
    ChangePages(reinterpret_cast<Global<const u32x2>>(from + from[9]), from[10], to + from[6], 0,
                1);
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

// The factor of a row: rsqrt(mean of squares + epsilon), chunks added in order. There is one, so
// that no condition is kept for the loop.
DEVICE float NormFactor(const NormOf& norm, uint32_t row) {
  const Global<const float> squares = At(norm.squares) + uint64_t{row} * norm.chunks;
  float sum = 0;
  uint32_t c = 0;
  do {
    sum += squares[c];
  } while (++c < norm.chunks);
  return Rsqrt(Fma(sum, norm.inverse_hidden, norm.epsilon));
}

// A thread's four columns of a chunk of x: stored, and their squares added over the workgroup.
inline constexpr uint32_t kRowLdsBytes = kWaves * 4;
static_assert(kRowChunk == 4 * kThreads);
struct RowChunk {
  Global<float> x;        // [rows, stride]
  Global<float> squares;  // [rows, chunks]
  uint32_t hidden, stride, chunks;

  DEVICE void Store(uint32_t row, uint32_t chunk, f32x4 value, Arena arena) const {
    const uint32_t column = chunk * kRowChunk + ThreadId() * 4;
    float sum = 0;
    if (column < hidden) {
      Store16(x, (uint64_t{row} * stride + column) / 4, BitCast<u32x4>(value));
#pragma clang loop unroll(full)
      for (int i = 0; i < 4; ++i) {
        const float v = value[i];
        sum = Fma(v, v, sum);
      }
    }
    sum = GroupSum<kWaves>(sum, arena.Get<float>());
    if (ThreadId() == 0) squares[uint64_t{row} * chunks + chunk] = sum;
  }
};

struct Embed {
  using Args = EmbedArgs;
  static constexpr uint32_t kLdsBytes = kRowLdsBytes;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const StepView step(args.step);
    const RowChunk out = {At(args.x), At(args.squares), args.hidden, args.stride, args.chunks};
    const uint32_t total = step.rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = t / args.chunks, chunk = t % args.chunks;
      const uint32_t column = chunk * kRowChunk + ThreadId() * 4;
      f32x4 value = {0, 0, 0, 0};
      if (column < args.hidden) {
        const uint32_t token = TokenOf(args, step, row);
        if (token != kNoToken) value = Four(args, (uint64_t{token} * args.hidden + column) / 4);
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

  DEVICE static f32x4 Four(const Args& args, uint64_t index) {
    if (args.is_f32) {
      return BitCast<f32x4>(
          Load16(reinterpret_cast<Global<const uint32_t>>(At(args.table)), index));
    }
    const u32x2 pairs = reinterpret_cast<Global<const u32x2>>(At(args.table))[index];
    const uint32_t a = pairs[0], b = pairs[1];
    return f32x4{Bf16Low(a), Bf16High(a), Bf16Low(b), Bf16High(b)};
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_STEP_H_
