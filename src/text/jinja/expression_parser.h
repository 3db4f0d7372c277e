// SPDX-License-Identifier: MIT
//
// The part of the parser that reads expressions, and the tokens that both parts share. Errors are
// thrown as Failure and caught in Parse.
#ifndef MAINARCH_TEXT_JINJA_EXPRESSION_PARSER_H_
#define MAINARCH_TEXT_JINJA_EXPRESSION_PARSER_H_

#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace mainarch::text::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Syntax* syntax)
      : tokens_(std::move(tokens)), syntax_(syntax) {}

 protected:
  // One level of nesting for as long as it lives.
  class Level {
   public:
    explicit Level(ExpressionParser* parser);
    ~Level() { --parser_->nesting_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser* parser_;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool AtName(absl::string_view name) const;
  bool AtOperator(absl::string_view text) const;
  bool SkipName(absl::string_view name);
  bool SkipOperator(absl::string_view text);
  void ExpectOperator(absl::string_view text);
  void Expect(TokenKind kind, absl::string_view what);
  absl::string_view ExpectName();
  absl::string_view Keep(std::string text);
  template <class... Parts>
  [[noreturn]] void Bad(const Parts&... parts) const {
    throw Failure{Error(Code::kBadModel, "line ", now().line, ": ", parts...)};
  }
  [[noreturn]] void Unexpected() const;

  Expr* New(ExprKind kind, std::vector<const Expr*> items = {});

  // `conditional`: "a if b else c" is taken.
  const Expr* Expression(bool conditional = true);
  // One expression, or several with commas between them: a tuple.
  const Expr* Tuple(bool conditional = true, absl::string_view end_name = "");
  // "| filter | filter .." over what is given, null over a block.
  const Expr* Filters(const Expr* over);
  // The filter that stands here, without its "|".
  const Expr* Filter(const Expr* over);
  bool AtTupleEnd(absl::string_view end_name) const;

  Syntax* syntax() const { return syntax_; }
  // The macros that the parser is in.
  std::vector<Macro*> macros_;

 private:
  const Expr* Conditional();
  const Expr* Logic(int level);
  const Expr* Compare();
  const Expr* Arithmetic(int level);
  const Expr* Unary(bool with_filters);
  const Expr* Primary();
  const Expr* Name();
  const Expr* Number();
  const Expr* List();
  const Expr* Dict();
  const Expr* Postfix(const Expr* node);
  const Expr* FiltersAndTests(const Expr* node);
  const Expr* Test(const Expr* over);
  const Expr* Call(const Expr* callee);
  const Expr* Attribute(const Expr* object);
  const Expr* Subscript(const Expr* object);
  const Expr* SliceEnd();
  void Arguments(Expr* call);
  const Expr* Constant(const Value& value);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  Syntax* syntax_;
};

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_EXPRESSION_PARSER_H_
