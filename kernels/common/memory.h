// SPDX-License-Identifier: MIT
//
// Moving bytes: 16-byte loads and stores, streaming (non-temporal) ones for data read once, the
// workgroup's LDS arena. Address spaces are explicit everywhere: a generic pointer would become
// a FLAT access, which the build refuses.
#ifndef MAINARCH_KERNELS_COMMON_MEMORY_H_
#define MAINARCH_KERNELS_COMMON_MEMORY_H_

#include "kernels/common/types.h"
#include "kernels/common/wave.h"

namespace mainarch::kernels {

// Element `index` of an array seen as 16-byte words. `base` is 16-byte aligned.
template <class T>
DEVICE u32x4 Load16(Global<const T> base, uint64_t index) {
  return reinterpret_cast<Global<const u32x4>>(base)[index];
}
// Read once: does not displace what the caches hold.
template <class T>
DEVICE u32x4 Stream16(Global<const T> base, uint64_t index) {
  return __builtin_nontemporal_load(&reinterpret_cast<Global<const u32x4>>(base)[index]);
}
// The same for words of other sizes.
template <class Word>
DEVICE Word Stream(Global<const uint8_t> at) {
  return __builtin_nontemporal_load(reinterpret_cast<Global<const Word>>(at));
}
template <class T>
DEVICE void Store16(Global<T> base, uint64_t index, u32x4 value) {
  reinterpret_cast<Global<u32x4>>(base)[index] = value;
}

// Brings a line into the caches on the way; what it holds is not looked at.
DEVICE void Touch(uint64_t address) {
  const uint32_t word = *reinterpret_cast<Global<const volatile uint32_t>>(address);
  static_cast<void>(MadeBefore(word));
}

// A workgroup's LDS. The entry (or the resident kernel) owns the bytes; an op takes what it needs
// from the start and leaves with a barrier if it wrote there.
struct Arena {
  Lds<uint8_t> base;
  template <class T>
  DEVICE Lds<T> Get(uint32_t byte_offset = 0) const {
    return reinterpret_cast<Lds<T>>(base + byte_offset);
  }
};

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_COMMON_MEMORY_H_
