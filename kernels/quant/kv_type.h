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
  kFp4 = 3,  // e2m1 with a scale for 32 elements (kv_fp4.h); K, and so Q, turned by a Hadamard matrix
  kK8V4 = 4,  // K as kFp8 has it, V as kFp4 has it
};
inline constexpr uint32_t kKvTypeCount = 5;

// How one side, K or V, is held.
enum class KvForm : uint32_t { kBF16, kFp8, kF32, kFp4 };

struct KvFormInfo {
  uint32_t bits;         // of an element in host memory
  uint32_t planes;       // on GPUs: arrays that an element is the sum of …
  uint32_t plane_bits;   // … and bits of an element in one
  uint32_t token_bytes;  // of a multiplier for all elements of a token and head
  uint32_t block;        // elements that share a multiplier of one byte; 0: none do
};
inline constexpr KvFormInfo kKvForms[] = {
    {16, 1, 16, 0, 0}, {8, 1, 8, 4, 0}, {32, 2, 16, 0, 0}, {4, 1, 4, 0, 32}};

struct KvTypeInfo {
  KvForm k, v;
  bool turns;  // Q and K by a Hadamard matrix, after RoPE
};
inline constexpr KvTypeInfo kKvTypes[kKvTypeCount] = {
    {KvForm::kBF16, KvForm::kBF16, false}, {KvForm::kFp8, KvForm::kFp8, false},
    {KvForm::kF32, KvForm::kF32, false},   {KvForm::kFp4, KvForm::kFp4, true},
    {KvForm::kFp8, KvForm::kFp4, false}};
// In options, in JSON and on command lines.
inline constexpr const char* kKvTypeNames[kKvTypeCount] = {"bf16", "fp8", "f32", "fp4", "k8v4"};

// MAINARCH_KV_* of the C header: the same order, from 1, for 0 is its default.
constexpr int32_t PublicKvType(KvType type) { return static_cast<int32_t>(type) + 1; }

constexpr const KvFormInfo& InfoOf(KvForm form) { return kKvForms[static_cast<uint32_t>(form)]; }
constexpr const KvTypeInfo& InfoOf(KvType type) { return kKvTypes[static_cast<uint32_t>(type)]; }

// Head sizes of K and of V must be multiples of this.
constexpr uint32_t KvDimMultiple(KvType type) {
  const uint32_t k = InfoOf(InfoOf(type).k).block, v = InfoOf(InfoOf(type).v).block;
  return k > v ? k : v > 0 ? v : 1;
}

// Bytes of multipliers of one side of a token and KV head.
constexpr uint64_t KvScaleBytes(KvForm form, uint64_t dim) {
  const KvFormInfo& info = InfoOf(form);
  return info.token_bytes + (info.block > 0 ? dim / info.block : 0);
}

// Bytes of K and V of one token and KV head, as the type says.
constexpr uint64_t KvTokenBytes(KvType type, uint64_t key_dim, uint64_t value_dim) {
  const KvTypeInfo& info = InfoOf(type);
  return key_dim * InfoOf(info.k).bits / 8 + KvScaleBytes(info.k, key_dim) +
         value_dim * InfoOf(info.v).bits / 8 + KvScaleBytes(info.v, value_dim);
}

// The size of the Hadamard matrix that turns a head: the largest power of two that divides it. So a
// head of 96 is turned in three parts of 32, one of 192 in three of 64.
constexpr uint32_t HadamardSize(uint32_t dim) { return dim & (~dim + 1); }

}  // namespace mainarch::quant

#endif  // MAINARCH_KERNELS_QUANT_KV_TYPE_H_
