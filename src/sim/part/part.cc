// SPDX-License-Identifier: MIT
//
// libmainarch-sim.so: the virtual node as the part that the library loads (kfd/sim_part.h), and the
// object that is preloaded into other programs (sim/preload).
#include <cstdlib>

#include "absl/strings/str_split.h"
#include "kfd/sim_part.h"
#include "sim/launcher.h"
#include "sim/open.h"

namespace mainarch::sim {
namespace {

StatusOr<std::unique_ptr<kfd::VirtualSys>> Open(absl::string_view text, absl::string_view faults) {
  ASSIGN_OR_RETURN(NodeConfig config, ParseNode(text));
  // Whoever develops kernels sets it; a device string, which may be anybody's, names no file.
  const char* lines = secure_getenv(kLinesVariable);
  for (absl::string_view path : absl::StrSplit(lines == nullptr ? "" : lines, ':', absl::SkipEmpty())) {
    RETURN_IF_ERROR(AddLines(path, &config));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Node> node, Node::Create(config, MakeExecutor(config)));
  RETURN_IF_ERROR(node->script().Add(faults));
  return std::make_unique<SimSys>(std::move(node));
}

}  // namespace
}  // namespace mainarch::sim

extern "C" __attribute__((visibility("default"))) const mainarch::kfd::SimPart* mainarch_sim_part() {
  static const mainarch::kfd::SimPart part = {mainarch::kfd::SimBuild(), &mainarch::sim::Open};
  return &part;
}
