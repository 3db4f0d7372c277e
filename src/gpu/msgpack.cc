// SPDX-License-Identifier: MIT
#include "gpu/msgpack.h"

namespace mainarch::gpu {
namespace {

constexpr int kMaxDepth = 16;  // the metadata's own is 6

}  // namespace

Status MsgpackReader::Wrong(absl::string_view what) const {
  return Error(Code::kBadModel, "metadata at byte ", position_, ": ", what);
}

Status MsgpackReader::Advance(uint64_t size) {
  if (size > bytes_.size() - position_) return Wrong("ends inside a value");
  position_ += size;
  return {};
}

StatusOr<uint8_t> MsgpackReader::Byte() {
  if (position_ == bytes_.size()) return Wrong("ends before a value");
  return bytes_[position_++];
}

StatusOr<uint64_t> MsgpackReader::BigEndian(int size) {
  if (static_cast<size_t>(size) > bytes_.size() - position_) return Wrong("ends inside a value");
  uint64_t value = 0;
  for (int i = 0; i < size; ++i) value = value << 8 | bytes_[position_++];
  return value;
}

StatusOr<uint32_t> MsgpackReader::Count(uint8_t fix_mask, uint8_t fix_base, uint8_t code16,
                                        uint8_t code32, const char* what, size_t bytes_each) {
  ASSIGN_OR_RETURN(const uint8_t code, Byte());
  uint64_t count = 0;
  if ((code & ~fix_mask & 0xff) == fix_base) {
    count = code & fix_mask;
  } else if (code == code16 || code == code32) {
    ASSIGN_OR_RETURN(count, BigEndian(code == code16 ? 2 : 4));
  } else {
    --position_;
    return Wrong(what);
  }
  if (count * bytes_each > bytes_.size() - position_) {
    return Wrong("a count larger than the rest of the note");
  }
  return static_cast<uint32_t>(count);
}

StatusOr<uint32_t> MsgpackReader::Map() {
  return Count(0x0f, 0x80, 0xde, 0xdf, "a map was expected", 2);
}

StatusOr<uint32_t> MsgpackReader::Array() {
  return Count(0x0f, 0x90, 0xdc, 0xdd, "an array was expected", 1);
}

StatusOr<absl::string_view> MsgpackReader::String() {
  ASSIGN_OR_RETURN(const uint8_t code, Byte());
  uint64_t size = 0;
  if ((code & 0xe0) == 0xa0) {
    size = code & 0x1f;
  } else if (code >= 0xd9 && code <= 0xdb) {
    ASSIGN_OR_RETURN(size, BigEndian(1 << (code - 0xd9)));
  } else {
    --position_;
    return Wrong("a string was expected");
  }
  const size_t start = position_;
  RETURN_IF_ERROR(Advance(size));
  return absl::string_view(reinterpret_cast<const char*>(bytes_.data()) + start, size);
}

StatusOr<uint64_t> MsgpackReader::Unsigned() {
  ASSIGN_OR_RETURN(const uint8_t code, Byte());
  if (code < 0x80) return uint64_t{code};
  if (code >= 0xcc && code <= 0xcf) return BigEndian(1 << (code - 0xcc));
  --position_;
  return Wrong("an unsigned number was expected");
}

StatusOr<bool> MsgpackReader::Bool() {
  ASSIGN_OR_RETURN(const uint8_t code, Byte());
  if (code == 0xc2 || code == 0xc3) return code == 0xc3;
  --position_;
  return Wrong("a boolean was expected");
}

Status MsgpackReader::Skip() { return SkipNested(0); }

Status MsgpackReader::SkipNested(int depth) {
  if (depth > kMaxDepth) return Wrong("nested too deeply");
  if (position_ == bytes_.size()) return Wrong("ends before a value");
  const uint8_t code = bytes_[position_];
  if ((code & 0xf0) == 0x80 || code == 0xde || code == 0xdf) {
    ASSIGN_OR_RETURN(const uint32_t pairs, Map());
    for (uint64_t i = 0; i < uint64_t{2} * pairs; ++i) RETURN_IF_ERROR(SkipNested(depth + 1));
    return {};
  }
  if ((code & 0xf0) == 0x90 || code == 0xdc || code == 0xdd) {
    ASSIGN_OR_RETURN(const uint32_t elements, Array());
    for (uint32_t i = 0; i < elements; ++i) RETURN_IF_ERROR(SkipNested(depth + 1));
    return {};
  }
  if ((code & 0xe0) == 0xa0 || (code >= 0xd9 && code <= 0xdb)) return String().status();
  ++position_;
  if (code < 0x80 || code >= 0xe0 || code == 0xc0 || code == 0xc2 || code == 0xc3) return {};
  if (code >= 0xc4 && code <= 0xc6) {  // bytes
    ASSIGN_OR_RETURN(const uint64_t size, BigEndian(1 << (code - 0xc4)));
    return Advance(size);
  }
  if (code == 0xca) return Advance(4);
  if (code == 0xcb) return Advance(8);
  if (code >= 0xcc && code <= 0xcf) return Advance(uint64_t{1} << (code - 0xcc));
  if (code >= 0xd0 && code <= 0xd3) return Advance(uint64_t{1} << (code - 0xd0));
  --position_;
  return Wrong("a type that metadata does not have");
}

}  // namespace mainarch::gpu
