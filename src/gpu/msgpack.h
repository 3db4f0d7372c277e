// SPDX-License-Identifier: MIT
//
// A forward reader of MessagePack, for the metadata note of code objects. Nothing is built and
// nothing allocated: the caller walks, and skips what it does not know. Every read is checked
// against the end; nesting is bounded.
#ifndef MAINARCH_GPU_MSGPACK_H_
#define MAINARCH_GPU_MSGPACK_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace mainarch::gpu {

class MsgpackReader {
 public:
  explicit MsgpackReader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  // Number of pairs or elements that follow. No more than the bytes that are left could hold.
  StatusOr<uint32_t> Map();
  StatusOr<uint32_t> Array();
  StatusOr<absl::string_view> String();
  StatusOr<uint64_t> Unsigned();
  StatusOr<bool> Bool();
  Status Skip();  // one value, with all in it

  bool AtEnd() const { return position_ == bytes_.size(); }
  size_t position() const { return position_; }

 private:
  Status SkipNested(int depth);
  StatusOr<uint8_t> Byte();
  StatusOr<uint64_t> BigEndian(int size);
  StatusOr<uint32_t> Count(uint8_t fix_mask, uint8_t fix_base, uint8_t code16, uint8_t code32,
                           const char* what, size_t bytes_each);
  Status Advance(uint64_t size);
  Status Wrong(absl::string_view what) const;

  absl::Span<const uint8_t> bytes_;
  size_t position_ = 0;
};

}  // namespace mainarch::gpu

#endif  // MAINARCH_GPU_MSGPACK_H_
