// SPDX-License-Identifier: MIT
//
// A chat as JSON, made ready for a template as transformers does it: what is null in a message is
// not there, and reasoning is there under the names that templates know. Private to this folder.
#ifndef MAINARCH_TEXT_CHAT_REQUEST_H_
#define MAINARCH_TEXT_CHAT_REQUEST_H_

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "text/jinja/value.h"

namespace mainarch::text {

struct ChatRequest {
  jinja::Value messages;
  jinja::Value tools = jinja::None();
  jinja::Value documents = jinja::None();
  jinja::Value chat_template;  // missing: the model's
  jinja::Value continued;      // the text to go on from; missing: none
  jinja::Table others;         // chat_template_kwargs
  bool add_generation_prompt = true;
};

// Fills `out` with values of the heap. kInvalidArgument names the key. Also throws jinja::Failure.
Status ReadChatRequest(absl::string_view json, size_t limit, jinja::Heap* heap, ChatRequest* out);

// The variables that every chat has.
void AddInputs(jinja::Heap* heap, const jinja::Value& messages, const jinja::Value& tools,
               const jinja::Value& documents, bool add_generation_prompt, jinja::Table* variables);

// What of a prompt stands before the end of the text that is to be continued, which ReadChatRequest
// has marked. kInvalidArgument when the template has changed or left out that text.
StatusOr<std::string> CutBehindContinued(const std::string& prompt, absl::string_view continued);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_CHAT_REQUEST_H_
