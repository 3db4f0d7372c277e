// SPDX-License-Identifier: MIT
#include "api/call.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

namespace mainarch::api {
namespace {

static_assert(sizeof(mainarch_error) == 512);
static_assert(sizeof(size_t) == 8 && sizeof(void*) == 8, "struct layouts are those of 64 bits");

#define SAME_NUMBER(code, name) static_assert(static_cast<int32_t>(Code::code) == MAINARCH_##name)
SAME_NUMBER(kOk, OK);
SAME_NUMBER(kAgain, AGAIN);
SAME_NUMBER(kTimedOut, TIMED_OUT);
SAME_NUMBER(kInternal, ERROR_INTERNAL);
SAME_NUMBER(kInvalidArgument, ERROR_INVALID_ARGUMENT);
SAME_NUMBER(kUnsupported, ERROR_UNSUPPORTED);
SAME_NUMBER(kNotFound, ERROR_NOT_FOUND);
SAME_NUMBER(kBusy, ERROR_BUSY);
SAME_NUMBER(kBufferTooSmall, ERROR_BUFFER_TOO_SMALL);
SAME_NUMBER(kCancelled, ERROR_CANCELLED);
SAME_NUMBER(kOutOfHostMemory, ERROR_OUT_OF_HOST_MEMORY);
SAME_NUMBER(kOutOfDeviceMemory, ERROR_OUT_OF_DEVICE_MEMORY);
SAME_NUMBER(kKvFull, ERROR_KV_FULL);
SAME_NUMBER(kIo, ERROR_IO);
SAME_NUMBER(kBadModel, ERROR_BAD_MODEL);
SAME_NUMBER(kNoDevice, ERROR_NO_DEVICE);
SAME_NUMBER(kPermission, ERROR_PERMISSION);
SAME_NUMBER(kDeviceLost, ERROR_DEVICE_LOST);
SAME_NUMBER(kWrongProcess, ERROR_WRONG_PROCESS);
#undef SAME_NUMBER

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// One line: names from files may hold anything.
void CopyMessage(absl::string_view from, char (&to)[496]) {
  size_t length = from.size();
  if (length >= sizeof(to)) {
    length = sizeof(to) - 1;
    while (length > 0 && IsContinuation(from[length])) --length;
  }
  for (size_t i = 0; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(from[i]);
    to[i] = byte < 0x20 || byte == 0x7F ? '?' : from[i];
  }
  std::memset(to + length, 0, sizeof(to) - length);
}

mainarch_status Fill(mainarch_status code, int os_errno, uint32_t device, absl::string_view message,
                     mainarch_error* error) noexcept {
  if (error == nullptr) return code;
  error->status = code;
  error->os_errno = os_errno;
  error->device = device;
  error->reserved = 0;
  CopyMessage(message, error->message);
  return code;
}

}  // namespace

mainarch_status Fail(const Status& status, mainarch_error* error) {
  mainarch_status code = static_cast<mainarch_status>(CodeOf(status));
  // An error never looks like success.
  if (code >= 0) code = MAINARCH_ERROR_INTERNAL;
  return Fill(code, ErrnoOf(status), DeviceOf(status), status.message(), error);
}

mainarch_status FailWithException(mainarch_error* error) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Fill(MAINARCH_ERROR_OUT_OF_HOST_MEMORY, 0, kNoDeviceIndex, "out of host memory", error);
  } catch (const std::length_error&) {
    return Fill(MAINARCH_ERROR_OUT_OF_HOST_MEMORY, 0, kNoDeviceIndex,
                "out of host memory: more elements than an array can have", error);
  } catch (const std::system_error& thrown) {
    // What a thread or a lock could not get.
    return Fill(MAINARCH_ERROR_OUT_OF_HOST_MEMORY, thrown.code().value(), kNoDeviceIndex,
                thrown.what(), error);
  } catch (const std::exception& thrown) {
    return Fill(MAINARCH_ERROR_INTERNAL, 0, kNoDeviceIndex, thrown.what(), error);
  } catch (...) {
    return Fill(MAINARCH_ERROR_INTERNAL, 0, kNoDeviceIndex, "an exception of unknown type", error);
  }
}

Status NotNull(const void* argument, absl::string_view name) {
  if (argument != nullptr) return OkStatus();
  return Error(Code::kInvalidArgument, name, " is NULL");
}

Status NotNullArray(const void* array, size_t count, absl::string_view name) {
  if (array != nullptr || count == 0) return OkStatus();
  return Error(Code::kInvalidArgument, name, " is NULL, but has ", count, " elements");
}

Status CheckFlags(uint64_t flags, uint64_t known, absl::string_view where) {
  if ((flags & ~known) == 0) return OkStatus();
  return Error(Code::kUnsupported, where, ": flags 0x", absl::Hex(flags & ~known),
               " are not known to this version");
}

Status CheckReserved(uint64_t value, absl::string_view name) {
  if (value == 0) return OkStatus();
  return Error(Code::kUnsupported, name, " is ", value, ", and must be 0 for this version");
}

Status CheckCapacity(size_t needed, size_t capacity, absl::string_view name) {
  if (needed <= capacity) return OkStatus();
  return Error(Code::kBufferTooSmall, name, ": a capacity of ", needed, " is needed, not ",
               capacity);
}

Status CheckBuffer(const void* buffer, size_t capacity, absl::string_view name, size_t* count,
                   absl::string_view count_name) {
  RETURN_IF_ERROR(NotNull(count, count_name));
  *count = 0;
  if (buffer != nullptr || capacity == 0) return OkStatus();
  return Error(Code::kInvalidArgument, name, " is NULL, but capacity is ", capacity);
}

Result CopyText(absl::string_view from, char* to, size_t capacity, size_t* length) {
  *length = from.size();
  RETURN_IF_ERROR(CheckCapacity(from.size() + 1, capacity, "text"));
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
  to[from.size()] = '\0';
  return MAINARCH_OK;
}

}  // namespace mainarch::api
