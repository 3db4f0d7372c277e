// SPDX-License-Identifier: MIT
//
// attend_far_*, attend_near_* and attend_near_merge: a row's first and last tokens out of one cache, those between out of
// another. Each cache holds NaNs where the other is to be asked.
#include <algorithm>
#include <cmath>

#include "unit/kernels/attention_cases.h"

namespace mainarch::kernels_test {
namespace {

Case NearCase(const HeadShape& s, NearTokens near_tokens, bool gated = false, bool sinks = false) {
  Random random(s.head_dim + s.count() * 5 + s.group);
  AttendData data = {StepOf(s), RandomInputs(random, s.count(), s.heads() * s.head_dim),
                     s.CacheOf(0), 0, {}};
  for (uint32_t head = 0; sinks && head < s.heads(); ++head) data.sinks.push_back(static_cast<float>(3 * random.Normal()));
  StepPlan near_step = data.step;
  data.kv = s.CacheOf(DealPages(random, &data.step));
  Cache near(KvFormat::kFp8, s.head_dim, s.value_dim(), s.kv_heads, DealPages(random, &near_step));
  data.near_tokens = near_tokens;
  for (const StepPlan::Row& row : near_step.rows) data.near_pages.push_back(row.pages);
  for (uint32_t row = 0; row < s.count(); ++row) {
    const uint32_t seen = FirstSeen(s.positions[row], near_tokens.window);
    for (uint32_t token = 0; token <= s.positions[row]; ++token) {
      const bool is_near = token < near_tokens.kept || token >= seen;
      const uint32_t page = (is_near ? near_step : data.step).rows[row].pages[token / kPageTokens];
      for (uint32_t head = 0; head < s.kv_heads; ++head) {
        (is_near ? near : data.kv).Fill(random, page, head, token % kPageTokens);
      }
    }
  }
  data.near = &near;
  const uint32_t hd = s.value_dim(), out_stride = RoundUp(s.heads() * hd, kPadColumns);
  const uint32_t longest = *std::max_element(s.positions.begin(), s.positions.end());
  const uint32_t max_splits = MostNearParts(longest / kSplitTokens + 1, near_tokens);
  const Inputs gate = RandomInputs(random, s.count(), s.heads() * hd, 3);
  Wanted want(s.count(), out_stride);
  for (uint32_t row = 0; row < s.count(); ++row) {
    for (uint32_t head = 0; head < s.heads(); ++head) {
      const std::vector<Near> of_head = AttendHead(s, data, row, head);
      for (uint32_t d = 0; d < hd; ++d) {
        const double by = gated ? 1 / (1 + std::exp(-gate.at(row, head * hd + d))) : 1;
        const double off = gated ? std::abs(of_head[d].value) * 0x1p-20 : 0;
        want.Set(row, head * hd + d, of_head[d].value * by, (of_head[d].allowed + off) * by);
      }
    }
  }
  // A row's words: another cache's, the far cache's, the near one's, without those behind its window.
  const uint32_t words = longest / kPageTokens + 1;
  for (uint32_t row = 0; row < s.count(); ++row) {
    std::vector<uint32_t>& pages = data.step.rows[row].pages;
    pages.resize(words, kNoPage);
    const uint32_t gone = FirstSeen(s.positions[row], near_tokens.window) / kPageTokens;
    for (uint32_t page = 0; page < data.near_pages[row].size(); ++page) {
      const bool there = page >= gone || page < near_tokens.kept / kPageTokens;
      pages.push_back(there ? data.near_pages[row][page] : kNoPage);
    }
    pages.resize(2 * words, kNoPage);
  }
  PutTablesBehind(&data.step);
  Case out;
  out.name = absl::StrCat("attend_near_", s.Text(), ", ", near_tokens.kept, " and ", near_tokens.window,
                          gated ? ", gated" : "", sinks ? ", sinks" : "");
  out.bound = "as attend_*";
  out.buffers = {{"step", data.step.Block()},
                 {"qkv", ToBytes(data.qkv.values)},
                 {"kv", data.kv.bytes},
                 {"near", near.bytes},
                 want.ToFill("out"),
                 {"gate", ToBytes(gate.values)},
                 {"sinks", ToBytes(sinks ? data.sinks : std::vector<float>(1))},
                 {"parts", Bytes(size_t{s.count()} * s.heads() * max_splits * AttendPartFloats(hd) * 4, 0xff)}};
  const uint32_t q_stride = data.qkv.stride;
  const AttendCall call = {q_stride,  out_stride, s.heads(), s.kv_heads, s.head_dim, max_splits, s.count(), near_tokens.window,
                           gated, sinks};
  const auto attend = [=](AttendArgs& args, const Addresses& at, bool is_near) {
    call.Fill(&args, at);
    if (is_near) args.kv = at.Of<const uint8_t>("near");
    args.kept = near_tokens.kept;
    args.tables_at = kTablesAt + (is_near ? words : 0);
  };
  const auto far = [=](AttendLongArgs& args, const Addresses& at) { attend(args.attend, at, false); };
  const auto close = [=](AttendArgs& args, const Addresses& at) { attend(args, at, true); };
  const auto merge = [=](AttendNearMergeArgs& args, const Addresses& at) {
    args.merge.step = at.Of<const uint32_t>("step");
    args.merge.parts = at.Of<const float>("parts");
    args.merge.out = at.Of<float>("out");
    args.merge.out_stride = out_stride;
    args.merge.heads = s.heads();
    args.merge.max_splits = max_splits;
    args.merge.head_dim = hd;
    args.merge.row_count = s.count();
    if (gated) args.merge.gate = at.Of<const float>("gate");
    args.merge.gate_stride = out_stride;
    if (sinks) args.merge.sinks = at.Of<const float>("sinks");
    args.merge.window = near_tokens.window;
    args.kept = near_tokens.kept;
  };
  out.steps = {{MakeLaunch<AttendLongArgs>(absl::StrCat("attend_far_", NameOf(s.format), "_", s.Dims()), 5, far)},
               {MakeLaunch<AttendArgs>(absl::StrCat("attend_near_", s.Dims()), 3, close)},
               {MakeLaunch<AttendNearMergeArgs>("attend_near_merge", 2, merge)}};
  out.expectations = {want.CheckSplit("out")};
  return out;
}

// Prompts: runs of rows of a sequence, each [first position, rows].
using Runs = std::vector<std::pair<uint32_t, uint32_t>>;

HeadShape OfRuns(HeadShape s, const Runs& runs) {
  for (const auto& [first, rows] : runs) {
    for (uint32_t k = 0; k < rows; ++k) s.positions.push_back(first + k);
  }
  return s;
}

Case NearTallCase(const HeadShape& heads, NearTokens near_tokens, const Runs& runs, bool gated, uint32_t workers) {
  const HeadShape s = OfRuns(heads, runs);
  Random random(s.head_dim + s.group * 5 + runs[0].first);
  StepPlan lasts = StepPlan::Of(static_cast<uint32_t>(runs.size())), near_lasts = lasts;
  for (size_t i = 0; i < runs.size(); ++i) {
    lasts.rows[i].position = near_lasts.rows[i].position = runs[i].first + runs[i].second - 1;
  }
  Cache kv = s.CacheOf(DealPages(random, &lasts));
  Cache near(KvFormat::kFp8, s.head_dim, s.value_dim(), s.kv_heads, DealPages(random, &near_lasts));
  const uint32_t longest = *std::max_element(s.positions.begin(), s.positions.end()), words = longest / kPageTokens + 1;
  for (size_t i = 0; i < runs.size(); ++i) {
    const uint32_t seen = FirstSeen(runs[i].first, near_tokens.window), last = lasts.rows[i].position;
    std::vector<uint32_t>& pages = lasts.rows[i].pages;
    const std::vector<uint32_t>& near_pages = near_lasts.rows[i].pages;
    for (uint32_t token = 0; token <= last; ++token) {
      const bool is_kept = token < near_tokens.kept, is_far = !is_kept && token + near_tokens.window <= last;
      for (uint32_t head = 0; head < s.kv_heads; ++head) {
        if (is_far) kv.Fill(random, pages[token / kPageTokens], head, token % kPageTokens);
        if (is_kept || token >= seen) near.Fill(random, near_pages[token / kPageTokens], head, token % kPageTokens);
      }
    }
    pages.resize(words, kNoPage);
    for (uint32_t page = 0; page < near_pages.size(); ++page) {
      const bool there = page >= seen / kPageTokens || page < near_tokens.kept / kPageTokens;
      pages.push_back(there ? near_pages[page] : kNoPage);
    }
    pages.resize(2 * words, kNoPage);
  }
  PutTablesBehind(&lasts);
  StepPlan step = StepOf(s);
  for (uint32_t i = 0, at = 0; i < runs.size(); at += runs[i++].second) {
    for (uint32_t k = 1; k < runs[i].second; ++k) step.rows[at + k].follows = true;
    step.rows[at].pages = lasts.rows[i].pages;
  }
  const Inputs q = RandomInputs(random, s.count(), s.heads() * s.head_dim, 3);
  const AttendCall call = {q.stride, RoundUp(s.heads() * s.value_dim(), kPadColumns), s.heads(), s.kv_heads, s.head_dim,
                           MostNearParts(longest / kSplitTokens + 1, near_tokens), s.count(), near_tokens.window, gated, gated};
  Case out;
  out.name = absl::StrCat("attend_tall_near_", NameOf(s.format), "_", s.Dims(), " ", s.heads(), "/", s.kv_heads, ", ",
                          near_tokens.kept, " and ", near_tokens.window, gated ? ", gated, sinks" : "");
  for (const auto& [first, rows] : runs) absl::StrAppend(&out.name, ", ", rows, " rows from ", first);
  out.bound = "the bits of attend_far_*, attend_near_* and attend_near_merge";
  const Bytes rows(size_t{s.count()} * call.out_stride * 4, kUntouchedByte);
  const Bytes parts(size_t{s.count()} * s.heads() * call.max_splits * AttendPartFloats(s.value_dim()) * 4, kUntouchedByte);
  out.buffers = {{"step", step.Block()}, {"qkv", ToBytes(q.values)},
                 {"gate", ToBytes(RandomInputs(random, s.count(), s.heads() * s.value_dim(), 3).values)},
                 {"sinks", ToBytes(random.Floats(s.heads(), 3))},
                 {"kv", kv.bytes}, {"near", near.bytes}, {"out", rows}, {"out tall", rows}, {"parts", parts}, {"parts tall", parts}};
  const auto attend = [=](AttendArgs& args, const Addresses& to, bool is_near, const std::string& tall) {
    call.Fill(&args, to);
    if (is_near) args.kv = to.Of<const uint8_t>("near");
    args.kept = near_tokens.kept;
    args.tables_at = kTablesAt + (is_near ? words : 0);
    args.out = to.Of<float>("out" + tall);
    args.parts = to.Of<float>("parts" + tall);
  };
  const auto merge = [=](const std::string& kernel, const std::string& tall) {
    return MakeLaunch<AttendNearMergeArgs>(kernel, workers, [=](AttendNearMergeArgs& args, const Addresses& to) {
      AttendArgs of;
      attend(of, to, true, tall);
      args.merge = {of.step, {of.parts.address}, of.out, of.gate, of.out_stride, of.heads, of.max_splits, s.value_dim(),
                    of.first_row, of.row_count, of.gate_stride, of.window, of.sinks};
      args.kept = of.kept;
    });
  };
  const std::string far = absl::StrCat("far_", NameOf(s.format), "_", s.Dims()), close = absl::StrCat("near_", s.Dims());
  const auto by_row_far = [=](AttendLongArgs& args, const Addresses& to) { attend(args.attend, to, false, ""); };
  const auto by_row_near = [=](AttendArgs& args, const Addresses& to) { attend(args, to, true, ""); };
  const auto tall = [=](const std::string& kernel, bool is_near) {
    return MakeLaunch<AttendArgs>("attend_tall_" + kernel, workers,
                                  [=](AttendArgs& args, const Addresses& to) { attend(args, to, is_near, " tall"); });
  };
  out.steps = {{MakeLaunch<AttendLongArgs>("attend_" + far, 5, by_row_far)},
               {MakeLaunch<AttendArgs>("attend_" + close, 3, by_row_near)},
               {merge("attend_near_merge", "")},
               {tall(far, false)},
               {tall(close, true)},
               {merge("attend_near_merge_rows", " tall")}};
  for (size_t i = 0; i < 3; ++i) out.steps[i][0].aids = true;
  out.expectations = Same("out", "out tall", true);
  for (Expectation& one : Same("parts", "parts tall", true)) out.expectations.push_back(std::move(one));
  return out;
}

}  // namespace

std::vector<Case> DecoderNearCases() {
  std::vector<Case> cases;
  static_assert(FarSplits(143, {128, 16}) == 0 && FarSplits(144, {128, 16}) == 1 && NearParts(127, {128, 16}) == 1);
  // The longest that there is leaves the merge no more parts than it has room for.
  static_assert(NearParts(2000000, {128, 16}) <= kLongSplits && NearParts(kSplitTokens * kFarSplits + 126, {128, 16}) <= kLongSplits);
  // Rows that see all from one cache; the first with one kept token that is not near, with all of them, with one far token;
  // far tokens that end in a page, in a split, behind one.
  const std::vector<uint32_t> positions = {0, 127, 128, 140, 143, 144, 159, 255, 256, 290, 420};
  for (const KvFormat format : {KvFormat::kFp4, KvFormat::kK8V4}) {
    for (const uint32_t hd : kHeadDims) {
      cases.push_back(NearCase({format, hd, 1 + hd % 128 / 64, hd == 128 ? 5u : 2u, positions}, {128, 16}));
    }
    cases.push_back(NearCase({format, 192, 2, 3, positions, 128}, {128, 16}));
    cases.push_back(NearCase({format, 64, 1, 16, {3, 200, 530}}, {128, 16}, /*gated=*/true, /*sinks=*/true));
    // Other windows: within a page; longer than a split, whose two splits begin anywhere; several pages that are kept, none.
    cases.push_back(NearCase({format, 32, 1, 2, {4, 20, 21, 60, 200}}, {5, 16}));
    cases.push_back(NearCase({format, 32, 2, 1, {100, 230, 400, 600}}, {200, 48}));
    cases.push_back(NearCase({format, 32, 1, 2, {100, 230, 400}}, {128, 0}));
    // Many rows: those before the window is full, with none and some of the kept tokens behind it, with the first far ones.
    for (const uint32_t hd : kHeadDims) {
      const Runs runs = hd > 128 ? Runs{{140, 6}, {290, 2}} : Runs{{118, 30}, {3, 1}, {270, 20}};
      cases.push_back(NearTallCase({format, hd, 1 + hd % 128 / 64, hd == 128 ? 5u : 3u, {}}, {128, 16}, runs, hd == 64, 5));
    }
    cases.push_back(NearTallCase({format, 192, 2, 3, {}, 128}, {128, 16}, {{141, 5}, {300, 2}}, false, 4));
    cases.push_back(NearTallCase({format, 64, 1, 16, {}}, {128, 16}, {{525, 9}}, true, 3));
    cases.push_back(NearTallCase({format, 32, 1, 2, {}}, {5, 16}, {{0, 40}, {200, 3}}, false, 4));
    cases.push_back(NearTallCase({format, 32, 2, 1, {}}, {200, 48}, {{240, 20}, {380, 70}}, true, 3));
    cases.push_back(NearTallCase({format, 32, 1, 2, {}}, {128, 0}, {{120, 40}}, false, 2));
  }
  // More parts than a wave merges.
  cases.push_back(NearTallCase({KvFormat::kFp4, 32, 1, 1, {}}, {128, 16}, {{61 * kSplitTokens + 126, 4}, {100, 1}}, false, 7));
  return cases;
}

}  // namespace mainarch::kernels_test
