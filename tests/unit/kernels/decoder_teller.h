// SPDX-License-Identifier: MIT
//
// A product of few rows that tells its sums to a launch beside it (ToldWords): exactly those that a case wants told.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_DECODER_TELLER_H_
#define MAINARCH_TESTS_UNIT_KERNELS_DECODER_TELLER_H_

#include <string>
#include <utility>
#include <vector>

#include "kernels/quant/bf16.h"
#include "unit/kernels/decoder_weights.h"

namespace mainarch::kernels_test {

inline float RoundedToBf16(float x) { return quant::FloatFromBf16(quant::Bf16FromFloat(x)); }

class Teller {
 public:
  // `sums` [splits, rows, stride]: bf16. k is in eight parts, of which a split has as many as any other: a one of row r of
  // x stands in column r of each split's first part, and a weight there is what is told.
  Teller(const std::vector<float>& sums, uint32_t splits, uint32_t rows = 1) : splits_(splits) {
    constexpr uint32_t kParts = 8, kPart = 32, kWidth = kParts * kPart;
    const auto outputs = static_cast<uint32_t>(sums.size() / splits / rows);
    x_ = {rows, kWidth, RoundUp(kWidth, kernels::kPadColumns), {}};
    x_.values.resize(size_t{rows} * x_.stride);
    std::vector<float> weights(size_t{outputs} * kWidth);
    for (uint32_t s = 0; s < splits; ++s) {
      for (uint32_t r = 0; r < rows; ++r) {
        const uint32_t at = s * (kParts / splits) * kPart + r;
        x_.values[size_t{r} * x_.stride + at] = 1;
        const float* told = &sums[(size_t{s} * rows + r) * outputs];
        for (uint32_t o = 0; o < outputs; ++o) weights[size_t{o} * kWidth + at] = told[o];
      }
    }
    w_ = Bf16Tiles(weights, outputs, kWidth, kParts);
  }

  // Names end in `rank`.
  void AddBuffers(const std::string& rank, uint32_t device, const kernels::ToldWords& told, uint32_t index,
                  std::vector<Buffer>* buffers) const {
    std::vector<Buffer> own = {{"teller.x" + rank, SplitRows(x_)},
                               {"told" + rank, StaleWords(ToldWordCount(splits_, w_.rows),
                                                          kernels::LaunchTag(index, told.turn, told.turns) - 2)}};
    w_.AddBuffers("teller.w" + rank, &own);
    for (Buffer& buffer : own) {
      buffer.device = device;
      buffers->push_back(std::move(buffer));
    }
  }
  // Of the step in buffer `step`, to the words in buffer "told".
  LaunchSpec Launch(const std::string& rank, uint32_t device, const std::string& step, kernels::ToldWords told) const {
    LaunchSpec out = MakeLaunch<kernels::MatmulArgs>(
        "matmul_bf16", 3,
        [=, *this](kernels::MatmulArgs& args, const Addresses& at) {
          args.step = at.Of<const uint32_t>(step);
          args.x = at.Of<const float>("teller.x" + rank);
          args.w = w_.At("teller.w" + rank, at);
          args.x_stride = x_.stride;
          args.out_stride = w_.rows;
          args.rows = x_.rows;
          args.splits = splits_;
          args.told = told;
          args.told.words = at.Of<uint64_t>("told" + rank);
        },
        device);
    out.aids = true;
    return out;
  }

 private:
  uint32_t splits_;
  Inputs x_;
  TiledWeights w_;
};

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_DECODER_TELLER_H_
