// SPDX-License-Identifier: MIT
//
// What needs no handle: version and status names.
#include "mainarch.h"

#define TEXT_OF_(number) #number
#define TEXT_OF(number) TEXT_OF_(number)

extern "C" {

uint32_t mainarch_version(void) {
  return static_cast<uint32_t>(MAINARCH_VERSION_MAJOR) << 16 | MAINARCH_VERSION_MINOR << 8 |
         MAINARCH_VERSION_PATCH;
}

const char* mainarch_version_string(void) {
  return TEXT_OF(MAINARCH_VERSION_MAJOR) "." TEXT_OF(MAINARCH_VERSION_MINOR) "." TEXT_OF(
      MAINARCH_VERSION_PATCH);
}

const char* mainarch_status_string(mainarch_status status) {
  switch (status) {
    case MAINARCH_OK:
      return "ok";
    case MAINARCH_AGAIN:
      return "again";
    case MAINARCH_TIMED_OUT:
      return "timed out";
    case MAINARCH_ERROR_INTERNAL:
      return "internal error";
    case MAINARCH_ERROR_INVALID_ARGUMENT:
      return "invalid argument";
    case MAINARCH_ERROR_UNSUPPORTED:
      return "unsupported";
    case MAINARCH_ERROR_NOT_FOUND:
      return "not found";
    case MAINARCH_ERROR_BUSY:
      return "busy";
    case MAINARCH_ERROR_BUFFER_TOO_SMALL:
      return "buffer too small";
    case MAINARCH_ERROR_CANCELLED:
      return "cancelled";
    case MAINARCH_ERROR_OUT_OF_HOST_MEMORY:
      return "out of host memory";
    case MAINARCH_ERROR_OUT_OF_DEVICE_MEMORY:
      return "out of device memory";
    case MAINARCH_ERROR_KV_FULL:
      return "kv full";
    case MAINARCH_ERROR_IO:
      return "i/o error";
    case MAINARCH_ERROR_BAD_MODEL:
      return "bad model";
    case MAINARCH_ERROR_NO_DEVICE:
      return "no device";
    case MAINARCH_ERROR_PERMISSION:
      return "permission denied";
    case MAINARCH_ERROR_DEVICE_LOST:
      return "device lost";
    case MAINARCH_ERROR_WRONG_PROCESS:
      return "wrong process";
    default:
      return "unknown status";
  }
}

}  // extern "C"
