// SPDX-License-Identifier: MIT
//
// What workgroups of one launch tell others, of the same launch or of one beside it, with no fence and no counter: each
// number beside the launch's tag, in a word of 64 bits, which arrives whole or not at all (decoder_args.h, ToldWords).
#ifndef MAINARCH_KERNELS_OPS_TOLD_H_
#define MAINARCH_KERNELS_OPS_TOLD_H_

#include "kernels/common/sync.h"
#include "kernels/common/tree.h"
#include "kernels/decoder_args.h"

namespace mainarch::kernels {

DEVICE uint64_t TaggedWord(uint32_t tag, float value) { return uint64_t{tag} << 32 | BitCast<uint32_t>(value); }
DEVICE float ValueOf(uint64_t word) { return BitCast<float>(static_cast<uint32_t>(word)); }
// The bits in which a word's tag is another: masks of many comparisons would take scalar registers.
DEVICE uint32_t OtherTag(uint64_t word, uint32_t tag) { return static_cast<uint32_t>(word >> 32) ^ tag; }

// The sums of one launch, of rows of `stride` columns.
struct ToldSums {
  Global<uint64_t> words;
  uint32_t tag, stride;  // the latter of words

  DEVICE ToldSums(const ToldWords& told, uint32_t index, uint32_t columns)
      : words(At(told.words)), tag(LaunchTag(index, told.turn, told.turns)), stride(ToldStride(columns)) {}
  DEVICE uint32_t apart() const { return kToldRows * stride; }  // words from split to split
  DEVICE Global<uint64_t> Of(uint32_t split, uint32_t row, uint32_t column) const {
    return words + ((split * kToldRows + row) * stride + ToldPlace(column));
  }
  DEVICE void Put(uint32_t split, uint32_t row, uint32_t column, float value) const {
    StoreFlag<Scope::kDevice>(Of(split, row, column), TaggedWord(tag, value));
  }
  // SumSplits of kCount columns from `column`, which is even, as soon as all of their words are there. There are kMost
  // splits at most.
  template <uint32_t kCount, uint32_t kMost = kMaxSplits>
  DEVICE Vec<float, kCount> Await(uint32_t row, uint32_t column, uint32_t splits) const {
    const Global<const uint64_t> at = Of(0, row, column);
    using Part = Vec<float, kCount>;
    Part parts[kMost];
    while (true) {
      uint64_t got[kMost][kCount];
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kMost; ++i) {
#pragma clang loop unroll(full)
        for (uint32_t j = 0; j < kCount; ++j) {
          got[i][j] = LoadFlag<Scope::kDevice>(at + (Min(i, splits - 1) * apart() + ToldPlace(j)));
        }
      }
      uint32_t other = 0;
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kMost; ++i) {
#pragma clang loop unroll(full)
        for (uint32_t j = 0; j < kCount; ++j) {
          const uint64_t word = got[i][j];
          other |= OtherTag(word, tag);
          parts[i][j] = ValueOf(word);
        }
      }
      if (other == 0) break;
      Pause();
    }
    AddTree(parts, splits, [](Part a, Part b) { return a + b; });
    return parts[0];
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_TOLD_H_
