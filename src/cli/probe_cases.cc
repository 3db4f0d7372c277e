// SPDX-License-Identifier: MIT
//
// The questions: inputs for the kernels of kernels/ops/fidelity.h, and what their outputs say.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/probe.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "sim/isa/matrix_exact.h"
#include "sim/isa/minifloat.h"

namespace mainarch::cli {
namespace {

namespace si = sim::isa;

constexpr uint32_t kLanes = 64;

float FloatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

// Every magnitude, and the edges.
Words FloatInputs(uint32_t groups) {
  static constexpr uint32_t kEdges[] = {
      0,          0x80000000, 1,          0x80000001, 0x7fffff,   0x807fffff, 0x800000,
      0x80800000, 0x3f800000, 0xbf800000, 0x3f7fffff, 0x3f800001, 0x7f7fffff, 0xff7fffff,
      0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0x3eaaaaab, 0x40490fdb, 0x42fe0000,
      0x43000000, 0xc2fc0000, 0xc3150000, 0x477fe000, 0x477ff000, 0x33800000, 0x387fc000,
      0x3b800000, 0x43600000, 0x43e00000, 0x47600000};
  std::mt19937 random(1);
  Words in;
  for (uint32_t i = 0; i < groups * kLanes; ++i) {
    if (i < std::size(kEdges))
      in.push_back(kEdges[i]);
    else if (i % 4 != 0)
      in.push_back(BitsOf(std::ldexp(1.0f + static_cast<float>(random() & 0x7fffff) * 0x1p-23f,
                                     static_cast<int>(random() % 24) - 12) *
                          (random() & 1 ? 1 : -1)));
    else
      in.push_back(random());
  }
  return in;
}

// Distance in units of the last place of a float near `want`.
double Ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(static_cast<float>(want))) return static_cast<float>(want) == got ? 0 : INFINITY;
  int e;
  std::frexp(want, &e);
  const double unit = std::ldexp(1.0, std::max(e - 24, -149));
  return std::fabs(got - want) / unit;
}

ProbeCase MathCase() {
  constexpr uint32_t kGroups = 64, kRows = 11;
  ProbeCase probe;
  probe.name = "transcendental";
  probe.kernel = "fidelity_math";
  probe.question = "last bits of exp2, log2, rcp, rsq, sqrt, sin, cos; fract, denormals, f16, bf16";
  probe.in = FloatInputs(kGroups);
  probe.workgroups = kGroups;
  probe.out_words = kGroups * kRows * kLanes;
  probe.summary = [in = probe.in](const Words& out) {
    struct Row {
      const char* name;
      double (*f)(double);
      double low, high;  // of |x| where the error is counted
    };
    static constexpr Row kTable[] = {
        {"exp2", [](double x) { return std::exp2(x); }, 0, 126},
        {"log2", [](double x) { return std::log2(x); }, 0x1p-126, 0x1p127},
        {"rcp", [](double x) { return 1 / x; }, 0x1p-126, 0x1p126},
        {"rsq", [](double x) { return 1 / std::sqrt(x); }, 0x1p-126, 0x1p127},
        {"sqrt", [](double x) { return std::sqrt(x); }, 0x1p-126, 0x1p127},
        {"sin", [](double x) { return std::sin(2 * M_PI * std::remainder(x, 1.0)); }, 0, 256},
        {"cos", [](double x) { return std::cos(2 * M_PI * std::remainder(x, 1.0)); }, 0, 256},
    };
    std::string text;
    for (size_t row = 0; row < std::size(kTable); ++row) {
      double worst = 0;
      size_t off = 0, count = 0;
      for (size_t i = 0; i < in.size(); ++i) {
        const double x = FloatOf(in[i]);
        if (!(std::fabs(x) >= kTable[row].low && std::fabs(x) <= kTable[row].high)) continue;
        const double want = kTable[row].f(x);
        const float got = FloatOf(out[(i / kLanes * kRows + row) * kLanes + i % kLanes]);
        // Near a zero of sin or cos the error is absolute.
        const bool wave = row == 5 || row == 6;
        const double ulps = wave ? std::fabs(got - want) * 0x1p24 : Ulps(got, want);
        if (std::isnan(want)) continue;
        worst = std::max(worst, ulps);
        off += static_cast<float>(want) != got;
        ++count;
      }
      absl::StrAppendFormat(&text, "%s%s %.2f ulp, %u of %u not rounded right", row ? "; " : "",
                            kTable[row].name, worst, off, count);
    }
    size_t flushed = 0, denormals = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const uint32_t magnitude = in[i] & 0x7fffffff;
      if (magnitude == 0 || magnitude >= 0x800000) continue;
      ++denormals;
      flushed += (out[(i / kLanes * kRows + 8) * kLanes + i % kLanes] & 0x7fffffff) == 0;
    }
    absl::StrAppendFormat(&text, "; %u of %u denormals flushed by a product", flushed, denormals);
    return text;
  };
  return probe;
}

ProbeCase ConvertCase() {
  constexpr uint32_t kGroups = 32, kRows = 6;
  ProbeCase probe;
  probe.name = "convert_8bit";
  probe.kernel = "fidelity_convert";
  probe.question = "fp8 and bf8: ties, overflow, NaN, stochastic rounding, every code";
  const Words x = FloatInputs(kGroups);
  std::mt19937 random(2);
  for (uint32_t g = 0; g < kGroups; ++g) {
    probe.in.insert(probe.in.end(), x.begin() + g * kLanes, x.begin() + (g + 1) * kLanes);
    for (uint32_t l = 0; l < kLanes; ++l) {
      probe.in.push_back((static_cast<uint32_t>(random()) & ~255u) | ((g * kLanes + l) & 255));
    }
  }
  probe.workgroups = kGroups;
  probe.out_words = kGroups * kRows * kLanes;
  probe.summary = [](const Words& out) {
    // What becomes of +inf (lane 14 of the first group) and NaN (lane 16) tells OCP from FNUZ and
    // whether overflow saturates.
    return absl::StrFormat(
        "fp8 of inf %02x, of nan %02x; bf8 of inf %02x, of nan %02x; code 80 is %s", out[14] & 255,
        out[16] & 255, out[kLanes + 14] & 255, out[kLanes + 16] & 255,
        std::isnan(FloatOf(out[(2 * kRows + 4) * kLanes])) ? "nan (fnuz)" : "-0 (ocp)");
  };
  return probe;
}

// --- matrix sums ---------------------------------------------------------------------------------

struct Format {
  const char* name;
  int bits;
  float (*decode)(uint32_t code, bool fnuz);
  si::ExactFormat ocp, fnuz;
};
float DecodeBf16(uint32_t x, bool) { return FloatOf(x << 16); }
float DecodeF16(uint32_t x, bool) { return quant::FloatFromF16(static_cast<uint16_t>(x)); }
float DecodeFp8(uint32_t x, bool fnuz) {
  return si::MiniToFloat(fnuz ? si::kFp8Fnuz : si::kFp8, x);
}
float DecodeBf8(uint32_t x, bool fnuz) {
  return si::MiniToFloat(fnuz ? si::kBf8Fnuz : si::kBf8, x);
}
constexpr Format kBf16 = {"bf16", 16, DecodeBf16, si::kExactBf16, si::kExactBf16},
                 kF16 = {"f16", 16, DecodeF16, si::kExactF16, si::kExactF16},
                 kFp8 = {"fp8", 8, DecodeFp8, si::kExactFp8, si::kExactFp8Fnuz},
                 kBf8 = {"bf8", 8, DecodeBf8, si::kExactBf8, si::kExactBf8Fnuz};

// Which of the known ways of summing gives the elements of D that came back.
std::string MatchModels(const Format& f, bool fnuz, int k_count, const uint32_t* a,
                        const uint32_t* b, const uint32_t* c, const uint32_t* d) {
  const int per_lane = k_count / 4, per_word = 32 / f.bits;
  const auto element = [&](const uint32_t* rows, int i, int k) {
    const int lane = i + 16 * (k / per_lane), v = k % per_lane;
    const uint32_t word =
        rows[static_cast<size_t>(v / per_word) * kLanes + static_cast<size_t>(lane)];
    return f.decode(word >> (v % per_word * f.bits) & ((1u << f.bits) - 1), fnuz);
  };
  int fast = 0, exact = 0;
  const si::ExactFormat format = fnuz ? f.fnuz : f.ocp;
  const si::ExactRule rule = {format, format, f.bits == 16 ? 8 : 16, f.bits == 8};
  for (int lane = 0; lane < 64; ++lane) {
    for (int r = 0; r < 4; ++r) {
      const int m = 4 * (lane / 16) + r, n = lane % 16;
      const size_t at = static_cast<size_t>(r) * kLanes + static_cast<size_t>(lane);
      float row[64], column[64], sum = FloatOf(c[at]);
      for (int k = 0; k < k_count; ++k) {
        row[k] = element(a, m, k);
        column[k] = element(b, n, k);
      }
      const float published = si::ExactDot(rule, row, 1, column, 1, k_count, sum);
      for (int k = 0; k < k_count; ++k) sum = std::fma(row[k], column[k], sum);
      const float got = FloatOf(d[at]);
      fast += got == sum || (std::isnan(got) && std::isnan(sum));
      exact += got == published || (std::isnan(got) && std::isnan(published));
    }
  }
  return absl::StrFormat("%s K=%d: fma in order %d, published CDNA3 model %d of 256", f.name,
                         k_count, fast, exact);
}

uint32_t RandomCode(const Format& f, bool fnuz, std::mt19937& random) {
  while (true) {
    const uint32_t code = static_cast<uint32_t>(random()) & ((1u << f.bits) - 1);
    const float x = f.decode(code, fnuz);
    if (f.bits == 16 && !(std::fabs(x) < 0x1p12f && std::fabs(x) > 0x1p-12f)) continue;
    if (std::isfinite(x)) return code;
  }
}

// A group for each format; C of very different sizes, so that alignment shows.
constexpr const Format* kMatrixFormats[] = {&kBf16, &kF16, &kFp8, &kBf8};
ProbeCase MatrixCase(const isa::ChipFacts& chip) {
  constexpr uint32_t kRows = 21, kFirstRow[] = {0, 4, 12, 16};
  const bool fnuz = !chip.has_ocp_fp8;
  ProbeCase probe;
  probe.name = "matrix_sums";
  probe.nans_alike = true;
  probe.kernel = "fidelity_matrix";
  probe.question = "order, grouping, width and rounding of sums inside MFMA; v_dot2";
  std::mt19937 random(3);
  for (const Format* f : kMatrixFormats) {
    for (uint32_t i = 0; i < 4 * kLanes; ++i) {
      uint32_t word = 0;
      for (int at = 0; at < 32; at += f->bits) word |= RandomCode(*f, fnuz, random) << at;
      probe.in.push_back(word);
    }
    for (uint32_t i = 0; i < 4 * kLanes; ++i) {
      probe.in.push_back(BitsOf(std::ldexp(static_cast<float>(random() & 0xffffff) - 0x7fffff,
                                           static_cast<int>(random() % 40) - 36)));
    }
  }
  probe.workgroups = std::size(kMatrixFormats);
  probe.out_words = probe.workgroups * kRows * kLanes;
  probe.summary = [in = probe.in, fnuz,
                   first = std::vector<uint32_t>(std::begin(kFirstRow), std::end(kFirstRow))](
                      const Words& out) {
    std::string text;
    for (size_t g = 0; g < std::size(kMatrixFormats); ++g) {
      const uint32_t* from = in.data() + g * 8 * kLanes;
      absl::StrAppend(
          &text, g ? "; " : "",
          MatchModels(*kMatrixFormats[g], fnuz, g < 2 ? 16 : 32, from, from + 2 * kLanes,
                      from + 4 * kLanes, out.data() + (g * kRows + first[g]) * kLanes));
    }
    return text;
  };
  return probe;
}

ProbeCase ScaledCase() {
  constexpr uint32_t kGroups = 4, kRows = 14;
  ProbeCase probe;
  probe.name = "scaled_matrix_sums";
  probe.kernel = "fidelity_mx";
  probe.question = "scaled MFMA: layout, scale bytes, sums; MFMA of double length; fp4 rounding";
  std::mt19937 random(4);
  for (uint32_t g = 0; g < kGroups; ++g) {
    const Format& f = g == 0 ? kBf16 : kFp8;
    for (uint32_t i = 0; i < 16 * kLanes; ++i) {
      uint32_t word = 0;
      for (int at = 0; at < 32; at += f.bits) word |= RandomCode(f, false, random) << at;
      probe.in.push_back(word);
    }
    for (uint32_t i = 0; i < 4 * kLanes; ++i) {
      probe.in.push_back(BitsOf(std::ldexp(static_cast<float>(random() & 0xffffff) - 0x7fffff,
                                           static_cast<int>(random() % 24) - 24)));
    }
    // Scales of their own in every lane: which lane's byte goes to which block shows. In the last
    // group the edges 0 and 255.
    for (uint32_t i = 0; i < 2 * kLanes; ++i) {
      const uint32_t near = 120 + static_cast<uint32_t>(random() % 15);
      probe.in.push_back(g == 3 && i % 7 == 0 ? (i % 2 ? 0u : 255u) : near);
    }
  }
  probe.workgroups = kGroups;
  probe.out_words = kGroups * kRows * kLanes;
  probe.summary = [in = probe.in](const Words& out) {
    return MatchModels(kBf16, false, 32, in.data(), in.data() + 8 * kLanes, in.data() + 16 * kLanes,
                       out.data() + 8 * kLanes);
  };
  return probe;
}

ProbeCase TransposeCase() {
  ProbeCase probe;
  probe.name = "transposed_lds_reads";
  probe.kernel = "fidelity_transpose";
  probe.question = "which element of LDS ds_read_tr gives to which lane";
  // Every half word, byte and nibble pair is told from its neighbours by its place.
  for (uint32_t i = 0; i < 16 * kLanes; ++i) probe.in.push_back(i * 2654435761u ^ i << 16);
  probe.out_words = 9 * kLanes;
  probe.summary = [](const Words& out) {
    return absl::StrFormat("lane 1 reads %08x %08x by 16 bits, %08x %08x by 8", out[1],
                           out[kLanes + 1], out[2 * kLanes + 1], out[3 * kLanes + 1]);
  };
  return probe;
}

ProbeCase OrderCase() {
  constexpr uint32_t kRounds = 2000;
  ProbeCase probe;
  probe.name = "memory_order";
  probe.kernel = "fidelity_order";
  probe.question = "do relaxed stores and loads of two workgroups pass each other?";
  probe.in.assign(kRounds * 64, 0);
  probe.workgroups = 2;
  probe.rounds = kRounds;
  probe.out_words = kRounds * 2;
  probe.statistical = true;
  probe.summary = [](const Words& out) {
    size_t passed[2] = {};
    for (size_t round = 0; round < kRounds; ++round) {
      const uint32_t a = out[2 * round], b = out[2 * round + 1];
      // Message passing: the flag seen, the data not. Store buffering: neither saw the other's.
      if (round % 2 == 0)
        passed[0] += b == 1;
      else
        passed[1] += a == 0 && b == 0;
    }
    return absl::StrCat("message passing reordered: ", passed[0] ? "yes" : "never seen",
                        "; store buffering: ", passed[1] ? "yes" : "never seen");
  };
  return probe;
}

}  // namespace

std::vector<ProbeCase> ProbeCases(const isa::ChipFacts& chip) {
  std::vector<ProbeCase> cases = {MathCase(), ConvertCase(), MatrixCase(chip)};
  if (absl::string_view(chip.name) == "gfx950") {
    cases.push_back(ScaledCase());
    cases.push_back(TransposeCase());
  }
  cases.push_back(OrderCase());
  return cases;
}

}  // namespace mainarch::cli
