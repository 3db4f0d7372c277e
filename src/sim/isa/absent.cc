// SPDX-License-Identifier: MIT
#include "sim/isa/absent.h"

#include "absl/strings/match.h"

namespace mainarch::sim::isa {

const char* WhyAbsent(const OpRow& row) {
  struct Group {
    const char* prefix;
    const char* reason;
  };
  static constexpr Group kGroups[] = {
      {"s_scratch_", "scalar scratch access left with gfx9.0"},
      {"s_dcache_discard", "scalar cache lines to discard left with gfx9.0's scalar stores"},
      {"s_atc_probe", "there is no address translation cache to probe"},
      {"s_cbranch_g_fork", "the branch stack of gfx9.0 is not there: MODE has no stack pointer"},
      {"s_cbranch_i_fork", "the branch stack of gfx9.0 is not there: MODE has no stack pointer"},
      {"s_cbranch_join", "the branch stack of gfx9.0 is not there: MODE has no stack pointer"},
      {"s_endpgm_ordered_ps_done", "there are no pixel shaders"},
      {"v_screen_partition_4se_b32", "there is no screen"},
      {"s_rfe_", "a return from an exception outside of a trap handler"},
  };
  for (const Group& group : kGroups) {
    if (absl::StartsWith(row.name, group.prefix)) return group.reason;
  }
  return nullptr;
}

}  // namespace mainarch::sim::isa
