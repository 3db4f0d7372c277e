// SPDX-License-Identifier: MIT
//
// A server's day with a model that speaks: chats in the words of the trained hybrid's corpus over a few
// system prompts, drafted by its head, greedy and sampled; a cache smaller than needed, clients that go
// away, forks. Every answer is that of an engine of its own without cache, drafts or neighbours, and
// nothing is left behind. (tests/unit/decode/engine_day_test.cc has the same of models of arithmetic.)
//
// MAINARCH_TEST_FULL: 1,000 chats instead of 30.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "decode/engine.h"
#include "golden/golden.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

constexpr uint32_t kMostTokens = 700;

struct Chat {
  std::vector<uint32_t> said;
  uint32_t turns = 0;  // left
  SequenceOptions options;
  SequenceId id = 0, fork = 0;  // 0: nothing is being answered
  size_t forked_at = 0;         // tokens of the answer that the fork has had, and does not give
};

class Day {
 public:
  Day(std::shared_ptr<const model::Model> model, std::vector<uint32_t> text, uint32_t chats)
      : model_(std::move(model)), text_(std::move(text)), chats_left_(chats), chats_(6) {
    for (auto& prompt : system_prompts_) prompt = Words(40 + Pick(60));
  }

  // "" or what went wrong.
  std::string Run() {
    EngineOptions o;
    o.max_sequences = 12;
    o.max_sequence_tokens = kMostTokens;
    o.max_step_tokens = 64;
    o.kv_tokens = 1800;
    o.prefix_cache = true;
    o.snapshot_tokens = 64;
    o.draft_kind = DraftKind::kHead;
    o.max_drafts = 3;
    auto engine = Engine::Create(model_, o);
    if (!engine.ok()) return std::string(engine.status().message());
    engine_ = std::move(*engine);
    for (bool any = true; any || chats_left_ > 0;) {
      any = false;
      for (Chat& chat : chats_) {
        const std::string wrong = chat.id == 0 ? Ask(chat) : Look(chat);
        if (!wrong.empty()) return wrong;
        any |= chat.id != 0;
      }
      const auto worked = engine_->RunStep();
      if (!worked.ok()) return std::string(worked.status().message());
    }
    if (!engine_->DropPrefix({}, 0).ok()) return "the cache was not dropped";
    const EngineInfo info = engine_->info();
    if (info.kv_tokens_free != info.kv_tokens_total) return "pages were lost";
    return info.prefix_held != 0 || info.sequences != 0 ? "something is kept" : "";
  }

  EngineInfo info() const { return engine_->info(); }
  uint64_t answers() const { return answers_; }
  uint64_t asked() const { return asked_; }
  uint64_t forks() const { return forks_; }
  uint64_t gone() const { return gone_; }

 private:
  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  std::vector<uint32_t> Words(uint32_t count) {
    const auto at = text_.begin() + Pick(static_cast<uint32_t>(text_.size()) - count);
    return std::vector<uint32_t>(at, at + count);
  }

  std::string Ask(Chat& chat) {
    if (chat.turns == 0) {
      if (chats_left_ == 0) return "";
      --chats_left_;
      chat.said = system_prompts_[Pick(std::size(system_prompts_))];
      chat.turns = 1 + Pick(20);
    }
    --chat.turns;
    const std::vector<uint32_t> words = Words(5 + Pick(10));
    chat.said.insert(chat.said.end(), words.begin(), words.end());
    chat.options = SequenceOptions();
    chat.options.ignore_eos = true;
    chat.options.max_tokens = 4 + Pick(12);
    chat.options.temperature = Pick(2) != 0 ? 1.0f : 0.0f;
    chat.options.seed = random_();
    const auto id = engine_->Open(chat.options);
    if (!id.ok() || !engine_->Append(*id, chat.said).ok()) return "a chat was not taken";
    chat.id = *id;
    asked_ += chat.said.size();
    return "";
  }

  std::string Look(Chat& chat) {
    const auto info = engine_->InfoOf(chat.id);
    if (!info.ok()) return "a chat was lost";
    if (chat.fork == 0 && info->produced >= 3 && info->finish == Finish::kNone && Pick(4) == 0) {
      const auto fork = engine_->Fork(chat.id);
      if (!fork.ok()) return "no fork";
      chat.fork = *fork;
      chat.forked_at = info->produced;
      ++forks_;
    }
    const bool gone = Pick(200) == 0;
    if (info->finish == Finish::kNone && !gone) return "";
    if (info->finish == Finish::kNone) chat.turns = 0, ++gone_;
    const std::vector<uint32_t> answer = Take(engine_.get(), chat.id);
    std::vector<uint32_t> forked;
    if (chat.fork != 0) forked = Take(engine_.get(), chat.fork);
    const std::vector<uint32_t> want =
        Fresh(chat, std::max(answer.size(), chat.forked_at + forked.size()));
    if (!Begins(want, 0, answer)) return "another answer";
    if (!Begins(want, chat.forked_at, forked)) return "another answer of a fork";
    if (chat.fork != 0 && !engine_->Close(chat.fork).ok()) return "close of a fork";
    if (!engine_->Close(chat.id).ok()) return "close";
    chat.said.insert(chat.said.end(), answer.begin(), answer.end());
    chat.id = chat.fork = 0;
    chat.forked_at = 0;
    ++answers_;
    return "";
  }

  // Whether `part` is what `whole` has from `at`.
  static bool Begins(const std::vector<uint32_t>& whole, size_t at, const std::vector<uint32_t>& part) {
    return at + part.size() <= whole.size() &&
           std::equal(part.begin(), part.end(), whole.begin() + static_cast<ptrdiff_t>(at));
  }
  static std::vector<uint32_t> Take(Engine* engine, SequenceId id) {
    std::vector<uint32_t> tokens(kMostTokens);
    const auto n = engine->Take(id, absl::MakeSpan(tokens));
    tokens.resize(n.ok() ? *n : 0);
    return tokens;
  }

  // What an engine says that has never seen anything else: `count` tokens at least, or none.
  std::vector<uint32_t> Fresh(const Chat& chat, size_t count) {
    EngineOptions o;
    o.max_sequence_tokens = kMostTokens;
    o.max_step_tokens = 64;
    const auto engine = Engine::Create(model_, o);
    if (!engine.ok()) return {};
    const auto id = (*engine)->Open(chat.options);
    if (!id.ok() || !(*engine)->Append(*id, chat.said).ok()) return {};
    while (true) {
      const auto info = (*engine)->InfoOf(*id);
      if (!info.ok() || info->produced >= count || info->finish != Finish::kNone) break;
      const auto worked = (*engine)->RunStep();
      if (!worked.ok() || !*worked) break;
    }
    return Take(engine->get(), *id);
  }

  std::mt19937 random_{20261126};
  const std::shared_ptr<const model::Model> model_;
  const std::vector<uint32_t> text_;
  uint32_t chats_left_;
  std::unique_ptr<Engine> engine_;
  std::vector<uint32_t> system_prompts_[4];
  std::vector<Chat> chats_;
  uint64_t answers_ = 0, asked_ = 0, forks_ = 0, gone_ = 0;
};

}  // namespace

TEST(a_servers_day_with_a_model_that_speaks) {
  const uint32_t chats = std::getenv("MAINARCH_TEST_FULL") != nullptr ? 1000 : 30;
  const auto golden = test::Golden::Open("trained_hybrid");
  CHECK_OK(golden);
  backend::BackendOptions options;
  options.device = "cpu";
  options.threads = 2;
  auto backend = backend::CreateBackend(options);
  CHECK_OK(backend);
  const auto model = model::Model::Load(*backend, test::SourcePath("tests/golden/trained_hybrid"), {},
                                        model::Part::kModelAndDrafts);
  CHECK_OK(model);
  Day day(*model, golden->Tokens("heldout.ids"), chats);
  CHECK_EQ(day.Run(), "");
  const EngineInfo info = day.info();
  const auto count = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  std::printf("# %u chats, %llu answers, %llu forks, %llu clients gone: %.1f %% of %llu tokens asked were found, %llu "
              "blocks given up, %llu of %llu drafts right\n",
              chats, count(day.answers()), count(day.forks()), count(day.gone()),
              100.0 * static_cast<double>(info.prefix_tokens) / static_cast<double>(day.asked()),
              count(day.asked()), count(info.prefix_evictions), count(info.drafts_accepted), count(info.drafts));
  CHECK_GT(day.answers(), chats);
  CHECK_GT(day.forks(), 0u);
  CHECK_GT(info.prefix_tokens, day.asked() / 2);
  CHECK_GT(info.prefix_evictions, 100u);
  CHECK_GT(info.drafts_accepted, info.drafts / 4);
}
