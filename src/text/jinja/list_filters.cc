// SPDX-License-Identifier: MIT
//
// Filters of what can be gone through.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "text/jinja/builtin.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"
#include "text/jinja/unicode.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;
using Values = std::vector<Value>;

absl::Span<const Value> Each(const Call& call) { return Iterate(call.heap, call.self); }

// "a.b.0": an item of an item. `fallback` replaces what is undefined on the way, unless it is
// missing.
Value Path(Heap* heap, Value item, const Value& path, const Value& fallback = Value()) {
  if (path.missing() || path.none()) return item;
  if (!path.string()) return Item(heap, item, path);
  for (const string_view part : absl::StrSplit(path.view(), '.')) {
    int64_t index = 0;
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == string_view::npos;
    item = digits && ParseInteger(part, 10, &index) ? Item(heap, item, Value(index))
                                                    : Item(heap, item, heap->Text(part));
    if (item.undefined() && !fallback.missing() && !fallback.none()) item = fallback;
  }
  return item;
}

Value IgnoreCase(Heap* heap, const Value& value) {
  return value.string() ? heap->Text(Lower(value.view())) : value;
}

Value Keyed(const Call& call, const Value& item, const Value& path, bool case_sensitive) {
  const Value key = Path(call.heap, item, path);
  return case_sensitive ? key : IgnoreCase(call.heap, key);
}

// Sorts `items` by keys that belong to them; equal ones keep their order.
void SortBy(Heap* heap, const Values& keys, bool reverse, Values* items) {
  std::vector<size_t> order(items->size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? Less(heap, keys[b], keys[a]) : Less(heap, keys[a], keys[b]);
  });
  Values sorted;
  for (const size_t at : order) sorted.push_back((*items)[at]);
  *items = std::move(sorted);
}

Value SortFilter(const Call& call) {
  const absl::Span<const Value> each = Each(call);
  Values items(each.begin(), each.end()), keys;
  const bool case_sensitive = BoolArgument(call, 1, false);
  for (const Value& item : items) {
    Values parts;  // "a,b": by a, then by b
    if (call.at[2].string()) {
      for (const string_view path : absl::StrSplit(call.at[2].view(), ',')) {
        parts.push_back(Keyed(call, item, call.heap->Text(path), case_sensitive));
      }
    } else {
      parts.push_back(Keyed(call, item, call.at[2], case_sensitive));
    }
    keys.push_back(call.heap->Items(Kind::kList, parts));
  }
  SortBy(call.heap, keys, BoolArgument(call, 0, false), &items);
  return call.heap->Items(Kind::kList, items);
}

Value DictSortFilter(const Call& call) {
  if (!call.self.Is(Kind::kDict)) {
    if (call.self.undefined()) FailUndefined(call.self);
    Fail("dictsort: expected a dict, not '", TypeName(call.self), "'");
  }
  const string_view by = TextArgument(call, 1, "key");
  if (by != "key" && by != "value") Fail("dictsort: sorts by \"key\" or \"value\"");
  Values items, keys;
  for (const Entry& entry : call.self.table->span()) {
    const Value pair[] = {entry.key, entry.value};
    items.push_back(call.heap->Items(Kind::kTuple, pair));
    keys.push_back(
        Keyed(call, by == "key" ? entry.key : entry.value, Value(), BoolArgument(call, 0, false)));
  }
  SortBy(call.heap, keys, BoolArgument(call, 2, false), &items);
  return call.heap->Items(Kind::kList, items);
}

Value UniqueFilter(const Call& call) {
  Values kept, seen;
  for (const Value& item : Each(call)) {
    const Value key = Keyed(call, item, call.at[1], BoolArgument(call, 0, false));
    if (!Hashable(key)) Fail("unhashable type: '", TypeName(key), "'");
    const bool known = std::any_of(
        seen.begin(), seen.end(), [&](const Value& other) { return Equal(call.heap, key, other); });
    if (known) continue;
    seen.push_back(key);
    kept.push_back(item);
  }
  return call.heap->Items(Kind::kGenerator, kept);
}

Value GroupByFilter(const Call& call) {
  const bool case_sensitive = BoolArgument(call, 2, false);
  const absl::Span<const Value> each = Each(call);
  Values items(each.begin(), each.end()), keys;
  const auto key_of = [&](const Value& item) {
    const Value key = Path(call.heap, item, call.at[0], call.at[1]);
    return case_sensitive ? key : IgnoreCase(call.heap, key);
  };
  for (const Value& item : items) keys.push_back(key_of(item));
  SortBy(call.heap, keys, false, &items);
  Values groups;
  for (size_t i = 0; i < items.size();) {
    Values members;
    const Value key = key_of(items[i]);
    const Value shown = Path(call.heap, items[i], call.at[0], call.at[1]);
    while (i < items.size() && Equal(call.heap, key_of(items[i]), key))
      members.push_back(items[i++]);
    const Value pair[] = {shown, call.heap->Items(Kind::kList, members)};
    groups.push_back(call.heap->Items(Kind::kTuple, pair));
    groups.back().sequence->grouped = true;
  }
  return call.heap->Items(Kind::kList, groups);
}

Value Extreme(const Call& call, bool largest) {
  const absl::Span<const Value> items = Each(call);
  if (items.empty()) return Undefined("No aggregated item, sequence was empty.", Kind::kUndefined);
  const bool case_sensitive = BoolArgument(call, 0, false);
  Value best = items[0], best_key = Keyed(call, best, call.at[1], case_sensitive);
  for (const Value& item : items.subspan(1)) {
    const Value key = Keyed(call, item, call.at[1], case_sensitive);
    if (largest ? Less(call.heap, best_key, key) : Less(call.heap, key, best_key)) {
      best = item;
      best_key = key;
    }
  }
  return best;
}

Value MinFilter(const Call& call) { return Extreme(call, false); }
Value MaxFilter(const Call& call) { return Extreme(call, true); }

Value SumFilter(const Call& call) {
  Value sum = call.at[1].missing() ? Value(int64_t{0}) : call.at[1];
  for (const Value& item : Each(call)) {
    sum = Add(call.heap, sum, Path(call.heap, item, call.at[0]));
  }
  return sum;
}

Value JoinFilter(const Call& call) {
  const Value separator =
      call.at[0].missing() ? Value(string_view("", 0)) : Str(call.heap, call.at[0]);
  Builder out(call.heap);
  bool first = true;
  for (const Value& item : Each(call)) {
    if (!first) out.Add(separator.view());
    first = false;
    AddStr(&out, Path(call.heap, item, call.at[1]));
  }
  return out.Done();
}

Value FirstFilter(const Call& call) {
  // Of a generator only the first is taken.
  if (call.self.Is(Kind::kGenerator) && !call.self.sequence->used_up) {
    Sequence& rest = *call.self.sequence;
    if (rest.size > 0) {
      --rest.size;
      return *rest.items++;
    }
  }
  const absl::Span<const Value> items = Each(call);
  return items.empty() ? Undefined("No first item, sequence was empty.", Kind::kUndefined)
                       : items[0];
}

Value LastFilter(const Call& call) {
  if (call.self.Is(Kind::kGenerator)) Fail("'generator' object is not reversible");
  const absl::Span<const Value> items = Each(call);
  return items.empty() ? Undefined("No last item, sequence was empty.", Kind::kUndefined)
                       : items.back();
}

Value LengthFilter(const Call& call) { return Value(LengthOf(call.self)); }
Value ListFilter(const Call& call) { return call.heap->Items(Kind::kList, Each(call)); }

Value ReverseFilter(const Call& call) {
  const absl::Span<const Value> each = Each(call);
  Values items(each.rbegin(), each.rend());
  if (!call.self.string()) {
    return call.heap->Items(call.self.Is(Kind::kGenerator) ? Kind::kList : Kind::kGenerator, items);
  }
  Builder out(call.heap);
  for (const Value& character : items) out.Add(character.view());
  Value text = out.Done();
  text.flag = call.self.flag;
  return text;
}

Value ItemsFilter(const Call& call) {
  if (call.self.undefined()) return call.heap->Items(Kind::kGenerator, {});
  if (!call.self.Is(Kind::kDict)) Fail("items: can only get item pairs from a mapping");
  Value items = Invoke(call.heap, *FindMethod(Kind::kDict, "items"), call.self, {});
  items.kind = Kind::kGenerator;
  return items;
}

Value BatchFilter(const Call& call) {
  const int64_t count = IntArgument(call, 0, 0);
  Values batches, batch;
  for (const Value& item : Each(call)) {
    if (static_cast<int64_t>(batch.size()) == count) {
      batches.push_back(call.heap->Items(Kind::kList, batch));
      batch.clear();
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    while (!Absent(call, 1) && static_cast<int64_t>(batch.size()) < count) {
      call.heap->Charge(sizeof(Value));
      batch.push_back(call.at[1]);
    }
    batches.push_back(call.heap->Items(Kind::kList, batch));
  }
  return call.heap->Items(Kind::kGenerator, batches);
}

Value SliceFilter(const Call& call) {
  const int64_t slices = IntArgument(call, 0, 0);
  const absl::Span<const Value> items = Each(call);
  if (slices == 0) Fail("integer division or modulo by zero");
  if (slices < 0) return call.heap->Items(Kind::kGenerator, {});
  const int64_t each = static_cast<int64_t>(items.size()) / slices;
  const int64_t longer = static_cast<int64_t>(items.size()) % slices;
  Values out;
  size_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    call.heap->Step();
    const size_t size = static_cast<size_t>(each + (i < longer ? 1 : 0));
    Values slice(items.begin() + static_cast<std::ptrdiff_t>(at),
                 items.begin() + static_cast<std::ptrdiff_t>(at + size));
    if (!Absent(call, 1) && i >= longer) slice.push_back(call.at[1]);
    out.push_back(call.heap->Items(Kind::kList, slice));
    at += size;
  }
  return call.heap->Items(Kind::kGenerator, out);
}

Value AttrFilter(const Call& call) {
  const string_view name = TextArgument(call, 0, "");
  // Only an attribute: a dict's keys are none.
  if (call.self.Is(Kind::kDict) && FindMethod(Kind::kDict, name) == nullptr) {
    return Undefined(name, Kind::kDict);
  }
  return Attribute(call.heap, call.self, name);
}

Value MapFilter(const Call& call) {
  Values out;
  if (!Truth(call.self)) return call.heap->Items(Kind::kGenerator, out);
  absl::Span<const Value> arguments = call.raw.positional;
  if (arguments.empty()) {
    Value attribute, fallback;
    for (const Entry& entry : call.raw.named) {
      if (entry.key.view() == "attribute") {
        attribute = entry.value;
      } else if (entry.key.view() == "default") {
        fallback = entry.value;
      } else {
        Fail("map() has no parameter '", entry.key.view(), "'");
      }
    }
    if (attribute.missing()) Fail("map: requires a filter argument");
    for (const Value& item : Each(call)) {
      out.push_back(Path(call.heap, item, attribute, fallback));
    }
    return call.heap->Items(Kind::kGenerator, out);
  }
  const Value name = arguments[0];
  const Builtin* filter = name.string() ? FindFilter(name.view()) : nullptr;
  if (filter == nullptr) Fail("map: no such filter");
  for (const Value& item : Each(call)) {
    out.push_back(Invoke(call.heap, *filter, item, {arguments.subspan(1), call.raw.named}));
  }
  return call.heap->Items(Kind::kGenerator, out);
}

Value Chosen(const Call& call, bool by_attribute, bool wanted) {
  Values out;
  if (!Truth(call.self)) return call.heap->Items(Kind::kGenerator, out);
  absl::Span<const Value> arguments = call.raw.positional;
  Value path;
  if (by_attribute) {
    if (arguments.empty()) Fail("selectattr: misses the name of an attribute");
    path = arguments[0];
    arguments.remove_prefix(1);
  }
  const Builtin* test = nullptr;
  if (!arguments.empty()) {
    test = arguments[0].string() ? FindTest(arguments[0].view()) : nullptr;
    if (test == nullptr) Fail("select: no such test");
    arguments.remove_prefix(1);
  }
  for (const Value& item : Each(call)) {
    const Value value = Path(call.heap, item, path);
    const bool holds = test == nullptr
                           ? Truth(value)
                           : Truth(Invoke(call.heap, *test, value, {arguments, call.raw.named}));
    if (holds == wanted) out.push_back(item);
  }
  return call.heap->Items(Kind::kGenerator, out);
}

Value SelectFilter(const Call& call) { return Chosen(call, false, true); }
Value RejectFilter(const Call& call) { return Chosen(call, false, false); }
Value SelectAttrFilter(const Call& call) { return Chosen(call, true, true); }
Value RejectAttrFilter(const Call& call) { return Chosen(call, true, false); }

constexpr Builtin kFilters[] = {
    {"attr", AttrFilter, "name", 1},
    {"batch", BatchFilter, "linecount,fill_with", 1},
    {"count", LengthFilter},
    {"dictsort", DictSortFilter, "case_sensitive,by,reverse"},
    {"first", FirstFilter},
    {"groupby", GroupByFilter, "attribute,default,case_sensitive", 1},
    {"items", ItemsFilter},
    {"join", JoinFilter, "d,attribute"},
    {"last", LastFilter},
    {"length", LengthFilter},
    {"list", ListFilter},
    {"map", MapFilter, "*"},
    {"max", MaxFilter, "case_sensitive,attribute"},
    {"min", MinFilter, "case_sensitive,attribute"},
    {"random", nullptr},
    {"reject", RejectFilter, "*"},
    {"rejectattr", RejectAttrFilter, "*"},
    {"reverse", ReverseFilter},
    {"select", SelectFilter, "*"},
    {"selectattr", SelectAttrFilter, "*"},
    {"slice", SliceFilter, "slices,fill_with", 1},
    {"sort", SortFilter, "reverse,case_sensitive,attribute"},
    {"sum", SumFilter, "attribute,start"},
    {"unique", UniqueFilter, "case_sensitive,attribute"},
};

}  // namespace

absl::Span<const Builtin> ListFilters() { return kFilters; }

}  // namespace mainarch::text::jinja
