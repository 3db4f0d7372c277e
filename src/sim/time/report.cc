// SPDX-License-Identifier: MIT
#include "sim/time/report.h"

#include <algorithm>
#include <iterator>

namespace mainarch::sim::timing {

absl::string_view NameOf(Limit limit) {
  static constexpr absl::string_view kNames[] = {"issue", "matrix", "latency", "lds",
                                                 "l1",    "l2",     "fabric",  "hbm",
                                                 "link",  "barrier", "sleep",  "launch"};
  static_assert(std::size(kNames) == kLimits);
  return kNames[static_cast<size_t>(limit)];
}

absl::string_view NameOf(Resident resident) {
  switch (resident) {
    case Resident::kSlots:
      return "wave slots";
    case Resident::kRegisters:
      return "registers";
    case Resident::kLds:
      return "lds";
    default:
      return "grid";
  }
}

Limit LaunchReport::limit() const {
  return static_cast<Limit>(std::max_element(limited_by.begin(), limited_by.end()) -
                            limited_by.begin());
}

}  // namespace mainarch::sim::timing
