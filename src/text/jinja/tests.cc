// SPDX-License-Identifier: MIT
//
// What stands behind "is".
#include <algorithm>

#include "text/jinja/builtin.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

Value IsDefined(const Call& call) { return Value(!call.self.undefined()); }
Value IsUndefined(const Call& call) { return Value(call.self.undefined()); }
Value IsNone(const Call& call) { return Value(call.self.none()); }
Value IsBoolean(const Call& call) { return Value(call.self.Is(Kind::kBool)); }
Value IsTrue(const Call& call) { return Value(call.self.Is(Kind::kBool) && call.self.boolean); }
Value IsFalse(const Call& call) { return Value(call.self.Is(Kind::kBool) && !call.self.boolean); }
Value IsInteger(const Call& call) { return Value(call.self.Is(Kind::kInt)); }
Value IsFloat(const Call& call) { return Value(call.self.Is(Kind::kFloat)); }
Value IsNumber(const Call& call) { return Value(call.self.numeric()); }
Value IsString(const Call& call) { return Value(call.self.string()); }
Value IsMapping(const Call& call) { return Value(call.self.Is(Kind::kDict)); }
Value IsIterable(const Call& call) { return Value(Iterable(call.self)); }

// What has a length and could be indexed.
Value IsSequence(const Call& call) {
  const Kind kind = call.self.kind;
  return Value(kind == Kind::kUndefined || kind == Kind::kString || kind == Kind::kList ||
               kind == Kind::kTuple || kind == Kind::kRange || kind == Kind::kDict);
}

Value IsCallable(const Call& call) {
  const Kind kind = call.self.kind;
  return Value(kind == Kind::kUndefined || kind == Kind::kMacro || kind == Kind::kFunction ||
               kind == Kind::kJoiner || kind == Kind::kLoop);
}

Value IsSameAs(const Call& call) {
  const Value &a = call.self, &b = call.at[0];
  if (a.kind != b.kind) return Value(false);
  if (a.Is(Kind::kString) || a.Is(Kind::kInt) || a.Is(Kind::kFloat) || a.Is(Kind::kBool)) {
    return Value(Equal(call.heap, a, b));
  }
  return Value(a.none() || a.text == b.text);
}

Value IsIn(const Call& call) { return Value(In(call.heap, call.self, call.at[0])); }
Value IsEqual(const Call& call) { return Value(Equal(call.heap, call.self, call.at[0])); }
Value IsUnequal(const Call& call) { return Value(!Equal(call.heap, call.self, call.at[0])); }
Value IsLess(const Call& call) { return Value(Compare(call.heap, "<", call.self, call.at[0])); }
Value IsAtMost(const Call& call) { return Value(Compare(call.heap, "<=", call.self, call.at[0])); }
Value IsGreater(const Call& call) { return Value(Compare(call.heap, ">", call.self, call.at[0])); }
Value IsAtLeast(const Call& call) { return Value(Compare(call.heap, ">=", call.self, call.at[0])); }

bool Divides(const Call& call, int64_t by) {
  const Value rest = Arithmetic(call.heap, "%", call.self, Value(by));
  return rest.numeric() && rest.real() == 0;
}

Value IsEven(const Call& call) { return Value(Divides(call, 2)); }
Value IsOdd(const Call& call) {
  return Value(Arithmetic(call.heap, "%", call.self, Value(int64_t{2})).real() == 1);
}
Value IsDivisibleBy(const Call& call) { return Value(Divides(call, IntArgument(call, 0, 1))); }

Value IsLowerText(const Call& call) {
  return Invoke(call.heap, *FindMethod(Kind::kString, "islower"), Str(call.heap, call.self), {});
}
Value IsUpperText(const Call& call) {
  return Invoke(call.heap, *FindMethod(Kind::kString, "isupper"), Str(call.heap, call.self), {});
}
Value IsEscaped(const Call& call) { return Value(call.self.string() && call.self.flag); }

Value IsFilter(const Call& call) {
  return Value(call.self.string() && FindFilter(call.self.view()) != nullptr);
}
Value IsTest(const Call& call) {
  return Value(call.self.string() && FindTest(call.self.view()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"!=", IsUnequal, "other", 1},
    {"<", IsLess, "other", 1},
    {"<=", IsAtMost, "other", 1},
    {"==", IsEqual, "other", 1},
    {">", IsGreater, "other", 1},
    {">=", IsAtLeast, "other", 1},
    {"boolean", IsBoolean},
    {"callable", IsCallable},
    {"defined", IsDefined},
    {"divisibleby", IsDivisibleBy, "num", 1},
    {"eq", IsEqual, "other", 1},
    {"equalto", IsEqual, "other", 1},
    {"escaped", IsEscaped},
    {"even", IsEven},
    {"false", IsFalse},
    {"filter", IsFilter},
    {"float", IsFloat},
    {"ge", IsAtLeast, "other", 1},
    {"greaterthan", IsGreater, "other", 1},
    {"gt", IsGreater, "other", 1},
    {"in", IsIn, "seq", 1},
    {"integer", IsInteger},
    {"iterable", IsIterable},
    {"le", IsAtMost, "other", 1},
    {"lessthan", IsLess, "other", 1},
    {"lower", IsLowerText},
    {"lt", IsLess, "other", 1},
    {"mapping", IsMapping},
    {"ne", IsUnequal, "other", 1},
    {"none", IsNone},
    {"number", IsNumber},
    {"odd", IsOdd},
    {"sameas", IsSameAs, "other", 1},
    {"sequence", IsSequence},
    {"string", IsString},
    {"test", IsTest},
    {"true", IsTrue},
    {"undefined", IsUndefined},
    {"upper", IsUpperText},
};

}  // namespace

const Builtin* FindTest(string_view name) {
  for (const Builtin& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace mainarch::text::jinja
