// SPDX-License-Identifier: MIT
#include "base/json_numbers.h"

#include "absl/strings/ascii.h"

namespace mainarch {
namespace {

constexpr size_t kDoubleDigits = 308;  // every integer of so many digits is within a double's range

bool Fits(absl::string_view digits, bool negative) {
  const absl::string_view limit = negative ? "9223372036854775808" : "18446744073709551615";
  return digits.size() < limit.size() || (digits.size() == limit.size() && digits <= limit);
}

}  // namespace

std::string WideIntegersAsFractions(absl::string_view json) {
  std::string out;
  out.reserve(json.size() + 16);
  bool in_string = false;
  for (size_t i = 0; i < json.size();) {
    const char c = json[i];
    if (in_string) {
      const size_t length = c == '\\' && i + 1 < json.size() ? 2 : 1;
      in_string = c != '"';
      out.append(json.data() + i, length);
      i += length;
      continue;
    }
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) {
      in_string = c == '"';
      out.push_back(c);
      ++i;
      continue;
    }
    // A whole number, with its fraction and exponent if it has them.
    size_t end = i;
    while (end < json.size() && absl::ascii_isdigit(static_cast<unsigned char>(json[end]))) ++end;
    const absl::string_view digits = json.substr(i, end - i);
    const bool negative = i > 0 && json[i - 1] == '-';
    size_t rest = end;
    while (rest < json.size() && (absl::ascii_isalnum(static_cast<unsigned char>(json[rest])) ||
                                  json[rest] == '.' || json[rest] == '+' || json[rest] == '-')) {
      ++rest;
    }
    if (rest > end || digits[0] == '0' || Fits(digits, negative)) {
      out.append(json.data() + i, rest - i);
    } else if (digits.size() <= kDoubleDigits) {
      out.append(digits.data(), digits.size()).append(".0");
    } else {
      out.append("1e308");
    }
    i = rest;
  }
  return out;
}

}  // namespace mainarch
