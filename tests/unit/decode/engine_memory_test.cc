// SPDX-License-Identifier: MIT
//
// What the engine allocates: nothing in steady decode; and when an allocation fails, nothing
// changes.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "base/clock.h"
#include "decode/engine_impl.h"
#include "support/engine_oracle.h"
#include "support/test.h"
#include "unit/decode/hybrid_model.h"

namespace {

std::atomic<uint64_t> allocations{0};
std::atomic<int64_t> fail_in{-1};  // this many allocations more succeed

[[maybe_unused]] void* Allocate(size_t size) {
  ++allocations;
  if (fail_in >= 0 && fail_in-- == 0) throw std::bad_alloc();
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A sanitizer has operators of its own, which must stay.
#define MAINARCH_SKIP_WITHOUT_COUNTING SKIP("a sanitizer owns operator new")
#else
#define MAINARCH_SKIP_WITHOUT_COUNTING
void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
#endif

using namespace mainarch;
using namespace mainarch::decode;

namespace {

constexpr uint32_t kVocab = 300;

EngineOptions Options() {
  EngineOptions o;
  o.max_sequences = 8;
  o.max_sequence_tokens = 600;
  o.max_step_tokens = 16;
  return o;
}

SequenceOptions Everything(uint64_t seed) {
  SequenceOptions o;
  o.seed = seed;
  o.temperature = 0.9f;
  o.top_p = 0.9f;
  o.top_k = 50;
  o.min_p = 0.01f;
  o.repetition_penalty = 1.1f;
  o.frequency_penalty = 0.2f;
  o.presence_penalty = 0.1f;
  o.min_tokens = 300;
  o.logprobs = 5;
  o.stop_tokens = {5};
  o.stop_sequences = {{1, 2, 3}};
  o.logit_bias = {{7, 1.0f}};
  return o;
}

}  // namespace

TEST(steady_decode_allocates_nothing) {
  MAINARCH_SKIP_WITHOUT_COUNTING;
  test::FakeModel model(kVocab);
  auto engine = CreateEngine(nullptr, model, {kVocab, 1000, {9}}, Options());
  CHECK_OK(engine);
  std::vector<SequenceId> ids;
  for (uint64_t i = 0; i < 6; ++i) {
    const auto id = (*engine)->Open(i % 2 ? Everything(i) : SequenceOptions{.ignore_eos = true});
    CHECK_OK(id);
    CHECK_OK((*engine)->Append(*id, {1, 2, 3, static_cast<uint32_t>(i)}));
    ids.push_back(*id);
  }
  const auto fork_and_submit = [&](int steps, bool submit) {
    uint32_t out[4];
    for (int i = 0; i < steps; ++i) {
      if (submit) {
        if (!(*engine)->Submit().ok() || !(*engine)->Wait(-1).ok()) return false;
      } else if (!(*engine)->RunStep().ok()) {
        return false;
      }
      for (const SequenceId id : ids) {
        if (!(*engine)->Take(id, absl::MakeSpan(out)).ok()) return false;
        if (!(*engine)->InfoOf(id).ok()) return false;
      }
    }
    return true;
  };
  CHECK(fork_and_submit(3, true));  // prompts, and the step thread starts
  const uint64_t before = allocations;
  CHECK(fork_and_submit(100, false));
  CHECK(fork_and_submit(100, true));
  CHECK_EQ(allocations.load() - before, 0u);
  CHECK_EQ((*engine)->info().sequences, 6u);
}

// By the text that was said, and by a head of real layers.
TEST(steady_decode_with_drafts_allocates_nothing) {
  MAINARCH_SKIP_WITHOUT_COUNTING;
  const std::string directory = test::ScratchDirectory() + "/hybrid";
  CHECK_OK(test::WriteHybrid(directory));
  const auto model = test::LoadHybrid(directory, /*draft_head=*/true);
  CHECK_OK(model);
  for (const DraftKind kind : {DraftKind::kNgram, DraftKind::kHead}) {
    EngineOptions options = Options();
    options.max_sequence_tokens = 400;
    options.max_step_tokens = 32;
    options.draft_kind = kind;
    auto engine = Engine::Create(*model, options);
    CHECK_OK(engine);
    for (uint64_t i = 0; i < 4; ++i) {
      SequenceOptions drawn = i % 2 ? Everything(i) : SequenceOptions();
      drawn.ignore_eos = true;
      drawn.logprobs = 0;  // which grow until they are taken
      drawn.stop_tokens = {};
      drawn.stop_sequences = {};
      const auto id = (*engine)->Open(drawn);
      CHECK_OK(id);
      CHECK_OK((*engine)->Append(*id, {1, 2, 3, static_cast<uint32_t>(i)}));
    }
    for (int i = 0; i < 5; ++i) CHECK_OK((*engine)->RunStep());
    const uint64_t drafts = (*engine)->info().drafts, before = allocations;
    for (int i = 0; i < 20; ++i) CHECK_OK((*engine)->RunStep());
    CHECK_EQ(allocations.load() - before, 0u);
    CHECK_GT((*engine)->info().drafts, drafts);
  }
}

TEST(an_empty_step_and_an_id_lookup_are_cheap) {
  test::FakeModel model(kVocab);
  auto engine = CreateEngine(nullptr, model, {kVocab, 1000, {}}, Options());
  CHECK_OK(engine);
  CHECK_OK((*engine)->Open({}));
  int64_t best = INT64_MAX;
  for (int i = 0; i < 100; ++i) {
    const int64_t start = NowNs();
    for (int j = 0; j < 100; ++j) (void)(*engine)->RunStep();
    best = std::min(best, (NowNs() - start) / 100);
  }
  // The bar is 2 us on an idle machine; sanitizers and neighbours get slack.
  CHECK_LT(best, 10'000);
  std::fprintf(stderr, "empty step: %ld ns\n", static_cast<long>(best));
}

// Every allocation of every call fails once; the call throws bad_alloc or reports, and afterwards
// the sequences are as the oracle says.
TEST(failed_allocations_change_nothing) {
  MAINARCH_SKIP_WITHOUT_COUNTING;
  test::FakeModel model(kVocab);
  for (const bool submit : {false, true}) {
    int64_t nth = 0;
    bool ran_through = false;
    for (; !ran_through; ++nth) {
      CHECK_LT(nth, 2000);
      std::unique_ptr<Engine> engine;
      SequenceId id = 0;
      SequenceId fork = 0;
      const SequenceOptions options = Everything(3);
      fail_in = nth;
      ran_through = true;
      // Repeats one call until it does not run out of memory.
      const auto persist = [&](auto call) {
        for (int attempt = 0; attempt < 3; ++attempt) {
          try {
            if (call()) return true;
          } catch (const std::bad_alloc&) {
          }
          ran_through = false;
        }
        return false;
      };
      const bool good = persist([&] {
                          auto made = CreateEngine(nullptr, model, {kVocab, 1000, {9}}, Options());
                          if (made.ok()) engine = *std::move(made);
                          return engine != nullptr;
                        }) &&
                        persist([&] {
                          auto opened = engine->Open(options);
                          if (opened.ok()) id = *opened;
                          return opened.ok();
                        }) &&
                        persist([&] { return engine->Append(id, {1, 2, 3}).ok(); }) &&
                        persist([&] { return engine->RunStep().ok(); }) && persist([&] {
                          auto forked = engine->Fork(id);
                          if (forked.ok()) fork = *forked;
                          return forked.ok();
                        });
      CHECK(good);
      for (int i = 0; i < 20; ++i) {
        CHECK(persist([&] {
          if (!submit) return engine->RunStep().ok();
          auto submitted = engine->Submit();
          return submitted.ok() && engine->Wait(-1).ok();
        }));
      }
      fail_in = -1;
      CHECK_EQ(engine->info().sequences, 2u);
      test::OracleSequence oracle{options, kVocab, 600, {9}};
      oracle.Append({1, 2, 3});
      const auto info = engine->InfoOf(id);
      CHECK_OK(info);
      CHECK_GE(info->produced, 21u);
      CHECK_EQ(oracle.Follow(*info), "");
      std::vector<uint32_t> out(100);
      auto n = engine->Take(id, absl::MakeSpan(out));
      CHECK_OK(n);
      out.resize(*n);
      CHECK(out == oracle.Take(out.size()));
      std::vector<uint32_t> forked(100);
      n = engine->Take(fork, absl::MakeSpan(forked));
      CHECK_OK(n);
      forked.resize(*n);
      CHECK_EQ(forked.size() + 1, out.size());
      CHECK(std::equal(forked.begin(), forked.end(), out.begin() + 1));
      CHECK_OK(engine->Close(id));
      CHECK_OK(engine->Close(fork));
      CHECK_EQ(engine->info().kv_tokens_free, engine->info().kv_tokens_total);
    }
    CHECK_GT(nth, 20);
  }
  CHECK_EQ(model.control.Violations(), "");
}
