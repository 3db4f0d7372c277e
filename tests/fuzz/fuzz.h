// SPDX-License-Identifier: MIT
//
// What fuzz targets share. FUZZ_CHECK stops the run when a promise is broken.
#ifndef MAINARCH_TESTS_FUZZ_FUZZ_H_
#define MAINARCH_TESTS_FUZZ_FUZZ_H_

#include <cstdio>
#include <cstdlib>

#include "base/status.h"

#define FUZZ_CHECK(condition)                                              \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (0)

namespace mainarch::fuzz {

// An error of a parser has a code of ours, and a message of one line and bounded length that names
// the file.
inline void CheckError(const Status& status, absl::string_view file) {
  FUZZ_CHECK(CodeOf(status) == Code::kBadModel || CodeOf(status) == Code::kUnsupported);
  FUZZ_CHECK(status.message().find(file) == 0);
  FUZZ_CHECK(status.message().size() < 4096);
  for (const char c : status.message()) FUZZ_CHECK(static_cast<unsigned char>(c) >= 0x20);
}

}  // namespace mainarch::fuzz

#endif  // MAINARCH_TESTS_FUZZ_FUZZ_H_
