// SPDX-License-Identifier: MIT
//
// The resident kernel's arguments and what it and the host tell each other, host and device. It stays
// on the GPU and runs lists of launches, one behind the other, as the host posts them: every op's own
// machine code, of a second copy of the image in which each kernel's end is a jump back
// (backend/amdgpu/threaded.h).
//
// Who may stop when: the host counts commands, the kernel takes them in that order and looks for the
// next one `patience` times. Then it says in `left` which one it has not got, looks once more, and
// ends. The host, having posted a command, looks at `left`, and launches the kernel again where that
// is the command's number: one of the two has seen the other. When both have, the second launch waits
// behind the first and goes on from what that one has left in `ResidentState::command`.
//
// A command may have rounds: its list runs again, without a word of the host, until they are over or
// one of its launches says that there is none (decoder_args.h StepHeader). The host sees each one end.
// A command that takes up what the last round has left does not run where that one has not.
//
// A pause: in the midst of a round the kernel leaves before an op, and the next launch goes on with it. Where
// ranks wait for each other all must leave before the same op. The host asks the first rank, which looks while
// it meets for op i and tells the others: before op `stop_at` of i (backend/amdgpu/resident_lists.h says why all
// have heard it by then). Each rank's first workgroup flags its arrival there, and the XCDs tell each other
// that all leave. What is asked between two commands is answered by an end, which the host posts beside it.
#ifndef MAINARCH_KERNELS_RESIDENT_ARGS_H_
#define MAINARCH_KERNELS_RESIDENT_ARGS_H_

#include "kernels/args.h"
#include "kernels/decoder_args.h"

namespace mainarch::kernels {

// What an op finds: LDS, behind which lies what the resident kernel keeps between ops, and registers.
// `resident` has what two workgroups a compute unit can have; attention to latents wants more, and runs in
// `resident_large`, of which there is one.
struct ResidentRoom {
  uint32_t op_lds, vgprs, agprs;  // registers of each kind
};
inline constexpr ResidentRoom kResidentRoom = {24576, 256, 0};
inline constexpr ResidentRoom kResidentLargeRoom = {45568, 256, 88};
inline constexpr uint32_t kResidentKept = 192;  // bytes of LDS

// Of what an op reads first, a workgroup: two of them a compute unit fit an XCD's L2 of 4 MiB.
inline constexpr uint32_t kResidentReads = 49152;

// A launch: what a packet says of it.
struct ResidentOp {
  uint64_t code = 0;     // address of its first instruction
  uint64_t kernarg = 0;  // of its arguments, Kernarg<Args>, whose `workers` are those here
  uint32_t workers = 0;  // workgroups, at most those of the resident kernel
  uint16_t beside = 0;   // not 0: it needs nothing of the op before
  uint16_t stop_at = 0;  // of the list, before which all leave whose first rank is asked at this one; 0: not asked
  uint32_t code_bytes = 0;
  uint16_t kernarg_bytes = 0;
  uint16_t first = 0;  // workgroup of the resident kernel that is the launch's first
  // What workgroup n of the launch reads whatever came before (weights): so many bytes at `reads` + n * reads_stride,
  // which are brought into its L2 while it waits.
  uint64_t reads = 0;
  uint32_t reads_stride = 0, reads_bytes = 0;
};
static_assert(sizeof(ResidentOp) == 48);

enum ResidentKind : uint32_t {
  kBegins = 0,  // needs nothing of the command before
  kFollows = 1, // is left out if that has ended early, or was left out
  kBeside = 2,  // is no step: what follows it follows what was before it
};

// The host writes `number` last, with all else before it.
struct ResidentCommand {
  uint64_t ops = 0;     // address of ResidentOp [count]
  uint64_t ends = 0;    // where rounds > 1: of a word that is kNoRound behind the first op of one that is none
  uint16_t count = 0;   // 0: end
  uint16_t rounds = 1;  // at most 255
  uint32_t kind = kBegins;
  uint32_t reserved = 0;
  uint32_t number = 0;  // of the command; the first is 1
};
static_assert(sizeof(ResidentCommand) == 32);
inline constexpr uint32_t kResidentSlots = 4;  // command n is in slot n mod 4

// Of a command, how many rounds have ended: one word, so that nobody sees half of it.
constexpr uint32_t ResidentRan(uint32_t number, uint32_t rounds) { return number << 8 | rounds; }

// In host memory, that of each GPU in lines of its own.
struct ResidentMailbox {
  ResidentCommand commands[kResidentSlots];
  uint32_t done = 0;  // number of the last command that has ended; what it wrote is seen by all
  uint32_t left = 0;  // of the command that the kernel did not wait for
  uint32_t late = 0;  // commands that were not there when the kernel first looked
  uint32_t recall = 0;  // of the command that shall have no more rounds; the first rank's counts
  uint32_t ran[kResidentSlots] = {};  // ResidentRan
  uint32_t paused = 0;  // how often it has left in the midst of a command; each wants a launch, or the rest done without
  uint32_t reserved[23] = {};
};
static_assert(sizeof(ResidentMailbox) == 256);

// A line of its own: a counter, or what each XCD has told another.
inline constexpr uint32_t kResidentXccs = 8;
struct ResidentLine {
  uint32_t values[kResidentXccs] = {};
  uint32_t reserved[24] = {};
};

// Where a launch goes on that comes behind a pause.
struct ResidentResume {
  uint64_t ops = 0, ends = 0;  // ResidentCommand
  uint32_t work = 0;           // ops of the list, and in the upper half the rounds that are left; 0: there was no pause
  uint32_t next = 0;           // op
  uint32_t reserved[26] = {};
};
static_assert(sizeof(ResidentResume) == sizeof(ResidentLine));

// Which workgroup is which. Ops have from one workgroup up, mostly fewer than there are: so numbers are dealt by where a
// workgroup finds itself. First come those that were the first on their compute unit, then those that were the second, and
// so on; of these XCDs take turns, each in the order of its compute units. Nothing is assumed of how a launch is spread,
// nor of XCDs being alike.
inline constexpr uint32_t kResidentLayers = 8;   // a compute unit has 32 waves at most
inline constexpr uint32_t kResidentUnits = 256;  // numbers that a compute unit of an XCD may have (kernels/common/wave.h, UnitId)
struct ResidentPlaces {
  ResidentLine layers[kResidentLayers];  // [l][x]: compute units of XCD x that have more than l workgroups
  uint32_t units[kResidentXccs][kResidentUnits] = {};  // workgroups of each
};
// Of a layer's workgroups on XCD `other`, `count` in all, those that come before the one of XCD `xcc` that has `before`
// of its own XCD before it.
constexpr uint32_t ResidentBefore(uint32_t xcc, uint32_t before, uint32_t other, uint32_t count) {
  return count <= before ? count : before + (other < xcc ? 1 : 0);
}

// Where the workgroups of one launch meet: those of an XCD, whose last one then tells every XCD that
// all of them are there. All zeros at its beginning, but for what the launch before has left in `resume`.
struct ResidentMeeting {
  ResidentLine started;                 // [0]: workgroups that have been counted
  ResidentLine members[kResidentXccs];  // [0]: workgroups on each XCD
  ResidentLine arrived[kResidentXccs];  // [0], 64 bits: at meetings, since the launch began; and kResidentLeaves
  ResidentLine told[kResidentXccs];     // [from]: ResidentMet of the last meeting at which all of XCD `from` were
  ResidentResume resume;
  ResidentPlaces places;
};
static_assert(sizeof(ResidentMeeting) == 128 * (2 + 3 * kResidentXccs) + sizeof(ResidentPlaces));
inline constexpr uint64_t kResidentLeaves = uint64_t{1} << 63;  // set in the count by who says that all leave
constexpr uint32_t ResidentMet(uint32_t round, bool leaves) { return 2 * round + (leaves ? 1 : 0); }

// In the GPU's memory, zeroed once. Launches use the two meetings by turns, and each makes zeros of
// the other one.
struct ResidentState {
  ResidentMeeting meetings[2];
  ResidentCommand command;  // the one that runs; its number the last that was taken
  uint32_t late = 0;
  uint32_t ran = 0;     // rounds of the command
  uint32_t broken = 0;  // not 0: the last step has ended early, or was left out
  uint32_t heard = 0;   // what was in ResidentArgs::asks when it last left
  uint32_t pauses = 0;
  uint32_t reserved[19] = {};
};
static_assert(sizeof(ResidentState) == 2 * sizeof(ResidentMeeting) + 128);

struct ResidentArgs {
  Address<ResidentMailbox> mailbox;
  Address<ResidentState> state;
  // Null, or where the first workgroup says when it was ready for each op of the command and when all
  // were, and the same of the end: ticks of 10 ns, [count + 1][2].
  Address<uint64_t> times;
  uint32_t turn = 0;      // which of the meetings
  uint32_t patience = 0;  // how often it looks for a command, at least once
  // A word in each rank's memory, uncached. The first rank's is the host's: another number is another ask for a
  // pause. The others' are the first rank's: ResidentStop.
  Address<uint32_t> asks[kMaxRanks];
  uint32_t rank = 0, ranks = 1;
};
static_assert(sizeof(ResidentArgs) == 104);
// Of a pause, counted from 1, the op.
constexpr uint32_t ResidentStop(uint32_t pause, uint32_t stop_at) { return pause << 16 | stop_at; }

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_RESIDENT_ARGS_H_
