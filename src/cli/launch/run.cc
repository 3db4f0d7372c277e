// SPDX-License-Identifier: MIT
#include "cli/launch/run.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/fd.h"
#include "gpu/code_object.h"
#include "gpu/hidden_arguments.h"
#include "gpu/loader.h"
#include "gpu/process.h"
#include "gpu/queue.h"

namespace mainarch::cli {
namespace {

constexpr size_t kMostObjectBytes = size_t{256} << 20;
// Behind each buffer, so that a kernel that goes too far is caught and does not meet the next one.
constexpr uint64_t kGuardBytes = 65536;  // and to the end of the last page
constexpr uint32_t kKernargAlign = 256;
constexpr uint8_t kCanary = 0xa5;
constexpr size_t kShownKernels = 8;
constexpr double kTicksPerUs = 100;  // of the GPU's clock

// Registers as the descriptor allocates them (gfx90a and later: by eight, SGPRs by sixteen).
uint32_t VgprsOf(const isa::KernelDescriptor& d) { return ((d.compute_pgm_rsrc1 & 63) + 1) * 8; }
uint32_t SgprsOf(const isa::KernelDescriptor& d) { return ((d.compute_pgm_rsrc1 >> 6 & 15) / 2 + 1) * 16; }

uint32_t ItemsOf(const LaunchFile& launch) {
  return launch.workgroup[0] * launch.workgroup[1] * launch.workgroup[2];
}

// What the file says of the kernel, held against what the object and the chip say.
class Checker {
 public:
  Checker(const LaunchFile& launch, const gpu::CodeKernel& kernel, const isa::ChipFacts& chip)
      : launch_(launch), kernel_(kernel), chip_(chip) {}

  Status Check(LaunchResult* result) const {
    RETURN_IF_ERROR(CheckWorkgroup());
    RETURN_IF_ERROR(CheckArguments(result->kernarg));
    return CheckFits(result);
  }

 private:
  Status CheckWorkgroup() const {
    if (!launch_.isa.empty() && launch_.isa != chip_.name) {
      return LaunchError(launch_, launch_.isa_line, "isa ", launch_.isa, ": the device is ", chip_.name);
    }
    if (ItemsOf(launch_) > kernel_.max_workgroup) {
      return LaunchError(launch_, launch_.workgroup_line, "workgroup ", absl::StrJoin(launch_.workgroup, " x "), ": ",
                         ItemsOf(launch_), " work-items; kernel ", kernel_.name, " was compiled for at most ",
                         kernel_.max_workgroup);
    }
    const uint64_t lds = uint64_t{launch_.lds} + kernel_.descriptor.group_segment_fixed_size;
    if (lds > chip_.lds_bytes) {
      return LaunchError(launch_, std::max(launch_.lds_line, launch_.kernel_line), "lds ", launch_.lds, ": with ",
                         kernel_.descriptor.group_segment_fixed_size, " static bytes of kernel ", kernel_.name, ", ",
                         chip_.name, " has ", chip_.lds_bytes);
    }
    return OkStatus();
  }

  // Every argument that the metadata lists is set whole, and nothing is set beyond the buffer.
  Status CheckArguments(uint32_t kernarg) const {
    if (launch_.kernarg.has_value() && *launch_.kernarg < kernel_.kernarg_bytes) {
      return LaunchError(launch_, launch_.kernarg_line, "kernarg ", *launch_.kernarg, ": kernel ", kernel_.name,
                         " takes ", kernel_.kernarg_bytes);
    }
    for (const LaunchArgument& argument : launch_.arguments) {
      if (argument.offset + argument.size > kernarg) {
        return LaunchError(launch_, argument.line, "arg ", argument.offset, " ", argument.type, ": ends at byte ",
                           argument.offset + argument.size, "; kernel ", kernel_.name, " takes ", kernarg,
                           " bytes of arguments (a statement kernarg makes room for more)");
      }
    }
    for (const gpu::CodeArgument& wanted : kernel_.arguments) {
      if (absl::StartsWith(wanted.kind, "hidden_")) continue;
      for (uint32_t byte = wanted.offset; byte < wanted.offset + wanted.size; ++byte) {
        const bool set = std::any_of(launch_.arguments.begin(), launch_.arguments.end(), [byte](const auto& given) {
          return byte >= given.offset && byte < given.offset + given.size;
        });
        if (set) continue;
        return LaunchError(launch_, launch_.kernel_line, "kernel ", kernel_.name, " takes ", wanted.size, " bytes at ",
                           wanted.offset, " (", wanted.kind, "); no arg sets byte ", byte);
      }
    }
    return OkStatus();
  }

  Status CheckFits(LaunchResult* result) const {
    isa::KernelInfo info = {};
    info.name = kernel_.name;
    info.vgprs = result->vgprs;
    info.sgprs = result->sgprs;
    info.lds_bytes = result->static_lds;
    info.threads = ItemsOf(launch_);
    ASSIGN_OR_RETURN(result->occupancy, isa::OccupancyOf(chip_.name, info, launch_.lds));
    if (result->occupancy.groups_per_cu == 0) {
      return LaunchError(launch_, launch_.workgroup_line, "workgroup ", absl::StrJoin(launch_.workgroup, " x "), ": ",
                         result->waves, " waves of ", result->vgprs, " VGPRs do not fit a compute unit (",
                         result->occupancy.limit, ")");
    }
    const uint64_t places = uint64_t{result->occupancy.groups_per_cu} * result->compute_units;
    if (launch_.resident && result->workgroups > places) {
      return LaunchError(launch_, launch_.resident_line, "resident: ", result->workgroups,
                         " workgroups; ", result->compute_units, " compute units hold ",
                         result->occupancy.groups_per_cu, " each (", result->occupancy.limit, "), ", places,
                         " in all");
    }
    return OkStatus();
  }

  const LaunchFile& launch_;
  const gpu::CodeKernel& kernel_;
  const isa::ChipFacts& chip_;
};

Status WriteWhole(const LaunchFile& launch, const LaunchOutput& output, absl::Span<const uint8_t> bytes) {
  const std::string path = PathBeside(launch, output.path);
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoError(Code::kIo, errno, launch.name, ":", output.line, ": create ", path);
  while (!bytes.empty()) {
    const ssize_t part = write(fd.get(), bytes.data(), bytes.size());
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return ErrnoError(Code::kIo, errno, launch.name, ":", output.line, ": write ", path);
    bytes.remove_prefix(static_cast<size_t>(part));
  }
  return OkStatus();
}

class Runner {
 public:
  Runner(const LaunchFile& launch, const LaunchOptions& options) : launch_(launch), options_(options) {}
  ~Runner() {
    queue_.reset();  // before the memory that it may still use
  }

  StatusOr<LaunchResult> Run(kfd::Sys& sys) {
    RETURN_IF_ERROR(ReadObject());
    ASSIGN_OR_RETURN(process_, gpu::Process::Open(sys, {}));
    ASSIGN_OR_RETURN(device_, process_->OpenDevice(options_.gpu));
    RETURN_IF_ERROR(Check());
    RETURN_IF_ERROR(MakeQueue());
    RETURN_IF_ERROR(MakeBuffers());
    for (uint32_t run = 0; run < launch_.runs; ++run) RETURN_IF_ERROR(RunOnce(run));
    RETURN_IF_ERROR(Examine());
    return std::move(result_);
  }

 private:
  gpu::Deadline Soon() const { return gpu::Deadline::In(options_.timeout_ms); }

  Status ReadObject() {
    const std::string path = PathBeside(launch_, launch_.object);
    StatusOr<std::string> bytes = ReadWholeFile(path, kMostObjectBytes);
    const std::string where = absl::StrCat(launch_.name, ":", launch_.object_line);
    if (!bytes.ok()) return WithContext(bytes.status(), where);
    auto object = gpu::CodeObject::Parse(
        launch_.object, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()));
    if (!object.ok()) return WithContext(object.status(), where);
    object_ = std::make_unique<gpu::CodeObject>(std::move(*object));
    std::vector<absl::string_view> names;
    for (const gpu::CodeKernel& kernel : object_->kernels()) {
      if (kernel.name == launch_.kernel) kernel_ = &kernel;
      if (names.size() < kShownKernels) names.push_back(kernel.name);
    }
    if (kernel_ != nullptr) return OkStatus();
    return LaunchError(launch_, launch_.kernel_line, "kernel ", launch_.kernel, ": code object ", launch_.object,
                       " has ", object_->kernels().size(), names.empty() ? " kernels" : " kernels: ",
                       absl::StrJoin(names, " "));
  }

  Status Check() {
    const isa::KernelDescriptor& d = kernel_->descriptor;
    result_.isa = device_->chip().name;
    result_.device = device_->name();
    result_.vgprs = VgprsOf(d);
    result_.sgprs = SgprsOf(d);
    result_.static_lds = d.group_segment_fixed_size;
    result_.kernarg = std::max(kernel_->kernarg_bytes, launch_.kernarg.value_or(0));
    const kfd::NodeProperties& properties = device_->node().properties;
    result_.compute_units = static_cast<uint32_t>(properties.simd_count / std::max<uint64_t>(properties.simd_per_cu, 1));
    result_.workgroups = uint64_t{launch_.workgroups[0]} * launch_.workgroups[1] * launch_.workgroups[2];
    result_.waves = (ItemsOf(launch_) + 63) / 64;
    return Checker(launch_, *kernel_, device_->chip()).Check(&result_);
  }

  Status MakeQueue() {
    uint32_t scratch = 0;  // the loader wants room for every kernel of the object
    for (const gpu::CodeKernel& kernel : object_->kernels()) {
      const bool dynamic = (kernel.descriptor.kernel_code_properties & isa::kPropertyDynamicStack) != 0;
      scratch = std::max(scratch, kernel.descriptor.private_segment_fixed_size +
                                      (dynamic ? isa::kLeastDynamicStack : 0));
    }
    result_.scratch = kernel_->descriptor.private_segment_fixed_size;
    gpu::QueueOptions queue;
    queue.scratch_bytes_per_lane = scratch;
    queue.profile = true;
    queue.label = "launch file";
    ASSIGN_OR_RETURN(queue_, gpu::Queue::Create(*device_, queue));
    gpu::LoadOptions load;
    load.scratch_bytes_per_lane = scratch;
    StatusOr<std::unique_ptr<gpu::LoadedCode>> code = gpu::LoadedCode::Load(*queue_, *object_, load, Soon());
    if (!code.ok()) {
      return WithContext(code.status(), absl::StrCat(launch_.name, ":", launch_.object_line));
    }
    code_ = std::move(*code);
    ASSIGN_OR_RETURN(placed_, code_->Find(launch_.kernel));
    result_.kernel_object = placed_->object;
    result_.code_va = code_->va();
    result_.code_bytes = code_->size();
    return OkStatus();
  }

  StatusOr<gpu::Buffer> Allocate(uint64_t bytes, gpu::Place place, const char* label) {
    gpu::BufferOptions options;
    options.place = place;
    options.host_access = true;
    options.label = label;
    if (place == gpu::Place::kSystem) options.caching = gpu::Caching::kUncached;
    return gpu::Buffer::Allocate(*device_, bytes, options);
  }

  Status MakeBuffers() {
    for (uint32_t copy = 0; copy < launch_.rotate; ++copy) {
      for (const LaunchBuffer& wanted : launch_.buffers) {
        StatusOr<gpu::Buffer> made = Allocate(wanted.bytes + kGuardBytes, gpu::Place::kVram, wanted.name.c_str());
        if (!made.ok()) {
          return WithContext(made.status(), absl::StrCat(launch_.name, ":", wanted.line, ": buffer ", wanted.name));
        }
        RETURN_IF_ERROR(FillBuffer(launch_, wanted, absl::MakeSpan(made->host(), wanted.bytes)));
        std::memset(made->host() + wanted.bytes, kCanary, made->size() - wanted.bytes);
        buffers_.push_back(std::move(*made));
      }
    }
    RETURN_IF_ERROR(device_->FlushHostWrites());
    const gpu::Place place = launch_.device_arguments ? gpu::Place::kVram : gpu::Place::kSystem;
    kernarg_stride_ = (std::max(result_.kernarg, 1u) + kKernargAlign - 1) / kKernargAlign * kKernargAlign;
    ASSIGN_OR_RETURN(kernarg_, Allocate(uint64_t{kernarg_stride_} * KernargCopies(), place, "kernel arguments"));
    return OkStatus();
  }

  uint64_t Grid(size_t d) const { return uint64_t{launch_.workgroups[d]} * launch_.workgroup[d]; }

  // In the GPU's memory each run has its own: what a run before has read is in caches.
  uint32_t KernargCopies() const { return launch_.device_arguments ? launch_.runs : 1; }
  uint64_t KernargOffset(uint32_t run) const { return uint64_t{run % KernargCopies()} * kernarg_stride_; }

  // With the addresses of that run's copy of the buffers.
  Status WriteArguments(uint32_t run) {
    const uint32_t copy = run % launch_.rotate;
    const absl::Span<uint8_t> bytes(kernarg_.host() + KernargOffset(run), result_.kernarg);
    std::memset(bytes.data(), 0, bytes.size());
    gpu::HiddenValues hidden;
    for (size_t d = 0; d < 3; ++d) {
      hidden.grid[d] = static_cast<uint32_t>(Grid(d));
      hidden.workgroup[d] = launch_.workgroup[d];
    }
    hidden.dynamic_lds_bytes = launch_.lds;
    RETURN_IF_ERROR(gpu::FillHiddenArguments(*kernel_, hidden, bytes));
    for (const LaunchArgument& argument : launch_.arguments) {
      uint64_t value = argument.value;
      if (!argument.buffer.empty()) value += buffers_[IndexOf(argument.buffer, copy)].va();
      std::memcpy(bytes.data() + argument.offset, &value, argument.size);
    }
    return launch_.device_arguments ? device_->FlushHostWrites() : OkStatus();
  }
  size_t IndexOf(absl::string_view name, uint32_t copy) const {
    const LaunchBuffer* buffer = FindBuffer(launch_, name);
    return copy * launch_.buffers.size() + static_cast<size_t>(buffer - launch_.buffers.data());
  }

  Status RunOnce(uint32_t run) {
    RETURN_IF_ERROR(WriteArguments(run));
    gpu::Dispatch dispatch;
    dispatch.kernel_object = placed_->object;
    dispatch.kernarg = kernarg_.va() + KernargOffset(run);
    dispatch.workgroup = {launch_.workgroup[0], launch_.workgroup[1], launch_.workgroup[2]};
    dispatch.grid = {static_cast<uint32_t>(Grid(0)), static_cast<uint32_t>(Grid(1)), static_cast<uint32_t>(Grid(2))};
    dispatch.group_bytes = placed_->group_bytes + launch_.lds;
    dispatch.private_bytes = placed_->private_bytes;
    if (options_.before_run) options_.before_run(run);
    const gpu::Deadline deadline = Soon();
    ASSIGN_OR_RETURN(const uint64_t point,
                     queue_->SubmitSignalled(gpu::MakeDispatch(dispatch, {}), "launch file", deadline));
    queue_->Ring();
    RETURN_IF_ERROR(Wait(point, deadline));
    const gpu::Signal& signal = *queue_->timeline().signal();
    result_.microseconds.push_back(static_cast<double>(signal.end_ts - signal.start_ts) / kTicksPerUs);
    return OkStatus();
  }

  // A virtual node says why a wave was halted, of which the queue hears nothing: it is asked now and then.
  Status Wait(uint64_t point, gpu::Deadline deadline) {
    constexpr int64_t kLookMs = 500;
    kfd::Sys& sys = process_->sys();
    for (;;) {
      const gpu::Deadline look = gpu::Deadline::In(kLookMs);
      const bool last = look.at_ns >= deadline.at_ns;
      const Status status = queue_->Wait(point, last ? deadline : look);
      if (status.ok()) return status;
      const std::string said = sys.Diagnose();
      if (!said.empty()) return WithContext(status, said);
      if (last || CodeOf(status) != Code::kTimedOut) return status;
    }
  }

  uint32_t LastCopy() const { return (launch_.runs - 1) % launch_.rotate; }

  Status Examine() {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const LaunchBuffer& wanted = launch_.buffers[i % launch_.buffers.size()];
      const absl::Span<const uint8_t> behind(buffers_[i].host() + wanted.bytes, buffers_[i].size() - wanted.bytes);
      const auto other = std::find_if(behind.begin(), behind.end(), [](uint8_t byte) { return byte != kCanary; });
      if (other == behind.end()) continue;
      return LaunchError(launch_, wanted.line, "buffer ", wanted.name, ": the kernel has written byte ",
                         wanted.bytes + static_cast<uint64_t>(other - behind.begin()), "; it was said to have ",
                         wanted.bytes);
    }
    for (const Expectation& expectation : launch_.expectations) {
      ASSIGN_OR_RETURN(Comparison comparison, Compare(launch_, expectation, Result(expectation.buffer)));
      result_.comparisons.push_back(std::move(comparison));
    }
    for (const LaunchOutput& output : launch_.outputs) {
      RETURN_IF_ERROR(WriteWhole(launch_, output, Result(output.buffer)));
    }
    return OkStatus();
  }
  absl::Span<const uint8_t> Result(absl::string_view name) const {
    const size_t index = IndexOf(name, LastCopy());
    return {buffers_[index].host(), launch_.buffers[index % launch_.buffers.size()].bytes};
  }

  const LaunchFile& launch_;
  const LaunchOptions& options_;
  std::unique_ptr<gpu::CodeObject> object_;
  const gpu::CodeKernel* kernel_ = nullptr;
  std::unique_ptr<gpu::Process> process_;
  gpu::Device* device_ = nullptr;
  std::vector<gpu::Buffer> buffers_;  // [copy][buffer]
  gpu::Buffer kernarg_;
  uint32_t kernarg_stride_ = 0;  // bytes from one run's to the next one's, where each has its own
  std::unique_ptr<gpu::LoadedCode> code_;
  const gpu::Kernel* placed_ = nullptr;
  std::unique_ptr<gpu::Queue> queue_;
  LaunchResult result_;
};

}  // namespace

bool LaunchResult::ok() const {
  return std::all_of(comparisons.begin(), comparisons.end(), [](const Comparison& each) { return each.ok(); });
}

StatusOr<LaunchResult> RunLaunch(kfd::Sys& sys, const LaunchFile& launch, const LaunchOptions& options) {
  return Runner(launch, options).Run(sys);
}

}  // namespace mainarch::cli
