// SPDX-License-Identifier: MIT
#include "text/jinja/expression_parser.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "text/jinja/numbers.h"
#include "text/jinja/parser.h"

namespace mainarch::text::jinja {

using absl::string_view;

ExpressionParser::Level::Level(ExpressionParser* parser) : parser_(parser) {
  if (parser->nesting_ >= kMaxNesting) {
    throw Failure{Error(Code::kUnsupported, "line ", parser->now().line,
                        ": nested deeper than the limit of ", kMaxNesting)};
  }
  ++parser->nesting_;
}

bool ExpressionParser::AtName(string_view name) const {
  return now().kind == TokenKind::kName && now().text == name;
}

bool ExpressionParser::AtOperator(string_view text) const {
  return now().kind == TokenKind::kOperator && now().text == text;
}

bool ExpressionParser::SkipName(string_view name) {
  const bool at = AtName(name);
  if (at) Take();
  return at;
}

bool ExpressionParser::SkipOperator(string_view text) {
  const bool at = AtOperator(text);
  if (at) Take();
  return at;
}

void ExpressionParser::Unexpected() const {
  if (now().kind == TokenKind::kEnd) Bad("the template ends too early");
  if (now().kind == TokenKind::kBlockEnd || now().kind == TokenKind::kVariableEnd) {
    Bad("a tag ends too early");
  }
  Bad("unexpected \"", absl::Utf8SafeCHexEscape(now().text.substr(0, 64)), "\"");
}

void ExpressionParser::ExpectOperator(string_view text) {
  if (!SkipOperator(text)) Unexpected();
}

void ExpressionParser::Expect(TokenKind kind, string_view what) {
  if (now().kind != kind) Bad("expected ", what);
  Take();
}

string_view ExpressionParser::ExpectName() {
  if (now().kind != TokenKind::kName) Unexpected();
  return Keep(Take().text);
}

string_view ExpressionParser::Keep(std::string text) {
  syntax_->texts.push_back(std::move(text));
  return syntax_->texts.back();
}

Expr* ExpressionParser::New(ExprKind kind, std::vector<const Expr*> items) {
  Expr& node = syntax_->exprs.emplace_back();
  node.kind = kind;
  node.line = now().line;
  node.items = std::move(items);
  return &node;
}

const Expr* ExpressionParser::Constant(const Value& value) {
  Expr* node = New(ExprKind::kConstant);
  node->constant = value;
  return node;
}

const Expr* ExpressionParser::Expression(bool conditional) {
  const Level level(this);
  return conditional ? Conditional() : Logic(0);
}

const Expr* ExpressionParser::Conditional() {
  const Expr* value = Logic(0);
  while (SkipName("if")) {
    const Expr* test = Logic(0);
    const Expr* otherwise = SkipName("else") ? Expression() : nullptr;
    value = New(ExprKind::kConditional, {test, value, otherwise});
  }
  return value;
}

// or, and, not.
const Expr* ExpressionParser::Logic(int level) {
  if (level == 2) {
    if (!AtName("not")) return Compare();
    const Level deeper(this);
    Take();
    return New(ExprKind::kNot, {Logic(2)});
  }
  const Expr* left = Logic(level + 1);
  while (SkipName(level == 0 ? "or" : "and")) {
    left = New(level == 0 ? ExprKind::kOr : ExprKind::kAnd, {left, Logic(level + 1)});
  }
  return left;
}

const Expr* ExpressionParser::Compare() {
  constexpr string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  const Expr* first = Arithmetic(0);
  Expr* node = nullptr;
  while (true) {
    string_view operation;
    for (const string_view known : kOperators) {
      if (AtOperator(known)) operation = known;
    }
    if (AtName("in")) operation = "in";
    if (AtName("not") && next().kind == TokenKind::kName && next().text == "in") {
      Take();
      operation = "not in";
    }
    if (operation.empty()) return node == nullptr ? first : node;
    Take();
    if (node == nullptr) node = New(ExprKind::kCompare, {first});
    node->operators.push_back(operation);
    node->items.push_back(Arithmetic(0));
  }
}

// + -, then ~, then * / // %, then **; all of them to the left.
const Expr* ExpressionParser::Arithmetic(int level) {
  constexpr string_view kOperators[4][4] = {
      {"+", "-", "", ""}, {"~", "", "", ""}, {"*", "/", "//", "%"}, {"**", "", "", ""}};
  if (level == 4) return Unary(true);
  const Expr* left = Arithmetic(level + 1);
  Expr* concat = nullptr;
  while (true) {
    string_view operation;
    for (const string_view known : kOperators[level]) {
      if (!known.empty() && AtOperator(known)) operation = known;
    }
    if (operation.empty()) return left;
    Take();
    const Expr* right = Arithmetic(level + 1);
    if (level == 1) {
      if (concat == nullptr) left = concat = New(ExprKind::kConcat, {left});
      concat->items.push_back(right);
      continue;
    }
    Expr* node = New(ExprKind::kBinary, {left, right});
    node->name = operation;
    left = node;
  }
}

const Expr* ExpressionParser::Unary(bool with_filters) {
  const Expr* node = nullptr;
  if (AtOperator("-") || AtOperator("+")) {
    const Level level(this);
    const ExprKind kind = Take().text == "-" ? ExprKind::kNegative : ExprKind::kPositive;
    node = New(kind, {Unary(false)});
  } else {
    node = Primary();
  }
  node = Postfix(node);
  return with_filters ? FiltersAndTests(node) : node;
}

const Expr* ExpressionParser::Primary() {
  switch (now().kind) {
    case TokenKind::kName:
      return Name();
    case TokenKind::kString: {
      std::string text = Take().text;
      while (now().kind == TokenKind::kString) text += Take().text;
      return Constant(Value(Keep(std::move(text))));
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return Number();
    default:
      if (AtOperator("[")) return List();
      if (AtOperator("{")) return Dict();
      if (!SkipOperator("(")) Unexpected();
      const Expr* node = AtOperator(")") ? New(ExprKind::kTuple) : Tuple();
      ExpectOperator(")");
      return node;
  }
}

const Expr* ExpressionParser::Name() {
  const std::string text = Take().text;
  if (text == "true" || text == "True") return Constant(Value(true));
  if (text == "false" || text == "False") return Constant(Value(false));
  if (text == "none" || text == "None") return Constant(None());
  Expr* node = New(ExprKind::kName);
  node->name = Keep(text);
  syntax_->reads.push_back(text);
  for (Macro* macro : macros_) {
    macro->uses_varargs |= text == "varargs";
    macro->uses_kwargs |= text == "kwargs";
  }
  return node;
}

const Expr* ExpressionParser::Number() {
  const TokenKind kind = now().kind;
  const std::string text = absl::StrReplaceAll(Take().text, {{"_", ""}});
  if (kind == TokenKind::kFloat) {
    double number = 0;
    ParseFloat(text, &number);  // the lexer knows that it is one
    return Constant(Value(number));
  }
  int64_t value = 0;
  if (!ParseInteger(text, 0, &value)) {
    throw Failure{Error(Code::kUnsupported, "line ", now().line, ": the integer ",
                        text.substr(0, 64), " has more than 64 bits")};
  }
  return Constant(Value(value));
}

const Expr* ExpressionParser::List() {
  ExpectOperator("[");
  Expr* node = New(ExprKind::kList);
  while (!AtOperator("]")) {
    if (!node->items.empty()) ExpectOperator(",");
    if (AtOperator("]")) break;
    node->items.push_back(Expression());
  }
  ExpectOperator("]");
  return node;
}

const Expr* ExpressionParser::Dict() {
  ExpectOperator("{");
  Expr* node = New(ExprKind::kDict);
  while (!AtOperator("}")) {
    if (!node->items.empty()) ExpectOperator(",");
    if (AtOperator("}")) break;
    node->items.push_back(Expression());
    ExpectOperator(":");
    node->items.push_back(Expression());
  }
  ExpectOperator("}");
  return node;
}

bool ExpressionParser::AtTupleEnd(string_view end_name) const {
  return now().kind == TokenKind::kVariableEnd || now().kind == TokenKind::kBlockEnd ||
         AtOperator(")") || (!end_name.empty() && AtName(end_name));
}

const Expr* ExpressionParser::Tuple(bool conditional, string_view end_name) {
  if (AtTupleEnd(end_name)) Unexpected();
  const Expr* first = Expression(conditional);
  if (!AtOperator(",")) return first;
  Expr* node = New(ExprKind::kTuple, {first});
  while (SkipOperator(",")) {
    if (AtTupleEnd(end_name)) break;
    node->items.push_back(Expression(conditional));
  }
  return node;
}

const Expr* ExpressionParser::Postfix(const Expr* node) {
  while (true) {
    if (AtOperator(".")) {
      node = Attribute(node);
    } else if (AtOperator("[")) {
      node = Subscript(node);
    } else if (AtOperator("(")) {
      node = Call(node);
    } else {
      return node;
    }
  }
}

const Expr* ExpressionParser::FiltersAndTests(const Expr* node) {
  while (true) {
    if (AtOperator("|")) {
      node = Filters(node);
    } else if (AtName("is")) {
      node = Test(node);
    } else if (AtOperator("(")) {
      node = Call(node);
    } else {
      return node;
    }
  }
}

const Expr* ExpressionParser::Filters(const Expr* over) {
  while (SkipOperator("|")) over = Filter(over);
  return over;
}

const Expr* ExpressionParser::Filter(const Expr* over) {
  Expr* node = New(ExprKind::kFilter, {over});
  std::string name(ExpectName());
  while (SkipOperator(".")) absl::StrAppend(&name, ".", ExpectName());
  node->name = Keep(std::move(name));
  if (AtOperator("(")) Arguments(node);
  return node;
}

const Expr* ExpressionParser::Test(const Expr* over) {
  Take();
  const bool negated = SkipName("not");
  Expr* node = New(ExprKind::kTest, {over});
  std::string name(ExpectName());
  while (SkipOperator(".")) absl::StrAppend(&name, ".", ExpectName());
  node->name = Keep(std::move(name));
  const bool literal = now().kind == TokenKind::kString || now().kind == TokenKind::kInteger ||
                       now().kind == TokenKind::kFloat || AtOperator("[") || AtOperator("{");
  if (AtOperator("(")) {
    Arguments(node);
  } else if (literal || (now().kind == TokenKind::kName && !AtName("else") && !AtName("or") &&
                         !AtName("and"))) {
    if (AtName("is")) Bad("tests cannot be chained with \"is\"");
    node->items.push_back(Postfix(Primary()));
  }
  return negated ? New(ExprKind::kNot, {node}) : node;
}

const Expr* ExpressionParser::Call(const Expr* callee) {
  Expr* node = New(ExprKind::kCall, {callee});
  Arguments(node);
  return node;
}

void ExpressionParser::Arguments(Expr* call) {
  ExpectOperator("(");
  bool first = true;
  const auto demand = [this](bool condition) {
    if (!condition) Bad("arguments in a wrong order");
  };
  while (!AtOperator(")")) {
    if (!first) ExpectOperator(",");
    if (AtOperator(")")) break;
    first = false;
    if (SkipOperator("*")) {
      demand(call->star == nullptr && call->star_star == nullptr);
      call->star = Expression();
    } else if (SkipOperator("**")) {
      demand(call->star_star == nullptr);
      call->star_star = Expression();
    } else if (now().kind == TokenKind::kName && next().kind == TokenKind::kOperator &&
               next().text == "=") {
      demand(call->star_star == nullptr);
      const string_view name = ExpectName();
      Take();
      call->named.push_back({name, Expression()});
    } else {
      demand(call->star == nullptr && call->star_star == nullptr && call->named.empty());
      call->items.push_back(Expression());
    }
  }
  ExpectOperator(")");
}

const Expr* ExpressionParser::Attribute(const Expr* object) {
  ExpectOperator(".");
  if (now().kind == TokenKind::kInteger) return New(ExprKind::kItem, {object, Number()});
  Expr* node = New(ExprKind::kAttribute, {object});
  node->name = ExpectName();
  return node;
}

// A part of a slice that may be left out.
const Expr* ExpressionParser::SliceEnd() {
  return AtOperator(":") || AtOperator("]") || AtOperator(",") ? nullptr : Expression();
}

const Expr* ExpressionParser::Subscript(const Expr* object) {
  ExpectOperator("[");
  if (AtOperator("]")) Unexpected();
  const Expr* begin = SliceEnd();
  Expr* node = nullptr;
  if (SkipOperator(":")) {
    const Expr* end = SliceEnd();
    const Expr* step = SkipOperator(":") ? SliceEnd() : nullptr;
    node = New(ExprKind::kSlice, {object, begin, end, step});
  } else if (begin == nullptr) {
    Unexpected();
  } else if (AtOperator(",")) {
    Expr* tuple = New(ExprKind::kTuple, {begin});
    while (SkipOperator(",") && !AtOperator("]")) tuple->items.push_back(Expression());
    node = New(ExprKind::kItem, {object, tuple});
  } else {
    node = New(ExprKind::kItem, {object, begin});
  }
  ExpectOperator("]");
  return node;
}

}  // namespace mainarch::text::jinja
