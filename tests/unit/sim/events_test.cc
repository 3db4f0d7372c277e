// SPDX-License-Identifier: MIT
#include "sim/events.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "support/test.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

struct Table {
  EventTable events;
  std::vector<uint64_t> page = std::vector<uint64_t>(4096);
  explicit Table(uint32_t nudge_ms = 0) : events(17, nudge_ms) {
    events.SetPage(reinterpret_cast<uint8_t*>(page.data()), 4096);
  }
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

// Sleeps on `id` in a thread until it is set.
struct Sleeper {
  EventTable& events;
  uint32_t id;
  uint32_t timeout = 600000;
  uint32_t result = 99;
  int error = 99;
  std::atomic<bool> begun{false}, over{false};
  std::thread thread{[this] {
    std::vector<uapi::EventData> data(1);
    data[0].event_id = id;
    begun = true;
    error = events.Wait(absl::MakeSpan(data), false, &timeout, &result);
    over = true;
  }};
  Sleeper(EventTable& table, uint32_t event) : events(table), id(event) {}
};

void Pause(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// AMD's runtime destroys a queue so: its own thread and the caller sleep on the queue's event, and
// each waits for what the other does when woken. The one who comes late must not take the wake-up
// of the one who slept.
TEST(everybody_who_sleeps_on_an_event_wakes_and_a_late_comer_takes_nothing) {
  for (int round = 0; round < 50; ++round) {
    Table table;
    const uint32_t id = table.Make();
    Sleeper first(table.events, id), second(table.events, id);
    while (!first.begun || !second.begun) std::this_thread::yield();
    Pause(2);
    CHECK_EQ(table.events.Set(id), 0);
    const int late = table.Poll({id});
    const bool both_slept = late == static_cast<int>(uapi::kWaitTimeout);
    if (!both_slept) table.events.Set(id);  // a sleeper was not asleep yet: the event stayed set
    first.thread.join();
    second.thread.join();
    CHECK_EQ(first.error, 0);
    CHECK_EQ(second.error, 0);
    CHECK_EQ(first.result, uapi::kWaitComplete);
    CHECK_EQ(second.result, uapi::kWaitComplete);
    CHECK_LT(50000u, first.timeout);  // woken, not timed out
  }
}

// How that runtime (5.2.3) loses a wake-up, step by step, and what it would take not to. The
// inactive signals of all its queues share one event, so its thread and the caller come to sleep on
// one event though each is the first sleeper of its own signal. The thread sets the event while the
// caller is on its way into the wait, comes back, and takes what it has set itself.
TEST(a_wake_up_that_nobody_slept_for_goes_to_the_first_that_comes) {
  for (const uint32_t nudge_ms : {0u, 20u}) {
    Table table(nudge_ms);
    const uint32_t other = table.Make(), shared = table.Make();
    table.events.Set(shared);                                            // nobody sleeps
    CHECK_EQ(table.Poll({other, shared}), int{uapi::kWaitComplete});     // the thread is back
    CHECK_EQ(table.Poll({shared}), int{uapi::kWaitTimeout});             // the caller comes late
    CHECK_EQ(table.Poll({shared}, false, 1), int{uapi::kWaitComplete});  // it knew the age
    std::vector<uapi::EventData> data(1);
    data[0].event_id = shared;
    uint32_t timeout = nudge_ms == 0 ? 60 : 600'000, result = 99;
    CHECK_EQ(table.events.Wait(absl::MakeSpan(data), false, &timeout, &result), 0);
    CHECK_EQ(result, nudge_ms == 0 ? uapi::kWaitTimeout : uapi::kWaitComplete);
  }
}

void OnSignal(int) {}

// A signal handler of the program's own runs on the thread that waits: the wait says so, says how
// much time is left, and loses no event.
TEST(a_real_signal_interrupts_a_wait_and_loses_nothing) {
  struct sigaction action = {}, old = {};
  action.sa_handler = OnSignal;
  CHECK_EQ(sigaction(SIGUSR1, &action, &old), 0);
  {
    Table table;
    const uint32_t id = table.Make();
    Sleeper sleeper(table.events, id);
    while (!sleeper.over) {  // it may come before the thread sleeps; that one counts for nothing
      pthread_kill(sleeper.thread.native_handle(), SIGUSR1);
      Pause(1);
    }
    sleeper.thread.join();
    CHECK_EQ(sleeper.error, -EINTR);
    CHECK_EQ(sleeper.result, uapi::kWaitFail);
    CHECK_LT(30000u, sleeper.timeout);
    CHECK_LT(sleeper.timeout, 600000u);
  }
  {
    // Both events are set while the third is waited for; the interrupted wait gives them back.
    Table table;
    const uint32_t a = table.Make(), b = table.Make(), c = table.Make();
    table.events.Set(a);
    table.events.Set(b);
    std::vector<uapi::EventData> data(3);
    data[0].event_id = a;
    data[1].event_id = b;
    data[2].event_id = c;
    uint32_t timeout = 60000, result = 99;
    table.events.InterruptWait();
    CHECK_EQ(table.events.Wait(absl::MakeSpan(data), true, &timeout, &result), -EINTR);
    CHECK_EQ(table.Poll({a}), 0);
    CHECK_EQ(table.Poll({b}), 0);
  }
  sigaction(SIGUSR1, &old, nullptr);
}

TEST(events_taken_by_a_wait_that_times_out_are_gone_as_in_the_kernel) {
  Table table;
  const uint32_t a = table.Make(), b = table.Make();
  table.events.Set(a);
  CHECK_EQ(table.Poll({a, b}, true), 1);
  CHECK_EQ(table.Poll({a}), 1);
  table.events.Set(a);
  table.events.Set(b);
  CHECK_EQ(table.Poll({a, b}), 0);  // one would do; both were taken
  CHECK_EQ(table.Poll({b}), 1);
}

// A caller that waits for a minute may count on the time (kfdtest does).
TEST(a_nudge_leaves_short_waits_alone) {
  Table table(20);
  const uint32_t id = table.Make();
  std::vector<uapi::EventData> data(1);
  data[0].event_id = id;
  uint32_t timeout = 200, result = 99;
  CHECK_EQ(table.events.Wait(absl::MakeSpan(data), false, &timeout, &result), 0);
  CHECK_EQ(result, uapi::kWaitTimeout);
}

TEST(a_nudge_ends_a_wait_for_signals_and_no_other) {
  Table table(20);
  const uint32_t id = table.Make(), memory = table.Make(uapi::kEventMemory);
  Sleeper sleeper(table.events, id);
  sleeper.thread.join();
  CHECK_EQ(sleeper.error, 0);
  CHECK_EQ(sleeper.result, uapi::kWaitComplete);
  std::vector<uapi::EventData> data(1);
  data[0].event_id = memory;
  uint32_t timeout = 60, result = 99;
  CHECK_EQ(table.events.Wait(absl::MakeSpan(data), false, &timeout, &result), 0);
  CHECK_EQ(result, uapi::kWaitTimeout);
}

TEST(the_process_goes_only_when_nobody_sleeps_in_its_table) {
  for (int round = 0; round < 20; ++round) {
    auto table = std::make_unique<Table>();
    const uint32_t id = table->Make();
    Sleeper sleeper(table->events, id);
    while (!sleeper.begun) std::this_thread::yield();
    Pause(round % 3);
    table->events.Shutdown();
    sleeper.thread.join();
    CHECK_EQ(sleeper.error, -EIO);
  }
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
