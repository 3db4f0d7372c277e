// SPDX-License-Identifier: MIT
#include "cli/coll/ranks.h"

#include "absl/strings/str_cat.h"
#include "backend/without_gpus.h"
#include "base/decimal.h"
#include "cli/coll/cpu_ranks.h"
#ifndef MAINARCH_WITHOUT_GPUS
#include "cli/coll/gpu_ranks.h"
#endif

namespace mainarch::coll {

absl::string_view NameOf(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kOneShot:
      return "one-shot";
    case Algorithm::kTwoShot:
      return "two-shot";
    case Algorithm::kEngines:
      return "engines";
  }
  return "";
}

uint64_t LeastLinkBytes(uint64_t bytes, int32_t ranks) {
  const uint64_t n = static_cast<uint64_t>(ranks);
  return 2 * bytes * (n - 1) / n;
}

StatusOr<std::unique_ptr<Ranks>> OpenRanks(absl::string_view device, size_t max_count,
                                           uint32_t timeout_ms) {
  constexpr absl::string_view kCpu = "cpu";
  if (device.substr(0, kCpu.size()) == kCpu) {
    const absl::string_view rest = device.substr(kCpu.size());
    const auto ranks = rest.empty() ? 1 : ParseDecimal(rest.substr(1));
    if ((!rest.empty() && rest[0] != ':') || !ranks.has_value() || *ranks > INT32_MAX) {
      return Error(Code::kInvalidArgument, "device \"", device, "\", character ", kCpu.size() + 1,
                   ": expected cpu:N");
    }
    return CpuRanks::Create(static_cast<int32_t>(*ranks), max_count, timeout_ms);
  }
#ifndef MAINARCH_WITHOUT_GPUS
  ASSIGN_OR_RETURN(auto gpus, amdgpu::Gpus::Open(device));
  return GpuRanks::Create(std::move(gpus), max_count, timeout_ms);
#else
  const absl::string_view kind = device.substr(0, device.find(':'));
  if (kind != "gpu" && kind != "sim") return Error(Code::kInvalidArgument, "device \"", device, "\": expected cpu:N");
  return backend::WithoutGpus(absl::StrCat("device \"", device, "\""));
#endif
}

}  // namespace mainarch::coll
