// SPDX-License-Identifier: MIT
#include "kfd/drm.h"

#include <amdgpu_drm.h>
#include <errno.h>
#include <fcntl.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kfd/ioctl.h"
#include "kfd/uapi/kfd_sysfs.h"

namespace mainarch::kfd {
namespace {

constexpr size_t kMaxCardFile = 4096;

int CallDrm(Sys& sys, int fd, unsigned long request, void* argument) {
  int result;
  do {
    result = sys.Ioctl(fd, static_cast<uint32_t>(request), argument);
  } while (result == -EINTR || result == -EAGAIN);
  return result < 0 ? -result : 0;
}

std::string ReadLine(Sys& sys, const std::string& path) {
  std::string text;
  if (sys.ReadFile(path, kMaxCardFile, &text) < 0) return "";
  return std::string(absl::StripAsciiWhitespace(text));
}

void ReadCount(Sys& sys, const std::string& path, uint64_t* value) {
  uint64_t parsed = 0;
  if (absl::SimpleAtoi(ReadLine(sys, path), &parsed)) *value = parsed;
}

}  // namespace

std::string RenderNodePath(uint32_t minor) { return absl::StrCat(uapi::kRenderNodePrefix, minor); }

StatusOr<std::unique_ptr<RenderNode>> RenderNode::Open(Sys& sys, uint32_t minor) {
  std::unique_ptr<RenderNode> node(new RenderNode(sys, minor));
  const std::string path = RenderNodePath(minor);
  int fd;
  do {
    fd = sys.Open(path.c_str(), O_RDWR | O_CLOEXEC);
  } while (fd == -EINTR);
  if (fd < 0) {
    const char* hint = "";
    if (fd == -ENOENT) hint = " (is the device passed to the container?)";
    if (fd == -EACCES) hint = " (is the user in the group that owns it?)";
    return ErrnoError(CodeOfErrno(-fd), -fd, "open ", path, hint);
  }
  node->fd_ = fd;
  return node;
}

RenderNode::~RenderNode() {
  if (fd_ >= 0) sys_.Close(fd_);
}

StatusOr<DriverVersion> RenderNode::Version() {
  char name[32] = {};
  drm_version args = {};
  args.name = name;
  args.name_len = sizeof name - 1;
  if (const int err = CallDrm(sys_, fd_, DRM_IOCTL_VERSION, &args)) {
    return ErrnoError(CodeOfErrno(err), err, "drm version(", RenderNodePath(minor_), ")");
  }
  DriverVersion version;
  version.name.assign(name, std::min<size_t>(args.name_len, sizeof name - 1));
  version.major = args.version_major;
  version.minor = args.version_minor;
  return version;
}

StatusOr<MemoryUse> RenderNode::VramUse() {
  drm_amdgpu_memory_info memory = {};
  drm_amdgpu_info args = {};
  args.return_pointer = reinterpret_cast<uint64_t>(&memory);
  args.return_size = sizeof memory;
  args.query = AMDGPU_INFO_MEMORY;
  if (const int err = CallDrm(sys_, fd_, DRM_IOCTL_AMDGPU_INFO, &args)) {
    return ErrnoError(CodeOfErrno(err), err, "drm amdgpu_info(memory, ", RenderNodePath(minor_),
                      ")");
  }
  return MemoryUse{memory.vram.total_heap_size, memory.vram.heap_usage};
}

CardFacts ReadCardFacts(Sys& sys, uint32_t minor) {
  const std::string device = absl::StrCat("/sys/class/drm/renderD", minor, "/device/");
  CardFacts facts;
  facts.compute_partition = ReadLine(sys, device + "current_compute_partition");
  facts.memory_partition = ReadLine(sys, device + "current_memory_partition");
  int32_t id = 0;
  if (absl::SimpleAtoi(ReadLine(sys, device + "xgmi_physical_id"), &id))
    facts.xgmi_physical_id = id;
  ReadCount(sys, device + "mem_info_vram_total", &facts.vram_total);
  ReadCount(sys, device + "mem_info_vram_used", &facts.vram_used);
  return facts;
}

}  // namespace mainarch::kfd
