// SPDX-License-Identifier: MIT
//
// ChatML: messages to the prompt that Qwen models were trained on, for plain turns with or without
// thinking. Not Jinja: a template is looked at only to see which of the known forms it is, and one
// that is none of them is refused. Tools, images and other templates are the caller's to render.
//
// Text in a message is not escaped: "<|im_end|>" in it ends the turn when the prompt is encoded
// with special tokens. Callers with untrusted messages check for that first. All functions are
// pure.
#ifndef MAINARCH_TEXT_CHAT_H_
#define MAINARCH_TEXT_CHAT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace mainarch::text {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

enum class Thinking {
  kDefault,  // what the template does when nothing is said
  kOn,
  kOff,
};

// How a ChatML template opens the assistant's turn.
enum class ThinkingStyle {
  kNone,          // no thinking (2507-Instruct): nothing
  kOptional,      // Qwen3: nothing, and the model decides; off: an empty block
  kAlways,        // 2507-Thinking: an open block
  kOnByDefault,   // Qwen3.5 from 4B: an open block; off: an empty block
  kOffByDefault,  // Qwen3.5 0.8B and 2B: an empty block; on: an open block
};

struct ChatFormat {
  ThinkingStyle thinking = ThinkingStyle::kNone;
  bool trims_content = false;      // Qwen3.5: white space around a content goes
  bool system_first_only = false;  // Qwen3.5: a system message anywhere else is an error
};

// Finds out the form of a Jinja template (Tokenizer::chat_template()). kUnsupported for an empty
// one, one that is not ChatML, and one that adds a system message of its own.
StatusOr<ChatFormat> DetectChatFormat(absl::string_view jinja);

// The prompt. Assistant turns before the last user message lose their thinking, as in the
// templates. kInvalidArgument names the message that has a wrong role; kUnsupported a thinking
// switch that the format does not have.
StatusOr<std::string> RenderChat(const ChatFormat& format, absl::Span<const ChatMessage> messages,
                                 bool add_generation_prompt, Thinking thinking);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_CHAT_H_
