// SPDX-License-Identifier: MIT
//
// What the driver publishes about the machine in sysfs: nodes (CPU sockets and GPUs), their memory
// banks, caches and links. Reading it opens nothing but sysfs, so it works for a user who may not
// open a GPU. The texts are parsed strictly (a malformed line is an error that names file and line)
// and within bounds; names that this version does not know are kept aside, because newer kernels
// add some.
#ifndef MAINARCH_KFD_TOPOLOGY_H_
#define MAINARCH_KFD_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "kfd/sys.h"

namespace mainarch::kfd {

struct MemoryBank {
  uint64_t heap_type = 0;  // uapi::kHeap*
  uint64_t size_in_bytes = 0;
  uint64_t flags = 0;
  uint64_t width = 0;        // bits
  uint64_t mem_clk_max = 0;  // MHz
};

struct Cache {
  uint64_t processor_id_low = 0;
  uint64_t level = 0;
  uint64_t size = 0;  // KiB
  uint64_t cache_line_size = 0;
  uint64_t cache_lines_per_tag = 0;
  uint64_t association = 0;
  uint64_t latency = 0;
  uint64_t type = 0;  // uapi::kCache* bits
};

struct Link {
  uint64_t type = 0;  // uapi::kLinkPcie or kLinkXgmi
  uint64_t node_from = 0;
  uint64_t node_to = 0;
  uint64_t weight = 0;
  uint64_t min_bandwidth = 0;  // MB/s
  uint64_t max_bandwidth = 0;  // MB/s
  // SDMA engines that the driver recommends for this link; engine 0 is the first PCIe-optimised
  // one.
  uint64_t recommended_sdma_engine_id_mask = 0;
  uint64_t flags = 0;  // uapi::kLink* bits
};

struct NodeProperties {
  uint64_t cpu_cores_count = 0;
  uint64_t simd_count = 0;
  uint64_t mem_banks_count = 0;
  uint64_t caches_count = 0;
  uint64_t io_links_count = 0;
  uint64_t p2p_links_count = 0;
  uint64_t max_waves_per_simd = 0;
  uint64_t lds_size_in_kb = 0;
  uint64_t wave_front_size = 0;
  uint64_t array_count = 0;  // over all XCCs, unlike the next two
  uint64_t simd_arrays_per_engine = 0;
  uint64_t cu_per_simd_array = 0;  // physical slots, harvested CUs included
  uint64_t simd_per_cu = 0;
  uint64_t max_slots_scratch_cu = 0;
  uint64_t gfx_target_version = 0;  // decimal: major * 10000 + minor * 100 + stepping
  uint64_t vendor_id = 0;
  uint64_t device_id = 0;
  uint64_t location_id = 0;
  uint64_t domain = 0;
  uint64_t drm_render_minor = 0;
  uint64_t hive_id = 0;
  uint64_t num_sdma_engines = 0;
  uint64_t num_sdma_xgmi_engines = 0;
  uint64_t num_sdma_queues_per_engine = 0;
  uint64_t num_cp_queues = 0;
  uint64_t cwsr_size = 0;       // bytes an XCC; 0 on kernels that do not say
  uint64_t ctl_stack_size = 0;  // bytes an XCC; 0 on kernels that do not say
  uint64_t max_engine_clk_fcompute = 0;
  uint64_t fw_version = 0;
  uint64_t capability = 0;  // uapi::kCap* bits
  uint64_t sdma_fw_version = 0;
  uint64_t unique_id = 0;
  uint64_t num_xcc = 1;  // absent on kernels older than about 6.5
};

struct Node {
  uint32_t index = 0;   // of nodes/<index>
  uint32_t gpu_id = 0;  // 0: a CPU node
  std::string name;
  NodeProperties properties;
  std::vector<std::pair<std::string, uint64_t>> unknown_properties;
  std::vector<MemoryBank> memory_banks;
  std::vector<Cache> caches;
  std::vector<Link> links;  // io_links, then p2p_links

  bool is_gpu() const { return gpu_id != 0; }
  // Bytes of VRAM, and whether the CPU can map all of it.
  uint64_t vram_size() const;
  bool vram_is_host_visible() const;
  const Link* LinkTo(uint32_t node) const;  // null: none
};

struct Topology {
  uint64_t generation = 0;
  std::vector<std::pair<std::string, uint64_t>> system_properties;
  std::vector<Node> nodes;             // ascending by index
  std::vector<uint32_t> hidden_nodes;  // there, but the device cgroup denies them

  std::vector<const Node*> Gpus() const;
};

struct TopologyOptions {
  bool with_caches = false;  // some six hundred files a GPU; only inventory wants them
};

// One consistent snapshot: generation_id is read before and after, and the reading repeated if it
// changed meanwhile.
StatusOr<Topology> ReadTopology(Sys& sys, const TopologyOptions& options = {});

// "name value" lines: exactly one space, decimal. `path` names the file in errors. Public for the
// fuzzer and for tests.
using PropertyList = std::vector<std::pair<std::string, uint64_t>>;
StatusOr<PropertyList> ParseProperties(absl::string_view path, absl::string_view text);
StatusOr<uint64_t> ParseNumber(absl::string_view path, absl::string_view text);
Status ParseNodeProperties(absl::string_view path, absl::string_view text, Node* node);

// gfx_target_version 90402 -> "gfx942"; the stepping is hexadecimal in names (90010 -> "gfx90a").
std::string GfxName(uint64_t gfx_target_version);

}  // namespace mainarch::kfd

#endif  // MAINARCH_KFD_TOPOLOGY_H_
