// SPDX-License-Identifier: MIT
//
// row_gate, add_normed and experts_bias: what is done to a layer's rows beside products and attention.
#include <cmath>

#include "kernels/experts_args.h"
#include "unit/kernels/decoder_cases.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

constexpr float kEpsilon = 1e-5f;

// The gate is the sum of `splits` numbers; `normed`: a factor of a half is missing in it.
Case RowGateCase(uint32_t rows, uint32_t width, uint32_t splits, bool normed, uint32_t workers) {
  Random random(width + rows);
  const Inputs act = RandomInputs(random, rows, width);
  const Inputs gate = RandomInputs(random, rows, 16, 3);
  const uint32_t stride = act.stride, gate_stride = gate.stride;
  Wanted want(rows, stride);
  for (uint32_t row = 0; row < rows; ++row) {
    const double logit = gate.at(row, 0) * (normed ? 0.5 : 1);
    const double by = 1 / (1 + std::exp(-logit));
    for (uint32_t i = 0; i < stride; ++i) {
      const double x = act.at(row, i);
      want.Set(row, i, x * by, std::abs(x * by) * 0x1p-16);
    }
  }
  Case out;
  out.name = absl::StrCat("row_gate ", rows, " rows of ", width, ", sums of ", splits,
                          normed ? ", normed" : "");
  out.bound = "2^-15 relative: two bf16 in and out, the exp";
  out.buffers = {{"step", StepPlan::Of(rows).Block()},
                 {"act", SplitRows(act)},
                 {"gate", SumsOf(gate, splits)},
                 {"squares", ToBytes(std::vector<float>(rows, 4.0f))}};
  out.steps = {
      {MakeLaunch<RowGateArgs>("row_gate", workers, [=](RowGateArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>("step");
        args.gate = at.Of<const float>("gate");
        args.act = at.Of<float>("act");
        if (normed) {
          args.norm.squares = at.Of<const float>("squares");
          args.norm.chunks = 1;
          args.norm.inverse_hidden = 1;
        }
        args.gate_stride = gate_stride;
        args.stride = stride;
        args.chunks = (stride + kRowChunk - 1) / kRowChunk;
        args.splits = splits;
        args.split_rows = rows;
      })}};
  out.expectations = {want.CheckSplit("act")};
  return out;
}

struct NormedShape {
  uint32_t rows, hidden;
  bool norm, add;
  uint32_t splits = 1;
  bool used = true;  // by a norm behind it, which wants squares and split rows
  bool bias = false;  // y is one row
};

// What x becomes, and how far off fp32 may be.
Near NormedElement(const NormedShape& s, const Inputs& x, const Inputs& y,
                   const std::vector<float>& norm, float scale, uint32_t row, uint32_t i) {
  double squares = 0;
  for (uint32_t k = 0; k < s.hidden; ++k) squares += y.at(row, k) * y.at(row, k);
  double value = y.at(row, i) * double{scale};
  if (s.norm) value *= double{norm[i]} / std::sqrt(squares / s.hidden + double{kEpsilon});
  const double sum = value + (s.add ? x.at(row, i) : 0);
  return {sum, std::abs(value) * 0x1p-20 + std::abs(sum) * 0x1p-23};
}

Bytes FirstRow(const Inputs& y) {
  return ToBytes(std::vector<float>(y.values.begin(), y.values.begin() + y.stride));
}

Case AddNormedCase(const NormedShape& s, uint32_t workers) {
  Random random(s.hidden + s.rows);
  const Inputs x = RandomInputs(random, s.rows, s.hidden);
  Inputs y = RandomInputs(random, s.rows, s.hidden, 3);
  // A bias: every row has the first one, and what lies behind it is not read.
  for (size_t i = y.stride; s.bias && i < y.values.size(); ++i) {
    y.values[i] = y.values[i - y.stride];
  }
  const std::vector<float> norm = random.Floats(x.stride), next = random.Floats(x.stride);
  const uint32_t chunks = (s.hidden + kRowChunk - 1) / kRowChunk, stride = x.stride;
  const float scale = 0.375f;
  Wanted want(s.rows, stride), squares(s.rows, chunks), split(s.rows, stride);
  for (uint32_t row = 0; row < s.rows; ++row) {
    std::vector<double> sums(chunks);
    for (uint32_t i = 0; i < stride; ++i) {
      if (i >= s.hidden) {
        want.Set(row, i, x.at(row, i), 0);
        continue;
      }
      const Near near = NormedElement(s, x, y, norm, scale, row, i);
      want.Set(row, i, near.value, near.allowed);
      sums[i / kRowChunk] += near.value * near.value;
      const double w = double{next[i]};
      if (s.used) split.Set(row, i, near.value * w, near.allowed * std::abs(w));
    }
    for (uint32_t c = 0; s.used && c < chunks; ++c) squares.Set(row, c, sums[c], sums[c] * 0x1p-17);
  }
  Case out;
  out.name = absl::StrCat("add_normed ", s.rows, " rows, hidden ", s.hidden, s.norm ? ", norm" : "",
                          s.add ? ", added" : ", set", ", sums of ", s.splits,
                          s.used ? "" : ", changed again", s.bias ? ", one row" : "");
  out.bound = "2^-20 of what is added: fp32 sums of squares; squares 2^-17 relative";
  out.buffers = {{"step", StepPlan::Of(s.rows).Block()},
                 {"x", ToBytes(x.values)},
                 {"y", s.bias ? FirstRow(y) : SumsOf(y, s.splits)},
                 {"norm", ToBytes(norm)},
                 {"next", ToBytes(next)},
                 squares.ToFill("squares"),
                 split.ToFill("split")};
  out.steps = {{MakeLaunch<AddNormedArgs>(
      "add_normed", workers, [=](AddNormedArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>("step");
        args.y = at.Of<const float>("y");
        args.one_row = s.bias;
        if (s.norm) args.norm = at.Of<const float>("norm");
        args.out.x = at.Of<float>("x");
        if (s.used) {
          args.out.squares = at.Of<float>("squares");
          args.out.split = at.Of<float>("split");
          args.out.norm = at.Of<const float>("next");
        }
        args.hidden = s.hidden;
        args.stride = stride;
        args.chunks = chunks;
        args.add = s.add;
        args.scale = scale;
        args.inverse_hidden = 1.0f / static_cast<float>(s.hidden);
        args.epsilon = kEpsilon;
        args.splits = s.splits;
        args.split_rows = s.rows;
      })}};
  out.expectations = {want.Check("x"), squares.Check("squares"), split.CheckSplit("split")};
  return out;
}

// x += the weighted biases of a row's experts.
Case ExpertsBiasCase(uint32_t rows, uint32_t hidden, uint32_t top, bool used, uint32_t workers) {
  constexpr uint32_t kExperts = 20;
  Random random(hidden + rows);
  const Inputs x = RandomInputs(random, rows, hidden);
  const std::vector<float> bias = random.Floats(size_t{kExperts} * hidden);
  const std::vector<float> next = random.Floats(x.stride), weights = random.Floats(rows * top);
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < rows * top; ++i) {
    ids.push_back(i % top + static_cast<uint32_t>(random.Next() % (kExperts - top)));
  }
  const uint32_t chunks = (hidden + kRowChunk - 1) / kRowChunk, stride = x.stride;
  Wanted want(rows, stride), squares(rows, chunks), split(rows, stride);
  for (uint32_t row = 0; row < rows; ++row) {
    std::vector<double> sums(chunks);
    for (uint32_t i = 0; i < stride; ++i) {
      double value = x.at(row, i), size = std::abs(value);
      for (uint32_t slot = row * top; i < hidden && slot < (row + 1) * top; ++slot) {
        const double one = double{weights[slot]} * double{bias[ids[slot] * hidden + i]};
        value += one;
        size += std::abs(one);
      }
      const double off = i < hidden ? size * (top + 1) * 0x1p-23 : 0;
      want.Set(row, i, value, off);
      if (i >= hidden || !used) continue;
      sums[i / kRowChunk] += value * value;
      split.Set(row, i, value * double{next[i]}, off * std::abs(double{next[i]}));
    }
    for (uint32_t c = 0; used && c < chunks; ++c) squares.Set(row, c, sums[c], sums[c] * 0x1p-17);
  }
  Case out;
  out.name = absl::StrCat("experts_bias ", rows, " rows, hidden ", hidden, ", ", top, " of ", kExperts,
                          used ? "" : ", changed again");
  out.bound = "(slots + 1) 2^-23 of the sizes: fp32 sums; squares 2^-17 relative";
  out.buffers = {{"step", StepPlan::Of(rows).Block()}, {"x", ToBytes(x.values)},
                 {"ids", ToBytes(ids)},                {"weights", ToBytes(weights)},
                 {"bias", ToBytes(bias)},              {"next", ToBytes(next)},
                 squares.ToFill("squares"),            split.ToFill("split")};
  out.steps = {{MakeLaunch<ExpertsBiasArgs>(
      "experts_bias", workers, [=](ExpertsBiasArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>("step");
        args.ids = at.Of<const uint32_t>("ids");
        args.weights = at.Of<const float>("weights");
        args.bias = at.Of<const float>("bias");
        args.out.x = at.Of<float>("x");
        if (used) {
          args.out.squares = at.Of<float>("squares");
          args.out.split = at.Of<float>("split");
          args.out.norm = at.Of<const float>("next");
        }
        args.hidden = hidden;
        args.stride = stride;
        args.chunks = chunks;
        args.top = top;
      })}};
  out.expectations = {want.Check("x"), squares.Check("squares"), split.CheckSplit("split")};
  return out;
}

}  // namespace

std::vector<Case> DecoderRowCases() {
  return {
      RowGateCase(1, 64, 1, false, 1),
      RowGateCase(5, 1040, 4, true, 3),
      RowGateCase(17, 512, 1, true, 4),
      AddNormedCase({1, 64, false, true}, 1),
      AddNormedCase({5, 1160, true, true}, 3),
      AddNormedCase({3, 2048, true, false, 4}, 5),
      AddNormedCase({17, 72, false, false, 8}, 2),
      AddNormedCase({2, 1160, true, true, 2, /*used=*/false}, 2),
      AddNormedCase({5, 1160, false, true, 1, /*used=*/true, /*bias=*/true}, 3),
      ExpertsBiasCase(1, 72, 1, true, 1),
      ExpertsBiasCase(5, 1160, 4, true, 3),
      ExpertsBiasCase(17, 72, 6, /*used=*/false, 2),
  };
}

}  // namespace mainarch::kernels_test
