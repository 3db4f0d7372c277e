// SPDX-License-Identifier: MIT
#include "text/jinja/json_value.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "base/hash_map.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;
using simdjson::dom::element_type;

string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

// Recursion is bounded by the depth that the parser takes.
Value FromJson(Heap* heap, simdjson::dom::object object, string_view where) {
  Table* table = heap->New(Table{});
  HashSet<string_view> seen;
  for (const auto field : object) {
    const Value key = heap->Text(View(field.key));
    if (!seen.insert(key.view()).second) {
      Fail(where, ": key \"", absl::Utf8SafeCHexEscape(key.view().substr(0, 64)),
           "\" stands twice");
    }
    table->Append(heap, key, FromJson(heap, field.value, where));
  }
  return Of(Kind::kDict, table);
}

Value FromJson(Heap* heap, simdjson::dom::element element, string_view where) {
  heap->Step();
  switch (element.type()) {
    case element_type::NULL_VALUE:
      return None();
    case element_type::BOOL:
      return Value(element.get_bool().value_unsafe());
    case element_type::INT64:
      return Value(element.get_int64().value_unsafe());
    case element_type::UINT64:
      Fail(where, ": the integer ", element.get_uint64().value_unsafe(), " is more than ",
           INT64_MAX);
    case element_type::DOUBLE:
      return Value(element.get_double().value_unsafe());
    case element_type::STRING:
      return heap->Text(View(element.get_string().value_unsafe()));
    case element_type::ARRAY: {
      std::vector<Value> items;
      simdjson::dom::array array;
      if (element.get(array)) return None();
      for (const auto item : array) {
        items.push_back(FromJson(heap, item, where));
      }
      return heap->Items(Kind::kList, items);
    }
    case element_type::OBJECT: {
      simdjson::dom::object object;
      if (element.get(object)) return None();
      return FromJson(heap, object, where);
    }
  }
  return None();
}

}  // namespace mainarch::text::jinja
