// SPDX-License-Identifier: MIT
//
// How the codes of each format become bytes, of which products with 8-bit activations are made: by vectors
// (matmul_int8.cc) and by tiles (tiles_int8.h).
#ifndef MAINARCH_BACKEND_CPU_KERNELS_INT8_CODES_H_
#define MAINARCH_BACKEND_CPU_KERNELS_INT8_CODES_H_

#include "backend/cpu/kernels/matmul.h"
#include "backend/cpu/simd/bytes.h"

namespace mainarch::cpu::MAINARCH_TARGET {

// What the codes of four bits are, as whole numbers: those of e2m1 twice, and 12 more.
struct NibbleValues {
  uint8_t e2m1[16];
  uint8_t iq4nl[16];
};
static constexpr NibbleValues MakeNibbleValues() {
  NibbleValues out = {};
  constexpr int kTwice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  for (int i = 0; i < 16; ++i) {
    out.e2m1[i] = static_cast<uint8_t>(12 + (i < 8 ? kTwice[i] : -kTwice[i - 8]));
    out.iq4nl[i] = static_cast<uint8_t>(quant::kIq4NlValues[i] + kSignedLess);
  }
  return out;
}
alignas(16) static constexpr NibbleValues kNibbleValues = MakeNibbleValues();

// Of a format F, how a step's codes become bytes. kUnits: vectors of four columns a step; kLess: what codes are
// more than weights; kUnit: what a code stands for; kAdditions: of codes to one sum of 16 bits (bytes.h).
struct NibbleCodes {
  static constexpr int kUnits = 2;
  static constexpr bool kSigned = false, kInOrder = false;
  static constexpr float kUnit = 1;
  static inline void Split(const uint8_t* p, Bytes* out) {
    const Bytes codes = LoadB(p), nibble = SetB(0xf);
    out[0] = AndB(codes, nibble);
    out[1] = AndB(ShiftRightB<4>(codes), nibble);
  }
  static inline void Codes(const uint8_t* p, Bytes* out) { Split(p, out); }
};
struct PlainNibbles : NibbleCodes {
  static constexpr int kLess = 0, kAdditions = 8;
};
struct Int4Codes : NibbleCodes {
  static constexpr int kLess = 8, kAdditions = 8;
};
struct E2m1Codes : NibbleCodes {
  static constexpr int kLess = 12, kAdditions = 5;
  static constexpr float kUnit = 0.5f;
  static inline void Codes(const uint8_t* p, Bytes* out) {
    Split(p, out);
    out[0] = LookupB(kNibbleValues.e2m1, out[0]);
    out[1] = LookupB(kNibbleValues.e2m1, out[1]);
  }
};
struct Iq4NlCodes : NibbleCodes {
  static constexpr int kLess = kSignedLess, kAdditions = 8;
  static constexpr bool kSigned = true;
  static inline void Codes(const uint8_t* p, Bytes* out) {
    Split(p, out);
    out[0] = LookupB(kNibbleValues.iq4nl, out[0]);
    out[1] = LookupB(kNibbleValues.iq4nl, out[1]);
  }
};
// Fifth bits of a word's nibbles: bit s of a byte for nibble s, which go to bit 4 of the nibble's byte.
template <int kLessOf>
struct FiveCodes : NibbleCodes {
  static constexpr int kUnits = 4, kLess = kLessOf, kAdditions = 4;
  static inline Bytes With(Bytes low, Bytes first, Bytes third) {
    return OrB(low, OrB(AndB(first, SetWordsB(0x0010)), AndB(third, SetWordsB(0x1000))));
  }
  static inline void Codes(const uint8_t* p, Bytes* out) {
    Split(p, out);
    Split(p + 64, out + 2);
    const Bytes high = WidenB(p + 128);
    out[0] = With(out[0], ShiftLeftB<4>(high), ShiftLeftB<10>(high));
    out[1] = With(out[1], ShiftLeftB<3>(high), ShiftLeftB<9>(high));
    out[2] = With(out[2], high, ShiftLeftB<6>(high));
    out[3] = With(out[3], ShiftRightB<1>(high), ShiftLeftB<5>(high));
  }
};
// Two more bits of each nibble.
struct SixCodes : NibbleCodes {
  static constexpr int kLess = 32, kAdditions = 2;
  static inline Bytes With(Bytes low, Bytes first, Bytes third) {
    return OrB(low, OrB(AndB(first, SetWordsB(0x0030)), AndB(third, SetWordsB(0x3000))));
  }
  static inline void Codes(const uint8_t* p, Bytes* out) {
    Split(p, out);
    const Bytes high = WidenB(p + 64);
    out[0] = With(out[0], ShiftLeftB<4>(high), ShiftLeftB<8>(high));
    out[1] = With(out[1], ShiftLeftB<2>(high), ShiftLeftB<6>(high));
  }
};
struct EightCodes {
  static constexpr int kUnits = 1, kLess = kSignedLess, kAdditions = 8;
  static constexpr bool kSigned = true, kInOrder = true;
  static constexpr float kUnit = 1;
  static inline void Codes(const uint8_t* p, Bytes* out) { out[0] = SignedB(LoadB(p)); }
};

// run<F, C>(): F has the format's steps and scales, C its codes. Of all with HasInt8Dot.
template <class Run>
static inline void WithInt8Codes(PanelFormat format, const Run& run) {
  switch (format) {
    case PanelFormat::kMxfp4:
      return run.template operator()<FormatMxfp4, E2m1Codes>();
    case PanelFormat::kInt8:
      return run.template operator()<FormatInt8, EightCodes>();
    case PanelFormat::kInt4:
      return run.template operator()<FormatInt4, Int4Codes>();
    case PanelFormat::kIq4Nl:
      return run.template operator()<FormatIq4Nl, Iq4NlCodes>();
    case PanelFormat::kInt4Min:
      return run.template operator()<FormatInt4Min, PlainNibbles>();
    case PanelFormat::kQ4_1:
      return run.template operator()<FormatQ4_1, PlainNibbles>();
    case PanelFormat::kQ5_0:
      return run.template operator()<FormatQ5_0, FiveCodes<16>>();
    case PanelFormat::kQ5_1:
      return run.template operator()<FormatQ5_1, FiveCodes<0>>();
    case PanelFormat::kQ4K:
      return run.template operator()<FormatQ4K, PlainNibbles>();
    case PanelFormat::kQ5K:
      return run.template operator()<FormatQ5K, FiveCodes<0>>();
    case PanelFormat::kQ6K:
      return run.template operator()<FormatQ6K, SixCodes>();
    case PanelFormat::kInt8Row:
      return run.template operator()<FormatInt8Row, EightCodes>();
    case PanelFormat::kNvfp4:
      return run.template operator()<FormatNvfp4, E2m1Codes>();
    default:
      return;
  }
}

}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_INT8_CODES_H_
