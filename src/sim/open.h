// SPDX-License-Identifier: MIT
//
// The way in for the rest of the library: a node and one process on it, from the text behind `sim:`
// in a device string.
#ifndef MAINARCH_SIM_OPEN_H_
#define MAINARCH_SIM_OPEN_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "sim/executor.h"
#include "sim/profile.h"
#include "sim/sim_sys.h"

namespace mainarch::sim {

// What runs dispatches on a node when nobody brings an executor.
std::unique_ptr<Executor> MakeExecutor(const NodeConfig& config);

// "gfx950x8,seed=7" (ParseNode): a fresh node, and a process of its own on it. The node lives as
// long as it.
StatusOr<std::unique_ptr<SimSys>> OpenSim(absl::string_view text);

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_OPEN_H_
