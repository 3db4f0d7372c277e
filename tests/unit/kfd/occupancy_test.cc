// SPDX-License-Identifier: MIT
#include "kfd/occupancy.h"

#include <dirent.h>
#include <unistd.h>

#include "kfd/linux_sys.h"
#include "support/test.h"
#include "unit/kfd/fake_sys.h"

namespace mainarch::kfd {
namespace {

constexpr uint32_t kGpu = 51966;
const std::string kRoot = "/sys/class/kfd/kfd/proc/";

std::string FileOf(int pid, uint32_t gpu = kGpu) {
  return kRoot + std::to_string(pid) + "/stats_" + std::to_string(gpu) + "/cu_occupancy";
}

// Process 100 of a machine with others.
class Machine : public test::FakeSys {
 public:
  Machine() { Say(100, "7\n"); }
  void Say(int pid, const std::string& text, uint32_t gpu = kGpu) {
    files[FileOf(pid, gpu)] = text;
    stats[FileOf(pid, gpu)] = {};
  }
  int64_t DriverPid() override { return own; }
  int64_t own = 100;
};

int OpenFds() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return -1;
  int count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

TEST(what_others_have_is_added_up_and_what_is_own_is_not) {
  Machine machine;
  auto others = ReadOthersOn(machine, kGpu);
  CHECK(others.has_value());
  CHECK_EQ(others->units, 0u);
  CHECK_EQ(others->processes, 0u);
  machine.Say(7, "12\n");
  machine.Say(8, "0\n");
  machine.Say(9, "30\n");
  machine.Say(10, "99\n", kGpu + 1);  // another GPU's
  machine.files[kRoot + "9/pasid"] = "32770\n";
  machine.files[kRoot + "uevent"] = "3\n";
  others = ReadOthersOn(machine, kGpu);
  CHECK(others.has_value());
  CHECK_EQ(others->units, 42u);
  CHECK_EQ(others->processes, 2u);
}

TEST(what_cannot_be_known_is_not_made_up) {
  Machine machine;
  machine.Say(7, "12\n");
  CHECK(!ReadOthersOn(machine, kGpu + 1).has_value());  // no file for this process: an older kernel
  machine.own = 101;
  CHECK(!ReadOthersOn(machine, kGpu).has_value());
  machine.own = -ENOENT;  // a namespace of processes
  CHECK(!ReadOthersOn(machine, kGpu).has_value());
  machine.own = 100;
  CHECK(ReadOthersOn(machine, kGpu).has_value());
  machine.files.clear();
  CHECK(!ReadOthersOn(machine, kGpu).has_value());
}

TEST(who_says_nothing_or_nonsense_adds_nothing) {
  Machine machine;
  machine.Say(7, "12\n");
  for (const char* text : {"", "\n", "-1\n", "+5\n", "5 \n", "05\n", "1e3\n", "65536\n", "99999999999999999999\n", "5\n5\n", "12 13\n", "\xff\n"}) {
    CHECK(!ParseOccupancy(text).has_value());
    machine.Say(8, text);
    CHECK_EQ(ReadOthersOn(machine, kGpu)->units, 12u);
    CHECK_EQ(ReadOthersOn(machine, kGpu)->processes, 1u);
  }
  machine.Say(8, std::string(100000, '1'));
  CHECK_EQ(ReadOthersOn(machine, kGpu)->units, 12u);
  machine.Say(8, "5\n");
  machine.read_errors[FileOf(8)] = EPERM;
  CHECK_EQ(ReadOthersOn(machine, kGpu)->units, 12u);
  CHECK_EQ(ParseOccupancy("0\n").value_or(1), 0u);
  CHECK_EQ(ParseOccupancy("304").value_or(0), 304u);
  CHECK_EQ(ParseOccupancy("65535\n").value_or(0), 65535u);
}

TEST(this_machine_can_be_asked_again_and_again) {
  LinuxSys sys;
  char name[64] = {};
  CHECK_GT(readlink("/proc/self/ns/pid", name, sizeof name - 1), 0);
  const bool first = std::string(name) == "pid:[4026531836]";
  CHECK_EQ(sys.DriverPid(), first ? getpid() : -ENOENT);
  const int before = OpenFds();
  for (int i = 0; i < 100; ++i) ReadOthersOn(sys, kGpu);
  CHECK_EQ(OpenFds(), before);
}

}  // namespace
}  // namespace mainarch::kfd
