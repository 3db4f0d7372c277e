// SPDX-License-Identifier: MIT
//
// Line tables of a code object out of anything: reading ends, and so does looking up.
#include "fuzz.h"
#include "sim/isa/lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const mainarch::sim::isa::LineTable table({data, size});
  for (uint64_t va = 0; va < 0x10000; va += 1020) FUZZ_CHECK(table.Find(va).size() <= size + 16);
  return 0;
}
