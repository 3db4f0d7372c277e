// SPDX-License-Identifier: MIT
//
// sysfs texts of the topology: what parses must be what was printed.
#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gpu/queue_sizes.h"
#include "kfd/topology.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mainarch;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  auto list = kfd::ParseProperties("fuzz", text);
  if (list.ok()) {
    std::string printed;
    for (const auto& [name, value] : *list) absl::StrAppend(&printed, name, " ", value, "\n");
    auto again = kfd::ParseProperties("fuzz", printed);
    if (!again.ok() || *again != *list) abort();
  }
  kfd::ParseNumber("fuzz", text).status().IgnoreError();
  kfd::Node node;
  if (kfd::ParseNodeProperties("fuzz", text, &node).ok()) {
    // No number that sysfs can print may trip the arithmetic on it.
    gpu::ChooseSaveArea(node.properties);
    gpu::ComputeScratch(node.properties, 128, UINT64_MAX);
    kfd::GfxName(node.properties.gfx_target_version);
  }
  return 0;
}
