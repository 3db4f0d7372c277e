// SPDX-License-Identifier: MIT
//
// Chats to the prompts that a model was trained on, by the checkpoint's own Jinja template
// (jinja/), as `apply_chat_template` of transformers makes them. A template that cannot be read is
// no error until it is asked for: a checkpoint is of use without it.
//
// Text in a message is not escaped: "<|im_end|>" in it ends the turn when the prompt is encoded
// with special tokens. Callers with untrusted messages check for that first.
#ifndef MAINARCH_TEXT_CHAT_H_
#define MAINARCH_TEXT_CHAT_H_

#include <ctime>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "text/chat_config.h"
#include "text/jinja/template.h"

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

struct ChatRequest;

// Immutable: any number of threads may render at once. `now` is the local time that a template may
// write.
class Chat {
 public:
  // The most bytes of a chat as JSON, and of a prompt with all that is computed on its way.
  static constexpr size_t kMaxJson = size_t{64} << 20;

  explicit Chat(const ChatConfig& config);

  // Whether there is a template for a chat without tools, or why not.
  Status status() const;

  // Of plain turns. kInvalidArgument names the message that has a wrong role, or has the words of a
  // template that refuses the chat; kUnsupported: no template, or one without such a thinking
  // switch.
  StatusOr<std::string> Render(absl::Span<const ChatMessage> messages, bool add_generation_prompt,
                               Thinking thinking, const std::tm& now) const;

  // Of all that transformers takes, as one JSON object: see mainarch_tokenizer_render_chat_json.
  StatusOr<std::string> RenderJson(absl::string_view json, const std::tm& now) const;

 private:
  struct Named {
    std::string name;
    StatusOr<jinja::Template> parsed;
  };

  const Named* Find(absl::string_view name) const;
  // The template of a chat that names none.
  StatusOr<jinja::Template> Default(bool with_tools) const;
  StatusOr<jinja::Template> Chosen(const ChatRequest& request) const;
  std::string Names() const;
  // The variables that every template sees.
  void AddTokens(jinja::Heap* heap, jinja::Table* variables) const;

  std::vector<Named> templates_;
  std::vector<std::pair<std::string, std::string>> tokens_;
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_CHAT_H_
