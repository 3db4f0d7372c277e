// SPDX-License-Identifier: MIT
//
// The resident kernel by itself: what it does with its mailbox, and that its workgroups meet. What it
// jumps into is the backend's to load: tests/unit/backend/amdgpu_resident_test.cc.
#include "kernels/resident_args.h"

#include "unit/kernels/case.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

LaunchSpec ResidentLaunch(const std::string& kernel, uint32_t workgroups, uint32_t turn) {
  return MakeLaunch<ResidentArgs>(kernel, workgroups, [=](ResidentArgs& args, const Addresses& at) {
    args.mailbox = at.Of<ResidentMailbox>("mailbox");
    args.state = at.Of<ResidentState>("state");
    args.times = at.Of<uint64_t>("times");
    args.asks[0] = at.Of<uint32_t>("asks");
    args.turn = turn;
    args.patience = 3;
  });
}

Bytes MailboxBytes(const ResidentMailbox& mailbox) {
  Bytes out(sizeof(mailbox));
  std::memcpy(out.data(), &mailbox, sizeof(mailbox));
  return out;
}

constexpr uint32_t kAsk = 9;

// Two launches behind each other find command `first` in the mailbox, the end, or nothing.
Case ResidentCase(const std::string& kernel, uint32_t workgroups, uint32_t first, bool posted) {
  Case out;
  out.name = absl::StrCat(kernel, ", ", workgroups, " workgroups, command ", first, posted ? ", posted" : ", never posted");
  out.bound = "exact";
  ResidentMailbox before, after;
  if (posted) before.commands[first % kResidentSlots].number = first;
  after = before;
  // The first launch takes the end; the second waits for what nobody posts. Or neither finds any.
  after.done = posted ? first : 0;
  after.left = posted ? first + 1 : first;
  after.late = posted ? 1 : 2;
  ResidentState state, left;
  state.command.number = first - 1;
  left = state;
  left.command.number = posted ? first : first - 1;
  left.late = after.late;
  left.heard = kAsk;
  Bytes state_bytes(sizeof(state)), tail(sizeof(state) - 2 * sizeof(ResidentMeeting));
  std::memcpy(state_bytes.data(), &state, sizeof(state));
  std::memcpy(tail.data(), &left.command, tail.size());
  out.buffers = {{"mailbox", MailboxBytes(before), 0, Home::kHost}, {"state", state_bytes}, {"times", Bytes(64, 0xee), 0, Home::kHost},
                 {"asks", ToBytes<uint32_t>({kAsk})}};
  out.steps = {{ResidentLaunch(kernel, workgroups, 0)}, {ResidentLaunch(kernel, workgroups, 1)}};
  const auto same_tail = [tail](absl::Span<const uint8_t> bytes) -> std::string {
    const auto end = bytes.subspan(2 * sizeof(ResidentMeeting));
    if (std::equal(tail.begin(), tail.end(), end.begin())) return "";
    return "command and count of those that were late differ";
  };
  // The second launch has made zeros of the first one's meeting.
  const auto first_is_zero = [](absl::Span<const uint8_t> bytes) -> std::string {
    const auto meeting = bytes.first(sizeof(ResidentMeeting));
    return std::all_of(meeting.begin(), meeting.end(), [](uint8_t b) { return b == 0; }) ? "" : "a counter is left";
  };
  out.expectations = {Exactly("mailbox", MailboxBytes(after)), {"state", same_tail}, {"state", first_is_zero},
                      Exactly("times", Bytes(64, 0xee))};
  return out;
}

// The first launch is asked for a pause at the third op of a command's first round and leaves before the fifth; the
// second goes on there, runs the second round, and takes the end. Ops of no workgroups, so nothing is jumped into.
Case PauseCase(const std::string& kernel, uint32_t workgroups, uint32_t number) {
  constexpr uint32_t kOps = 7, kAskedAt = 2, kStopAt = 4;
  Case out;
  out.name = absl::StrCat(kernel, ", ", workgroups, " workgroups, a pause of command ", number);
  out.bound = "exact";
  std::vector<ResidentOp> ops(kOps);
  ops[3].beside = 1;
  for (uint32_t i = kAskedAt; i < kStopAt; ++i) ops[i].stop_at = static_cast<uint16_t>(kStopAt + i - kAskedAt);
  const auto mailbox = [=](const Addresses& at) {
    ResidentMailbox made;
    ResidentCommand& command = made.commands[number % kResidentSlots];
    command.ops = at.Of<ResidentOp>("ops").address;
    command.ends = at.Of<uint32_t>("ends").address;
    command.count = kOps;
    command.rounds = 2;
    command.number = number;
    made.commands[(number + 1) % kResidentSlots].number = number + 1;
    return MailboxBytes(made);
  };
  ResidentState state;
  state.command.number = number - 1;
  state.heard = kAsk - 1;
  state.pauses = 0xffff;
  Bytes state_bytes(sizeof(state));
  std::memcpy(state_bytes.data(), &state, sizeof(state));
  out.buffers = {{"mailbox", Bytes(sizeof(ResidentMailbox)), 0, Home::kHost, mailbox},
                 {"state", state_bytes},
                 {"times", Bytes(16 * (kOps + 1), 0xee), 0, Home::kHost},
                 {"asks", ToBytes<uint32_t>({kAsk})},
                 {"ops", ToBytes(ops)},
                 {"ends", ToBytes<uint32_t>({0, 0})}};
  out.steps = {{ResidentLaunch(kernel, workgroups, 0)}, {ResidentLaunch(kernel, workgroups, 1)}};
  const auto told = [=](absl::Span<const uint8_t> bytes) -> std::string {
    ResidentMailbox got;
    std::memcpy(&got, bytes.data(), sizeof(got));
    const uint32_t ran = got.ran[number % kResidentSlots];
    if (got.paused == 0x10000 && got.done == number + 1 && got.late == 0 && ran == ResidentRan(number, 2)) return "";
    return absl::StrCat("pauses ", got.paused, ", done ", got.done, ", late ", got.late, ", ran ", ran);
  };
  // Meetings of the second launch: for three ops and the round's end; for five ops, the first one having none, and the
  // end; for the command.
  const auto went_on = [=](absl::Span<const uint8_t> bytes) -> std::string {
    ResidentState got;
    std::memcpy(&got, bytes.data(), sizeof(got));
    uint64_t met = 0;
    for (const ResidentLine& line : got.meetings[1].arrived) met += line.values[0] + line.values[1];
    if (met == 11 * workgroups && got.meetings[1].resume.next == kStopAt && got.heard == kAsk && got.pauses == 0x10000 &&
        got.command.number == number + 1) {
      return "";
    }
    return absl::StrCat(met, " arrivals of ", workgroups, " workgroups, from op ", got.meetings[1].resume.next,
                        " on; heard ", got.heard, ", pauses ", got.pauses);
  };
  out.expectations = {{"mailbox", told}, {"state", went_on}};
  return out;
}

}  // namespace

std::vector<Case> ResidentCases() {
  std::vector<Case> all;
  for (const std::string kernel : {"resident", "resident_large"}) {
    all.push_back(ResidentCase(kernel, 1, 1, true));
    all.push_back(ResidentCase(kernel, 5, 0xfffffff0, true));
    all.push_back(ResidentCase(kernel, 8, 7, false));
    all.push_back(PauseCase(kernel, 1, 5));
    all.push_back(PauseCase(kernel, 7, 0xffffffff));
  }
  all.push_back(ResidentCase("resident", 13, 1, true));
  return all;
}

}  // namespace mainarch::kernels_test
