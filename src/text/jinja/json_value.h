// SPDX-License-Identifier: MIT
//
// JSON to a template's values.
#ifndef MAINARCH_TEXT_JINJA_JSON_VALUE_H_
#define MAINARCH_TEXT_JINJA_JSON_VALUE_H_

#include <simdjson.h>

#include "text/jinja/value.h"

namespace mainarch::text::jinja {

// Copies everything. Throws Failure: a key that stands twice in an object, an integer beyond 64
// bits (with which no template can compute here), no room in the heap. `where` names the value in
// messages.
Value FromJson(Heap* heap, simdjson::dom::element element, absl::string_view where);
Value FromJson(Heap* heap, simdjson::dom::object object, absl::string_view where);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_JSON_VALUE_H_
