// SPDX-License-Identifier: MIT
#include "text/jinja/text.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/ast.h"
#include "text/jinja/builtin.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

void CheckDepth(int depth) {
  if (depth > kMaxValueDepth) Fail("values nested deeper than the limit of ", kMaxValueDepth);
}

void AddHex(Builder* out, char letter, absl::PadSpec digits, uint32_t point) {
  out->Add('\\').Add(letter).Add(absl::StrCat(absl::Hex(point, digits)));
}

void AddQuoted(Builder* out, string_view text) {
  // Python prefers single quotes, unless there are only such inside.
  const bool single = text.find('\'') != string_view::npos;
  const char quote = single && text.find('"') == string_view::npos ? '"' : '\'';
  out->Add(quote);
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    const uint32_t point = DecodeValid(text.data() + i, &n);
    if (point == '\\' || point == static_cast<unsigned char>(quote)) {
      out->Add('\\').Add(static_cast<char>(point));
    } else if (point == '\n') {
      out->Add("\\n");
    } else if (point == '\r') {
      out->Add("\\r");
    } else if (point == '\t') {
      out->Add("\\t");
    } else if (IsPrintable(point)) {
      out->Add(text.substr(i, n));
    } else if (point < 0x100) {
      AddHex(out, 'x', absl::kZeroPad2, point);
    } else if (point < 0x10000) {
      AddHex(out, 'u', absl::kZeroPad4, point);
    } else {
      AddHex(out, 'U', absl::kZeroPad8, point);
    }
  }
  out->Add(quote);
}

void AddItems(Builder* out, absl::Span<const Value> items, string_view open, string_view close,
              int depth) {
  out->Add(open);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Add(", ");
    AddRepr(out, items[i], depth + 1);
  }
  if (items.size() == 1 && open == "(") out->Add(',');
  out->Add(close);
}

void AddRange(Builder* out, const Sequence& range) {
  const int64_t first = range.size > 0 ? range.items[0].integer : 0;
  const int64_t step = range.size > 1 ? range.items[1].integer - first : 1;
  const int64_t last = range.size > 0 ? range.items[range.size - 1].integer + step : 0;
  out->Add("range(").Add(absl::StrCat(first)).Add(", ").Add(absl::StrCat(last));
  if (step != 1) out->Add(", ").Add(absl::StrCat(step));
  out->Add(')');
}

void AddTable(Builder* out, const Table& table, int depth) {
  out->Add('{');
  for (uint32_t i = 0; i < table.size; ++i) {
    if (i > 0) out->Add(", ");
    AddRepr(out, table.entries[i].key, depth + 1);
    out->Add(": ");
    AddRepr(out, table.entries[i].value, depth + 1);
  }
  out->Add('}');
}

}  // namespace

void AddStr(Builder* out, const Value& value) {
  if (value.undefined() || value.missing()) return;
  if (value.string()) {
    out->Add(value.view());
  } else {
    AddRepr(out, value);
  }
}

Value Str(Heap* heap, const Value& value) {
  if (value.string()) return value;
  Builder out(heap);
  AddStr(&out, value);
  return out.Done();
}

void AddRepr(Builder* out, const Value& value, int depth) {
  CheckDepth(depth);
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
      out->Add("Undefined");
      return;
    case Kind::kNone:
      out->Add("None");
      return;
    case Kind::kBool:
      out->Add(value.boolean ? "True" : "False");
      return;
    case Kind::kInt:
      out->Add(absl::StrCat(value.integer));
      return;
    case Kind::kFloat:
      out->Add(FloatText(value.number));
      return;
    case Kind::kString:
      if (value.flag) out->Add("Markup(");
      AddQuoted(out, value.view());
      if (value.flag) out->Add(')');
      return;
    case Kind::kList:
      return AddItems(out, value.sequence->span(), "[", "]", depth);
    case Kind::kTuple:
      return AddItems(out, value.sequence->span(), "(", ")", depth);
    case Kind::kRange:
      return AddRange(out, *value.sequence);
    case Kind::kKeys:
      return AddItems(out, value.sequence->span(), "dict_keys([", "])", depth);
    case Kind::kValues:
      return AddItems(out, value.sequence->span(), "dict_values([", "])", depth);
    case Kind::kItems:
      return AddItems(out, value.sequence->span(), "dict_items([", "])", depth);
    case Kind::kDict:
      return AddTable(out, *value.table, depth);
    case Kind::kNamespace:
      out->Add("<Namespace ");
      AddTable(out, *value.table, depth + 1);
      out->Add('>');
      return;
    case Kind::kLoop:
      out->Add(
          absl::StrCat("<LoopContext ", value.loop->index + 1, "/", value.loop->items.size(), ">"));
      return;
    case Kind::kMacro:
      out->Add("<Macro '").Add(value.closure->macro->name).Add("'>");
      return;
    case Kind::kFunction:
      // Python goes on with an address.
      out->Add("<function ").Add(value.function->builtin->name).Add('>');
      return;
    default:
      out->Add('<').Add(TypeName(value)).Add(" object>");
  }
}

void AddEscaped(Builder* out, string_view text) {
  size_t done = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const string_view entity = text[i] == '&'    ? "&amp;"
                               : text[i] == '<'  ? "&lt;"
                               : text[i] == '>'  ? "&gt;"
                               : text[i] == '\'' ? "&#39;"
                               : text[i] == '"'  ? "&#34;"
                                                 : "";
    if (entity.empty()) continue;
    out->Add(text.substr(done, i - done)).Add(entity);
    done = i + 1;
  }
  out->Add(text.substr(done));
}

void AddMaybeEscaped(Builder* out, const Value& string, bool escape) {
  if (escape) {
    AddEscaped(out, string.view());
  } else {
    out->Add(string.view());
  }
}

}  // namespace mainarch::text::jinja
