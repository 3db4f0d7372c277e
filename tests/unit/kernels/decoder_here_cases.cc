// SPDX-License-Identifier: MIT
//
// attend_* and attend_long_* of few rows, which merge what splits have left, and make their heads, too
// (AttendHere): to the bit what prepare_*, attend_* and attend_merge give one after the other.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "unit/kernels/attention_cases.h"
#include "unit/kernels/decoder_teller.h"

namespace mainarch::kernels_test {
namespace {

// What there is of it beside the heads.
struct HereParts {
  bool gated = false, sinks = false, is_long = false, wide = false;
  bool told = false;  // heads come as words with a tag, of a product beside it
  bool together = false;  // heads of several rows are made there; those at neighbouring positions are one sequence's
  uint32_t window = 0;
  uint32_t workers = 5, mergers = 3;
};

// Numbers of a product whose k four workgroups shared, with a norm before it, as in the cases of prepare_*.
constexpr uint32_t kSums = 4;
constexpr uint32_t kStep = 7;
constexpr ToldWords kTold = {{}, 2, 4};

struct HereCase {
  HeadShape s;
  HereParts has;
  uint32_t stride = 0, out_stride = 0, max_splits = 0;

  bool prepares() const { return (s.count() == 1 || has.together) && !has.is_long && s.head_dim == s.value_dim(); }
  size_t parts() const { return size_t{s.count()} * s.heads() * max_splits * AttendPartFloats(s.value_dim()); }
  uint32_t width() const { return (s.heads() + s.kv_heads) * s.head_dim + s.kv_heads * s.value_dim(); }
  AttendCall call() const {
    return {stride,      out_stride,       s.heads(),  s.kv_heads, s.head_dim,
            max_splits,  s.count(),        has.window, has.gated,  has.sinks};
  }

  void Fill(PrepareArgs* args, const Addresses& at, const std::string& kv) const {
    args->step = at.Of<const uint32_t>("step");
    args->in = at.Of<const float>("in");
    args->qkv = at.Of<float>("qkv");
    args->q_norm = at.Of<const float>("q_norm");
    args->k_norm = at.Of<const float>("k_norm");
    args->cosine = at.Of<const float>("cosine");
    args->sine = at.Of<const float>("sine");
    args->kv = at.Of<uint8_t>(kv);
    args->bias = at.Of<const float>("bias");
    args->stride = stride;
    args->heads = s.heads();
    args->kv_heads = s.kv_heads;
    args->tables_at = kTablesAt;
    args->rotary = s.head_dim / 2;
    args->epsilon = kEpsilon;
    args->splits = kSums;
    args->split_rows = s.count();
    args->norm.squares = at.Of<const float>("squares");
    args->norm.chunks = 1;
    args->norm.inverse_hidden = 1;
  }
  void Fill(AttendHere* here, const Addresses& at) const {
    here->words = at.Of<uint64_t>("words");
    here->turn = 1;
    here->turns = 3;
    here->mergers = has.mergers;
    if (has.together) here->appended_at = static_cast<uint32_t>(parts());
  }
  std::string Kernel(const char* what) const { return absl::StrCat(what, NameOf(s.format), "_", s.Dims()); }

  // One after the other: prepare, attend, merge.
  std::vector<std::vector<LaunchSpec>> Apart() const {
    const HereCase c = *this;
    const auto attend = [c](AttendArgs& args, const Addresses& at) {
      c.call().Fill(&args, at);
      args.tables_at = kTablesAt;
    };
    const auto merge = [c](AttendMergeArgs& args, const Addresses& at) {
      AttendArgs of;
      c.call().Fill(&of, at);
      args = {of.step, {of.parts.address}, of.out, of.gate, of.out_stride, of.heads, of.max_splits, c.s.value_dim(),
              of.first_row, of.row_count, of.gate_stride, of.window, of.sinks};
    };
    return {{MakeLaunch<PrepareArgs>(Kernel("prepare_"), 2,
                                     [c](PrepareArgs& args, const Addresses& at) { c.Fill(&args, at, "kv"); })},
            {has.is_long ? MakeLaunch<AttendLongArgs>(Kernel("attend_long_"), 7,
                                                      [=](AttendLongArgs& args, const Addresses& at) { attend(args.attend, at); })
                         : MakeLaunch<AttendOnceArgs>(Kernel("attend_"), 3,
                                                      [=](AttendOnceArgs& args, const Addresses& at) { attend(args.attend, at); })},
            {MakeLaunch<AttendMergeArgs>(MergeKernel(has.is_long, has.wide), 2, merge)}};
  }
  // In one launch; heads of several rows may be there already.
  LaunchSpec Here() const {
    const HereCase c = *this;
    const auto attend = [c](AttendArgs& args, const Addresses& at) {
      c.call().Fill(&args, at);
      args.tables_at = kTablesAt;
      args.out = at.Of<float>("out here");
      args.kv = at.Of<const uint8_t>(c.prepares() ? "kv here" : "kv");
      args.parts = {};
    };
    if (has.is_long) {
      return MakeLaunch<AttendLongArgs>(Kernel("attend_long_"), has.workers, [=](AttendLongArgs& args, const Addresses& at) {
        attend(args.attend, at);
        c.Fill(&args.here, at);
      });
    }
    return MakeLaunch<AttendOnceArgs>(Kernel("attend_"), has.workers, [=](AttendOnceArgs& args, const Addresses& at) {
      attend(args.attend, at);
      if (c.max_splits > 1) c.Fill(&args.here, at);
      if (!c.prepares()) return;
      c.Fill(&args.prepare, at, "kv here");
      if (c.has.told) {
        args.told = kTold;
        args.told.words = at.Of<uint64_t>("told");
        args.prepare.in = {};
      }
      args.prepare.qkv = {};
      args.attend.qkv = {};  // nobody asks for what is not there
    });
  }
};

std::vector<float> Uniforms(Random& random, size_t count, double from, double to) {
  std::vector<float> out(count);
  for (float& x : out) x = static_cast<float>(from + (to - from) * random.Uniform());
  return out;
}

// Pages of each sequence's rows, and random K and V of its tokens before the first of these.
Cache FillSequences(Random& random, const HeadShape& s, uint32_t window, StepPlan* step) {
  StepPlan lasts;
  std::vector<uint32_t> firsts;  // rows
  for (uint32_t row = 0; row < s.count(); ++row) {
    if (step->rows[row].follows) {
      lasts.rows.back().position = s.positions[row];
    } else {
      lasts.rows.push_back(step->rows[row]);
      firsts.push_back(row);
    }
  }
  Cache kv = s.CacheOf(DealPages(random, &lasts));
  for (size_t i = 0; i < firsts.size(); ++i) {
    const uint32_t position = s.positions[firsts[i]], seen = FirstSeen(position, window);
    std::vector<uint32_t>& pages = lasts.rows[i].pages;
    for (uint32_t token = seen; token < position; ++token) {
      for (uint32_t head = 0; head < s.kv_heads; ++head) kv.Fill(random, pages[token / kPageTokens], head, token % kPageTokens);
    }
    std::fill_n(pages.begin(), seen / kPageTokens, kNoPage);
  }
  PutTablesBehind(&lasts);
  for (size_t i = 0; i < firsts.size(); ++i) step->rows[firsts[i]].pages = lasts.rows[i].pages;
  return kv;
}

Case MakeHereCase(const HeadShape& s, const HereParts& has = {}) {
  Random random(s.head_dim + s.count() * 3 + s.group + s.positions[0]);
  const uint32_t last = *std::max_element(s.positions.begin(), s.positions.end());
  HereCase c = {s, has, 0, RoundUp(s.heads() * s.value_dim(), kPadColumns),
                std::min(last / kSplitTokens + 1, has.is_long ? kLongSplits : MostSplits(has.window))};
  StepPlan step = StepOf(s);
  step.index = kStep;
  for (uint32_t row = 1; has.together && row < s.count(); ++row) {
    step.rows[row].follows = s.positions[row] == s.positions[row - 1] + 1;
  }
  const Cache kv = FillSequences(random, s, has.window, &step);
  Inputs qkv = RandomInputs(random, s.count(), c.width(), 3);
  if (has.told) std::transform(qkv.values.begin(), qkv.values.end(), qkv.values.begin(), RoundedToBf16);
  c.stride = qkv.stride;
  std::vector<float> sums;
  for (uint32_t i = 0; i < kSums; ++i) sums.insert(sums.end(), qkv.values.begin(), qkv.values.end());
  const size_t angles = size_t{last + 1} * s.head_dim / 4, out_bytes = size_t{s.count()} * c.out_stride * 4;
  Case out;
  out.name = absl::StrCat("attend here, ", s.Text(), has.is_long ? ", long" : "", has.wide ? ", merged wide" : "", has.gated ? ", gated" : "",
                          has.sinks ? ", sinks" : "", has.told ? ", told" : "", has.together ? ", heads together" : "", has.window == 0 ? "" : absl::StrCat(", window ", has.window), ", ",
                          has.workers, " workgroups of which ", has.mergers, " merge");
  out.bound = "the bits of prepare, attend and merge";
  out.buffers = {{"step", step.Block()},
                 {"in", ToBytes(sums)},
                 {"squares", ToBytes(std::vector<float>(s.count(), 4.0f))},
                 {"qkv", Bytes(qkv.values.size() * 4, kUntouchedByte)},
                 {"q_norm", ToBytes(Uniforms(random, s.head_dim, 0.5, 1.5))},
                 {"k_norm", ToBytes(Uniforms(random, s.head_dim, 0.5, 1.5))},
                 {"cosine", ToBytes(Uniforms(random, angles, -1, 1))},
                 {"sine", ToBytes(Uniforms(random, angles, -1, 1))},
                 {"bias", ToBytes(Uniforms(random, c.width(), -0.5, 0.5))},
                 {"gate", ToBytes(Uniforms(random, size_t{s.count()} * c.out_stride, -3, 3))},
                 {"sinks", ToBytes(Uniforms(random, s.heads(), -3, 3))},
                 {"kv", kv.bytes},
                 {"kv here", kv.bytes},
                 {"parts", Bytes(c.parts() * 4, 0xff)},
                 {"words", StaleWords(c.parts() + AppendedWords(s.kv_heads), LaunchTag(step.index - 1, 1, 3))},
                 {"out", Bytes(out_bytes, kUntouchedByte)},
                 {"out here", Bytes(out_bytes, kUntouchedByte)}};
  out.steps = c.Apart();
  out.steps.emplace_back();
  if (has.told) {
    const Teller teller(sums, kSums, s.count());
    teller.AddBuffers("", 0, kTold, kStep, &out.buffers);
    out.steps.back().push_back(teller.Launch("", 0, "step", kTold));
  }
  out.steps.back().push_back(c.Here());
  out.expectations = Same("out", "out here", true);
  if (c.prepares()) {
    for (Expectation& one : Same("kv", "kv here", false)) out.expectations.push_back(std::move(one));
  }
  return out;
}

// Prompts: runs of rows of a sequence, each [first position, rows]. `prompt`: whole runs are attend_prompt_*'s.
Case MakeTallCase(KvFormat format, uint32_t head_dim, uint32_t kv_heads, uint32_t group,
                  const std::vector<std::pair<uint32_t, uint32_t>>& runs, bool gated, uint32_t workers, uint32_t own_value_dim = 0,
                  uint32_t window = 0, bool prompt = false) {
  Random random(head_dim + group * 5 + runs[0].first);
  StepPlan lasts = StepPlan::Of(static_cast<uint32_t>(runs.size()));
  HeadShape s = {format, head_dim, kv_heads, group, {}, own_value_dim};
  for (size_t i = 0; i < runs.size(); ++i) {
    lasts.rows[i].position = runs[i].first + runs[i].second - 1;
    for (uint32_t k = 0; k < runs[i].second; ++k) s.positions.push_back(runs[i].first + k);
  }
  const uint32_t pages = DealPages(random, &lasts);
  Cache kv = s.CacheOf(pages);
  for (size_t i = 0; i < runs.size(); ++i) {
    StepPlan::Row& row = lasts.rows[i];
    const uint32_t seen = FirstSeen(runs[i].first, window);
    for (uint32_t token = seen; token <= row.position; ++token) {
      for (uint32_t head = 0; head < kv_heads; ++head) {
        kv.Fill(random, row.pages[token / kPageTokens], head, token % kPageTokens);
      }
    }
    std::fill_n(row.pages.begin(), seen / kPageTokens, kNoPage);
  }
  PutTablesBehind(&lasts);
  StepPlan step = StepOf(s);
  uint32_t at = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (uint32_t k = 0; k < runs[i].second; ++k) step.rows[at + k].follows = k > 0;
    step.rows[at].pages = lasts.rows[i].pages;
    at += runs[i].second;
  }
  const uint32_t last = *std::max_element(s.positions.begin(), s.positions.end());
  const Inputs q = RandomInputs(random, s.count(), s.heads() * head_dim, 3);
  const AttendCall call = {q.stride, RoundUp(s.heads() * s.value_dim(), kPadColumns), s.heads(), kv_heads, head_dim,
                           std::min(last / kSplitTokens + 1, MostSplits(window)), s.count(), window, gated, gated};
  Case out;
  const uint32_t run_rows = prompt ? AttendPromptRows(group) : 0;
  out.name = absl::StrCat(prompt ? "attend_prompt_" : "attend_tall_", NameOf(format), "_", s.Dims(), " ", s.heads(), "/", kv_heads, gated ? ", gated, sinks" : "",
                          window == 0 ? "" : absl::StrCat(", window ", window));
  for (const auto& [first, rows] : runs) absl::StrAppend(&out.name, ", ", rows, " rows from ", first);
  out.bound = "the bits of attend_* and attend_merge";
  const Bytes rows(size_t{s.count()} * call.out_stride * 4, kUntouchedByte);
  const Bytes parts(size_t{s.count()} * s.heads() * call.max_splits * AttendPartFloats(s.value_dim()) * 4, kUntouchedByte);
  out.buffers = {{"step", step.Block()}, {"qkv", ToBytes(q.values)},
                 {"gate", ToBytes(Uniforms(random, size_t{s.count()} * call.out_stride, -3, 3))},
                 {"sinks", ToBytes(Uniforms(random, s.heads(), -3, 3))},
                 {"kv", kv.bytes}, {"out", rows}, {"out tall", rows}, {"parts", parts}, {"parts tall", parts}};
  const std::string rest = absl::StrCat(NameOf(format), "_", s.Dims());
  const auto tall = [=](const std::string& kernel) {
    return MakeLaunch<AttendArgs>(kernel + rest, workers, [=](AttendArgs& args, const Addresses& to) {
      call.Fill(&args, to);
      args.tables_at = kTablesAt;
      args.out = to.Of<float>("out tall");
      args.parts = to.Of<float>("parts tall");
      args.run_rows = run_rows;
    });
  };
  out.steps = {{MakeLaunch<AttendOnceArgs>("attend_" + rest, 5,
                                           [=](AttendOnceArgs& args, const Addresses& to) {
                                             call.Fill(&args.attend, to);
                                             args.attend.tables_at = kTablesAt;
                                           })},
               {tall("attend_tall_")}};
  if (prompt) out.steps[1].push_back(tall("attend_prompt_"));
  const auto merge = [=](const std::string& kernel, const std::string& to_buffer) {
    return MakeLaunch<AttendMergeArgs>(kernel, workers, [=](AttendMergeArgs& args, const Addresses& to) {
      AttendArgs of;
      call.Fill(&of, to);
      args = {of.step, {of.parts.address}, to.Of<float>(to_buffer), of.gate, of.out_stride, of.heads, of.max_splits, s.value_dim(),
              of.first_row, of.row_count, of.gate_stride, of.window, of.sinks, kernel == "attend_merge_rows" ? run_rows : 0};
    });
  };
  out.steps[0][0].aids = true;
  out.steps.push_back({merge("attend_merge", "out")});
  out.steps.back()[0].aids = true;
  out.steps.push_back({merge("attend_merge_rows", "out tall")});
  out.expectations = Same("out", "out tall", true);
  if (prompt) return out;
  for (Expectation& one : Same("parts", "parts tall", call.max_splits > 1)) out.expectations.push_back(std::move(one));
  return out;
}

}  // namespace

std::vector<Case> DecoderAttendTallCases() {
  std::vector<Case> cases;
  // Runs that begin and end within a tile, a page and a split, rows of one token, and blocks with several runs.
  for (KvFormat format : kFormats) {
    cases.push_back(MakeTallCase(format, 32, 1, 3, {{120, 23}, {5, 1}, {0, 3}}, false, 5));
    cases.push_back(MakeTallCase(format, 64, 2, 4, {{0, 21}, {250, 20}}, true, 7));
    cases.push_back(MakeTallCase(format, 128, 1, 8, {{130, 1}, {100, 11}, {127, 2}}, format == KvFormat::kBF16, 3));
    cases.push_back(MakeTallCase(format, 256, 1, 16, {{126, 5}, {40, 2}}, false, 4));
    cases.push_back(MakeTallCase(format, 96, 2, 3, {{120, 14}, {5, 1}}, true, 3));
    cases.push_back(MakeTallCase(format, 192, 1, 6, {{126, 7}, {40, 2}}, false, 4));
    cases.push_back(MakeTallCase(format, 192, 2, 4, {{126, 7}, {40, 2}}, true, 4, 128));
  }
  cases.push_back(MakeTallCase(KvFormat::kFp4, 64, 1, 1, {{60, 70}}, false, 2));
  cases.push_back(MakeTallCase(KvFormat::kBF16, 64, 2, 20, {{120, 11}}, true, 3));
  // Windows shorter than a page, than what rows side by side are apart, of a split, of one and a bit more; with rows that see
  // all there is, with runs beyond a split, and windows that begin in its last group or just behind it.
  for (KvFormat format : kFormats) {
    cases.push_back(MakeTallCase(format, 32, 1, 3, {{120, 23}, {5, 1}, {0, 3}}, false, 5, 0, 5));
    cases.push_back(MakeTallCase(format, 64, 2, 4, {{0, 21}, {250, 20}}, true, 7, 0, 128));
    cases.push_back(MakeTallCase(format, 128, 1, 8, {{383, 11}, {220, 3}, {127, 2}}, format == KvFormat::kBF16, 3, 0, 130));
    cases.push_back(MakeTallCase(format, 256, 1, 16, {{158, 5}, {40, 2}}, false, 4, 0, 32));
    cases.push_back(MakeTallCase(format, 96, 2, 3, {{120, 14}, {5, 1}}, true, 3, 0, 9));
    cases.push_back(MakeTallCase(format, 192, 1, 6, {{325, 7}, {40, 2}}, false, 4, 0, 200));
    cases.push_back(MakeTallCase(format, 192, 2, 4, {{286, 7}, {40, 2}}, true, 4, 128, 33));
  }
  cases.push_back(MakeTallCase(KvFormat::kBF16, 64, 1, 1, {{200, 140}}, false, 2, 0, 64));
  cases.push_back(MakeTallCase(KvFormat::kFp4, 64, 1, 1, {{60, 70}, {70000, 33}}, true, 2, 0, 2));
  cases.push_back(MakeTallCase(KvFormat::kFp8, 32, 1, 3, {{70000, 20}, {200, 1}}, false, 2, 0, 64 * kSplitTokens));
  // More splits than chains; as many as a wave has lanes, and one more.
  cases.push_back(MakeTallCase(KvFormat::kFp8, 32, 1, 2, {{5000, 3}, {64 * kSplitTokens - 1, 1}, {3, 2}}, true, 3));
  cases.push_back(MakeTallCase(KvFormat::kFp8, 32, 1, 3, {{64 * kSplitTokens - 2, 4}, {200, 1}}, false, 2));
  // Whole runs that begin and end within a page and a split, of one split and of several; blocks of several runs, which are
  // for others, and a last one of few rows; more splits than chains, and than a merge has threads.
  const auto prompt = [&](uint32_t head_dim, uint32_t kv_heads, uint32_t group, const std::vector<std::pair<uint32_t, uint32_t>>& runs,
                          bool gated, uint32_t workers) {
    cases.push_back(MakeTallCase(KvFormat::kBF16, head_dim, kv_heads, group, runs, gated, workers, 0, 0, true));
  };
  prompt(128, 2, 4, {{0, 70}}, false, 3);
  prompt(128, 1, 8, {{250, 21}, {5, 1}, {100, 30}}, true, 2);
  prompt(128, 1, 4, {{2170, 33}}, true, 2);
  prompt(64, 2, 3, {{100, 41}, {0, 45}}, true, 5);
  prompt(64, 1, 1, {{60, 150}}, false, 2);
  prompt(64, 1, 16, {{256 * kSplitTokens + 5, 9}}, false, 2);
  return cases;
}

std::vector<Case> DecoderHereCases() {
  std::vector<Case> cases;
  // A first and a last token of a page, of a wave's group, of a split; splits of more chains than one.
  for (KvFormat format : kFormats) {
    for (const uint32_t hd : kHeadDims) {
      // Of 96 and 192 each, with heads across chunks of what is told.
      const bool told = (hd == 64 || hd == 96 || hd == 128) == (format != KvFormat::kFp8);
      cases.push_back(MakeHereCase({format, hd, 1, told ? 10u : 5u, {told ? 130u : 300u}}, {.told = told}));
    }
    cases.push_back(MakeHereCase({format, 64, 1, 2, {127, 128, 2303}}));
    cases.push_back(MakeHereCase({format, 128, 2, 8, {143}}, {.gated = true, .sinks = true}));
    cases.push_back(MakeHereCase({format, 64, 2, 2, {255}}, {.window = 100, .workers = 9, .mergers = 9}));
    cases.push_back(MakeHereCase({format, 128, 1, 16, {100, 500, 40, 1000}}, {.gated = true, .is_long = true}));
    cases.push_back(MakeHereCase({format, 64, 2, 2, {10, 33, 1100}}, {.sinks = true, .is_long = true, .wide = true}));
    cases.push_back(MakeHereCase({format, 192, 2, 3, {10, 33, 700}, 128}, {.gated = true, .is_long = true, .wide = true}));
    cases.push_back(MakeHereCase({format, 192, 2, 3, {600}, 128}, {.sinks = true, .workers = 11, .mergers = 4}));
  }
  // Heads of several rows: of one sequence and of several, at a page's end, a split's and the context's beginning; of two
  // key heads. A workgroup has one unit at most, and those that wait are fewer than the 16 that the tests' chip has room for.
  for (KvFormat format : kFormats) {
    cases.push_back(MakeHereCase({format, 128, 1, 8, {126, 127, 128, 129, 130}}, {.told = true, .together = true, .workers = 10}));
    cases.push_back(MakeHereCase({format, 64, 2, 2, {15, 16, 300}}, {.sinks = true, .together = true, .workers = 18, .mergers = 1}));
    cases.push_back(MakeHereCase({format, 96, 1, 3, {5, 140, 141, 142, 31, 32, 33, 255}}, {.gated = true, .told = true, .together = true, .workers = 16}));
    cases.push_back(MakeHereCase({format, 256, 1, 4, {160, 161}}, {.together = true}));
  }
  cases.push_back(MakeHereCase({KvFormat::kBF16, 128, 2, 4, {254, 255, 256, 257}}, {.together = true, .workers = 26}));
  cases.push_back(MakeHereCase({KvFormat::kFp8, 64, 1, 4, {511, 512, 513}}, {.sinks = true, .together = true, .window = 130, .workers = 9}));
  cases.push_back(MakeHereCase({KvFormat::kFp4, 32, 1, 1, {0, 1, 2, 150}}, {.together = true, .workers = 8, .mergers = 1}));
  cases.push_back(MakeHereCase({KvFormat::kBF16, 192, 1, 2, {31, 32, 200}}, {.told = true, .together = true, .workers = 7}));
  cases.push_back(MakeHereCase({KvFormat::kBF16, 64, 1, 3, {0}}));
  cases.push_back(MakeHereCase({KvFormat::kBF16, 64, 3, 3, {5}}, {.told = true}));
  cases.push_back(MakeHereCase({KvFormat::kBF16, 64, 2, 1, {96}}));
  // As many rows as a launch merges at most.
  cases.push_back(MakeHereCase({KvFormat::kFp4, 64, 2, 2, {100, 500, 40, 1000, 129, 7, 260, 128}}, {.sinks = true, .workers = 9, .mergers = 5}));
  cases.push_back(MakeHereCase({KvFormat::kFp8, 32, 1, 3, {10, 127, 1100, 128, 300, 2, 77, 640}}, {.is_long = true, .workers = 12, .mergers = 12}));
  cases.push_back(MakeHereCase({KvFormat::kFp8, 64, 1, 4, {511}}, {.sinks = true, .window = 128, .workers = 1, .mergers = 1}));
  // More splits than wide slices are for.
  cases.push_back(MakeHereCase({KvFormat::kFp8, 32, 1, 1, {64 * kSplitTokens}}, {.workers = 80, .mergers = 2}));
  if (std::getenv("MAINARCH_TEST_FULL") == nullptr) return cases;
  // And than a thread asks for at once.
  cases.push_back(MakeHereCase({KvFormat::kFp8, 32, 1, 1, {40, 260 * kSplitTokens + 3}}, {.workers = 40, .mergers = 5}));
  cases.push_back(MakeHereCase({KvFormat::kFp8, 32, 1, 2, {260 * kSplitTokens + 3}}, {.is_long = true, .workers = 40, .mergers = 4}));
  cases.push_back(MakeHereCase({KvFormat::kFp4, 128, 1, 2, {kLongSplits * kSplitTokens + 500}}, {.is_long = true, .workers = 64, .mergers = 8}));
  cases.push_back(MakeHereCase({KvFormat::kFp4, 128, 1, 2, {kLongSplits * kSplitTokens - 1}}, {.is_long = true, .wide = true, .workers = 64, .mergers = 8}));
  cases.push_back(MakeHereCase({KvFormat::kBF16, 64, 1, 2, {kLongSplits * kSplitTokens - 1}}, {.workers = 64, .mergers = 8}));
  return cases;
}

}  // namespace mainarch::kernels_test
