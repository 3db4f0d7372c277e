// SPDX-License-Identifier: MIT
#include "sim/process.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "sim/sdma_queue.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

// The driver's own event page, made when the client brings none: 256 slots.
constexpr uint32_t kSmallEventSlots = 256;

// The kernel's idea of an ioctl: how many bytes its block has and which way it is copied.
struct IoctlShape {
  uint32_t size = 0;
  uint32_t direction = 0;
};

constexpr IoctlShape Shape(uint32_t request) {
  return {uapi::RequestSize(request), uapi::RequestDirection(request)};
}

IoctlShape ShapeOf(uint32_t number) {
  constexpr uint32_t kRequests[] = {uapi::kGetVersion,          uapi::kCreateQueue,
                                    uapi::kDestroyQueue,        uapi::kSetMemoryPolicy,
                                    uapi::kGetClockCounters,    uapi::kGetProcessApertures,
                                    uapi::kUpdateQueue,         uapi::kCreateEvent,
                                    uapi::kDestroyEvent,        uapi::kSetEvent,
                                    uapi::kResetEvent,          uapi::kWaitEvents,
                                    uapi::kSetScratchBackingVa, uapi::kGetTileConfig,
                                    uapi::kSetTrapHandler,      uapi::kGetProcessAperturesNew,
                                    uapi::kAcquireVm,           uapi::kAllocMemory,
                                    uapi::kFreeMemory,          uapi::kMapMemory,
                                    uapi::kUnmapMemory,         uapi::kSetCuMask,
                                    uapi::kGetQueueWaveState,   uapi::kGetDmabufInfo,
                                    uapi::kImportDmabuf,        uapi::kAllocQueueGws,
                                    uapi::kSmiEvents,           uapi::kSvm,
                                    uapi::kSetXnackMode,        uapi::kCriuOp,
                                    uapi::kAvailableMemory,     uapi::kExportDmabuf,
                                    uapi::kRuntimeEnable,       uapi::kDbgTrap};
  for (uint32_t request : kRequests) {
    if (uapi::RequestNr(request) == number) return Shape(request);
  }
  return {32, uapi::kDirRead | uapi::kDirWrite};  // the old debug stubs
}

template <class T>
T& As(uint8_t* block) {
  return *reinterpret_cast<T*>(block);
}

int64_t NextPid() {
  static std::atomic<int64_t> made{0};
  return getpid() + made.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

bool CopyFromUser(void* to, uint64_t from, size_t size) {
  if (size == 0) return true;
  iovec local = {to, size};
  iovec remote = {reinterpret_cast<void*>(from), size};
  const ssize_t copied = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  if (copied >= 0) return static_cast<size_t>(copied) == size;
  if (errno == EFAULT || from == 0) return false;
  std::memcpy(to, reinterpret_cast<const void*>(from), size);  // the call is not allowed here
  return true;
}

bool CopyToUser(uint64_t to, const void* from, size_t size) {
  if (size == 0) return true;
  iovec local = {const_cast<void*>(from), size};
  iovec remote = {reinterpret_cast<void*>(to), size};
  const ssize_t copied = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
  if (copied >= 0) return static_cast<size_t>(copied) == size;
  if (errno == EFAULT || to == 0) return false;
  std::memcpy(reinterpret_cast<void*>(to), from, size);
  return true;
}

GpuVm::GpuVm(Node* node, Process* process, uint32_t gpu)
    : node_(node), process_(process), gpu_(gpu) {
  for (uint64_t page : node->script().BadPages(gpu)) table.Poison(page);
}

uint32_t GpuVm::process_id() const { return process_->id(); }

void GpuVm::Note(const std::string& line) {
  node_->Note(absl::StrCat("process ", process_->id(), " GPU ", gpu_, ": ", line));
}

void GpuVm::Interrupt(uint32_t context_id, int bits) {
  if (context_id == 0) return;  // a known firmware glitch: the driver drops it
  process_->events().Interrupt(context_id, bits);
}

void GpuVm::OnFault(HwQueue& queue, const MemoryFault& fault) {
  process_->ReportSmi(gpu_, uapi::kSmiVmFault,
                      absl::StrCat(absl::Hex(getpid()), ":", program_invocation_short_name));
  Note(absl::StrCat(queue.engine(), " ", queue.id(), ": page fault at ", absl::Hex(fault.va),
                    fault.not_present ? " (not present)" : "",
                    fault.read_only ? " (read only)" : "",
                    fault.no_execute ? " (not executable)" : ""));
  for (HwQueue* other : node_->queues_[gpu_]) {
    if (other->setup().host == this) other->set_state(HwQueue::State::kEvicted);
  }
  uapi::MemoryExceptionData data = {};
  data.failure.not_present = fault.not_present ? 1 : 0;
  data.failure.read_only = fault.read_only ? 1 : 0;
  data.failure.no_execute = fault.no_execute ? 1 : 0;
  data.va = fault.va & ~(kPageSize - 1);
  data.gpu_id = node_->gpus()[gpu_].gpu_id;
  process_->events().RaiseMemory(data);
}

void GpuVm::OnException(HwQueue& queue, WaveException exception, const std::string& detail) {
  const uint32_t code = static_cast<uint32_t>(exception);
  Note(absl::StrCat(kHaltedWave, " ", code, " in ", queue.engine(), " ", queue.id(), ": ", detail));
  // Nobody shall wait for a time-out to read what a checker found.
  if (node_->config().check.any()) node_->Reset(gpu_, uapi::kResetCauseHang, false);
  // Without a second-level trap handler nobody is told.
  if (trap_handler != 0) TellRuntime(queue, code);
}

void GpuVm::OnPacketError(HwQueue& queue, uint32_t code) { TellRuntime(queue, code); }

void GpuVm::TellRuntime(const HwQueue& queue, uint32_t code) {
  const uint64_t area = queue.setup().save_area_va;
  if (!process_->runtime_enabled_ || area == 0) return;
  const Bus bus(*this);
  uapi::CwsrHeader header;
  uint64_t reasons = 0;
  MemoryFault ignored;
  if (!bus.Read(area, &header, sizeof(header), &ignored) || header.err_payload_addr == 0) return;
  if (!bus.Load64(header.err_payload_addr, &reasons, &ignored)) return;
  reasons |= uint64_t{1} << (code - 1);
  if (!bus.Store64(header.err_payload_addr, reasons, &ignored)) return;
  process_->events().SetFromDriver(header.err_event_id);
}

void GpuVm::OnTrouble(HwQueue& queue, Trouble trouble) {
  Note(absl::StrCat(queue.engine(), " ", queue.id(), " is in trouble"));
  if (trouble == Trouble::kGone) {
    node_->Remove(gpu_);
  } else {
    const bool ecc = trouble == Trouble::kEcc;
    node_->Reset(gpu_, ecc ? uapi::kResetCauseEcc : uapi::kResetCauseHang, ecc);
  }
}

Process::Process(std::shared_ptr<Node> node)
    : node_(std::move(node)),
      id_([this] {
        std::lock_guard lock(node_->mutex());
        return node_->next_process_++;
      }()),
      pid_(NextPid()),
      events_(node_->config().kfd_minor, node_->config().nudge_ms) {
  for (uint32_t gpu = 0; gpu < node_->config().gpus; ++gpu) {
    vms_.push_back(std::make_unique<GpuVm>(node_.get(), this, gpu));
  }
  Gate::Closed closed(node_->gate_);
  node_->Attach(this);
}

Process::~Process() {
  events_.Shutdown();
  std::lock_guard lock(node_->mutex());
  {
    Gate::Closed closed(node_->gate_);
    for (auto& [id, record] : queues_) ReleaseQueue(record);
    queues_.clear();
    for (auto& [id, file] : gem_) DropEngine(file);
    for (auto& vm : vms_) {
      vm->table.Clear();
      node_->executor().Forget(*vm);
    }
    node_->TablesChanged();
    node_->Detach(this);
  }
  for (auto& vm : vms_) {
    for (auto& [id, buffer] : vm->buffers) Release(*buffer);
    vm->buffers.clear();
  }
  for (auto& [id, file] : gem_) {
    for (auto& [handle, buffer] : file.objects) Release(*buffer);
  }
}

void Process::ReportSmi(uint32_t gpu, uint32_t event, const std::string& line) {
  const std::string text = absl::StrCat(absl::Hex(event), " ", line, "\n");
  std::lock_guard lock(smi_mutex_);
  for (SmiStream& stream : smi_) {
    // The mask is what the client wrote to its end last.
    uint64_t mask = 0;
    while (recv(stream.end.get(), &mask, sizeof mask, MSG_DONTWAIT) == sizeof mask) {
      stream.mask = mask;
    }
    if (stream.gpu != gpu || (stream.mask >> (event - 1) & 1) == 0) continue;
    // A client that does not read loses events, as in the kernel.
    send(stream.end.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

int Process::KnownGpu(uint32_t gpu_id, uint32_t* gpu) const {
  const int index = node_->GpuIndex(gpu_id);
  if (index < 0) return -EINVAL;
  *gpu = static_cast<uint32_t>(index);
  return node_->gone(*gpu) ? -ENODEV : 0;
}

// The table ended earlier in older drivers (reference: KFD minor history).
uint32_t Process::LastIoctl() const {
  const uint32_t minor = node_->config().kfd_minor;
  if (minor >= 13) return uapi::kNrDbgTrap;
  if (minor >= 12) return uapi::kNrExportDmabuf;
  if (minor >= 9) return uapi::kNrAvailableMemory;
  if (minor >= 7) return uapi::kNrCriuOp;
  if (minor >= 5) return uapi::kNrSetXnackMode;
  if (minor >= 3) return uapi::kNrSmiEvents;
  return uapi::kNrAllocQueueGws;
}

int Process::Ioctl(const Caller& caller, uint32_t request, void* argument) {
  const uint32_t number = uapi::RequestNr(request);
  if (number == 0 || number > LastIoctl()) return -ENOTTY;
  const IoctlShape shape = ShapeOf(number);
  // The block is as long as the caller says; what the kernel knows beyond that is zero.
  const uint32_t size = uapi::RequestSize(request);
  alignas(8) std::array<uint8_t, 1 << 14> block;
  std::memset(block.data(), 0, std::max<uint32_t>(size, 512));
  const uint64_t user = reinterpret_cast<uint64_t>(argument);
  if (number == uapi::kNrCriuOp) return -EACCES;  // asked first: a capability nobody has here
  if ((shape.direction & uapi::kDirWrite) != 0 && !CopyFromUser(block.data(), user, size)) {
    return -EFAULT;
  }
  const int scripted = node_->script().OnIoctl(number);
  if (scripted != 0) return -scripted;
  int result = 0;
  if (number == uapi::kNrWaitEvents) {
    result = WaitEvents(*reinterpret_cast<uapi::WaitEventsArgs*>(block.data()));
  } else {
    std::lock_guard lock(node_->mutex());
    result = Dispatch(caller, number, block.data(), size);
  }
  if ((shape.direction & uapi::kDirRead) != 0 && !CopyToUser(user, block.data(), size)) {
    return -EFAULT;
  }
  return result;
}

int Process::Dispatch(const Caller& caller, uint32_t number, uint8_t* args, uint32_t size) {
  switch (number) {
    case uapi::kNrGetVersion:
      return GetVersion(As<uapi::GetVersionArgs>(args));
    case uapi::kNrCreateQueue:
      return CreateQueue(As<uapi::CreateQueueArgs>(args));
    case uapi::kNrDestroyQueue:
      return DestroyQueue(As<uapi::DestroyQueueArgs>(args));
    case uapi::kNrSetMemoryPolicy:
      return SetMemoryPolicy(As<uapi::SetMemoryPolicyArgs>(args));
    case uapi::kNrGetClockCounters:
      return GetClockCounters(As<uapi::GetClockCountersArgs>(args));
    case uapi::kNrGetProcessApertures:
      return GetApertures(As<uapi::GetProcessAperturesArgs>(args));
    case uapi::kNrUpdateQueue:
      return UpdateQueue(As<uapi::UpdateQueueArgs>(args));
    case uapi::kNrCreateEvent:
      return CreateEvent(As<uapi::CreateEventArgs>(args));
    case uapi::kNrDestroyEvent:
      return events_.Destroy(As<uapi::DestroyEventArgs>(args).event_id);
    case uapi::kNrSetEvent:
      return events_.Set(As<uapi::SetEventArgs>(args).event_id);
    case uapi::kNrResetEvent:
      return events_.Reset(As<uapi::ResetEventArgs>(args).event_id);
    case uapi::kNrSetScratchBackingVa:
      return SetScratchBackingVa(As<uapi::SetScratchBackingVaArgs>(args));
    case uapi::kNrGetTileConfig:
      return GetTileConfig(As<uapi::GetTileConfigArgs>(args));
    case uapi::kNrSetTrapHandler:
      return SetTrapHandler(As<uapi::SetTrapHandlerArgs>(args));
    case uapi::kNrGetProcessAperturesNew:
      return GetAperturesNew(As<uapi::GetProcessAperturesNewArgs>(args));
    case uapi::kNrAcquireVm:
      return AcquireVm(caller, As<uapi::AcquireVmArgs>(args));
    case uapi::kNrAllocMemory:
      return AllocMemory(As<uapi::AllocMemoryArgs>(args));
    case uapi::kNrFreeMemory:
      return FreeMemory(As<uapi::FreeMemoryArgs>(args));
    case uapi::kNrMapMemory:
      return MapMemory(As<uapi::MapMemoryArgs>(args));
    case uapi::kNrUnmapMemory:
      return UnmapMemory(As<uapi::UnmapMemoryArgs>(args));
    case uapi::kNrSetCuMask:
      return SetCuMask(As<uapi::SetCuMaskArgs>(args));
    case uapi::kNrGetDmabufInfo:
      return GetDmabufInfo(caller, As<uapi::GetDmabufInfoArgs>(args));
    case uapi::kNrImportDmabuf:
      return ImportDmabuf(caller, As<uapi::ImportDmabufArgs>(args));
    case uapi::kNrExportDmabuf:
      return ExportDmabuf(caller, As<uapi::ExportDmabufArgs>(args));
    case uapi::kNrSmiEvents:
      return SmiEvents(caller, As<uapi::SmiEventsArgs>(args));
    case uapi::kNrSetXnackMode:
      return SetXnackMode(As<uapi::SetXnackModeArgs>(args));
    case uapi::kNrAvailableMemory:
      return AvailableMemory(As<uapi::AvailableMemoryArgs>(args));
    case uapi::kNrRuntimeEnable:
      return RuntimeEnable(As<uapi::RuntimeEnableArgs>(args));
    case uapi::kNrSvm:
      return Svm(As<uapi::SvmArgs>(args), size);
    case uapi::kNrDbgTrap:
      return DbgTrap(As<uapi::DbgTrapArgs>(args));
    case uapi::kNrAllocQueueGws:
      return AllocQueueGws(As<uapi::AllocQueueGwsArgs>(args));
    case uapi::kNrGetQueueWaveState:
      return GetQueueWaveState(As<uapi::GetQueueWaveStateArgs>(args).queue_id);
    // The old debug stubs.
    default:
      return -EPERM;
  }
}

int64_t Process::KfdMapping(uint64_t cookie, uint64_t size) {
  std::lock_guard lock(node_->mutex());
  const uint64_t type = cookie >> uapi::kMmapTypeShift;
  if (type == uapi::kMmapTypeEvents) {
    if (events_.has_page() || size < kSmallEventSlots * 8) return -EINVAL;
    StatusOr<Block> page = node_->arena().Allocate(size);
    if (!page.ok()) return -ENOMEM;
    driver_event_page_ = *std::move(page);
    events_.SetPage(driver_event_page_.data(), kSmallEventSlots);
    return static_cast<int64_t>(driver_event_page_.offset());
  }
  uint32_t gpu = 0;
  const int known = KnownGpu(cookie >> uapi::kMmapGpuIdShift & 0xffff, &gpu);
  if (known != 0) return known;
  if (type == uapi::kMmapTypeDoorbell) {
    if (size != uapi::kDoorbellSliceSize) return -EINVAL;
    if (const int error = EnsureDoorbells(*vms_[gpu]); error != 0) return error;
    return static_cast<int64_t>(vms_[gpu]->doorbells.offset());
  }
  if (type != uapi::kMmapTypeMmio || size != uapi::kMmioRemapSize) return -EINVAL;
  if (mmio_page_.size() == 0) {
    StatusOr<Block> page = node_->arena().Allocate(uapi::kMmioRemapSize);
    if (!page.ok()) return -ENOMEM;
    mmio_page_ = *std::move(page);
  }
  return static_cast<int64_t>(mmio_page_.offset());
}

int64_t Process::RenderMapping(uint64_t drm_file, uint64_t cookie, uint64_t size) {
  std::lock_guard lock(node_->mutex());
  if (const auto file = gem_.find(drm_file); file != gem_.end() && cookie != 0) {
    for (const auto& [handle, buffer] : file->second.objects) {
      if (buffer->mmap_offset != cookie) continue;
      return size > buffer->size ? -EINVAL : static_cast<int64_t>(buffer->block.offset());
    }
  }
  for (auto& vm : vms_) {
    for (auto& [id, buffer] : vm->buffers) {
      if (buffer->mmap_offset != cookie || cookie == 0) continue;
      if (buffer->drm_file != drm_file) return -EACCES;
      if ((buffer->flags & uapi::kAllocUserptr) != 0) return -EPERM;
      if (size > buffer->size) return -EINVAL;
      return static_cast<int64_t>(buffer->block.offset());
    }
  }
  return -EINVAL;
}

Ledger Process::ledger() {
  std::lock_guard lock(node_->mutex());
  Ledger ledger;
  for (auto& vm : vms_) {
    ledger.buffers += vm->buffers.size();
    ledger.gpu_mappings += vm->table.size();
    for (auto& [id, buffer] : vm->buffers) ledger.vram_bytes += buffer->vram_charge;
  }
  for (const auto& [id, file] : gem_) {
    for (const auto& [handle, buffer] : file.objects) {
      if (buffer->handle != 0) continue;  // counted above
      ++ledger.buffers;
      ledger.vram_bytes += buffer->vram_charge;
    }
  }
  ledger.queues = queues_.size();
  ledger.events = events_.count();
  return ledger;
}

}  // namespace mainarch::sim
