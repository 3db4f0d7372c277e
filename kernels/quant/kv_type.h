// SPDX-License-Identifier: MIT
//
// Types of a KV cache's elements: the one place that knows their sizes and what they are called.
// How a page is laid out is each backend's business, made of these.
#ifndef MAINARCH_KERNELS_QUANT_KV_TYPE_H_
#define MAINARCH_KERNELS_QUANT_KV_TYPE_H_

#include <stdint.h>

namespace mainarch::quant {

enum class KvType : uint32_t {
  kBF16 = 0,
  kFp8 = 1,  // e4m3fn, one fp32 scale per token and head for K and for V
  kF32 = 2,  // for verification; GPUs hold it as two bf16, the rounded value and what it lacks
};

struct KvTypeInfo {
  uint32_t element_bytes;  // in host memory
  uint32_t planes;         // on GPUs: arrays that an element is the sum of …
  uint32_t plane_bytes;    // … and bytes of an element in one
  bool scaled;             // an fp32 multiplier a token and head, of K and of V
};
inline constexpr KvTypeInfo kKvTypes[] = {{2, 1, 2, false}, {1, 1, 1, true}, {4, 2, 2, false}};
inline constexpr uint32_t kKvTypeCount = sizeof(kKvTypes) / sizeof(kKvTypes[0]);
// In options, in JSON and on command lines.
inline constexpr const char* kKvTypeNames[kKvTypeCount] = {"bf16", "fp8", "f32"};

// MAINARCH_KV_* of the C header: the same order, from 1, for 0 is its default.
constexpr int32_t PublicKvType(KvType type) { return static_cast<int32_t>(type) + 1; }

constexpr const KvTypeInfo& InfoOf(KvType type) { return kKvTypes[static_cast<uint32_t>(type)]; }

// Bytes of K and V of one token and KV head, as the type says.
constexpr uint64_t KvTokenBytes(KvType type, uint64_t key_dim, uint64_t value_dim) {
  const KvTypeInfo& info = InfoOf(type);
  return (key_dim + value_dim) * info.element_bytes + (info.scaled ? 2 * sizeof(float) : 0);
}

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_KV_TYPE_H_
