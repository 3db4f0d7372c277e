// SPDX-License-Identifier: MIT
#include "text/jinja/parser.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "text/jinja/expression_parser.h"
#include "text/utf8.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;
using Names = std::vector<string_view>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  void Run() {
    syntax()->body = Statements({});
    if (now().kind != TokenKind::kEnd) Unexpected();
  }

 private:
  Stmt* NewStmt(StmtKind kind) {
    Stmt& node = syntax()->stmts.emplace_back();
    node.kind = kind;
    node.line = now().line;
    return &node;
  }

  bool AtAny(const Names& names) const {
    return std::any_of(names.begin(), names.end(), [this](string_view n) { return AtName(n); });
  }

  // Statements up to a tag that begins with one of `ends`, whose name is then the current token.
  Body Statements(const Names& ends) {
    const Level level(this);
    Body body;
    Stmt* output = nullptr;  // gathers what is written one behind the other
    const auto write = [&](const Expr* value) {
      if (output == nullptr) body.push_back(output = NewStmt(StmtKind::kOutput));
      output->values.push_back(value);
    };
    while (now().kind != TokenKind::kEnd) {
      if (now().kind == TokenKind::kData) {
        Expr* data = New(ExprKind::kConstant);
        data->constant = Value(Keep(Take().text));
        write(data);
      } else if (now().kind == TokenKind::kVariableBegin) {
        Take();
        write(Tuple());
        Expect(TokenKind::kVariableEnd, "}}");
      } else {
        Expect(TokenKind::kBlockBegin, "a tag");
        if (AtAny(ends)) return body;
        output = nullptr;
        body.push_back(Statement());
        Expect(TokenKind::kBlockEnd, "%}");
      }
    }
    if (!ends.empty()) Bad("the template ends without {% ", ends.back(), " %}");
    return body;
  }

  // What stands between two tags of a statement; the name of the second is left to be taken.
  Body Block(const Names& ends) {
    SkipOperator(":");
    Expect(TokenKind::kBlockEnd, "%}");
    return Statements(ends);
  }
  Body BlockTo(string_view end) {
    Body body = Block({end});
    Take();
    return body;
  }

  const Stmt* Statement() {
    if (now().kind != TokenKind::kName) Unexpected();
    const std::string tag = now().text;
    if (tag == "for") return For();
    if (tag == "if") return If();
    if (tag == "set") return Set();
    if (tag == "macro") return MacroStatement();
    if (tag == "call") return Call();
    if (tag == "filter") return FilterBlock();
    if (tag == "with") return With();
    if (tag == "print") return Print();
    if (tag == "generation") return Generation();
    if (tag == "break" || tag == "continue") return Jump(tag == "break");
    for (const string_view known :
         {"include", "import", "from", "extends", "block", "autoescape", "do", "trans"}) {
      if (tag == known) {
        throw Failure{Error(Code::kUnsupported, "line ", now().line, ": {% ", tag,
                            " %} is not supported in chat templates")};
      }
    }
    Bad("unknown tag \"", absl::Utf8SafeCHexEscape(tag.substr(0, 64)), "\"");
  }

  Target NameTarget(bool attributes) {
    Target target;
    target.name = ExpectName();
    for (const string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (target.name == reserved) Bad("cannot assign to ", reserved);
    }
    if (attributes && SkipOperator(".")) target.attribute = ExpectName();
    return target;
  }

  Target OneTarget(bool attributes) {
    if (!SkipOperator("(")) return NameTarget(attributes);
    Target target = TargetOf(false, "");
    ExpectOperator(")");
    return target;
  }

  // A variable, an attribute of a namespace, or a tuple of such.
  Target TargetOf(bool attributes, string_view end_name) {
    const Level level(this);
    Target first = OneTarget(attributes);
    if (!AtOperator(",")) return first;
    Target tuple;
    tuple.tuple = true;
    tuple.items.push_back(std::move(first));
    while (SkipOperator(",")) {
      if (AtTupleEnd(end_name) || AtOperator("=")) break;
      tuple.items.push_back(OneTarget(attributes));
    }
    return tuple;
  }

  const Stmt* For() {
    Stmt* node = NewStmt(StmtKind::kFor);
    Take();
    node->targets.push_back(TargetOf(false, "in"));
    if (!SkipName("in")) Unexpected();
    node->values.push_back(Tuple(false, "recursive"));
    node->values.push_back(SkipName("if") ? Expression() : nullptr);
    if (AtName("recursive")) {
      throw Failure{Error(Code::kUnsupported, "line ", now().line,
                          ": recursive loops are not supported in chat templates")};
    }
    ++loops_;
    node->bodies.push_back(Block({"else", "endfor"}));
    --loops_;
    if (Take().text == "else") {
      node->bodies.push_back(BlockTo("endfor"));
    } else {
      node->bodies.emplace_back();
    }
    return node;
  }

  const Stmt* If() {
    Stmt* node = NewStmt(StmtKind::kIf);
    while (true) {
      Take();
      node->values.push_back(Tuple(false));
      node->bodies.push_back(Block({"elif", "else", "endif"}));
      if (AtName("elif")) continue;
      if (Take().text == "else") node->bodies.push_back(BlockTo("endif"));
      return node;
    }
  }

  const Stmt* Set() {
    Stmt* node = NewStmt(StmtKind::kSet);
    Take();
    node->targets.push_back(TargetOf(true, ""));
    if (SkipOperator("=")) {
      node->values.push_back(Tuple());
      return node;
    }
    node->kind = StmtKind::kSetBlock;
    node->values.push_back(Filters(nullptr));
    node->bodies.push_back(BlockTo("endset"));
    return node;
  }

  void Signature(Macro* macro) {
    ExpectOperator("(");
    while (!AtOperator(")")) {
      if (!macro->parameters.empty()) ExpectOperator(",");
      macro->parameters.push_back(NameTarget(false).name);
      if (SkipOperator("=")) {
        macro->defaults.push_back(Expression());
      } else if (!macro->defaults.empty()) {
        Bad("a parameter without a default behind one that has one");
      }
    }
    ExpectOperator(")");
  }

  // The body of a macro, in which no loop around it can be left.
  void MacroBody(Macro* macro, string_view end) {
    const int loops = loops_;
    loops_ = 0;
    macros_.push_back(macro);
    macro->body = BlockTo(end);
    macros_.pop_back();
    loops_ = loops;
  }

  const Stmt* MacroStatement() {
    Stmt* node = NewStmt(StmtKind::kMacro);
    Macro* macro = &syntax()->macros.emplace_back();
    node->macro = macro;
    Take();
    macro->name = NameTarget(false).name;
    Signature(macro);
    MacroBody(macro, "endmacro");
    return node;
  }

  const Stmt* Call() {
    Stmt* node = NewStmt(StmtKind::kCallBlock);
    Macro* macro = &syntax()->macros.emplace_back();
    node->macro = macro;
    macro->name = "caller";
    Take();
    if (AtOperator("(")) Signature(macro);
    node->values.push_back(Expression());
    if (node->values[0]->kind != ExprKind::kCall) Bad("expected a call");
    MacroBody(macro, "endcall");
    return node;
  }

  const Stmt* FilterBlock() {
    Stmt* node = NewStmt(StmtKind::kFilterBlock);
    Take();
    node->values.push_back(Filters(Filter(nullptr)));
    node->bodies.push_back(BlockTo("endfilter"));
    return node;
  }

  const Stmt* With() {
    Stmt* node = NewStmt(StmtKind::kWith);
    Take();
    while (now().kind != TokenKind::kBlockEnd) {
      if (!node->targets.empty()) ExpectOperator(",");
      node->targets.push_back(OneTarget(false));
      ExpectOperator("=");
      node->values.push_back(Expression());
    }
    node->bodies.push_back(BlockTo("endwith"));
    return node;
  }

  const Stmt* Print() {
    Stmt* node = NewStmt(StmtKind::kOutput);
    Take();
    while (now().kind != TokenKind::kBlockEnd) {
      if (!node->values.empty()) ExpectOperator(",");
      node->values.push_back(Expression());
    }
    return node;
  }

  // Marks what the assistant wrote, for training; here it is its text.
  const Stmt* Generation() {
    Stmt* node = NewStmt(StmtKind::kScope);
    Take();
    const int loops = loops_;
    loops_ = 0;
    node->bodies.push_back(BlockTo("endgeneration"));
    loops_ = loops;
    return node;
  }

  const Stmt* Jump(bool leaves) {
    if (loops_ == 0) Bad(now().text, " outside of a loop");
    Stmt* node = NewStmt(leaves ? StmtKind::kBreak : StmtKind::kContinue);
    Take();
    return node;
  }

  int loops_ = 0;  // around the current statement
};

}  // namespace

StatusOr<std::shared_ptr<const Syntax>> Parse(string_view source) {
  if (source.size() > kMaxSource) {
    return Error(Code::kBadModel, "has ", source.size(), " bytes, more than the limit of ",
                 kMaxSource);
  }
  if (!IsValidUtf8(source)) return Error(Code::kBadModel, "is not UTF-8");
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  auto syntax = std::make_shared<Syntax>();
  try {
    Parser(std::move(tokens), syntax.get()).Run();
  } catch (const Failure& failure) {
    return failure.status;
  }
  std::sort(syntax->reads.begin(), syntax->reads.end());
  syntax->reads.erase(std::unique(syntax->reads.begin(), syntax->reads.end()), syntax->reads.end());
  return std::shared_ptr<const Syntax>(std::move(syntax));
}

}  // namespace mainarch::text::jinja
