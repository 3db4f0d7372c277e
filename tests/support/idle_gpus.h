// SPDX-License-Identifier: MIT
//
// A group of virtual GPUs whose decoder kernels end at once and do nothing, so that what is left of
// a step is the host's part, and a Sys in front of the node that counts the calls of one thread.
#ifndef MAINARCH_TESTS_SUPPORT_IDLE_GPUS_H_
#define MAINARCH_TESTS_SUPPORT_IDLE_GPUS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/amdgpu/amdgpu_backend.h"
#include "isa/kernel_images.h"
#include "kfd/sys.h"
#include "sim/host_executor.h"
#include "sim/node.h"
#include "sim/sim_sys.h"

namespace mainarch::test {

// What one thread does that a hot path should not; only while `on`.
struct HotPath {
  bool on = false;
  uint64_t allocations = 0, locks = 0;
  std::map<std::string, uint64_t> calls;  // of Sys; ioctls by request number
};
inline thread_local HotPath* hot_path = nullptr;  // null: nobody counts on this thread

// Not counting while the node itself works.
class Away {
 public:
  explicit Away(const std::string& call) : path_(hot_path) {
    if (path_ == nullptr || !path_->on) path_ = nullptr;
    if (path_ == nullptr) return;
    path_->on = false;
    ++path_->calls[call];
  }
  ~Away() {
    if (path_ != nullptr) path_->on = true;
  }

 private:
  HotPath* path_;
};

class CountingSys final : public kfd::Sys {
 public:
  explicit CountingSys(std::unique_ptr<kfd::Sys> sys) : sys_(std::move(sys)) {}
  int Open(const char* path, int flags) override {
    Away away("open");
    return sys_->Open(path, flags);
  }
  int Close(int fd) override {
    Away away("close");
    return sys_->Close(fd);
  }
  int Dup(int fd) override {
    Away away("dup");
    return sys_->Dup(fd);
  }
  int Ioctl(int fd, uint32_t request, void* argument) override {
    Away away("ioctl " + std::to_string(request & 0xff));
    return sys_->Ioctl(fd, request, argument);
  }
  int64_t Read(int fd, void* buffer, size_t size) override {
    Away away("read");
    return sys_->Read(fd, buffer, size);
  }
  int64_t Write(int fd, const void* buffer, size_t size) override {
    Away away("write");
    return sys_->Write(fd, buffer, size);
  }
  int Poll(pollfd* fds, size_t count, int timeout_ms) override {
    Away away("poll");
    return sys_->Poll(fds, count, timeout_ms);
  }
  int Mmap(void* hint, size_t size, int protection, int flags, int fd, uint64_t offset,
           void** address) override {
    Away away("mmap");
    return sys_->Mmap(hint, size, protection, flags, fd, offset, address);
  }
  int Munmap(void* address, size_t size) override {
    Away away("munmap");
    return sys_->Munmap(address, size);
  }
  int Madvise(void* address, size_t size, int advice) override {
    Away away("madvise");
    return sys_->Madvise(address, size, advice);
  }
  int ReadFile(const std::string& path, size_t limit, std::string* text) override {
    Away away("read file");
    return sys_->ReadFile(path, limit, text);
  }
  int ListDir(const std::string& path, std::vector<std::string>* names) override {
    Away away("list directory");
    return sys_->ListDir(path, names);
  }
  int Stat(const std::string& path, kfd::FileStat* out) override {
    Away away("stat");
    return sys_->Stat(path, out);
  }
  kfd::Identity WhoAmI() override { return sys_->WhoAmI(); }

 private:
  const std::unique_ptr<kfd::Sys> sys_;
};

// `node`: "gfx950x2".
inline StatusOr<std::shared_ptr<backend::Backend>> OpenIdleGpus(const std::string& node_text) {
  ASSIGN_OR_RETURN(const sim::NodeConfig config, sim::ParseNode(node_text));
  auto executor = std::make_unique<sim::HostExecutor>();
  sim::HostExecutor& host = *executor;
  ASSIGN_OR_RETURN(auto node, sim::Node::Create(config, std::move(executor)));
  auto sys = std::make_shared<CountingSys>(std::make_unique<sim::SimSys>(std::move(node)));
  ASSIGN_OR_RETURN(auto gpus, amdgpu::Gpus::OpenOn(std::move(sys), "", false));
  for (int32_t rank = 0; rank < gpus->count(); ++rank) {
    ASSIGN_OR_RETURN(const auto kernels, isa::ListKernels(config.profile->isa));
    for (const isa::KernelRow& row : kernels) {
      const auto found = gpus->at(rank).code->Find(row.kernel.name);
      if (!found.ok()) continue;  // of another image
      host.RegisterAt((*found)->object, [](sim::HostCall&) { return sim::HostCall::Done(); });
    }
  }
  return amdgpu::AmdGpuBackend::Create(std::move(gpus));
}

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_IDLE_GPUS_H_
