// SPDX-License-Identifier: MIT
//
// head_squares, wide_norm, widen_heads and narrow_heads: what is done to heads on both sides of attention.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/heads_args.h"
#include "unit/kernels/decoder_cases.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

constexpr float kEpsilon = 1e-5f;

// A factor of a half is missing in a product whose input is normed: squares of 4, of one column.
constexpr float kSquares = 4;
void SetHalf(NormOf* norm, const Addresses& at) {
  norm->squares = at.Of<const float>("squares_in");
  norm->chunks = 1;
  norm->inverse_hidden = 1;
}

// One rank's heads, of those of all.
struct WideShape {
  uint32_t rows, heads, kv_heads, head_dim;
  uint32_t rank = 0, ranks = 1;
  uint32_t splits = 1;
  bool normed = false;
  uint32_t total_kv = 0;  // 0: every rank has its own
  uint32_t TotalHeads() const { return heads * ranks; }
  uint32_t TotalKv() const { return total_kv != 0 ? total_kv : kv_heads * ranks; }
  uint32_t FirstKv() const { return TotalKv() * rank / ranks; }
  bool Counts() const { return FirstKv() * ranks / TotalKv() == rank; }
  uint32_t Places() const { return RoundUp(TotalHeads() + TotalKv(), 2); }
  std::string Name() const {
    return absl::StrCat(rows, " rows, ", heads, " and ", kv_heads, " heads of ", head_dim, ", rank ", rank, " of ",
                        ranks, splits > 1 ? absl::StrCat(", sums of ", splits) : "", normed ? ", normed" : "",
                        total_kv != 0 ? ", shared" : "");
  }
};

double SquaresOfHead(const Inputs& x, uint32_t row, uint32_t head, uint32_t dim) {
  double sum = 0;
  for (uint32_t d = 0; d < dim; ++d) sum += x.at(row, head * dim + d) * x.at(row, head * dim + d);
  return sum;
}

Case HeadSquaresCase(const WideShape& s, uint32_t workers) {
  Random random(s.head_dim * 7 + s.heads + s.rank);
  const uint32_t width = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const Inputs x = RandomInputs(random, s.rows, width);
  const float by = s.normed ? 0.5f : 1;
  const uint32_t squares_stride = RoundUp(s.Places(), kPadColumns);
  Wanted whole(s.rows, x.stride), squares(s.rows, squares_stride);
  for (uint32_t row = 0; row < s.rows; ++row) {
    for (uint32_t i = 0; i < width; ++i) whole.Set(row, i, x.at(row, i) * double{by}, 0x1p-22 * std::abs(x.at(row, i)));
    for (uint32_t place = 0; place < s.Places(); ++place) squares.Set(row, place, 0, 0);
    for (uint32_t head = 0; head < s.heads + s.kv_heads; ++head) {
      const bool is_key = head >= s.heads;
      if (is_key && !s.Counts()) continue;
      const double sum = SquaresOfHead(x, row, head, s.head_dim) * double{by} * double{by};
      squares.Set(row, is_key ? s.TotalHeads() + s.FirstKv() + head - s.heads : s.heads * s.rank + head, sum,
                  sum * 0x1p-19);
    }
  }
  Case out;
  out.name = absl::StrCat("head_squares ", s.Name());
  out.bound = "rows 2^-22 relative, for the factor; squares 2^-19 relative: fp32 sums of up to 256 squares";
  out.buffers = {{"step", StepPlan::Of(s.rows).Block()},
                 {"in", SumsOf(x, s.splits)},
                 {"squares_in", ToBytes(std::vector<float>(s.rows, kSquares))},
                 whole.ToFill("qkv"),
                 squares.ToFill("squares")};
  out.steps = {{MakeLaunch<HeadSquaresArgs>(
      "head_squares", workers, [=, stride = x.stride](HeadSquaresArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>("step");
        args.in = at.Of<const float>("in");
        args.qkv = at.Of<float>("qkv");
        args.squares = at.Of<float>("squares");
        if (s.normed) SetHalf(&args.norm, at);
        args.stride = stride;
        args.squares_stride = squares_stride;
        args.heads = s.heads;
        args.kv_heads = s.kv_heads;
        args.head_dim = s.head_dim;
        args.first_head = s.heads * s.rank;
        args.first_kv = s.FirstKv();
        args.total_heads = s.TotalHeads();
        args.total_kv_heads = s.TotalKv();
        args.kv_counts = s.Counts();
        args.splits = s.splits;
        args.split_rows = s.rows;
      })}};
  out.expectations = {whole.Check("qkv"), squares.Check("squares")};
  return out;
}

Case WideNormCase(const WideShape& s, uint32_t workers) {
  Random random(s.head_dim * 5 + s.heads + s.rank);
  const uint32_t heads = s.heads + s.kv_heads;
  const Inputs x = RandomInputs(random, s.rows, (heads + s.kv_heads) * s.head_dim);
  Inputs squares = RandomInputs(random, s.rows, s.TotalHeads() + s.TotalKv(), 30);
  for (float& value : squares.values) value = std::abs(value);
  const std::vector<float> q_norm = random.Floats(s.heads * s.head_dim), k_norm = random.Floats(s.kv_heads * s.head_dim);
  Wanted want(s.rows, x.stride);
  for (uint32_t row = 0; row < s.rows; ++row) {
    double sums[2] = {};
    for (uint32_t i = 0; i < squares.width; ++i) sums[i >= s.TotalHeads()] += squares.at(row, i);
    for (uint32_t i = 0; i < x.stride; ++i) {
      const uint32_t head = i / s.head_dim;
      if (head >= heads) {  // V, and what is behind it
        want.Set(row, i, x.at(row, i), 0);
        continue;
      }
      const bool is_key = head >= s.heads;
      const uint32_t all = (is_key ? s.TotalKv() : s.TotalHeads()) * s.head_dim;
      const double w = is_key ? double{k_norm[i - s.heads * s.head_dim]} : double{q_norm[i]};
      const double value = x.at(row, i) * w / std::sqrt(sums[is_key] / all + double{kEpsilon});
      want.Set(row, i, value, std::abs(value) * 0x1p-20);
    }
  }
  Case out;
  out.name = absl::StrCat("wide_norm ", s.Name());
  out.bound = "2^-20 relative: an fp32 sum, the root, two factors";
  out.buffers = {{"step", StepPlan::Of(s.rows).Block()},
                 {"qkv", ToBytes(x.values)},
                 {"squares", ToBytes(squares.values)},
                 {"q_norm", ToBytes(q_norm)},
                 {"k_norm", ToBytes(k_norm)}};
  out.steps = {{MakeLaunch<WideNormArgs>(
      "wide_norm", workers,
      [=, stride = x.stride, squares_stride = squares.stride](WideNormArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>("step");
        args.qkv = at.Of<float>("qkv");
        args.squares = at.Of<const float>("squares");
        args.q_norm = at.Of<const float>("q_norm");
        args.k_norm = at.Of<const float>("k_norm");
        args.stride = stride;
        args.squares_stride = squares_stride;
        args.heads = s.heads;
        args.kv_heads = s.kv_heads;
        args.head_dim = s.head_dim;
        args.total_heads = s.TotalHeads();
        args.total_kv_heads = s.TotalKv();
        args.epsilon = kEpsilon;
        args.inverse_q = 1.0f / static_cast<float>(s.TotalHeads() * s.head_dim);
        args.inverse_k = 1.0f / static_cast<float>(s.TotalKv() * s.head_dim);
      })}};
  out.expectations = {want.Check("qkv")};
  return out;
}

struct WidenShape {
  uint32_t rows, heads, kv_heads, from, to;
  bool norms;
  uint32_t splits = 1;
  bool normed = false;
  uint32_t value_from = 0, value_to = 0;  // 0: as all

  uint32_t keys() const { return heads + kv_heads; }
  uint32_t From(uint32_t head) const { return head >= keys() && value_from != 0 ? value_from : from; }
  uint32_t To(uint32_t head) const { return head >= keys() && value_from != 0 ? value_to : to; }
  // Where a head begins.
  uint32_t InAt(uint32_t head) const { return std::min(head, keys()) * from + (head - std::min(head, keys())) * From(head); }
  uint32_t OutAt(uint32_t head) const { return std::min(head, keys()) * to + (head - std::min(head, keys())) * To(head); }
};

// V's heads, as many as K's, are never normed.
Case WidenHeadsCase(const WidenShape& s, uint32_t workers) {
  Random random(s.from * 3 + s.rows);
  const uint32_t count = s.heads + 2 * s.kv_heads;
  const Inputs x = RandomInputs(random, s.rows, s.InAt(count), 2);
  const std::vector<float> q_norm = random.Floats(s.from), k_norm = random.Floats(s.from);
  const uint32_t out_stride = RoundUp(s.OutAt(count), kPadColumns);
  const double by = s.normed ? 0.5 : 1;
  Wanted want(s.rows, out_stride);
  for (uint32_t row = 0; row < s.rows; ++row) {
    for (uint32_t head = 0; head < count; ++head) {
      const bool norms = s.norms && head < s.heads + s.kv_heads;
      double scale = by;
      if (norms) scale /= std::sqrt(SquaresOfHead(x, row, head, s.from) * by * by / s.from + double{kEpsilon});
      for (uint32_t d = 0; d < s.To(head); ++d) {
        double value = d < s.From(head) ? x.at(row, s.InAt(head) + d) * scale : 0;
        if (norms && d < s.from) value *= double{(head < s.heads ? q_norm : k_norm)[d]};
        want.Set(row, s.OutAt(head) + d, value, std::abs(value) * 0x1p-20);
      }
    }
  }
  Case out;
  out.name = absl::StrCat("widen_heads ", s.rows, " rows, ", s.heads, " and ", s.kv_heads, " heads of ", s.from, " to ",
                          s.to, s.norms ? ", norms" : "", s.splits > 1 ? absl::StrCat(", sums of ", s.splits) : "",
                          s.normed ? ", normed" : "",
                          s.value_from > 0 ? absl::StrCat(", values of ", s.value_from, " to ", s.value_to) : "");
  out.bound = "2^-20 relative: an fp32 sum of squares, the root, factors; zeros exact";
  out.buffers = {{"step", StepPlan::Of(s.rows).Block()},
                 {"in", SumsOf(x, s.splits)},
                 {"squares_in", ToBytes(std::vector<float>(s.rows, kSquares))},
                 {"q_norm", ToBytes(q_norm)},
                 {"k_norm", ToBytes(k_norm)},
                 want.ToFill("out")};
  out.steps = {{MakeLaunch<WidenHeadsArgs>(
      "widen_heads", workers, [=, in_stride = x.stride](WidenHeadsArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>("step");
        args.in = at.Of<const float>("in");
        args.out = at.Of<float>("out");
        if (s.norms) {
          args.q_norm = at.Of<const float>("q_norm");
          args.k_norm = at.Of<const float>("k_norm");
        }
        if (s.normed) SetHalf(&args.norm, at);
        args.in_stride = in_stride;
        args.out_stride = out_stride;
        args.from = s.from;
        args.to = s.to;
        args.value_from = s.From(count);
        args.value_to = s.To(count);
        args.heads = s.heads;
        args.kv_heads = s.kv_heads;
        args.count = count;
        args.inverse_from = 1.0f / static_cast<float>(s.from);
        args.epsilon = kEpsilon;
        args.splits = s.splits;
        args.split_rows = s.rows;
      })}};
  out.expectations = {want.Check("out")};
  return out;
}

// `ends`: heads at which parts end.
Case NarrowHeadsCase(uint32_t rows, uint32_t from, uint32_t to, const std::vector<uint32_t>& ends, uint32_t workers) {
  Random random(from + to + rows);
  const Inputs x = RandomInputs(random, rows, ends.back() * from);
  NarrowHeadsArgs parts;
  parts.parts = static_cast<uint32_t>(ends.size());
  uint32_t steps = 0, head = 0;
  std::vector<uint32_t> begins;  // columns, of each head
  for (uint32_t i = 0; i < parts.parts; ++i) {
    const uint32_t begin = head;
    for (; head < ends[i]; ++head) begins.push_back(steps * kStepColumns + (head - begin) * to);
    steps += RoundUp((head - begin) * to, kStepColumns) / kStepColumns;
    PackEnd(&parts.low_ends, &parts.high_ends, i, steps);
    PackEnd(&parts.low_heads, &parts.high_heads, i, head);
  }
  // Zeros up to whole steps of parts; what is behind stays.
  const uint32_t out_stride = RoundUp(steps * kStepColumns + 1, kPadColumns);
  const Bytes in = SplitRows(x);
  Bytes want(size_t{rows} * out_stride * 4, kUntouchedByte);
  for (uint32_t row = 0; row < rows; ++row) {
    uint8_t* const to_row = &want[size_t{row} * out_stride * 4];
    const uint8_t* const from_row = &in[size_t{row} * x.stride * 4];
    std::fill(to_row, to_row + size_t{steps} * kSplitStepBytes, uint8_t{0});
    for (uint32_t h = 0; h < begins.size(); ++h) {
      for (uint32_t d = 0; d < to; ++d) {
        std::memcpy(to_row + SplitPlace(begins[h] + d), from_row + SplitPlace(h * from + d), 2);
        std::memcpy(to_row + SplitPlace(begins[h] + d) + kSplitHalfBytes,
                    from_row + SplitPlace(h * from + d) + kSplitHalfBytes, 2);
      }
    }
  }
  Case out;
  out.name = absl::StrCat("narrow_heads ", rows, " rows, ", ends.back(), " heads of ", from, " to ", to, " in ",
                          ends.size(), " parts");
  out.bound = "exact: no bit of an element changes";
  out.buffers = {{"step", StepPlan::Of(rows).Block()}, {"in", in}, {"out", Bytes(want.size(), kUntouchedByte)}};
  out.steps = {{MakeLaunch<NarrowHeadsArgs>(
      "narrow_heads", workers, [=, in_stride = x.stride](NarrowHeadsArgs& args, const Addresses& at) {
        args = parts;
        args.step = at.Of<const uint32_t>("step");
        args.in = at.Of<const float>("in");
        args.out = at.Of<float>("out");
        args.in_stride = in_stride;
        args.out_stride = out_stride;
        args.from = from;
        args.to = to;
        args.chunks = (steps + kNarrowSteps - 1) / kNarrowSteps;
      })}};
  out.expectations = {Exactly("out", want)};
  return out;
}

}  // namespace

std::vector<Case> DecoderHeadCases() {
  // Four ranks with two K heads: two ranks each have one.
  const WideShape shared = {3, 2, 1, 24, 3, 4, 1, false, 2};
  WideShape first = shared;
  first.rank = 2;
  return {
      HeadSquaresCase({1, 4, 2, 64}, 1),
      HeadSquaresCase({5, 3, 1, 128, 1, 2, 4, true}, 3),
      HeadSquaresCase({17, 9, 9, 40}, 4),
      HeadSquaresCase(shared, 2),
      HeadSquaresCase(first, 2),
      WideNormCase({1, 4, 2, 64}, 1),
      WideNormCase({5, 70, 8, 24}, 3),
      WideNormCase({3, 2, 1, 256, 1, 2}, 2),
      WideNormCase(shared, 2),
      WidenHeadsCase({1, 4, 2, 96, 128, false}, 1),
      WidenHeadsCase({5, 3, 1, 24, 32, true, 4, true}, 3),
      WidenHeadsCase({3, 2, 2, 192, 256, true}, 2),
      WidenHeadsCase({17, 8, 1, 8, 32, true, 8}, 4),
      WidenHeadsCase({2, 2, 1, 80, 128, false, 2}, 2),
      WidenHeadsCase({3, 4, 2, 192, 192, true, 2, true, 128, 192}, 2),
      WidenHeadsCase({2, 3, 3, 24, 64, false, 1, false, 40, 64}, 1),
      NarrowHeadsCase(1, 128, 96, {4}, 1),
      NarrowHeadsCase(5, 32, 24, {1, 2, 3, 4, 5, 6, 7, 8}, 3),
      NarrowHeadsCase(3, 128, 80, {0, 1, 1, 2, 5, 5, 6, 7}, 2),
      NarrowHeadsCase(2, 256, 192, {3, 8, 8, 13}, 4),
      NarrowHeadsCase(17, 64, 40, {0, 3}, 4),
  };
}

}  // namespace mainarch::kernels_test
