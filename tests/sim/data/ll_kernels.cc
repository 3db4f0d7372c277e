// SPDX-License-Identifier: MIT
//
// Compiled for GPUs: an all-reduce by {data, flag} pairs, as low-latency protocols have it. Each
// lane stores two pairs in one store of 16 bytes to each peer's inbox and polls its own; whoever
// sees a flag takes the data beside it, so the eight bytes of a pair must never come apart.
#define KERNEL extern "C" __attribute__((amdgpu_kernel, visibility("protected")))
using Word = unsigned int;
typedef Word Words4 __attribute__((ext_vector_type(4)));
#define GLOBAL __attribute__((address_space(1)))

constexpr int kRanks = 8, kLanes = 64;
struct Inboxes {
  GLOBAL Words4* of[kRanks];  // [2 halves][from rank][lane]
};

// What rank sends in a round; never 0, never the same twice in a row.
static inline Word Sent(Word rank, Word round, Word lane, Word which) {
  Word x = round * 0x9e3779b9u + rank * 0x85ebca6bu + lane * 0xc2b2ae35u + which * 0x27d4eb2fu;
  x ^= x >> 15;
  return x | 1;
}

// report: {lanes that saw data of another round, lanes whose sum was wrong, rounds done}
KERNEL void ll_all_reduce(Inboxes boxes, GLOBAL Word* report, Word rank, Word rounds) {
  const Word lane = __builtin_amdgcn_workitem_id_x();
  Word torn = 0, wrong = 0;
  for (Word round = 1; round <= rounds; ++round) {
    const int half = static_cast<int>(round & 1) * kRanks * kLanes;
    const Word low = Sent(rank, round, lane, 0), high = Sent(rank, round, lane, 1);
    const Words4 pairs = {low, round, high, round};
    for (int to = 0; to < kRanks; ++to) {
      if (to == static_cast<int>(rank)) continue;
      GLOBAL Words4* at = boxes.of[to] + half + static_cast<int>(rank) * kLanes + lane;
      asm volatile("global_store_dwordx4 %0, %1, off sc0 sc1" ::"v"(at), "v"(pairs) : "memory");
    }
    Word sum = low + high, expected = sum;
    for (int from = 0; from < kRanks; ++from) {
      if (from == static_cast<int>(rank)) continue;
      const GLOBAL Words4* at = boxes.of[rank] + half + from * kLanes + lane;
      Words4 seen;
      while (true) {
        asm volatile("global_load_dwordx4 %0, %1, off sc0 sc1\n\ts_waitcnt vmcnt(0)"
                     : "=v"(seen)
                     : "v"(at)
                     : "memory");
        if (__builtin_amdgcn_ballot_w64(seen.y != round || seen.w != round) == 0) break;
        __builtin_amdgcn_s_sleep(1);
      }
      const Word a = Sent(static_cast<Word>(from), round, lane, 0),
                 b = Sent(static_cast<Word>(from), round, lane, 1);
      torn += seen.x != a || seen.z != b;
      sum += seen.x + seen.z;
      expected += a + b;
    }
    wrong += sum != expected;
  }
  for (int i = 0; i < 64; ++i) {
    if (static_cast<int>(lane) != i) continue;
    report[0] += torn;
    report[1] += wrong;
    if (i == 63) report[2] = rounds;
  }
}

// The same with data and flag in two stores, flag first: what a broken pair looks like.
KERNEL void ll_apart(Inboxes boxes, GLOBAL Word* report, Word rank, Word rounds) {
  const Word lane = __builtin_amdgcn_workitem_id_x();
  Word torn = 0;
  GLOBAL Word* box = reinterpret_cast<GLOBAL Word*>(boxes.of[0]) + 2 * lane;
  for (Word round = 1; round <= rounds; ++round) {
    if (rank == 1) {
      asm volatile(
          "global_store_dword %0, %1, off offset:4 sc0 sc1\n\t"
          "global_store_dword %0, %2, off sc0 sc1" ::"v"(box),
          "v"(round), "v"(Sent(1, round, lane, 0))
          : "memory");
    } else {
      typedef Word Words2 __attribute__((ext_vector_type(2)));
      Words2 seen;
      asm volatile("global_load_dwordx2 %0, %1, off sc0 sc1\n\ts_waitcnt vmcnt(0)"
                   : "=v"(seen)
                   : "v"(box)
                   : "memory");
      torn += seen.y != 0 && seen.x != Sent(1, seen.y, lane, 0);
    }
  }
  if (rank != 1) {
    for (int i = 0; i < 64; ++i) {
      if (static_cast<int>(lane) == i) report[0] += torn;
    }
  }
}
