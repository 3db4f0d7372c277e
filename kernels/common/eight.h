// SPDX-License-Identifier: MIT
//
// Activations eight at a time, in bf16 (as uint16_t) or fp32: one or two 16-byte words in memory,
// eight floats to compute with.
#ifndef MAINARCH_KERNELS_COMMON_EIGHT_H_
#define MAINARCH_KERNELS_COMMON_EIGHT_H_

#include "kernels/common/math.h"

namespace mainarch::kernels {

// Eight neighbouring elements as floats, whatever they are in memory.
struct Eight {
  float at[8];
};
// The same as it lies in memory: what a thread holds on to.
template <class T>
struct RawEight {
  u32x4 words[sizeof(T) / 2];
};
template <class T>
DEVICE RawEight<T> LoadRaw(Global<const T> base, uint64_t index) {
  RawEight<T> out;
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < sizeof(T) / 2; ++i) {
    out.words[i] = Load16(base, index * (sizeof(T) / 2) + i);
  }
  return out;
}
DEVICE Eight Unpack(const RawEight<uint16_t>& raw) {
  Eight out;
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i) {
    const uint32_t pair = raw.words[0][i];
    out.at[2 * i] = Bf16Low(pair);
    out.at[2 * i + 1] = Bf16High(pair);
  }
  return out;
}
DEVICE Eight Unpack(const RawEight<float>& raw) {
  const f32x4 low = BitCast<f32x4>(raw.words[0]), high = BitCast<f32x4>(raw.words[1]);
  return {{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]}};
}
template <class T>
DEVICE RawEight<T> Pack(const Eight& x) {
  if constexpr (sizeof(T) == 2) {
    return {{u32x4{ToBf16Pair(x.at[0], x.at[1]), ToBf16Pair(x.at[2], x.at[3]),
                   ToBf16Pair(x.at[4], x.at[5]), ToBf16Pair(x.at[6], x.at[7])}}};
  } else {
    return {{BitCast<u32x4>(f32x4{x.at[0], x.at[1], x.at[2], x.at[3]}),
             BitCast<u32x4>(f32x4{x.at[4], x.at[5], x.at[6], x.at[7]})}};
  }
}
// Elements 8 * index .. 8 * index + 7.
template <class T>
DEVICE Eight LoadEight(Global<const T> base, uint64_t index) {
  return Unpack(LoadRaw(base, index));
}
template <class T>
DEVICE void StoreEight(Global<T> base, uint64_t index, const Eight& x) {
  const RawEight<T> raw = Pack<T>(x);
#pragma clang loop unroll(full)
  for (uint32_t i = 0; i < sizeof(T) / 2; ++i) {
    Store16(base, index * (sizeof(T) / 2) + i, raw.words[i]);
  }
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_EIGHT_H_
