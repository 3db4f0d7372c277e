// SPDX-License-Identifier: MIT
#include "text/normalizer.h"

#include <array>
#include <utility>

#include "text/char_set.h"
#include "text/unicode_property.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

// The white space of U+0000 to U+10FFFF at either end goes.
absl::string_view Strip(absl::string_view text, bool left, bool right, const CharClasses& classes) {
  while (left && !text.empty()) {
    size_t length;
    if (!(classes.At(text.data(), &length) & kSpace)) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    size_t at = text.size() - 1;
    while ((text[at] & 0xC0) == 0x80) --at;
    size_t length;
    if (!(classes.At(text.data() + at, &length) & kSpace)) break;
    text = text.substr(0, at);
  }
  return text;
}

// Each character through `map`, which appends what it becomes.
template <class Map>
std::string EachPoint(absl::string_view text, const Map& map) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t length;
    const uint32_t point = DecodeValid(text.data() + i, &length);
    map(point, text.substr(i, length), &out);
    i += length;
  }
  return out;
}

std::string Without(absl::string_view text, const CharSet& set) {
  return EachPoint(text, [&](uint32_t point, absl::string_view bytes, std::string* out) {
    if (!set.Has(point)) out->append(bytes.data(), bytes.size());
  });
}

// normalizers.Nmt of the package.
std::string Nmt(absl::string_view text) {
  static const CharSet& gone = *new CharSet(PointRanges(std::array<PointRange, 6>{
      {{0x1, 0x8}, {0xB, 0xB}, {0xE, 0x1F}, {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}}}));
  static const CharSet& spaces =
      *new CharSet(PointRanges(std::array<PointRange, 9>{{{0x9, 0xA},
                                                          {0xC, 0xD},
                                                          {0x1680, 0x1680},
                                                          {0x200B, 0x200F},
                                                          {0x2028, 0x2029},
                                                          {0x2581, 0x2581},
                                                          {0xFEFF, 0xFEFF},
                                                          {0xFFFD, 0xFFFD},
                                                          {0x20, 0x20}}}));
  return EachPoint(text, [&](uint32_t point, absl::string_view bytes, std::string* out) {
    if (gone.Has(point)) return;
    if (spaces.Has(point)) {
      out->push_back(' ');
    } else {
      out->append(bytes.data(), bytes.size());
    }
  });
}

std::string BertClean(absl::string_view text, const CharClasses& classes) {
  static const CharSet& gone = *new CharSet(CleanedSet());
  return EachPoint(text, [&](uint32_t point, absl::string_view bytes, std::string* out) {
    if (gone.Has(point)) return;
    if (classes.Of(point) & kSpace) {
      out->push_back(' ');
    } else {
      out->append(bytes.data(), bytes.size());
    }
  });
}

// The blocks of BERT's tokenizer; its third and fourth supplements begin where it says.
bool IsChinese(uint32_t point) {
  constexpr PointRange kBlocks[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                    {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                    {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  for (const PointRange& block : kBlocks) {
    if (point >= block.first && point <= block.last) return true;
  }
  return false;
}

std::string BertChinese(absl::string_view text) {
  return EachPoint(text, [](uint32_t point, absl::string_view bytes, std::string* out) {
    if (IsChinese(point)) out->push_back(' ');
    out->append(bytes.data(), bytes.size());
    if (IsChinese(point)) out->push_back(' ');
  });
}

std::string OneSpace(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || out.empty() || out.back() != ' ') out.push_back(c);
  }
  return out;
}

StatusOr<std::string> ReplaceMatches(absl::string_view text, const Regex& regex,
                                     absl::string_view content) {
  std::vector<RegexMatch> matches;
  RETURN_IF_ERROR(regex.FindAll(text, &matches));
  std::string out;
  size_t done = 0;
  for (const RegexMatch& match : matches) {
    out.append(text.data() + done, match.begin - done);
    out.append(content.data(), content.size());
    done = match.end;
  }
  out.append(text.data() + done, text.size() - done);
  return out;
}

// One step; `*changed` is scratch memory that the result may lie in.
StatusOr<absl::string_view> Apply(const NormalizerStep& step, absl::string_view text,
                                  const CharClasses& classes, std::string* changed) {
  switch (step.kind) {
    case NormalizerKind::kForm:
      return Normalize(step.form, text, classes, changed);
    case NormalizerKind::kPrepend:
      if (text.empty()) return text;
      *changed = absl::StrCat(step.content, text);
      break;
    case NormalizerKind::kReplace:
      if (step.regex == nullptr) {
        if (text.find(step.pattern) == text.npos) return text;
        *changed = ReplaceAll(text, step.pattern, step.content);
      } else {
        ASSIGN_OR_RETURN(*changed, ReplaceMatches(text, *step.regex, step.content));
      }
      break;
    case NormalizerKind::kStrip:
      return Strip(text, step.left, step.right, classes);
    case NormalizerKind::kLowercase:
      *changed = LowerCase(text);
      break;
    case NormalizerKind::kStripAccents: {
      static const CharSet& accents = *new CharSet(AccentSet());
      *changed = Without(text, accents);
      break;
    }
    case NormalizerKind::kCharsmap:
      *changed = step.charsmap->Apply(text);
      break;
    case NormalizerKind::kNmt:
      *changed = Nmt(text);
      break;
    case NormalizerKind::kBertClean:
      *changed = BertClean(text, classes);
      break;
    case NormalizerKind::kBertChinese:
      *changed = BertChinese(text);
      break;
    case NormalizerKind::kBertAccents: {
      static const CharSet& marks = *new CharSet(NonspacingSet());
      std::string storage;
      *changed = Without(Normalize(NormalForm::kNfd, text, classes, &storage), marks);
      break;
    }
    case NormalizerKind::kOneSpace:
      *changed = OneSpace(text);
      break;
  }
  return absl::string_view(*changed);
}

}  // namespace

std::string ReplaceAll(absl::string_view text, absl::string_view pattern,
                       absl::string_view content) {
  std::string out;
  size_t done = 0;
  for (size_t at; (at = text.find(pattern, done)) != text.npos; done = at + pattern.size()) {
    out.append(text.data() + done, at - done);
    out.append(content.data(), content.size());
  }
  out.append(text.data() + done, text.size() - done);
  return out;
}

StatusOr<absl::string_view> Normalizer::Run(absl::string_view utf8, const CharClasses& classes,
                                            std::string* storage) const {
  absl::string_view text = utf8;
  const size_t most = utf8.size() * kMaxGrowth + (size_t{1} << 16);
  for (const NormalizerStep& step : steps_) {
    std::string changed;
    ASSIGN_OR_RETURN(const absl::string_view next, Apply(step, text, classes, &changed));
    if (next.size() > most) {
      return Error(Code::kUnsupported, "the normalizer makes ", next.size(), " bytes of a text of ",
                   utf8.size(), ", over the limit ", most);
    }
    if (next.data() == changed.data() && !next.empty()) {
      *storage = std::move(changed);
      text = *storage;
    } else if (next.empty()) {
      text = absl::string_view();
    } else {
      text = next;  // a part of what was there
    }
  }
  return text;
}

}  // namespace mainarch::text
