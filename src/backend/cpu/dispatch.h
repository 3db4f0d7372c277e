// SPDX-License-Identifier: MIT
//
// Which kernel table this CPU runs.
#ifndef MAINARCH_BACKEND_CPU_DISPATCH_H_
#define MAINARCH_BACKEND_CPU_DISPATCH_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "backend/cpu/kernels.h"
#include "base/status.h"

namespace mainarch::cpu {

// The tables this CPU can run, best first. Portable is always among them, unless the build left it out.
std::vector<const Kernels*> UsableKernels();

// The table of that name, or the best for "". Unsupported names what the CPU lacks.
StatusOr<const Kernels*> ChooseKernels(absl::string_view target);

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_DISPATCH_H_
