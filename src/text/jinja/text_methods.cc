// SPDX-License-Identifier: MIT
#include "text/jinja/text_methods.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "text/jinja/builtin.h"
#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

// A part of the text that the method belongs to, Markup as it is.
Value Piece(const Call& call, string_view part) {
  Value value(part);
  value.flag = call.self.flag;
  return value;
}

string_view Self(const Call& call) {
  call.heap->Step(1 + call.self.size / 32);
  return call.self.view();
}

Value Mapped(const Call& call, std::string (*map)(string_view)) {
  call.heap->Step(call.self.size / 8);
  Value out = call.heap->Text(map(Self(call)));
  out.flag = call.self.flag;
  return out;
}

Value UpperMethod(const Call& call) { return Mapped(call, Upper); }
Value LowerMethod(const Call& call) { return Mapped(call, Lower); }
Value TitleMethod(const Call& call) { return Mapped(call, Title); }
Value CapitalizeMethod(const Call& call) { return Mapped(call, Capitalize); }
Value SwapCaseMethod(const Call& call) { return Mapped(call, SwapCase); }

Value StripOf(const Call& call, bool left, bool right) {
  if (!Absent(call, 0)) TextArgument(call, 0, "");
  return Stripped(call.self, left, right, Absent(call, 0) ? nullptr : &call.at[0]);
}

Value StripMethod(const Call& call) { return StripOf(call, true, true); }
Value LeftStripMethod(const Call& call) { return StripOf(call, true, false); }
Value RightStripMethod(const Call& call) { return StripOf(call, false, true); }

// text[start:end] of the arguments at 1 and 2; false when start is behind the text's end.
bool Window(const Call& call, string_view* out) {
  *out = Self(call);
  if (Absent(call, 1) && Absent(call, 2)) return true;
  const int64_t size = static_cast<int64_t>(Length(*out));
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t start = IntArgument(call, 1, 0);
  const int64_t from = clamp(start), to = clamp(IntArgument(call, 2, size));
  if (start > size || from > to) return false;
  const size_t begin = Offset(*out, static_cast<size_t>(from));
  *out = out->substr(begin, Offset(out->substr(begin), static_cast<size_t>(to - from)));
  return true;
}

// startswith and endswith: one text, or a tuple of them.
Value Affixed(const Call& call, bool (*test)(string_view, string_view)) {
  string_view text;
  const bool there = Window(call, &text);
  if (call.at[0].Is(Kind::kTuple)) {
    for (const Value& affix : call.at[0].sequence->span()) {
      if (!affix.string()) Fail("expected a string or a tuple of strings");
      if (there && test(text, affix.view())) return Value(true);
    }
    return Value(false);
  }
  return Value(there && test(text, TextArgument(call, 0, "")));
}

Value StartsWithMethod(const Call& call) {
  return Affixed(call, [](string_view a, string_view b) { return absl::StartsWith(a, b); });
}
Value EndsWithMethod(const Call& call) {
  return Affixed(call, [](string_view a, string_view b) { return absl::EndsWith(a, b); });
}

// In code points; -1 when it is not there.
int64_t Position(const Call& call, bool last) {
  const string_view wanted = TextArgument(call, 0, "");
  string_view window;
  if (!Window(call, &window)) return -1;
  const size_t at = last ? window.rfind(wanted) : window.find(wanted);
  if (at == string_view::npos) return -1;
  const char* found = window.data() + at;
  return static_cast<int64_t>(
      Length({call.self.text, static_cast<size_t>(found - call.self.text)}));
}

Value FindMethodOf(const Call& call) { return Value(Position(call, false)); }
Value RightFindMethod(const Call& call) { return Value(Position(call, true)); }

Value IndexOf(const Call& call, bool last) {
  const int64_t at = Position(call, last);
  if (at < 0) Fail("substring not found");
  return Value(at);
}

Value IndexMethod(const Call& call) { return IndexOf(call, false); }
Value RightIndexMethod(const Call& call) { return IndexOf(call, true); }

Value CountMethod(const Call& call) {
  string_view window;
  const string_view wanted = TextArgument(call, 0, "");
  if (!Window(call, &window)) return Value(int64_t{0});
  if (wanted.empty()) return Value(static_cast<int64_t>(Length(window)) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = window.find(wanted, at)) != string_view::npos; at += wanted.size()) {
    ++count;
  }
  return Value(count);
}

Value ReplaceMethod(const Call& call) {
  string_view from = TextArgument(call, 0, ""), to = TextArgument(call, 1, "");
  Value escaped;
  if (call.self.flag && !call.at[1].flag) {
    Builder out(call.heap);
    AddEscaped(&out, to);
    escaped = out.Done();
    to = escaped.view();
  }
  Value out = Replaced(call.heap, Self(call), from, to, IntArgument(call, 2, -1));
  out.flag = call.self.flag;
  return out;
}

// Where the last word begins: the bytes up to and with the last white space.
size_t BehindLastSpace(string_view text) {
  size_t at = text.size();
  while (at > 0) {
    size_t begin = at - 1, n = 0;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    if (IsSpace(DecodeValid(text.data() + begin, &n))) break;
    at = begin;
  }
  return at;
}

size_t FirstSpace(string_view text) {
  size_t at = 0;
  for (size_t n = 0; at < text.size(); at += n) {
    if (IsSpace(DecodeValid(text.data() + at, &n))) break;
  }
  return at;
}

// At white space, at most `limit` times (negative: always); a run of it is one separator.
std::vector<string_view> WordsOf(string_view text, int64_t limit, bool from_right) {
  std::vector<string_view> out;
  while (!(text = from_right ? StripRight(text) : StripLeft(text)).empty()) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(text);
      break;
    }
    const size_t cut = from_right ? BehindLastSpace(text) : FirstSpace(text);
    out.push_back(from_right ? text.substr(cut) : text.substr(0, cut));
    text = from_right ? text.substr(0, cut) : text.substr(cut);
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<string_view> PartsOf(string_view text, string_view separator, int64_t limit,
                                 bool from_right) {
  std::vector<string_view> out;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == string_view::npos) break;
    if (from_right) {
      out.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      out.push_back(text.substr(0, at));
      text.remove_prefix(at + separator.size());
    }
  }
  out.push_back(text);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

Value SplitOf(const Call& call, bool from_right) {
  const int64_t limit = IntArgument(call, 1, -1);
  std::vector<Value> out;
  const auto take = [&](const std::vector<string_view>& parts) {
    for (const string_view part : parts) out.push_back(Piece(call, part));
  };
  call.heap->Step(call.self.size / 8);
  if (Absent(call, 0)) {
    take(WordsOf(Self(call), limit, from_right));
  } else {
    const string_view separator = TextArgument(call, 0, "");
    if (separator.empty()) Fail("empty separator");
    take(PartsOf(Self(call), separator, limit, from_right));
  }
  return call.heap->Items(Kind::kList, out);
}

Value SplitMethod(const Call& call) { return SplitOf(call, false); }
Value RightSplitMethod(const Call& call) { return SplitOf(call, true); }

Value PartitionOf(const Call& call, bool last) {
  const string_view text = Self(call), separator = TextArgument(call, 0, "");
  if (separator.empty()) Fail("empty separator");
  const size_t at = last ? text.rfind(separator) : text.find(separator);
  const string_view none = text.substr(0, 0);
  Value parts[3] = {Piece(call, text), Piece(call, none), Piece(call, none)};
  if (at != string_view::npos) {
    parts[0] = Piece(call, text.substr(0, at));
    parts[1] = Piece(call, text.substr(at, separator.size()));
    parts[2] = Piece(call, text.substr(at + separator.size()));
  } else if (last) {
    std::swap(parts[0], parts[2]);
  }
  return call.heap->Items(Kind::kTuple, parts);
}

Value PartitionMethod(const Call& call) { return PartitionOf(call, false); }
Value RightPartitionMethod(const Call& call) { return PartitionOf(call, true); }

Value SplitLinesMethod(const Call& call) {
  std::vector<Value> out;
  call.heap->Step(call.self.size / 8);
  for (const string_view line : Lines(Self(call), BoolArgument(call, 0, false))) {
    out.push_back(Piece(call, line));
  }
  return call.heap->Items(Kind::kList, out);
}

Value JoinMethod(const Call& call) {
  Builder out(call.heap);
  int64_t index = 0;
  for (const Value& item : Iterate(call.heap, call.at[0])) {
    // Markup escapes what it joins, whatever it is.
    if (!item.string() && !call.self.flag) {
      Fail("sequence item ", index, ": expected a string, not '", TypeName(item), "'");
    }
    if (index++ > 0) out.Add(call.self.view());
    AddMaybeEscaped(&out, Str(call.heap, item), call.self.flag && !item.flag);
  }
  Value text = out.Done();
  text.flag = call.self.flag;
  return text;
}

Value RemovePrefixMethod(const Call& call) {
  const string_view text = Self(call), prefix = TextArgument(call, 0, "");
  return Piece(call, absl::StartsWith(text, prefix) ? text.substr(prefix.size()) : text);
}

Value RemoveSuffixMethod(const Call& call) {
  const string_view text = Self(call), suffix = TextArgument(call, 0, "");
  return Piece(call,
               absl::EndsWith(text, suffix) ? text.substr(0, text.size() - suffix.size()) : text);
}

Value PadOf(const Call& call, Align align) {
  const string_view fill = TextArgument(call, 1, " ");
  if (Length(fill) != 1) Fail("the fill character must be exactly one character long");
  return Padded(call.heap, call.self, IntArgument(call, 0, 0), fill, align);
}

Value CenterMethod(const Call& call) { return PadOf(call, Align::kCenter); }
Value LeftJustifyMethod(const Call& call) { return PadOf(call, Align::kLeft); }
Value RightJustifyMethod(const Call& call) { return PadOf(call, Align::kRight); }

Value ZeroFillMethod(const Call& call) {
  const string_view text = Self(call);
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  Builder out(call.heap);
  out.Add(text.substr(0, sign));
  out.Fill("0", IntArgument(call, 0, 0) - static_cast<int64_t>(Length(text)));
  return out.Add(text.substr(sign)).Done();
}

Value FormatMethod(const Call& call) { return FormatBraces(call.heap, call.self, call.raw); }

Value FormatMapMethod(const Call& call) {
  if (!call.at[0].Is(Kind::kDict)) Fail("format_map() takes a dict");
  return FormatBraces(call.heap, call.self, {{}, call.at[0].table->span()});
}

// Whether the text is not empty and every character passes.
Value All(const Call& call, bool (*test)(uint32_t)) {
  const string_view text = Self(call);
  call.heap->Step(text.size() / 4);
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    if (!test(DecodeValid(text.data() + i, &n))) return Value(false);
  }
  return Value(!text.empty());
}

bool IsAlphaNumeric(uint32_t point) { return IsAlpha(point) || IsDecimal(point); }
Value IsAlphaMethod(const Call& call) { return All(call, IsAlpha); }
Value IsAlnumMethod(const Call& call) { return All(call, IsAlphaNumeric); }
Value IsDigitMethod(const Call& call) { return All(call, IsDecimal); }
Value IsSpaceMethod(const Call& call) { return All(call, IsSpace); }
Value IsPrintableMethod(const Call& call) {
  return call.self.size == 0 ? Value(true) : All(call, IsPrintable);
}
Value IsAsciiMethod(const Call& call) {
  return call.self.size == 0 ? Value(true) : All(call, [](uint32_t point) { return point < 0x80; });
}

// Whether some letter is of the one case and none of the other.
Value Cased(const Call& call, bool (*wanted)(uint32_t), bool (*other)(uint32_t)) {
  bool some = false;
  const string_view text = Self(call);
  call.heap->Step(text.size() / 4);
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    const uint32_t point = DecodeValid(text.data() + i, &n);
    if (other(point)) return Value(false);
    some |= wanted(point);
  }
  return Value(some);
}

Value IsLowerMethod(const Call& call) { return Cased(call, IsLower, IsUpper); }
Value IsUpperMethod(const Call& call) { return Cased(call, IsUpper, IsLower); }

constexpr Builtin kMethods[] = {
    {"capitalize", CapitalizeMethod},
    {"casefold", nullptr},
    {"center", CenterMethod, "width,fillchar", 1},
    {"count", CountMethod, "sub,start,end", 1},
    {"encode", nullptr},
    {"endswith", EndsWithMethod, "suffix,start,end", 1},
    {"expandtabs", nullptr},
    {"find", FindMethodOf, "sub,start,end", 1},
    {"format", FormatMethod, "*"},
    {"format_map", FormatMapMethod, "mapping", 1},
    {"index", IndexMethod, "sub,start,end", 1},
    {"isalnum", IsAlnumMethod},
    {"isalpha", IsAlphaMethod},
    {"isascii", IsAsciiMethod},
    {"isdecimal", IsDigitMethod},
    {"isdigit", IsDigitMethod},
    {"isidentifier", nullptr},
    {"islower", IsLowerMethod},
    {"isnumeric", IsDigitMethod},
    {"isprintable", IsPrintableMethod},
    {"isspace", IsSpaceMethod},
    {"istitle", nullptr},
    {"isupper", IsUpperMethod},
    {"join", JoinMethod, "iterable", 1},
    {"ljust", LeftJustifyMethod, "width,fillchar", 1},
    {"lower", LowerMethod},
    {"lstrip", LeftStripMethod, "chars"},
    {"maketrans", nullptr},
    {"partition", PartitionMethod, "sep", 1},
    {"removeprefix", RemovePrefixMethod, "prefix", 1},
    {"removesuffix", RemoveSuffixMethod, "suffix", 1},
    {"replace", ReplaceMethod, "old,new,count", 2},
    {"rfind", RightFindMethod, "sub,start,end", 1},
    {"rindex", RightIndexMethod, "sub,start,end", 1},
    {"rjust", RightJustifyMethod, "width,fillchar", 1},
    {"rpartition", RightPartitionMethod, "sep", 1},
    {"rsplit", RightSplitMethod, "sep,maxsplit"},
    {"rstrip", RightStripMethod, "chars"},
    {"split", SplitMethod, "sep,maxsplit"},
    {"splitlines", SplitLinesMethod, "keepends"},
    {"startswith", StartsWithMethod, "prefix,start,end", 1},
    {"strip", StripMethod, "chars"},
    {"swapcase", SwapCaseMethod},
    {"title", TitleMethod},
    {"translate", nullptr},
    {"upper", UpperMethod},
    {"zfill", ZeroFillMethod, "width", 1},
};

}  // namespace

absl::Span<const Builtin> StringMethods() { return kMethods; }

Value Stripped(const Value& text, bool left, bool right, const Value* set) {
  string_view view = text.view();
  if (left) view = set == nullptr ? StripLeft(view) : StripLeft(view, set->view());
  if (right) view = set == nullptr ? StripRight(view) : StripRight(view, set->view());
  Value out(view);
  out.flag = text.flag;
  return out;
}

Value Replaced(Heap* heap, string_view text, string_view from, string_view to, int64_t count) {
  heap->Step(1 + text.size() / 32);
  if (count < 0) count = INT64_MAX;
  Builder out(heap);
  if (from.empty()) {
    // Between all characters, and at both ends.
    for (size_t i = 0; i < text.size();) {
      const size_t n = Offset(text.substr(i), 1);
      if (count-- > 0) out.Add(to);
      out.Add(text.substr(i, n));
      i += n;
    }
    if (count > 0) out.Add(to);
    return out.Done();
  }
  size_t done = 0;
  for (size_t at = 0; count > 0 && (at = text.find(from, done)) != string_view::npos; --count) {
    out.Add(text.substr(done, at - done)).Add(to);
    done = at + from.size();
  }
  return out.Add(text.substr(done)).Done();
}

std::vector<string_view> Lines(string_view text, bool keep_ends) {
  const auto ends_line = [](uint32_t point) {
    return (point >= 0x0A && point <= 0x0D) || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
           point == 0x2028 || point == 0x2029;
  };
  std::vector<string_view> out;
  size_t begin = 0;
  for (size_t at = 0, n = 0; at < text.size(); at += n) {
    if (!ends_line(DecodeValid(text.data() + at, &n))) continue;
    size_t end = at + n;
    if (text[at] == '\r' && end < text.size() && text[end] == '\n') ++end;
    out.push_back(text.substr(begin, (keep_ends ? end : at) - begin));
    n = end - at;
    begin = end;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

Value Padded(Heap* heap, const Value& text, int64_t width, string_view fill, Align align) {
  const int64_t length = static_cast<int64_t>(Length(text.view()));
  const int64_t missing = std::max<int64_t>(0, width - length);
  // Python's center puts the odd one to the left when the width is odd, too.
  const int64_t left = align == Align::kLeft    ? 0
                       : align == Align::kRight ? missing
                                                : missing / 2 + (missing & width & 1);
  Builder out(heap);
  out.Fill(fill, left).Add(text.view()).Fill(fill, missing - left);
  Value padded = out.Done();
  padded.flag = text.flag;
  return padded;
}

}  // namespace mainarch::text::jinja
