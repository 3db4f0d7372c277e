// SPDX-License-Identifier: MIT
//
// Rows of x kept for the steps of other contexts (Tap), and taken there (Input), with the sums of
// squares that the next norm wants.
//
// A tap lies twice, as two steps of its context may be in flight: a step writes the half of its
// parity. The host knows which step a reader means, and names rows of both halves together.
#ifndef MAINARCH_KERNELS_OPS_TAPS_H_
#define MAINARCH_KERNELS_OPS_TAPS_H_

#include "kernels/ops/step.h"

namespace mainarch::kernels {

struct Tap {
  using Args = TapArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const StepView step(args.step);
    const uint32_t first = Parity(step.index()) * args.max_rows;
    const uint32_t total = step.rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = t / args.chunks;
      const uint32_t column = t % args.chunks * kRowChunk + ThreadId() * kPieceColumns;
      if (column >= args.hidden) continue;
      *PieceAt(At(args.out) + (uint64_t{first + row} * args.stride + column)) =
          *PieceAt(At(args.x) + (uint64_t{row} * args.stride + column));
    }
  }
};

struct Input {
  using Args = InputArgs;
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
        value = Piece(args, step, row, column);
        if (args.slots.address != 0) Carry(args, step, row, column);
      }
      out.Store(row, chunk, value, arena);
    }
  }

  DEVICE static Global<float> SlotAt(const Args& args, uint32_t slot) {
    return reinterpret_cast<Global<float>>(At(args.slots) + slot * args.slot_bytes);
  }
  DEVICE static RowPiece Piece(const Args& args, const StepView& step, uint32_t row,
                               uint32_t column) {
    const uint32_t from = step.input(row);
    if (from == kCarriedInput) {
      const uint32_t slot = step.state_in(args.states, row);
      if (slot == kNoSlot) return RowPiece{0, 0};
      return *PieceAt(SlotAt(args, slot) + column);
    }
    const Global<const float> tap = At((from & kOwnInput) != 0 ? args.own : args.tap);
    return *PieceAt(tap + (uint64_t{from & ~kOwnInput} * args.stride + column));
  }
  // What goes on from the row is the source's row, not the one that was taken.
  DEVICE static void Carry(const Args& args, const StepView& step, uint32_t row, uint32_t column) {
    const uint32_t slot = step.state_out(args.states, row);
    if (slot == kNoSlot) return;
    const uint64_t from = step.first_input() + row;
    *PieceAt(SlotAt(args, slot) + column) =
        *PieceAt(At(args.tap) + (from * args.stride + column));
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TAPS_H_
