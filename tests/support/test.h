// SPDX-License-Identifier: MIT
//
// cmocka for C++: a failing cmocka assert longjmps past destructors, so test bodies return instead
// and a trampoline fails the test after their destructors have run.
//
//   TEST(queue_wraps_without_losing_packets) {
//     CHECK_EQ(queue.size(), 3u);
//   }
//
// One main for every test binary is in test_main.cc. Output is TAP.
#ifndef MAINARCH_TESTS_SUPPORT_TEST_H_
#define MAINARCH_TESTS_SUPPORT_TEST_H_

#include <sstream>
#include <string>
#include <vector>

namespace mainarch::test {

class Context {
 public:
  // Notes a failure; the body should return.
  void Fail(const char* file, int line, const std::string& what);
  void Skip(const std::string& reason) { skip_reason_ = reason; skipped_ = true; }
  bool failed() const { return failures_ > 0; }
  bool skipped() const { return skipped_; }
  const std::string& skip_reason() const { return skip_reason_; }

 private:
  int failures_ = 0;
  bool skipped_ = false;
  std::string skip_reason_;
};

struct Entry {
  const char* name;
  void (*body)(Context&);
};

std::vector<Entry>& Entries();

struct Registrar {
  Registrar(const char* name, void (*body)(Context&)) { Entries().push_back({name, body}); }
};

template <class T>
std::string Show(const T& value) {
  std::ostringstream out;
  if constexpr (requires { out << value; }) {
    out << value;
  } else {
    out << "(a value of " << sizeof(T) << " bytes)";
  }
  return out.str();
}

// The source tree and the build tree, for test data (set by meson).
std::string SourcePath(const std::string& relative);
// A fresh directory that is removed when the process ends.
std::string ScratchDirectory();

}  // namespace mainarch::test

#define TEST(name)                                                                \
  static void name(::mainarch::test::Context& test_context);                      \
  static const ::mainarch::test::Registrar registrar_##name(#name, name);         \
  static void name([[maybe_unused]] ::mainarch::test::Context& test_context)

// Inside TEST, or in a helper that takes `Context& test_context` and returns void.
#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      test_context.Fail(__FILE__, __LINE__, #condition);          \
      return;                                                     \
    }                                                             \
  } while (0)

#define CHECK_OP_(a, b, op)                                                                    \
  do {                                                                                         \
    const auto check_a_ = (a); /* copies: a reference may be into a temporary */               \
    const auto check_b_ = (b);                                                                 \
    if (!(check_a_ op check_b_)) {                                                             \
      test_context.Fail(__FILE__, __LINE__,                                                    \
                        std::string(#a " " #op " " #b ": ") + ::mainarch::test::Show(check_a_) + \
                            " against " + ::mainarch::test::Show(check_b_));                   \
      return;                                                                                  \
    }                                                                                          \
  } while (0)

#define CHECK_EQ(a, b) CHECK_OP_(a, b, ==)
#define CHECK_NE(a, b) CHECK_OP_(a, b, !=)
#define CHECK_LT(a, b) CHECK_OP_(a, b, <)
#define CHECK_LE(a, b) CHECK_OP_(a, b, <=)
#define CHECK_GT(a, b) CHECK_OP_(a, b, >)
#define CHECK_GE(a, b) CHECK_OP_(a, b, >=)

// A Status or StatusOr is ok; prints its message if not.
#define CHECK_OK(expr)                                                                          \
  do {                                                                                          \
    const auto& check_status_ = (expr);                                                         \
    if (!check_status_.ok()) {                                                                  \
      test_context.Fail(__FILE__, __LINE__,                                                     \
                        std::string(#expr ": ") +                                               \
                            std::string(::mainarch::test::StatusText(check_status_)));          \
      return;                                                                                   \
    }                                                                                           \
  } while (0)

#define SKIP(reason)              \
  do {                            \
    test_context.Skip(reason);    \
    return;                       \
  } while (0)

namespace mainarch::test {
template <class S>
std::string StatusText(const S& status) {
  if constexpr (requires { status.message(); }) {
    return std::string(status.message());
  } else {
    return std::string(status.status().message());
  }
}
}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_TEST_H_
