// SPDX-License-Identifier: MIT
#include "text/chat.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"

namespace mainarch::text {
namespace {

constexpr absl::string_view kOpenThink = "<think>\n";
constexpr absl::string_view kEmptyThink = "<think>\n\n</think>\n\n";

// Jinja sources write line ends as the two characters \n, or as themselves.
std::string WithRealNewlines(absl::string_view jinja) {
  std::string out;
  out.reserve(jinja.size());
  for (size_t i = 0; i < jinja.size(); ++i) {
    if (jinja[i] == '\\' && i + 1 < jinja.size() && jinja[i + 1] == 'n') {
      out.push_back('\n');
      ++i;
    } else {
      out.push_back(jinja[i]);
    }
  }
  return out;
}

// "<think>\n" that does not go on to the empty block.
size_t FindOpenThink(absl::string_view text) {
  size_t at = text.find(kOpenThink);
  while (at != absl::string_view::npos && absl::StartsWith(text.substr(at), kEmptyThink)) {
    at = text.find(kOpenThink, at + 1);
  }
  return at;
}

// Reads the part of a template that follows its last add_generation_prompt.
ThinkingStyle StyleOf(absl::string_view tail) {
  const size_t open = FindOpenThink(tail);
  const size_t empty = tail.find(kEmptyThink);
  const bool has_open = open != absl::string_view::npos;
  const bool has_empty = empty != absl::string_view::npos;
  if (!has_open) return has_empty ? ThinkingStyle::kOptional : ThinkingStyle::kNone;
  if (!has_empty) return ThinkingStyle::kAlways;
  // if <asked for>: A, else: B. The default is B.
  return empty < open ? ThinkingStyle::kOnByDefault : ThinkingStyle::kOffByDefault;
}

absl::string_view StripNewlines(absl::string_view text) {
  while (absl::StartsWith(text, "\n")) text.remove_prefix(1);
  while (absl::EndsWith(text, "\n")) text.remove_suffix(1);
  return text;
}

// An assistant's content in two: its thinking and its answer.
struct Turn {
  absl::string_view thinking;
  absl::string_view answer;
};

Turn SplitTurn(absl::string_view content) {
  constexpr absl::string_view kOpen = "<think>", kClose = "</think>";
  const size_t last = content.rfind(kClose);
  if (last == absl::string_view::npos) return {"", content};
  Turn turn{content.substr(0, content.find(kClose)), content.substr(last + kClose.size())};
  const size_t open = turn.thinking.rfind(kOpen);
  if (open != absl::string_view::npos) turn.thinking.remove_prefix(open + kOpen.size());
  turn.thinking = StripNewlines(turn.thinking);
  while (absl::StartsWith(turn.answer, "\n")) turn.answer.remove_prefix(1);
  return turn;
}

Status CheckRoles(const ChatFormat& format, absl::Span<const ChatMessage> messages) {
  if (messages.empty()) return Error(Code::kInvalidArgument, "a chat needs at least one message");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role == "tool") {
      return Error(Code::kUnsupported, "message ", i,
                   " has role \"tool\"; render tool turns with the template itself");
    }
    if (role != "system" && role != "user" && role != "assistant") {
      return Error(Code::kInvalidArgument, "message ", i, " has role \"",
                   absl::CHexEscape(role.substr(0, 64)), "\", not system, user or assistant");
    }
    if (role == "system" && i != 0 && format.system_first_only) {
      return Error(Code::kInvalidArgument, "message ", i,
                   " has role \"system\", which this template takes at the beginning only");
    }
  }
  return OkStatus();
}

StatusOr<absl::string_view> OpeningOf(ThinkingStyle style, Thinking thinking) {
  switch (style) {
    case ThinkingStyle::kNone:
      if (thinking == Thinking::kOn) break;
      return absl::string_view();
    case ThinkingStyle::kOptional:
      return thinking == Thinking::kOff ? kEmptyThink : absl::string_view();
    case ThinkingStyle::kAlways:
      if (thinking == Thinking::kOff) break;
      return kOpenThink;
    case ThinkingStyle::kOnByDefault:
      return thinking == Thinking::kOff ? kEmptyThink : kOpenThink;
    case ThinkingStyle::kOffByDefault:
      return thinking == Thinking::kOn ? kOpenThink : kEmptyThink;
  }
  return Error(Code::kUnsupported, "this model ",
               thinking == Thinking::kOn ? "does not think" : "always thinks",
               "; leave the thinking switch at its default");
}

// The last message that a user wrote; all of them when there is none, as in the templates.
size_t LastUser(absl::Span<const ChatMessage> messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role == "user") return i;
  }
  return messages.size() - 1;
}

void AppendAssistant(const ChatFormat& format, absl::string_view content, bool after_last_user,
                     bool last, std::string* out) {
  if (format.thinking == ThinkingStyle::kNone) {
    absl::StrAppend(out, content);
    return;
  }
  const Turn turn = SplitTurn(content);
  if (after_last_user && (last || !turn.thinking.empty())) {
    absl::string_view answer = turn.answer;
    while (absl::StartsWith(answer, "\n")) answer.remove_prefix(1);
    absl::StrAppend(out, kOpenThink, turn.thinking, "\n</think>\n\n", answer);
  } else {
    absl::StrAppend(out, turn.answer);
  }
}

}  // namespace

StatusOr<ChatFormat> DetectChatFormat(absl::string_view jinja) {
  if (jinja.empty()) {
    return Error(Code::kUnsupported, "the model has no chat template; give the prompt as text");
  }
  if (!absl::StrContains(jinja, "<|im_start|>")) {
    return Error(Code::kUnsupported,
                 "the chat template is not chatml; render it and give the prompt as text");
  }
  const std::string text = WithRealNewlines(jinja);
  if (absl::StrContains(text, "You are a helpful assistant") ||
      absl::StrContains(text, "You are Qwen")) {
    return Error(Code::kUnsupported,
                 "the chat template adds a system message of its own; render "
                 "it and give the prompt as text");
  }
  ChatFormat format;
  const size_t prompt = text.rfind("add_generation_prompt");
  if (prompt != std::string::npos)
    format.thinking = StyleOf(absl::string_view(text).substr(prompt));
  format.system_first_only = absl::StrContains(text, "System message must be at the beginning");
  format.trims_content = format.system_first_only && absl::StrContains(text, "|trim");
  return format;
}

StatusOr<std::string> RenderChat(const ChatFormat& format, absl::Span<const ChatMessage> messages,
                                 bool add_generation_prompt, Thinking thinking) {
  RETURN_IF_ERROR(CheckRoles(format, messages));
  ASSIGN_OR_RETURN(const absl::string_view opening, OpeningOf(format.thinking, thinking));
  const size_t last_user = LastUser(messages);
  std::string out;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    absl::string_view content = message.content;
    if (format.trims_content) content = absl::StripAsciiWhitespace(content);
    absl::StrAppend(&out, "<|im_start|>", message.role, "\n");
    if (message.role == "assistant") {
      AppendAssistant(format, content, i > last_user, i + 1 == messages.size(), &out);
    } else {
      absl::StrAppend(&out, content);
    }
    absl::StrAppend(&out, "<|im_end|>\n");
  }
  if (add_generation_prompt) absl::StrAppend(&out, "<|im_start|>assistant\n", opening);
  return out;
}

}  // namespace mainarch::text
