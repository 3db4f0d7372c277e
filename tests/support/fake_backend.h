// SPDX-License-Identifier: MIT
//
// A backend without arithmetic: logits are a hash of every token of the sequence, read back from
// the KV cells that steps wrote. Any mistake with pages, positions, forks or truncation changes
// them or trips a check. Failures, delays and stops are injected through FakeControl.
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

namespace mainarch::test {

struct FakeControl {
  std::atomic<int64_t> runs{0};
  std::atomic<int64_t> fail_run{-1};   // the run of this number fails after garbling its rows
  std::atomic<int64_t> fail_copy{-1};  // likewise for copies
  std::atomic<int64_t> copies{0};
  std::atomic<int64_t> run_us{0};    // how long a run takes; ends early when stopped
  std::atomic<int64_t> nan_run{-1};  // the run of this number makes a nan logit
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

// Logits after a prefix with this hash: eighths in [-8, 8), so that ties happen.
inline float FakeLogit(uint64_t hash, uint32_t token) {
  return static_cast<float>(Mix(hash + token) >> 57) / 8.0f - 8.0f;
}

class FakeContext final : public backend::ImmediateContext {
 public:
  FakeContext(FakeControl* control, uint32_t vocab, const backend::ContextOptions& options)
      : control_(control),
        vocab_(vocab),
        options_(options),
        cells_(size_t{options.pages[0]} * backend::kPageTokens),
        writer_(options.pages[0], 0),
        logits_(size_t{options.max_logit_rows} * vocab) {}

  Status RunNow(const backend::Step& step) override {
    const int64_t run = control_->runs.fetch_add(1);
    ++step_;
    if (control_->before_run) control_->before_run();
    Validate(step);
    for (const backend::StepRow& row : step.rows) Write(step, row, row.token);
    const Status stopped = Delay();
    if (!stopped.ok() || run == control_->fail_run.load()) {
      // KV of the step's own rows is undefined after an error.
      for (const backend::StepRow& row : step.rows) Write(step, row, 0xDEAD);
      for (float& x : logits_) x = NAN;
      return stopped.ok() ? Error(Code::kDeviceLost, "injected failure of run ", run) : stopped;
    }
    for (uint32_t i = 0; i < step.logit_rows.size(); ++i) {
      MakeLogits(step, step.rows[step.logit_rows[i]], i);
      if (run == control_->nan_run.load()) logits_[size_t{i} * vocab_ + vocab_ / 2] = NAN;
    }
    if (control_->after_run) control_->after_run();
    return OkStatus();
  }

  absl::Span<float> Logits(uint32_t i) override { return {&logits_[size_t{i} * vocab_], vocab_}; }

  Status CopyPage(int32_t, uint32_t from, uint32_t to) override {
    if (control_->copies.fetch_add(1) == control_->fail_copy.load()) {
      return Error(Code::kDeviceLost, "injected failure of a copy");
    }
    for (int i = 0; i < backend::kPageTokens; ++i) {
      cells_[size_t{to} * backend::kPageTokens + i] =
          cells_[size_t{from} * backend::kPageTokens + i];
    }
    return OkStatus();
  }

  uint64_t memory_bytes() const override { return cells_.size() * sizeof(Cell); }
  // K is the layer and the token, V the position.
  StatusOr<backend::KvToken> ReadKv(int32_t, int32_t layer, uint32_t page,
                                   uint32_t slot) const override {
    const Cell& cell = cells_[size_t{page} * backend::kPageTokens + slot];
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

  Cell* At(const backend::Step& step, uint32_t sequence, uint32_t position) {
    const absl::Span<const uint32_t> pages = step.sequences[sequence].caches[0].pages;
    const uint32_t page = position / backend::kPageTokens;
    if (page >= pages.size() || pages[page] >= options_.pages[0]) {
      control_->Violation("a position without a page");
      return &nowhere_;
    }
    return &cells_[size_t{pages[page]} * backend::kPageTokens + position % backend::kPageTokens];
  }

  void Write(const backend::Step& step, const backend::StepRow& row, uint32_t token) {
    *At(step, row.sequence, row.position) = {token, row.position};
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

  void MakeLogits(const backend::Step& step, const backend::StepRow& row, uint32_t i) {
    uint64_t hash = 0;
    for (uint32_t p = 0; p <= row.position; ++p) {
      const Cell cell = *At(step, row.sequence, p);
      if (cell.position != p) control_->Violation("a KV cell of another position");
      hash = FoldToken(hash, cell.token);
    }
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
      // A page is written by one sequence of a step only.
      const absl::Span<const uint32_t> pages = step.sequences[row.sequence].caches[0].pages;
      const uint32_t page = pages[row.position / backend::kPageTokens];
      const uint64_t stamp = step_ << 32 | (row.sequence + 1);
      require(writer_[page] >> 32 != step_ || writer_[page] == stamp, "two writers of a page");
      writer_[page] = stamp;
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
  backend::ContextOptions options_;
  std::vector<Cell> cells_;
  std::vector<uint64_t> writer_;  // [pages] step and sequence that wrote last
  std::vector<float> logits_;
  uint64_t step_ = 0;
  Cell nowhere_;
};

class FakeModel final : public backend::LoadedModel {
 public:
  explicit FakeModel(uint32_t vocab) : vocab_(vocab) {}
  StatusOr<std::unique_ptr<backend::Context>> CreateContext(
      const backend::ContextOptions& options) const override {
    return std::unique_ptr<backend::Context>(
        std::make_unique<FakeContext>(&control, vocab_, options));
  }
  const backend::Program& program() const override { return program_; }
  uint64_t weight_bytes() const override { return 0; }

  mutable FakeControl control;

 private:
  uint32_t vocab_;
  backend::Program program_;
};

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_FAKE_BACKEND_H_
