// SPDX-License-Identifier: MIT
//
// Converts to and from 8, 6 and 4 bits: what each does is read off its name; the nearest code is
// found by looking at all codes. Values stay within a format's range, and its largest numbers,
// zeros and denormals are among them.
#include <cmath>
#include <cstring>
#include <iostream>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {
namespace {

struct Small {
  int bits, mantissa, bias;
  double largest;
};
double Value(const Small& f, uint32_t code) {
  const int m = static_cast<int>(code & ((1u << f.mantissa) - 1));
  const int e = static_cast<int>(code >> f.mantissa & ((1u << (f.bits - 1 - f.mantissa)) - 1));
  const double x = e == 0 ? std::ldexp(m, 1 - f.bias - f.mantissa)
                          : std::ldexp(m + (1 << f.mantissa), e - f.bias - f.mantissa);
  return code >> (f.bits - 1) & 1 ? -x : x;
}
Small FormatOf(absl::string_view name, Isa isa) {
  const int old = isa == Isa::kGfx942;  // FNUZ: one more bias, and other tops
  if (name == "fp8") return {8, 3, 7 + old, old ? 240.0 : 448.0};
  if (name == "bf8") return {8, 2, 15 + old, 57344.0};
  if (name == "fp6") return {6, 3, 1, 7.5};
  if (name == "bf6") return {6, 2, 3, 28.0};
  return {4, 1, 1, 6.0};
}
// Numbers of a format in order of size; all codes whose value is within range.
uint32_t Nearest(const Small& f, double x, bool fnuz) {
  uint32_t best = 0;
  double error = INFINITY;
  for (uint32_t code = 0; code < 1u << (f.bits - 1); ++code) {
    const double v = Value(f, code);
    if (v > f.largest) break;
    const double off = std::fabs(std::fabs(x) - v);
    if (off < error || (off == error && code % 2 == 0)) best = code, error = off;
  }
  const bool zero = best == 0;
  return best | (std::signbit(x) && !(zero && fnuz) ? 1u << (f.bits - 1) : 0);
}
// Stochastic: the code below, or the next when the part above it and the random number's upper 20
// bits make a whole step.
uint32_t Stochastic(const Small& f, double x, uint32_t random, bool fnuz) {
  uint32_t below = 0;
  while (below + 1 < 1u << (f.bits - 1) && Value(f, below + 1) <= std::fabs(x) &&
         Value(f, below + 1) <= f.largest)
    ++below;
  const double low = Value(f, below), high = Value(f, below + 1);
  if (high <= f.largest && (std::fabs(x) - low) / (high - low) + std::ldexp(random >> 12, -20) >= 1)
    ++below;
  return below | (std::signbit(x) && !(below == 0 && fnuz) ? 1u << (f.bits - 1) : 0);
}
uint32_t NextRandom(uint32_t x) { return x << 1 ^ (x >> 31 ? 0xc5 : 0); }

double WideValue(absl::string_view type, uint32_t bits) {
  if (type == "f32") return __builtin_bit_cast(float, bits);
  if (type == "bf16") return __builtin_bit_cast(float, bits << 16);
  return static_cast<double>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(bits)));
}
uint32_t WideBits(absl::string_view type, double x) {
  if (type == "f32") return __builtin_bit_cast(uint32_t, static_cast<float>(x));
  // Products of these formats and powers of two are exact in bf16; f16 rounds.
  if (type == "bf16") return __builtin_bit_cast(uint32_t, static_cast<float>(x)) >> 16;
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(x));
}

struct Meaning {
  std::string name, wide, small;
  bool up = false, random = false, scaled = false, two_vectors = false;
  int count = 1;
};
Meaning Parse(const std::string& full) {
  Meaning m;
  m.name = full;
  absl::string_view n = full;
  absl::ConsumePrefix(&n, "v_cvt_");
  m.scaled = absl::ConsumePrefix(&n, "scalef32_");
  m.random = absl::ConsumePrefix(&n, "sr_");
  if (absl::ConsumePrefix(&n, "2xpk16_"))
    m.count = 32, m.two_vectors = true;
  else if (absl::ConsumePrefix(&n, "pk32_"))
    m.count = 32;
  else if (absl::ConsumePrefix(&n, "pk_"))
    m.count = 2;
  const size_t cut = n.find('_');
  const std::string to(n.substr(0, cut)), from(n.substr(cut + 1));
  m.up = to[0] == 'f' && to.size() == 3 && (to == "f32" || to == "f16");
  m.up = m.up || to == "bf16";
  m.wide = m.up ? to : from;
  m.small = m.up ? from : to;
  return m;
}

constexpr int kA = 0, kB = 40, kC = 80, kD = 120;

struct Text {
  std::string text;
  int scale, random, second;  // registers; -1 none
  int dst_dwords;
};
Text TextOf(const Meaning& m) {
  const auto reg = [](int first, int width) {
    return width == 1 ? absl::StrCat("v", first)
                      : absl::StrCat("v[", first, ":", first + width - 1, "]");
  };
  const int wide_dwords = m.count == 1 ? 1 : m.wide == "f32" ? m.count : m.count / 2;
  const int small_dwords = m.count == 32 ? 6 : 1;
  Text t = {"", -1, -1, -1, m.up ? wide_dwords : small_dwords};
  std::vector<std::string> operands = {reg(kD, t.dst_dwords)};
  if (m.up) {
    operands.push_back(reg(kA, small_dwords));
    if (m.scaled) operands.push_back(reg(kB, 1)), t.scale = kB;
  } else if (m.two_vectors) {
    operands.insert(operands.end(), {reg(kA, 16), reg(kB, 16), reg(kC, 1)});
    t.second = kB, t.scale = kC;
  } else if (m.random) {
    operands.insert(operands.end(), {reg(kA, wide_dwords), reg(kB, 1)});
    t.random = kB;
    if (m.scaled) operands.push_back(reg(kC, 1)), t.scale = kC;
  } else if (m.wide == "f32" && m.count == 2) {
    operands.insert(operands.end(), {reg(kA, 1), reg(kB, 1)});
    t.second = kB;
    if (m.scaled) operands.push_back(reg(kC, 1)), t.scale = kC;
  } else {
    operands.push_back(reg(kA, wide_dwords));
    if (m.scaled) operands.push_back(reg(kB, 1)), t.scale = kB;
  }
  t.text = m.name;
  for (size_t i = 0; i < operands.size(); ++i)
    absl::StrAppend(&t.text, i ? ", " : " ", operands[i]);
  t.text += "\n";
  return t;
}

std::string Check(Rig& rig, Isa isa, const Meaning& m, const Text& t, const uint8_t* code,
                  size_t size, std::mt19937& random) {
  const Small f = FormatOf(m.small, isa);
  const bool fnuz = isa == Isa::kGfx942;
  uint32_t seeds[kLanes];
  double scale[kLanes];
  std::vector<uint32_t> old(4096);
  for (int lane = 0; lane < kLanes; ++lane) {
    const int e = static_cast<int>(random() % 7) - 3;
    scale[lane] = m.scaled ? std::ldexp(1.0, e) : 1;
    for (int r = 0; r < 200; ++r) {
      double x = std::ldexp((static_cast<int>(random() % 2001) - 1000) / 1000.0,
                            -static_cast<int>(random() % 9)) *
                 f.largest;
      if (random() % 7 == 0) x = Value(f, random() & ((1u << f.bits) - 1));
      if (!(std::fabs(x) <= f.largest)) x = 0;
      if (m.wide == "f16" && std::fabs(x * scale[lane]) > 60000) x = 0;
      if (m.wide == "f32")
        rig.V(r, lane) = WideBits("f32", x * scale[lane]);
      else
        rig.V(r, lane) = (WideBits(m.wide, x * scale[lane]) & 0xffff) |
                         WideBits(m.wide, -x * scale[lane] / 2) << 16;
      if (m.up && r < 40) {
        // Any codes but NaN and infinity.
        uint32_t& word = rig.V(r, lane);
        word = random() & (m.small == "fp8" ? 0xf7f7f7f7 : m.small == "bf8" ? 0xbbbbbbbb : ~0u);
        if (fnuz)
          for (int k = 0; k < 32; k += 8)
            if ((word >> k & 255) == 128) word &= ~(255u << k);
      }
    }
    // The scale's sign and mantissa do not count.
    if (t.scale >= 0)
      rig.V(t.scale, lane) = static_cast<uint32_t>(127 + e) << 23 | (random() & 0x807fffff);
    if (t.random >= 0) rig.V(t.random, lane) = random();
    seeds[lane] = t.random >= 0 ? rig.V(t.random, lane) : 0;
    for (int r = 0; r < 32; ++r) old[static_cast<size_t>(r * kLanes + lane)] = rig.V(kD + r, lane);
  }
  const uint64_t exec = 0xf0ff00ff12345678;
  rig.wave().set_exec(exec);
  const std::vector<uint32_t> in(rig.wave().v, rig.wave().v + 120 * kLanes);
  if (!rig.Step(code, size)) return rig.wave().detail;
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto word = [&](int r) { return in[static_cast<size_t>(r * kLanes + lane)]; };
    uint32_t want[32];
    for (int r = 0; r < 32; ++r) want[r] = old[static_cast<size_t>(r * kLanes + lane)];
    uint32_t seed = seeds[lane];
    for (int k = 0; k < m.count && (exec >> lane & 1); ++k) {
      if (m.up) {
        uint32_t c = 0;
        for (int b = 0; b < f.bits; ++b)
          c |= (word(kA + (k * f.bits + b) / 32) >> ((k * f.bits + b) % 32) & 1) << b;
        const uint32_t x = WideBits(m.wide, Value(f, c) * scale[lane]);
        if (m.wide == "f32")
          want[k] = x;
        else if (k % 2)
          want[k / 2] = (want[k / 2] & 0xffff) | x << 16;
        else
          want[k / 2] = (want[k / 2] & 0xffff0000) | (x & 0xffff);
        continue;
      }
      uint32_t source;
      if (m.two_vectors)
        source = word((k % 2 ? kB : kA) + k / 2);
      else if (m.wide != "f32")
        source = word(kA + k / 2) >> (16 * (k % 2)) & 0xffff;
      else if (t.second >= 0)
        source = word(k == 0 ? kA : t.second);
      else
        source = word(kA + k);
      const double x = WideValue(m.wide, source) / scale[lane];
      const bool old_zero = fnuz && f.bits == 8;
      const uint32_t c = m.random ? Stochastic(f, x, seed, old_zero) : Nearest(f, x, old_zero);
      seed = NextRandom(seed);
      for (int b = 0; b < f.bits; ++b) {
        uint32_t& w = want[(k * f.bits + b) / 32];
        const int at = (k * f.bits + b) % 32;
        w = (w & ~(1u << at)) | (c >> b & 1) << at;
      }
    }
    for (int r = 0; r < 32; ++r) {
      if (rig.V(kD + r, lane) != want[r])
        return absl::StrCat("lane ", lane, " dword ", r, " is ", absl::Hex(rig.V(kD + r, lane)),
                            ", not ", absl::Hex(want[r]), ", first source ", absl::Hex(word(kA)),
                            " scale ", scale[lane], " random ", absl::Hex(seeds[lane]));
    }
  }
  return "";
}

TEST(every_convert_of_small_formats) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    std::set<std::string> names;
    for (const OpRow& row : Rows()) {
      const absl::string_view n = row.name;
      const bool small = absl::StrContains(n, "fp8") || absl::StrContains(n, "bf8") ||
                         absl::StrContains(n, "fp6") || absl::StrContains(n, "bf6") ||
                         absl::StrContains(n, "fp4");
      if ((row.isas & static_cast<int>(isa)) && absl::StartsWith(n, "v_cvt_") && small)
        names.insert(row.name);
    }
    std::vector<std::pair<Meaning, Text>> list;
    std::string source, error;
    for (const std::string& name : names) {
      list.emplace_back(Parse(name), TextOf(Parse(name)));
      source += list.back().second.text;
    }
    const std::vector<uint8_t> code = Assemble(isa, source, &error);
    CHECK_EQ(error, "");
    int wrong = 0;
    for (LaneCode lanes : LaneCodes()) {
      Rig rig(isa, lanes);
      std::mt19937 random(23);
      size_t at = 0;
      for (const auto& [meaning, text] : list) {
        Inst inst;
        CHECK(Decode(isa, absl::MakeConstSpan(code).subspan(at), &inst));
        for (int round = 0; round < 4; ++round) {
          const std::string what =
              Check(rig, isa, meaning, text, code.data() + at, inst.size, random);
          if (what.empty()) continue;
          if (++wrong < 12)
            std::cout << "# " << CpuName(isa) << " " << meaning.name << ": " << what << "\n";
          break;
        }
        at += inst.size;
      }
    }
    std::cout << "# " << CpuName(isa) << ": " << list.size() << " converts\n";
    CHECK_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace mainarch::sim::isa::test
