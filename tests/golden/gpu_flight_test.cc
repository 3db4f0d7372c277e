// SPDX-License-Identifier: MIT
//
// Two steps in flight on the GPU path: a step whose tokens are those that the step before chose,
// named and not known to the host, gives the bits and the tokens of one step at a time. And page
// tables that stay on the GPUs: a step brings what has changed, however much that is.
#include <array>
#include <cstdlib>
#include <random>

#include "absl/strings/match.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "support/test.h"

using namespace mainarch;
using backend::StepRow;

namespace {

constexpr uint32_t kVocab = 512;
constexpr uint32_t kSequences = 3;
constexpr uint32_t kSteps = 5;
constexpr uint32_t kPages = 16;
constexpr uint32_t kPrompts[kSequences] = {14, 3, 15};  // two begin a new page soon

struct Token {
  uint32_t id = 0;
  std::vector<float> logits;
};
using Tokens = std::vector<std::array<Token, kSequences>>;  // [step]

// kSequences sequences that decode together. The last of them draws its tokens.
class Chain {
 public:
  static StatusOr<std::unique_ptr<Chain>> Create(std::shared_ptr<const model::Model> model) {
    std::unique_ptr<Chain> chain(new Chain());
    chain->model_ = std::move(model);
    backend::ContextOptions options;
    options.resident = test::ResidentByDefault();
    options.max_rows = 32;
    options.max_logit_rows = options.max_sequences = kSequences;
    options.pages = {kPages};
    ASSIGN_OR_RETURN(chain->context_, chain->model_->weights().CreateContext(options));
    for (uint32_t s = 0; s < kSequences; ++s) {
      chain->prompts_.push_back(test::Prompt(kPrompts[s] + s, kVocab));
      chain->prompts_.back().erase(chain->prompts_.back().begin(),
                                   chain->prompts_.back().begin() + s);
    }
    return chain;
  }

  // Step n: the prompts, then a token of each sequence. ids[s] is the token; null: it is what the
  // step before chose.
  Status Submit(uint32_t n, const std::array<const uint32_t*, kSequences>& ids) {
    rows_.clear();
    logit_rows_.clear();
    for (uint32_t s = 0; s < kSequences; ++s) {
      if (n == 0) {
        for (uint32_t i = 0; i < kPrompts[s]; ++i) rows_.push_back({prompts_[s][i], i, s});
      } else {
        StepRow row = {ids[s] != nullptr ? *ids[s] : kVocab + 9, kPrompts[s] + n - 1, s};
        if (ids[s] == nullptr) row.from = s;
        rows_.push_back(row);
      }
      logit_rows_.push_back(static_cast<uint32_t>(rows_.size()) - 1);
      backend::Choice& choice = choices_[s];
      choice = {};
      choice.choose = true;
      choice.read = s == 1 && n % 2 == 0;  // others are fetched, or not
      choice.bias = absl::MakeConstSpan(&kBias, 1);
      if (s == 2) {
        choice.temperature = 8;
        choice.top_k = 40;
        choice.seed = 77;
        choice.position = kPrompts[s] + n;
      }
      const uint32_t last = rows_.back().position / 16;
      pages_[s].resize(last + 1);
      for (uint32_t p = 0; p <= last; ++p) pages_[s][p] = (7 * p + 5 * s + 2) % kPages;
      caches_[s].pages = pages_[s];
      // Tables need not be numbered as sequences are.
      sequences_[s] = {absl::MakeConstSpan(&caches_[s], 1), (s + 1) % kSequences};
    }
    return context_->Submit(Now());
  }
  backend::Step Now() {
    backend::Step step;
    step.rows = rows_;
    step.sequences = sequences_;
    step.logit_rows = logit_rows_;
    step.choices = choices_;
    return step;
  }
  // Ends the oldest step, and what came of it.
  StatusOr<std::array<Token, kSequences>> Poll() {
    ASSIGN_OR_RETURN(const bool ended, context_->Poll(-1));
    if (!ended) return Error(Code::kInternal, "nothing in flight");
    std::array<Token, kSequences> out;
    for (uint32_t s = 0; s < kSequences; ++s) {
      const auto chosen = context_->Chosen(s);
      if (!chosen.has_value()) return Error(Code::kInternal, "row ", s, ": no token");
      RETURN_IF_ERROR(context_->FetchLogits(s));
      const absl::Span<float> logits = context_->Logits(s);
      out[s] = {*chosen, {logits.begin(), logits.end()}};
    }
    return out;
  }
  backend::Context& context() { return *context_; }
  std::vector<StepRow>& rows() { return rows_; }
  std::array<backend::Choice, kSequences>& choices() { return choices_; }

 private:
  static constexpr backend::LogitBias kBias = {3, 1.5f};

  std::shared_ptr<const model::Model> model_;
  std::unique_ptr<backend::Context> context_;
  std::vector<std::vector<uint32_t>> prompts_;
  std::vector<StepRow> rows_;
  std::vector<uint32_t> logit_rows_;
  std::array<backend::Choice, kSequences> choices_;
  std::array<std::vector<uint32_t>, kSequences> pages_;
  std::array<backend::StepCache, kSequences> caches_;
  std::array<backend::StepSequence, kSequences> sequences_;
};

StatusOr<std::unique_ptr<Chain>> ChainOn(const std::string& directory, const std::string& device) {
  ASSIGN_OR_RETURN(auto model, test::LoadOn(directory, {device, "", 0, false}));
  return Chain::Create(std::move(model));
}

StatusOr<Tokens> OneAtATime(Chain& chain) {
  Tokens out;
  for (uint32_t n = 0; n < kSteps; ++n) {
    std::array<const uint32_t*, kSequences> ids = {};
    for (uint32_t s = 0; s < kSequences && n > 0; ++s) ids[s] = &out[n - 1][s].id;
    RETURN_IF_ERROR(chain.Submit(n, ids));
    ASSIGN_OR_RETURN(auto tokens, chain.Poll());
    out.push_back(std::move(tokens));
  }
  return out;
}

// Step n + 1 is submitted before step n is polled. Of step 3, one token is given.
StatusOr<Tokens> TwoInFlight(Chain& chain, uint32_t given) {
  Tokens out;
  RETURN_IF_ERROR(chain.Submit(0, {}));
  for (uint32_t n = 1; n <= kSteps; ++n) {
    if (n < kSteps) RETURN_IF_ERROR(chain.Submit(n, {n == 3 ? &given : nullptr}));
    ASSIGN_OR_RETURN(auto tokens, chain.Poll());
    out.push_back(std::move(tokens));
  }
  return out;
}

bool SameTokens(const Tokens& a, const Tokens& b) {
  if (a.size() != b.size()) return false;
  for (size_t n = 0; n < a.size(); ++n) {
    for (uint32_t s = 0; s < kSequences; ++s) {
      if (a[n][s].id == b[n][s].id && test::Same(a[n][s].logits, b[n][s].logits)) continue;
      std::printf("# step %zu, sequence %u: token %u, not %u\n", n, s, b[n][s].id, a[n][s].id);
      return false;
    }
  }
  return true;
}

}  // namespace

// MAINARCH_GPU_MATRIX=1: every number of GPUs with every checker.
TEST(a_chain_by_reference_is_the_same_chain) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  const bool matrix = std::getenv("MAINARCH_GPU_MATRIX") != nullptr;
  for (const char* chip : {"gfx950", "gfx942"}) {
    for (const char* count : {"", "x2", "x4", "x8"}) {
      const std::string plain = std::string("sim:") + chip + count;
      auto alone = ChainOn(directory, plain);
      CHECK_OK(alone);
      const auto want = OneAtATime(**alone);
      CHECK_OK(want);
      std::vector<std::string> devices = {plain};
      // Every checker looking on, memory full of NaNs until something is written there.
      if (matrix || std::string(count) == "x2") devices.push_back(plain + ",poison=1,check=all");
      for (const std::string& device : devices) {
        auto chain = ChainOn(directory, device);
        CHECK_OK(chain);
        const auto got = TwoInFlight(**chain, (*want)[2][0].id);
        CHECK_OK(got);
        std::printf("# %s\n", device.c_str());
        CHECK(SameTokens(*want, *got));
      }
    }
  }
}

TEST(what_cannot_go_by_reference_is_refused) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  auto created = ChainOn(directory, "sim:gfx942x2");
  CHECK_OK(created);
  Chain& chain = **created;
  backend::Context& context = chain.context();
  const auto refused = [&](const Status& status, const char* says) {
    if (CodeOf(status) == Code::kInternal && absl::StrContains(status.message(), says)) return true;
    std::printf("# %s: %s\n", says, std::string(status.message()).c_str());
    return false;
  };
  auto nothing = context.Poll(0);
  CHECK_OK(nothing);
  CHECK(!*nothing);
  // There is no step before the first.
  CHECK(refused(chain.Submit(1, {}), "chose none"));
  CHECK_OK(chain.Submit(0, {}));
  CHECK(refused(context.CopyPage(0, 1, 2), "in flight"));
  CHECK(refused(context.RunPrefix(chain.Now(), 1), "in flight"));
  CHECK_OK(chain.Submit(1, {}));
  CHECK(refused(chain.Submit(2, {}), "third step"));
  CHECK_OK(chain.Poll());
  // Penalties count the token that is not known.
  chain.choices()[1].presence = 1;
  chain.rows()[1].position += 1;
  CHECK(refused(context.Submit(chain.Now()), "penalties"));
  chain.choices()[1].presence = 0;
  chain.rows()[1].from = kSequences;
  CHECK(refused(context.Submit(chain.Now()), "chose none"));
  CHECK_OK(chain.Poll());
  // A step that only reads has chosen nothing.
  uint32_t token = 5;
  CHECK_OK(chain.Submit(2, {&token, &token, &token}));
  auto ran = context.Poll(-1);
  CHECK_OK(ran);
  for (backend::Choice& choice : chain.choices()) choice = {};
  CHECK_OK(context.Run(chain.Now()));
  CHECK(refused(chain.Submit(4, {}), "chose none"));
}

// A step that the GPUs have cannot be called back: it runs to its end and is cancelled then, and so
// is what is behind it. The next ones find everything as it was.
TEST(a_cancelled_step_leaves_nothing_behind) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  CHECK(!directory.empty());
  auto alone = ChainOn(directory, "sim:gfx950x2");
  CHECK_OK(alone);
  const auto want = OneAtATime(**alone);
  CHECK_OK(want);
  auto created = ChainOn(directory, "sim:gfx950x2");
  CHECK_OK(created);
  Chain& chain = **created;
  const auto code = [](const Status& status) { return static_cast<int>(CodeOf(status)); };
  const int cancelled = static_cast<int>(Code::kCancelled);
  CHECK_OK(chain.Submit(0, {}));
  CHECK_OK(chain.Submit(1, {}));
  chain.context().RequestStop();
  CHECK_EQ(code(chain.Submit(2, {})), static_cast<int>(Code::kInternal));  // two are in flight
  CHECK_EQ(code(chain.context().Poll(-1).status()), cancelled);
  CHECK_EQ(code(chain.Submit(2, {})), cancelled);
  CHECK_EQ(code(chain.context().Poll(-1).status()), cancelled);
  chain.context().ForgetStop();
  const auto got = TwoInFlight(chain, (*want)[2][0].id);
  CHECK_OK(got);
  CHECK(SameTokens(*want, *got));
  // Nor is one that nobody waits for.
  CHECK_OK(chain.Submit(0, {}));
  CHECK_OK(chain.Submit(1, {}));
}

// More sequences with longer lists than any block of a step holds: what is more goes ahead of it.
TEST(page_tables_of_any_length_travel) {
  constexpr uint32_t kMany = 62, kLong = 100, kTokens = 40, kPool = 128;
  const std::string directory = test::WriteFixture({"T1", "bf16", 1}, 2048);
  CHECK(!directory.empty());
  auto model = test::LoadOn(directory, {"sim:gfx942x2", "", 0, false});
  CHECK_OK(model);
  backend::ContextOptions options;
  options.resident = test::ResidentByDefault();
  options.max_rows = options.max_sequences = kMany;
  options.max_logit_rows = kMany;
  options.pages = {kPool};
  auto context = (*model)->weights().CreateContext(options);
  CHECK_OK(context);
  // Three pages hold something, each something else.
  const std::vector<uint32_t> full = {2, 0, 1};
  const std::vector<uint32_t> prompt = test::Prompt(kTokens, kVocab);
  std::vector<StepRow> rows;
  for (uint32_t i = 0; i < kTokens; ++i) rows.push_back({prompt[i], i, 0});
  backend::StepCache cache;
  cache.pages = full;
  backend::StepSequence one = {absl::MakeConstSpan(&cache, 1), 7};
  backend::Step step;
  step.rows = rows;
  step.sequences = absl::MakeConstSpan(&one, 1);
  CHECK_OK((*context)->Run(step));

  // Each list has the full pages at places of its own; its last page is its own to write to.
  std::mt19937 random(5);
  std::vector<std::vector<uint32_t>> lists(kMany);
  std::vector<backend::StepCache> caches(kMany);
  std::vector<backend::StepSequence> sequences(kMany);
  std::vector<uint32_t> logit_rows;
  rows.clear();
  for (uint32_t s = 0; s < kMany; ++s) {
    for (uint32_t p = 0; p + 1 < kLong; ++p) lists[s].push_back(full[random() % 3]);
    lists[s].push_back(3 + s);
    caches[s].pages = lists[s];
    sequences[s] = {absl::MakeConstSpan(&caches[s], 1), kMany - 1 - s};
  }
  for (uint32_t s = 0; s < kMany; ++s) {
    rows.push_back({9, (kLong - 1) * 16, s});
    logit_rows.push_back(s);
  }
  step.rows = rows;
  step.sequences = sequences;
  step.logit_rows = logit_rows;
  CHECK_OK((*context)->Run(step));
  std::vector<std::vector<float>> want;
  for (uint32_t s = 0; s < kMany; ++s) {
    const absl::Span<float> logits = (*context)->Logits(s);
    want.emplace_back(logits.begin(), logits.end());
  }
  // One of them at a time, from another table.
  const uint32_t first = 0;
  const StepRow row = {9, (kLong - 1) * 16, 0};
  for (uint32_t s = 0; s < kMany; s += 15) {
    one = {absl::MakeConstSpan(&caches[s], 1), 3};
    step.rows = absl::MakeConstSpan(&row, 1);
    step.sequences = absl::MakeConstSpan(&one, 1);
    step.logit_rows = absl::MakeConstSpan(&first, 1);
    CHECK_OK((*context)->Run(step));
    CHECK(test::Same((*context)->Logits(0), want[s]));
    CHECK(s == 0 || !test::Same(want[s], want[0]));
  }
  // What no table can be.
  one.table = kMany;
  CHECK_EQ(static_cast<int>(CodeOf((*context)->Run(step))), static_cast<int>(Code::kInternal));
  one.table = 3;
  lists[0][1] = kPool;
  CHECK_EQ(static_cast<int>(CodeOf((*context)->Run(step))), static_cast<int>(Code::kOk));
  one.caches = absl::MakeConstSpan(&caches[0], 1);
  CHECK_EQ(static_cast<int>(CodeOf((*context)->Run(step))), static_cast<int>(Code::kInternal));
}
