// SPDX-License-Identifier: MIT
//
// Errors inside the library: absl::Status carrying one of our own codes, the errno of the system
// call that failed and the index of the device concerned. Nothing throws, nothing prints; api/call.h
// turns a Status into a mainarch_status and a mainarch_error, once.
#ifndef MAINARCH_BASE_STATUS_H_
#define MAINARCH_BASE_STATUS_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace mainarch {

using absl::Status;
using absl::StatusOr;

// The numbers are those of mainarch.h and never change (api/ asserts it).
enum class Code : int32_t {
  kOk = 0,
  kAgain = 1,
  kTimedOut = 2,
  kInternal = -1,
  kInvalidArgument = -2,
  kUnsupported = -3,
  kNotFound = -4,
  kBusy = -5,
  kBufferTooSmall = -6,
  kCancelled = -7,
  kOutOfHostMemory = -20,
  kOutOfDeviceMemory = -21,
  kKvFull = -22,
  kIo = -40,
  kBadModel = -41,
  kNoDevice = -60,
  kPermission = -61,
  kDeviceLost = -62,
  kWrongProcess = -63,
};

inline constexpr uint32_t kNoDeviceIndex = UINT32_MAX;

// An error with a one-line, lower-case message that carries the numbers: file, field, value, limit.
Status MakeError(Code code, absl::string_view message);

template <class... Parts>
Status Error(Code code, const Parts&... parts) {
  return MakeError(code, absl::StrCat(parts...));
}

// An error of a system call: appends ": " and the text of `err`, and keeps `err` itself.
Status MakeErrnoError(Code code, int err, absl::string_view message);

template <class... Parts>
Status ErrnoError(Code code, int err, const Parts&... parts) {
  return MakeErrnoError(code, err, absl::StrCat(parts...));
}

// Prefixes the message, keeping code, errno and device.
Status WithContext(const Status& status, absl::string_view context);
Status WithDevice(const Status& status, uint32_t device);

Code CodeOf(const Status& status);
int ErrnoOf(const Status& status);          // 0 when no system call failed
uint32_t DeviceOf(const Status& status);    // kNoDeviceIndex when none is concerned

}  // namespace mainarch

#define MAINARCH_CONCAT_(a, b) a##b
#define MAINARCH_CONCAT(a, b) MAINARCH_CONCAT_(a, b)

#define RETURN_IF_ERROR(expr)                          \
  do {                                                 \
    ::mainarch::Status return_if_error_ = (expr);      \
    if (!return_if_error_.ok()) return return_if_error_; \
  } while (0)

// ASSIGN_OR_RETURN(auto x, F()): declares or assigns x from a StatusOr, or returns its error.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_(MAINARCH_CONCAT(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                      \
  if (!tmp.ok()) return tmp.status();     \
  lhs = *std::move(tmp)

#endif  // MAINARCH_BASE_STATUS_H_
