// SPDX-License-Identifier: MIT
#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"
#include "text/jinja/unicode.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

constexpr int64_t kMaxField = 10000;  // of a width or a precision

// How one value is written.
struct Spec {
  string_view fill = " ";
  char align = 0;  // < > ^ =, or 0: as the type has it
  char sign = '-';
  bool alternate = false;
  bool grouped = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
  bool empty = false;  // nothing was said
};

// An unsigned integer in base 2, 8, 10 or 16.
std::string Digits(uint64_t number, unsigned base) {
  std::string out;
  do {
    out.push_back("0123456789abcdef"[number % base]);
    number /= base;
  } while (number > 0);
  std::reverse(out.begin(), out.end());
  return out;
}

void Group(std::string* digits) {
  const size_t point = std::min(digits->find('.'), digits->size());
  std::string out;
  for (size_t i = 0; i < digits->size(); ++i) {
    if (i > 0 && i < point && (point - i) % 3 == 0) out.push_back(',');
    out.push_back((*digits)[i]);
  }
  *digits = std::move(out);
}

std::string SignOf(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

void Pad(Builder* out, const Spec& spec, string_view prefix, string_view body, char align) {
  if (spec.align != 0) align = spec.align;
  const int64_t length = static_cast<int64_t>(Length(prefix) + Length(body));
  const int64_t missing = std::max<int64_t>(0, spec.width - length);
  const int64_t left = align == '>' ? missing : (align == '^' ? missing / 2 : 0);
  out->Fill(spec.fill, left).Add(prefix);
  if (align == '=') out->Fill(spec.fill, missing);
  out->Add(body);
  if (align != '=') out->Fill(spec.fill, missing - left);
}

void AddText(Builder* out, const Spec& spec, string_view text) {
  if (spec.precision >= 0) text = text.substr(0, Offset(text, static_cast<size_t>(spec.precision)));
  Pad(out, spec, "", text, '<');
}

void AddInteger(Builder* out, const Spec& spec, int64_t number) {
  const char type = static_cast<char>(spec.type == 'X' ? 'x' : spec.type);
  const unsigned base = type == 'x' ? 16 : (type == 'o' ? 8 : (type == 'b' ? 2 : 10));
  const uint64_t magnitude =
      number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  std::string digits = Digits(magnitude, base);
  if (spec.precision > static_cast<int64_t>(digits.size())) {
    digits = std::string(static_cast<size_t>(spec.precision) - digits.size(), '0') + digits;
  }
  if (spec.grouped) Group(&digits);
  std::string prefix = SignOf(number < 0, spec.sign);
  if (spec.alternate && base != 10) absl::StrAppend(&prefix, "0", string_view(&type, 1));
  if (spec.type == 'X') {
    absl::AsciiStrToUpper(&digits);
    absl::AsciiStrToUpper(&prefix);
  }
  Pad(out, spec, prefix, digits, '>');
}

void AddFloat(Builder* out, const Spec& spec, double number) {
  std::string digits;
  const double magnitude = std::fabs(number);
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(spec.type));
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  if (lower == 0 && spec.precision < 0) {
    digits = FloatText(magnitude);
  } else if (lower == '%') {
    digits = FixedText(magnitude * 100, 'f', precision) + "%";
  } else {
    digits = FixedText(magnitude, lower == 0 ? 'g' : lower, precision);
  }
  if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G') absl::AsciiStrToUpper(&digits);
  if (spec.grouped) Group(&digits);
  Pad(out, spec, SignOf(std::signbit(number), spec.sign), digits, '>');
}

void CheckField(int64_t number) {
  if (number > kMaxField) Fail("a field of ", number, " characters, the limit is ", kMaxField);
}

// Digits at the front of *text, or `otherwise`.
int64_t TakeNumber(string_view* text, int64_t otherwise) {
  if (text->empty() || !absl::ascii_isdigit(static_cast<unsigned char>(text->front()))) {
    return otherwise;
  }
  int64_t number = 0;
  while (!text->empty() && absl::ascii_isdigit(static_cast<unsigned char>(text->front()))) {
    number = number * 10 + (text->front() - '0');
    CheckField(number);
    text->remove_prefix(1);
  }
  return number;
}

bool TakeChar(string_view* text, char c) {
  const bool at = !text->empty() && text->front() == c;
  if (at) text->remove_prefix(1);
  return at;
}

class Percent {
 public:
  Percent(Heap* heap, const Value& format, const Value& values)
      : out_(heap), escape_(format.flag), rest_(format.view()), values_(values) {}

  Value Run() {
    while (!rest_.empty()) {
      const size_t at = std::min(rest_.find('%'), rest_.size());
      out_.Add(rest_.substr(0, at));
      rest_.remove_prefix(at);
      if (!rest_.empty()) Conversion();
    }
    // What has items of its own may have more of them than the format asks for.
    const bool all = values_.Is(Kind::kTuple) ? used_ == values_.sequence->size
                     : values_.Is(Kind::kDict) || values_.Is(Kind::kList) ||
                             values_.Is(Kind::kRange) || values_.undefined()
                         ? true
                         : used_ == 1;
    if (!all) Fail("not all arguments converted during string formatting");
    Value text = out_.Done();
    text.flag = escape_;
    return text;
  }

 private:
  Value Next() {
    const bool tuple = values_.Is(Kind::kTuple);
    if (used_ >= (tuple ? values_.sequence->size : 1))
      Fail("not enough arguments for format string");
    return tuple ? values_.sequence->items[used_++] : (++used_, values_);
  }

  int64_t Star(int64_t otherwise) {
    if (!TakeChar(&rest_, '*')) return TakeNumber(&rest_, otherwise);
    const Value value = Next();
    if (!value.integral()) Fail("* wants an integer");
    CheckField(value.whole());
    return value.whole();
  }

  void Conversion() {
    rest_.remove_prefix(1);
    if (TakeChar(&rest_, '%')) {
      out_.Add('%');
      return;
    }
    Value named;
    if (TakeChar(&rest_, '(')) {
      const size_t end = rest_.find(')');
      if (end == string_view::npos) Fail("incomplete format key");
      if (!values_.Is(Kind::kDict)) Fail("format requires a mapping");
      const Value* found = values_.table->Find(out_.heap(), rest_.substr(0, end));
      if (found == nullptr) Fail("no key '", rest_.substr(0, end), "' to format");
      named = *found;
      rest_.remove_prefix(end + 1);
    }
    Spec spec;
    for (bool more = true; more;) {
      more = false;
      if (TakeChar(&rest_, '-')) more = true, spec.align = '<';
      if (TakeChar(&rest_, '0')) more = true, zero_ = true;
      if (TakeChar(&rest_, '+')) more = true, spec.sign = '+';
      if (TakeChar(&rest_, ' ')) more = true, spec.sign = spec.sign == '+' ? '+' : ' ';
      if (TakeChar(&rest_, '#')) more = true, spec.alternate = true;
    }
    spec.width = Star(0);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
      CheckField(spec.width);
    }
    if (TakeChar(&rest_, '.')) spec.precision = std::max<int64_t>(0, Star(0));
    if (rest_.empty()) Fail("incomplete format");
    spec.type = rest_.front();
    rest_.remove_prefix(1);
    Write(spec, named.missing() ? Next() : named);
    zero_ = false;
  }

  void Write(Spec spec, const Value& value) {
    const bool numeric = absl::StrContains("diuxXofFeEgG", string_view(&spec.type, 1));
    if (zero_ && numeric && spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
    if (numeric && !value.numeric()) {
      Fail("%", string_view(&spec.type, 1), " format: a number is required, not ", TypeName(value));
    }
    if (absl::StrContains("diuxXo", string_view(&spec.type, 1))) {
      if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
      if (value.Is(Kind::kFloat) && (spec.type != 'd' || !(std::fabs(value.number) < 9.2e18))) {
        Fail("%", string_view(&spec.type, 1), " format: an integer is required, not float");
      }
      AddInteger(&out_, spec,
                 value.Is(Kind::kFloat) ? static_cast<int64_t>(value.number) : value.whole());
    } else if (numeric) {
      AddFloat(&out_, spec, value.real());
    } else if (spec.type == 's' || spec.type == 'r') {
      if (spec.align == 0) spec.align = '>';
      Builder text(out_.heap());
      if (spec.type == 's') {
        AddStr(&text, value);
      } else {
        AddRepr(&text, value);
      }
      if (escape_ && !(value.string() && value.flag)) {
        Builder escaped(out_.heap());
        AddEscaped(&escaped, text.view());
        AddText(&out_, spec, escaped.view());
      } else {
        AddText(&out_, spec, text.view());
      }
    } else {
      Fail("unsupported format character '", string_view(&spec.type, 1), "'");
    }
  }

  Builder out_;
  bool escape_;
  bool zero_ = false;
  string_view rest_;
  const Value& values_;
  uint32_t used_ = 0;
};

class Braces {
 public:
  Braces(Heap* heap, const Value& format, const Arguments& arguments)
      : out_(heap), escape_(format.flag), rest_(format.view()), arguments_(arguments) {}

  Value Run() {
    while (!rest_.empty()) {
      const size_t at = std::min(rest_.find_first_of("{}"), rest_.size());
      out_.Add(rest_.substr(0, at));
      rest_.remove_prefix(at);
      if (rest_.empty()) break;
      const char brace = rest_.front();
      rest_.remove_prefix(1);
      if (TakeChar(&rest_, brace)) {
        out_.Add(brace);
      } else if (brace == '}') {
        Fail("single '}' encountered in format string");
      } else {
        Field();
      }
    }
    Value text = out_.Done();
    text.flag = escape_;
    return text;
  }

 private:
  Value Argument(string_view name) {
    int64_t index = 0;
    const bool number = !name.empty() && ParseInteger(name, 10, &index);
    automatic_ |= name.empty();
    numbered_ |= number;
    if (automatic_ && numbered_) Fail("format fields are either numbered or not");
    if (name.empty()) {
      index = next_++;
    } else if (!number) {
      for (const Entry& entry : arguments_.named) {
        if (entry.key.string() && entry.key.view() == name) return entry.value;
      }
      Fail("no argument '", name.substr(0, 64), "' to format");
    }
    if (index < 0 || index >= static_cast<int64_t>(arguments_.positional.size())) {
      Fail("no argument ", index, " to format");
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  // name.attribute[item]..
  Value Lookup(string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = Argument(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty()) {
      if (TakeChar(&path, '.')) {
        const size_t stop = std::min(path.find_first_of(".["), path.size());
        value = Attribute(out_.heap(), value, path.substr(0, stop));
        path.remove_prefix(stop);
      } else if (TakeChar(&path, '[')) {
        const size_t stop = path.find(']');
        if (stop == string_view::npos) Fail("expected ']' in a format field");
        int64_t index = 0;
        const string_view key = path.substr(0, stop);
        value = ParseInteger(key, 10, &index) ? Item(out_.heap(), value, Value(index))
                                              : Item(out_.heap(), value, Value(key));
        path.remove_prefix(stop + 1);
      } else {
        Fail("malformed format field");
      }
    }
    return value;
  }

  void Field() {
    const size_t end = rest_.find('}');
    if (end == string_view::npos) Fail("expected '}' before end of string");
    string_view field = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    if (field.find('{') != string_view::npos) {
      throw Failure{Error(Code::kUnsupported, "format fields in format fields are not supported")};
    }
    const size_t colon = std::min(field.find(':'), field.size());
    string_view spec = colon < field.size() ? field.substr(colon + 1) : "";
    field = field.substr(0, colon);
    const size_t bang = std::min(field.find('!'), field.size());
    const string_view conversion = field.substr(bang);
    Value value = Lookup(field.substr(0, bang));
    if (conversion == "!r") {
      Builder text(out_.heap());
      AddRepr(&text, value);
      value = text.Done();
    } else if (conversion == "!s") {
      value = Str(out_.heap(), value);
    } else if (!conversion.empty()) {
      Fail("unknown conversion ", conversion.substr(0, 8));
    }
    Write(SpecOf(spec), value);
  }

  static Spec SpecOf(string_view text) {
    Spec spec;
    spec.empty = text.empty();
    const auto aligns = [](string_view at) {
      return !at.empty() && string_view("<>^=").find(at[0]) != string_view::npos;
    };
    const size_t first = text.empty() ? 0 : Offset(text, 1);
    if (first > 0 && aligns(text.substr(first))) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      text.remove_prefix(first + 1);
    } else if (aligns(text)) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
    for (const char sign : {'+', '-', ' '}) {
      if (TakeChar(&text, sign)) {
        spec.sign = sign;
        break;
      }
    }
    spec.alternate = TakeChar(&text, '#');
    if (TakeChar(&text, '0') && spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
    spec.width = TakeNumber(&text, 0);
    spec.grouped = TakeChar(&text, ',');
    if (TakeChar(&text, '.')) {
      spec.precision = TakeNumber(&text, -1);
      if (spec.precision < 0) Fail("format specifier missing precision");
    }
    if (!text.empty()) {
      spec.type = text[0];
      text.remove_prefix(1);
    }
    if (!text.empty()) Fail("invalid format specifier");
    return spec;
  }

  void Write(Spec spec, const Value& value) {
    const string_view type(&spec.type, spec.type == 0 ? 0 : 1);
    if (value.numeric() &&
        (value.Is(Kind::kFloat) || (!type.empty() && absl::StrContains("eEfFgG%", type)))) {
      if (!type.empty() && !absl::StrContains("eEfFgG%", type))
        Fail("unknown format code '", type, "'");
      return AddFloat(&out_, spec, value.real());
    }
    if (value.integral() && !(value.Is(Kind::kBool) && spec.empty)) {
      if (!type.empty() && !absl::StrContains("dxXobn", type))
        Fail("unknown format code '", type, "'");
      return AddInteger(&out_, spec, value.whole());
    }
    if (!type.empty() && type != "s") Fail("unknown format code '", type, "'");
    if (value.undefined()) return AddText(&out_, spec, "");
    Builder text(out_.heap());
    AddStr(&text, value);
    if (escape_ && !(value.string() && value.flag)) {
      Builder escaped(out_.heap());
      AddEscaped(&escaped, text.view());
      return AddText(&out_, spec, escaped.view());
    }
    AddText(&out_, spec, text.view());
  }

  Builder out_;
  bool escape_;
  string_view rest_;
  const Arguments& arguments_;
  int64_t next_ = 0;
  bool automatic_ = false, numbered_ = false;  // "{}" was there, or "{0}"
};

}  // namespace

Value FormatPercent(Heap* heap, const Value& format, const Value& values) {
  return Percent(heap, format, values).Run();
}

Value FormatBraces(Heap* heap, const Value& format, const Arguments& arguments) {
  return Braces(heap, format, arguments).Run();
}

}  // namespace mainarch::text::jinja
