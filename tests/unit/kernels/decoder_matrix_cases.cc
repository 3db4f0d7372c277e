// SPDX-License-Identifier: MIT
//
// Products with weights in tiles: matmul_*, gate_up_* and experts_*.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "backend/amdgpu/lower.h"
#include "kernels/experts_args.h"
#include "unit/kernels/decoder_weights.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

using quant::Format;

constexpr TileFormat kFormats[] = {TileFormat::kBf16,  TileFormat::kBf16Pair, TileFormat::kFp8,
                                   TileFormat::kMxfp4, TileFormat::kNibble,   TileFormat::kByte};
// Those whose activations may be rounded.
bool MayRound(TileFormat format) {
  return format != TileFormat::kBf16Pair && !HasCodes(format);
}
// Those of 32 columns at least.
bool InThirtyTwos(TileFormat format) {
  return format == TileFormat::kMxfp4 || format == TileFormat::kNibble;
}
// Checkpoints' formats with codes, and the tiles that they become.
struct Coded {
  TileFormat tile;
  CodesFrom from;
};
const Coded kCoded[] = {
    {TileFormat::kNibble, {Format::kQ4_0, {}}},  {TileFormat::kNibble, {Format::kQ4_1, {}}},
    {TileFormat::kNibble, {Format::kQ4K, {}}},   {TileFormat::kNibble, {Format::kIq4Nl, {}}},
    {TileFormat::kNibble, {Format::kAwq, {}}},   {TileFormat::kNibble, {Format::kNvfp4, {}}},
    {TileFormat::kByte, {Format::kQ8_0, {}}},    {TileFormat::kByte, {Format::kQ5_0, {}}},
    {TileFormat::kByte, {Format::kQ5_1, {}}},    {TileFormat::kByte, {Format::kQ5K, {}}},
    {TileFormat::kByte, {Format::kQ6K, {}}},     {TileFormat::kByte, {Format::kFp8Channel, {}}},
    {TileFormat::kByte, {Format::kQ4K, Format::kQ6K}},
    {TileFormat::kByte, {Format::kQ6K, Format::kQ5_1}},
    {TileFormat::kByte, {Format::kNvfp4, Format::kIq4Nl}},
};
std::string TextOf(const CodesFrom& from) {
  if (!from.format.has_value()) return "";
  return absl::StrCat(", ", quant::NameOf(*from.format),
                      from.below.has_value() ? absl::StrCat(" and ", quant::NameOf(*from.below)) : "");
}
constexpr float kEpsilon = 1e-6f;

// The norm of a product's input.
struct NormData {
  bool on = false;
  uint32_t chunks = 0;
  std::vector<float> w, squares;
};
NormData RandomNorm(Random& random, const Inputs& x) {
  NormData out;
  out.on = true;
  out.chunks = (x.width + kRowChunk - 1) / kRowChunk;
  out.w.resize(x.stride);
  for (uint32_t i = 0; i < x.width; ++i) out.w[i] = static_cast<float>(0.5 + random.Uniform());
  out.squares = SquaresOf(x);
  return out;
}
void AddNorm(const NormData& norm, std::vector<Buffer>* buffers) {
  if (!norm.on) return;
  buffers->push_back({"squares", ToBytes(norm.squares)});
}
NormOf NormAt(const NormData& norm, uint32_t width, const Addresses& at) {
  NormOf out;
  if (!norm.on) return out;
  out.squares = at.Of<const float>("squares");
  out.chunks = norm.chunks;
  out.inverse_hidden = 1.0f / static_cast<float>(width);
  out.epsilon = kEpsilon;
  return out;
}
// The input of the product, in double: 8 * 2^-23 relative is what the norm itself may lose.
struct Row {
  std::vector<double> values, errors;
};
Row InputOf(const Inputs& x, const NormData& norm, uint32_t row) {
  Row out;
  double factor = 1;
  if (norm.on) {
    double squares = 0;
    for (uint32_t i = 0; i < x.width; ++i) squares += x.at(row, i) * x.at(row, i);
    factor = 1 / std::sqrt(squares / x.width + kEpsilon);
  }
  for (uint32_t i = 0; i < x.width; ++i) {
    out.values.push_back(x.at(row, i) * factor * (norm.on ? norm.w[i] : 1.0));
    out.errors.push_back(norm.on ? std::abs(out.values.back()) * 0x1p-20 : 0);
  }
  return out;
}

// What a feed-forward makes of gate and up, with biases or without. `on`: by the kernels that take any.
struct Gate {
  bool on = false;
  backend::Activation activation = backend::Activation::kSilu;
  bool biased = false;
};
constexpr Gate kGelu = {true, backend::Activation::kGeluTanh};
constexpr Gate kBiased = {true, backend::Activation::kSilu, true};
constexpr Gate kClamped = {true, backend::Activation::kClampedSwiglu, true};
std::string TextOf(const Gate& gate) {
  if (!gate.on) return "";
  const std::string name = gate.activation == backend::Activation::kGeluTanh        ? ", gelu"
                           : gate.activation == backend::Activation::kClampedSwiglu ? ", clamped"
                                                                                    : "";
  return name + (gate.biased ? ", biased" : "");
}

// Of gate and up, each [experts, width], so large that the clamped ones are clamped; or nothing.
struct GateBiases {
  uint32_t width = 0;
  std::vector<float> gate, up;
  Near Add(Near sum, bool is_up, uint32_t expert, uint32_t column) const {
    const std::vector<float>& bias = is_up ? up : gate;
    if (bias.empty()) return sum;
    sum.value += double{bias[expert * width + column]};
    sum.allowed += std::abs(sum.value) * 0x1p-23;
    return sum;
  }
};
GateBiases RandomBiases(Random& random, const Gate& gate, uint32_t experts, uint32_t width) {
  GateBiases out;
  out.width = width;
  if (!gate.biased) return out;
  out.gate = random.Floats(size_t{experts} * width, 4);
  out.up = random.Floats(size_t{experts} * width, 4);
  return out;
}
void AddBiases(const GateBiases& biases, std::vector<Buffer>* buffers) {
  if (biases.gate.empty()) return;
  buffers->push_back({"gate_bias", ToBytes(biases.gate)});
  buffers->push_back({"up_bias", ToBytes(biases.up)});
}
GatingArgs GatingAt(const Gate& gate, uint32_t width, const Addresses& at) {
  GatingArgs out = amdgpu::GatingOf(gate.activation);
  if (!gate.biased) return out;
  out.gate_bias = at.Of<const float>("gate_bias");
  out.up_bias = at.Of<const float>("up_bias");
  out.width = width;
  return out;
}
Near Activate(const Gate& gate, const GateBiases& biases, const Near& g, const Near& u,
              uint32_t expert, uint32_t column) {
  if (!gate.on) return SiluTimes(g, u);
  return Activated(gate.activation, biases.Add(g, false, expert, column),
                   biases.Add(u, true, expert, column));
}

struct Product {
  TileFormat format;
  bool gate_up;
  uint32_t rows, outputs, width;
  bool norm, logits;
  uint32_t workers;
  bool rounded = false;
  uint32_t parts = 1;   // of k
  uint32_t splits = 1;  // workgroups that share it
  Gate gate = {};
  CodesFrom from = {};
};

// What workgroups that share k leave adds up to the bits that one makes alone, which come first.
Expectation SplitsAgree(uint32_t splits, size_t floats) {
  return {"out", [=](absl::Span<const uint8_t> bytes) -> std::string {
            const std::vector<float> all = FromBytes<float>(bytes);
            for (size_t i = 0; i < floats; ++i) {
              std::vector<float> sums;
              for (uint32_t k = 1; k <= splits; ++k) sums.push_back(all[k * floats + i]);
              for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
                for (size_t k = 0; k < sums.size() / 2; ++k) sums[k] = sums[2 * k] + sums[2 * k + 1];
              }
              if (std::memcmp(&sums[0], &all[i], 4) == 0 || all[i] == Untouched()) continue;
              return absl::StrCat("[", i, "] adds up to ", sums[0], ", alone it is ", all[i]);
            }
            return "";
          }};
}

constexpr char kRoundedBound[] =
    "(2^-8 + (k/4 + 8) * 2^-23) of the sum of |x * w|: inputs rounded to bf16, fp32 sums of four "
    "waves";

Case ProductCase(const Product& p) {
  Random random(p.width + p.rows * 7 + static_cast<uint32_t>(p.format));
  StepPlan step = StepPlan::Of(p.logits ? p.rows + 4 : p.rows);
  // Not the first rows, and one left out in the middle.
  for (uint32_t i = 0; p.logits && i < p.rows; ++i) step.logit_rows.push_back(i + 1 + (i > 2));
  const Inputs x = RandomInputs(random, step.count(), p.width);
  const NormData norm = p.norm ? RandomNorm(random, x) : NormData{};
  const TiledWeights w = RandomTiles(random, p.format, p.outputs, p.width, p.gate_up, p.parts, p.from);
  const GateBiases biases = RandomBiases(random, p.gate, 1, p.outputs);
  const uint32_t out_stride = RoundUp(p.outputs, kPadColumns);
  const uint32_t out_rows = p.rows + 1;

  Wanted want(out_rows, out_stride);
  for (uint32_t row = 0; row < p.rows; ++row) {
    const Row in = InputOf(x, norm, p.logits ? step.logit_rows[row] : row);
    for (uint32_t o = 0; o < w.outputs * kTileRows; ++o) {
      Near near;  // rows beyond the matrix are zeros
      if (o < p.outputs) near = Dot(w, 0, o, in.values, &in.errors, p.rounded);
      if (o < p.outputs && p.gate_up) {
        near = Activate(p.gate, biases, near, Dot(w, 1, o, in.values, &in.errors, p.rounded), 0, o);
      }
      want.Set(row, o, near.value, near.allowed);
    }
  }
  Case out;
  const std::string kernel = std::string(p.gate_up ? "gate_up_" : "matmul_") + NameOf(p.format) +
                             (p.gate.on ? "_any" : "") + (p.rounded ? "_rounded" : "");
  out.name = absl::StrCat(kernel, " ", p.rows, " rows, ", p.outputs, " outputs, k ", p.width,
                          p.parts > 1 ? absl::StrCat(" in ", p.parts) : "",
                          p.norm ? ", normed" : "", p.logits ? ", logit rows" : "", TextOf(p.gate),
                          TextOf(p.from),
                          p.splits > 1 ? absl::StrCat(", shared by ", p.splits) : "");
  out.bound = p.rounded ? kRoundedBound : kProductBound;
  out.buffers = {{"step", step.Block()}, {"x", SplitRows(x, norm.w)}, want.ToFill("out")};
  const size_t floats = out.buffers.back().initial.size() / 4;
  w.AddBuffers("w", &out.buffers);
  AddNorm(norm, &out.buffers);
  AddBiases(biases, &out.buffers);
  const auto product = [=](MatmulArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.x = at.Of<const float>("x");
    args.out = at.Of<float>("out");
    args.w = w.At("w", at);
    args.norm = NormAt(norm, x.width, at);
    args.x_stride = x.stride;
    args.out_stride = out_stride;
    args.rows = p.rows;
    args.flags = p.logits ? uint32_t{kMatmulLogitRows} : 0;
  };
  out.steps = {{MakeLaunch<MatmulArgs>(kernel, p.workers, product)}};
  if (p.gate.on) {
    out.steps = {{MakeLaunch<GateUpAnyArgs>(
        kernel, p.workers, [=](GateUpAnyArgs& args, const Addresses& at) {
          product(args.product, at);
          args.gating = GatingAt(p.gate, p.outputs, at);
        })}};
  }
  if (p.splits == 1) {
    out.expectations = {p.gate_up ? want.CheckSplit("out") : want.Check("out")};
    return out;
  }
  out.buffers[2].initial.resize((1 + p.splits) * floats * 4, kUntouchedByte);
  out.steps.push_back({MakeLaunch<MatmulArgs>(
      kernel, p.workers, [=](MatmulArgs& args, const Addresses& at) {
        product(args, at);
        args.out = at.Of<float>("out", floats * 4);
        args.splits = p.splits;
        args.split_rows = out_rows;
      })});
  out.expectations = {SplitsAgree(p.splits, floats)};
  return out;
}

// ---- a product that is added to x, and all ranks' ----

// `ranks` GPUs have the same product, which is so many times added to x.
Case MatmulReduceCase(TileFormat format, bool rounded, uint32_t rows, uint32_t hidden, uint32_t width, uint32_t parts,
                      uint32_t splits, uint32_t workers, uint32_t ranks) {
  Random random(hidden + rows * 7 + static_cast<uint32_t>(format));
  const Inputs x = RandomInputs(random, rows, width);
  const TiledWeights w = RandomTiles(random, format, hidden, width, false, parts, {});
  const uint32_t stride = RoundUp(hidden, kPadColumns), chunks = (hidden + kRowChunk - 1) / kRowChunk;
  const ExchangeBytes exchange = ExchangeBytesOf(ranks, rows, rows, stride);
  std::vector<float> before = random.Floats(size_t{rows} * stride);
  Wanted want(rows, stride);
  for (uint32_t row = 0; row < rows; ++row) {
    const Row in = InputOf(x, NormData{}, row);
    for (uint32_t o = 0; o < stride; ++o) {
      const double old = before[size_t{row} * stride + o];
      const Near near = o < hidden ? Dot(w, 0, o, in.values, &in.errors, rounded) : Near{};
      const double sum = ranks * near.value + old;
      want.Set(row, o, sum, ranks * near.allowed + (std::abs(sum) + std::abs(old)) * 0x1p-22);
    }
  }
  Case out;
  out.name = absl::StrCat("matmul_reduce_", NameOf(format), rounded ? "_rounded " : " ", rows, " rows, ", hidden,
                          " outputs, k ", width, " in ", parts, ", shared by ", splits, ", ", workers, " workgroups, ",
                          ranks, " ranks");
  out.bound = rounded ? kRoundedBound : kProductBound;
  out.steps.emplace_back();
  const size_t floats = size_t{rows} * stride;
  for (uint32_t r = 0; r < ranks; ++r) {
    const auto name = [r](const char* what) { return absl::StrCat(what, r); };
    out.buffers.push_back({name("step"), StepPlan::Of(rows).Block(), r});
    out.buffers.push_back({name("in"), SplitRows(x), r});
    out.buffers.push_back({name("partial"), Bytes(splits * floats * 4, kUntouchedByte), r});
    out.buffers.push_back({name("x"), ToBytes(before), r});
    out.buffers.push_back({name("exchange"), Bytes(exchange.bytes), r, ranks > 1 ? Home::kUncached : Home::kVram});
    out.buffers.push_back({name("arrivals"), Bytes(size_t{chunks} * kArrivalWords * 4), r});
    std::vector<Buffer> weights;
    w.AddBuffers(name("w"), &weights);
    for (Buffer& buffer : weights) {
      buffer.device = r;
      out.buffers.push_back(std::move(buffer));
    }
    out.steps[0].push_back(MakeLaunch<MatmulReduceArgs>(
        std::string("matmul_reduce_") + NameOf(format) + (rounded ? "_rounded" : ""), workers,
        [=](MatmulReduceArgs& args, const Addresses& at) {
          MatmulArgs& product = args.product;
          product.step = at.Of<const uint32_t>(name("step"));
          product.x = at.Of<const float>(name("in"));
          product.out = at.Of<float>(name("partial"));
          product.w = w.At(name("w"), at);
          product.x_stride = x.stride;
          product.out_stride = stride;
          product.rows = rows;
          product.splits = splits;
          product.split_rows = rows;
          ReduceArgs& reduce = args.reduce;
          reduce.step = product.step;
          reduce.partial = at.Of<const float>(name("partial"));
          reduce.out.x = at.Of<float>(name("x"));
          for (uint32_t to = 0; to < ranks; ++to) reduce.exchange[to] = at.Of<uint8_t>(absl::StrCat("exchange", to));
          reduce.exchange_own = reduce.exchange[r];
          reduce.flags_at = exchange.flags_at;
          reduce.pairs_at = exchange.pairs_at;
          reduce.hidden = hidden;
          reduce.stride = stride;
          reduce.chunks = chunks;
          reduce.max_rows = reduce.pair_rows = rows;
          reduce.ranks = ranks;
          reduce.rank = r;
          reduce.per_step = 1;
          reduce.splits = splits;
          reduce.split_rows = rows;
          args.arrivals = at.Of<uint32_t>(name("arrivals"));
        },
        r));
    out.expectations.push_back(want.Check(name("x")));
    out.expectations.push_back(Exactly(name("arrivals"), Bytes(size_t{chunks} * kArrivalWords * 4)));
  }
  return out;
}

// ---- experts ----

struct ExpertShape {
  TileFormat format;
  uint32_t rows, hidden, width, experts, top;
  bool same;  // all rows choose the same experts
  uint32_t workers;
  bool rounded = false;
  bool shared = false;  // the last expert is every row's, in the last slot
  uint32_t parts = 1;   // of down's k
  Gate gate = {};
  CodesFrom from = {};
  // Down's, if they are not those of gate and up.
  std::optional<TileFormat> down = {};
  // Not 0: the workgroups choose by logits that are sums of so many numbers.
  uint32_t logit_splits = 0;
  uint32_t index = 0;  // of the step: which of the arrivals' sets
};

struct Choice {
  std::vector<uint32_t> ids;  // ascending in each row
  std::vector<float> weights;
  std::vector<float> logits;  // [rows, stride], where workgroups choose
  uint32_t stride = 0;
};
// The largest logits of a row, with the softmax of them alone; a shared expert's is a sigmoid.
Choice RoutedChoice(Random& random, const ExpertShape& s) {
  const uint32_t routed = s.experts - s.shared, top = s.top - s.shared;
  Choice out;
  out.stride = RoundUp(s.experts, kPadColumns);
  out.logits.resize(size_t{s.rows} * out.stride, 100.0f);  // it would win if it were looked at
  for (uint32_t row = 0; row < s.rows; ++row) {
    float* own = &out.logits[size_t{row} * out.stride];
    for (uint32_t e = 0; e < s.experts; ++e) own[e] = static_cast<float>(2 * random.Normal());
    std::vector<uint32_t> order(routed);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return own[a] > own[b]; });
    std::sort(order.begin(), order.begin() + top);
    double sum = 0;
    for (uint32_t i = 0; i < top; ++i) sum += std::exp(double{own[order[i]]});
    for (uint32_t i = 0; i < top; ++i) {
      out.ids.push_back(order[i]);
      out.weights.push_back(static_cast<float>(std::exp(double{own[order[i]]}) / sum));
    }
    if (!s.shared) continue;
    out.ids.push_back(routed);
    out.weights.push_back(static_cast<float>(1 / (1 + std::exp(-double{own[routed]}))));
  }
  return out;
}
Choice RandomChoice(Random& random, const ExpertShape& s) {
  Choice out;
  for (uint32_t row = 0; row < s.rows; ++row) {
    std::vector<uint32_t> all(s.experts);
    for (uint32_t e = 0; e < s.experts; ++e) all[e] = e;
    const uint32_t routed = s.experts - s.shared, top = s.top - s.shared;
    for (uint32_t i = 0; i < top; ++i) {
      std::swap(all[i], all[i + random.Next() % (routed - i)]);
    }
    std::sort(all.begin(), all.begin() + top);
    if (s.shared) all[top] = routed;
    for (uint32_t i = 0; i < s.top; ++i) {
      out.ids.push_back(s.same && row > 0 ? out.ids[i] : all[i]);
      out.weights.push_back(static_cast<float>(0.1 + random.Uniform()));
    }
  }
  return out;
}

// Experts' matrices of one kind, one after the other as the kernel finds them.
struct ExpertTiles {
  std::vector<TiledWeights> each;
  TiledWeights all;
  uint64_t stride = 0, scale_stride = 0;
};
ExpertTiles RandomExperts(Random& random, TileFormat format, uint32_t experts, uint32_t rows,
                          uint32_t cols, bool gate_up, uint32_t parts, const CodesFrom& from) {
  ExpertTiles out;
  for (uint32_t e = 0; e < experts; ++e) {
    out.each.push_back(RandomTiles(random, format, rows, cols, gate_up, parts, from));
    const TiledWeights& one = out.each.back();
    if (e == 0) out.all = one;
    if (e > 0) out.all.data.insert(out.all.data.end(), one.data.begin(), one.data.end());
    if (e > 0) out.all.scales.insert(out.all.scales.end(), one.scales.begin(), one.scales.end());
  }
  out.stride = out.each[0].data.size();
  out.scale_stride = out.each[0].scales.size();
  return out;
}

// Split rows are zeros behind their width, whatever biases lie behind an expert's own.
Expectation ZerosBehind(const std::string& buffer, uint32_t width, uint32_t stride) {
  return {buffer, [=](absl::Span<const uint8_t> bytes) -> std::string {
            for (size_t row = 0; row < bytes.size() / (stride * 4); ++row) {
              for (uint32_t c = width; c < stride; ++c) {
                uint16_t value;
                std::memcpy(&value, &bytes[row * stride * 4 + SplitPlace(c)], 2);
                if (value != 0) return absl::StrCat("[", row, "][", c, "] is not 0");
              }
            }
            return "";
          }};
}

Case ExpertCase(const ExpertShape& s) {
  Random random(s.rows * 31 + s.hidden + static_cast<uint32_t>(s.format));
  const Inputs x = RandomInputs(random, s.rows, s.hidden);
  const NormData norm = RandomNorm(random, x);
  const Choice choice = s.logit_splits != 0 ? RoutedChoice(random, s) : RandomChoice(random, s);
  // exp in fp32 of up to 15, and a sum.
  const double weight_error = s.logit_splits != 0 ? 4e-6 : 0;
  const ExpertTiles up = RandomExperts(random, s.format, s.experts, s.width, s.hidden, true, 1, s.from);
  const ExpertTiles down =
      RandomExperts(random, s.down.value_or(s.format), s.experts, s.hidden, s.width, false, s.parts,
                    s.down ? CodesFrom{} : s.from);
  const GateBiases biases = RandomBiases(random, s.gate, s.experts, s.width);
  const uint32_t act_stride = RoundUp(s.width, kPadColumns);
  const uint32_t out_stride = RoundUp(s.hidden, kPadColumns);

  Wanted want(s.rows + 1, out_stride);
  for (uint32_t row = 0; row < s.rows; ++row) {
    const Row in = InputOf(x, norm, row);
    std::vector<Near> sums(s.hidden);
    for (uint32_t slot = 0; slot < s.top; ++slot) {
      const uint32_t e = choice.ids[row * s.top + slot];
      const double weight = choice.weights[row * s.top + slot];
      Row act;
      for (uint32_t i = 0; i < s.width; ++i) {
        const Near near = Activate(s.gate, biases,
                                   Dot(up.each[e], 0, i, in.values, &in.errors, s.rounded),
                                   Dot(up.each[e], 1, i, in.values, &in.errors, s.rounded), e, i);
        act.values.push_back(near.value);
        act.errors.push_back(near.allowed);
      }
      for (uint32_t o = 0; o < s.hidden; ++o) {
        const Near near = Dot(down.each[e], 0, o, act.values, &act.errors, s.rounded);
        sums[o].value += weight * near.value;
        sums[o].allowed += weight * (near.allowed + std::abs(near.value) * (0x1p-22 + weight_error));
      }
    }
    for (uint32_t o = 0; o < RoundUp(s.hidden, kTileRows); ++o) {
      const Near near = o < s.hidden ? sums[o] : Near{};
      want.Set(row, o, near.value, near.allowed);
    }
  }
  Case out;
  const std::string kernel = std::string("experts_") + NameOf(s.format) +
                             (s.down ? std::string("_") + NameOf(*s.down) : "") + (s.gate.on ? "_any" : "") +
                             (s.rounded ? "_rounded" : "");
  out.name = absl::StrCat(kernel, " ", s.rows, " rows, ", s.top, " of ", s.experts, ", hidden ",
                          s.hidden, ", width ", s.width, s.parts > 1 ? absl::StrCat(" in ", s.parts) : "", s.same ? ", all the same" : "",
                          s.shared ? ", one shared" : "", TextOf(s.gate), TextOf(s.from),
                          s.logit_splits != 0 ? absl::StrCat(", chosen by sums of ", s.logit_splits) : "");
  out.bound = s.rounded ? kRoundedBound : kProductBound;
  StepPlan plan = StepPlan::Of(s.rows);
  plan.index = s.index;
  // The second launch of three: the set that it counts in is zeros, and of the other it makes such.
  const uint32_t turn = 1, turns = 3, set = ArrivalSet(s.index, turn, turns);
  Bytes arrivals(kArrivalBytes, kUntouchedByte), left = arrivals;
  for (uint32_t line = 0; line < kArrivalLines; ++line) {
    const size_t at = size_t{line} * kArrivalWords * 4, apart = size_t{kArrivalSetWords} * 4;
    std::memset(&arrivals[set * apart + at], 0, 4);
    const uint32_t group = line == kArrivalGroups ? std::min(s.workers, kArrivalGroups)
                           : line < s.workers ? (s.workers - line + kArrivalGroups - 1) / kArrivalGroups
                                              : 0;
    std::memcpy(&left[set * apart + at], &group, 4);
    std::memset(&left[(1 - set) * apart + at], 0, 4);
  }
  std::vector<float> logits;
  for (uint32_t i = 0; i < s.logit_splits; ++i) {
    // Sums of halves, quarters and eighths are exact; and so is the norm's factor, a half.
    for (const float logit : choice.logits) {
      logits.push_back(logit / static_cast<float>(s.logit_splits) * 2);
    }
  }
  // Not chosen experts are never read: what they hold is not looked at. Activations beyond the
  // width are zeros, as the backend leaves them.
  out.buffers = {{"step", plan.Block()},
                 {"x", SplitRows(x, norm.w)},
                 {"ids", ToBytes(choice.ids)},
                 {"weights", ToBytes(choice.weights)},
                 {"act", Bytes(size_t{s.rows} * s.top * act_stride * 4)},
                 {"arrivals", arrivals},
                 {"logits", ToBytes(logits)},
                 {"logit_squares", ToBytes(std::vector<float>(s.rows, 4.0f))},
                 want.ToFill("out")};
  up.all.AddBuffers("up", &out.buffers);
  down.all.AddBuffers("down", &out.buffers);
  AddNorm(norm, &out.buffers);
  AddBiases(biases, &out.buffers);
  const TiledWeights up_shape = up.all, down_shape = down.all;
  const uint64_t strides[] = {up.stride, up.scale_stride, down.stride, down.scale_stride};
  const auto products = [=, up_stride = strides[0], up_scales = strides[1], down_stride = strides[2],
                         down_scales = strides[3]](ExpertsArgs& args, const Addresses& at) {
    args.step = at.Of<const uint32_t>("step");
    args.x = at.Of<const float>("x");
    args.ids = at.Of<const uint32_t>("ids");
    args.weights = at.Of<const float>("weights");
    args.act = at.Of<float>("act");
    args.out = at.Of<float>("out");
    args.arrivals = at.Of<uint32_t>("arrivals");
    args.gate_up = up_shape.At("up", at);
    args.down = down_shape.At("down", at);
    args.gate_up_stride = up_stride;
    args.gate_up_scale_stride = up_scales;
    args.down_stride = down_stride;
    args.down_scale_stride = down_scales;
    args.norm = NormAt(norm, x.width, at);
    args.x_stride = x.stride;
    args.act_stride = act_stride;
    args.out_stride = out_stride;
    args.top = s.top;
    args.experts = s.experts;
    args.most_rows = s.rows;
    args.turn = turn;
    args.turns = turns;
    if (s.logit_splits == 0) return;
    RouteArgs& route = args.route;
    args.ids = {};  // nobody has written them
    args.weights = {};
    route.router.logits = at.Of<const float>("logits");
    route.router.experts = s.experts - s.shared;
    route.router.top = s.top - s.shared;
    route.router.renormalise = 1;
    route.stride = choice.stride;
    route.shared = s.shared;
    route.splits = s.logit_splits;
    route.split_rows = s.rows;
    route.norm.squares = at.Of<const float>("logit_squares");
    route.norm.chunks = 1;
    route.norm.inverse_hidden = 1;
  };
  out.steps = {{MakeLaunch<ExpertsArgs>(kernel, s.workers, products)}};
  out.expectations = {want.Check("out"), ZerosBehind("act", s.width, act_stride),
                      Exactly("arrivals", left)};
  if (s.gate.on) {
    out.steps = {{MakeLaunch<ExpertsAnyArgs>(
        kernel, s.workers, [=](ExpertsAnyArgs& args, const Addresses& at) {
          products(args.experts, at);
          args.gating = GatingAt(s.gate, s.width, at);
        })}};
  }
  return out;
}

}  // namespace

std::vector<Case> DecoderMatrixCases() {
  std::vector<Case> cases;
  for (TileFormat format : kFormats) {
    const bool mx = InThirtyTwos(format);
    const uint32_t ragged = mx ? 224 : 200, wide = mx ? 1184 : 1160;
    cases.push_back(ProductCase({format, false, 1, 40, ragged, false, false, 2}));
    cases.push_back(ProductCase({format, false, 5, 33, wide, true, false, 3}));
    cases.push_back(ProductCase({format, false, 17, 40, ragged, true, true, 3}));
    cases.push_back(ProductCase({format, false, 17, 16, 32, false, false, 1}));
    cases.push_back(ProductCase({format, true, 1, 40, ragged, true, false, 2}));
    cases.push_back(ProductCase({format, true, 17, 24, ragged, false, false, 3}));
    cases.push_back(ProductCase({format, true, 5, 16, wide, true, false, 1}));
    // k in whole tiles, and with a last tile of two steps of four.
    cases.push_back(ProductCase({format, false, 2, 17, 256, true, false, 2}));
    cases.push_back(ProductCase({format, false, 2, 17, 192, false, false, 2}));
    cases.push_back(ProductCase({format, true, 2, 17, 192, true, false, 2}));
    // k in parts: some empty, some that begin within what would be a tile, and their tails.
    for (const auto& [width, parts] : std::vector<std::pair<uint32_t, uint32_t>>{
             {128, 8}, {ragged, 8}, {wide, 8}, {wide, 4}, {192, 2}}) {
      cases.push_back(ProductCase({format, false, 3, 17, width, false, false, 2, false, parts}));
    }
    // Eight rows and nine are columns of one matrix instruction and of two.
    cases.push_back(ProductCase({format, false, 8, 17, wide, true, false, 2, false, 8}));
    cases.push_back(ProductCase({format, false, 9, 17, wide, true, false, 2, false, 8}));
    cases.push_back(ProductCase({format, false, 1, 40, wide, false, false, 5, false, 8, 8}));
    cases.push_back(ProductCase({format, false, 9, 17, wide, false, false, 3, false, 8, 2}));
    for (const auto& [rows, gate] : std::vector<std::pair<uint32_t, Gate>>{
             {1, kGelu}, {5, kClamped}, {17, kBiased}}) {
      cases.push_back(ProductCase({format, true, rows, 40, ragged, rows != 5, false, 2, false, 1, 1, gate}));
    }
    if (!MayRound(format)) continue;
    cases.push_back(ProductCase({format, false, 3, 17, wide, false, false, 2, true, 8}));
    cases.push_back(ProductCase({format, false, 5, 33, wide, true, false, 3, true}));
    cases.push_back(ProductCase({format, true, 17, 24, ragged, false, false, 3, true}));
    cases.push_back(ProductCase({format, true, 5, 24, ragged, true, false, 2, true, 1, 1, kClamped}));
  }
  for (TileFormat format : kFormats) {
    // Two chunks and a part; a workgroup with many tiles, and one with none; k shared.
    cases.push_back(MatmulReduceCase(format, false, 1, 1032, 256, 8, 1, 5, 1));
    cases.push_back(MatmulReduceCase(format, false, 4, 528, 256, 8, 8, 300, 1));
    if (MayRound(format)) cases.push_back(MatmulReduceCase(format, true, 2, 520, 256, 8, 2, 7, 1));
  }
  cases.push_back(MatmulReduceCase(TileFormat::kBf16, false, 3, 1040, 256, 8, 4, 9, 2));
  cases.push_back(MatmulReduceCase(TileFormat::kBf16, false, 1, 600, 256, 8, 8, 320, 4));
  for (const auto& [tile, from] : kCoded) {
    cases.push_back(ProductCase({tile, false, 3, 72, 2048, true, false, 2, false, 8, 1, {}, from}));
    cases.push_back(ProductCase({tile, false, 12, 40, 256, false, false, 2, false, 1, 1, {}, from}));
    cases.push_back(ProductCase({tile, true, 2, 24, 512, true, false, 2, false, 1, 1, {}, from}));
  }
  return cases;
}

std::vector<Case> DecoderExpertCases() {
  std::vector<Case> cases;
  for (TileFormat format : kFormats) {
    const bool mx = InThirtyTwos(format);
    const uint32_t hidden = mx ? 160 : 168, width = mx ? 32 : 40;
    cases.push_back(ExpertCase({format, 1, hidden, width, 6, 2, false, 3}));
    cases.push_back(ExpertCase({format, 5, hidden, width, 6, 2, true, 2}));
    cases.push_back(ExpertCase({format, 17, hidden, width, 6, 3, false, 4}));
    cases.push_back(ExpertCase({format, 5, 64, 288, 4, 2, false, 3, false, false, 8}));
    cases.push_back(ExpertCase({format, 2, 64, 224, 4, 2, false, 3, false, false, 4}));
    cases.push_back(ExpertCase({format, 5, hidden, width, 6, 3, false, 3, false, false, 1, kClamped}));
    cases.push_back(ExpertCase({format, 17, hidden, width, 6, 2, false, 2, false, false, 1, kGelu}));
    if (!MayRound(format)) continue;
    cases.push_back(ExpertCase({format, 5, hidden, width, 6, 3, false, 3, true, true}));
    cases.push_back(ExpertCase({format, 5, hidden, width, 6, 3, false, 3, true, false, 1, kClamped}));
    // Widths of a large model's shares: tiles and a half, and three quarters of one.
    cases.push_back(ExpertCase({format, 2, 64, 192, 4, 2, false, 3}));
    cases.push_back(ExpertCase({format, 2, 192, 96, 4, 2, false, 3}));
  }
  for (const auto& [tile, from] : kCoded) {
    if (from.below.has_value()) continue;
    cases.push_back(ExpertCase({tile, 3, 256, 512, 4, 2, false, 3, false, false, 2, {}, from}));
  }
  for (const Gate& gate : {Gate{}, kClamped}) {
    const auto nibble = TileFormat::kNibble, byte = TileFormat::kByte;
    cases.push_back(ExpertCase({nibble, 9, 160, 224, 5, 2, false, 3, false, false, 8, gate, {}, byte}));
    cases.push_back(ExpertCase({byte, 5, 160, 288, 5, 2, false, 3, false, false, 4, gate, {}, nibble}));
  }
  cases.push_back(ExpertCase({TileFormat::kBf16, 3, 64, 16, 40, 16, false, 3}));
  // Few tiles of many experts, which waves share: one leaf of four, and two parts of one;
  // and workgroups that have nothing of down.
  for (const auto& [rows, parts] : std::vector<std::pair<uint32_t, uint32_t>>{{4, 1}, {4, 2}, {12, 1}}) {
    cases.push_back(ExpertCase({TileFormat::kMxfp4, rows, 64, 128 * parts, 48, 10, false, 6, false, true, parts}));
  }
  // Chosen by every workgroup for itself.
  for (TileFormat format : kFormats) {
    ExpertShape s = {format, 3, InThirtyTwos(format) ? 160u : 168u, 32, 12, 4, false, 5, false, true};
    s.logit_splits = 8;
    s.index = 1;
    cases.push_back(ExpertCase(s));
    s.rows = 4;
    s.experts = 140;
    s.shared = false;
    s.logit_splits = 1;
    s.gate = kClamped;
    cases.push_back(ExpertCase(s));
  }
  // A shared expert after as many as a router chooses from.
  cases.push_back(ExpertCase({TileFormat::kBf16, 17, 32, 16, 513, 11, false, 4, false, true}));
  return cases;
}

}  // namespace mainarch::kernels_test
