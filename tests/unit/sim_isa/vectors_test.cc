// SPDX-License-Identifier: MIT
//
// Every listed mnemonic, edge values and random ones, against the independent expectations of
// vectors.cc, for both kinds of lane code; and all comparisons, made by rule.
#include "unit/sim_isa/vectors.h"

#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <random>

#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {
namespace {

using Random = std::mt19937_64;

uint64_t Draw(Kind kind, int dwords, Random& random) {
  static constexpr uint32_t kF32[] = {0,          0x80000000, 0x3f800000, 0xbf800000,
                                      0x7f800000, 0xff800000, 0x7fc00000, 0x00000001,
                                      0x807fffff, 0x00800000, 0x7f7fffff, 0x3f000000,
                                      0x4b800000, 0xcf000000, 0x4f000000, 0x3effffff};
  static constexpr uint16_t kF16[] = {0,      0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00,
                                      0x7e00, 1,      0x83ff, 0x400,  0x7bff};
  static constexpr uint64_t kInts[] = {0,
                                       1,
                                       2,
                                       31,
                                       32,
                                       63,
                                       0x7fffffff,
                                       0x80000000,
                                       0xffffffff,
                                       0x8000,
                                       0x7fff,
                                       0xffff,
                                       0x7fffff,
                                       0x800000,
                                       0x7fffffffffffffff,
                                       0x8000000000000000,
                                       ~0ull};
  const uint64_t r = random(), pick = random();
  const bool edge = r % 3 == 0;
  switch (kind) {
    case Kind::kF32: {
      if (edge) return kF32[pick % std::size(kF32)];
      const float x =
          static_cast<float>((pick % 2 ? 1.0 : -1.0) * std::ldexp(1.0 + (pick >> 12) * 0x1p-52,
                                                                  static_cast<int>(r >> 8) % 40));
      return __builtin_bit_cast(
          uint32_t,
          r % 5 == 0 ? __builtin_bit_cast(float, static_cast<uint32_t>(pick) & 0xff7fffff) : x);
    }
    case Kind::kF64: {
      if (edge)
        return __builtin_bit_cast(
            uint64_t, static_cast<double>(__builtin_bit_cast(float, kF32[pick % std::size(kF32)])));
      return __builtin_bit_cast(
          uint64_t, (pick % 2 ? 1.0 : -1.0) *
                        std::ldexp(1.0 + (pick >> 12) * 0x1p-52, static_cast<int>(r >> 8) % 200));
    }
    case Kind::kF16:
      return edge ? kF16[pick % std::size(kF16)] : pick & 0xffff;
    case Kind::kF16Pair:
      return (edge ? kF16[pick % std::size(kF16)] : pick & 0xffff) |
             (r % 7 ? pick >> 16 & 0xffff : uint64_t{kF16[(pick >> 16) % std::size(kF16)]}) << 16;
    case Kind::kBf16Pair:
      return (0x3f80 + pick % 256) | (0xbf00 + (pick >> 8) % 256) << 16;
    case Kind::kInt:
      break;
  }
  const uint64_t x = edge ? kInts[pick % std::size(kInts)] : pick >> (r >> 8 & 31);
  return dwords == 2 ? x : x & 0xffffffff;
}

bool SameF32(uint64_t got, uint64_t want, double tolerance) {
  const float x = __builtin_bit_cast(float, static_cast<uint32_t>(got)),
              y = __builtin_bit_cast(float, static_cast<uint32_t>(want));
  if (x != x || y != y) return x != x && y != y;
  if (tolerance == 0 || std::isinf(y) || y == 0)
    return tolerance == 0 ? static_cast<uint32_t>(got) == static_cast<uint32_t>(want)
                          : std::fabs(x - y) <= tolerance || x == y;
  return std::fabs(static_cast<double>(x) - y) <=
         tolerance * std::max<double>(std::fabs(y), tolerance > 5e-7 ? 1 : 0);
}
bool SameHalf(uint64_t got, uint64_t want, uint16_t infinity) {
  const bool nan_got = (got & 0x7fff) > infinity, nan_want = (want & 0x7fff) > infinity;
  return nan_got || nan_want ? nan_got == nan_want : (got & 0xffff) == (want & 0xffff);
}

bool NearHalf(uint64_t got, uint64_t want, double tolerance) {
  const auto value = [](uint64_t x) {
    return static_cast<double>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(x)));
  };
  return std::fabs(value(got) - value(want)) <= tolerance * std::fabs(value(want));
}

bool Same(Kind kind, uint64_t got, uint64_t want, double tolerance) {
  switch (kind) {
    case Kind::kInt:
      return got == want;
    case Kind::kF32:
      return SameF32(got, want, tolerance);
    case Kind::kF64: {
      const double x = __builtin_bit_cast(double, got), y = __builtin_bit_cast(double, want);
      if (x != x || y != y) return x != x && y != y;
      return tolerance == 0 || std::isinf(y) ? got == want
                                             : std::fabs(x - y) <= tolerance * std::fabs(y);
    }
    case Kind::kF16:
      return got >> 16 == 0 && (SameHalf(got, want, 0x7c00) || NearHalf(got, want, tolerance));
    case Kind::kF16Pair:
      return SameHalf(got, want, 0x7c00) && SameHalf(got >> 16, want >> 16, 0x7c00);
    case Kind::kBf16Pair:
      return SameHalf(got, want, 0x7f80) && SameHalf(got >> 16, want >> 16, 0x7f80);
  }
  return false;
}

// The row that a test of this mnemonic uses: VOP3 before the short forms, because it takes
// registers everywhere.
const OpRow* RowOf(Isa isa, const std::string& name) {
  const OpRow* best = nullptr;
  for (const OpRow& row : Rows()) {
    if (name != row.name || !(row.isas & static_cast<int>(isa))) continue;
    if (best == nullptr || row.family == Family::kVop3) best = &row;
  }
  return best;
}

struct Shape {
  std::string text;
  int width[4] = {};  // a b c d, dwords
};

// d v[40:], a v[0:], b v[8:], c v[16:]
Shape ShapeOf(const OpRow& row) {
  Shape shape;
  std::string operands = row.operands, list;
  for (size_t at = 0; at < operands.size();) {
    size_t end = operands.find(' ', at);
    if (end == std::string::npos) end = operands.size();
    const char field = operands[at];
    const int width = std::stoi(operands.substr(at + 2, end - at - 2));
    const int index = field == 'a' ? 0 : field == 'b' ? 1 : field == 'c' ? 2 : 3;
    const int reg = index == 3 ? 40 : index * 8;
    shape.width[index] = width;
    const std::string name =
        width == 1 ? "v" + std::to_string(reg)
                   : "v[" + std::to_string(reg) + ":" + std::to_string(reg + width - 1) + "]";
    list += (list.empty() ? " " : ", ") + name;
    at = end + 1;
  }
  const char* suffix = !(row.flags & kRowSuffix)     ? ""
                       : row.family == Family::kVop3 ? "_e64"
                                                     : "_e32";
  shape.text = std::string(row.name) + suffix + list + "\n";
  return shape;
}

uint64_t Read(Rig& rig, int reg, int lane, int dwords) {
  return rig.V(reg, lane) | (dwords == 2 ? uint64_t{rig.V(reg + 1, lane)} << 32 : 0);
}
void Write(Rig& rig, int reg, int lane, int dwords, uint64_t x) {
  rig.V(reg, lane) = static_cast<uint32_t>(x);
  if (dwords == 2) rig.V(reg + 1, lane) = static_cast<uint32_t>(x >> 32);
}

// Runs one vector on 64 random lanes, half of them inactive in odd rounds. "" when all agree.
std::string RunVector(Rig& rig, const Vector& v, const Shape& shape, const uint8_t* code,
                      size_t size, Random& random, int round) {
  uint64_t in[4][kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int k = 0; k < 4; ++k) {
      const bool int_operand =
          k == 1 && (v.name.find("ldexp") != std::string::npos || v.name == "v_trig_preop_f64");
      in[k][lane] = Draw(k == 3        ? v.out
                         : int_operand ? Kind::kInt
                                       : v.in,
                         std::max(shape.width[k], 1), random);
      if (v.name == "v_trig_preop_f64" && k == 0 && lane % 2 != 0) in[k][lane] = random();
      if (int_operand)
        in[k][lane] = static_cast<uint32_t>(static_cast<int>(in[k][lane] % 400) - 200);
      Write(rig, k == 3 ? 40 : k * 8, lane, std::max(shape.width[k], 1), in[k][lane]);
    }
  }
  const uint64_t exec = round % 2 ? 0x5a5af00f12345678 : ~uint64_t{0};
  rig.wave().set_exec(exec);
  if (!rig.Step(code, size)) return v.name + ": " + rig.wave().detail;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t got = Read(rig, 40, lane, shape.width[3]);
    if (!(exec >> lane & 1)) {
      if (got != in[3][lane]) return v.name + ": an inactive lane was written";
      continue;
    }
    const uint64_t want = v.expect(in[0][lane], in[1][lane], in[2][lane], in[3][lane]);
    if (want == kAnything || Same(v.out, got, want, v.tolerance)) continue;
    char text[200];
    snprintf(text, sizeof text, "%s(%llx, %llx, %llx, old %llx) = %llx, not %llx", v.name.c_str(),
             (unsigned long long)in[0][lane], (unsigned long long)in[1][lane],
             (unsigned long long)in[2][lane], (unsigned long long)in[3][lane],
             (unsigned long long)want, (unsigned long long)got);
    return text;
  }
  return "";
}

void RunAll(mainarch::test::Context& test_context, const std::vector<Vector>& vectors) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  int wrong = 0;
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    std::string source;
    std::vector<std::pair<const Vector*, Shape>> list;
    for (const Vector& v : vectors) {
      const OpRow* row = RowOf(isa, v.name);
      if (row == nullptr) continue;  // gfx950 only
      list.emplace_back(&v, ShapeOf(*row));
      source += list.back().second.text;
    }
    std::string error;
    const std::vector<uint8_t> code = Assemble(isa, source, &error);
    CHECK_EQ(error, "");
    for (LaneCode lanes : LaneCodes()) {
      Rig rig(isa, lanes);
      Random random(7);
      size_t at = 0;
      for (const auto& [v, shape] : list) {
        Inst inst;
        CHECK(Decode(isa, absl::MakeConstSpan(code).subspan(at), &inst));
        for (int round = 0; round < 8; ++round) {
          const std::string what =
              RunVector(rig, *v, shape, code.data() + at, inst.size, random, round);
          if (what.empty()) continue;
          std::cout << "# " << CpuName(isa) << " " << what << "\n";
          ++wrong;
          break;
        }
        at += inst.size;
      }
    }
    std::cout << "# " << CpuName(isa) << ": " << list.size() << " mnemonics\n";
  }
  CHECK_EQ(wrong, 0);
}

TEST(integer_vectors) { RunAll(test_context, IntegerVectors()); }
TEST(float_vectors) { RunAll(test_context, FloatVectors()); }
TEST(conversion_vectors) { RunAll(test_context, ConversionVectors()); }

TEST(more_vectors) { RunAll(test_context, MoreVectors()); }
TEST(rare_vectors) { RunAll(test_context, RareVectors()); }

TEST(scalar_vectors) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  const std::vector<ScalarVector> vectors = ScalarVectors();
  std::string source, error;
  const auto reg = [](int at, int width) {
    return width == 1 ? "s" + std::to_string(at)
                      : "s[" + std::to_string(at) + ":" + std::to_string(at + 1) + "]";
  };
  for (const ScalarVector& v : vectors) {
    std::string list;
    if (v.width_d) list += " " + reg(20, v.width_d) + ",";
    list += " " + reg(4, v.width_a);
    if (v.width_b) list += ", " + reg(8, v.width_b);
    source += v.name + list + "\n";
  }
  const std::vector<uint8_t> code = Assemble(Isa::kGfx950, source, &error);
  CHECK_EQ(error, "");
  Rig rig(Isa::kGfx950);
  Random random(8);
  int wrong = 0;
  size_t at = 0;
  for (const ScalarVector& v : vectors) {
    for (int round = 0; round < 64; ++round) {
      const uint64_t a = Draw(Kind::kInt, v.width_a, random);
      uint64_t b = Draw(Kind::kInt, std::max(v.width_b, 1), random);
      if (v.name.find("bfe") != std::string::npos) b = (b & 63) | (random() % 70) << 16;
      const bool scc = random() & 1;
      rig.wave().SetPair(4, a);
      rig.wave().SetPair(8, b);
      rig.wave().scc = scc;
      CHECK(rig.Step(code.data() + at, 4));
      const ScalarVector::Out want = v.expect(a, b, scc);
      const uint64_t got = v.width_d == 2 ? rig.wave().Pair(20) : rig.S(20);
      const bool scc_want = want.scc == 2 ? scc : want.scc != 0;
      if ((v.width_d != 0 && got != want.value) || rig.wave().scc != scc_want) {
        std::cout << "# " << v.name << std::hex << " " << a << " " << b << " scc " << scc << ": "
                  << got << " scc " << rig.wave().scc << ", not " << want.value << " scc "
                  << scc_want << std::dec << "\n";
        ++wrong;
        break;
      }
    }
    at += 4;
  }
  std::cout << "# " << vectors.size() << " scalar mnemonics\n";
  CHECK_EQ(wrong, 0);
}

// v_cmp and v_cmpx of every relation and type: the expectation is the relation's name.
TEST(comparison_vectors) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  static const std::map<std::string, int> kRelations = {
      // bits: less, equal, greater, unordered
      {"f", 0},    {"lt", 1},   {"eq", 2},   {"le", 3},   {"gt", 4},   {"lg", 5},
      {"ne", 5},   {"ge", 6},   {"o", 7},    {"u", 8},    {"nge", 9},  {"nlg", 10},
      {"ngt", 11}, {"nle", 12}, {"neq", 13}, {"nlt", 14}, {"tru", 15}, {"t", 15}};
  Random random(9);
  int wrong = 0, count = 0;
  for (const OpRow& row : Rows()) {
    const std::string name = row.name;
    if (row.family != Family::kVopc || name.find("class") != std::string::npos) continue;
    const size_t first = name.find('_', 2) + 1, last = name.rfind('_');
    const int relation = kRelations.at(name.substr(first, last - first));
    const std::string type = name.substr(last + 1);
    const int bits = std::stoi(type.substr(1)), dwords = bits == 64 ? 2 : 1;
    const Kind kind = type[0] != 'f' ? Kind::kInt
                      : bits == 64   ? Kind::kF64
                      : bits == 32   ? Kind::kF32
                                     : Kind::kF16;
    const std::string v0 = dwords == 2 ? "v[0:1]" : "v0", v8 = dwords == 2 ? "v[8:9]" : "v8";
    std::string error;
    // VOPC's encoding, by hand: src0 = v0, vsrc1 = v8.
    const uint32_t word = 0x3eu << 25 | uint32_t{row.op} << 17 | 8 << 9 | 256;
    uint8_t code[4];
    std::memcpy(code, &word, 4);
    for (LaneCode lanes : LaneCodes()) {
      Rig rig(Isa::kGfx950, lanes);
      for (int round = 0; round < 8; ++round) {
        uint64_t a[kLanes], b[kLanes], want = 0;
        for (int lane = 0; lane < kLanes; ++lane) {
          a[lane] = Draw(kind, dwords, random);
          b[lane] = random() % 3 == 0 ? a[lane] : Draw(kind, dwords, random);
          Write(rig, 0, lane, dwords, a[lane]);
          Write(rig, 8, lane, dwords, b[lane]);
          int order;
          if (kind == Kind::kInt) {
            const __int128 mask = (static_cast<__int128>(1) << bits) - 1;
            __int128 x = a[lane] & mask, y = b[lane] & mask;
            if (type[0] == 'i') {
              if (x >> (bits - 1) & 1) x -= static_cast<__int128>(1) << bits;
              if (y >> (bits - 1) & 1) y -= static_cast<__int128>(1) << bits;
            }
            order = x < y ? 1 : x == y ? 2 : 4;
          } else {
            const auto value = [&](uint64_t x) -> double {
              if (bits == 64) return __builtin_bit_cast(double, x);
              if (bits == 32) return __builtin_bit_cast(float, static_cast<uint32_t>(x));
              return static_cast<double>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(x)));
            };
            const double x = value(a[lane]), y = value(b[lane]);
            order = x < y ? 1 : x == y ? 2 : x > y ? 4 : 8;
          }
          want |= uint64_t{(relation & order) != 0} << lane;
        }
        const uint64_t exec = round % 2 ? 0xff00ff00a5a5ffff : ~uint64_t{0};
        rig.wave().set_exec(exec);
        want &= exec;
        CHECK(rig.Step(code, 4));
        const bool x_form = name.substr(0, 6) == "v_cmpx";
        if (rig.wave().vcc() != want || rig.wave().exec() != (x_form ? want : exec)) {
          std::cout << "# " << name << " is wrong\n";
          ++wrong;
          break;
        }
      }
    }
    ++count;
  }
  std::cout << "# " << count << " comparisons\n";
  CHECK_EQ(wrong, 0);
}

}  // namespace
}  // namespace mainarch::sim::isa::test
