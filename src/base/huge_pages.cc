// SPDX-License-Identifier: MIT
#include "base/huge_pages.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/fd.h"

namespace mainarch {
namespace {

constexpr size_t kSmapsLimit = size_t{64} << 20;  // some 100,000 mappings
constexpr uint64_t kKb = 1024;

// "7f1200000000-7f1280000000 rw-p ...": false if the line is none of these.
bool ParseRange(absl::string_view line, uint64_t* begin, uint64_t* end) {
  const char* const last = line.data() + line.size();
  const auto first = std::from_chars(line.data(), last, *begin, 16);
  if (first.ec != std::errc() || first.ptr == last || *first.ptr != '-') return false;
  const auto second = std::from_chars(first.ptr + 1, last, *end, 16);
  return second.ec == std::errc() && second.ptr != last && *second.ptr == ' ' && *begin < *end;
}

}  // namespace

uint64_t HugeBytesOf(absl::string_view smaps, uint64_t begin, uint64_t size) {
  const uint64_t end = begin + size;
  uint64_t from = 0, to = 0, huge = 0;
  for (absl::string_view line : absl::StrSplit(smaps, '\n')) {
    uint64_t first, last;
    if (ParseRange(line, &first, &last)) {
      from = std::max(first, begin);
      to = std::min(last, end);
      continue;
    }
    uint64_t kb;
    if (from >= to || !absl::ConsumePrefix(&line, "AnonHugePages:") ||
        !absl::ConsumeSuffix(&line, " kB") || !absl::SimpleAtoi(line, &kb)) {
      continue;
    }
    huge += std::min(kb > UINT64_MAX / kKb ? UINT64_MAX : kb * kKb, to - from);
  }
  return std::min(huge, size);
}

uint64_t HugeBytes(const void* begin, uint64_t size) {
  if (size == 0) return 0;
  auto text = ReadWholeFile("/proc/self/smaps", kSmapsLimit);
  return text.ok() ? HugeBytesOf(*text, reinterpret_cast<uintptr_t>(begin), size) : 0;
}

}  // namespace mainarch
