// SPDX-License-Identifier: MIT
//
// The fence of the C ABI: a body that returns Status or throws becomes a mainarch_status and a
// mainarch_error. No exception passes, save the unwinding of a cancelled thread (pthread_cancel),
// which must not be stopped. Every exported function that can fail is one Fence.
#ifndef MAINARCH_API_CALL_H_
#define MAINARCH_API_CALL_H_

#include <cxxabi.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "mainarch.h"

namespace mainarch::api {

// A status of 0 or above, or the Status of an error.
using Result = StatusOr<mainarch_status>;

// Fills `error`, if there is one, and gives the public code.
mainarch_status Fail(const Status& status, mainarch_error* error);
// The same for the exception being handled. Allocates nothing.
mainarch_status FailWithException(mainarch_error* error) noexcept;

template <class Body>
mainarch_status Fence(mainarch_error* error, Body&& body) {
  try {
    const Result result = body();
    if (result.ok()) return *result;
    return Fail(result.status(), error);
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return FailWithException(error);
  }
}

// InvalidArgument naming the argument when it is NULL.
Status NotNull(const void* argument, absl::string_view name);
// The same for an array: NULL is fine when nothing is in it.
Status NotNullArray(const void* array, size_t count, absl::string_view name);
// Unsupported when `flags` has a bit that is not in `known`.
Status CheckFlags(uint64_t flags, uint64_t known, absl::string_view where);

// The same for a field that has no meaning yet.
Status CheckReserved(uint64_t value, absl::string_view name);

// Arrays into buffers of the caller: the rule of mainarch.h.
Status CheckCapacity(size_t needed, size_t capacity, absl::string_view name);

template <class T>
Result CopyArray(absl::Span<const T> from, T* to, size_t capacity, size_t* count,
                 absl::string_view name) {
  *count = from.size();
  RETURN_IF_ERROR(CheckCapacity(from.size(), capacity, name));
  if (!from.empty()) std::memcpy(to, from.data(), from.size() * sizeof(T));
  return MAINARCH_OK;
}

// Text gets a zero byte behind it, which `length` does not count.
Result CopyText(absl::string_view from, char* to, size_t capacity, size_t* length);

// The checks that all functions with a buffer begin with; `*count` becomes 0.
Status CheckBuffer(const void* buffer, size_t capacity, absl::string_view name, size_t* count,
                   absl::string_view count_name);

// A string into a fixed array of an info struct, cut short if need be, zero-terminated.
template <size_t N>
void CopyName(absl::string_view from, char (&to)[N]) {
  const size_t length = from.size() < N ? from.size() : N - 1;
  std::memcpy(to, from.data(), length);
  std::memset(to + length, 0, N - length);
}

}  // namespace mainarch::api

#endif  // MAINARCH_API_CALL_H_
