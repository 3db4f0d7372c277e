// SPDX-License-Identifier: MIT
#include "support/test.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

// cmocka defines fail() and friends as macros: after every C++ header.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace mainarch::test {

void Context::Fail(const char* file, int line, const std::string& what) {
  ++failures_;
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

void Context::Fail(const char* file, int line, const char* what) {
  Fail(file, line, std::string(what));
}

std::vector<Entry>& Entries() {
  static std::vector<Entry> entries;
  return entries;
}

std::string SourcePath(const std::string& relative) {
  const char* root = std::getenv("MAINARCH_SOURCE_ROOT");
  return std::string(root != nullptr ? root : ".") + "/" + relative;
}

namespace {

struct Scratch {
  std::string path;
  ~Scratch() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
};

void Trampoline(void** state) {
  const Entry* entry = static_cast<const Entry*>(*state);
  Context context;
  entry->body(context);
  const bool skipped = context.skipped();
  const bool failed = context.failed();
  // cmocka would print "not ok N # SKIP", which meson takes for a failure: a skip passes, with a
  // diagnostic that tools/summary.py lists and counts.
  if (skipped) {
    std::printf("# SKIPPED %s: %s\n", entry->name, context.skip_reason().c_str());
    std::fflush(stdout);
  }
  // cmocka longjmps from here: nothing with a destructor may need to run, so empty the context.
  context = Context();
  if (failed) fail();
}

}  // namespace

std::string ScratchDirectory() {
  static Scratch root;
  static int count = 0;
  if (root.path.empty()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "mainarch-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    root.path = pattern;
  }
  const std::string path = root.path + "/" + std::to_string(count++);
  std::filesystem::create_directories(path);
  return path;
}

}  // namespace mainarch::test

int main(int argc, char** argv) {
  using mainarch::test::Entries;
  using mainarch::test::Entry;
  // cmocka runs the names that match one wildcard pattern: `some_test 'queue_*'`.
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  cmocka_set_message_output(CM_OUTPUT_TAP);
  std::vector<CMUnitTest> tests;
  for (Entry& entry : Entries()) {
    CMUnitTest test = {};
    test.name = entry.name;
    test.test_func = mainarch::test::Trampoline;
    test.initial_state = &entry;
    tests.push_back(test);
  }
  return _cmocka_run_group_tests("tests", tests.data(), tests.size(), nullptr, nullptr);
}
