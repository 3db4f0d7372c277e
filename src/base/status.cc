// SPDX-License-Identifier: MIT
#include "base/status.h"

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>

namespace mainarch {

struct Status::Detail {
  Detail(Code code, std::string message, int err, uint32_t device)
      : code(code), err(err), device(device), message(std::move(message)) {}

  mutable std::atomic<int32_t> owners{1};
  const Code code;
  const int err;
  const uint32_t device;
  const std::string message;
};

Status::Status(const Status& other) noexcept : detail_(other.detail_) {
  if (detail_ != nullptr) detail_->owners.fetch_add(1, std::memory_order_relaxed);
}

void Status::Release(Detail* detail) {
  if (detail->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete detail;
}

absl::string_view Status::message() const {
  return ok() ? absl::string_view() : absl::string_view(detail_->message);
}

Status MakeError(Code code, absl::string_view message) {
  return Status(new Status::Detail(code, std::string(message), 0, kNoDeviceIndex));
}

Status MakeErrnoError(Code code, int err, absl::string_view message) {
  char buffer[128];
  // The GNU strerror_r may return a static string instead of filling the buffer.
  const char* text = strerror_r(err, buffer, sizeof(buffer));
  return Status(new Status::Detail(code, absl::StrCat(message, ": ", text), err, kNoDeviceIndex));
}

Status WithContext(const Status& status, absl::string_view context) {
  if (status.ok()) return status;
  const Status::Detail& of = *status.detail_;
  return Status(
      new Status::Detail(of.code, absl::StrCat(context, ": ", of.message), of.err, of.device));
}

Status WithDevice(const Status& status, uint32_t device) {
  if (status.ok()) return status;
  const Status::Detail& of = *status.detail_;
  return Status(new Status::Detail(of.code, of.message, of.err, device));
}

Code CodeOf(const Status& status) { return status.ok() ? Code::kOk : status.detail_->code; }

int ErrnoOf(const Status& status) { return status.ok() ? 0 : status.detail_->err; }

uint32_t DeviceOf(const Status& status) {
  return status.ok() ? kNoDeviceIndex : status.detail_->device;
}

void ThrowNoValue(const Status& status) {
  throw std::logic_error(absl::StrCat("no value: ", status.message()));
}

}  // namespace mainarch
