// SPDX-License-Identifier: MIT
//
// What a template can call: filters, tests, functions and methods, each a line of a table with the
// names of its parameters, so that binding arguments, and what is said of wrong ones, is in one
// place.
#ifndef MAINARCH_TEXT_JINJA_BUILTIN_H_
#define MAINARCH_TEXT_JINJA_BUILTIN_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "text/jinja/value.h"

namespace mainarch::text::jinja {

struct Arguments {
  absl::Span<const Value> positional;
  absl::Span<const Entry> named;  // keys are strings
};

inline constexpr int kMaxParameters = 6;

struct Call {
  Heap* heap;
  Value self;                // what is filtered, tested, or the method's object
  Value at[kMaxParameters];  // by parameter; kMissing where nothing was given
  Arguments raw;             // as they were written
};

struct Builtin {
  absl::string_view name;
  // Null: Python has it and this interpreter does not.
  Value (*call)(const Call& call);
  // "old,new,count"; "*" takes any, from `raw`.
  absl::string_view parameters = "";
  int required = 0;
  // It would change its object, which the sandbox forbids.
  bool changes = false;
};

// Null when there is none of this name.
const Builtin* FindFilter(absl::string_view name);
const Builtin* FindTest(absl::string_view name);
const Builtin* FindMethod(Kind kind, absl::string_view name);
// range, namespace, raise_exception, ..
absl::Span<const Builtin> Functions();

Value Invoke(Heap* heap, const Builtin& builtin, const Value& self, const Arguments& arguments);

// The parts of the filters' and tests' tables.
absl::Span<const Builtin> TextFilters();
absl::Span<const Builtin> ListFilters();
absl::Span<const Builtin> StringMethods();

// For functions of the tables: an argument as a type, or `otherwise` when it was not given. What
// Python would refuse ends the rendering.
int64_t IntArgument(const Call& call, int index, int64_t otherwise);
bool BoolArgument(const Call& call, int index, bool otherwise);
absl::string_view TextArgument(const Call& call, int index, absl::string_view otherwise);
// Not given, or none.
bool Absent(const Call& call, int index);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_BUILTIN_H_
