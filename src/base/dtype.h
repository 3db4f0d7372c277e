// SPDX-License-Identifier: MIT
//
// Element types as safetensors names them. How elements combine into a weight (scales, packing)
// is quant/'s business.
#ifndef MAINARCH_BASE_DTYPE_H_
#define MAINARCH_BASE_DTYPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace mainarch {

enum class DType : uint8_t {
  kF32, kF16, kBF16, kF64,
  kF8E4M3, kF8E5M2, kF8E8M0,
  kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kBool,
};

struct DTypeInfo {
  DType dtype;
  absl::string_view name;  // the spelling in a safetensors header
  uint8_t bytes;           // of one element
};

inline constexpr std::array<DTypeInfo, 16> kDTypes = {{
    {DType::kF32, "F32", 4},         {DType::kF16, "F16", 2},
    {DType::kBF16, "BF16", 2},       {DType::kF64, "F64", 8},
    {DType::kF8E4M3, "F8_E4M3", 1},  {DType::kF8E5M2, "F8_E5M2", 1},
    {DType::kF8E8M0, "F8_E8M0", 1},  {DType::kU8, "U8", 1},
    {DType::kI8, "I8", 1},           {DType::kU16, "U16", 2},
    {DType::kI16, "I16", 2},         {DType::kU32, "U32", 4},
    {DType::kI32, "I32", 4},         {DType::kU64, "U64", 8},
    {DType::kI64, "I64", 8},         {DType::kBool, "BOOL", 1},
}};

constexpr const DTypeInfo& InfoOf(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }
constexpr size_t BytesOf(DType dtype) { return InfoOf(dtype).bytes; }
constexpr absl::string_view NameOf(DType dtype) { return InfoOf(dtype).name; }

constexpr std::optional<DType> DTypeFromName(absl::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace mainarch

#endif  // MAINARCH_BASE_DTYPE_H_
