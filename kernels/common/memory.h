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

// A run of memory of which lanes that have nothing to store name kNowhere: so stores stand in no branch, behind which the
// compiler no longer knows how many of a wave's accesses are under way, and waits for more than it needs.
inline constexpr uint32_t kNowhere = 0x80000000;
class Within {
 public:
  DEVICE Within() = default;
  // `bytes`: less than kNowhere. The flags say: 32 bits an element, which raw stores do not look at but for the type.
  template <class T>
  DEVICE Within(Global<T> base, uint32_t bytes)
      : to_(__builtin_amdgcn_make_buffer_rsrc((void*)base, 0, bytes, 0x00027000)) {}
  // At byte `at` + `more`; nowhere stays nowhere.
  DEVICE void Store(f32x4 value, uint32_t at, uint32_t more) const {
    __builtin_amdgcn_raw_buffer_store_b128(BitCast<u32x4>(value), to_, static_cast<int>(at + more), 0, 0);
  }
  DEVICE void Store(f32x2 value, uint32_t at, uint32_t more) const {
    __builtin_amdgcn_raw_buffer_store_b64(BitCast<u32x2>(value), to_, static_cast<int>(at + more), 0, 0);
  }

 private:
  __amdgpu_buffer_rsrc_t to_;
};

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
