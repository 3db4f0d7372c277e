// SPDX-License-Identifier: MIT
//
// Whole-line log sink, passed down from the group that owns it; no global, silent by default.
#ifndef MAINARCH_BASE_LOG_H_
#define MAINARCH_BASE_LOG_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace mainarch {

enum class LogLevel : int32_t { kError = 1, kWarning = 2, kInfo = 3, kDebug = 4 };

class Log {
 public:
  using Sink = void (*)(void* user, int32_t level, const char* line);

  Log() = default;  // silent
  Log(Sink sink, void* user, int32_t max_level) : sink_(sink), user_(user), max_level_(max_level) {}

  template <class... Parts>
  void Write(LogLevel level, const Parts&... parts) const {
    if (sink_ == nullptr || static_cast<int32_t>(level) > max_level_) return;
    const std::string line = absl::StrCat(parts...);
    sink_(user_, static_cast<int32_t>(level), line.c_str());
  }

 private:
  Sink sink_ = nullptr;
  void* user_ = nullptr;
  int32_t max_level_ = 0;
};

}  // namespace mainarch

#endif  // MAINARCH_BASE_LOG_H_
