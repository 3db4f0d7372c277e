// SPDX-License-Identifier: MIT
//
// What an instruction reads and writes, for checkers: registers by operand code, and of which kind
// it is. Made of the opcode table and the descriptor, not of the code that runs it, so that an
// error in one of them shows as a disagreement. Immutable after construction; any thread.
#ifndef MAINARCH_SIM_ISA_CHECK_EFFECTS_H_
#define MAINARCH_SIM_ISA_CHECK_EFFECTS_H_

#include <cstdint>
#include <vector>

#include "sim/isa/wave.h"

namespace mainarch::sim::isa {

// Facts of an opcode that its name tells.
struct RowFacts {
  bool salu = false, valu = false, smem = false, vmem = false, ds = false;
  bool mfma = false, dgemm = false, xdl = false, dot = false, trans = false, packed_result = false;
  bool permlane = false, readlane = false, rwlane = false, divfmas = false, late_result = false;
  bool setreg = false, getreg = false, reads_m0_late = false;
  // Memory.
  bool load = false, store = false, atomic = false, lds_memory = false, to_lds = false;
  bool inv = false, wbl2 = false, scalar_inv = false;
  uint8_t bytes = 0;          // of one element of a lane
  uint8_t elements = 1;       // ds_read2 and relatives: two
  uint16_t stride = 0;        // bytes of one unit of their offsets
  uint8_t scalar_dwords = 0;  // SMEM
};

struct Range {
  uint16_t code = 0;  // operand code: < 128 scalar, from 256 vector, from 512 AGPR
  uint8_t count = 0;  // registers
  char field = 0;     // as Operand::field; 'x' for what is implied
  bool vector() const { return code >= reg::kVgpr; }
  bool Overlaps(const Range& other) const {
    return code < other.code + other.count && other.code < code + count;
  }
};

struct Effects {
  const RowFacts* facts = nullptr;
  Range reads[10], writes[4];
  int read_count = 0, write_count = 0;
  bool reads_scc = false, writes_scc = false, reads_exec = false;
  bool Reads(const Range& range) const;
  bool Writes(const Range& range) const;
};

class EffectsTable {
 public:
  EffectsTable();
  const RowFacts& FactsOf(const OpRow& row) const;
  // `op` has a descriptor.
  Effects Of(const Op& op) const;

 private:
  std::vector<RowFacts> facts_;  // in the order of Rows()
};

// Cycles of four that an MFMA occupies the matrix core, as llvm-mca counts them.
int MfmaPasses(Isa isa, const Inst& inst);

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_EFFECTS_H_
