// SPDX-License-Identifier: MIT
//
// What a launch's buffers hold before it, and how what they hold afterwards is compared. Host
// memory only; no device is known here.
#ifndef MAINARCH_CLI_LAUNCH_FILL_H_
#define MAINARCH_CLI_LAUNCH_FILL_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "base/status.h"
#include "cli/launch/launch_file.h"

namespace mainarch::cli {

// `path` of a launch file, which is meant from the folder of that file.
std::string PathBeside(const LaunchFile& launch, const std::string& path);

// Element i of a random fill: SplitMix64(seed * 2^32 + i), as a fraction of 2^53 between low and high; of
// integers modulo their number.
Status FillBuffer(const LaunchFile& launch, const LaunchBuffer& buffer, absl::Span<uint8_t> out);

struct Comparison {
  const Expectation* expectation = nullptr;
  uint64_t elements = 0, wrong = 0;  // of a sum: one
  // Of all elements, |got - want|, and the same over |want|; where NaN met a number, infinite.
  double worst_absolute = 0, worst_relative = 0;
  uint64_t sum = 0;   // XXH64 of the range, of every kind
  std::string first;  // the first wrong element, in words; empty when all is well
  bool ok() const { return wrong == 0; }
};
// An element is right when |got - want| <= abs + rel * |want|, and NaN where NaN is wanted.
StatusOr<Comparison> Compare(const LaunchFile& launch, const Expectation& expectation,
                             absl::Span<const uint8_t> buffer);

// XXH64 with seed 0.
uint64_t SumOf(absl::Span<const uint8_t> bytes);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_LAUNCH_FILL_H_
