// SPDX-License-Identifier: MIT
//
// What a memory instruction asks of the memory system: the lines of its lanes, or the clocks that
// LDS banks take. Computed from the wave's registers before the instruction runs. Pure functions.
#ifndef MAINARCH_SIM_TIME_SHAPE_H_
#define MAINARCH_SIM_TIME_SHAPE_H_

#include <cstdint>

#include "sim/isa/wave.h"
#include "sim/time/op_time.h"

namespace mainarch::sim::timing {

inline constexpr int kLineBits = 7;  // of vector L1, L2, MALL: 128 bytes

struct Shape {
  enum Space : uint8_t { kGlobal, kLds, kScratch, kNothing };
  Space space = kNothing;
  int lines = 0;
  int lanes = 0;       // active
  uint32_t bytes = 0;  // asked for
  uint64_t line[128];  // addresses over 128, each once
  uint64_t mask = 0;   // of lanes that reach memory, at these addresses; kGlobal only
  alignas(64) uint64_t at[isa::kLanes];
};

// GLOBAL, FLAT, SCRATCH and MUBUF. All lanes of a FLAT instruction are taken to lie where the first
// does.
void ShapeOf(const isa::Wave& w, const isa::Op& op, const OpTime& t, Shape* out);

// Clocks that LDS is busy with a DS instruction, and the bytes it moves.
struct LdsUse {
  int clocks = 0;
  uint32_t bytes = 0;
};
LdsUse LdsUseOf(const isa::Wave& w, const isa::Op& op, const OpTime& t);

// Address of a scalar load.
uint64_t ScalarAddress(const isa::Wave& w, const isa::Op& op);

}  // namespace mainarch::sim::timing

#endif  // MAINARCH_SIM_TIME_SHAPE_H_
