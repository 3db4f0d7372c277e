// SPDX-License-Identifier: MIT
#include "base/status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"

namespace mainarch {
namespace {

constexpr absl::string_view kCodeUrl = "mainarch/code";
constexpr absl::string_view kErrnoUrl = "mainarch/errno";
constexpr absl::string_view kDeviceUrl = "mainarch/device";

absl::StatusCode NearestAbslCode(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kBufferTooSmall:
      return absl::StatusCode::kInvalidArgument;
    case Code::kUnsupported:
      return absl::StatusCode::kUnimplemented;
    case Code::kNotFound:
    case Code::kNoDevice:
      return absl::StatusCode::kNotFound;
    case Code::kBusy:
    case Code::kWrongProcess:
      return absl::StatusCode::kFailedPrecondition;
    case Code::kCancelled:
      return absl::StatusCode::kCancelled;
    case Code::kOutOfHostMemory:
    case Code::kOutOfDeviceMemory:
    case Code::kKvFull:
      return absl::StatusCode::kResourceExhausted;
    case Code::kBadModel:
      return absl::StatusCode::kDataLoss;
    case Code::kPermission:
      return absl::StatusCode::kPermissionDenied;
    case Code::kDeviceLost:
    case Code::kIo:
      return absl::StatusCode::kUnavailable;
    case Code::kTimedOut:
      return absl::StatusCode::kDeadlineExceeded;
    default:
      return absl::StatusCode::kInternal;
  }
}

int64_t ReadNumber(const Status& status, absl::string_view url, int64_t otherwise) {
  auto payload = status.GetPayload(url);
  int64_t value = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &value)) return otherwise;
  return value;
}

void WriteNumber(Status* status, absl::string_view url, int64_t value) {
  status->SetPayload(url, absl::Cord(absl::StrCat(value)));
}

}  // namespace

Status MakeError(Code code, absl::string_view message) {
  Status status(NearestAbslCode(code), message);
  WriteNumber(&status, kCodeUrl, static_cast<int32_t>(code));
  return status;
}

Status MakeErrnoError(Code code, int err, absl::string_view message) {
  char buffer[128];
  // The GNU strerror_r may return a static string instead of filling the buffer.
  const char* text = strerror_r(err, buffer, sizeof(buffer));
  Status status = MakeError(code, absl::StrCat(message, ": ", text));
  WriteNumber(&status, kErrnoUrl, err);
  return status;
}

Status WithContext(const Status& status, absl::string_view context) {
  if (status.ok()) return status;
  Status out(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& value) { out.SetPayload(url, value); });
  return out;
}

Status WithDevice(const Status& status, uint32_t device) {
  Status out = status;
  if (!out.ok()) WriteNumber(&out, kDeviceUrl, device);
  return out;
}

Code CodeOf(const Status& status) {
  if (status.ok()) return Code::kOk;
  return static_cast<Code>(ReadNumber(status, kCodeUrl, static_cast<int32_t>(Code::kInternal)));
}

int ErrnoOf(const Status& status) { return static_cast<int>(ReadNumber(status, kErrnoUrl, 0)); }

uint32_t DeviceOf(const Status& status) {
  return static_cast<uint32_t>(ReadNumber(status, kDeviceUrl, kNoDeviceIndex));
}

}  // namespace mainarch
