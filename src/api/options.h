// SPDX-License-Identifier: MIT
//
// The struct_size rules of mainarch.h, once. Options are read like copy_struct_from_user of the
// Linux kernel: shorter is fine, longer must end in zeros. Info structs are written the other way.
#ifndef MAINARCH_API_OPTIONS_H_
#define MAINARCH_API_OPTIONS_H_

#include <cstddef>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "mainarch.h"

namespace mainarch::api {

// struct_size and one field of 8 bytes: no struct was ever shorter.
inline constexpr size_t kMinStructSize = 16;
inline constexpr size_t kMaxStructSize = 4096;

// `given` begins with its size. Copies what is there of `size` bytes to `out`, zeros for the rest.
Status ReadStruct(const void* given, void* out, size_t size, absl::string_view name);
// `out` begins with its size, which stays. Copies what fits of `filled`, `size` bytes.
Status WriteStruct(const void* filled, size_t size, void* out, absl::string_view name);

template <class T>
constexpr void CheckLayout() {
  static_assert(std::is_standard_layout_v<T> && std::is_trivially_copyable_v<T>);
  static_assert(offsetof(T, struct_size) == 0);
  static_assert(sizeof(T) % 8 == 0 && sizeof(T) >= kMinStructSize && sizeof(T) <= kMaxStructSize);
}

// All zeros for NULL.
template <class T>
StatusOr<T> ReadOptions(const T* given, absl::string_view name) {
  CheckLayout<T>();
  T options{};
  if (given != nullptr) RETURN_IF_ERROR(ReadStruct(given, &options, sizeof(T), name));
  options.struct_size = sizeof(T);
  return options;
}

template <class T>
Status WriteInfo(const T& filled, T* out, absl::string_view name) {
  CheckLayout<T>();
  return WriteStruct(&filled, sizeof(T), out, name);
}

}  // namespace mainarch::api

#endif  // MAINARCH_API_OPTIONS_H_
