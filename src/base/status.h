// SPDX-License-Identifier: MIT
//
// Errors inside the library: a code, a message, the errno of the system call that failed and the
// index of the device concerned. Nothing prints; api/call.h turns a Status into a mainarch_status
// and a mainarch_error, once.
//
// Not Abseil's: its Status brings twenty shared objects (cords, their tracing, mutexes, time zones)
// that every host would load, at half of what dlopen of this library took.
//
// Threads: copies of a Status share what they say, and may be used by different threads.
#ifndef MAINARCH_BASE_STATUS_H_
#define MAINARCH_BASE_STATUS_H_

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace mainarch {

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

// Done, or an error. A moved-from Status is done.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(const Status& other) noexcept;
  Status(Status&& other) noexcept : detail_(std::exchange(other.detail_, nullptr)) {}
  Status& operator=(Status other) noexcept {
    std::swap(detail_, other.detail_);
    return *this;
  }
  ~Status() {
    if (detail_ != nullptr) Release(detail_);
  }

  bool ok() const { return detail_ == nullptr; }
  absl::string_view message() const;  // "" when ok
  // Where an error changes nothing that follows.
  void IgnoreError() const {}

 private:
  friend Status MakeError(Code code, absl::string_view message);
  friend Status MakeErrnoError(Code code, int err, absl::string_view message);
  friend Status WithContext(const Status& status, absl::string_view context);
  friend Status WithDevice(const Status& status, uint32_t device);
  friend Code CodeOf(const Status& status);
  friend int ErrnoOf(const Status& status);
  friend uint32_t DeviceOf(const Status& status);

  struct Detail;
  explicit Status(Detail* detail) : detail_(detail) {}
  static void Release(Detail* detail);

  Detail* detail_ = nullptr;  // shared by copies, counted; nullptr: done
};

inline Status OkStatus() { return Status(); }

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
int ErrnoOf(const Status& status);        // 0 when no system call failed
uint32_t DeviceOf(const Status& status);  // kNoDeviceIndex when none is concerned

// Throws std::logic_error with the message: somebody took a value that is not there.
[[noreturn]] void ThrowNoValue(const Status& status);

// A value, or why there is none.
template <class T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status)  // NOLINT: `return status;`
      : status_(status.ok() ? MakeError(Code::kInternal, "a status that is ok is no value")
                            : std::move(status)) {}
  template <class U = T>
    requires(std::is_constructible_v<T, U &&> && !std::same_as<std::remove_cvref_t<U>, Status> &&
             !std::same_as<std::remove_cvref_t<U>, StatusOr>)
  explicit(!std::is_convertible_v<U&&, T>) StatusOr(U&& value) : value_(std::forward<U>(value)) {}
  template <class U>
    requires(!std::same_as<U, T> && std::is_convertible_v<U &&, T>)
  StatusOr(StatusOr<U> other)  // NOLINT: of a derived class, say
      : status_(std::move(other.status_)), value_(std::move(other.value_)) {}

  bool ok() const { return status_.ok(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }

  // Only when ok.
  T& operator*() & { return Checked(), *value_; }
  const T& operator*() const& { return Checked(), *value_; }
  T&& operator*() && { return Checked(), *std::move(value_); }
  T* operator->() { return Checked(), &*value_; }
  const T* operator->() const { return Checked(), &*value_; }

 private:
  template <class U>
  friend class StatusOr;

  void Checked() const {
    if (!value_) ThrowNoValue(status_);
  }

  Status status_;
  std::optional<T> value_;
};

}  // namespace mainarch

#define MAINARCH_CONCAT_(a, b) a##b
#define MAINARCH_CONCAT(a, b) MAINARCH_CONCAT_(a, b)

#define RETURN_IF_ERROR(expr)                            \
  do {                                                   \
    ::mainarch::Status return_if_error_ = (expr);        \
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
