// SPDX-License-Identifier: MIT
#include "text/chat.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "text/chat_request.h"

namespace mainarch::text {
namespace {

using jinja::Heap;
using jinja::Kind;
using jinja::Table;
using jinja::Value;

Status CheckRoles(absl::Span<const ChatMessage> messages) {
  if (messages.empty()) return Error(Code::kInvalidArgument, "a chat needs at least one message");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role == "tool") {
      return Error(Code::kUnsupported, "message ", i,
                   " has role \"tool\"; give chats with tools as json");
    }
    if (role != "system" && role != "user" && role != "assistant") {
      return Error(Code::kInvalidArgument, "message ", i, " has role \"",
                   absl::CHexEscape(role.substr(0, 64)), "\", not system, user or assistant");
    }
  }
  return OkStatus();
}

Value MessagesOf(Heap* heap, absl::Span<const ChatMessage> messages) {
  std::vector<Value> list;
  for (const ChatMessage& message : messages) {
    Table* table = heap->New(Table{});
    table->Append(heap, Value(absl::string_view("role")), heap->Text(message.role));
    table->Append(heap, Value(absl::string_view("content")), heap->Text(message.content));
    list.push_back(jinja::Of(Kind::kDict, table));
  }
  return heap->Items(Kind::kList, list);
}

// The variable by which templates of one kind or another turn thinking on and off.
absl::string_view SwitchOf(const jinja::Template& chat_template) {
  for (const absl::string_view name : {"enable_thinking", "thinking"}) {
    if (chat_template.Reads(name)) return name;
  }
  return "";
}

// A template without a switch either leaves the model in a thought or it does not.
Status CheckThinking(absl::string_view prompt, Thinking thinking) {
  const bool thinks = absl::EndsWith(absl::StripTrailingAsciiWhitespace(prompt), "<think>");
  if (thinks == (thinking == Thinking::kOn)) return OkStatus();
  return Error(Code::kUnsupported, "this model ", thinks ? "always thinks" : "does not think",
               "; leave the thinking switch at its default");
}

}  // namespace

Chat::Chat(const ChatConfig& config) : tokens_(config.tokens) {
  for (const NamedTemplate& named : config.templates) {
    auto parsed = jinja::Template::Parse(named.source);
    if (!parsed.ok()) {
      parsed = WithContext(parsed.status(), absl::StrCat("chat template \"", named.name, "\""));
    }
    templates_.push_back({named.name, std::move(parsed)});
  }
}

const Chat::Named* Chat::Find(absl::string_view name) const {
  // The last of a name, as in a dict.
  for (size_t i = templates_.size(); i-- > 0;) {
    if (templates_[i].name == name) return &templates_[i];
  }
  return nullptr;
}

std::string Chat::Names() const {
  std::string names;
  for (const Named& named : templates_) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", absl::Utf8SafeCHexEscape(named.name));
  }
  return names;
}

StatusOr<jinja::Template> Chat::Default(bool with_tools) const {
  if (templates_.empty()) {
    return Error(Code::kUnsupported, "the model has no chat template; give the prompt as text");
  }
  const Named* tools = with_tools ? Find("tool_use") : nullptr;
  if (tools != nullptr) return tools->parsed;
  const Named* usual = Find("default");
  if (usual != nullptr) return usual->parsed;
  return Error(Code::kUnsupported, "the model has no default chat template; name one of ", Names());
}

Status Chat::status() const { return Default(false).status(); }

StatusOr<jinja::Template> Chat::Chosen(const ChatRequest& request) const {
  const Value& chosen = request.chat_template;
  if (!chosen.string()) return Default(!request.tools.none());
  const absl::string_view text = chosen.view();
  if (const Named* named = Find(text)) return named->parsed;
  // A template itself has tags.
  if (absl::StrContains(text, "{")) {
    auto parsed = jinja::Template::Parse(text);
    return parsed.ok() ? parsed : WithContext(parsed.status(), "chat_template");
  }
  return Error(Code::kInvalidArgument, "chat_template: the model has no template \"",
               absl::Utf8SafeCHexEscape(text.substr(0, 64)), "\"; it has ",
               templates_.empty() ? "none" : Names());
}

void Chat::AddTokens(Heap* heap, Table* variables) const {
  for (const auto& [name, text] : tokens_) variables->Set(heap, heap->Text(name), heap->Text(text));
}

StatusOr<std::string> Chat::Render(absl::Span<const ChatMessage> messages,
                                   bool add_generation_prompt, Thinking thinking,
                                   const std::tm& now) const {
  RETURN_IF_ERROR(CheckRoles(messages));
  ASSIGN_OR_RETURN(const jinja::Template chat_template, Default(false));
  const absl::string_view thinking_switch = SwitchOf(chat_template);
  const bool switched = thinking != Thinking::kDefault && !thinking_switch.empty();
  Heap heap(jinja::Limits{}, now);
  Table variables;
  RETURN_IF_ERROR(jinja::WithinLimits([&]() -> Status {
    AddTokens(&heap, &variables);
    AddInputs(&heap, MessagesOf(&heap, messages), jinja::None(), jinja::None(),
              add_generation_prompt, &variables);
    if (switched) {
      variables.Set(&heap, Value(thinking_switch), Value(thinking == Thinking::kOn));
    }
    return OkStatus();
  }));
  StatusOr<std::string> prompt = chat_template.Render(&heap, variables);
  if (!prompt.ok()) return WithContext(prompt.status(), "chat template");
  if (thinking != Thinking::kDefault && !switched && add_generation_prompt) {
    RETURN_IF_ERROR(CheckThinking(*prompt, thinking));
  }
  return prompt;
}

StatusOr<std::string> Chat::RenderJson(absl::string_view json, const std::tm& now) const {
  Heap heap(jinja::Limits{}, now);
  Table variables;
  ChatRequest request;
  RETURN_IF_ERROR(jinja::WithinLimits([&]() -> Status {
    RETURN_IF_ERROR(ReadChatRequest(json, kMaxJson, &heap, &request));
    AddTokens(&heap, &variables);
    for (const jinja::Entry& entry : request.others.span()) {
      variables.Set(&heap, entry.key, entry.value);
    }
    AddInputs(&heap, request.messages, request.tools, request.documents,
              request.add_generation_prompt, &variables);
    return OkStatus();
  }));
  ASSIGN_OR_RETURN(const jinja::Template chat_template, Chosen(request));
  StatusOr<std::string> prompt = chat_template.Render(&heap, variables);
  if (!prompt.ok()) return WithContext(prompt.status(), "chat template");
  return request.continued.missing() ? prompt
                                     : CutBehindContinued(*prompt, request.continued.view());
}

}  // namespace mainarch::text
