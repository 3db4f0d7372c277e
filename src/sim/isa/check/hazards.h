// SPDX-License-Identifier: MIT
//
// The wait states that kernels have to insert: one row a rule, with what the documents ask, what
// production kernels show that hardware forgives, and the evidence for both. Two settings read the
// one table: *strict* asks what the documents ask, *known* no more than some kernel with right
// results on silicon keeps. Plain data.
#ifndef MAINARCH_SIM_ISA_CHECK_HAZARDS_H_
#define MAINARCH_SIM_ISA_CHECK_HAZARDS_H_

#include <cstdint>

#include "absl/types/span.h"

namespace mainarch::sim::isa {

enum class Hazard : uint8_t {
  kTransResult,
  kSelectedResult,
  kPackedResult,
  kSgprVmem,
  kSgprValu,
  kWideStoreData,
  kDppRead,
  kExecDpp,
  kPermlaneRead,
  kExecPermlane,
  kVccDivFmas,
  kLaneSelect,
  kReadlaneRead,
  kExecLane,
  kSetreg,
  kM0Message,
  kM0LdsDma,
  kDotResult,
  kDotFactor,
  kMatrixF64Read,
  kMatrixF64Overwrite,
  kMatrixReadValu,
  kMatrixReadMemory,
  kMatrixOverwriteValu,
  kMatrixOverwriteMemory,
  kMatrixSrcC,
  kExecMatrix,
  kValuMatrix,
  kMatrixFactor,
  kMatrixAddend,
  kCount,
};

inline constexpr int kAsDocumented = -1;

struct HazardRule {
  Hazard hazard;
  const char* name;    // in reports and lists
  const char* why;     // the sentence of a finding
  const char* states;  // as documented
  // Wait states that suffice in the setting *known*; kAsDocumented: nothing shows that fewer do.
  int known;
  const char* evidence;  // of `known`
};

// In the order of Hazard.
absl::Span<const HazardRule> HazardRules();
const HazardRule& RuleOf(Hazard hazard);
// Where all documented numbers come from.
extern const char kHazardSource[];

// What `states` documented ones are in a setting.
inline int StatesAsked(const HazardRule& rule, int states, bool known) {
  return known && rule.known != kAsDocumented && rule.known < states ? rule.known : states;
}

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_CHECK_HAZARDS_H_
