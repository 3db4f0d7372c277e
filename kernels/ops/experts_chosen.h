// SPDX-License-Identifier: MIT
//
// Of a launch of experts (ops/experts.h): its LDS, in which stands which experts a block of rows chose, in what slots and by what
// weights; and the choice itself, where no launch before has made it.
#ifndef MAINARCH_KERNELS_OPS_EXPERTS_CHOSEN_H_
#define MAINARCH_KERNELS_OPS_EXPERTS_CHOSEN_H_

#include "kernels/common/kernel.h"
#include "kernels/experts_args.h"
#include "kernels/ops/route.h"
#include "kernels/ops/tiles.h"

namespace mainarch::kernels {

// `kFormat`: of gate and up.
template <TileFormat kFormat>
struct ExpertsChosen {
  using Args = ExpertsArgs;
  // Tile sums of two units, or products of experts; then of a block of rows the experts that any of them chose, ascending; for each of
  // these and each row the slot in which the row chose it; and the weights of the slots.
  // Of kTileLdsBytes. Two workgroups have room on a compute unit, so that contexts of one GPU do not
  // wait for each other.
  static constexpr uint32_t kScratchTiles = IsFp8(kFormat) || HasCodes(kFormat) ? 2 : 4;
  static constexpr uint32_t kIds = kRouterMaxExperts + 32;  // with a shared one
  static constexpr uint32_t kMaskWords = kIds / 32;
  static constexpr uint32_t kMostChoices = kTileRows * kRouterMaxTop;
  static constexpr uint32_t kMaskAt = kScratchTiles * kTileLdsBytes;
  static constexpr uint32_t kListAt = kMaskAt + kMaskWords * 4;
  static constexpr uint32_t kSlotsAt = kListAt + (kMostChoices + 1) * 4;  // bytes
  static constexpr uint32_t kWeightsAt = kSlotsAt + kMostChoices * kTileRows;
  static constexpr uint32_t kTableAt = kWeightsAt + kMostChoices * 4;
  static constexpr uint32_t kLdsBytes = kTableAt + kScratchTiles * kWaves * kTileRows * 4;
  static_assert(kMostChoices <= kThreads);
  static constexpr uint32_t kNoSlot = ~0u;

  // Where nobody has chosen yet: a wave some rows. Ids lie where the list will be.
  DEVICE static bool RoutesHere() {
    return ReadArgumentsAgain<Args>().route.router.experts != 0;
  }
  DEVICE static void RouteHere(uint32_t rows, Arena arena) {
    if (!RoutesHere()) return;
#pragma clang loop unroll(disable)
    for (uint32_t first = 0; first < rows; first += kWaves) {
      const uint32_t row = first + WaveId();
      if (row >= rows) continue;
      const Args args = ReadArgumentsAgain<Args>();  // kept over the loop they would leave no scalar registers
      const Lds<uint32_t> ids = arena.Get<uint32_t>(kListAt) + row * args.top;
      const Lds<float> weights = arena.Get<float>(kWeightsAt) + row * args.top;
      Route::OneRow(args.route, row, [=](uint32_t slot, uint32_t id, float weight) {
        ids[slot] = id;
        weights[slot] = weight;
      });
    }
    BarrierLds();
  }

  // The experts that rows [first, first + 16) chose, ascending, at kListAt: count, then ids. And what
  // is at kSlotsAt and kWeightsAt.
  DEVICE static void Distinct(const Args& args, uint32_t rows, uint32_t first, Arena arena) {
    const Lds<uint32_t> mask = arena.Get<uint32_t>(kMaskAt);
    const Lds<uint32_t> list = arena.Get<uint32_t>(kListAt);
    const Lds<uint32_t> slots = arena.Get<uint32_t>(kSlotsAt);
    const uint32_t count = Min(kTileRows, rows - first) * args.top;
    const bool chooses = ThreadId() < count;
    uint32_t id = 0;
    float weight = 0;
    if (RoutesHere()) {
      if (chooses) {
        id = arena.Get<uint32_t>(kListAt)[ThreadId()];
        weight = arena.Get<float>(kWeightsAt)[ThreadId()];
      }
    } else if (ThreadId() < Min(kTileRows, args.most_rows - first) * args.top) {
      // Asked for before the number of rows is known.
      id = At(args.ids)[uint64_t{first} * args.top + ThreadId()];
      weight = At(args.weights)[uint64_t{first} * args.top + ThreadId()];
    }
    if (ThreadId() < kMaskWords) mask[ThreadId()] = 0;
    const u32x4 none = {0, 0, 0, 0};
    arena.Get<u32x4>(kSlotsAt)[ThreadId()] = none;
    static_assert(kMostChoices * kTileRows == kThreads * 16);
    BarrierLds();
    bool is_first = false;  // of those that have this id
    if (chooses) {
      arena.Get<float>(kWeightsAt)[ThreadId()] = weight;
      const uint32_t bit = 1u << id % 32;
      is_first = (OrLds(mask + id / 32, bit) & bit) == 0;
    }
    BarrierLds();
    // An expert's place is the number of set bits before its own.
    const uint32_t bits = LaneId() < kMaskWords ? mask[LaneId()] : 0;
    const uint32_t before = SumBefore(__builtin_popcount(bits));
    const uint32_t words_before = Shuffle(before, id / 32), own = Shuffle(bits, id / 32);
    if (chooses) {
      const uint32_t place = words_before + __builtin_popcount(own & ((1u << id % 32) - 1));
      if (is_first) list[1 + place] = id;
      // A byte each, 0 being none; waves may have bytes of one word.
      const uint32_t at = place * kTileRows + ThreadId() / args.top;
      OrLds(slots + at / 4, (ThreadId() % args.top + 1) << at % 4 * 8);
    }
    if (ThreadId() == kMaskWords) list[0] = before;
    static_assert(kMaskWords < kWave);
    BarrierLds();
  }

  // The slot in which row `row` of the block chose expert `place` of the list; kNoSlot if it did not.
  DEVICE static uint32_t SlotOf(uint32_t row, uint32_t place, Arena arena) {
    return uint32_t{arena.Get<uint8_t>(kSlotsAt)[place * kTileRows + row]} - 1;
  }

  // Strides are less than 4 GiB.
  DEVICE static Tiles ExpertOf(Tiles w, uint64_t stride, uint64_t scale_stride, uint32_t id) {
    w.data.address += uint64_t{static_cast<uint32_t>(stride)} * id;
    w.scales.address += uint64_t{static_cast<uint32_t>(scale_stride)} * id;
    return w;
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_EXPERTS_CHOSEN_H_
