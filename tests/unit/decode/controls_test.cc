// SPDX-License-Identifier: MIT
//
// What callers steer a sequence with between steps: other options, masks of allowed tokens, stop
// strings, and the list of who has something for them.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <cmath>
#include <random>

#include "decode/export.h"
#include "support/test.h"
#include "unit/decode/engine_user.h"
#include "unit/text/small_tokenizer.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

constexpr uint32_t kVocab = 90;  // not a multiple of 32

struct Bench : EngineUser {
  explicit Bench(uint32_t sequences = 4, std::vector<uint32_t> eos = {}, uint32_t vocab = kVocab)
      : EngineUser(vocab, OptionsOf(sequences), std::move(eos), {{}}) {}
  static EngineOptions OptionsOf(uint32_t sequences) {
    EngineOptions options;
    options.max_sequences = sequences;
    options.max_sequence_tokens = 200;
    return options;
  }
  bool Steps(int n) {
    for (int i = 0; i < n; ++i) {
      if (!engine->RunStep().ok()) return false;
    }
    return true;
  }
  std::vector<SequenceId> Ready() {
    std::vector<SequenceId> out(64);
    auto n = engine->Ready(absl::MakeSpan(out));
    out.resize(n.ok() ? *n : 0);
    return out;
  }
};

SequenceOptions Drawn(uint64_t seed) {
  SequenceOptions o;
  o.temperature = 2;
  o.seed = seed;
  return o;
}

std::vector<uint32_t> MaskOf(const std::vector<uint32_t>& tokens) {
  std::vector<uint32_t> words(MaskWords(kVocab), 0);
  for (const uint32_t token : tokens) words[token / 32] |= 1u << (token % 32);
  return words;
}

using Tokens = std::vector<uint32_t>;

}  // namespace

// At the first position of a page a window of one token holds nothing.
TEST(a_window_without_pages_travels) {
  const test::CacheForms forms = {{false, 0}, {false, 1}};
  test::FakeModel model(41, forms);
  const ModelFacts facts = {41, 1000, {}, forms};
  EngineOptions o;
  o.max_sequences = 2;
  o.max_sequence_tokens = 64;
  auto engine = CreateEngine(nullptr, model, facts, o);
  CHECK_OK(engine);
  SequenceOptions options;
  options.ignore_eos = true;
  const auto id = (*engine)->Open(options);
  CHECK_OK(id);
  CHECK_OK((*engine)->Append(*id, std::vector<uint32_t>(16, 7)));
  CHECK_OK((*engine)->RunStep());
  auto state = (*engine)->Save(*id, /*content=*/true);
  CHECK_OK(state);
  CHECK_EQ(state->stored, 16u);
  CHECK_EQ(state->content[1].size(), 0u);
  const auto read = ReadState(WriteState(*state, 5), 5, 41);
  CHECK_OK(read);
  const auto copy = (*engine)->Restore(*read);
  CHECK_OK(copy);
  CHECK_EQ((*engine)->InfoOf(*copy)->position, 16u);
  for (int i = 0; i < 20; ++i) CHECK_OK((*engine)->RunStep());
  uint32_t first[20], second[20];
  CHECK_OK((*engine)->Take(*id, absl::MakeSpan(first)));
  CHECK_OK((*engine)->Take(*copy, absl::MakeSpan(second)));
  CHECK(std::equal(first, first + 20, second));
  // Bytes where there is no page are refused as ever.
  state->content[1] = "x";
  CHECK_OK((*engine)->Close(*copy));
  CHECK(Says((*engine)->Restore(*state).status(), "cache 1: 1 bytes are not those of 0 pages"));
  CHECK_EQ(model.control.Violations(), "");
}

// ---- options ----

// A change is what would have been, had the sequence been opened so with the same tokens.
TEST(new_options_are_those_of_a_sequence_opened_with_them) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    SequenceOptions first = Drawn(round), second = Drawn(round + 7);
    if (random() % 2) first.frequency_penalty = 3;
    if (random() % 2) second.repetition_penalty = 4;
    if (random() % 2) second.presence_penalty = 2;
    if (random() % 2) second.top_k = 5;
    if (random() % 2) second.logit_bias = {{5, 6.0f}, {6, -INFINITY}};
    if (random() % 2) second.logprobs = 2;
    Bench bench;
    const SequenceId id = bench.Open(first);
    CHECK(bench.Steps(6));
    const Tokens before = bench.TakeAll(id);
    CHECK_EQ(before.size(), 6u);
    CHECK_OK(bench.engine->SetOptions(id, second));
    const SequenceId fork = *bench.engine->Fork(id);
    CHECK(bench.Steps(8));
    const Tokens after = bench.TakeAll(id);
    CHECK(bench.TakeAll(fork) == after);

    test::OracleSequence oracle;
    oracle.vocab = kVocab;
    oracle.max_tokens = 200;
    oracle.options = first;
    oracle.Append({1, 2, 3});
    for (int i = 0; i < 6; ++i) oracle.Advance();
    oracle.options = second;
    for (int i = 0; i < 8; ++i) oracle.Advance();
    CHECK(Tokens(oracle.tokens.begin() + 9, oracle.tokens.end()) == after);
  }
}

TEST(refused_options_change_nothing) {
  Bench bench;
  SequenceOptions options = Drawn(1);
  options.logprobs = 3;
  const SequenceId id = bench.Open(options), twin = bench.Open(options);
  CHECK(bench.Steps(2));
  SequenceOptions bad = Drawn(99);
  bad.logprobs = 3;
  bad.temperature = -1;
  Status status = bench.engine->SetOptions(id, bad);
  CHECK(CodeOf(status) == Code::kInvalidArgument);
  CHECK(Says(status, "temperature -1"));
  bad.temperature = 1;
  bad.manual = true;
  status = bench.engine->SetOptions(id, bad);
  CHECK(CodeOf(status) == Code::kInvalidArgument);
  CHECK(Says(status, "manual"));
  bad.manual = false;
  bad.logprobs = 5;
  status = bench.engine->SetOptions(id, bad);
  CHECK(CodeOf(status) == Code::kBusy);
  CHECK(Says(status, "logprobs cannot change from 3 to 5 while 2 produced tokens are untaken"));
  CHECK(CodeOf(bench.engine->SetOptions(0, {})) == Code::kNotFound);
  CHECK(bench.Steps(4));
  CHECK(bench.TakeAll(id) == bench.TakeAll(twin));
  CHECK_OK(bench.engine->TakenLogprobs(id, 5));
  // Taken, they may change; those of the last take are gone.
  CHECK_OK(bench.engine->SetOptions(id, bad));
  CHECK(CodeOf(bench.engine->TakenLogprobs(id, 0).status()) == Code::kInvalidArgument);
  CHECK(bench.Steps(1));
  CHECK_EQ(bench.TakeAll(id).size(), 1u);
  CHECK_EQ(bench.engine->TakenLogprobs(id, 0)->size(), 6u);
}

TEST(a_sequence_that_has_ended_goes_on_with_more_room) {
  Bench bench;
  SequenceOptions options;
  options.max_tokens = 3;
  const SequenceId id = bench.Open(options);
  const SequenceId whole = bench.Open({});
  CHECK(bench.Steps(8));
  CHECK(bench.Info(id).finish == Finish::kMaxTokens);
  options.max_tokens = 8;
  CHECK_OK(bench.engine->SetOptions(id, options));
  CHECK(bench.Info(id).finish == Finish::kMaxTokens);
  CHECK_OK(bench.engine->Truncate(id, 6));
  CHECK(bench.Steps(9));
  CHECK(bench.Info(id).finish == Finish::kMaxTokens);
  const Tokens tokens = bench.TakeAll(id), all = bench.TakeAll(whole);
  CHECK_EQ(tokens.size(), 8u);
  CHECK(Tokens(all.begin(), all.begin() + 8) == tokens);
}

// ---- masks ----

TEST(a_mask_is_a_ban_of_all_others) {
  std::mt19937 random(4);
  Sampler sampler(kVocab);
  for (int round = 0; round < 500; ++round) {
    std::vector<float> logits(kVocab);
    for (float& l : logits) l = std::round(std::normal_distribution<float>(0, 4)(random)) / 2;
    SequenceOptions o;
    o.seed = random();
    if (random() % 4) o.temperature = 1.5f;
    if (random() % 2) o.top_k = 4;
    if (random() % 2) o.top_p = 0.7f;
    if (random() % 2) o.min_p = 0.1f;
    if (random() % 2) o.logit_bias.push_back({static_cast<uint32_t>(random() % kVocab), 5.0f});
    if (random() % 2) o.frequency_penalty = 1;
    TokenCounts counts;
    counts.Enable(kVocab, 50);
    for (int i = 0; i < 20; ++i) counts.Add(random() % kVocab, true);
    Tokens allowed;
    for (uint32_t t = 0; t < kVocab; ++t) {
      if (random() % (1 + round % 7) == 0) allowed.push_back(t);
    }
    if (allowed.empty()) allowed.push_back(3);
    const Tokens mask = MaskOf(allowed);
    SampleRequest masked;
    masked.options = &o;
    masked.counts = &counts;
    masked.position = round;
    masked.mask = mask;
    SequenceOptions banned = o;
    for (uint32_t t = 0; t < kVocab; ++t) {
      if (!Allows(mask, t)) banned.logit_bias.push_back({t, -INFINITY});
    }
    SampleRequest plain = masked;
    plain.options = &banned;
    plain.mask = {};
    const std::vector<float> before = logits;
    const auto token = sampler.Sample(absl::MakeSpan(logits), masked);
    CHECK_OK(token);
    CHECK(logits == before);
    CHECK_EQ(*token, *sampler.Sample(absl::MakeSpan(logits), plain));
    CHECK(Allows(mask, *token));
    if (round % 7 == 0) {  // a mask of ones
      SampleRequest none = masked;
      none.mask = {};
      CHECK_EQ(allowed.size(), size_t{kVocab});
      CHECK_EQ(*token, *sampler.Sample(absl::MakeSpan(logits), none));
    }
  }
}

TEST(a_mask_holds_for_one_token) {
  Bench bench;
  const SequenceId id = bench.Open({}), free = bench.Open({});
  CHECK(bench.Steps(1));
  CHECK_OK(bench.engine->SetMask(id, MaskOf({40, 77})));
  const SequenceId fork = *bench.engine->Fork(id);
  CHECK(bench.Steps(1));
  const Tokens tokens = bench.TakeAll(id);
  CHECK(tokens[1] == 40 || tokens[1] == 77);
  CHECK(bench.TakeAll(fork) == Tokens{tokens[1]});
  // The next one is free again: as that of a sequence which has the same tokens.
  CHECK_OK(bench.engine->Truncate(free, 4));
  CHECK_OK(bench.engine->Append(free, {tokens[1]}));
  CHECK(bench.TakeAll(free).size() <= 2);
  CHECK(bench.Steps(1));
  CHECK(bench.TakeAll(id) == bench.TakeAll(free));
  // Cleared before it was used.
  CHECK_OK(bench.engine->SetMask(id, MaskOf({5})));
  CHECK_OK(bench.engine->SetMask(id, {}));
  CHECK(bench.Steps(1));
  CHECK(bench.TakeAll(id) == bench.TakeAll(free));
  // Fewer words: the tokens of the others may not come.
  for (int i = 0; i < 20; ++i) {
    CHECK_OK(bench.engine->SetMask(id, Tokens{~0u}));
    CHECK(bench.Steps(1));
    CHECK_LT(bench.TakeAll(id)[0], 32u);
  }
}

TEST(a_mask_outlives_a_step_that_fails) {
  Bench bench;
  const SequenceId id = bench.Open({});
  CHECK_OK(bench.engine->SetMask(id, MaskOf({60})));
  bench.model.control.fail_run = 0;
  CHECK(!bench.engine->RunStep().ok());
  CHECK(bench.Steps(1));
  CHECK(bench.TakeAll(id) == Tokens{60});
}

TEST(masks_that_leave_nothing_and_masks_that_are_wrong) {
  Bench bench;
  SequenceOptions options;
  options.logit_bias = {{60, -INFINITY}};
  const SequenceId id = bench.Open(options);
  CHECK_OK(bench.engine->SetMask(id, MaskOf({60})));
  CHECK(bench.Steps(1));
  CHECK(bench.Info(id).finish == Finish::kFault);
  uint32_t token = 0;
  const Status fault = bench.engine->Take(id, {&token, 1}).status();
  CHECK(CodeOf(fault) == Code::kInvalidArgument);
  CHECK(Says(fault, "banned by logit_bias, the mask or min_tokens"));
  // Another mask, and once more.
  CHECK_OK(bench.engine->SetMask(id, MaskOf({61})));
  CHECK_OK(bench.engine->Truncate(id, 3));
  CHECK(bench.Steps(1));
  CHECK(bench.TakeAll(id) == Tokens{61});
  const Status wrong = bench.engine->SetMask(id, Tokens(4, ~0u));
  CHECK(CodeOf(wrong) == Code::kInvalidArgument);
  CHECK(Says(wrong, "4 words: a vocabulary of 90 has 3"));
  options.manual = true;
  const SequenceId manual = bench.Open(options);
  CHECK(CodeOf(bench.engine->SetMask(manual, MaskOf({1}))) == Code::kInvalidArgument);
  CHECK(CodeOf(bench.engine->SetMask(0, MaskOf({1}))) == Code::kNotFound);
}

// ---- stop strings ----

TEST(stop_strings_end_a_sequence_within_its_turn) {
  constexpr uint32_t kBytes = 128;  // tokens are ASCII
  auto tokenizer = text::SmallTokenizer().Load();
  CHECK_OK(tokenizer);
  Bench bench(4, {}, kBytes);
  SequenceOptions options = Drawn(8);
  const SequenceId whole = bench.Open(options);
  CHECK(bench.Steps(40));
  const Tokens all = bench.TakeAll(whole);
  CHECK_EQ(bench.Info(whole).text_bytes, 0u);
  std::string text(all.begin(), all.end());
  options.stop_tokenizer = *tokenizer;
  options.stop_strings = {"no such text", text.substr(20, 3)};
  const size_t at = text.find(options.stop_strings[1]);
  const SequenceId id = bench.Open(options);
  CHECK(bench.Steps(40));
  CHECK(bench.Info(id).finish == Finish::kStopString);
  CHECK_EQ(bench.Info(id).text_bytes, at);
  CHECK_EQ(bench.Info(id).produced, at + 3);
  // It goes on from there, and what was complete before does not stop it.
  CHECK_OK(bench.engine->Truncate(id, 3 + at + 3));
  CHECK(bench.Info(id).finish == Finish::kNone);
  CHECK(bench.Steps(3));
  CHECK_GE(bench.Info(id).produced, at + 4);
  // Options that come later see the text that is there: its end may be the beginning of a stop.
  const SequenceId later = bench.Open(Drawn(8));
  CHECK(bench.Steps(1));
  while (bench.Info(later).produced < 22) CHECK(bench.Steps(1));
  options.stop_strings = {text.substr(21, 3)};
  if (text.find(options.stop_strings[0]) == 21) {
    CHECK_OK(bench.engine->SetOptions(later, options));
    CHECK_EQ(bench.Info(later).text_bytes, 21u);
    CHECK(bench.Steps(4));
    CHECK(bench.Info(later).finish == Finish::kStopString);
    CHECK_EQ(bench.Info(later).text_bytes, 21u);
  }
  // A further turn begins a text of its own.
  CHECK_OK(bench.engine->Append(later, {9}));
  CHECK_EQ(bench.Info(later).text_bytes, 0u);
}

TEST(min_tokens_and_other_ends) {
  auto tokenizer = text::SmallTokenizer().Load();
  CHECK_OK(tokenizer);
  Bench bench(4, {}, 128);
  SequenceOptions options;
  options.stop_tokenizer = *tokenizer;
  options.stop_strings = {"A"};
  options.logit_bias = {{'A', 1e6f}};
  options.min_tokens = 4;
  options.max_tokens = 9;
  const SequenceId id = bench.Open(options);
  options.stop_strings = {"AB"};
  const SequenceId other = bench.Open(options);
  CHECK(bench.Steps(8));
  CHECK(bench.Info(id).finish == Finish::kStopString);
  CHECK_EQ(bench.Info(id).produced, 5u);
  CHECK_EQ(bench.Info(id).text_bytes, 4u);
  CHECK_EQ(bench.Info(other).text_bytes, 7u);  // the last A may be the beginning of AB
  CHECK(bench.Steps(2));
  CHECK(bench.Info(other).finish == Finish::kMaxTokens);
  CHECK_EQ(bench.Info(other).text_bytes, 9u);
}

// ---- export and import ----

// Exported at any moment and imported elsewhere, a sequence is what it was, and goes on the same.
TEST(an_exported_sequence_goes_on_the_same_elsewhere) {
  std::mt19937 random(21);
  auto tokenizer = text::SmallTokenizer().Load();
  CHECK_OK(tokenizer);
  int untaken = 0, ended = 0;
  for (int round = 0; round < 150; ++round) {
    Bench here(2, {7}), there(3, {7});
    SequenceOptions options = Drawn(round);
    options.max_tokens = random() % 3 == 0 ? 5 : 12;
    options.min_tokens = random() % 4;
    if (random() % 2) options.logprobs = 1 + random() % 3;
    if (random() % 2) options.repetition_penalty = 2;
    if (random() % 2) options.logit_bias = {{5, 2.0f}, {9, -INFINITY}};
    if (random() % 2) options.stop_sequences = {{1, 2}, {3}};
    if (random() % 2) options.stop_tokens = {11, 12};
    if (random() % 2) options.stop_strings = {"A", "B1", "zz"};
    options.stop_tokenizer = *tokenizer;
    const SequenceId id = here.Open(options);
    CHECK(here.Steps(random() % 9));
    if (random() % 2) {
      Tokens some(1 + random() % 3);
      CHECK_OK(here.engine->Take(id, absl::MakeSpan(some)));
    }
    if (random() % 4 == 0) CHECK_OK(here.engine->Append(id, {4, 5}));
    if (random() % 4 == 0) CHECK_OK(here.engine->SetMask(id, MaskOf({20, 40, 60})));
    auto saved = here.engine->Save(id);
    CHECK_OK(saved);
    const std::string bytes = WriteState(*saved, 3);
    auto read = ReadState(bytes, 3, kVocab);
    CHECK_OK(read);
    CHECK_EQ(WriteState(*read, 3), bytes);
    read->options.stop_tokenizer = *tokenizer;
    auto copy = there.engine->Restore(*read);
    CHECK_OK(copy);
    const SequenceInfo before = here.Info(id), after = there.Info(*copy);
    CHECK_EQ(after.tokens, before.tokens);
    CHECK_EQ(after.produced, before.produced);
    CHECK_EQ(after.untaken, before.untaken);
    CHECK_EQ(after.text_bytes, before.text_bytes);
    CHECK(after.finish == before.finish);
    untaken += before.untaken > 0;
    ended += before.finish != Finish::kNone;
    CHECK(here.Steps(15));
    CHECK(there.Steps(15));
    CHECK(here.Info(id).finish == there.Info(*copy).finish);
    CHECK_EQ(here.Info(id).text_bytes, there.Info(*copy).text_bytes);
    const Tokens want = here.TakeAll(id);
    CHECK(there.TakeAll(*copy) == want);
    for (size_t j = 0; options.logprobs > 0 && j < want.size(); ++j) {
      const auto a = here.engine->TakenLogprobs(id, j), b = there.engine->TakenLogprobs(*copy, j);
      CHECK_OK(a);
      CHECK_OK(b);
      CHECK_EQ(a->size(), b->size());
      for (size_t k = 0; k < a->size(); ++k) {
        CHECK_EQ((*a)[k].token, (*b)[k].token);
        CHECK_EQ((*a)[k].logprob, (*b)[k].logprob);
      }
    }
  }
  CHECK_GT(untaken, 30);
  CHECK_GT(ended, 10);
}

// What earlier versions wrote, when nothing is in the fields: version 3 has a salt of 8 bytes more,
// version 2 4 + 1 + 5 * 8.
TEST(earlier_versions_are_still_read) {
  SequenceState state;
  state.tokens = {1, 2, 3};
  state.produced = {0, 0, 1};
  state.options.top_k = 7;
  for (const auto& [version, less] : {std::pair{1u, 8 + 45}, {2u, 8}}) {
    std::string bytes = WriteState(state, 9);
    bytes.resize(bytes.size() - static_cast<size_t>(less));
    const uint64_t size = bytes.size() - 32;
    const uint64_t checksum = XXH64(bytes.data() + 32, size, 0);
    std::memcpy(&bytes[4], &version, sizeof(version));
    std::memcpy(&bytes[16], &size, sizeof(size));
    std::memcpy(&bytes[24], &checksum, sizeof(checksum));
    const auto read = ReadState(bytes, 9, kVocab);
    CHECK_OK(read);
    CHECK_EQ(WriteState(*read, 9), WriteState(state, 9));
  }
}

TEST(what_an_import_refuses) {
  Bench bench(1);
  SequenceState state;
  state.tokens = {1, 2};
  state.produced = {0, 1};
  const std::string good = WriteState(state, 9);
  CHECK_OK(ReadState(good, 9, kVocab));
  const auto says = [&](const SequenceState& wrong, absl::string_view word) {
    const Status status = ReadState(WriteState(wrong, 9), 9, kVocab).status();
    return CodeOf(status) == Code::kInvalidArgument && Says(status, word);
  };
  CHECK(Says(ReadState(good, 8, kVocab).status(), "another model"));
  std::string other = good;
  other[4] = 4;
  CHECK(CodeOf(ReadState(other, 9, kVocab).status()) == Code::kUnsupported);
  other = good;
  other.back() ^= 1;
  CHECK(Says(ReadState(other, 9, kVocab).status(), "checksum"));
  CHECK(Says(ReadState(good + "x", 9, kVocab).status(), "length"));
  SequenceState wrong = state;
  wrong.tokens[1] = kVocab;
  CHECK(says(wrong, "tokens 90 is outside the vocabulary of 90"));
  wrong = state;
  wrong.turn_start = 3;
  CHECK(says(wrong, "turn_start 3 is more than tokens, 2"));
  wrong = state;
  wrong.take_from = 3;
  CHECK(says(wrong, "take_from"));
  wrong = state;
  wrong.produced = {1};
  CHECK(says(wrong, "produced"));
  wrong = state;
  wrong.finish = static_cast<uint32_t>(Finish::kFault);
  CHECK(says(wrong, "finish 6"));
  wrong = state;
  wrong.mask = {1};
  CHECK(says(wrong, "mask"));
  wrong = state;
  wrong.scored = 1;
  CHECK(says(wrong, "scored 1"));
  wrong.options.prompt_logprobs = 1;
  CHECK(says(wrong, "prompt_logprobs of tokens 0"));
  wrong.scores = {{1, 0}, {kVocab, 0}};
  CHECK(says(wrong, "prompt_logprobs of tokens 90 is outside"));
  wrong = state;
  wrong.stored = 2;
  CHECK(says(wrong, "stored 2"));
  wrong = state;
  wrong.content = {"x"};
  CHECK(says(wrong, "content 1"));
  // Content of this engine's form and of another size; of another form it is passed over.
  wrong.stored = 1;
  wrong.form = "fake";
  CHECK(CodeOf(bench.engine->Restore(wrong).status()) == Code::kInvalidArgument);
  wrong.content = {"x", "y"};
  CHECK(CodeOf(bench.engine->Restore(wrong).status()) == Code::kInvalidArgument);
  wrong.form = "other";
  const auto passed_over = bench.engine->Restore(wrong);
  CHECK_OK(passed_over);
  CHECK_EQ(bench.Info(*passed_over).position, 0u);
  CHECK_OK(bench.engine->Close(*passed_over));
  wrong = state;
  wrong.logprobs = {{1, 0}};
  CHECK(says(wrong, "logprobs"));
  // Options are checked as those of Open, the length as in Append, the room as in Open.
  wrong = state;
  wrong.options.temperature = -1;
  CHECK(CodeOf(bench.engine->Restore(wrong).status()) == Code::kInvalidArgument);
  wrong = state;
  wrong.tokens.resize(300);
  wrong.produced.resize(300);
  CHECK(CodeOf(bench.engine->Restore(wrong).status()) == Code::kKvFull);
  CHECK_OK(bench.engine->Restore(state));
  CHECK(CodeOf(bench.engine->Restore(state).status()) == Code::kBusy);
}

// ---- the ready list ----

TEST(ready_says_who_has_something) {
  Bench bench;
  SequenceOptions two;
  two.max_tokens = 2;
  const SequenceId a = bench.Open({}), b = bench.Open(two);
  SequenceOptions by_hand;
  by_hand.manual = true;
  const SequenceId m = bench.Open(by_hand);
  using Ids = std::vector<SequenceId>;
  CHECK(bench.Ready().empty());
  CHECK(bench.Steps(1));
  CHECK(bench.Ready() == Ids({a, b, m}));
  std::vector<SequenceId> few(2, 7);
  auto count = bench.engine->Ready(absl::MakeSpan(few));
  CHECK_OK(count);
  CHECK_EQ(*count, 3u);
  CHECK(few == Ids({7, 7}));
  bench.TakeAll(a);
  CHECK(bench.Ready() == Ids({b, m}));
  CHECK_OK(bench.engine->Append(m, {4}));
  CHECK(bench.Ready() == Ids({b}));
  CHECK(bench.Steps(1));
  CHECK(bench.Ready() == Ids({b, a, m}));
  uint32_t one = 0;
  CHECK_OK(bench.engine->Take(b, {&one, 1}));
  CHECK(bench.Ready() == Ids({b, a, m}));
  CHECK_OK(bench.engine->Take(b, {&one, 1}));
  CHECK(bench.Info(b).finish == Finish::kMaxTokens);
  CHECK(bench.Ready() == Ids({a, m}));
  CHECK_OK(bench.engine->Close(m));
  CHECK_OK(bench.engine->Truncate(a, 3));
  CHECK(bench.Ready().empty());
  // A copy has nothing to take, and its end is its own.
  const SequenceId fork = *bench.engine->Fork(b);
  CHECK(bench.Ready().empty());
  CHECK_OK(bench.engine->Close(fork));
}

TEST(a_fault_is_ready_until_it_was_told) {
  Bench bench;
  const SequenceId id = bench.Open({});
  CHECK_OK(bench.engine->SetMask(id, MaskOf({})));
  CHECK_OK(bench.engine->SetMask(id, Tokens{0}));
  CHECK(bench.Steps(1));
  CHECK_EQ(bench.Ready().size(), 1u);
  CHECK(bench.TakeAll(id).empty());
  CHECK(bench.Ready().empty());
}

// Against the definition, asked of every sequence.
TEST(ready_is_true_to_its_definition_whatever_happens) {
  std::mt19937 random(11);
  Bench bench(8);
  struct Known {
    SequenceId id;
    bool manual;
    bool told;  // its end
  };
  std::vector<Known> known;
  for (int op = 0; op < 20'000; ++op) {
    const size_t i = known.empty() ? 0 : random() % known.size();
    switch (random() % 10) {
      case 0:
        if (known.size() < 8) {
          SequenceOptions o = Drawn(op);
          o.manual = random() % 4 == 0;
          o.max_tokens = random() % 6;
          known.push_back({bench.Open(o), o.manual, false});
        }
        break;
      case 1:
        if (!known.empty()) {
          CHECK_OK(bench.engine->Close(known[i].id));
          known.erase(known.begin() + static_cast<ptrdiff_t>(i));
        }
        break;
      case 2:
        if (!known.empty() && bench.engine->Append(known[i].id, {7}).ok()) known[i].told = false;
        break;
      case 3:
        if (!known.empty()) {
          const uint64_t held = bench.Info(known[i].id).tokens;
          CHECK_OK(bench.engine->Truncate(known[i].id, held - std::min<uint64_t>(held - 1, 2)));
          known[i].told = false;
        }
        break;
      case 4:
        if (!known.empty() && known.size() < 8) {
          auto fork = bench.engine->Fork(known[i].id);
          CHECK_OK(fork);
          known.push_back({*fork, known[i].manual, bench.Info(*fork).finish != Finish::kNone});
        }
        break;
      case 5:
      case 6:
        if (!known.empty()) {
          Tokens out(1 + random() % 3);
          CHECK_OK(bench.engine->Take(known[i].id, absl::MakeSpan(out)));
          const SequenceInfo info = bench.Info(known[i].id);
          known[i].told = info.untaken == 0 && info.finish != Finish::kNone;
        }
        break;
      default:
        CHECK(bench.Steps(1));
    }
    std::vector<SequenceId> want;
    for (const Known& k : known) {
      const SequenceInfo info = bench.Info(k.id);
      const bool logits = k.manual && bench.engine->Logits(k.id).ok();
      if (info.untaken > 0 || (info.finish != Finish::kNone && !k.told) || logits) {
        want.push_back(k.id);
      }
    }
    std::vector<SequenceId> got = bench.Ready();
    std::sort(want.begin(), want.end());
    std::sort(got.begin(), got.end());
    CHECK(got == want);
  }
}
