// SPDX-License-Identifier: MIT
//
// Property: the logits of a token of what is not undone by running again, a hybrid, a model with windows or one whose
// first and last tokens have a cache of their own, are a function of the tokens before it, to the bit: in any chunks, beside others, found in the prefix cache, run again after an eviction or a truncate, forked,
// on any number of ranks.
#include <cstdlib>
#include <map>
#include <random>

#include "decode/engine.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "model/synthetic.h"
#include "support/gpus.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

constexpr uint32_t kVocab = 256;
constexpr uint32_t kSequences = 4;
constexpr uint32_t kTexts = 3;

bool Full() { return std::getenv("MAINARCH_TEST_FULL") != nullptr; }

enum class Kind { kDense, kExperts, kWindows, kTiers };
const char* NameOf(Kind kind) {
  const char* const names[] = {"hybrid-dense", "hybrid-moe", "windows", "tiers"};
  return names[static_cast<size_t>(kind)];
}
// Of a sequence: of tiers some behind the last ones.
uint32_t MostTokens(Kind kind) { return kind == Kind::kTiers ? 240 : 96; }

model::ModelConfig Config(Kind kind) {
  if (kind < Kind::kWindows) return test::SmallHybrid(kind == Kind::kExperts);
  model::ModelConfig c = test::SmallDense(256);
  // Pages that lie behind a window go back to the pool; layers with one and without have two caches.
  if (kind == Kind::kWindows) c.layer_attention = {{21, 0}, {0, 0}, {21, 0}, {21, 0}};
  return c;
}

std::string Checkpoint(Kind kind) {
  const std::string directory = test::ScratchDirectory() + "/" + NameOf(kind);
  const Status written =
      model::WriteSyntheticCheckpoint(Config(kind), directory, model::SyntheticOptions());
  // Another test of this process may have written it.
  if (!written.ok()) std::printf("# %s\n", std::string(written.message()).c_str());
  return written.ok() || CodeOf(written) == Code::kInvalidArgument ? directory : "";
}

// Logits by tokens, of a plain engine that runs them at once.
class Oracle {
 public:
  explicit Oracle(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  StatusOr<std::vector<float>> After(const std::vector<uint32_t>& tokens) {
    if (const auto at = known_.find(tokens); at != known_.end()) return at->second;
    SequenceOptions manual;
    manual.manual = true;
    ASSIGN_OR_RETURN(const SequenceId id, engine_->Open(manual));
    RETURN_IF_ERROR(engine_->Append(id, tokens));
    RETURN_IF_ERROR(engine_->RunStep().status());
    ASSIGN_OR_RETURN(const absl::Span<const float> logits, engine_->Logits(id));
    std::vector<float> out(logits.begin(), logits.end());
    RETURN_IF_ERROR(engine_->Close(id));
    known_[tokens] = out;
    return out;
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::map<std::vector<uint32_t>, std::vector<float>> known_;
};

struct History {
  SequenceId id = 0;
  std::vector<uint32_t> tokens;
};

// Plays random operations on one engine, and compares whatever logits there are.
class Play {
 public:
  Play(test::Context& context, std::unique_ptr<Engine> engine, Oracle* oracle, uint32_t most, uint32_t seed)
      : test_context(context), engine_(std::move(engine)), oracle_(*oracle), most_(most), random_(seed) {
    std::mt19937 texts(11);
    for (uint32_t i = 0; i < kTexts * most_; ++i) texts_.push_back(texts() % kVocab);
    // All begin alike.
    for (uint32_t i = most_; i < texts_.size(); ++i) {
      if (i % most_ < most_ * 5 / 12) texts_[i] = texts_[i % most_];
    }
  }

  // Until so many logits have been compared.
  size_t Until(size_t checks) {
    for (checks_ = 0; checks_ < checks && !test_context.failed();) Turn();
    return checks_;
  }
  EngineInfo info() const { return engine_->info(); }

 private:
  void Turn() {
    const uint32_t what = random_() % 16;
    if (open_.empty() || (what < 4 && open_.size() < kSequences)) {
      Open();
    } else if (what < 8) {
      Grow(&Any());
    } else if (what < 9 && open_.size() < kSequences) {
      Fork();
    } else if (what < 11) {
      Truncate(&Any());
    } else if (what < 13) {
      Close();
    } else {
      Run();
    }
  }
  History& Any() { return open_[random_() % open_.size()]; }

  void Open() {
    SequenceOptions manual;
    manual.manual = true;
    auto id = engine_->Open(manual);
    CHECK_OK(id);
    open_.push_back({*id, {}});
    Grow(&open_.back());
  }
  // A piece of one of the texts.
  void Grow(History* h) {
    const uint32_t text = random_() % kTexts, most = 1 + random_() % (most_ / 2 + 2);
    std::vector<uint32_t> more;
    while (more.size() < most && h->tokens.size() + more.size() < most_) {
      more.push_back(texts_[text * most_ + h->tokens.size() + more.size()]);
    }
    CHECK_OK(engine_->Append(h->id, more));
    h->tokens.insert(h->tokens.end(), more.begin(), more.end());
  }
  void Fork() {
    const History from = Any();
    auto id = engine_->Fork(from.id);
    CHECK_OK(id);
    open_.push_back({*id, from.tokens});
  }
  void Truncate(History* h) {
    const size_t position = random_() % (h->tokens.size() + 1);
    CHECK_OK(engine_->Truncate(h->id, position));
    h->tokens.resize(position);
  }
  void Close() {
    const size_t at = random_() % open_.size();
    CHECK_OK(engine_->Close(open_[at].id));
    open_.erase(open_.begin() + static_cast<ptrdiff_t>(at));
  }
  // A step, or as many as there is work for.
  void Run() {
    const bool all = random_() % 2 == 0;
    for (bool more = true; more;) {
      auto worked = engine_->RunStep();
      CHECK_OK(worked);
      more = *worked && all;
    }
    for (const History& h : open_) Compare(h);
  }
  void Compare(const History& h) {
    const auto logits = engine_->Logits(h.id);
    if (CodeOf(logits.status()) == Code::kBusy) return;  // it has not run to its end
    CHECK_OK(logits);
    const auto want = oracle_.After(h.tokens);
    CHECK_OK(want);
    CHECK(test::Same(*logits, *want));
    ++checks_;
  }

  test::Context& test_context;
  std::unique_ptr<Engine> engine_;
  Oracle& oracle_;
  const uint32_t most_;  // tokens of a sequence
  std::mt19937 random_;
  std::vector<uint32_t> texts_;  // [kTexts][most_]
  std::vector<History> open_;
  size_t checks_ = 0;
};

// `steps`: rows of a step, one engine each. The oracle is of one rank, and of `whole`'s kind.
void Compare(test::Context& test_context, Kind kind, const std::string& whole,
             const std::vector<std::string>& devices, const std::vector<uint32_t>& steps,
             size_t checks) {
  const std::string directory = Checkpoint(kind);
  CHECK(!directory.empty());
  auto alone = test::LoadOn(directory, {whole, "", 2, false});
  CHECK_OK(alone);
  EngineOptions plain;
  plain.max_sequence_tokens = MostTokens(kind);
  plain.max_step_tokens = MostTokens(kind);
  if (kind == Kind::kTiers) {
    plain.kv_type = backend::KvType::kFp4;
    plain.kv_tiers = {true, true};
  }
  auto fresh = Engine::Create(*alone, plain);
  CHECK_OK(fresh);
  Oracle oracle(std::move(*fresh));
  size_t compared = 0, hits = 0, evictions = 0;
  for (const std::string& device : devices) {
    auto model = test::LoadOn(directory, {device, "", 2, false});
    CHECK_OK(model);
    for (const uint32_t rows : steps) {
      EngineOptions options = plain;
      options.resident = test::ResidentByDefault();
      options.max_sequences = kSequences;
      options.max_step_tokens = rows;
      // Less than two of the longest sequences; pages behind windows leave more of it than states do.
      options.kv_tokens = kind == Kind::kWindows ? 112 : kind == Kind::kTiers ? 304 : 208;
      options.snapshot_tokens = 16;
      options.prefix_cache = true;
      auto engine = Engine::Create(*model, options);
      CHECK_OK(engine);
      Play play(test_context, std::move(*engine), &oracle, MostTokens(kind), rows + static_cast<uint32_t>(hits));
      compared += play.Until(checks);
      if (test_context.failed()) {
        test_context.Fail(__FILE__, __LINE__, device + ", steps of " + std::to_string(rows));
        return;
      }
      hits += play.info().prefix_hits;
      evictions += play.info().prefix_evictions;
    }
  }
  std::printf("# %zu logits, %zu hits, %zu evictions\n", compared, hits, evictions);
  CHECK_GT(hits, 0u);
  CHECK_GT(evictions, 0u);
}

}  // namespace

TEST(a_token_has_the_same_bits_however_it_is_come_by_on_cpus) {
  for (const Kind kind : {Kind::kDense, Kind::kExperts, Kind::kWindows, Kind::kTiers}) {
    Compare(test_context, kind, "cpu", {"cpu", "cpu:2", "cpu:4"}, {4, 19, 80},
            Full() ? 600 : 40);
  }
}

// Each chip by itself: they round differently.
TEST(a_token_has_the_same_bits_however_it_is_come_by_on_gpus) {
  NEEDS_GPUS();
  for (const char* isa : {"gfx942", "gfx950"}) {
    const std::string one = std::string("sim:") + isa;
    std::vector<std::string> devices = {one, one + "x2"};
    if (Full()) devices.push_back(one + "x4");
    for (const Kind kind : {Kind::kDense, Kind::kExperts, Kind::kWindows, Kind::kTiers}) {
      if (!Full() && kind == (one == "sim:gfx942" ? Kind::kExperts : Kind::kDense)) continue;
      Compare(test_context, kind, one, devices, Full() ? std::vector<uint32_t>{4, 19} :
              std::vector<uint32_t>{19}, Full() ? 40 : 12);
    }
  }
}
