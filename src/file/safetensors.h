// SPDX-License-Identifier: MIT
//
// One safetensors file: 8 bytes of little-endian header length, a JSON header, the data. Everything
// in the header is checked before it is believed: lengths, dtypes, shapes, bounds, and that the
// tensors cover the data without overlap or hole.
#ifndef MAINARCH_FILE_SAFETENSORS_H_
#define MAINARCH_FILE_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/fd.h"
#include "base/status.h"
#include "file/tensor.h"

namespace mainarch::file {

// Parses the bytes of a whole file. `file_name` is for messages only.
StatusOr<std::vector<TensorView>> ParseSafetensors(absl::Span<const uint8_t> bytes,
                                                   absl::string_view file_name);

class SafetensorsFile {
 public:
  static StatusOr<SafetensorsFile> Open(const std::string& path);

  // In the order of the file.
  absl::Span<const TensorView> tensors() const { return tensors_; }
  uint64_t size() const { return mapping_.size(); }

 private:
  Mapping mapping_;
  std::vector<TensorView> tensors_;
};

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_SAFETENSORS_H_
