// SPDX-License-Identifier: MIT
#include "decode/engine.h"

#include <cmath>

#include "support/test.h"
#include "unit/decode/engine_bench.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

Code CodeOfOptions(const EngineOptions& o) { return CodeOf(Bench(o).status); }

}  // namespace

TEST(defaults_are_resolved_and_reported) {
  Bench bench;
  CHECK_OK(bench.status);
  const EngineInfo info = bench.engine->info();
  CHECK_EQ(info.max_sequences, 1u);
  CHECK_EQ(info.kv_tokens_total, 4096u);
  CHECK_EQ(info.kv_tokens_free, 4096u);
  CHECK_EQ(info.max_step_tokens, 512u);
  CHECK_EQ(info.sequences, 0u);
  auto idle = bench.engine->RunStep();
  CHECK_OK(idle);
  CHECK(!*idle);
}

TEST(options_beyond_their_limits_are_refused) {
  CHECK(CodeOfOptions(Options(0, 4097, 0)) == Code::kInvalidArgument);
  CHECK(CodeOfOptions(Options(70'000, 10, 0)) == Code::kInvalidArgument);
  CHECK(CodeOfOptions(Options(1, 10, 2'000'000)) == Code::kInvalidArgument);
  CHECK(CodeOfOptions(Options(1, 10, 0, UINT64_MAX)) == Code::kInvalidArgument);
  CHECK(Says(Bench(Options(0, 4097, 0)).status, "max_sequence_tokens 4097"));
}

TEST(a_kv_pool_smaller_than_a_sequence_bounds_it) {
  Bench bench(Options(1, 100, 8, 30));
  CHECK_OK(bench.status);
  CHECK_EQ(bench.engine->info().kv_tokens_total, 32u);
  const SequenceId id = bench.Open({}, std::vector<uint32_t>(30, 1));
  CHECK(bench.Drain());
  CHECK_EQ(bench.Info(id).tokens, 32u);
  CHECK(bench.Info(id).finish == Finish::kLength);
}

TEST(append_is_all_or_nothing_and_says_why) {
  Bench bench(Options(2, 40, 8));
  const SequenceId id = bench.Open({}, {1, 2, 3});
  Status status = bench.engine->Append(id, std::vector<uint32_t>(38, 1));
  CHECK(CodeOf(status) == Code::kKvFull);
  CHECK(Says(status, "append of 38 tokens to 3 held: more than the limit of 40"));
  status = bench.engine->Append(id, {1, 2, kVocab});
  CHECK(CodeOf(status) == Code::kInvalidArgument);
  CHECK(Says(status, "tokens[2] = 50 is outside the vocabulary of 50"));
  CHECK_EQ(bench.Info(id).tokens, 3u);
  CHECK_OK(bench.engine->Append(id, {}));
  CHECK_EQ(bench.Info(id).tokens, 3u);
}

TEST(stale_and_invented_ids_are_not_found) {
  Bench bench(Options(2, 40, 8));
  const SequenceId id = bench.Open({}, {1});
  CHECK_NE(id, 0u);
  CHECK_OK(bench.engine->Close(id));
  const SequenceId again = bench.Open({}, {1});
  CHECK_NE(again, id);
  uint32_t token = 1;
  for (const SequenceId bad : {id, SequenceId{0}, SequenceId{1} << 40, ~SequenceId{0}}) {
    CHECK(CodeOf(bench.engine->Close(bad)) == Code::kNotFound);
    CHECK(CodeOf(bench.engine->Append(bad, {1})) == Code::kNotFound);
    CHECK(CodeOf(bench.engine->Fork(bad).status()) == Code::kNotFound);
    CHECK(CodeOf(bench.engine->SetSeed(bad, 1)) == Code::kNotFound);
    CHECK(CodeOf(bench.engine->Truncate(bad, 0)) == Code::kNotFound);
    CHECK(CodeOf(bench.engine->Take(bad, {&token, 1}).status()) == Code::kNotFound);
    CHECK(CodeOf(bench.engine->TakenLogprobs(bad, 0).status()) == Code::kNotFound);
    CHECK(CodeOf(bench.engine->Logits(bad).status()) == Code::kNotFound);
    CHECK(CodeOf(bench.engine->InfoOf(bad).status()) == Code::kNotFound);
    CHECK(CodeOf(bench.engine->ReadKv(bad, 0, 0).status()) == Code::kNotFound);
  }
}

TEST(no_more_sequences_than_asked_for) {
  Bench bench(Options(2, 40, 8));
  const SequenceId id = bench.Open({}, {1});
  CHECK_NE(bench.Open({}, {1}), 0u);
  const auto third = bench.engine->Open({});
  CHECK(CodeOf(third.status()) == Code::kBusy);
  CHECK(Says(third.status(), "all 2 sequences"));
  CHECK(CodeOf(bench.engine->Fork(id).status()) == Code::kBusy);
  CHECK_EQ(bench.engine->info().sequences, 2u);
}

TEST(tokens_do_not_depend_on_chunk_size_or_company) {
  SequenceOptions options;
  options.temperature = 1;
  options.seed = 42;
  options.max_tokens = 30;
  options.ignore_eos = true;
  const std::vector<uint32_t> prompt = {5, 4, 3, 2, 1, 0, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 9, 8};
  const std::vector<uint32_t> expected = Expected(options, prompt, 30);
  for (const uint32_t step : {1u, 2u, 3u, 7u, 16u, 17u, 100u}) {
    for (const uint32_t company : {0u, 1u, 5u}) {
      Bench bench(Options(8, 100, step));
      for (uint32_t i = 0; i < company; ++i) {
        SequenceOptions other;
        other.max_tokens = 10 + i;
        bench.Open(other, {i, i + 1});
      }
      const SequenceId id = bench.Open(options, prompt);
      CHECK(bench.Drain());
      CHECK(bench.TakeAll(id) == expected);
      CHECK_EQ(bench.model.control.Violations(), "");
      CHECK_LE(bench.model.control.max_rows_seen.load(), step);
    }
  }
}

TEST(finishing_tokens_are_produced_and_nothing_follows_them) {
  const std::vector<uint32_t> prompt = {1, 2, 3};
  SequenceOptions plain;
  plain.ignore_eos = true;
  const std::vector<uint32_t> free_run = Expected(plain, prompt, 12);
  const auto run = [&](SequenceOptions options, std::vector<uint32_t> eos, Finish* finish) {
    Bench bench(Options(1, 100, 8), std::move(eos));
    options.max_tokens = options.max_tokens == 0 ? 12 : options.max_tokens;
    const SequenceId id = bench.Open(options, prompt);
    bench.Drain();
    *finish = bench.Info(id).finish;
    return bench.TakeAll(id).size();
  };
  // Where each token first appears.
  const auto first = [&](uint32_t token) {
    return static_cast<size_t>(std::find(free_run.begin(), free_run.end(), token) -
                               free_run.begin());
  };
  Finish finish;
  SequenceOptions o;
  CHECK_EQ(run(o, {free_run[5]}, &finish), first(free_run[5]) + 1);
  CHECK(finish == Finish::kEos);
  o.ignore_eos = true;
  CHECK_EQ(run(o, {free_run[5]}, &finish), 12u);
  CHECK(finish == Finish::kMaxTokens);
  o.stop_tokens = {free_run[4]};
  CHECK_EQ(run(o, {free_run[4]}, &finish), first(free_run[4]) + 1);
  CHECK(finish == Finish::kStopToken);
  o.stop_sequences = {{free_run[2], free_run[3], free_run[4]}};
  o.stop_tokens = {};
  CHECK_EQ(run(o, {}, &finish), 5u);
  CHECK(finish == Finish::kStopSequence);
  o.stop_sequences = {{prompt[2], free_run[0]}};  // does not match into the prompt
  o.max_tokens = 7;
  CHECK_EQ(run(o, {}, &finish), 7u);
  CHECK(finish == Finish::kMaxTokens);
}

TEST(min_tokens_bans_the_end_and_delays_stop_sequences) {
  const std::vector<uint32_t> prompt = {9};
  SequenceOptions plain;
  plain.ignore_eos = true;
  const uint32_t first = Expected(plain, prompt, 1)[0];
  SequenceOptions o;
  o.max_tokens = 6;
  o.min_tokens = 4;
  {
    Bench bench(Options(1, 100, 8), {first});
    const SequenceId id = bench.Open(o, prompt);
    CHECK(bench.Drain());
    const std::vector<uint32_t> tokens = bench.TakeAll(id);
    CHECK_GE(tokens.size(), 5u);
    for (size_t i = 0; i < 4; ++i) CHECK_NE(tokens[i], first);
  }
  o.stop_sequences = {{first}};
  Bench bench(Options(1, 100, 8));
  const SequenceId id = bench.Open(o, prompt);
  CHECK(bench.Drain());
  const std::vector<uint32_t> tokens = bench.TakeAll(id);
  CHECK_EQ(tokens[0], first);  // not banned, but it does not end the sequence either
  CHECK_GE(tokens.size(), 5u);
}

TEST(a_prompt_of_the_whole_length_ends_without_a_token) {
  Bench bench(Options(1, 20, 8));
  const SequenceId id = bench.Open({}, std::vector<uint32_t>(20, 3));
  CHECK(bench.Drain());
  CHECK(bench.Info(id).finish == Finish::kLength);
  CHECK_EQ(bench.Info(id).produced, 0u);
  CHECK_EQ(bench.Info(id).position, 20u);
}

TEST(append_continues_a_finished_sequence_with_new_counts) {
  SequenceOptions o;
  o.max_tokens = 3;
  Bench bench(Options(1, 100, 8));
  const SequenceId id = bench.Open(o, {1, 2});
  CHECK(bench.Drain());
  CHECK_EQ(bench.Info(id).produced, 3u);
  CHECK(!bench.Step());
  CHECK_OK(bench.engine->Append(id, {7, 8}));
  CHECK(bench.Info(id).finish == Finish::kNone);
  CHECK(bench.Drain());
  CHECK_EQ(bench.Info(id).produced, 6u);
  CHECK_EQ(bench.TakeAll(id).size(), 6u);
}

TEST(a_sequence_that_comes_back_queues_behind_those_waiting) {
  SequenceOptions o;
  o.max_tokens = 1;
  Bench bench(Options(2, 100, 4));
  const SequenceId old = bench.Open(o, {1, 2});
  CHECK(bench.Drain());
  const SequenceId waiting = bench.Open(o, std::vector<uint32_t>(20, 1));
  CHECK_OK(bench.engine->Append(old, std::vector<uint32_t>(20, 2)));
  CHECK(bench.Step());
  CHECK_EQ(bench.Info(waiting).position, 4u);
  CHECK_EQ(bench.Info(old).position, 2u);
}

TEST(keys_and_values_are_read_back_by_position) {
  Bench bench(Options(4, 100, 8));
  SequenceOptions manual;
  manual.manual = true;
  bench.Open(manual, std::vector<uint32_t>(20, 1));  // the pages before
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 40; ++i) tokens.push_back(i + 2);
  const SequenceId id = bench.Open(manual, tokens);
  CHECK(CodeOf(bench.engine->ReadKv(id, 3, 0).status()) == Code::kInvalidArgument);
  CHECK(bench.Drain());
  for (const uint32_t position : {0u, 15u, 16u, 39u}) {
    const auto kv = bench.engine->ReadKv(id, 3, position);
    CHECK_OK(kv);
    CHECK(kv->k == std::vector<float>({3, static_cast<float>(tokens[position])}));
    CHECK(kv->v == std::vector<float>({static_cast<float>(position)}));
  }
  const Status beyond = bench.engine->ReadKv(id, 3, 40).status();
  CHECK(CodeOf(beyond) == Code::kInvalidArgument);
  CHECK(Says(beyond, "position 40: 40 have run"));
}

TEST(manual_logits_stay_through_other_steps_failures_and_forks) {
  Bench bench(Options(4, 100, 8));
  SequenceOptions manual;
  manual.manual = true;
  const SequenceId id = bench.Open(manual, {4, 5, 6});
  CHECK(CodeOf(bench.engine->Logits(id).status()) == Code::kBusy);
  CHECK(bench.Step());
  CHECK(!bench.Step());
  const std::vector<float> expected = test::FakeLogits({4, 5, 6}, kVocab);
  const auto same = [&](SequenceId which) {
    const auto logits = bench.engine->Logits(which);
    return logits.ok() && std::equal(expected.begin(), expected.end(), logits->begin());
  };
  CHECK(same(id));
  const auto fork = bench.engine->Fork(id);
  CHECK_OK(fork);
  CHECK(same(*fork));
  const SequenceId other = bench.Open({}, {1});
  CHECK(bench.Step());
  CHECK(same(id));
  CHECK(same(*fork));
  bench.model.control.fail_run = bench.model.control.runs.load();
  CHECK(!bench.engine->RunStep().ok());
  CHECK(same(id));
  const auto fork2 = bench.engine->Fork(id);
  CHECK_OK(fork2);
  CHECK(same(*fork2));
  CHECK_OK(bench.engine->Append(id, {9}));
  CHECK(!bench.engine->Logits(id).ok());
  CHECK(same(*fork));
  CHECK(bench.Step());
  CHECK(!same(id));
  CHECK(bench.engine->Logits(id).ok());
  CHECK_OK(bench.engine->Truncate(id, 3));
  CHECK(!bench.engine->Logits(id).ok());
  CHECK(bench.Step());
  CHECK(same(id));
  CHECK_OK(bench.engine->Close(other));
}

TEST(forks_differ_after_a_new_seed_only) {
  SequenceOptions o;
  o.temperature = 1;
  o.seed = 5;
  o.max_tokens = 20;
  o.ignore_eos = true;
  Bench bench(Options(3, 100, 64));
  const SequenceId a = bench.Open(o, std::vector<uint32_t>(37, 2));
  CHECK(bench.Step());
  const auto b = bench.engine->Fork(a);
  const auto c = bench.engine->Fork(a);
  CHECK_OK(b);
  CHECK_OK(c);
  CHECK_OK(bench.engine->SetSeed(*c, 6));
  // Three pages, shared three ways until each writes its own third.
  CHECK_EQ(bench.engine->info().kv_tokens_free, bench.engine->info().kv_tokens_total - 48);
  CHECK(bench.Step());
  CHECK_EQ(bench.engine->info().kv_tokens_free, bench.engine->info().kv_tokens_total - 80);
  CHECK(bench.Drain());
  std::vector<uint32_t> first = bench.TakeAll(a);
  CHECK_EQ(first.size(), 20u);
  first.erase(first.begin());
  CHECK(bench.TakeAll(*b) == first);
  CHECK(bench.TakeAll(*c) != first);
  CHECK_EQ(bench.model.control.Violations(), "");
}

TEST(truncate_replays_the_same_tokens) {
  SequenceOptions o;
  o.temperature = 1;
  o.repetition_penalty = 1.5f;
  o.frequency_penalty = 0.5f;
  o.max_tokens = 25;
  o.ignore_eos = true;
  Bench bench(Options(1, 100, 64));
  const SequenceId id = bench.Open(o, {1, 2, 3, 4});
  CHECK(bench.Drain());
  const std::vector<uint32_t> all = bench.TakeAll(id);
  for (const size_t keep : {24u, 13u, 12u, 1u, 0u}) {
    CHECK_OK(bench.engine->Truncate(id, 4 + keep));
    CHECK(bench.Info(id).finish == Finish::kNone);
    CHECK(bench.Drain());
    CHECK(bench.TakeAll(id) == std::vector<uint32_t>(all.begin() + keep, all.end()));
  }
  const Status status = bench.engine->Truncate(id, 30);
  CHECK(CodeOf(status) == Code::kInvalidArgument);
  CHECK(Says(status, "truncate at 30: the sequence holds 29"));
  CHECK_OK(bench.engine->Truncate(id, 0));
  CHECK(!bench.Step());
  CHECK_EQ(bench.engine->info().kv_tokens_free, bench.engine->info().kv_tokens_total);
}

TEST(preempted_sequences_produce_the_same_tokens) {
  SequenceOptions o;
  o.temperature = 1;
  o.max_tokens = 40;
  o.ignore_eos = true;
  Bench bench(Options(4, 64, 16, 96));
  std::vector<SequenceId> ids;
  for (uint32_t i = 0; i < 4; ++i) {
    o.seed = i;
    ids.push_back(bench.Open(o, std::vector<uint32_t>(17, i)));
  }
  CHECK(bench.Drain());
  for (uint32_t i = 0; i < 4; ++i) {
    o.seed = i;
    CHECK(bench.TakeAll(ids[i]) == Expected(o, std::vector<uint32_t>(17, i), 40));
  }
  CHECK_GT(bench.engine->info().rows, 4u * 56);  // tokens were run again
  CHECK_EQ(bench.model.control.Violations(), "");
}

TEST(a_failed_step_changes_nothing) {
  SequenceOptions o;
  o.temperature = 1;
  o.max_tokens = 30;
  o.ignore_eos = true;
  o.presence_penalty = 1;
  Bench bench(Options(2, 100, 6));
  const SequenceId id = bench.Open(o, {1, 2, 3, 4, 5, 6, 7, 8});
  for (int i = 0; i < 60; ++i) {
    const SequenceInfo before = bench.Info(id);
    const uint64_t free_before = bench.engine->info().kv_tokens_free;
    test::FakeControl& control = bench.model.control;
    if (i % 3 == 0) control.fail_run = control.runs.load();
    if (i % 3 == 1) control.nan_run = control.runs.load();
    const auto stepped = bench.engine->RunStep();
    const SequenceInfo after = bench.Info(id);
    if (i % 3 == 0 && before.finish == Finish::kNone) {
      CHECK(CodeOf(stepped.status()) == Code::kDeviceLost);
      CHECK_EQ(bench.engine->info().kv_tokens_free, free_before);
      CHECK_EQ(after.position, before.position);
      CHECK_EQ(after.tokens, before.tokens);
      CHECK_EQ(after.untaken, before.untaken);
    }
    if (after.finish == Finish::kFault) {  // alone in the step, and tried again
      CHECK_OK(stepped);
      CHECK_EQ(bench.engine->info().kv_tokens_free, free_before);
      CHECK_EQ(after.position, before.position);
      CHECK_EQ(after.tokens, before.tokens);
      CHECK_OK(bench.engine->Truncate(id, after.tokens));
    }
  }
  CHECK(bench.Drain());
  CHECK(bench.TakeAll(id) == Expected(o, {1, 2, 3, 4, 5, 6, 7, 8}, 30));
}

TEST(a_nan_logit_names_sequence_and_position) {
  Bench bench(Options(1, 100, 6));
  const SequenceId id = bench.Open({}, {1, 2, 3});
  bench.model.control.nan_run = 0;
  CHECK(bench.Step());
  CHECK(bench.Info(id).finish == Finish::kFault);
  CHECK_EQ(bench.Info(id).position, 0u);
  CHECK(!bench.Step());  // it does not work any more
  uint32_t token;
  for (int i = 0; i < 2; ++i) {
    const Status status = bench.engine->Take(id, {&token, 1}).status();
    CHECK(CodeOf(status) == Code::kBadModel);
    CHECK(Says(status, absl::StrCat("sequence 0x", absl::Hex(id), ", token at position 3")));
    CHECK(Says(status, "token 25 is nan"));
  }
  CHECK_OK(bench.engine->Truncate(id, 3));
  CHECK(bench.Info(id).finish == Finish::kNone);
  CHECK(bench.Step());
  CHECK_OK(bench.engine->Take(id, {&token, 1}));
}

// One sequence bans every token; the other does not notice.
TEST(a_fault_ends_one_sequence_and_no_other) {
  Bench bench(Options(2, 200, 6));
  SequenceOptions good, bad;
  good.max_tokens = bad.max_tokens = 12;
  good.ignore_eos = bad.ignore_eos = true;
  for (uint32_t token = 0; token < kVocab; ++token) bad.logit_bias.push_back({token, -INFINITY});
  const SequenceId fine = bench.Open(good, {1, 2, 3});
  const SequenceId faulty = bench.Open(bad, {4, 5});
  const uint64_t free_before = bench.engine->info().kv_tokens_free;
  CHECK(bench.Drain());
  CHECK(bench.TakeAll(fine) == Expected(good, {1, 2, 3}, 12));
  CHECK(bench.Info(faulty).finish == Finish::kFault);
  CHECK_EQ(bench.Info(faulty).produced, 0u);
  uint32_t token;
  CHECK(CodeOf(bench.engine->Take(faulty, {&token, 1}).status()) == Code::kInvalidArgument);
  CHECK(CodeOf(bench.engine->Take(fine, {&token, 1}).status()) == Code::kOk);
  auto copy = bench.engine->Fork(faulty);  // has one place only if another is closed
  CHECK(CodeOf(copy.status()) == Code::kBusy);
  CHECK_OK(bench.engine->Close(fine));
  copy = bench.engine->Fork(faulty);
  CHECK_OK(copy);
  CHECK(bench.Info(*copy).finish == Finish::kFault);
  CHECK(CodeOf(bench.engine->Take(*copy, {&token, 1}).status()) == Code::kInvalidArgument);
  CHECK_OK(bench.engine->Close(faulty));
  CHECK_OK(bench.engine->Close(*copy));
  CHECK(bench.engine->info().kv_tokens_free >= free_before);
}

TEST(logprobs_follow_the_last_take) {
  SequenceOptions o;
  o.logprobs = 3;
  o.max_tokens = 50;
  o.ignore_eos = true;
  Bench bench(Options(1, 100, 6));
  const SequenceId id = bench.Open(o, {1, 2, 3});
  CHECK(bench.Drain());
  std::vector<uint32_t> tokens = {1, 2, 3};
  uint32_t out[7];
  while (true) {
    const auto n = bench.engine->Take(id, absl::MakeSpan(out));
    CHECK_OK(n);
    CHECK(CodeOf(bench.engine->TakenLogprobs(id, *n).status()) == Code::kInvalidArgument);
    if (*n == 0) break;
    for (size_t j = 0; j < *n; ++j) {
      const auto logprobs = bench.engine->TakenLogprobs(id, j);
      CHECK_OK(logprobs);
      CHECK_EQ(logprobs->size(), 4u);
      CHECK_EQ((*logprobs)[0].token, out[j]);
      CHECK_EQ((*logprobs)[1].token, out[j]);  // greedy
      CHECK_LE((*logprobs)[2].logprob, (*logprobs)[1].logprob);
      tokens.push_back(out[j]);
    }
  }
  CHECK_EQ(tokens.size(), 53u);
  const SequenceId without = bench.engine->Close(id).ok() ? bench.Open({}, {1}) : 0;
  CHECK(CodeOf(bench.engine->TakenLogprobs(without, 0).status()) == Code::kInvalidArgument);
}

TEST(an_id_of_another_engine_is_no_id_here) {
  Bench a(Options(4, 64, 0)), b(Options(4, 64, 0));
  for (int i = 0; i < 4; ++i) {
    const SequenceId of_a = a.Open({}, {1}), of_b = b.Open({}, {1});
    CHECK(of_a != 0 && of_b != 0 && of_a != of_b);
    CHECK(CodeOf(b.engine->Append(of_a, {2})) == Code::kNotFound);
    CHECK(CodeOf(a.engine->Close(of_b)) == Code::kNotFound);
  }
  // Nor is one of an engine that was where this one is.
  SequenceId before = 0;
  for (int i = 0; i < 100; ++i) {
    Bench c(Options(4, 64, 0));
    CHECK(!c.engine->InfoOf(before).ok());
    before = c.Open({}, {1});
    CHECK(c.engine->InfoOf(before).ok());
  }
}

TEST(counters_add_up) {
  SequenceOptions o;
  o.max_tokens = 4;
  o.ignore_eos = true;
  Bench bench(Options(2, 100, 6));
  bench.Open(o, {1, 2, 3});
  bench.Open(o, {1, 2, 3, 4, 5, 6, 7});
  CHECK(bench.Drain());
  const EngineInfo info = bench.engine->info();
  CHECK_EQ(info.rows, 3u + 7 + 3 + 3);  // the last token of each is not run
  CHECK_EQ(info.produced, 8u);
  CHECK_EQ(info.sequences, 2u);
  CHECK_GT(info.step_ns_last, 0u);
  CHECK_EQ(static_cast<int64_t>(info.steps), bench.model.control.runs.load());
}

TEST(a_manual_sequence_is_told_of_logits_that_are_no_numbers) {
  SequenceOptions o;
  o.manual = true;
  Bench bench(Options(2, 100, 6));
  const SequenceId id = bench.Open(o, {1, 2, 3});
  bench.model.control.nan_run = 0;
  CHECK(bench.Step());
  CHECK(bench.Info(id).finish == Finish::kFault);
  CHECK_EQ(bench.Info(id).position, 0u);
  CHECK(CodeOf(bench.engine->Logits(id).status()) == Code::kBadModel);
  CHECK(Says(bench.engine->Logits(id).status(), "token 25 is nan"));
  CHECK_OK(bench.engine->Truncate(id, 3));
  CHECK(bench.Step());
  CHECK_OK(bench.engine->Logits(id));
}

TEST(a_device_that_fails_while_logits_are_fetched_fails_the_step) {
  SequenceOptions o;
  o.max_tokens = 5;
  o.ignore_eos = true;
  Bench bench(Options(2, 100, 16));
  const SequenceId a = bench.Open(o, {1, 2, 3});
  const SequenceId b = bench.Open(o, {4, 5});
  for (const int64_t fetch : {0, 1}) {  // of the first sequence and of the second
    bench.model.control.fail_fetch = bench.model.control.fetches.load() + fetch;
    CHECK(CodeOf(bench.engine->RunStep().status()) == Code::kDeviceLost);
    for (const SequenceId id : {a, b}) {
      CHECK(bench.Info(id).finish == Finish::kNone);
      CHECK_EQ(bench.Info(id).position, 0u);
      CHECK_EQ(bench.Info(id).produced, 0u);
    }
  }
  CHECK(bench.Drain());
  CHECK(bench.TakeAll(a) == Expected(o, {1, 2, 3}, 5));
  CHECK(bench.TakeAll(b) == Expected(o, {4, 5}, 5));
}

TEST(prompt_logprobs_are_of_every_appended_token_but_the_first) {
  SequenceOptions o;
  o.prompt_logprobs = 2;
  o.max_tokens = 2;
  o.ignore_eos = true;
  for (const uint32_t logit_rows : {0u, 3u, 64u}) {
    EngineOptions options = Options(1, 100, 16);
    options.logit_rows = logit_rows;
    Bench bench(options);
    std::vector<uint32_t> tokens = {1, 2, 3, 4, 5, 6, 7};
    const SequenceId id = bench.Open(o, tokens);
    CHECK(CodeOf(bench.engine->PromptLogprobs(id, 3).status()) == Code::kBusy);
    CHECK(bench.Drain());
    const std::vector<uint32_t> produced = bench.TakeAll(id);
    CHECK_EQ(produced.size(), 2u);
    CHECK_OK(bench.engine->Append(id, {8, 9}));
    CHECK(bench.Drain());
    tokens.insert(tokens.end(), {produced[0], produced[1], 8, 9});
    for (const size_t at : {1u, 4u, 6u, 9u, 10u}) {
      const auto got = bench.engine->PromptLogprobs(id, at);
      CHECK_OK(got);
      CHECK_EQ(got->size(), 3u);
      const std::vector<float> logits = test::FakeLogits({tokens.begin(), tokens.begin() + at}, kVocab);
      double total = 0;
      for (const float x : logits) total += std::exp(double(x));
      CHECK_EQ((*got)[0].token, tokens[at]);
      CHECK_LT(std::fabs((*got)[0].logprob - (logits[tokens[at]] - std::log(total))), 1e-4);
      CHECK_GE((*got)[1].logprob, (*got)[2].logprob);
    }
    for (const size_t at : {0u, 7u, 8u, 11u, 12u, 13u}) {
      CHECK(CodeOf(bench.engine->PromptLogprobs(id, at).status()) == Code::kInvalidArgument);
    }
  }
}

TEST(logits_of_every_row_of_the_last_step_can_be_read) {
  SequenceOptions o;
  o.all_logits = true;
  o.manual = true;
  EngineOptions options = Options(2, 100, 16);
  options.logit_rows = 8;
  Bench bench(options);
  const std::vector<uint32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const SequenceId id = bench.Open(o, tokens);
  const SequenceId plain = bench.Open({}, {1});
  uint64_t from = 0;
  while (bench.Info(id).pending > 0) {
    CHECK(bench.Step());
    const uint64_t to = bench.Info(id).position;
    CHECK_LE(to - from, 7u);  // one row is the other's
    for (uint64_t at = from; at < to; ++at) {
      const auto logits = bench.engine->LogitsAt(id, at);
      CHECK_OK(logits);
      const auto end = tokens.begin() + static_cast<ptrdiff_t>(at) + 1;
      const std::vector<float> expected = test::FakeLogits({tokens.begin(), end}, kVocab);
      CHECK(std::equal(expected.begin(), expected.end(), logits->begin()));
    }
    CHECK(CodeOf(bench.engine->LogitsAt(id, to).status()) == Code::kInvalidArgument);
    CHECK_EQ(bench.engine->Logits(id).ok(), to == tokens.size());
    from = to;
  }
  CHECK(CodeOf(bench.engine->LogitsAt(plain, 0).status()) == Code::kInvalidArgument);
}
