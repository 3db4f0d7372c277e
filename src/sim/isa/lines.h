// SPDX-License-Identifier: MIT
//
// Source lines of a code object that was compiled with -g or -gline-tables-only: the line programs
// of .debug_line, DWARF 4 and 5, as far as "which line is this address" needs. The bytes are
// untrusted: a malformed unit ends the reading, and what was read before it stays. Immutable after
// construction; any thread.
#ifndef MAINARCH_SIM_ISA_LINES_H_
#define MAINARCH_SIM_ISA_LINES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "sim/isa/memory.h"

namespace mainarch::sim::isa {

class LineTable {
 public:
  // Of a whole ELF file; without .debug_line the table is empty.
  explicit LineTable(absl::Span<const uint8_t> elf);

  bool empty() const { return rows_.empty(); }
  // "file.cc:12" of an address in the object; "" when nothing is known.
  std::string Find(uint64_t va) const;
  // The same of a program counter, if it lies in this very object somewhere in device memory.
  std::string FindLoaded(Memory* memory, uint64_t pc) const;

 private:
  struct Row {
    uint64_t address = 0;
    uint32_t file = 0, line = 0;  // line 0: the sequence ends here
  };
  struct Unit;
  bool ReadUnit(absl::Span<const uint8_t>* bytes);
  bool ReadNames(Unit* unit);
  void Run(Unit* unit);
  std::string Name(const Unit& unit, uint64_t form, bool* ok, absl::Span<const uint8_t>* in) const;

  static constexpr size_t kHeader = 64;
  std::array<uint8_t, kHeader> header_ = {};
  absl::Span<const uint8_t> strings_, line_strings_;  // while reading
  std::vector<std::string> files_;
  std::vector<Row> rows_;  // by address
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_LINES_H_
