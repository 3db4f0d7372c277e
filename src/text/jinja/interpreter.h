// SPDX-License-Identifier: MIT
//
// Walks a template's tree and writes what it says. Failures are thrown (value.h).
//
// Variables live in scopes: one for the template, one for each round of a loop, each call of a
// macro, each block that has its own. A name is looked for from the innermost scope outwards, and
// set in the innermost: so what a loop's body sets is gone with the round, as in Jinja.
#ifndef MAINARCH_TEXT_JINJA_INTERPRETER_H_
#define MAINARCH_TEXT_JINJA_INTERPRETER_H_

#include "text/jinja/ast.h"
#include "text/jinja/builtin.h"
#include "text/jinja/value.h"

namespace mainarch::text::jinja {

class Interpreter {
 public:
  explicit Interpreter(Heap* heap) : heap_(heap) {}

  void Run(const Syntax& syntax, const Table& variables, Builder* out);

  // The line of the template that was evaluated last.
  uint32_t line() const { return line_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Level;

  // interpreter.cc
  Flow Execute(const Body& body, Scope* scope, Builder* out);
  Flow Execute(const Stmt& stmt, Scope* scope, Builder* out);
  Flow If(const Stmt& stmt, Scope* scope, Builder* out);
  Flow For(const Stmt& stmt, Scope* scope, Builder* out);
  Flow SetBlock(const Stmt& stmt, Scope* scope);
  Flow FilterBlock(const Stmt& stmt, Scope* scope, Builder* out);
  Flow With(const Stmt& stmt, Scope* scope, Builder* out);
  void CallBlock(const Stmt& stmt, Scope* scope, Builder* out);
  void Assign(const Target& target, const Value& value, Scope* scope);
  Scope* Inner(Scope* parent);
  Scope* Variable(Scope* scope, absl::string_view name, const Value& value);
  Value MacroValue(const Macro& macro, Scope* scope);

  // expressions.cc
  Value Evaluate(const Expr& expr, Scope* scope);
  Value EvaluateLogic(const Expr& expr, Scope* scope);
  Value EvaluateCompare(const Expr& expr, Scope* scope);
  Value EvaluateConcat(const Expr& expr, Scope* scope);
  Value EvaluateItems(const Expr& expr, Scope* scope);
  Value EvaluateDict(const Expr& expr, Scope* scope);
  Value EvaluateSlice(const Expr& expr, Scope* scope);
  // `block` is what a filter over a block filters.
  Value EvaluateFilter(const Expr& expr, Scope* scope, const Value* block = nullptr);
  Value EvaluateTest(const Expr& expr, Scope* scope);
  Value EvaluateCall(const Expr& expr, Scope* scope, const Value* caller = nullptr);
  Value Name(absl::string_view name, Scope* scope);
  Value CallMacro(const Closure& closure, const Arguments& arguments);
  void BindMacro(const Macro& macro, const Arguments& arguments, Scope* scope);

  // What stands in a call's parentheses.
  struct Evaluated {
    std::vector<Value> positional;
    std::vector<Entry> named;
    Arguments view() const { return {positional, named}; }
  };
  Evaluated EvaluateArguments(const Expr& expr, size_t first, Scope* scope);

  Heap* heap_;
  uint32_t line_ = 1;
  int depth_ = 0;
};

// One level of depth for as long as it lives.
class Interpreter::Level {
 public:
  explicit Level(Interpreter* interpreter) : interpreter_(interpreter) {
    const int limit = interpreter->heap_->limits().depth;
    if (interpreter->depth_ >= limit) Fail("nested deeper than the limit of ", limit);
    ++interpreter->depth_;
    interpreter->heap_->Step();
  }
  ~Level() { --interpreter_->depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter* interpreter_;
};

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_INTERPRETER_H_
