// SPDX-License-Identifier: MIT
//
// The kernels behind `mainarch probe`, where their answers are known: exact sums, decoded codes,
// transcendental functions to a few units. What is open is the command's business.
#include <algorithm>
#include <cmath>

#include "kernels/quant/bf16.h"
#include "unit/kernels/case.h"

namespace mainarch::kernels_test {
namespace {

using namespace kernels;
using Words = std::vector<uint32_t>;
constexpr uint32_t kLanes = 64;

uint32_t AsBits(double x) { return quant::BitsOfFloat(static_cast<float>(x)); }
float AsFloat(uint32_t bits) { return quant::FloatFromBits(bits); }

Case OneGroup(const std::string& kernel, const Words& in, uint32_t rows,
              std::function<std::string(const Words&)> check) {
  Case out;
  out.name = kernel;
  out.buffers = {{"in", ToBytes(in)}, {"out", Bytes(rows * kLanes * 4, 0xee)}};
  out.steps = {{MakeLaunch<ProbeArgs>(kernel, 1, [](ProbeArgs& args, const Addresses& at) {
    args.in = at.Of<const uint32_t>("in");
    args.out = at.Of<uint32_t>("out");
  })}};
  out.expectations = {{"out", [check](absl::Span<const uint8_t> bytes) {
                         return check(FromBytes<uint32_t>(bytes));
                       }}};
  return out;
}

std::string Wrong(size_t row, size_t lane, double got, double want) {
  return absl::StrCat("row ", row, " lane ", lane, " is ", got, ", expected ", want);
}

Case MathCase() {
  Words in(kLanes);
  for (uint32_t l = 0; l < kLanes; ++l) in[l] = AsBits(0.13 + 0.11 * l);
  Case out = OneGroup("fidelity_math", in, 11, [in](const Words& got) -> std::string {
    for (size_t l = 0; l < kLanes; ++l) {
      const double x = AsFloat(in[l]);
      const double want[] = {std::exp2(x),           std::log2(x),      1 / x,
                             1 / std::sqrt(x),       std::sqrt(x),      std::sin(2 * M_PI * x),
                             std::cos(2 * M_PI * x), x - std::floor(x), x};
      for (size_t row = 0; row < std::size(want); ++row) {
        const double g = AsFloat(got[row * kLanes + l]);
        if (!(std::fabs(g - want[row]) <= 3e-6 * std::max(1.0, std::fabs(want[row]))))
          return Wrong(row, l, g, want[row]);
      }
      const double bf16 = AsFloat(got[10 * kLanes + l] << 16);
      if (std::fabs(bf16 - x) > x * kBf16Half) return Wrong(10, l, bf16, x);
    }
    return "";
  });
  out.bound = "3e-6; bf16 to half a unit";
  return out;
}

Case ConvertCase() {
  Words in(2 * kLanes);
  for (uint32_t l = 0; l < kLanes; ++l) {
    in[l] = AsBits(l % 2 ? 1.5 : -2.0);  // exact in both formats
    in[kLanes + l] = l << 8 | (l % 2 ? 0x40u : 0xc0u);
  }
  Case out = OneGroup("fidelity_convert", in, 6, [](const Words& got) -> std::string {
    for (size_t l = 0; l < kLanes; ++l) {
      // Stochastic rounding of what is exact changes nothing; the pair's second is the negative.
      for (size_t row = 0; row < 2; ++row) {
        const uint32_t pair = got[row * kLanes + l], one = got[(row + 2) * kLanes + l] & 255;
        if ((pair & 255) != one) return Wrong(row + 2, l, one, pair & 255);
        if ((pair >> 8 & 255) != (one ^ 128)) return Wrong(row, l, pair >> 8 & 255, one ^ 128);
        // 0x40 is 2 with OCP's bias and 1 with FNUZ's, whatever the width of the mantissa.
        const double value = AsFloat(got[(row + 4) * kLanes + l]);
        if (std::fabs(value) != 2 && std::fabs(value) != 1) return Wrong(row + 4, l, value, 2);
        if (std::signbit(value) != (l % 2 == 0)) return Wrong(row + 4, l, value, 0);
      }
    }
    return "";
  });
  out.bound = "exact";
  return out;
}

Case MatrixCase() {
  Words in(8 * kLanes);
  for (uint32_t l = 0; l < kLanes; ++l) {
    for (uint32_t r = 0; r < 4; ++r) in[(4 + r) * kLanes + l] = AsBits(r * 100.0 + l);
  }
  Case out = OneGroup("fidelity_matrix", in, 21, [in](const Words& got) -> std::string {
    for (size_t i = 0; i < 20 * kLanes; ++i) {
      const uint32_t want = in[4 * kLanes + i % (4 * kLanes)];
      if (got[i] != want) return Wrong(i / kLanes, i % kLanes, AsFloat(got[i]), AsFloat(want));
    }
    return "";
  });
  out.bound = "exact: nothing plus C";
  return out;
}

Case OrderCase() {
  constexpr uint32_t kRounds = 32;
  Case out;
  out.name = "fidelity_order";
  out.bound = "two bits";
  out.buffers = {{"cells", Bytes(kRounds * 256, 0)}, {"out", Bytes(kRounds * 8, 0xee)}};
  out.steps = {
      {MakeLaunch<LitmusArgs>("fidelity_order", 2, [](LitmusArgs& args, const Addresses& at) {
        args.cells = at.Of<uint32_t>("cells");
        args.out = at.Of<uint32_t>("out");
        args.rounds = kRounds;
      })}};
  out.expectations = {{"out", [](absl::Span<const uint8_t> bytes) -> std::string {
                         const Words got = FromBytes<uint32_t>(bytes);
                         for (size_t i = 0; i < got.size(); ++i) {
                           if (got[i] > 3) return Wrong(i / 2, i % 2, got[i], 3);
                         }
                         return "";
                       }}};
  return out;
}

Case MxCase() {
  Words in(22 * kLanes);
  for (uint32_t l = 0; l < kLanes; ++l) {
    for (uint32_t r = 0; r < 4; ++r) in[(16 + r) * kLanes + l] = AsBits(r * 100.0 + l);
    in[20 * kLanes + l] = in[21 * kLanes + l] = 127;
  }
  Case out = OneGroup("fidelity_mx", in, 14, [in](const Words& got) -> std::string {
    for (size_t i = 0; i < 12 * kLanes; ++i) {
      const uint32_t want = in[16 * kLanes + i % (4 * kLanes)];
      if (got[i] != want) return Wrong(i / kLanes, i % kLanes, AsFloat(got[i]), AsFloat(want));
    }
    for (size_t i = 12 * kLanes; i < 14 * kLanes; ++i) {
      if (got[i] != 0) return Wrong(i / kLanes, i % kLanes, got[i], 0);
    }
    return "";
  });
  out.isas = {"gfx950"};
  out.bound = "exact: nothing plus C";
  return out;
}

// 16 lanes read 16 runs of eight bytes and get the same half words in another order.
Case TransposeCase() {
  Words in(16 * kLanes);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = (2 * i + 1) << 16 | 2 * i;
  Case out = OneGroup("fidelity_transpose", in, 9, [in](const Words& got) -> std::string {
    for (size_t group = 0; group < 4; ++group) {
      std::vector<uint32_t> seen, want;
      for (size_t j = 0; j < 16; ++j) {
        const size_t lane = group * 16 + j;
        for (size_t word = 0; word < 2; ++word) {
          for (uint32_t half = 0; half < 2; ++half) {
            seen.push_back(got[word * kLanes + lane] >> (16 * half) & 0xffff);
            want.push_back(in[4 * lane + word] >> (16 * half) & 0xffff);
          }
        }
      }
      std::sort(seen.begin(), seen.end());
      std::sort(want.begin(), want.end());
      for (size_t i = 0; i < seen.size(); ++i) {
        if (seen[i] != want[i]) return Wrong(group, i, seen[i], want[i]);
      }
    }
    return "";
  });
  out.isas = {"gfx950"};
  out.bound = "a permutation";
  return out;
}

}  // namespace

std::vector<Case> FidelityCases() {
  return {MathCase(), ConvertCase(), MatrixCase(), OrderCase(), MxCase(), TransposeCase()};
}

}  // namespace mainarch::kernels_test
