// SPDX-License-Identifier: MIT
//
// One (page, head) of the KV cache (decoder_args.h): where K, V and their multipliers are.
#ifndef MAINARCH_KERNELS_OPS_KV_PAGE_H_
#define MAINARCH_KERNELS_OPS_KV_PAGE_H_

#include "kernels/common/kernel.h"
#include "kernels/decoder_args.h"

namespace mainarch::kernels {

template <KvFormat kFormat, uint32_t kKeyDim, uint32_t kValueDim = kKeyDim>
struct Page {
  static constexpr KvForm kKey = KeyForm(kFormat), kValue = ValueForm(kFormat);
  Global<uint8_t> base;

  DEVICE Global<uint8_t> k(uint32_t plane) const { return base + plane * KvPlaneBytes(kKey, kKeyDim); }
  DEVICE Global<uint8_t> v(uint32_t plane) const {
    return base + KvSideBytes(kKey, kKeyDim) + plane * KvPlaneBytes(kValue, kValueDim);
  }
  // Of fp8: [16 tokens].
  DEVICE Global<float> k_scales() const {
    return reinterpret_cast<Global<float>>(base + KvSideBytes(kKey, kKeyDim) +
                                           KvSideBytes(kValue, kValueDim));
  }
  DEVICE Global<float> v_scales() const {
    return reinterpret_cast<Global<float>>(
        reinterpret_cast<Global<uint8_t>>(k_scales()) + KvScaleBytes(kKey, kKeyDim));
  }
  // Of fp4, KvFp4ScaleAt.
  DEVICE Global<uint8_t> k_bytes() const { return reinterpret_cast<Global<uint8_t>>(k_scales()); }
  DEVICE Global<uint8_t> v_bytes() const { return reinterpret_cast<Global<uint8_t>>(v_scales()); }
  // Elements of token `token`: K is [hd / 32][16][32], V is [hd][16].
  DEVICE static uint32_t KIndex(uint32_t token, uint32_t d) {
    return (d / kStepColumns * kPageTokens + token) * kStepColumns + StepPlace(d % kStepColumns);
  }
  DEVICE static uint32_t VIndex(uint32_t token, uint32_t d) { return d * kPageTokens + token; }
};
template <KvFormat kFormat, uint32_t kKeyDim, uint32_t kValueDim>
DEVICE Page<kFormat, kKeyDim, kValueDim> PageAt(Global<uint8_t> kv, uint32_t page, uint32_t kv_heads, uint32_t head) {
  return {kv + (uint64_t{page} * kv_heads + head) * KvPageBytes(kFormat, kKeyDim, kValueDim)};
}

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_OPS_KV_PAGE_H_
