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

  // What a workgroup knows between ops.
  struct Kept {
    WayBack way;
    uint32_t next, count;  // ops of the command that have been begun, and all of them
    uint64_t ops;
    ResidentOp op;     // ops[next]
    uint64_t meeting;
    uint32_t round;    // meetings there have been
    uint32_t members;  // workgroups of this XCD
    uint32_t xccs;     // a bit for each XCD that has any
    uint32_t timed;
  };
  static_assert(sizeof(Kept) <= kResidentKept);

  // Arguments are read where they are wanted (ReadArgumentsAgain): seldom.
  DEVICE static void Run(uint32_t id, uint32_t workers, Lds<Kept> kept) {
    id = MadeHere(id);
    const uint32_t worker = id & ~kCameBack;
    if (id == worker) {
      Begin(worker, workers, kept);
      BarrierLds();
    }
    Group group;
    group.meeting = reinterpret_cast<Global<ResidentMeeting>>(Uniform(+kept->meeting));
    group.worker = worker;
    group.round = Uniform(+kept->round);
    group.members = Uniform(+kept->members);
    group.xccs = Uniform(+kept->xccs);
    const bool timed = worker == 0 && Uniform(+kept->timed) != 0;
    uint32_t next = Uniform(+kept->next), count = Uniform(+kept->count);
    uint64_t ops = Uniform(+kept->ops);
    ResidentOp op = FromLds(kept);
    BarrierLds();  // all have read what is written now
    while (true) {
      const bool ended = next == count;
      if (ended) {
        if (count != 0) EndCommand(worker, count, group);
        if (worker == 0) TakeCommand();
        group.Meet<Scope::kSystem>({}, kept, 0);
        const Constant<ResidentCommand> command = reinterpret_cast<Constant<ResidentCommand>>(
            ReadArgumentsAgain<Args>().state.address + __builtin_offsetof(ResidentState, command));
        ops = command->ops;
        count = command->count;
        next = 0;
        if (count == 0) return;
        op = *reinterpret_cast<Constant<ResidentOp>>(ops);
      }
      ++next;
      const bool meets = !ended && op.beside == 0;
      if (ThreadId() == 0) {
        kept->next = next;
        kept->count = count;
        kept->ops = ops;
        kept->round = group.round + meets;
      }
      const uint64_t after = next < count ? ops + next * sizeof(ResidentOp) : 0;
      if (meets) {
        group.Meet<Scope::kDevice>(op, kept, after);
      } else {
        Group::FetchOp(kept, after);
        BarrierLds();
      }
      if (timed) TellTime(next - 1);
      if (worker < op.workers) break;
      op = FromLds(kept);
      BarrierLds();
    }
    JumpInto(op.code, op.kernarg, worker, ThreadId(), kept);
  }

 private:
  DEVICE static ResidentOp FromLds(Lds<Kept> kept) {
    ResidentOp op;
    op.code = Uniform(+kept->op.code);
    op.kernarg = Uniform(+kept->op.kernarg);
    op.workers = Uniform(+kept->op.workers);
    op.beside = Uniform(+kept->op.beside);
    op.code_bytes = Uniform(+kept->op.code_bytes);
    op.kernarg_bytes = Uniform(+kept->op.kernarg_bytes);
    op.reads = Uniform(+kept->op.reads);
    op.reads_stride = Uniform(+kept->op.reads_stride);
    op.reads_bytes = Uniform(+kept->op.reads_bytes);
    return op;
  }

  static constexpr uint32_t kLine = 128;
  // Loads a lane of what an op reads first: together of kResidentReads bytes a workgroup.
  static constexpr uint32_t kReadsDeep = kResidentReads / (kLine * kWave * (kWaves - 1));

  // The workgroups of one launch.
  struct Group {
    Global<ResidentMeeting> meeting;
    uint32_t worker, round, members, xccs;

    // All are here, and each sees what all have written. Meanwhile what `next` begins with comes nearer,
    // and the op behind it, if its address is not 0, into what is kept.
    template <Scope kScope>
    DEVICE void Meet(const ResidentOp& next, Lds<Kept> kept, uint64_t after) {
      ++round;
      WaitVectorMemory();
      Barrier();
      if (WaveId() == 0) {
        const uint32_t xcc = XccId(), lane = LaneId();
        uint32_t before = 0;
        if (lane == 0) {
          FenceRelease<kScope>();
          before = AddFlag<Scope::kDevice>(&meeting->arrived[xcc].values[0], 1u);
        }
        if (Uniform(before) + 1 == round * members) {
          FenceAcquire<Scope::kDevice>();
          if (lane < kResidentXccs) StoreFlag<Scope::kDevice>(&meeting->told[lane].values[xcc], round);
        }
        // Of XCDs that have no workgroup nothing is heard.
        if (lane < kResidentXccs && (xccs >> lane & 1) != 0) {
          WaitFlag<Scope::kDevice>(&meeting->told[xcc].values[lane], round);
        }
      } else {
        FetchOp(kept, after);
        Fetch(next, worker);
      }
      Barrier();
      FenceAcquire<kScope>();
      ForgetScalars();
    }

    // Into the L2: code, arguments and what the workgroup will read first, a line a lane. The loads go into
    // registers that an op has, so they are waited for.
    DEVICE static void Fetch(const ResidentOp& next, uint32_t worker) {
      const uint32_t lane = LaneId(), wave = WaveId() - 1;
      if (wave == 0) {
        if (lane * kLine < next.code_bytes) Touch(next.code + lane * kLine);
      } else if (wave == 1) {
        if (lane * kLine < next.kernarg_bytes) Touch(next.kernarg + lane * kLine);
      }
      if (next.reads_bytes == 0 || worker >= next.workers) return;
      const uint64_t first = next.reads + uint64_t{worker} * next.reads_stride;
      uint32_t words[kReadsDeep];
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kReadsDeep; ++i) {
        const uint32_t at = (i * (kWaves - 1) * kWave + wave * kWave + lane) * kLine;
        words[i] = *reinterpret_cast<Global<const volatile uint32_t>>(first + Min(at, next.reads_bytes - 4));
      }
#pragma clang loop unroll(full)
      for (uint32_t i = 0; i < kReadsDeep; ++i) {
        const uint32_t word = words[i];
        static_cast<void>(MadeBefore(word));
      }
    }
    DEVICE static void FetchOp(Lds<Kept> kept, uint64_t from) {
      if (WaveId() != 3 || from == 0 || LaneId() >= sizeof(ResidentOp) / 4) return;
      reinterpret_cast<Lds<uint32_t>>(&kept->op)[LaneId()] =
          reinterpret_cast<Global<const uint32_t>>(from)[LaneId()];
    }
  };

  DEVICE static void Begin(uint32_t worker, uint32_t workers, Lds<Kept> kept) {
    const Args args = ReadArgumentsAgain<Args>();
    const Global<ResidentMeeting> meeting = &At(args.state)->meetings[args.turn];
    if (worker == 0) {
      const Global<uint32_t> other =
          reinterpret_cast<Global<uint32_t>>(&At(args.state)->meetings[args.turn ^ 1]);
      for (uint32_t i = ThreadId(); i < sizeof(ResidentMeeting) / 4; i += kThreads) other[i] = 0;
    }
    if (ThreadId() != 0) return;
    AddFlag<Scope::kDevice>(&meeting->members[XccId()].values[0], 1u);
    WaitVectorMemory();
    FenceRelease<Scope::kDevice>();
    AddFlag<Scope::kDevice>(&meeting->started.values[0], 1u);
    WaitFlag<Scope::kDevice>(&meeting->started.values[0], workers);
    FenceAcquire<Scope::kDevice>();
    uint32_t xccs = 0;
    for (uint32_t x = 0; x < kResidentXccs; ++x) {
      const bool any = LoadFlag<Scope::kDevice>(&meeting->members[x].values[0]) != 0;
      xccs |= uint32_t{any} << x;
    }
    kept->way.taken = 0;
    kept->way.kernarg = KernargAddress();
    kept->way.worker = worker;
    kept->next = kept->count = kept->round = 0;
    kept->ops = 0;
    kept->meeting = reinterpret_cast<uint64_t>(meeting);
    kept->timed = args.times.address != 0;
    kept->members = LoadFlag<Scope::kDevice>(&meeting->members[XccId()].values[0]);
    kept->xccs = xccs;
  }

  // What its ops have written is out, and the host is told.
  DEVICE static void EndCommand(uint32_t worker, uint32_t count, Group& group) {
    group.Meet<Scope::kSystem>({}, nullptr, 0);
    if (worker != 0) return;
    const Args args = ReadArgumentsAgain<Args>();
    if (args.times.address != 0) TellTime(count);
    if (ThreadId() != 0) return;
    const uint32_t number = At(args.state)->command.number;
    StoreFlag<Scope::kSystem>(&At(args.mailbox)->done, number);
  }

  DEVICE static void TellTime(uint32_t place) {
    if (ThreadId() == 0) At(ReadArgumentsAgain<Args>().times)[place] = RealTime();
  }

  // Worker 0: waits for the next command and copies it to where all find it.
  DEVICE static void TakeCommand() {
    if (ThreadId() != 0) return;
    const Args args = ReadArgumentsAgain<Args>();
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

template <const ResidentRoom& kRoom>
struct ResidentIn {
  using Args = ResidentArgs;
  static constexpr uint32_t kLdsBytes = kRoom.op_lds + kResidentKept;

  DEVICE static void Run(const Args&, uint32_t id, uint32_t workers, Arena arena) {
    ReserveRegisters<kRoom.vgprs, kRoom.agprs>();
    Resident::Run(id, workers, arena.Get<Resident::Kept>(kRoom.op_lds));
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_RESIDENT_H_
