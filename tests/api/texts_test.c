/* SPDX-License-Identifier: MIT */
/* Tokenizers, chats and decoders with every kind of bad argument, and the header's bounds of what they give. */
#include <stdlib.h>
#include <string.h>

#include "api_test.h"

/* A tokenizer without a chat template. */
static const char kNoTemplate[] = "tests/golden/data/tokenizer/a";

static t_stack s;

static void tokenizer_open(void) {
  mainarch_tokenizer* tokenizer = (mainarch_tokenizer*)&tokenizer;
  ZERO(mainarch_tokenizer_info, info);
  REFUSED(mainarch_tokenizer_open(NULL, &tokenizer, &t_error), INVALID, "path");
  CHECK(tokenizer == NULL);
  REFUSED(mainarch_tokenizer_open(t_checkpoint(), NULL, &t_error), INVALID, "out");
  REFUSED(mainarch_tokenizer_open("/nonexistent/x", &tokenizer, &t_error), NOT_FOUND,
          "/nonexistent/x/tokenizer.json");
  REFUSED(mainarch_tokenizer_from_model(NULL, &tokenizer, &t_error), INVALID, "model");
  REFUSED(mainarch_tokenizer_from_model(s.model, NULL, &t_error), INVALID, "out");
  REFUSED(mainarch_tokenizer_info_get(NULL, &info, &t_error), INVALID, "tokenizer");
  REFUSED(mainarch_tokenizer_info_get(s.tokenizer, NULL, &t_error), INVALID, "out");
  OK(mainarch_tokenizer_open(t_checkpoint(), &tokenizer, &t_error));
  OK(mainarch_tokenizer_info_get(tokenizer, &info, &t_error));
  mainarch_tokenizer_destroy(tokenizer);
  CHECK_EQ(info.vocab_size, T_VOCAB);
  CHECK_EQ(info.eos_token, T_END);
  CHECK_EQ(info.has_chat, 1);
  OK(mainarch_tokenizer_open(t_source_path(kNoTemplate), &tokenizer, &t_error));
  OK(mainarch_tokenizer_info_get(tokenizer, &info, &t_error));
  mainarch_tokenizer_destroy(tokenizer);
  CHECK_EQ(info.has_chat, 0);
}

static void tokenizer_encode(void) {
  uint32_t tokens[8];
  size_t count = 9;
  REFUSED(mainarch_tokenizer_encode(NULL, "a", 1, 0, tokens, 8, &count, &t_error), INVALID,
          "tokenizer");
  CHECK_EQ(count, 0);
  REFUSED(mainarch_tokenizer_encode(s.tokenizer, NULL, 1, 0, tokens, 8, &count, &t_error), INVALID,
          "text");
  REFUSED(mainarch_tokenizer_encode(s.tokenizer, "a", 1, 8, tokens, 8, &count, &t_error),
          UNSUPPORTED, "flags");
  REFUSED(mainarch_tokenizer_encode(s.tokenizer, "a", 1, 0, NULL, 8, &count, &t_error), INVALID,
          "tokens");
  REFUSED(mainarch_tokenizer_encode(s.tokenizer, "a", 1, 0, tokens, 8, NULL, &t_error), INVALID,
          "count");
  REFUSED(mainarch_tokenizer_encode(s.tokenizer, "a", SIZE_MAX, 0, tokens, 8, &count, &t_error),
          INVALID, "length");
  REFUSED(mainarch_tokenizer_encode(s.tokenizer, "God created", 11, 0, NULL, 0, &count, &t_error),
          TOO_SMALL, "tokens");
  CHECK(count >= 2);
  OK(mainarch_tokenizer_encode(s.tokenizer, NULL, 0, 0, NULL, 0, &count, &t_error));
  CHECK_EQ(count, 0);
  OK(mainarch_tokenizer_encode(s.tokenizer, "<|im_end|>", 10, 0, tokens, 8, &count, &t_error));
  CHECK(count == 1 && tokens[0] == T_END);
  REFUSED(mainarch_tokenizer_encode(s.tokenizer, "<|im_end|>", 10, MAINARCH_ENCODE_NO_SPECIAL, NULL,
                                    0, &count, &t_error),
          TOO_SMALL, "tokens");
  CHECK(count > 1);
  OK(mainarch_tokenizer_encode(s.tokenizer, "<think>", 7, MAINARCH_ENCODE_NO_SPECIAL, tokens, 8,
                               &count, &t_error));
  CHECK_EQ(count, 1);
  REFUSED(mainarch_tokenizer_encode(s.tokenizer, "<think>", 7, MAINARCH_ENCODE_NO_ADDED, NULL, 0,
                                    &count, &t_error),
          TOO_SMALL, "tokens");
  CHECK(count > 1);
  /* This tokenizer puts nothing around a text. */
  OK(mainarch_tokenizer_encode(s.tokenizer, "<think>", 7, MAINARCH_ENCODE_ADD_SPECIAL, tokens, 8,
                               &count, &t_error));
  CHECK_EQ(count, 1);
}

/* The header's bound, three tokens a byte, where it is nearest: bytes that are no UTF-8, and the
 * characters that NFC makes longest. */
static void tokens_of_a_byte(void) {
  static const char* const pieces[] = {"\xFF", "\xE2\x82", "\xF0\x9D\x85\xA0", "\xE0\xA5\x98",
                                       "\xF0\x9D\x86\xBA", "a", "\xEF\xAC\xAC"};
  size_t i, n, count, most = 0;
  char text[400];
  for (i = 0; i < COUNT_OF(pieces); ++i) {
    size_t length = 0;
    for (n = 0; n < 40; ++n) {
      memcpy(text + length, pieces[i], strlen(pieces[i]));
      length += strlen(pieces[i]);
      REFUSED(mainarch_tokenizer_encode(s.tokenizer, text, length, 0, NULL, 0, &count, &t_error),
              TOO_SMALL, "tokens");
      CHECK(count > 0 && count <= 3 * length);
      if (count > length) most = count;
    }
  }
  CHECK(most > 0); /* a byte a token would have been too little */
}

static void tokenizer_decode(void) {
  const uint32_t end = T_END, none = UINT32_MAX;
  char text[16];
  size_t length = 9;
  REFUSED(mainarch_tokenizer_decode(NULL, &end, 1, 0, text, 16, &length, &t_error), INVALID,
          "tokenizer");
  CHECK_EQ(length, 0);
  REFUSED(mainarch_tokenizer_decode(s.tokenizer, NULL, 1, 0, text, 16, &length, &t_error), INVALID,
          "tokens");
  REFUSED(mainarch_tokenizer_decode(s.tokenizer, &end, 1, 8, text, 16, &length, &t_error),
          UNSUPPORTED, "flags");
  REFUSED(mainarch_tokenizer_decode(s.tokenizer, &end, 1, 0, NULL, 16, &length, &t_error), INVALID,
          "text");
  REFUSED(mainarch_tokenizer_decode(s.tokenizer, &end, 1, 0, text, 16, NULL, &t_error), INVALID,
          "length");
  memset(text, 'x', sizeof(text));
  REFUSED(mainarch_tokenizer_decode(s.tokenizer, &end, 1, 0, text, 10, &length, &t_error),
          TOO_SMALL, "11");
  CHECK(length == 10 && text[0] == 'x');
  OK(mainarch_tokenizer_decode(s.tokenizer, &end, 1, 0, text, 11, &length, &t_error));
  CHECK(length == 10 && strcmp(text, "<|im_end|>") == 0 && text[11] == 'x');
  OK(mainarch_tokenizer_decode(s.tokenizer, &end, 1, MAINARCH_DECODE_SKIP_SPECIAL, text, 1, &length,
                               &t_error));
  CHECK(length == 0 && text[0] == '\0');
  OK(mainarch_tokenizer_decode(s.tokenizer, &none, 1, 0, text, 1, &length, &t_error));
  CHECK_EQ(length, 0);
  REFUSED(mainarch_tokenizer_decode(s.tokenizer, NULL, 0, 0, NULL, 0, &length, &t_error), TOO_SMALL,
          "text");
}

static void tokens_and_texts(void) {
  uint32_t tokens[8], token = 9;
  char text[16];
  size_t length, count, i;
  REFUSED(mainarch_tokenizer_token_text(NULL, 0, text, 16, &length, &t_error), INVALID,
          "tokenizer");
  REFUSED(mainarch_tokenizer_token_text(s.tokenizer, T_VOCAB, text, 16, &length, &t_error),
          NOT_FOUND, "2048");
  REFUSED(mainarch_tokenizer_token_text(s.tokenizer, T_END, text, 10, &length, &t_error), TOO_SMALL,
          "11");
  REFUSED(mainarch_tokenizer_token_text(s.tokenizer, T_END, NULL, 10, &length, &t_error), INVALID,
          "text");
  REFUSED(mainarch_tokenizer_token_text(s.tokenizer, T_END, text, 16, NULL, &t_error), INVALID,
          "length");
  REFUSED(mainarch_tokenizer_token_id(NULL, "a", 1, &token, &t_error), INVALID, "tokenizer");
  CHECK_EQ(token, MAINARCH_NO_TOKEN);
  REFUSED(mainarch_tokenizer_token_id(s.tokenizer, NULL, 1, &token, &t_error), INVALID, "text");
  REFUSED(mainarch_tokenizer_token_id(s.tokenizer, "a", 1, NULL, &t_error), INVALID, "out");
  REFUSED(mainarch_tokenizer_token_id(s.tokenizer, "", 0, &token, &t_error), NOT_FOUND, "0 bytes");
  REFUSED(mainarch_tokenizer_token_id(s.tokenizer, "a b c d e", 9, &token, &t_error), NOT_FOUND,
          "token");
  OK(mainarch_tokenizer_token_id(s.tokenizer, "<|im_end|>", 10, &token, &t_error));
  CHECK_EQ(token, T_END);
  for (i = 0; i < T_VOCAB; ++i) { /* there and back */
    char bytes[256];
    OK(mainarch_tokenizer_token_text(s.tokenizer, (uint32_t)i, bytes, 256, &length, &t_error));
    OK(mainarch_tokenizer_token_id(s.tokenizer, bytes, length, &token, &t_error));
    CHECK_EQ(token, i);
  }
  REFUSED(mainarch_tokenizer_special_tokens(NULL, tokens, 8, &count, &t_error), INVALID,
          "tokenizer");
  REFUSED(mainarch_tokenizer_special_tokens(s.tokenizer, NULL, 8, &count, &t_error), INVALID,
          "tokens");
  REFUSED(mainarch_tokenizer_special_tokens(s.tokenizer, tokens, 8, NULL, &t_error), INVALID,
          "count");
  REFUSED(mainarch_tokenizer_special_tokens(s.tokenizer, tokens, 2, &count, &t_error), TOO_SMALL,
          "3");
  OK(mainarch_tokenizer_special_tokens(s.tokenizer, tokens, 8, &count, &t_error));
  CHECK(count == 3 && tokens[0] == 2043 && tokens[2] == T_END);
}

static void render_chat(void) {
  mainarch_chat_message messages[2] = {{"user", "hello"}, {"wizard", "x"}};
  char text[256];
  size_t length;
  mainarch_tokenizer* chat;
  mainarch_tokenizer* plain;
  ZERO(mainarch_chat_options, options);
#define RENDER(tokenizer, messages, count, options) \
  mainarch_tokenizer_render_chat(tokenizer, messages, count, options, text, 256, &length, &t_error)
  OK(mainarch_tokenizer_open(t_checkpoint(), &chat, &t_error));
  OK(mainarch_tokenizer_open(t_source_path(kNoTemplate), &plain, &t_error));
  REFUSED(RENDER(NULL, messages, 1, NULL), INVALID, "tokenizer");
  REFUSED(RENDER(plain, messages, 1, NULL), UNSUPPORTED, "chat template");
  mainarch_tokenizer_destroy(plain);
  REFUSED(RENDER(chat, messages, 0, NULL), INVALID, "message");
  REFUSED(RENDER(chat, NULL, 1, NULL), INVALID, "messages");
  REFUSED(RENDER(chat, messages, 2, NULL), INVALID, "wizard");
  messages[1].role = NULL;
  REFUSED(RENDER(chat, messages, 2, NULL), INVALID, "messages[1].role");
  messages[1].role = "user";
  messages[1].content = NULL;
  REFUSED(RENDER(chat, messages, 2, NULL), INVALID, "messages[1].content");
  options.flags = 2;
  REFUSED(RENDER(chat, messages, 1, &options), UNSUPPORTED, "flags");
  options.flags = 0;
  options.thinking = 3;
  REFUSED(RENDER(chat, messages, 1, &options), INVALID, "thinking");
  options.thinking = 0;
  options.reserved = 1;
  REFUSED(RENDER(chat, messages, 1, &options), UNSUPPORTED, "reserved");
  OK(RENDER(chat, messages, 1, NULL));
#undef RENDER
  CHECK(strstr(text, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n") == text);
  CHECK_EQ(length, strlen(text));
  REFUSED(mainarch_tokenizer_render_chat(chat, messages, 1, NULL, text, length, &length, &t_error),
          TOO_SMALL, "text");
  options.reserved = 0;
  options.flags = MAINARCH_CHAT_NO_GENERATION_PROMPT;
  OK(mainarch_tokenizer_render_chat(chat, messages, 1, &options, text, 256, &length, &t_error));
  CHECK(strcmp(text, "<|im_start|>user\nhello<|im_end|>\n") == 0);
  REFUSED(mainarch_tokenizer_render_chat(chat, messages, 1, NULL, NULL, 9, &length, &t_error),
          INVALID, "text");
  REFUSED(mainarch_tokenizer_render_chat(chat, messages, 1, NULL, text, 9, NULL, &t_error), INVALID,
          "length");
  mainarch_tokenizer_destroy(chat);
}

static void render_chat_json(void) {
  static const char kChat[] =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"h\\u00e9\"}], \"tools\": []}";
  static const char kOff[] =
      "{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}], "
      "\"chat_template_kwargs\": {\"enable_thinking\": false}}";
  static const char kOwn[] =
      "{\"messages\": [{\"role\": \"user\"}], \"chat_template\": "
      "\"{{ raise_exception('not ' ~ messages[0].role) }}\"}";
  char text[256];
  size_t length;
  mainarch_tokenizer* chat;
  mainarch_tokenizer* plain;
#define RENDER(tokenizer, json, size) \
  mainarch_tokenizer_render_chat_json(tokenizer, json, size, text, 256, &length, &t_error)
  OK(mainarch_tokenizer_open(t_checkpoint(), &chat, &t_error));
  OK(mainarch_tokenizer_open(t_source_path(kNoTemplate), &plain, &t_error));
  REFUSED(RENDER(NULL, kChat, strlen(kChat)), INVALID, "tokenizer");
  REFUSED(RENDER(chat, NULL, 1), INVALID, "json");
  REFUSED(RENDER(chat, NULL, 0), INVALID, "json");
  REFUSED(RENDER(chat, kChat, 5), INVALID, "not json");
  REFUSED(RENDER(chat, "{}", 2), INVALID, "messages is missing");
  REFUSED(RENDER(plain, kChat, strlen(kChat)), UNSUPPORTED, "no chat template");
  mainarch_tokenizer_destroy(plain);
  REFUSED(RENDER(chat, kOwn, strlen(kOwn)), INVALID, "chat template: not user");
  OK(RENDER(chat, kChat, strlen(kChat)));
  CHECK(strcmp(text, "<|im_start|>user\nh\xc3\xa9<|im_end|>\n<|im_start|>assistant\n") == 0);
  CHECK_EQ(length, strlen(text));
  OK(RENDER(chat, kOff, strlen(kOff)));
  CHECK(strstr(text, "<|im_start|>tool\nx<|im_end|>\n") == text);
  CHECK(strcmp(text + length - 10, "</think>\n\n") == 0);
#undef RENDER
  REFUSED(mainarch_tokenizer_render_chat_json(chat, kOff, strlen(kOff), text, length, &length,
                                              &t_error),
          TOO_SMALL, "text");
  REFUSED(mainarch_tokenizer_render_chat_json(chat, kOff, strlen(kOff), NULL, 9, &length, &t_error),
          INVALID, "text");
  REFUSED(mainarch_tokenizer_render_chat_json(chat, kOff, strlen(kOff), text, 9, NULL, &t_error),
          INVALID, "length");
  mainarch_tokenizer_destroy(chat);
}

static void decoder(void) {
  mainarch_decoder* decoder = (mainarch_decoder*)&decoder;
  const uint32_t end = T_END;
  char text[16];
  size_t length = 9;
  REFUSED(mainarch_decoder_create(NULL, 0, &decoder, &t_error), INVALID, "tokenizer");
  CHECK(decoder == NULL);
  REFUSED(mainarch_decoder_create(s.tokenizer, 2, &decoder, &t_error), UNSUPPORTED, "flags");
  REFUSED(mainarch_decoder_create(s.tokenizer, 0, NULL, &t_error), INVALID, "out");
  REFUSED(mainarch_decoder_push(NULL, &end, 1, text, 16, &length, &t_error), INVALID, "decoder");
  CHECK_EQ(length, 0);
  REFUSED(mainarch_decoder_push(s.decoder, NULL, 1, text, 16, &length, &t_error), INVALID,
          "tokens");
  REFUSED(mainarch_decoder_push(s.decoder, &end, 1, NULL, 16, &length, &t_error), INVALID, "text");
  REFUSED(mainarch_decoder_push(s.decoder, &end, 1, text, 16, NULL, &t_error), INVALID, "length");
  REFUSED(mainarch_decoder_push(s.decoder, &end, 1, text, 10, &length, &t_error), TOO_SMALL, "11");
  OK(mainarch_decoder_push(s.decoder, &end, 1, text, 11, &length, &t_error));
  CHECK(length == 10 && strcmp(text, "<|im_end|>") == 0);
  OK(mainarch_decoder_push(s.decoder, NULL, 0, text, 1, &length, &t_error));
  REFUSED(mainarch_decoder_finish(NULL, text, 16, &length, &t_error), INVALID, "decoder");
  REFUSED(mainarch_decoder_finish(s.decoder, NULL, 16, &length, &t_error), INVALID, "text");
  REFUSED(mainarch_decoder_finish(s.decoder, text, 16, NULL, &t_error), INVALID, "length");
  REFUSED(mainarch_decoder_finish(s.decoder, text, 0, &length, &t_error), TOO_SMALL, "text");
  OK(mainarch_decoder_finish(s.decoder, text, 4, &length, &t_error));
  CHECK_EQ(length, 0);
}

int main(int argc, char** argv) {
  static const t_case cases[] = {
      CASE(tokenizer_open), CASE(tokenizer_encode), CASE(tokens_of_a_byte), CASE(tokenizer_decode),
      CASE(tokens_and_texts), CASE(render_chat), CASE(render_chat_json), CASE(decoder)};
  int result;
  if (t_open(&s, 2) != MAINARCH_OK) t_fail(__FILE__, __LINE__, "open: %s", t_error.message);
  result = RUN(cases);
  t_close(&s);
  return result;
}
