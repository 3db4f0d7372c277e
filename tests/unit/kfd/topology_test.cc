// SPDX-License-Identifier: MIT
#include "kfd/topology.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kfd/uapi/kfd_sysfs.h"
#include "support/test.h"
#include "unit/kfd/fake_sys.h"

namespace mainarch::kfd {
namespace {

const std::string kRoot = uapi::kTopologyRoot;

// One CPU node and one GPU node, as the driver prints them (shortened).
void AddMachine(test::FakeSys* sys) {
  sys->files[kRoot + "/generation_id"] = "2\n";
  sys->files[kRoot + "/system_properties"] = "platform_oem 0\nplatform_id 1\nplatform_rev 2\n";
  sys->files[kRoot + "/nodes/0/gpu_id"] = "0\n";
  sys->files[kRoot + "/nodes/0/name"] = "\n";
  sys->files[kRoot + "/nodes/0/properties"] = "cpu_cores_count 96\nsimd_count 0\n";
  const std::string gpu = kRoot + "/nodes/1/";
  sys->files[gpu + "gpu_id"] = "51966\n";
  sys->files[gpu + "name"] = "ip discovery\n";
  sys->files[gpu + "properties"] =
      "cpu_cores_count 0\nsimd_count 1216\narray_count 32\nsimd_arrays_per_engine 1\n"
      "simd_per_cu 4\ngfx_target_version 90402\nvendor_id 4098\ndevice_id 29857\n"
      "drm_render_minor 128\nhive_id 10376293541461622784\nnum_sdma_engines 2\n"
      "num_sdma_xgmi_engines 14\ncapability 2893521536\nnum_xcc 8\nfrom_the_future 7\n";
  sys->files[gpu + "mem_banks/0/properties"] =
      "heap_type 1\nsize_in_bytes 206141652992\nflags 0\nwidth 8192\nmem_clk_max 1300\n";
  sys->files[gpu + "caches/0/properties"] = "processor_id_low 0\nlevel 1\nsize 32\ntype 9\n";
  sys->files[gpu + "io_links/0/properties"] =
      "type 2\nversion_major 0\nnode_from 1\nnode_to 0\nweight 20\nmax_bandwidth 64000\n"
      "recommended_sdma_engine_id_mask 3\nflags 1\n";
}

TEST(reads_what_the_driver_prints) {
  test::FakeSys sys;
  AddMachine(&sys);
  auto topology = ReadTopology(sys, {.with_caches = true});
  CHECK_OK(topology);
  CHECK_EQ(topology->generation, 2u);
  CHECK_EQ(topology->nodes.size(), 2u);
  CHECK_EQ(topology->Gpus().size(), 1u);
  const Node& gpu = *topology->Gpus()[0];
  CHECK_EQ(gpu.gpu_id, 51966u);
  CHECK_EQ(gpu.name, "ip discovery");
  CHECK_EQ(gpu.properties.simd_count, 1216u);
  CHECK_EQ(gpu.properties.num_xcc, 8u);
  CHECK_EQ(gpu.properties.hive_id, 10376293541461622784u);
  CHECK_EQ(gpu.properties.capability, 0xac77a280u);
  CHECK_EQ(gpu.vram_size(), 206141652992u);
  CHECK(gpu.vram_is_host_visible());
  CHECK_EQ(gpu.unknown_properties.size(), 1u);
  CHECK_EQ(gpu.unknown_properties[0].first, "from_the_future");
  CHECK_EQ(gpu.caches.size(), 1u);
  CHECK(gpu.LinkTo(0) != nullptr);
  CHECK_EQ(gpu.LinkTo(0)->recommended_sdma_engine_id_mask, 3u);
  CHECK(gpu.LinkTo(5) == nullptr);
  CHECK_EQ(topology->nodes[0].properties.num_xcc, 1u);  // an old kernel does not print it
}

TEST(skips_caches_unless_asked) {
  test::FakeSys sys;
  AddMachine(&sys);
  auto topology = ReadTopology(sys);
  CHECK_OK(topology);
  CHECK(topology->nodes[1].caches.empty());
}

TEST(a_node_the_cgroup_denies_is_hidden_not_an_error) {
  test::FakeSys sys;
  AddMachine(&sys);
  sys.read_errors[kRoot + "/nodes/1/gpu_id"] = EPERM;
  auto topology = ReadTopology(sys);
  CHECK_OK(topology);
  CHECK_EQ(topology->nodes.size(), 1u);
  CHECK_EQ(topology->hidden_nodes.size(), 1u);
  CHECK_EQ(topology->hidden_nodes[0], 1u);
}

TEST(reads_again_when_the_generation_moved) {
  test::FakeSys sys;
  AddMachine(&sys);
  int reads = 0;
  sys.on_read = [&](const std::string& path) {
    if (path == kRoot + "/nodes/1/properties" && reads++ == 0) {
      sys.files[kRoot + "/generation_id"] = "3\n";
    }
  };
  auto topology = ReadTopology(sys);
  CHECK_OK(topology);
  CHECK_EQ(topology->generation, 3u);
  CHECK_EQ(reads, 2);
}

TEST(gives_up_on_a_topology_that_never_rests) {
  test::FakeSys sys;
  AddMachine(&sys);
  int generation = 2;
  sys.on_read = [&](const std::string&) {
    sys.files[kRoot + "/generation_id"] = absl::StrCat(++generation, "\n");
  };
  auto topology = ReadTopology(sys);
  CHECK_EQ(static_cast<int>(CodeOf(topology.status())), static_cast<int>(Code::kBusy));
}

TEST(a_node_that_vanishes_in_mid_read_is_read_again) {
  test::FakeSys sys;
  AddMachine(&sys);
  bool gone = false;
  sys.on_read = [&](const std::string& path) {
    if (path == kRoot + "/nodes/1/gpu_id" && !gone) {
      gone = true;
      for (auto it = sys.files.begin(); it != sys.files.end();) {
        it = absl::StrContains(it->first, "/nodes/1/") ? sys.files.erase(it) : std::next(it);
      }
      sys.files[kRoot + "/generation_id"] = "3\n";
    }
  };
  auto topology = ReadTopology(sys);
  CHECK_OK(topology);
  CHECK_EQ(topology->nodes.size(), 1u);
}

TEST(no_driver_is_no_device) {
  test::FakeSys sys;
  auto topology = ReadTopology(sys);
  CHECK_EQ(static_cast<int>(CodeOf(topology.status())), static_cast<int>(Code::kNoDevice));
  CHECK(absl::StrContains(topology.status().message(), "generation_id"));
}

TEST(a_malformed_line_is_named) {
  for (const char* bad : {"simd_count\n", "simd_count  4\n", "simd_count -4\n", "simd_count 4x\n",
                          "simd_count 99999999999999999999\n", " simd_count 4\n", "simd count 4\n",
                          "simd_count 0x4\n", "\n", "simd_count 4 \n"}) {
    auto list = ParseProperties("p", absl::StrCat("cpu_cores_count 1\n", bad));
    CHECK(!list.ok());
    CHECK(absl::StartsWith(list.status().message(), "p:2: "));
  }
  CHECK_OK(ParseProperties("p", "simd_count 4"));  // the last newline may be missing
  CHECK_EQ(ParseProperties("p", "a 18446744073709551615\n")->at(0).second, UINT64_MAX);
}

TEST(an_endless_file_is_refused) {
  test::FakeSys sys;
  AddMachine(&sys);
  sys.files[kRoot + "/nodes/1/properties"] = std::string(100 << 10, 'a');
  CHECK(absl::StrContains(ReadTopology(sys).status().message(), "more than 65536 bytes"));
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += "a 1\n";
  CHECK(absl::StrContains(ParseProperties("p", lines).status().message(), "more than 1024 lines"));
}

TEST(names_of_chips) {
  CHECK_EQ(GfxName(90402), "gfx942");
  CHECK_EQ(GfxName(90500), "gfx950");
  CHECK_EQ(GfxName(90010), "gfx90a");
  CHECK_EQ(GfxName(110000), "gfx1100");
}

}  // namespace
}  // namespace mainarch::kfd
