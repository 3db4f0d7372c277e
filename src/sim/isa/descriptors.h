// SPDX-License-Identifier: MIT
//
// The descriptors of all instructions by mnemonic, put together from the families' tables.
#ifndef MAINARCH_SIM_ISA_DESCRIPTORS_H_
#define MAINARCH_SIM_ISA_DESCRIPTORS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "sim/isa/lanes.h"
#include "sim/isa/wave.h"

namespace mainarch::sim::isa {

using DescriptorMap = HashMap<absl::string_view, const Descriptor*>;

inline void AddAll(absl::Span<const Descriptor> table, DescriptorMap* map) {
  for (const Descriptor& d : table) (*map)[d.name] = &d;
}

// Of one table, compiled three times.
inline void AddAll(LaneCode code, absl::Span<const Descriptor> portable,
                   absl::Span<const Descriptor> avx2, absl::Span<const Descriptor> avx512,
                   DescriptorMap* map) {
  AddAll(code == LaneCode::kAvx512 ? avx512 : code == LaneCode::kAvx2 ? avx2 : portable, map);
}

// One a family. Vector families exist for each kind of lane code.
void AddValuInt(LaneCode code, DescriptorMap* map);
void AddValuFloat(LaneCode code, DescriptorMap* map);
void AddValuCvt(LaneCode code, DescriptorMap* map);
void AddVopc(LaneCode code, DescriptorMap* map);
void AddVop3p(LaneCode code, DescriptorMap* map);
void AddMfma(LaneCode code, DescriptorMap* map);
void AddSmfmac(LaneCode code, DescriptorMap* map);
void AddBufferFormat(DescriptorMap* map);
void AddValuRare(DescriptorMap* map);
void AddCross(DescriptorMap* map);
void AddScalar(DescriptorMap* map);
void AddFlow(DescriptorMap* map);
void AddSmem(DescriptorMap* map);
void AddDs(DescriptorMap* map);
void AddGws(DescriptorMap* map);
void AddVmem(DescriptorMap* map);

DescriptorMap AllDescriptors(LaneCode code);

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_DESCRIPTORS_H_
