// SPDX-License-Identifier: MIT
#include "gpu/fault.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mainarch::gpu {
namespace {

namespace uapi = kfd::uapi;

struct NamedBit {
  uint64_t bit;
  const char* text;
};

constexpr NamedBit kQueueErrors[] = {
    {0x1, "scratch for this kernel exceeds what the queue was given (wave64)"},
    {0x2, "workgroup or grid dimensions are invalid"},
    {0x4, "more LDS than a workgroup may have"},
    {0x8, "kernel object is null"},
    {0x20, "packet type is invalid"},
    {0x40, "workgroup is too large"},
    {0x80, "kernel needs more vector registers than there are"},
    {0x100, "vendor packet is not supported"},
    {0x200, "large scratch must be reclaimed"},
    {0x400, "scratch for this kernel exceeds what the queue was given (wave32)"},
    {0x20000000, "access outside of the aperture"},
    {0x40000000, "illegal instruction"},
    {0x80000000, "trap instruction"},
};

// Bit number is the driver's exception code minus one.
constexpr NamedBit kExceptions[] = {
    {1, "wave abort"},
    {2, "wave trap"},
    {3, "math error"},
    {4, "illegal instruction"},
    {5, "memory violation of a wave"},
    {6, "aperture violation of a wave"},
    {16, "dispatch dimensions are invalid"},
    {17, "group segment size is invalid"},
    {18, "code object is invalid"},
    {19, "packet is reserved"},
    {20, "packet is not supported"},
    {21, "workgroup size is invalid"},
    {22, "registers are invalid"},
    {23, "vendor packet is not supported"},
    {30, "preemption error"},
    {33, "memory violation of the device"},
    {34, "hardware error (RAS)"},
};

std::string Unknown(absl::string_view what, uint64_t value) {
  return absl::StrCat("unknown ", what, " 0x", absl::Hex(value));
}

}  // namespace

std::string DescribeMemoryFault(const uapi::MemoryExceptionData& fault, absl::string_view device,
                                absl::string_view where) {
  if (fault.error_type == uapi::kMemoryErrorSramEcc ||
      fault.error_type == uapi::kMemoryErrorPoisonConsumed) {
    return absl::StrCat(
        device, ": uncorrectable memory error (",
        fault.error_type == uapi::kMemoryErrorSramEcc ? "SRAM ECC" : "poisoned data was read",
        ") near 0x", absl::Hex(fault.va),
        "; results since the last good step are void: restart the process, and have the card "
        "examined if it happens again");
  }
  std::vector<absl::string_view> reasons;
  if (fault.failure.not_present) reasons.push_back("not mapped");
  if (fault.failure.read_only) reasons.push_back("write to read-only memory");
  if (fault.failure.no_execute) reasons.push_back("execution of data");
  if (reasons.empty()) reasons.push_back("reason not given");
  if (fault.error_type == uapi::kMemoryErrorHang) reasons.push_back("hang");
  return absl::StrCat(device, ": memory fault at 0x", absl::Hex(fault.va), " (",
                      absl::StrJoin(reasons, ", "), fault.failure.imprecise ? ", imprecise" : "",
                      "), ", where,
                      "; its queues are stopped for good: close and open the group again, and "
                      "report this line, it is a bug of a kernel or of an address it was given");
}

std::string DescribeHwException(const uapi::HwExceptionData& exception, absl::string_view device) {
  return absl::StrCat(
      device, ": the driver reset ",
      exception.reset_type == uapi::kResetTypeWholeGpu ? "the GPU" : "an engine of the GPU",
      exception.reset_cause == uapi::kResetCauseEcc ? " after an ECC error" : " after a hang",
      exception.memory_lost ? "; what was in its memory is lost" : "",
      "; restart the process (the kernel log says what hung)");
}

std::string DescribeQueueError(uint64_t value) {
  std::vector<std::string> parts;
  uint64_t rest = value;
  for (const NamedBit& error : kQueueErrors) {
    if ((rest & error.bit) == 0) continue;
    parts.push_back(error.text);
    rest &= ~error.bit;
  }
  // 0x401 is one code of its own: wave32 scratch.
  if ((value & 0x401) == 0x401) parts.erase(parts.begin());
  if (rest != 0 || parts.empty()) parts.push_back(Unknown("error", value));
  return absl::StrJoin(parts, ", ");
}

bool StopsQueue(uint64_t value, bool exceptions_told) {
  if (!exceptions_told) return value != 0;
  for (const NamedBit& error : kQueueErrors) {
    if ((value & error.bit) != 0) return true;
  }
  return false;
}

std::string DescribeQueueExceptions(uint64_t mask) {
  std::vector<std::string> parts;
  uint64_t rest = mask;
  for (const NamedBit& exception : kExceptions) {
    const uint64_t bit = uint64_t{1} << (exception.bit - 1);
    if ((rest & bit) == 0) continue;
    parts.push_back(exception.text);
    rest &= ~bit;
  }
  if (rest != 0 || parts.empty()) parts.push_back(Unknown("exceptions", mask));
  return absl::StrJoin(parts, ", ");
}

}  // namespace mainarch::gpu
