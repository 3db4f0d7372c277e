// SPDX-License-Identifier: MIT
//
// The resident kernel: as many workgroups as its largest launch wants, and at most as the chip holds,
// run a list of launches, each as if it had been dispatched alone, and meet between them. An op's code
// is jumped into and comes back (common/jump.h): what was in registers is gone then, and what stays is
// in LDS behind the op's own.
#ifndef MAINARCH_KERNELS_OPS_RESIDENT_H_
#define MAINARCH_KERNELS_OPS_RESIDENT_H_

#include "kernels/common/jump.h"
#include "kernels/common/kernel.h"
#include "kernels/common/memory.h"
#include "kernels/common/sync.h"
#include "kernels/common/wave.h"
#include "kernels/decoder_args.h"
#include "kernels/resident_args.h"

namespace mainarch::kernels {

struct Resident {
  using Args = ResidentArgs;

  // What a workgroup knows between ops, in quads that a wave loads at once: between the last wave's end of an op
  // and its arrival every instruction counts.
  struct Kept {
    WayBack way;
    uint32_t leaves;  // not 0: this was the last meeting
    uint32_t pauses;  // so far
    uint64_t meeting;
    uint32_t round;    // meetings there have been
    uint32_t members;  // workgroups of this XCD
    uint32_t xccs;     // a bit for each XCD that has any
    uint32_t first;  // of the first workgroup: bit 0: it tells times; above: the op before which all leave, or 0
    uint32_t next;   // ops of the list that have been begun
    uint32_t work;  // all of them, and in the upper half the rounds that are left, this one counted
    uint64_t ops;
    uint64_t ends;     // see ResidentCommand; 0 in a command's first round
    ResidentOp op[2];  // ops[next], in the place of its last bit, which then takes the one after
    uint64_t asks;     // address of this rank's word
    uint32_t heard;    // what was in it when it was heeded last
    uint32_t reserved;
  };
  static_assert(sizeof(Kept) == 192 && sizeof(Kept) <= kResidentKept);

  // Arguments are read where they are wanted (ReadArgumentsAgain): seldom.
  DEVICE static void Run(uint32_t id, uint32_t workers, Lds<Kept> kept) {
    id = MadeHere(id);
    Group group = {nullptr, &kept->leaves, id & ~kCameBack, 0, 0, 0};
    if (id == group.worker) {
      Begin(id, workers, kept);
      BarrierLds();
      group.worker = Uniform(uint32_t{kept->way.worker});
    }
    const Lds<u32x4> quads = reinterpret_cast<Lds<u32x4>>(&kept->meeting);
    const u32x4 first = quads[0], second = quads[1], third = quads[2];
    group.meeting = reinterpret_cast<Global<ResidentMeeting>>(Uniform(Pair(first[0], first[1])));
    group.round = Uniform(uint32_t{first[2]});
    group.members = Uniform(uint32_t{first[3]});
    group.xccs = Uniform(uint32_t{second[0]});
    uint32_t ours = group.worker == 0 ? Uniform(uint32_t{second[1]}) : 0;
    const bool timed = (ours & 1) != 0;
    uint32_t next = Uniform(uint32_t{second[2]});
    const uint32_t work = Uniform(uint32_t{second[3]});
    List list = {Uniform(Pair(third[0], third[1])), Uniform(Pair(third[2], third[3])), work & 0xffff, work >> 16};
    ResidentOp op = OpIn(kept, next);
    while (true) {
      const bool ended = next == list.count;
      if (ended) {
        if (!NextRound(&group, &list, timed)) return;
        next = 0;
        op = *reinterpret_cast<Constant<ResidentOp>>(list.ops);
      }
      const bool meets = !ended && op.beside == 0;
      if (timed) TellTime(2 * next);
      meets ? group.Arrive<Scope::kDevice>(ours > 1 && ours >> 1 == next) : BarrierLds();
      ++next;
      if (ThreadId() == 0) {
        kept->next = next;
        kept->work = list.rounds << 16 | list.count;
        kept->ops = list.ops;
        kept->ends = list.ends;
        kept->round = group.round;
      }
      if (WaveId() != 0) {
        FetchOp(kept, next, next < list.count ? list.ops + next * sizeof(ResidentOp) : 0);
        const bool listens = meets && op.stop_at != 0 && group.worker == 0 && WaveId() == 2;
        const uint32_t asked = listens ? Listen(kept) : 0;
        Fetch(op, group.worker);
        if (listens) Heed(kept, op.stop_at, asked);
      }
      bool leaves = false;
      if (meets) {
        leaves = group.Await<Scope::kDevice>();
      } else {
        BarrierLds();
      }
      if (leaves) {
        LeaveInMidst(group.worker, kept, list, next - 1);
        return;
      }
      if (timed) TellTime(2 * next - 1);
      // Its first op has found out that this is no round.
      if (next == 2 && list.ends != 0 && *reinterpret_cast<Constant<uint32_t>>(list.ends) == kNoRound) {
        BreakOff(group.worker);
        list.count = list.rounds = 0;
        next = 0;
        continue;
      }
      if (group.worker - op.first < op.workers) break;
      op = OpIn(kept, next);
      if (group.worker == 0) ours = Uniform(uint32_t{kept->first});
    }
    JumpInto(op.code, op.kernarg, group.worker - op.first, ThreadId(), kept);
  }

 private:
  DEVICE static uint64_t Pair(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }
  DEVICE static ResidentOp OpIn(Lds<Kept> kept, uint32_t next) {
    const Lds<u32x4> quads = reinterpret_cast<Lds<u32x4>>(&kept->op[next & 1]);
    const u32x4 a = quads[0], b = quads[1], c = quads[2];
    ResidentOp op;
    op.code = Uniform(Pair(a[0], a[1]));
    op.kernarg = Uniform(Pair(a[2], a[3]));
    op.workers = Uniform(uint32_t{b[0]});
    const uint32_t beside = Uniform(uint32_t{b[1]});
    op.beside = static_cast<uint16_t>(beside);
    op.stop_at = static_cast<uint16_t>(beside >> 16);
    op.code_bytes = Uniform(uint32_t{b[2]});
    const uint32_t first = Uniform(uint32_t{b[3]});
    op.kernarg_bytes = static_cast<uint16_t>(first);
    op.first = static_cast<uint16_t>(first >> 16);
    op.reads = Uniform(Pair(c[0], c[1]));
    op.reads_stride = Uniform(uint32_t{c[2]});
    op.reads_bytes = Uniform(uint32_t{c[3]});
    return op;
  }

  static constexpr uint32_t kLine = 128;
  static constexpr uint32_t kCodeParts = 4;  // of a wave's lines each: 32 KiB
  // Loads a lane of what an op reads first: together of kResidentReads bytes a workgroup.
  static constexpr uint32_t kReadsDeep = kResidentReads / (kLine * kWave * (kWaves - 1));

  // The workgroups of one launch.
  struct Group {
    Global<ResidentMeeting> meeting;
    Lds<uint32_t> leaving;  // of Kept
    uint32_t worker, round, members, xccs;

    // What this workgroup has written is out, and it is here. The last of an XCD tells all XCDs. Behind it all
    // of the workgroup's waves are past what they did before. `leaves`: all leave behind it.
    template <Scope kScope>
    DEVICE void Arrive(bool leaves = false) {
      ++round;
      WaitVectorMemory();
      Barrier();
      if (WaveId() != 0) return;
      const uint32_t xcc = XccId(), lane = LaneId();
      uint64_t before = 0;
      if (lane == 0) {
        FenceRelease<kScope>();
        const Global<uint64_t> arrived = reinterpret_cast<Global<uint64_t>>(&meeting->arrived[xcc].values[0]);
        before = AddFlag<Scope::kDevice>(arrived, leaves ? kResidentLeaves + 1 : uint64_t{1});
      }
      before = Uniform(before);
      if (static_cast<uint32_t>(before) + 1 != round * members) return;
      FenceAcquire<Scope::kDevice>();
      const uint32_t met = ResidentMet(round, leaves || (before & kResidentLeaves) != 0);
      if (lane < kResidentXccs) StoreFlag<Scope::kDevice>(&meeting->told[lane].values[xcc], met);
    }
    // All are here, and each sees what all have written. True: all leave. Nobody who does arrives again, so that is
    // still there when the slowest looks.
    template <Scope kScope>
    DEVICE bool Await() {
      // Of XCDs that have no workgroup nothing is heard.
      if (WaveId() == 0 && LaneId() < kResidentXccs && (xccs >> LaneId() & 1) != 0) {
        const Global<uint32_t> told = &meeting->told[XccId()].values[LaneId()];
        uint32_t now = LoadFlag<Scope::kDevice>(told);
        while (!Reached(now, ResidentMet(round, false))) {
          Pause();
          now = LoadFlag<Scope::kDevice>(told);
        }
        if (now == ResidentMet(round, true)) *leaving = 1;
      }
      Barrier();
      const uint32_t leaves = *leaving;
      FenceAcquire<kScope>();
      ForgetScalars();
      return Uniform(leaves) != 0;
    }
  };

  // Into the L2: code, arguments and what the workgroup will read first, a line a lane. The loads go into registers
  // that an op has, so they are waited for.
  DEVICE static void Fetch(const ResidentOp& next, uint32_t worker) {
    const uint32_t lane = LaneId(), wave = WaveId() - 1;
    if (wave == 0) {
      // Neighbours on an XCD share the code.
      const uint32_t line = (worker / kResidentXccs % kCodeParts) * kWave + lane;
      if (line * kLine < next.code_bytes) Touch(next.code + line * kLine);
    } else if (wave == 1) {
      if (lane * kLine < next.kernarg_bytes) Touch(next.kernarg + lane * kLine);
    }
    const uint32_t own = worker - next.first;
    if (next.reads_bytes == 0 || own >= next.workers) return;
    const uint64_t first = next.reads + uint64_t{own} * next.reads_stride;
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
  // The op at `from`, if that is not 0, into its place.
  DEVICE static void FetchOp(Lds<Kept> kept, uint32_t next, uint64_t from) {
    if (WaveId() != 3 || from == 0 || LaneId() >= sizeof(ResidentOp) / 4) return;
    reinterpret_cast<Lds<uint32_t>>(&kept->op[next & 1])[LaneId()] =
        reinterpret_cast<Global<const uint32_t>>(from)[LaneId()];
  }

  // What the command that runs has still to do.
  struct List {
    uint64_t ops, ends;
    uint32_t count, rounds;
  };

  // What is asked of this GPU now. Far away: it comes while the wave waits for what it fetches.
  DEVICE static uint32_t Listen(Lds<Kept> kept) {
    return LoadFlag<Scope::kSystem>(reinterpret_cast<Global<const uint32_t>>(Uniform(uint64_t{kept->asks})));
  }
  // The first workgroup's, at an op whose `stop_at` that is: remembers before which op all leave. The first rank
  // tells the others; it is there before this wave arrives again.
  DEVICE static void Heed(Lds<Kept> kept, uint32_t stop_at, uint32_t asked) {
    asked = Uniform(asked);
    const uint32_t ours = Uniform(uint32_t{kept->first});
    if (asked == Uniform(uint32_t{kept->heard}) || ours > 1) return;
    const Args& args = ArgumentsAgain<Args>();
    if (args.rank != 0) {
      stop_at = asked & 0xffff;
    } else {
      if (stop_at == 0) return;
      const uint32_t stop = ResidentStop(Uniform(uint32_t{kept->pauses}) + 1, stop_at);
      for (uint32_t r = 1; r < args.ranks; ++r) {
        if (LaneId() == 0) StoreFlag<Scope::kSystem>(At(args.asks[r]), stop);
      }
      WaitVectorMemory();
    }
    if (LaneId() != 0) return;
    kept->heard = asked;
    kept->first = stop_at << 1 | ours;
  }
  // Behind the meeting for op `next`, which is not begun: the next launch does. It has the other turn's meeting.
  DEVICE static void LeaveInMidst(uint32_t worker, Lds<Kept> kept, const List& list, uint32_t next) {
    if (worker != 0 || ThreadId() != 0) return;
    const Args& args = ArgumentsAgain<Args>();
    const Global<ResidentState> state = At(args.state);
    const Global<ResidentResume> resume = &state->meetings[args.turn ^ 1].resume;
    resume->ops = list.ops;
    resume->ends = list.ends;
    resume->work = list.rounds << 16 | list.count;
    resume->next = next;
    state->heard = kept->heard;
    const uint32_t pauses = kept->pauses + 1;
    state->pauses = pauses;
    FenceRelease<Scope::kSystem>();
    StoreFlag<Scope::kSystem>(&At(args.mailbox)->paused, pauses);
  }

  // Behind a list: it again, or the next command's. False: that is the end.
  DEVICE static bool NextRound(Group* group, List* list, bool timed) {
    if (list->count != 0) EndRound(group, *list, timed);
    const Constant<ResidentCommand> command = reinterpret_cast<Constant<ResidentCommand>>(
        ReadArgumentsAgain<Args>().state.address + __builtin_offsetof(ResidentState, command));
    if (list->rounds > 1) {
      --list->rounds;
      list->ends = command->ends;
      return true;
    }
    if (group->worker == 0) TakeCommand();
    group->Arrive<Scope::kSystem>();
    group->Await<Scope::kSystem>();
    *list = {command->ops, 0, command->count, command->rounds};
    return list->count != 0;
  }

  // How many workgroups its compute unit had before this one.
  DEVICE static uint32_t TakePlace(Global<ResidentPlaces> places) {
    const uint32_t layer = AddFlag<Scope::kDevice>(&places->units[XccId()][UnitId()], 1u);
    AddFlag<Scope::kDevice>(&places->layers[layer].values[XccId()], 1u);
    return layer;
  }
  // Once all have taken theirs; a wave's.
  DEVICE static uint32_t NumberOf(Global<ResidentPlaces> places, uint32_t layer) {
    const uint32_t xcc = XccId(), unit = UnitId();
    uint32_t before = 0, number = 0;
    for (uint32_t u = LaneId(); u < kResidentUnits; u += kWave) {
      const bool is_before = u < unit && LoadFlag<Scope::kDevice>(&places->units[xcc][u]) > layer;
      before += static_cast<uint32_t>(__builtin_popcountll(Ballot(is_before)));
    }
    for (uint32_t own = 0; own <= layer; ++own) {
      for (uint32_t x = 0; x < kResidentXccs; ++x) {
        const uint32_t count = LoadFlag<Scope::kDevice>(&places->layers[own].values[x]);
        number += own < layer ? count : ResidentBefore(xcc, before, x, count);
      }
    }
    return Uniform(number);
  }

  // The launch's workgroup `id`, of `workers`.
  DEVICE static void Begin(uint32_t id, uint32_t workers, Lds<Kept> kept) {
    const Args& args = ArgumentsAgain<Args>();
    const Global<ResidentMeeting> meeting = &At(args.state)->meetings[args.turn];
    if (id == 0) {
      const Global<uint32_t> other =
          reinterpret_cast<Global<uint32_t>>(&At(args.state)->meetings[args.turn ^ 1]);
      for (uint32_t i = ThreadId(); i < sizeof(ResidentMeeting) / 4; i += kThreads) other[i] = 0;
    }
    if (WaveId() != 0) return;
    uint32_t layer = 0;
    if (LaneId() == 0) {
      AddFlag<Scope::kDevice>(&meeting->members[XccId()].values[0], 1u);
      layer = TakePlace(&meeting->places);
      WaitVectorMemory();
      FenceRelease<Scope::kDevice>();
      AddFlag<Scope::kDevice>(&meeting->started.values[0], 1u);
      WaitFlag<Scope::kDevice>(&meeting->started.values[0], workers);
      FenceAcquire<Scope::kDevice>();
    }
    const uint32_t worker = NumberOf(&meeting->places, Uniform(layer));
    if (LaneId() != 0) return;
    uint32_t xccs = 0;
    for (uint32_t x = 0; x < kResidentXccs; ++x) {
      const bool any = LoadFlag<Scope::kDevice>(&meeting->members[x].values[0]) != 0;
      xccs |= uint32_t{any} << x;
    }
    kept->way.taken = 0;
    kept->way.kernarg = KernargAddress();
    kept->way.worker = worker;
    const Global<ResidentResume> resume = &meeting->resume;
    const uint32_t next = resume->next, work = resume->work;
    kept->next = next;
    kept->work = work;
    kept->ops = resume->ops;
    kept->ends = resume->ends;
    if (work != 0) {
      const Global<const u32x4> from = reinterpret_cast<Global<const u32x4>>(resume->ops + next * sizeof(ResidentOp));
      const Lds<u32x4> to = reinterpret_cast<Lds<u32x4>>(&kept->op[next & 1]);
      for (uint32_t i = 0; i < sizeof(ResidentOp) / 16; ++i) to[i] = from[i];
    }
    kept->round = kept->leaves = 0;
    kept->asks = args.asks[args.rank].address;
    // The first workgroup's, which writes them.
    kept->heard = worker == 0 ? At(args.state)->heard : 0;
    kept->pauses = worker == 0 ? At(args.state)->pauses : 0;
    kept->meeting = reinterpret_cast<uint64_t>(meeting);
    kept->first = args.times.address != 0;
    kept->members = LoadFlag<Scope::kDevice>(&meeting->members[XccId()].values[0]);
    kept->xccs = xccs;
  }

  // What its ops have written is out, and the host is told.
  DEVICE static void EndRound(Group* group, const List& list, bool timed) {
    if (timed) TellTime(2 * list.count);
    group->Arrive<Scope::kSystem>();
    group->Await<Scope::kSystem>();
    if (timed) TellTime(2 * list.count + 1);
    if (group->worker != 0 || ThreadId() != 0) return;
    const Args& args = ArgumentsAgain<Args>();
    FenceRelease<Scope::kSystem>();
    const uint32_t number = At(args.state)->command.number, ran = ++At(args.state)->ran;
    StoreFlag<Scope::kSystem>(&At(args.mailbox)->ran[number % kResidentSlots], ResidentRan(number, ran));
    if (list.rounds == 1) StoreFlag<Scope::kSystem>(&At(args.mailbox)->done, number);
  }
  // The rounds that are left will not be.
  DEVICE static void BreakOff(uint32_t worker) {
    if (worker != 0 || ThreadId() != 0) return;
    const Args& args = ArgumentsAgain<Args>();
    At(args.state)->broken = 1;
    StoreFlag<Scope::kSystem>(&At(args.mailbox)->done, At(args.state)->command.number);
  }

  DEVICE static void TellTime(uint32_t place) {
    if (ThreadId() == 0) At(ReadArgumentsAgain<Args>().times)[place] = RealTime();
  }

  // Worker 0: waits for the next command that is to run, and copies it to where all find it.
  DEVICE static void TakeCommand() {
    if (ThreadId() != 0) return;
    const Args& args = ArgumentsAgain<Args>();
    const Global<ResidentMailbox> mailbox = At(args.mailbox);
    const Global<ResidentState> state = At(args.state);
    const Global<ResidentCommand> to = &state->command;
    while (true) {
      const uint32_t number = to->number + 1;
      const Global<ResidentCommand> from = &mailbox->commands[number % kResidentSlots];
      const bool here = AwaitCommand(args, from, number);
      to->count = here ? from->count : 0;
      if (to->count == 0) state->heard = LoadFlag<Scope::kSystem>(At(args.asks[args.rank]));
      if (!here) return;
      to->ops = from->ops;
      to->ends = from->ends;
      to->rounds = from->rounds;
      to->number = number;
      const uint32_t kind = from->kind;
      const bool left_out = kind == kFollows && state->broken != 0;
      if (kind == kBegins) state->broken = 0;
      state->ran = 0;
      if (to->count != 0 && !left_out) return;
      StoreFlag<Scope::kSystem>(&mailbox->done, number);
      if (to->count == 0) return;
    }
  }
  // False: it has not come, and the kernel ends.
  DEVICE static bool AwaitCommand(const Args& args, Global<ResidentCommand> from, uint32_t number) {
    const Global<ResidentMailbox> mailbox = At(args.mailbox);
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
    return here;
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
