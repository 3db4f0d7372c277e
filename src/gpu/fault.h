// SPDX-License-Identifier: MIT
//
// What the driver and the command processor say when something goes wrong, as one line that a
// person can act on. Pure functions.
#ifndef MAINARCH_GPU_FAULT_H_
#define MAINARCH_GPU_FAULT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "kfd/uapi/kfd_ioctl.h"

namespace mainarch::gpu {

// `where` tells what lies at the address ("12 bytes past the end of weights …").
std::string DescribeMemoryFault(const kfd::uapi::MemoryExceptionData& fault,
                                absl::string_view device, absl::string_view where);
std::string DescribeHwException(const kfd::uapi::HwExceptionData& exception,
                                absl::string_view device);

// The value that the command processor stores in a queue's error signal.
std::string DescribeQueueError(uint64_t value);
// Whether that value stops the queue. Where the driver tells exceptions by itself
// (`exceptions_told`), a value without any known error is none: AMD's runtime clears it and goes
// on.
bool StopsQueue(uint64_t value, bool exceptions_told);
// The mask that the driver stores in a queue's error payload (RUNTIME_ENABLE).
std::string DescribeQueueExceptions(uint64_t mask);

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_FAULT_H_
