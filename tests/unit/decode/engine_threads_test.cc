// SPDX-License-Identifier: MIT
//
// Submit, wait, cancel, the eventfd, calls from two threads at once, and fork(2).
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "base/clock.h"
#include "decode/engine_impl.h"
#include "support/engine_oracle.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

constexpr uint32_t kVocab = 40;

std::unique_ptr<Engine> MakeEngine(const test::FakeModel& model, uint32_t sequences) {
  EngineOptions o;
  o.max_sequences = sequences;
  o.max_sequence_tokens = 2000;
  o.max_step_tokens = 32;
  auto engine = CreateEngine(nullptr, model, {kVocab, 4000, {}}, o);
  return engine.ok() ? *std::move(engine) : nullptr;
}

SequenceId Start(Engine& engine, uint64_t seed) {
  SequenceOptions o;
  o.seed = seed;
  o.temperature = 1;
  const auto id = engine.Open(o);
  if (!id.ok() || !engine.Append(*id, {1, 2, 3}).ok()) return 0;
  return *id;
}

bool Readable(int fd) {
  pollfd poll_fd = {fd, POLLIN, 0};
  return poll(&poll_fd, 1, 0) == 1;
}

bool Same(Engine& engine, SequenceId id, uint64_t seed, size_t at_least) {
  SequenceOptions o;
  o.seed = seed;
  o.temperature = 1;
  test::OracleSequence oracle{o, kVocab, 2000, {}};
  oracle.Append({1, 2, 3});
  std::vector<uint32_t> out(3000);
  const auto n = engine.Take(id, absl::MakeSpan(out));
  if (!n.ok() || *n < at_least) return false;
  out.resize(*n);
  for (size_t i = 0; i < out.size(); ++i) oracle.Advance();
  return oracle.Take(out.size()) == out;
}

}  // namespace

TEST(submit_and_wait_step_like_run_step) {
  test::FakeModel model(kVocab);
  auto engine = MakeEngine(model, 2);
  CHECK(engine != nullptr);
  auto nothing = engine->Submit();
  CHECK_OK(nothing);
  CHECK(!*nothing);
  auto waited = engine->Wait(0);
  CHECK_OK(waited);
  CHECK(*waited);
  const SequenceId id = Start(*engine, 1);
  for (int i = 0; i < 20; ++i) {
    auto submitted = engine->Submit();
    CHECK_OK(submitted);
    CHECK(*submitted);
    CHECK(CodeOf(engine->Submit().status()) == Code::kBusy);
    CHECK(CodeOf(engine->RunStep().status()) == Code::kBusy);
    CHECK(CodeOf(engine->Append(id, {1})) == Code::kBusy);
    CHECK(CodeOf(engine->InfoOf(id).status()) == Code::kBusy);
    waited = engine->Wait(-1);
    CHECK_OK(waited);
    CHECK(*waited);
    CHECK(!Readable(engine->event_fd()));
  }
  CHECK(Same(*engine, id, 1, 20));
}

// What a caller sees of two engines, one over a backend that takes two steps in flight.
TEST(a_step_ahead_is_not_seen) {
  test::FakeModel one(kVocab), two(kVocab);
  two.control.in_flight = 2;
  auto plain = MakeEngine(one, 3), ahead = MakeEngine(two, 3);
  std::vector<SequenceId> ids[2];
  for (uint64_t seed = 1; seed < 4; ++seed) {
    ids[0].push_back(Start(*plain, seed));
    ids[1].push_back(Start(*ahead, seed));
  }
  for (int i = 0; i < 60; ++i) {
    CHECK_OK(plain->RunStep());
    if (i % 3 == 0) {
      CHECK_OK(ahead->Submit());
      CHECK_OK(ahead->Wait(-1));
    } else {
      CHECK_OK(ahead->RunStep());
    }
    if (i == 40) {
      CHECK_OK(plain->Truncate(ids[0][1], 20));
      CHECK_OK(ahead->Truncate(ids[1][1], 20));
    }
    const EngineInfo a = plain->info(), b = ahead->info();
    CHECK_EQ(a.kv_tokens_free, b.kv_tokens_free);
    CHECK_EQ(a.steps, b.steps);
    CHECK_EQ(a.rows, b.rows);
    CHECK_EQ(a.produced, b.produced);
    for (size_t s = 0; s < 3; ++s) {
      const auto want = plain->InfoOf(ids[0][s]), got = ahead->InfoOf(ids[1][s]);
      CHECK_OK(want);
      CHECK_OK(got);
      CHECK_EQ(want->position, got->position);
      CHECK_EQ(want->pending, got->pending);
      CHECK_EQ(want->tokens, got->tokens);
      const auto logits = ahead->Logits(ids[1][s]);
      const auto same = plain->Logits(ids[0][s]);
      CHECK_EQ(logits.ok(), same.ok());
      if (!same.ok()) continue;  // truncated
      CHECK(std::equal(logits->begin(), logits->end(), same->begin()));
    }
  }
  CHECK(Same(*ahead, ids[1][0], 1, 60));
  CHECK(Same(*ahead, ids[1][2], 3, 60));
  CHECK_EQ(plain->info().ahead, 0u);
  CHECK_GT(ahead->info().ahead, 30u);
  CHECK_EQ(two.control.Violations(), "");
}

TEST(a_cancelled_step_takes_the_one_ahead_with_it) {
  test::FakeModel model(kVocab);
  model.control.in_flight = 2;
  auto engine = MakeEngine(model, 2);
  const SequenceId id = Start(*engine, 7), other = Start(*engine, 8);
  uint64_t cancelled = 0;
  for (int i = 0; i < 200; ++i) {
    model.control.run_us = i % 4 * 100;
    const auto before = engine->InfoOf(id);
    CHECK_OK(before);
    CHECK_OK(engine->Submit());
    if (i % 3 == 0) engine->Cancel();
    const auto waited = engine->Wait(-1);
    const auto after = engine->InfoOf(id);
    CHECK_OK(after);
    cancelled += !waited.ok();
    if (!waited.ok()) CHECK(CodeOf(waited.status()) == Code::kCancelled);
    CHECK_EQ(after->tokens, before->tokens + (waited.ok() ? 1 : 0));
  }
  CHECK_GT(cancelled, 10u);
  CHECK_GT(engine->info().ahead, 10u);
  CHECK(Same(*engine, id, 7, 100));
  CHECK(Same(*engine, other, 8, 100));
  CHECK_EQ(model.control.Violations(), "");
  engine.reset();  // with a step in flight that nobody asked for
}

TEST(the_eventfd_is_readable_from_the_end_of_a_step_to_wait) {
  test::FakeModel model(kVocab);
  auto engine = MakeEngine(model, 2);
  Start(*engine, 1);
  for (int i = 0; i < 50; ++i) {
    CHECK_OK(engine->Submit());
    pollfd poll_fd = {engine->event_fd(), POLLIN, 0};
    CHECK_EQ(poll(&poll_fd, 1, 10'000), 1);
    auto waited = engine->Wait(0);  // readable means done
    CHECK_OK(waited);
    CHECK(*waited);
    CHECK(!Readable(engine->event_fd()));
  }
}

TEST(wait_times_out_and_can_be_called_again) {
  test::FakeModel model(kVocab);
  auto engine = MakeEngine(model, 2);
  Start(*engine, 1);
  model.control.run_us = 30'000;
  CHECK_OK(engine->Submit());
  auto waited = engine->Wait(0);
  CHECK_OK(waited);
  CHECK(!*waited);
  const int64_t start = NowNs();
  waited = engine->Wait(1'000'000);
  CHECK_OK(waited);
  CHECK(!*waited);
  CHECK_GE(NowNs() - start, 1'000'000);
  waited = engine->Wait(60'000'000'000);
  CHECK_OK(waited);
  CHECK(*waited);
}

TEST(cancel_ends_the_step_in_flight_and_only_that) {
  test::FakeModel model(kVocab);
  auto engine = MakeEngine(model, 2);
  const SequenceId id = Start(*engine, 7);
  engine->Cancel();  // nothing in flight: nothing happens
  CHECK_OK(engine->RunStep());
  model.control.run_us = 20'000'000;
  for (int i = 0; i < 5; ++i) {
    const int64_t start = NowNs();
    CHECK_OK(engine->Submit());
    if (i % 2 == 0) {
      while (!model.control.running) std::this_thread::yield();
    }
    engine->Cancel();
    const auto waited = engine->Wait(-1);
    CHECK(CodeOf(waited.status()) == Code::kCancelled);
    CHECK_LT(NowNs() - start, 10'000'000'000);
    const auto info = engine->InfoOf(id);
    CHECK_OK(info);
    CHECK_EQ(info->produced, 1u);
  }
  std::thread canceller([&] {
    while (!model.control.running) std::this_thread::yield();
    engine->Cancel();
  });
  CHECK(CodeOf(engine->RunStep().status()) == Code::kCancelled);
  canceller.join();
  model.control.run_us = 0;
  for (int i = 0; i < 10; ++i) CHECK_OK(engine->RunStep());
  CHECK(Same(*engine, id, 7, 11));
}

// The fake keeps a stop that comes after its last look, as a backend may: it must not hit the next
// step, and the step it was meant for is cancelled although its run succeeded.
TEST(a_cancel_at_the_very_end_of_a_run_counts_for_that_step_only) {
  test::FakeModel model(kVocab);
  auto engine = MakeEngine(model, 2);
  const SequenceId id = Start(*engine, 7);
  for (int i = 0; i < 5; ++i) {
    model.control.after_run = [&] { engine->Cancel(); };
    CHECK(CodeOf(engine->RunStep().status()) == Code::kCancelled);
    const auto info = engine->InfoOf(id);
    CHECK_OK(info);
    CHECK_EQ(info->produced, static_cast<uint64_t>(i));
    model.control.after_run = nullptr;
    CHECK_OK(engine->RunStep());
  }
  CHECK_EQ(model.control.runs.load(), 10);  // one a step: none was stopped by mistake and run again
  CHECK(Same(*engine, id, 7, 5));
}

TEST(destroying_an_engine_with_a_step_in_flight_ends_it) {
  test::FakeModel model(kVocab);
  for (int i = 0; i < 10; ++i) {
    auto engine = MakeEngine(model, 2);
    Start(*engine, 1);
    model.control.run_us = 20'000'000;
    CHECK_OK(engine->Submit());
    if (i % 2) {
      while (!model.control.running) std::this_thread::yield();
    }
    const int64_t start = NowNs();
    engine.reset();
    CHECK_LT(NowNs() - start, 10'000'000'000);
  }
}

TEST(a_second_thread_is_busy_not_corrupting) {
  test::FakeModel model(kVocab);
  auto engine = MakeEngine(model, 4);
  const SequenceId id = Start(*engine, 3);
  model.control.run_us = 50'000;
  std::thread runner([&] { (void)engine->RunStep(); });
  while (!model.control.running) std::this_thread::yield();
  CHECK(CodeOf(engine->RunStep().status()) == Code::kBusy);
  CHECK(CodeOf(engine->Append(id, {1})) == Code::kBusy);
  CHECK(CodeOf(engine->Open({}).status()) == Code::kBusy);
  CHECK_GT(engine->info().max_sequences, 0u);
  runner.join();
  CHECK(Same(*engine, id, 3, 1));
}

// One thread steps in every way, others cancel, look and try to get in between.
TEST(stress_of_submit_wait_cancel_and_info) {
  test::FakeModel model(kVocab);
  auto engine = MakeEngine(model, 4);
  std::vector<SequenceId> ids;
  for (uint64_t i = 0; i < 4; ++i) ids.push_back(Start(*engine, i));
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> seen{0};
  std::thread canceller([&] {
    std::mt19937 random(1);
    while (!stop) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      engine->Cancel();
    }
  });
  std::thread watcher([&] {
    while (!stop) {
      seen = engine->info().steps;
      const auto info = engine->InfoOf(ids[0]);
      if (!info.ok() && CodeOf(info.status()) != Code::kBusy) return;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  std::mt19937 random(2);
  uint64_t good = 0;
  uint64_t cancelled = 0;
  bool wrong = false;
  while (good < 300 && !wrong) {
    model.control.run_us = random() % 100;
    Status status;
    if (random() % 2) {
      status = engine->RunStep().status();
    } else {
      const auto submitted = engine->Submit();
      status = submitted.status();
      while (submitted.ok()) {
        const auto waited = engine->Wait(static_cast<int64_t>(random() % 3) * 20'000);
        status = waited.status();
        if (CodeOf(status) == Code::kBusy) continue;  // the watcher was inside
        if (!waited.ok() || *waited) break;
      }
    }
    if (status.ok()) ++good;
    if (CodeOf(status) == Code::kCancelled) ++cancelled;
    wrong = !status.ok() && CodeOf(status) != Code::kCancelled && CodeOf(status) != Code::kBusy;
  }
  stop = true;
  canceller.join();
  watcher.join();
  CHECK(!wrong);
  CHECK_GT(cancelled, 0u);
  CHECK_EQ(model.control.Violations(), "");
  for (uint64_t i = 0; i < 4; ++i) CHECK(Same(*engine, ids[i], i, 100));
}

#if !defined(__SANITIZE_THREAD__)  // its runtime does not survive a fork with threads
// Whether a page that the kernel promised to wipe in children is wiped: qemu-user 7 promises, and does nothing.
bool WipesPages() {
  const size_t size = static_cast<size_t>(getpagesize());
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  bool wiped = madvise(page, size, MADV_WIPEONFORK) != 0;  // no promise
  *static_cast<char*>(page) = 1;
  const pid_t child = fork();
  if (child == 0) _exit(*static_cast<volatile char*>(page));
  int status = 0;
  wiped |= waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  munmap(page, size);
  return wiped;
}

TEST(after_fork_every_call_says_so_and_destruction_does_not_hang) {
  if (!WipesPages()) return test_context.Skip("this kernel does not wipe pages on fork, though it says so");
  test::FakeModel model(kVocab);
  auto engine = MakeEngine(model, 2);
  const SequenceId id = Start(*engine, 1);
  CHECK_OK(engine->Submit());  // the step thread exists
  CHECK_OK(engine->Wait(-1));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const auto wrong = [](const Status& s) { return CodeOf(s) == Code::kWrongProcess; };
    uint32_t token = 0;
    engine->Cancel();
    const bool good = wrong(engine->Submit().status()) && wrong(engine->Wait(0).status()) &&
                      wrong(engine->RunStep().status()) && wrong(engine->Open({}).status()) &&
                      wrong(engine->Close(id)) && wrong(engine->Fork(id).status()) &&
                      wrong(engine->SetSeed(id, 1)) && wrong(engine->Truncate(id, 0)) &&
                      wrong(engine->Append(id, {1})) &&
                      wrong(engine->Take(id, {&token, 1}).status()) &&
                      wrong(engine->TakenLogprobs(id, 0).status()) &&
                      wrong(engine->Logits(id).status()) && wrong(engine->InfoOf(id).status());
    engine.reset();
    _exit(good ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
  CHECK_OK(engine->RunStep());
}
#endif
