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
    for (LaneCode lanes : {LaneCode::kPortable, LaneCode::kAvx512}) {
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

// Implemented and exercised by whole kernels, but without a vector of its own. To shrink, not to
// grow.
constexpr const char* kWithoutVectors[] = {
    "s_call_b64",        "s_getpc_b64",      "s_getreg_b32",      "s_set_gpr_idx_idx",
    "s_set_gpr_idx_on",  "s_setpc_b64",      "s_setreg_b32",      "s_setreg_imm32_b32",
    "s_setvskip",        "s_swappc_b64",     "v_cos_f16",         "v_cubema_f32",
    "v_cubeid_f32",      "v_rcp_iflag_f32",  "v_cubesc_f32",      "v_cubetc_f32",
    "v_cvt_sr_bf16_f32", "v_cvt_sr_f16_f32", "v_div_fixup_f16",   "v_div_fixup_legacy_f16",
    "v_div_fmas_f32",    "v_div_fmas_f64",   "v_div_scale_f32",   "v_div_scale_f64",
    "v_dot2_f32_bf16",   "v_exp_legacy_f32", "v_log_legacy_f32",  "v_mac_f16",
    "v_mad_f16",         "v_mad_legacy_f16", "v_madak_f16",       "v_madmk_f16",
    "v_med3_f16",        "v_mqsad_u32_u8",   "v_pk_maximum3_f16", "v_pk_minimum3_f16",
    "v_sin_f16",         "v_trig_preop_f64",
};

// The tests that work by rule: every mnemonic of these kinds is asked for its meaning by name.
// Written, but no part of the build yet: what they cover is counted by itself.
bool RunsNotYet(absl::string_view test) { return test == "memory_test" || test == "matrix_test"; }

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
    case Family::kSopp:
      return "kernels";  // branches, waits, barriers: nothing to compute
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
  std::set<std::string> not_yet;
  std::set<std::string> listed;
  for (const auto& vectors :
       {IntegerVectors(), FloatVectors(), ConversionVectors(), MoreVectors()}) {
    for (const Vector& v : vectors) listed.insert(v.name);
  }
  for (const ScalarVector& v : ScalarVectors()) listed.insert(v.name);
  for (const std::string& name : StateNames()) listed.insert(name);
  const std::set<std::string> gaps(std::begin(kWithoutVectors), std::end(kWithoutVectors));
  struct Count {
    std::set<std::string> implemented, vectored;
  };
  std::map<std::string, Count> families;
  std::set<std::string> uncovered, stale;
  const InstructionSet sets[] = {InstructionSet(Isa::kGfx942, LaneCode::kPortable),
                                 InstructionSet(Isa::kGfx950, LaneCode::kPortable)};
  for (const OpRow& row : Rows()) {
    const InstructionSet& set = sets[row.isas & static_cast<int>(Isa::kGfx950) ? 1 : 0];
    if (set.Find(row) == nullptr) continue;
    Count& count = families[std::string(FamilyName(row.family))];
    count.implemented.insert(row.name);
    const bool vectored = ByRule(row) != nullptr || listed.count(row.name) != 0;
    if (ByRule(row) != nullptr && RunsNotYet(ByRule(row))) {
      not_yet.insert(row.name);
    } else if (vectored) {
      count.vectored.insert(row.name);
    }
    if (!vectored && gaps.count(row.name) == 0) uncovered.insert(row.name);
    if (vectored && gaps.count(row.name) != 0) stale.insert(row.name);
  }
  size_t implemented = 0, vectored = 0;
  for (const auto& [family, count] : families) {
    std::cout << "# " << family << ": " << count.implemented.size() << " mnemonics, "
              << count.vectored.size() << " with vectors\n";
    implemented += count.implemented.size();
    vectored += count.vectored.size();
  }
  std::cout << "# all: " << implemented << " implemented, " << vectored << " with vectors, "
            << not_yet.size() << " in memory_test and matrix_test, which do not run yet, "
            << gaps.size() << " known to have none\n";
  for (const std::string& name : uncovered) std::cout << "# no vector: " << name << "\n";
  for (const std::string& name : stale) std::cout << "# has a vector now: " << name << "\n";
  CHECK(uncovered.empty());
  CHECK(stale.empty());
}

}  // namespace
}  // namespace mainarch::sim::isa::test
