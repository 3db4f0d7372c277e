// SPDX-License-Identifier: MIT
#include "sim/process_files.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/decimal.h"
#include "sim/node.h"

namespace mainarch::sim {
namespace {

constexpr absl::string_view kStats = "stats_", kFile = "cu_occupancy";

// Of a path below kRoot.
std::vector<absl::string_view> PartsOf(absl::string_view path) {
  absl::ConsumePrefix(&path, ProcessFiles::kRoot);
  return absl::StrSplit(path, '/', absl::SkipEmpty());
}

}  // namespace

int ProcessFiles::TextOf(int64_t pid, uint32_t gpu, std::string* text) const {
  {
    std::lock_guard lock(mutex_);
    if (hidden_) return -ENOENT;
    const auto found = pretended_.find({pid, gpu});
    if (found != pretended_.end()) return *text = found->second, 0;
  }
  const int64_t units = node_.UnitsOf(pid, gpu);
  if (units < 0) return -ENOENT;
  *text = absl::StrCat(units, "\n");
  return 0;
}

int ProcessFiles::Read(absl::string_view path, std::string* text) const {
  const std::vector<absl::string_view> parts = PartsOf(path);
  if (parts.size() != 3 || parts[2] != kFile) return -ENOENT;
  absl::string_view id = parts[1];
  if (!absl::ConsumePrefix(&id, kStats)) return -ENOENT;
  const auto pid = ParseDecimal(parts[0]), gpu_id = ParseDecimal(id);
  if (!pid.has_value() || !gpu_id.has_value()) return -ENOENT;
  const int gpu = node_.GpuIndex(static_cast<uint32_t>(*gpu_id));
  return gpu < 0 ? -ENOENT : TextOf(static_cast<int64_t>(*pid), static_cast<uint32_t>(gpu), text);
}

int ProcessFiles::List(absl::string_view path, std::vector<std::string>* names) const {
  names->clear();
  const std::vector<absl::string_view> parts = PartsOf(path);
  if (parts.size() > 2) return -ENOENT;
  if (parts.empty()) {
    std::vector<int64_t> pids = node_.Pids();
    std::lock_guard lock(mutex_);
    for (const auto& [key, text] : pretended_) pids.push_back(key.first);
    std::sort(pids.begin(), pids.end());
    pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
    for (const int64_t pid : pids) names->push_back(absl::StrCat(pid));
    return 0;
  }
  const auto pid = ParseDecimal(parts[0]);
  std::string ignored;
  for (uint32_t gpu = 0; pid.has_value() && gpu < node_.gpus().size(); ++gpu) {
    const std::string name = absl::StrCat(kStats, node_.gpus()[gpu].gpu_id);
    if (parts.size() == 2 && parts[1] != name) continue;
    if (TextOf(static_cast<int64_t>(*pid), gpu, &ignored) == 0) names->push_back(parts.size() == 2 ? std::string(kFile) : name);
  }
  return names->empty() ? -ENOENT : 0;
}

void ProcessFiles::Pretend(int64_t pid, uint32_t gpu, std::string cu_occupancy) {
  std::lock_guard lock(mutex_);
  pretended_[{pid, gpu}] = std::move(cu_occupancy);
}

void ProcessFiles::Leave(int64_t pid) {
  std::lock_guard lock(mutex_);
  pretended_.erase(pretended_.lower_bound({pid, 0}), pretended_.upper_bound({pid, UINT32_MAX}));
}

void ProcessFiles::Hide(bool hide) {
  std::lock_guard lock(mutex_);
  hidden_ = hide;
}

}  // namespace mainarch::sim
