// SPDX-License-Identifier: MIT
#include "sim/profile.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/decimal.h"
#include "base/fd.h"
#include "isa/chip.h"
#include "sim/isa/lanes.h"

namespace mainarch::sim {
namespace {

constexpr void Describe(const ::mainarch::isa::ChipFacts& chip, GpuProfile* p) {
  p->isa = chip.name;
  p->facts = {.gfx_target_version = chip.gfx_target_version,
              .num_xcc = chip.xccs,
              .cus_per_xcc = chip.cus_per_xcc,
              .simds_per_cu = chip.simds_per_cu,
              .waves_per_simd = chip.waves_per_simd,
              .lds_bytes = chip.lds_bytes,
              .lds_granule = chip.lds_granule,
              .scratch_slots_per_cu = 32,
              .system_memory_nc = chip.system_memory_is_cached};
  p->simd_count = chip.xccs * chip.cus_per_xcc * chip.simds_per_cu;
}

constexpr GpuProfile Mi300x() {
  GpuProfile p = {};
  Describe(::mainarch::isa::kGfx942, &p);
  p.marketing_name = "AMD Instinct MI300X";
  p.device_id = 0x74a1;
  p.array_count = 32;
  p.cu_per_array = 10;
  p.num_sdma = 2;
  p.num_sdma_xgmi = 14;
  p.sdma_queues_per_engine = 8;
  p.num_cp_queues = 24;
  p.num_gws = 64;
  p.clock_mhz = 2100;
  p.memory_mhz = 1300;
  p.memory_width = 8192;
  p.vram_bytes = 206141652992;
  p.mec_fw = 177;
  p.sdma_fw = 24;
  p.capability = 0xac77a280;
  p.debug_prop = 1511;
  p.l2_kb = 4096;
  p.l3_kb = 262144;
  p.cus_per_shared_l1 = 2;
  p.shared_l1_count = 160;
  return p;
}

constexpr GpuProfile Mi355x() {
  GpuProfile p = Mi300x();
  Describe(::mainarch::isa::kGfx950, &p);
  p.marketing_name = "AMD Instinct MI355X";
  p.device_id = 0x75a3;
  p.cu_per_array = 9;
  p.clock_mhz = 2400;
  p.memory_mhz = 1900;
  p.vram_bytes = 309220868096;
  p.mec_fw = 41;
  p.sdma_fw = 12;
  p.capability = 0xac37a280;
  p.debug_prop = 1494;
  p.shared_l1_count = 144;
  return p;
}

// One die of MI210, for clients that know nothing newer than gfx90a. Not a capture: public product
// numbers, for enumeration only.
constexpr GpuProfile Mi210() {
  GpuProfile p = Mi300x();
  Describe(::mainarch::isa::kGfx90a, &p);
  p.marketing_name = "AMD Instinct MI210";
  p.device_id = 0x740f;
  p.array_count = 8;
  p.cu_per_array = 14;
  p.num_sdma_xgmi = 3;
  p.clock_mhz = 1700;
  p.memory_mhz = 1600;
  p.memory_width = 4096;
  p.vram_bytes = 68702699520;
  p.mec_fw = 71;
  p.sdma_fw = 8;
  p.capability = 0x2437a280;
  p.l2_kb = 8192;
  p.l3_kb = 0;
  p.shared_l1_count = 56;
  return p;
}

constexpr std::array<GpuProfile, 3> kProfiles = {Mi210(), Mi300x(), Mi355x()};

// Another card with MI300X's chip: half the dies, twenty compute units on each. Not a capture: ROCm/aiter's
// tables have 80 compute units for device 0x74a2, and what its tuner measured there fits 1420 MHz.
constexpr GpuProfile Mi308x() {
  GpuProfile p = Mi300x();
  p.marketing_name = "AMD Instinct MI308X";
  p.facts.num_xcc = 4;
  p.facts.cus_per_xcc = 20;
  p.device_id = 0x74a2;
  p.simd_count = 320;
  p.array_count = 16;
  p.num_sdma_xgmi = 6;
  p.clock_mhz = 1420;
  p.shared_l1_count = 80;
  return p;
}
constexpr GpuProfile kMi308x = Mi308x();

constexpr size_t kMostObjectBytes = size_t{256} << 20;
constexpr uint64_t AlignUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

Status ApplySetting(absl::string_view text, NodeConfig* config) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (parts.first == "check") {
    const auto check = isa::ParseChecks(parts.second);
    if (!check.ok()) {
      return Error(Code::kInvalidArgument, "node setting '", text, "': ", check.status().message());
    }
    if (check->any() && config->profile->isa == "gfx90a") {
      return Error(Code::kInvalidArgument, "node setting '", text,
                   "': instructions of gfx90a are not interpreted, so there is nothing to check");
    }
    const bool known = config->check.known;
    config->check = *check;
    config->check.known = known;
    return OkStatus();
  }
  if (parts.first == "hazards" && (parts.second == "strict" || parts.second == "known")) {
    config->check.known = parts.second == "known";
    return OkStatus();
  }
  if (parts.first == "card") {
    if (parts.second != "mi308x" || config->profile->isa != kMi308x.isa) {
      return Error(Code::kInvalidArgument, "node setting '", text, "': known is mi308x, of gfx942");
    }
    config->profile = &kMi308x;
    return OkStatus();
  }
  if (parts.first == "lanes") {
    for (const auto& [name, code] :
         {std::pair("portable", isa::LaneCode::kPortable), std::pair("avx2", isa::LaneCode::kAvx2),
          std::pair("avx512", isa::LaneCode::kAvx512)}) {
      if (parts.second != name) continue;
      if (!isa::Runs(code)) {
        return Error(Code::kInvalidArgument, "node setting '", text,
                     "': this CPU or this build has no such routines");
      }
      config->lanes = code;
      return OkStatus();
    }
    return Error(Code::kInvalidArgument, "node setting '", text,
                 "': lanes is portable, avx2 or avx512");
  }
  if (parts.first == "time") {
    if (parts.second != "on" && parts.second != "off") {
      return Error(Code::kInvalidArgument, "node setting '", text, "': time is on or off");
    }
    config->time = parts.second == "on";
    if (config->time && config->profile->isa == "gfx90a") {
      return Error(Code::kInvalidArgument, "node setting '", text,
                   "': instructions of gfx90a are not interpreted, so there is nothing to time");
    }
    return OkStatus();
  }
  const auto number = ParseDecimal(parts.second);
  if (!number.has_value()) {
    return Error(Code::kInvalidArgument, "node setting '", text,
                 "' is not name=number, nor check and checkers, nor hazards=strict or known");
  }
  const uint64_t value = *number;
  if (parts.first == "seed") {
    config->seed = value;
  } else if (parts.first == "minor" && value <= 64) {
    config->kfd_minor = static_cast<uint32_t>(value);
  } else if (parts.first == "threads" && value <= 64) {
    config->threads = static_cast<uint32_t>(value);
  } else if (parts.first == "nudge" && value <= 60'000) {
    config->nudge_ms = static_cast<uint32_t>(value);
  } else if (parts.first == "poison" && value <= 1) {
    config->poison = value != 0;
  } else if (parts.first == "sockets" && value >= 1 && value <= 2) {
    config->sockets = static_cast<uint32_t>(value);
  } else if (parts.first == "smallbar" && value <= 1) {
    config->small_bar = value != 0;
  } else if (parts.first == "hide" && value < config->gpus) {
    config->hidden_gpu = static_cast<int32_t>(value);
  } else if (parts.first == "unknown" && value <= 1) {
    config->sysfs_unknown_lines = value != 0;
  } else if (parts.first == "cwsr" && value <= 1) {
    config->sysfs_save_area = value != 0;
  } else if (parts.first == "errata" && value <= 1) {
    config->run_errata = value != 0;
  } else if (parts.first == "exact" && value <= 1) {
    config->exact_matrix = value != 0;
  } else if (parts.first == "slice" && value >= 1 && value <= 1'000'000) {
    config->slice = static_cast<uint32_t>(value);
  } else {
    return Error(Code::kInvalidArgument, "node setting '", text,
                 "' is unknown or out of range; known: seed, minor (to 64), threads (to 64), nudge "
                 "(ms, to 60000), poison (0, 1), smallbar (0, 1), sockets (1, 2), hide (a GPU's "
                 "index), unknown (0, 1), "
                 "cwsr (0, 1), exact (0, 1), slice (instructions, 1 to 1000000), errata (0, 1), "
                 "time (on, off), card (mi308x), lanes (portable, avx2, avx512), "
                 "check (all, none, names of checkers), hazards (strict, known)");
  }
  return OkStatus();
}

}  // namespace

const GpuProfile* FindProfile(absl::string_view isa) {
  for (const GpuProfile& profile : kProfiles) {
    if (profile.isa == isa) return &profile;
  }
  return nullptr;
}

std::string ProfileNames() {
  return absl::StrJoin(kProfiles, " ", [](std::string* out, const GpuProfile& profile) {
    out->append(profile.isa.data(), profile.isa.size());
  });
}

SaveAreaSizes SaveAreaOf(const GpuProfile& profile) {
  // amdkfd/kfd_queue.c kfd_queue_ctx_save_restore_size: 40 waves a CU, capped by 512 a SE; a CU's
  // VGPRs, SGPRs, LDS and hardware registers.
  const uint32_t xcc = profile.facts.num_xcc;
  const uint32_t cus = profile.simd_count / profile.facts.simds_per_cu / xcc;
  const uint32_t waves = std::min(cus * 40, profile.array_count / xcc * 512);
  const uint32_t vgprs = profile.facts.gfx_target_version >= 90008 ? 0x80000 : 0x40000;
  const uint32_t per_cu = vgprs + 0x4000 + profile.facts.lds_bytes + 0x1000;
  SaveAreaSizes sizes = {};
  sizes.ctl_stack_bytes = static_cast<uint32_t>(AlignUp(40 + 8 * waves + 8, 4096));
  sizes.cwsr_bytes =
      static_cast<uint32_t>(AlignUp(uint64_t{cus} * per_cu, 4096)) + sizes.ctl_stack_bytes;
  sizes.debug_bytes = static_cast<uint32_t>(AlignUp(32 * waves, 64));
  sizes.total_bytes = AlignUp(uint64_t{sizes.cwsr_bytes + sizes.debug_bytes} * xcc, 4096);
  return sizes;
}

StatusOr<NodeConfig> ParseNode(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  absl::string_view isa = parts[0];
  NodeConfig config;
  const size_t times = isa.rfind('x');
  if (times != absl::string_view::npos && times > 3) {
    const absl::string_view behind = isa.substr(times + 1);
    const uint64_t count = ParseDecimal(behind).value_or(0);
    if (count < 1 || count > 16) {
      return Error(Code::kInvalidArgument, "node '", text, "', character ",
                   CharacterOf(text, behind), ": the number behind x is '", behind,
                   "', and must be 1 to 16 GPUs");
    }
    config.gpus = static_cast<uint32_t>(count);
    isa = isa.substr(0, times);
  }
  config.profile = FindProfile(isa);
  if (config.profile == nullptr) {
    return Error(Code::kInvalidArgument, "node '", text, "': no virtual chip '", isa,
                 "'; known: ", ProfileNames());
  }
  for (size_t i = 1; i < parts.size(); ++i) RETURN_IF_ERROR(ApplySetting(parts[i], &config));
  // Modelled time asks for one order of events, whatever the host does.
  if (config.time) config.Settle();
  return config;
}

Status AddLines(absl::string_view path, NodeConfig* config) {
  const StatusOr<std::string> read = ReadWholeFile(std::string(path), kMostObjectBytes);
  if (!read.ok()) {
    return Error(CodeOf(read.status()), "lines of '", path, "': ", read.status().message());
  }
  const std::string& elf = *read;
  auto table = std::make_shared<isa::LineTable>(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(elf.data()), elf.size()));
  if (table->empty()) {
    return Error(Code::kInvalidArgument, "lines of '", path,
                 "': the file has no .debug_line to read; compile it with -gline-tables-only");
  }
  config->lines.push_back(std::move(table));
  return OkStatus();
}

}  // namespace mainarch::sim
