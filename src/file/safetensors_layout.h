// SPDX-License-Identifier: MIT
//
// Where tensors lie in a safetensors file to be written, and the header that says so. Wide dtypes
// come first and the header is padded to 8 bytes, so that every tensor is aligned to its element.
#ifndef MAINARCH_FILE_SAFETENSORS_LAYOUT_H_
#define MAINARCH_FILE_SAFETENSORS_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace mainarch::file {

struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // in the file; set by LayOut
};

// The bytes of the file before the data; sets every offset. Names must need no JSON escapes.
std::string LayOut(std::vector<StoredTensor*> tensors);

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_SAFETENSORS_LAYOUT_H_
