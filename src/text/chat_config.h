// SPDX-License-Identifier: MIT
//
// What a checkpoint says of chats: its templates, and the special tokens that they write.
#ifndef MAINARCH_TEXT_CHAT_CONFIG_H_
#define MAINARCH_TEXT_CHAT_CONFIG_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::text {

struct NamedTemplate {
  std::string name;    // "default", "tool_use", ..
  std::string source;  // Jinja
};

struct ChatConfig {
  std::vector<NamedTemplate> templates;
  // bos_token, eos_token, image_token, ..: variables of a template, and their text.
  std::vector<std::pair<std::string, std::string>> tokens;
};

// Of tokenizer_config.json, or of an empty text: chat_template, a text or a list of {"name",
// "template"}; every ".._token", a text or an object with its "content"; and what
// extra_special_tokens names. Errors say "<field>: .."; the caller puts the file's name before
// them.
StatusOr<ChatConfig> ReadChatConfig(absl::string_view json);

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_CHAT_CONFIG_H_
