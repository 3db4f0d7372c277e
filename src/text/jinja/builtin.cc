// SPDX-License-Identifier: MIT
#include "text/jinja/builtin.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "text/jinja/operators.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

const Builtin* Find(absl::Span<const Builtin> table, string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

Value Entries(const Call& call, Kind kind) {
  std::vector<Value> items;
  for (const Entry& entry : call.self.table->span()) {
    const Value pair[] = {entry.key, entry.value};
    items.push_back(kind == Kind::kKeys     ? entry.key
                    : kind == Kind::kValues ? entry.value
                                            : call.heap->Items(Kind::kTuple, pair));
  }
  return call.heap->Items(kind, items);
}

Value DictItems(const Call& call) { return Entries(call, Kind::kItems); }
Value DictKeys(const Call& call) { return Entries(call, Kind::kKeys); }
Value DictValues(const Call& call) { return Entries(call, Kind::kValues); }
Value Same(const Call& call) { return call.self; }

Value DictGet(const Call& call) {
  if (!Hashable(call.at[0])) Fail("unhashable type: '", TypeName(call.at[0]), "'");
  const Value* found = call.self.table->Find(call.heap, call.at[0]);
  if (found != nullptr) return *found;
  return call.at[1].missing() ? None() : call.at[1];
}

constexpr Builtin kDictMethods[] = {
    {"get", DictGet, "key,default", 1},
    {"items", DictItems},
    {"keys", DictKeys},
    {"values", DictValues},
    {"copy", Same},  // nobody can change either
    {"fromkeys", nullptr},
    {"clear", nullptr, "", 0, true},
    {"pop", nullptr, "", 0, true},
    {"popitem", nullptr, "", 0, true},
    {"setdefault", nullptr, "", 0, true},
    {"update", nullptr, "", 0, true},
};

Value Count(const Call& call) {
  int64_t count = 0;
  for (const Value& item : call.self.sequence->span()) count += Equal(call.heap, item, call.at[0]);
  return Value(count);
}

Value Index(const Call& call) {
  const absl::Span<const Value> items = call.self.sequence->span();
  const int64_t size = static_cast<int64_t>(items.size());
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t end = clamp(IntArgument(call, 2, size));
  for (int64_t i = clamp(IntArgument(call, 1, 0)); i < end; ++i) {
    if (Equal(call.heap, items[static_cast<size_t>(i)], call.at[0])) return Value(i);
  }
  Fail("the value is not in the ", TypeName(call.self));
}

constexpr Builtin kListMethods[] = {
    {"count", Count, "value", 1},
    {"index", Index, "value,start,stop", 1},
    {"copy", Same},
    {"append", nullptr, "", 0, true},
    {"clear", nullptr, "", 0, true},
    {"extend", nullptr, "", 0, true},
    {"insert", nullptr, "", 0, true},
    {"pop", nullptr, "", 0, true},
    {"remove", nullptr, "", 0, true},
    {"reverse", nullptr, "", 0, true},
    {"sort", nullptr, "", 0, true},
};

constexpr Builtin kTupleMethods[] = {
    {"count", Count, "value", 1},
    {"index", Index, "value,start,stop", 1},
};

Value LoopCycle(const Call& call) {
  if (call.raw.positional.empty()) Fail("no items for cycling given");
  return call.raw.positional[call.self.loop->index % call.raw.positional.size()];
}

Value LoopChanged(const Call& call) {
  const Value now = call.heap->Items(Kind::kTuple, call.raw.positional);
  Value& last = call.self.loop->changed;
  if (!last.missing() && Equal(call.heap, last, now)) return Value(false);
  last = now;
  return Value(true);
}

constexpr Builtin kLoopMethods[] = {
    {"cycle", LoopCycle, "*"},
    {"changed", LoopChanged, "*"},
};

Value CyclerNext(const Call& call) {
  Cycler& cycler = *call.self.cycler;
  const Value value = cycler.items[cycler.at];
  cycler.at = static_cast<uint32_t>((cycler.at + 1) % cycler.items.size());
  return value;
}

Value CyclerReset(const Call& call) {
  call.self.cycler->at = 0;
  return None();
}

constexpr Builtin kCyclerMethods[] = {
    {"next", CyclerNext},
    {"reset", CyclerReset},
};

}  // namespace

const Builtin* FindMethod(Kind kind, string_view name) {
  switch (kind) {
    case Kind::kString:
      return Find(StringMethods(), name);
    case Kind::kDict:
      return Find(kDictMethods, name);
    case Kind::kList:
      return Find(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return Find(kTupleMethods, name);
    case Kind::kLoop:
      return Find(kLoopMethods, name);
    case Kind::kCycler:
      return Find(kCyclerMethods, name);
    default:
      return nullptr;
  }
}

const Builtin* FindFilter(string_view name) {
  const Builtin* found = Find(TextFilters(), name);
  return found == nullptr ? Find(ListFilters(), name) : found;
}

Value Invoke(Heap* heap, const Builtin& builtin, const Value& self, const Arguments& arguments) {
  heap->Step();
  if (builtin.call == nullptr) {
    throw Failure{Error(Code::kUnsupported, builtin.name, "() is not supported in chat templates")};
  }
  Call call{heap, self, {}, arguments};
  if (builtin.parameters == "*") return builtin.call(call);
  size_t count = 0;
  string_view names[kMaxParameters];
  if (!builtin.parameters.empty()) {
    for (const string_view name : absl::StrSplit(builtin.parameters, ',')) names[count++] = name;
  }
  if (arguments.positional.size() > count) {
    Fail(builtin.name, "() takes at most ", count, " arguments, ", arguments.positional.size(),
         " were given");
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), call.at);
  for (const Entry& entry : arguments.named) {
    const size_t at =
        static_cast<size_t>(std::find(names, names + count, entry.key.view()) - names);
    if (at == count) Fail(builtin.name, "() has no parameter '", entry.key.view(), "'");
    if (!call.at[at].missing()) Fail(builtin.name, "() got '", names[at], "' twice");
    call.at[at] = entry.value;
  }
  for (int i = 0; i < builtin.required; ++i) {
    if (call.at[i].missing()) Fail(builtin.name, "() misses its argument '", names[i], "'");
  }
  return builtin.call(call);
}

bool Absent(const Call& call, int index) {
  return call.at[index].missing() || call.at[index].none();
}

int64_t IntArgument(const Call& call, int index, int64_t otherwise) {
  const Value& value = call.at[index];
  if (value.missing() || value.none()) return otherwise;
  if (value.undefined()) FailUndefined(value);
  if (!value.integral()) Fail("'", TypeName(value), "' object cannot be taken for an integer");
  return value.whole();
}

bool BoolArgument(const Call& call, int index, bool otherwise) {
  return call.at[index].missing() ? otherwise : Truth(call.at[index]);
}

string_view TextArgument(const Call& call, int index, string_view otherwise) {
  const Value& value = call.at[index];
  if (value.missing()) return otherwise;
  if (value.undefined()) FailUndefined(value);
  if (!value.string()) Fail("expected a string, not '", TypeName(value), "'");
  return value.view();
}

}  // namespace mainarch::text::jinja
