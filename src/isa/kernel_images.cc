// SPDX-License-Identifier: MIT
#include "isa/kernel_images.h"

#include <algorithm>

#include "kernels/gfx942/facts.h"
#include "kernels/gfx950/facts.h"

namespace mainarch::isa {
namespace {

const kernels::Facts* FactsOf(absl::string_view isa) {
  for (const kernels::Facts* facts : {&kernels::gfx942::kFacts, &kernels::gfx950::kFacts}) {
    if (isa == facts->isa) return facts;
  }
  return nullptr;
}

uint32_t RoundUp(uint32_t value, uint32_t granule) {
  return (value + granule - 1) / granule * granule;
}

}  // namespace

StatusOr<KernelRef> FindKernel(absl::string_view isa, absl::string_view kernel) {
  for (const KernelImage& image : KernelImages()) {
    if (image.isa != isa) continue;
    for (const KernelInfo& info : image.kernels) {
      if (info.name == kernel) return KernelRef{&image, &info};
    }
  }
  return Error(Code::kNotFound, "no kernel '", kernel, "' for ", isa, " in this library");
}

StatusOr<Occupancy> OccupancyOf(absl::string_view isa, const KernelInfo& kernel,
                                uint32_t dynamic_lds_bytes) {
  const kernels::Facts* facts = FactsOf(isa);
  if (facts == nullptr) return Error(Code::kUnsupported, "no facts about isa '", isa, "'");
  const uint32_t lds = kernel.lds_bytes + dynamic_lds_bytes;
  if (lds > facts->lds_bytes || lds < dynamic_lds_bytes) {
    return Error(Code::kInvalidArgument, "kernel ", kernel.name, " wants ", kernel.lds_bytes, " + ",
                 dynamic_lds_bytes, " bytes of lds, ", isa, " has ", facts->lds_bytes);
  }
  Occupancy out = {facts->max_waves_per_simd, 0, "waves"};
  const auto bound = [&out](uint32_t waves, absl::string_view what) {
    if (waves < out.waves_per_simd) out = {waves, 0, what};
  };
  bound(facts->vgprs_per_simd / RoundUp(std::max(kernel.vgprs, 1u), facts->vgpr_granule), "vgpr");
  bound(facts->sgprs_per_simd / RoundUp(std::max(kernel.sgprs, 1u), facts->sgpr_granule), "sgpr");

  const uint32_t waves = (kernel.threads + 63) / 64;  // of a group, spread over the SIMDs
  out.groups_per_cu = out.waves_per_simd * facts->simds_per_cu / waves;
  const auto bound_groups = [&out](uint32_t groups, absl::string_view what) {
    if (groups < out.groups_per_cu) {
      out.groups_per_cu = groups;
      out.limit = what;
    }
  };
  if (lds > 0) bound_groups(facts->lds_bytes / RoundUp(lds, facts->lds_granule), "lds");
  if (waves > 1) bound_groups(facts->max_groups_per_cu, "groups");
  const uint32_t all_waves = out.groups_per_cu * waves;
  out.waves_per_simd =
      std::min(out.waves_per_simd, (all_waves + facts->simds_per_cu - 1) / facts->simds_per_cu);
  return out;
}

StatusOr<std::vector<KernelRow>> ListKernels(absl::string_view isa) {
  std::vector<KernelRow> rows;
  for (const KernelImage& image : KernelImages()) {
    if (!isa.empty() && image.isa != isa) continue;
    for (const KernelInfo& kernel : image.kernels) {
      ASSIGN_OR_RETURN(const Occupancy occupancy, OccupancyOf(image.isa, kernel));
      rows.push_back({image.isa, image.name, kernel, occupancy});
    }
  }
  if (rows.empty()) return Error(Code::kNotFound, "no kernels for isa '", isa, "'");
  return rows;
}

}  // namespace mainarch::isa
