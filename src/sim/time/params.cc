// SPDX-License-Identifier: MIT
#include "sim/time/params.h"

#include <cmath>

namespace mainarch::sim::timing {
namespace {

constexpr ParamInfo kAll[] = {
#define MAINARCH_TIME_INFO(name, unit, what) {#name, unit, what, &Params::name},
    MAINARCH_TIME_PARAMS(MAINARCH_TIME_INFO)
#undef MAINARCH_TIME_INFO
};

}  // namespace

absl::Span<const ParamInfo> AllParams() { return kAll; }

absl::Span<const Given> GivenOf(isa::Isa isa) {
  return isa == isa::Isa::kGfx942 ? Gfx942() : Gfx950();
}

Params Params::Of(isa::Isa isa) {
  Params params;
  for (const Given& given : GivenOf(isa)) params.*given.field = given.value;
  return params;
}

Status Params::Set(absl::string_view name, double value) {
  for (const ParamInfo& info : kAll) {
    if (name != info.name) continue;
    if (!std::isfinite(value) || value < 0) {
      return Error(Code::kInvalidArgument, "timing parameter ", name, ": ", value,
                   " is not a number from 0 on");
    }
    this->*info.field = value;
    return OkStatus();
  }
  return Error(Code::kInvalidArgument, "timing parameter '", name, "' is unknown");
}

}  // namespace mainarch::sim::timing
