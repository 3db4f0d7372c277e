// SPDX-License-Identifier: MIT
//
// Two GPUs bounce a flag with a payload: push only, each polls its own memory.
#ifndef MAINARCH_KERNELS_OPS_LINK_H_
#define MAINARCH_KERNELS_OPS_LINK_H_

#include "kernels/common/math.h"
#include "prims.h"

namespace mainarch::kernels {

// One workgroup on each side. The payload of an epoch may be overwritten only after the answer to
// it, which the reader sends when all its waves have read.
struct PingPong {
  using Args = PingPongArgs;
  static constexpr uint32_t kLdsBytes = kWaves * 4;

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t, Arena arena) {
    if (worker != 0) return;
    uint32_t wrong = 0;
    uint32_t epoch = args.first_epoch;
    for (uint32_t round = 0; round < args.rounds; ++round) {
      if (args.is_server) {
        Send(args, epoch + 1);
        wrong += Receive(args, epoch + 2);
      } else {
        wrong += Receive(args, epoch + 1);
        Send(args, epoch + 2);
      }
      epoch += 2;
    }
    wrong = GroupSum<kWaves>(wrong, arena.Get<uint32_t>());
    if (ThreadId() == 0) At(args.mismatches)[0] = wrong;
  }

  DEVICE static void Send(const Args& args, uint32_t epoch) {
    const Global<uint32_t> payload = At(args.peer_payload);
    for (uint32_t i = ThreadId(); i < args.payload_words; i += kThreads) {
      payload[i] = epoch * 65536 + i;
    }
    Publish<Scope::kSystem>(At(args.peer_flag), epoch, ThreadId() == 0);
  }

  DEVICE static uint32_t Receive(const Args& args, uint32_t epoch) {
    Await<Scope::kSystem>(At(args.my_flag), epoch, ThreadId() == 0);
    const Global<const uint32_t> payload = At(args.my_payload);
    uint32_t wrong = 0;
    for (uint32_t i = ThreadId(); i < args.payload_words; i += kThreads) {
      wrong += payload[i] != epoch * 65536 + i;
    }
    return wrong;
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_LINK_H_
