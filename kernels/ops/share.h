// SPDX-License-Identifier: MIT
//
// What ranks that hold the same KV head tell each other (long_args.h): numbers beside their epochs, in words of 64
// bits that arrive whole or not at all, so that nothing has to be ordered.
#ifndef MAINARCH_KERNELS_OPS_SHARE_H_
#define MAINARCH_KERNELS_OPS_SHARE_H_

#include "kernels/long_args.h"
#include "kernels/ops/reduce.h"

namespace mainarch::kernels {

DEVICE uint32_t ShareEpoch(const AttendShare& share, const StepView& step) {
  return step.index() * share.per_step + share.sequence + 1;
}

// Words of rank `owner`, in its memory, from byte `at` of the epoch's half on.
DEVICE Global<uint64_t> ShareWords(const AttendShare& share, uint32_t owner, uint32_t epoch, uint64_t at) {
  Address<uint8_t> memory = {0};  // not exchange[owner], for which the compiler would put them into scratch memory
#pragma clang loop unroll(full)
  for (uint32_t r = 0; r < kMaxRanks; ++r) memory.address = r == owner ? share.exchange[r].address : memory.address;
  return reinterpret_cast<Global<uint64_t>>(At(memory) + ((epoch & 1) * share.half + at));
}
DEVICE void TellWord(Global<uint64_t> at, uint32_t epoch, float value) {
  StoreFlag<Scope::kSystem>(at, uint64_t{FlagOf(epoch)} << 32 | BitCast<uint32_t>(value));
}
DEVICE float AwaitWord(Global<const uint64_t> at, uint32_t epoch) {
  while (true) {
    const uint64_t word = LoadFlag<Scope::kSystem>(at);
    if (static_cast<uint32_t>(word >> 32) == FlagOf(epoch)) return BitCast<float>(static_cast<uint32_t>(word));
    Pause();
  }
}

// Rows that are shared: this rank's queries to all others, and theirs beside its own.
struct ShareQueries {
  using Args = ShareQueriesArgs;
  static constexpr uint32_t kLdsBytes = 0;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena) {
    const AttendShare& share = args.share;
    const StepView step(args.step);
    const uint32_t ranks = 1u << share.log_ranks, epoch = ShareEpoch(share, step);
    const uint32_t chunks = CeilDiv(args.columns, kThreads), total = RowsHere(step, 0, kShareRows) * chunks;
    const Global<float> queries = At(share.queries);
    const auto word = [&](uint32_t from, uint32_t row, uint32_t column) {
      return ((uint64_t{from} * kShareRows + row) * args.columns + column) * 8;
    };
    const auto place = [&](uint32_t from, uint32_t row, uint32_t column) {
      return (uint64_t{row} * ranks + from) * args.columns + column;
    };
    // A workgroup tells all it has before it waits for anything.
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = t / chunks, column = t % chunks * kThreads + ThreadId();
      if (!IsShared(share, step.position(row)) || column >= args.columns) continue;
      const float value = At(args.qkv)[uint64_t{row} * args.stride + column];
      queries[place(share.rank, row, column)] = value;
      for (uint32_t to = 0; to < ranks; ++to) {
        if (to != share.rank) TellWord(ShareWords(share, to, epoch, word(share.rank, row, column)), epoch, value);
      }
    }
    for (uint32_t t = worker; t < total; t += workers) {
      const uint32_t row = t / chunks, column = t % chunks * kThreads + ThreadId();
      if (!IsShared(share, step.position(row)) || column >= args.columns) continue;
      for (uint32_t from = 0; from < ranks; ++from) {
        if (from == share.rank) continue;
        queries[place(from, row, column)] =
            AwaitWord(ShareWords(share, share.rank, epoch, word(from, row, column)), epoch);
      }
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_SHARE_H_
