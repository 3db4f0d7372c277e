// SPDX-License-Identifier: MIT
//
// A backend without arithmetic: logits are a hash of every token of the sequence, read back from
// the KV cells that steps wrote, of the tokens in each window, and of each state, to which every run
// of a token does something that cannot be done twice or undone. Any mistake with pages, slots,
// positions, forks, drafts or truncation changes them or trips a check. Failures, delays and stops
// are injected through FakeControl.
#ifndef MAINARCH_TESTS_SUPPORT_FAKE_BACKEND_H_
#define MAINARCH_TESTS_SUPPORT_FAKE_BACKEND_H_

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "model/sequence_caches.h"

namespace mainarch::test {

struct FakeControl {
  std::atomic<int64_t> runs{0};
  std::atomic<int64_t> fail_run{-1};   // the run of this number fails after garbling its rows
  std::atomic<int64_t> fail_copy{-1};  // likewise for copies
  std::atomic<int64_t> copies{0};
  std::atomic<int64_t> run_us{0};    // how long a run takes; ends early when stopped
  std::atomic<int64_t> nan_run{-1};  // the run of this number makes a nan logit
  std::atomic<int64_t> fetches{0};
  std::atomic<int64_t> fail_fetch{-1};  // the fetch of logits of this number fails
  std::atomic<uint64_t> max_rows_seen{0};
  std::atomic<bool> running{false};
  std::function<void()> before_run;  // called inside Run, first and last
  std::function<void()> after_run;

  void Violation(const std::string& what) {
    std::lock_guard<std::mutex> lock(mutex);
    if (violation.empty()) violation = what;
  }
  std::string Violations() {
    std::lock_guard<std::mutex> lock(mutex);
    return violation;
  }
  std::mutex mutex;
  std::string violation;
};

inline uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

inline uint64_t FoldToken(uint64_t hash, uint32_t token) { return Mix(hash * 31 + token); }

using CacheForms = std::vector<model::CacheForm>;

// A state after one token more.
inline uint64_t FoldState(uint64_t state, uint32_t token, uint64_t position) {
  return Mix(state ^ (uint64_t{token} << 32 | (position + 1)));
}

inline uint64_t JoinHashes(size_t cache, uint64_t joined, uint64_t hash) {
  return cache == 0 ? hash : Mix(joined ^ hash);
}

// Logits after a prefix with this hash: eighths in [-8, 8), so that ties happen.
inline float FakeLogit(uint64_t hash, uint32_t token) {
  return static_cast<float>(Mix(hash + token) >> 57) / 8.0f - 8.0f;
}

class FakeContext final : public backend::ImmediateContext {
 public:
  FakeContext(FakeControl* control, uint32_t vocab, const CacheForms& forms,
              const backend::ContextOptions& options)
      : control_(control),
        vocab_(vocab),
        forms_(forms),
        options_(options),
        caches_(forms.size()),
        logits_(size_t{options.max_logit_rows} * vocab) {
    for (size_t c = 0; c < forms.size(); ++c) {
      Cache& cache = caches_[c];
      cache.units = forms[c].slots ? options.slots[c] : options.pages[c];
      cache.touched.resize(cache.units);
      if (forms[c].slots) {
        cache.states.resize(cache.units);
        cache.after_row.resize(options.max_rows);
      } else {
        cache.cells.resize(size_t{cache.units} * backend::kPageTokens);
      }
    }
  }

  Status RunNow(const backend::Step& step) override {
    const int64_t run = control_->runs.fetch_add(1);
    ++step_;
    if (control_->before_run) control_->before_run();
    Validate(step);
    Write(step, /*garble=*/false);
    const Status stopped = Delay();
    if (!stopped.ok() || run == control_->fail_run.load()) {
      // KV of the step's own rows and the states it was to write are undefined after an error.
      Write(step, /*garble=*/true);
      for (float& x : logits_) x = NAN;
      return stopped.ok() ? Error(Code::kDeviceLost, "injected failure of run ", run) : stopped;
    }
    for (uint32_t i = 0; i < step.logit_rows.size(); ++i) {
      MakeLogits(step, step.logit_rows[i], i);
      if (run == control_->nan_run.load()) logits_[size_t{i} * vocab_ + vocab_ / 2] = NAN;
    }
    if (control_->after_run) control_->after_run();
    return OkStatus();
  }

  absl::Span<float> Logits(uint32_t i) override { return {&logits_[size_t{i} * vocab_], vocab_}; }

  Status FetchLogits(uint32_t) override {
    if (control_->fetches.fetch_add(1) != control_->fail_fetch.load()) return OkStatus();
    return Error(Code::kDeviceLost, "injected failure of a fetch");
  }

  Status CopyPage(int32_t cache, uint32_t from, uint32_t to) override {
    if (control_->copies.fetch_add(1) == control_->fail_copy.load()) {
      return Error(Code::kDeviceLost, "injected failure of a copy");
    }
    std::vector<Cell>& cells = caches_[static_cast<size_t>(cache)].cells;
    for (int i = 0; i < backend::kPageTokens; ++i) {
      cells[size_t{to} * backend::kPageTokens + i] = cells[size_t{from} * backend::kPageTokens + i];
    }
    return OkStatus();
  }

  uint64_t memory_bytes() const override { return caches_[0].cells.size() * sizeof(Cell); }
  // K is the layer and the token, V the position.
  StatusOr<backend::KvToken> ReadKv(int32_t cache, int32_t layer, uint32_t page,
                                   uint32_t slot) const override {
    const Cell& cell = caches_[static_cast<size_t>(cache)]
                           .cells[size_t{page} * backend::kPageTokens + slot];
    return backend::KvToken{{static_cast<float>(layer), static_cast<float>(cell.token)},
                            {static_cast<float>(cell.position)}};
  }
  Status RunPrefix(const backend::Step&, size_t) override {
    return Error(Code::kUnsupported, "fake");
  }
  std::vector<float> ReadBuffer(int32_t, backend::BufferId, uint32_t) const override { return {}; }

 private:
  struct Cell {
    uint32_t token = 0xBAD;
    uint32_t position = UINT32_MAX;
  };

  struct State {
    uint64_t hash = 0xBAD;
    uint64_t position = UINT64_MAX;  // tokens before it
  };
  struct Cache {
    uint32_t units = 0;  // pages or slots
    std::vector<Cell> cells;
    std::vector<State> states;
    std::vector<uint64_t> after_row;  // [max_rows] of this step
    std::vector<uint64_t> touched;    // [units] step and sequence that wrote last
  };

  Cell* At(const backend::Step& step, size_t c, uint32_t sequence, uint32_t position) {
    const backend::StepCache& cache = step.sequences[sequence].caches[c];
    const uint32_t page = position / backend::kPageTokens - cache.first_page;
    if (page >= cache.pages.size() || cache.pages[page] >= caches_[c].units) {
      control_->Violation("a position without a page");
      return &nowhere_;
    }
    return &caches_[c].cells[size_t{cache.pages[page]} * backend::kPageTokens +
                             position % backend::kPageTokens];
  }

  // One writer of a page or slot in a step, and none of it that another reads.
  void Touch(size_t c, uint32_t unit, uint32_t sequence, const char* what) {
    if (unit >= caches_[c].units) return control_->Violation("a page or slot out of range");
    uint64_t& last = caches_[c].touched[unit];
    const uint64_t stamp = step_ << 32 | (sequence + 1);
    if (last >> 32 == step_ && last != stamp) control_->Violation(what);
    last = stamp;
  }

  void Write(const backend::Step& step, bool garble) {
    for (size_t c = 0; c < forms_.size(); ++c) {
      if (forms_[c].slots) {
        for (uint32_t s = 0; s < step.sequences.size(); ++s) WriteStates(step, c, s, garble);
        continue;
      }
      for (const backend::StepRow& row : step.rows) {
        *At(step, c, row.sequence, row.position) = {garble ? 0xDEAD : row.token, row.position};
      }
    }
  }

  void WriteStates(const backend::Step& step, size_t c, uint32_t sequence, bool garble) {
    const backend::StepCache& cache = step.sequences[sequence].caches[c];
    State state = {0, 0};
    if (cache.state_in != backend::kNoSlot) state = caches_[c].states[cache.state_in];
    uint32_t row = 0, in_sequence = 0;
    while (row < step.rows.size() && step.rows[row].sequence != sequence) ++row;
    if (!garble && state.position != step.rows[row].position) {
      control_->Violation("a state of another position");
    }
    size_t out = 0;
    for (; row < step.rows.size() && step.rows[row].sequence == sequence; ++row, ++in_sequence) {
      state.hash = FoldState(state.hash, step.rows[row].token, state.position++);
      caches_[c].after_row[row] = state.hash;
      if (out == cache.state_out.size() || cache.state_out[out].row != in_sequence) continue;
      const uint32_t slot = cache.state_out[out++].slot;
      if (slot == cache.state_in) control_->Violation("a state written over its input");
      Touch(c, slot, sequence, "two writers of a slot");
      caches_[c].states[slot] = garble ? State() : state;
    }
    if (out != cache.state_out.size()) control_->Violation("a state after no row");
  }

  Status Delay() {
    control_->running.store(true);
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::microseconds(control_->run_us.load());
    bool stopped = stop_requested();
    while (!stopped && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      stopped = stop_requested();
    }
    control_->running.store(false);
    return stopped ? Error(Code::kCancelled, "fake run stopped") : OkStatus();
  }

  uint64_t HashOf(const backend::Step& step, size_t c, uint32_t index) {
    const backend::StepRow& row = step.rows[index];
    if (forms_[c].slots) return caches_[c].after_row[index];
    const uint32_t window = forms_[c].window;
    uint64_t hash = 0;
    for (uint32_t p = window == 0 || row.position < window ? 0 : row.position + 1 - window;
         p <= row.position; ++p) {
      const Cell cell = *At(step, c, row.sequence, p);
      if (cell.position != p) control_->Violation("a KV cell of another position");
      hash = FoldToken(hash, cell.token);
    }
    return hash;
  }

  void MakeLogits(const backend::Step& step, uint32_t row, uint32_t i) {
    uint64_t hash = 0;
    for (size_t c = 0; c < forms_.size(); ++c) hash = JoinHashes(c, hash, HashOf(step, c, row));
    for (uint32_t t = 0; t < vocab_; ++t) logits_[size_t{i} * vocab_ + t] = FakeLogit(hash, t);
  }

  void Validate(const backend::Step& step) {
    const auto require = [&](bool good, const char* what) {
      if (!good) control_->Violation(what);
    };
    require(!step.rows.empty() && step.rows.size() <= options_.max_rows, "row count");
    require(step.logit_rows.size() <= options_.max_logit_rows, "logit row count");
    for (size_t i = 1; i < step.logit_rows.size(); ++i) {
      require(step.logit_rows[i - 1] < step.logit_rows[i], "logit rows not ascending");
    }
    for (const uint32_t row : step.logit_rows) require(row < step.rows.size(), "logit row range");
    for (size_t i = 0; i < step.rows.size(); ++i) {
      const backend::StepRow& row = step.rows[i];
      require(row.sequence < step.sequences.size(), "sequence index");
      require(row.token < vocab_, "token range");
      const absl::Span<const backend::StepCache> caches = step.sequences[row.sequence].caches;
      require(caches.size() == forms_.size(), "caches of a sequence");
      for (size_t c = 0; c < forms_.size(); ++c) {
        const uint32_t page = row.position / backend::kPageTokens - caches[c].first_page;
        if (forms_[c].slots || page >= caches[c].pages.size()) continue;
        Touch(c, caches[c].pages[page], row.sequence, "two writers of a page");
      }
      if (i == 0) continue;
      const backend::StepRow& before = step.rows[i - 1];
      require(row.sequence == before.sequence ? row.position == before.position + 1
                                              : row.sequence > before.sequence,
              "rows not adjacent and ascending");
    }
    control_->max_rows_seen = std::max<uint64_t>(control_->max_rows_seen, step.rows.size());
  }

  FakeControl* control_;
  uint32_t vocab_;
  const CacheForms forms_;
  backend::ContextOptions options_;
  std::vector<Cache> caches_;
  std::vector<float> logits_;
  uint64_t step_ = 0;
  Cell nowhere_;
};

class FakeModel final : public backend::LoadedModel {
 public:
  explicit FakeModel(uint32_t vocab, CacheForms forms = {{}})
      : vocab_(vocab), forms_(std::move(forms)) {}
  StatusOr<std::unique_ptr<backend::Context>> CreateContext(
      const backend::ContextOptions& options) const override {
    return std::unique_ptr<backend::Context>(
        std::make_unique<FakeContext>(&control, vocab_, forms_, options));
  }
  const backend::Program& program() const override { return program_; }
  uint64_t weight_bytes() const override { return 0; }

  mutable FakeControl control;

 private:
  uint32_t vocab_;
  CacheForms forms_;
  backend::Program program_;
};

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_FAKE_BACKEND_H_
