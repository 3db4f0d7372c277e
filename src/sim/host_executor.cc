// SPDX-License-Identifier: MIT
#include "sim/host_executor.h"

#include <utility>

namespace mainarch::sim {
namespace {

constexpr char kMagic[9] = "MAHOSTFN";
constexpr size_t kEntryOffset = 256;

uint64_t IdOf(absl::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

class HostLaunch final : public Launch {
 public:
  HostLaunch(const Dispatch& dispatch, HostExecutor::Kernel kernel)
      : call_(dispatch), kernel_(std::move(kernel)) {}

  Progress Run(uint64_t) override {
    Progress progress = kernel_(call_);
    ++call_.calls_;
    return progress;
  }

  // All of its workgroups at once.
  uint64_t waves() const override {
    const Dispatch& dispatch = call_.dispatch();
    uint64_t groups = 1, items = 1;
    for (size_t i = 0; i < 3; ++i) {
      groups *= (dispatch.grid[i] + dispatch.workgroup[i] - 1) / dispatch.workgroup[i];
      items *= dispatch.workgroup[i];
    }
    return groups * ((items + 63) / 64);
  }

 private:
  HostCall call_;
  HostExecutor::Kernel kernel_;
};

void HostExecutor::Register(absl::string_view name, Kernel kernel) {
  std::lock_guard lock(mutex_);
  by_id_[IdOf(name)] = std::move(kernel);
}

void HostExecutor::RegisterAt(uint64_t kernel_object_va, Kernel kernel) {
  std::lock_guard lock(mutex_);
  by_object_[kernel_object_va] = std::move(kernel);
}

std::array<uint8_t, 16> HostExecutor::CodeOf(absl::string_view name) {
  std::array<uint8_t, 16> code;
  const uint64_t id = IdOf(name);
  std::memcpy(code.data(), kMagic, 8);
  std::memcpy(code.data() + 8, &id, 8);
  return code;
}

std::vector<uint8_t> HostExecutor::ImageOf(absl::string_view name, uint32_t group_bytes,
                                           uint32_t private_bytes) {
  std::vector<uint8_t> image(kEntryOffset + 256);
  const int64_t entry = kEntryOffset;
  const std::array<uint8_t, 16> code = CodeOf(name);
  std::memcpy(image.data(), &group_bytes, 4);
  std::memcpy(image.data() + 4, &private_bytes, 4);
  std::memcpy(image.data() + 16, &entry, 8);
  std::memcpy(image.data() + kEntryOffset, code.data(), code.size());
  return image;
}

StatusOr<std::unique_ptr<Launch>> HostExecutor::Start(const Dispatch& dispatch) {
  const GpuContext& context = *dispatch.context;
  const Place place = {context.process_id(), context.gpu_index(), dispatch.entry_va};
  std::lock_guard lock(mutex_);
  const auto placed = by_object_.find(dispatch.kernel_object_va);
  if (placed != by_object_.end()) return std::make_unique<HostLaunch>(dispatch, placed->second);
  auto fetched = fetched_.find(place);
  if (fetched == fetched_.end()) {
    std::array<uint8_t, 16> code;
    MemoryFault fault;
    if (!Bus(context).Read(dispatch.entry_va, code.data(), code.size(), &fault)) {
      return Error(Code::kInternal, "no code at ", absl::Hex(dispatch.entry_va));
    }
    fetched = fetched_.emplace(place, code).first;
  }
  uint64_t id = 0;
  std::memcpy(&id, fetched->second.data() + 8, 8);
  const auto found = by_id_.find(id);
  if (std::memcmp(fetched->second.data(), kMagic, 8) != 0 || found == by_id_.end()) {
    return Error(Code::kUnsupported, "the code at ", absl::Hex(dispatch.entry_va),
                 " is no registered host function");
  }
  return std::make_unique<HostLaunch>(dispatch, found->second);
}

void HostExecutor::InvalidateInstructions(GpuContext& context) {
  std::lock_guard lock(mutex_);
  for (auto at = fetched_.begin(); at != fetched_.end();) {
    at = std::get<1>(at->first) == context.gpu_index() ? fetched_.erase(at) : std::next(at);
  }
}

void HostExecutor::Forget(const GpuContext& context) {
  std::lock_guard lock(mutex_);
  for (auto at = fetched_.begin(); at != fetched_.end();) {
    const bool same = std::get<0>(at->first) == context.process_id() &&
                      std::get<1>(at->first) == context.gpu_index();
    at = same ? fetched_.erase(at) : std::next(at);
  }
}

}  // namespace mainarch::sim
