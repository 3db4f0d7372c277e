// SPDX-License-Identifier: MIT
#include "text/jinja/strftime.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

constexpr string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                 "Thursday", "Friday", "Saturday"};
constexpr string_view kMonths[] = {"January",   "February", "March",    "April",
                                   "May",       "June",     "July",     "August",
                                   "September", "October",  "November", "December"};

std::string Padded(int number, size_t width, bool bare, char fill = '0') {
  std::string text = absl::StrCat(number);
  if (!bare && text.size() < width) text.insert(0, width - text.size(), fill);
  return text;
}

int Hour12(const std::tm& time) { return time.tm_hour % 12 == 0 ? 12 : time.tm_hour % 12; }

// False for a conversion that is not known.
bool Append(char conversion, bool bare, const std::tm& time, std::string* out) {
  const auto put = [&](int number, size_t width = 2, char fill = '0') {
    *out += Padded(number, width, bare, fill);
    return true;
  };
  const auto text = [&](string_view format) {
    *out += FormatTime(format, time);
    return true;
  };
  const auto name = [&](string_view full, size_t size) {
    absl::StrAppend(out, full.substr(0, size));
    return true;
  };
  const string_view day = kDays[std::clamp(time.tm_wday, 0, 6)];
  const string_view month = kMonths[std::clamp(time.tm_mon, 0, 11)];
  const int year = time.tm_year + 1900;
  switch (conversion) {
    case 'a':
      return name(day, 3);
    case 'A':
      return name(day, day.size());
    case 'b':
    case 'h':
      return name(month, 3);
    case 'B':
      return name(month, month.size());
    case 'c':
      return text("%a %b %e %H:%M:%S %Y");
    case 'C':
      return put(year / 100);
    case 'd':
      return put(time.tm_mday);
    case 'D':
    case 'x':
      return text("%m/%d/%y");
    case 'e':
      return put(time.tm_mday, 2, ' ');
    case 'f':
      return name("000000", 6);  // microseconds, which nobody's template shows
    case 'F':
      return text("%Y-%m-%d");
    case 'H':
      return put(time.tm_hour);
    case 'I':
      return put(Hour12(time));
    case 'j':
      return put(time.tm_yday + 1, 3);
    case 'k':
      return put(time.tm_hour, 2, ' ');
    case 'l':
      return put(Hour12(time), 2, ' ');
    case 'm':
      return put(time.tm_mon + 1);
    case 'M':
      return put(time.tm_min);
    case 'n':
      return name("\n", 1);
    case 'p':
      return name(time.tm_hour < 12 ? "AM" : "PM", 2);
    case 'P':
      return name(time.tm_hour < 12 ? "am" : "pm", 2);
    case 'r':
      return text("%I:%M:%S %p");
    case 'R':
      return text("%H:%M");
    case 'S':
      return put(time.tm_sec);
    case 't':
      return name("\t", 1);
    case 'T':
    case 'X':
      return text("%H:%M:%S");
    case 'u':
      return put(time.tm_wday == 0 ? 7 : time.tm_wday, 1);
    case 'U':
      return put((time.tm_yday + 7 - time.tm_wday) / 7);
    case 'w':
      return put(time.tm_wday, 1);
    case 'W':
      return put((time.tm_yday + 7 - (time.tm_wday + 6) % 7) / 7);
    case 'y':
      return put(year % 100);
    case 'Y':
      return put(year, 1);
    case 'z':  // of a time without a zone, as Python's now() is
    case 'Z':
      return true;
    case '%':
      return name("%", 1);
    default:
      return false;
  }
}

}  // namespace

std::string FormatTime(string_view format, const std::tm& time) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    const bool bare = i + 2 < format.size() && format[i + 1] == '-';
    const size_t at = i + (bare ? 2 : 1);
    if (format[i] == '%' && at < format.size() && Append(format[at], bare, time, &out)) {
      i = at;
    } else {
      out.push_back(format[i]);
    }
  }
  return out;
}

}  // namespace mainarch::text::jinja
