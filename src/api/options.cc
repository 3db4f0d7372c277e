// SPDX-License-Identifier: MIT
#include "api/options.h"

#include <algorithm>
#include <cstring>

namespace mainarch::api {
namespace {

StatusOr<size_t> SizeOf(const void* given, absl::string_view name) {
  size_t size;
  std::memcpy(&size, given, sizeof(size));
  if (size < kMinStructSize || size > kMaxStructSize || size % 8 != 0) {
    return Error(Code::kInvalidArgument, name, ".struct_size is ", size,
                 ": set it to the size of the struct");
  }
  return size;
}

}  // namespace

Status ReadStruct(const void* given, void* out, size_t size, absl::string_view name) {
  ASSIGN_OR_RETURN(const size_t given_size, SizeOf(given, name));
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (size_t i = size; i < given_size; ++i) {
    if (bytes[i] == 0) continue;
    return Error(Code::kUnsupported, name, ": byte ", i, " of ", given_size,
                 " is set, and this version knows ", size,
                 " bytes: the program uses an option of a newer library");
  }
  const size_t known = std::min(size, given_size);
  std::memcpy(out, bytes, known);
  std::memset(static_cast<unsigned char*>(out) + known, 0, size - known);
  return OkStatus();
}

Status WriteStruct(const void* filled, size_t size, void* out, absl::string_view name) {
  ASSIGN_OR_RETURN(const size_t out_size, SizeOf(out, name));
  const size_t known = std::min(size, out_size);
  auto* bytes = static_cast<unsigned char*>(out);
  std::memcpy(bytes + sizeof(size_t), static_cast<const unsigned char*>(filled) + sizeof(size_t),
              known - sizeof(size_t));
  std::memset(bytes + known, 0, out_size - known);
  return OkStatus();
}

}  // namespace mainarch::api
