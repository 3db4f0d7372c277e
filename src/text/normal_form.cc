// SPDX-License-Identifier: MIT
#include "text/normal_form.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "text/utf8.h"

namespace mainarch::text {
namespace {

struct Decomposition {
  uint32_t point;
  uint16_t offset;  // in kParts
  uint8_t count;
};
struct Composition {
  uint32_t first, second, both;
};
struct ClassRange {
  uint32_t first, last;
  uint8_t combining_class;
};
struct Mapping {
  uint32_t first, last, step;
  int32_t delta;
};

#include "text/unicode_forms.inc"

// Hangul syllables are composed by arithmetic (section 3.12 of the Unicode standard).
constexpr uint32_t kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7, kSyllable = 0xAC00;
constexpr uint32_t kLeadings = 19, kVowels = 21, kTrailings = 28;

// Below this lead byte every character (up to U+02FF) has combining class 0 and is in NFC.
constexpr unsigned char kFirstLeadToCheck = 0xCC;

int CombiningClass(uint32_t point, uint8_t bits) {
  if (!(bits & kReordered)) return 0;
  const auto* after =
      std::upper_bound(std::begin(kCombiningClasses), std::end(kCombiningClasses), point,
                       [](uint32_t value, const ClassRange& range) { return value < range.first; });
  if (after == std::begin(kCombiningClasses) || point > (after - 1)->last) return 0;
  return (after - 1)->combining_class;
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

using Points = std::vector<uint32_t>;

template <size_t N>
const Decomposition* FindDecomposition(const Decomposition (&table)[N], uint32_t point) {
  const auto* at = std::lower_bound(
      std::begin(table), std::end(table), point,
      [](const Decomposition& entry, uint32_t value) { return entry.point < value; });
  return at != std::end(table) && at->point == point ? at : nullptr;
}

void DecomposePoint(uint32_t point, bool compatible, Points* points) {
  if (point >= kSyllable && point < kSyllable + kLeadings * kVowels * kTrailings) {
    const uint32_t index = point - kSyllable;
    points->push_back(kLeading + index / (kVowels * kTrailings));
    points->push_back(kVowel + index / kTrailings % kVowels);
    if (index % kTrailings != 0) points->push_back(kTrailing + index % kTrailings);
    return;
  }
  const Decomposition* parts = compatible ? FindDecomposition(kCompatible, point) : nullptr;
  if (parts == nullptr) parts = FindDecomposition(kCanonical, point);
  if (parts == nullptr) {
    points->push_back(point);
  } else {
    points->insert(points->end(), kParts + parts->offset, kParts + parts->offset + parts->count);
  }
}

void Decompose(absl::string_view text, bool compatible, Points* points) {
  points->clear();
  for (size_t i = 0; i < text.size();) {
    size_t length;
    const uint32_t point = DecodeValid(text.data() + i, &length);
    if (point < 0x80) {
      points->push_back(point);
    } else {
      DecomposePoint(point, compatible, points);
    }
    i += length;
  }
}

// What two characters compose to, or 0.
uint32_t ComposePair(uint32_t first, uint32_t second) {
  if (first - kLeading < kLeadings && second - kVowel < kVowels) {
    return kSyllable + ((first - kLeading) * kVowels + second - kVowel) * kTrailings;
  }
  const uint32_t index = first - kSyllable;
  if (index < kLeadings * kVowels * kTrailings && index % kTrailings == 0 &&
      second - kTrailing - 1 < kTrailings - 1) {
    return first + second - kTrailing;
  }
  const auto* at =
      std::lower_bound(std::begin(kCompositions), std::end(kCompositions),
                       std::pair<uint32_t, uint32_t>(first, second),
                       [](const Composition& entry, const std::pair<uint32_t, uint32_t>& pair) {
                         return std::pair<uint32_t, uint32_t>(entry.first, entry.second) < pair;
                       });
  if (at == std::end(kCompositions) || at->first != first || at->second != second) return 0;
  return at->both;
}

// Sorts each run of marks by their class; not by bubbling, which takes minutes over a megabyte of
// them.
void Reorder(const CharClasses& classes, Points* points) {
  std::vector<std::pair<int, uint32_t>> run;
  for (size_t i = 0; i < points->size();) {
    size_t end = i;
    run.clear();
    for (; end < points->size(); ++end) {
      const uint32_t point = (*points)[end];
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

// Joins each mark with the last character of class 0 before it, where nothing stands between them
// that blocks it: a mark of the same class or a higher one.
void Compose(const CharClasses& classes, Points* points) {
  size_t kept = 0;
  size_t starter = SIZE_MAX;
  int last_class = -1;  // of what was kept last since the starter; -1: nothing
  for (const uint32_t point : *points) {
    const int ccc = CombiningClass(point, classes.Of(point));
    if (starter != SIZE_MAX && last_class < ccc) {
      if (const uint32_t both = ComposePair((*points)[starter], point)) {
        (*points)[starter] = both;
        continue;
      }
    }
    if (ccc == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = ccc;
    }
    (*points)[kept++] = point;
  }
  points->resize(kept);
}

void AppendForm(NormalForm form, absl::string_view text, const CharClasses& classes, Points* points,
                std::string* out) {
  Decompose(text, form == NormalForm::kNfkc || form == NormalForm::kNfkd, points);
  Reorder(classes, points);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) Compose(classes, points);
  for (const uint32_t point : *points) AppendUtf8(point, out);
}

absl::string_view Nfc(absl::string_view utf8, const CharClasses& classes, std::string* storage) {
  Stretch stretch;
  if (!FindStretch(utf8, 0, classes, &stretch)) return utf8;
  storage->clear();
  storage->reserve(utf8.size());
  Points points;
  size_t done = 0;
  do {
    storage->append(utf8.data() + done, stretch.begin - done);
    done = NextStable(utf8, stretch.end, classes);
    AppendForm(NormalForm::kNfc, utf8.substr(stretch.begin, done - stretch.begin), classes, &points,
               storage);
  } while (FindStretch(utf8, done, classes, &stretch));
  storage->append(utf8.data() + done, utf8.size() - done);
  return *storage;
}

}  // namespace

absl::string_view Normalize(NormalForm form, absl::string_view utf8, const CharClasses& classes,
                            std::string* storage) {
  if (form == NormalForm::kNfc) return Nfc(utf8, classes, storage);
  const bool ascii = std::all_of(utf8.begin(), utf8.end(),
                                 [](char c) { return static_cast<signed char>(c) >= 0; });
  if (ascii) return utf8;
  Points points;
  storage->clear();
  AppendForm(form, utf8, classes, &points, storage);
  return *storage;
}

std::string LowerCase(absl::string_view utf8) {
  std::string out;
  out.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size();) {
    size_t length;
    const uint32_t point = DecodeValid(utf8.data() + i, &length);
    i += length;
    if (point == 0x130) {  // the only one that becomes two
      out += "i\xCC\x87";
      continue;
    }
    const auto* after =
        std::upper_bound(std::begin(kLowerCase), std::end(kLowerCase), point,
                         [](uint32_t value, const Mapping& run) { return value < run.first; });
    uint32_t lower = point;
    if (after != std::begin(kLowerCase)) {
      const Mapping& run = *(after - 1);
      if (point <= run.last && (point - run.first) % run.step == 0) {
        lower = static_cast<uint32_t>(static_cast<int32_t>(point) + run.delta);
      }
    }
    AppendUtf8(lower, &out);
  }
  return out;
}

}  // namespace mainarch::text
