// SPDX-License-Identifier: MIT
#include "text/jinja/lexer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

// Line ends become \n, and one at the very end goes.
std::string Normalized(string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool IsNameByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Digits with single underscores between them; the length, 0 for none.
size_t DigitRun(string_view text) {
  size_t n = 0;
  while (n < text.size() && (IsDigit(text[n]) || (text[n] == '_' && n > 0 && n + 1 < text.size() &&
                                                  text[n - 1] != '_' && IsDigit(text[n + 1])))) {
    ++n;
  }
  return n;
}

// The length of a float at the front, 0 when there is none.
size_t FloatLength(string_view text) {
  size_t n = DigitRun(text);
  if (n == 0) return 0;
  bool fraction = false;
  if (n + 1 < text.size() && text[n] == '.') {
    const size_t digits = DigitRun(text.substr(n + 1));
    if (digits > 0) {
      fraction = true;
      n += 1 + digits;
    }
  }
  if (n < text.size() && (text[n] == 'e' || text[n] == 'E')) {
    size_t at = n + 1;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const size_t digits = DigitRun(text.substr(std::min(at, text.size())));
    if (digits > 0) return at + digits;
  }
  return fraction ? n : 0;
}

// 0x.., 0o.., 0b.. or decimal digits.
size_t IntegerLength(string_view text) {
  if (text.size() > 2 && text[0] == '0') {
    const char base = absl::ascii_tolower(static_cast<unsigned char>(text[1]));
    if (base == 'x' || base == 'o' || base == 'b') {
      size_t n = 2;
      while (n < text.size() && absl::ascii_isxdigit(static_cast<unsigned char>(text[n]))) ++n;
      if (n > 2) return n;
    }
  }
  return DigitRun(text);
}

void AppendEscapedPoint(uint32_t point, std::string* out) {
  const char letter = point < 0x100 ? 'x' : (point < 0x10000 ? 'u' : 'U');
  const absl::PadSpec digits = point < 0x100     ? absl::kZeroPad2
                               : point < 0x10000 ? absl::kZeroPad4
                                                 : absl::kZeroPad8;
  absl::StrAppend(out, absl::string_view(&letter, 1), absl::Hex(point, digits));
}

// What Python's unicode-escape makes of the inside of a string literal. False: an escape that is
// malformed or not known here (\N{..}).
bool Unescape(string_view in, std::string* out) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] != '\\' || i + 1 == in.size()) {
      out->push_back(in[i]);
      continue;
    }
    const char c = in[++i];
    constexpr string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    const size_t simple = kFrom.find(c);
    if (simple != string_view::npos) {
      out->push_back(kTo[simple]);
    } else if (c == '\n') {
      continue;
    } else if (c >= '0' && c <= '7') {
      uint32_t point = 0;
      size_t n = 0;
      for (; n < 3 && i + n < in.size() && in[i + n] >= '0' && in[i + n] <= '7'; ++n) {
        point = point * 8 + static_cast<uint32_t>(in[i + n] - '0');
      }
      i += n - 1;
      AppendUtf8(point, out);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
      const string_view digits = in.substr(i + 1, n);
      uint64_t point = 0;
      if (digits.size() < n) return false;
      for (const char d : digits) {
        if (!absl::ascii_isxdigit(static_cast<unsigned char>(d))) return false;
        point = point * 16 + static_cast<uint64_t>(IsDigit(d) ? d - '0' : (d | 32) - 'a' + 10);
      }
      if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return false;
      AppendUtf8(static_cast<uint32_t>(point), out);
      i += n;
    } else if (c == 'N') {
      return false;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      // The character was spelled as an escape of its own before the backslash is read: Jinja
      // encodes to ASCII with backslashes first.
      size_t length = 0;
      out->push_back('\\');
      AppendEscapedPoint(DecodeValid(in.data() + i, &length), out);
      i += length - 1;
    } else {
      out->push_back('\\');
      out->push_back(c);
    }
  }
  return true;
}

class Lexer {
 public:
  explicit Lexer(string_view source) : source_(source) {}

  StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      RETURN_IF_ERROR(Root());
    }
    Emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <class... Parts>
  Status Bad(const Parts&... parts) const {
    return Error(Code::kBadModel, "line ", line_, ": ", parts...);
  }

  string_view rest() const { return string_view(source_).substr(at_); }
  void Emit(TokenKind kind, string_view text) {
    tokens_.push_back({kind, line_, std::string(text)});
  }
  void Advance(size_t count) {
    line_ += static_cast<uint32_t>(
        std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                   source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
    if (count > 0) line_starting_ = source_[at_ - 1] == '\n';
  }
  void SkipSpace() { Advance(rest().size() - StripLeft(rest()).size()); }

  // Text up to the next tag, and that tag.
  Status Root() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        Emit(TokenKind::kData, rest());
        Advance(rest().size());
        return OkStatus();
      }
      const char c = source_[tag + 1];
      if (c == '{' || c == '%' || c == '#') break;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    string_view data = rest().substr(0, tag - at_);
    if (sign == '-') {
      data = StripRight(data);
    } else if (sign != '+' && kind != '{') {
      data = WithoutIndent(data);
    }
    if (!data.empty()) Emit(TokenKind::kData, data);
    Advance(tag - at_ + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (kind == '#') return Comment();
    if (kind == '%') {
      ASSIGN_OR_RETURN(const bool raw, Raw());
      if (raw) return OkStatus();
    }
    Emit(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    return Tag(kind == '{');
  }

  // Without white space at its end, if nothing else is on that line.
  string_view WithoutIndent(string_view data) const {
    const size_t newline = data.rfind('\n');
    const size_t begin = newline == string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !line_starting_) return data;
    return StripLeft(data.substr(begin)).empty() ? data.substr(0, begin) : data;
  }

  Status Comment() {
    const size_t end = rest().find("#}");
    if (end == string_view::npos) return Bad("a comment without an end");
    const char sign = end > 0 ? rest()[end - 1] : ' ';
    Advance(end + 2);
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+') {
      SkipNewline();
    }
    return OkStatus();
  }

  void SkipNewline() {
    if (absl::StartsWith(rest(), "\n")) Advance(1);
  }

  // {% raw %} .. {% endraw %}, when that is what stands behind "{%".
  StatusOr<bool> Raw() {
    const string_view name = StripLeft(rest());
    if (!absl::StartsWith(name, "raw")) return false;
    const string_view end = StripLeft(name.substr(3));
    const bool strips = absl::StartsWith(end, "-%}");
    if (!strips && !absl::StartsWith(end, "%}")) return false;
    Advance(static_cast<size_t>(end.data() - rest().data()) + (strips ? 3 : 2));
    if (strips) SkipSpace();
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; tag += 2) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
      string_view inside = string_view(source_).substr(tag + 2);
      if (sign == '-' || sign == '+') inside.remove_prefix(1);
      inside = StripLeft(inside);
      if (!absl::StartsWith(inside, "endraw")) continue;
      inside = StripLeft(inside.substr(6));
      const char last = inside.empty() ? ' ' : inside[0];
      if (last == '-' || last == '+') inside.remove_prefix(1);
      if (!absl::StartsWith(inside, "%}")) continue;
      string_view data = rest().substr(0, tag - at_);
      if (sign == '-') {
        data = StripRight(data);
      } else if (sign != '+') {
        data = WithoutIndent(data);
      }
      Emit(TokenKind::kData, data);
      Advance(static_cast<size_t>(inside.data() + 2 - rest().data()));
      if (last == '-') {
        SkipSpace();
      } else if (last != '+') {
        SkipNewline();
      }
      return true;
    }
    return Bad("{% raw %} without {% endraw %}");
  }

  // Takes the end of the tag, if it stands here.
  bool TagEnd(bool variable) {
    const string_view end = variable ? "}}" : "%}";
    const char sign = rest()[0];
    const bool strips = sign == '-';
    const bool keeps = sign == '+' && !variable;
    const string_view at = strips || keeps ? rest().substr(1) : rest();
    if (!absl::StartsWith(at, end)) return false;
    Emit(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
    Advance(strips || keeps ? 3 : 2);
    if (strips) {
      SkipSpace();
    } else if (!variable && !keeps) {
      SkipNewline();
    }
    return true;
  }

  Status Tag(bool variable) {
    std::string open;  // brackets, for a "}}" in them ends no tag
    while (true) {
      SkipSpace();
      if (rest().empty()) return Bad("a tag without an end");
      if (open.empty() && TagEnd(variable)) return OkStatus();
      RETURN_IF_ERROR(TokenInTag(&open));
    }
  }

  Status TokenInTag(std::string* open) {
    const string_view text = rest();
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (const size_t n = after_dot ? 0 : FloatLength(text); n > 0) {
      Emit(TokenKind::kFloat, text.substr(0, n));
      Advance(n);
    } else if (IsDigit(text[0])) {
      const size_t n = IntegerLength(text);
      Emit(TokenKind::kInteger, text.substr(0, n));
      Advance(n);
    } else if (IsNameByte(text[0])) {
      size_t n = 1;
      while (n < text.size() && IsNameByte(text[n])) ++n;
      Emit(TokenKind::kName, text.substr(0, n));
      Advance(n);
    } else if (text[0] == '\'' || text[0] == '"') {
      return String(text[0]);
    } else {
      return Operator(open);
    }
    return OkStatus();
  }

  Status String(char quote) {
    size_t end = 1;
    while (end < rest().size() && rest()[end] != quote) end += rest()[end] == '\\' ? 2 : 1;
    if (end >= rest().size()) return Bad("a string without an end");
    std::string text;
    if (!Unescape(rest().substr(1, end - 1), &text)) {
      return Bad("a string with an escape that is not known");
    }
    Emit(TokenKind::kString, text);
    Advance(end + 1);
    return OkStatus();
  }

  Status Operator(std::string* open) {
    constexpr string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr string_view kOne = "+-/*%~[](){}><=.:|,;";
    const string_view text = rest();
    size_t length = kOne.find(text[0]) == string_view::npos ? 0 : 1;
    for (const string_view two : kTwo) {
      if (absl::StartsWith(text, two)) length = 2;
    }
    if (length == 0) {
      return Bad("unexpected \"", absl::Utf8SafeCHexEscape(text.substr(0, 1)), "\"");
    }
    const char c = text[0];
    if (length == 1) {
      if (c == '{') open->push_back('}');
      if (c == '(') open->push_back(')');
      if (c == '[') open->push_back(']');
      if (c == '}' || c == ')' || c == ']') {
        if (open->empty() || open->back() != c)
          return Bad("unexpected \"", text.substr(0, 1), "\"");
        open->pop_back();
      }
    }
    Emit(TokenKind::kOperator, text.substr(0, length));
    Advance(length);
    return OkStatus();
  }

  const string_view source_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

StatusOr<std::vector<Token>> Tokenize(string_view source) {
  const std::string text = Normalized(source);
  return Lexer(text).Run();
}

}  // namespace mainarch::text::jinja
