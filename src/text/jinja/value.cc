// SPDX-License-Identifier: MIT
#include "text/jinja/value.h"

#include <algorithm>

#include "text/jinja/operators.h"
#include "text/utf8.h"

namespace mainarch::text::jinja {

namespace {
constexpr size_t kChunk = size_t{64} << 10;
}  // namespace

void Heap::Full() const {
  throw Failure{Error(Code::kInvalidArgument, "needs more than the limit of ", limits_.bytes,
                      " bytes of values and text")};
}

void Heap::Exhausted() const {
  throw Failure{
      Error(Code::kInvalidArgument, "needs more than the limit of ", limits_.steps, " steps")};
}

void* Heap::Allocate(size_t bytes) {
  bytes = (bytes + 7) & ~size_t{7};
  Charge(bytes);
  if (bytes > left_) {
    const size_t size = std::max(bytes, kChunk);
    chunks_.push_back(std::make_unique_for_overwrite<char[]>(size));
    // What is left of the last chunk is lost only if this one has more room.
    if (size == bytes && left_ > 0) return chunks_.back().get();
    free_ = chunks_.back().get();
    left_ = size;
  }
  char* at = free_;
  free_ += bytes;
  left_ -= bytes;
  return at;
}

Value Heap::Text(absl::string_view text) {
  if (text.empty()) return Value(absl::string_view("", 0));
  char* copy = Array<char>(text.size());
  std::memcpy(copy, text.data(), text.size());
  return Value(absl::string_view(copy, text.size()));
}

Value Heap::Items(Kind kind, absl::Span<const Value> items) {
  Step(1 + items.size() / 16);
  Value* copy = Array<Value>(items.size());
  std::copy(items.begin(), items.end(), copy);
  return Of(kind, New(Sequence{copy, static_cast<uint32_t>(items.size())}));
}

Builder& Builder::Fill(absl::string_view text, int64_t times) {
  if (times <= 0 || text.empty()) return *this;
  // Refused before the loop, not somewhere in it.
  if (static_cast<uint64_t>(times) > heap_->limits().bytes / text.size()) heap_->Charge(SIZE_MAX);
  for (int64_t i = 0; i < times; ++i) Add(text);
  return *this;
}

Builder& Builder::AddPoint(uint32_t point) {
  std::string bytes;
  AppendUtf8(point, &bytes);
  return Add(bytes);
}

const Value* Table::Find(Heap* heap, absl::string_view key) const {
  heap->Step(1 + size / 16);
  for (const Entry& entry : span()) {
    if (entry.key.string() && entry.key.view() == key) return &entry.value;
  }
  return nullptr;
}

const Value* Table::Find(Heap* heap, const Value& key) const {
  if (key.string()) return Find(heap, key.view());
  heap->Step(1 + size / 4);
  for (const Entry& entry : span()) {
    if (!entry.key.string() && Equal(heap, entry.key, key)) return &entry.value;
  }
  return nullptr;
}

void Table::Set(Heap* heap, const Value& key, const Value& value) {
  const Value* found = Find(heap, key);
  if (found != nullptr) {
    *const_cast<Value*>(found) = value;
  } else {
    Append(heap, key, value);
  }
}

void Table::Append(Heap* heap, const Value& key, const Value& value) {
  if (size == capacity) {
    capacity = std::max<uint32_t>(4, capacity * 2);
    Entry* grown = heap->Array<Entry>(capacity);
    std::copy(entries, entries + size, grown);
    entries = grown;
  }
  entries[size++] = Entry{key, value};
}

absl::string_view TypeName(Kind kind) {
  switch (kind) {
    case Kind::kMissing:
      return "missing";
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kRange:
      return "range";
    case Kind::kKeys:
      return "dict_keys";
    case Kind::kValues:
      return "dict_values";
    case Kind::kItems:
      return "dict_items";
    case Kind::kGenerator:
      return "generator";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "builtin_function_or_method";
  }
  return "object";
}

void FailUndefined(const Value& undefined) {
  const absl::string_view name = undefined.view().substr(0, 200);
  if (undefined.flag) {
    Fail("access to attribute '", name, "' of '", TypeName(undefined.owner), "' object is unsafe");
  }
  if (undefined.owner == Kind::kMissing) Fail("'", name, "' is undefined");
  if (undefined.owner == Kind::kUndefined) Fail(name);  // a sentence of its own
  if (undefined.owner == Kind::kNone) Fail("'None' has no attribute '", name, "'");
  Fail("'", TypeName(undefined.owner), " object' has no attribute '", name, "'");
}

}  // namespace mainarch::text::jinja
