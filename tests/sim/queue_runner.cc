// SPDX-License-Identifier: MIT
#include "sim/queue_runner.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "gpu/code_object.h"

namespace mainarch::kernels_test {

StatusOr<std::unique_ptr<QueueRunner>> QueueRunner::Create(
    const std::string& isa, uint32_t devices, const sim::isa::ExecutorOptions& options,
    const std::string& settings) {
  auto runner = std::unique_ptr<QueueRunner>(new QueueRunner);
  runner->isa_ = isa;
  ASSIGN_OR_RETURN(const sim::NodeConfig config, sim::ParseNode(absl::StrCat(isa, "x", devices, settings)));
  ASSIGN_OR_RETURN(runner->node_,
                   sim::Node::Create(config, std::make_unique<sim::isa::IsaExecutor>(options)));
  runner->sys_ = std::make_unique<sim::SimSys>(runner->node_);
  ASSIGN_OR_RETURN(runner->process_, gpu::Process::Open(*runner->sys_, {}));
  for (uint32_t i = 0; i < devices; ++i) {
    ASSIGN_OR_RETURN(gpu::Device * device, runner->process_->OpenDevice(i));
    runner->devices_.push_back(device);
  }
  for (gpu::Device* device : runner->devices_) {
    ASSIGN_OR_RETURN(std::unique_ptr<gpu::Queue> queue, gpu::Queue::Create(*device, {}));
    runner->queues_.push_back(std::move(queue));
  }
  return runner;
}

QueueRunner::~QueueRunner() {
  queues_.clear();  // whatever runs ends here
  code_.clear();
  buffers_.clear();
  process_.reset();
  sys_.reset();
}

StatusOr<uint64_t> QueueRunner::Allocate(uint32_t device, Home home, size_t bytes) {
  if (device >= devices_.size()) {
    return Error(Code::kInvalidArgument, "device ", device, " of ", devices_.size());
  }
  gpu::BufferOptions options;
  options.place = home == Home::kHost ? gpu::Place::kSystem : gpu::Place::kVram;
  options.caching = home == Home::kVram ? gpu::Caching::kDefault : gpu::Caching::kUncached;
  options.host_access = true;
  options.label = "kernel test";
  std::vector<gpu::Device*> peers;
  for (gpu::Device* other : devices_) {
    if (other != devices_[device]) peers.push_back(other);
  }
  options.peers = peers;
  ASSIGN_OR_RETURN(gpu::Buffer buffer,
                   gpu::Buffer::Allocate(*devices_[device], std::max<size_t>(bytes, 1), options));
  const uint64_t address = buffer.va();
  buffers_[address] = std::move(buffer);
  return address;
}

const gpu::Buffer* QueueRunner::Find(uint64_t address) const {
  auto it = buffers_.upper_bound(address);
  if (it == buffers_.begin()) return nullptr;
  --it;
  return address < it->first + it->second.size() ? &it->second : nullptr;
}

uint8_t* QueueRunner::Host(uint64_t address) {
  const gpu::Buffer* buffer = Find(address);
  return buffer == nullptr ? nullptr : buffer->host() + (address - buffer->va());
}

Status QueueRunner::Write(uint64_t address, absl::Span<const uint8_t> bytes) {
  const gpu::Buffer* buffer = Find(address);
  if (buffer == nullptr || bytes.size() > buffer->va() + buffer->size() - address) {
    return Error(Code::kInvalidArgument, "write of ", bytes.size(), " bytes beyond a buffer");
  }
  if (!bytes.empty()) std::memcpy(Host(address), bytes.data(), bytes.size());
  for (gpu::Device* device : devices_) RETURN_IF_ERROR(device->FlushHostWrites());
  return OkStatus();
}

Status QueueRunner::Read(uint64_t address, absl::Span<uint8_t> bytes) {
  const gpu::Buffer* buffer = Find(address);
  if (buffer == nullptr || bytes.size() > buffer->va() + buffer->size() - address) {
    return Error(Code::kInvalidArgument, "read of ", bytes.size(), " bytes beyond a buffer");
  }
  if (!bytes.empty()) std::memcpy(bytes.data(), Host(address), bytes.size());
  return OkStatus();
}

StatusOr<gpu::LoadedCode*> QueueRunner::Load(const LaunchRequest& request) {
  std::unique_ptr<gpu::LoadedCode>& code = code_[{request.object.data(), request.device}];
  if (code == nullptr) {
    ASSIGN_OR_RETURN(const gpu::CodeObject object,
                     gpu::CodeObject::Parse(request.kernel, request.object));
    ASSIGN_OR_RETURN(code,
                     gpu::LoadedCode::Load(*queues_[request.device], object, {}, QueueDeadline()));
  }
  return code.get();
}

StatusOr<QueueRunner::Started> QueueRunner::Start(const LaunchRequest& request) {
  ASSIGN_OR_RETURN(gpu::LoadedCode * code, Load(request));
  ASSIGN_OR_RETURN(const gpu::Kernel* kernel, code->Find(request.kernel));
  if (kernel->kernarg_bytes != request.kernarg.size()) {
    return Error(Code::kInvalidArgument, "kernel ", request.kernel, " takes ",
                 kernel->kernarg_bytes, " bytes of arguments, not ", request.kernarg.size());
  }
  ASSIGN_OR_RETURN(const uint64_t kernarg,
                   Allocate(request.device, Home::kHost, request.kernarg.size()));
  RETURN_IF_ERROR(Write(kernarg, request.kernarg));
  gpu::Dispatch dispatch;
  dispatch.kernel_object = kernel->object;
  dispatch.kernarg = kernarg;
  dispatch.workgroup = {request.threads, 1, 1};
  dispatch.grid = {request.workgroups * request.threads, 1, 1};
  dispatch.group_bytes = kernel->group_bytes + request.dynamic_lds_bytes;
  dispatch.private_bytes = kernel->private_bytes;
  gpu::Queue& queue = *queues_[request.device];
  ASSIGN_OR_RETURN(const uint64_t point, queue.SubmitSignalled(gpu::MakeDispatch(dispatch, {}),
                                                               "kernel test", QueueDeadline()));
  queue.Ring();
  return Started{request.device, point};
}

Status QueueRunner::Wait(const Started& started) {
  const Status status = queues_[started.device]->Wait(started.point, QueueDeadline());
  if (status.ok()) return status;
  const std::vector<std::string> log = node_->log();
  return WithContext(status, log.empty() ? "no line in the node's log" : log.back());
}

Status QueueRunner::Launch(absl::Span<const LaunchRequest> together) {
  std::vector<Started> all;
  for (const LaunchRequest& request : together) {
    ASSIGN_OR_RETURN(const Started started, Start(request));
    all.push_back(started);
  }
  for (const Started& started : all) RETURN_IF_ERROR(Wait(started));
  return OkStatus();
}

}  // namespace mainarch::kernels_test
