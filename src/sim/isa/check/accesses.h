// SPDX-License-Identifier: MIT
//
// Which bytes a memory instruction is about to touch, computed from the wave's registers before it
// runs: independently of the code that will run it. One object is filled anew for each instruction.
#ifndef MAINARCH_SIM_ISA_CHECK_ACCESSES_H_
#define MAINARCH_SIM_ISA_CHECK_ACCESSES_H_

#include <cstdint>
#include <vector>

#include "sim/isa/check/effects.h"

namespace mainarch::sim::isa {

enum class Space : uint8_t { kGlobal, kLds, kScratch };

struct Piece {
  uint64_t address = 0;
  uint16_t size = 0;
  uint8_t lane = 0;
  uint8_t element = 0;
  Space space = Space::kGlobal;
  bool write = false;  // else read; an atomic is both
};

struct Accesses {
  std::vector<Piece> pieces;
  bool atomic = false;
  bool scalar = false;  // through the scalar cache
  bool dma = false;     // from memory to LDS: pieces of both
};

// Fills *out; pieces that lie outside LDS or a buffer are left to the executing code to refuse or
// ignore.
void FindAccesses(const Wave& w, const Op& op, const RowFacts& facts, Accesses* out);

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_ACCESSES_H_
