/* SPDX-License-Identifier: MIT */
/*
 * Several prompts at once through one engine: what they share of a step costs once. C99, built by
 *
 *   cc -o batch batch.c $(pkg-config --cflags --libs mainarch)
 *
 * usage: batch CHECKPOINT PROMPT...
 * Each prompt and what follows it goes to stdout, a line a prompt, in the order given.
 */
#include <mainarch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPTS = 16, MAX_PROMPT_TOKENS = 1024, NEW_TOKENS = 32 };

typedef struct text {
  mainarch_sequence sequence;
  mainarch_decoder* decoder; /* a character may be spread over tokens */
  char out[NEW_TOKENS * 64];
  size_t length;
} text;

static mainarch_error error; /* of the last call that failed */

/* Passes on what is no error. A real server would answer its client and go on. */
static mainarch_status check(mainarch_status status) {
  if (status >= 0) return status;
  fprintf(stderr, "%s: %s\n", mainarch_status_string(status), error.message);
  exit(1);
}

static void begin(text* t, mainarch_engine* engine, const mainarch_tokenizer* tokenizer,
                  const char* prompt) {
  mainarch_sequence_options options = {0}; /* zero is the default of every field */
  uint32_t tokens[MAX_PROMPT_TOKENS];
  size_t count;
  options.struct_size = sizeof(options);
  options.max_tokens = NEW_TOKENS;
  check(mainarch_tokenizer_encode(tokenizer, prompt, strlen(prompt), MAINARCH_ENCODE_NO_SPECIAL,
                                  tokens, MAX_PROMPT_TOKENS, &count, &error));
  check(mainarch_sequence_open(engine, &options, &t->sequence, &error));
  check(mainarch_sequence_append(engine, t->sequence, tokens, count, &error));
  check(mainarch_decoder_create(tokenizer, MAINARCH_DECODE_SKIP_SPECIAL, &t->decoder, &error));
  t->length = 0;
}

/* Takes what the last step has made of this text; there may be nothing. */
static void collect(text* t, mainarch_engine* engine) {
  uint32_t tokens[NEW_TOKENS];
  size_t count, length;
  if (check(mainarch_sequence_take(engine, t->sequence, tokens, NEW_TOKENS, &count, &error)) ==
      MAINARCH_AGAIN) {
    return;
  }
  check(mainarch_decoder_push(t->decoder, tokens, count, t->out + t->length,
                              sizeof(t->out) - t->length, &length, &error));
  t->length += length;
}

int main(int argc, char** argv) {
  static text texts[MAX_PROMPTS];
  const int count = argc - 2;
  mainarch_engine_options options = {0};
  mainarch_group* group;
  mainarch_model* model;
  mainarch_tokenizer* tokenizer;
  mainarch_engine* engine;
  size_t length;
  int i;
  if (count < 1 || count > MAX_PROMPTS) {
    fprintf(stderr, "usage: %s CHECKPOINT PROMPT... (up to %d)\n", argv[0], MAX_PROMPTS);
    return 2;
  }
  check(mainarch_group_open(NULL, NULL, &group, &error)); /* the devices of this machine */
  check(mainarch_model_open(group, argv[1], NULL, &model, &error));
  check(mainarch_tokenizer_from_model(model, &tokenizer, &error));
  options.struct_size = sizeof(options);
  options.max_sequences = (uint32_t)count;
  check(mainarch_engine_create(model, &options, &engine, &error));

  for (i = 0; i < count; ++i) begin(&texts[i], engine, tokenizer, argv[i + 2]);
  while (check(mainarch_engine_step(engine, &error)) == MAINARCH_OK) {
    for (i = 0; i < count; ++i) collect(&texts[i], engine);
  }
  for (i = 0; i < count; ++i) {
    text* t = &texts[i];
    check(mainarch_decoder_finish(t->decoder, t->out + t->length, sizeof(t->out) - t->length,
                                  &length, &error));
    printf("%s%.*s\n", argv[i + 2], (int)(t->length + length), t->out);
    mainarch_decoder_destroy(t->decoder);
  }

  /* In any order: children keep their parents. */
  mainarch_group_destroy(group);
  mainarch_model_destroy(model);
  mainarch_tokenizer_destroy(tokenizer);
  mainarch_engine_destroy(engine);
  return 0;
}
