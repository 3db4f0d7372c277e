// SPDX-License-Identifier: MIT
//
// A template as a tree. Nodes belong to the Syntax they were made in and never change: any number
// of renderings may walk one at once.
#ifndef MAINARCH_TEXT_JINJA_AST_H_
#define MAINARCH_TEXT_JINJA_AST_H_

#include <deque>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "text/jinja/value.h"

namespace mainarch::text::jinja {

enum class ExprKind {
  kConstant,     // constant
  kName,         // name
  kAttribute,    // items[0].name
  kItem,         // items[0][items[1]]
  kSlice,        // items[0][items[1]:items[2]:items[3]], each of the last three perhaps null
  kCall,         // items[0](items[1..], named, star, star_star)
  kFilter,       // items[0] | name(items[1..], ..); items[0] is null over a block
  kTest,         // items[0] is name(items[1..], ..)
  kNot,          // not items[0]
  kNegative,     // -items[0]
  kPositive,     // +items[0]
  kBinary,       // items[0] name items[1], an arithmetic operator
  kCompare,      // items[0] operators[0] items[1] operators[1] ..
  kAnd,          // items[0] and items[1]
  kOr,           //
  kConcat,       // items[0] ~ items[1] ~ ..
  kConditional,  // items[1] if items[0] else items[2], which may be null
  kList,         // items
  kTuple,        //
  kDict,         // items: key, value, key, value, ..
};

struct Expr;

struct Keyword {
  absl::string_view name;
  const Expr* value;
};

struct Expr {
  ExprKind kind;
  uint32_t line;
  absl::string_view name;
  Value constant;
  std::vector<const Expr*> items;
  std::vector<absl::string_view> operators;
  std::vector<Keyword> named;
  const Expr* star = nullptr;       // *args
  const Expr* star_star = nullptr;  // **kwargs
};

// What is assigned to.
struct Target {
  absl::string_view name;
  absl::string_view attribute;  // of a namespace; empty: a variable
  bool tuple = false;
  std::vector<Target> items;  // of a tuple
};

struct Stmt;
using Body = std::vector<const Stmt*>;

struct Macro {
  absl::string_view name;
  std::vector<absl::string_view> parameters;
  std::vector<const Expr*> defaults;  // of the last parameters
  Body body;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

enum class StmtKind {
  kOutput,     // values
  kIf,         // values[i]: bodies[i]; one body more is the else
  kFor,        // targets[0] in values[0] if values[1], which may be null: bodies[0] else bodies[1]
  kSet,        // targets[0] = values[0]
  kSetBlock,   // targets[0] = bodies[0] | values[0], which may be null
  kMacro,      // macro
  kCallBlock,  // values[0], a call, with macro as its caller
  kFilterBlock,  // bodies[0] | values[0]
  kWith,         // targets[i] = values[i]: bodies[0]
  kScope,        // bodies[0], with variables of its own
  kBreak,
  kContinue,
};

struct Stmt {
  StmtKind kind;
  uint32_t line;
  std::vector<const Expr*> values;
  std::vector<Target> targets;
  std::vector<Body> bodies;
  const Macro* macro = nullptr;
};

// A whole template, and the owner of all its nodes.
struct Syntax {
  Body body;
  std::vector<std::string> reads;  // the names of variables that it reads, sorted, each once

  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::deque<Macro> macros;
  std::deque<std::string> texts;
};

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_AST_H_
