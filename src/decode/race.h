// SPDX-License-Identifier: MIT
//
// The race that draws a token: argmax of weight / E, E exponential, is a draw with probability
// proportional to weight. A candidate's E depends on (seed, position, token) alone.
#ifndef MAINARCH_DECODE_RACE_H_
#define MAINARCH_DECODE_RACE_H_

#include <cstddef>
#include <cstdint>

namespace mainarch::decode {

// The winner of `count` > 0 candidates, ids ascending, weights in [0, 1]; the lowest of equals.
uint32_t Race(const uint32_t* ids, const float* weights, size_t count, uint64_t seed,
              uint64_t position);

// The same of tokens 0 to count - 1.
uint32_t RaceAll(const float* weights, size_t count, uint64_t seed, uint64_t position);

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_RACE_H_
