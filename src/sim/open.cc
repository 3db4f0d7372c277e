// SPDX-License-Identifier: MIT
#include "sim/open.h"

#include "sim/host_executor.h"

namespace mainarch::sim {

std::unique_ptr<Executor> MakeExecutor(const NodeConfig&) {
  return std::make_unique<HostExecutor>();
}

StatusOr<std::unique_ptr<SimSys>> OpenSim(absl::string_view text) {
  ASSIGN_OR_RETURN(const NodeConfig config, ParseNode(text));
  ASSIGN_OR_RETURN(std::shared_ptr<Node> node, Node::Create(config, MakeExecutor(config)));
  return std::make_unique<SimSys>(std::move(node));
}

}  // namespace mainarch::sim
