// SPDX-License-Identifier: MIT
//
// A GGUF file: its contents, and the checkpoint that is made of it, whose configuration is read and
// whose tensors' rows are decoded, the first and the last of each. Or, behind a byte 'P', the parts of a
// split one, each behind its length (4 bytes, little-endian).
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "file/gguf.h"
#include "file/gguf_checkpoint.h"
#include "fuzz.h"
#include "model/config.h"
#include "quant/matrix.h"

namespace {

using namespace mainarch;

// The bytes of a tensor of this type and shape.
uint64_t BytesOfShape(const file::TensorView& tensor) {
  uint64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i)
    rows *= static_cast<uint64_t>(tensor.shape[i]);
  const int64_t cols = tensor.shape.back();
  if (!tensor.blocks) return rows * static_cast<uint64_t>(cols) * BytesOf(tensor.dtype);
  return rows * static_cast<uint64_t>(quant::RowBytes(*tensor.blocks, cols));
}

void CheckContents(const file::GgufContents& contents, const uint8_t* data, size_t size) {
  std::vector<std::pair<const uint8_t*, const uint8_t*>> places;
  for (const file::TensorView& tensor : contents.tensors) {
    FUZZ_CHECK(!tensor.shape.empty() && tensor.shape.size() <= 4);
    FUZZ_CHECK(BytesOfShape(tensor) == tensor.bytes.size());
    FUZZ_CHECK(tensor.bytes.data() >= data &&
               tensor.bytes.data() + tensor.bytes.size() <= data + size);
    places.push_back({tensor.bytes.data(), tensor.bytes.data() + tensor.bytes.size()});
  }
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); ++i) FUZZ_CHECK(places[i - 1].second <= places[i].first);
}

void DecodeEnds(const file::TensorView& tensor) {
  if (tensor.shape.size() != 2 || tensor.shape[1] > 4096) return;
  quant::Matrix matrix;
  if (tensor.blocks) {
    matrix.format = *tensor.blocks;
  } else if (tensor.dtype == DType::kF32) {
    matrix.format = quant::Format::kF32;
  } else {
    return;
  }
  matrix.rows = tensor.shape[0];
  matrix.cols = tensor.shape[1];
  matrix.data = tensor.bytes;
  matrix.paired_rows = tensor.paired_rows;
  std::vector<float> row(static_cast<size_t>(matrix.cols));
  for (const int64_t r : {int64_t{0}, matrix.rows - 1})
    quant::DecodeRow(matrix, r, 0, matrix.cols, row.data());
}

// `named`: how every message begins.
void CheckCheckpoint(const StatusOr<std::shared_ptr<const file::Checkpoint>>& checkpoint,
                     absl::string_view named) {
  if (!checkpoint.ok()) return fuzz::CheckError(checkpoint.status(), named);
  for (const file::TensorView& tensor : (*checkpoint)->tensors()) {
    FUZZ_CHECK((*checkpoint)->Find(tensor.name) == &tensor);
    DecodeEnds(tensor);
  }
  const auto config = model::ParseConfig((*checkpoint)->config_json(), "", "f");
  if (!config.ok()) fuzz::CheckError(config.status(), "f/");
}

// Cut into parts; what is left behind a length that is too large is the last one.
std::vector<absl::Span<const uint8_t>> Parts(absl::Span<const uint8_t> data) {
  std::vector<absl::Span<const uint8_t>> parts;
  uint32_t length = 0;
  while (data.size() > sizeof(length) && parts.size() < 8) {
    std::memcpy(&length, data.data(), sizeof(length));
    data.remove_prefix(sizeof(length));
    parts.push_back(data.subspan(0, length));
    data.remove_prefix(parts.back().size());
  }
  return parts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == 'P') {
    const auto parts = Parts({data + 1, size - 1});
    // The first part is called "f", the others "f[1]" and so on.
    if (!parts.empty()) CheckCheckpoint(file::GgufCheckpoint::Parse(parts, "f"), "f");
    return 0;
  }
  const auto contents = file::ParseGguf({data, size}, "f");
  if (!contents.ok()) {
    fuzz::CheckError(contents.status(), "f: ");
    return 0;
  }
  CheckContents(*contents, data, size);
  CheckCheckpoint(file::GgufCheckpoint::Parse({data, size}, "f"), "f: ");
  return 0;
}
