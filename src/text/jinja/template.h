// SPDX-License-Identifier: MIT
//
// A Jinja template as chat templates are written, rendered as transformers renders it: Jinja's
// immutable sandbox with trim_blocks, lstrip_blocks, break and continue, {% generation %}, and
// transformers' own tojson, raise_exception, strftime_now. It sees what it is given and the time,
// and nothing else; steps, memory and depth are bounded (Limits in value.h).
//
// What it does not have is refused by name: include, import, extends, block, recursive loops, a few
// filters and methods, integers beyond 64 bits.
//
// A Template is immutable; any number of threads may render it at once, each with its own Heap.
#ifndef MAINARCH_TEXT_JINJA_TEMPLATE_H_
#define MAINARCH_TEXT_JINJA_TEMPLATE_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/jinja/value.h"

namespace mainarch::text::jinja {

struct Syntax;

class Template {
 public:
  // BadModel for what is no template, Unsupported for what is not known here; "line N: ..".
  static StatusOr<Template> Parse(absl::string_view source);

  // InvalidArgument with the template's own words when it calls raise_exception, and "line N: .."
  // when it does with the variables what Python would refuse, or needs more than the heap's limits.
  StatusOr<std::string> Render(Heap* heap, const Table& variables) const;

  // Whether the template reads a variable of this name anywhere.
  bool Reads(absl::string_view variable) const;

 private:
  explicit Template(std::shared_ptr<const Syntax> syntax) : syntax_(std::move(syntax)) {}

  std::shared_ptr<const Syntax> syntax_;
};

// What `build` returns, a StatusOr, or why the heap had no room for it.
template <class Build>
auto WithinLimits(Build build) -> decltype(build()) {
  try {
    return build();
  } catch (const Failure& failure) {
    return failure.status;
  }
}

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_TEMPLATE_H_
