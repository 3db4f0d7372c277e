// SPDX-License-Identifier: MIT
//
// What the lane families share whatever they are compiled for: 16-bit types, and the slow path of
// modifiers (neg, abs, op_sel, SDWA, DPP before; omod, clamp, SDWA after).
#ifndef MAINARCH_SIM_ISA_LANES_H_
#define MAINARCH_SIM_ISA_LANES_H_

// gcc 12 takes for a mistake what this header leaves undefined on purpose (its bug 105593), wherever that is inlined: a hundred
// warnings of its own code in a first build.
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "sim/isa/wave.h"

namespace mainarch::sim::isa {

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};
// Two 16-bit halves; op_sel and neg of VOP3P have been applied.
struct Pk16 {
  uint32_t bits;
};

// Writes source `index` (0 a, 1 b, 2 c) of a modified instruction to `rows`, modifiers applied.
// DPP narrows *mask to the lanes that are written.
void PrepareSource(const Wave& w, const Op& op, int index, Type type, uint32_t* rows,
                   uint64_t* mask);
// Applies omod, clamp, op_sel of the destination and SDWA's destination select to a result, reading
// the old destination where parts of it stay.
void FinishResult(const Wave& w, const Op& op, Type type, uint32_t* rows);

// Conversions with every rounding done right; round-to-nearest-even.
float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float value);
uint16_t DoubleToHalf(double value);
float Bf16ToFloat(uint16_t value);
uint16_t FloatToBf16(float value);

// The lane that DPP control `ctrl` makes lane `lane` read, or -1 when there is none.
int DppSource(int ctrl, int lane);

// kAvx2 asks for FMA and F16C, too: every CPU that has AVX2 has them.
enum class LaneCode : uint8_t { kPortable, kAvx2, kAvx512 };
// Whether this CPU runs it and this build has it (cpu_targets of meson_options.txt); the fastest such.
bool Runs(LaneCode code);
LaneCode BestLaneCode();

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_LANES_H_
