// SPDX-License-Identifier: MIT
//
// Ways to hold K and V in a few bits, built and not built, one ingredient after the other: what
// `mainarch kv-accuracy --ingredients` measures, in fp64.
#ifndef MAINARCH_CLI_KV_VARIANTS_H_
#define MAINARCH_CLI_KV_VARIANTS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace mainarch::cli {

// Makes of a head what is held of it, in place.
using KvRounder = std::function<void(absl::Span<double> head)>;

struct KvVariant {
  std::string name;
  double bits;  // an element of K and V, in heads of 128; without what is in fp8 beside
  KvRounder k, v;
  size_t first = 0;    // so many first tokens are in fp8
  size_t last = 0;     // so many last ones, and are rounded again when they are that no longer
  bool outer = false;  // the first and the last layer are in fp8
};

// Some are what `mainarch` has: "fp8", "k8v4" and "fp4" begin their names.
std::vector<KvVariant> KvVariants();
void RoundToFp8(absl::Span<double> head);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_KV_VARIANTS_H_
