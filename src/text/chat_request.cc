// SPDX-License-Identifier: MIT
#include "text/chat_request.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "text/jinja/json_value.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"
#include "text/json_fields.h"

namespace mainarch::text {
namespace {

using absl::string_view;
using jinja::Entry;
using jinja::Heap;
using jinja::Kind;
using jinja::Table;
using jinja::Value;

// Put behind the text that is to be continued, to find its end in the prompt. transformers' own.
constexpr string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr string_view kMarkStripped = "CONTINUE_FINAL_MESSAGE_TAG";
// The names that reasoning goes by, in the order in which they count.
constexpr string_view kReasoning[] = {"reasoning_content", "thinking", "reasoning"};
constexpr string_view kInputs[] = {"messages", "tools", "documents", "add_generation_prompt"};

template <class... Parts>
Status Bad(const Parts&... parts) {
  return Error(Code::kInvalidArgument, parts...);
}

Status CheckObjects(const Value& list, string_view key) {
  if (!list.Is(Kind::kList)) return Bad(key, " is no array");
  for (size_t i = 0; i < list.sequence->size; ++i) {
    if (!list.sequence->items[i].Is(Kind::kDict)) return Bad(key, "[", i, "] is no object");
  }
  return OkStatus();
}

Status TakeBool(const Value& value, string_view key, bool* out) {
  if (!value.Is(Kind::kBool)) return Bad(key, " is neither true nor false");
  *out = value.boolean;
  return OkStatus();
}

// The message without what is null, and with its reasoning under the names of `kReasoning` that
// templates read.
Value Prepared(Heap* heap, const Value& message) {
  Table* kept = heap->New(Table{});
  for (const Entry& entry : message.table->span()) {
    if (!entry.value.none()) kept->Append(heap, entry.key, entry.value);
  }
  const Value* reasoning = nullptr;
  for (const string_view name : kReasoning) {
    if (reasoning == nullptr) reasoning = kept->Find(heap, name);
  }
  if (reasoning == nullptr) return jinja::Of(Kind::kDict, kept);
  const Value text = *reasoning;
  Table* out = heap->New(Table{});
  out->Append(heap, Value(string_view("thinking")), text);
  for (const Entry& entry : kept->span()) out->Set(heap, entry.key, entry.value);
  out->Set(heap, Value(kReasoning[0]), text);
  return jinja::Of(Kind::kDict, out);
}

Value WithMark(Heap* heap, const Value& text) {
  return jinja::Builder(heap).Add(text.view()).Add(kMark).Done();
}

// A copy of the dict with another value of a key.
Value Replacing(Heap* heap, const Value& dict, string_view key, const Value& value) {
  Table* out = heap->New(Table{});
  for (const Entry& entry : dict.table->span()) {
    out->Append(heap, entry.key, entry.key.view() == key ? value : entry.value);
  }
  return jinja::Of(Kind::kDict, out);
}

// Marks the last part of a content that has a text, and gives that text out.
Status MarkParts(Heap* heap, const Value& parts, Value* marked, Value* continued) {
  for (uint32_t i = parts.sequence->size; i-- > 0;) {
    const Value& part = parts.sequence->items[i];
    const Value* text = part.Is(Kind::kDict) ? part.table->Find(heap, "text") : nullptr;
    if (text == nullptr || !text->string()) continue;
    *continued = *text;
    *marked = heap->Items(Kind::kList, parts.sequence->span());
    marked->sequence->items[i] = Replacing(heap, part, "text", WithMark(heap, *text));
    return OkStatus();
  }
  return Bad("continue_final_message: the last message has no text to go on from");
}

Status MarkLast(Heap* heap, string_view field, ChatRequest* request) {
  Value& last = request->messages.sequence->items[request->messages.sequence->size - 1];
  const Value* found = last.table->Find(heap, field);
  if (found == nullptr) {
    return Bad("continue_final_message: the last message has no ",
               absl::Utf8SafeCHexEscape(field.substr(0, 64)));
  }
  if (found->Is(Kind::kList)) {
    Value marked;
    RETURN_IF_ERROR(MarkParts(heap, *found, &marked, &request->continued));
    last = Replacing(heap, last, field, marked);
    return OkStatus();
  }
  if (!found->string()) return Bad("continue_final_message: the last message's text is no text");
  request->continued = *found;
  const Value marked = WithMark(heap, *found);
  const bool reasoning =
      std::find(std::begin(kReasoning), std::end(kReasoning), field) != std::end(kReasoning);
  if (!reasoning) {
    last = Replacing(heap, last, field, marked);
    return OkStatus();
  }
  // Every copy of it.
  for (const string_view name : kReasoning) {
    const Value* copy = last.table->Find(heap, name);
    if (copy != nullptr && jinja::Equal(heap, *copy, request->continued)) {
      last = Replacing(heap, last, name, marked);
    }
  }
  return OkStatus();
}

// "continue_final_message": true, or the name of the field that is continued.
Status TakeContinued(Heap* heap, const Value& value, bool prompt_given, ChatRequest* out) {
  string_view field = "content";
  if (value.string()) {
    field = value.view();
  } else {
    bool wanted = false;
    RETURN_IF_ERROR(TakeBool(value, "continue_final_message", &wanted));
    if (!wanted) return OkStatus();
  }
  if (prompt_given && out->add_generation_prompt) {
    return Bad("continue_final_message and add_generation_prompt exclude one another");
  }
  out->add_generation_prompt = false;
  return MarkLast(heap, field, out);
}

Status TakeMessages(Heap* heap, const Value& value, ChatRequest* out) {
  RETURN_IF_ERROR(CheckObjects(value, "messages"));
  if (value.sequence->size == 0) return Bad("a chat needs at least one message");
  std::vector<Value> messages;
  for (const Value& message : value.sequence->span()) messages.push_back(Prepared(heap, message));
  out->messages = heap->Items(Kind::kList, messages);
  return OkStatus();
}

Status TakeOthers(const Value& value, ChatRequest* out) {
  if (!value.Is(Kind::kDict)) return Bad("chat_template_kwargs is no object");
  for (const Entry& entry : value.table->span()) {
    for (const string_view name : kInputs) {
      if (entry.key.view() == name) {
        return Bad("chat_template_kwargs.", name, ": give it beside chat_template_kwargs");
      }
    }
  }
  out->others = *value.table;
  return OkStatus();
}

Status TakeField(Heap* heap, const Entry& field, ChatRequest* out) {
  const string_view key = field.key.view();
  if (key == "messages") return TakeMessages(heap, field.value, out);
  if (key == "continue_final_message") return OkStatus();  // when all else is known
  if (field.value.none()) return OkStatus();
  if (key == "tools" || key == "documents") {
    (key == "tools" ? out->tools : out->documents) = field.value;
    return CheckObjects(field.value, key);
  }
  if (key == "add_generation_prompt") {
    return TakeBool(field.value, key, &out->add_generation_prompt);
  }
  if (key == "chat_template") {
    out->chat_template = field.value;
    return field.value.string() ? OkStatus() : Bad(key, " is no text");
  }
  if (key == "chat_template_kwargs") return TakeOthers(field.value, out);
  return Bad("\"", absl::Utf8SafeCHexEscape(key.substr(0, 64)), "\" is no key of a chat");
}

}  // namespace

Status ReadChatRequest(string_view json, size_t limit, Heap* heap, ChatRequest* out) {
  const JsonSizes sizes = {.bytes = limit, .values = size_t{1} << 21, .wide_integers = false};
  simdjson::dom::parser parser;
  const StatusOr<JsonObject> root = ParseObject(json, sizes, &parser);
  if (!root.ok()) {
    if (CodeOf(root.status()) == Code::kOutOfHostMemory) return root.status();
    return Bad("the chat ", root.status().message());
  }
  const Value fields = jinja::FromJson(heap, *root, "the chat");
  for (const Entry& field : fields.table->span()) RETURN_IF_ERROR(TakeField(heap, field, out));
  if (out->messages.missing()) return Bad("messages is missing");
  const Value* continued = fields.table->Find(heap, "continue_final_message");
  if (continued == nullptr || continued->none()) return OkStatus();
  const Value* prompt = fields.table->Find(heap, "add_generation_prompt");
  return TakeContinued(heap, *continued, prompt != nullptr && !prompt->none(), out);
}

void AddInputs(Heap* heap, const Value& messages, const Value& tools, const Value& documents,
               bool add_generation_prompt, Table* variables) {
  const Value values[] = {messages, tools, documents, Value(add_generation_prompt)};
  for (size_t i = 0; i < std::size(kInputs); ++i) {
    variables->Set(heap, Value(kInputs[i]), values[i]);
  }
}

StatusOr<std::string> CutBehindContinued(const std::string& prompt, string_view continued) {
  const string_view text = prompt;
  const size_t at = text.rfind(kMarkStripped);
  if (at == string_view::npos ||
      !absl::StrContains(text, jinja::StripLeft(jinja::StripRight(continued)))) {
    return Bad(
        "continue_final_message: the chat template changes the last message, or leaves it out");
  }
  const string_view before = text.substr(0, at);
  if (absl::StartsWith(text.substr(at), kMark)) return std::string(before);
  // The template trims messages, so the white space before the mark is not the message's end.
  return std::string(jinja::StripRight(before));
}

}  // namespace mainarch::text
