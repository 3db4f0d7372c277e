// SPDX-License-Identifier: MIT
//
// The debugger's calls, and what belongs to waves rather than to queues: as far as a process may
// make them on itself. Another process cannot be debugged here (every process has a node of its
// own, or shares one as a stranger), no wave can be stopped and no address watched: those
// operations answer -EOPNOTSUPP once the kernel's own checks are passed, and say so in the log.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "sim/process.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

// What kfd_runtime_info has: the runtime's address, its state, whether trap temporaries are set up.
struct RuntimeInfo {
  uint64_t r_debug = 0;
  uint32_t state = 0;
  uint32_t ttmp_setup = 0;
};

// Operations that need a runtime which announced itself.
bool NeedsRuntime(uint32_t op) {
  return (op >= uapi::kDbgTrapSetWaveLaunchOverride && op <= uapi::kDbgTrapSetFlags);
}

}  // namespace

// Checks in the kernel's order (amdkfd/kfd_chardev.c kfd_ioctl_set_debug_trap).
int Process::DbgTrap(const uapi::DbgTrapArgs& args) {
  const pid_t pid = static_cast<pid_t>(args.pid);
  // Nobody of that number, or one that has not opened the driver.
  if (pid <= 0 || pid != getpid()) return -ESRCH;
  if (args.op > uapi::kDbgTrapGetDeviceSnapshot) return -EINVAL;
  if (args.op != uapi::kDbgTrapEnable && !debugged_) return -EINVAL;
  if (NeedsRuntime(args.op) && !runtime_enabled_) return -EPERM;
  switch (args.op) {
    case uapi::kDbgTrapEnable: {
      if (debugged_) return -EALREADY;
      if (fcntl(static_cast<int>(args.dbg_fd), F_GETFD) < 0) return -EBADF;
      RuntimeInfo info;
      info.state = runtime_enabled_ ? 1 : 0;
      const size_t bytes = std::min<size_t>(sizeof info, args.rinfo_size);
      if (!CopyToUser(args.rinfo_ptr, &info, bytes)) return -EFAULT;
      debugged_ = true;
      return 0;
    }
    case uapi::kDbgTrapDisable:
      debugged_ = false;
      return 0;
    case uapi::kDbgTrapSendRuntimeEvent:
    case uapi::kDbgTrapSetExceptionsEnabled:
      return 0;
    case uapi::kDbgTrapQueryDebugEvent:
      return -EAGAIN;  // none is pending
    case uapi::kDbgTrapQueryExceptionInfo:
      return -ENODATA;
    default:
      node_->Note(
          absl::StrCat("process ", id_, ": debugger operation ", args.op, " is not modelled"));
      return -EOPNOTSUPP;
  }
}

int Process::AllocQueueGws(uapi::AllocQueueGwsArgs& args) {
  const auto found = queues_.find(args.queue_id);
  if (found == queues_.end()) return -EINVAL;
  QueueRecord& queue = found->second;
  if (node_->profile().num_gws == 0) return -ENODEV;
  // One queue of a process on a GPU can have it.
  bool taken = false;
  for (const auto& [id, other] : queues_) taken |= other.gpu == queue.gpu && other.gws;
  if (args.num_gws != 0 && taken) return -EBUSY;
  if (args.num_gws == 0 && !taken) return -EINVAL;
  queue.gws = args.num_gws != 0;
  Gate::Closed closed(node_->gate_);
  queue.hw->set_gws(queue.gws);
  args.first_gws = 0;
  return 0;
}

int Process::GetQueueWaveState(uint32_t queue_id) {
  const auto found = queues_.find(queue_id);
  if (found == queues_.end()) return -EFAULT;
  // Only a PM4 queue that is unmapped has a state to be read, and no wave is ever saved here.
  if (found->second.type != uapi::kQueueTypeCompute ||
      found->second.hw->state() == HwQueue::State::kActive) {
    return -EINVAL;
  }
  return 0;
}

}  // namespace mainarch::sim
