// SPDX-License-Identifier: MIT
#include "cli/topology.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/json_writer.h"
#include "gpu/queue_sizes.h"
#include "isa/chip.h"
#include "kfd/drm.h"
#include "kfd/topology.h"
#include "kfd/uapi/kfd_sysfs.h"

namespace mainarch::cli {
namespace {

namespace uapi = kfd::uapi;

constexpr uint64_t kMiB = 1 << 20;

// One GPU with everything that is derived from its node.
struct Gpu {
  uint32_t index = 0;
  const kfd::Node* node = nullptr;
  kfd::CardFacts card;
  uint64_t active_cus = 0;
  uint64_t physical_cus = 0;
  uint64_t dma_engines = 0;
};

// (level, type bits, KiB, line) -> how many
using CacheCounts = std::map<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>, uint64_t>;

std::vector<Gpu> Collect(kfd::Sys& sys, const kfd::Topology& topology) {
  std::vector<Gpu> gpus;
  for (const kfd::Node* node : topology.Gpus()) {
    const kfd::NodeProperties& p = node->properties;
    Gpu gpu;
    gpu.index = static_cast<uint32_t>(gpus.size());
    gpu.node = node;
    gpu.card = kfd::ReadCardFacts(sys, static_cast<uint32_t>(p.drm_render_minor));
    gpu.active_cus = gpu::ComputeUnits(p);
    // array_count counts every XCC; a shader array has cu_per_simd_array slots. Drivers that count
    // the arrays of one XCC are told by slots that would be fewer than the units enabled.
    gpu.physical_cus = p.array_count * p.cu_per_simd_array;
    if (gpu.physical_cus < gpu.active_cus) gpu.physical_cus *= std::max<uint64_t>(p.num_xcc, 1);
    gpu.dma_engines = p.num_sdma_engines + p.num_sdma_xgmi_engines;
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

std::string PciAddress(const kfd::NodeProperties& p) {
  const uint64_t location = p.location_id;
  return absl::StrFormat("%04x:%02x:%02x.%x", p.domain, location >> 8 & 0xff, location >> 3 & 0x1f,
                         location & 7);
}

const char* LinkType(const kfd::Link& link) {
  if (link.type == uapi::kLinkXgmi) return "xgmi";
  if (link.type == uapi::kLinkPcie) return "pcie";
  return "other";
}

const char* HeapName(uint64_t heap) {
  switch (heap) {
    case uapi::kHeapSystem:
      return "system";
    case uapi::kHeapFramebufferPublic:
      return "vram, host visible";
    case uapi::kHeapFramebufferPrivate:
      return "vram, not host visible";
    default:
      return "other";
  }
}

std::string CacheKind(uint64_t level, uint64_t type) {
  const bool instruction = (type & uapi::kCacheInstruction) != 0;
  const bool data = (type & uapi::kCacheData) != 0;
  if (level == 1 && instruction && !data) return "L1 instruction";
  return absl::StrCat("L", level,
                      instruction && data ? ""
                      : instruction       ? " instruction"
                                          : " data");
}

CacheCounts CountCaches(const kfd::Node& node) {
  CacheCounts counts;
  for (const kfd::Cache& cache : node.caches) {
    ++counts[{cache.level, cache.type, cache.size, cache.cache_line_size}];
  }
  return counts;
}

std::vector<uint32_t> BitsOf(uint64_t mask) {
  std::vector<uint32_t> bits;
  for (uint32_t i = 0; i < 64; ++i) {
    if (mask >> i & 1) bits.push_back(i);
  }
  return bits;
}

// Nodes whose link recommends this engine.
std::vector<uint32_t> NodesServedBy(const kfd::Node& node, uint32_t engine) {
  std::vector<uint32_t> served;
  for (const kfd::Link& link : node.links) {
    if (link.recommended_sdma_engine_id_mask >> engine & 1) {
      served.push_back(static_cast<uint32_t>(link.node_to));
    }
  }
  return served;
}

// "gpu 3" for a GPU's node, "cpu 0" otherwise.
std::string NodeLabel(const std::vector<Gpu>& gpus, uint32_t node) {
  for (const Gpu& gpu : gpus) {
    if (gpu.node->index == node) return absl::StrCat("gpu ", gpu.index);
  }
  return absl::StrCat("cpu ", node);
}

void TextOfChip(const Gpu& gpu, std::string* out) {
  const kfd::NodeProperties& p = gpu.node->properties;
  const isa::ChipFacts* chip = isa::ChipByVersion(p.gfx_target_version);
  absl::StrAppendFormat(out, "gpu %u: %s  %s  node %u  gpu_id 0x%x  renderD%d\n", gpu.index,
                        kfd::GfxName(p.gfx_target_version), PciAddress(p), gpu.node->index,
                        gpu.node->gpu_id, p.drm_render_minor);
  absl::StrAppendFormat(out, "  device 0x%04x:0x%04x  serial %016x  this library drives it: %s\n",
                        p.vendor_id, p.device_id, p.unique_id,
                        chip != nullptr && chip->is_target ? "yes" : "no");
  if (!gpu.card.compute_partition.empty() || !gpu.card.memory_partition.empty()) {
    absl::StrAppendFormat(out, "  partitions: compute %s, memory %s\n", gpu.card.compute_partition,
                          gpu.card.memory_partition);
  }
  absl::StrAppendFormat(
      out, "  %d XCDs, %d CUs enabled of %d (%d harvested), %d SIMDs a CU, %d waves a SIMD of %d\n",
      p.num_xcc, gpu.active_cus, gpu.physical_cus,
      gpu.physical_cus > gpu.active_cus ? gpu.physical_cus - gpu.active_cus : 0, p.simd_per_cu,
      p.max_waves_per_simd, p.wave_front_size);
  absl::StrAppendFormat(out, "  LDS %d KiB a CU, clock %d MHz, firmware: compute %d, dma %d\n",
                        p.lds_size_in_kb, p.max_engine_clk_fcompute, p.fw_version & 0x3ff,
                        p.sdma_fw_version);
}

void TextOfMemory(const Gpu& gpu, std::string* out) {
  for (const auto& [key, count] : CountCaches(*gpu.node)) {
    const auto& [level, type, kib, line] = key;
    absl::StrAppendFormat(out, "  cache %s: %d x %d KiB, lines of %d\n", CacheKind(level, type),
                          count, kib, line);
  }
  for (const kfd::MemoryBank& bank : gpu.node->memory_banks) {
    absl::StrAppendFormat(out, "  memory: %d MiB (%s), %d bits, %d MHz\n",
                          bank.size_in_bytes / kMiB, HeapName(bank.heap_type), bank.width,
                          bank.mem_clk_max);
  }
  const gpu::SaveAreaSizes save = gpu::ChooseSaveArea(gpu.node->properties);
  absl::StrAppendFormat(out, "  queues: %d compute, save area %d bytes each (%s)\n",
                        gpu.node->properties.num_cp_queues, save.total,
                        save.from_sysfs ? "the driver says" : "by formula");
}

// One class of engines in one line: "pcie 0-1: 0 cpu 0, 1 cpu 0".
std::string EngineLine(const Gpu& gpu, const std::vector<Gpu>& gpus, absl::string_view name,
                       uint32_t first, uint32_t end) {
  std::vector<std::string> busy, idle;
  for (uint32_t engine = first; engine < end; ++engine) {
    std::vector<std::string> served;
    for (const uint32_t node : NodesServedBy(*gpu.node, engine)) {
      served.push_back(NodeLabel(gpus, node));
    }
    if (served.empty()) {
      idle.push_back(absl::StrCat(engine));
    } else {
      busy.push_back(absl::StrCat(engine, " to ", absl::StrJoin(served, "+")));
    }
  }
  std::string line = absl::StrCat("    ", name, " engines ", first, "-", end - 1, ": ",
                                  busy.empty() ? "none serves a link" : absl::StrJoin(busy, ", "));
  if (!idle.empty()) absl::StrAppend(&line, "; no link of their own: ", absl::StrJoin(idle, " "));
  return line + "\n";
}

void TextOfEngines(const Gpu& gpu, const std::vector<Gpu>& gpus, std::string* out) {
  const kfd::NodeProperties& p = gpu.node->properties;
  const uint32_t all = static_cast<uint32_t>(std::min<uint64_t>(gpu.dma_engines, 64));
  const uint32_t pcie = static_cast<uint32_t>(std::min<uint64_t>(p.num_sdma_engines, all));
  absl::StrAppendFormat(out, "  dma engines: %d for pcie, %d for xgmi, %d queues each\n",
                        p.num_sdma_engines, p.num_sdma_xgmi_engines, p.num_sdma_queues_per_engine);
  if (pcie > 0) absl::StrAppend(out, EngineLine(gpu, gpus, "pcie", 0, pcie));
  if (all > pcie) absl::StrAppend(out, EngineLine(gpu, gpus, "xgmi", pcie, all));
}

// Hops and bandwidth from each GPU (row) to each.
void TextOfMatrix(const std::vector<Gpu>& gpus, std::string* out) {
  if (gpus.size() < 2) return;
  absl::StrAppend(out, "links (type, weight, MB/s, dma engine), from row to column:\n      ");
  for (const Gpu& to : gpus) absl::StrAppendFormat(out, "%-22s", absl::StrCat("gpu ", to.index));
  absl::StrAppend(out, "\n");
  for (const Gpu& from : gpus) {
    absl::StrAppendFormat(out, "gpu %-2u", from.index);
    for (const Gpu& to : gpus) {
      const kfd::Link* link = from.node->LinkTo(to.node->index);
      std::string cell = &from == &to ? "." : "none";
      if (link != nullptr) {
        cell = absl::StrCat(LinkType(*link), " ", link->weight, " ", link->max_bandwidth, " e",
                            absl::StrJoin(BitsOf(link->recommended_sdma_engine_id_mask), "+"));
      }
      absl::StrAppendFormat(out, "%-22s", cell);
    }
    absl::StrAppend(out, "\n");
  }
}

void JsonOfGpu(const Gpu& gpu, JsonWriter* json) {
  const kfd::NodeProperties& p = gpu.node->properties;
  json->BeginObject();
  json->Field("index", uint64_t{gpu.index});
  json->Field("node", uint64_t{gpu.node->index});
  json->Field("gpu_id", uint64_t{gpu.node->gpu_id});
  json->Field("isa", kfd::GfxName(p.gfx_target_version));
  json->Field("pci", PciAddress(p));
  json->Field("vendor_id", p.vendor_id);
  json->Field("device_id", p.device_id);
  json->Field("unique_id", absl::StrFormat("%016x", p.unique_id));
  json->Field("hive_id", absl::StrFormat("%016x", p.hive_id));
  json->Field("render_minor", p.drm_render_minor);
  json->Field("compute_partition", gpu.card.compute_partition);
  json->Field("memory_partition", gpu.card.memory_partition);
  json->Field("xcds", p.num_xcc);
  json->Field("cus_enabled", gpu.active_cus);
  json->Field("cus_physical", gpu.physical_cus);
  json->Field("simds_per_cu", p.simd_per_cu);
  json->Field("waves_per_simd", p.max_waves_per_simd);
  json->Field("wave_size", p.wave_front_size);
  json->Field("lds_kib", p.lds_size_in_kb);
  json->Field("clock_mhz", p.max_engine_clk_fcompute);
  json->Field("compute_firmware", p.fw_version & 0x3ff);
  json->Field("dma_firmware", p.sdma_fw_version);
  json->Field("compute_queues", p.num_cp_queues);
  json->Field("save_area_bytes", gpu::ChooseSaveArea(p).total);
  json->Key("caches");
  json->BeginArray();
  for (const auto& [key, count] : CountCaches(*gpu.node)) {
    const auto& [level, type, kib, line] = key;
    json->BeginObject();
    json->Field("kind", CacheKind(level, type));
    json->Field("count", count);
    json->Field("kib", kib);
    json->Field("line_bytes", line);
    json->EndObject();
  }
  json->EndArray();
  json->Key("memory");
  json->BeginArray();
  for (const kfd::MemoryBank& bank : gpu.node->memory_banks) {
    json->BeginObject();
    json->Field("heap", HeapName(bank.heap_type));
    json->Field("bytes", bank.size_in_bytes);
    json->Field("width_bits", bank.width);
    json->Field("clock_mhz", bank.mem_clk_max);
    json->EndObject();
  }
  json->EndArray();
  json->Key("dma_engines");
  json->BeginArray();
  for (uint32_t engine = 0; engine < std::min<uint64_t>(gpu.dma_engines, 64); ++engine) {
    json->BeginObject();
    json->Field("engine", uint64_t{engine});
    json->Field("class", engine < p.num_sdma_engines ? "pcie" : "xgmi");
    json->Key("nodes");
    json->BeginArray();
    for (const uint32_t node : NodesServedBy(*gpu.node, engine)) json->Value(uint64_t{node});
    json->EndArray();
    json->EndObject();
  }
  json->EndArray();
  json->Key("links");
  json->BeginArray();
  for (const kfd::Link& link : gpu.node->links) {
    json->BeginObject();
    json->Field("to_node", link.node_to);
    json->Field("type", LinkType(link));
    json->Field("weight", link.weight);
    json->Field("min_mb_per_s", link.min_bandwidth);
    json->Field("max_mb_per_s", link.max_bandwidth);
    json->Field("dma_engine_mask", link.recommended_sdma_engine_id_mask);
    json->Field("atomics_64", (link.flags & uapi::kLinkNoAtomics64) == 0);
    json->EndObject();
  }
  json->EndArray();
  json->EndObject();
}

void WriteJson(const kfd::Topology& topology, const std::vector<Gpu>& gpus, std::string* out) {
  JsonWriter json;
  json.BeginObject();
  json.Field("generation", topology.generation);
  json.Field("hidden_nodes", uint64_t{topology.hidden_nodes.size()});
  json.Key("cpus");
  json.BeginArray();
  for (const kfd::Node& node : topology.nodes) {
    if (node.is_gpu()) continue;
    json.BeginObject();
    json.Field("node", uint64_t{node.index});
    json.Field("cores", node.properties.cpu_cores_count);
    json.EndObject();
  }
  json.EndArray();
  json.Key("gpus");
  json.BeginArray();
  for (const Gpu& gpu : gpus) JsonOfGpu(gpu, &json);
  json.EndArray();
  json.EndObject();
  absl::StrAppend(out, json.text(), "\n");
}

void WriteText(const kfd::Topology& topology, const std::vector<Gpu>& gpus, std::string* out) {
  for (const kfd::Node& node : topology.nodes) {
    if (node.is_gpu()) continue;
    absl::StrAppendFormat(out, "cpu %u: %d cores\n", node.index, node.properties.cpu_cores_count);
  }
  for (const Gpu& gpu : gpus) {
    TextOfChip(gpu, out);
    TextOfMemory(gpu, out);
    TextOfEngines(gpu, gpus, out);
  }
  TextOfMatrix(gpus, out);
  if (gpus.empty()) *out += "no gpus\n";
  if (!topology.hidden_nodes.empty()) {
    absl::StrAppendFormat(out, "%d nodes are hidden from this process by its device cgroup\n",
                          topology.hidden_nodes.size());
  }
}

}  // namespace

Status RunTopology(kfd::Sys& sys, const TopologyFormat& format, std::string* out) {
  ASSIGN_OR_RETURN(const kfd::Topology topology, kfd::ReadTopology(sys, {.with_caches = true}));
  const std::vector<Gpu> gpus = Collect(sys, topology);
  if (format.json) {
    WriteJson(topology, gpus, out);
  } else {
    WriteText(topology, gpus, out);
  }
  return {};
}

}  // namespace mainarch::cli
