// SPDX-License-Identifier: MIT
//
// The resident kernel: as many workgroups as the chip holds run a list of launches, each as if it
// had been dispatched alone, and meet between them. An op's code is jumped into and comes back
// (common/jump.h): what was in registers is gone then, and what stays is in LDS behind the op's own.
#ifndef MAINARCH_KERNELS_OPS_RESIDENT_H_
#define MAINARCH_KERNELS_OPS_RESIDENT_H_

#include "kernels/common/jump.h"
#include "kernels/common/kernel.h"
#include "kernels/common/memory.h"
#include "kernels/common/sync.h"
#include "kernels/common/wave.h"
#include "kernels/resident_args.h"

namespace mainarch::kernels {

struct Resident {
  using Args = ResidentArgs;
  static constexpr uint32_t kLdsBytes = kResidentLds;

  // What a workgroup knows between ops.
  struct Kept {
    WayBack way;
    uint32_t next, count;  // ops of the command that have been begun, and all of them
    uint64_t ops;
    uint32_t round;          // meetings there have been
    uint32_t members, xccs;  // workgroups of this XCD, and XCDs that have any
  };
  static_assert(sizeof(Kept) <= kResidentLds - kResidentOpLds);

  DEVICE static void Run(const Args& args, uint32_t id, uint32_t workers, Arena arena) {
    ReserveRegisters<kResidentVgprs>();
    const Lds<Kept> kept = arena.Get<Kept>(kResidentOpLds);
    id = MadeHere(id);
    const uint32_t worker = id & ~kCameBack;
    if (id == worker) Begin(args, worker, workers, kept);
    BarrierLds();
    Group group;
    group.meeting = &At(args.state)->meetings[args.turn];
    group.round = Uniform(+kept->round);
    group.members = Uniform(+kept->members);
    group.xccs = Uniform(+kept->xccs);
    uint32_t next = Uniform(+kept->next), count = Uniform(+kept->count);
    uint64_t ops = Uniform(+kept->ops);
    ResidentOp op;
    do {
      bool met = false;
      if (next == count) {
        if (count != 0) EndCommand(args, worker, count, group);
        if (worker == 0) TakeCommand(args);
        group.Meet<Scope::kSystem>();
        met = true;
        const Constant<ResidentCommand> command = reinterpret_cast<Constant<ResidentCommand>>(
            args.state.address + __builtin_offsetof(ResidentState, command));
        ops = command->ops;
        count = command->count;
        next = 0;
        if (count == 0) return;
      }
      const Constant<ResidentOp> at = reinterpret_cast<Constant<ResidentOp>>(ops) + next;
      op = {at->code, at->kernarg, at->workers, at->beside, 0};
      if (!met && op.beside == 0) group.Meet<Scope::kDevice>();
      if (worker == 0) TellTime(args, next);
      ++next;
    } while (worker >= op.workers);
    BarrierLds();  // all waves have read what is written now
    if (ThreadId() == 0) {
      kept->next = next;
      kept->count = count;
      kept->ops = ops;
      kept->round = group.round;
    }
    BarrierLds();
    JumpInto(op.code, op.kernarg, worker, ThreadId(), kept);
  }

 private:
  // The workgroups of one launch.
  struct Group {
    Global<ResidentMeeting> meeting;
    uint32_t round, members, xccs;

    // All are here, and each sees what all have written. The last of an XCD goes for all of it; the
    // last of these lets all go on.
    template <Scope kScope>
    DEVICE void Meet() {
      ++round;
      WaitVectorMemory();
      Barrier();
      if (ThreadId() == 0) {
        const uint32_t xcc = XccId();
        FenceRelease<kScope>();
        if (AddFlag<Scope::kDevice>(&meeting->arrived[xcc].value, 1u) + 1 == round * members) {
          FenceAcquire<Scope::kDevice>();
          FenceRelease<kScope>();
          if (AddFlag<Scope::kDevice>(&meeting->met.value, 1u) + 1 == round * xccs) {
            FenceAcquire<Scope::kDevice>();
            FenceRelease<kScope>();
            for (uint32_t x = 0; x < kResidentXccs; ++x) {
              StoreFlag<Scope::kDevice>(&meeting->released[x].value, round);
            }
          }
        }
        WaitFlag<Scope::kDevice>(&meeting->released[xcc].value, round);
      }
      Barrier();
      FenceAcquire<kScope>();
      ForgetScalars();
    }
  };

  DEVICE static void Begin(const Args& args, uint32_t worker, uint32_t workers, Lds<Kept> kept) {
    const Global<ResidentMeeting> meeting = &At(args.state)->meetings[args.turn];
    if (worker == 0) {
      const Global<uint32_t> other =
          reinterpret_cast<Global<uint32_t>>(&At(args.state)->meetings[args.turn ^ 1]);
      for (uint32_t i = ThreadId(); i < sizeof(ResidentMeeting) / 4; i += kThreads) other[i] = 0;
    }
    if (ThreadId() != 0) return;
    AddFlag<Scope::kDevice>(&meeting->members[XccId()].value, 1u);
    WaitVectorMemory();
    FenceRelease<Scope::kDevice>();
    AddFlag<Scope::kDevice>(&meeting->started.value, 1u);
    WaitFlag<Scope::kDevice>(&meeting->started.value, workers);
    FenceAcquire<Scope::kDevice>();
    uint32_t xccs = 0;
    for (uint32_t x = 0; x < kResidentXccs; ++x) {
      xccs += LoadFlag<Scope::kDevice>(&meeting->members[x].value) != 0;
    }
    kept->way.taken = 0;
    kept->way.kernarg = KernargAddress();
    kept->way.worker = worker;
    kept->next = kept->count = kept->round = 0;
    kept->ops = 0;
    kept->members = LoadFlag<Scope::kDevice>(&meeting->members[XccId()].value);
    kept->xccs = xccs;
  }

  // What its ops have written is out, and the host is told.
  DEVICE static void EndCommand(const Args& args, uint32_t worker, uint32_t count, Group& group) {
    group.Meet<Scope::kSystem>();
    if (worker != 0) return;
    TellTime(args, count);
    if (ThreadId() != 0) return;
    const uint32_t number = At(args.state)->command.number;
    StoreFlag<Scope::kSystem>(&At(args.mailbox)->done, number);
  }

  DEVICE static void TellTime(const Args& args, uint32_t place) {
    if (args.times.address == 0 || ThreadId() != 0) return;
    At(args.times)[place] = RealTime();
  }

  // Worker 0: waits for the next command and copies it to where all find it.
  DEVICE static void TakeCommand(const Args& args) {
    if (ThreadId() != 0) return;
    const Global<ResidentMailbox> mailbox = At(args.mailbox);
    const Global<ResidentCommand> to = &At(args.state)->command;
    const uint32_t number = to->number + 1;
    const Global<ResidentCommand> from = &mailbox->commands[number % kResidentSlots];
    bool here = LoadFlag<Scope::kSystem>(&from->number) == number;
    if (!here) {
      mailbox->late = ++At(args.state)->late;
      for (uint32_t i = 0; i < args.patience && !here; ++i) {
        Pause();
        here = LoadFlag<Scope::kSystem>(&from->number) == number;
      }
    }
    if (!here) {
      StoreFlag<Scope::kSystem>(&mailbox->left, number);
      WaitVectorMemory();
      here = LoadFlag<Scope::kSystem>(&from->number) == number;
    }
    FenceAcquire<Scope::kSystem>();
    to->count = here ? from->count : 0;
    to->ops = from->ops;
    if (!here) return;
    to->number = number;
    if (from->count == 0) StoreFlag<Scope::kSystem>(&mailbox->done, number);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_RESIDENT_H_
