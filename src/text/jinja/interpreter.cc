// SPDX-License-Identifier: MIT
//
// Statements.
#include "text/jinja/interpreter.h"

#include "absl/strings/match.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"

namespace mainarch::text::jinja {

using absl::string_view;

void Interpreter::Run(const Syntax& syntax, const Table& variables, Builder* out) {
  Scope functions{{}, nullptr};
  for (const Builtin& builtin : Functions()) {
    const Function* function = heap_->New(Function{&builtin, Value()});
    functions.variables.Append(heap_, Value(builtin.name), Of(Kind::kFunction, function));
  }
  Scope given{variables, &functions};
  Execute(syntax.body, Inner(&given), out);
}

Scope* Interpreter::Inner(Scope* parent) { return heap_->New(Scope{{}, parent}); }

Scope* Interpreter::Variable(Scope* scope, string_view name, const Value& value) {
  scope->variables.Set(heap_, Value(name), value);
  return scope;
}

Value Interpreter::MacroValue(const Macro& macro, Scope* scope) {
  const Closure* closure = heap_->New(Closure{&macro, scope});
  return Of(Kind::kMacro, closure);
}

Interpreter::Flow Interpreter::Execute(const Body& body, Scope* scope, Builder* out) {
  for (const Stmt* stmt : body) {
    const Flow flow = Execute(*stmt, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::Execute(const Stmt& stmt, Scope* scope, Builder* out) {
  const Level level(this);
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kOutput:
      for (const Expr* value : stmt.values) AddStr(out, Evaluate(*value, scope));
      return Flow::kNext;
    case StmtKind::kIf:
      return If(stmt, scope, out);
    case StmtKind::kFor:
      return For(stmt, scope, out);
    case StmtKind::kSet:
      Assign(stmt.targets[0], Evaluate(*stmt.values[0], scope), scope);
      return Flow::kNext;
    case StmtKind::kSetBlock:
      return SetBlock(stmt, scope);
    case StmtKind::kMacro:
      Variable(scope, stmt.macro->name, MacroValue(*stmt.macro, scope));
      return Flow::kNext;
    case StmtKind::kCallBlock:
      CallBlock(stmt, scope, out);
      return Flow::kNext;
    case StmtKind::kFilterBlock:
      return FilterBlock(stmt, scope, out);
    case StmtKind::kWith:
      return With(stmt, scope, out);
    case StmtKind::kScope:
      return Execute(stmt.bodies[0], Inner(scope), out);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::If(const Stmt& stmt, Scope* scope, Builder* out) {
  for (size_t i = 0; i < stmt.values.size(); ++i) {
    if (Truth(Evaluate(*stmt.values[i], scope))) return Execute(stmt.bodies[i], scope, out);
  }
  const bool otherwise = stmt.bodies.size() > stmt.values.size();
  return otherwise ? Execute(stmt.bodies.back(), scope, out) : Flow::kNext;
}

Interpreter::Flow Interpreter::For(const Stmt& stmt, Scope* scope, Builder* out) {
  absl::Span<const Value> items = Iterate(heap_, Evaluate(*stmt.values[0], scope));
  if (stmt.values[1] != nullptr) {
    std::vector<Value> kept;
    for (const Value& item : items) {
      Scope* inner = Inner(scope);
      Assign(stmt.targets[0], item, inner);
      if (Truth(Evaluate(*stmt.values[1], inner))) kept.push_back(item);
    }
    items = heap_->Items(Kind::kList, kept).sequence->span();
  }
  if (items.empty()) return Execute(stmt.bodies[1], Inner(scope), out);
  Loop* loop = heap_->New(Loop{items});
  for (; loop->index < items.size(); ++loop->index) {
    heap_->Step();
    Scope* inner = Variable(Inner(scope), "loop", Of(Kind::kLoop, loop));
    Assign(stmt.targets[0], items[loop->index], inner);
    if (Execute(stmt.bodies[0], inner, out) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::SetBlock(const Stmt& stmt, Scope* scope) {
  Builder text(heap_);
  const Flow flow = Execute(stmt.bodies[0], Inner(scope), &text);
  if (flow != Flow::kNext) return flow;
  Value value = text.Done();
  if (stmt.values[0] != nullptr) value = EvaluateFilter(*stmt.values[0], scope, &value);
  Assign(stmt.targets[0], value, scope);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::FilterBlock(const Stmt& stmt, Scope* scope, Builder* out) {
  Builder text(heap_);
  const Flow flow = Execute(stmt.bodies[0], Inner(scope), &text);
  if (flow != Flow::kNext) return flow;
  const Value value = text.Done();
  AddStr(out, EvaluateFilter(*stmt.values[0], scope, &value));
  return Flow::kNext;
}

Interpreter::Flow Interpreter::With(const Stmt& stmt, Scope* scope, Builder* out) {
  Scope* inner = Inner(scope);
  for (size_t i = 0; i < stmt.targets.size(); ++i) {
    // The values do not see one another.
    Assign(stmt.targets[i], Evaluate(*stmt.values[i], scope), inner);
  }
  return Execute(stmt.bodies[0], inner, out);
}

void Interpreter::CallBlock(const Stmt& stmt, Scope* scope, Builder* out) {
  const Value caller = MacroValue(*stmt.macro, scope);
  AddStr(out, EvaluateCall(*stmt.values[0], scope, &caller));
}

void Interpreter::Assign(const Target& target, const Value& value, Scope* scope) {
  if (target.tuple) {
    const absl::Span<const Value> items = Iterate(heap_, value);
    if (items.size() != target.items.size()) {
      Fail("cannot unpack ", items.size(), " values into ", target.items.size(), " variables");
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(target.items[i], items[i], scope);
    return;
  }
  if (target.attribute.empty()) {
    Variable(scope, target.name, value);
    return;
  }
  const Value space = Name(target.name, scope);
  if (!space.Is(Kind::kNamespace)) Fail("cannot assign attribute on non-namespace object");
  if (absl::StartsWith(target.attribute, "_")) {
    Fail("attributes of a namespace may not begin with an underscore: '", target.attribute, "'");
  }
  space.table->Set(heap_, Value(target.attribute), value);
}

}  // namespace mainarch::text::jinja
