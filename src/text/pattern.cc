// SPDX-License-Identifier: MIT
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "text/regex_split.h"
#include "text/utf8.h"

namespace mainarch::text {
namespace {

// White_Space, spelt out: PCRE2's \s takes U+180E too, which Unicode made a format control in 6.3.
constexpr absl::string_view kSpaceSet =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
// Its complement, for \S inside a class.
constexpr absl::string_view kNotSpaceSet =
    R"(\x{0}-\x{8}\x{E}-\x{1F}!-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF})"
    R"(\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

// General categories, which both engines know by these names.
constexpr std::array<absl::string_view, 36> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd",
    "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm",
    "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cs"};

// Pairs of letters that Oniguruma, ignoring case, also finds in one character (U+00DF, ligatures),
// and PCRE2 does not.
constexpr std::array<absl::string_view, 5> kFoldedPairs = {"ss", "st", "ff", "fi", "fl"};

class Translator {
 public:
  explicit Translator(absl::string_view pattern) : in_(pattern) {}

  StatusOr<std::string> Run() {
    if (!IsValidUtf8(in_)) return Error(Code::kUnsupported, "split pattern is not UTF-8");
    if (in_.size() > kMaxPattern) {
      return Error(Code::kUnsupported, "split pattern of ", in_.size(), " bytes is over ",
                   kMaxPattern);
    }
    while (at_ < in_.size()) RETURN_IF_ERROR(Item());
    if (depth_ != 0) return Refuse("an open group");
    return std::move(out_);
  }

 private:
  static constexpr size_t kMaxPattern = 4096;
  static constexpr int kMaxDepth = 32;

  Status Refuse(absl::string_view what) const {
    return Error(Code::kUnsupported, "split pattern has ", what, " at offset ", at_,
                 ", which mainarch does not run");
  }

  char Peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  absl::string_view Rest() const { return in_.substr(at_); }

  void Copy(size_t count) {
    absl::StrAppend(&out_, in_.substr(at_, count));
    at_ += count;
  }

  Status Item() {
    switch (Peek()) {
      case '(':
        return Open();
      case ')':
        if (depth_ == 0) return Refuse("an unopened )");
        --depth_;
        Copy(1);
        return Quantifier();
      case '|':
        Copy(1);
        return OkStatus();
      case '[':
        RETURN_IF_ERROR(Class());
        return Quantifier();
      case '\\':
        RETURN_IF_ERROR(Escape(/*in_class=*/false));
        return Quantifier();
      case '.':
      case '^':
      case '$':
      case '?':
      case '*':
      case '+':
      case '{':
        return Refuse(absl::StrCat("a ", absl::string_view(&in_[at_], 1)));
      default:
        return Literal();
    }
  }

  Status Literal() {
    if (static_cast<unsigned char>(Peek()) < 0x20) return Refuse("a control character");
    size_t length;
    DecodeValid(in_.data() + at_, &length);
    Copy(length);
    return Quantifier();
  }

  Status Open() {
    if (absl::StartsWith(Rest(), "(?i:")) return IgnoreCase();
    if (++depth_ > kMaxDepth) return Refuse(absl::StrCat("more than ", kMaxDepth, " groups deep"));
    for (absl::string_view head : {"(?:", "(?=", "(?!"}) {
      if (absl::StartsWith(Rest(), head)) {
        Copy(head.size());
        return OkStatus();
      }
    }
    if (Peek(1) == '?' || Peek(1) == '*') return Refuse("a group of an unknown kind");
    Copy(1);
    return OkStatus();
  }

  // (?i:..) of bars between words of ASCII letters and apostrophes, or between classes of letters:
  // nothing else folds alike.
  Status IgnoreCase() {
    const size_t end = in_.find(')', at_);
    if (end == absl::string_view::npos) return Refuse("an open group");
    const std::string body = absl::AsciiStrToLower(in_.substr(at_ + 4, end - at_ - 4));
    for (absl::string_view part : absl::StrSplit(body, '|')) {
      if (absl::ConsumePrefix(&part, "[") && !absl::ConsumeSuffix(&part, "]")) {
        return Refuse("(?i:..) around more than letters");
      }
      if (part.empty() || part.find_first_not_of("'abcdefghijklmnopqrstuvwxyz") != part.npos) {
        return Refuse("(?i:..) around more than letters");
      }
      for (absl::string_view pair : kFoldedPairs) {
        // In a class the two do not follow each other, but such a class is rare enough to refuse.
        if (absl::StrContains(part, pair)) {
          return Refuse(absl::StrCat("(?i:..) around \"", pair, "\""));
        }
      }
    }
    Copy(end + 1 - at_);
    return Quantifier();
  }

  Status Escape(bool in_class) {
    const char c = Peek(1);
    if (c == 's' || c == 'S') {
      at_ += 2;
      const absl::string_view set = c == 's' ? kSpaceSet : kNotSpaceSet;
      absl::StrAppend(&out_, in_class ? "" : "[", set, in_class ? "" : "]");
      return OkStatus();
    }
    if (c == 'p' || c == 'P') return Property();
    if (c == 'd') {  // Nd in both
      at_ += 2;
      absl::StrAppend(&out_, "\\p{Nd}");
      return OkStatus();
    }
    if (c == 'r' || c == 'n' || c == 't' || absl::ascii_ispunct(static_cast<unsigned char>(c))) {
      Copy(2);
      return OkStatus();
    }
    return Refuse(absl::StrCat("\\", absl::string_view(&c, c == '\0' ? 0 : 1)));
  }

  Status Property() {
    const size_t close = in_.find('}', at_);
    if (Peek(2) != '{' || close == absl::string_view::npos) return Refuse("\\p without braces");
    const absl::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    for (absl::string_view known : kCategories) {
      if (name == known) {
        Copy(close + 1 - at_);
        return OkStatus();
      }
    }
    return Refuse(absl::StrCat("\\p{", name.substr(0, 32), "}"));
  }

  Status Class() {
    Copy(1);
    if (Peek() == '^') Copy(1);
    if (Peek() == ']') return Refuse("an empty class");
    while (at_ < in_.size() && Peek() != ']') {
      if (Peek() == '[') return Refuse("a class in a class");
      if (Peek() == '&' && Peek(1) == '&') return Refuse("&& in a class");
      if (Peek() == '\\') {
        RETURN_IF_ERROR(Escape(/*in_class=*/true));
        continue;
      }
      if (static_cast<unsigned char>(Peek()) < 0x20) return Refuse("a control character");
      size_t length;
      DecodeValid(in_.data() + at_, &length);
      Copy(length);
    }
    if (at_ == in_.size()) return Refuse("an open class");
    Copy(1);
    return OkStatus();
  }

  Status Quantifier() {
    const char c = Peek();
    if (c == '?' || c == '*' || c == '+') {
      Copy(1);
      if (Peek() == '?' || Peek() == '+') Copy(1);
    } else if (c == '{') {
      RETURN_IF_ERROR(Count());
    } else {
      return OkStatus();
    }
    const char after = Peek();
    if (after == '?' || after == '*' || after == '+' || after == '{') {
      return Refuse("a quantifier after a quantifier");
    }
    return OkStatus();
  }

  // {n}, {n,} or {n,m}. What may follow differs: {n}? is lazy in one engine, optional in the other.
  Status Count() {
    const size_t close = in_.find('}', at_);
    if (close == absl::string_view::npos) return Refuse("an open {");
    const absl::string_view body = in_.substr(at_ + 1, close - at_ - 1);
    const size_t comma = body.find(',');
    const absl::string_view low = body.substr(0, comma);
    const absl::string_view high = comma == absl::string_view::npos ? "" : body.substr(comma + 1);
    if (!IsCount(low) || (!high.empty() && !IsCount(high))) return Refuse("a {");
    Copy(close + 1 - at_);
    return OkStatus();
  }

  static bool IsCount(absl::string_view digits) {
    if (digits.empty() || digits.size() > 3) return false;
    for (char c : digits) {
      if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
    }
    return true;
  }

  absl::string_view in_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string out_;
};

}  // namespace

StatusOr<std::string> TranslatePattern(absl::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace mainarch::text
