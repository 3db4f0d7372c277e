// SPDX-License-Identifier: MIT
//
// The functions that every template finds: Jinja's, and those of transformers.
#include <algorithm>

#include "absl/strings/match.h"
#include "text/jinja/builtin.h"
#include "text/jinja/operators.h"
#include "text/jinja/strftime.h"
#include "text/jinja/text.h"

namespace mainarch::text::jinja {
namespace {

using absl::string_view;

// As Jinja's sandbox.
constexpr int64_t kMaxRange = 100000;

Value Range(const Call& call) {
  const bool one = call.at[1].missing();
  const int64_t first = one ? 0 : IntArgument(call, 0, 0);
  const int64_t last = IntArgument(call, one ? 0 : 1, 0);
  const int64_t step = IntArgument(call, 2, 1);
  if (step == 0) Fail("range() with a step of zero");
  std::vector<Value> items;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      Fail("range() of more than ", kMaxRange, " items");
    }
    items.push_back(Value(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return call.heap->Items(Kind::kRange, items);
}

// The dict that dict() and namespace() make of their arguments.
Table* TableOf(const Call& call) {
  Table* table = call.heap->New(Table{});
  if (call.raw.positional.size() > 1) Fail("dict() takes at most 1 argument");
  if (!call.raw.positional.empty()) {
    const Value& from = call.raw.positional[0];
    if (from.Is(Kind::kDict)) {
      for (const Entry& entry : from.table->span()) {
        table->Append(call.heap, entry.key, entry.value);
      }
    } else {
      for (const Value& item : Iterate(call.heap, from)) {
        const absl::Span<const Value> pair = Iterate(call.heap, item);
        if (pair.size() != 2) Fail("dict() of something that is no pair");
        if (!Hashable(pair[0])) Fail("unhashable type: '", TypeName(pair[0]), "'");
        table->Set(call.heap, pair[0], pair[1]);
      }
    }
  }
  for (const Entry& entry : call.raw.named) table->Set(call.heap, entry.key, entry.value);
  return table;
}

Value Dict(const Call& call) { return Of(Kind::kDict, TableOf(call)); }

Value Namespace(const Call& call) {
  Table* table = TableOf(call);
  for (const Entry& entry : table->span()) {
    if (entry.key.string() && absl::StartsWith(entry.key.view(), "_")) {
      Fail("attributes of a namespace may not begin with an underscore: '", entry.key.view(), "'");
    }
  }
  return Of(Kind::kNamespace, table);
}

Value MakeCycler(const Call& call) {
  if (call.raw.positional.empty()) Fail("cycler() needs at least one item");
  const Value items = call.heap->Items(Kind::kTuple, call.raw.positional);
  return Of(Kind::kCycler, call.heap->New(Cycler{items.sequence->span()}));
}

Value MakeJoiner(const Call& call) {
  const Value separator = call.at[0].missing() ? Value(string_view(", ")) : call.at[0];
  return Of(Kind::kJoiner, call.heap->New(Joiner{separator}));
}

Value RaiseException(const Call& call) {
  const Value message = Str(call.heap, call.at[0]);
  throw Failure{Error(Code::kInvalidArgument, message.view().substr(0, 2000)), true};
}

Value StrftimeNow(const Call& call) {
  constexpr size_t kMaxFormat = 4096;
  if (TextArgument(call, 0, "").size() > kMaxFormat) {
    Fail("strftime_now: a format of more than ", kMaxFormat, " bytes");
  }
  return call.heap->Text(FormatTime(TextArgument(call, 0, ""), call.heap->now()));
}

constexpr Builtin kFunctions[] = {
    {"cycler", MakeCycler, "*"},
    {"dict", Dict, "*"},
    {"joiner", MakeJoiner, "sep"},
    {"lipsum", nullptr},
    {"namespace", Namespace, "*"},
    {"raise_exception", RaiseException, "message", 1},
    {"range", Range, "start,stop,step", 1},
    {"strftime_now", StrftimeNow, "format", 1},
};

}  // namespace

absl::Span<const Builtin> Functions() { return kFunctions; }

}  // namespace mainarch::text::jinja
