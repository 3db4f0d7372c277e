// SPDX-License-Identifier: MIT
#include "base/huge_pages.h"

#include <cstring>
#include <string>

#include "base/fd.h"
#include "support/test.h"

using namespace mainarch;

namespace {

// Two mappings as Linux 6.18 shows them, shortened.
constexpr char kSmaps[] =
    "555555554000-555555558000 r--p 00000000 fe:00 1234                       /usr/bin/cat\n"
    "Size:                 16 kB\nAnonHugePages:         0 kB\nVmFlags: rd mr mw me\n"
    "7f0000000000-7f0010000000 rw-p 00000000 00:00 0 \n"
    "Size:             262144 kB\nAnonHugePages:    131072 kB\nFilePmdMapped:         0 kB\n"
    "7f0010000000-7f0020000000 rw-p 00000000 00:00 0 \n"
    "AnonHugePages:      2048 kB\n";

}  // namespace

TEST(huge_pages_of_a_range_are_counted) {
  CHECK_EQ(HugeBytesOf(kSmaps, 0x7f0000000000, 0x10000000), 131072u * 1024);
  CHECK_EQ(HugeBytesOf(kSmaps, 0x7f0000000000, 0x20000000), 133120u * 1024);
  CHECK_EQ(HugeBytesOf(kSmaps, 0x7f0010000000, 0x10000000), 2048u * 1024);
  CHECK_EQ(HugeBytesOf(kSmaps, 0x555555554000, 0x4000), 0u);
  CHECK_EQ(HugeBytesOf(kSmaps, 0x1000, 0x1000), 0u);
  // Never more than the range itself.
  CHECK_EQ(HugeBytesOf(kSmaps, 0x7f0000000000, 0x200000), 0x200000u);
}

TEST(what_is_no_smaps_counts_nothing) {
  for (const std::string& text :
       {std::string(), std::string("AnonHugePages: 2048 kB\n"), std::string("7f00-\n-\n\n- -"),
        std::string("2000-1000 rw-p\nAnonHugePages: 4 kB\n"),
        std::string("1000-2000 rw-p\nAnonHugePages: -4 kB\nAnonHugePages: 4 MB\nAnonHugePages:\n"),
        std::string("1000-2000\nAnonHugePages: 4 kB\n"), std::string(100000, '-'),
        std::string("1000-2000 \0AnonHugePages: 4 kB", 30),
        std::string("fffffffffffffffff-1ffffffffffffffff rw-p\nAnonHugePages: 4 kB\n")}) {
    CHECK_EQ(HugeBytesOf(text, 0x1000, 0x1000), 0u);
  }
  CHECK_EQ(HugeBytesOf("1000-2000 rw-p\nAnonHugePages: 18446744073709551615 kB\n", 0x1000, 0x1000),
           0x1000u);
}

TEST(memory_of_ones_own_is_counted_up_to_its_size) {
  auto memory = Mapping::Anonymous(size_t{8} << 20, /*huge_pages=*/true);
  CHECK_OK(memory);
  std::memset(memory->data(), 1, memory->size());
  CHECK(HugeBytes(memory->data(), memory->size()) <= memory->size());
  CHECK_EQ(HugeBytes(nullptr, 0), 0u);
}
