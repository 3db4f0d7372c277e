// SPDX-License-Identifier: MIT
//
// What other processes have running on a GPU, as the driver's sysfs says it at this moment, process by process:
// proc/<pid>/stats_<gpu_id>/cu_occupancy, in kernels since the end of 2020 (kfd_get_cu_occupancy of kfd_process.c). The number is not of
// compute units that somebody is on, as its name has it: it is of waves, over the most that one unit holds, rounded up.
// So 1 may be one wave, or a wave on each of as many units as a unit holds waves. Where there are several XCCs the driver
// counts on the first and multiplies.
//
// The file is missing on older kernels and other generations, and may be unreadable in containers. Nothing in it is
// trusted: what is no small number counts as missing.
#ifndef MAINARCH_KFD_OCCUPANCY_H_
#define MAINARCH_KFD_OCCUPANCY_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "kfd/sys.h"

namespace mainarch::kfd {

struct OthersOnGpu {
  uint64_t units = 0;      // of waves, as above, all processes together
  uint32_t processes = 0;  // that have any
};

// Of all processes but this one. Nothing: it cannot be known here. One whose file is gone or makes no sense adds none.
std::optional<OthersOnGpu> ReadOthersOn(Sys& sys, uint32_t gpu_id);

// The text of the file. For tests and the fuzzer.
std::optional<uint32_t> ParseOccupancy(absl::string_view text);

}  // namespace mainarch::kfd

#endif  // MAINARCH_KFD_OCCUPANCY_H_
