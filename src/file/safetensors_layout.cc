// SPDX-License-Identifier: MIT
#include "file/safetensors_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mainarch::file {

std::string LayOut(std::vector<StoredTensor*> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor* a, const StoredTensor* b) {
    const size_t a_bytes = BytesOf(a->dtype), b_bytes = BytesOf(b->dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a->name < b->name;
  });
  std::string header = R"({"__metadata__":{"format":"pt"})";
  uint64_t offset = 0;
  for (StoredTensor* tensor : tensors) {
    absl::StrAppend(&header, ",\"", tensor->name, "\":{\"dtype\":\"", NameOf(tensor->dtype),
                    "\",\"shape\":[", absl::StrJoin(tensor->shape, ","), "],\"data_offsets\":[",
                    offset, ",", offset + tensor->bytes, "]}");
    tensor->offset = offset;
    offset += tensor->bytes;
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(uint64_t{header.size()} >> (8 * i) & 0xff);
  out += header;
  for (StoredTensor* tensor : tensors) tensor->offset += out.size();
  return out;
}

}  // namespace mainarch::file
