// SPDX-License-Identifier: MIT
#include "file/gguf_tokenizer.h"

#include <utility>

#include "file/json_text.h"

namespace mainarch::file {

StatusOr<std::string> GgufTokenizerConfig(const GgufMetadata& metadata) {
  JsonObjectText json;
  ASSIGN_OR_RETURN(const auto tokens, metadata.Strings("tokenizer.ggml.tokens"));
  for (const auto& [name, key] : {std::pair("bos", "bos_token"), std::pair("eos", "eos_token"),
                                  std::pair("padding", "pad_token")}) {
    if (!tokens || tokens->empty()) break;
    ASSIGN_OR_RETURN(const auto id,
                     metadata.Integer(absl::StrCat("tokenizer.ggml.", name, "_token_id"), 0,
                                      static_cast<int64_t>(tokens->size()) - 1));
    if (id) json.Text(key, (*tokens)[static_cast<size_t>(*id)]);
  }
  ASSIGN_OR_RETURN(const auto chat, metadata.String("tokenizer.chat_template"));
  if (chat) json.Text("chat_template", *chat);
  return json.Done();
}

}  // namespace mainarch::file
