// SPDX-License-Identifier: MIT
#include "api/env.h"

#include <cstdlib>

#include "absl/strings/string_view.h"
#include "base/log.h"

namespace mainarch::api {
namespace {

// Empty when it is not set.
absl::string_view Variable(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? absl::string_view() : absl::string_view(value);
}

StatusOr<int32_t> LevelOf(absl::string_view text) {
  constexpr absl::string_view kNames[] = {"error", "warning", "info", "debug"};
  if (text.empty()) return 0;
  for (int32_t i = 0; i < 4; ++i) {
    if (kNames[i] == text) return i + static_cast<int32_t>(LogLevel::kError);
  }
  return Error(Code::kInvalidArgument, "environment variable MAINARCH_LOG is \"", text,
               "\": expected error, warning, info or debug");
}

}  // namespace

StatusOr<Environment> ReadEnvironment() {
  Environment environment;
  const absl::string_view backend = Variable("MAINARCH_BACKEND");
  const absl::string_view devices = Variable("MAINARCH_DEVICES");
  if (backend.empty() && !devices.empty()) {
    return Error(Code::kInvalidArgument, "environment variable MAINARCH_DEVICES is \"", devices,
                 "\", but MAINARCH_BACKEND, which says of what kind, is not set");
  }
  environment.device = std::string(backend);
  if (!devices.empty()) absl::StrAppend(&environment.device, ":", devices);
  ASSIGN_OR_RETURN(environment.log_level, LevelOf(Variable("MAINARCH_LOG")));
  return environment;
}

}  // namespace mainarch::api
