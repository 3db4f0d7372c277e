// SPDX-License-Identifier: MIT
//
// Device strings to backends. A new backend is one folder and one line here.
#ifndef MAINARCH_WITHOUT_GPUS
#include "backend/amdgpu/amdgpu_backend.h"
#endif
#include "absl/strings/str_cat.h"
#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/without_gpus.h"
#include "base/decimal.h"

namespace mainarch::backend {
namespace {

// "cpu" or "cpu:N": N ranks, a power of two that divides the K parts of every weight.
StatusOr<std::shared_ptr<Backend>> CreateCpu(absl::string_view argument,
                                             const BackendOptions& options) {
  const uint64_t ranks = argument.empty() ? 1 : ParseDecimal(argument).value_or(0);
  if (ranks < 1 || ranks > kSplitParts || (ranks & (ranks - 1)) != 0) {
    return Error(Code::kInvalidArgument, "device \"", options.device, "\", character ",
                 CharacterOf(options.device, argument), ": the number of ranks is \"", argument,
                 "\", and must be 1, 2, 4 or 8");
  }
  return cpu::CpuBackend::Create(static_cast<int32_t>(ranks), options.threads, options.cpu_target);
}

StatusOr<std::shared_ptr<Backend>> CreateGpu(absl::string_view, const BackendOptions& options) {
#ifndef MAINARCH_WITHOUT_GPUS
  ASSIGN_OR_RETURN(auto gpus, amdgpu::Gpus::Open(options.device, options.step_timeout_ms, options.log));
  return amdgpu::AmdGpuBackend::Create(std::move(gpus));
#else
  return WithoutGpus(absl::StrCat("device \"", options.device, "\""));
#endif
}

struct Entry {
  absl::string_view name;
  StatusOr<std::shared_ptr<Backend>> (*create)(absl::string_view argument,
                                               const BackendOptions& options);
};
constexpr Entry kBackends[] = {
    {"cpu", CreateCpu},
    {"gpu", CreateGpu},
    {"sim", CreateGpu},
};

}  // namespace

StatusOr<std::shared_ptr<Backend>> CreateBackend(const BackendOptions& options) {
  const absl::string_view device = options.device.empty() ? absl::string_view("cpu")
                                                          : absl::string_view(options.device);
  const size_t colon = device.find(':');
  const absl::string_view name = device.substr(0, colon);
  const bool has_argument = colon != absl::string_view::npos;
  const absl::string_view argument = has_argument ? device.substr(colon + 1) : "";
  for (const Entry& entry : kBackends) {
    if (entry.name != name) continue;
    if (has_argument && argument.empty()) break;
    return entry.create(argument, options);
  }
  return Error(Code::kInvalidArgument, "device \"", device, "\": expected cpu, cpu:N, gpu, gpu:LIST or sim:NODE");
}

}  // namespace mainarch::backend
