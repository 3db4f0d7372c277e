// SPDX-License-Identifier: MIT
#include "sim/isa/check/options.h"

#include <utility>

#include "absl/strings/str_split.h"

namespace mainarch::sim::isa {

CheckOptions CheckOptions::All() {
  CheckOptions all;
  all.waits = all.nops = all.undefined = all.races = true;
  return all;
}

StatusOr<CheckOptions> ParseChecks(absl::string_view text) {
  if (text == "all") return CheckOptions::All();
  if (text == "none") return CheckOptions();
  constexpr std::pair<absl::string_view, bool CheckOptions::*> kNames[] = {
      {"waits", &CheckOptions::waits},         {"nops", &CheckOptions::nops},
      {"undefined", &CheckOptions::undefined}, {"races", &CheckOptions::races},
      {"caches", &CheckOptions::caches},
  };
  CheckOptions out;
  // A view of null would split into nothing at all.
  const absl::string_view names = text.empty() ? "" : text;
  for (const absl::string_view name : absl::StrSplit(names, '+')) {
    bool known = false;
    for (const auto& [known_name, member] : kNames) {
      if (name != known_name) continue;
      out.*member = true;
      known = true;
    }
    if (!known) {
      return Error(Code::kInvalidArgument, "no checker is called '", name, "' in '", text,
                   "'; known: all, none, or waits, nops, undefined, races, caches joined by +");
    }
  }
  if (out.caches && text != "caches") {
    return Error(Code::kInvalidArgument, "checkers '", text,
                 "': caches takes the place of the others: name it alone");
  }
  return out;
}

}  // namespace mainarch::sim::isa
