// SPDX-License-Identifier: MIT
//
// A template's text to its tree.
#ifndef MAINARCH_TEXT_JINJA_PARSER_H_
#define MAINARCH_TEXT_JINJA_PARSER_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/jinja/ast.h"

namespace mainarch::text::jinja {

// The largest template, in bytes, and how deep its expressions and blocks may stand in one another.
inline constexpr size_t kMaxSource = size_t{1} << 18;
inline constexpr int kMaxNesting = 100;

// BadModel for what is no template, Unsupported for a tag that this interpreter does not have
// (include, import, extends, block). Messages say "line N: ..".
StatusOr<std::shared_ptr<const Syntax>> Parse(absl::string_view source);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_PARSER_H_
