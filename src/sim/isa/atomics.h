// SPDX-License-Identifier: MIT
//
// The operations of atomic instructions, the same for LDS and global memory: new value from old,
// data and, for compare-and-swap, the comparand.
#ifndef MAINARCH_SIM_ISA_ATOMICS_H_
#define MAINARCH_SIM_ISA_ATOMICS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "sim/isa/lanes.h"

namespace mainarch::sim::isa::atomic {

// An operand of 4 or 8 bytes of one lane; the upper half of 8 lies in the next register's row.
template <class T>
T Lane(const uint32_t* row, int lane) {
  if constexpr (sizeof(T) == 8)
    return row[lane] | uint64_t{row[kLanes + lane]} << 32;
  else
    return row[lane];
}
template <class T>
void PutLane(uint32_t* row, int lane, T x) {
  row[lane] = static_cast<uint32_t>(x);
  if constexpr (sizeof(T) == 8) row[kLanes + lane] = static_cast<uint32_t>(x >> 32);
}

template <class T>
T Add(T old, T x) {
  return static_cast<T>(old + x);
}
template <class T>
T Sub(T old, T x) {
  return static_cast<T>(old - x);
}
template <class T>
T RSub(T old, T x) {
  return static_cast<T>(x - old);
}
template <class T>
T Swap(T, T x) {
  return x;
}
template <class T>
T And(T old, T x) {
  return old & x;
}
template <class T>
T Or(T old, T x) {
  return old | x;
}
template <class T>
T Xor(T old, T x) {
  return old ^ x;
}
template <class T>
T UMin(T old, T x) {
  return old < x ? old : x;
}
template <class T>
T UMax(T old, T x) {
  return old > x ? old : x;
}
template <class T>
T SMin(T old, T x) {
  using S = std::make_signed_t<T>;
  return static_cast<S>(old) < static_cast<S>(x) ? old : x;
}
template <class T>
T SMax(T old, T x) {
  using S = std::make_signed_t<T>;
  return static_cast<S>(old) > static_cast<S>(x) ? old : x;
}
template <class T>
T Inc(T old, T x) {
  return old >= x ? 0 : old + 1;
}
template <class T>
T Dec(T old, T x) {
  return old == 0 || old > x ? x : old - 1;
}

template <class T>
using FloatOf = std::conditional_t<sizeof(T) == 8, double, float>;
template <class T>
T FAdd(T old, T x) {
  using F = FloatOf<T>;
  return __builtin_bit_cast(T, __builtin_bit_cast(F, old) + __builtin_bit_cast(F, x));
}
template <class T>
T FMin(T old, T x) {
  using F = FloatOf<T>;
  const F a = __builtin_bit_cast(F, old), b = __builtin_bit_cast(F, x);
  return a != a ? x : b != b ? old : b < a ? x : old;
}
template <class T>
T FMax(T old, T x) {
  using F = FloatOf<T>;
  const F a = __builtin_bit_cast(F, old), b = __builtin_bit_cast(F, x);
  return a != a ? x : b != b ? old : b > a ? x : old;
}
inline uint32_t PkAddF16(uint32_t old, uint32_t x) {
  const auto add = [](uint32_t a, uint32_t b) -> uint32_t {
    return FloatToHalf(HalfToFloat(static_cast<uint16_t>(a)) +
                       HalfToFloat(static_cast<uint16_t>(b)));
  };
  return add(old, x) | add(old >> 16, x >> 16) << 16;
}
inline uint32_t PkAddBf16(uint32_t old, uint32_t x) {
  const auto add = [](uint32_t a, uint32_t b) -> uint32_t {
    return FloatToBf16(Bf16ToFloat(static_cast<uint16_t>(a)) +
                       Bf16ToFloat(static_cast<uint16_t>(b)));
  };
  return add(old, x) | add(old >> 16, x >> 16) << 16;
}

}  // namespace mainarch::sim::isa::atomic

#endif  // MAINARCH_SIM_ISA_ATOMICS_H_
