// SPDX-License-Identifier: MIT
//
// The prefix cache: who finds what, what it costs, who is kept apart, what is given up. That tokens are
// those of an engine without one is engine_property_test's.
#include <numeric>

#include "decode/export.h"
#include "support/test.h"
#include "unit/decode/engine_bench.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

EngineOptions Prefixes(uint32_t sequences, uint32_t tokens, uint32_t step, uint64_t kv = 0) {
  EngineOptions o = Options(sequences, tokens, step, kv);
  o.prefix_cache = true;
  return o;
}

std::vector<uint32_t> Text(size_t n, uint32_t from = 0) {
  std::vector<uint32_t> tokens(n);
  for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<uint32_t>((from + i * 7) % kVocab);
  return tokens;
}

SequenceOptions Few(uint32_t max_tokens, uint64_t salt = 0) {
  SequenceOptions o;
  o.max_tokens = max_tokens;
  o.ignore_eos = true;
  o.prefix_salt = salt;
  return o;
}

constexpr uint64_t kWrong = UINT64_MAX;

// How many rows the answer takes; kWrong if it is another than an engine without a prefix cache gives.
uint64_t RowsFor(Bench& bench, const std::vector<uint32_t>& tokens, const SequenceOptions& options,
                 const test::CacheForms& forms = {{}}) {
  const uint64_t before = bench.engine->info().rows;
  const SequenceId id = bench.Open(options, tokens);
  if (!bench.Drain()) return kWrong;
  test::OracleSequence oracle;
  oracle.options = options, oracle.vocab = kVocab, oracle.max_tokens = 1000, oracle.forms = forms;
  oracle.Append(tokens);
  for (uint32_t i = 0; i < options.max_tokens; ++i) oracle.Advance();
  if (bench.TakeAll(id) != oracle.Take(options.max_tokens)) return kWrong;
  if (!bench.engine->Close(id).ok() || !bench.model.control.Violations().empty()) return kWrong;
  return bench.engine->info().rows - before;
}

}  // namespace

TEST(a_closed_sequence_leaves_its_whole_blocks) {
  Bench bench(Prefixes(1, 200, 64));
  CHECK_EQ(RowsFor(bench, Text(100), Few(1)), 100u);
  // 96 of its tokens are six blocks.
  CHECK_EQ(RowsFor(bench, Text(100), Few(1)), 4u);
  const EngineInfo info = bench.engine->info();
  CHECK_EQ(info.prefix_hits, 1u);
  CHECK_EQ(info.prefix_tokens, 96u);
  CHECK_EQ(info.prefix_held, 96u);
  CHECK_EQ(info.kv_tokens_free, info.kv_tokens_total);
  // One row at least makes the logits.
  CHECK_EQ(RowsFor(bench, Text(96), Few(1)), 16u);
  CHECK_EQ(RowsFor(bench, Text(97), Few(1)), 1u);
}

TEST(without_it_every_token_runs) {
  Bench bench(Options(1, 200, 64));
  CHECK_EQ(RowsFor(bench, Text(100), Few(1)), 100u);
  CHECK_EQ(RowsFor(bench, Text(100), Few(1)), 100u);
  CHECK_EQ(bench.engine->info().prefix_held, 0u);
  CHECK_EQ(*bench.engine->PinPrefix(Text(100), 0), 0u);
  CHECK_OK(bench.engine->DropPrefix({}, 0));
}

// A chat: each turn begins with all that was said, what the model said among it.
TEST(a_turn_finds_what_was_asked_and_answered) {
  Bench bench(Prefixes(1, 400, 64));
  std::vector<uint32_t> chat = Text(70);
  CHECK_EQ(RowsFor(bench, chat, Few(20)), 89u);  // the last token has not run
  const std::vector<uint32_t> answer = Expected(Few(20), chat, 20);
  chat.insert(chat.end(), answer.begin(), answer.end());
  const std::vector<uint32_t> more = Text(30, 3);
  chat.insert(chat.end(), more.begin(), more.end());
  CHECK_EQ(RowsFor(bench, chat, Few(1)), 120u - 80u);
}

TEST(of_many_with_one_system_prompt_all_but_the_first_find_it) {
  Bench bench(Prefixes(8, 200, 64));
  std::vector<std::vector<uint32_t>> prompts;
  std::vector<SequenceId> ids;
  for (uint32_t i = 0; i < 8; ++i) {
    prompts.push_back(Text(64));
    prompts.back().push_back(i);
    ids.push_back(bench.Open(Few(3), prompts.back()));
  }
  CHECK(bench.Drain());
  for (uint32_t i = 0; i < 8; ++i) {
    CHECK(bench.TakeAll(ids[i]) == Expected(Few(3), prompts[i], 3));
  }
  CHECK_EQ(bench.engine->info().prefix_hits, 7u);
  CHECK_EQ(bench.engine->info().prefix_tokens, 7u * 64);
  CHECK_EQ(bench.engine->info().rows, 65u + 7 + 8 * 2);
}

TEST(another_salt_finds_nothing) {
  Bench bench(Prefixes(2, 200, 64));
  CHECK_EQ(RowsFor(bench, Text(100), Few(1, 1)), 100u);
  CHECK_EQ(RowsFor(bench, Text(100), Few(1, 2)), 100u);
  CHECK_EQ(RowsFor(bench, Text(100), Few(1, 0)), 100u);
  CHECK_EQ(RowsFor(bench, Text(100), Few(1, 1)), 4u);
  CHECK_EQ(RowsFor(bench, Text(100), Few(1, 2)), 4u);
  const SequenceId id = bench.Open(Few(1, 1), Text(3));
  const Status changed = bench.engine->SetOptions(id, Few(1, 2));
  CHECK_EQ(CodeOf(changed), Code::kInvalidArgument);
  CHECK(Says(changed, "prefix_salt"));
}

TEST(who_wants_logits_of_every_row_runs_every_row) {
  Bench bench(Prefixes(1, 200, 64));
  CHECK_EQ(RowsFor(bench, Text(100), Few(1)), 100u);
  SequenceOptions all = Few(1);
  all.all_logits = true;
  CHECK_EQ(RowsFor(bench, Text(100), all), 100u);
  SequenceOptions scored = Few(1);
  scored.prompt_logprobs = 2;
  CHECK_EQ(RowsFor(bench, Text(100), scored), 100u);
}

// The longest unused goes first, and from its end.
TEST(where_room_is_short_the_longest_unused_goes) {
  Bench bench(Prefixes(1, 160, 64, 160));  // ten pages
  CHECK_EQ(RowsFor(bench, Text(64, 1), Few(1)), 64u);
  CHECK_EQ(RowsFor(bench, Text(64, 2), Few(1)), 64u);
  CHECK_EQ(RowsFor(bench, Text(65, 1), Few(1)), 1u);  // touched
  CHECK_EQ(bench.engine->info().prefix_evictions, 0u);
  CHECK_EQ(RowsFor(bench, Text(64, 3), Few(1)), 64u);
  CHECK_EQ(bench.engine->info().prefix_evictions, 2u);
  // Its fifth page is one more.
  CHECK_EQ(RowsFor(bench, Text(65, 1), Few(1)), 1u);
  CHECK_EQ(RowsFor(bench, Text(65, 2), Few(1)), 49u);
}

TEST(it_keeps_no_more_than_prefix_bytes) {
  Bench wide(Prefixes(1, 320, 64));
  const uint64_t unit = wide.engine->info().memory_bytes / 20;  // of a page of the fake's
  EngineOptions o = Prefixes(1, 320, 64);
  o.prefix_bytes = 4 * unit + unit / 2;
  Bench bench(o);
  CHECK_EQ(RowsFor(bench, Text(100), Few(1)), 100u);
  CHECK_EQ(bench.engine->info().prefix_held, 64u);
  // What is there stays: a chain is cut at its end.
  CHECK_EQ(RowsFor(bench, Text(100), Few(1)), 36u);
  o.prefix_bytes = 1;
  Bench none(o);
  CHECK_EQ(RowsFor(none, Text(100), Few(1)), 100u);
  CHECK_EQ(none.engine->info().prefix_held, 0u);
}

TEST(what_is_pinned_stays_until_it_is_dropped) {
  Bench bench(Prefixes(1, 96, 64, 160));
  CHECK_EQ(RowsFor(bench, Text(64, 1), Few(1)), 64u);
  CHECK_EQ(*bench.engine->PinPrefix(Text(70, 1), 0), 64u);
  CHECK_EQ(*bench.engine->PinPrefix(Text(64, 1), 0), 64u);  // again
  CHECK_EQ(*bench.engine->PinPrefix(Text(64, 1), 7), 0u);   // of another salt
  CHECK_EQ(bench.engine->info().kv_tokens_free, 96u);
  // The rest is what the longest sequence takes.
  CHECK_EQ(RowsFor(bench, Text(90, 2), Few(1)), 90u);
  const auto more = bench.engine->PinPrefix(Text(90, 2), 0);
  CHECK_EQ(CodeOf(more.status()), Code::kKvFull);
  for (uint32_t i = 3; i < 9; ++i) CHECK_EQ(RowsFor(bench, Text(90, i), Few(1)), 90u);
  CHECK_EQ(RowsFor(bench, Text(65, 1), Few(1)), 1u);
  CHECK_OK(bench.engine->DropPrefix(Text(64, 1), 0));
  CHECK_EQ(bench.engine->info().kv_tokens_free, 160u);
  CHECK_EQ(RowsFor(bench, Text(65, 1), Few(1)), 17u);
}

TEST(a_drop_leaves_other_pins) {
  Bench bench(Prefixes(2, 200, 64));
  std::vector<uint32_t> one = Text(64), other = Text(64);
  one[40] = 1, other[40] = 2;
  CHECK_EQ(RowsFor(bench, one, Few(1)), 64u);
  CHECK_EQ(RowsFor(bench, other, Few(1)), 32u);
  const uint64_t all = bench.engine->info().kv_tokens_total;
  CHECK_EQ(*bench.engine->PinPrefix(Text(16), 0), 16u);
  CHECK_EQ(*bench.engine->PinPrefix(one, 0), 64u);
  CHECK_EQ(*bench.engine->PinPrefix(other, 0), 64u);
  CHECK_EQ(bench.engine->info().kv_tokens_free, all - 96);
  CHECK_OK(bench.engine->DropPrefix(one, 0));  // its third block may go, too
  CHECK_EQ(bench.engine->info().kv_tokens_free, all - 64);
  CHECK_OK(bench.engine->DropPrefix(other, 0));
  CHECK_EQ(bench.engine->info().kv_tokens_free, all - 16);
  CHECK_OK(bench.engine->DropPrefix({}, 0));
  CHECK_EQ(bench.engine->info().kv_tokens_free, all);
}

TEST(a_drop_takes_all_that_begins_so) {
  Bench bench(Prefixes(2, 200, 64));
  std::vector<uint32_t> one = Text(64), other = Text(64);
  one[40] = 1, other[40] = 2;
  CHECK_EQ(RowsFor(bench, one, Few(1)), 64u);
  CHECK_EQ(RowsFor(bench, other, Few(1)), 32u);
  CHECK_OK(bench.engine->DropPrefix(Text(47), 0));  // two blocks
  CHECK_EQ(bench.engine->info().prefix_held, 16u);
  CHECK_EQ(RowsFor(bench, one, Few(1)), 48u);
  CHECK_OK(bench.engine->DropPrefix({}, 0));
  CHECK_EQ(RowsFor(bench, one, Few(1)), 64u);
}

TEST(a_drop_leaves_open_sequences_what_they_hold) {
  Bench bench(Prefixes(2, 200, 64));
  const SequenceId id = bench.Open(Few(40), Text(64));
  for (int i = 0; i < 5; ++i) CHECK(bench.Step());
  CHECK_EQ(bench.engine->info().prefix_held, 64u);
  const uint64_t position = bench.Info(id).position;
  CHECK_OK(bench.engine->DropPrefix({}, 0));
  CHECK_EQ(bench.engine->info().prefix_held, 0u);
  CHECK_EQ(bench.Info(id).position, position);
  CHECK(bench.Drain());
  CHECK(bench.TakeAll(id) == Expected(Few(40), Text(64), 40));
  CHECK_OK(bench.engine->Close(id));
  // What it ran after the drop was handed in again, with all before it.
  CHECK_EQ(RowsFor(bench, Text(65), Few(1)), 1u);
}

// An import may say of its tokens what it likes, but not to others.
TEST(content_that_came_from_outside_is_nobody_elses) {
  Bench from(Prefixes(1, 200, 64));
  const SequenceId id = from.Open(Few(4), Text(100));
  CHECK(from.Step());
  CHECK(from.Step());
  auto state = from.engine->Save(id, true);
  CHECK_OK(state.status());
  CHECK_GT(state->stored, 64u);
  for (uint32_t& token : state->tokens) token = 9;  // than those that made the content
  Bench to(Prefixes(1, 200, 64));
  auto restored = to.engine->Restore(*state);
  CHECK_OK(restored.status());
  CHECK(to.Drain());
  CHECK_OK(to.engine->Close(*restored));
  CHECK_EQ(RowsFor(to, std::vector<uint32_t>(100, 9), Few(1)), 100u);
}

// Who is written over in the midst of a block leaves none behind with the old tokens' name.
TEST(a_block_that_is_written_again_is_forgotten) {
  Bench bench(Prefixes(1, 200, 64));
  const SequenceId id = bench.Open(Few(1), Text(64));
  CHECK(bench.Drain());
  CHECK_OK(bench.engine->Truncate(id, 40));
  CHECK_OK(bench.engine->Append(id, Text(30, 5)));
  CHECK(bench.Drain());
  CHECK_OK(bench.engine->Close(id));
  CHECK_EQ(RowsFor(bench, Text(65), Few(1)), 65u - 32u);
  std::vector<uint32_t> second = Text(40);
  const std::vector<uint32_t> tail = Text(30, 5);
  second.insert(second.end(), tail.begin(), tail.end());
  CHECK_EQ(RowsFor(bench, second, Few(1)), 70u - 64u);
}

// A hit is only as long as there is a state, or the pages of a window, to stand on.
TEST(states_and_windows_are_found_where_they_were_kept) {
  const model::CacheForm whole = {false, 0}, sliding = {false, 20}, states = {true, 0};
  for (const bool with_states : {false, true}) {
    EngineOptions o = Prefixes(2, 400, 64);
    o.snapshot_tokens = 64;
    const test::CacheForms forms =
        with_states ? test::CacheForms{whole, states} : test::CacheForms{whole, sliding};
    Bench bench(o, {}, forms);
    CHECK_EQ(RowsFor(bench, Text(150), Few(1), forms), 150u);
    // The last whole block before the prompt's end ...
    CHECK_EQ(RowsFor(bench, Text(151), Few(1), forms), 151u - 144u);
    // ... and multiples of snapshot_tokens.
    CHECK_EQ(RowsFor(bench, Text(140), Few(1), forms), 140u - 128u);
  }
}

// First pages that a window keeps are found with its last ones; where the pool has taken one back there is no hit.
TEST(pages_that_a_window_keeps_are_found_or_nothing_is) {
  const test::CacheForms forms = {{false, 0}, {false, 20, 1}};
  Bench bench(Prefixes(2, 4000, 64), {}, forms);
  CHECK_EQ(RowsFor(bench, Text(150), Few(1), forms), 150u);
  CHECK_EQ(RowsFor(bench, Text(151), Few(1), forms), 151u - 144u);
  uint64_t hits = 0, misses = 0;
  for (uint32_t turn = 0; turn < 90; ++turn) {
    // Some come again at once, some when others have been.
    const uint64_t rows = RowsFor(bench, Text(90, turn % 3 == 0 ? turn / 15 : turn), Few(1), forms);
    CHECK_LE(rows, 90u);
    (rows < 90 ? hits : misses) += 1;
  }
  CHECK_GT(hits, 5u);
  CHECK_GT(misses, 5u);
}
