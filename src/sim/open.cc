// SPDX-License-Identifier: MIT
#include "sim/open.h"

#include "sim/host_executor.h"
#include "sim/isa/executor.h"
#include "sim/time/clock.h"

namespace mainarch::sim {

std::unique_ptr<Executor> MakeExecutor(const NodeConfig& config) {
  // gfx90a is there to be listed and for queues and copies: its instructions are not interpreted.
  if (config.profile->isa == "gfx90a") return std::make_unique<HostExecutor>();
  isa::ExecutorOptions options;
  options.exact_matrix = config.exact_matrix;
  if (config.slice != 0) options.slice = config.slice;
  if (config.lanes.has_value()) options.lanes = *config.lanes;
  options.run_errata = config.run_errata;
  options.check = config.check;
  options.lines = config.lines;
  if (config.time) {
    // What it says goes to the node's log.
    timing::ClockOptions clock;
    clock.reports = clock.waits = false;
    options.pace = std::make_shared<timing::Clock>(clock);
  }
  return std::make_unique<isa::IsaExecutor>(options);
}

StatusOr<std::unique_ptr<SimSys>> OpenSim(absl::string_view text) {
  ASSIGN_OR_RETURN(const NodeConfig config, ParseNode(text));
  ASSIGN_OR_RETURN(std::shared_ptr<Node> node, Node::Create(config, MakeExecutor(config)));
  return std::make_unique<SimSys>(std::move(node));
}

}  // namespace mainarch::sim
