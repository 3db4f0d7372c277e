// SPDX-License-Identifier: MIT
#include "kfd/ioctl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kfd/uapi/kfd_sysfs.h"

namespace mainarch::kfd {
namespace {

// A userptr whose pages the kernel is moving answers EAGAIN for a while; not for ever.
constexpr int kMaxAgain = 64;

std::string Hex(uint64_t value) { return absl::StrCat("0x", absl::Hex(value)); }

// What an errno means at this interface, where the text of the errno alone would mislead.
const char* Meaning(int err) {
  switch (err) {
    case EBADF:
      return " (the device was opened by another process: a fork cannot use its parent's GPUs)";
    case ENOTTY:
      return " (this kernel's driver does not have the call)";
    case uapi::kErrnoNotSupported:
      return " (errno 524: this kernel's driver does not know the type)";
    case ESRCH:
      return " (no address space acquired for this gpu)";
    default:
      return "";
  }
}

template <class... Parts>
Status Failed(int err, const Parts&... parts) {
  return ErrnoError(CodeOfErrno(err), err, parts..., Meaning(err));
}

std::string GpuList(absl::Span<const uint32_t> ids) {
  return absl::StrJoin(ids, ",", [](std::string* out, uint32_t id) { out->append(Hex(id)); });
}

}  // namespace

Code CodeOfErrno(int err) {
  switch (err) {
    case EACCES:
    case EPERM:
      return Code::kPermission;
    case ENOENT:
    case ENODEV:
    case ENXIO:
      return Code::kNoDevice;
    case ENOMEM:
      return Code::kOutOfDeviceMemory;
    case EMFILE:
    case ENFILE:
      return Code::kOutOfHostMemory;
    case EBADF:
      return Code::kWrongProcess;
    case ENOTTY:
    case EOPNOTSUPP:
    case uapi::kErrnoNotSupported:
      return Code::kUnsupported;
    case EBUSY:
    case ENOSPC:
    case EEXIST:
      return Code::kBusy;
    case EIO:
    case ETIME:
      return Code::kDeviceLost;
    default:
      return Code::kIo;
  }
}

StatusOr<std::unique_ptr<Kfd>> Kfd::Open(Sys& sys) {
  std::unique_ptr<Kfd> kfd(new Kfd(sys));
  int fd;
  do {
    fd = sys.Open(uapi::kKfdDevice, O_RDWR | O_CLOEXEC);
  } while (fd == -EINTR);
  if (fd < 0) {
    const char* hint = "";
    if (fd == -ENOENT)
      hint = " (is the amdgpu module loaded, and the device passed to the container?)";
    if (fd == -EACCES) hint = " (is the user in the group that owns it?)";
    if (fd == -EPERM) hint = " (denied by the device cgroup, or a 32-bit process)";
    if (fd == -EINVAL) hint = " (the driver is locked, by a reset or a suspend)";
    if (fd == -ENOMEM) hint = " (loaded, but no GPU of this machine is supported)";
    const Code code = fd == -ENOMEM || fd == -EINVAL ? Code::kNoDevice : CodeOfErrno(-fd);
    return ErrnoError(code, -fd, "open ", uapi::kKfdDevice, hint);
  }
  kfd->fd_ = fd;
  return kfd;
}

Kfd::~Kfd() {
  if (fd_ >= 0) sys_.Close(fd_);
}

int Kfd::Call(uint32_t request, void* argument) {
  int again = 0;
  for (;;) {
    const int result = sys_.Ioctl(fd_, request, argument);
    if (result >= 0) return 0;
    if (result == -EINTR) continue;
    if (result == -EAGAIN && ++again < kMaxAgain) continue;
    return -result;
  }
}

StatusOr<Version> Kfd::GetVersion() {
  uapi::GetVersionArgs args = {};
  if (const int err = Call(uapi::kGetVersion, &args)) return Failed(err, "kfd get_version");
  return Version{args.major_version, args.minor_version};
}

StatusOr<std::vector<uapi::ProcessDeviceApertures>> Kfd::GetProcessApertures() {
  uapi::GetProcessAperturesNewArgs args = {};
  if (const int err = Call(uapi::kGetProcessAperturesNew, &args)) {
    return Failed(err, "kfd get_process_apertures_new(count)");
  }
  constexpr uint32_t kMost = 1024;  // far above any node; the count comes from outside
  if (args.num_of_nodes > kMost) {
    return Error(Code::kIo, "kfd get_process_apertures_new: ", args.num_of_nodes, " gpus, at most ",
                 kMost, " believed");
  }
  std::vector<uapi::ProcessDeviceApertures> apertures(args.num_of_nodes);
  if (apertures.empty()) return apertures;
  args.process_device_apertures_ptr = reinterpret_cast<uint64_t>(apertures.data());
  if (const int err = Call(uapi::kGetProcessAperturesNew, &args)) {
    return Failed(err, "kfd get_process_apertures_new(", apertures.size(), " gpus)");
  }
  if (args.num_of_nodes < apertures.size()) apertures.resize(args.num_of_nodes);
  return apertures;
}

Status Kfd::AcquireVm(uint32_t gpu_id, int drm_fd) {
  uapi::AcquireVmArgs args = {static_cast<uint32_t>(drm_fd), gpu_id};
  if (const int err = Call(uapi::kAcquireVm, &args)) {
    return Failed(err, "kfd acquire_vm(gpu_id ", Hex(gpu_id), ", drm fd ", drm_fd, ")");
  }
  return {};
}

StatusOr<uapi::GetClockCountersArgs> Kfd::GetClockCounters(uint32_t gpu_id) {
  uapi::GetClockCountersArgs args = {};
  args.gpu_id = gpu_id;
  if (const int err = Call(uapi::kGetClockCounters, &args)) {
    return Failed(err, "kfd get_clock_counters(gpu_id ", Hex(gpu_id), ")");
  }
  return args;
}

Status Kfd::SetMemoryPolicy(const uapi::SetMemoryPolicyArgs& policy) {
  uapi::SetMemoryPolicyArgs args = policy;
  if (const int err = Call(uapi::kSetMemoryPolicy, &args)) {
    return Failed(err, "kfd set_memory_policy(gpu_id ", Hex(policy.gpu_id), ", default ",
                  policy.default_policy, ", alternate ", policy.alternate_policy, ", misc ",
                  Hex(policy.misc_process_flag), ")");
  }
  return {};
}

StatusOr<uint64_t> Kfd::AvailableMemory(uint32_t gpu_id) {
  uapi::AvailableMemoryArgs args = {};
  args.gpu_id = gpu_id;
  if (const int err = Call(uapi::kAvailableMemory, &args)) {
    return Failed(err, "kfd available_memory(gpu_id ", Hex(gpu_id), ")");
  }
  return args.available;
}

Status Kfd::AllocMemory(uapi::AllocMemoryArgs* args) {
  const uapi::AllocMemoryArgs asked = *args;
  if (const int err = Call(uapi::kAllocMemory, args)) {
    return Failed(err, "kfd alloc_memory_of_gpu(gpu_id ", Hex(asked.gpu_id), ", va ",
                  Hex(asked.va_addr), ", ", asked.size, " bytes, flags ", Hex(asked.flags), ")");
  }
  return {};
}

Status Kfd::FreeMemory(uint64_t handle) {
  uapi::FreeMemoryArgs args = {handle};
  if (const int err = Call(uapi::kFreeMemory, &args)) {
    return Failed(err, "kfd free_memory_of_gpu(handle ", Hex(handle), ")");
  }
  return {};
}

Status Kfd::MapMemory(uint64_t handle, absl::Span<const uint32_t> gpu_ids, uint32_t* done) {
  uapi::MapMemoryArgs args = {};
  args.handle = handle;
  args.device_ids_array_ptr = reinterpret_cast<uint64_t>(gpu_ids.data());
  args.n_devices = static_cast<uint32_t>(gpu_ids.size());
  args.n_success = *done;
  const int err = Call(uapi::kMapMemory, &args);
  *done = args.n_success <= args.n_devices ? args.n_success : args.n_devices;
  if (err != 0) {
    return Failed(err, "kfd map_memory_to_gpu(handle ", Hex(handle), ", gpu_ids ", GpuList(gpu_ids),
                  "; ", *done, " of ", gpu_ids.size(), " mapped)");
  }
  return {};
}

Status Kfd::UnmapMemory(uint64_t handle, absl::Span<const uint32_t> gpu_ids, uint32_t* done) {
  uapi::UnmapMemoryArgs args = {};
  args.handle = handle;
  args.device_ids_array_ptr = reinterpret_cast<uint64_t>(gpu_ids.data());
  args.n_devices = static_cast<uint32_t>(gpu_ids.size());
  args.n_success = *done;
  const int err = Call(uapi::kUnmapMemory, &args);
  *done = args.n_success <= args.n_devices ? args.n_success : args.n_devices;
  if (err != 0) {
    return Failed(err, "kfd unmap_memory_from_gpu(handle ", Hex(handle), ", gpu_ids ",
                  GpuList(gpu_ids), "; ", *done, " of ", gpu_ids.size(), " unmapped)");
  }
  return {};
}

Status Kfd::CreateQueue(uapi::CreateQueueArgs* args) {
  const uapi::CreateQueueArgs a = *args;
  if (const int err = Call(uapi::kCreateQueue, args)) {
    return Failed(err, "kfd create_queue(gpu_id ", Hex(a.gpu_id), ", type ", a.queue_type,
                  ", ring ", Hex(a.ring_base_address), " of ", a.ring_size, " bytes, wptr ",
                  Hex(a.write_pointer_address), ", rptr ", Hex(a.read_pointer_address), ", eop ",
                  Hex(a.eop_buffer_address), " of ", a.eop_buffer_size, ", save area ",
                  Hex(a.ctx_save_restore_address), " of ", a.ctx_save_restore_size,
                  ", control stack ", a.ctl_stack_size, ", priority ", a.queue_priority,
                  ", engine ", a.sdma_engine_id, ")");
  }
  return {};
}

Status Kfd::UpdateQueue(const uapi::UpdateQueueArgs& update) {
  uapi::UpdateQueueArgs args = update;
  if (const int err = Call(uapi::kUpdateQueue, &args)) {
    return Failed(err, "kfd update_queue(queue ", update.queue_id, ", ring ",
                  Hex(update.ring_base_address), " of ", update.ring_size, " bytes, percentage ",
                  update.queue_percentage, ")");
  }
  return {};
}

Status Kfd::DestroyQueue(uint32_t queue_id) {
  uapi::DestroyQueueArgs args = {queue_id, 0};
  if (const int err = Call(uapi::kDestroyQueue, &args)) {
    return Failed(err, "kfd destroy_queue(queue ", queue_id, ")");
  }
  return {};
}

Status Kfd::SetCuMask(uint32_t queue_id, absl::Span<const uint32_t> mask) {
  uapi::SetCuMaskArgs args = {queue_id, static_cast<uint32_t>(mask.size() * 32),
                              reinterpret_cast<uint64_t>(mask.data())};
  if (const int err = Call(uapi::kSetCuMask, &args)) {
    return Failed(err, "kfd set_cu_mask(queue ", queue_id, ", ", mask.size() * 32, " bits)");
  }
  return {};
}

StatusOr<uapi::GetQueueWaveStateArgs> Kfd::GetQueueWaveState(uint32_t queue_id,
                                                             uint64_t ctl_stack_address) {
  uapi::GetQueueWaveStateArgs args = {};
  args.ctl_stack_address = ctl_stack_address;
  args.queue_id = queue_id;
  if (const int err = Call(uapi::kGetQueueWaveState, &args)) {
    return Failed(err, "kfd get_queue_wave_state(queue ", queue_id, ")");
  }
  return args;
}

Status Kfd::CreateEvent(uapi::CreateEventArgs* args) {
  const uapi::CreateEventArgs asked = *args;
  if (const int err = Call(uapi::kCreateEvent, args)) {
    return Failed(err, "kfd create_event(type ", asked.event_type, ", auto_reset ",
                  asked.auto_reset, ", event page ", Hex(asked.event_page_offset), ")");
  }
  return {};
}

Status Kfd::DestroyEvent(uint32_t event_id) {
  uapi::DestroyEventArgs args = {event_id, 0};
  if (const int err = Call(uapi::kDestroyEvent, &args)) {
    return Failed(err, "kfd destroy_event(event ", event_id, ")");
  }
  return {};
}

Status Kfd::SetEvent(uint32_t event_id) {
  uapi::SetEventArgs args = {event_id, 0};
  if (const int err = Call(uapi::kSetEvent, &args)) {
    return Failed(err, "kfd set_event(event ", event_id, ")");
  }
  return {};
}

Status Kfd::ResetEvent(uint32_t event_id) {
  uapi::ResetEventArgs args = {event_id, 0};
  if (const int err = Call(uapi::kResetEvent, &args)) {
    return Failed(err, "kfd reset_event(event ", event_id, ")");
  }
  return {};
}

StatusOr<bool> Kfd::WaitEvents(absl::Span<uapi::EventData> events, bool all, uint32_t timeout_ms) {
  uapi::WaitEventsArgs args = {};
  args.events_ptr = reinterpret_cast<uint64_t>(events.data());
  args.num_events = static_cast<uint32_t>(events.size());
  args.wait_for_all = all ? 1 : 0;
  args.timeout = timeout_ms;
  // An interrupted call has written the remaining time back, so Call's repetition is a
  // continuation.
  if (const int err = Call(uapi::kWaitEvents, &args)) {
    return Failed(err, "kfd wait_events(", events.size(), " events, first ",
                  events.empty() ? 0 : events[0].event_id, ", ", timeout_ms, " ms; result ",
                  args.wait_result, ")");
  }
  if (args.wait_result == uapi::kWaitFail) {
    return Error(Code::kIo, "kfd wait_events(", events.size(),
                 " events): an event was destroyed while it was waited for");
  }
  return args.wait_result == uapi::kWaitComplete;
}

Status Kfd::RuntimeEnable(uint32_t mode, uint64_t r_debug) {
  uapi::RuntimeEnableArgs args = {};
  args.r_debug = r_debug;
  args.mode_mask = mode;
  if (const int err = Call(uapi::kRuntimeEnable, &args)) {
    return Failed(err, "kfd runtime_enable(mode ", mode, ")");
  }
  return {};
}

Status Kfd::SetTrapHandler(uint32_t gpu_id, uint64_t tba, uint64_t tma) {
  uapi::SetTrapHandlerArgs args = {tba, tma, gpu_id, 0};
  if (const int err = Call(uapi::kSetTrapHandler, &args)) {
    return Failed(err, "kfd set_trap_handler(gpu_id ", Hex(gpu_id), ", tba ", Hex(tba), ", tma ",
                  Hex(tma), ")");
  }
  return {};
}

Status Kfd::SetScratchBackingVa(uint32_t gpu_id, uint64_t va) {
  uapi::SetScratchBackingVaArgs args = {va, gpu_id, 0};
  if (const int err = Call(uapi::kSetScratchBackingVa, &args)) {
    return Failed(err, "kfd set_scratch_backing_va(gpu_id ", Hex(gpu_id), ", va ", Hex(va), ")");
  }
  return {};
}

StatusOr<int32_t> Kfd::SetXnackMode(int32_t mode) {
  uapi::SetXnackModeArgs args = {mode};
  if (const int err = Call(uapi::kSetXnackMode, &args)) {
    return Failed(err, "kfd set_xnack_mode(", mode, ")");
  }
  return args.xnack_enabled;
}

StatusOr<int> Kfd::SmiEvents(uint32_t gpu_id) {
  uapi::SmiEventsArgs args = {gpu_id, 0};
  if (const int err = Call(uapi::kSmiEvents, &args)) {
    return Failed(err, "kfd smi_events(gpu_id ", Hex(gpu_id), ")");
  }
  return static_cast<int>(args.anon_fd);
}

StatusOr<int> Kfd::ExportDmabuf(uint64_t handle, uint32_t flags) {
  uapi::ExportDmabufArgs args = {handle, flags, 0};
  if (const int err = Call(uapi::kExportDmabuf, &args)) {
    return Failed(err, "kfd export_dmabuf(handle ", Hex(handle), ", flags ", Hex(flags), ")");
  }
  return static_cast<int>(args.dmabuf_fd);
}

StatusOr<uint64_t> Kfd::ImportDmabuf(uint32_t gpu_id, int dmabuf_fd, uint64_t va) {
  uapi::ImportDmabufArgs args = {va, 0, gpu_id, static_cast<uint32_t>(dmabuf_fd)};
  if (const int err = Call(uapi::kImportDmabuf, &args)) {
    return Failed(err, "kfd import_dmabuf(gpu_id ", Hex(gpu_id), ", fd ", dmabuf_fd, ", va ",
                  Hex(va), ")");
  }
  return args.handle;
}

StatusOr<uapi::GetDmabufInfoArgs> Kfd::GetDmabufInfo(int dmabuf_fd) {
  uapi::GetDmabufInfoArgs args = {};
  args.dmabuf_fd = static_cast<uint32_t>(dmabuf_fd);
  if (const int err = Call(uapi::kGetDmabufInfo, &args)) {
    return Failed(err, "kfd get_dmabuf_info(fd ", dmabuf_fd, ")");
  }
  return args;
}

Status Kfd::Svm(uint64_t start, uint64_t size, uint32_t op,
                absl::Span<const uapi::SvmAttribute> attributes) {
  // The block ends with the attributes, and its size is in the request word (14 bits).
  const size_t bytes = sizeof(uapi::SvmArgs) + attributes.size() * sizeof(uapi::SvmAttribute);
  if (bytes > 0x3fff) {
    return Error(Code::kInvalidArgument, "kfd svm: ", attributes.size(), " attributes, at most ",
                 (0x3fff - sizeof(uapi::SvmArgs)) / sizeof(uapi::SvmAttribute));
  }
  std::vector<uint64_t> block((bytes + 7) / 8);
  const uapi::SvmArgs args = {start, size, op, static_cast<uint32_t>(attributes.size())};
  memcpy(block.data(), &args, sizeof args);
  if (!attributes.empty()) {
    memcpy(reinterpret_cast<uint8_t*>(block.data()) + sizeof args, attributes.data(),
           attributes.size() * sizeof(uapi::SvmAttribute));
  }
  const uint32_t request = uapi::Request(uapi::kDirRead | uapi::kDirWrite, uapi::kNrSvm, bytes);
  if (const int err = Call(request, block.data())) {
    return Failed(err, "kfd svm(start ", Hex(start), ", ", size, " bytes, op ", op, ", ",
                  attributes.size(), " attributes)");
  }
  return {};
}

}  // namespace mainarch::kfd
