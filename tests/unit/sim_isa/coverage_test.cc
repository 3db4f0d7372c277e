// SPDX-License-Identifier: MIT
//
// How much of each ISA the interpreter implements, and where its semantics come from: a summary of
// the descriptors. What is missing is listed, so that losing an instruction shows.
#include <iostream>
#include <map>
#include <set>
#include <string>

#include "sim/isa/program.h"
#include "support/test.h"

namespace mainarch::sim::isa::test {
namespace {

TEST(implemented_instructions) {
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    for (LaneCode lanes : {LaneCode::kPortable, LaneCode::kAvx512}) {
      const InstructionSet set(isa, lanes);
      int rows = 0, implemented = 0;
      std::set<std::string> missing;
      std::map<Origin, int> origins;
      for (const OpRow& row : Rows()) {
        if (!(row.isas & static_cast<int>(isa))) continue;
        ++rows;
        const Descriptor* d = set.Find(row);
        if (d == nullptr) {
          missing.insert(row.name);
          continue;
        }
        ++implemented;
        ++origins[d->origin];
      }
      if (lanes == LaneCode::kPortable) {
        std::cout << "# " << (isa == Isa::kGfx942 ? "gfx942" : "gfx950") << ": " << implemented
                  << " of " << rows << " encodings; by manual " << origins[Origin::kManual]
                  << ", llvm " << origins[Origin::kLlvm] << ", paper " << origins[Origin::kPaper]
                  << ", assumed " << origins[Origin::kAssumed] << "; missing:";
        for (const std::string& name : missing) std::cout << " " << name;
        std::cout << "\n";
      }
      CHECK_LE(1270, implemented);
    }
  }
}

}  // namespace
}  // namespace mainarch::sim::isa::test
