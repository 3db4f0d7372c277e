// SPDX-License-Identifier: MIT
//
// The resident kernel: launched once with as many workgroups as the chip holds, it takes commands
// from a mailbox in host-visible memory and runs each as the whole grid, until told to stop. Worker
// 0 alone polls the host; the others poll a flag in device memory. Between commands lies a grid
// barrier, so a command sees all of the one before it.
#ifndef MAINARCH_KERNELS_OPS_RESIDENT_H_
#define MAINARCH_KERNELS_OPS_RESIDENT_H_

#include "kernels/ops/matrix.h"
#include "kernels/ops/memory.h"
#include "kernels/ops/rows.h"

namespace mainarch::kernels {

struct Resident {
  using Args = ResidentArgs;
  static constexpr uint32_t kCommandWords = sizeof(Command) / 4;
  // The current command, then the op's own LDS.
  static constexpr uint32_t kCommandBytes = sizeof(Command);
  static constexpr uint32_t kLdsBytes =
      kCommandBytes + (Bf16Mfma::kLdsBytes > 256 ? Bf16Mfma::kLdsBytes : 256);
  static_assert(StreamRead::kLdsBytes <= 256 && RmsNorm::kLdsBytes <= 256);

  DEVICE static void Run(const Args& args, uint32_t worker, uint32_t workers, Arena arena) {
    const bool leader = ThreadId() == 0;
    uint32_t sequence = args.first_sequence;
    uint32_t barriers = 0;
    while (true) {
      if (worker == 0) Relay(args, sequence);
      const uint32_t opcode = Fetch(args, sequence, arena);
      if (opcode != static_cast<uint32_t>(Opcode::kStop)) Execute(opcode, worker, workers, arena);
      GridBarrier<Scope::kSystem>(At(args.arrivals), workers, barriers, leader);
      if (worker == 0 && leader) {
        FenceRelease<Scope::kSystem>();
        StoreFlag<Scope::kSystem>(At(args.done), sequence);
      }
      if (opcode == static_cast<uint32_t>(Opcode::kStop)) return;
      ++sequence;
    }
  }

  // Worker 0: waits for the host's command and copies it where the others look.
  DEVICE static void Relay(const Args& args, uint32_t sequence) {
    const uint32_t slot = sequence & (args.slots - 1);
    const Global<const uint32_t> from =
        reinterpret_cast<Global<const uint32_t>>(At(args.mailbox) + slot);
    const Global<uint32_t> to = reinterpret_cast<Global<uint32_t>>(At(args.relay) + (sequence & 1));
    constexpr uint32_t kSequenceWord = kCommandWords - 1;
    // Equal: an empty slot may hold any older number.
    Await<Scope::kSystem, Until::kEqual>(from + kSequenceWord, sequence, ThreadId() == 0);
    if (ThreadId() < kCommandWords) to[ThreadId()] = from[ThreadId()];
    Publish<Scope::kDevice>(At(args.relay_flag), sequence, ThreadId() == 0);
  }

  // Every workgroup: the command into LDS; returns its opcode. Lane by lane, because a uniform load
  // could go through the scalar cache, which no fence invalidates.
  DEVICE static uint32_t Fetch(const Args& args, uint32_t sequence, Arena arena) {
    Await<Scope::kDevice, Until::kEqual>(At(args.relay_flag), sequence, ThreadId() == 0);
    const Global<const uint32_t> from =
        reinterpret_cast<Global<const uint32_t>>(At(args.relay) + (sequence & 1));
    const Lds<uint32_t> command = arena.Get<uint32_t>();
    if (ThreadId() < kCommandWords) command[ThreadId()] = from[ThreadId()];
    BarrierLds();
    return Uniform(+command[kCommandWords - 2]);
  }

  // The op's arguments out of the command in LDS, in scalar registers.
  template <class Op>
  DEVICE static void Call(uint32_t worker, uint32_t workers, Arena arena) {
    using OpArgs = typename Op::Args;
    struct Words {
      uint32_t at[sizeof(OpArgs) / 4];
    } words;
    static_assert(sizeof(OpArgs) == sizeof(Words) && sizeof(OpArgs) <= sizeof(Command) - 8);
    const Lds<uint32_t> command = arena.Get<uint32_t>();
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < sizeof(OpArgs) / 4; ++i) words.at[i] = Uniform(+command[i]);
    Op::Run(BitCast<OpArgs>(words), worker, workers, Arena{arena.base + kCommandBytes});
  }

  DEVICE static void Execute(uint32_t opcode, uint32_t worker, uint32_t workers, Arena arena) {
    switch (static_cast<Opcode>(opcode)) {
      case Opcode::kFill:
        return Call<Fill>(worker, workers, arena);
      case Opcode::kCopy:
        return Call<Copy>(worker, workers, arena);
      case Opcode::kRmsNorm:
        return Call<RmsNorm>(worker, workers, arena);
      case Opcode::kRope:
        return Call<Rope>(worker, workers, arena);
      case Opcode::kSwiglu:
        return Call<Swiglu>(worker, workers, arena);
      case Opcode::kBf16Matrix:
        return Call<Bf16Mfma>(worker, workers, arena);
      case Opcode::kStreamRead:
        return Call<StreamRead>(worker, workers, arena);
      case Opcode::kStop:
        return;
    }
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_RESIDENT_H_
