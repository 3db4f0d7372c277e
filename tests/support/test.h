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
#include <type_traits>
#include <vector>

namespace mainarch::test {

class Context {
 public:
  // Notes a failure; the body should return.
  void Fail(const char* file, int line, const std::string& what);
  void Fail(const char* file, int line, const char* what);
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

template <class S>
std::string StatusText(const S& status) {
  if constexpr (requires { status.message(); }) {
    return std::string(status.message());
  } else {
    return std::string(status.status().message());
  }
}

// What fails is put together in functions of their own, one for all checks of the same types: inlined,
// it was a third of what a test costs to compile.
template <class A, class B>
[[gnu::noinline, gnu::cold]] void FailPair(Context& context, const char* file, int line,
                                           const char* what, const A& a, const B& b) {
  context.Fail(file, line, std::string(what) + ": " + Show(a) + " against " + Show(b));
}
template <class S>
[[gnu::noinline, gnu::cold]] void FailStatus(Context& context, const char* file, int line,
                                             const char* what, const S& status) {
  context.Fail(file, line, std::string(what) + ": " + StatusText(status));
}

// A copy where there can be one: a reference may be into a temporary that is gone.
template <class T>
decltype(auto) Hold(const T& value) {
  if constexpr (std::is_copy_constructible_v<T>) {
    return T(value);
  } else {
    return (value);
  }
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
#define CHECK(condition)                                 \
  do {                                                   \
    if (!(condition)) {                                  \
      test_context.Fail(__FILE__, __LINE__, #condition); \
      return;                                            \
    }                                                    \
  } while (0)

#define CHECK_OP_(a, b, op)                                                                     \
  do {                                                                                          \
    decltype(auto) check_a_ = ::mainarch::test::Hold(a);                                        \
    decltype(auto) check_b_ = ::mainarch::test::Hold(b);                                        \
    if (!(check_a_ op check_b_)) {                                                              \
      ::mainarch::test::FailPair(test_context, __FILE__, __LINE__, #a " " #op " " #b, check_a_, \
                                 check_b_);                                                     \
      return;                                                                                   \
    }                                                                                           \
  } while (0)

#define CHECK_EQ(a, b) CHECK_OP_(a, b, ==)
#define CHECK_NE(a, b) CHECK_OP_(a, b, !=)
#define CHECK_LT(a, b) CHECK_OP_(a, b, <)
#define CHECK_LE(a, b) CHECK_OP_(a, b, <=)
#define CHECK_GT(a, b) CHECK_OP_(a, b, >)
#define CHECK_GE(a, b) CHECK_OP_(a, b, >=)

// A Status or StatusOr is ok; prints its message if not.
#define CHECK_OK(expr)                                                                      \
  do {                                                                                      \
    const auto& check_status_ = (expr);                                                     \
    if (!check_status_.ok()) {                                                              \
      ::mainarch::test::FailStatus(test_context, __FILE__, __LINE__, #expr, check_status_); \
      return;                                                                               \
    }                                                                                       \
  } while (0)

#define SKIP(reason)              \
  do {                            \
    test_context.Skip(reason);    \
    return;                       \
  } while (0)

#endif  // MAINARCH_TESTS_SUPPORT_TEST_H_
