// SPDX-License-Identifier: MIT
#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/text.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

void CheckDepth(int depth) {
  if (depth > kMaxValueDepth) Fail("values nested deeper than the limit of ", kMaxValueDepth);
}

void CheckDefined(const Value& a, const Value& b) {
  if (a.undefined()) FailUndefined(a);
  if (b.undefined()) FailUndefined(b);
}

bool EqualSequences(Heap* heap, const Sequence& a, const Sequence& b, int depth) {
  if (a.size != b.size) return false;
  for (uint32_t i = 0; i < a.size; ++i) {
    if (!Equal(heap, a.items[i], b.items[i], depth + 1)) return false;
  }
  return true;
}

bool EqualTables(Heap* heap, const Table& a, const Table& b, int depth) {
  if (a.size != b.size) return false;
  for (const Entry& entry : a.span()) {
    const Value* other = b.Find(heap, entry.key);
    if (other == nullptr || !Equal(heap, entry.value, *other, depth + 1)) return false;
  }
  return true;
}

[[noreturn]] void FailOperands(string_view operation, const Value& a, const Value& b) {
  CheckDefined(a, b);
  Fail("unsupported operand types for ", operation, ": '", TypeName(a), "' and '", TypeName(b),
       "'");
}

[[noreturn]] void FailOverflow() { Fail("an integer of more than 64 bits"); }

Value Repeat(Heap* heap, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (value.string()) {
    Builder out(heap);
    out.Fill(value.view(), times);
    Value text = out.Done();
    text.flag = value.flag;
    return text;
  }
  const absl::Span<const Value> items = value.sequence->span();
  if (!items.empty() && static_cast<uint64_t>(times) > heap->limits().bytes / items.size()) {
    heap->Charge(SIZE_MAX);
  }
  const size_t count = items.size() * static_cast<size_t>(times);
  heap->Step(count / 16);
  Value* out = heap->Array<Value>(count);
  for (int64_t i = 0; i < times; ++i) {
    std::copy(items.begin(), items.end(), out + static_cast<size_t>(i) * items.size());
  }
  return Of(value.kind, heap->New(Sequence{out, static_cast<uint32_t>(count)}));
}

int64_t FloorDivide(int64_t a, int64_t b) {
  if (b == 0) Fail("integer division or modulo by zero");
  if (a == INT64_MIN && b == -1) FailOverflow();
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double FloatModulo(double a, double b) {
  if (b == 0) Fail("float modulo by zero");
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

Value Power(const Value& a, const Value& b) {
  if (!a.integral() || !b.integral() || b.whole() < 0) {
    if (a.real() == 0 && b.real() < 0) Fail("zero to a negative power");
    if (a.real() < 0 && b.real() != std::floor(b.real())) Fail("a complex number");
    return Value(std::pow(a.real(), b.real()));
  }
  int64_t result = 1, base = a.whole();
  for (int64_t left = b.whole(); left > 0; left >>= 1) {
    if ((left & 1) != 0 && __builtin_mul_overflow(result, base, &result)) FailOverflow();
    if (left > 1 && __builtin_mul_overflow(base, base, &base)) FailOverflow();
  }
  return Value(result);
}

Value Numbers(string_view operation, const Value& a, const Value& b) {
  if (operation == "**") return Power(a, b);
  if (operation == "/") {
    if (b.real() == 0) Fail("division by zero");
    return Value(a.real() / b.real());
  }
  if (a.integral() && b.integral()) {
    const int64_t x = a.whole(), y = b.whole();
    int64_t result = 0;
    bool overflow = false;
    if (operation == "+") overflow = __builtin_add_overflow(x, y, &result);
    if (operation == "-") overflow = __builtin_sub_overflow(x, y, &result);
    if (operation == "*") overflow = __builtin_mul_overflow(x, y, &result);
    if (operation == "//") result = FloorDivide(x, y);
    if (operation == "%") {
      if (y == 0) Fail("integer division or modulo by zero");
      result = y == -1 ? 0 : x - FloorDivide(x, y) * y;
    }
    if (overflow) FailOverflow();
    return Value(result);
  }
  const double x = a.real(), y = b.real();
  if (operation == "+") return Value(x + y);
  if (operation == "-") return Value(x - y);
  if (operation == "*") return Value(x * y);
  if (operation == "//") {
    if (y == 0) Fail("float floor division by zero");
    return Value(std::floor((x - FloatModulo(x, y)) / y + 0.5));
  }
  return Value(FloatModulo(x, y));
}

}  // namespace

bool Truth(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.number != 0;
    case Kind::kString:
      return value.size > 0;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kKeys:
    case Kind::kValues:
    case Kind::kItems:
      return value.sequence->size > 0;
    case Kind::kDict:
      return value.table->size > 0;
    default:
      return true;
  }
}

bool Equal(Heap* heap, const Value& a, const Value& b, int depth) {
  CheckDepth(depth);
  heap->Step();
  if (a.integral() && b.integral()) return a.whole() == b.whole();
  if (a.numeric() && b.numeric()) return a.real() == b.real();
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      heap->Step(std::min(a.size, b.size) / 64);
      return a.view() == b.view();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return EqualSequences(heap, *a.sequence, *b.sequence, depth);
    case Kind::kKeys:
    case Kind::kItems: {
      if (a.sequence->size != b.sequence->size) return false;
      const absl::Span<const Value> items = a.sequence->span();
      return std::all_of(items.begin(), items.end(),
                         [&](const Value& item) { return In(heap, item, b); });
    }
    case Kind::kDict:
      return EqualTables(heap, *a.table, *b.table, depth);
    default:
      return a.text == b.text;  // the same object
  }
}

bool Less(Heap* heap, const Value& a, const Value& b, int depth) {
  CheckDepth(depth);
  heap->Step();
  if (a.integral() && b.integral()) return a.whole() < b.whole();
  if (a.numeric() && b.numeric()) return a.real() < b.real();
  if (a.string() && b.string()) {
    heap->Step(std::min(a.size, b.size) / 64);
    return a.view() < b.view();  // the order of UTF-8's bytes is that of its code points
  }
  if (a.kind == b.kind && (a.Is(Kind::kList) || a.Is(Kind::kTuple))) {
    const absl::Span<const Value> x = a.sequence->span(), y = b.sequence->span();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!Equal(heap, x[i], y[i], depth + 1)) return Less(heap, x[i], y[i], depth + 1);
    }
    return x.size() < y.size();
  }
  CheckDefined(a, b);
  Fail("'<' is not supported between '", TypeName(a), "' and '", TypeName(b), "'");
}

bool Hashable(const Value& value) {
  if (value.Is(Kind::kTuple)) {
    const absl::Span<const Value> items = value.sequence->span();
    return std::all_of(items.begin(), items.end(), [](const Value& item) {
      return !item.Is(Kind::kTuple) && Hashable(item);  // tuples in tuples are nobody's keys
    });
  }
  return !value.Is(Kind::kList) && !value.Is(Kind::kDict) && !value.Is(Kind::kKeys) &&
         !value.Is(Kind::kItems);
}

bool In(Heap* heap, const Value& item, const Value& container) {
  if (container.string()) {
    if (!item.string()) {
      Fail("'in <string>' requires a string as left operand, not '", TypeName(item), "'");
    }
    heap->Step(container.size / 64);
    return container.view().find(item.view()) != string_view::npos;
  }
  if (container.Is(Kind::kDict)) {
    if (!Hashable(item)) Fail("unhashable type: '", TypeName(item), "'");
    return container.table->Find(heap, item) != nullptr;
  }
  if (!Iterable(container)) Fail("argument of type '", TypeName(container), "' is not iterable");
  const absl::Span<const Value> items = Iterate(heap, container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& each) { return Equal(heap, each, item); });
}

bool Compare(Heap* heap, string_view operation, const Value& a, const Value& b) {
  if (operation == "==") return Equal(heap, a, b);
  if (operation == "!=") return !Equal(heap, a, b);
  if (operation == "in") return In(heap, a, b);
  if (operation == "not in") return !In(heap, a, b);
  if (operation == "<") return Less(heap, a, b);
  if (operation == ">") return Less(heap, b, a);
  // With NaN neither of two is less.
  const bool equal = Equal(heap, a, b);
  return operation == "<=" ? Less(heap, a, b) || equal : Less(heap, b, a) || equal;
}

Value Add(Heap* heap, const Value& a, const Value& b) {
  if (a.numeric() && b.numeric()) return Numbers("+", a, b);
  if (a.string() && b.string()) {
    Builder out(heap);
    const bool markup = a.flag || b.flag;
    AddMaybeEscaped(&out, a, markup && !a.flag);
    AddMaybeEscaped(&out, b, markup && !b.flag);
    Value text = out.Done();
    text.flag = markup;
    return text;
  }
  if (a.kind == b.kind && (a.Is(Kind::kList) || a.Is(Kind::kTuple))) {
    std::vector<Value> items(a.sequence->span().begin(), a.sequence->span().end());
    items.insert(items.end(), b.sequence->span().begin(), b.sequence->span().end());
    return heap->Items(a.kind, items);
  }
  FailOperands("+", a, b);
}

Value Arithmetic(Heap* heap, string_view operation, const Value& a, const Value& b) {
  if (operation == "+") return Add(heap, a, b);
  if (a.numeric() && b.numeric()) return Numbers(operation, a, b);
  if (operation == "%" && a.string()) return FormatPercent(heap, a, b);
  if (operation == "*") {
    const auto repeats = [](const Value& v) {
      return v.string() || v.Is(Kind::kList) || v.Is(Kind::kTuple);
    };
    if (repeats(a) && b.integral()) return Repeat(heap, a, b.whole());
    if (repeats(b) && a.integral()) return Repeat(heap, b, a.whole());
  }
  FailOperands(operation, a, b);
}

Value Negative(const Value& value) {
  if (value.Is(Kind::kFloat)) return Value(-value.number);
  if (!value.integral()) {
    if (value.undefined()) FailUndefined(value);
    Fail("bad operand type for unary -: '", TypeName(value), "'");
  }
  if (value.whole() == INT64_MIN) FailOverflow();
  return Value(-value.whole());
}

}  // namespace mainarch::text::jinja
