// SPDX-License-Identifier: MIT
//
// What became of the wish for huge pages: the kernel takes it for advice, and only it knows.
#ifndef MAINARCH_BASE_HUGE_PAGES_H_
#define MAINARCH_BASE_HUGE_PAGES_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace mainarch {

// Bytes of [begin, begin + size) of this process that stand in huge pages now; 0 where /proc does
// not tell. Mappings that reach beyond the range count in full up to its size.
uint64_t HugeBytes(const void* begin, uint64_t size);

// The same from the text of a smaps file.
uint64_t HugeBytesOf(absl::string_view smaps, uint64_t begin, uint64_t size);

}  // namespace mainarch

#endif  // MAINARCH_BASE_HUGE_PAGES_H_
