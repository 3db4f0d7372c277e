// SPDX-License-Identifier: MIT
//
// What a template computes with: Python's values, as far as Jinja lets a template see them, and the
// heap of one rendering that they live in.
//
// A Value is 16 bytes and copied freely; what it points to is in the Heap, is never freed before
// the heap is, and never changes once made, save a namespace, a loop, a cycler, a joiner and
// whether a generator was used up. (Templates run in Jinja's immutable sandbox: lists and dicts
// cannot be changed.)
#ifndef MAINARCH_TEXT_JINJA_VALUE_H_
#define MAINARCH_TEXT_JINJA_VALUE_H_

#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace mainarch::text::jinja {

// Why a rendering ended. Thrown inside this folder, and caught in Template::Render and nowhere
// else: an interpreter is nested calls, each of which would otherwise hand a Status up.
struct Failure {
  Status status;
  bool raised = false;  // by the template's own raise_exception
};

template <class... Parts>
[[noreturn]] void Fail(const Parts&... parts) {
  throw Failure{Error(Code::kInvalidArgument, parts...)};
}

enum class Kind : uint8_t {
  kMissing,  // no value at all: an argument that was not given
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kKeys,       // the views of a dict
  kValues,     //
  kItems,      //
  kGenerator,  // what a lazy filter gives: can be gone through once
  kDict,
  kNamespace,
  kLoop,
  kCycler,
  kJoiner,
  kMacro,
  kFunction,  // a global, or a method with the value it belongs to
};

struct Sequence;
struct Table;
struct Loop;
struct Cycler;
struct Joiner;
struct Closure;
struct Function;

struct Value {
  Kind kind = Kind::kMissing;
  // Of a string: it is Markup, and strings that are added to it are escaped.
  // Of an undefined: the sandbox refused the attribute.
  bool flag = false;
  // Of an undefined: what it was looked for in; kMissing for a variable.
  Kind owner = Kind::kMissing;
  uint32_t size = 0;  // of the text, in bytes
  union {
    bool boolean;
    int64_t integer;
    double number;
    const char* text;  // of a string; of an undefined, its name
    Sequence* sequence;
    Table* table;
    Loop* loop;
    Cycler* cycler;
    Joiner* joiner;
    const Closure* closure;
    const Function* function;
  };

  Value() : integer(0) {}
  explicit Value(bool of) : kind(Kind::kBool), boolean(of) {}
  explicit Value(int64_t of) : kind(Kind::kInt), integer(of) {}
  explicit Value(double of) : kind(Kind::kFloat), number(of) {}
  // Borrows: the text must live as long as the heap.
  explicit Value(absl::string_view of)
      : kind(Kind::kString), size(static_cast<uint32_t>(of.size())), text(of.data()) {}

  absl::string_view view() const { return {text, size}; }
  bool Is(Kind of) const { return kind == of; }
  bool missing() const { return kind == Kind::kMissing; }
  bool undefined() const { return kind == Kind::kUndefined; }
  bool none() const { return kind == Kind::kNone; }
  bool string() const { return kind == Kind::kString; }
  bool integral() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool numeric() const { return integral() || kind == Kind::kFloat; }
  bool sequential() const { return kind >= Kind::kList && kind <= Kind::kGenerator; }
  // Of something integral.
  int64_t whole() const { return kind == Kind::kBool ? int64_t{boolean} : integer; }
  // Of something numeric.
  double real() const { return kind == Kind::kFloat ? number : static_cast<double>(whole()); }
};

inline Value None() {
  Value value;
  value.kind = Kind::kNone;
  return value;
}

// `name` must live as long as the heap.
inline Value Undefined(absl::string_view name, Kind owner = Kind::kMissing, bool refused = false) {
  Value value(name);
  value.kind = Kind::kUndefined;
  value.owner = owner;
  value.flag = refused;
  return value;
}

// A value of a kind whose payload is a pointer.
template <class T>
Value Of(Kind kind, T* pointer) {
  Value value;
  value.kind = kind;
  if constexpr (std::is_same_v<T, Sequence>) value.sequence = pointer;
  if constexpr (std::is_same_v<T, Table>) value.table = pointer;
  if constexpr (std::is_same_v<T, Loop>) value.loop = pointer;
  if constexpr (std::is_same_v<T, Cycler>) value.cycler = pointer;
  if constexpr (std::is_same_v<T, Joiner>) value.joiner = pointer;
  if constexpr (std::is_same_v<T, const Closure>) value.closure = pointer;
  if constexpr (std::is_same_v<T, const Function>) value.function = pointer;
  return value;
}

// What every rendering may use. Each limit is far above what a chat needs.
struct Limits {
  uint64_t steps =
      uint64_t{1} << 25;  // nodes gone through, and elements and 64 bytes of text touched
  size_t bytes = size_t{256} << 20;  // of values and text
  int depth = 400;                   // of expressions, statements and macro calls in one another
};

// The memory of one rendering, with its two budgets.
class Heap {
 public:
  // `now` is the local time that strftime_now tells.
  explicit Heap(const Limits& limits, const std::tm& now = {}) : limits_(limits), now_(now) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  void* Allocate(size_t bytes);
  template <class T>
  T* New(T value) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (Allocate(sizeof(T))) T(value);
  }
  // Uninitialised.
  template <class T>
  T* Array(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    if (count > limits_.bytes / sizeof(T)) Full();
    return static_cast<T*>(Allocate(count * sizeof(T)));
  }
  // A copy of the text.
  Value Text(absl::string_view text);
  Value Items(Kind kind, absl::Span<const Value> items);

  // Bytes that are held elsewhere (in a std::string that is being built).
  void Charge(size_t bytes) {
    if (bytes > limits_.bytes - used_) Full();
    used_ += bytes;
  }
  void Step(uint64_t count = 1) {
    if (count > limits_.steps - steps_) Exhausted();
    steps_ += count;
  }
  const Limits& limits() const { return limits_; }
  const std::tm& now() const { return now_; }

 private:
  [[noreturn]] void Full() const;
  [[noreturn]] void Exhausted() const;

  const Limits limits_;
  const std::tm now_;
  size_t used_ = 0;
  uint64_t steps_ = 0;
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* free_ = nullptr;
  size_t left_ = 0;
};

// Text that is being put together, within the heap's limits.
class Builder {
 public:
  explicit Builder(Heap* heap) : heap_(heap) {}
  Builder& Add(absl::string_view text) {
    heap_->Charge(text.size());
    heap_->Step(1 + text.size() / 64);
    text_.append(text.data(), text.size());
    return *this;
  }
  Builder& Add(char byte) { return Add(absl::string_view(&byte, 1)); }
  Builder& Fill(absl::string_view text, int64_t times);
  Builder& AddPoint(uint32_t point);
  absl::string_view view() const { return text_; }
  std::string Take() { return std::move(text_); }
  Value Done() { return heap_->Text(text_); }
  Heap* heap() const { return heap_; }

 private:
  Heap* heap_;
  std::string text_;
};

struct Sequence {
  Value* items;
  uint32_t size;
  bool used_up = false;  // of a generator
  bool grouped = false;  // of a tuple: what groupby gives, with names for its two

  absl::Span<const Value> span() const { return {items, size}; }
};

struct Entry {
  Value key;
  Value value;
};

// A dict, a namespace, or the variables of a scope, in the order of their making. Looked through
// from the front: what chats and tools bring has a handful of keys, and more cost their steps.
struct Table {
  Entry* entries = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;

  absl::Span<const Entry> span() const { return {entries, size}; }
  const Value* Find(Heap* heap, absl::string_view key) const;
  const Value* Find(Heap* heap, const Value& key) const;
  void Set(Heap* heap, const Value& key, const Value& value);
  // Without looking for the key.
  void Append(Heap* heap, const Value& key, const Value& value);
};

struct Scope {
  Table variables;
  Scope* parent;
};

struct Loop {
  absl::Span<const Value> items;
  uint32_t index = 0;
  Value changed;  // the arguments of the last loop.changed(), a tuple
};

struct Cycler {
  absl::Span<const Value> items;
  uint32_t at = 0;
};

struct Joiner {
  Value separator;
  bool used = false;
};

struct Macro;  // ast.h

// A macro where it was defined: it sees the variables around it as they are when it is called.
struct Closure {
  const Macro* macro;
  Scope* scope;
};

struct Builtin;  // builtin.h

struct Function {
  const Builtin* builtin;
  Value self;  // of a method
};

// "str", "list", "dict": the name of a value's Python type.
absl::string_view TypeName(Kind kind);
inline absl::string_view TypeName(const Value& value) { return TypeName(value.kind); }

// Ends the rendering with what Jinja says of a use of this undefined.
[[noreturn]] void FailUndefined(const Value& undefined);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_VALUE_H_
