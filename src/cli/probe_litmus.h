// SPDX-License-Identifier: MIT
//
// What the decoder rests on and no document says, asked of a GPU (kernels/ops/litmus.h): hand-over between XCDs by
// kind of page, scopes of packets, words that carry their round, between GPUs too, one polling lane, arguments that
// the host writes to VRAM. Beside them the same without what the decoder does for it: where that is seen to go
// wrong, the question can tell.
#ifndef MAINARCH_CLI_PROBE_LITMUS_H_
#define MAINARCH_CLI_PROBE_LITMUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kfd/sys.h"

namespace mainarch::cli {

struct LitmusAnswer {
  std::string name, question;
  std::string answer;     // what was seen
  bool needed = false;    // the decoder rests on it
  bool asked = true;      // this machine has what it is asked of
  bool holds = false;     // nothing was wrong, nobody waited in vain
  std::string otherwise;  // of what is needed: what breaks if it does not hold
};

struct LitmusOptions {
  uint32_t index = 0;    // of the GPU; the other of two is 0, or 1 of 0
  uint32_t rounds = 24;  // on a chip some thousands
  uint32_t polls = 1u << 14;
};

StatusOr<std::vector<LitmusAnswer>> RunLitmus(kfd::Sys& sys, const LitmusOptions& options);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_PROBE_LITMUS_H_
