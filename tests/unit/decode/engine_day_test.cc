// SPDX-License-Identifier: MIT
//
// A server's day: many chats over a few system prompts, each turn a new sequence with all that was said,
// a KV cache smaller than needed, clients that go away in the midst of an answer, and forks. Every
// answer is that of a fresh engine, nothing is left behind, and most of what is asked has been run before.
//
// MAINARCH_TEST_FULL: 1,000 chats instead of 100.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "support/test.h"
#include "unit/decode/engine_bench.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

struct Chat {
  std::vector<uint32_t> said;
  uint32_t turns = 0;  // left
  SequenceOptions options;
  SequenceId id = 0, fork = 0;  // 0: nothing is being answered
};

class Day {
 public:
  Day(uint32_t seed, const test::CacheForms& forms, uint32_t chats)
      : random_(seed), forms_(forms), chats_left_(chats), bench_(Options(), {}, forms) {
    for (auto& prompt : system_prompts_) {
      prompt.resize(40 + Pick(60));
      for (uint32_t& token : prompt) token = Pick(kVocab);
    }
    chats_.resize(6);
  }

  // "" or what went wrong.
  std::string Run() {
    while (true) {
      bool any = false;
      for (Chat& chat : chats_) {
        const std::string wrong = chat.id == 0 ? Ask(chat) : Look(chat);
        if (!wrong.empty()) return wrong;
        any |= chat.id != 0;
      }
      if (!any && chats_left_ == 0) break;
      const auto worked = bench_.engine->RunStep();
      if (!worked.ok()) return std::string(worked.status().message());
    }
    const EngineInfo info = bench_.engine->info();
    if (info.kv_tokens_free != info.kv_tokens_total) return "pages were lost";
    (void)bench_.engine->DropPrefix({}, 0);
    for (const model::CachePool& pool : static_cast<EngineImpl&>(*bench_.engine).pools()) {
      if (pool.units.free_pages() != pool.units.total()) return "pages or slots were lost";
      if (pool.units.idle_pages() != 0) return "pages or slots are kept";
    }
    return bench_.model.control.Violations();
  }

  uint64_t answers() const { return answers_; }
  uint64_t asked() const { return asked_; }
  EngineInfo info() const { return bench_.engine->info(); }

 private:
  static EngineOptions Options() {
    EngineOptions o = decode::Options(12, 1000, 64, 3000);
    o.prefix_cache = true;
    o.snapshot_tokens = 64;
    return o;
  }
  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  std::string Ask(Chat& chat) {
    if (chat.turns == 0) {
      if (chats_left_ == 0) return "";
      --chats_left_;
      chat.said = system_prompts_[Pick(std::size(system_prompts_))];
      chat.turns = 1 + Pick(20);
    }
    --chat.turns;
    for (uint32_t i = 5 + Pick(15); i > 0; --i) chat.said.push_back(Pick(kVocab));
    chat.options = SequenceOptions();
    chat.options.ignore_eos = true;
    chat.options.max_tokens = 4 + Pick(16);
    chat.options.temperature = Pick(2) ? 1.0f : 0.0f;
    chat.options.seed = random_();
    chat.id = bench_.Open(chat.options, chat.said);
    asked_ += chat.said.size();
    return chat.id == 0 ? "a chat was not taken" : "";
  }

  std::string Look(Chat& chat) {
    const SequenceInfo info = bench_.Info(chat.id);
    if (chat.fork == 0 && info.produced == 3 && Pick(4) == 0) {
      const auto fork = bench_.engine->Fork(chat.id);
      if (fork.ok()) chat.fork = *fork;
    }
    if (info.finish == Finish::kNone && Pick(200) > 0) return "";
    std::vector<uint32_t> answer = bench_.TakeAll(chat.id);
    if (answer != Expect(chat, answer.size())) return "another answer";
    if (chat.fork != 0 && !bench_.engine->Close(chat.fork).ok()) return "close of a fork";
    if (!bench_.engine->Close(chat.id).ok()) return "close";
    if (info.finish == Finish::kNone) chat.turns = 0;  // the client has gone
    chat.said.insert(chat.said.end(), answer.begin(), answer.end());
    chat.id = chat.fork = 0;
    ++answers_;
    return "";
  }

  std::vector<uint32_t> Expect(const Chat& chat, size_t count) {
    test::OracleSequence oracle;
    oracle.options = chat.options, oracle.vocab = kVocab, oracle.max_tokens = 1000;
    oracle.forms = forms_;
    oracle.Append(chat.said);
    while (oracle.tokens.size() < chat.said.size() + count) oracle.Advance();
    return oracle.Take(count);
  }

  std::mt19937 random_;
  const test::CacheForms forms_;
  uint32_t chats_left_;
  Bench bench_;
  std::vector<uint32_t> system_prompts_[4];
  std::vector<Chat> chats_;
  uint64_t answers_ = 0, asked_ = 0;
};

}  // namespace

TEST(a_servers_day) {
  const uint32_t chats = std::getenv("MAINARCH_TEST_FULL") != nullptr ? 1000 : 100;
  const model::CacheForm whole = {false, 0}, sliding = {false, 40}, states = {true, 0};
  uint32_t seed = 1;
  for (const test::CacheForms& forms :
       std::vector<test::CacheForms>{{whole}, {whole, sliding}, {whole, states}}) {
    Day day(seed++, forms, chats);
    CHECK_EQ(day.Run(), "");
    const EngineInfo info = day.info();
    std::printf("# %u chats, %llu answers: %.1f %% of %llu tokens asked were found, %llu blocks given up\n",
                chats, static_cast<unsigned long long>(day.answers()),
                100.0 * static_cast<double>(info.prefix_tokens) / static_cast<double>(day.asked()),
                static_cast<unsigned long long>(day.asked()),
                static_cast<unsigned long long>(info.prefix_evictions));
    CHECK_GT(day.answers(), chats);
    CHECK_GT(info.prefix_tokens, day.asked() / 2);
    CHECK_GT(info.prefix_evictions, 100u);
  }
}
