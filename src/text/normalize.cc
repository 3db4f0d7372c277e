// SPDX-License-Identifier: MIT
#include "text/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "text/utf8.h"

namespace mainarch::text {
namespace {

// Below this lead byte every character (up to U+02FF) has combining class 0 and is in NFC.
constexpr unsigned char kFirstLeadToCheck = 0xCC;

int CombiningClass(uint32_t point, uint8_t bits) {
  if (!(bits & kReordered)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(point))->combining_class;
}

bool AnyToCheck(const char* p) {
  for (int i = 0; i < 16; ++i) {
    if (static_cast<unsigned char>(p[i]) >= kFirstLeadToCheck) return true;
  }
  return false;
}

// The stretch of text around one that is not in NFC: from a character that nothing before it can
// change to the next such character.
struct Stretch {
  size_t begin;
  size_t end;
};

// Finds the first stretch at or after `from`, itself a stable place; false when there is none.
bool FindStretch(absl::string_view text, size_t from, const CharClasses& classes, Stretch* out) {
  size_t stable = from;
  int last_class = 0;
  for (size_t i = from; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < kFirstLeadToCheck) {
      while (i + 16 <= text.size() && !AnyToCheck(text.data() + i)) i += 16;
      while (i < text.size() && static_cast<unsigned char>(text[i]) < kFirstLeadToCheck) ++i;
      // Back to the start of the last character passed.
      stable = i - 1;
      while (stable > from && (text[stable] & 0xC0) == 0x80) --stable;
      last_class = 0;
      continue;
    }
    size_t length;
    const uint32_t point = DecodeValid(text.data() + i, &length);
    const uint8_t bits = classes.Of(point);
    const int ccc = CombiningClass(point, bits);
    if (bits & kComposing || (ccc != 0 && ccc < last_class)) {
      out->begin = stable;
      out->end = i + length;
      return true;
    }
    if (ccc == 0) stable = i;
    last_class = ccc;
    i += length;
  }
  return false;
}

// The first place at or after `from` where a character starts that the ones before cannot change.
size_t NextStable(absl::string_view text, size_t from, const CharClasses& classes) {
  while (from < text.size()) {
    size_t length;
    const uint32_t point = DecodeValid(text.data() + from, &length);
    const uint8_t bits = classes.Of(point);
    if (!(bits & (kComposing | kReordered))) return from;
    from += length;
  }
  return from;
}

using Points = std::vector<utf8proc_int32_t>;

void Decompose(absl::string_view text, Points* points) {
  points->clear();
  for (size_t i = 0; i < text.size();) {
    size_t length;
    const auto point = static_cast<utf8proc_int32_t>(DecodeValid(text.data() + i, &length));
    utf8proc_int32_t parts[32];  // the longest canonical decomposition has 4
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        point, parts, 32, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE),
        &boundary);
    if (count > 0 && count <= 32) {
      points->insert(points->end(), parts, parts + count);
    } else {
      points->push_back(point);
    }
    i += length;
  }
}

// utf8proc sorts marks by bubbling, which takes minutes over a megabyte of them; this does not.
void Reorder(const CharClasses& classes, Points* points) {
  std::vector<std::pair<int, utf8proc_int32_t>> run;
  for (size_t i = 0; i < points->size();) {
    size_t end = i;
    run.clear();
    for (; end < points->size(); ++end) {
      const auto point = static_cast<uint32_t>((*points)[end]);
      const int ccc = CombiningClass(point, classes.Of(point));
      if (ccc == 0) break;
      run.emplace_back(ccc, (*points)[end]);
    }
    if (run.size() > 1) {
      std::stable_sort(run.begin(), run.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t k = 0; k < run.size(); ++k) (*points)[i + k] = run[k].second;
    }
    i = end + 1;
  }
}

void AppendComposed(absl::string_view text, const CharClasses& classes, Points* points,
                    std::string* out) {
  Decompose(text, points);
  Reorder(classes, points);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(points->data(), static_cast<utf8proc_ssize_t>(points->size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<uint32_t>((*points)[i]), out);
  }
}

}  // namespace

absl::string_view NormalizeNfc(absl::string_view utf8, const CharClasses& classes,
                               std::string* storage) {
  Stretch stretch;
  if (!FindStretch(utf8, 0, classes, &stretch)) return utf8;
  storage->clear();
  storage->reserve(utf8.size());
  Points points;
  size_t done = 0;
  do {
    storage->append(utf8.data() + done, stretch.begin - done);
    done = NextStable(utf8, stretch.end, classes);
    AppendComposed(utf8.substr(stretch.begin, done - stretch.begin), classes, &points, storage);
  } while (FindStretch(utf8, done, classes, &stretch));
  storage->append(utf8.data() + done, utf8.size() - done);
  return *storage;
}

}  // namespace mainarch::text
