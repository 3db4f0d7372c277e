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
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "decode/sampler.h"
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
  std::atomic<int64_t> contents{0};  // units written
  uint32_t in_flight = 1;  // of contexts made from now on
  uint32_t rounds = 0;     // that their steps may have behind them, with two in flight
  std::atomic<int64_t> granted{0}, rounds_run{0}, left_out{0};
  bool steady = false;     // nothing ends early, nothing has no room, and a step runs when it is polled
  uint64_t beside_bytes = 0;              // that contexts take beside their caches
  backend::KvRoom room = {UINT64_MAX, {}};  // without unit_bytes: those of the fake's own
  std::atomic<int64_t> referred{0};  // rows whose token the step before chose
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

inline uint64_t FakeHash(const std::vector<uint32_t>& tokens, const model::CacheForm& form) {
  uint64_t hash = 0;
  const size_t seen = form.window == 0 ? tokens.size() : std::min<size_t>(form.window, tokens.size());
  const size_t first = form.slots ? 0 : tokens.size() - seen;
  for (size_t p = 0; p < std::min<size_t>(first, form.kept * backend::kPageTokens); ++p) hash = FoldToken(hash, tokens[p]);
  for (size_t p = first; p < tokens.size(); ++p) {
    hash = form.slots ? FoldState(hash, tokens[p], p) : FoldToken(hash, tokens[p]);
  }
  return hash;
}

inline uint64_t FakeHash(const std::vector<uint32_t>& tokens, const CacheForms& forms) {
  uint64_t hash = 0;
  for (size_t c = 0; c < forms.size(); ++c) {
    hash = JoinHashes(c, hash, FakeHash(tokens, forms[c]));
  }
  return hash;
}

// Logits after a prefix with this hash: eighths in [-8, 8), so that ties happen.
inline float FakeLogit(uint64_t hash, uint32_t token) {
  return static_cast<float>(Mix(hash + token) >> 57) / 8.0f - 8.0f;
}

// A step that outlives Submit.
struct FakeFlight {
  std::vector<backend::StepRow> rows;
  std::vector<std::vector<std::vector<uint32_t>>> pages, kept;
  std::vector<std::vector<std::vector<backend::StateOut>>> outs;
  std::vector<std::vector<backend::StepCache>> caches;
  std::vector<backend::StepSequence> sequences;
  std::vector<uint32_t> logit_rows;
  std::vector<decode::SequenceOptions> options;  // of the choices
  std::vector<std::vector<uint32_t>> banned, masks;
  std::vector<uint64_t> positions;
  std::vector<bool> told;  // asked to choose, and there is room for it
  std::vector<absl::optional<uint32_t>> chosen;
  std::vector<float> logits;
  bool ran = false, behind_failed = false;
  Status result;
  // Of a step with rounds and of each of them.
  bool follows = false, round = false, left_out = false, gone = false;
  std::vector<uint32_t> left;                // rounds that a row may go on for
  std::vector<std::vector<uint32_t>> stops;  // tokens behind which it does not
  std::vector<std::vector<uint32_t>> slots;  // of a row, those that its rounds have not taken yet
  std::vector<bool> stays;                   // a row that does not go on: what it writes is what is there, whatever comes

  // A round behind `before`: what its rows are is known when that one has run.
  void Behind(const FakeFlight& before) {
    const uint32_t table_count = static_cast<uint32_t>(before.sequences.size());
    rows = before.rows, logit_rows = before.logit_rows, pages = before.pages, kept = before.kept, outs = before.outs;
    caches.assign(table_count, {}), sequences.assign(table_count, {});
    for (size_t s = 0; s < table_count; ++s) {
      for (size_t c = 0; c < pages[s].size(); ++c) {
        const backend::StepCache& cache = before.caches[s][c];
        caches[s].push_back({pages[s][c], cache.first_page, kept[s][c], cache.state_in, outs[s][c]});
      }
      sequences[s] = {caches[s], before.sequences[s].table};
    }
    options = before.options, banned = before.banned, masks = before.masks, positions = before.positions;
    told = before.told, left = before.left, stops = before.stops, slots = before.slots;
    chosen.assign(logit_rows.size(), absl::nullopt);
    stays.assign(rows.size(), false);
    ran = behind_failed = follows = left_out = gone = false;
    round = true;
    result = OkStatus();
  }
  // The rows that go on get what `before` chose; the others stay. False: there is no round.
  bool GoOn(const FakeFlight& before) {
    bool any = false;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!before.chosen[i].has_value()) return false;
      const uint32_t token = *before.chosen[i];
      rows[i] = before.rows[i];
      rows[i].from = backend::kHere;
      positions[i] = before.positions[i];
      left[i] = before.left[i];
      slots[i] = before.slots[i];
      const bool goes_on = left[i] > 0 && std::count(stops[i].begin(), stops[i].end(), token) == 0;
      TakeSlots(before, i, goes_on);
      stays[i] = !goes_on;
      if (left[i] == 0 || std::count(stops[i].begin(), stops[i].end(), token) > 0) {
        left[i] = 0;
        continue;
      }
      any = true;
      --left[i];
      rows[i].token = token;
      ++rows[i].position;
      ++positions[i];
    }
    return any;
  }

  // Of the only row of a sequence.
  void TakeSlots(const FakeFlight& before, size_t row, bool goes_on) {
    const uint32_t s = rows[row].sequence;
    for (size_t c = 0; c < caches[s].size(); ++c) {
      outs[s][c] = before.outs[s][c];
      caches[s][c].state_in = before.caches[s][c].state_in;
      caches[s][c].state_out = outs[s][c];
      if (!goes_on || outs[s][c].empty()) continue;
      caches[s][c].state_in = outs[s][c].back().slot;
      outs[s][c].back().slot = slots[row].front();
      slots[row].erase(slots[row].begin());
    }
  }

  void Take(const backend::Step& step) {
    const size_t n = step.sequences.size();
    rows.assign(step.rows.begin(), step.rows.end());
    logit_rows.assign(step.logit_rows.begin(), step.logit_rows.end());
    pages.assign(n, {}), kept.assign(n, {}), outs.assign(n, {}), caches.assign(n, {}), sequences.assign(n, {});
    for (size_t s = 0; s < n; ++s) {
      for (const backend::StepCache& cache : step.sequences[s].caches) {
        pages[s].emplace_back(cache.pages.begin(), cache.pages.end());
        kept[s].emplace_back(cache.kept.begin(), cache.kept.end());
        outs[s].emplace_back(cache.state_out.begin(), cache.state_out.end());
      }
      for (size_t c = 0; c < pages[s].size(); ++c) {
        const backend::StepCache& cache = step.sequences[s].caches[c];
        caches[s].push_back({pages[s][c], cache.first_page, kept[s][c], cache.state_in, outs[s][c]});
      }
      sequences[s] = {caches[s], step.sequences[s].table};
    }
    options.clear(), banned.clear(), masks.clear(), positions.clear(), told.clear();
    for (const backend::Choice& choice : step.choices) {
      decode::SequenceOptions o;
      o.temperature = choice.temperature, o.min_p = choice.min_p, o.top_p = choice.top_p;
      o.top_k = choice.top_k, o.seed = choice.seed;
      o.logit_bias.assign(choice.bias.begin(), choice.bias.end());
      options.push_back(o);
      banned.emplace_back(choice.banned[0].begin(), choice.banned[0].end());
      banned.back().insert(banned.back().end(), choice.banned[1].begin(), choice.banned[1].end());
      masks.emplace_back(choice.mask.begin(), choice.mask.end());
      positions.push_back(choice.position);
      told.push_back(choice.choose && choice.counted.empty() && choice.repetition == 1 &&
                     choice.frequency == 0 && choice.presence == 0);
    }
    told.resize(logit_rows.size());
    chosen.assign(logit_rows.size(), absl::nullopt);
    ran = behind_failed = round = left_out = gone = false;
    follows = rows[0].from != backend::kHere;
    left.clear(), stops.clear(), slots.clear(), stays.clear();
    for (const backend::Lease& lease : step.leases) {
      left.push_back(lease.rounds);
      slots.emplace_back(lease.slots.begin(), lease.slots.end());
      stops.emplace_back(lease.stops[0].begin(), lease.stops[0].end());
      stops.back().insert(stops.back().end(), lease.stops[1].begin(), lease.stops[1].end());
    }
    result = OkStatus();
  }
  backend::Step step() const { return {rows, sequences, logit_rows, {}, {}}; }
};

// With two steps in flight it chooses tokens, runs a step when it is submitted or not before it is
// polled, and now and then has no room for a choice, all by the number of the step. Rounds run when they are
// granted or when they are polled, and end early now and then.
class FakeContext final : public backend::Context {
 public:
  FakeContext(FakeControl* control, uint32_t vocab, const CacheForms& forms,
              const backend::ContextOptions& options)
      : control_(control),
        vocab_(vocab),
        forms_(forms),
        options_(options),
        caches_(forms.size()),
        in_flight_(control->in_flight),
        sampler_(vocab),
        flights_(control->rounds == 0 ? 3 : 2 * control->rounds + 4) {
    for (FakeFlight& flight : flights_) {
      flight.logits.resize(size_t{options.max_logit_rows} * vocab);
    }
    sampler_.Reserve(4 * uint64_t{vocab});
    sampler_.ReserveMask();
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

  uint32_t max_in_flight() const override { return in_flight_; }
  uint32_t max_rounds() const override { return in_flight_ == 1 ? 0 : control_->rounds; }
  uint32_t granted() const override { return granted_; }
  void Recall() override { recalled_ = true; }
  bool left_out() const override { return left_out_; }

  Status Submit(const backend::Step& step) override {
    size_t steps = 0;
    for (uint64_t n = polled_ + 1; n <= submitted_; ++n) steps += !Flight(n).round || n == polled_ + 1;
    if (steps >= in_flight_) control_->Violation("too many steps in flight");
    recalled_ = false;
    granted_ = 0;
    FakeFlight& flight = Flight(submitted_ + 1);
    if (in_flight_ == 1) {
      logits_ = flight.logits.data();
      flight.chosen.clear();
      flight.result = RunNow(step);
      flight.ran = true;
      ++submitted_;
      return OkStatus();
    }
    const FakeFlight& before = Flight(submitted_);
    if (submitted_ != polled_ && before.round && step.rows[0].from == backend::kHere) {
      control_->Violation("a step that does not follow the rounds in flight");
    }
    for (const backend::StepRow& row : step.rows) {
      if (row.from == backend::kHere) continue;
      if (submitted_ == 0 || row.from >= before.told.size() || !before.told[row.from]) {
        return Error(Code::kInternal, "a row takes its token from one that chose none");
      }
    }
    flight.Take(step);
    ++submitted_;
    // What was there for the step before last is gone.
    if (submitted_ > 2) Forget(Flight(submitted_ - 2));
    for (size_t i = 0; i < flight.told.size(); ++i) {
      if (!control_->steady && Mix(submitted_ * 64 + i) % 16 == 0) flight.told[i] = false;
    }
    Grant(step);
    if (!control_->steady && Mix(submitted_) % 2 == 0) RunUpTo(submitted_);
    return OkStatus();
  }

  void Grant(const backend::Step& step) {
    if (step.leases.empty()) return;
    FakeFlight& flight = Flight(submitted_);
    const size_t rows = step.rows.size();
    if (step.leases.size() != rows || step.logit_rows.size() != rows) return control_->Violation("leases of rows");
    uint32_t most = 0;
    for (size_t i = 0; i < rows; ++i) {
      most = std::max(most, step.leases[i].rounds);
      const size_t lists = static_cast<size_t>(std::count_if(forms_.begin(), forms_.end(), [](const auto& form) { return form.slots; }));
      if (step.leases[i].slots.size() != step.leases[i].rounds * lists) control_->Violation("a round without slots");
      if (step.choices[i].read) control_->Violation("a lease of a row that is read");
      if (!flight.told[i]) return;
    }
    const uint64_t room = control_->steady ? control_->rounds : Mix(submitted_ * 7) % (control_->rounds + 1);
    granted_ = static_cast<uint32_t>(std::min<uint64_t>(most, room));
    control_->granted.fetch_add(granted_);
    for (uint32_t i = 0; i < granted_; ++i, ++submitted_) Flight(submitted_ + 1).Behind(Flight(submitted_));
  }

  StatusOr<bool> Poll(int64_t) override {
    if (submitted_ == polled_) return false;
    RunUpTo(polled_ + 1);
    left_out_ = Flight(polled_ + 1).left_out;
    if (left_out_) {
      control_->left_out.fetch_add(1);
      submitted_ = polled_;
      return true;
    }
    ++polled_;
    const Status result = Flight(polled_).result;
    for (uint64_t n = polled_ + 1; !result.ok() && n <= submitted_; ++n) Flight(n).behind_failed = true;
    RETURN_IF_ERROR(result);
    return true;
  }

  void RunUpTo(uint64_t last) {
    for (uint64_t n = polled_ + 1; n <= last; ++n) {
      FakeFlight& flight = Flight(n);
      if ((flight.ran && !flight.behind_failed) || flight.left_out) continue;
      FakeFlight& before = Flight(n - 1);
      const bool early = flight.round && !flight.ran && (recalled_ || (!control_->steady && Mix(n * 977) % 16 == 0));
      flight.left_out = (before.left_out && n > polled_ + 1 && (flight.follows || flight.round)) ||
                        (flight.round && !flight.behind_failed && !flight.ran && (early || !flight.GoOn(before)));
      if (flight.left_out) continue;
      control_->rounds_run.fetch_add(flight.round);
      flight.behind_failed |= n > polled_ + 1 && !before.result.ok();
      for (backend::StepRow& row : flight.rows) {
        if (row.from == backend::kHere || flight.ran || flight.round) continue;
        control_->referred.fetch_add(1);
        row.token = before.chosen[row.from].value_or(0);
      }
      logits_ = flight.logits.data();
      if (flight.behind_failed) {
        ++step_;
        // What a round's rows would have been is not known.
        if (!flight.round) Write(flight.step(), /*garble=*/true);
        flight.result = Error(Code::kDeviceLost, "behind a step that failed");
      } else {
        stays_ = &flight.stays;
        flight.result = RunNow(flight.step());
        stays_ = nullptr;
      }
      flight.ran = true;
      if (!flight.result.ok()) continue;
      Choose(flight);
      // Of rounds nobody knows how far those behind are.
      if (granted_ > 0 && n > 1 && flight.round) Forget(before);
    }
  }

  void Choose(FakeFlight& flight) {
    for (size_t i = 0; i < flight.told.size(); ++i) {
      // Some it finds out to have no room for when a row behind takes the token already.
      if (!flight.told[i] || (!control_->steady && Mix(flight.positions[i] * 64 + i) % 16 == 1)) continue;
      decode::SampleRequest request;
      request.options = &flight.options[i];
      request.ban_eos = flight.banned[i];
      request.mask = flight.masks[i];
      request.position = flight.positions[i];
      const auto token =
          sampler_.Sample({&flight.logits[i * vocab_], vocab_}, request);
      if (token.ok()) flight.chosen[i] = *token;
    }
  }

  absl::optional<uint32_t> Chosen(uint32_t i) const override {
    const FakeFlight& flight = Flight(polled_);
    return i < flight.chosen.size() ? flight.chosen[i] : absl::nullopt;
  }

  // What a head reads: of each row of the last step that ran, the hash that its logits are made of.
  const std::vector<uint64_t>& taps() const { return taps_; }
  const std::vector<backend::StepRow>& tapped_rows() const { return tapped_rows_; }
  void KeepTaps() { keeps_taps_ = true; }

  Status RunNow(const backend::Step& step) {
    const int64_t run = control_->runs.fetch_add(1);
    ++step_;
    if (control_->before_run) control_->before_run();
    Validate(step);
    Write(step, /*garble=*/false);
    const Status stopped = Delay();
    if (!stopped.ok() || run == control_->fail_run.load()) {
      // KV of the step's own rows and the states it was to write are undefined after an error.
      Write(step, /*garble=*/true);
      std::fill_n(logits_, size_t{options_.max_logit_rows} * vocab_, NAN);
      return stopped.ok() ? Error(Code::kDeviceLost, "injected failure of run ", run) : stopped;
    }
    for (uint32_t i = 0; i < step.logit_rows.size(); ++i) {
      MakeLogits(step, step.logit_rows[i], i);
      if (run == control_->nan_run.load()) logits_[size_t{i} * vocab_ + vocab_ / 2] = NAN;
    }
    if (keeps_taps_) {
      taps_.clear();
      for (uint32_t row = 0; row < step.rows.size(); ++row) taps_.push_back(HashOfRow(step, row));
      tapped_rows_.assign(step.rows.begin(), step.rows.end());
    }
    if (control_->after_run) control_->after_run();
    return OkStatus();
  }

  absl::Span<float> Logits(uint32_t i) override {
    return {&Flight(polled_).logits[size_t{i} * vocab_], vocab_};
  }

  Status FetchLogits(uint32_t) override {
    if (Flight(polled_).gone) return Error(Code::kBusy, "the logits are gone");
    if (control_->fetches.fetch_add(1) != control_->fail_fetch.load()) return OkStatus();
    return Error(Code::kDeviceLost, "injected failure of a fetch");
  }

  Status CopyPage(int32_t cache, uint32_t from, uint32_t to) override {
    if (control_->copies.fetch_add(1) == control_->fail_copy.load()) {
      return Error(Code::kDeviceLost, "injected failure of a copy");
    }
    if (submitted_ != polled_) control_->Violation("a copy while a step is in flight");
    std::vector<Cell>& cells = caches_[static_cast<size_t>(cache)].cells;
    for (int i = 0; i < backend::kPageTokens; ++i) {
      cells[size_t{to} * backend::kPageTokens + i] = cells[size_t{from} * backend::kPageTokens + i];
    }
    return OkStatus();
  }

  static std::vector<uint64_t> UnitBytes(const CacheForms& forms) {
    std::vector<uint64_t> out;
    for (const model::CacheForm& form : forms) {
      out.push_back(form.slots ? sizeof(State) : backend::kPageTokens * sizeof(Cell));
    }
    return out;
  }
  uint64_t memory_bytes() const override {
    uint64_t bytes = control_->beside_bytes;
    for (const Cache& cache : caches_) {
      bytes += cache.cells.size() * sizeof(Cell) + cache.states.size() * sizeof(State);
    }
    return bytes;
  }
  // K is the layer and the token, V the position.
  StatusOr<backend::KvToken> ReadKv(int32_t cache, int32_t layer, uint32_t page,
                                   uint32_t slot) const override {
    const Cell& cell = caches_[static_cast<size_t>(cache)]
                           .cells[size_t{page} * backend::kPageTokens + slot];
    return backend::KvToken{{static_cast<float>(layer), static_cast<float>(cell.token)},
                            {static_cast<float>(cell.position)}};
  }
  std::string content_form() const override { return "fake"; }
  StatusOr<std::string> ReadContent(int32_t cache, uint32_t unit) const override {
    const Cache& from = caches_[static_cast<size_t>(cache)];
    if (unit >= from.units) return Error(Code::kInternal, "no such unit");
    if (!from.states.empty()) return BytesOf(&from.states[unit], 1);
    return BytesOf(&from.cells[size_t{unit} * backend::kPageTokens], backend::kPageTokens);
  }
  Status WriteContent(int32_t cache, uint32_t unit, absl::string_view bytes) override {
    if (submitted_ != polled_) control_->Violation("content while a step is in flight");
    Cache& to = caches_[static_cast<size_t>(cache)];
    void* at = to.states.empty() ? static_cast<void*>(&to.cells[size_t{unit} * backend::kPageTokens])
                                 : static_cast<void*>(&to.states[unit]);
    const size_t size = to.states.empty() ? sizeof(Cell) * backend::kPageTokens : sizeof(State);
    if (bytes.size() != size) return Error(Code::kInvalidArgument, "content: another size");
    std::memcpy(at, bytes.data(), size);
    control_->contents.fetch_add(1);
    return OkStatus();
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

  template <class T>
  static std::string BytesOf(const T* from, size_t count) {
    return std::string(reinterpret_cast<const char*>(from), count * sizeof(T));
  }

  Cell* At(const backend::Step& step, size_t c, uint32_t sequence, uint32_t position) {
    const backend::StepCache& cache = step.sequences[sequence].caches[c];
    // One that is kept, or lies within what steps of a window list.
    const uint32_t at = position / backend::kPageTokens;
    const bool kept = at < cache.first_page;
    const absl::Span<const uint32_t> pages = kept ? cache.kept : cache.pages;
    const uint32_t page = kept ? at : at - cache.first_page;
    if (page >= pages.size() || pages[page] >= caches_[c].units) {
      control_->Violation("a position without a page");
      return &nowhere_;
    }
    return &caches_[c].cells[size_t{pages[page]} * backend::kPageTokens + position % backend::kPageTokens];
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
      for (size_t i = 0; i < step.rows.size(); ++i) {
        const backend::StepRow& row = step.rows[i];
        if (garble && Stays(i)) continue;
        *At(step, c, row.sequence, row.position) = {garble ? 0xDEAD : row.token, row.position};
      }
    }
  }

  bool Stays(size_t row) const { return stays_ != nullptr && row < stays_->size() && (*stays_)[row]; }

  void WriteStates(const backend::Step& step, size_t c, uint32_t sequence, bool garble) {
    const backend::StepCache& cache = step.sequences[sequence].caches[c];
    State state = {0, 0};
    if (cache.state_in != backend::kNoSlot) state = caches_[c].states[cache.state_in];
    uint32_t row = 0, in_sequence = 0;
    while (row < step.rows.size() && step.rows[row].sequence != sequence) ++row;
    if (garble && Stays(row)) return;
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
    const uint32_t window = forms_[c].window, kept = forms_[c].kept * backend::kPageTokens;
    const uint32_t first = window == 0 || row.position < window ? 0 : row.position + 1 - window;
    uint64_t hash = 0;
    for (uint32_t p = 0; p <= row.position; ++p) {
      if (p < first && p >= kept) continue;
      const Cell cell = *At(step, c, row.sequence, p);
      if (cell.position != p) control_->Violation("a KV cell of another position");
      hash = FoldToken(hash, cell.token);
    }
    return hash;
  }

  uint64_t HashOfRow(const backend::Step& step, uint32_t row) {
    uint64_t hash = 0;
    for (size_t c = 0; c < forms_.size(); ++c) hash = JoinHashes(c, hash, HashOf(step, c, row));
    return hash;
  }

  void MakeLogits(const backend::Step& step, uint32_t row, uint32_t i) {
    const uint64_t hash = HashOfRow(step, row);
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
  const uint32_t in_flight_;
  decode::Sampler sampler_;
  FakeFlight& Flight(uint64_t n) { return flights_[n % flights_.size()]; }
  const FakeFlight& Flight(uint64_t n) const { return flights_[n % flights_.size()]; }
  static void Forget(FakeFlight& flight) {
    for (float& x : flight.logits) x = NAN;
    flight.gone = true;
  }

  std::vector<FakeFlight> flights_;  // a step that has not run yet takes tokens of the one before it
  const std::vector<bool>* stays_ = nullptr;  // of the round that runs
  uint64_t submitted_ = 0, polled_ = 0;  // rounds are counted like steps
  uint32_t granted_ = 0;
  bool recalled_ = false, left_out_ = false;
  float* logits_ = nullptr;  // [max_logit_rows][vocab] of the step that runs
  uint64_t step_ = 0;
  Cell nowhere_;
  bool keeps_taps_ = false;
  std::vector<uint64_t> taps_;
  std::vector<backend::StepRow> tapped_rows_;
};

class FakeModel final : public backend::LoadedModel {
 public:
  explicit FakeModel(uint32_t vocab, CacheForms forms = {{}})
      : vocab_(vocab), forms_(std::move(forms)) {}
  StatusOr<std::unique_ptr<backend::Context>> CreateContext(
      const backend::ContextOptions& options) const override {
    if (options.program == 1) return make_head(options);
    return std::unique_ptr<backend::Context>(
        std::make_unique<FakeContext>(&control, vocab_, forms_, options));
  }
  const backend::Program& program() const override { return program_; }
  uint64_t weight_bytes() const override { return 0; }
  backend::KvRoom kv_room(backend::KvType, const backend::Program* = nullptr) const override {
    std::vector<uint64_t> bytes = control.room.unit_bytes;
    if (bytes.empty()) bytes = FakeContext::UnitBytes(forms_);
    bytes.insert(bytes.end(), head_unit_bytes.begin(), head_unit_bytes.end());
    return {control.room.bytes, bytes};
  }

  mutable FakeControl control;
  // Of a second Program: fake_head.h.
  std::function<std::unique_ptr<backend::Context>(const backend::ContextOptions&)> make_head;
  std::vector<uint64_t> head_unit_bytes;

 private:
  uint32_t vocab_;
  CacheForms forms_;
  backend::Program program_;
};

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_FAKE_BACKEND_H_
