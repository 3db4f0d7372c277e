// SPDX-License-Identifier: MIT
//
// How much of each ISA the interpreter implements, where its semantics come from, and which of it
// has vectors of its own: independent expectations over edge values and random ones. What is
// missing is listed, so that losing an instruction, or adding one without a vector, shows.
#include <iostream>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "sim/isa/absent.h"
#include "sim/isa/program.h"
#include "support/test.h"
#include "unit/sim_isa/vectors.h"

namespace mainarch::sim::isa::test {
namespace {

TEST(implemented_instructions) {
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    for (LaneCode lanes : {LaneCode::kPortable, LaneCode::kAvx2, LaneCode::kAvx512}) {
      const InstructionSet set(isa, lanes);
      int rows = 0, implemented = 0, absent = 0;
      std::set<std::string> missing;
      std::map<Origin, int> origins;
      for (const OpRow& row : Rows()) {
        if (!(row.isas & static_cast<int>(isa))) continue;
        ++rows;
        const Descriptor* d = set.Find(row);
        if (d == nullptr) {
          ++absent;
          if (WhyAbsent(row) == nullptr) missing.insert(row.name);
          continue;
        }
        CHECK(WhyAbsent(row) == nullptr);
        ++implemented;
        ++origins[d->origin];
      }
      if (lanes == LaneCode::kPortable) {
        std::cout << "# " << (isa == Isa::kGfx942 ? "gfx942" : "gfx950") << ": " << implemented
                  << " of " << rows << " encodings, " << absent
                  << " that the chip does not have; by manual " << origins[Origin::kManual]
                  << ", llvm " << origins[Origin::kLlvm] << ", paper " << origins[Origin::kPaper]
                  << ", assumed " << origins[Origin::kAssumed] << "; missing:";
        for (const std::string& name : missing) std::cout << " " << name;
        std::cout << "\n";
      }
      CHECK(missing.empty());
    }
  }
}

// The tests that work by rule: every mnemonic of these kinds is asked for its meaning by name, and
// each of these tests fails when an instruction of its kinds was not run.
const char* ByRule(const OpRow& row) {
  const absl::string_view name = row.name;
  switch (row.family) {
    case Family::kDs:
    case Family::kFlat:
    case Family::kGlobal:
    case Family::kScratch:
    case Family::kMubuf:
    case Family::kMtbuf:
    case Family::kSmem:
      return "memory_test";
    default:
      break;
  }
  if (absl::StrContains(name, "mfma") || absl::StrContains(name, "smfmac")) return "matrix_test";
  if (absl::StartsWith(name, "v_cmp") && !absl::StrContains(name, "class")) return "vectors_test";
  if (absl::StartsWith(name, "v_cvt_")) {
    for (const char* small : {"fp8", "bf8", "fp6", "bf6", "fp4"}) {
      if (absl::StrContains(name, small)) return "convert_test";
    }
  }
  return nullptr;
}

TEST(vectors_of_every_instruction) {
  std::set<std::string> listed;
  for (const auto& vectors :
       {IntegerVectors(), FloatVectors(), ConversionVectors(), MoreVectors(), RareVectors()}) {
    for (const Vector& v : vectors) listed.insert(v.name);
  }
  for (const ScalarVector& v : ScalarVectors()) listed.insert(v.name);
  for (const std::string& name : StateNames()) listed.insert(name);
  for (const std::string& name : FlowNames()) listed.insert(name);
  struct Count {
    std::set<std::string> implemented, vectored;
  };
  std::map<std::string, Count> families;
  std::set<std::string> uncovered;
  const InstructionSet sets[] = {InstructionSet(Isa::kGfx942, LaneCode::kPortable),
                                 InstructionSet(Isa::kGfx950, LaneCode::kPortable)};
  for (const OpRow& row : Rows()) {
    const InstructionSet& set = sets[row.isas & static_cast<int>(Isa::kGfx950) ? 1 : 0];
    if (set.Find(row) == nullptr) continue;
    Count& count = families[std::string(FamilyName(row.family))];
    count.implemented.insert(row.name);
    const bool vectored = ByRule(row) != nullptr || listed.count(row.name) != 0;
    (vectored ? count.vectored : uncovered).insert(row.name);
  }
  size_t implemented = 0, vectored = 0;
  for (const auto& [family, count] : families) {
    std::cout << "# " << family << ": " << count.implemented.size() << " mnemonics, "
              << count.vectored.size() << " with vectors\n";
    implemented += count.implemented.size();
    vectored += count.vectored.size();
  }
  std::cout << "# all: " << implemented << " implemented, " << vectored << " with vectors\n";
  for (const std::string& name : uncovered) std::cout << "# no vector: " << name << "\n";
  CHECK(uncovered.empty());
}

}  // namespace
}  // namespace mainarch::sim::isa::test
