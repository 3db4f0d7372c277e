// SPDX-License-Identifier: MIT
//
// Python's operators on a template's values. What Python refuses with a TypeError, ValueError or
// OverflowError ends the rendering.
#ifndef MAINARCH_TEXT_JINJA_OPERATORS_H_
#define MAINARCH_TEXT_JINJA_OPERATORS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "text/jinja/value.h"

namespace mainarch::text::jinja {

// How deep lists and dicts in one another are compared and written.
inline constexpr int kMaxValueDepth = 200;

bool Truth(const Value& value);
bool Equal(Heap* heap, const Value& a, const Value& b, int depth = 0);
bool Less(Heap* heap, const Value& a, const Value& b, int depth = 0);
bool In(Heap* heap, const Value& item, const Value& container);
// "==", "<", "not in", ..
bool Compare(Heap* heap, absl::string_view operation, const Value& a, const Value& b);
// + - * / // % **
Value Arithmetic(Heap* heap, absl::string_view operation, const Value& a, const Value& b);
Value Add(Heap* heap, const Value& a, const Value& b);
Value Negative(const Value& value);

// What a loop over the value goes through: the keys of a dict, the characters of a string. A
// generator is used up by it.
absl::Span<const Value> Iterate(Heap* heap, const Value& value);
bool Iterable(const Value& value);
// len(); ends the rendering for what has none.
int64_t LengthOf(const Value& value);

// object[key] and object.name, each of which falls back on the other, as in Jinja's sandbox.
Value Item(Heap* heap, const Value& object, const Value& key);
Value Attribute(Heap* heap, const Value& object, absl::string_view name);
// object[begin:end:step]; each part may be none.
Value Slice(Heap* heap, const Value& object, const Value& begin, const Value& end,
            const Value& step);

// Whether it may be a key of a dict.
bool Hashable(const Value& value);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_OPERATORS_H_
