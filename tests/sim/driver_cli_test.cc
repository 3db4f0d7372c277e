// SPDX-License-Identifier: MIT
//
// What `mainarch topology` and `mainarch doctor` say: on virtual nodes, on this machine, and on
// machines that are broken in each way that the doctor knows.
#include <fcntl.h>
#include <simdjson.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "cli/doctor.h"
#include "cli/topology.h"
#include "kfd/linux_sys.h"
#include "kfd/uapi/kfd_ioctl.h"
#include "kfd/uapi/kfd_sysfs.h"
#include "sim/driver_fixture.h"
#include "unit/kfd/fake_sys.h"

namespace mainarch::cli {
namespace {

using test::Machine;

const std::string kRoot = kfd::uapi::kTopologyRoot;

// A machine with one MI300X where all is well; each test breaks one thing.
void AddHealthyMachine(test::FakeSys* sys) {
  const std::string pci = "/sys/bus/pci/devices/0000:05:00.0/";
  sys->files[pci + "vendor"] = "0x1002\n";
  sys->files[pci + "device"] = "0x74a1\n";
  sys->files["/sys/bus/pci/devices/0000:00:00.0/vendor"] = "0x8086\n";
  sys->files["/proc/sys/kernel/osrelease"] = "6.12.0-1-amd64\n";
  sys->files["/etc/group"] = "root:x:0:\nrender:x:104:someone\n";
  sys->files[kRoot + "/generation_id"] = "2\n";
  sys->files[kRoot + "/nodes/0/gpu_id"] = "0\n";
  sys->files[kRoot + "/nodes/0/properties"] = "cpu_cores_count 8\n";
  sys->files[kRoot + "/nodes/1/gpu_id"] = "4242\n";
  sys->files[kRoot + "/nodes/1/properties"] =
      "simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\ndevice_id 29857\n"
      "drm_render_minor 128\nnum_xcc 8\n";
  sys->files[kRoot + "/nodes/1/mem_banks/0/properties"] = "heap_type 1\nsize_in_bytes 1000\n";
  kfd::FileStat directory;
  directory.mode = S_IFDIR | 0755;
  sys->stats[kRoot] = directory;
  sys->stats["/sys/module/amdgpu"] = directory;
  kfd::FileStat device;
  device.mode = S_IFCHR | 0660;
  device.gid = 104;
  sys->stats["/dev/kfd"] = device;
  sys->stats["/dev/dri/renderD128"] = device;
  sys->identity.uid = 1000;
  sys->identity.gid = 1000;
  sys->identity.groups = {27, 100};
  sys->ioctl = [](uint32_t request, void* argument) {
    if (request == kfd::uapi::kGetVersion) {
      *static_cast<kfd::uapi::GetVersionArgs*>(argument) = {1, 17};
    }
    return 0;
  };
}

// The first finding of a level, as "what -> remedy"; empty when there is none.
std::string First(Finding::Level level, kfd::Sys& sys) {
  for (const Finding& finding : Diagnose(sys).findings) {
    if (finding.level == level) return finding.what + " -> " + finding.remedy;
  }
  return "";
}
std::string FirstProblem(kfd::Sys& sys) { return First(Finding::Level::kProblem, sys); }
std::string FirstNote(kfd::Sys& sys) { return First(Finding::Level::kNote, sys); }

TEST(a_healthy_machine) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  CHECK_EQ(FirstProblem(sys), "");
  CHECK_EQ(Diagnose(sys).usable_gpus, 1);
  std::string out;
  CHECK_EQ(RunDoctor(sys, false, &out), 0);
  CHECK(absl::StrContains(out, "gpu 0 (gfx942) can be used"));
  CHECK(absl::StrContains(out, "1 usable GPU\n"));
  CHECK(sys.open_fds.empty());
}

TEST(no_module) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.stats.erase(kRoot);
  sys.stats.erase("/sys/module/amdgpu");
  const std::string problem = FirstProblem(sys);
  CHECK(absl::StrContains(problem, "MI300X at 0000:05:00.0: the kernel module amdgpu is not"));
  CHECK(absl::StrContains(problem, "sudo modprobe amdgpu"));
}

TEST(a_module_without_kfd) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.stats.erase(kRoot);
  CHECK(absl::StrContains(FirstProblem(sys), "CONFIG_HSA_AMD"));
}

TEST(no_card_at_all) {
  test::FakeSys sys;
  const std::string problem = FirstProblem(sys);
  CHECK(absl::StrContains(problem, "no AMD Instinct card"));
  std::string out;
  CHECK_EQ(RunDoctor(sys, false, &out), 1);
  CHECK(absl::StrContains(out, "0 usable GPUs"));
}

TEST(not_in_the_group) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.open_errors["/dev/kfd"] = EACCES;
  const std::string problem = FirstProblem(sys);
  CHECK(absl::StrContains(problem, "crw-rw---- uid 0 gid 104 (render)"));
  CHECK(absl::StrContains(problem, "uid 1000 gid 1000 groups 27,100"));
  CHECK(absl::StrContains(problem, "sudo usermod -aG render $USER"));
  // Inside a container that does not know the group.
  sys.files["/etc/group"] = "root:x:0:\n";
  CHECK(absl::StrContains(FirstProblem(sys), "--group-add 104"));
  // The group is right, so the mode or the container is not.
  sys.identity.groups.push_back(104);
  CHECK(absl::StrContains(FirstProblem(sys), "ls -l /dev/kfd"));
}

TEST(the_render_node_is_denied) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.open_errors["/dev/dri/renderD128"] = EPERM;
  const std::string problem = FirstProblem(sys);
  CHECK(absl::StrContains(problem, "denied by the device cgroup"));
  CHECK(absl::StrContains(problem, "--device=/dev/dri/renderD128"));
  CHECK_EQ(Diagnose(sys).usable_gpus, 0);
}

TEST(other_errors_of_the_device_file) {
  const struct {
    int err;
    const char* text;
  } kCases[] = {{ENOENT, "--device=/dev/kfd"},
                {EINVAL, "locked, by a GPU reset"},
                {ENOMEM, "supports no GPU"},
                {EPERM, "device cgroup"},
                {EMFILE, "open /dev/kfd"}};
  for (const auto& c : kCases) {
    test::FakeSys sys;
    AddHealthyMachine(&sys);
    sys.open_errors["/dev/kfd"] = c.err;
    CHECK(absl::StrContains(FirstProblem(sys), c.text));
  }
}

TEST(the_render_node_is_another_groups) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.open_errors["/dev/dri/renderD128"] = EACCES;
  const std::string problem = FirstProblem(sys);
  CHECK(absl::StrContains(problem, "/dev/dri/renderD128 is crw-rw---- uid 0 gid 104 (render)"));
  CHECK(absl::StrContains(problem, "sudo usermod -aG render $USER"));
  CHECK_EQ(Diagnose(sys).usable_gpus, 0);
}

TEST(other_errors_of_the_render_node) {
  const struct {
    int err;
    const char* text;
  } kCases[] = {{ENOENT, "--device=/dev/kfd --device=/dev/dri"},
                {EINVAL, "locked, by a GPU reset"},
                {EMFILE, "dmesg | grep -i amdgpu"}};
  for (const auto& c : kCases) {
    test::FakeSys sys;
    AddHealthyMachine(&sys);
    sys.open_errors["/dev/dri/renderD128"] = c.err;
    CHECK(absl::StrContains(FirstProblem(sys), c.text));
    CHECK(absl::StrContains(FirstProblem(sys), "renderD128"));
  }
}

TEST(a_topology_that_cannot_be_read) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.read_errors[kRoot + "/nodes/1/properties"] = EIO;
  const std::string problem = FirstProblem(sys);
  CHECK(absl::StrContains(problem, "nodes/1/properties"));
  CHECK(absl::StrContains(problem, "-> sudo dmesg | grep -i kfd"));
  CHECK_EQ(Diagnose(sys).usable_gpus, 0);
}

TEST(a_driver_without_a_gpu) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  for (const char* file : {"gpu_id", "properties", "mem_banks/0/properties"}) {
    sys.files.erase(kRoot + "/nodes/1/" + file);
  }
  CHECK(absl::StrContains(FirstProblem(sys), "0000:05:00.0: the driver did not make a compute"));
  sys.files.erase("/sys/bus/pci/devices/0000:05:00.0/device");
  CHECK(absl::StrContains(FirstProblem(sys), "the driver lists no GPU -> sudo dmesg"));
}

TEST(a_driver_that_does_not_answer) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.ioctl = [](uint32_t, void*) { return -EIO; };
  CHECK(absl::StrContains(FirstProblem(sys), "kfd get_version"));
  CHECK(absl::StrContains(FirstProblem(sys), "-> sudo dmesg | grep -i kfd"));
  CHECK(sys.open_fds.empty());
}

TEST(a_chip_there_is_no_code_for) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  std::string& properties = sys.files[kRoot + "/nodes/1/properties"];
  properties.replace(properties.find("90402"), 5, "90010");
  CHECK_EQ(FirstNote(sys),
           "gpu 0 is gfx90a: this library has no code for it -> mainarch generate --device cpu");
  CHECK_EQ(Diagnose(sys).usable_gpus, 0);
  std::string out;
  CHECK_EQ(RunDoctor(sys, false, &out), 1);
}

TEST(a_small_bar_is_a_note) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.files[kRoot + "/nodes/1/mem_banks/0/properties"] = "heap_type 2\nsize_in_bytes 1000\n";
  CHECK(absl::StrContains(FirstNote(sys), "small BAR"));
  CHECK(absl::StrContains(FirstNote(sys), "Resizable BAR"));
  CHECK_EQ(Diagnose(sys).usable_gpus, 1);
}

TEST(memory_held_by_nobody_the_driver_knows) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.files["/sys/class/drm/renderD128/device/mem_info_vram_used"] = "103079215104\n";
  sys.files["/sys/class/drm/renderD128/device/mem_info_vram_total"] = "206141652992\n";
  CHECK(absl::StrContains(FirstNote(sys), "98304 of 196592 MiB are in use -> sudo fuser -v"));
}

TEST(a_kernel_too_old_for_the_card) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.files["/sys/bus/pci/devices/0000:15:00.0/vendor"] = "0x1002\n";
  sys.files["/sys/bus/pci/devices/0000:15:00.0/device"] = "0x75a3\n";
  const std::string problem = FirstProblem(sys);
  CHECK(absl::StrContains(problem, "MI355X at 0000:15:00.0: kernel 6.12.0-1-amd64 is too old"));
  CHECK(absl::StrContains(problem, "gfx950 needs 6.14"));
  sys.files["/proc/sys/kernel/osrelease"] = "6.16.3\n";
  CHECK(absl::StrContains(FirstProblem(sys), "did not make a compute node"));
}

TEST(hidden_nodes_and_held_memory) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.files[kRoot + "/nodes/2/gpu_id"] = "1\n";
  sys.read_errors[kRoot + "/nodes/2/gpu_id"] = EPERM;
  sys.files["/sys/class/drm/renderD128/device/mem_info_vram_used"] = "103079215104\n";
  sys.files["/sys/class/drm/renderD128/device/mem_info_vram_total"] = "206141652992\n";
  sys.files["/sys/devices/virtual/kfd/kfd/proc/777/vram_4242"] = "1073741824\n";
  sys.files["/proc/777/comm"] = "trainer\n";
  std::string out;
  CHECK_EQ(RunDoctor(sys, false, &out), 0);
  CHECK(absl::StrContains(out, "1 nodes are hidden"));
  CHECK(
      absl::StrContains(out, "98304 of 196592 MiB are in use, by process 777 (trainer) 1024 MiB"));
}

TEST(an_old_driver_is_a_note) {
  test::FakeSys sys;
  AddHealthyMachine(&sys);
  sys.ioctl = [](uint32_t, void* argument) {
    *static_cast<kfd::uapi::GetVersionArgs*>(argument) = {1, 11};
    return 0;
  };
  std::string out;
  CHECK_EQ(RunDoctor(sys, false, &out), 0);
  CHECK(absl::StrContains(out, "driver interface 1.11 is old"));
  CHECK(absl::StrContains(out, "queues on a chosen DMA engine"));
}

TEST(the_doctor_on_a_virtual_node) {
  auto machine = Machine::Create("gfx950x8", test_context);
  CHECK(machine != nullptr);
  std::string out;
  CHECK_EQ(RunDoctor(*machine->sys, false, &out), 0);
  CHECK(absl::StrContains(out, "8 usable GPUs"));
  CHECK(machine->sys->ledger().empty());
}

TEST(the_doctor_on_this_machine) {
  kfd::LinuxSys sys;
  std::string text, json;
  const int result = RunDoctor(sys, false, &text);
  CHECK_EQ(RunDoctor(sys, true, &json), result);
  for (const auto line : absl::StrSplit(text, '\n')) printf("# %s\n", std::string(line).c_str());
  CHECK(!text.empty());
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  CHECK(parser.parse(json).get(document) == simdjson::SUCCESS);
}

TEST(the_topology_of_virtual_nodes) {
  for (const char* node : {"gfx950x8", "gfx942x8", "gfx942x1", "gfx90ax2"}) {
    auto machine = Machine::Create(node, test_context);
    CHECK(machine != nullptr);
    std::string text, json;
    CHECK_OK(RunTopology(*machine->sys, {.json = false}, &text));
    CHECK_OK(RunTopology(*machine->sys, {.json = true}, &json));
    simdjson::dom::parser parser;
    simdjson::dom::element document;
    CHECK(parser.parse(json).get(document) == simdjson::SUCCESS);
    uint64_t cus = 0;
    CHECK(document["gpus"].at(0)["cus_enabled"].get(cus) == simdjson::SUCCESS);
    if (absl::StartsWith(node, "gfx950")) {
      CHECK_EQ(cus, 256u);
      CHECK(absl::StrContains(text, "8 XCDs, 256 CUs enabled of 288 (32 harvested)"));
      CHECK(absl::StrContains(text, "LDS 160 KiB a CU"));
      CHECK(absl::StrContains(text, "xgmi 15 50000 e14"));
    }
    if (std::string(node) == "gfx950x8") {
      // Every engine and the link it serves, and the matrix, each way round.
      CHECK(absl::StrContains(text, "pcie engines 0-1: 0 to cpu 0, 1 to cpu 0"));
      CHECK(absl::StrContains(text, "xgmi engines 2-15: 2 to gpu 3, 4 to gpu 4, 6 to gpu 7, 8 to"));
      simdjson::dom::array engines, links;
      CHECK(document["gpus"].at(0)["dma_engines"].get(engines) == simdjson::SUCCESS);
      CHECK_EQ(engines.size(), 16u);
      uint64_t masks = 0, peers = 0;
      for (size_t gpu = 0; gpu < 8; ++gpu) {
        CHECK(document["gpus"].at(gpu)["links"].get(links) == simdjson::SUCCESS);
        CHECK_EQ(links.size(), 8u);  // seven peers and a socket
        for (const simdjson::dom::element link : links) {
          uint64_t mask = 0;
          CHECK(link["dma_engine_mask"].get(mask) == simdjson::SUCCESS);
          masks |= gpu == 0 ? mask : 0;
          peers += absl::string_view(link["type"].get_c_str().value()) == "xgmi";
        }
      }
      CHECK_EQ(peers, 56u);
      CHECK_EQ(masks, 0x5557u);  // two for the host, one for each peer
      for (const auto line : absl::StrSplit(text, '\n')) {
        if (absl::StartsWith(line, "gpu 2")) break;
        printf("# %s\n", std::string(line).c_str());
      }
    }
    CHECK(machine->sys->ledger().empty());  // nothing but sysfs was opened
  }
}

TEST(no_driver_has_no_topology) {
  test::FakeSys sys;
  std::string out;
  CHECK_EQ(static_cast<int>(CodeOf(RunTopology(sys, {}, &out))), static_cast<int>(Code::kNoDevice));
}

}  // namespace
}  // namespace mainarch::cli
