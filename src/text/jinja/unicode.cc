// SPDX-License-Identifier: MIT
#include "text/jinja/unicode.h"

#include <algorithm>
#include <iterator>

#include "text/utf8.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

struct Range {
  uint32_t first, last;
};

struct CaseRun {
  uint32_t first, last, step;
  int32_t delta;
};

struct CaseSpecial {
  uint32_t point;
  uint32_t to[3];  // 0 behind the last
};

#include "text/jinja/unicode_tables.inc"

template <size_t N>
bool In(const Range (&ranges)[N], uint32_t point) {
  const Range* at = std::lower_bound(std::begin(ranges), std::end(ranges), point,
                                     [](const Range& r, uint32_t p) { return r.last < p; });
  return at != std::end(ranges) && at->first <= point;
}

bool IsCased(uint32_t point) { return IsUpper(point) || IsLower(point); }

template <size_t N, size_t M>
void AppendMapped(const CaseRun (&runs)[N], const CaseSpecial (&specials)[M], uint32_t point,
                  std::string* out) {
  for (const CaseSpecial& special : specials) {
    if (special.point != point || point == 0) continue;
    for (const uint32_t to : special.to) {
      if (to != 0) AppendUtf8(to, out);
    }
    return;
  }
  // Runs begin in rising order, but one with a step may reach into those that follow it.
  const CaseRun* end = std::upper_bound(std::begin(runs), std::end(runs), point,
                                        [](uint32_t p, const CaseRun& r) { return p < r.first; });
  for (const CaseRun* run = end; run != std::begin(runs) && end - run < 4;) {
    --run;
    if (point <= run->last && (point - run->first) % run->step == 0) {
      AppendUtf8(static_cast<uint32_t>(static_cast<int32_t>(point) + run->delta), out);
      return;
    }
  }
  AppendUtf8(point, out);
}

void AppendUpper(uint32_t point, std::string* out) {
  if (point < 0x80) {
    out->push_back(static_cast<char>(point >= 'a' && point <= 'z' ? point - 32 : point));
  } else {
    AppendMapped(kToUpperRuns, kToUpperSpecials, point, out);
  }
}

void AppendTitle(uint32_t point, std::string* out) {
  if (point < 0x80) return AppendUpper(point, out);
  AppendMapped(kToTitleRuns, kToTitleSpecials, point, out);
}

// Whether a capital sigma at `at` ends a word: a cased letter before it, none behind it.
bool EndsWord(string_view text, size_t at) {
  constexpr string_view kIgnored = "'.:^`";  // of the case-ignorable, those that text has
  bool cased_before = false;
  for (size_t i = 0, n = 0; i < at; i += n) {
    const uint32_t point = DecodeValid(text.data() + i, &n);
    if (n == 1 && kIgnored.find(text[i]) != string_view::npos) continue;
    cased_before = IsCased(point);
  }
  for (size_t i = at + 2, n = 0; i < text.size(); i += n) {
    const uint32_t point = DecodeValid(text.data() + i, &n);
    if (n == 1 && kIgnored.find(text[i]) != string_view::npos) continue;
    return cased_before && !IsCased(point);
  }
  return cased_before;
}

void AppendLower(string_view text, size_t at, uint32_t point, std::string* out) {
  constexpr uint32_t kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2;
  if (point < 0x80) {
    out->push_back(static_cast<char>(point >= 'A' && point <= 'Z' ? point + 32 : point));
  } else if (point == kCapitalSigma && EndsWord(text, at)) {
    AppendUtf8(kFinalSigma, out);
  } else {
    AppendMapped(kToLowerRuns, kToLowerSpecials, point, out);
  }
}

// Calls `each(offset, point)` for every code point.
template <class Each>
void ForEachPoint(string_view text, Each each) {
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    const uint32_t point = DecodeValid(text.data() + i, &n);
    each(i, point);
  }
}

bool Has(string_view set, string_view character) {
  for (size_t i = 0, n = 0; i < set.size(); i += n) {
    DecodeValid(set.data() + i, &n);
    if (set.substr(i, n) == character) return true;
  }
  return false;
}

// The last character.
string_view Last(string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return text.substr(at);
}

}  // namespace

size_t Length(string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

size_t Offset(string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    if (index-- == 0) return at;
  }
  return at;
}

bool IsSpace(uint32_t point) {
  return (point >= 0x09 && point <= 0x0D) || (point >= 0x1C && point <= 0x20) || point == 0x85 ||
         point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) ||
         point == 0x2028 || point == 0x2029 || point == 0x202F || point == 0x205F ||
         point == 0x3000;
}

bool IsPrintable(uint32_t point) { return !In(kUnprintable, point); }
bool IsUpper(uint32_t point) { return In(kUpper, point); }
bool IsLower(uint32_t point) { return In(kLower, point); }
bool IsAlpha(uint32_t point) { return In(kAlpha, point); }
bool IsDecimal(uint32_t point) { return In(kDecimal, point); }

string_view StripLeft(string_view text) {
  while (!text.empty()) {
    size_t n = 0;
    if (!IsSpace(DecodeValid(text.data(), &n))) break;
    text.remove_prefix(n);
  }
  return text;
}

string_view StripRight(string_view text) {
  while (!text.empty()) {
    size_t n = 0;
    const string_view last = Last(text);
    if (!IsSpace(DecodeValid(last.data(), &n))) break;
    text.remove_suffix(last.size());
  }
  return text;
}

string_view StripLeft(string_view text, string_view set) {
  while (!text.empty()) {
    size_t n = 0;
    DecodeValid(text.data(), &n);
    if (!Has(set, text.substr(0, n))) break;
    text.remove_prefix(n);
  }
  return text;
}

string_view StripRight(string_view text, string_view set) {
  while (!text.empty() && Has(set, Last(text))) text.remove_suffix(Last(text).size());
  return text;
}

std::string Upper(string_view text) {
  std::string out;
  ForEachPoint(text, [&](size_t, uint32_t point) { AppendUpper(point, &out); });
  return out;
}

std::string Lower(string_view text) {
  std::string out;
  ForEachPoint(text, [&](size_t at, uint32_t point) { AppendLower(text, at, point, &out); });
  return out;
}

std::string Title(string_view text) {
  std::string out;
  bool in_word = false;
  ForEachPoint(text, [&](size_t at, uint32_t point) {
    if (in_word) {
      AppendLower(text, at, point, &out);
    } else {
      AppendTitle(point, &out);
    }
    in_word = IsCased(point);
  });
  return out;
}

std::string Capitalize(string_view text) {
  std::string out;
  ForEachPoint(text, [&](size_t at, uint32_t point) {
    if (at == 0) {
      AppendTitle(point, &out);
    } else {
      AppendLower(text, at, point, &out);
    }
  });
  return out;
}

std::string SwapCase(string_view text) {
  std::string out;
  ForEachPoint(text, [&](size_t at, uint32_t point) {
    if (IsUpper(point)) {
      AppendLower(text, at, point, &out);
    } else {
      AppendUpper(point, &out);
    }
  });
  return out;
}

}  // namespace mainarch::text::jinja
