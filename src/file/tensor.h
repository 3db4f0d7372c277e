// SPDX-License-Identifier: MIT
//
// A tensor as a checkpoint holds it.
#ifndef MAINARCH_FILE_TENSOR_H_
#define MAINARCH_FILE_TENSOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "kernels/quant/weight_format.h"

namespace mainarch::file {

struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  // Borrowed from the file's mapping. Formats align nothing: the bytes may begin at any address, so
  // readers use unaligned loads (memcpy), never a cast to a wider type.
  absl::Span<const uint8_t> bytes;
  std::string file;  // for messages
  // Where elements come in blocks together with their scales (GGUF): which. dtype is U8 then, and the
  // shape still counts elements.
  std::optional<quant::Format> blocks;
  // Not 0: of each so many rows the first half lies at the even places, the second at the odd ones, as
  // GGUF has the rows of a Llama's Q and K (quant/matrix.h StoredRow).
  int32_t paired_rows = 0;
};

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_TENSOR_H_
