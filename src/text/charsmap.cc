// SPDX-License-Identifier: MIT
#include "text/charsmap.h"

#include <cstring>

#include "text/char_set.h"
#include "text/unicode_property.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

// A unit of darts-clone's double array (SentencePiece has it): a label, whether a value follows,
// and the distance of the children; or a value, with the highest bit set.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000FF; }
uint32_t OffsetOf(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

// Texts above this are looked up character by character.
constexpr size_t kMaxGrapheme = 5;

enum class Hangul { kNone, kL, kV, kT, kLv, kLvt };

Hangul HangulOf(uint32_t point) {
  if ((point >= 0x1100 && point <= 0x115F) || (point >= 0xA960 && point <= 0xA97C)) {
    return Hangul::kL;
  }
  if ((point >= 0x1160 && point <= 0x11A7) || (point >= 0xD7B0 && point <= 0xD7C6)) {
    return Hangul::kV;
  }
  if ((point >= 0x11A8 && point <= 0x11FF) || (point >= 0xD7CB && point <= 0xD7FB)) {
    return Hangul::kT;
  }
  if (point < 0xAC00 || point > 0xD7A3) return Hangul::kNone;
  return (point - 0xAC00) % 28 == 0 ? Hangul::kLv : Hangul::kLvt;
}

// GB6 to GB8 of the Unicode standard's annex 29.
bool HangulGoesOn(Hangul before, Hangul after) {
  switch (before) {
    case Hangul::kL:
      return after != Hangul::kNone && after != Hangul::kT;
    case Hangul::kLv:
    case Hangul::kV:
      return after == Hangul::kV || after == Hangul::kT;
    case Hangul::kLvt:
    case Hangul::kT:
      return after == Hangul::kT;
    default:
      return false;
  }
}

struct GraphemeSets {
  CharSet joining{GraphemeJoiningSet()}, extending{GraphemeExtendSet()};
  CharSet prepended{GraphemePrependSet()}, controls{GraphemeControlSet()}, pictures{PictureSet()};
};

// Annex 29 of the Unicode standard. Only graphemes of up to five bytes matter here, so two rules
// are left out whose graphemes, and all their parts, are longer: pairs of flags (GB12, GB13), and
// Indic conjuncts (GB9c), but for those whose last consonant has a mark of two bytes.
// Gives the length in bytes of the grapheme at `at`.
size_t GraphemeLength(absl::string_view text, size_t at) {
  static const GraphemeSets& sets = *new GraphemeSets;
  constexpr uint32_t kJoiner = 0x200D;
  size_t length;
  uint32_t point = DecodeValid(text.data() + at, &length);
  size_t end = at + length;
  if (point == '\r' && end < text.size() && text[end] == '\n') return 2;
  if (sets.controls.Has(point)) return length;
  bool picture = sets.pictures.Has(point);  // and only marks since
  while (end < text.size()) {
    const uint32_t next = DecodeValid(text.data() + end, &length);
    const bool drawn = picture && point == kJoiner && sets.pictures.Has(next);
    if (!drawn && !sets.joining.Has(next) &&
        !(sets.prepended.Has(point) && !sets.controls.Has(next)) &&
        !HangulGoesOn(HangulOf(point), HangulOf(next))) {
      break;
    }
    picture = sets.pictures.Has(next) || (picture && sets.extending.Has(next));
    point = next;
    end += length;
  }
  return end - at;
}

}  // namespace

StatusOr<std::shared_ptr<const Charsmap>> Charsmap::Create(absl::string_view bytes) {
  if (bytes.size() > kMaxBytes) {
    return Error(Code::kBadModel, "has ", bytes.size(), " bytes, over the limit ", kMaxBytes);
  }
  uint32_t array_bytes = 0;
  if (bytes.size() >= 4) std::memcpy(&array_bytes, bytes.data(), 4);
  if (bytes.size() < 4 || array_bytes > bytes.size() - 4 || array_bytes % 4 != 0 ||
      array_bytes == 0) {
    return Error(Code::kBadModel, "has ", bytes.size(), " bytes, too few for its array of ",
                 array_bytes);
  }
  std::shared_ptr<Charsmap> map(new Charsmap);
  map->units_.resize(array_bytes / 4);
  std::memcpy(map->units_.data(), bytes.data() + 4, array_bytes);
  map->texts_ = std::string(bytes.substr(4 + array_bytes));
  if (!IsValidUtf8(map->texts_)) return Error(Code::kBadModel, "has texts that are not UTF-8");
  return std::shared_ptr<const Charsmap>(std::move(map));
}

bool Charsmap::Find(absl::string_view text, absl::string_view* becomes) const {
  size_t node = OffsetOf(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || LabelOf(units_[node]) != byte) return false;
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size()) return false;
    const size_t at = ValueOf(units_[node]);
    if (at >= texts_.size() || (texts_[at] & 0xC0) == 0x80) return false;
    *becomes = absl::string_view(texts_).substr(at, texts_.find('\0', at) - at);
    return true;
  }
  return false;
}

std::string Charsmap::Apply(absl::string_view utf8) const {
  std::string out;
  out.reserve(utf8.size());
  absl::string_view becomes;
  for (size_t i = 0; i < utf8.size();) {
    size_t length = GraphemeLength(utf8, i);
    if (length > kMaxGrapheme || !Find(utf8.substr(i, length), &becomes)) {
      const size_t end = i + length;
      for (; i < end; i += length) {
        DecodeValid(utf8.data() + i, &length);
        const absl::string_view one = utf8.substr(i, length);
        if (!Find(one, &becomes)) becomes = one;
        out.append(becomes.data(), becomes.size());
      }
      continue;
    }
    out.append(becomes.data(), becomes.size());
    i += length;
  }
  return out;
}

}  // namespace mainarch::text
