// SPDX-License-Identifier: MIT
#include "backend/cpu/threads.h"

#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "support/test.h"

using namespace mainarch;
using cpu::ParseCpuList;
using cpu::QuotaOf;
using cpu::UsableCpusOf;

namespace {

using Files = std::map<std::string, std::string>;

cpu::ReadText Reader(const Files& files) {
  return [files](const std::string& path) -> StatusOr<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return Error(Code::kNotFound, path);
    return found->second;
  };
}

std::vector<uint32_t> Range(uint32_t first, uint32_t last) {
  std::vector<uint32_t> cpus;
  for (uint32_t cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  return cpus;
}

// A machine of `cores` cores with two threads each, numbered as most are: CPU i and i + cores.
Files TwoThreadsACore(uint32_t cores) {
  Files files;
  for (uint32_t cpu = 0; cpu < 2 * cores; ++cpu) {
    files["/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list"] =
        std::to_string(cpu % cores) + "," + std::to_string(cpu % cores + cores) + "\n";
  }
  return files;
}

}  // namespace

TEST(cpu_lists) {
  CHECK(ParseCpuList("0\n") == Range(0, 0));
  CHECK(ParseCpuList("0-3,8,10-11\n") == (std::vector<uint32_t>{0, 1, 2, 3, 8, 10, 11}));
  for (const char* text :
       {"", "\n", "a", "1-", "-1", "3-1", "1,,2", "0-3-5", "1,1", "2,1", "0-99999999", "65536",
        "4294967296", "0-18446744073709551615", "0 1", "0x1"}) {
    CHECK(ParseCpuList(text).empty());
  }
}

TEST(quotas_of_both_versions) {
  CHECK_EQ(QuotaOf("max 100000\n"), 0u);
  CHECK_EQ(QuotaOf("200000 100000\n"), 200u);
  CHECK_EQ(QuotaOf("150000 100000"), 150u);
  CHECK_EQ(QuotaOf("1000 100000"), 1u);
  CHECK_EQ(QuotaOf("10 1000000"), 1u);  // less than a hundredth is still a limit
  CHECK_EQ(QuotaOf("-1\n", "100000\n"), 0u);
  CHECK_EQ(QuotaOf("50000\n", "100000\n"), 50u);
  for (const char* text : {"", "max", "1", "0 100000", "100000 0", "1e5 100000", "200000 -1",
                           "99999999999999999999999 1", "18446744073709551615 1", "1 2 3"}) {
    CHECK_EQ(QuotaOf(text), 0u);
  }
}

TEST(one_thread_a_core) {
  const Files files = TwoThreadsACore(8);
  CHECK_EQ(UsableCpusOf(Range(0, 15), Reader(files)), 8u);
  CHECK_EQ(UsableCpusOf(Range(0, 7), Reader(files)), 8u);
  CHECK_EQ(UsableCpusOf(Range(4, 11), Reader(files)), 8u);  // 4-7 and siblings of 0-3
  CHECK_EQ(UsableCpusOf((std::vector<uint32_t>{1, 9}), Reader(files)), 1u);
  CHECK_EQ(UsableCpusOf((std::vector<uint32_t>{3}), Reader(files)), 1u);
}

TEST(a_machine_that_tells_nothing_has_as_many_cores_as_cpus) {
  CHECK_EQ(UsableCpusOf(Range(0, 5), Reader({})), 6u);
  CHECK_EQ(UsableCpusOf({}, Reader({})), 1u);
  Files files = TwoThreadsACore(2);
  files["/sys/devices/system/cpu/cpu3/topology/thread_siblings_list"] = "999999999999-\n";
  CHECK_EQ(UsableCpusOf(Range(0, 3), Reader(files)), 3u);
}

TEST(the_tightest_quota_of_version_2) {
  Files files = {{"/proc/self/cgroup", "0::/system.slice/app.service\n"},
                 {"/sys/fs/cgroup/system.slice/app.service/cpu.max", "max 100000\n"},
                 {"/sys/fs/cgroup/system.slice/cpu.max", "350000 100000\n"}};
  CHECK_EQ(UsableCpusOf(Range(0, 15), Reader(files)), 3u);
  files["/sys/fs/cgroup/system.slice/app.service/cpu.max"] = "50000 100000\n";
  CHECK_EQ(UsableCpusOf(Range(0, 15), Reader(files)), 1u);
  files["/sys/fs/cgroup/system.slice/app.service/cpu.max"] = "6400000 100000\n";
  files["/sys/fs/cgroup/system.slice/cpu.max"] = "max 100000\n";
  CHECK_EQ(UsableCpusOf(Range(0, 15), Reader(files)), 16u);
  // In a container the group is the root of what can be seen.
  files = {{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "200000 100000\n"}};
  CHECK_EQ(UsableCpusOf(Range(0, 15), Reader(files)), 2u);
}

// As Debian 12 shows it with the old hierarchy beside the new one.
TEST(the_tightest_quota_of_version_1) {
  Files files = {{"/proc/self/cgroup",
                  "9:name=systemd:/\n8:pids:/\n4:memory:/job\n3:cpuset:/\n2:cpuacct:/\n"
                  "1:cpu,cpuacct:/docker/0123\n0::/\n"},
                 {"/sys/fs/cgroup/cpu/docker/0123/cpu.cfs_quota_us", "400000\n"},
                 {"/sys/fs/cgroup/cpu/docker/0123/cpu.cfs_period_us", "100000\n"},
                 {"/sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us", "-1\n"},
                 {"/sys/fs/cgroup/cpu/docker/cpu.cfs_period_us", "100000\n"}};
  CHECK_EQ(UsableCpusOf(Range(0, 15), Reader(files)), 4u);
  // A container that does not see its own folder sees its limits in the root.
  files = {{"/proc/self/cgroup", "1:cpu:/docker/0123\n"},
           {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n"},
           {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}};
  CHECK_EQ(UsableCpusOf(Range(0, 15), Reader(files)), 2u);
}

TEST(what_is_no_membership_says_nothing) {
  for (const std::string& text :
       {std::string(), std::string(":::::"), std::string("0::relative\n"), std::string("0:\n::/\n"),
        std::string(1000, '/'), std::string("1:cpuset,cpuacct:/a\n"), std::string("\0\0", 2),
        "0::/" + std::string(3000, '/')}) {
    const Files files = {{"/proc/self/cgroup", text},
                         {"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "1\n"},
                         {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "1\n"}};
    CHECK_EQ(UsableCpusOf(Range(0, 3), Reader(files)), 4u);
  }
  CHECK(cpu::UsableCpus() >= 1);
}

TEST(last_caches_count_once_each) {
  Files files;
  const auto cache = [&](uint32_t cpu, uint32_t index, const char* level, const char* size, const char* shared) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index) + "/";
    files[folder + "level"] = level;
    files[folder + "size"] = size;
    files[folder + "shared_cpu_list"] = shared;
  };
  CHECK_EQ(cpu::CacheBytesOf(Reader(files)), 0u);
  for (uint32_t cpu = 0; cpu < 4; ++cpu) {  // two groups of two with a third level each
    cache(cpu, 0, "1\n", "48K\n", std::to_string(cpu).c_str());
    cache(cpu, 1, "3\n", "32768K\n", cpu < 2 ? "0-1\n" : "2-3\n");
    cache(cpu, 2, "2\n", "2048K\n", std::to_string(cpu).c_str());
  }
  CHECK_EQ(cpu::CacheBytesOf(Reader(files)), uint64_t{64} << 20);
  cache(3, 1, "3\n", "much\n", "2-3\n");
  cache(2, 1, "nine\n", "32768K\n", "2-3\n");
  CHECK_EQ(cpu::CacheBytesOf(Reader(files)), uint64_t{32} << 20);
}

TEST(memory_nodes_are_those_of_our_cpus) {
  Files files;
  CHECK(cpu::MemoryNodesOf(Range(0, 3), Reader(files)).empty());
  files["/sys/devices/system/node/online"] = "0-2\n";
  files["/sys/devices/system/node/node0/cpulist"] = "0-3\n";
  files["/sys/devices/system/node/node1/cpulist"] = "4-7\n";
  files["/sys/devices/system/node/node2/cpulist"] = "\n";  // memory alone
  CHECK(cpu::MemoryNodesOf(Range(0, 3), Reader(files)) == Range(0, 0));
  CHECK(cpu::MemoryNodesOf(Range(3, 4), Reader(files)) == Range(0, 1));
  CHECK(cpu::MemoryNodesOf(Range(6, 9), Reader(files)) == Range(1, 1));
}

// On one node nothing changes; on several the memory has a policy. Either way it is there.
TEST(memory_that_is_spread_is_there) {
  auto memory = Mapping::Anonymous(size_t{1} << 22, /*huge_pages=*/true);
  CHECK_OK(memory);
  cpu::SpreadOverNodes(memory->data(), memory->size());
  for (size_t at = 0; at < memory->size(); at += 4096) memory->data()[at] = 1;
  cpu::SpreadOverNodes(nullptr, 0);
}
