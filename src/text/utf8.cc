// SPDX-License-Identifier: MIT
#include "text/utf8.h"

#include <simdjson.h>

namespace mainarch::text {
namespace {

// Table 3-7 of the Unicode standard: how many bytes follow `lead`, and the range of the first.
struct Follow {
  size_t count;  // 0: no character starts with this byte
  unsigned char low;
  unsigned char high;
};

Follow FollowOf(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};
  if (lead == 0xED) return {2, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {2, 0x80, 0xBF};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {3, 0x80, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step StepUtf8(absl::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  if (lead < 0x80) return {Utf8Head::kValid, 1};
  const Follow follow = FollowOf(lead);
  if (follow.count == 0) return {Utf8Head::kInvalid, 1};
  for (size_t i = 1; i <= follow.count; ++i) {
    if (i == bytes.size()) return {Utf8Head::kIncomplete, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const unsigned char low = i == 1 ? follow.low : 0x80;
    const unsigned char high = i == 1 ? follow.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Head::kInvalid, i};
  }
  return {Utf8Head::kValid, follow.count + 1};
}

bool IsValidUtf8(absl::string_view bytes) {
  return simdjson::validate_utf8(bytes.data(), bytes.size());
}

std::string RepairUtf8(absl::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Step step = StepUtf8(bytes);
    if (step.head == Utf8Head::kValid) {
      out.append(bytes.data(), step.length);
    } else {
      out += kReplacement;
    }
    bytes.remove_prefix(step.length);
  }
  return out;
}

void AppendUtf8(uint32_t point, std::string* out) {
  if (point < 0x80) {
    out->push_back(static_cast<char>(point));
    return;
  }
  if (point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | point >> 6));
  } else {
    if (point < 0x10000) {
      out->push_back(static_cast<char>(0xE0 | point >> 12));
    } else {
      out->push_back(static_cast<char>(0xF0 | point >> 18));
      out->push_back(static_cast<char>(0x80 | (point >> 12 & 0x3F)));
    }
    out->push_back(static_cast<char>(0x80 | (point >> 6 & 0x3F)));
  }
  out->push_back(static_cast<char>(0x80 | (point & 0x3F)));
}

}  // namespace mainarch::text
