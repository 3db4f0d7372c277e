// SPDX-License-Identifier: MIT
#include "text/unicode_property.h"

#include <array>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"

namespace mainarch::text {
namespace {

using Range = PointRange;

// In the order of kCategoryNames. No text has surrogates, and all the others are unassigned (Cn).
enum Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCategoryCount
};
struct CategoryRange {
  uint32_t first, last;
  Category category;
};

#include "text/unicode_ranges.inc"

struct Named {
  absl::string_view name;  // lower case, without spaces, - and _
  absl::Span<const Range> ranges;
};

constexpr std::array<absl::string_view, kCategoryCount> kCategoryNames = {
    "lu", "ll", "lt", "lm", "lo", "mn", "mc", "me", "nd", "nl", "no", "pc", "pd", "ps",
    "pe", "pi", "pf", "po", "sm", "sc", "sk", "so", "zs", "zl", "zp", "cc", "cf", "co"};

// Other names of categories and of groups of them.
constexpr std::pair<absl::string_view, absl::string_view> kAliases[] = {{"letter", "l"},
                                                                        {"mark", "m"},
                                                                        {"number", "n"},
                                                                        {"punctuation", "p"},
                                                                        {"symbol", "s"},
                                                                        {"separator", "z"},
                                                                        {"other", "c"},
                                                                        {"digit", "nd"},
                                                                        {"cntrl", "cc"},
                                                                        {"control", "cc"},
                                                                        {"uppercaseletter", "lu"},
                                                                        {"lowercaseletter", "ll"},
                                                                        {"alpha", "alphabetic"}};

PointRanges CategorySet(absl::string_view name) {
  PointRanges set;
  PointRanges assigned;
  for (const CategoryRange& range : kCategories) {
    const absl::string_view one = kCategoryNames[range.category];
    if (one == name || (name.size() == 1 && one[0] == name[0])) set.Add(range.first, range.last);
    assigned.Add(range.first, range.last);
  }
  if (name == "c" || name == "cn") {
    assigned.Normalize();
    set.Add(assigned.Complement());
  }
  set.Normalize();
  return set;
}

bool IsCategory(absl::string_view name) {
  if (name == "cn") return true;
  for (absl::string_view known : kCategoryNames) {
    if (name == known || (name.size() == 1 && name[0] == known[0])) return true;
  }
  return false;
}

PointRanges MinusAndPlus(absl::Span<const Range> all, absl::Span<const Range> minus,
                         absl::Span<const Range> plus) {
  PointRanges set = PointRanges(all).Intersection(PointRanges(minus).Complement());
  set.Add(PointRanges(plus));
  set.Normalize();
  return set;
}

}  // namespace

std::optional<PointRanges> PropertySet(absl::string_view name) {
  static constexpr Named kNamed[] = {
      {"alphabetic", kAlphabetic},
      {"space", kSpaces},
      {"whitespace", kSpaces},
      {"word", kWords},
      {"han", kScriptHan},
      {"hiragana", kScriptHiragana},
      {"katakana", kScriptKatakana},
      {"hangul", kScriptHangul},
      {"latin", kScriptLatin},
      {"cyrillic", kScriptCyrillic},
      {"greek", kScriptGreek},
      {"arabic", kScriptArabic},
      {"hebrew", kScriptHebrew},
      {"thai", kScriptThai},
      {"devanagari", kScriptDevanagari},
  };
  std::string plain;
  for (const char c : name) {
    if (c != ' ' && c != '-' && c != '_') {
      plain += absl::ascii_tolower(static_cast<unsigned char>(c));
    }
  }
  for (const auto& [alias, real] : kAliases) {
    if (plain == alias) plain = std::string(real);
  }
  if (IsCategory(plain)) return CategorySet(plain);
  for (const Named& named : kNamed) {
    if (plain == named.name) return PointRanges(named.ranges);
  }
  return std::nullopt;
}

const PointRanges& WordSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kWords)};
  return set;
}

const PointRanges& RustWordSet() {
  static const PointRanges& set =
      *new PointRanges(MinusAndPlus(kWords, kNotWordsInRust, kWordsInRustOnly));
  return set;
}

const PointRanges& SpaceSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kSpaces)};
  return set;
}

const PointRanges& NumericSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kNumericInRust)};
  return set;
}

const PointRanges& PunctuationSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kPunctuation)};
  return set;
}

const PointRanges& AccentSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kAccents)};
  return set;
}

const PointRanges& NonspacingSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kNonspacing)};
  return set;
}

const PointRanges& CleanedSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kCleaned)};
  return set;
}

const PointRanges& ComposingSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kComposingPoints)};
  return set;
}

const PointRanges& ReorderedSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kReorderedMarks)};
  return set;
}

const PointRanges& GraphemeJoiningSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kGraphemeJoining)};
  return set;
}

const PointRanges& GraphemeExtendSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kGraphemeExtend)};
  return set;
}

const PointRanges& PictureSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kPictures)};
  return set;
}

const PointRanges& GraphemePrependSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kGraphemePrepended)};
  return set;
}

const PointRanges& GraphemeControlSet() {
  static const PointRanges& set = *new PointRanges{absl::Span<const Range>(kGraphemeControls)};
  return set;
}

}  // namespace mainarch::text
