// SPDX-License-Identifier: MIT
#include "kfd/sim_part.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/os_errno.h"
#include "kfd/private_file.h"

namespace mainarch::kfd {
namespace {

constexpr char kFile[] = "libmainarch-sim.so";

struct Unload {
  void operator()(void* part) const { dlclose(part); }
};
using Handle = std::unique_ptr<void, Unload>;

// The node's code must outlive the node. In a forked child both are left alone: the threads that
// play the machine, for whose end the node would wait, are the parent's.
struct DestroyThenUnload {
  Handle part;
  pid_t owner;
  void operator()(VirtualSys* sys) {
    if (getpid() == owner) {
      delete sys;
    } else {
      part.release();
    }
  }
};

template <class... Parts>
Status NoNode(const Parts&... parts) {
  return Error(Code::kNoDevice, "there is no virtual node: ", parts..., "; on Debian it is in the package ",
               kSimPackage);
}

// dlopen says in words alone why it failed. That the process has run out of descriptors is no missing part.
Status CheckDescriptors(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const int err = errno;
  if (file.valid() || !IsOutOfHostResources(err)) return OkStatus();
  return ErrnoError(Code::kOutOfHostMemory, err, "open ", path);
}

}  // namespace

const char* SimBuild() { return MAINARCH_SIM_BUILD; }

StatusOr<std::shared_ptr<VirtualSys>> OpenVirtual(absl::string_view text,
                                                  absl::string_view faults) {
  const StatusOr<std::string> path = FindPrivateFile(kFile);
  if (!path.ok()) return NoNode(path.status().message());
  RETURN_IF_ERROR(CheckDescriptors(*path));
  Handle part(dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL));
  if (part == nullptr) {
    const char* why = dlerror();
    return NoNode(why == nullptr ? path->c_str() : why);
  }
  const auto entry = reinterpret_cast<SimEntry>(dlsym(part.get(), kSimEntry));
  const SimPart* found = entry == nullptr ? nullptr : entry();
  const absl::string_view build = found == nullptr ? "an unknown build" : found->build;
  if (build != SimBuild()) {
    return NoNode(*path, " is of ", build, ", this library of ", SimBuild());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<VirtualSys> sys, found->open(text, faults));
  return std::shared_ptr<VirtualSys>(sys.release(), DestroyThenUnload{std::move(part), getpid()});
}

}  // namespace mainarch::kfd
