// SPDX-License-Identifier: MIT
//
// The packets of one token's attention under the timing model, for `mainarch attn-decode`: on one GPU, with
// that GPU's share of the heads. Ranks attend side by side and wait for nobody, so one stands for all; or for those that
// hold its KV head, with which it may share long rows, and then all of these run.
#ifndef MAINARCH_CLI_ATTN_TIME_H_
#define MAINARCH_CLI_ATTN_TIME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "cli/timed_node.h"
#include "model/config.h"

namespace mainarch::cli {

struct AttentionTime {
  struct Packet {
    std::string kernel;
    double us = 0;        // from the packet before it to its own end
    double floor_us = 0;  // its bytes from memory at the streamed rate
    std::string limits;
  };
  std::vector<Packet> packets;  // prepare, attend and, of more than one split, merge
  double us = 0;                // attend and merge
  double merge_us = 0;          // of it; NAN: not told
  double read_tbs = 0;          // what a streaming read gets: the ceiling
  std::string error;            // of the model
};

// `whole`: the model's one layer; `attention`: its op of the Program. Caches and weights hold what they like:
// no value steers what a kernel does, and products are not computed.
StatusOr<AttentionTime> TimeAttention(const model::ModelConfig& whole, int32_t ranks, const std::string& isa,
                                      const backend::ContextOptions& context, uint32_t position);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_ATTN_TIME_H_
