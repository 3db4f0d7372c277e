// SPDX-License-Identifier: MIT
#include "sim/isa/lanes.h"

#include <algorithm>

#include "base/cpu_features.h"
#include "sim/isa/minifloat.h"

namespace mainarch::sim::isa {
namespace {

void Fetch(const Wave& w, const Ref& r, int dwords, uint32_t* rows) {
  if (r.kind == Ref::kVector || r.kind == Ref::kConstant) {
    const uint32_t* from = r.kind == Ref::kVector ? w.v + r.offset : r.row;
    std::memcpy(rows, from, sizeof(uint32_t) * kLanes * dwords);
    return;
  }
  const uint64_t value = dwords == 2 ? w.ReadScalar64(r) : w.ReadScalar(r);
  for (int k = 0; k < dwords; ++k) {
    std::fill(rows + k * kLanes, rows + (k + 1) * kLanes, static_cast<uint32_t>(value >> 32 * k));
  }
}

int Dwords(Type type) {
  return type == Type::kB64 || type == Type::kF64 || type == Type::kPkF32 ? 2 : 1;
}

// SDWA source select, with sign extension: a byte (0 to 3), a word (4, 5) or all of it.
void Select(int sel, bool sext, uint32_t* rows) {
  if (sel > 5) return;
  const int bits = sel < 4 ? 8 : 16, shift = sel < 4 ? 8 * sel : 16 * (sel - 4);
  const int left = 32 - bits - shift, right = 32 - bits;
  if (sext) {
    for (int i = 0; i < kLanes; ++i) {
      rows[i] = static_cast<uint32_t>(static_cast<int32_t>(rows[i] << left) >> right);
    }
  } else {
    for (int i = 0; i < kLanes; ++i) rows[i] = rows[i] << left >> right;
  }
}

void NegateAbs(Type type, bool abs, bool neg, uint32_t* rows) {
  uint32_t* row = rows;
  uint32_t sign = 0x80000000;
  if (type == Type::kF64)
    row = rows + kLanes;
  else if (type == Type::kF16 || type == Type::kBf16 || type == Type::kB16)
    sign = 0x8000;
  for (int i = 0; i < kLanes; ++i) {
    if (abs) row[i] &= ~sign;
    if (neg) row[i] ^= sign;
  }
}

bool IsHalf(Type type) { return type == Type::kF16 || type == Type::kB16 || type == Type::kBf16; }

void Dpp(const Wave& w, const Op& op, int dwords, uint32_t* rows, uint64_t* mask) {
  const uint64_t exec = w.exec();
  uint32_t old[2 * kLanes];
  std::memcpy(old, rows, sizeof(uint32_t) * kLanes * dwords);
  uint64_t write = exec;
  for (int i = 0; i < kLanes; ++i) {
    const bool gated =
        !(op.inst.row_mask >> (i / 16) & 1) || !(op.inst.bank_mask >> (i / 4 % 4) & 1);
    if (gated) write &= ~(uint64_t{1} << i);
    const int from = DppSource(op.inst.dpp_ctrl, i);
    const bool usable = from >= 0 && (exec >> from & 1);
    if (!usable && !op.inst.bound_ctrl) write &= ~(uint64_t{1} << i);
    for (int k = 0; k < dwords; ++k) {
      rows[k * kLanes + i] = usable ? old[k * kLanes + from] : 0;
    }
  }
  *mask &= write;
}

template <class T>
T Scale(T value, int omod) {
  return omod == 1 ? value * 2 : omod == 2 ? value * 4 : omod == 3 ? value / 2 : value;
}
template <class T>
T Clamp01(T value) {
  // DX10_CLAMP: NaN becomes 0.
  return !(value > 0) ? T(0) : value > 1 ? T(1) : value;
}

template <class T>
T Modify(T value, const Inst& inst) {
  value = Scale(value, inst.omod);
  return inst.clamp ? Clamp01(value) : value;
}

void OutputModifiers(Type type, const Inst& inst, uint32_t* rows) {
  for (int i = 0; i < kLanes; ++i) {
    if (type == Type::kF32) {
      rows[i] = __builtin_bit_cast(uint32_t, Modify(__builtin_bit_cast(float, rows[i]), inst));
    } else if (type == Type::kF16) {
      rows[i] = FloatToHalf(Modify(HalfToFloat(static_cast<uint16_t>(rows[i])), inst));
    } else if (type == Type::kF64) {
      const uint64_t bits = rows[i] | uint64_t{rows[kLanes + i]} << 32;
      const uint64_t out =
          __builtin_bit_cast(uint64_t, Modify(__builtin_bit_cast(double, bits), inst));
      rows[i] = static_cast<uint32_t>(out);
      rows[kLanes + i] = static_cast<uint32_t>(out >> 32);
    }
  }
}

void SdwaResult(const Wave& w, const Op& op, uint32_t* rows) {
  const int sel = op.inst.dst_sel;
  if (sel == 6) return;
  const int shift = sel < 4 ? 8 * sel : 16 * (sel - 4);
  const uint32_t field = sel < 4 ? 0xff : 0xffff;
  const uint32_t* old = w.v + op.d.offset;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t value = rows[i] & field;
    if (op.inst.dst_unused == 0) {
      rows[i] = value << shift;
    } else if (op.inst.dst_unused == 1) {
      // Above the field its sign, below it zero.
      const int32_t wide = sel < 4 ? static_cast<int8_t>(value) : static_cast<int16_t>(value);
      rows[i] = static_cast<uint32_t>(wide) << shift;
    } else {
      rows[i] = (old[i] & ~(field << shift)) | value << shift;
    }
  }
}

}  // namespace

int DppSource(int ctrl, int lane) {
  const int row = lane & ~15, in_row = lane & 15, n = ctrl & 15;
  if (ctrl <= 0xff) return (lane & ~3) | (ctrl >> (2 * (lane & 3)) & 3);
  switch (ctrl & ~15) {
    case 0x100:
      return in_row + n < 16 ? lane + n : -1;
    case 0x110:
      return in_row - n >= 0 ? lane - n : -1;
    case 0x120:
      return row | ((in_row - n) & 15);
    case 0x150:
      return row | n;
    default:
      break;
  }
  switch (ctrl) {
    case 0x130:
      return lane < 63 ? lane + 1 : -1;
    case 0x134:
      return (lane + 1) & 63;
    case 0x138:
      return lane - 1;
    case 0x13c:
      return (lane - 1) & 63;
    case 0x140:
      return row | (15 - in_row);
    case 0x141:
      return (lane & ~7) | (7 - (lane & 7));
    case 0x142:
      return row >= 16 ? row - 1 : lane;
    case 0x143:
      return lane >= 32 ? 31 : lane;
    default:
      return -1;
  }
}

void PrepareSource(const Wave& w, const Op& op, int index, Type type, uint32_t* rows,
                   uint64_t* mask) {
  const Inst& inst = op.inst;
  const Ref& ref = index == 0 ? op.a : index == 1 ? op.b : op.c;
  const int dwords = Dwords(type);
  Fetch(w, ref, dwords, rows);
  if (inst.encoding == Encoding::kDpp && index == 0) Dpp(w, op, dwords, rows, mask);
  if (inst.encoding == Encoding::kSdwa && index < 2) {
    Select(inst.src_sel[index], inst.sext >> index & 1, rows);
  }
  if (inst.row->family == Family::kVop3 && IsHalf(type) && (inst.opsel >> index & 1)) {
    for (int i = 0; i < kLanes; ++i) rows[i] >>= 16;
  }
  if (index == 2 && inst.row->family != Family::kVop3) return;  // an accumulator has no modifiers
  const bool abs = inst.abs >> index & 1, neg = inst.neg >> index & 1;
  if (inst.row->family != Family::kVop3p && (abs || neg)) NegateAbs(type, abs, neg, rows);
}

void FinishResult(const Wave& w, const Op& op, Type type, uint32_t* rows) {
  const Inst& inst = op.inst;
  if (inst.omod != 0 || inst.clamp) OutputModifiers(type, inst, rows);
  if (inst.encoding == Encoding::kSdwa) SdwaResult(w, op, rows);
  if (inst.row->family == Family::kVop3 && IsHalf(type) && (MasksOf(*inst.row).used >> 14 & 1)) {
    // Instructions with op_sel keep the other half of the destination.
    const uint32_t* old = w.v + op.d.offset;
    const bool high = inst.opsel >> 3 & 1;
    for (int i = 0; i < kLanes; ++i) {
      rows[i] =
          high ? (old[i] & 0xffff) | rows[i] << 16 : (old[i] & 0xffff0000) | (rows[i] & 0xffff);
    }
  }
}

float HalfToFloat(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) {
    return __builtin_bit_cast(float, sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  }
  if (magnitude < 0x400) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  return __builtin_bit_cast(float, sign | ((magnitude << 13) + 0x38000000));
}

uint16_t DoubleToHalf(double value) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 48 & 0x8000);
  const double magnitude = std::fabs(value);
  if (magnitude != magnitude) return sign | 0x7e00 | (bits >> 42 & 0x1ff);
  if (magnitude >= 65520.0) return sign | 0x7c00;
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  // The spacing of halves around the value is two to this, and that of doubles behind 2^(step + 52), where a sum is rounded to
  // nearest even: no call of the C library, which was a quarter of a model's time here.
  const int step = exponent < -14 ? -24 : exponent - 10;
  const double far = TwoTo(step + 52);
  const double rounded = (magnitude + far) - far;
  if (rounded < 0x1p-14) return sign | static_cast<uint16_t>(rounded * 0x1p24);
  const uint64_t r = __builtin_bit_cast(uint64_t, rounded);
  const int e = static_cast<int>(r >> 52 & 0x7ff) - 1023 + 15;
  return sign | static_cast<uint16_t>(e << 10 | (r >> 42 & 0x3ff));
}

uint16_t FloatToHalf(float value) { return DoubleToHalf(value); }

float Bf16ToFloat(uint16_t value) { return __builtin_bit_cast(float, uint32_t{value} << 16); }

uint16_t FloatToBf16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

namespace {

[[maybe_unused]] bool HasAvx2() {
  return CPU_FEATURE_ACTIVE(AVX2) && CPU_FEATURE_ACTIVE(FMA) && CPU_FEATURE_ACTIVE(F16C) &&
         CPU_FEATURE_ACTIVE(BMI1) && CPU_FEATURE_ACTIVE(BMI2) && CPU_FEATURE_ACTIVE(LZCNT);
}

}  // namespace

bool Runs(LaneCode code) {
  switch (code) {
    case LaneCode::kAvx512:
#ifdef MAINARCH_LANES_avx512
      return HasAvx2() && CPU_FEATURE_ACTIVE(AVX512F) && CPU_FEATURE_ACTIVE(AVX512BW) &&
             CPU_FEATURE_ACTIVE(AVX512DQ) && CPU_FEATURE_ACTIVE(AVX512VL);
#else
      return false;
#endif
    case LaneCode::kAvx2:
#ifdef MAINARCH_LANES_avx2
      return HasAvx2();
#else
      return false;
#endif
    case LaneCode::kPortable:
      break;
  }
#ifdef MAINARCH_LANES_portable
  return true;
#else
  return false;
#endif
}

LaneCode BestLaneCode() {
  for (const LaneCode code : {LaneCode::kAvx512, LaneCode::kAvx2}) {
    if (Runs(code)) return code;
  }
  return LaneCode::kPortable;
}

}  // namespace mainarch::sim::isa
