// SPDX-License-Identifier: MIT
//
// The most memory of its own that a piece of work took at any moment, as the kernel counted it.
#ifndef MAINARCH_TESTS_SUPPORT_PEAK_MEMORY_H_
#define MAINARCH_TESTS_SUPPORT_PEAK_MEMORY_H_

#include <malloc.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace mainarch::test {

// A line of /proc/self/status, in bytes.
inline uint64_t StatusBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    uint64_t kb = 0;
    if (word == name + ":" && status >> kb) return kb * 1024;
  }
  return 0;
}

// Nothing where the kernel cannot forget an older peak.
template <class Work>
std::optional<uint64_t> PeakBytes(Work work) {
  malloc_trim(0);  // or what was freed before would be used again, and not be seen
  std::ofstream forget("/proc/self/clear_refs");
  forget << "5" << std::flush;
  if (!forget.good()) return std::nullopt;
  const uint64_t before = StatusBytes("VmRSS");
  work();
  return StatusBytes("VmHWM") - before;
}

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_PEAK_MEMORY_H_
