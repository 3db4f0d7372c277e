// SPDX-License-Identifier: MIT
//
// The kernels of one context that stay on its GPUs, one a GPU, and run what is posted to them
// (kernels/resident_args.h): lists of launches, the same on every rank. A kernel is launched with the
// first command, and again whenever it has not waited for the next one or has paused; nothing else makes packets.
// While one is there nothing else of its queue runs: who submits there makes it leave first
// (Gpus::Claim). For packets it pauses in the midst of a command, on all ranks before the same op, and
// is resumed behind them by whoever waits for the command. Where there is no room for it then, the context runs the rest
// by packets (context_posted.cc): it asks where the kernels have left, tells of rounds and commands as they would, and
// says where the next ones go on.
//
// Threads: one at a time, but for Look, Moved and Paused; the group's mutex is held for all that posts.
#ifndef MAINARCH_BACKEND_AMDGPU_RESIDENT_H_
#define MAINARCH_BACKEND_AMDGPU_RESIDENT_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/amdgpu/gpus.h"
#include "backend/amdgpu/lower.h"
#include "backend/amdgpu/resident_lists.h"
#include "backend/amdgpu/room.h"
#include "isa/kernel_images.h"
#include "kernels/resident_args.h"

namespace mainarch::amdgpu {

// The least of kResidents that has room for a kernel; Unsupported says of what there is not enough, or that the
// kernel does not come back.
StatusOr<size_t> ResidentKindFor(const isa::KernelInfo& kernel);

class Resident : public QueueHolder {
 public:
  // `timed`: Times tells when ops began. The group's mutex is held.
  static StatusOr<std::unique_ptr<Resident>> Create(Gpus& gpus, size_t kind, uint32_t workers, bool timed);
  // Waits until no kernel is left. The mutex is not held, if one was launched.
  ~Resident() override;

  uint32_t workers() const { return workers_; }
  // A launch of `rank` as the kernel wants it, whose arguments lie at `kernarg`.
  StatusOr<kernels::ResidentOp> OpOf(int32_t rank, const Launch& launch, uint64_t kernarg) const;
  // All lists of a rank, once; rank by rank.
  Status SetLists(int32_t rank, std::vector<ResidentList> lists);

  // How a list is run: kernels::ResidentCommand. `ends`: of each rank, where rounds > 1.
  struct Work {
    kernels::ResidentKind kind = kernels::kBegins;
    uint32_t rounds = 1;
    std::array<uint64_t, kernels::kMaxRanks> ends = {};
  };
  // In front of whatever is posted or launched: the queues are its own (Gpus::Claim).
  Status Claim();
  // Whether a command to a rank would be written over one that has not ended.
  bool IsFull(int32_t rank) const { return !Reached(rank, ranks_[static_cast<size_t>(rank)].posted + 1 - kernels::kResidentSlots); }
  // Posts a list to a rank, which is not full; the command's number there. Ring lets kernels that were launched begin.
  StatusOr<uint64_t> Post(int32_t rank, size_t list, const Work& work) { return Post(rank, list, work, /*launches=*/true); }
  // The same where all kernels are over, and launches none: who posts does what is posted.
  StatusOr<uint64_t> PostAlone(int32_t rank, size_t list, const Work& work) { return Post(rank, list, work, /*launches=*/false); }
  // That the next one will have on the first rank.
  uint32_t next_number() const { return ranks_[0].posted + 1; }
  void Ring();
  // What has become of a round of a command; the first is 1. kRan: what it wrote is there.
  enum class Round { kRuns, kRan, kLeftOut };
  Round Look(int32_t rank, uint64_t number, uint32_t round) const;
  // The list posted last begins no more rounds. Any thread that holds the group's mutex.
  void Recall();
  // For the first rank's eyes.
  uint64_t recall() const;
  // The kernels end behind what has been posted, rounds apart; the queues' next packets run then. `pause`: before, if
  // they are in the midst of a step.
  Status Leave(bool pause) override;
  // All kernels have left in the midst of a command. Any thread.
  bool Paused() const;
  // They are launched again, behind what is in the queues. The group's mutex is held.
  Status Resume();

  // No kernel waits for a command any more; who posts launches them.
  bool left() const;
  // A command that is posted now, or one that a pause has interrupted, finds kernels, or room to launch them. The group's
  // mutex is held.
  bool HasRoom() { return AllAreThere() || room_.Look(); }

  // What follows is for who does without the kernels what is posted to them. A point of a rank's queue, behind which none
  // of its kernels is left, where any was launched.
  uint64_t point(int32_t rank) const { return ranks_[static_cast<size_t>(rank)].point; }
  // Where all kernels have left, and the next ones go on: behind command `number` of the first rank, or, where rounds of
  // it are left, in it before op `next`, having run `ran` rounds.
  struct Stand {
    uint32_t number = 0;
    uint32_t next = 0, rounds = 0, ran = 0;
    bool broken = false;  // ResidentState
  };
  // Behind those points; no pause wants a launch then.
  StatusOr<Stand> TakeStand();
  // What was posted, to the first rank: the list, and the rest of the command. None: an end.
  absl::optional<std::pair<size_t, kernels::ResidentCommand>> PostedAt(uint32_t number) const;
  uint32_t posted() const { return ranks_[0].posted; }
  // What kernels would say of a command's rounds, on all ranks; its number is the first rank's.
  void TellRan(uint32_t number, uint32_t rounds);
  void TellDone(uint32_t number);
  // The next kernels begin behind all that is posted. `broken`: as in Stand.
  Status GoOnBehind(bool broken);
  // Of a rank's memory.
  StatusOr<uint32_t> WordOf(int32_t rank, uint64_t at) const;

  // Another number whenever a command or a round of one has ended.
  uint64_t Moved(int32_t rank) const;
  uint32_t launches() const { return launches_; }  // in all, of one rank
  uint32_t pauses() const;
  // Commands that a kernel had to wait for, of the rank that waited most often.
  uint32_t late() const;
  // Of the last command, which ran that list: of each op, and of the end.
  StatusOr<std::vector<backend::OpTimes>> Times(int32_t rank, size_t list) const;
  // How often the workgroups of a rank have met since its kernel was launched, read by its copy engine.
  StatusOr<uint64_t> Meetings(int32_t rank) const;
  uint64_t memory_bytes() const { return memory_bytes_; }

 private:
  struct Rank {
    gpu::Buffer mailbox, state, lists, kernargs, times;
    gpu::Buffer copy;  // of the state, in host memory
    gpu::Buffer asks;  // one word: kernels::ResidentArgs::asks
    std::vector<kernels::ResidentCommand> commands;  // of each list
    gpu::AqlPacket packets[2];                       // of each turn
    uint32_t posted = 0;                             // number of the last command
    uint32_t launches = 0;
    uint32_t resumed = 0;  // pauses behind which it was launched
    uint64_t point = 0;  // of the queue, that the last launch completes
    bool there = false;  // unless it has left by itself
    bool rung = true;
  };

  // Of a step, at most.
  static constexpr uint32_t kMostOps = 8192;

  Resident(Gpus& gpus, size_t kind, uint32_t workers, std::vector<uint32_t> units, bool timed)
      : gpus_(gpus), kind_(kind), workers_(workers), timed_(timed), room_(gpus, std::move(units)) {}
  Status CreateRank(int32_t rank);
  Status CreateAsks();
  Status Ask();
  bool AllAreThere() const;
  // The number that a rank has given a command which has `number` on the first one. They differ where one rank's kernel
  // has taken an end that another has left before.
  uint32_t NumberOn(size_t rank, uint32_t number) const { return number + ranks_[rank].posted - ranks_[0].posted; }
  StatusOr<uint64_t> Post(int32_t rank, size_t list, const Work& work, bool launches);
  Status Start(Rank* rank, gpu::Queue* queue);
  kernels::ResidentMailbox* MailboxOf(int32_t rank) const;
  bool Reached(int32_t rank, uint64_t number) const;
  Status PostCommand(int32_t rank, kernels::ResidentCommand command, bool launches);

  Gpus& gpus_;
  const size_t kind_;  // of kResidents
  const uint32_t workers_;
  const bool timed_;
  Room room_;
  std::vector<Rank> ranks_;
  std::vector<ResidentList> first_lists_;  // of the first rank
  bool alike_ = true;                      // all ranks' lists are
  bool claimed_ = false;                   // ever
  uint32_t recalls_ = 0;                   // number of the list posted last
  uint32_t asks_ = 0;                      // for a pause
  uint32_t launches_ = 0;
  uint64_t memory_bytes_ = 0;
};

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_RESIDENT_H_
