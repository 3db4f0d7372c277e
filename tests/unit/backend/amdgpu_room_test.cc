// SPDX-License-Identifier: MIT
//
// Whether there is room for a kernel that stays: the sums, and who is told.
#include "backend/amdgpu/room.h"

#include <thread>

#include "absl/strings/match.h"
#include "base/clock.h"
#include "sim/open.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::amdgpu;

namespace {

struct Lines {
  std::vector<std::string> lines;
  static void Take(void* user, int32_t level, const char* line) {
    static_cast<Lines*>(user)->lines.push_back(std::to_string(level) + " " + line);
  }
  Log log() { return Log(Take, this, static_cast<int32_t>(LogLevel::kDebug)); }
};

// A group of two GPUs with a room that wants so many compute units of each.
struct Group {
  std::unique_ptr<Gpus> gpus;
  std::unique_ptr<Room> room;
  static StatusOr<Group> Open(std::shared_ptr<sim::SimSys> sys, uint32_t needed, Lines* lines) {
    Group group;
    ASSIGN_OR_RETURN(group.gpus, Gpus::OpenOn(std::move(sys), "", false, 0, lines->log()));
    group.room = std::make_unique<Room>(*group.gpus, std::vector<uint32_t>(2, needed));
    return group;
  }
};

std::shared_ptr<sim::SimSys> Machine() {
  auto sys = sim::OpenSim("gfx950x2");
  return sys.ok() ? std::shared_ptr<sim::SimSys>(std::move(*sys)) : nullptr;
}

// A machine with one such group.
struct Alone {
  Lines lines;
  std::shared_ptr<sim::SimSys> sys = Machine();
  StatusOr<Group> group;
  explicit Alone(uint32_t needed)
      : group(sys != nullptr ? Group::Open(sys, needed, &lines) : StatusOr<Group>(Error(Code::kInternal, "no machine"))) {}
  Room& room() { return *group->room; }
  sim::ProcessFiles& files() { return sys->node().process_files(); }
};

// Until an answer is this, or a while has passed.
bool Comes(Room* room, bool answer) {
  const int64_t until = NowNs() + 20'000'000'000;
  while (room->Look() != answer && NowNs() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return room->Look() == answer;
}

}  // namespace

TEST(a_wave_may_be_on_any_unit) {
  UnitBudget budget;
  budget.all = budget.needed = 256;
  budget.unit_waves = 32;
  CHECK(budget.fits());
  budget.taken = 1;  // up to 32 waves
  CHECK_EQ(budget.touched(), 32u);
  CHECK(!budget.fits());
  budget.needed = 224;
  CHECK(budget.fits());
  budget.held = 1;
  CHECK(!budget.fits());
  budget.taken = 200;
  CHECK_EQ(budget.touched(), 256u);
  budget.needed = 0;
  CHECK(budget.fits());
}

TEST(others_are_named_once_and_asked_again) {
  Alone alone(256);
  CHECK_OK(alone.group);
  Room& room = alone.room();
  const std::vector<std::string>& lines = alone.lines.lines;
  sim::ProcessFiles& files = alone.files();
  CHECK(room.Look());
  CHECK(lines.empty());
  files.Pretend(1, 1, "12\n");
  files.Pretend(2, 1, "8\n");
  files.Pretend(3, 1, "0\n");
  CHECK(Comes(&room, false));
  CHECK_EQ(lines.size(), 1u);
  CHECK(absl::StartsWith(lines[0], "2 "));  // a warning
  for (const char* part : {"gpu 1 (gfx950", "needs 256 of 256 compute units", "2 other processes", "fill 20,", "may be on 256"}) {
    CHECK(absl::StrContains(lines[0], part));
  }
  // An answer stands for a while.
  const int64_t refused = NowNs();
  CHECK(!room.Look());
  files.Leave(1);
  files.Leave(2);
  CHECK(Comes(&room, true));
  CHECK_LT(NowNs() - refused, 20'000'000'000);
  CHECK_EQ(lines.size(), 2u);
  CHECK(absl::StrContains(lines[1], "has room again"));
}

TEST(nonsense_and_nothing_are_no_reason) {
  Alone alone(256);
  CHECK_OK(alone.group);
  Room& room = alone.room();
  sim::ProcessFiles& files = alone.files();
  files.Pretend(1, 0, "12\n");
  CHECK(Comes(&room, false));
  files.Pretend(1, 0, "twelve, or so\n");
  CHECK(Comes(&room, true));
  files.Pretend(1, 0, "12\n");
  CHECK(Comes(&room, false));
  files.Hide(true);
  CHECK(Comes(&room, true));
}

TEST(groups_of_one_process_do_not_get_the_same_units) {
  Lines lines;
  auto sys = Machine();
  CHECK(sys != nullptr);
  auto first = Group::Open(sys, 200, &lines), second = Group::Open(sys, 100, &lines), third = Group::Open(sys, 56, &lines);
  CHECK_OK(first);
  CHECK_OK(second);
  CHECK_OK(third);
  CHECK(first->room->Look());
  CHECK(!second->room->Look());
  CHECK_EQ(lines.lines.size(), 1u);
  CHECK(absl::StrContains(lines.lines[0], "another group of this process holds 200"));
  CHECK(third->room->Look());
  // Engines of one group take turns.
  Room beside(*first->gpus, {200, 200});
  CHECK(beside.Look());
  first->room.reset();
  CHECK(!second->room->Look());
  // Of another machine nothing is taken.
  auto other = Machine();
  CHECK(other != nullptr);
  auto elsewhere = Group::Open(other, 256, &lines);
  CHECK_OK(elsewhere);
  CHECK(elsewhere->room->Look());
}
