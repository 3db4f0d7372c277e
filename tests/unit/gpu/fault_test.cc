// SPDX-License-Identifier: MIT
#include "gpu/fault.h"

#include "absl/strings/match.h"
#include "support/test.h"

namespace mainarch::gpu {
namespace {

namespace uapi = kfd::uapi;

TEST(a_memory_fault_is_one_line) {
  uapi::MemoryExceptionData fault = {};
  fault.va = 0x7f1200000000;
  fault.failure.not_present = 1;
  const std::string line = DescribeMemoryFault(fault, "gpu 3 (gfx950)", "near \"weights\"");
  CHECK(
      absl::StartsWith(line, "gpu 3 (gfx950): memory fault at 0x7f1200000000 (not mapped), near"));
  CHECK(!absl::StrContains(line, "\n"));
  fault.failure = {0, 1, 1, 1};
  CHECK(absl::StrContains(DescribeMemoryFault(fault, "g", "w"),
                          "(write to read-only memory, execution of data, imprecise)"));
  fault.failure = {};
  CHECK(absl::StrContains(DescribeMemoryFault(fault, "g", "w"), "reason not given"));
  fault.error_type = uapi::kMemoryErrorPoisonConsumed;
  CHECK(absl::StrContains(DescribeMemoryFault(fault, "g", "w"), "poisoned data was read"));
  fault.error_type = uapi::kMemoryErrorSramEcc;
  CHECK(absl::StrContains(DescribeMemoryFault(fault, "g", "w"), "SRAM ECC"));
}

TEST(a_reset_says_whether_memory_is_lost) {
  uapi::HwExceptionData exception = {};
  exception.memory_lost = 1;
  CHECK(absl::StrContains(DescribeHwException(exception, "g"),
                          "reset the GPU after a hang; what was in its memory is lost"));
  exception = {uapi::kResetTypePerEngine, uapi::kResetCauseEcc, 0, 1};
  const std::string line = DescribeHwException(exception, "g");
  CHECK(absl::StrContains(line, "an engine of the GPU after an ECC error"));
  CHECK(!absl::StrContains(line, "lost"));
}

TEST(queue_errors_by_bit) {
  CHECK_EQ(DescribeQueueError(0x40), "workgroup is too large");
  CHECK(absl::StrContains(DescribeQueueError(0x1), "wave64"));
  CHECK(absl::StrContains(DescribeQueueError(0x401), "wave32"));
  CHECK(!absl::StrContains(DescribeQueueError(0x401), "wave64"));
  CHECK(absl::StrContains(DescribeQueueError(0x20 | 0x8), ", "));
  CHECK_EQ(DescribeQueueError(0x40000000), "illegal instruction");
  CHECK_EQ(DescribeQueueError(0x1000), "unknown error 0x1000");
}

// AMD's runtime clears values that it does not know when the driver tells exceptions apart.
TEST(only_known_errors_stop_a_queue_whose_exceptions_are_told) {
  CHECK(!StopsQueue(0, false));
  CHECK(!StopsQueue(0, true));
  CHECK(StopsQueue(0x10, false));
  CHECK(!StopsQueue(0x10, true));
  for (uint64_t error : {0x1u, 0x20u, 0x401u, 0x40000000u, 0x30u}) {
    CHECK(StopsQueue(error, false));
    CHECK(StopsQueue(error, true));
  }
}

TEST(exceptions_by_code) {
  CHECK_EQ(DescribeQueueExceptions(uint64_t{1} << 3), "illegal instruction");
  CHECK_EQ(DescribeQueueExceptions(uint64_t{1} << 33), "hardware error (RAS)");
  CHECK_EQ(DescribeQueueExceptions(uint64_t{1} << 50), "unknown exceptions 0x4000000000000");
}

}  // namespace
}  // namespace mainarch::gpu
