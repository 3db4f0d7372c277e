// SPDX-License-Identifier: MIT
#include "text/jinja/numbers.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "text/jinja/unicode.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

// Without underscores; false when one does not stand between two digits.
bool TakeUnderscores(string_view text, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out->push_back(text[i]);
      continue;
    }
    const auto digit = [&](size_t at) {
      return at < text.size() && absl::ascii_isalnum(static_cast<unsigned char>(text[at]));
    };
    if (i == 0 || !digit(i - 1) || !digit(i + 1)) return false;
  }
  return true;
}

}  // namespace

bool ParseInteger(string_view text, int base, int64_t* out) {
  text = StripRight(StripLeft(text));
  const bool negative = absl::StartsWith(text, "-");
  if (negative || absl::StartsWith(text, "+")) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char letter = absl::ascii_tolower(static_cast<unsigned char>(text[1]));
    const int named = letter == 'x' ? 16 : (letter == 'o' ? 8 : (letter == 'b' ? 2 : 0));
    if (named != 0 && (base == 0 || base == named)) {
      base = named;
      text.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || text.empty()) return false;
  std::string digits;
  if (!TakeUnderscores(text, &digits)) return false;
  uint64_t magnitude = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return false;
  const uint64_t limit = static_cast<uint64_t>(INT64_MAX) + (negative ? 1 : 0);
  if (magnitude > limit) return false;
  *out = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  return true;
}

bool ParseFloat(string_view text, double* out) {
  text = StripRight(StripLeft(text));
  std::string digits;
  if (!TakeUnderscores(text, &digits)) return false;
  // Python knows no hexadecimal floats.
  if (digits.empty() || digits.find_first_of("xXpP") != std::string::npos) return false;
  return absl::SimpleAtod(digits, out);
}

std::string FloatText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific).ptr;
  string_view text(buffer, static_cast<size_t>(end - buffer));  // -d.ddde+xx
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  const string_view exponent_text = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits.append(text.data() + 2, e - 2);
  const int count = static_cast<int>(digits.size());
  // Python's repr writes an exponent from 1e16 on, and below 1e-4.
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) absl::StrAppend(&out, ".", string_view(digits).substr(1));
    const int magnitude = std::abs(exponent);
    absl::StrAppend(&out, exponent < 0 ? "e-" : "e+", magnitude < 10 ? "0" : "", magnitude);
  } else if (exponent < 0) {
    absl::StrAppend(&out, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  } else if (count <= exponent + 1) {
    absl::StrAppend(&out, digits, std::string(static_cast<size_t>(exponent + 1 - count), '0'),
                    ".0");
  } else {
    const size_t point = static_cast<size_t>(exponent) + 1;
    absl::StrAppend(&out, digits.substr(0, point), ".", digits.substr(point));
  }
  return out;
}

std::string FixedText(double number, char type, int precision) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::vector<char> buffer(static_cast<size_t>(precision) + 400);  // 309 digits before the point
  const auto format = type == 'e'   ? std::chars_format::scientific
                      : type == 'f' ? std::chars_format::fixed
                                    : std::chars_format::general;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, format, precision).ptr;
  return std::string(buffer.data(), end);
}

}  // namespace mainarch::text::jinja
