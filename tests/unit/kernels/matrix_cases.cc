// SPDX-License-Identifier: MIT
#include <cmath>
#include <memory>

#include "kernels/quant/bf16.h"
#include "kernels/quant/e8m0.h"
#include "kernels/quant/mxfp4.h"
#include "unit/kernels/case.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

struct Shape {
  uint32_t rows, outputs, k;
};
std::string Text(const Shape& s) {
  return absl::StrCat(s.rows, " rows, ", s.outputs, " outputs, k ", s.k);
}

// A matrix in MXFP4 and its values.
struct Mxfp4Matrix {
  std::vector<uint8_t> codes, scales;
  std::vector<double> values;
};
// Random codes, scales 2^-4 .. 2^3, and a few extreme blocks if `extreme`.
Mxfp4Matrix RandomMxfp4(Random& random, size_t rows, size_t k, bool extreme) {
  Mxfp4Matrix out;
  out.codes = random.Raw(rows * k / 2);
  for (size_t i = 0; i < rows * k / 32; ++i) {
    out.scales.push_back(static_cast<uint8_t>(123 + random.Next() % 8));
    if (extreme && i % 61 == 3) out.scales.back() = 0;
    if (extreme && i % 61 == 7) out.scales.back() = 1;
  }
  for (size_t i = 0; i < rows * k; ++i) {
    const uint8_t code = quant::Mxfp4Nibble(out.codes.data(), static_cast<int64_t>(i));
    out.values.push_back(static_cast<double>(quant::FloatFromE2m1(code)) *
                         quant::FloatFromE8m0(out.scales[i / 32]));
  }
  return out;
}

// The products in double and, for each, the sum of magnitudes that its rounding errors scale with.
struct Products {
  std::vector<double> values, allowed;
};
// fp32 sums of at most k / 4 terms in a row, each step losing one part in 2^23 of the magnitude
// (the matrix units truncate): k / 4 * 2^-23 of the sum of magnitudes.
constexpr char kDotBound[] = "k/4 * 2^-23 of the sum of |x * w|: fp32 accumulation in any order";
// `split`: what the activations lose when they are split into two bf16, relative.
Products Multiply(const std::vector<double>& x, const std::vector<double>& w, const Shape& s,
                  double split = 0) {
  Products out;
  for (uint32_t row = 0; row < s.rows; ++row) {
    for (uint32_t output = 0; output < s.outputs; ++output) {
      double sum = 0, magnitude = 0;
      for (uint32_t i = 0; i < s.k; ++i) {
        const double term = x[size_t{row} * s.k + i] * w[size_t{output} * s.k + i];
        sum += term;
        magnitude += std::abs(term);
      }
      out.values.push_back(sum);
      out.allowed.push_back(magnitude * (s.k / 4 * 0x1p-23 + split) + 1e-30);
    }
  }
  return out;
}

// fp32 in two bf16: each rounding leaves at most 2^-8 of what it rounds.
template <class X>
constexpr double kSplit = sizeof(X) == 4 ? 0x1.1p-16 : 0;

template <class X = uint16_t>
Case Bf16Case(const std::string& kernel, const Shape& s, uint32_t workgroups) {
  Random random(s.k + s.rows);
  const Activations x = RandomActivations<X>(random, size_t{s.rows} * s.k),
                    w = RandomActivations<uint16_t>(random, size_t{s.outputs} * s.k);
  const Products want = Multiply(x.values, w.values, s, kSplit<X>);
  Case out;
  out.name = absl::StrCat(kernel, " ", Text(s));
  out.bound = kDotBound;
  out.buffers = {{"x", x.bytes}, {"w", w.bytes}, {"out", Bytes(want.values.size() * 4, 0xee)}};
  out.steps = {{MakeLaunch<Bf16MatrixArgsOf<X>>(
      kernel, workgroups, [=](Bf16MatrixArgsOf<X>& args, const Addresses& at) {
        args.x = at.Of<const X>("x");
        args.w = at.Of<const uint16_t>("w");
        args.out = at.Of<float>("out");
        args.rows = s.rows;
        args.outputs = s.outputs;
        args.k = s.k;
      })}};
  out.expectations = {WithinFloat("out", want.values, want.allowed)};
  return out;
}

template <class X = uint16_t>
Case Mxfp4Case(const std::string& kernel, const Shape& s, uint32_t workgroups) {
  Random random(s.k + s.rows + 1);
  const Activations x = RandomActivations<X>(random, size_t{s.rows} * s.k);
  const Mxfp4Matrix w = RandomMxfp4(random, s.outputs, s.k, true);
  const Products want = Multiply(x.values, w.values, s, kSplit<X>);
  Case out;
  out.name = absl::StrCat(kernel, " ", Text(s));
  out.bound = kDotBound;
  out.buffers = {{"x", x.bytes},
                 {"codes", w.codes},
                 {"scales", w.scales},
                 {"out", Bytes(want.values.size() * 4, 0xee)}};
  out.steps = {{MakeLaunch<Mxfp4MatrixArgsOf<X>>(
      kernel, workgroups, [=](Mxfp4MatrixArgsOf<X>& args, const Addresses& at) {
        args.x = at.Of<const X>("x");
        args.codes = at.Of<const uint8_t>("codes");
        args.scales = at.Of<const uint8_t>("scales");
        args.out = at.Of<float>("out");
        args.rows = s.rows;
        args.outputs = s.outputs;
        args.k = s.k;
      })}};
  out.expectations = {WithinFloat("out", want.values, want.allowed)};
  return out;
}

Case ScaledCase(const Shape& s, uint32_t workgroups) {
  Random random(s.k + s.rows + 2);
  const Mxfp4Matrix x = RandomMxfp4(random, s.rows, s.k, false);
  const Mxfp4Matrix w = RandomMxfp4(random, s.outputs, s.k, false);
  const Products want = Multiply(x.values, w.values, s);
  Case out;
  out.name = absl::StrCat("mxfp4_scaled ", Text(s));
  out.bound = kDotBound;
  out.isas = {"gfx950"};
  out.buffers = {{"x_codes", x.codes},
                 {"x_scales", x.scales},
                 {"codes", w.codes},
                 {"scales", w.scales},
                 {"out", Bytes(want.values.size() * 4, 0xee)}};
  out.steps = {{MakeLaunch<Mxfp4ScaledMatrixArgs>(
      "mxfp4_scaled", workgroups, [=](Mxfp4ScaledMatrixArgs& args, const Addresses& at) {
        args.x_codes = at.Of<const uint8_t>("x_codes");
        args.x_scales = at.Of<const uint8_t>("x_scales");
        args.codes = at.Of<const uint8_t>("codes");
        args.scales = at.Of<const uint8_t>("scales");
        args.out = at.Of<float>("out");
        args.rows = s.rows;
        args.outputs = s.outputs;
        args.k = s.k;
      })}};
  out.expectations = {WithinFloat("out", want.values, want.allowed)};
  return out;
}

// A row's bits depend neither on how many rows there are nor on which others: row r of a launch
// with 19 rows equals a launch of that row alone, bit for bit.
Case SameBitsCase() {
  const Shape s = {19, 32, 1152};
  Case out = Bf16Case("bf16_mfma", s, 3);
  out.name = "bf16_mfma row alone has the bits of the row among 19";
  out.bound = "exact between the launches";
  const uint32_t chosen = 17;
  out.buffers.push_back({"alone", Bytes(s.outputs * 4, 0xee)});
  out.steps.push_back(
      {MakeLaunch<Bf16MatrixArgs>("bf16_mfma", 1, [=](Bf16MatrixArgs& args, const Addresses& at) {
        args.x = at.Of<const uint16_t>("x", size_t{chosen} * s.k * 2);
        args.w = at.Of<const uint16_t>("w");
        args.out = at.Of<float>("alone");
        args.rows = 1;
        args.outputs = s.outputs;
        args.k = s.k;
      })});
  // Expectations run in order: the first keeps the row, the second compares.
  auto row = std::make_shared<Bytes>();
  out.expectations.push_back({"out", [row, chosen, s](absl::Span<const uint8_t> got) {
                                const auto at = got.begin() + size_t{chosen} * s.outputs * 4;
                                row->assign(at, at + s.outputs * 4);
                                return std::string();
                              }});
  out.expectations.push_back({"alone", [row](absl::Span<const uint8_t> got) {
                                return Bytes(got.begin(), got.end()) == *row
                                           ? std::string()
                                           : std::string("differs from the row among others");
                              }});
  return out;
}

Case QuantizeCase(uint32_t blocks) {
  Random random(blocks);
  std::vector<uint16_t> x = random.Bf16(size_t{blocks} * 32, 2);
  for (uint32_t b = 0; b < blocks; ++b) {
    // Magnitudes from 2^-130 to 2^120, an empty block, ties at every midpoint, an infinity.
    const double scale = std::ldexp(1.0, static_cast<int>(random.Next() % 250) - 130);
    for (int i = 0; i < 32; ++i) {
      uint16_t& value = x[b * 32 + i];
      const double midpoints[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6};
      double v = quant::FloatFromBf16(value) * scale;
      if (b % 7 == 1) v = 0;
      if (b % 7 == 2) v = (i & 1 ? -1 : 1) * midpoints[i / 2 % 8] * scale;
      value = quant::Bf16FromFloat(static_cast<float>(v));
    }
    if (b % 31 == 5) x[b * 32 + 9] = 0xff80;
  }
  std::vector<uint8_t> codes(blocks * 16), scales(blocks);
  for (uint32_t b = 0; b < blocks; ++b) {
    float values[32];
    for (int i = 0; i < 32; ++i) values[i] = quant::FloatFromBf16(x[b * 32 + i]);
    scales[b] = quant::QuantizeMxfp4Block(values, &codes[b * 16], quant::Mxfp4ScaleMode::kEven);
  }
  Case out;
  out.name = absl::StrCat("quantize_mxfp4 ", blocks, " blocks");
  out.bound = "exact: the same integer rules on both sides";
  out.buffers = {
      {"x", ToBytes(x)}, {"codes", Bytes(codes.size(), 0xee)}, {"scales", Bytes(blocks, 0xee)}};
  out.steps = {{MakeLaunch<QuantizeMxfp4Args>("quantize_mxfp4", 2,
                                              [=](QuantizeMxfp4Args& args, const Addresses& at) {
                                                args.x = at.Of<const uint16_t>("x");
                                                args.codes = at.Of<uint8_t>("codes");
                                                args.scales = at.Of<uint8_t>("scales");
                                                args.blocks = blocks;
                                              })}};
  // A block whose scale is NaN has no codes worth comparing.
  const auto check_codes = [codes, scales](absl::Span<const uint8_t> got) -> std::string {
    for (size_t i = 0; i < codes.size(); ++i) {
      if (scales[i / 16] != quant::kE8m0Nan && got[i] != codes[i]) {
        return absl::StrCat("byte ", i, " is ", absl::Hex(got[i]), ", expected ",
                            absl::Hex(codes[i]));
      }
    }
    return "";
  };
  out.expectations = {Exactly("scales", scales), {"codes", check_codes}};
  return out;
}

}  // namespace

std::vector<Case> MatrixCases() {
  return {
      Bf16Case("bf16_gemv", {1, 64, 512}, 2),
      Bf16Case("bf16_gemv", {2, 37, 1536}, 3),
      Bf16Case("bf16_mfma", {1, 16, 128}, 1),
      Bf16Case("bf16_mfma", {5, 48, 1024}, 2),
      Bf16Case("bf16_mfma", {19, 32, 1152}, 3),
      Bf16Case<float>("bf16_mfma_f32", {3, 32, 1152}, 2),
      SameBitsCase(),
      Mxfp4Case("mxfp4_gemv", {1, 32, 2048}, 2),
      Mxfp4Case("mxfp4_gemv", {2, 13, 736}, 2),
      Mxfp4Case("mxfp4_mfma", {1, 16, 512}, 1),
      Mxfp4Case("mxfp4_mfma", {18, 32, 1536}, 3),
      Mxfp4Case<float>("mxfp4_mfma_f32", {2, 32, 1024}, 2),
      ScaledCase({1, 16, 512}, 1),
      ScaledCase({18, 48, 1536}, 2),
      QuantizeCase(77),
      QuantizeCase(700),
  };
}

}  // namespace mainarch::kernels_test
