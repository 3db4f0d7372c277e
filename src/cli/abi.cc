// SPDX-License-Identifier: MIT
#include "cli/abi.h"

namespace mainarch::cli {
namespace {

// Calls `call(buffer, capacity, &length, &error)` with a buffer that is large enough, at the second
// attempt if need be.
template <class Buffer, class Call>
StatusOr<Buffer> Filled(size_t guess, size_t terminator, Call call) {
  Buffer buffer;
  buffer.resize(guess + terminator);
  for (int attempt = 0; attempt < 2; ++attempt) {
    size_t length = 0;
    mainarch_error error;
    const mainarch_status status = call(buffer.data(), buffer.size(), &length, &error);
    if (status == MAINARCH_ERROR_BUFFER_TOO_SMALL && attempt == 0) {
      buffer.resize(length + terminator);
      continue;
    }
    if (status < 0) return FromAbi(status, error);
    buffer.resize(length);
    break;
  }
  return buffer;
}

}  // namespace

Status FromAbi(mainarch_status status, const mainarch_error& error) {
  if (status >= 0) return OkStatus();
  return MakeError(static_cast<Code>(status), error.message);
}

StatusOr<std::vector<uint32_t>> Encode(const mainarch_tokenizer* tokenizer, absl::string_view text,
                                       uint64_t flags) {
  return Filled<std::vector<uint32_t>>(
      text.size() / 2 + 16, 0, [&](uint32_t* out, size_t capacity, size_t* n, mainarch_error* e) {
        return mainarch_tokenizer_encode(tokenizer, text.data(), text.size(), flags, out, capacity,
                                         n, e);
      });
}

StatusOr<std::string> RenderChat(const mainarch_tokenizer* tokenizer,
                                 absl::Span<const ChatTurn> turns, int32_t thinking) {
  std::vector<mainarch_chat_message> messages;
  size_t guess = 256;
  for (const ChatTurn& turn : turns) {
    messages.push_back({turn.role.c_str(), turn.content.c_str()});
    guess += turn.content.size() + 64;
  }
  auto options = Sized<mainarch_chat_options>();
  options.thinking = thinking;
  return Filled<std::string>(
      guess, 1, [&](char* out, size_t capacity, size_t* n, mainarch_error* e) {
        return mainarch_tokenizer_render_chat(tokenizer, messages.data(), messages.size(), &options,
                                              out, capacity, n, e);
      });
}

StatusOr<std::string> RenderChatJson(const mainarch_tokenizer* tokenizer, absl::string_view json) {
  return Filled<std::string>(
      json.size() + 256, 1, [&](char* out, size_t capacity, size_t* n, mainarch_error* e) {
        return mainarch_tokenizer_render_chat_json(tokenizer, json.data(), json.size(), out,
                                                   capacity, n, e);
      });
}

StatusOr<std::string> Push(mainarch_decoder* decoder, uint32_t token) {
  return Filled<std::string>(64, 1, [&](char* out, size_t capacity, size_t* n, mainarch_error* e) {
    return mainarch_decoder_push(decoder, &token, 1, out, capacity, n, e);
  });
}

StatusOr<std::string> Finish(mainarch_decoder* decoder) {
  return Filled<std::string>(8, 1, [&](char* out, size_t capacity, size_t* n, mainarch_error* e) {
    return mainarch_decoder_finish(decoder, out, capacity, n, e);
  });
}

StatusOr<std::string> TokenText(const mainarch_tokenizer* tokenizer, uint32_t token) {
  return Filled<std::string>(64, 1, [&](char* out, size_t capacity, size_t* n, mainarch_error* e) {
    return mainarch_tokenizer_token_text(tokenizer, token, out, capacity, n, e);
  });
}

}  // namespace mainarch::cli
