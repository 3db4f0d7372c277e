// SPDX-License-Identifier: MIT
//
// Expressions.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"

namespace mainarch::text::jinja {

using absl::string_view;

Value Interpreter::Evaluate(const Expr& expr, Scope* scope) {
  const Level level(this);
  line_ = expr.line;
  const auto at = [&](size_t i) { return Evaluate(*expr.items[i], scope); };
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return Name(expr.name, scope);
    case ExprKind::kAttribute:
      return Attribute(heap_, at(0), expr.name);
    case ExprKind::kItem: {
      const Value object = at(0);
      return Item(heap_, object, at(1));
    }
    case ExprKind::kSlice:
      return EvaluateSlice(expr, scope);
    case ExprKind::kCall:
      return EvaluateCall(expr, scope);
    case ExprKind::kFilter:
      return EvaluateFilter(expr, scope);
    case ExprKind::kTest:
      return EvaluateTest(expr, scope);
    case ExprKind::kNot:
      return Value(!Truth(at(0)));
    case ExprKind::kNegative:
      return Negative(at(0));
    case ExprKind::kPositive: {
      const Value value = at(0);
      return value.Is(Kind::kFloat) ? value : Negative(Negative(value));
    }
    case ExprKind::kBinary: {
      const Value left = at(0);
      return Arithmetic(heap_, expr.name, left, at(1));
    }
    case ExprKind::kCompare:
      return EvaluateCompare(expr, scope);
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kConditional:
      return EvaluateLogic(expr, scope);
    case ExprKind::kConcat:
      return EvaluateConcat(expr, scope);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return EvaluateItems(expr, scope);
    case ExprKind::kDict:
      return EvaluateDict(expr, scope);
  }
  return Value();
}

Value Interpreter::EvaluateLogic(const Expr& expr, Scope* scope) {
  const Value first = Evaluate(*expr.items[0], scope);
  const bool truth = Truth(first);
  if (expr.kind == ExprKind::kConditional) {
    const Expr* chosen = expr.items[truth ? 1 : 2];
    if (chosen != nullptr) return Evaluate(*chosen, scope);
    return Undefined("the inline if-expression is false and has no else", Kind::kUndefined);
  }
  if (truth == (expr.kind == ExprKind::kOr)) return first;
  return Evaluate(*expr.items[1], scope);
}

Value Interpreter::EvaluateCompare(const Expr& expr, Scope* scope) {
  Value left = Evaluate(*expr.items[0], scope);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    const Value right = Evaluate(*expr.items[i + 1], scope);
    if (!Compare(heap_, expr.operators[i], left, right)) return Value(false);
    left = right;
  }
  return Value(true);
}

Value Interpreter::EvaluateConcat(const Expr& expr, Scope* scope) {
  Builder out(heap_);
  for (const Expr* item : expr.items) AddStr(&out, Evaluate(*item, scope));
  return out.Done();
}

Value Interpreter::EvaluateItems(const Expr& expr, Scope* scope) {
  std::vector<Value> items;
  for (const Expr* item : expr.items) items.push_back(Evaluate(*item, scope));
  return heap_->Items(expr.kind == ExprKind::kList ? Kind::kList : Kind::kTuple, items);
}

Value Interpreter::EvaluateDict(const Expr& expr, Scope* scope) {
  Table* table = heap_->New(Table{});
  for (size_t i = 0; i < expr.items.size(); i += 2) {
    const Value key = Evaluate(*expr.items[i], scope);
    if (!Hashable(key)) Fail("unhashable type: '", TypeName(key), "'");
    table->Set(heap_, key, Evaluate(*expr.items[i + 1], scope));
  }
  return Of(Kind::kDict, table);
}

Value Interpreter::EvaluateSlice(const Expr& expr, Scope* scope) {
  const Value object = Evaluate(*expr.items[0], scope);
  Value parts[3] = {None(), None(), None()};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.items[i + 1] != nullptr) parts[i] = Evaluate(*expr.items[i + 1], scope);
  }
  return Slice(heap_, object, parts[0], parts[1], parts[2]);
}

Interpreter::Evaluated Interpreter::EvaluateArguments(const Expr& expr, size_t first,
                                                      Scope* scope) {
  Evaluated out;
  for (size_t i = first; i < expr.items.size(); ++i) {
    out.positional.push_back(Evaluate(*expr.items[i], scope));
  }
  for (const Keyword& keyword : expr.named) {
    out.named.push_back({Value(keyword.name), Evaluate(*keyword.value, scope)});
  }
  if (expr.star != nullptr) {
    const absl::Span<const Value> more = Iterate(heap_, Evaluate(*expr.star, scope));
    out.positional.insert(out.positional.end(), more.begin(), more.end());
  }
  if (expr.star_star != nullptr) {
    const Value more = Evaluate(*expr.star_star, scope);
    if (!more.Is(Kind::kDict)) Fail("what stands behind ** is no dict but '", TypeName(more), "'");
    for (const Entry& entry : more.table->span()) {
      if (!entry.key.string()) Fail("keywords must be strings");
      out.named.push_back(entry);
    }
  }
  return out;
}

Value Interpreter::EvaluateFilter(const Expr& expr, Scope* scope, const Value* block) {
  const Level level(this);
  const Expr* over = expr.items[0];
  const Value value = over == nullptr ? *block
                      : block != nullptr && over->kind == ExprKind::kFilter
                          ? EvaluateFilter(*over, scope, block)
                          : Evaluate(*over, scope);
  const Builtin* filter = FindFilter(expr.name);
  line_ = expr.line;
  if (filter == nullptr) Fail("no filter named '", expr.name, "'");
  const Evaluated arguments = EvaluateArguments(expr, 1, scope);
  return Invoke(heap_, *filter, value, arguments.view());
}

Value Interpreter::EvaluateTest(const Expr& expr, Scope* scope) {
  const Value value = Evaluate(*expr.items[0], scope);
  const Builtin* test = FindTest(expr.name);
  if (test == nullptr) Fail("no test named '", expr.name, "'");
  const Evaluated arguments = EvaluateArguments(expr, 1, scope);
  return Invoke(heap_, *test, value, arguments.view());
}

Value Interpreter::Name(string_view name, Scope* scope) {
  for (; scope != nullptr; scope = scope->parent) {
    const Value* found = scope->variables.Find(heap_, name);
    if (found != nullptr) return *found;
  }
  return Undefined(name);
}

Value Interpreter::EvaluateCall(const Expr& expr, Scope* scope, const Value* caller) {
  const Value callee = Evaluate(*expr.items[0], scope);
  Evaluated arguments = EvaluateArguments(expr, 1, scope);
  if (caller != nullptr) arguments.named.push_back({Value(string_view("caller")), *caller});
  line_ = expr.line;
  switch (callee.kind) {
    case Kind::kUndefined:
      FailUndefined(callee);
    case Kind::kMacro:
      return CallMacro(*callee.closure, arguments.view());
    case Kind::kFunction:
      return Invoke(heap_, *callee.function->builtin, callee.function->self, arguments.view());
    case Kind::kJoiner: {
      const bool first = !std::exchange(callee.joiner->used, true);
      return first ? Value(string_view("", 0)) : callee.joiner->separator;
    }
    default:
      Fail("'", TypeName(callee), "' object is not callable");
  }
}

void Interpreter::BindMacro(const Macro& macro, const Arguments& arguments, Scope* scope) {
  const size_t count = macro.parameters.size();
  const absl::Span<const Value> given = arguments.positional;
  std::vector<Value> values(count);
  std::copy(given.begin(),
            given.begin() + static_cast<std::ptrdiff_t>(std::min(count, given.size())),
            values.begin());
  Value caller = Undefined("no caller defined", Kind::kUndefined);
  Table* others = heap_->New(Table{});
  for (const Entry& entry : arguments.named) {
    const auto at = std::find(macro.parameters.begin(), macro.parameters.end(), entry.key.view());
    if (at != macro.parameters.end()) {
      Value& value = values[static_cast<size_t>(at - macro.parameters.begin())];
      if (!value.missing()) Fail("macro '", macro.name, "' got '", *at, "' twice");
      value = entry.value;
    } else if (entry.key.view() == "caller") {
      caller = entry.value;
    } else if (macro.uses_kwargs) {
      others->Set(heap_, entry.key, entry.value);
    } else {
      Fail("macro '", macro.name, "' takes no keyword argument '", entry.key.view(), "'");
    }
  }
  if (given.size() > count && !macro.uses_varargs) {
    Fail("macro '", macro.name, "' takes not more than ", count, " arguments");
  }
  Variable(scope, "caller", caller);
  if (macro.uses_kwargs) Variable(scope, "kwargs", Of(Kind::kDict, others));
  if (macro.uses_varargs) {
    const absl::Span<const Value> rest = given.subspan(std::min(count, given.size()));
    Variable(scope, "varargs", heap_->Items(Kind::kTuple, rest));
  }
  const size_t first_default = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    Value& value = values[i];
    if (value.missing() && i >= first_default) {
      // It sees the parameters before it.
      value = Evaluate(*macro.defaults[i - first_default], scope);
    } else if (value.missing()) {
      value = Undefined(macro.parameters[i]);
    }
    Variable(scope, macro.parameters[i], value);
  }
}

Value Interpreter::CallMacro(const Closure& closure, const Arguments& arguments) {
  const Level level(this);
  Scope* scope = Inner(closure.scope);
  BindMacro(*closure.macro, arguments, scope);
  Builder out(heap_);
  Execute(closure.macro->body, scope, &out);
  return out.Done();
}

}  // namespace mainarch::text::jinja
