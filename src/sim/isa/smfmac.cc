// SPDX-License-Identifier: MIT
//
// Sparse matrix multiply-accumulate: D += A * B where of each four consecutive k of A two are
// there.
//
// Layout, as for MFMA, with compressed k: lane l holds row l % M of A, and of its compressed values
// the V from V * (l / M) on; column l % N of B, and of its k the 2 V from 2 V * (l / M) on. The
// index register says for each of the lane's V values which of the four k it stands for, two bits
// each. An instruction that needs fewer than 32 bits of it takes the part that ABID selects when
// CBSZ is 0, and the first part otherwise. (CDNA3: 8 bits for 16-bit sources, 16 for 8-bit ones.
// The doubled K of gfx950 doubles both; its layout of B is taken to be contiguous: assumed.)
//
// Fast mode: one FMA a product, k ascending. EXEC and MODE are ignored.
#include <cmath>
#include <utility>

#include "sim/isa/descriptors.h"
#include "sim/isa/lanes.h"
#include "sim/isa/matrix_exact.h"
#include "sim/isa/minifloat.h"

namespace mainarch::sim::isa {
namespace {

enum class Kind { kF16, kBf16, kI8, kFp8, kBf8 };
constexpr int BitsOf(Kind kind) { return kind == Kind::kF16 || kind == Kind::kBf16 ? 16 : 8; }

float ValueOf(Kind kind, Isa isa, uint32_t bits) {
  switch (kind) {
    case Kind::kF16:
      return HalfToFloat(static_cast<uint16_t>(bits));
    case Kind::kBf16:
      return Bf16ToFloat(static_cast<uint16_t>(bits));
    case Kind::kI8:
      return static_cast<float>(static_cast<int8_t>(bits));
    case Kind::kFp8:
      return TableOf(Fp8Of(isa))[bits & 255];
    case Kind::kBf8:
      return TableOf(Bf8Of(isa))[bits & 255];
  }
  return 0;
}

ExactFormat FormatOf(Kind kind, Isa isa) {
  const bool fnuz = isa == Isa::kGfx942;
  return kind == Kind::kF16    ? kExactF16
         : kind == Kind::kBf16 ? kExactBf16
         : kind == Kind::kFp8  ? (fnuz ? kExactFp8Fnuz : kExactFp8)
                               : (fnuz ? kExactBf8Fnuz : kExactBf8);
}

uint32_t Element(const uint32_t* rows, int lane, int k, int bits) {
  const int at = k * bits;
  return rows[at / 32 * kLanes + lane] >> (at % 32) & ((1u << bits) - 1);
}

int OutputRow(int m, int reg, int lane) {
  return m == 32 ? 8 * (reg / 4) + 4 * (lane / 32) + reg % 4 : 4 * (lane / 16) + reg;
}

template <Kind kA, Kind kB, int kM, int kK>
void Smfmac(Wave& w, const Op& op) {
  constexpr int kN = kM, kGroups = kLanes / kM, kCount = kK / 2, kV = kCount / kGroups;
  constexpr int kBits = BitsOf(kA), kIndexBits = 2 * kV, kRegs = kM * kN / kLanes;
  const Inst& inst = op.inst;
  const Isa isa = w.group->isa;
  const int part = kIndexBits == 32 || inst.cbsz != 0 ? 0 : inst.abid % (32 / kIndexBits);
  float a[kM][kCount], b[kK][kN];
  int k_of[kM][kCount];
  const uint32_t* index = w.v + op.c.offset;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int row = lane % kM, g = lane / kM;
    for (int v = 0; v < kV; ++v) {
      const int c = g * kV + v;
      a[row][c] = ValueOf(kA, isa, Element(w.v + op.a.offset, lane, v, kBits));
      k_of[row][c] =
          c / 2 * 4 + static_cast<int>(index[lane] >> (part * kIndexBits % 32 + 2 * v) & 3);
    }
    for (int v = 0; v < 2 * kV; ++v) {
      b[g * 2 * kV + v][row] = ValueOf(kB, isa, Element(w.v + op.b.offset, lane, v, kBits));
    }
  }
  uint32_t* d = w.v + op.d.offset;
  const ExactRule rule = {FormatOf(kA, isa), FormatOf(kB, isa), kBits == 16 ? 8 : 16, kBits == 8};
  for (int reg = 0; reg < kRegs; ++reg) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int m = OutputRow(kM, reg, lane), n = lane % kN;
      uint32_t& out = d[reg * kLanes + lane];
      if constexpr (kA == Kind::kI8) {
        for (int c = 0; c < kCount; ++c) {
          out +=
              static_cast<uint32_t>(static_cast<int>(a[m][c]) * static_cast<int>(b[k_of[m][c]][n]));
        }
        continue;
      }
      float column[kCount], sum = __builtin_bit_cast(float, out);
      for (int c = 0; c < kCount; ++c) column[c] = b[k_of[m][c]][n];
      if (w.group->exact_matrix) {
        sum = ExactDot(rule, a[m], 1, column, 1, kCount, sum);
      } else {
        for (int c = 0; c < kCount; ++c) sum = std::fma(a[m][c], column[c], sum);
      }
      out = __builtin_bit_cast(uint32_t, sum);
    }
  }
}

template <Kind kA, Kind kB, int kM, int kK>
constexpr Descriptor S(const char* name, Origin origin = Origin::kPaper) {
  return {name,
          &Smfmac<kA, kB, kM, kK>,
          {Type::kB32, Type::kB32, Type::kB32, kA == Kind::kI8 ? Type::kB32 : Type::kF32},
          origin,
          kReadsDst};
}
constexpr Origin kGuess = Origin::kAssumed;
#define EIGHT(text, m, k, origin)                                               \
  S<Kind::kFp8, Kind::kFp8, m, k>("v_smfmac_f32_" text "_fp8_fp8", origin),     \
      S<Kind::kFp8, Kind::kBf8, m, k>("v_smfmac_f32_" text "_fp8_bf8", origin), \
      S<Kind::kBf8, Kind::kFp8, m, k>("v_smfmac_f32_" text "_bf8_fp8", origin), \
      S<Kind::kBf8, Kind::kBf8, m, k>("v_smfmac_f32_" text "_bf8_bf8", origin)
constexpr Descriptor kTable[] = {
    S<Kind::kF16, Kind::kF16, 16, 32>("v_smfmac_f32_16x16x32_f16"),
    S<Kind::kF16, Kind::kF16, 32, 16>("v_smfmac_f32_32x32x16_f16"),
    S<Kind::kBf16, Kind::kBf16, 16, 32>("v_smfmac_f32_16x16x32_bf16"),
    S<Kind::kBf16, Kind::kBf16, 32, 16>("v_smfmac_f32_32x32x16_bf16"),
    S<Kind::kI8, Kind::kI8, 16, 64>("v_smfmac_i32_16x16x64_i8"),
    S<Kind::kI8, Kind::kI8, 32, 32>("v_smfmac_i32_32x32x32_i8"),
    EIGHT("16x16x64", 16, 64, Origin::kPaper),
    EIGHT("32x32x32", 32, 32, Origin::kPaper),
    S<Kind::kF16, Kind::kF16, 16, 64>("v_smfmac_f32_16x16x64_f16", kGuess),
    S<Kind::kF16, Kind::kF16, 32, 32>("v_smfmac_f32_32x32x32_f16", kGuess),
    S<Kind::kBf16, Kind::kBf16, 16, 64>("v_smfmac_f32_16x16x64_bf16", kGuess),
    S<Kind::kBf16, Kind::kBf16, 32, 32>("v_smfmac_f32_32x32x32_bf16", kGuess),
    S<Kind::kI8, Kind::kI8, 16, 128>("v_smfmac_i32_16x16x128_i8", kGuess),
    S<Kind::kI8, Kind::kI8, 32, 64>("v_smfmac_i32_32x32x64_i8", kGuess),
    EIGHT("16x16x128", 16, 128, kGuess),
    EIGHT("32x32x64", 32, 64, kGuess),
};
#undef EIGHT

}  // namespace

void AddSmfmac(DescriptorMap* map) { AddAll(kTable, map); }

}  // namespace mainarch::sim::isa
