// SPDX-License-Identifier: MIT
#include <cmath>

#include "kernels/quant/bf16.h"
#include "unit/kernels/case.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

double RoundBf16(double x) {
  return quant::FloatFromBf16(quant::Bf16FromFloat(static_cast<float>(x)));
}

template <class T>
double RoundTo(double x) {
  return sizeof(T) == 2 ? RoundBf16(x) : static_cast<float>(x);
}
// Within `units` half units of T, plus a relative and an absolute part for the arithmetic.
template <class T>
Expectation Near(const std::string& buffer, std::vector<double> want, double units, Bound rest) {
  if (sizeof(T) == 2) rest.relative += units * kBf16Half;
  return sizeof(T) == 2 ? NearBf16(buffer, std::move(want), rest)
                        : NearFloat(buffer, std::move(want), rest);
}

template <class X, class W, class Out>
Case RmsNormCase(const std::string& kernel, uint32_t rows, uint32_t n, uint32_t flags) {
  Random random(n * 8 + flags);
  const size_t count = size_t{rows} * n;
  const Activations x = RandomActivations<X>(random, count, 3), w = RandomActivations<W>(random, n),
                    residual = RandomActivations<X>(random, count, 3);
  const float epsilon = 1e-6f;
  std::vector<double> in = x.values, sums = residual.values, want(count);
  for (size_t i = 0; i < count && (flags & kRmsNormAddResidual); ++i) {
    in[i] = sums[i] = RoundTo<X>(in[i] + residual.values[i]);
  }
  for (uint32_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (uint32_t i = 0; i < n; ++i) squares += in[row * n + i] * in[row * n + i];
    const double inverse = 1 / std::sqrt(squares / n + epsilon);
    for (uint32_t i = 0; i < n; ++i) {
      const double normal = in[row * n + i] * inverse;
      want[row * n + i] = (flags & kRmsNormRoundTwice ? RoundBf16(normal) : normal) *
                          (flags & kRmsNormOnePlus ? 1 + w.values[i] : w.values[i]);
    }
  }
  Case out;
  out.name = absl::StrCat(kernel, " ", rows, " x ", n, " flags ", flags);
  // Twice rounded: the first rounding may fall on the other side when the double lies at a tie.
  const bool twice = flags & kRmsNormRoundTwice;
  out.bound = twice ? "one bf16 unit and a half: two roundings, the first of which may differ"
                    : "half a unit of the output plus 2e-6 of fp32 arithmetic; the residual exact";
  out.buffers = {{"x", x.bytes},
                 {"w", w.bytes},
                 {"residual", residual.bytes},
                 {"out", Bytes(count * sizeof(Out), 0xee)}};
  using Args = RmsNormArgsOf<X, W, Out>;
  out.steps = {{MakeLaunch<Args>(kernel, 2, [=](Args& args, const Addresses& at) {
    args.x = at.Of<const X>("x");
    args.w = at.Of<const W>("w");
    args.residual = at.Of<X>("residual");
    args.out = at.Of<Out>("out");
    args.rows = rows;
    args.n = n;
    args.epsilon = epsilon;
    args.flags = flags;
  })}};
  out.expectations = {Near<Out>("out", want, twice ? 3 : 1, {1e-30, 2e-6}),
                      Near<X>("residual", sums, 0, {1e-30, 0})};
  return out;
}

template <class X>
Case RopeCase(const std::string& kernel, uint32_t rows, uint32_t heads, uint32_t head_dim,
              uint32_t rotary) {
  Random random(head_dim + rotary);
  const Activations x = RandomActivations<X>(random, size_t{rows} * heads * head_dim);
  const uint32_t half = rotary / 2, table_rows = 32;
  std::vector<uint32_t> positions(rows);
  for (uint32_t& p : positions) p = random.Next() % table_rows;
  std::vector<float> cosine, sine;
  for (uint32_t p = 0; p < table_rows; ++p) {
    for (uint32_t i = 0; i < half; ++i) {
      const double angle = p * std::pow(1e6, -2.0 * i / rotary);
      cosine.push_back(static_cast<float>(std::cos(angle)));
      sine.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  const std::vector<double>& in = x.values;
  std::vector<double> want = in;
  for (uint32_t head = 0; head < rows * heads; ++head) {
    for (uint32_t i = 0; i < half; ++i) {
      const size_t a = size_t{head} * head_dim + i, b = a + half;
      const size_t at = size_t{positions[head / heads]} * half + i;
      want[a] = in[a] * cosine[at] - in[b] * sine[at];
      want[b] = in[b] * cosine[at] + in[a] * sine[at];
    }
  }
  Case out;
  out.name = absl::StrCat(kernel, " ", rows, " rows, ", heads, " heads of ", head_dim, ", rotary ",
                          rotary);
  out.bound = "half a unit of the output plus 1e-6 of the inputs, which may cancel";
  out.buffers = {{"x", x.bytes},
                 {"positions", ToBytes(positions)},
                 {"cosine", ToBytes(cosine)},
                 {"sine", ToBytes(sine)}};
  using Args = RopeArgsOf<X>;
  out.steps = {{MakeLaunch<Args>(kernel, 2, [=](Args& args, const Addresses& at) {
    args.x = at.Of<X>("x");
    args.positions = at.Of<const uint32_t>("positions");
    args.cosine = at.Of<const float>("cosine");
    args.sine = at.Of<const float>("sine");
    args.rows = rows;
    args.heads = heads;
    args.head_dim = head_dim;
    args.rotary = rotary;
  })}};
  out.expectations = {Near<X>("x", want, 1, {1e-6, 0})};
  return out;
}

template <class X, class Out>
Case SwigluCase(const std::string& kernel, uint32_t rows, uint32_t n, uint32_t stride) {
  Random random(n);
  // One buffer [rows, stride] with gate in the first n columns and up behind it.
  const Activations both = RandomActivations<X>(random, size_t{rows} * stride, 4);
  std::vector<double> want;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < n; ++i) {
      const double gate = both.values[row * stride + i], up = both.values[row * stride + n + i];
      want.push_back(gate / (1 + std::exp(-gate)) * up);
    }
  }
  Case out;
  out.name = absl::StrCat(kernel, " ", rows, " x ", n, ", stride ", stride);
  out.bound = "half a unit of the output plus 1e-5: exp of up to 24 in fp32 and a reciprocal";
  out.buffers = {{"both", both.bytes}, {"out", Bytes(want.size() * sizeof(Out), 0xee)}};
  using Args = SwigluArgsOf<X, Out>;
  out.steps = {{MakeLaunch<Args>(kernel, 2, [=](Args& args, const Addresses& at) {
    args.gate = at.Of<const X>("both");
    args.up = at.Of<const X>("both", n * sizeof(X));
    args.out = at.Of<Out>("out");
    args.rows = rows;
    args.n = n;
    args.stride = stride;
  })}};
  out.expectations = {Near<Out>("out", want, 1, {1e-30, 1e-5})};
  return out;
}

Case SoftmaxCase(uint32_t rows, uint32_t n, float scale) {
  const std::vector<float> x = Random(n).Floats(size_t{rows} * n, 5);
  std::vector<double> want(x.size());
  for (uint32_t row = 0; row < rows; ++row) {
    double largest = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; ++i) {
      largest = std::max(largest, double{scale} * x[row * n + i]);
    }
    for (uint32_t i = 0; i < n; ++i) {
      sum += want[row * n + i] = std::exp(double{scale} * x[row * n + i] - largest);
    }
    for (uint32_t i = 0; i < n; ++i) want[row * n + i] /= sum;
  }
  Case out;
  out.name = absl::StrCat("softmax ", rows, " x ", n, " scale ", scale);
  out.bound = "1e-5 relative: exponents up to 60 in fp32 lose 60 * 2^-24, twice";
  out.buffers = {{"x", ToBytes(x)}, {"out", Bytes(x.size() * 4, 0xee)}};
  out.steps = {{MakeLaunch<SoftmaxArgs>("softmax", 2, [=](SoftmaxArgs& args, const Addresses& at) {
    args.x = at.Of<const float>("x");
    args.out = at.Of<float>("out");
    args.rows = rows;
    args.n = n;
    args.scale = scale;
  })}};
  out.expectations = {NearFloat("out", want, {1e-37, 1e-5})};
  return out;
}

}  // namespace

std::vector<Case> RowCases() {
  using Bf16 = uint16_t;
  const auto norm = RmsNormCase<Bf16, Bf16, Bf16>;
  return {
      norm("rmsnorm", 3, 1024, 0),
      norm("rmsnorm", 1, 8, 0),
      norm("rmsnorm", 2, 2056, kRmsNormOnePlus),
      norm("rmsnorm", 3, 4096, kRmsNormAddResidual),
      norm("rmsnorm", 2, 1024, kRmsNormRoundTwice | kRmsNormAddResidual),
      norm("rmsnorm", 1, 16384, 0),
      RmsNormCase<float, float, float>("rmsnorm_f32", 3, 1032, kRmsNormAddResidual),
      RmsNormCase<float, float, float>("rmsnorm_f32", 1, 16384, 0),
      RmsNormCase<float, float, Bf16>("rmsnorm_f32_bf16", 2, 4096, kRmsNormAddResidual),
      RopeCase<Bf16>("rope", 3, 5, 128, 128),
      RopeCase<Bf16>("rope", 2, 4, 256, 64),
      RopeCase<Bf16>("rope", 1, 1, 64, 16),
      RopeCase<float>("rope_f32", 3, 5, 128, 128),
      SwigluCase<Bf16, Bf16>("swiglu", 3, 768, 1536),
      SwigluCase<Bf16, Bf16>("swiglu", 2, 40, 96),
      SwigluCase<float, float>("swiglu_f32", 2, 264, 528),
      SwigluCase<float, Bf16>("swiglu_f32_bf16", 2, 264, 528),
      SoftmaxCase(3, 1000, 1),
      SoftmaxCase(2, 1, 1),
      SoftmaxCase(1, 4099, 0.125f),
  };
}

}  // namespace mainarch::kernels_test
