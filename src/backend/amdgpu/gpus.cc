// SPDX-License-Identifier: MIT
#include "backend/amdgpu/gpus.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "backend/amdgpu/threaded.h"
#include "backend/program.h"
#include "base/decimal.h"
#include "isa/kernel_images.h"
#include "kfd/linux_sys.h"
#include "kfd/sim_part.h"

namespace mainarch::amdgpu {
namespace {

constexpr uint32_t kRingPackets = 8192;
constexpr absl::string_view kImage = "decoder";
constexpr absl::string_view kResidentImage = "resident";
constexpr absl::string_view kSimPrefix = "sim:";
constexpr absl::string_view kGpuPrefix = "gpu";
constexpr uint32_t kMaxGpus = 128;

// The node's text and the list of GPUs behind it, "" for all.
struct Choice {
  bool is_sim = false;
  absl::string_view node;
  absl::string_view list;
};

StatusOr<Choice> ParseDevice(absl::string_view text) {
  Choice choice;
  if (text.substr(0, kSimPrefix.size()) == kSimPrefix) {
    choice.is_sim = true;
    choice.node = text.substr(kSimPrefix.size());
    const size_t colon = choice.node.find(':');
    if (colon != absl::string_view::npos) {
      choice.list = choice.node.substr(colon + 1);
      choice.node = choice.node.substr(0, colon);
    }
    return choice;
  }
  absl::string_view rest = text.substr(std::min(text.size(), kGpuPrefix.size()));
  if (text.substr(0, kGpuPrefix.size()) != kGpuPrefix || (!rest.empty() && rest[0] != ':')) {
    return Error(Code::kInvalidArgument, "device \"", text,
                 "\": expected gpu, gpu:LIST or sim:NODE");
  }
  if (!rest.empty()) choice.list = rest.substr(1);
  return choice;
}

StatusOr<const isa::KernelImage*> ImageOf(const gpu::Device& device, absl::string_view name) {
  const absl::string_view isa = device.chip().name;
  for (const isa::KernelImage& candidate : isa::KernelImages()) {
    if (candidate.isa == isa && candidate.name == name) return &candidate;
  }
  return Error(Code::kUnsupported, device.name(), ": this build has no kernels for ", isa);
}

StatusOr<gpu::CodeObject> ParseImage(const isa::KernelImage& image,
                                     absl::Span<const uint8_t> bytes) {
  return gpu::CodeObject::Parse(absl::StrCat(image.name, " (", image.isa, ")"), bytes);
}

}  // namespace

StatusOr<gpu::Buffer> AllocateWrittenOnce(gpu::Device& device, uint64_t bytes, const char* label) {
  gpu::BufferOptions options;
  options.host_access = device.node().vram_is_host_visible();
  options.place = options.host_access ? gpu::Place::kVram : gpu::Place::kSystem;
  if (!options.host_access) options.caching = gpu::Caching::kUncached;
  options.label = label;
  return gpu::Buffer::Allocate(device, bytes, options);
}

StatusOr<std::vector<uint32_t>> ParseGpuList(absl::string_view text) {
  std::vector<uint32_t> list;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(item, '-');
    const uint64_t first = ParseDecimal(ends.front()).value_or(kMaxGpus);
    const uint64_t last = ParseDecimal(ends.back()).value_or(kMaxGpus);
    if (ends.size() > 2 || first > last || last >= kMaxGpus) {
      return Error(Code::kInvalidArgument, "GPU list \"", text, "\", character ",
                   CharacterOf(text, item), ": \"", item, "\" is no number and no range below ",
                   kMaxGpus, ", as 0-3,6");
    }
    for (uint32_t i = static_cast<uint32_t>(first); i <= last; ++i) {
      if (std::find(list.begin(), list.end(), i) != list.end()) {
        return Error(Code::kInvalidArgument, "GPU list \"", text, "\": GPU ", i, " twice");
      }
      list.push_back(i);
    }
  }
  return list;
}

Gpus::~Gpus() {
  gpus_.clear();
  process_.reset();
}

std::vector<gpu::Device*> Gpus::devices() const {
  std::vector<gpu::Device*> devices;
  for (const Gpu& gpu : gpus_) devices.push_back(gpu.device);
  return devices;
}

StatusOr<std::unique_ptr<Gpus>> Gpus::Open(absl::string_view text, uint32_t timeout_ms, const Log& log) {
  ASSIGN_OR_RETURN(const Choice choice, ParseDevice(text));
  std::shared_ptr<kfd::Sys> sys;
  if (choice.is_sim) {
    ASSIGN_OR_RETURN(sys, kfd::OpenVirtual(choice.node));
  } else {
    sys = std::make_shared<kfd::LinuxSys>();
  }
  return OpenOn(std::move(sys), choice.list, /*keep_nodes=*/!choice.is_sim, timeout_ms, log);
}

StatusOr<std::unique_ptr<Gpus>> Gpus::OpenOn(std::shared_ptr<kfd::Sys> sys, absl::string_view text,
                                             bool keep_nodes, uint32_t timeout_ms, const Log& log) {
  std::unique_ptr<Gpus> gpus(new Gpus());
  gpus->log_ = log;
  if (timeout_ms != 0) gpus->timeout_ms_ = timeout_ms;
  gpus->sys_ = std::move(sys);
  gpu::ProcessOptions options;
  options.leave_render_nodes_open = keep_nodes;
  ASSIGN_OR_RETURN(gpus->process_, gpu::Process::Open(*gpus->sys_, options));
  std::vector<uint32_t> list;
  const size_t visible = gpus->process_->topology().Gpus().size();
  if (text.empty()) {
    for (size_t i = 0; i < visible; ++i) list.push_back(static_cast<uint32_t>(i));
  } else {
    ASSIGN_OR_RETURN(list, ParseGpuList(text));
  }
  const size_t n = list.size();
  if (n == 0 || n > backend::kSplitParts || (n & (n - 1)) != 0) {
    return Error(n == 0 ? Code::kNoDevice : Code::kInvalidArgument, n,
                 " GPUs; a group has 1, 2, 4 or 8 of them: name them, as in gpu:0-3 or "
                 "sim:gfx950x8:0-3");
  }
  gpus->gpus_.reserve(n);
  for (uint32_t index : list) RETURN_IF_ERROR(gpus->Settle(gpus->OpenOne(index)));
  return gpus;
}

Status Gpus::Fail(const Status& status) {
  if (!failed_.load(std::memory_order_relaxed)) {
    const Status why = Explain(status);
    status_ = why;
    if (CodeOf(why) == Code::kTimedOut) {
      status_ = WithDevice(Error(Code::kDeviceLost, why.message(),
                                 "; close and open the group again (the kernel log says what hung)"),
                           DeviceOf(why));
    }
    failed_.store(true, std::memory_order_release);
  }
  for (Gpu& gpu : gpus_) {
    gpu.queue->Halt();
    gpu.copy->Halt();
  }
  return status_;
}

Status Gpus::SettleError(const Status& status) {
  const bool lost = CodeOf(status) == Code::kTimedOut || CodeOf(status) == Code::kDeviceLost;
  return lost ? Fail(status) : status;
}

Status Gpus::Health() const {
  if (failed_.load(std::memory_order_acquire)) return status_;
  for (const Gpu& gpu : gpus_) RETURN_IF_ERROR(gpu.device->Health());
  return OkStatus();
}

Status Gpus::Explain(const Status& status) const {
  if (status.ok()) return status;
  const std::string said = sys_->Diagnose();
  return said.empty() || absl::StrContains(status.message(), said) ? status
                                                                    : WithContext(status, said);
}

// Holders do not pause for each other: each would do a little at a time.
Status Gpus::ClaimAnew(QueueHolder* holder, const QueueHolder* own) {
  QueueHolder* const before = holder_;
  holder_ = holder;
  return before != nullptr ? before->Leave(holder == nullptr && before != own) : OkStatus();
}

Status Gpus::CopyAndWait(int32_t rank, uint64_t to, uint64_t from, uint64_t bytes) {
  gpu::CopyQueue& copy = *at(rank).copy;
  RETURN_IF_ERROR(copy.Copy(to, from, bytes, Soon()));
  ASSIGN_OR_RETURN(const uint64_t point, copy.Submit(Soon()));
  return copy.Wait(point, Soon());
}

Status Gpus::LoadThreaded(size_t kind) {
  for (Gpu& gpu : gpus_) {
    if (gpu.threaded[kind] != nullptr) continue;
    gpu::LoadOptions load;
    load.copy = gpu.copy.get();
    if (gpu.resident == nullptr) {
      ASSIGN_OR_RETURN(const isa::KernelImage* kernels, ImageOf(*gpu.device, kResidentImage));
      ASSIGN_OR_RETURN(const gpu::CodeObject object, ParseImage(*kernels, kernels->bytes));
      ASSIGN_OR_RETURN(gpu.resident, gpu::LoadedCode::Load(*gpu.queue, object, load, Soon()));
    }
    ASSIGN_OR_RETURN(const isa::KernelImage* ops, ImageOf(*gpu.device, kImage));
    ASSIGN_OR_RETURN(const gpu::Kernel* back, gpu.resident->Find(kResidents[kind].back));
    ASSIGN_OR_RETURN(const gpu::CodeObject object, ParseImage(*ops, ThreadedImage(*ops, back->entry)));
    ASSIGN_OR_RETURN(gpu.threaded[kind], gpu::LoadedCode::Load(*gpu.queue, object, load, Soon()));
  }
  return OkStatus();
}

Status Gpus::OpenOne(uint32_t index) {
  const gpu::Deadline deadline = Soon();
  Gpu own;
  ASSIGN_OR_RETURN(own.device, process_->OpenDevice(index));
  gpu::QueueOptions queue;
  queue.packets = kRingPackets;
  queue.label = "decoder";
  ASSIGN_OR_RETURN(own.queue, gpu::Queue::Create(*own.device, queue));
  gpu::CopyQueueOptions copy;
  copy.engine = gpu::HostEngine(*own.device, gpu::Direction::kToDevice);
  copy.label = "weights";
  ASSIGN_OR_RETURN(own.copy, gpu::CopyQueue::Create(*own.device, copy));
  ASSIGN_OR_RETURN(const isa::KernelImage* image, ImageOf(*own.device, kImage));
  ASSIGN_OR_RETURN(const gpu::CodeObject object, ParseImage(*image, image->bytes));
  RETURN_IF_ERROR(object.CheckRunsOn(own.device->chip(), 0));
  gpu::LoadOptions load;
  load.copy = own.copy.get();
  ASSIGN_OR_RETURN(own.code, gpu::LoadedCode::Load(*own.queue, object, load, deadline));
  gpus_.push_back(std::move(own));
  return OkStatus();
}

}  // namespace mainarch::amdgpu
