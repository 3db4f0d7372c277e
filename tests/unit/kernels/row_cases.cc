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

Case RmsNormCase(uint32_t rows, uint32_t n, uint32_t flags) {
  Random random(n * 8 + flags);
  const std::vector<uint16_t> x = random.Bf16(size_t{rows} * n, 3), w = random.Bf16(n),
                              residual = random.Bf16(size_t{rows} * n, 3);
  const float epsilon = 1e-6f;
  std::vector<double> in = FromBf16(x), want(in.size());
  const std::vector<double> add = FromBf16(residual), weight = FromBf16(w);
  std::vector<uint16_t> sums = residual;
  for (size_t i = 0; i < in.size() && (flags & kRmsNormAddResidual); ++i) {
    in[i] = RoundBf16(in[i] + add[i]);
    sums[i] = quant::Bf16FromFloat(static_cast<float>(in[i]));
  }
  for (uint32_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (uint32_t i = 0; i < n; ++i) squares += in[row * n + i] * in[row * n + i];
    const double inverse = 1 / std::sqrt(squares / n + epsilon);
    for (uint32_t i = 0; i < n; ++i) {
      const double normal = in[row * n + i] * inverse;
      want[row * n + i] = (flags & kRmsNormRoundTwice ? RoundBf16(normal) : normal) *
                          (flags & kRmsNormOnePlus ? 1 + weight[i] : weight[i]);
    }
  }
  Case out;
  out.name = absl::StrCat("rmsnorm ", rows, " x ", n, " flags ", flags);
  // Twice rounded: the first rounding may fall on the other side when the double lies at a tie.
  const bool twice = flags & kRmsNormRoundTwice;
  out.bound = twice ? "one bf16 unit and a half: two roundings, the first of which may differ"
                    : "half a bf16 unit plus 2e-6 of fp32 arithmetic";
  out.buffers = {{"x", ToBytes(x)},
                 {"w", ToBytes(w)},
                 {"residual", ToBytes(residual)},
                 {"out", Bytes(x.size() * 2, 0xee)}};
  out.steps = {{MakeLaunch<RmsNormArgs>("rmsnorm", 2, [=](RmsNormArgs& args, const Addresses& at) {
    args.x = at.Of<const uint16_t>("x");
    args.w = at.Of<const uint16_t>("w");
    args.residual = at.Of<uint16_t>("residual");
    args.out = at.Of<uint16_t>("out");
    args.rows = rows;
    args.n = n;
    args.epsilon = epsilon;
    args.flags = flags;
  })}};
  out.expectations = {NearBf16("out", want, {1e-30, (twice ? 3 : 1) * kBf16Half + 2e-6}),
                      ExactlyValues("residual", sums)};
  return out;
}

Case RopeCase(uint32_t rows, uint32_t heads, uint32_t head_dim, uint32_t rotary) {
  Random random(head_dim + rotary);
  const std::vector<uint16_t> x = random.Bf16(size_t{rows} * heads * head_dim);
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
  const std::vector<double> in = FromBf16(x);
  std::vector<double> want = in, allowed(in.size());
  for (uint32_t head = 0; head < rows * heads; ++head) {
    for (uint32_t i = 0; i < half; ++i) {
      const size_t a = size_t{head} * head_dim + i, b = a + half;
      const size_t at = size_t{positions[head / heads]} * half + i;
      want[a] = in[a] * cosine[at] - in[b] * sine[at];
      want[b] = in[b] * cosine[at] + in[a] * sine[at];
    }
  }
  Case out;
  out.name =
      absl::StrCat("rope ", rows, " rows, ", heads, " heads of ", head_dim, ", rotary ", rotary);
  out.bound = "half a bf16 unit plus 1e-6 of the inputs, which may cancel";
  out.buffers = {{"x", ToBytes(x)},
                 {"positions", ToBytes(positions)},
                 {"cosine", ToBytes(cosine)},
                 {"sine", ToBytes(sine)}};
  out.steps = {{MakeLaunch<RopeArgs>("rope", 2, [=](RopeArgs& args, const Addresses& at) {
    args.x = at.Of<uint16_t>("x");
    args.positions = at.Of<const uint32_t>("positions");
    args.cosine = at.Of<const float>("cosine");
    args.sine = at.Of<const float>("sine");
    args.rows = rows;
    args.heads = heads;
    args.head_dim = head_dim;
    args.rotary = rotary;
  })}};
  out.expectations = {NearBf16("x", want, {6e-6, kBf16Half})};
  return out;
}

Case SwigluCase(uint32_t rows, uint32_t n, uint32_t stride) {
  Random random(n);
  // One buffer [rows, stride] with gate in the first n columns and up behind it.
  const std::vector<uint16_t> both = random.Bf16(size_t{rows} * stride, 4);
  const std::vector<double> in = FromBf16(both);
  std::vector<double> want;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < n; ++i) {
      const double gate = in[row * stride + i], up = in[row * stride + n + i];
      want.push_back(gate / (1 + std::exp(-gate)) * up);
    }
  }
  Case out;
  out.name = absl::StrCat("swiglu ", rows, " x ", n, ", stride ", stride);
  out.bound = "half a bf16 unit plus 1e-5: exp of up to 24 in fp32 and a reciprocal";
  out.buffers = {{"both", ToBytes(both)}, {"out", Bytes(want.size() * 2, 0xee)}};
  out.steps = {{MakeLaunch<SwigluArgs>("swiglu", 2, [=](SwigluArgs& args, const Addresses& at) {
    args.gate = at.Of<const uint16_t>("both");
    args.up = at.Of<const uint16_t>("both", n * 2);
    args.out = at.Of<uint16_t>("out");
    args.rows = rows;
    args.n = n;
    args.stride = stride;
  })}};
  out.expectations = {NearBf16("out", want, {1e-30, kBf16Half + 1e-5})};
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
  return {
      RmsNormCase(3, 1024, 0),
      RmsNormCase(1, 8, 0),
      RmsNormCase(2, 2056, kRmsNormOnePlus),
      RmsNormCase(3, 4096, kRmsNormAddResidual),
      RmsNormCase(2, 1024, kRmsNormRoundTwice | kRmsNormAddResidual),
      RmsNormCase(1, 16384, 0),
      RopeCase(3, 5, 128, 128),
      RopeCase(2, 4, 256, 64),
      RopeCase(1, 1, 64, 16),
      SwigluCase(3, 768, 1536),
      SwigluCase(2, 40, 96),
      SoftmaxCase(3, 1000, 1),
      SoftmaxCase(2, 1, 1),
      SoftmaxCase(1, 4099, 0.125f),
  };
}

}  // namespace mainarch::kernels_test
