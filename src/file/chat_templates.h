// SPDX-License-Identifier: MIT
//
// Chat templates in files of their own, as transformers saves them from version 5 on.
#ifndef MAINARCH_FILE_CHAT_TEMPLATES_H_
#define MAINARCH_FILE_CHAT_TEMPLATES_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace mainarch::file {

struct ChatTemplateFile {
  std::string name;  // "default" of chat_template.jinja, else the file's without ".jinja"
  std::string source;
};

// chat_template.jinja and additional_chat_templates/*.jinja of a directory, in the order of their
// names; none when it has neither.
StatusOr<std::vector<ChatTemplateFile>> ReadChatTemplates(const std::string& directory);

}  // namespace mainarch::file

#endif  // MAINARCH_FILE_CHAT_TEMPLATES_H_
