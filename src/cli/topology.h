// SPDX-License-Identifier: MIT
//
// `mainarch topology`: what the chips of a machine say of themselves, as text or JSON. Reads sysfs
// only; a user who may not open a GPU can still see it.
#ifndef MAINARCH_CLI_TOPOLOGY_H_
#define MAINARCH_CLI_TOPOLOGY_H_

#include <string>

#include "base/status.h"
#include "kfd/sys.h"

namespace mainarch::cli {

struct TopologyFormat {
  bool json = false;
};

// Appends the report to `out`. An error when there is no driver to ask.
Status RunTopology(kfd::Sys& sys, const TopologyFormat& format, std::string* out);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_TOPOLOGY_H_
