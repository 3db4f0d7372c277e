// SPDX-License-Identifier: MIT
#include "sim/virtual_fs.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <sstream>

#include "sim/isa/lanes.h"
#include "sim/virtual_paths.h"
#include "support/test.h"

namespace mainarch::sim {
namespace {

const std::string kRoot = "/sys/devices/virtual/kfd/kfd/topology";

std::map<std::string, std::string> Properties(const VirtualFs& fs, const std::string& path) {
  std::map<std::string, std::string> result;
  const VirtualFs::Entry* entry = fs.Find(path);
  if (entry == nullptr) return result;
  std::istringstream lines(entry->text);
  std::string name, value;
  while (lines >> name >> value) result[name] = value;
  return result;
}

TEST(nodes_say_what_a_chip_in_spx_says) {
  struct Row {
    const char* node;
    std::map<std::string, std::string> values;
  };
  const Row rows[] = {
      {"gfx942x8",
       {{"simd_count", "1216"},
        {"caches_count", "626"},
        {"io_links_count", "8"},
        {"gfx_target_version", "90402"},
        {"device_id", "29857"},
        {"num_xcc", "8"},
        {"array_count", "32"},
        {"cu_per_simd_array", "10"},
        {"lds_size_in_kb", "64"},
        {"num_sdma_engines", "2"},
        {"num_sdma_xgmi_engines", "14"},
        {"cwsr_size", "23203840"},
        {"ctl_stack_size", "12288"},
        {"capability", "2893521536"},
        {"debug_prop", "1511"}}},
      {"gfx950x8",
       {{"simd_count", "1024"},
        {"caches_count", "546"},
        {"gfx_target_version", "90500"},
        {"device_id", "30115"},
        {"cu_per_simd_array", "9"},
        {"lds_size_in_kb", "160"},
        {"cwsr_size", "22687744"},
        {"capability", "2889327232"},
        {"max_engine_clk_fcompute", "2400"}}},
  };
  for (const Row& row : rows) {
    const VirtualFs fs(*ParseNode(row.node));
    auto properties = Properties(fs, kRoot + "/nodes/2/properties");
    for (const auto& [name, value] : row.values) CHECK_EQ(name + properties[name], name + value);
    std::vector<std::string> names;
    CHECK(fs.List(kRoot + "/nodes", &names));
    CHECK_EQ(names.size(), 10u);  // two sockets, eight GPUs
    CHECK(fs.List(kRoot + "/nodes/2/caches", &names));
    CHECK_EQ(std::to_string(names.size()), properties["caches_count"]);
    CHECK(fs.List(kRoot + "/nodes/2/io_links", &names));
    CHECK_EQ(std::to_string(names.size()), properties["io_links_count"]);
    CHECK(fs.List(kRoot + "/nodes/0/io_links", &names));
    auto socket = Properties(fs, kRoot + "/nodes/0/properties");
    CHECK_EQ(std::to_string(names.size()), socket["io_links_count"]);
  }
}

TEST(a_hive_of_eight_gives_each_peer_an_engine_of_its_own) {
  const NodeConfig config = *ParseNode("gfx942x8");
  for (uint32_t from = 0; from < 8; ++from) {
    std::set<uint32_t> masks;
    for (uint32_t to = 0; to < 8; ++to) {
      if (to == from) continue;
      const uint32_t mask = RecommendedSdmaMask(config, from, to);
      CHECK_EQ(mask & (mask - 1), 0u);
      CHECK_GE(mask, 4u);
      masks.insert(mask);
    }
    CHECK_EQ(masks.size(), 7u);
  }
  CHECK_EQ(RecommendedSdmaMask(config, 0, 1), 1u << 14);
  CHECK_EQ(RecommendedSdmaMask(config, 6, 5), 1u << 2);
  CHECK_EQ(RecommendedSdmaMask(*ParseNode("gfx942x4"), 0, 1), 0xfffcu);
}

// AMD's conformance suite leaves its cases of preemption out where it does not find that waves are saved.
TEST(the_drivers_parameters_are_told) {
  const VirtualFs fs(*ParseNode("gfx942"));
  const VirtualFs::Entry* saves = fs.Find("/sys/module/amdgpu/parameters/cwsr_enable");
  CHECK(saves != nullptr && saves->text == "1\n");
  const VirtualFs::Entry* emulated = fs.Find("/sys/module/amdgpu/parameters/emu_mode");
  CHECK(emulated != nullptr && emulated->text == "0\n");
}

TEST(gpus_have_identities_of_their_own) {
  const auto ids = MakeIdentities(*ParseNode("gfx950x16"));
  std::set<uint32_t> gpu_ids, minors, places;
  for (const GpuIdentity& id : ids) {
    CHECK_NE(id.gpu_id, 0u);
    CHECK_LE(id.gpu_id, 0xffffu);
    gpu_ids.insert(id.gpu_id);
    minors.insert(id.render_minor);
    places.insert(id.location_id);
  }
  CHECK_EQ(gpu_ids.size(), 16u);
  CHECK_EQ(minors.size(), 16u);
  CHECK_EQ(places.size(), 16u);
}

TEST(paths_resolve_through_links_and_dots) {
  const VirtualFs fs(*ParseNode("gfx942"));
  const VirtualFs::Entry* entry = fs.Find(kRoot + "/generation_id");
  CHECK(entry != nullptr);
  CHECK_EQ(fs.Find("/sys/class/kfd/kfd/topology/generation_id"), entry);
  CHECK_EQ(fs.Find("/sys/class/kfd//kfd/./topology/nodes/../generation_id"), entry);
  CHECK(fs.Find(kRoot) == nullptr);
  CHECK(fs.Find("/sys/class/drm/renderD128/device/current_compute_partition") != nullptr);
  CHECK(fs.Find("/sys/class/drm/renderD129/device/current_compute_partition") == nullptr);
  CHECK_EQ(fs.Find("/sys/class/drm/card0/device/unique_id"),
           fs.Find("/sys/dev/char/226:128/device/unique_id"));
  CHECK(fs.Find("/sys/class/drm/card0/device/unique_id") != nullptr);
  CHECK(IsVirtualPath("/dev/kfd"));
  CHECK(!IsVirtualPath("/dev/kfdx"));
  CHECK(!IsVirtualPath("/dev/null"));
  std::vector<std::string> names;
  CHECK(fs.List("/dev/dri/", &names));
  std::sort(names.begin(), names.end());
  CHECK_EQ(names.size(), 2u);
  CHECK_EQ(names[1], "renderD128");
  CHECK(!fs.List("/dev/dri/renderD128", &names));
}

TEST(settings_of_a_node) {
  const NodeConfig config =
      *ParseNode("gfx950x4,seed=77,minor=14,threads=2,hide=1,unknown=1,cwsr=0");
  CHECK_EQ(config.gpus, 4u);
  CHECK_EQ(config.seed, 77u);
  CHECK_EQ(config.kfd_minor, 14u);
  const VirtualFs fs(config);
  CHECK_EQ(fs.Find(kRoot + "/nodes/2/properties")->error, EPERM);
  CHECK_EQ(fs.Find(kRoot + "/nodes/1/properties")->error, 0);
  auto properties = Properties(fs, kRoot + "/nodes/1/properties");
  CHECK_EQ(properties.count("cwsr_size"), 0u);
  CHECK_EQ(properties["mystery_property"], "18446744073709551615");
  for (const char* bad : {"",
                          "gfx942x",
                          "gfx942x0",
                          "gfx942x17",
                          "gfx1100",
                          "gfx942,seed",
                          "gfx942,seed=x",
                          "gfx942,colour=1",
                          "gfx942x2,hide=2",
                          "x8",
                          "gfx942,check",
                          "gfx942,check=",
                          "gfx942,check=1",
                          "gfx942,check=waits+",
                          "gfx90a,check=all",
                          "gfx942,check=waits+caches",
                          "gfx942,check=all+waits",
                          "gfx942,lines=",
                          "gfx942,lines=/nowhere",
                          "gfx942,lines=/dev/null"}) {
    const auto parsed = ParseNode(bad);
    if (parsed.ok()) std::printf("# %s\n", bad);
    CHECK(!parsed.ok());
    CHECK(parsed.status().message().find("node") != absl::string_view::npos);
  }
}

TEST(checkers_of_a_node) {
  const auto check = [](const char* text) { return ParseNode(text)->check; };
  CHECK(!check("gfx950").any());
  CHECK(!check("gfx950,check=none").any());
  const isa::CheckOptions all = check("gfx950,seed=3,check=all");
  CHECK(all.waits && all.nops && all.undefined && all.races && !all.caches);
  const isa::CheckOptions two = check("gfx950,check=races+nops");
  CHECK(two.nops && two.races && !two.waits && !two.undefined && !two.caches);
  CHECK(check("gfx942,check=caches").caches);
}

TEST(a_card_is_another_profile_of_its_chip) {
  const auto config = ParseNode("gfx942x2,card=mi308x,seed=3");
  CHECK_OK(config);
  CHECK_EQ(config->profile->facts.num_xcc * config->profile->facts.cus_per_xcc, 80u);
  CHECK_EQ(config->profile->simd_count, 320u);
  CHECK_EQ(config->gpus, 2u);
  CHECK(!ParseNode("gfx950,card=mi308x").ok());
  CHECK(!ParseNode("gfx942,card=mi300x").ok());
}

TEST(turns_and_lane_routines_are_settings) {
  CHECK_EQ(ParseNode("gfx942,slice=16")->slice, 16u);
  CHECK_EQ(ParseNode("gfx942")->slice, 0u);
  CHECK(!ParseNode("gfx942,slice=0").ok());
  CHECK(!ParseNode("gfx942,slice=1000001").ok());
  CHECK(!ParseNode("gfx942")->lanes.has_value());
  CHECK(!ParseNode("gfx942,lanes=sse").ok());
  for (const auto& [name, code] :
       {std::pair("portable", isa::LaneCode::kPortable), std::pair("avx2", isa::LaneCode::kAvx2),
        std::pair("avx512", isa::LaneCode::kAvx512)}) {
    const auto config = ParseNode(std::string("gfx950,lanes=") + name);
    CHECK_EQ(config.ok(), isa::Runs(code));
    if (config.ok()) CHECK(config->lanes == code);
  }
}

}  // namespace
}  // namespace mainarch::sim
