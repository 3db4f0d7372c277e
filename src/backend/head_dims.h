// SPDX-License-Identifier: MIT
#ifndef MAINARCH_BACKEND_HEAD_DIMS_H_
#define MAINARCH_BACKEND_HEAD_DIMS_H_

#include <cstdint>

namespace mainarch::backend {

// Elements of a head of K, which a head of Q has too, and of a head of V.
struct HeadDims {
  int32_t key = 0, value = 0;

  bool operator==(const HeadDims&) const = default;
};

// As CPUs store them.
constexpr HeadDims HeadsBySixteen(HeadDims of) {
  return {(of.key + 15) / 16 * 16, (of.value + 15) / 16 * 16};
}

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_HEAD_DIMS_H_
