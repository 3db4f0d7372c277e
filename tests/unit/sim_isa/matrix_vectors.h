// SPDX-License-Identifier: MIT
//
// What the tests of matrix instructions share: number formats, instructions by their names, and
// where an element lies, written down a second time from the matrix instruction calculator's
// tables.
#ifndef MAINARCH_TESTS_UNIT_SIM_ISA_MATRIX_VECTORS_H_
#define MAINARCH_TESTS_UNIT_SIM_ISA_MATRIX_VECTORS_H_

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {

// --- number formats ------------------------------------------------------------------------------

struct Small {
  int bits, exponent_bits, mantissa_bits, bias;
  enum { kIeee, kOcpFp8, kFnuz, kFinite } kind;
};
inline const Small kF16 = {16, 5, 10, 15, Small::kIeee}, kBf16 = {16, 8, 7, 127, Small::kIeee},
                   kXf32 = {32, 8, 23, 127, Small::kIeee}, kF32 = kXf32,
                   kFp8 = {8, 4, 3, 7, Small::kOcpFp8}, kBf8 = {8, 5, 2, 15, Small::kIeee},
                   kFp8Fnuz = {8, 4, 3, 8, Small::kFnuz}, kBf8Fnuz = {8, 5, 2, 16, Small::kFnuz},
                   kFp6 = {6, 2, 3, 1, Small::kFinite}, kBf6 = {6, 3, 2, 3, Small::kFinite},
                   kFp4 = {4, 2, 1, 1, Small::kFinite};

inline double Value(const Small& f, uint32_t code) {
  const int m = static_cast<int>(code & ((1u << f.mantissa_bits) - 1));
  const int e = static_cast<int>(code >> f.mantissa_bits & ((1u << f.exponent_bits) - 1));
  const double sign = code >> (f.bits - 1) & 1 ? -1 : 1;
  const int top = (1 << f.exponent_bits) - 1;
  if (f.kind == Small::kFnuz && code == 1u << (f.bits - 1)) return NAN;
  if (f.kind == Small::kIeee && e == top) return m != 0 ? NAN : sign * INFINITY;
  if (f.kind == Small::kOcpFp8 && e == top && m == (1 << f.mantissa_bits) - 1) return NAN;
  if (e == 0) return sign * std::ldexp(m, 1 - f.bias - f.mantissa_bits);
  return sign * std::ldexp(m + (1 << f.mantissa_bits), e - f.bias - f.mantissa_bits);
}
// The code of a value that the format holds exactly.
inline uint32_t CodeOf(const Small& f, double value) {
  if (f.bits == 32) {
    const float x = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
  }
  // All codes by value, once a format.
  static std::map<std::tuple<int, int, int>, std::unordered_map<double, uint32_t>> tables;
  auto& table = tables[{f.bits, f.exponent_bits, f.bias}];
  if (table.empty()) {
    for (uint32_t code = 1u << f.bits; code-- > 0;) {
      const double x = Value(f, code);
      if (x == x) table[x == 0 ? 0.0 : x] = x == 0 ? 0 : code;
    }
  }
  const auto found = table.find(value);
  if (found != table.end()) return found->second;
  return 0;
}

// --- an instruction ------------------------------------------------------------------------------

enum class Type { kFloat, kDouble, kInt };
struct Instruction {
  const OpRow* row = nullptr;
  Type type = Type::kFloat;
  int m = 0, k = 0, blocks = 1;
  bool sparse = false, mx = false;
  const Small *a = nullptr, *b = nullptr;  // null: i8 or f64
  int bits = 0;                            // of an element of A
  int width[4] = {};                       // registers of d a b c
};

inline const Small* FormatOf(const std::string& text, Isa isa) {
  const bool fnuz = isa == Isa::kGfx942;
  if (text == "f16") return &kF16;
  if (text == "bf16") return &kBf16;
  if (text == "f32") return &kF32;
  if (text == "xf32") return &kXf32;
  if (text == "fp8") return fnuz ? &kFp8Fnuz : &kFp8;
  if (text == "bf8") return fnuz ? &kBf8Fnuz : &kBf8;
  return nullptr;
}

// v_mfma_f32_32x32x4_2b_bf16, v_smfmac_f32_16x16x64_bf8_fp8, ...
inline Instruction Parse(const OpRow& row, Isa isa) {
  Instruction in;
  in.row = &row;
  const std::vector<std::string> parts = absl::StrSplit(row.name, '_');
  in.sparse = parts[1] == "smfmac";
  in.type = parts[2] == "i32" ? Type::kInt : parts[2] == "f64" ? Type::kDouble : Type::kFloat;
  int n;
  std::sscanf(parts[3].c_str(), "%dx%dx%d", &in.m, &n, &in.k);
  size_t at = 4;
  if (parts[at].back() == 'b' && std::isdigit(parts[at][0])) in.blocks = std::stoi(parts[at++]);
  in.mx = parts[at] == "f8f6f4";
  in.a = FormatOf(parts[at], isa);
  in.b = FormatOf(parts.back(), isa);
  in.bits = in.type == Type::kDouble ? 64
            : in.type == Type::kInt  ? 8
            : in.a != nullptr        ? in.a->bits
                                     : 8;
  for (const std::string& operand : std::vector<std::string>(absl::StrSplit(row.operands, ' '))) {
    const int index = operand[0] == 'd' ? 0 : operand[0] - 'a' + 1;
    in.width[index] = std::stoi(operand.substr(2));
  }
  return in;
}

inline constexpr int kRegister[4] = {128, 0, 32, 64};  // of d a b c

inline std::string Text(const Instruction& in, int cbsz, int blgp, bool scaled) {
  const auto reg = [&in](int i, int width) {
    return width == 1 ? absl::StrCat("v", kRegister[i])
                      : absl::StrCat("v[", kRegister[i], ":", kRegister[i] + width - 1, "]");
  };
  const auto mx_width = [](int format) { return format < 2 ? 8 : format < 4 ? 6 : 4; };
  std::string name = in.row->name;
  std::string text =
      absl::StrCat(reg(0, in.width[0]), ", ", reg(1, in.mx ? mx_width(cbsz) : in.width[1]), ", ",
                   reg(2, in.mx ? mx_width(blgp) : in.width[2]), ", ", reg(3, in.width[3]));
  if (scaled) {
    name.insert(6, "_scale");
    absl::StrAppend(&text, ", v200, v201 op_sel:[1,0] op_sel_hi:[0,1]");
  }
  if (in.mx) absl::StrAppend(&text, " cbsz:", cbsz, " blgp:", blgp);
  return absl::StrCat(name, " ", text, "\n");
}

// --- where elements lie --------------------------------------------------------------------------

struct Place {
  int lane, element;
};
// Element (i, k) of block `block` of A (or, the same, of B's column i); `count` is how many k there
// are, `run` how many lie together where a lane's values come in two runs.
inline Place SourcePlace(int m, int count, int blocks, int block, int i, int k, bool two_runs) {
  const int groups = 64 / (m * blocks), per_lane = count / groups;
  int g = k / per_lane, v = k % per_lane;
  if (two_runs) {
    // Two runs of 16: all lanes' first, then all lanes' second.
    const int half = k / (16 * groups);
    g = k % (16 * groups) / 16;
    v = 16 * half + k % 16;
  }
  return {i + m * (block + blocks * g), v};
}
struct Result {
  int lane, reg;
};
inline Result ResultPlace(int m, bool is_double, int block, int row, int column) {
  if (m == 32) return {column + 32 * (row / 4 % 2), 16 * block + 4 * (row / 8) + row % 4};
  if (m == 16 && is_double) return {column + 16 * (row % 4), row / 4};
  if (m == 16) return {column + 16 * (row / 4), 4 * block + row % 4};
  if (is_double) return {column + 4 * block + 16 * row, 0};
  return {column + 4 * block, row};
}

inline void PutElement(Rig& rig, int first, Place p, int bits, uint64_t code) {
  if (bits == 64) {
    rig.V(first + 2 * p.element, p.lane) = static_cast<uint32_t>(code);
    rig.V(first + 2 * p.element + 1, p.lane) = static_cast<uint32_t>(code >> 32);
    return;
  }
  for (int b = 0; b < bits; ++b) {
    const int at = p.element * bits + b;
    uint32_t& word = rig.V(first + at / 32, p.lane);
    word = (word & ~(1u << (at % 32))) | static_cast<uint32_t>(code >> b & 1) << (at % 32);
  }
}

// Of CBSZ and BLGP.
inline const Small& MxFormat(int format) {
  static constexpr const Small* kFormats[] = {&kFp8, &kBf8, &kFp6, &kBf6, &kFp4};
  return *kFormats[format];
}

// Every matrix instruction of an ISA.
inline std::vector<Instruction> MatrixInstructions(Isa isa) {
  std::vector<Instruction> list;
  for (const OpRow& row : Rows()) {
    const std::string name = row.name;
    if (!(row.isas & static_cast<int>(isa)) || row.family != Family::kVop3p) continue;
    if (name.substr(0, 6) != "v_mfma" && name.substr(0, 8) != "v_smfmac") continue;
    list.push_back(Parse(row, isa));
  }
  return list;
}

}  // namespace mainarch::sim::isa::test

#endif  // MAINARCH_TESTS_UNIT_SIM_ISA_MATRIX_VECTORS_H_
