// SPDX-License-Identifier: MIT
#include "unit/kernels/case.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

// Two GPUs, payload in plain VRAM of the receiver, flags uncached.
Case PingPongCase(uint32_t rounds, uint32_t payload_words, uint32_t first_epoch) {
  Case out;
  out.name = absl::StrCat("ping_pong ", rounds, " rounds of ", payload_words, " words from epoch ",
                          first_epoch);
  out.bound = "exact: every payload as sent";
  std::vector<LaunchSpec> together;
  for (uint32_t device : {0u, 1u}) {
    const std::string mine = std::to_string(device), peer = std::to_string(1 - device);
    out.buffers.push_back(
        {"flag" + mine, ToBytes<uint32_t>({first_epoch}), device, Home::kUncached});
    out.buffers.push_back({"payload" + mine, Bytes(payload_words * 4, 0xee), device, Home::kVram});
    out.buffers.push_back({"wrong" + mine, Bytes(4, 0xee), device, Home::kVram});
    together.push_back(MakeLaunch<PingPongArgs>(
        "ping_pong", 1,
        [=](PingPongArgs& args, const Addresses& at) {
          args.my_flag = at.Of<uint32_t>("flag" + mine);
          args.my_payload = at.Of<uint32_t>("payload" + mine);
          args.peer_flag = at.Of<uint32_t>("flag" + peer);
          args.peer_payload = at.Of<uint32_t>("payload" + peer);
          args.mismatches = at.Of<uint32_t>("wrong" + mine);
          args.rounds = rounds;
          args.payload_words = payload_words;
          args.is_server = device == 0;
          args.first_epoch = first_epoch;
        },
        device));
    // The server last received an even step, the client an odd one.
    const uint32_t last = first_epoch + 2 * rounds - (device == 0 ? 0 : 1);
    std::vector<uint32_t> payload;
    for (uint32_t i = 0; i < payload_words; ++i) payload.push_back(last * 65536 + i);
    out.expectations.push_back(ExactlyValues<uint32_t>("wrong" + mine, {0}));
    out.expectations.push_back(ExactlyValues<uint32_t>("flag" + mine, {last}));
    out.expectations.push_back(ExactlyValues("payload" + mine, payload));
  }
  out.steps = {together};
  return out;
}

}  // namespace

std::vector<Case> LinkCases() {
  return {
      PingPongCase(1, 1, 0),
      PingPongCase(20, 700, 0),
      PingPongCase(10, 64, 0xfffffff7),  // the epochs wrap
  };
}

}  // namespace mainarch::kernels_test
