// SPDX-License-Identifier: MIT
//
// How many threads compute when nobody says: one a physical core that this process may run on
// (affinity mask, which a cpuset narrows), no more than the CPU quota of its control groups pays
// for. A second thread on a core adds nothing to code that fills the vector units or waits for
// memory, and with a quota too small for its threads all of them stand still together for the rest
// of every period.
//
// Threads are not bound to processors: where they run is the system's and the host's business.
#ifndef MAINARCH_BACKEND_CPU_THREADS_H_
#define MAINARCH_BACKEND_CPU_THREADS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace mainarch::cpu {

// At least 1.
uint32_t UsableCpus();

// The text of a file of /proc or /sys.
using ReadText = std::function<StatusOr<std::string>(const std::string& path)>;
// The same for a process that may run on `cpus`, on the machine that `read` shows. Files that are
// missing or make no sense say nothing.
uint32_t UsableCpusOf(absl::Span<const uint32_t> cpus, const ReadText& read);

// "0-3,8": the numbers, ascending. Empty when the text is anything else.
std::vector<uint32_t> ParseCpuList(absl::string_view text);
// Hundredths of a CPU: of cgroup v2's cpu.max ("150000 100000"), and of version 1's two files. 0:
// no limit.
uint64_t QuotaOf(absl::string_view cpu_max);
uint64_t QuotaOf(absl::string_view quota_us, absl::string_view period_us);

// Bytes of the last caches of all of a machine's CPUs, as its files say; 0 if they do not.
uint64_t CacheBytesOf(const ReadText& read);

// The NUMA nodes that some of these CPUs (ascending) belong to; none where the machine does not say.
std::vector<uint32_t> MemoryNodesOf(absl::Span<const uint32_t> cpus, const ReadText& read);
// Asks for pages of all nodes that this process may run on, in turns, for memory that all threads read and that
// nobody has touched: so threads of every node get what all memories give together. Where there is one node, or
// the process has a policy of its own (numactl), nothing changes.
void SpreadOverNodes(void* memory, size_t bytes);

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_THREADS_H_
