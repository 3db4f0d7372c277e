// SPDX-License-Identifier: MIT
//
// The vocabulary against host arithmetic. The lane layouts are written here a second time, from the
// ISA documents' tables, as "which lane holds element (i, k)".
#include <cmath>

#include "kernels/quant/bf16.h"
#include "kernels/quant/e8m0.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/mxfp4.h"
#include "unit/kernels/case.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;

constexpr uint32_t kLanes = 64;
using Words = std::vector<uint32_t>;

Case ProbeCase(const std::string& kernel, const Words& in, uint32_t rows) {
  Case out;
  out.name = kernel;
  out.buffers = {{"in", ToBytes(in)}, {"out", Bytes(rows * kLanes * 4, 0xee)}};
  out.steps = {{MakeLaunch<ProbeArgs>(kernel, 1, [](ProbeArgs& args, const Addresses& at) {
    args.in = at.Of<const uint32_t>("in");
    args.out = at.Of<uint32_t>("out");
  })}};
  return out;
}

float AsFloat(uint32_t bits) { return quant::FloatFromBits(bits); }
uint32_t AsBits(double x) { return quant::BitsOfFloat(static_cast<float>(x)); }

Words RandomWords(uint64_t seed, size_t count) {
  Random random(seed);
  Words out(count);
  for (uint32_t& x : out) x = static_cast<uint32_t>(random.Next());
  return out;
}

// want[row][lane]; rows from `first_float` on are floats within `relative`, the others exact.
Expectation ProbeRows(std::vector<Words> want, size_t first_float, double relative) {
  return {"out", [=](absl::Span<const uint8_t> bytes) -> std::string {
            const Words got = FromBytes<uint32_t>(bytes);
            for (size_t row = 0; row < want.size(); ++row) {
              for (size_t lane = 0; lane < kLanes; ++lane) {
                const uint32_t g = got[row * kLanes + lane], w = want[row][lane];
                const double error = std::abs(double{AsFloat(g)} - AsFloat(w));
                const bool near =
                    row >= first_float && error <= relative * std::abs(AsFloat(w)) + 1e-37;
                if (g == w || near) continue;
                return absl::StrCat("row ", row, " lane ", lane, " is ", absl::Hex(g), " (",
                                    AsFloat(g), "), expected ", absl::Hex(w), " (", AsFloat(w),
                                    ")");
              }
            }
            return "";
          }};
}

Case LanesCase() {
  const Words x = RandomWords(11, kLanes);
  Words f(kLanes);
  uint32_t sum = 0;
  double float_sum = 0, largest = 0;
  uint64_t odd = 0;
  uint32_t best = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    f[l] = x[l] & 255;
    sum += x[l];
    float_sum += f[l];
    largest = std::max<double>(largest, f[l]);
    odd |= uint64_t{x[l] & 1} << l;
    if (f[l] > f[best]) best = l;
  }
  std::vector<Words> want(16, Words(kLanes));
  for (uint32_t l = 0; l < kLanes; ++l) {
    const double g = f[l] + 1.0;
    const uint32_t values[] = {sum,
                               AsBits(float_sum),
                               AsBits(largest),
                               best,
                               x[l ^ 21],
                               static_cast<uint32_t>(odd),
                               static_cast<uint32_t>(odd >> 32),
                               x[l ^ 32],
                               x[l ^ 16],
                               l,
                               x[0],
                               x[17],
                               AsBits(std::exp2(g / 16)),
                               AsBits(std::log(g)),
                               AsBits(1 / g),
                               AsBits(1 / std::sqrt(g))};
    for (size_t row = 0; row < 16; ++row) want[row][l] = values[row];
  }
  Case out = ProbeCase("probe_lanes", x, 16);
  out.bound = "lanes exact; exp2, log, 1/x, 1/sqrt(x) within 4e-7";
  out.expectations = {ProbeRows(want, 12, 4e-7)};
  return out;
}

Case ConvertCase(bool ocp) {
  Words in = RandomWords(12, kLanes);
  in[0] = 0x7fff8000;  // fp8: -0, 0, NaN; fp4 of all kinds in the next
  in[1] = 0x76543210;
  in[2] = 0xfedcba98;
  in[3] = 0x017e7f80;
  std::vector<double> a(kLanes), b(kLanes);
  Random random(13);
  for (uint32_t l = 0; l < kLanes; ++l) {
    a[l] = static_cast<float>(random.Normal() * std::exp2(static_cast<double>(l % 14) - 8));
    b[l] = static_cast<float>(random.Normal());
  }
  for (double v : a) in.push_back(AsBits(v));
  for (double v : b) in.push_back(AsBits(v));
  // What 14 and 15 give: nearest even on the chip's own fp8 grid, found by search over the codes;
  // no input exceeds its largest value.
  const auto to_fp8 = [ocp](double v) {
    uint32_t best = 0;
    double error = INFINITY;
    for (uint32_t code = 0; code < 128; ++code) {
      const double value = ocp ? quant::FloatFromFp8E4m3(static_cast<uint8_t>(code))
                               : quant::FloatFromFp8E4m3Fnuz(static_cast<uint8_t>(code));
      const double off = std::abs(std::abs(v) - value);
      if (off < error || (off == error && code % 2 == 0)) {
        best = code;
        error = off;
      }
    }
    return best | (std::signbit(v) && (ocp || best != 0) ? 0x80u : 0u);
  };
  std::vector<Words> want(17, Words(kLanes));
  for (uint32_t l = 0; l < kLanes; ++l) {
    const uint32_t x = in[l];
    const double scale = std::exp2(static_cast<double>(l) - 32);
    double fp4[8];
    for (int i = 0; i < 8; ++i) fp4[i] = quant::FloatFromE2m1((x >> (4 * i)) & 15);
    const auto pair = [](double low, double high) {
      return quant::Bf16FromFloat(static_cast<float>(low)) |
             static_cast<uint32_t>(quant::Bf16FromFloat(static_cast<float>(high))) << 16;
    };
    for (int i = 0; i < 4; ++i) {
      want[i][l] = pair(fp4[2 * i], fp4[2 * i + 1]);
      want[4 + i][l] = pair(fp4[2 * i] * scale, fp4[2 * i + 1] * scale);
      const uint8_t byte = static_cast<uint8_t>(x >> (8 * i));
      want[10 + i][l] = AsBits(quant::FloatFromFp8E4m3(byte));
      if (!ocp && byte == 0x80) want[10 + i][l] = 0;  // documented: -0 becomes 0
    }
    want[8][l] = AsBits(fp4[4]);
    want[9][l] = AsBits(fp4[5]);
    const uint32_t codes = to_fp8(a[l]) | to_fp8(b[l]) << 8;
    want[14][l] = (x & 0xffff0000) | codes;
    want[15][l] = (x & 0xffff) | codes << 16;
    want[16][l] = pair(a[l], b[l]);
  }
  Case out = ProbeCase("probe_convert", in, 17);
  out.bound = "exact; a NaN may have any payload";
  out.isas = {ocp ? "gfx950" : "gfx942"};
  const Expectation exact = ProbeRows(want, 17, 0);
  out.expectations = {{"out", [want, exact](absl::Span<const uint8_t> bytes) {
                         Words got = FromBytes<uint32_t>(bytes);
                         for (size_t i = 10 * kLanes; i < 14 * kLanes; ++i) {
                           const uint32_t w = want[i / kLanes][i % kLanes];
                           if (std::isnan(AsFloat(got[i])) && std::isnan(AsFloat(w))) got[i] = w;
                         }
                         return exact.check(ToBytes(got));
                       }}};
  return out;
}

// A matrix operand as the lanes hold it: value(lane, element).
using Held = std::function<double(uint32_t, uint32_t)>;
// Which (lane, element) holds k of matrix row i.
struct Where {
  uint32_t lane, element;
};
using Layout = std::function<Where(uint32_t, uint32_t)>;

// `width` consecutive k a lane, lanes of one row `size` apart.
Layout Contiguous(uint32_t size, uint32_t width) {
  return [=](uint32_t i, uint32_t k) { return Where{i + size * (k / width), k % width}; };
}
// fp8 of the scaled instructions: half of the bytes from the lower half of K, half from the upper.
Layout HalvesOfK(uint32_t size, uint32_t depth) {
  return [=](uint32_t i, uint32_t k) {
    const uint32_t half = k / (depth / 2), rest = k % (depth / 2);
    return Where{i + size * (rest / 16), half * 16 + rest % 16};
  };
}

// Appends the rows of D = A B^T + c as the lanes hold them.
struct Product {
  uint32_t size, depth;
  Layout a_layout, b_layout;
  Held a, b;
  std::function<double(uint32_t i, uint32_t k)> a_scale, b_scale;
  double c;
};
void AppendProduct(const Product& p, std::vector<Words>& want) {
  const uint32_t words = p.size * p.size / kLanes;
  for (uint32_t j = 0; j < words; ++j) {
    Words row(kLanes);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t column = lane % p.size, part = lane / p.size;
      const uint32_t i = p.size == 16 ? 4 * part + j : 8 * (j / 4) + 4 * part + j % 4;
      double sum = p.c;
      for (uint32_t k = 0; k < p.depth; ++k) {
        const Where in_a = p.a_layout(i, k), in_b = p.b_layout(column, k);
        double term = p.a(in_a.lane, in_a.element) * p.b(in_b.lane, in_b.element);
        if (p.a_scale) term *= p.a_scale(i, k) * p.b_scale(column, k);
        sum += term;
      }
      row[lane] = AsBits(sum);
    }
    want.push_back(row);
  }
}

// Small integers, so that every sum is exact in fp32 and the comparison is exact too.
Case MatrixCase(bool ocp) {
  Random random(14);
  Words in;
  const auto small_bf16 = [&random]() {
    return uint32_t{quant::Bf16FromFloat(static_cast<float>(random.Next() % 17) - 8)};
  };
  for (uint32_t i = 0; i < 8 * kLanes; ++i) in.push_back(small_bf16() | small_bf16() << 16);
  const auto bf16 = [in](uint32_t base) -> Held {
    return [=](uint32_t lane, uint32_t element) {
      const uint32_t word = in[(base + element / 2) * kLanes + lane];
      return static_cast<double>(
          quant::FloatFromBf16(static_cast<uint16_t>(element % 2 ? word >> 16 : word)));
    };
  };
  const auto fp8 = [in, ocp](uint32_t base) -> Held {
    return [=](uint32_t lane, uint32_t element) -> double {
      const uint32_t word = in[(base + element / 4) * kLanes + lane];
      const uint8_t code = static_cast<uint8_t>(word >> (8 * (element % 4)));
      return ocp ? quant::FloatFromFp8E4m3(code) : quant::FloatFromFp8E4m3Fnuz(code);
    };
  };
  std::vector<Words> want;
  const auto add = [&](uint32_t size, uint32_t depth, uint32_t width, const Held& a,
                       const Held& b) {
    const Layout layout = Contiguous(size, width);
    AppendProduct({size, depth, layout, layout, a, b, nullptr, nullptr, 1}, want);
  };
  add(16, 16, 4, bf16(0), bf16(4));
  add(16, 32, 8, bf16(0), bf16(4));
  add(32, 8, 4, bf16(0), bf16(4));
  add(32, 16, 8, bf16(0), bf16(4));
  add(16, 32, 8, fp8(0), fp8(4));
  Case out = ProbeCase("probe_matrix", in, 44);
  out.bound = "exact where the sums are integers; fp8: 2^-14 of a sum near 10^4 at most";
  out.isas = {ocp ? "gfx950" : "gfx942"};
  out.expectations = {ProbeRows(want, 40, 1e-5)};
  return out;
}

double Fp6(uint32_t code) {  // E2M3, bias 1
  const uint32_t exponent = code >> 3 & 3, mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? mantissa / 8.0 : (1 + mantissa / 8.0) * std::exp2(exponent - 1.0);
  return code & 32 ? -magnitude : magnitude;
}

Case ScaledMatrixCase() {
  Words in = RandomWords(15, 16 * kLanes);
  // No fp8 NaN, and modest exponents: clear the top exponent bit of every byte.
  for (uint32_t& word : in) word &= 0xbfbfbfbf;
  Random random(16);
  for (uint32_t i = 0; i < 2 * kLanes; ++i) {
    // Byte 0 counts; the others would blow the result up.
    in.push_back(0xf0f1f200u | static_cast<uint32_t>(125 + random.Next() % 5));
  }
  const auto bits = [in](uint32_t base, uint32_t lane, uint32_t first, uint32_t count) {
    uint32_t out = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t bit = first + i;
      out |= (in[(base + bit / 32) * kLanes + lane] >> (bit % 32) & 1) << i;
    }
    return out;
  };
  const auto fp4 = [=](uint32_t base) -> Held {
    return [=](uint32_t lane, uint32_t e) -> double {
      return quant::FloatFromE2m1(static_cast<uint8_t>(bits(base, lane, 4 * e, 4)));
    };
  };
  const auto fp6 = [=](uint32_t base) -> Held {
    return [=](uint32_t lane, uint32_t e) -> double { return Fp6(bits(base, lane, 6 * e, 6)); };
  };
  const auto fp8 = [=](uint32_t base) -> Held {
    return [=](uint32_t lane, uint32_t e) -> double {
      return quant::FloatFromFp8E4m3(static_cast<uint8_t>(bits(base, lane, 8 * e, 8)));
    };
  };
  std::vector<Words> want;
  const auto add = [&](uint32_t size, uint32_t depth, const Layout& la, const Held& a,
                       const Layout& lb, const Held& b) {
    // The scale of lane (i, g) belongs to k = 32g .. 32g + 31, whatever that lane holds.
    const auto scale = [in, size](uint32_t word) {
      return [=](uint32_t i, uint32_t k) -> double {
        return quant::FloatFromE8m0(static_cast<uint8_t>(in[word * kLanes + i + size * (k / 32)]));
      };
    };
    AppendProduct({size, depth, la, lb, a, b, scale(16), scale(17), 0}, want);
  };
  const Layout in32 = Contiguous(16, 32), halves = HalvesOfK(16, 128);
  add(16, 128, in32, fp4(0), in32, fp4(8));
  add(16, 128, halves, fp8(0), halves, fp8(8));
  add(16, 128, in32, fp6(0), in32, fp6(8));
  add(16, 128, halves, fp8(0), in32, fp4(8));
  const Layout wide32 = Contiguous(32, 32), wide_halves = HalvesOfK(32, 64);
  add(32, 64, wide32, fp4(0), wide32, fp4(8));
  add(32, 64, wide_halves, fp8(0), wide_halves, fp8(8));
  Case out = ProbeCase("probe_scaled_matrix", in, 48);
  out.bound = "2e-4 of the sum's largest terms: absolute 2e-3";
  out.isas = {"gfx950"};
  out.expectations = {{"out", [want](absl::Span<const uint8_t> bytes) -> std::string {
                         const Words got = FromBytes<uint32_t>(bytes);
                         for (size_t i = 0; i < got.size(); ++i) {
                           const double g = AsFloat(got[i]),
                                        w = AsFloat(want[i / kLanes][i % kLanes]);
                           if (std::abs(g - w) <= 2e-3 + 1e-5 * std::abs(w)) continue;
                           return absl::StrCat("row ", i / kLanes, " lane ", i % kLanes, " is ", g,
                                               ", expected ", w);
                         }
                         return "";
                       }}};
  return out;
}

Case MxConvertCase() {
  Words in;
  Random random(17);
  std::vector<double> x(32 * kLanes);
  for (double& v : x) {
    v = static_cast<float>(random.Normal() * 1.2);
    in.push_back(AsBits(v));
  }
  const auto at = [&x](uint32_t element, uint32_t lane) { return x[element * kLanes + lane]; };
  const auto to_fp6 = [](double v) {
    uint32_t best = 0;
    double error = INFINITY;
    for (uint32_t code = 0; code < 32; ++code) {
      const double off = std::abs(std::abs(v) - Fp6(code));
      if (off < error || (off == error && code % 2 == 0)) {
        best = code;
        error = off;
      }
    }
    return best | (std::signbit(v) ? 32u : 0u);
  };
  std::vector<Words> want(39, Words(kLanes));
  for (uint32_t l = 0; l < kLanes; ++l) {
    const uint32_t low = quant::E2m1FromFloat(static_cast<float>(at(0, l) / 2));
    const uint32_t high = quant::E2m1FromFloat(static_cast<float>(at(1, l) / 2));
    want[0][l] = 0xa5a500a5u | (low | high << 4) << 8;
    for (uint32_t e = 0; e < 32; ++e) {
      const uint32_t code = to_fp6(at(e % 2 * 16 + e / 2, l) / 0.5);
      for (uint32_t i = 0; i < 6; ++i) {
        const uint32_t bit = 6 * e + i;
        want[1 + bit / 32][l] |= (code >> i & 1) << (bit % 32);
      }
      want[7 + e][l] = AsBits(Fp6(code) * 0.5);
    }
  }
  Case out = ProbeCase("probe_mx_convert", in, 39);
  out.bound = "exact";
  out.isas = {"gfx950"};
  out.expectations = {ProbeRows(want, 39, 0)};
  return out;
}

}  // namespace

std::vector<Case> ProbeCases() {
  return {LanesCase(),       ConvertCase(true),  ConvertCase(false), MatrixCase(true),
          MatrixCase(false), ScaledMatrixCase(), MxConvertCase()};
}

}  // namespace mainarch::kernels_test
