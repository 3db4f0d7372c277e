// SPDX-License-Identifier: MIT
#include "decode/scheduler.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>

#include "model/kv_pages.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

// Sequences with real page tables; runs plans as the engine does, and checks each of them.
class Simulation {
 public:
  struct Request {
    uint64_t arrival = 0;
    uint64_t last_step = 0;
    uint64_t position = 0;
    uint64_t tokens = 0;  // held
    uint64_t until = 0;   // generates up to so many
    uint64_t first_run = 0;
    uint32_t preemptions = 0;
    bool evicted = false;
    model::PageTable table;
    bool done() const { return tokens >= until; }
  };

  Simulation(uint32_t rows, uint32_t pages, uint32_t slots)
      : rows_(rows), slots_(slots), pool_(pages), scheduler_(slots, pages) {}

  Request* Add(uint64_t prompt, uint64_t generate) {
    auto request = std::make_unique<Request>();
    request->arrival = ++arrivals_;
    request->tokens = prompt;
    request->until = prompt + generate;
    request->table = model::PageTable(&pool_, pool_.total());
    requests_.push_back(std::move(request));
    return requests_.back().get();
  }

  // "" or what is wrong with the plan.
  std::string Step(bool keep_finished) {
    ++step_;
    std::vector<SequenceView> views;
    uint64_t oldest = UINT64_MAX;
    for (auto& r : requests_) {
      views.push_back({r->arrival, r->last_step, r->position,
                       r->done() ? 0 : r->tokens - r->position, r->table.pages()});
      views.back().evicted = r->evicted;
      if (!r->done()) oldest = std::min(oldest, r->arrival);
    }
    if (views.size() > slots_) return "test holds too many requests";
    plan = scheduler_.Make(views, {rows_, pool_.free_pages(), pool_.refs()});
    if (oldest != UINT64_MAX && plan.chunks.empty()) return "work, but an empty plan";
    if (plan.kept.size() != plan.preempted.size()) return "who keeps what";
    for (size_t k = 0; k < plan.preempted.size(); ++k) {
      const uint32_t i = plan.preempted[k];
      if (!requests_[i]->done() && requests_[i]->arrival == oldest)
        return "the oldest is preempted";
      ++requests_[i]->preemptions;
      const uint64_t kept = uint64_t{plan.kept[k]} * backend::kPageTokens;
      requests_[i]->table.Truncate(kept);
      requests_[i]->position = std::min(requests_[i]->position, kept);
      requests_[i]->evicted = true;
    }
    uint64_t rows = 0;
    uint32_t last = 0;
    for (const Chunk& c : plan.chunks) {
      Request& r = *requests_[c.sequence];
      if (c.sequence < last) return "chunks out of order";
      last = c.sequence + 1;
      if (c.rows == 0 || c.rows > r.tokens - r.position) return "rows that are not pending";
      if (std::count(plan.preempted.begin(), plan.preempted.end(), c.sequence)) return "both";
      rows += c.rows;
      if (!r.table.Prepare(r.position, c.rows, [](uint32_t, uint32_t) { return OkStatus(); })
               .ok()) {
        return "pages are missing";
      }
      r.position += c.rows;
      r.evicted = false;
      r.last_step = step_;
      if (r.first_run == 0) r.first_run = step_;
      if (r.position == r.tokens) ++r.tokens;
    }
    if (rows > rows_) return "too many rows";
    if (!keep_finished) {
      for (auto& r : requests_) {
        if (r->done()) r->table.Truncate(0);
      }
    }
    return "";
  }

  bool AllDone() const {
    return std::all_of(requests_.begin(), requests_.end(), [](auto& r) { return r->done(); });
  }
  size_t Waiting() const {
    return std::count_if(requests_.begin(), requests_.end(), [](auto& r) { return !r->done(); });
  }
  void DropDone() {
    requests_.erase(
        std::remove_if(requests_.begin(), requests_.end(), [](auto& r) { return r->done(); }),
        requests_.end());
  }
  uint64_t steps() const { return step_; }
  Request& At(size_t i) { return *requests_[i]; }
  model::PagePool& pool() { return pool_; }

  Plan plan;

 private:
  uint32_t rows_;
  uint32_t slots_;
  uint64_t arrivals_ = 0;
  uint64_t step_ = 0;
  model::PagePool pool_;
  Scheduler scheduler_;
  std::vector<std::unique_ptr<Request>> requests_;
};

}  // namespace

TEST(decoders_run_every_step_beside_a_long_prompt) {
  Simulation sim(32, 1000, 8);
  Simulation::Request* a = sim.Add(4, 100);
  Simulation::Request* b = sim.Add(4, 100);
  CHECK_EQ(sim.Step(false), "");
  Simulation::Request* c = sim.Add(300, 10);
  for (int i = 0; i < 10; ++i) {
    const uint64_t before = a->tokens;
    CHECK_EQ(sim.Step(false), "");
    CHECK_EQ(a->tokens, before + 1);
    CHECK_EQ(b->tokens, before + 1);
    CHECK_EQ(c->position, 30u * (i + 1));
  }
}

TEST(prompts_run_in_the_order_they_came) {
  Simulation sim(10, 1000, 8);
  sim.Add(25, 1);
  sim.Add(5, 1);
  CHECK_EQ(sim.Step(false), "");
  CHECK_EQ(sim.plan.chunks.size(), 1u);
  CHECK_EQ(sim.Step(false), "");
  CHECK_EQ(sim.Step(false), "");  // 5 of the first, 5 of the second
  CHECK_EQ(sim.plan.chunks.size(), 2u);
  CHECK_EQ(sim.plan.chunks[0].rows, 5u);
  CHECK_EQ(sim.plan.chunks[1].rows, 5u);
}

TEST(more_decoders_than_rows_take_turns_and_leave_a_prompt_its_share) {
  Simulation sim(4, 1000, 32);
  for (int i = 0; i < 10; ++i) sim.Add(1, 1000);
  Simulation::Request* late = sim.Add(20, 1000);
  for (int i = 0; i < 19; ++i) CHECK_EQ(sim.Step(false), "");
  CHECK_EQ(late->position, 19u);                                            // one row a step
  for (size_t i = 0; i < 10; ++i) CHECK_GE(sim.At(i).tokens, 1u + 19 / 4);  // 10 by 3, rounded up
}

TEST(one_row_a_step_still_serves_everyone) {
  Simulation sim(1, 100, 8);
  sim.Add(3, 5);
  sim.Add(7, 5);
  sim.Add(1, 5);
  for (int i = 0; i < 30 && !sim.AllDone(); ++i) CHECK_EQ(sim.Step(false), "");
  CHECK(sim.AllDone());
}

TEST(the_youngest_gives_way_when_pages_run_out) {
  Simulation sim(64, 4, 8);
  Simulation::Request* a = sim.Add(30, 34);
  Simulation::Request* b = sim.Add(15, 17);
  uint32_t steps = 0;
  while (!sim.AllDone()) {
    CHECK_EQ(sim.Step(false), "");
    CHECK_LT(++steps, 100u);
  }
  CHECK_EQ(a->preemptions, 0u);
  CHECK_GT(b->preemptions, 0u);
}

TEST(idle_pages_go_first_and_the_longest_unused_of_them) {
  Simulation sim(64, 6, 8);
  Simulation::Request* old_idle = sim.Add(16, 1);
  CHECK_EQ(sim.Step(true), "");
  Simulation::Request* new_idle = sim.Add(16, 1);
  CHECK_EQ(sim.Step(true), "");
  Simulation::Request* young = sim.Add(64, 30);
  CHECK_EQ(sim.Step(true), "");
  CHECK_EQ(young->position, 64u);
  CHECK_EQ(sim.Step(true), "");
  CHECK_EQ(old_idle->preemptions, 1u);
  CHECK_EQ(new_idle->preemptions, 0u);
}

TEST(a_prompt_does_not_start_when_it_would_not_fit_beside_those_running) {
  Simulation sim(64, 8, 8);
  Simulation::Request* a = sim.Add(33, 31);
  CHECK_EQ(sim.Step(false), "");
  Simulation::Request* b = sim.Add(80, 1);  // 5 pages, 5 free, but a will want one
  CHECK_EQ(sim.Step(false), "");
  CHECK_EQ(b->position, 0u);
  while (!a->done()) CHECK_EQ(sim.Step(false), "");
  CHECK_EQ(sim.Step(false), "");
  CHECK_EQ(b->position, 64u);
  CHECK_EQ(b->preemptions, 0u);
}

TEST(forks_that_share_pages_are_counted_once) {
  model::PagePool pool(3);
  model::PageTable a(&pool, 3);
  model::PageTable b(&pool, 3);
  const auto copy = [](uint32_t, uint32_t) { return OkStatus(); };
  CHECK_OK(a.Prepare(0, 40, copy));
  b.ShareFrom(a);
  Scheduler scheduler(2, 3);
  const std::vector<SequenceView> views = {{1, 1, 40, 1, a.pages()}, {2, 1, 40, 1, b.pages()}};
  const Plan& plan = scheduler.Make(views, {8, pool.free_pages(), pool.refs()});
  // No page is free for the copy, so the younger fork leaves its share of the page to the older.
  CHECK_EQ(plan.preempted.size(), 1u);
  CHECK_EQ(plan.preempted[0], 1u);
  // Two pages that both share, and nobody writes, stay.
  CHECK_EQ(plan.kept[0], 2u);
  CHECK_EQ(plan.chunks.size(), 1u);
  CHECK_EQ(plan.chunks[0].sequence, 0u);
}

TEST(no_more_pages_are_taken_than_are_wanted) {
  model::PagePool pool(8);
  model::PageTable idle(&pool, 8), works(&pool, 8);
  const auto copy = [](uint32_t, uint32_t) { return OkStatus(); };
  CHECK_OK(idle.Prepare(0, 6 * 16, copy));
  CHECK_OK(works.Prepare(0, 2 * 16, copy));
  Scheduler scheduler(2, 8);
  const std::vector<SequenceView> views = {{1, 1, 96, 0, idle.pages()}, {2, 1, 32, 1, works.pages()}};
  const Plan& plan = scheduler.Make(views, {8, pool.free_pages(), pool.refs()});
  CHECK_EQ(plan.preempted.size(), 1u);
  CHECK_EQ(plan.preempted[0], 0u);
  CHECK_EQ(plan.kept[0], 5u);
  CHECK_EQ(plan.chunks.size(), 1u);
}

// Two share their last page, and each is granted a copy of it; then the oldest, a prompt, takes the younger one's pages. So the
// other needs no copy any more, and its drafts give a page back. (They once took 2^32 of them, and who had been preempted kept
// what the prompt was to get.)
TEST(drafts_of_who_needs_fewer_pages_than_it_was_granted) {
  const std::vector<uint32_t> shared = {5, 6}, two = {0, 1}, three = {2, 3, 4}, refs = {1, 1, 1, 1, 1, 2, 2};
  std::vector<SequenceView> views(5);
  const auto view = [&](size_t i, uint64_t arrival, uint64_t position, uint64_t pending, absl::Span<const uint32_t> pages) {
    views[i].arrival = arrival;
    views[i].position = position;
    views[i].pending = pending;
    views[i].silent = pending - 1;
    views[i].pages = pages;
  };
  view(0, 4, 22, 1, shared);
  view(1, 1, 0, 25, {});
  view(2, 5, 30, 1, two);
  view(3, 3, 39, 7, three);
  view(4, 2, 22, 1, shared);
  views[4].drafts = 2;
  Scheduler scheduler(5, 7);
  const Plan& plan = scheduler.Make(views, {64, 0, refs, 64});
  CHECK(plan.preempted == std::vector<uint32_t>({2, 0, 3}));
  CHECK(plan.kept == std::vector<uint32_t>({0, 1, 3}));  // of seven pages two are the prompt's, two the other's
  CHECK_EQ(plan.chunks.size(), 2u);
  CHECK_EQ(plan.chunks[0].rows, 25u);
  CHECK_EQ(plan.chunks[1].rows, 3u);
}

TEST(nothing_to_do_is_an_empty_plan) {
  Scheduler scheduler(2, 3);
  const std::vector<SequenceView> views = {{1, 1, 4, 0, {}}};
  const std::vector<uint32_t> refs(3, 0);
  CHECK(scheduler.Make(views, {8, 3, refs}).chunks.empty());
}

// Random arrivals into pools of every tightness: plans are always feasible, everyone ends, and
// nobody waits longer than the work ahead of it explains.
TEST(random_arrivals_all_finish) {
  std::mt19937 random(3);
  for (int round = 0; round < 150; ++round) {
    const uint32_t rows = 1 + random() % (round % 2 ? 8 : 100);
    const uint32_t pages = 4 + random() % 40;
    const bool keep = random() % 2 == 0;
    Simulation sim(rows, pages, 24);
    const uint64_t capacity = uint64_t{pages} * 16;
    int to_come = 40;
    uint64_t work = 0;
    while (to_come > 0 || !sim.AllDone()) {
      if (!keep || random() % 16 == 0) sim.DropDone();
      while (to_come > 0 && random() % 3 != 0) {
        if (sim.Waiting() >= 12) break;
        sim.DropDone();
        const uint64_t total = 2 + random() % (capacity - 1);
        const uint64_t prompt = 1 + random() % (total - 1);
        sim.Add(prompt, total - prompt);
        work += total;
        --to_come;
      }
      CHECK_EQ(sim.Step(keep), "");
      // Even all alone, one row a step and re-run at every preemption it is not more than this.
      CHECK_LT(sim.steps(), 40 * work + 1000);
    }
  }
}

TEST(a_stream_of_short_prompts_does_not_starve_a_long_one_nor_the_reverse) {
  Simulation sim(16, 200, 64);
  Simulation::Request* chatty = sim.Add(8, 100'000 % 3000);
  CHECK_EQ(sim.Step(false), "");
  Simulation::Request* big = sim.Add(1000, 1);
  uint64_t steps = 0;
  while (!big->done()) {
    if (sim.Waiting() < 40) sim.Add(4, 30);
    const uint64_t before = chatty->tokens;
    CHECK_EQ(sim.Step(false), "");
    if (sim.Waiting() <= 14) CHECK_EQ(chatty->tokens, before + 1);
    CHECK_LT(++steps, 1200u);
    if (big->done()) break;
  }
  CHECK(big->done());
}
