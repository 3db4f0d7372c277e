// SPDX-License-Identifier: MIT
#include "gpu/process.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gpu/watcher.h"
#include "kfd/uapi/kfd_sysfs.h"

namespace mainarch::gpu {
namespace {

namespace uapi = kfd::uapi;

// Descriptors of this process that are this render node, opened by whomever.
std::vector<int> OpenRenderNodes(kfd::Sys& sys, uint32_t minor) {
  std::vector<int> fds;
  kfd::FileStat node;
  std::vector<std::string> names;
  if (sys.Stat(kfd::RenderNodePath(minor), &node) < 0) return fds;
  if (sys.ListDir("/proc/self/fd", &names) < 0) return fds;
  for (const std::string& name : names) {
    kfd::FileStat file;
    int fd = -1;
    if (absl::SimpleAtoi(name, &fd) && sys.Stat("/proc/self/fd/" + name, &file) == 0 &&
        file.rdev == node.rdev && S_ISCHR(file.mode)) {
      fds.push_back(fd);
    }
  }
  return fds;
}

Status CheckNode(const kfd::Node& node, uint32_t index, const isa::ChipFacts* chip) {
  const kfd::NodeProperties& p = node.properties;
  const std::string gfx = kfd::GfxName(p.gfx_target_version);
  if (chip == nullptr || !chip->is_target) {
    return Error(Code::kUnsupported, "gpu ", index, " is ", gfx,
                 "; this library drives gfx942 (MI300X) and gfx950 (MI355X)");
  }
  const uint64_t doorbell =
      (p.capability & uapi::kCapDoorbellTypeMask) >> uapi::kCapDoorbellTypeShift;
  if (doorbell != uapi::kDoorbellType64Bit) {
    return Error(Code::kUnsupported, "gpu ", index, " (", gfx, "): doorbell type ", doorbell,
                 " in its capability 0x", absl::Hex(p.capability), ", only ",
                 uapi::kDoorbellType64Bit, " is driven");
  }
  if (p.simd_count == 0 || p.simd_per_cu == 0 || p.num_xcc == 0) {
    return Error(Code::kIo, "gpu ", index, " (", gfx, "): topology says simd_count ", p.simd_count,
                 ", simd_per_cu ", p.simd_per_cu, ", num_xcc ", p.num_xcc);
  }
  if (p.drm_render_minor == 0 || p.drm_render_minor > 0xfffff) {
    return Error(Code::kNoDevice, "gpu ", index, " (", gfx, "): topology says drm_render_minor ",
                 p.drm_render_minor, ", it has no render node");
  }
  return {};
}

}  // namespace

Process::Process(kfd::Sys& sys, const ProcessOptions& options) : sys_(sys), options_(options) {}

StatusOr<std::unique_ptr<Process>> Process::Open(kfd::Sys& sys, const ProcessOptions& options) {
  std::unique_ptr<Process> process(new Process(sys, options));
  ASSIGN_OR_RETURN(process->topology_, kfd::ReadTopology(sys));
  ASSIGN_OR_RETURN(process->guard_, ForkGuard::Create(sys));
  ASSIGN_OR_RETURN(process->kfd_, kfd::Kfd::Open(sys));
  ASSIGN_OR_RETURN(process->version_, process->kfd_->GetVersion());
  if (process->version_.major != 1) {
    return Error(Code::kUnsupported, "kfd interface ", process->version_.major, ".",
                 process->version_.minor, ", only 1.x is known");
  }
  process->devices_.resize(process->topology_.Gpus().size());
  // Must come before the first queue. A kernel without it, or another user of the driver in this
  // process, only costs us the driver's own account of why a queue died.
  const Status enabled = process->kfd_->RuntimeEnable(uapi::kRuntimeEnableMode, 0);
  process->runtime_enabled_ = enabled.ok();
  if (!enabled.ok()) {
    const int err = ErrnoOf(enabled);
    if (err != ENOTTY && err != EBUSY && err != EEXIST) return enabled;
    process->log().Write(LogLevel::kInfo, "without queue exceptions: ", enabled.message());
  }
  return process;
}

Process::~Process() {
  watcher_.reset();
  DropEventPage();
  const bool opener = guard_ == nullptr || guard_->in_opener();
  devices_.clear();
  if (runtime_enabled_ && opener && !kfd_->RuntimeEnable(0, 0).ok()) {
    kfd_->RuntimeEnable(0, 0).IgnoreError();
  }
}

StatusOr<std::unique_ptr<kfd::RenderNode>> Process::AcquireVm(const kfd::Node& node) {
  const uint32_t minor = static_cast<uint32_t>(node.properties.drm_render_minor);
  // Whoever had this address space before us in this process left the file open, or it is lost.
  const std::vector<int> candidates = OpenRenderNodes(sys_, minor);
  ASSIGN_OR_RETURN(auto render_node, kfd::RenderNode::Open(sys_, minor));
  Status status = kfd_->AcquireVm(node.gpu_id, render_node->fd());
  if (status.ok() && options_.leave_render_nodes_open) render_node->KeepOpen();
  for (size_t i = 0; ErrnoOf(status) == EBUSY && i < candidates.size(); ++i) {
    if (!kfd_->AcquireVm(node.gpu_id, candidates[i]).ok()) continue;
    ASSIGN_OR_RETURN(render_node, kfd::RenderNode::Duplicate(sys_, minor, candidates[i]));
    status = Status();
  }
  if (ErrnoOf(status) == EBUSY) {
    return ErrnoError(Code::kBusy, EBUSY, status.message(),
                      " (this process had the GPU open and closed it; the driver gives it back "
                      "only when the process ends)");
  }
  RETURN_IF_ERROR(status);
  return render_node;
}

StatusOr<Device*> Process::OpenDevice(uint32_t index) {
  RETURN_IF_ERROR(CheckProcess());
  std::lock_guard<std::mutex> open(open_mutex_);
  const std::vector<const kfd::Node*> gpus = topology_.Gpus();
  if (index >= gpus.size()) {
    const size_t hidden = topology_.hidden_nodes.size();
    return Error(
        Code::kNoDevice, "gpu ", index, ": this process sees ", gpus.size(), " gpus",
        hidden > 0 ? absl::StrCat(" (", hidden, " more are denied by the device cgroup)") : "");
  }
  if (devices_[index] != nullptr) return devices_[index].get();
  const kfd::Node& node = *gpus[index];
  const isa::ChipFacts* chip = isa::ChipByVersion(node.properties.gfx_target_version);
  RETURN_IF_ERROR(CheckNode(node, index, chip));
  ASSIGN_OR_RETURN(auto render_node, AcquireVm(node));
  auto device = std::make_unique<Device>(*this, index, node, *chip, std::move(render_node));
  if (event_page_.valid()) RETURN_IF_ERROR(event_page_.MapTo(*device));
  if (watcher_ == nullptr) {
    const Status status = SetUpEvents(*device);
    if (!status.ok()) {
      DropEventPage();  // before the device it belongs to
      return status;
    }
  }
  std::lock_guard<std::mutex> lock(devices_mutex_);
  devices_[index] = std::move(device);
  return devices_[index].get();
}

Status Process::SetUpEventPage(Device& first) {
  BufferOptions options;
  options.place = Place::kSystem;
  options.caching = Caching::kUncached;
  options.label = "event page";
  ASSIGN_OR_RETURN(event_page_, Buffer::Allocate(first, uapi::kEventPageSize, options));
  return {};
}

void Process::DropEventPage() {
  const Status status =
      kernel_holds_event_page_ ? event_page_.ReleaseToKernel() : event_page_.Release();
  status.IgnoreError();  // it has been logged
}

Status Process::SetUpEvents(Device& first) {
  RETURN_IF_ERROR(SetUpEventPage(first));
  auto stop = Event::Create(*this, uapi::kEventSignal, event_page_.handle(), event_page_.va());
  if (ErrnoOf(stop.status()) == EINVAL) {
    // The page was set before, by an earlier Process or another runtime: events work, mailboxes
    // are out of our reach.
    log().Write(LogLevel::kInfo,
                "waits poll, there is an event page already: ", stop.status().message());
    RETURN_IF_ERROR(event_page_.Release());
    stop = Event::Create(*this, uapi::kEventSignal, 0, 0);
  }
  if (!stop.ok()) return stop.status();
  kernel_holds_event_page_ |= event_page_.valid();
  ASSIGN_OR_RETURN(watcher_, Watcher::Start(*this, *std::move(stop)));
  return {};
}

StatusOr<Event> Process::CreateSignalEvent() {
  return Event::Create(*this, uapi::kEventSignal, 0, event_page_.valid() ? event_page_.va() : 0);
}

void Process::NoteAllocation(uint64_t va, uint64_t size, const char* label) {
  std::lock_guard<std::mutex> lock(allocations_mutex_);
  allocations_[va] = {size, label};
}

void Process::ForgetAllocation(uint64_t va) {
  std::lock_guard<std::mutex> lock(allocations_mutex_);
  allocations_.erase(va);
}

std::string Process::DescribeAddress(uint64_t va) const {
  std::lock_guard<std::mutex> lock(allocations_mutex_);
  auto next = allocations_.upper_bound(va);
  if (next == allocations_.begin()) {
    if (next == allocations_.end()) return "nothing is allocated";
    return absl::StrCat(next->first - va, " bytes before \"", next->second.second, "\"");
  }
  const auto& [start, entry] = *std::prev(next);
  const auto& [size, label] = entry;
  const std::string name =
      absl::StrCat("\"", label, "\" (", size, " bytes at 0x", absl::Hex(start), ")");
  if (va < start + size) return absl::StrCat("at byte ", va - start, " of ", name);
  return absl::StrCat(va - (start + size), " bytes past the end of ", name);
}

void Process::MarkLost(uint32_t gpu_id, const Status& status) {
  std::lock_guard<std::mutex> lock(devices_mutex_);
  for (const auto& device : devices_) {
    if (device != nullptr && (gpu_id == 0 || device->gpu_id() == gpu_id)) device->MarkLost(status);
  }
}

const Device* Process::FindDevice(uint32_t gpu_id) const {
  std::lock_guard<std::mutex> lock(devices_mutex_);
  for (const auto& device : devices_) {
    if (device != nullptr && device->gpu_id() == gpu_id) return device.get();
  }
  return nullptr;
}

}  // namespace mainarch::gpu
