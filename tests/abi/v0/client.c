/* SPDX-License-Identifier: MIT */
/*
 * A program as it was built on the first day of soname 0: against the header and the exports that
 * are frozen beside it, with the sizes that structs had then. It calls every function there was.
 * Neither of the three files ever changes; the program must run on every later library of the
 * soname.
 * usage: client CHECKPOINT
 */
#include <mainarch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT "And God said, Let there be"

static mainarch_error error;

static void need(int condition, const char *what, int line) {
  if (condition) return;
  printf("FAIL line %d: %s: %s\n", line, what, error.message);
  exit(1);
}
#define OK(call) need((call) == MAINARCH_OK, #call, __LINE__)
#define IS(call, status) need((call) == (status), #call, __LINE__)
#define CHECK(condition) need((condition), #condition, __LINE__)

static mainarch_group *group;
static mainarch_model *model;
static mainarch_tokenizer *tokenizer, *lone;
static mainarch_decoder *decoder;
static mainarch_engine *engine;
static uint32_t vocab_size;

static int log_lines, progress_calls;
static void log_line(void *user, int32_t level, const char *line) {
  ++*(int *)user;
  CHECK(level >= MAINARCH_LOG_ERROR && line != NULL);
}
static int progress(void *user, uint64_t done, uint64_t total) {
  ++*(int *)user;
  return done > total;
}

static void open_devices(void) {
  mainarch_group_options options = {0};
  mainarch_device_info info = {0};
  options.struct_size = sizeof(options);
  options.flags = MAINARCH_GROUP_IGNORE_ENVIRONMENT;
  options.threads = 1;
  options.log_level = MAINARCH_LOG_DEBUG;
  options.log = log_line;
  options.log_user = &log_lines;
  CHECK(mainarch_version() >> 16 == 0 && strncmp(mainarch_version_string(), "0.", 2) == 0);
  OK(mainarch_group_open("cpu", &options, &group, &error));
  CHECK(mainarch_group_device_count(group) == 1);
  info.struct_size = sizeof(info);
  OK(mainarch_group_device_info_get(group, 0, &info, &error));
  CHECK(info.memory_bytes > 0 && info.name[0] != '\0' && info.isa[0] != '\0');
}

static void open_model(const char *path) {
  mainarch_model_options options = {0};
  mainarch_model_info info = {0};
  mainarch_sequence_options recommended = {0};
  uint32_t ends[8];
  size_t count;
  mainarch_model *none;
  options.struct_size = sizeof(options);
  options.progress = progress;
  options.progress_user = &progress_calls;
  IS(mainarch_model_open(group, "/nowhere", NULL, &none, &error), MAINARCH_ERROR_NOT_FOUND);
  CHECK(none == NULL && error.status == MAINARCH_ERROR_NOT_FOUND && error.message[0] != '\0');
  CHECK(strcmp(mainarch_status_string(error.status), "not found") == 0);
  OK(mainarch_model_open(group, path, &options, &model, &error));
  info.struct_size = sizeof(info);
  OK(mainarch_model_info_get(model, &info, &error));
  CHECK(strcmp(info.architecture, "qwen3_moe") == 0 && info.layers == 5 && info.experts == 16);
  vocab_size = info.vocab_size;
  OK(mainarch_model_end_tokens(model, ends, 8, &count, &error));
  CHECK(count == 2 && ends[0] == 2043 && ends[1] == 2045);
  recommended.struct_size = sizeof(recommended);
  OK(mainarch_model_sequence_options(model, &recommended, &error));
  CHECK(recommended.temperature > 0.59f && recommended.temperature < 0.61f && recommended.top_k == 20);
  CHECK(progress_calls > 0);
}

static void open_tokenizer(const char *path) {
  mainarch_tokenizer_info info = {0};
  mainarch_chat_options options = {0};
  const mainarch_chat_message message = {"user", "hello"};
  uint32_t tokens[64];
  char text[256];
  size_t count, length;
  OK(mainarch_tokenizer_from_model(model, &tokenizer, &error));
  OK(mainarch_tokenizer_open(path, &lone, &error));
  info.struct_size = sizeof(info);
  OK(mainarch_tokenizer_info_get(tokenizer, &info, &error));
  CHECK(info.vocab_size == 2048 && info.eos_token == 2045);
  OK(mainarch_tokenizer_encode(lone, PROMPT, strlen(PROMPT), MAINARCH_ENCODE_NO_SPECIAL, tokens, 64,
                               &count, &error));
  OK(mainarch_tokenizer_decode(tokenizer, tokens, count, MAINARCH_DECODE_SKIP_SPECIAL, text,
                               sizeof(text), &length, &error));
  CHECK(length == strlen(PROMPT) && memcmp(text, PROMPT, length) == 0);
  IS(mainarch_tokenizer_decode(tokenizer, tokens, count, 0, text, 1, &length, &error),
     MAINARCH_ERROR_BUFFER_TOO_SMALL);
  CHECK(length == strlen(PROMPT));
  OK(mainarch_tokenizer_token_text(tokenizer, 2045, text, sizeof(text), &length, &error));
  OK(mainarch_tokenizer_token_id(tokenizer, text, length, &tokens[0], &error));
  CHECK(tokens[0] == 2045);
  OK(mainarch_tokenizer_special_tokens(tokenizer, tokens, 64, &count, &error));
  CHECK(count == 3);
  options.struct_size = sizeof(options);
  options.flags = MAINARCH_CHAT_NO_GENERATION_PROMPT;
  if (info.has_chat) {
    OK(mainarch_tokenizer_render_chat(tokenizer, &message, 1, &options, text, sizeof(text), &length,
                                      &error));
    CHECK(strcmp(text, "<|im_start|>user\nhello<|im_end|>\n") == 0);
  }
  OK(mainarch_decoder_create(tokenizer, 0, &decoder, &error));
}

static void open_engine(void) {
  mainarch_engine_options options = {0};
  mainarch_engine_info info = {0};
  options.struct_size = sizeof(options);
  options.kv_tokens = 1024;
  options.max_sequences = 4;
  options.max_sequence_tokens = 256;
  options.max_step_tokens = 8;
  options.kv_type = MAINARCH_KV_F32;
  OK(mainarch_engine_create(model, &options, &engine, &error));
  info.struct_size = sizeof(info);
  OK(mainarch_engine_info_get(engine, &info, &error));
  CHECK(info.kv_tokens == 1024 && info.max_sequences == 4 && info.kv_type == MAINARCH_KV_F32);
  CHECK(info.max_sequence_tokens == 256 && info.max_step_tokens == 8);
  CHECK(mainarch_engine_event_fd(engine) >= 0);
}

static mainarch_sequence open_sequence(uint64_t flags, uint32_t logprobs) {
  mainarch_sequence_options options = {0};
  const mainarch_logit_bias bias = {7, -1e30f};
  const uint32_t stop = 2046, stop_sequence[2] = {2046, 2047}, two = 2;
  mainarch_sequence sequence;
  uint32_t tokens[64];
  size_t count;
  options.struct_size = sizeof(options);
  options.flags = flags;
  options.logprobs = logprobs;
  options.max_tokens = 12;
  options.stop_tokens = &stop;
  options.stop_token_count = 1;
  options.stop_sequence_tokens = stop_sequence;
  options.stop_sequence_lengths = &two;
  options.stop_sequence_count = 1;
  options.logit_bias = &bias;
  options.logit_bias_count = 1;
  OK(mainarch_sequence_open(engine, &options, &sequence, &error));
  OK(mainarch_tokenizer_encode(tokenizer, PROMPT, strlen(PROMPT), 0, tokens, 64, &count, &error));
  OK(mainarch_sequence_append(engine, sequence, tokens, count, &error));
  return sequence;
}

static uint32_t greatest(const float *logits) {
  uint32_t i, best = 0;
  for (i = 1; i < vocab_size; ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

/* Greedy by the library, by hand, by a fork, and again after a truncation: the same tokens. */
static void generate(void) {
  static float logits[4096];
  const mainarch_sequence sequence = open_sequence(0, 2);
  const mainarch_sequence manual = open_sequence(MAINARCH_SEQUENCE_MANUAL, 0);
  mainarch_sequence copy;
  mainarch_sequence_info info = {0};
  mainarch_engine_statistics statistics = {0};
  mainarch_logprob logprobs[8];
  uint32_t tokens[16], again[16], chosen;
  char text[256];
  size_t count, length, i, at = 0;
  IS(mainarch_engine_wait(engine, 0, &error), MAINARCH_OK); /* none is in flight */
  OK(mainarch_engine_submit(engine, &error));
  OK(mainarch_engine_wait(engine, -1, &error));
  while (mainarch_engine_step(engine, &error) == MAINARCH_OK) continue;
  OK(mainarch_sequence_take(engine, sequence, tokens, 16, &count, &error));
  CHECK(count == 12);
  OK(mainarch_sequence_logprobs(engine, sequence, 11, logprobs, 8, &length, &error));
  CHECK(length == 3 && logprobs[0].token == tokens[11] && logprobs[1].token == tokens[11]);
  info.struct_size = sizeof(info);
  OK(mainarch_sequence_info_get(engine, sequence, &info, &error));
  CHECK(info.finish == MAINARCH_FINISH_MAX_TOKENS && info.produced == 12 && info.untaken == 0);

  for (i = 0; i < 12; ++i) {
    OK(mainarch_sequence_logits(engine, manual, logits, 4096, &length, &error));
    CHECK(length == vocab_size);
    chosen = greatest(logits);
    CHECK(chosen == tokens[i]);
    OK(mainarch_sequence_append(engine, manual, &chosen, 1, &error));
    OK(mainarch_engine_step(engine, &error));
  }
  IS(mainarch_sequence_take(engine, manual, again, 16, &count, &error), MAINARCH_AGAIN);

  OK(mainarch_sequence_truncate(engine, sequence, info.tokens - 12, &error));
  OK(mainarch_sequence_fork(engine, sequence, &copy, &error));
  OK(mainarch_sequence_set_seed(engine, copy, 5, &error));
  while (mainarch_engine_step(engine, &error) == MAINARCH_OK) continue;
  OK(mainarch_sequence_take(engine, copy, again, 16, &count, &error));
  CHECK(count == 12 && memcmp(tokens, again, sizeof(tokens[0]) * 12) == 0);
  mainarch_engine_cancel(engine); /* nothing to cancel */

  for (i = 0; i < 12; ++i) {
    OK(mainarch_decoder_push(decoder, &tokens[i], 1, text + at, sizeof(text) - at, &length, &error));
    at += length;
  }
  OK(mainarch_decoder_finish(decoder, text + at, sizeof(text) - at, &length, &error));
  printf("%s%.*s\n", PROMPT, (int)(at + length), text);
  statistics.struct_size = sizeof(statistics);
  OK(mainarch_engine_statistics_get(engine, &statistics, &error));
  CHECK(statistics.sequences == 3 && statistics.steps > 12 && statistics.tokens_produced >= 24);
  OK(mainarch_sequence_close(engine, copy, &error));
  IS(mainarch_sequence_close(engine, copy, &error), MAINARCH_ERROR_NOT_FOUND);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  open_devices();
  open_model(argv[1]);
  open_tokenizer(argv[1]);
  open_engine();
  generate();
  mainarch_group_destroy(group); /* parents first: children keep them */
  mainarch_model_destroy(model);
  mainarch_tokenizer_destroy(tokenizer);
  mainarch_tokenizer_destroy(lone);
  mainarch_decoder_destroy(decoder);
  mainarch_engine_destroy(engine);
  printf("ok\n");
  return 0;
}
