// SPDX-License-Identifier: MIT
#include "kfd/occupancy.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/decimal.h"

namespace mainarch::kfd {
namespace {

constexpr char kProcesses[] = "/sys/class/kfd/kfd/proc";
constexpr size_t kMostText = 64;       // bytes; a number and a newline
constexpr uint64_t kMostUnits = 65535;  // of a GPU, with room for many generations

std::string PathOf(absl::string_view pid, uint32_t gpu_id) {
  return absl::StrCat(kProcesses, "/", pid, "/stats_", gpu_id, "/cu_occupancy");
}

}  // namespace

std::optional<uint32_t> ParseOccupancy(absl::string_view text) {
  absl::ConsumeSuffix(&text, "\n");
  const std::optional<uint64_t> units = ParseDecimal(text);
  if (!units.has_value() || *units > kMostUnits) return std::nullopt;
  return static_cast<uint32_t>(*units);
}

std::optional<OthersOnGpu> ReadOthersOn(Sys& sys, uint32_t gpu_id) {
  const int64_t own = sys.DriverPid();
  if (own < 0) return std::nullopt;
  // This process has queues on the GPU: where there is no file for it, the driver has none for anybody. It is not read,
  // since each reading walks all of the GPU's queues.
  const std::string own_name = absl::StrCat(own);
  FileStat stat;
  if (sys.Stat(PathOf(own_name, gpu_id), &stat) < 0) return std::nullopt;
  std::vector<std::string> names;
  if (sys.ListDir(kProcesses, &names) < 0) return std::nullopt;
  OthersOnGpu others;
  std::string text;
  for (const std::string& name : names) {
    if (name == own_name || !ParseDecimal(name).has_value()) continue;
    if (sys.ReadFile(PathOf(name, gpu_id), kMostText, &text) < 0) continue;  // it has gone, or has not opened this GPU
    const uint32_t units = ParseOccupancy(text).value_or(0);
    others.units += units;
    others.processes += units > 0;
  }
  return others;
}

}  // namespace mainarch::kfd
