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
    args.turn = turn;
    args.patience = 3;
  });
}

Bytes MailboxBytes(const ResidentMailbox& mailbox) {
  Bytes out(sizeof(mailbox));
  std::memcpy(out.data(), &mailbox, sizeof(mailbox));
  return out;
}

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
  Bytes state_bytes(sizeof(state)), tail(sizeof(state) - 2 * sizeof(ResidentMeeting));
  std::memcpy(state_bytes.data(), &state, sizeof(state));
  std::memcpy(tail.data(), &left.command, tail.size());
  out.buffers = {{"mailbox", MailboxBytes(before), 0, Home::kHost}, {"state", state_bytes}, {"times", Bytes(64, 0xee), 0, Home::kHost}};
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

}  // namespace

std::vector<Case> ResidentCases() {
  std::vector<Case> all;
  for (const std::string kernel : {"resident", "resident_large"}) {
    all.push_back(ResidentCase(kernel, 1, 1, true));
    all.push_back(ResidentCase(kernel, 5, 0xfffffff0, true));
    all.push_back(ResidentCase(kernel, 8, 7, false));
  }
  all.push_back(ResidentCase("resident", 13, 1, true));
  return all;
}

}  // namespace mainarch::kernels_test
