// SPDX-License-Identifier: MIT
#include "text/tokenizer.h"

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/call.h"
#include "api/handles.h"
#include "api/options.h"
#include "base/fd.h"
#include "file/chat_templates.h"
#include "model/checkpoint_tokenizer.h"

namespace mainarch::api {
namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr uint64_t kEncodeFlags =
    MAINARCH_ENCODE_NO_SPECIAL | MAINARCH_ENCODE_NO_ADDED | MAINARCH_ENCODE_ADD_SPECIAL;

absl::string_view View(const char* text, size_t length) {
  return length == 0 ? absl::string_view() : absl::string_view(text, length);
}

// Templates in files of their own stand for those in tokenizer_config.json.
StatusOr<text::Chat> ChatOf(const std::string& config_json,
                            absl::Span<const file::ChatTemplateFile> files) {
  StatusOr<text::ChatConfig> config = text::ReadChatConfig(config_json);
  if (!config.ok()) return WithContext(config.status(), "tokenizer_config.json");
  if (!files.empty()) config->templates.clear();
  for (const file::ChatTemplateFile& file : files) {
    config->templates.push_back({file.name, file.source});
  }
  return text::Chat(*config);
}

Result NewTokenizer(Origin origin, std::shared_ptr<const text::Tokenizer> tokenizer,
                    const std::string& config_json,
                    absl::Span<const file::ChatTemplateFile> templates, mainarch_tokenizer** out) {
  ASSIGN_OR_RETURN(text::Chat chat, ChatOf(config_json, templates));
  *out = new mainarch_tokenizer{std::move(origin), std::move(tokenizer), std::move(chat)};
  return MAINARCH_OK;
}

Result OpenTokenizer(const char* path, mainarch_tokenizer** out) {
  RETURN_IF_ERROR(CheckOut(out));
  RETURN_IF_ERROR(NotNull(path, "path"));
  ASSIGN_OR_RETURN(Origin origin, NewOrigin());
  const std::string file = absl::StrCat(path, "/tokenizer.json");
  ASSIGN_OR_RETURN(const std::string json, ReadWholeFile(file, text::kMaxTokenizerJson));
  StatusOr<std::string> config =
      ReadWholeFile(absl::StrCat(path, "/tokenizer_config.json"), kMaxConfigBytes);
  if (!config.ok() && CodeOf(config.status()) == Code::kNotFound) config = std::string();
  if (!config.ok()) return config.status();
  ASSIGN_OR_RETURN(const auto templates, file::ReadChatTemplates(path));
  ASSIGN_OR_RETURN(auto tokenizer, text::Tokenizer::Load(json, *config, file));
  return NewTokenizer(std::move(origin), std::move(tokenizer), *config, templates, out);
}

Result FromModel(const mainarch_model* model, mainarch_tokenizer** out) {
  RETURN_IF_ERROR(CheckOut(out));
  RETURN_IF_ERROR(CheckHandle(model, "model"));
  ASSIGN_OR_RETURN(auto tokenizer, ReadTokenizer(*model->model));
  const file::Checkpoint& checkpoint = model->model->checkpoint();
  return NewTokenizer(model->origin, std::move(tokenizer), checkpoint.tokenizer_config_json(),
                      checkpoint.chat_templates(), out);
}

mainarch_tokenizer_info InfoOf(const mainarch_tokenizer& handle) {
  const text::Tokenizer& tokenizer = *handle.tokenizer;
  mainarch_tokenizer_info info{};
  info.vocab_size = tokenizer.vocab_size();
  info.bos_token = tokenizer.bos_token().value_or(MAINARCH_NO_TOKEN);
  info.eos_token = tokenizer.eos_token().value_or(MAINARCH_NO_TOKEN);
  info.pad_token = tokenizer.pad_token().value_or(MAINARCH_NO_TOKEN);
  info.has_chat = handle.chat.status().ok() ? 1 : 0;
  return info;
}

// An added token is known by its content, any other by its bytes.
std::optional<uint32_t> FindToken(const text::Tokenizer& tokenizer, absl::string_view bytes) {
  const std::optional<uint32_t> added = tokenizer.TokenId(bytes);
  if (added && tokenizer.IsAdded(*added)) return added;
  return tokenizer.TokenOfBytes(bytes);
}

StatusOr<text::Thinking> ThinkingOf(int32_t thinking) {
  switch (thinking) {
    case MAINARCH_THINKING_DEFAULT:
      return text::Thinking::kDefault;
    case MAINARCH_THINKING_ON:
      return text::Thinking::kOn;
    case MAINARCH_THINKING_OFF:
      return text::Thinking::kOff;
    default:
      return Error(Code::kInvalidArgument, "options.thinking ", thinking, " is not from 0 to 2");
  }
}

StatusOr<std::vector<text::ChatMessage>> MessagesOf(const mainarch_chat_message* messages,
                                                    size_t count) {
  RETURN_IF_ERROR(NotNullArray(messages, count, "messages"));
  std::vector<text::ChatMessage> out;
  for (size_t i = 0; i < count; ++i) {
    if (messages[i].role == nullptr || messages[i].content == nullptr) {
      return Error(Code::kInvalidArgument, "messages[", i, "].",
                   messages[i].role == nullptr ? "role" : "content", " is NULL");
    }
    out.push_back({messages[i].role, messages[i].content});
  }
  return out;
}

std::tm LocalTime() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm local{};
  localtime_r(&now.tv_sec, &local);
  return local;
}

Result RenderChat(const mainarch_tokenizer* tokenizer, const mainarch_chat_message* messages,
                  size_t count, const mainarch_chat_options* given, char* text, size_t capacity,
                  size_t* length) {
  RETURN_IF_ERROR(CheckBuffer(text, capacity, "text", length, "length"));
  RETURN_IF_ERROR(CheckHandle(tokenizer, "tokenizer"));
  ASSIGN_OR_RETURN(const mainarch_chat_options options, ReadOptions(given, "options"));
  RETURN_IF_ERROR(CheckFlags(options.flags, MAINARCH_CHAT_NO_GENERATION_PROMPT, "options"));
  RETURN_IF_ERROR(CheckReserved(options.reserved, "options.reserved"));
  ASSIGN_OR_RETURN(const text::Thinking thinking, ThinkingOf(options.thinking));
  ASSIGN_OR_RETURN(const auto list, MessagesOf(messages, count));
  const bool open_turn = (options.flags & MAINARCH_CHAT_NO_GENERATION_PROMPT) == 0;
  ASSIGN_OR_RETURN(const std::string prompt,
                   tokenizer->chat.Render(list, open_turn, thinking, LocalTime()));
  return CopyText(prompt, text, capacity, length);
}

Result RenderChatJson(const mainarch_tokenizer* tokenizer, const char* json, size_t json_length,
                      char* text, size_t capacity, size_t* length) {
  RETURN_IF_ERROR(CheckBuffer(text, capacity, "text", length, "length"));
  RETURN_IF_ERROR(CheckHandle(tokenizer, "tokenizer"));
  RETURN_IF_ERROR(NotNullArray(json, json_length, "json"));
  ASSIGN_OR_RETURN(const std::string prompt,
                   tokenizer->chat.RenderJson(View(json, json_length), LocalTime()));
  return CopyText(prompt, text, capacity, length);
}

}  // namespace

StatusOr<std::shared_ptr<const text::Tokenizer>> ReadTokenizer(const model::Model& model) {
  return model::ReadTokenizer(model.checkpoint());
}

}  // namespace mainarch::api

using namespace mainarch;
using namespace mainarch::api;

extern "C" {

mainarch_status mainarch_tokenizer_open(const char* path, mainarch_tokenizer** out,
                                        mainarch_error* error) {
  return Fence(error, [&] { return OpenTokenizer(path, out); });
}

mainarch_status mainarch_tokenizer_from_model(const mainarch_model* model, mainarch_tokenizer** out,
                                              mainarch_error* error) {
  return Fence(error, [&] { return FromModel(model, out); });
}

void mainarch_tokenizer_destroy(mainarch_tokenizer* tokenizer) { delete tokenizer; }

mainarch_status mainarch_tokenizer_info_get(const mainarch_tokenizer* tokenizer,
                                            mainarch_tokenizer_info* out, mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckHandle(tokenizer, "tokenizer"));
    RETURN_IF_ERROR(NotNull(out, "out"));
    RETURN_IF_ERROR(WriteInfo(InfoOf(*tokenizer), out, "out"));
    return MAINARCH_OK;
  });
}

mainarch_status mainarch_tokenizer_encode(const mainarch_tokenizer* tokenizer, const char* text,
                                          size_t length, uint64_t flags, uint32_t* tokens,
                                          size_t capacity, size_t* count, mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckBuffer(tokens, capacity, "tokens", count, "count"));
    RETURN_IF_ERROR(CheckHandle(tokenizer, "tokenizer"));
    RETURN_IF_ERROR(NotNullArray(text, length, "text"));
    RETURN_IF_ERROR(CheckFlags(flags, kEncodeFlags, "encode"));
    if (length > text::Tokenizer::kMaxText) {
      return Error(Code::kInvalidArgument, "length ", length, " is more than ",
                   text::Tokenizer::kMaxText);
    }
    text::EncodeOptions options;
    options.parse_special = (flags & MAINARCH_ENCODE_NO_SPECIAL) == 0;
    options.parse_added = (flags & MAINARCH_ENCODE_NO_ADDED) == 0;
    options.add_special = (flags & MAINARCH_ENCODE_ADD_SPECIAL) != 0;
    std::vector<uint32_t> ids;
    RETURN_IF_ERROR(tokenizer->tokenizer->Encode(View(text, length), options, &ids));
    return CopyArray<uint32_t>(ids, tokens, capacity, count, "tokens");
  });
}

mainarch_status mainarch_tokenizer_decode(const mainarch_tokenizer* tokenizer,
                                          const uint32_t* tokens, size_t token_count,
                                          uint64_t flags, char* text, size_t capacity,
                                          size_t* length, mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckBuffer(text, capacity, "text", length, "length"));
    RETURN_IF_ERROR(CheckHandle(tokenizer, "tokenizer"));
    RETURN_IF_ERROR(NotNullArray(tokens, token_count, "tokens"));
    RETURN_IF_ERROR(CheckFlags(flags, MAINARCH_DECODE_SKIP_SPECIAL, "decode"));
    return CopyText(tokenizer->tokenizer->Decode({tokens, token_count},
                                                 (flags & MAINARCH_DECODE_SKIP_SPECIAL) != 0),
                    text, capacity, length);
  });
}

mainarch_status mainarch_tokenizer_token_text(const mainarch_tokenizer* tokenizer, uint32_t token,
                                              char* text, size_t capacity, size_t* length,
                                              mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckBuffer(text, capacity, "text", length, "length"));
    RETURN_IF_ERROR(CheckHandle(tokenizer, "tokenizer"));
    const uint32_t vocab = tokenizer->tokenizer->vocab_size();
    if (token >= vocab) {
      return Error(Code::kNotFound, "token ", token, " is outside the tokenizer's vocabulary of ",
                   vocab);
    }
    return CopyText(tokenizer->tokenizer->TokenBytes(token), text, capacity, length);
  });
}

mainarch_status mainarch_tokenizer_token_id(const mainarch_tokenizer* tokenizer, const char* text,
                                            size_t length, uint32_t* out, mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(NotNull(out, "out"));
    *out = MAINARCH_NO_TOKEN;
    RETURN_IF_ERROR(CheckHandle(tokenizer, "tokenizer"));
    RETURN_IF_ERROR(NotNullArray(text, length, "text"));
    const std::optional<uint32_t> token = FindToken(*tokenizer->tokenizer, View(text, length));
    if (!token) return Error(Code::kNotFound, "no token is exactly these ", length, " bytes");
    *out = *token;
    return MAINARCH_OK;
  });
}

mainarch_status mainarch_tokenizer_special_tokens(const mainarch_tokenizer* tokenizer,
                                                  uint32_t* tokens, size_t capacity, size_t* count,
                                                  mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckBuffer(tokens, capacity, "tokens", count, "count"));
    RETURN_IF_ERROR(CheckHandle(tokenizer, "tokenizer"));
    return CopyArray<uint32_t>(tokenizer->tokenizer->SpecialTokens(), tokens, capacity, count,
                               "tokens");
  });
}

mainarch_status mainarch_tokenizer_render_chat(const mainarch_tokenizer* tokenizer,
                                               const mainarch_chat_message* messages,
                                               size_t message_count,
                                               const mainarch_chat_options* options, char* text,
                                               size_t capacity, size_t* length,
                                               mainarch_error* error) {
  return Fence(error, [&] {
    return RenderChat(tokenizer, messages, message_count, options, text, capacity, length);
  });
}

mainarch_status mainarch_tokenizer_render_chat_json(const mainarch_tokenizer* tokenizer,
                                                    const char* json, size_t json_length,
                                                    char* text, size_t capacity, size_t* length,
                                                    mainarch_error* error) {
  return Fence(error, [&] {
    return RenderChatJson(tokenizer, json, json_length, text, capacity, length);
  });
}

}  // extern "C"
