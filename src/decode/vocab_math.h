// SPDX-License-Identifier: MIT
//
// The loops of sampling that run over a whole vocabulary. Every result is the same on every CPU:
// maxima are exact, sums have 16 fixed lanes, and exp and log are our own.
#ifndef MAINARCH_DECODE_VOCAB_MATH_H_
#define MAINARCH_DECODE_VOCAB_MATH_H_

#include <cstddef>
#include <cstdint>

namespace mainarch::decode {

inline constexpr size_t kScanBlock = 256;

struct Peak {
  uint32_t index = 0;  // the lowest of equals
  float value = 0;
  bool sane = true;  // no nan, no +infinity
};

// The largest of v[0, n), n > 0. block_max, if not null, gets the maximum of each kScanBlock
// entries (meaningless unless sane).
Peak FindPeak(const float* v, size_t n, float* block_max);

// out[i] = exp(x[i]), x <= 0; 0 below -87. Relative error below 2e-7.
void ExpInto(const float* x, size_t n, float* out);

// Sum of exp(v[i] - shift), shift >= all v.
double SumExp(const float* v, size_t n, float shift);

// Natural logarithm of a positive normal number.
double NaturalLog(double x);

// The first three as compiled for every CPU; tests hold the dispatched ones against them.
Peak PortableFindPeak(const float* v, size_t n, float* block_max);
void PortableExpInto(const float* x, size_t n, float* out);
double PortableSumExp(const float* v, size_t n, float shift);

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_VOCAB_MATH_H_
