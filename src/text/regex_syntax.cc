// SPDX-License-Identifier: MIT
#include "text/regex_syntax.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "text/unicode_property.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

constexpr size_t kMaxPattern = 8192;  // bytes
constexpr int kMaxDepth = 32;         // groups in groups
constexpr int kMaxQuantifiers = 4;    // on one item
constexpr uint32_t kMaxCount = 1000;  // in {n,m}

constexpr uint32_t kLongS = 0x17F;    // folds to s
constexpr uint32_t kKelvin = 0x212A;  // folds to k

// Pairs of letters that Oniguruma, ignoring case, also finds in one character (U+00DF, ligatures).
constexpr std::array<absl::string_view, 5> kFoldedPairs = {"ss", "st", "ff", "fi", "fl"};

RegexNode SetNode(PointRanges set) {
  RegexNode node;
  node.kind = RegexKind::kSet;
  node.set = std::move(set);
  return node;
}

PointRanges One(uint32_t point) {
  PointRanges set;
  set.Add(point, point);
  return set;
}

RegexNode PlaceNode(RegexPlace place) {
  RegexNode node;
  node.kind = RegexKind::kAssert;
  node.place = place;
  return node;
}

class Parser {
 public:
  explicit Parser(absl::string_view pattern) : in_(pattern) {}

  StatusOr<RegexNode> Run() {
    if (in_.size() > kMaxPattern) {
      return Error(Code::kUnsupported, "pattern of ", in_.size(), " bytes is over ", kMaxPattern);
    }
    if (!IsValidUtf8(in_)) return Error(Code::kUnsupported, "pattern is not UTF-8");
    ASSIGN_OR_RETURN(RegexNode node, Either(/*depth=*/0));
    if (at_ < in_.size()) return Refuse("an unopened )");
    return node;
  }

 private:
  Status Refuse(absl::string_view what) const {
    return Error(Code::kUnsupported, "pattern has ", what, " at offset ", at_,
                 ", which mainarch does not run");
  }

  bool End() const { return at_ >= in_.size(); }
  char Peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool Take(absl::string_view head) {
    if (!absl::StartsWith(in_.substr(at_), head)) return false;
    at_ += head.size();
    return true;
  }
  uint32_t TakePoint() {
    size_t length;
    const uint32_t point = DecodeValid(in_.data() + at_, &length);
    at_ += length;
    return point;
  }

  // Up to a ) or the end. An option that is set inside, (?i), ends with it.
  StatusOr<RegexNode> Either(int depth) {
    if (depth > kMaxDepth) return Refuse(absl::StrCat("more than ", kMaxDepth, " groups deep"));
    const bool outside = ignore_case_;
    RegexNode either;
    either.kind = RegexKind::kEither;
    do {
      ASSIGN_OR_RETURN(RegexNode branch, Sequence(depth));
      either.children.push_back(std::move(branch));
    } while (Take("|"));
    ignore_case_ = outside;
    if (either.children.size() == 1) return std::move(either.children[0]);
    return either;
  }

  StatusOr<RegexNode> Sequence(int depth) {
    RegexNode sequence;
    sequence.kind = RegexKind::kSequence;
    previous_ = 0;
    while (!End() && Peek() != '|' && Peek() != ')') {
      if (Take("(?i)")) {
        ignore_case_ = true;
        continue;
      }
      ASSIGN_OR_RETURN(RegexNode item, Item(depth));
      RETURN_IF_ERROR(Quantifiers(&item));
      sequence.children.push_back(std::move(item));
    }
    previous_ = 0;
    return sequence;
  }

  StatusOr<RegexNode> Item(int depth) {
    if (Peek() != '(' && Peek() != '[' && Peek() != '\\') return Literal();
    if (Peek() != '\\') previous_ = 0;
    if (Peek() == '(') return Group(depth);
    if (Peek() == '[') {
      ASSIGN_OR_RETURN(PointRanges set, Class(depth));
      return FoldedSet(std::move(set));
    }
    return Escape();
  }

  StatusOr<RegexNode> Literal() {
    switch (Peek()) {
      case '?':
      case '*':
      case '+':
      case '{':
        return Refuse(absl::StrCat("a ", absl::string_view(&in_[at_], 1)));
      case '^':
        ++at_;
        return PlaceNode(RegexPlace::kLineStart);
      case '$':
        ++at_;
        return PlaceNode(RegexPlace::kLineEnd);
      case '.':
        ++at_;
        return SetNode(One('\n').Complement());
      default:
        return LiteralPoint(TakePoint());
    }
  }

  StatusOr<RegexNode> LiteralPoint(uint32_t point) {
    if (!ignore_case_) return SetNode(One(point));
    if (point >= 0x80) return Refuse("a character outside ASCII that ignores case");
    const char lower = absl::ascii_tolower(static_cast<unsigned char>(point));
    for (absl::string_view pair : kFoldedPairs) {
      if (previous_ == pair[0] && lower == pair[1]) {
        return Refuse(absl::StrCat("\"", pair, "\" that ignores case"));
      }
    }
    previous_ = lower;
    PointRanges set = One(point);
    Fold(&set);
    return SetNode(std::move(set));
  }

  // Adds the other case of the letters of ASCII in `set`.
  static void Fold(PointRanges* set) {
    PointRanges more;
    for (uint32_t upper = 'A'; upper <= 'Z'; ++upper) {
      const uint32_t other = upper == 'S' ? kLongS : upper == 'K' ? kKelvin : upper;
      if (set->Has(upper) || set->Has(upper + 32) || set->Has(other)) {
        for (const uint32_t point : {upper, upper + 32, other}) more.Add(point, point);
      }
    }
    set->Add(more);
    set->Normalize();
  }

  // A class that ignores case: of characters of ASCII, or one that has both cases of everything.
  StatusOr<RegexNode> FoldedSet(PointRanges set) {
    if (ignore_case_) {
      const bool ascii = set.ranges().empty() || set.ranges().back().last < 0x80;
      if (!ascii && !HasBothCases(set)) return Refuse("a class that ignores case");
      if (ascii) Fold(&set);
    }
    return SetNode(std::move(set));
  }

  // All letters that have a case, or none of them.
  static bool HasBothCases(const PointRanges& set) {
    const PointRanges rest = set.Complement();
    bool any = false, all = true;
    for (absl::string_view name : {"Lu", "Ll", "Lt"}) {
      const PointRanges letters = *PropertySet(name);
      any = any || !set.Intersection(letters).empty();
      all = all && rest.Intersection(letters).empty();
    }
    return all || !any;
  }

  StatusOr<RegexNode> Group(int depth) {
    RegexNode node;
    const bool outside = ignore_case_;
    bool behind = false;
    if (Take("(?=") || Take("(?!")) {
      node.kind = RegexKind::kAhead;
      node.negated = in_[at_ - 1] == '!';
    } else if (Take("(?<=") || Take("(?<!")) {
      node.kind = RegexKind::kBehind;
      node.negated = in_[at_ - 1] == '!';
      behind = true;
    } else if (Take("(?>")) {
      node.kind = RegexKind::kAtomic;
    } else if (Take("(?i:")) {
      ignore_case_ = true;
    } else if (Take("(?<")) {
      const size_t close = in_.find('>', at_);
      if (close == absl::string_view::npos) return Refuse("an open group");
      at_ = close + 1;
    } else if (!Take("(?:")) {
      if (Peek(1) == '?' || Peek(1) == '*') return Refuse("a group of an unknown kind");
      ++at_;
    }
    ASSIGN_OR_RETURN(RegexNode body, Either(depth + 1));
    ignore_case_ = outside;
    previous_ = 0;
    if (!Take(")")) return Refuse("an open group");
    if (node.kind == RegexKind::kEmpty) return body;
    if (behind) {
      if (body.kind == RegexKind::kSequence && body.children.size() == 1) {
        body = RegexNode(std::move(body.children[0]));
      }
      if (body.kind != RegexKind::kSet) return Refuse("a look behind at more than one character");
      node.set = std::move(body.set);
      return node;
    }
    node.children.push_back(std::move(body));
    return node;
  }

  StatusOr<RegexNode> Escape() {
    const char c = Peek(1);
    const auto place = [&](RegexPlace where) -> StatusOr<RegexNode> {
      at_ += 2;
      previous_ = 0;
      return PlaceNode(where);
    };
    switch (c) {
      case 'b':
        return place(RegexPlace::kWordEdge);
      case 'B':
        return place(RegexPlace::kNoWordEdge);
      case 'A':
        return place(RegexPlace::kTextStart);
      case 'z':
        return place(RegexPlace::kTextEnd);
      case 'Z':
        return place(RegexPlace::kTextEndOrEol);
      default:
        break;
    }
    ASSIGN_OR_RETURN(const auto set, EscapedSet());
    if (set.has_value()) {
      previous_ = 0;
      return FoldedSet(*set);
    }
    ASSIGN_OR_RETURN(const uint32_t point, EscapedPoint());
    return LiteralPoint(point);
  }

  // \s and the like; none for an escape that is one character.
  StatusOr<std::optional<PointRanges>> EscapedSet() {
    const char c = Peek(1);
    PointRanges set;
    switch (absl::ascii_tolower(static_cast<unsigned char>(c))) {
      case 's':
        set = SpaceSet();
        break;
      case 'w':
        set = WordSet();
        break;
      case 'd':
        set = *PropertySet("Nd");
        break;
      case 'h':
        set = PointRanges(std::array<PointRange, 3>{{{'0', '9'}, {'A', 'F'}, {'a', 'f'}}});
        break;
      case 'p':
        return Property();
      default:
        return std::optional<PointRanges>();
    }
    at_ += 2;
    return std::optional<PointRanges>(
        absl::ascii_isupper(static_cast<unsigned char>(c)) ? set.Complement() : std::move(set));
  }

  StatusOr<std::optional<PointRanges>> Property() {
    const size_t close = in_.find('}', at_);
    if (Peek(2) != '{' || close == absl::string_view::npos) return Refuse("\\p without braces");
    absl::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    bool negated = Peek(1) == 'P';
    if (absl::StartsWith(name, "^")) {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::optional<PointRanges> set = PropertySet(name);
    if (!set.has_value()) {
      return Refuse(absl::StrCat("\\p{", absl::CHexEscape(name.substr(0, 32)), "}"));
    }
    at_ = close + 1;
    if (negated) set = set->Complement();
    return set;
  }

  StatusOr<uint32_t> EscapedPoint() {
    const char c = Peek(1);
    if (c == 'x' && Peek(2) == '{') return HexPoint(3, 8, '}');
    if (c == 'x') return HexPoint(2, 2, '\0');
    if (c == 'u') return HexPoint(2, 4, '\0');
    constexpr absl::string_view kNames = "rntfvae";
    constexpr absl::string_view kPoints = "\r\n\t\f\v\a\x1B";
    const size_t known = c == '\0' ? kNames.npos : kNames.find(c);
    if (known != kNames.npos) {
      at_ += 2;
      return static_cast<uint32_t>(kPoints[known]);
    }
    if (absl::ascii_ispunct(static_cast<unsigned char>(c)) || c == ' ') {
      at_ += 2;
      return static_cast<uint32_t>(c);
    }
    return Refuse(absl::StrCat("\\", absl::CHexEscape(absl::string_view(&c, c == '\0' ? 0 : 1))));
  }

  // From `skip` bytes on, up to `most` digits, and then `close`.
  StatusOr<uint32_t> HexPoint(size_t skip, size_t most, char close) {
    uint32_t point = 0;
    size_t digits = 0;
    for (; digits < most && absl::ascii_isxdigit(static_cast<unsigned char>(Peek(skip + digits)));
         ++digits) {
      const char c = absl::ascii_tolower(static_cast<unsigned char>(Peek(skip + digits)));
      point = point << 4 | static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    const bool closed = close == '\0' || Peek(skip + digits) == close;
    // \x80 and up are bytes in Oniguruma, not code points.
    const bool byte = skip == 2 && most == 2 && point >= 0x80;
    if (digits == 0 || (most == 4 && digits != 4) || !closed || byte || point > kLastPoint ||
        (point >= 0xD800 && point < 0xE000)) {
      return Refuse("a character number that is none");
    }
    at_ += skip + digits + (close == '\0' ? 0 : 1);
    return point;
  }

  // A class from its [ on, with classes inside, and && between.
  StatusOr<PointRanges> Class(int depth) {
    if (depth > kMaxDepth) return Refuse(absl::StrCat("more than ", kMaxDepth, " groups deep"));
    ++at_;
    const bool negated = Take("^");
    if (Peek() == ']') return Refuse("an empty class");
    std::optional<PointRanges> all;
    PointRanges part;
    while (!End() && Peek() != ']') {
      if (Take("&&")) {
        part.Normalize();
        all = all.has_value() ? all->Intersection(part) : part;
        part = PointRanges();
        continue;
      }
      RETURN_IF_ERROR(ClassItem(depth, &part));
    }
    if (!Take("]")) return Refuse("an open class");
    part.Normalize();
    PointRanges set = all.has_value() ? all->Intersection(part) : std::move(part);
    return negated ? set.Complement() : set;
  }

  Status ClassItem(int depth, PointRanges* set) {
    if (Peek() == '[' && Peek(1) == ':') return PosixClass(set);
    if (Peek() == '[') {
      ASSIGN_OR_RETURN(const PointRanges inner, Class(depth + 1));
      set->Add(inner);
      return OkStatus();
    }
    if (Peek() == '\\') {
      ASSIGN_OR_RETURN(const auto escaped, EscapedSet());
      if (escaped.has_value()) {
        set->Add(*escaped);
        return OkStatus();
      }
    }
    ASSIGN_OR_RETURN(const uint32_t first, ClassPoint());
    uint32_t last = first;
    if (Peek() == '-' && Peek(1) != ']' && Peek(1) != '[' && at_ + 1 < in_.size()) {
      ++at_;
      if (Peek() == '\\') {
        // "a-\d": the - is itself.
        ASSIGN_OR_RETURN(const auto escaped, EscapedSet());
        if (escaped.has_value()) return Refuse("a range that ends with a set");
      }
      ASSIGN_OR_RETURN(last, ClassPoint());
      if (last < first) return Refuse("a range that runs backwards");
    }
    set->Add(first, last);
    return OkStatus();
  }

  StatusOr<uint32_t> ClassPoint() {
    if (Peek() == '\\') return EscapedPoint();
    if (Peek() == '&' && Peek(1) == '&') return Refuse("&& at the end of a range");
    return TakePoint();
  }

  Status PosixClass(PointRanges* set) {
    const size_t close = in_.find(":]", at_);
    if (close == absl::string_view::npos) return Refuse("a [: without :]");
    absl::string_view name = in_.substr(at_ + 2, close - at_ - 2);
    const bool negated = absl::ConsumePrefix(&name, "^");
    const std::optional<PointRanges> known = PropertySet(name);
    if (!known.has_value()) {
      return Refuse(absl::StrCat("[:", absl::CHexEscape(name.substr(0, 32)), ":]"));
    }
    at_ = close + 2;
    set->Add(negated ? known->Complement() : *known);
    return OkStatus();
  }

  Status Quantifiers(RegexNode* item) {
    for (int count = 0;; ++count) {
      uint32_t min = 0, max = 0;
      bool counted = false;
      if (Take("?")) {
        min = 0, max = 1;
      } else if (Take("*")) {
        min = 0, max = kNoLimit;
      } else if (Take("+")) {
        min = 1, max = kNoLimit;
      } else if (Peek() == '{') {
        RETURN_IF_ERROR(Count(&min, &max));
        counted = true;
      } else {
        return OkStatus();
      }
      previous_ = 0;
      if (count == kMaxQuantifiers) {
        return Refuse(absl::StrCat("more than ", kMaxQuantifiers, " quantifiers in a row"));
      }
      if (item->kind == RegexKind::kAhead || item->kind == RegexKind::kBehind ||
          item->kind == RegexKind::kAssert) {
        return Refuse("a quantifier after a place");
      }
      RegexNode repeat;
      repeat.kind = RegexKind::kRepeat;
      repeat.min = min;
      repeat.max = max;
      // {n}? is {n} or nothing, and {n,m}+ is {n,m} again and again.
      if (!(counted && min == max) && Take("?")) {
        repeat.greed = RegexGreed::kLazy;
      } else if (!counted && Take("+")) {
        repeat.greed = RegexGreed::kPossessive;
      }
      if (max == kNoLimit && CanBeEmpty(*item)) return Refuse("endless repeats of nothing");
      repeat.children.push_back(std::move(*item));
      *item = std::move(repeat);
    }
  }

  Status Count(uint32_t* min, uint32_t* max) {
    const size_t close = in_.find('}', at_);
    if (close == absl::string_view::npos) return Refuse("an open {");
    const absl::string_view body = in_.substr(at_ + 1, close - at_ - 1);
    const size_t comma = body.find(',');
    const absl::string_view low = body.substr(0, comma);
    const bool range = comma != absl::string_view::npos;
    const absl::string_view high = range ? body.substr(comma + 1) : low;
    if ((low.empty() && high.empty()) || !Number(low, 0, min) || !Number(high, kNoLimit, max)) {
      return Refuse("a {");
    }
    if (*max < *min) return Refuse("a count that runs backwards");
    at_ = close + 1;
    return OkStatus();
  }

  static bool Number(absl::string_view digits, uint32_t otherwise, uint32_t* out) {
    *out = otherwise;
    if (digits.empty()) return true;
    if (digits.size() > 4) return false;
    uint32_t value = 0;
    for (char c : digits) {
      if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
      value = value * 10 + static_cast<uint32_t>(c - '0');
    }
    *out = value;
    return value <= kMaxCount;
  }

  absl::string_view in_;
  size_t at_ = 0;
  bool ignore_case_ = false;
  char previous_ = 0;  // the letter just before, if it ignores case
};

}  // namespace

StatusOr<RegexNode> ParseRegex(absl::string_view pattern) { return Parser(pattern).Run(); }

bool CanBeEmpty(const RegexNode& node) {
  switch (node.kind) {
    case RegexKind::kSet:
      return false;
    case RegexKind::kSequence:
      return std::all_of(node.children.begin(), node.children.end(), CanBeEmpty);
    case RegexKind::kEither:
      return std::any_of(node.children.begin(), node.children.end(), CanBeEmpty);
    case RegexKind::kRepeat:
      return node.min == 0 || CanBeEmpty(node.children[0]);
    case RegexKind::kAtomic:
      return CanBeEmpty(node.children[0]);
    default:
      return true;
  }
}

PointRanges FirstOf(const RegexNode& node) {
  PointRanges first;
  switch (node.kind) {
    case RegexKind::kSet:
      return node.set;
    case RegexKind::kSequence:
      for (const RegexNode& child : node.children) {
        first.Add(FirstOf(child));
        if (!CanBeEmpty(child)) break;
      }
      break;
    case RegexKind::kEither:
      for (const RegexNode& child : node.children) first.Add(FirstOf(child));
      break;
    case RegexKind::kRepeat:
    case RegexKind::kAtomic:
      return FirstOf(node.children[0]);
    default:
      break;
  }
  first.Normalize();
  return first;
}

}  // namespace mainarch::text
