// SPDX-License-Identifier: MIT
#include "kfd/topology.h"

#include <errno.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/os_errno.h"
#include "kfd/uapi/kfd_sysfs.h"

namespace mainarch::kfd {
namespace {

// Bounds of belief. A node file is about 1 KiB, a full eight-card machine in its finest
// partitioning has 64 GPU nodes with 63 links each, and a GPU lists about 630 caches.
constexpr size_t kMaxFile = 64 << 10;
constexpr size_t kMaxLines = 1024;
constexpr size_t kMaxName = 64;
constexpr size_t kMaxNodes = 1024;
constexpr size_t kMaxEntries = 4096;
constexpr int kMaxAttempts = 8;

template <class T>
struct Field {
  const char* name;
  uint64_t T::* member;
};

constexpr Field<NodeProperties> kNodeFields[] = {
    {"cpu_cores_count", &NodeProperties::cpu_cores_count},
    {"simd_count", &NodeProperties::simd_count},
    {"mem_banks_count", &NodeProperties::mem_banks_count},
    {"caches_count", &NodeProperties::caches_count},
    {"io_links_count", &NodeProperties::io_links_count},
    {"p2p_links_count", &NodeProperties::p2p_links_count},
    {"max_waves_per_simd", &NodeProperties::max_waves_per_simd},
    {"lds_size_in_kb", &NodeProperties::lds_size_in_kb},
    {"wave_front_size", &NodeProperties::wave_front_size},
    {"array_count", &NodeProperties::array_count},
    {"simd_arrays_per_engine", &NodeProperties::simd_arrays_per_engine},
    {"cu_per_simd_array", &NodeProperties::cu_per_simd_array},
    {"simd_per_cu", &NodeProperties::simd_per_cu},
    {"max_slots_scratch_cu", &NodeProperties::max_slots_scratch_cu},
    {"gfx_target_version", &NodeProperties::gfx_target_version},
    {"vendor_id", &NodeProperties::vendor_id},
    {"device_id", &NodeProperties::device_id},
    {"location_id", &NodeProperties::location_id},
    {"domain", &NodeProperties::domain},
    {"drm_render_minor", &NodeProperties::drm_render_minor},
    {"hive_id", &NodeProperties::hive_id},
    {"num_sdma_engines", &NodeProperties::num_sdma_engines},
    {"num_sdma_xgmi_engines", &NodeProperties::num_sdma_xgmi_engines},
    {"num_sdma_queues_per_engine", &NodeProperties::num_sdma_queues_per_engine},
    {"num_cp_queues", &NodeProperties::num_cp_queues},
    {"cwsr_size", &NodeProperties::cwsr_size},
    {"ctl_stack_size", &NodeProperties::ctl_stack_size},
    {"max_engine_clk_fcompute", &NodeProperties::max_engine_clk_fcompute},
    {"fw_version", &NodeProperties::fw_version},
    {"capability", &NodeProperties::capability},
    {"sdma_fw_version", &NodeProperties::sdma_fw_version},
    {"unique_id", &NodeProperties::unique_id},
    {"num_xcc", &NodeProperties::num_xcc},
};

constexpr Field<MemoryBank> kBankFields[] = {
    {"heap_type", &MemoryBank::heap_type},
    {"size_in_bytes", &MemoryBank::size_in_bytes},
    {"flags", &MemoryBank::flags},
    {"width", &MemoryBank::width},
    {"mem_clk_max", &MemoryBank::mem_clk_max},
};

constexpr Field<Cache> kCacheFields[] = {
    {"processor_id_low", &Cache::processor_id_low},
    {"level", &Cache::level},
    {"size", &Cache::size},
    {"cache_line_size", &Cache::cache_line_size},
    {"cache_lines_per_tag", &Cache::cache_lines_per_tag},
    {"association", &Cache::association},
    {"latency", &Cache::latency},
    {"type", &Cache::type},
};

constexpr Field<Link> kLinkFields[] = {
    {"type", &Link::type},
    {"node_from", &Link::node_from},
    {"node_to", &Link::node_to},
    {"weight", &Link::weight},
    {"min_bandwidth", &Link::min_bandwidth},
    {"max_bandwidth", &Link::max_bandwidth},
    {"recommended_sdma_engine_id_mask", &Link::recommended_sdma_engine_id_mask},
    {"flags", &Link::flags},
};

template <class T>
bool Assign(absl::Span<const Field<T>> fields, absl::string_view name, uint64_t value, T* out) {
  for (const Field<T>& field : fields) {
    if (name == field.name) {
      out->*field.member = value;
      return true;
    }
  }
  return false;
}

bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_';
         });
}

// The one property that is a list: "1,0,0,1".
constexpr absl::string_view kSiblingMap = "sibling_map";

bool IsBitList(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || c == ',';
  });
}

// SimpleAtoi accepts signs and blanks around; the driver prints neither.
bool ParseDecimal(absl::string_view digits, uint64_t* value) {
  return !digits.empty() && std::all_of(digits.begin(), digits.end(), [](unsigned char c) {
    return c >= '0' && c <= '9';
  }) && absl::SimpleAtoi(digits, value);
}

Status ReadFailed(int err, absl::string_view path) {
  if (err == EFBIG) {
    return Error(Code::kIo, "read ", path, ": more than ", kMaxFile, " bytes");
  }
  const Code code = err == ENOENT || err == ENODEV  ? Code::kNoDevice
                    : err == EPERM || err == EACCES ? Code::kPermission
                    : IsOutOfHostResources(err)     ? Code::kOutOfHostMemory
                                                    : Code::kIo;
  return ErrnoError(code, err, "read ", path);
}

StatusOr<std::string> ReadText(Sys& sys, const std::string& path) {
  std::string text;
  int result;
  do {
    result = sys.ReadFile(path, kMaxFile, &text);
  } while (result == -EINTR);
  if (result < 0) return ReadFailed(-result, path);
  return text;
}

StatusOr<uint64_t> ReadGeneration(Sys& sys) {
  const std::string path = absl::StrCat(uapi::kTopologyRoot, "/generation_id");
  ASSIGN_OR_RETURN(const std::string text, ReadText(sys, path));
  return ParseNumber(path, text);
}

// The numbered entries of a directory, ascending. A missing directory has none.
StatusOr<std::vector<uint32_t>> NumberedEntries(Sys& sys, const std::string& path, size_t limit) {
  std::vector<std::string> names;
  const int result = sys.ListDir(path, &names);
  if (result == -ENOENT) return std::vector<uint32_t>();
  if (result < 0) {
    const Code code = IsOutOfHostResources(-result) ? Code::kOutOfHostMemory : Code::kIo;
    return ErrnoError(code, -result, "list ", path);
  }
  std::vector<uint32_t> numbers;
  for (const std::string& name : names) {
    uint64_t number = 0;
    if (name.size() <= 6 && ParseDecimal(name, &number)) {
      numbers.push_back(static_cast<uint32_t>(number));
    }
  }
  if (numbers.size() > limit) {
    return Error(Code::kIo, "list ", path, ": ", numbers.size(), " entries, at most ", limit,
                 " believed");
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Every <directory>/<n>/properties as a T.
template <class T, size_t N>
Status ReadEntries(Sys& sys, const std::string& directory, const Field<T> (&fields)[N],
                   std::vector<T>* out) {
  ASSIGN_OR_RETURN(const std::vector<uint32_t> entries,
                   NumberedEntries(sys, directory, kMaxEntries));
  for (const uint32_t entry : entries) {
    const std::string path = absl::StrCat(directory, "/", entry, "/properties");
    auto text = ReadText(sys, path);
    // A link to a node that the device cgroup hides is listed and unreadable.
    if (ErrnoOf(text.status()) == EPERM) continue;
    if (!text.ok()) return text.status();
    ASSIGN_OR_RETURN(const PropertyList list, ParseProperties(path, *text));
    T item;
    for (const auto& [name, value] : list) Assign<T>(fields, name, value, &item);
    out->push_back(item);
  }
  return {};
}

StatusOr<Node> ReadNode(Sys& sys, uint32_t index, const TopologyOptions& options) {
  const std::string directory = absl::StrCat(uapi::kTopologyRoot, "/nodes/", index);
  Node node;
  node.index = index;
  ASSIGN_OR_RETURN(const std::string id_text, ReadText(sys, directory + "/gpu_id"));
  ASSIGN_OR_RETURN(const uint64_t id, ParseNumber(directory + "/gpu_id", id_text));
  if (id > UINT32_MAX) {
    return Error(Code::kIo, directory, "/gpu_id: ", id, " does not fit 32 bits");
  }
  node.gpu_id = static_cast<uint32_t>(id);
  auto name = ReadText(sys, directory + "/name");
  if (name.ok()) node.name = std::string(absl::StripTrailingAsciiWhitespace(*name));
  ASSIGN_OR_RETURN(const std::string text, ReadText(sys, directory + "/properties"));
  RETURN_IF_ERROR(ParseNodeProperties(directory + "/properties", text, &node));
  RETURN_IF_ERROR(ReadEntries(sys, directory + "/mem_banks", kBankFields, &node.memory_banks));
  if (options.with_caches) {
    RETURN_IF_ERROR(ReadEntries(sys, directory + "/caches", kCacheFields, &node.caches));
  }
  RETURN_IF_ERROR(ReadEntries(sys, directory + "/io_links", kLinkFields, &node.links));
  RETURN_IF_ERROR(ReadEntries(sys, directory + "/p2p_links", kLinkFields, &node.links));
  return node;
}

StatusOr<Topology> ReadOnce(Sys& sys, const TopologyOptions& options) {
  const std::string root = uapi::kTopologyRoot;
  Topology topology;
  auto system = ReadText(sys, root + "/system_properties");
  if (system.ok()) {
    ASSIGN_OR_RETURN(topology.system_properties,
                     ParseProperties(root + "/system_properties", *system));
  }
  ASSIGN_OR_RETURN(const std::vector<uint32_t> indices,
                   NumberedEntries(sys, root + "/nodes", kMaxNodes));
  for (const uint32_t index : indices) {
    auto node = ReadNode(sys, index, options);
    if (ErrnoOf(node.status()) == EPERM) {
      topology.hidden_nodes.push_back(index);
      continue;
    }
    if (!node.ok()) return node.status();
    topology.nodes.push_back(*std::move(node));
  }
  return topology;
}

}  // namespace

StatusOr<PropertyList> ParseProperties(absl::string_view path, absl::string_view text) {
  if (text.size() > kMaxFile) {
    return Error(Code::kIo, path, ": ", text.size(), " bytes, at most ", kMaxFile);
  }
  PropertyList list;
  size_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const size_t end = text.find('\n');
    const absl::string_view line = text.substr(0, end);
    text = end == absl::string_view::npos ? absl::string_view() : text.substr(end + 1);
    if (line_number > kMaxLines) {
      return Error(Code::kIo, path, ": more than ", kMaxLines, " lines");
    }
    const size_t space = line.find(' ');
    uint64_t value = 0;
    if (space != absl::string_view::npos && line.substr(0, space) == kSiblingMap) {
      if (!IsBitList(line.substr(space + 1))) {
        return Error(Code::kIo, path, ":", line_number, ": ", kSiblingMap,
                     " is not a list of digits with commas");
      }
      continue;  // which processors share a cache; nobody here asks
    }
    if (space == absl::string_view::npos || !IsName(line.substr(0, space)) ||
        !ParseDecimal(line.substr(space + 1), &value)) {
      return Error(Code::kIo, path, ":", line_number,
                   ": not \"name value\" with a decimal value below 2^64");
    }
    list.emplace_back(std::string(line.substr(0, space)), value);
  }
  return list;
}

StatusOr<uint64_t> ParseNumber(absl::string_view path, absl::string_view text) {
  uint64_t value = 0;
  absl::ConsumeSuffix(&text, "\n");
  if (!ParseDecimal(text, &value)) {
    return Error(Code::kIo, path, ": not one decimal number below 2^64");
  }
  return value;
}

Status ParseNodeProperties(absl::string_view path, absl::string_view text, Node* node) {
  ASSIGN_OR_RETURN(const PropertyList list, ParseProperties(path, text));
  for (const auto& [name, value] : list) {
    if (!Assign<NodeProperties>(kNodeFields, name, value, &node->properties)) {
      node->unknown_properties.emplace_back(name, value);
    }
  }
  return {};
}

StatusOr<Topology> ReadTopology(Sys& sys, const TopologyOptions& options) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    ASSIGN_OR_RETURN(const uint64_t before, ReadGeneration(sys));
    auto topology = ReadOnce(sys, options);
    ASSIGN_OR_RETURN(const uint64_t after, ReadGeneration(sys));
    // A failure counts only if nothing moved: a node may have vanished in mid-read.
    if (before != after) continue;
    if (topology.ok()) topology->generation = after;
    return topology;
  }
  return Error(Code::kBusy, uapi::kTopologyRoot, "/generation_id changed during each of ",
               kMaxAttempts, " readings: devices are coming and going; try again");
}

uint64_t Node::vram_size() const {
  uint64_t size = 0;
  for (const MemoryBank& bank : memory_banks) {
    if (bank.heap_type == uapi::kHeapFramebufferPublic ||
        bank.heap_type == uapi::kHeapFramebufferPrivate) {
      size += bank.size_in_bytes;
    }
  }
  return size;
}

bool Node::vram_is_host_visible() const {
  return std::any_of(memory_banks.begin(), memory_banks.end(), [](const MemoryBank& bank) {
    return bank.heap_type == uapi::kHeapFramebufferPublic;
  });
}

const Link* Node::LinkTo(uint32_t node) const {
  for (const Link& link : links) {
    if (link.node_to == node) return &link;
  }
  return nullptr;
}

std::vector<const Node*> Topology::Gpus() const {
  std::vector<const Node*> gpus;
  for (const Node& node : nodes) {
    if (node.is_gpu()) gpus.push_back(&node);
  }
  return gpus;
}

std::string GfxName(uint64_t version) {
  return absl::StrCat("gfx", version / 10000, version / 100 % 100,
                      absl::Hex(static_cast<uint32_t>(version % 100)));
}

}  // namespace mainarch::kfd
