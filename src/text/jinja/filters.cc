// SPDX-License-Identifier: MIT
//
// Filters that give one value: text, numbers, JSON.
#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "text/jinja/builtin.h"
#include "text/jinja/format.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"
#include "text/jinja/text_methods.h"
#include "text/jinja/unicode.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

// The text of what is filtered; a filter of text makes one of anything.
Value Soft(const Call& call) { return Str(call.heap, call.self); }

Value Marked(Value text, bool markup) {
  text.flag = markup;
  return text;
}

Value Mapped(const Call& call, std::string (*map)(string_view)) {
  const Value text = Soft(call);
  call.heap->Step(text.size / 8);
  return Marked(call.heap->Text(map(text.view())), text.flag);
}

Value UpperFilter(const Call& call) { return Mapped(call, Upper); }
Value LowerFilter(const Call& call) { return Mapped(call, Lower); }
Value CapitalizeFilter(const Call& call) { return Mapped(call, Capitalize); }

// Not str.title(): a word begins behind white space or one of -({[<.
Value TitleFilter(const Call& call) {
  const Value text = Soft(call);
  Builder out(call.heap);
  string_view rest = text.view();
  const auto begins = [](string_view at) {
    return StripLeft(at).size() != at.size() ||
           string_view("-({[<").find(at[0]) != string_view::npos;
  };
  while (!rest.empty()) {
    const bool separator = begins(rest);
    size_t end = 0;
    while (end < rest.size() && begins(rest.substr(end)) == separator) {
      end += Offset(rest.substr(end), 1);
    }
    const string_view part = rest.substr(0, end);
    const size_t first = Offset(part, 1);
    out.Add(Upper(part.substr(0, first))).Add(Lower(part.substr(first)));
    rest.remove_prefix(end);
  }
  return out.Done();
}

Value TrimFilter(const Call& call) {
  const Value text = Soft(call);
  return Absent(call, 0) ? Stripped(text, true, true, nullptr)
                         : Stripped(text, true, true, &call.at[0]);
}

Value ReplaceFilter(const Call& call) {
  return Replaced(call.heap, Soft(call).view(), Str(call.heap, call.at[0]).view(),
                  Str(call.heap, call.at[1]).view(), IntArgument(call, 2, -1));
}

Value StringFilter(const Call& call) { return Soft(call); }
Value SafeFilter(const Call& call) { return Marked(Soft(call), true); }

Value EscapeFilter(const Call& call) {
  const Value text = Soft(call);
  if (text.flag) return text;
  Builder out(call.heap);
  AddEscaped(&out, text.view());
  return Marked(out.Done(), true);
}

Value ForceEscapeFilter(const Call& call) {
  Builder out(call.heap);
  AddEscaped(&out, Soft(call).view());
  return Marked(out.Done(), true);
}

Value IndentFilter(const Call& call) {
  if (!call.self.string()) {
    if (call.self.undefined()) FailUndefined(call.self);
    Fail("indent: expected a string, not '", TypeName(call.self), "'");
  }
  Builder indent(call.heap);
  if (call.at[0].string()) {
    indent.Add(call.at[0].view());
  } else {
    indent.Fill(" ", IntArgument(call, 0, 4));
  }
  const bool first = BoolArgument(call, 1, false), blank = BoolArgument(call, 2, false);
  // Jinja adds a line end, so that the last line is one even if it is empty.
  const std::string text = absl::StrCat(call.self.view(), "\n");
  Builder out(call.heap);
  bool first_line = true;
  for (const string_view line : Lines(text, false)) {
    if (!first_line) out.Add('\n');
    if (first_line ? first : (blank || !line.empty())) out.Add(indent.view());
    out.Add(line);
    first_line = false;
  }
  return Marked(out.Done(), call.self.flag);
}

Value CenterFilter(const Call& call) {
  return Padded(call.heap, Soft(call), IntArgument(call, 0, 80), " ", Align::kCenter);
}

Value TruncateFilter(const Call& call) {
  const int64_t length = IntArgument(call, 0, 255), leeway = IntArgument(call, 3, 5);
  const string_view end = TextArgument(call, 2, "...");
  const int64_t kept = length - static_cast<int64_t>(Length(end));
  if (kept < 0 || leeway < 0) Fail("truncate: a length shorter than its end");
  if (LengthOf(call.self) <= length + leeway) return call.self;
  if (!call.self.string()) Fail("truncate: expected a string, not '", TypeName(call.self), "'");
  const string_view text = call.self.view();
  string_view front = text.substr(0, Offset(text, static_cast<size_t>(kept)));
  if (!BoolArgument(call, 1, false)) front = front.substr(0, front.rfind(' '));
  Value out = Builder(call.heap).Add(front).Add(end).Done();
  out.flag = call.self.flag;
  return out;
}

Value WordCountFilter(const Call& call) {
  int64_t words = 0;
  bool inside = false;
  const Value text = Soft(call);
  for (const char c : text.view()) {
    const bool word = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
                      static_cast<unsigned char>(c) >= 0x80;
    words += word && !inside;
    inside = word;
  }
  return Value(words);
}

// In a query a space is "+", and a slash is quoted, too.
void AddQuoted(Builder* out, string_view text, bool query) {
  const string_view kept = query ? "_.-~" : "_.-~/";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || kept.find(c) != string_view::npos) {
      out->Add(c);
    } else if (query && c == ' ') {
      out->Add('+');
    } else {
      constexpr char kHex[] = "0123456789ABCDEF";
      out->Add('%').Add(kHex[byte >> 4]).Add(kHex[byte & 15]);
    }
  }
}

Value UrlEncodeFilter(const Call& call) {
  Builder out(call.heap);
  if (call.self.string() || !Iterable(call.self)) {
    AddQuoted(&out, Soft(call).view(), false);
    return out.Done();
  }
  // A dict, or pairs.
  const Value pairs = call.self.Is(Kind::kDict)
                          ? Invoke(call.heap, *FindMethod(Kind::kDict, "items"), call.self, {})
                          : call.self;
  bool first = true;
  for (const Value& item : Iterate(call.heap, pairs)) {
    const absl::Span<const Value> pair = Iterate(call.heap, item);
    if (pair.size() != 2) Fail("urlencode: expected pairs");
    if (!first) out.Add('&');
    first = false;
    AddQuoted(&out, Str(call.heap, pair[0]).view(), true);
    out.Add('=');
    AddQuoted(&out, Str(call.heap, pair[1]).view(), true);
  }
  return out.Done();
}

Value FormatFilter(const Call& call) {
  const Value text = Soft(call);
  if (call.raw.named.empty()) {
    return FormatPercent(call.heap, text, call.heap->Items(Kind::kTuple, call.raw.positional));
  }
  Table* names = call.heap->New(Table{});
  for (const Entry& entry : call.raw.named) names->Append(call.heap, entry.key, entry.value);
  return FormatPercent(call.heap, text, Of(Kind::kDict, names));
}

Value DefaultFilter(const Call& call) {
  const bool falls = call.self.undefined() || (BoolArgument(call, 1, false) && !Truth(call.self));
  if (!falls) return call.self;
  return call.at[0].missing() ? Value(string_view("", 0)) : call.at[0];
}

Value IntFilter(const Call& call) {
  const Value otherwise = call.at[0].missing() ? Value(int64_t{0}) : call.at[0];
  double number = 0;
  if (call.self.undefined()) FailUndefined(call.self);
  if (call.self.integral()) return Value(call.self.whole());
  if (call.self.string()) {
    int64_t whole = 0;
    if (ParseInteger(call.self.view(), static_cast<int>(IntArgument(call, 1, 10)), &whole)) {
      return Value(whole);
    }
    if (!ParseFloat(call.self.view(), &number)) return otherwise;
  } else if (call.self.Is(Kind::kFloat)) {
    number = call.self.number;
  } else {
    return otherwise;
  }
  if (std::isnan(number) || std::isinf(number)) return otherwise;
  if (std::fabs(number) >= 9.2e18) Fail("an integer of more than 64 bits");
  return Value(static_cast<int64_t>(number));
}

Value FloatFilter(const Call& call) {
  if (call.self.undefined()) FailUndefined(call.self);
  if (call.self.numeric()) return Value(call.self.real());
  double number = 0;
  if (call.self.string() && ParseFloat(call.self.view(), &number)) return Value(number);
  return call.at[0].missing() ? Value(0.0) : call.at[0];
}

Value AbsFilter(const Call& call) {
  if (!call.self.numeric()) Fail("bad operand type for abs(): '", TypeName(call.self), "'");
  if (call.self.real() < 0) return Negative(call.self);
  return call.self.integral() ? Value(call.self.whole()) : Value(std::fabs(call.self.number));
}

Value RoundFilter(const Call& call) {
  const int64_t precision = IntArgument(call, 0, 0);
  const string_view method = TextArgument(call, 1, "common");
  if (!call.self.numeric()) Fail("round: expected a number, not '", TypeName(call.self), "'");
  if (precision < 0 || precision > 300)
    Fail("round: precision ", precision, " is not from 0 to 300");
  if (method == "common") {
    if (call.self.integral()) return Value(call.self.whole());
    double rounded = 0;
    // The decimal digits are rounded, as Python does, not the product with a power of ten.
    ParseFloat(FixedText(call.self.number, 'f', static_cast<int>(precision)), &rounded);
    return Value(rounded);
  }
  if (method != "ceil" && method != "floor") Fail("round: method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = call.self.real() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value ToJsonFilter(const Call& call) {
  JsonStyle style;
  style.ascii = BoolArgument(call, 0, false);
  if (!Absent(call, 1)) {
    style.lines = true;
    style.item = std::string(1, ',');  // not ",": gcc 12 misreads that assignment
    if (call.at[1].string()) {
      style.indent = std::string(call.at[1].view());
    } else {
      const int64_t width = std::max<int64_t>(0, IntArgument(call, 1, 0));
      if (width > 1000) Fail("tojson: indent ", width, " is more than 1000");
      style.indent.assign(static_cast<size_t>(width), ' ');
    }
  }
  if (!Absent(call, 2)) {
    const absl::Span<const Value> parts = Iterate(call.heap, call.at[2]);
    if (parts.size() != 2 || !parts[0].string() || !parts[1].string()) {
      Fail("tojson: separators must be two strings");
    }
    style.item = std::string(parts[0].view());
    style.key = std::string(parts[1].view());
  }
  style.sorted = BoolArgument(call, 3, false);
  Builder out(call.heap);
  AddJson(&out, call.self, style);
  return out.Done();
}

constexpr Builtin kFilters[] = {
    {"abs", AbsFilter},
    {"capitalize", CapitalizeFilter},
    {"center", CenterFilter, "width"},
    {"d", DefaultFilter, "default_value,boolean"},
    {"default", DefaultFilter, "default_value,boolean"},
    {"e", EscapeFilter},
    {"escape", EscapeFilter},
    {"filesizeformat", nullptr},
    {"float", FloatFilter, "default"},
    {"forceescape", ForceEscapeFilter},
    {"format", FormatFilter, "*"},
    {"indent", IndentFilter, "width,first,blank"},
    {"int", IntFilter, "default,base"},
    {"lower", LowerFilter},
    {"pprint", nullptr},
    {"replace", ReplaceFilter, "old,new,count", 2},
    {"round", RoundFilter, "precision,method"},
    {"safe", SafeFilter},
    {"string", StringFilter},
    {"striptags", nullptr},
    {"title", TitleFilter},
    {"tojson", ToJsonFilter, "ensure_ascii,indent,separators,sort_keys"},
    {"trim", TrimFilter, "chars"},
    {"truncate", TruncateFilter, "length,killwords,end,leeway"},
    {"upper", UpperFilter},
    {"urlencode", UrlEncodeFilter},
    {"urlize", nullptr},
    {"wordcount", WordCountFilter},
    {"wordwrap", nullptr},
    {"xmlattr", nullptr},
};

}  // namespace

absl::Span<const Builtin> TextFilters() { return kFilters; }

}  // namespace mainarch::text::jinja
