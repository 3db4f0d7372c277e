// SPDX-License-Identifier: MIT
#include "backend/cpu/threads.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/fd.h"

namespace mainarch::cpu {
namespace {

constexpr uint32_t kMaxCpus = 1 << 16;
constexpr size_t kFileLimit = 1 << 16;
constexpr uint64_t kWhole = 100;  // hundredths of a CPU

std::vector<uint32_t> AffinityCpus() {
  // Grown until the kernel's mask fits.
  for (uint32_t cpus = 1024; cpus <= kMaxCpus; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t size = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(size, set);
    std::vector<uint32_t> list;
    if (sched_getaffinity(0, size, set) == 0) {
      for (uint32_t cpu = 0; cpu < cpus; ++cpu) {
        if (CPU_ISSET_S(cpu, size, set)) list.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (!list.empty()) return list;
  }
  return {0};
}

// How many cores these CPUs are of: a CPU counts unless one before it is its sibling.
uint32_t Cores(absl::Span<const uint32_t> cpus, const ReadText& read) {
  uint32_t cores = 0;
  for (size_t i = 0; i < cpus.size(); ++i) {
    const auto text = read(
        absl::StrCat("/sys/devices/system/cpu/cpu", cpus[i], "/topology/thread_siblings_list"));
    const std::vector<uint32_t> siblings =
        text.ok() ? ParseCpuList(*text) : std::vector<uint32_t>();
    cores += std::none_of(siblings.begin(), siblings.end(), [&](uint32_t sibling) {
      return sibling < cpus[i] && std::binary_search(cpus.begin(), cpus.begin() + i, sibling);
    });
  }
  return cores;
}

// Calls `look` with a cgroup's folder and those above it.
template <class Look>
void Upwards(std::string path, const Look& look) {
  while (true) {
    look(path == "/" ? std::string() : path);
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos || path == "/" || path.empty()) return;
    path.resize(slash);
  }
}

void Tighten(uint64_t quota, uint64_t* least) {
  if (quota > 0 && (*least == 0 || quota < *least)) *least = quota;
}

// The tightest quota of our cgroups and those above them, in both versions of the hierarchy.
uint64_t Quota(const ReadText& read) {
  const auto membership = read("/proc/self/cgroup");
  if (!membership.ok()) return 0;
  uint64_t least = 0;
  const auto text = [&](const std::string& path) {
    const auto got = read(path);
    return got.ok() ? *got : std::string();
  };
  for (absl::string_view line : absl::StrSplit(*membership, '\n')) {
    // "4:cpu,cpuacct:/a/b", or "0::/a/b" of version 2.
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) {
      Upwards(std::string(parts[2]), [&](const std::string& folder) {
        Tighten(QuotaOf(text(absl::StrCat("/sys/fs/cgroup", folder, "/cpu.max"))), &least);
      });
    } else if (std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end()) {
      Upwards(std::string(parts[2]), [&](const std::string& folder) {
        const std::string at = absl::StrCat("/sys/fs/cgroup/cpu", folder, "/cpu.cfs_");
        Tighten(QuotaOf(text(at + "quota_us"), text(at + "period_us")), &least);
      });
    }
  }
  return least;
}

}  // namespace

std::vector<uint32_t> ParseCpuList(absl::string_view text) {
  std::vector<uint32_t> cpus;
  for (absl::string_view part : absl::StrSplit(absl::StripAsciiWhitespace(text), ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    uint32_t first, last;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first > last || last >= kMaxCpus ||
        (!cpus.empty() && first <= cpus.back())) {
      return {};
    }
    for (uint32_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

uint64_t QuotaOf(absl::string_view quota_us, absl::string_view period_us) {
  uint64_t quota = 0, period = 0;
  if (!absl::SimpleAtoi(quota_us, &quota) || !absl::SimpleAtoi(period_us, &period)) return 0;
  if (quota == 0 || period == 0 || quota > UINT64_MAX / kWhole) return 0;
  return std::max<uint64_t>(quota * kWhole / period, 1);
}

uint64_t QuotaOf(absl::string_view cpu_max) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(absl::StripAsciiWhitespace(cpu_max), absl::MaxSplits(' ', 1));
  return QuotaOf(parts.first, parts.second);
}

uint32_t UsableCpusOf(absl::Span<const uint32_t> cpus, const ReadText& read) {
  const uint32_t cores = std::max(Cores(cpus, read), 1u);
  const uint64_t quota = Quota(read);
  if (quota == 0) return cores;
  return static_cast<uint32_t>(std::clamp<uint64_t>(quota / kWhole, 1, cores));
}

uint32_t UsableCpus() {
  return UsableCpusOf(AffinityCpus(),
                      [](const std::string& path) { return ReadWholeFile(path, kFileLimit); });
}

uint64_t CacheBytesOf(const ReadText& read) {
  constexpr int kMaxCpus = 4096, kMaxIndex = 8;
  std::map<std::string, uint64_t> caches;  // by level and the CPUs that share it
  uint32_t last_level = 0;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    for (int index = 0; index < kMaxIndex; ++index) {
      const std::string folder = absl::StrCat("/sys/devices/system/cpu/cpu", cpu, "/cache/index", index, "/");
      const auto level = read(folder + "level"), size = read(folder + "size"), shared = read(folder + "shared_cpu_list");
      if (!level.ok() || !size.ok() || !shared.ok()) {
        if (index > 0) break;
        cpu = kMaxCpus;  // no more of them
        break;
      }
      uint32_t number;
      uint64_t kb;
      absl::string_view text = absl::StripAsciiWhitespace(*size);
      if (!absl::SimpleAtoi(*level, &number) || !absl::ConsumeSuffix(&text, "K") || !absl::SimpleAtoi(text, &kb) ||
          number < last_level || kb > UINT64_MAX / 1024) {
        continue;
      }
      if (number > last_level) caches.clear();
      last_level = number;
      caches[*shared] = kb * 1024;
    }
  }
  uint64_t bytes = 0;
  for (const auto& [cpus, size] : caches) bytes += size;
  return bytes;
}

std::vector<uint32_t> MemoryNodesOf(absl::Span<const uint32_t> cpus, const ReadText& read) {
  const auto online = read("/sys/devices/system/node/online");
  std::vector<uint32_t> nodes;
  if (!online.ok()) return nodes;
  for (const uint32_t node : ParseCpuList(*online)) {
    const auto text = read(absl::StrCat("/sys/devices/system/node/node", node, "/cpulist"));
    if (!text.ok()) continue;
    const std::vector<uint32_t> own = ParseCpuList(*text);
    if (std::any_of(own.begin(), own.end(),
                    [&](uint32_t cpu) { return std::binary_search(cpus.begin(), cpus.end(), cpu); })) {
      nodes.push_back(node);
    }
  }
  return nodes;
}

namespace {

// As the kernel wants it; without a destructor, since it is asked for once and kept.
constexpr uint32_t kBits = 8 * sizeof(unsigned long), kMostNodes = 1024;
struct NodeMask {
  bool several = false;
  unsigned long bits[kMostNodes / kBits] = {};
};
NodeMask MaskOf(const std::vector<uint32_t>& nodes) {
  NodeMask mask;
  mask.several = nodes.size() > 1 && nodes.back() < kMostNodes;
  for (const uint32_t node : nodes) {
    if (mask.several) mask.bits[node / kBits] |= 1ul << node % kBits;
  }
  return mask;
}

}  // namespace

void SpreadOverNodes(void* memory, size_t bytes) {
  // Of <numaif.h>, which Debian has in a package of its own.
  constexpr int kDefault = 0, kInterleave = 3;
  static const NodeMask nodes = MaskOf(MemoryNodesOf(
      AffinityCpus(), [](const std::string& path) { return ReadWholeFile(path, kFileLimit); }));
  if (!nodes.several || bytes == 0) return;
  int policy = kDefault;
  if (syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) != 0 || policy != kDefault) return;
  // Refused, memory comes from where it is touched first.
  syscall(SYS_mbind, memory, bytes, kInterleave, nodes.bits, kMostNodes + 1, 0);
}

}  // namespace mainarch::cpu
