// SPDX-License-Identifier: MIT
//
// The head that drafts, of a FakeModel: no arithmetic either. Its cells hold what each position was made
// of (the hidden row before it, the token there), its slots the hidden row before the next token; it
// knows what the model would say, and says that or, where it is to be wrong, something else. Any pair
// of the wrong hidden row, any state of another position and any row that was not mirrored trips a check.
#ifndef MAINARCH_TESTS_SUPPORT_FAKE_HEAD_H_
#define MAINARCH_TESTS_SUPPORT_FAKE_HEAD_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/fake_backend.h"

namespace mainarch::test {

struct HeadControl {
  std::atomic<int64_t> runs{0};
  std::atomic<int64_t> fail_run{-1};  // the run of this number fails after garbling its rows
  std::atomic<int64_t> drafts{0};     // rows that were asked for a guess
  std::atomic<uint32_t> wrong{0};     // of 8 guesses, so many are the model's by chance only
  std::atomic<bool> nan{false};       // logits are no numbers
  std::atomic<uint64_t> beside_bytes{0};
};

inline CacheForms HeadForms() { return {{true, 0}, {false, 0}}; }

class FakeHead final : public backend::ImmediateContext {
 public:
  FakeHead(FakeControl* faults, HeadControl* control, uint32_t vocab, const CacheForms& forms,
           const backend::ContextOptions& options)
      : faults_(faults),
        control_(control),
        vocab_(vocab),
        forms_(forms),
        source_(const_cast<FakeContext*>(dynamic_cast<const FakeContext*>(options.source))),
        chooses_(faults->in_flight == 2),
        sampler_(vocab),
        states_(options.slots.at(0)),
        cells_(size_t{options.pages.at(1)} * backend::kPageTokens),
        logits_(size_t{options.max_logit_rows} * vocab) {
    source_->KeepTaps();
    sampler_.Reserve(4 * uint64_t{vocab});
    sampler_.ReserveMask();
  }

  static std::vector<uint64_t> UnitBytes() {
    return {sizeof(State), backend::kPageTokens * sizeof(Cell)};
  }
  absl::Span<float> Logits(uint32_t i) override { return {&logits_[size_t{i} * vocab_], vocab_}; }
  // Some choices it has no room for.
  absl::optional<uint32_t> Chosen(uint32_t i) const override { return chosen_[i]; }
  uint64_t memory_bytes() const override {
    return states_.size() * sizeof(State) + cells_.size() * sizeof(Cell) + control_->beside_bytes;
  }
  Status CopyPage(int32_t cache, uint32_t from, uint32_t to) override {
    if (cache != 1) faults_->Violation("a copy of a page of the head's slots");
    for (uint32_t i = 0; i < backend::kPageTokens; ++i) {
      cells_[size_t{to} * backend::kPageTokens + i] = cells_[size_t{from} * backend::kPageTokens + i];
    }
    return OkStatus();
  }
  std::string content_form() const override { return "fake head"; }
  StatusOr<std::string> ReadContent(int32_t cache, uint32_t unit) const override {
    const auto [at, size] = ContentOf(cache, unit);
    return std::string(at, size);
  }
  Status WriteContent(int32_t cache, uint32_t unit, absl::string_view bytes) override {
    const auto [at, size] = ContentOf(cache, unit);
    if (bytes.size() != size) return Error(Code::kInvalidArgument, "content: another size");
    std::memcpy(const_cast<char*>(at), bytes.data(), size);
    return OkStatus();
  }
  Status RunPrefix(const backend::Step&, size_t) override {
    return Error(Code::kUnsupported, "fake");
  }
  std::vector<float> ReadBuffer(int32_t, backend::BufferId, uint32_t) const override { return {}; }

 protected:
  Status RunNow(const backend::Step& step) override {
    const int64_t run = control_->runs.fetch_add(1);
    const bool mirrors = step.logit_rows.empty();
    Check(mirrors || step.logit_rows.size() == step.rows.size(), "some rows make logits");
    Check(step.inputs.size() == step.rows.size(), "an input a row");
    if (mirrors) CheckMirror(step);
    const bool fails = run == control_->fail_run.load(), stops = stop_requested();
    Write(step, fails || stops);
    if (stops) return Error(Code::kCancelled, "fake head stopped");
    if (fails) return Error(Code::kDeviceLost, "injected failure of a run of the head");
    chosen_.assign(step.logit_rows.size(), absl::nullopt);
    for (uint32_t i = 0; i < step.logit_rows.size(); ++i) Guess(step, step.logit_rows[i], i);
    return OkStatus();
  }

 private:
  struct Cell {
    uint64_t hidden = 0xBAD;
    uint32_t token = 0xBAD;
    uint32_t position = UINT32_MAX;
    bool guessed = false;  // of a hidden row that the head made up
  };
  struct State {
    uint64_t hidden = 0xBAD;
    uint64_t position = UINT64_MAX;  // of the next token
  };

  struct Own {  // a hidden row
    uint64_t hidden = 0;
    uint32_t position = 0, table = 0;
  };

  void Check(bool good, const char* what) {
    if (!good) faults_->Violation(what);
  }
  std::pair<const char*, size_t> ContentOf(int32_t cache, uint32_t unit) const {
    if (cache == 0) return {reinterpret_cast<const char*>(&states_[unit]), sizeof(State)};
    return {reinterpret_cast<const char*>(&cells_[size_t{unit} * backend::kPageTokens]),
            backend::kPageTokens * sizeof(Cell)};
  }
  static bool First(const backend::Step& step, size_t row) {
    return row == 0 || step.rows[row - 1].sequence != step.rows[row].sequence;
  }
  State StateIn(const backend::Step& step, uint32_t sequence) const {
    const uint32_t slot = step.sequences[sequence].caches[0].state_in;
    return slot == backend::kNoSlot ? State{0, 0} : states_[slot];
  }
  Cell& At(const backend::Step& step, uint32_t sequence, uint32_t position) {
    const backend::StepCache& cache = step.sequences[sequence].caches[1];
    const uint32_t page = position / backend::kPageTokens - cache.first_page;
    if (page >= cache.pages.size()) {
      faults_->Violation("a position of the head without a page");
      return nowhere_;
    }
    return cells_[size_t{cache.pages[page]} * backend::kPageTokens + position % backend::kPageTokens];
  }

  void CheckMirror(const backend::Step& step) {
    const std::vector<backend::StepRow>& of = source_->tapped_rows();
    bool same = of.size() == step.rows.size();
    for (size_t i = 0; same && i < of.size(); ++i) {
      same = of[i].token == step.rows[i].token && of[i].position == step.rows[i].position &&
             of[i].sequence == step.rows[i].sequence;
    }
    Check(same, "the head mirrors other rows");
  }

  uint64_t HiddenOf(const backend::Step& step, uint32_t row) {
    const uint32_t from = step.inputs[row];
    if (from == backend::kCarriedInput) {
      const State state = StateIn(step, step.rows[row].sequence);
      Check(First(step, row), "a later row takes what is carried on");
      Check(state.position == step.rows[row].position, "a hidden row of another position");
      return state.hidden;
    }
    if ((from & backend::kOwnInput) != 0) {
      const Own& own = own_.at(from & ~backend::kOwnInput);
      Check(own.table == step.sequences[step.rows[row].sequence].table &&
                own.position + 1 == step.rows[row].position,
            "a hidden row of the head's own of another sequence or position");
      return own.hidden;
    }
    Check(!First(step, row) && from == row - 1, "a hidden row that is not the one before");
    return source_->taps().at(from);
  }

  void Write(const backend::Step& step, bool garble) {
    std::vector<Own> own;
    for (uint32_t row = 0; row < step.rows.size(); ++row) {
      const backend::StepRow& r = step.rows[row];
      const bool guessed =
          step.inputs[row] != backend::kCarriedInput && (step.inputs[row] & backend::kOwnInput) != 0;
      const uint64_t hidden = HiddenOf(step, row);
      At(step, r.sequence, r.position) = {garble ? 0xDEAD : hidden, r.token, r.position, guessed};
      own.push_back({Mix(hidden + r.token), r.position, step.sequences[r.sequence].table});
    }
    uint32_t first = 0;
    for (uint32_t s = 0; s < step.sequences.size(); ++s) {
      while (first < step.rows.size() && step.rows[first].sequence != s) ++first;
      for (const backend::StateOut& out : step.sequences[s].caches[0].state_out) {
        Check(step.logit_rows.empty(), "a state behind a guess");
        const uint32_t row = first + out.row;
        states_.at(out.slot) = garble ? State() : State{source_->taps().at(row),
                                                        step.rows.at(row).position + uint64_t{1}};
      }
    }
    own_ = std::move(own);
  }

  void Guess(const backend::Step& step, uint32_t row, uint32_t i) {
    const backend::StepRow& r = step.rows[row];
    control_->drafts.fetch_add(1);
    const uint64_t held = StateIn(step, r.sequence).position;
    std::vector<uint32_t> tokens;
    for (uint32_t p = 0; p <= r.position; ++p) {
      const Cell& cell = At(step, r.sequence, p);
      Check(cell.position == p, "a cell of the head of another position");
      Check(cell.guessed == (p > held), "a guess that was not mirrored, or no guess");
      tokens.push_back(cell.token);
    }
    // One of those that are the model's: all of them would be slow.
    const auto some = static_cast<uint32_t>(Mix(control_->drafts) % (held + 1));
    const std::vector<uint32_t> before(tokens.begin(), tokens.begin() + some);
    Check(At(step, r.sequence, some).hidden == (some == 0 ? 0 : FakeHash(before, forms_)),
          "a pair of another hidden row");
    uint64_t hash = FakeHash(tokens, forms_);
    if (Mix(hash) % 8 < control_->wrong) hash = Mix(hash);
    for (uint32_t t = 0; t < vocab_; ++t) {
      logits_[size_t{i} * vocab_ + t] = control_->nan ? NAN : FakeLogit(hash, t);
    }
    if (chooses_ && Mix(hash) % 4 > 0 && i < step.choices.size()) Choose(step.choices[i], i);
  }

  void Choose(const backend::Choice& choice, uint32_t i) {
    if (!choice.choose || !choice.counted.empty()) return;
    decode::SequenceOptions o;
    o.temperature = choice.temperature, o.min_p = choice.min_p, o.top_p = choice.top_p;
    o.top_k = choice.top_k, o.seed = choice.seed;
    o.logit_bias.assign(choice.bias.begin(), choice.bias.end());
    std::vector<uint32_t> banned(choice.banned[0].begin(), choice.banned[0].end());
    banned.insert(banned.end(), choice.banned[1].begin(), choice.banned[1].end());
    decode::SampleRequest request;
    request.options = &o;
    request.ban_eos = banned;
    request.mask = choice.mask;
    request.position = choice.position;
    const auto token = sampler_.Sample(Logits(i), request);
    if (token.ok()) chosen_[i] = *token;
  }

  FakeControl* faults_;
  HeadControl* control_;
  const uint32_t vocab_;
  const CacheForms forms_;  // of the model
  FakeContext* const source_;
  const bool chooses_;
  decode::Sampler sampler_;
  std::vector<State> states_;
  std::vector<Cell> cells_;
  std::vector<float> logits_;
  std::vector<absl::optional<uint32_t>> chosen_;
  std::vector<Own> own_;  // of its last step
  Cell nowhere_;
};

inline void UseFakeHead(FakeModel* model, HeadControl* control, uint32_t vocab,
                        const CacheForms& forms) {
  model->head_unit_bytes = FakeHead::UnitBytes();
  model->make_head = [=](const backend::ContextOptions& options) {
    return std::unique_ptr<backend::Context>(
        std::make_unique<FakeHead>(&model->control, control, vocab, forms, options));
  };
}

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_FAKE_HEAD_H_
