// SPDX-License-Identifier: MIT
#include "text/byte_level.h"

namespace mainarch::text {
namespace {

// The printable characters of Latin-1 stand for themselves (GPT-2's table).
bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

}  // namespace

ByteLevel::ByteLevel() {
  byte_of_.fill(-1);
  uint16_t next = 0x100;  // the others are numbered from here
  for (int byte = 0; byte < 256; ++byte) {
    const uint16_t point = StandsForItself(byte) ? static_cast<uint16_t>(byte) : next++;
    point_of_[static_cast<size_t>(byte)] = point;
    byte_of_[point] = static_cast<int16_t>(byte);
  }
}

int64_t ByteLevel::Decode(absl::string_view spelling, char* out) const {
  const auto* p = reinterpret_cast<const unsigned char*>(spelling.data());
  const auto* end = p + spelling.size();
  char* const begin = out;
  while (p < end) {
    uint32_t point = *p++;
    if (point >= '!' && point <= '~') {  // most by far
      *out++ = static_cast<char>(point);
      continue;
    }
    if (point >= 0x80) {
      // Characters of two bytes with these leads are the only ones in the table.
      if (point < 0xC2 || point > 0xC5 || p == end) return -1;
      point = (point & 0x1F) << 6 | (*p++ & 0x3F);
    }
    if (point >= kPoints || byte_of_[point] < 0) return -1;
    *out++ = static_cast<char>(byte_of_[point]);
  }
  return out - begin;
}

std::string ByteLevel::DecodeOrKeep(absl::string_view spelling) const {
  std::string out(spelling.size(), '\0');
  const int64_t length = Decode(spelling, out.data());
  if (length < 0) return std::string(spelling);
  out.resize(static_cast<size_t>(length));
  return out;
}

}  // namespace mainarch::text
