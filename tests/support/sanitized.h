// SPDX-License-Identifier: MIT
#ifndef MAINARCH_TESTS_SUPPORT_SANITIZED_H_
#define MAINARCH_TESTS_SUPPORT_SANITIZED_H_

namespace mainarch::test {

// Under the address or thread sanitizer (gcc and clang 22 say so alike) arithmetic takes ten times as long and more.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_SANITIZED_H_
