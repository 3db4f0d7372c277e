// SPDX-License-Identifier: MIT
//
// Going through values and into them: iteration, items, attributes, slices.
#include <algorithm>

#include "absl/strings/match.h"
#include "text/jinja/builtin.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

Value Part(const Value& text, size_t begin, size_t size) {
  Value part(text.view().substr(begin, size));
  part.flag = text.flag;
  return part;
}

absl::Span<const Value> Characters(Heap* heap, const Value& text) {
  heap->Step(1 + text.size / 8);
  const size_t count = Length(text.view());
  Value* out = heap->Array<Value>(count);
  size_t at = 0;
  for (size_t i = 0, n = 0; i < count; ++i, at += n) {
    DecodeValid(text.text + at, &n);
    out[i] = Value(text.view().substr(at, n));
  }
  return {out, count};
}

bool Indexable(const Value& value) {
  return value.Is(Kind::kList) || value.Is(Kind::kTuple) || value.Is(Kind::kRange);
}

// object[key] alone; kMissing where Python raises TypeError or LookupError.
Value Subscript(Heap* heap, const Value& object, const Value& key) {
  if (object.undefined()) FailUndefined(object);
  if (object.Is(Kind::kDict) && Hashable(key)) {
    const Value* found = object.table->Find(heap, key);
    return found == nullptr ? Value() : *found;
  }
  if (!key.integral() || (!object.string() && !Indexable(object))) return Value();
  const int64_t size = LengthOf(object);
  const int64_t index = key.whole() < 0 ? key.whole() + size : key.whole();
  if (index < 0 || index >= size) return Value();
  if (!object.string()) return object.sequence->items[index];
  heap->Step(1 + object.size / 64);
  const size_t at = Offset(object.view(), static_cast<size_t>(index));
  size_t n = 0;
  DecodeValid(object.text + at, &n);
  return Part(object, at, n);
}

Value LoopAttribute(const Loop& loop, string_view name) {
  const int64_t size = static_cast<int64_t>(loop.items.size()), index = loop.index;
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(int64_t{1});  // no loop is recursive
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem") {
    return index == 0 ? Undefined("there is no previous item", Kind::kUndefined)
                      : loop.items[loop.index - 1];
  }
  if (name == "nextitem") {
    return index + 1 == size ? Undefined("there is no next item", Kind::kUndefined)
                             : loop.items[loop.index + 1];
  }
  return Value();
}

// object.name alone; kMissing where Python raises AttributeError.
Value Member(Heap* heap, const Value& object, string_view name) {
  if (object.undefined()) FailUndefined(object);
  // What every Python object has, and no template may see.
  if (absl::StartsWith(name, "__") && absl::EndsWith(name, "__")) {
    return Undefined(name, object.kind, true);
  }
  if (object.Is(Kind::kNamespace)) {
    const Value* found = object.table->Find(heap, name);
    return found == nullptr ? Value() : *found;
  }
  if (object.Is(Kind::kLoop)) {
    const Value value = LoopAttribute(*object.loop, name);
    if (!value.missing()) return value;
  }
  if (object.Is(Kind::kCycler) && name == "current") {
    return object.cycler->items[object.cycler->at];
  }
  if (object.Is(Kind::kTuple) && object.sequence->grouped &&
      (name == "grouper" || name == "list")) {
    return object.sequence->items[name == "grouper" ? 0 : 1];
  }
  const Builtin* method = FindMethod(object.kind, name);
  if (method == nullptr) return Value();
  if (method->changes) return Undefined(name, object.kind, true);
  return Of(Kind::kFunction, const_cast<const Function*>(heap->New(Function{method, object})));
}

// A part of a slice, clamped as Python does.
int64_t SliceIndex(const Value& part, int64_t otherwise, int64_t size, int64_t least,
                   int64_t most) {
  if (part.none()) return otherwise;
  return std::clamp(part.whole() < 0 ? part.whole() + size : part.whole(), least, most);
}

}  // namespace

bool Iterable(const Value& value) {
  return value.undefined() || value.string() || value.sequential() || value.Is(Kind::kDict) ||
         value.Is(Kind::kLoop);
}

absl::Span<const Value> Iterate(Heap* heap, const Value& value) {
  heap->Step(1 + (value.sequential() ? value.sequence->size / 2 : 0));
  if (value.undefined()) return {};
  if (value.string()) return Characters(heap, value);
  if (value.Is(Kind::kDict)) {
    Value* keys = heap->Array<Value>(value.table->size);
    for (uint32_t i = 0; i < value.table->size; ++i) keys[i] = value.table->entries[i].key;
    return {keys, value.table->size};
  }
  if (!value.sequential()) Fail("'", TypeName(value), "' object is not iterable");
  if (value.Is(Kind::kGenerator)) {
    if (value.sequence->used_up) return {};
    value.sequence->used_up = true;
  }
  return value.sequence->span();
}

int64_t LengthOf(const Value& value) {
  if (value.undefined()) return 0;
  if (value.string()) return static_cast<int64_t>(Length(value.view()));
  if (value.Is(Kind::kDict)) return value.table->size;
  if (value.Is(Kind::kLoop)) return static_cast<int64_t>(value.loop->items.size());
  if (!value.sequential() || value.Is(Kind::kGenerator)) {
    Fail("object of type '", TypeName(value), "' has no length");
  }
  return value.sequence->size;
}

Value Item(Heap* heap, const Value& object, const Value& key) {
  heap->Step();
  Value value = Subscript(heap, object, key);
  if (value.missing() && key.string()) value = Member(heap, object, key.view());
  if (!value.missing()) return value;
  if (key.string()) return Undefined(key.view(), object.kind);
  Builder name(heap);
  AddRepr(&name, key);
  return Undefined(name.Done().view(), object.kind);
}

Value Attribute(Heap* heap, const Value& object, string_view name) {
  heap->Step();
  Value value = Member(heap, object, name);
  if (value.missing() && object.Is(Kind::kDict)) {
    value = Subscript(heap, object, Value(name));
  }
  return value.missing() ? Undefined(name, object.kind) : value;
}

Value Slice(Heap* heap, const Value& object, const Value& begin, const Value& end,
            const Value& step) {
  if (object.undefined()) FailUndefined(object);
  const auto whole = [](const Value& part) { return part.none() || part.integral(); };
  if (!object.string() && !Indexable(object)) {
    Fail("'", TypeName(object), "' object cannot be cut into slices");
  }
  if (!whole(begin) || !whole(end) || !whole(step)) {
    Fail("slice indices must be integers or None");
  }
  const int64_t by = step.none() ? 1 : step.whole();
  if (by == 0) Fail("slice step cannot be zero");
  const int64_t size = LengthOf(object);
  const int64_t least = by > 0 ? 0 : -1, most = by > 0 ? size : size - 1;
  const int64_t from = SliceIndex(begin, by > 0 ? 0 : size - 1, size, least, most);
  const int64_t to = SliceIndex(end, by > 0 ? size : -1, size, least, most);
  if (object.string() && by == 1) {
    heap->Step(1 + object.size / 32);
    const size_t first = Offset(object.view(), static_cast<size_t>(from));
    const size_t count = from < to ? static_cast<size_t>(to - from) : 0;
    return Part(object, first, Offset(object.view().substr(first), count));
  }
  const absl::Span<const Value> items =
      object.string() ? Characters(heap, object) : object.sequence->span();
  std::vector<Value> chosen;
  for (int64_t i = from; by > 0 ? i < to : i > to;) {
    chosen.push_back(items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (!object.string()) return heap->Items(object.kind, chosen);
  Builder text(heap);
  for (const Value& character : chosen) text.Add(character.view());
  Value value = text.Done();
  value.flag = object.flag;
  return value;
}

}  // namespace mainarch::text::jinja
