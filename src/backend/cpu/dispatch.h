// SPDX-License-Identifier: MIT
//
// Which kernel table this CPU runs.
#ifndef MAINARCH_BACKEND_CPU_DISPATCH_H_
#define MAINARCH_BACKEND_CPU_DISPATCH_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "backend/cpu/kernels.h"
#include "base/status.h"

namespace mainarch::cpu {

// The tables this CPU can run, best first. Portable is always among them, unless the build left it out.
std::vector<const Kernels*> UsableKernels();

// The table of that name, or the best for "". Unsupported names what the CPU lacks.
StatusOr<const Kernels*> ChooseKernels(absl::string_view target);

// What the processor calls its maker: "AuthenticAMD", "GenuineIntel", "Arm" (cores of Arm's own design); "" where it
// says nothing, or is another AArch64.
std::string CpuVendor();

// The name of the first processor in such a text as /proc/cpuinfo: as it is given, or, where there are numbers in its
// place (AArch64), what Arm calls a core that servers have, or these numbers.
std::string CpuNameOf(absl::string_view cpuinfo);

// Whether products with bf16 activations take less time than those with fp32. A matrix unit's do, by far.
// Dot products of vectors: AMD's issue at the rate of a multiply-add, of twice as many elements (Zen 4 and 5:
// bench's probe says 2.0). Intel's issue at half of that rate (one port of two, uops.info, VDPBF16PS of zmm),
// so nothing is won to pay for the rounding: 70 tokens/s against 90 on a Xeon of 2023. Arm's issue at the rate of
// a multiply-add (BFDOT of Neoverse V1, N2 and V2 in LLVM's models; not measured). Of others nothing is known.
// By names and not by a measurement: the same machine must give the same bits at every start.
bool RoundingIsFaster(const Kernels& kernels, absl::string_view vendor);

// How far ahead of what they read products fetch (MatmulArgs::near), and whether attention fetches so near, too
// (AttendArgs::fetch_next_page). Intel's own fetching stops at 4 KiB, and its first level has few buffers: on any of a
// Xeon's targets steps read at 70 to 89 % of what plain reads get, else at 55 to 79. Others were not measured: 0.
size_t NearBytes(absl::string_view vendor);

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_DISPATCH_H_
