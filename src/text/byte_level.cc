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

std::string ByteLevel::DecodeOrKeep(absl::string_view spelling) const {
  std::string out(spelling.size(), '\0');
  const int64_t length = Decode(spelling, out.data());
  if (length < 0) return std::string(spelling);
  out.resize(static_cast<size_t>(length));
  return out;
}

}  // namespace mainarch::text
