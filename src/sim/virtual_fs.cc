// SPDX-License-Identifier: MIT
#include "sim/virtual_fs.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kfd/uapi/kfd_sysfs.h"
#include "sim/process_files.h"
#include "sim/virtual_paths.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

constexpr uint32_t kFirstRenderMinor = 128;
constexpr uint32_t kDrmMajor = 226;
constexpr uint32_t kKfdMajor = 234;
constexpr uint32_t kGpusPerSocket = 4;
constexpr uint32_t kCoresPerSocket = 64;
// 12 DIMMs of 64 GB, as such servers have; runtimes of 2022 give up beyond 1 TB a socket.
constexpr uint64_t kSystemBytesPerSocket = uint64_t{768} << 30;

// The engine that serves the link of a hive of eight, by physical id (amdkfd/kfd_topology.c).
constexpr uint8_t kEngineMap[8][8] = {
    {0, 14, 12, 2, 4, 8, 10, 6}, {14, 0, 2, 10, 8, 4, 6, 12}, {10, 2, 0, 12, 14, 6, 4, 8},
    {2, 12, 10, 0, 6, 14, 8, 4}, {4, 8, 14, 6, 0, 10, 12, 2}, {8, 4, 6, 14, 12, 0, 2, 10},
    {10, 6, 4, 8, 12, 2, 0, 14}, {6, 12, 8, 4, 2, 10, 14, 0},
};

uint32_t Sockets(const NodeConfig& config) {
  if (config.sockets != 0) return config.sockets;
  return config.gpus > kGpusPerSocket ? 2 : 1;
}

// A 16-bit CRC stands for the driver's hash; only its width and that it is opaque matter.
uint32_t HashedGpuId(uint32_t device_id, uint32_t index) {
  uint32_t crc = 0xffff;
  for (uint32_t word : {device_id, 0x0500u + index * 0x1700u}) {
    for (int bit = 0; bit < 32; ++bit) {
      const uint32_t carry = (crc ^ word) & 1;
      crc = crc >> 1 ^ (carry != 0 ? 0xa001u : 0);
      word >>= 1;
    }
  }
  return crc;
}

std::string BusAddress(const GpuIdentity& id) {
  const auto two = [](uint32_t number) { return absl::Hex(number, absl::kZeroPad2); };
  return absl::StrCat(absl::Hex(id.domain, absl::kZeroPad4), ":", two(id.location_id >> 8), ":",
                      two(id.location_id >> 3 & 0x1f), ".", absl::Hex(id.location_id & 7));
}

class Builder {
 public:
  Builder(const NodeConfig& config, std::map<std::string, VirtualFs::Entry>* entries)
      : config_(config), gpus_(MakeIdentities(config)), entries_(*entries) {}

  void Build() {
    Text(absl::StrCat(uapi::kTopologyRoot, "/generation_id"), "2\n");
    Text(absl::StrCat(uapi::kTopologyRoot, "/system_properties"),
         "platform_oem 71800115024960\nplatform_id 5788920022868806977\nplatform_rev 2\n");
    for (uint32_t socket = 0; socket < Sockets(config_); ++socket) CpuNode(socket);
    for (uint32_t gpu = 0; gpu < config_.gpus; ++gpu) {
      GpuNode(gpu);
      CardFiles(gpu);
    }
    Device("/dev/kfd", kKfdMajor, 0);
    entries_[std::string(ProcessFiles::kRoot)].kind = VirtualFs::Entry::Kind::kDirectory;
    Text("/sys/module/amdgpu/initstate", "live\n");
    Text("/sys/module/amdgpu/refcnt", "0\n");
    entries_["/sys/module/amdgpu/holders"].kind = VirtualFs::Entry::Kind::kDirectory;
    Text("/sys/module/amdgpu/version", "6.12.0\n");
    // The driver's defaults, of which AMD's conformance suite asks the first two.
    for (const auto& [name, value] : {std::pair("cwsr_enable", "1"), std::pair("emu_mode", "0"),
                                      std::pair("noretry", "-1"), std::pair("sched_policy", "0")}) {
      Text(absl::StrCat("/sys/module/amdgpu/parameters/", name), absl::StrCat(value, "\n"));
    }
    Text("/proc/modules", "amdgpu 14000000 0 - Live 0x0000000000000000\n");
  }

 private:
  static std::string Lines(std::initializer_list<std::pair<const char*, uint64_t>> values) {
    std::string text;
    for (const auto& [name, value] : values) absl::StrAppend(&text, name, " ", value, "\n");
    return text;
  }

  void Text(const std::string& path, std::string text, int error = 0) {
    entries_[path] = {VirtualFs::Entry::Kind::kText, std::move(text), 0, 0, error};
  }
  void Device(const std::string& path, uint32_t major, uint32_t minor) {
    entries_[path] = {VirtualFs::Entry::Kind::kDevice, "", major, minor, 0};
  }
  void Link(const std::string& path, const std::string& target) {
    entries_[path] = {VirtualFs::Entry::Kind::kLink, target, 0, 0, 0};
  }
  static std::string NodePath(uint32_t node) {
    return absl::StrCat(uapi::kTopologyRoot, "/nodes/", node);
  }

  void CpuNode(uint32_t socket) {
    const std::string path = NodePath(socket);
    const uint64_t links = Sockets(config_) - 1 + GpusOf(socket).size();
    Text(path + "/gpu_id", "0\n");
    Text(path + "/name", "\n");
    Text(path + "/properties", Lines({{"cpu_cores_count", kCoresPerSocket},
                                      {"simd_count", 0},
                                      {"mem_banks_count", 1},
                                      {"caches_count", 0},
                                      {"io_links_count", links},
                                      {"p2p_links_count", 0},
                                      {"cpu_core_id_base", uint64_t{socket} * kCoresPerSocket},
                                      {"simd_id_base", 0},
                                      {"max_waves_per_simd", 0},
                                      {"lds_size_in_kb", 0},
                                      {"gds_size_in_kb", 0},
                                      {"num_gws", 0},
                                      {"wave_front_size", 0},
                                      {"array_count", 0},
                                      {"simd_arrays_per_engine", 0},
                                      {"cu_per_simd_array", 0},
                                      {"simd_per_cu", 0},
                                      {"max_slots_scratch_cu", 0},
                                      {"gfx_target_version", 0},
                                      {"vendor_id", 0},
                                      {"device_id", 0},
                                      {"location_id", 0},
                                      {"domain", 0},
                                      {"drm_render_minor", 0},
                                      {"hive_id", 0},
                                      {"num_sdma_engines", 0},
                                      {"num_sdma_xgmi_engines", 0},
                                      {"num_sdma_queues_per_engine", 0},
                                      {"num_cp_queues", 0},
                                      {"max_engine_clk_ccompute", 3700}}));
    MemoryBank(path, uapi::kHeapSystem, kSystemBytesPerSocket, 64, 4800);
    uint32_t link = 0;
    for (uint32_t other = 0; other < Sockets(config_); ++other) {
      if (other != socket) IoLink(path, link++, socket, other, 2, 20, 0, 0, 0, 1);
    }
    for (uint32_t gpu : GpusOf(socket)) {
      IoLink(path, link++, socket, gpus_[gpu].topology_node, uapi::kLinkPcie, 20, 0, 64000, 0,
             uapi::kLinkEnabled | uapi::kLinkNonCoherent);
    }
  }

  std::vector<uint32_t> GpusOf(uint32_t socket) const {
    std::vector<uint32_t> result;
    for (uint32_t gpu = 0; gpu < config_.gpus; ++gpu) {
      if (gpus_[gpu].numa_node == socket) result.push_back(gpu);
    }
    return result;
  }

  void GpuNode(uint32_t gpu) {
    const GpuProfile& chip = *config_.profile;
    const std::string path = NodePath(gpus_[gpu].topology_node);
    const int error = config_.hidden_gpu == static_cast<int32_t>(gpu) ? EPERM : 0;
    Text(path + "/gpu_id", absl::StrCat(gpus_[gpu].gpu_id, "\n"), error);
    Text(path + "/name", "ip discovery\n");
    Text(path + "/properties", Properties(gpu), error);
    MemoryBank(path,
               config_.small_bar ? uapi::kHeapFramebufferPrivate : uapi::kHeapFramebufferPublic,
               chip.vram_bytes, chip.memory_width, chip.memory_mhz);
    Caches(path, gpu);
    Links(path, gpu);
  }

  uint64_t CacheCount() const {
    const GpuProfile& chip = *config_.profile;
    return chip.simd_count / chip.facts.simds_per_cu + 2 * chip.shared_l1_count + 1 +
           (chip.l3_kb != 0 ? 1 : 0);
  }

  std::string Properties(uint32_t gpu) const {
    const GpuProfile& chip = *config_.profile;
    const GpuIdentity& id = gpus_[gpu];
    const uint64_t hive = config_.gpus > 1 ? 0x5a3f9c1e77d20b41 : 0;
    std::string text = Lines({{"cpu_cores_count", 0},
                              {"simd_count", chip.simd_count},
                              {"mem_banks_count", 1},
                              {"caches_count", CacheCount()},
                              {"io_links_count", config_.gpus},
                              {"p2p_links_count", 0},
                              {"cpu_core_id_base", 0},
                              {"simd_id_base", 0x80001000 + uint64_t{gpu} * chip.simd_count},
                              {"max_waves_per_simd", chip.facts.waves_per_simd},
                              {"lds_size_in_kb", chip.facts.lds_bytes >> 10},
                              {"gds_size_in_kb", 0},
                              {"num_gws", chip.num_gws},
                              {"wave_front_size", 64},
                              {"array_count", chip.array_count},
                              {"simd_arrays_per_engine", 1},
                              {"cu_per_simd_array", chip.cu_per_array},
                              {"simd_per_cu", chip.facts.simds_per_cu},
                              {"max_slots_scratch_cu", chip.facts.scratch_slots_per_cu},
                              {"gfx_target_version", chip.facts.gfx_target_version},
                              {"vendor_id", 0x1002},
                              {"device_id", chip.device_id},
                              {"location_id", id.location_id},
                              {"domain", id.domain},
                              {"drm_render_minor", id.render_minor},
                              {"hive_id", hive},
                              {"num_sdma_engines", chip.num_sdma},
                              {"num_sdma_xgmi_engines", chip.num_sdma_xgmi},
                              {"num_sdma_queues_per_engine", chip.sdma_queues_per_engine},
                              {"num_cp_queues", chip.num_cp_queues}});
    if (config_.sysfs_save_area) {
      const SaveAreaSizes sizes = SaveAreaOf(chip);
      text += Lines({{"cwsr_size", sizes.cwsr_bytes}, {"ctl_stack_size", sizes.ctl_stack_bytes}});
    }
    if (config_.sysfs_unknown_lines) text += "mystery_property 18446744073709551615\n";
    text += Lines({{"max_engine_clk_fcompute", chip.clock_mhz},
                   {"local_mem_size", 0},
                   {"fw_version", chip.mec_fw},
                   {"capability", chip.capability},
                   {"debug_prop", chip.debug_prop},
                   {"sdma_fw_version", chip.sdma_fw},
                   {"unique_id", id.unique_id},
                   {"num_xcc", chip.facts.num_xcc},
                   {"max_engine_clk_ccompute", 3700}});
    if (config_.sysfs_unknown_lines) text += "capability2 1\n";
    return text;
  }

  void MemoryBank(const std::string& node, uint64_t heap, uint64_t size, uint64_t width,
                  uint64_t mhz) {
    Text(node + "/mem_banks/0/properties", Lines({{"heap_type", heap},
                                                  {"size_in_bytes", size},
                                                  {"flags", 0},
                                                  {"width", width},
                                                  {"mem_clk_max", mhz}}));
  }

  void Caches(const std::string& node, uint32_t gpu) {
    const GpuProfile& chip = *config_.profile;
    const uint32_t cus = chip.simd_count / chip.facts.simds_per_cu;
    const uint64_t base = 0x80001000 + uint64_t{gpu} * chip.simd_count;
    const uint64_t data = uapi::kCacheData | uapi::kCacheHsaCu;
    const uint64_t code = uapi::kCacheInstruction | uapi::kCacheHsaCu;
    uint32_t index = 0;
    const auto add = [&](uint64_t first_simd, uint64_t level, uint64_t kb, uint64_t line,
                         uint64_t type, uint32_t siblings) {
      std::string text = Lines({{"processor_id_low", first_simd},
                                {"level", level},
                                {"size", kb},
                                {"cache_line_size", line},
                                {"cache_lines_per_tag", 1},
                                {"association", 16},
                                {"latency", 0},
                                {"type", type}});
      text += "sibling_map ";
      const uint32_t bits = (siblings + 7) / 8 * 8;
      for (uint32_t i = 0; i < bits; ++i) {
        absl::StrAppend(&text, i < siblings ? "1" : "0", i + 1 < bits ? "," : "\n");
      }
      Text(absl::StrCat(node, "/caches/", index++, "/properties"), std::move(text));
    };
    for (uint32_t cu = 0; cu < cus; ++cu) add(base + 4 * cu, 1, 32, 128, data, 1);
    for (uint32_t i = 0; i < chip.shared_l1_count; ++i) {
      const uint32_t first = uint64_t{i} * cus / chip.shared_l1_count;
      add(base + 4 * first, 1, 64, 64, code, chip.cus_per_shared_l1);
      add(base + 4 * first, 1, 16, 64, data, chip.cus_per_shared_l1);
    }
    add(base, 2, chip.l2_kb, 128, data, chip.facts.cus_per_xcc);
    if (chip.l3_kb != 0) add(base, 3, chip.l3_kb, 64, data, cus);
  }

  void Links(const std::string& node, uint32_t gpu) {
    const uint32_t self = gpus_[gpu].topology_node;
    uint32_t link = 0;
    IoLink(node, link++, self, gpus_[gpu].numa_node, uapi::kLinkPcie, 20, 0, 64000, 3,
           uapi::kLinkEnabled);
    for (uint32_t peer = 0; peer < config_.gpus; ++peer) {
      if (peer == gpu) continue;
      IoLink(node, link++, self, gpus_[peer].topology_node, uapi::kLinkXgmi, 15, 50000, 50000,
             RecommendedSdmaMask(config_, gpu, peer), uapi::kLinkEnabled);
    }
  }

  void IoLink(const std::string& node, uint32_t index, uint64_t from, uint64_t to, uint64_t type,
              uint64_t weight, uint64_t min_bandwidth, uint64_t max_bandwidth, uint64_t sdma_mask,
              uint64_t flags) {
    Text(absl::StrCat(node, "/io_links/", index, "/properties"),
         Lines({{"type", type},
                {"version_major", 0},
                {"version_minor", 0},
                {"node_from", from},
                {"node_to", to},
                {"weight", weight},
                {"min_latency", 0},
                {"max_latency", 0},
                {"min_bandwidth", min_bandwidth},
                {"max_bandwidth", max_bandwidth},
                {"recommended_transfer_size", 0},
                {"recommended_sdma_engine_id_mask", sdma_mask},
                {"flags", flags}}));
  }

  void CardFiles(uint32_t gpu) {
    const GpuProfile& chip = *config_.profile;
    const GpuIdentity& id = gpus_[gpu];
    const std::string bdf = BusAddress(id);
    const std::string device = "/sys/bus/pci/devices/" + bdf;
    const std::string render = absl::StrCat("renderD", id.render_minor);
    const std::string card = absl::StrCat("card", gpu);
    Device("/dev/dri/" + render, kDrmMajor, id.render_minor);
    Device("/dev/dri/" + card, kDrmMajor, gpu);
    Text(device + "/current_compute_partition", "SPX\n");
    Text(device + "/available_compute_partition",
         chip.facts.num_xcc == 8 ? "SPX, DPX, QPX, CPX\n" : "SPX\n");
    Text(device + "/current_memory_partition", "NPS1\n");
    Text(device + "/xgmi_device_id", absl::StrCat(0x5a3f9c10 + gpu, "\n"));
    Text(device + "/xgmi_physical_id", absl::StrCat(gpu, "\n"));
    Text(device + "/mem_info_vram_total", absl::StrCat(chip.vram_bytes, "\n"));
    Text(device + "/mem_info_vis_vram_total", absl::StrCat(chip.vram_bytes, "\n"));
    Text(device + "/mem_info_vram_used", "0\n");
    Text(device + "/mem_info_vis_vram_used", "0\n");
    Text(device + "/mem_info_gtt_total", absl::StrCat(kSystemBytesPerSocket, "\n"));
    Text(device + "/mem_info_gtt_used", "0\n");
    Text(device + "/unique_id", absl::StrCat(absl::Hex(id.unique_id, absl::kZeroPad16), "\n"));
    Text(device + "/vbios_version", "113-SIM00000-000\n");
    Text(device + "/numa_node", absl::StrCat(id.numa_node, "\n"));
    Text(device + "/vendor", "0x1002\n");
    Text(device + "/device", absl::StrCat("0x", absl::Hex(chip.device_id, absl::kZeroPad4), "\n"));
    Text(device + "/subsystem_vendor", "0x1002\n");
    Text(device + "/subsystem_device", absl::StrCat("0x", absl::Hex(chip.device_id, absl::kZeroPad4), "\n"));
    Text(device + "/revision", "0x00\n");
    Text(device + "/class", "0x120000\n");
    Text(device + "/uevent", absl::StrCat("DRIVER=amdgpu\nPCI_SLOT_NAME=", bdf, "\n"));
    Text(absl::StrCat(device, "/drm/", card, "/dev"), absl::StrCat(kDrmMajor, ":", gpu, "\n"));
    Text(absl::StrCat(device, "/drm/", render, "/dev"),
         absl::StrCat(kDrmMajor, ":", id.render_minor, "\n"));
    Link(device + "/subsystem", "/sys/bus/pci");
    IpDiscovery(device);
  }

  void IpDiscovery(const std::string& device) {
    const uint32_t version = config_.profile->facts.gfx_target_version;
    const uint32_t gc_minor = version == 90500 ? 5 : 4;
    // hardware id 11 is GC, 42 SDMA0, 108 NBIF (amdgpu soc15_hw_ip.h)
    struct Block {
      uint32_t hwid, major, minor, revision;
    };
    const Block blocks[] = {{11, 9, gc_minor,
                             version == 90500   ? 0u
                             : version == 90402 ? 3u
                                                : 2u},
                            {42, 4, 4, version == 90500 ? 5u : 2u},
                            {108, 7, 9, 0}};
    for (const Block& block : blocks) {
      const std::string path = absl::StrCat(device, "/ip_discovery/die/0/", block.hwid, "/0");
      Text(path + "/major", absl::StrCat(block.major, "\n"));
      Text(path + "/minor", absl::StrCat(block.minor, "\n"));
      Text(path + "/revision", absl::StrCat(block.revision, "\n"));
    }
  }

  const NodeConfig& config_;
  const std::vector<GpuIdentity> gpus_;
  std::map<std::string, VirtualFs::Entry>& entries_;
};

// "/a//b/./c/../d/" -> "/a/b/d"
std::string Normalise(absl::string_view path) {
  std::vector<absl::string_view> parts;
  size_t at = 0;
  while (at < path.size()) {
    const size_t slash = std::min(path.find('/', at), path.size());
    const absl::string_view part = path.substr(at, slash - at);
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
    at = slash + 1;
  }
  std::string out;
  for (absl::string_view part : parts) absl::StrAppend(&out, "/", part);
  return out.empty() ? "/" : out;
}

}  // namespace

std::vector<GpuIdentity> MakeIdentities(const NodeConfig& config) {
  std::vector<GpuIdentity> result(config.gpus);
  for (uint32_t i = 0; i < config.gpus; ++i) {
    GpuIdentity& id = result[i];
    id.gpu_id = std::max(HashedGpuId(config.profile->device_id, i), 1u);
    for (uint32_t j = 0; j < i; ++j) {
      if (id.gpu_id == 0 || id.gpu_id == result[j].gpu_id) {
        id.gpu_id = (id.gpu_id + 1) & 0xffff;
        j = UINT32_MAX;  // look at all of them again
      }
    }
    id.topology_node = Sockets(config) + i;
    id.location_id = (0x05 + 0x10 * i) << 8;
    id.render_minor = kFirstRenderMinor + i;
    id.unique_id = 0x7c3a51d2e0f40000 + 0x1111 * uint64_t{i + 1};
    id.numa_node = i / kGpusPerSocket % Sockets(config);
  }
  return result;
}

uint32_t RecommendedSdmaMask(const NodeConfig& config, uint32_t from, uint32_t to) {
  const GpuProfile& chip = *config.profile;
  if (config.gpus == 8 && chip.num_sdma_xgmi >= 14) return 1u << kEngineMap[from][to];
  return ((1u << chip.num_sdma_xgmi) - 1) << chip.num_sdma;
}

VirtualFs::VirtualFs(const NodeConfig& config) {
  Builder(config, &entries_).Build();
  links_["/sys/class/kfd/kfd"] = "/sys/devices/virtual/kfd/kfd";
  for (const GpuIdentity& id : MakeIdentities(config)) {
    const std::string bdf = BusAddress(id);
    const std::string device = "/sys/bus/pci/devices/" + bdf;
    const uint32_t card = id.render_minor - kFirstRenderMinor;
    for (const std::string& name :
         {absl::StrCat("renderD", id.render_minor), absl::StrCat("card", card)}) {
      links_["/sys/class/drm/" + name] = absl::StrCat(device, "/drm/", name);
      links_[absl::StrCat(device, "/drm/", name, "/device")] = device;
    }
    links_[absl::StrCat("/sys/dev/char/226:", id.render_minor, "/device")] = device;
    links_[absl::StrCat("/sys/dev/char/226:", card, "/device")] = device;
  }
}

std::string VirtualFs::Resolve(absl::string_view path) const {
  std::string clean = Normalise(path);
  for (int hop = 0; hop < 4; ++hop) {
    const auto link = std::find_if(links_.begin(), links_.end(),
                                   [&](const auto& one) { return IsUnder(clean, one.first); });
    if (link == links_.end()) break;
    clean = link->second + clean.substr(link->first.size());
  }
  return clean;
}

const VirtualFs::Entry* VirtualFs::Find(absl::string_view path) const {
  const auto found = entries_.find(Resolve(path));
  if (found == entries_.end() || found->second.kind == Entry::Kind::kDirectory) return nullptr;
  return &found->second;
}

bool VirtualFs::List(absl::string_view path, std::vector<std::string>* names) const {
  names->clear();
  const std::string directory = Resolve(path);
  const std::string prefix = directory == "/" ? directory : directory + "/";
  const auto collect = [&](const auto& map) {
    auto at = map.lower_bound(prefix);
    while (at != map.end() && absl::StartsWith(at->first, prefix)) {
      const size_t slash = at->first.find('/', prefix.size());
      std::string name = at->first.substr(prefix.size(), slash - prefix.size());
      // Skip the rest of that sub-directory: '0' is the character after '/'.
      at = map.lower_bound(prefix + name +
                           (slash == std::string::npos ? std::string(1, '\0') : "0"));
      if (std::find(names->begin(), names->end(), name) == names->end()) {
        names->push_back(std::move(name));
      }
    }
  };
  collect(entries_);
  collect(links_);
  const auto self = entries_.find(directory);
  return !names->empty() ||
         (self != entries_.end() && self->second.kind == Entry::Kind::kDirectory);
}

}  // namespace mainarch::sim
