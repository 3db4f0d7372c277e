// SPDX-License-Identifier: MIT
//
// A GPU's render node, /dev/dri/renderD<minor>: the file whose address space KFD adopts and through
// which buffers are mapped for the CPU, plus the few facts the graphics side knows better (bytes in
// use, partitions). The interface's structures come from libdrm's headers; its calls are made
// through Sys, because libdrm's own functions reach the kernel only.
#ifndef MAINARCH_KFD_DRM_H_
#define MAINARCH_KFD_DRM_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "kfd/sys.h"

namespace mainarch::kfd {

struct DriverVersion {
  std::string name;  // "amdgpu"
  int major = 0;
  int minor = 0;
};

struct MemoryUse {
  uint64_t total = 0;
  uint64_t used = 0;
};

class RenderNode {
 public:
  static StatusOr<std::unique_ptr<RenderNode>> Open(Sys& sys, uint32_t minor);
  ~RenderNode();
  RenderNode(const RenderNode&) = delete;
  RenderNode& operator=(const RenderNode&) = delete;

  int fd() const { return fd_; }
  uint32_t minor() const { return minor_; }

  StatusOr<DriverVersion> Version();
  StatusOr<MemoryUse> VramUse();  // of all processes

 private:
  RenderNode(Sys& sys, uint32_t minor) : sys_(sys), minor_(minor) {}

  Sys& sys_;
  uint32_t minor_;
  int fd_ = -1;
};

std::string RenderNodePath(uint32_t minor);

// What sysfs adds about a card, by its render minor. Absent files leave a field as it is.
struct CardFacts {
  std::string compute_partition;  // "SPX" and so on; empty: not published
  std::string memory_partition;   // "NPS1" and so on
  int32_t xgmi_physical_id = -1;
  uint64_t vram_total = 0;
  uint64_t vram_used = 0;
};
CardFacts ReadCardFacts(Sys& sys, uint32_t minor);

}  // namespace mainarch::kfd

#endif  // MAINARCH_KFD_DRM_H_
