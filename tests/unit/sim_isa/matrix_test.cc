// SPDX-License-Identifier: MIT
//
// Every matrix instruction against products computed here: where an element lies is written down a
// second time, from the matrix instruction calculator's tables; sums are in host arithmetic. Small
// whole numbers, whose sums are exact in any order, show the layout; random ones show the rounding,
// in the fast mode (an FMA a product) and in the exact one (the published model, evaluated here in
// long double with the paper's own words: align, cut, floor).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"
#include "unit/sim_isa/matrix_vectors.h"

namespace mainarch::sim::isa::test {
namespace {

// --- sums ----------------------------------------------------------------------------------------

struct Decomposed {
  long double significand;  // in [1, 2) unless denormal
  int exponent;
};
Decomposed Decompose(double x, int least) {
  if (x == 0) return {0, -126};
  int e = std::ilogb(x);
  if (e < least) e = least;
  return {std::scalbn(static_cast<long double>(x), -e), e};
}
int Least(const Small& f) { return 1 - f.bias; }

// The paper's fused sum: every significand aligned to the largest exponent and truncated.
Decomposed Fused(const std::vector<Decomposed>& terms) {
  int top = terms[0].exponent;
  for (const Decomposed& t : terms) top = std::max(top, t.exponent);
  long double sum = 0;
  for (const Decomposed& t : terms)
    sum += std::trunc(std::scalbn(t.significand, 24 + t.exponent - top));
  return {std::scalbn(sum, -24), top};
}
long double FloorTo(long double x, int shift, int bits) {
  return std::scalbn(std::floor(std::scalbn(x, bits + shift)), -bits);
}

float PaperSum(const Small& fa, const Small& fb, const std::vector<double>& a,
               const std::vector<double>& b, float c, int group, bool eight, int scale) {
  for (size_t first = 0; first < a.size(); first += static_cast<size_t>(group)) {
    std::vector<Decomposed> terms[2];
    const size_t end = std::min(a.size(), first + static_cast<size_t>(group));
    for (size_t k = first; k < end; ++k) {
      const Decomposed x = Decompose(a[k], Least(fa)), y = Decompose(b[k], Least(fb));
      terms[eight ? (k - first) % 2 : 0].push_back(
          {x.significand * y.significand, x.exponent + y.exponent + scale});
    }
    Decomposed sum = Fused(terms[0]);
    if (eight && !terms[1].empty()) {
      const Decomposed odd = Fused(terms[1]);
      const int top = std::max(sum.exponent, odd.exponent);
      sum = {FloorTo(sum.significand, sum.exponent - top, 24) +
                 FloorTo(odd.significand, odd.exponent - top, 24),
             top};
    }
    const Decomposed old = Decompose(c, -126);
    const int top = std::max(sum.exponent, old.exponent);
    const long double left = FloorTo(sum.significand, sum.exponent - top, 31);
    long double right = FloorTo(old.significand, old.exponent - top, 24);
    if (eight && old.exponent < top - 25) right = 0;
    c = static_cast<float>(std::scalbn(left + right, top));
  }
  return c;
}

// --- the test ------------------------------------------------------------------------------------

struct Run {
  const Instruction& in;
  Isa isa;
  int cbsz = 0, blgp = 0;
  bool scaled = false;
  bool whole = true;  // small whole numbers
  bool exact = false;
  Small a = {}, b = {};
};

double DrawFloat(std::mt19937& random, const Small& f, bool whole) {
  if (whole) {
    static constexpr double kValues[] = {0, 1, 2, 3, 4, -1, -2, -3, -4};
    while (true) {
      const double x = kValues[random() % std::size(kValues)];
      if (Value(f, CodeOf(f, x)) == x) return x;
    }
  }
  while (true) {
    const uint32_t code =
        f.bits == 32 ? (random() & 0x007fffff) | (110 + random() % 30) << 23 | random() << 31
                     : random() & ((1u << f.bits) - 1);
    const double x = Value(f, code);
    if (std::isfinite(x) && std::fabs(x) < 0x1p20) return x;
  }
}

std::string Check(Rig& rig, const Run& run, const uint8_t* code, size_t size,
                  std::mt19937& random) {
  const Instruction& in = run.in;
  const int m = in.m, n = in.m, stored = in.sparse ? in.k / 2 : in.k;
  for (int i = 0; i < kLanes; ++i) {
    for (int r = 0; r < 202; ++r) rig.V(r, i) = 0;
  }
  rig.group().exact_matrix = run.exact;
  const auto index3 = [&](int block, int i, int k, int count) {
    return static_cast<size_t>((block * 32 + i) * count + k);
  };
  std::vector<double> a(static_cast<size_t>(in.blocks * 32 * stored)),
      b(static_cast<size_t>(in.blocks * 32 * in.k));
  std::vector<int> stands_for(a.size());
  const auto draw = [&](bool of_a) -> double {
    if (in.type == Type::kInt) return static_cast<int>(random() % 256) - 128;
    if (in.type == Type::kDouble) return static_cast<int>(random() % 2001) - 1000;
    return DrawFloat(random, of_a ? run.a : run.b, run.whole);
  };
  const auto encode = [&](double x, const Small& f) -> uint64_t {
    if (in.type == Type::kInt) return static_cast<uint8_t>(static_cast<int>(x));
    if (in.type == Type::kDouble) return __builtin_bit_cast(uint64_t, x);
    return CodeOf(f, x);
  };
  const int bits_a = in.type == Type::kFloat ? run.a.bits : in.bits;
  const int bits_b = in.type == Type::kFloat ? run.b.bits : in.bits;
  for (int block = 0; block < in.blocks; ++block) {
    for (int i = 0; i < m; ++i) {
      for (int k = 0; k < stored; ++k) {
        const double x = a[index3(block, i, k, stored)] = draw(true);
        const Place p = SourcePlace(m, stored, in.blocks, block, i, k, in.mx && bits_a == 8);
        PutElement(rig, kRegister[1], p, bits_a, encode(x, run.a));
        if (in.sparse) {
          // Of each four two, in any order.
          const uint32_t which = random() & 3;
          stands_for[index3(block, i, k, stored)] = k / 2 * 4 + static_cast<int>(which);
          PutElement(rig, kRegister[3], p, 2, which);
        }
      }
      for (int k = 0; k < in.k; ++k) {
        const double x = b[index3(block, i, k, in.k)] = draw(false);
        const Place p = SourcePlace(m, in.k, in.blocks, block, i, k, in.mx && bits_b == 8);
        PutElement(rig, kRegister[2], p, bits_b, encode(x, run.b));
      }
    }
  }
  const int c_first = in.sparse ? kRegister[0] : kRegister[3];
  std::vector<double> c(static_cast<size_t>(in.blocks * 32 * 32));
  for (int block = 0; block < in.blocks; ++block) {
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        double& x = c[static_cast<size_t>((block * 32 + i) * 32 + j)];
        x = static_cast<int>(random() % 65) - 32;
        if (!run.whole) x = std::ldexp(x, static_cast<int>(random() % 30) - 20);
        const Result p = ResultPlace(m, in.type == Type::kDouble, block, i, j);
        if (in.type == Type::kDouble) {
          PutElement(rig, c_first, {p.lane, p.reg}, 64, __builtin_bit_cast(uint64_t, x));
        } else {
          rig.V(c_first + p.reg, p.lane) =
              in.type == Type::kInt ? static_cast<uint32_t>(static_cast<int>(x))
                                    : __builtin_bit_cast(uint32_t, static_cast<float>(x));
        }
      }
    }
  }
  // The scale of lane (row, g) belongs to k from 32 g on. Byte 1 of A's register (op_sel), byte 2
  // of B's (op_sel_hi).
  for (int lane = 0; run.scaled && lane < 64; ++lane) {
    rig.V(200, lane) = random();
    rig.V(201, lane) = random();
    rig.V(200, lane) = (rig.V(200, lane) & 0xffff00ff) | (120 + random() % 15) << 8;
    rig.V(201, lane) = (rig.V(201, lane) & 0xff00ffff) | (120 + random() % 15) << 16;
  }
  const auto scale_of = [&](int reg, int shift, int i, int g) {
    return run.scaled ? static_cast<int>(rig.V(reg, i + m * g) >> shift & 255) - 127 : 0;
  };
  std::vector<int> scale_a(static_cast<size_t>(m * 4)), scale_b(static_cast<size_t>(m * 4));
  for (int i = 0; i < m; ++i) {
    for (int g = 0; g < in.k / 32 && in.mx; ++g) {
      scale_a[static_cast<size_t>(i * 4 + g)] = scale_of(200, 8, i, g);
      scale_b[static_cast<size_t>(i * 4 + g)] = scale_of(201, 16, i, g);
    }
  }
  rig.wave().set_exec(0x123);  // ignored
  if (!rig.Step(code, size)) return absl::StrCat(in.row->name, ": ", rig.wave().detail);
  for (int block = 0; block < in.blocks; ++block) {
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        const double start = c[static_cast<size_t>((block * 32 + i) * 32 + j)];
        std::vector<double> x, y;
        for (int k = 0; k < stored; ++k) {
          x.push_back(a[index3(block, i, k, stored)]);
          const int from = in.sparse ? stands_for[index3(block, i, k, stored)] : k;
          y.push_back(b[index3(block, j, from, in.k)]);
        }
        const Result p = ResultPlace(m, in.type == Type::kDouble, block, i, j);
        const auto wrong = [&](double got, double want) {
          return absl::StrCat(in.row->name, run.exact ? " exact" : " fast", " cbsz ", run.cbsz,
                              " blgp ", run.blgp, run.scaled ? " scaled" : "", " block ", block,
                              " (", i, ", ", j, "): ", got, ", not ", want);
        };
        if (in.type == Type::kInt) {
          int64_t want = static_cast<int64_t>(start);
          for (size_t k = 0; k < x.size(); ++k) want += static_cast<int64_t>(x[k] * y[k]);
          const auto got = static_cast<int32_t>(rig.V(kRegister[0] + p.reg, p.lane));
          if (got != want) return wrong(got, static_cast<double>(want));
          continue;
        }
        if (in.type == Type::kDouble) {
          double want = start;
          for (size_t k = 0; k < x.size(); ++k) want = std::fma(x[k], y[k], want);
          const double got = __builtin_bit_cast(
              double, rig.V(kRegister[0] + 2 * p.reg, p.lane) |
                          uint64_t{rig.V(kRegister[0] + 2 * p.reg + 1, p.lane)} << 32);
          if (got != want) return wrong(got, want);
          continue;
        }
        float want = static_cast<float>(start);
        double tolerance = 0;
        const bool xf32 =
            run.a.bits == 32 && std::string(in.row->name).find("xf32") != std::string::npos;
        if (xf32) {
          for (size_t k = 0; k < x.size(); ++k) {
            const auto cut = [](double v) {
              return static_cast<double>(__builtin_bit_cast(
                  float, __builtin_bit_cast(uint32_t, static_cast<float>(v)) & 0xffffe000));
            };
            x[k] = cut(x[k]), y[k] = cut(y[k]);
          }
        }
        const bool eight = run.a.bits <= 8;
        if (run.exact && (run.a.bits != 32 || xf32)) {
          const int most = xf32 ? 4 : eight ? 16 : 8;
          if (in.mx) {
            for (int g = 0; g < in.k / 32; ++g) {
              const std::vector<double> xs(x.begin() + 32 * g, x.begin() + 32 * (g + 1)),
                  ys(y.begin() + 32 * g, y.begin() + 32 * (g + 1));
              want = PaperSum(run.a, run.b, xs, ys, want, 16, true,
                              scale_a[static_cast<size_t>(i * 4 + g)] +
                                  scale_b[static_cast<size_t>(j * 4 + g)]);
            }
          } else {
            want = PaperSum(run.a, run.b, x, y, want, std::min(most, static_cast<int>(x.size())),
                            eight, 0);
          }
        } else if (in.mx) {
          // Blocks summed, then scaled; how the fast mode rounds on the way is its own business.
          double sum = start, magnitude = std::fabs(start);
          for (size_t k = 0; k < x.size(); ++k) {
            const int g = static_cast<int>(k) / 32;
            const double term =
                std::ldexp(x[k] * y[k], scale_a[static_cast<size_t>(i * 4 + g)] +
                                            scale_b[static_cast<size_t>(j * 4 + g)]);
            sum += term;
            magnitude += std::fabs(term);
          }
          want = static_cast<float>(sum);
          tolerance = magnitude * 0x1p-19;
        } else {
          for (size_t k = 0; k < x.size(); ++k)
            want = std::fma(static_cast<float>(x[k]), static_cast<float>(y[k]), want);
        }
        const float got = __builtin_bit_cast(float, rig.V(kRegister[0] + p.reg, p.lane));
        if (!(std::fabs(static_cast<double>(got) - want) <= tolerance)) return wrong(got, want);
      }
    }
  }
  return "";
}

TEST(every_matrix_instruction_of_both_isas) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    const std::vector<Instruction> list = MatrixInstructions(isa);
    std::vector<Run> runs;
    std::string source;
    for (const Instruction& in : list) {
      std::vector<Run> kinds;
      if (in.mx) {
        for (int f = 0; f < 5; ++f) {
          for (int g : {f, 4 - f}) {
            for (bool scaled : {false, true}) {
              kinds.push_back({in, isa, f, g, scaled, true, false, MxFormat(f), MxFormat(g)});
            }
          }
        }
      } else {
        kinds.push_back({in, isa});
        if (in.a != nullptr) kinds.back().a = *in.a, kinds.back().b = *in.b;
      }
      for (const Run& kind : kinds) {
        for (int variant = 0; variant < 4; ++variant) {
          // Whole numbers times scales are exact too, within the tolerance of the fast mode.
          if (in.type != Type::kFloat && variant != 0) continue;
          runs.push_back(kind);
          runs.back().whole = variant < 2;
          runs.back().exact = variant % 2 == 1;
          source += Text(in, kind.cbsz, kind.blgp, kind.scaled);
        }
      }
    }
    std::string error;
    const std::vector<uint8_t> code = Assemble(isa, source, &error);
    CHECK_EQ(error, "");
    int wrong = 0;
    std::set<std::string> done;
    for (LaneCode lanes : LaneCodes()) {
      Rig rig(isa, lanes);
      std::mt19937 random(11);
      size_t at = 0;
      for (const Run& run : runs) {
        Inst inst;
        CHECK(Decode(isa, absl::MakeConstSpan(code).subspan(at), &inst));
        const std::string what = Check(rig, run, code.data() + at, inst.size, random);
        at += inst.size;
        done.insert(run.in.row->name);
        if (what.empty()) continue;
        if (++wrong < 12) std::cout << "# " << CpuName(isa) << " " << what << "\n";
      }
    }
    std::cout << "# " << CpuName(isa) << ": " << done.size() << " matrix mnemonics, " << runs.size()
              << " vectors a lane code\n";
    CHECK_EQ(wrong, 0);
    CHECK_EQ(done.size(), list.size());
  }
}

}  // namespace
}  // namespace mainarch::sim::isa::test
