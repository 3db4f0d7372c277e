// SPDX-License-Identifier: MIT
#include "text/jinja/template.h"

#include <algorithm>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace mainarch::text::jinja {

StatusOr<Template> Template::Parse(absl::string_view source) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Syntax> syntax, jinja::Parse(source));
  return Template(std::move(syntax));
}

StatusOr<std::string> Template::Render(Heap* heap, const Table& variables) const {
  Interpreter interpreter(heap);
  try {
    Builder out(heap);
    interpreter.Run(*syntax_, variables, &out);
    return out.Take();
  } catch (const Failure& failure) {
    if (failure.raised) return failure.status;
    return WithContext(failure.status, absl::StrCat("line ", interpreter.line()));
  }
}

bool Template::Reads(absl::string_view variable) const {
  return std::binary_search(syntax_->reads.begin(), syntax_->reads.end(), variable);
}

}  // namespace mainarch::text::jinja
