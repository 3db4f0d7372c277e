// SPDX-License-Identifier: MIT
//
// Values as JSON, with the white space and escapes of Python's json.dumps.
#include <algorithm>
#include <cmath>

#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"
#include "text/utf8.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

void AddUnit(Builder* out, uint32_t unit) {
  out->Add("\\u").Add(absl::StrCat(absl::Hex(unit, absl::kZeroPad4)));
}

void AddJsonString(Builder* out, string_view text, bool ascii) {
  constexpr string_view kFrom = "\"\\\n\r\t\f\b", kTo = "\"\\nrtfb";
  out->Add('"');
  size_t done = 0;
  for (size_t i = 0, n = 0; i < text.size(); i += n) {
    const uint32_t point = DecodeValid(text.data() + i, &n);
    const size_t known = n == 1 ? kFrom.find(text[i]) : string_view::npos;
    if (known == string_view::npos && point >= 0x20 && (!ascii || point < 0x7F)) continue;
    out->Add(text.substr(done, i - done));
    done = i + n;
    if (known != string_view::npos) {
      out->Add('\\').Add(kTo[known]);
    } else if (point < 0x10000) {
      AddUnit(out, point);
    } else {
      AddUnit(out, 0xD800 + ((point - 0x10000) >> 10));
      AddUnit(out, 0xDC00 + ((point - 0x10000) & 0x3FF));
    }
  }
  out->Add(text.substr(done)).Add('"');
}

std::string FloatJson(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return FloatText(number);
}

void AddKey(Builder* out, const Value& key, bool ascii) {
  if (key.string()) return AddJsonString(out, key.view(), ascii);
  out->Add('"');
  if (key.Is(Kind::kBool)) {
    out->Add(key.boolean ? "true" : "false");
  } else if (key.none()) {
    out->Add("null");
  } else if (key.Is(Kind::kInt)) {
    out->Add(absl::StrCat(key.integer));
  } else if (key.Is(Kind::kFloat)) {
    out->Add(FloatJson(key.number));
  } else {
    Fail("tojson: keys must be str, int, float, bool or None, not ", TypeName(key));
  }
  out->Add('"');
}

class Container {
 public:
  Container(Builder* out, const JsonStyle& style, int depth, char open, char close)
      : out_(out), style_(style), depth_(depth), close_(close) {
    out->Add(open);
  }
  void Next() {
    if (!first_) out_->Add(style_.item);
    first_ = false;
    if (style_.lines) NewLine(depth_ + 1);
  }
  void End() {
    if (style_.lines && !first_) NewLine(depth_);
    out_->Add(close_);
  }

 private:
  void NewLine(int depth) {
    out_->Add('\n');
    out_->Fill(style_.indent, depth);
  }

  Builder* out_;
  const JsonStyle& style_;
  int depth_;
  char close_;
  bool first_ = true;
};

void AddObject(Builder* out, const Table& table, const JsonStyle& style, int depth) {
  std::vector<Entry> entries(table.span().begin(), table.span().end());
  if (style.sorted) {
    std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
      return Less(out->heap(), a.key, b.key);
    });
  }
  Container container(out, style, depth, '{', '}');
  for (const Entry& entry : entries) {
    container.Next();
    AddKey(out, entry.key, style.ascii);
    out->Add(style.key);
    AddJson(out, entry.value, style, depth + 1);
  }
  container.End();
}

}  // namespace

void AddJson(Builder* out, const Value& value, const JsonStyle& style, int depth) {
  if (depth > kMaxValueDepth) Fail("values nested deeper than the limit of ", kMaxValueDepth);
  switch (value.kind) {
    case Kind::kNone:
      out->Add("null");
      return;
    case Kind::kBool:
      out->Add(value.boolean ? "true" : "false");
      return;
    case Kind::kInt:
      out->Add(absl::StrCat(value.integer));
      return;
    case Kind::kFloat:
      out->Add(FloatJson(value.number));
      return;
    case Kind::kString:
      return AddJsonString(out, value.view(), style.ascii);
    case Kind::kList:
    case Kind::kTuple: {
      Container container(out, style, depth, '[', ']');
      for (const Value& item : value.sequence->span()) {
        container.Next();
        AddJson(out, item, style, depth + 1);
      }
      return container.End();
    }
    case Kind::kDict:
      return AddObject(out, *value.table, style, depth);
    default:
      Fail("tojson: object of type ", TypeName(value), " is not JSON serializable");
  }
}

}  // namespace mainarch::text::jinja
