// SPDX-License-Identifier: MIT
#include "file/safetensors.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mainarch;
  const auto tensors = file::ParseSafetensors({data, size}, "f");
  if (!tensors.ok()) {
    fuzz::CheckError(tensors.status(), "f: ");
    return 0;
  }
  const uint8_t* end = nullptr;
  for (const file::TensorView& tensor : *tensors) {
    uint64_t bytes = BytesOf(tensor.dtype);
    for (const int64_t extent : tensor.shape) bytes *= static_cast<uint64_t>(extent);
    FUZZ_CHECK(bytes == tensor.bytes.size());
    FUZZ_CHECK(tensor.bytes.data() >= data + 8);
    FUZZ_CHECK(tensor.bytes.data() + tensor.bytes.size() <= data + size);
    FUZZ_CHECK(end == nullptr || tensor.bytes.data() == end);  // no overlap, no hole
    end = tensor.bytes.data() + tensor.bytes.size();
  }
  FUZZ_CHECK(end == nullptr || end == data + size);
  return 0;
}
