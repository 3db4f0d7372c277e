// SPDX-License-Identifier: MIT
//
// The files a client reads to find the GPUs: KFD's topology, the render nodes' sysfs attributes and
// the few others that runtimes look at. A tree of names and texts, built once and constant; device
// nodes are entries without text. No file of the host is read or written.
//
// The identity of each GPU (gpu_id, PCI address, render minor) is made here, from its index alone.
#ifndef MAINARCH_SIM_VIRTUAL_FS_H_
#define MAINARCH_SIM_VIRTUAL_FS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/profile.h"

namespace mainarch::sim {

struct GpuIdentity {
  uint32_t gpu_id = 0;  // 16 bits, never 0
  uint32_t topology_node = 0;
  uint32_t location_id = 0;  // bus << 8 | devfn
  uint32_t domain = 0;
  uint32_t render_minor = 0;  // 128 …
  uint64_t unique_id = 0;
  uint32_t numa_node = 0;
};

std::vector<GpuIdentity> MakeIdentities(const NodeConfig& config);

// The recommended SDMA engine from one GPU of a hive to another, as a mask: one bit in a hive of
// eight, every XGMI engine otherwise.
uint32_t RecommendedSdmaMask(const NodeConfig& config, uint32_t from, uint32_t to);

class VirtualFs {
 public:
  struct Entry {
    enum class Kind : uint8_t { kText, kDevice, kLink, kDirectory };  // an empty directory
    Kind kind = Kind::kText;
    std::string text;    // of a file; the target of a link
    uint32_t major = 0;  // of a device
    uint32_t minor = 0;
    int error = 0;  // errno of reading it, 0 when readable
  };

  explicit VirtualFs(const NodeConfig& config);

  // The entry at a path, links in directory names followed; nullptr for a directory or nothing.
  const Entry* Find(absl::string_view path) const;
  // Names in a directory; false when it is none.
  bool List(absl::string_view path, std::vector<std::string>* names) const;

  // The path without links in directory names, dots and double slashes.
  std::string Resolve(absl::string_view path) const;

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& directory_links() const { return links_; }

 private:
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> links_;  // directory -> directory
};

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_VIRTUAL_FS_H_
