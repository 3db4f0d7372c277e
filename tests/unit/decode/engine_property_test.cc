// SPDX-License-Identifier: MIT
//
// Random operations on an engine over a hashing backend, against an oracle without pages, states,
// batches or steps: whatever the caches of the model, batch mix, chunk size, pool sizes, forks,
// truncations, failures, cancellations, preemptions, snapshots, drafts and prefixes found, every
// sequence's tokens are those of its options and tokens alone, and in the end no page or slot is
// missing. A state cannot be written twice or left out without another hash coming out.
//
// MAINARCH_PROPERTY_OPERATIONS: how many, 75,000 by default.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "decode/engine_impl.h"
#include "support/engine_oracle.h"
#include "support/fake_head.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::decode;
using test::OracleSequence;

namespace {

constexpr uint32_t kVocab = 61;

test::CacheForms FormsOfPlay(uint32_t seed) {
  const uint32_t window = 1 + seed * 7 % 45;
  const model::CacheForm whole = {false, 0}, sliding = {false, window}, states = {true, 0};
  const model::CacheForm near = {false, window, 1 + seed / 9 % 2};  // with first pages that are kept
  const std::vector<test::CacheForms> all = {
      {whole},         {whole, sliding},         {sliding, whole},
      {states},        {whole, states},          {sliding},
      {sliding, states}, {states, whole, sliding, whole, states, {false, 1 + window / 2}}, {whole, near}};
  return all[seed % all.size()];
}

// In the order of opening: ids are other ones in each run, and runs are to be the same.
struct Name {
  uint64_t serial = 0;
  SequenceId id = 0;

  operator SequenceId() const { return id; }
  bool operator<(const Name& other) const { return serial < other.serial; }
};

class Play final : public DraftSource {
 public:
  explicit Play(uint32_t seed)
      : random_(seed), forms_(FormsOfPlay(seed)), model_(kVocab, forms_), prefixes_(seed % 3 > 0) {}

  // "" or what went wrong.
  std::string Run(int operations) {
    EngineOptions o;
    o.max_sequences = 1 + Pick(9);
    o.max_step_tokens = 1 + Pick(Pick(2) ? 6 : 70);
    o.max_sequence_tokens = 20 + Pick(150);
    // From hardly enough for one sequence to enough for all.
    o.kv_tokens = o.max_sequence_tokens + Pick(o.max_sequence_tokens * o.max_sequences);
    if (Pick(8) == 0) o.kv_tokens = 16;
    facts_ = {kVocab, 1000, {3, 7}, forms_, {}, 0, {}};
    o.logit_rows = Pick(2) * Pick(40);
    o.snapshots = Pick(5);
    o.snapshot_tokens = 16 * (1 + Pick(4));
    // It is the engine's only for as long as that lives.
    const uint32_t who = Pick(6);
    if (who < 2) o.drafts = std::shared_ptr<DraftSource>(std::shared_ptr<void>(), this);
    if (who == 2) o.draft_kind = DraftKind::kNgram;
    if (who == 3 || who == 4) o.draft_kind = DraftKind::kHead;
    o.max_drafts = who == 5 ? 0 : 1 + Pick(4);
    head_ = o.draft_kind == DraftKind::kHead;
    if (head_) {
      facts_.head_caches = test::HeadForms();
      test::UseFakeHead(&model_, &head_control_, kVocab, forms_);
      head_control_.wrong = Pick(9);
    }
    if (Pick(2)) o.state_slots = o.max_sequences * (2 + o.max_drafts) + Pick(5);
    o.prefix_cache = prefixes_;
    if (Pick(4) == 0) o.prefix_bytes = 1 + Pick(20'000);
    // Half of all plays over a backend that takes two steps in flight, most of them without what
    // keeps the engine from using that.
    model_.control.in_flight = 1 + Pick(2);
    plain_ = model_.control.in_flight == 2 && Pick(4) > 0;
    if (plain_) o.drafts = nullptr, o.draft_kind = DraftKind::kNone, o.max_drafts = 0;
    head_ &= !plain_;
    // And of these again half, of models with states all, with rounds behind a step.
    const bool has_rounds = plain_ && (states() || Pick(2) > 0);
    model_.control.rounds = has_rounds ? 1 + Pick(12) : 0;
    if (has_rounds) o.resident = backend::ResidentMode::kAuto;
    if (has_rounds) o.state_slots *= 1 + Pick(4);
    auto engine = CreateEngine(nullptr, model_, facts_, o);
    if (!engine.ok()) return std::string(engine.status().message());
    engine_ = *std::move(engine);
    if (Pick(3) == 0) {
      const std::string wrong = MakeSmaller(o);
      if (!wrong.empty()) return wrong;
    }
    capacity_ = o.max_sequence_tokens;
    test::CacheForms all = forms_;
    if (head_) all.push_back({});
    for (const model::CacheForm& form : all) {
      if (form.whole()) capacity_ = std::min<uint64_t>(capacity_, (o.kv_tokens + 15) / 16 * 16);
    }
    max_sequences_ = o.max_sequences;
    for (int i = 0; i < operations; ++i) {
      stepped_ = false;
      std::string wrong = Operation();
      if (wrong.empty()) wrong = CheckAll();
      if (wrong.empty()) wrong = CheckPools();
      if (!wrong.empty()) return absl::StrCat("operation ", i, ": ", wrong);
    }
    return CloseAll();
  }

  uint64_t preemptions_or_failures() const { return lost_positions_; }
  uint64_t right_drafts() const { return right_drafts_; }
  uint64_t referred() const { return static_cast<uint64_t>(model_.control.referred.load()); }
  uint64_t rounds_run() const { return static_cast<uint64_t>(model_.control.rounds_run.load()); }
  bool states() const {
    return std::any_of(forms_.begin(), forms_.end(), [](const auto& form) { return form.slots; });
  }
  uint64_t left_out() const { return static_cast<uint64_t>(model_.control.left_out.load()); }
  uint64_t stored() const { return stored_; }
  uint64_t adopted() const { return engine_->info().ahead; }
  EngineInfo info() const { return engine_->info(); }
  uint64_t pinned() const { return pinned_; }
  bool head() const { return head_; }

  // The right tokens, up to a wrong one.
  size_t Propose(uint32_t, absl::Span<const uint32_t> tokens, absl::Span<uint32_t> out) override {
    size_t n = Pick(static_cast<uint32_t>(out.size()) + 1);
    const size_t wrong = Pick(2) ? n : Pick(static_cast<uint32_t>(n) + 1);
    OracleSequence ahead;
    for (const auto& entry : sequences_) {
      if (entry.second.tokens.size() != tokens.size() || !entry.second.Equals(tokens)) continue;
      ahead = entry.second;
      break;
    }
    for (size_t i = 0; i < n; ++i) {
      if (ahead.finish == Finish::kNone) ahead.Advance();
      out[i] = i < wrong && !ahead.tokens.empty() ? ahead.tokens.back() : Pick(kVocab + 2);
    }
    right_drafts_ += wrong;
    return n;
  }

 private:
  uint32_t Pick(uint32_t n) { return n == 0 ? 0 : static_cast<uint32_t>(random_() % n); }

  // Again with less memory than it took, but enough without snapshots and slots for rounds.
  std::string MakeSmaller(EngineOptions o) {
    const uint64_t all = engine_->info().memory_bytes;
    const uint32_t snapshots = o.snapshots;
    const backend::ResidentMode resident = o.resident;
    o.snapshots = 0;
    o.resident = backend::ResidentMode::kOff;
    auto least = CreateEngine(nullptr, model_, facts_, o);
    if (!least.ok()) return std::string(least.status().message());
    const uint64_t bytes = (*least)->info().memory_bytes;
    if (bytes > all) return "more memory without snapshots";
    o.snapshots = snapshots;
    o.resident = resident;
    o.memory_bytes = bytes + Pick(static_cast<uint32_t>(all - bytes) + 1);
    auto smaller = CreateEngine(nullptr, model_, facts_, o);
    if (!smaller.ok()) return std::string(smaller.status().message());
    engine_ = *std::move(smaller);
    if (engine_->info().memory_bytes > o.memory_bytes) return "more memory than memory_bytes";
    o.memory_bytes = bytes - 1;
    return CreateEngine(nullptr, model_, facts_, o).ok() ? "less memory than the least" : "";
  }

  SequenceOptions RandomOptions() {
    SequenceOptions o;
    o.manual = Pick(plain_ ? 40 : 5) == 0;
    o.ignore_eos = Pick(2) == 0;
    o.seed = random_();
    if (Pick(2)) o.temperature = 0.5f + static_cast<float>(Pick(4)) / 2;
    if (Pick(3) == 0) o.top_p = 0.8f;
    if (Pick(3) == 0) o.top_k = 1 + Pick(10);
    if (Pick(4) == 0) o.min_p = 0.05f;
    if (!plain_ && Pick(3) == 0) o.repetition_penalty = 1.25f;
    if (!plain_ && Pick(4) == 0) o.frequency_penalty = 0.25f;
    if (!plain_ && Pick(4) == 0) o.presence_penalty = 0.5f;
    if (Pick(3) == 0) o.min_tokens = Pick(5);
    if (Pick(3) == 0) o.max_tokens = o.min_tokens + 1 + Pick(20);
    if (Pick(4) == 0) o.logprobs = 1 + Pick(4);
    if (Pick(4) == 0) o.prompt_logprobs = 1 + Pick(4);
    if (Pick(6) == 0) o.all_logits = true;
    if (Pick(8) == 0) o.prefix_salt = 1;
    if (Pick(4) == 0) o.stop_tokens = {Pick(kVocab), Pick(kVocab)};
    if (Pick(4) == 0) o.stop_sequences = {{Pick(kVocab)}, {Pick(kVocab), Pick(kVocab)}};
    if (Pick(4) == 0) o.logit_bias = {{Pick(kVocab), 3.0f}, {Pick(kVocab), -INFINITY}};
    return o;
  }

  std::string Operation() {
    const uint32_t kind = Pick(20);
    if (kind < 2 || sequences_.empty()) return Open();
    auto it = sequences_.begin();
    std::advance(it, Pick(static_cast<uint32_t>(sequences_.size())));
    if (kind < 6) return Append(it->first, it->second);
    if (kind == 6) return Fork(it->first, it->second);
    if (kind == 7) return Truncate(it->first, it->second);
    if (kind == 8 && Pick(3) == 0) return Close(it->first);
    if (kind == 8 && Pick(2)) return Travel(it->first);
    if (kind == 8) return PinOrDrop(it->second);
    if (kind < 11) return Take(it->first, it->second);
    return Step();
  }

  std::string Open() {
    const SequenceOptions options = RandomOptions();
    auto id = engine_->Open(options);
    if (sequences_.size() == max_sequences_) {
      return CodeOf(id.status()) == Code::kBusy ? "" : "more sequences than there may be";
    }
    if (!id.ok()) return std::string(id.status().message());
    OracleSequence oracle;
    oracle.options = options;
    oracle.vocab = kVocab;
    oracle.max_tokens = capacity_;
    oracle.eos = facts_.eos_ids;
    oracle.forms = forms_;
    sequences_[{++opened_, *id}] = oracle;
    return "";
  }

  std::string Append(SequenceId id, OracleSequence& oracle) {
    std::vector<uint32_t> tokens(Pick(4) ? 1 + Pick(5) : Pick(60));
    for (uint32_t& t : tokens) t = Pick(kVocab);
    if (prefixes_ && oracle.tokens.empty() && !past_.empty() && Pick(3) > 0) {
      // Like one that was here before, to some point.
      const std::vector<uint32_t>& like = past_[Pick(static_cast<uint32_t>(past_.size()))];
      tokens.insert(tokens.begin(), like.begin(),
                    like.begin() + static_cast<ptrdiff_t>(Pick(static_cast<uint32_t>(like.size()) + 1)));
    }
    const bool bad = Pick(10) == 0 && !tokens.empty();
    if (bad) tokens[Pick(static_cast<uint32_t>(tokens.size()))] = kVocab + Pick(5);
    const Status status = engine_->Append(id, tokens);
    if (oracle.tokens.size() + tokens.size() > capacity_) {
      return CodeOf(status) == Code::kKvFull ? "" : "too many tokens were taken";
    }
    if (bad) return CodeOf(status) == Code::kInvalidArgument ? "" : "a bad token was taken";
    oracle.Append(tokens);
    return std::string(status.message());
  }

  std::string Fork(SequenceId id, const OracleSequence& oracle) {
    auto fork = engine_->Fork(id);
    if (sequences_.size() == max_sequences_) return fork.ok() ? "one fork too many" : "";
    if (!fork.ok()) return std::string(fork.status().message());
    OracleSequence copy = oracle.Fork();
    if (Pick(2)) {
      copy.options.seed = random_();
      if (!engine_->SetSeed(*fork, copy.options.seed).ok()) return "set seed";
    }
    sequences_[{++opened_, *fork}] = copy;
    return "";
  }

  std::string Truncate(SequenceId id, OracleSequence& oracle) {
    Remember(oracle);
    const size_t n = Pick(static_cast<uint32_t>(oracle.tokens.size()) + 2);
    const Status status = engine_->Truncate(id, n);
    if (n > oracle.tokens.size()) return status.ok() ? "truncated to more" : "";
    oracle.Truncate(n);
    return std::string(status.message());
  }

  void Remember(const OracleSequence& oracle) {
    if (past_.size() < 8) past_.emplace_back();
    past_[Pick(static_cast<uint32_t>(past_.size()))] = oracle.tokens;
  }

  std::string PinOrDrop(const OracleSequence& oracle) {
    const absl::Span<const uint32_t> some = absl::MakeConstSpan(oracle.tokens)
        .first(Pick(static_cast<uint32_t>(oracle.tokens.size()) + 1));
    if (Pick(2)) {
      return std::string(engine_->DropPrefix(some, oracle.options.prefix_salt).message());
    }
    const auto pinned = engine_->PinPrefix(some, oracle.options.prefix_salt);
    if (CodeOf(pinned.status()) == Code::kKvFull) return "";
    if (!pinned.ok()) return std::string(pinned.status().message());
    pinned_ += *pinned;
    return *pinned > some.size() ? "more was pinned than was named" : "";
  }

  std::string Close(Name name) {
    const SequenceId id = name;
    Remember(sequences_.at(name));
    const Status status = engine_->Close(id);
    sequences_.erase(name);
    if (engine_->Close(id).ok()) return "closed twice";
    if (engine_->InfoOf(id).ok()) return "a closed sequence answers";
    return std::string(status.message());
  }

  // To bytes and back.
  std::string Travel(Name name) {
    auto state = engine_->Save(name, Pick(3) > 0);
    if (!state.ok()) return std::string(state.status().message());
    const OracleSequence oracle = sequences_.at(name);
    const std::string wrong = Close(name);
    if (!wrong.empty()) return wrong;
    auto read = ReadState(WriteState(*state, 5), 5, kVocab);
    if (!read.ok()) return std::string(read.status().message());
    auto id = engine_->Restore(*read);
    if (!id.ok()) return std::string(id.status().message());
    sequences_[{++opened_, *id}] = oracle;
    const auto info = engine_->InfoOf(*id);
    if (info->position != 0 && info->position != state->stored) return "another position";
    stored_ += info->position;
    return "";
  }

  std::string Take(SequenceId id, OracleSequence& oracle) {
    std::vector<uint32_t> out(Pick(6));
    auto n = engine_->Take(id, absl::MakeSpan(out));
    if (!n.ok()) return std::string(n.status().message());
    const size_t from = oracle.taken;
    out.resize(*n);
    if (out != oracle.Take(out.size())) return "other tokens were taken";
    if (oracle.options.logprobs == 0) return "";
    size_t at = from;
    for (size_t j = 0; j < out.size(); ++j, ++at) {
      while (!oracle.sampled[at]) ++at;
      const std::vector<uint32_t> prefix(oracle.tokens.begin(),
                                         oracle.tokens.begin() + static_cast<ptrdiff_t>(at));
      const std::vector<float> logits = test::FakeLogits(prefix, kVocab, forms_);
      double total = 0;
      for (float x : logits) total += std::exp(double(x));
      auto logprobs = engine_->TakenLogprobs(id, j);
      if (!logprobs.ok()) return std::string(logprobs.status().message());
      if (logprobs->size() != 1 + oracle.options.logprobs) return "number of logprobs";
      const Logprob own = (*logprobs)[0];
      if (own.token != out[j]) return "logprobs of another token";
      if (std::fabs(own.logprob - (logits[own.token] - std::log(total))) > 1e-4) return "logprob";
      const float best = *std::max_element(logits.begin(), logits.end());
      if (logits[(*logprobs)[1].token] != best) return "the best is not first";
    }
    return "";
  }

  // A step of one of the four kinds: run or submitted, left alone or failed.
  std::string Step(bool may_fail = true) {
    test::FakeControl& control = model_.control;
    const bool fail = may_fail && Pick(6) == 0;
    const uint32_t how = Pick(3);
    if (fail && how == 0) control.fail_run = control.runs.load();
    if (fail && how == 1) control.nan_run = control.runs.load();
    if (fail && how == 2) control.fail_copy = control.copies.load();
    if (fail && Pick(3) == 0) head_control_.fail_run = head_control_.runs.load() + Pick(6);
    const int64_t runs = control.runs;
    Status status;
    bool worked = false;
    if (Pick(6) == 0) {
      const bool cancel = Pick(2) == 0;
      auto submitted = engine_->Submit();
      status = submitted.status();
      worked = submitted.ok() && *submitted;
      if (cancel) engine_->Cancel();
      if (worked) status = engine_->Wait(-1).status();
      if (CodeOf(status) == Code::kCancelled && cancel) status = Status();
    } else {
      auto ran = engine_->RunStep();
      status = ran.status();
      worked = ran.ok() && *ran;
    }
    control.fail_run = control.nan_run = control.fail_copy = head_control_.fail_run = -1;
    stepped_ = status.ok() && worked;
    // What was done to a step that ran ahead comes out with the next one, and to a round when it is its turn.
    const bool two = control.in_flight == 2;
    if (fail) failed_for_ = two ? 2 + control.rounds : 1;
    if (fail && how == 1) nan_for_ = failed_for_;
    const bool failed = failed_for_ > 0, nan = nan_for_ > 0;
    failed_for_ -= failed, nan_for_ -= nan;
    if (!status.ok() && !failed) return std::string(status.message());
    // Who was handed a nan tries again.
    for (const auto& entry : sequences_) {
      const auto info = engine_->InfoOf(entry.first);
      if (!info.ok() || info->finish != Finish::kFault) continue;
      if (!nan) return "a fault out of nowhere";
      const Status again = engine_->Truncate(entry.first, info->tokens);
      if (!again.ok()) return std::string(again.message());
    }
    // Ahead of the next step, and one that ran ahead for nothing.
    if (control.runs > runs + (two ? 3 : 1) + 2 * control.rounds) return "more than one run in a step";
    return control.Violations();
  }

  std::string CheckAll() {
    for (auto& [id, oracle] : sequences_) {
      auto info = engine_->InfoOf(id);
      if (!info.ok()) return std::string(info.status().message());
      const std::string wrong = oracle.Follow(*info);
      if (!wrong.empty()) return wrong;
      uint64_t& position = positions_[id];
      lost_positions_ += info->position < position;
      const std::string logits_wrong = CheckRows(id, oracle, position, info->position);
      if (!logits_wrong.empty()) return logits_wrong;
      position = info->position;
      auto logits = engine_->Logits(id);
      if (oracle.options.manual && logits.ok()) {
        const std::vector<float> expected = test::FakeLogits(oracle.tokens, kVocab, forms_);
        if (!std::equal(expected.begin(), expected.end(), logits->begin())) return "logits";
      }
      // A manual sequence that has run all it holds has logits.
      if (oracle.options.manual && info->tokens > 0 && info->pending == 0 && !logits.ok()) {
        return "no logits";
      }
    }
    return "";
  }

  // A pool of a window may have no more pages than one without (PoolSize), so it must never need more.
  std::string CheckPools() {
    uint64_t whole = UINT64_MAX, windowed = 0;
    for (const model::CachePool& pool : static_cast<EngineImpl&>(*engine_).pools()) {
      const uint64_t used = pool.units.total() - pool.units.free_pages();
      if (pool.form.whole()) whole = std::min(whole, used);
      if (pool.form.window > 0) windowed = std::max(windowed, used);
    }
    return windowed > whole ? absl::StrCat(windowed, " pages of a window beside ", whole, " of all tokens") : "";
  }

  // What was asked for of rows, at one position each; the last step may have run [from, to).
  std::string CheckRows(SequenceId id, const OracleSequence& oracle, uint64_t from, uint64_t to) {
    const auto logits_before = [&](uint64_t n) {
      return test::FakeLogits({oracle.tokens.begin(), oracle.tokens.begin() + static_cast<ptrdiff_t>(n)},
                              kVocab, forms_);
    };
    if (oracle.options.all_logits && to > from && stepped_) {
      const uint64_t position = from + Pick(static_cast<uint32_t>(to - from));
      const auto logits = engine_->LogitsAt(id, position);
      if (!logits.ok()) {
        return absl::StrCat(logits.status().message(), " (it went from ", from, " to ", to, ")");
      }
      const std::vector<float> expected = logits_before(position + 1);
      if (!std::equal(expected.begin(), expected.end(), logits->begin())) return "logits of a row";
      if (engine_->LogitsAt(id, to).ok()) return "logits of a row that has not run";
    }
    if (oracle.options.prompt_logprobs == 0 || oracle.tokens.empty()) return "";
    const uint64_t position = Pick(static_cast<uint32_t>(oracle.tokens.size()) + 1);
    const auto got = engine_->PromptLogprobs(id, position);
    const bool appended = position > 0 && position < oracle.tokens.size() && !oracle.sampled[position];
    if (!appended) return CodeOf(got.status()) == Code::kInvalidArgument ? "" : "a score of no token";
    // It is there once the row before has run, and stays when that must run again.
    if (!got.ok()) return position > to && CodeOf(got.status()) == Code::kBusy ? "" : "no score";
    const std::vector<float> logits = logits_before(position);
    double total = 0;
    for (float x : logits) total += std::exp(double(x));
    const Logprob own = (*got)[0];
    if (got->size() != 1 + oracle.options.prompt_logprobs) return "number of prompt logprobs";
    if (own.token != oracle.tokens[position]) return "prompt logprobs of another token";
    if (std::fabs(own.logprob - (logits[own.token] - std::log(total))) > 1e-4) return "prompt logprob";
    return "";
  }

  // Everyone runs to their ends; then every page is back.
  std::string CloseAll() {
    std::string late = Step(/*may_fail=*/false);
    if (late.empty()) late = CheckAll();
    if (!late.empty()) return late;
    stepped_ = false;
    for (int i = 0; i < 200'000; ++i) {
      auto worked = engine_->RunStep();
      if (!worked.ok()) return std::string(worked.status().message());
      if (!*worked) break;
    }
    std::string wrong = CheckAll();
    if (!wrong.empty()) return wrong;
    for (auto& [id, oracle] : sequences_) {
      if (!oracle.options.manual && !oracle.tokens.empty() && oracle.finish == Finish::kNone) {
        return "a sequence never finished";
      }
    }
    while (!sequences_.empty()) {
      wrong = Close(sequences_.begin()->first);
      if (!wrong.empty()) return wrong;
    }
    // Whatever is kept is as good as free, but for what is pinned.
    const bool pins = pinned_ > 0;
    if (!pins && engine_->info().kv_tokens_free != engine_->info().kv_tokens_total) {
      return "kept pages are not free";
    }
    if (!engine_->DropPrefix({}, 0).ok()) return "drop";
    const EngineInfo info = engine_->info();
    if (info.prefix_held != 0) return "prefixes are left";
    if (info.kv_tokens_free != info.kv_tokens_total) return "pages were lost";
    if (info.sequences != 0) return "sequences are left";
    for (const model::CachePool& pool : static_cast<EngineImpl&>(*engine_).pools()) {
      if (pool.units.free_pages() != pool.units.total()) return "pages or slots were lost";
      if (pool.units.idle_pages() != 0) return "pages or slots are kept";
    }
    return model_.control.Violations();
  }

  std::mt19937 random_;
  const test::CacheForms forms_;
  test::FakeModel model_;
  ModelFacts facts_;
  test::HeadControl head_control_;
  bool head_ = false;
  uint64_t capacity_ = 0;
  size_t max_sequences_ = 0;
  std::unique_ptr<Engine> engine_;
  std::map<Name, OracleSequence> sequences_;
  uint64_t opened_ = 0;
  std::map<SequenceId, uint64_t> positions_;
  uint64_t lost_positions_ = 0;
  uint64_t right_drafts_ = 0;
  uint64_t stored_ = 0, pinned_ = 0;
  const bool prefixes_;
  std::vector<std::vector<uint32_t>> past_;  // tokens of some that were closed or cut
  bool plain_ = false;
  uint32_t failed_for_ = 0, nan_for_ = 0;  // in so many steps from now on a failure, or a nan, may come out
  bool stepped_ = false;  // the last operation was a step that ended well
};

}  // namespace

TEST(random_operations_match_the_oracle) {
  const char* const wanted = std::getenv("MAINARCH_PROPERTY_OPERATIONS");
  const uint64_t operations = wanted == nullptr ? 75'000 : std::strtoull(wanted, nullptr, 10);
  uint64_t lost = 0, drafts = 0, referred = 0, adopted = 0, stored = 0, pinned = 0;
  uint64_t hits = 0, found = 0, evictions = 0, of_heads = 0, rounds = 0, of_states = 0, left_out = 0;
  for (uint32_t seed = 0; seed < (operations + 299) / 300; ++seed) {
    Play play(seed);
    const std::string wrong = play.Run(300);
    if (!wrong.empty())
      test_context.Fail(__FILE__, __LINE__, absl::StrCat("seed ", seed, ": ", wrong));
    CHECK_EQ(wrong, "");
    lost += play.preemptions_or_failures();
    drafts += play.right_drafts();
    referred += play.referred();
    adopted += play.adopted();
    rounds += play.rounds_run();
    if (play.states()) of_states += play.rounds_run();
    left_out += play.left_out();
    stored += play.stored();
    hits += play.info().prefix_hits;
    found += play.info().prefix_tokens;
    evictions += play.info().prefix_evictions;
    pinned += play.pinned();
    if (play.head()) of_heads += play.info().drafts_accepted;
  }
  CHECK_GT(lost, 1000u);  // truncations and preemptions did happen
  CHECK_GT(drafts, 1000u);
  CHECK_GT(of_heads, 500u);
  CHECK_GT(referred, 1000u);
  CHECK_GT(adopted, 200u);
  CHECK_GT(rounds, 200u);
  CHECK_GT(of_states, 100u);
  std::printf("# %d rounds, %d of models with states\n", static_cast<int>(rounds), static_cast<int>(of_states));
  CHECK_GT(left_out, 50u);
  CHECK_GT(stored, 1000u);  // positions that travelled
  CHECK_GT(hits, 100u);
  CHECK_GT(found, 3000u);
  CHECK_GT(evictions, 500u);
  CHECK_GT(pinned, 500u);
}
