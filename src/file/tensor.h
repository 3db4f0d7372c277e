// SPDX-License-Identifier: MIT
//
// A tensor as a checkpoint holds it.
#ifndef MAINARCH_FILE_TENSOR_H_
#define MAINARCH_FILE_TENSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"

namespace mainarch::file {

struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  // Borrowed from the file's mapping. Formats align nothing: the bytes may begin at any address, so
  // readers use unaligned loads (memcpy), never a cast to a wider type.
  absl::Span<const uint8_t> bytes;
  std::string file;  // for messages
};

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_TENSOR_H_
