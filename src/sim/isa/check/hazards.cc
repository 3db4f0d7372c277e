// SPDX-License-Identifier: MIT
#include "sim/isa/check/hazards.h"

#include <cstddef>

namespace mainarch::sim::isa {
namespace {

// Rows of ROCm/aiter's tuning tables with error ratio 0 are runs on silicon with right results.
constexpr char kUntried[] = "no kernel with a measured result breaks it";

constexpr HazardRule kRules[] = {
    {Hazard::kTransResult, "trans-result",
     "a transcendental's result is used by another kind of VALU instruction", "1", kAsDocumented,
     kUntried},
    {Hazard::kSelectedResult, "selected-result", "a result with dst_sel or op_sel is used", "1",
     kAsDocumented, kUntried},
    {Hazard::kPackedResult, "packed-result", "a packed result with op_sel_hi is used", "1", 0,
     "aiter: 16,376 places without; measured rows of 20 objects. LLVM counts op_sel_hi of packed "
     "instructions as a selected result; the manual names no such thing"},
    {Hazard::kSgprVmem, "sgpr-vmem", "VALU writes an SGPR that VMEM reads", "5", kAsDocumented,
     "aiter: 56 places with fewer, none in an object with measured rows"},
    {Hazard::kSgprValu, "sgpr-valu", "VALU writes an SGPR or VCC that VALU reads", "2", 0,
     "aiter: 288,564 places with fewer, 42,783 with none; measured rows of 79 objects"},
    {Hazard::kWideStoreData, "wide-store-data", "VALU overwrites the data of a wide store", "2",
     kAsDocumented, kUntried},
    {Hazard::kDppRead, "dpp-read", "a VGPR is written and DPP reads it", "2", 1,
     "aiter: 12,170 places with fewer; 49 measured rows of 5 objects have one state"},
    {Hazard::kExecDpp, "exec-dpp", "VALU writes EXEC before DPP", "5", kAsDocumented, kUntried},
    {Hazard::kPermlaneRead, "permlane-read", "VALU writes a VGPR that v_permlane reads", "2",
     kAsDocumented, "aiter: 157 places with fewer, none in an object with measured rows"},
    {Hazard::kExecPermlane, "exec-permlane", "v_cmpx writes EXEC before v_permlane", "4",
     kAsDocumented, kUntried},
    {Hazard::kVccDivFmas, "vcc-div-fmas", "VALU writes VCC that v_div_fmas reads", "4",
     kAsDocumented, kUntried},
    {Hazard::kLaneSelect, "lane-select", "VALU writes an SGPR that selects the lane", "4",
     kAsDocumented, kUntried},
    {Hazard::kReadlaneRead, "readlane-read", "VALU writes a VGPR that v_readlane reads", "1",
     kAsDocumented, kUntried},
    {Hazard::kExecLane, "exec-lane", "VALU writes EXEC before v_readlane or v_writelane", "4",
     kAsDocumented, kUntried},
    {Hazard::kSetreg, "setreg", "s_setreg, then s_getreg or s_setreg of the same register", "2",
     kAsDocumented, kUntried},
    {Hazard::kM0Message, "m0-message", "SALU writes M0 and a message or movrel reads it", "1",
     kAsDocumented, kUntried},
    {Hazard::kM0LdsDma, "m0-lds-dma", "SALU writes M0 and LDS-DMA reads it", "1", 0,
     "aiter: 46,252 places without; measured rows of more than 104 objects"},
    {Hazard::kDotResult, "dot-result", "another instruction uses a dot product's result", "3",
     kAsDocumented, kUntried},
    {Hazard::kDotFactor, "dot-factor", "a dot product multiplies a dot product's result", "3",
     kAsDocumented, kUntried},
    {Hazard::kMatrixF64Read, "matrix-f64-read", "the result of an f64 MFMA is read",
     "6 to 19, by passes and reader", kAsDocumented, kUntried},
    {Hazard::kMatrixF64Overwrite, "matrix-f64-overwrite",
     "the result of an f64 MFMA is overwritten", "6 or 11", kAsDocumented, kUntried},
    {Hazard::kMatrixReadValu, "matrix-read-valu", "the result of an MFMA is read by VALU",
     "passes + 2 to 4", 2,
     "aiter: 7,956 places with fewer; 589 measured rows of fp8gemm have 2 where 7 or 8 are asked. "
     "An interlock, it seems, so not only for those passes"},
    {Hazard::kMatrixReadMemory, "matrix-read-memory",
     "the result of an MFMA is read by a memory instruction", "passes + 2 to 4", kAsDocumented,
     kUntried},
    {Hazard::kMatrixOverwriteValu, "matrix-overwrite-valu",
     "the result of an MFMA is overwritten by VALU", "passes + 2 to 4", 2,
     "aiter: 784 places with fewer; 6 measured rows of 2 objects read and overwrite in one "
     "instruction"},
    {Hazard::kMatrixOverwriteMemory, "matrix-overwrite-memory",
     "the result of an MFMA is overwritten by a load", "passes + 2 to 4", kAsDocumented, kUntried},
    {Hazard::kMatrixSrcC, "matrix-srcc", "the SrcC of an MFMA is overwritten", "passes - 1",
     kAsDocumented, kUntried},
    {Hazard::kExecMatrix, "exec-matrix", "VALU writes EXEC before an MFMA", "4", kAsDocumented,
     kUntried},
    {Hazard::kValuMatrix, "valu-matrix", "VALU writes a VGPR that an MFMA reads", "2",
     kAsDocumented, "aiter: 134 places with fewer, none in an object with measured rows"},
    {Hazard::kMatrixFactor, "matrix-factor", "an MFMA multiplies the result of an MFMA",
     "passes + 2 to 4; f64: 6 to 19", kAsDocumented, kUntried},
    {Hazard::kMatrixAddend, "matrix-addend", "an MFMA adds to part of the result of an MFMA",
     "2 to 18, by kind and passes", kAsDocumented, kUntried},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < std::size(kRules); ++i) {
    if (kRules[i].hazard != static_cast<Hazard>(i)) return false;
  }
  return std::size(kRules) == static_cast<size_t>(Hazard::kCount);
}
static_assert(InOrder());

}  // namespace

const char kHazardSource[] =
    "CDNA3 and CDNA4 manuals, 4.5 (manually inserted wait states) and 7 (matrix dependences), as "
    "LLVM's "
    "GCNHazardRecognizer counts them";

absl::Span<const HazardRule> HazardRules() { return kRules; }
const HazardRule& RuleOf(Hazard hazard) { return kRules[static_cast<size_t>(hazard)]; }

}  // namespace mainarch::sim::isa
