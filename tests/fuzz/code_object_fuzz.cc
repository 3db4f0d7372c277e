// SPDX-License-Identifier: MIT
//
// ELF files, kernel descriptors and metadata notes. What is accepted must be placeable.
#include <cstdint>
#include <cstdlib>

#include "absl/types/span.h"
#include "gpu/code_object.h"
#include "gpu/msgpack.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mainarch;
  const auto bytes = absl::MakeConstSpan(data, size);
  gpu::MsgpackReader reader(bytes);
  while (!reader.AtEnd() && reader.Skip().ok()) {
  }
  auto object = gpu::CodeObject::Parse("fuzz", bytes);
  if (!object.ok()) return 0;
  if (object->Relocate(0x200000).size() != object->image_size()) abort();
  for (const gpu::CodeKernel& kernel : object->kernels()) {
    if (kernel.descriptor_vaddr + 64 > object->image_size()) abort();
  }
  for (const char* name : {"gfx942", "gfx950"}) {
    object->CheckRunsOn(*isa::ChipByName(name), 64).IgnoreError();
  }
  return 0;
}
