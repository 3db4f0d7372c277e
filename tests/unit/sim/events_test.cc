// SPDX-License-Identifier: MIT
#include "sim/events.h"

#include <cerrno>
#include <thread>
#include <vector>

#include "support/test.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

struct Table {
  EventTable events{17};
  std::vector<uint64_t> page = std::vector<uint64_t>(4096);
  Table() { events.SetPage(reinterpret_cast<uint8_t*>(page.data()), 4096); }
  uint32_t Make(uint32_t type = uapi::kEventSignal, bool auto_reset = true) {
    uint32_t id = 0, slot = 0;
    events.Create(type, auto_reset, &id, &slot);
    return id;
  }
  // The result of a wait that does not block, or a negative errno.
  int Poll(std::vector<uint32_t> ids, bool all = false, uint64_t age = 0) {
    std::vector<uapi::EventData> data(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      data[i].event_id = ids[i];
      data[i].signal_event_data.last_event_age = age;
    }
    uint32_t timeout = 0, result = 99;
    const int error = events.Wait(absl::MakeSpan(data), all, &timeout, &result);
    return error != 0 ? error : static_cast<int>(result);
  }
};

TEST(ids_are_slots_for_signals_and_large_for_the_others) {
  Table table;
  CHECK_EQ(table.Make(), 1u);
  CHECK_EQ(table.Make(), 2u);
  CHECK_EQ(table.Make(uapi::kEventMemory), uapi::kFirstNonSignalEventId);
  CHECK_EQ(table.events.Destroy(1), 0);
  CHECK_EQ(table.Make(), 1u);
  for (uint32_t i = 3; i < 4096; ++i) CHECK_EQ(table.Make(), i);
  uint32_t id = 0, slot = 0;
  CHECK_EQ(table.events.Create(uapi::kEventSignal, true, &id, &slot), -ENOSPC);
  CHECK_EQ(table.events.Destroy(5000), -EINVAL);
  CHECK_EQ(table.events.Set(uapi::kFirstNonSignalEventId), -EINVAL);
  CHECK_EQ(table.events.Reset(uapi::kFirstNonSignalEventId), -EINVAL);
}

TEST(auto_reset_wakes_one_waiter_and_manual_all) {
  Table table;
  const uint32_t once = table.Make(), always = table.Make(uapi::kEventSignal, false);
  CHECK_EQ(table.events.Set(once), 0);
  CHECK_EQ(table.events.Set(always), 0);
  CHECK_EQ(table.Poll({once}), 0);
  CHECK_EQ(table.Poll({once}), 1);
  CHECK_EQ(table.Poll({always}), 0);
  CHECK_EQ(table.Poll({always}), 0);
  CHECK_EQ(table.events.Reset(always), 0);
  CHECK_EQ(table.Poll({always}), 1);
  CHECK_EQ(table.Poll({once, 77}), -EINVAL);
  CHECK_EQ(table.Poll({}), 0);
}

TEST(an_interrupt_needs_a_written_slot_and_a_bad_id_wakes_all_written) {
  Table table;
  const uint32_t a = table.Make(), b = table.Make(), c = table.Make();
  table.events.Interrupt(a, 32);
  CHECK_EQ(table.Poll({a}), 1);  // no mailbox was written
  table.page[a] = a;
  CHECK_EQ(table.Poll({a}), 1);  // nor is a mailbox alone enough
  table.events.Interrupt(a, 32);
  CHECK_EQ(table.Poll({a}), 0);
  CHECK_EQ(table.page[a], ~uint64_t{0});
  table.page[a] = a;
  table.page[c] = 0xffffffff00000000 | c;  // a 32-bit fence into the slot
  table.events.Interrupt(4000, 28);
  CHECK_EQ(table.Poll({a}), 0);
  CHECK_EQ(table.Poll({b}), 1);
  CHECK_EQ(table.Poll({c}), 0);
}

TEST(the_age_tells_of_a_missed_edge) {
  Table table;
  const uint32_t id = table.Make();
  CHECK_EQ(table.Poll({id}, false, 1), 1);
  CHECK_EQ(table.events.Set(id), 0);
  CHECK_EQ(table.Poll({id}), 0);
  CHECK_EQ(table.Poll({id}), 1);
  CHECK_EQ(table.Poll({id}, false, 1), 0);  // it was 1, now it is 2
  CHECK_EQ(table.Poll({id}, false, 2), 1);
}

TEST(waiting_for_all_gathers_them_one_by_one) {
  Table table;
  const uint32_t a = table.Make(), b = table.Make();
  std::vector<uapi::EventData> data(2);
  data[0].event_id = a;
  data[1].event_id = b;
  uint32_t timeout = 20000, result = 99;
  std::thread setter([&] {
    table.events.Set(a);
    table.events.Set(b);
  });
  const int error = table.events.Wait(absl::MakeSpan(data), true, &timeout, &result);
  setter.join();
  CHECK_EQ(error, 0);
  CHECK_EQ(result, uapi::kWaitComplete);
}

TEST(an_interrupted_wait_says_how_much_time_is_left) {
  Table table;
  const uint32_t id = table.Make();
  std::vector<uapi::EventData> data(1);
  data[0].event_id = id;
  uint32_t timeout = 60000, result = 99;
  std::thread other([&] { table.events.InterruptWait(); });
  const int error = table.events.Wait(absl::MakeSpan(data), false, &timeout, &result);
  other.join();
  CHECK_EQ(error, -EINTR);
  CHECK_GT(timeout, 30000u);
  CHECK_LE(timeout, 60000u);
}

TEST(an_event_destroyed_under_a_waiter_fails_the_wait) {
  Table table;
  const uint32_t id = table.Make();
  std::vector<uapi::EventData> data(1);
  data[0].event_id = id;
  uint32_t timeout = uapi::kTimeoutInfinite, result = 99;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    table.events.Destroy(id);
  });
  const int error = table.events.Wait(absl::MakeSpan(data), false, &timeout, &result);
  other.join();
  CHECK(error == -EIO || error == -EINVAL);
  CHECK_EQ(result, uapi::kWaitFail);
}

}  // namespace
}  // namespace mainarch::sim
