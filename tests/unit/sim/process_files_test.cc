// SPDX-License-Identifier: MIT
//
// What the node's sysfs says of the processes that use it, and of the waves that they have there.
#include "absl/strings/str_cat.h"
#include "unit/sim/client.h"

namespace mainarch::sim::test {
namespace {

const std::string kRoot = "/sys/class/kfd/kfd/proc";

std::string PathOf(const Client& of, uint32_t gpu) {
  auto& sys = const_cast<SimSys&>(of.sys);
  return absl::StrCat(kRoot, "/", sys.DriverPid(), "/stats_", of.id(gpu), "/cu_occupancy");
}

// As `reader` sees it.
std::string Says(Client& reader, const Client& of, uint32_t gpu) {
  std::string text;
  const int error = reader.sys.ReadFile(PathOf(of, gpu), 64, &text);
  return error == 0 ? text : std::to_string(error);
}

TEST(waves_are_counted_as_the_driver_does) {
  TestNode test = MakeNode("gfx950x2");
  CHECK(test.node != nullptr);
  Client runs(test.node), looks(test.node);
  CHECK(runs.Open());
  CHECK(looks.Open());
  CHECK_NE(runs.sys.DriverPid(), looks.sys.DriverPid());
  Queue queue;
  Memory kernel, data;
  CHECK_EQ(MakeAql(runs, *test.node, 1, 4096, &queue), 0);
  CHECK_EQ(runs.AllocZeroed(1, 1 << 16, kVram, {1}, &kernel), 0);
  CHECK_EQ(runs.AllocZeroed(1, 1 << 16, kGtt, {1}, &data), 0);
  const auto image = HostExecutor::ImageOf("stays");
  std::memcpy(kernel.as<void>(), image.data(), image.size());
  std::atomic<bool> leave{false};
  test.executor->Register("stays", [&](HostCall&) { return leave ? HostCall::Done() : HostCall::Waiting(); });
  CHECK_EQ(Says(looks, runs, 1), "0\n");
  Signal* signal = new (data.as<Signal>()) Signal;
  signal->value = 2;
  // 40 workgroups of four waves, of which a unit holds 32: five units. Then one more wave.
  AqlPacket packet = DispatchPacket(kernel, data.va + 0x8000, signal);
  packet.workgroup[0] = 256;
  packet.grid[0] = 40 * 256;
  Submit(queue, packet);
  CHECK(Soon([&] { return Says(looks, runs, 1) == "5\n"; }));
  Submit(queue, DispatchPacket(kernel, data.va + 0x8000, signal));
  CHECK(Soon([&] { return Says(looks, runs, 1) == "6\n"; }));
  CHECK_EQ(Says(runs, runs, 1), "6\n");
  CHECK_EQ(Says(runs, runs, 0), "0\n");
  CHECK_EQ(Says(runs, looks, 1), "0\n");
  leave = true;
  CHECK(Soon([&] { return signal->value == 0; }));
  CHECK(Soon([&] { return Says(looks, runs, 1) == "0\n"; }));
  CHECK_EQ(DestroyQueue(runs, queue), 0);
}

TEST(processes_come_and_go) {
  TestNode test = MakeNode("gfx942");
  CHECK(test.node != nullptr);
  Client first(test.node);
  CHECK(first.Open());
  std::vector<std::string> names;
  const std::string own = std::to_string(first.sys.DriverPid());
  CHECK_EQ(first.sys.ListDir(kRoot, &names), 0);
  CHECK(names == std::vector<std::string>({own}));
  CHECK_EQ(first.sys.ListDir(kRoot + "/" + own, &names), 0);
  CHECK(names == std::vector<std::string>({absl::StrCat("stats_", first.id(0))}));
  CHECK_EQ(first.sys.ListDir(absl::StrCat(kRoot, "/", own, "/", names[0]), &names), 0);
  CHECK(names == std::vector<std::string>({"cu_occupancy"}));
  kfd::FileStat stat;
  CHECK_EQ(first.sys.Stat(PathOf(first, 0), &stat), 0);
  CHECK_EQ(stat.mode, static_cast<uint32_t>(S_IFREG | 0444));
  CHECK_EQ(first.sys.Stat(kRoot, &stat), 0);
  CHECK_EQ(stat.mode, static_cast<uint32_t>(S_IFDIR | 0555));
  const int fd = first.sys.Open(PathOf(first, 0).c_str(), O_RDONLY | O_CLOEXEC);
  CHECK_GE(fd, 0);
  char text[8] = {};
  CHECK_EQ(first.sys.Read(fd, text, sizeof text), 2);
  CHECK_EQ(std::string(text), "0\n");
  CHECK_EQ(first.sys.Close(fd), 0);
  {
    Client second(test.node);
    CHECK_EQ(first.sys.ListDir(kRoot, &names), 0);
    CHECK_EQ(names.size(), 2u);
  }
  CHECK_EQ(first.sys.ListDir(kRoot, &names), 0);
  CHECK_EQ(names.size(), 1u);
}

TEST(a_test_may_add_some_and_hide_all) {
  TestNode test = MakeNode("gfx942");
  CHECK(test.node != nullptr);
  Client client(test.node);
  CHECK(client.Open());
  ProcessFiles& files = test.node->process_files();
  files.Pretend(1, 0, "nonsense");
  std::string text;
  const std::string path = absl::StrCat(kRoot, "/1/stats_", client.id(0), "/cu_occupancy");
  CHECK_EQ(client.sys.ReadFile(path, 64, &text), 0);
  CHECK_EQ(text, "nonsense");
  CHECK_EQ(client.sys.ReadFile(path, 4, &text), -EFBIG);
  files.Hide(true);
  CHECK_EQ(client.sys.ReadFile(path, 64, &text), -ENOENT);
  CHECK_EQ(Says(client, client, 0), std::to_string(-ENOENT));
  kfd::FileStat stat;
  CHECK_EQ(client.sys.Stat(PathOf(client, 0), &stat), -ENOENT);
  files.Hide(false);
  files.Leave(1);
  CHECK_EQ(client.sys.ReadFile(path, 64, &text), -ENOENT);
  for (const char* nobody : {"/0/stats_1/cu_occupancy", "/x", "/1/stats_/cu_occupancy", "/-1/stats_1/cu_occupancy", "/1/2/3/4"}) {
    CHECK_EQ(client.sys.ReadFile(kRoot + nobody, 64, &text), -ENOENT);
  }
}

}  // namespace
}  // namespace mainarch::sim::test
