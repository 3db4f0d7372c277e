// SPDX-License-Identifier: MIT
//
// What is done to heads on both sides of attention: norms of all of them together, and sizes that attention does not
// have. A wave a (row, head); V is among the heads where rows are made whole.
#ifndef MAINARCH_KERNELS_OPS_HEADS_H_
#define MAINARCH_KERNELS_OPS_HEADS_H_

#include "kernels/common/kernel.h"
#include "kernels/heads_args.h"
#include "kernels/ops/step.h"

namespace mainarch::kernels {

struct HeadSquares {
  using Args = HeadSquaresArgs;
  static constexpr uint32_t kLdsBytes = 0;

  // Of a row: a place of `squares` each, then V's heads, which have none.
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t places = (args.total_heads + args.total_kv_heads + 1) / 2 * 2;
    const uint32_t units = places + args.kv_heads;
    const uint32_t total = StepView(args.step).rows() * units;
    for (uint32_t t = worker * kWaves + WaveId(); t < total; t += workers * kWaves) {
      const uint32_t row = t / units, place = t % units;
      if (place >= places) {
        Whole(args, row, args.heads + args.kv_heads + place - places);
        continue;
      }
      const bool is_key = place >= args.total_heads;
      const uint32_t own = is_key ? place - args.total_heads - args.first_kv : place - args.first_head;
      const bool here = own < (is_key ? args.kv_heads : args.heads);  // those before it wrap
      float sum = 0;
      if (here) sum = Whole(args, row, own + (is_key ? args.heads : 0));
      if (is_key && args.kv_counts == 0) sum = 0;
      if (LaneId() == 0) At(args.squares)[uint64_t{row} * args.squares_stride + place] = sum;
    }
  }

  // A head as the product gave it, whole; its sum of squares.
  DEVICE static float Whole(const Args& args, uint32_t row, uint32_t head) {
    const uint64_t at = uint64_t{row} * args.stride + head * args.head_dim;
    const uint64_t apart = uint64_t{args.split_rows} * args.stride;
    const RowFactor factor(args.norm, row, true);
    const float by = factor.Value(args.norm);
    float sum = 0;
    for (uint32_t d = LaneId(); d < args.head_dim; d += kWave) {
      const float x = SumSplits(At(args.in) + (at + d), args.splits, apart) * by;
      At(args.qkv)[at + d] = x;
      sum = Fma(x, x, sum);
    }
    return WaveSum(sum);
  }
};

struct WideNorm {
  using Args = WideNormArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t heads = args.heads + args.kv_heads;
    const uint32_t total = StepView(args.step).rows() * heads;
    for (uint32_t t = worker * kWaves + WaveId(); t < total; t += workers * kWaves) {
      OneHead(args, t / heads, t % heads);
    }
  }

  DEVICE static void OneHead(const Args& args, uint32_t row, uint32_t head) {
    const bool is_key = head >= args.heads;
    const uint32_t first = is_key ? args.total_heads : 0;
    const uint32_t count = is_key ? args.total_kv_heads : args.total_heads;
    const Global<const float> squares = At(args.squares) + (uint64_t{row} * args.squares_stride + first);
    float sum = 0;
    for (uint32_t i = LaneId(); i < count; i += kWave) sum += squares[i];
    const float factor = Rsqrt(Fma(WaveSum(sum), is_key ? args.inverse_k : args.inverse_q, args.epsilon));
    const Global<const float> norm =
        At(is_key ? args.k_norm : args.q_norm) + (is_key ? head - args.heads : head) * args.head_dim;
    const Global<float> x = At(args.qkv) + (uint64_t{row} * args.stride + head * args.head_dim);
    for (uint32_t d = LaneId(); d < args.head_dim; d += kWave) x[d] = x[d] * factor * norm[d];
  }
};

struct WidenHeads {
  using Args = WidenHeadsArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kHeld = 4;  // elements of a lane, of the largest head

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t total = StepView(args.step).rows() * args.count;
    for (uint32_t t = worker * kWaves + WaveId(); t < total; t += workers * kWaves) {
      OneHead(args, t / args.count, t % args.count);
    }
  }

  DEVICE static void OneHead(const Args& args, uint32_t row, uint32_t head) {
    const uint32_t keys = Min(head, args.heads + args.kv_heads), behind = head - keys;  // of those before this one
    const bool is_value = head >= args.heads + args.kv_heads;
    const uint32_t from = is_value ? args.value_from : args.from, to = is_value ? args.value_to : args.to;
    const Global<const float> in =
        At(args.in) + (uint64_t{row} * args.in_stride + keys * args.from + behind * args.value_from);
    const uint64_t apart = uint64_t{args.split_rows} * args.in_stride;
    const RowFactor factor(args.norm, row, true);
    const float by = factor.Value(args.norm);
    float x[kHeld], sum = 0;
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t d = LaneId() + j * kWave;
      x[j] = 0;
      if (d < from) x[j] = SumSplits(in + d, args.splits, apart) * by;
      sum = Fma(x[j], x[j], sum);
    }
    const bool is_query = head < args.heads;
    const Address<const float> norm = is_query ? args.q_norm : args.k_norm;
    const bool norms = norm.address != 0 && !is_value;
    const float scale = norms ? Rsqrt(Fma(WaveSum(sum), args.inverse_from, args.epsilon)) : 1.0f;
    const Global<float> out = At(args.out) + (uint64_t{row} * args.out_stride + keys * args.to + behind * args.value_to);
#pragma clang loop unroll(full)
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t d = LaneId() + j * kWave;
      float w = 1;
      if (norms && d < from) w = At(norm)[d];
      if (d < to) out[d] = x[j] * scale * w;
    }
  }
};

struct NarrowHeads {
  using Args = NarrowHeadsArgs;
  static constexpr uint32_t kLdsBytes = 0;
  static constexpr uint32_t kFour = 4;  // columns that lie together in split rows
  static_assert(kNarrowSteps * kStepColumns == kThreads * kFour);

  // A thread has four columns.
  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const uint32_t total = StepView(args.step).rows() * args.chunks;
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = t / args.chunks;
      const uint32_t column = (t % args.chunks * kThreads + ThreadId()) * kFour;
      OneFour(args, row, column);
    }
  }

  DEVICE static void OneFour(const Args& args, uint32_t row, uint32_t column) {
    const uint32_t step = column / kStepColumns;
    uint32_t part = 0, begin = 0, head = 0;  // the column's part, its first step and head
    for (uint32_t i = 0; i + 1 < args.parts; ++i) {
      const uint32_t end = PackedEnd(args.low_ends, args.high_ends, i);
      if (step < end) break;
      begin = end;
      head = PackedEnd(args.low_heads, args.high_heads, i);
      part = i + 1;
    }
    if (step >= PackedEnd(args.low_ends, args.high_ends, part)) return;  // behind the last
    const uint32_t within = column - begin * kStepColumns;
    head += within / args.to;
    u32x2 values = {0, 0}, rests = {0, 0};
    if (head < PackedEnd(args.low_heads, args.high_heads, part)) {
      const Global<const u32x2> from =
          FourAt(At(args.in) + uint64_t{row} * args.in_stride, head * args.from + within % args.to);
      values = *from;
      rests = from[kSplitHalfBytes / sizeof(u32x2)];
    }
    const Global<u32x2> to = FourAt(At(args.out) + uint64_t{row} * args.out_stride, column);
    *to = values;
    to[kSplitHalfBytes / sizeof(u32x2)] = rests;
  }

  // Four columns of a split row.
  DEVICE static Global<const u32x2> FourAt(Global<const float> row, uint32_t column) {
    return reinterpret_cast<Global<const u32x2>>(reinterpret_cast<Global<const uint8_t>>(row) + SplitPlace(column));
  }
  DEVICE static Global<u32x2> FourAt(Global<float> row, uint32_t column) {
    return reinterpret_cast<Global<u32x2>>(reinterpret_cast<Global<uint8_t>>(row) + SplitPlace(column));
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_HEADS_H_
