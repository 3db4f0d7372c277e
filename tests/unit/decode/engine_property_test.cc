// SPDX-License-Identifier: MIT
//
// Random operations on an engine over a hashing backend, against an oracle without pages, batches
// or steps: whatever the batch mix, chunk size, pool size, forks, truncations, failures,
// cancellations and preemptions, every sequence's tokens are those of its options and tokens alone.
#include <algorithm>
#include <map>
#include <random>

#include "decode/engine_impl.h"
#include "support/engine_oracle.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::decode;
using test::OracleSequence;

namespace {

constexpr uint32_t kVocab = 61;

class Play {
 public:
  explicit Play(uint32_t seed) : random_(seed), model_(kVocab) {}

  // "" or what went wrong.
  std::string Run(int operations) {
    EngineOptions o;
    o.max_sequences = 1 + Pick(9);
    o.max_step_tokens = 1 + Pick(Pick(2) ? 6 : 70);
    o.max_sequence_tokens = 20 + Pick(150);
    // From hardly enough for one sequence to enough for all.
    o.kv_tokens = o.max_sequence_tokens + Pick(o.max_sequence_tokens * o.max_sequences);
    if (Pick(8) == 0) o.kv_tokens = 16;
    facts_ = {kVocab, 1000, {3, 7}};
    auto engine = CreateEngine(nullptr, model_, facts_, o);
    if (!engine.ok()) return std::string(engine.status().message());
    engine_ = *std::move(engine);
    capacity_ = std::min<uint64_t>(o.max_sequence_tokens, (o.kv_tokens + 15) / 16 * 16);
    max_sequences_ = o.max_sequences;
    for (int i = 0; i < operations; ++i) {
      std::string wrong = Operation();
      if (wrong.empty()) wrong = CheckAll();
      if (!wrong.empty()) return absl::StrCat("operation ", i, ": ", wrong);
    }
    return CloseAll();
  }

  uint64_t preemptions_or_failures() const { return lost_positions_; }

 private:
  uint32_t Pick(uint32_t n) { return n == 0 ? 0 : static_cast<uint32_t>(random_() % n); }

  SequenceOptions RandomOptions() {
    SequenceOptions o;
    o.manual = Pick(5) == 0;
    o.ignore_eos = Pick(2) == 0;
    o.seed = random_();
    if (Pick(2)) o.temperature = 0.5f + static_cast<float>(Pick(4)) / 2;
    if (Pick(3) == 0) o.top_p = 0.8f;
    if (Pick(3) == 0) o.top_k = 1 + Pick(10);
    if (Pick(4) == 0) o.min_p = 0.05f;
    if (Pick(3) == 0) o.repetition_penalty = 1.25f;
    if (Pick(4) == 0) o.frequency_penalty = 0.25f;
    if (Pick(4) == 0) o.presence_penalty = 0.5f;
    if (Pick(3) == 0) o.min_tokens = Pick(5);
    if (Pick(3) == 0) o.max_tokens = o.min_tokens + 1 + Pick(20);
    if (Pick(4) == 0) o.logprobs = 1 + Pick(4);
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
    sequences_[*id] = oracle;
    return "";
  }

  std::string Append(SequenceId id, OracleSequence& oracle) {
    std::vector<uint32_t> tokens(Pick(4) ? 1 + Pick(5) : Pick(60));
    for (uint32_t& t : tokens) t = Pick(kVocab);
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
    sequences_[*fork] = copy;
    return "";
  }

  std::string Truncate(SequenceId id, OracleSequence& oracle) {
    const size_t n = Pick(static_cast<uint32_t>(oracle.tokens.size()) + 2);
    const Status status = engine_->Truncate(id, n);
    if (n > oracle.tokens.size()) return status.ok() ? "truncated to more" : "";
    oracle.Truncate(n);
    return std::string(status.message());
  }

  std::string Close(SequenceId id) {
    const Status status = engine_->Close(id);
    sequences_.erase(id);
    if (engine_->Close(id).ok()) return "closed twice";
    if (engine_->InfoOf(id).ok()) return "a closed sequence answers";
    return std::string(status.message());
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
      const std::vector<float> logits = test::FakeLogits(prefix, kVocab);
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
  std::string Step() {
    test::FakeControl& control = model_.control;
    const bool fail = Pick(6) == 0;
    const uint32_t how = Pick(3);
    if (fail && how == 0) control.fail_run = control.runs.load();
    // A manual sequence is handed its nan; only sampling fails for it.
    const bool manual = std::any_of(sequences_.begin(), sequences_.end(),
                                    [](const auto& s) { return s.second.options.manual; });
    if (fail && how == 1 && !manual) control.nan_run = control.runs.load();
    if (fail && how == 2) control.fail_copy = control.copies.load();
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
    control.fail_run = control.nan_run = control.fail_copy = -1;
    if (!status.ok() && !fail) return std::string(status.message());
    // Who was handed a nan tries again.
    for (const auto& entry : sequences_) {
      const auto info = engine_->InfoOf(entry.first);
      if (!info.ok() || info->finish != Finish::kFault) continue;
      if (!fail || how != 1) return "a fault out of nowhere";
      const Status again = engine_->Truncate(entry.first, info->tokens);
      if (!again.ok()) return std::string(again.message());
    }
    if (control.runs > runs + 1) return "more than one run in a step";
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
      position = info->position;
      auto logits = engine_->Logits(id);
      if (oracle.options.manual && logits.ok()) {
        const std::vector<float> expected = test::FakeLogits(oracle.tokens, kVocab);
        if (!std::equal(expected.begin(), expected.end(), logits->begin())) return "logits";
      }
      // A manual sequence that has run all it holds has logits.
      if (oracle.options.manual && info->tokens > 0 && info->pending == 0 && !logits.ok()) {
        return "no logits";
      }
    }
    return "";
  }

  // Everyone runs to their ends; then every page is back.
  std::string CloseAll() {
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
    const EngineInfo info = engine_->info();
    if (info.kv_tokens_free != info.kv_tokens_total) return "pages were lost";
    if (info.sequences != 0) return "sequences are left";
    return model_.control.Violations();
  }

  std::mt19937 random_;
  test::FakeModel model_;
  ModelFacts facts_;
  uint64_t capacity_ = 0;
  size_t max_sequences_ = 0;
  std::unique_ptr<Engine> engine_;
  std::map<SequenceId, OracleSequence> sequences_;
  std::map<SequenceId, uint64_t> positions_;
  uint64_t lost_positions_ = 0;
};

}  // namespace

TEST(random_operations_match_the_oracle) {
  uint64_t lost = 0;
  for (uint32_t seed = 0; seed < 250; ++seed) {
    Play play(seed);
    const std::string wrong = play.Run(300);
    if (!wrong.empty())
      test_context.Fail(__FILE__, __LINE__, absl::StrCat("seed ", seed, ": ", wrong));
    CHECK_EQ(wrong, "");
    lost += play.preemptions_or_failures();
  }
  CHECK_GT(lost, 1000u);  // truncations and preemptions did happen
}
