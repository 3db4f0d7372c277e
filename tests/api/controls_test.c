/* SPDX-License-Identifier: MIT */
/* What a program steers sequences with between steps: options, masks, stop strings, the ready list. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api_test.h"

enum { N = 24, WORDS = T_VOCAB / 32 };

static t_stack s;
static const char kPrompt[] = "And God said, Let there be";

static mainarch_sequence_options zero_options(void) {
  mainarch_sequence_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.max_tokens = N;
  return options;
}

static mainarch_status open_prompt(const mainarch_sequence_options* options,
                                   mainarch_sequence* out) {
  uint32_t tokens[256];
  size_t count;
  mainarch_status status = mainarch_sequence_open(s.engine, options, out, &t_error);
  if (status != MAINARCH_OK) return status;
  status = mainarch_tokenizer_encode(s.tokenizer, kPrompt, strlen(kPrompt), 0, tokens, 256, &count,
                                     &t_error);
  if (status != MAINARCH_OK) return status;
  return mainarch_sequence_append(s.engine, *out, tokens, count, &t_error);
}

/* Steps until there is no work, then takes all. */
static mainarch_status run(mainarch_sequence sequence, uint32_t* tokens, size_t* count) {
  mainarch_status status;
  do {
    status = mainarch_engine_step(s.engine, &t_error);
  } while (status == MAINARCH_OK);
  if (status != MAINARCH_AGAIN) return status;
  return mainarch_sequence_take(s.engine, sequence, tokens, N, count, &t_error);
}

static mainarch_sequence_info info_of(mainarch_sequence sequence) {
  mainarch_sequence_info info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  if (mainarch_sequence_info_get(s.engine, sequence, &info, &t_error) != MAINARCH_OK) {
    info.finish = UINT32_MAX;
  }
  return info;
}

/* At once, whatever the machine has: 2^33 tokens would be terabytes. */
static void memory_is_budgeted(void) {
  mainarch_engine_options options;
  mainarch_engine_info info;
  mainarch_engine* engine;
  uint64_t all;
  memset(&options, 0, sizeof(options));
  memset(&info, 0, sizeof(info));
  options.struct_size = sizeof(options);
  info.struct_size = sizeof(info);
  options.kv_tokens = UINT64_C(1) << 33;
  REFUSED(mainarch_engine_create(s.model, &options, &engine, &t_error),
          MAINARCH_ERROR_OUT_OF_DEVICE_MEMORY, "kv_tokens 8589934592");
  options.kv_tokens = 0;
  options.max_sequences = 4;
  OK(mainarch_engine_create(s.model, &options, &engine, &t_error));
  OK(mainarch_engine_info_get(engine, &info, &t_error));
  mainarch_engine_destroy(engine);
  CHECK_EQ(info.kv_tokens, 4 * T_MAX_TOKENS);
  all = info.memory_bytes;
  options.memory_bytes = all - all / 8;
  OK(mainarch_engine_create(s.model, &options, &engine, &t_error));
  OK(mainarch_engine_info_get(engine, &info, &t_error));
  mainarch_engine_destroy(engine);
  CHECK(info.kv_tokens > 0 && info.kv_tokens < 4 * T_MAX_TOKENS);
  CHECK(info.memory_bytes <= options.memory_bytes);
  options.kv_tokens = 4 * T_MAX_TOKENS;
  REFUSED(mainarch_engine_create(s.model, &options, &engine, &t_error),
          MAINARCH_ERROR_OUT_OF_DEVICE_MEMORY, "memory_bytes");
  options.memory_bytes = 1;
  options.kv_tokens = 0;
  REFUSED(mainarch_engine_create(s.model, &options, &engine, &t_error),
          MAINARCH_ERROR_OUT_OF_DEVICE_MEMORY, "memory_bytes");
}

static uint32_t greedy[N];
static char text[1024]; /* of greedy */
static size_t text_length;

static void greedy_text(void) {
  const mainarch_sequence_options options = zero_options();
  mainarch_sequence sequence;
  size_t count;
  OK(open_prompt(&options, &sequence));
  OK(run(sequence, greedy, &count));
  CHECK_EQ(count, N);
  OK(mainarch_tokenizer_decode(s.tokenizer, greedy, N, MAINARCH_DECODE_SKIP_SPECIAL, text,
                               sizeof(text), &text_length, &t_error));
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

static void options_change_between_steps(void) {
  mainarch_sequence_options options = zero_options();
  mainarch_sequence sequence;
  uint32_t tokens[N];
  size_t count;
  mainarch_logit_bias bias = {greedy[3], -1e30f};
  OK(open_prompt(&options, &sequence));
  do {
    OK(mainarch_engine_step(s.engine, &t_error));
  } while (info_of(sequence).produced < 3);
  options.temperature = -1;
  REFUSED(mainarch_sequence_set_options(s.engine, sequence, &options, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "temperature -1");
  options.temperature = 0;
  options.flags = MAINARCH_SEQUENCE_MANUAL;
  REFUSED(mainarch_sequence_set_options(s.engine, sequence, &options, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "manual");
  options.flags = 0;
  options.logprobs = 2;
  REFUSED(mainarch_sequence_set_options(s.engine, sequence, &options, &t_error),
          MAINARCH_ERROR_BUSY, "logprobs");
  options.logprobs = 0;
  options.logit_bias = &bias;
  options.logit_bias_count = 1;
  OK(mainarch_sequence_set_options(s.engine, sequence, &options, &t_error));
  OK(run(sequence, tokens, &count));
  CHECK_EQ(count, N);
  CHECK(memcmp(tokens, greedy, 3 * sizeof(tokens[0])) == 0);
  CHECK(tokens[3] != greedy[3]);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
  REFUSED(mainarch_sequence_set_options(s.engine, sequence, &options, &t_error),
          MAINARCH_ERROR_NOT_FOUND, "not open");
}

static void masks_hold_for_one_token(void) {
  const mainarch_sequence_options options = zero_options();
  mainarch_sequence sequence;
  uint32_t words[WORDS] = {0}, tokens[N];
  size_t count, i;
  OK(open_prompt(&options, &sequence));
  memset(words, 0xff, sizeof(words));
  for (i = 0; i < N; ++i) { /* all may come: nothing changes */
    OK(mainarch_sequence_set_mask(s.engine, sequence, words, WORDS, &t_error));
    OK(mainarch_engine_step(s.engine, &t_error));
  }
  OK(run(sequence, tokens, &count));
  CHECK(count == N && memcmp(tokens, greedy, sizeof(greedy)) == 0);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));

  OK(open_prompt(&options, &sequence));
  memset(words, 0, sizeof(words));
  words[1000 / 32] = UINT32_C(1) << 1000 % 32;
  OK(mainarch_sequence_set_mask(s.engine, sequence, words, WORDS, &t_error));
  OK(run(sequence, tokens, &count));
  CHECK(tokens[0] == 1000 && tokens[1] != 1000);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));

  OK(open_prompt(&options, &sequence));
  words[1000 / 32] = 0;
  OK(mainarch_sequence_set_mask(s.engine, sequence, words, WORDS, &t_error));
  REFUSED(run(sequence, tokens, &count), MAINARCH_ERROR_INVALID_ARGUMENT, "mask");
  CHECK_EQ(info_of(sequence).finish, MAINARCH_FINISH_FAULT);
  OK(mainarch_sequence_set_mask(s.engine, sequence, NULL, 0, &t_error));
  OK(mainarch_sequence_truncate(s.engine, sequence, info_of(sequence).tokens, &t_error));
  OK(run(sequence, tokens, &count));
  CHECK(count == N && memcmp(tokens, greedy, sizeof(greedy)) == 0);
  REFUSED(mainarch_sequence_set_mask(s.engine, sequence, NULL, 1, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "words");
  REFUSED(mainarch_sequence_set_mask(s.engine, sequence, greedy, WORDS + 1, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "65 words");
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

/* By the model's tokenizer and by one given, which may be gone by then. */
static void stop_strings_cut_the_text(void) {
  char stop[8] = {0};
  const char* stops[] = {"no such text", stop};
  size_t given, at;
  for (at = 3; at < text_length - 4; at += 7) {
    memcpy(stop, text + at, 3);
    if ((stop[0] & 0xc0) == 0x80 || (text[at + 3] & 0xc0) == 0x80) continue;
    for (given = 0; given < 2; ++given) {
      mainarch_sequence_options options = zero_options();
      mainarch_tokenizer* tokenizer = NULL;
      mainarch_sequence sequence;
      uint32_t tokens[N];
      size_t count, length;
      char shown[1024];
      options.stop_strings = stops;
      options.stop_string_count = 2;
      if (given) OK(mainarch_tokenizer_from_model(s.model, &tokenizer, &t_error));
      options.stop_tokenizer = tokenizer;
      OK(open_prompt(&options, &sequence));
      mainarch_tokenizer_destroy(tokenizer);
      OK(run(sequence, tokens, &count));
      CHECK_EQ(info_of(sequence).finish, MAINARCH_FINISH_STOP_STRING);
      CHECK_EQ(info_of(sequence).text_bytes, strstr(text, stop) - text);
      CHECK(memcmp(tokens, greedy, count * sizeof(tokens[0])) == 0);
      OK(mainarch_tokenizer_decode(s.tokenizer, tokens, count, MAINARCH_DECODE_SKIP_SPECIAL, shown,
                                   sizeof(shown), &length, &t_error));
      CHECK(strstr(shown, stop) != NULL);
      OK(mainarch_sequence_close(s.engine, sequence, &t_error));
    }
  }
}

static void stop_strings_that_are_none(void) {
  mainarch_sequence_options options = zero_options();
  mainarch_sequence sequence;
  const char* stops[] = {"a", NULL, "", "\xff"};
  options.stop_string_count = 1;
  REFUSED(open_prompt(&options, &sequence), MAINARCH_ERROR_INVALID_ARGUMENT, "stop_strings");
  options.stop_strings = stops;
  options.stop_string_count = 2;
  REFUSED(open_prompt(&options, &sequence), MAINARCH_ERROR_INVALID_ARGUMENT, "stop_strings[1] is NULL");
  stops[1] = "b";
  options.stop_string_count = 3;
  REFUSED(open_prompt(&options, &sequence), MAINARCH_ERROR_INVALID_ARGUMENT, "stop_strings[2] is empty");
  stops[2] = "c";
  options.stop_string_count = 4;
  REFUSED(open_prompt(&options, &sequence), MAINARCH_ERROR_INVALID_ARGUMENT, "stop_strings[3]");
}

static void ready_lists_who_has_something(void) {
  mainarch_sequence_options options = zero_options();
  mainarch_sequence first, second, list[4];
  uint32_t tokens[N];
  size_t count, taken;
  options.max_tokens = 1;
  OK(mainarch_engine_ready(s.engine, NULL, 0, &count, &t_error));
  CHECK_EQ(count, 0);
  OK(open_prompt(&options, &first));
  OK(open_prompt(&options, &second));
  while (mainarch_engine_step(s.engine, &t_error) == MAINARCH_OK) {
  }
  REFUSED(mainarch_engine_ready(s.engine, list, 1, &count, &t_error),
          MAINARCH_ERROR_BUFFER_TOO_SMALL, "sequences");
  CHECK_EQ(count, 2);
  OK(mainarch_engine_ready(s.engine, list, 4, &count, &t_error));
  CHECK(count == 2 && list[0] == first && list[1] == second);
  OK(mainarch_sequence_take(s.engine, first, tokens, N, &taken, &t_error));
  OK(mainarch_engine_ready(s.engine, list, 4, &count, &t_error));
  CHECK(count == 1 && list[0] == second);
  OK(mainarch_sequence_close(s.engine, second, &t_error));
  OK(mainarch_engine_ready(s.engine, list, 4, &count, &t_error));
  CHECK_EQ(count, 0);
  OK(mainarch_sequence_close(s.engine, first, &t_error));
  REFUSED(mainarch_engine_ready(NULL, list, 4, &count, &t_error), MAINARCH_ERROR_INVALID_ARGUMENT,
          "engine");
  REFUSED(mainarch_engine_ready(s.engine, NULL, 4, &count, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "sequences");
  REFUSED(mainarch_engine_ready(s.engine, list, 4, NULL, &t_error), MAINARCH_ERROR_INVALID_ARGUMENT,
          "count");
}

/* What goes on elsewhere is what would have gone on here; no byte of it is trusted. */
static void a_sequence_travels(void) {
  mainarch_sequence_options options = zero_options();
  mainarch_sequence sequence, copy, none = 7;
  static unsigned char bytes[16384], changed[16384];
  uint32_t tokens[N], copied[N];
  size_t size, count, i;
  const char* stops[] = {"no such text"};
  options.temperature = 1;
  options.seed = 5;
  options.frequency_penalty = 1;
  options.stop_strings = stops;
  options.stop_string_count = 1;
  OK(open_prompt(&options, &sequence));
  for (i = 0; i < 5; ++i) OK(mainarch_engine_step(s.engine, &t_error));
  OK(mainarch_sequence_take(s.engine, sequence, tokens, 2, &count, &t_error));
  REFUSED(mainarch_sequence_export(s.engine, sequence, NULL, 0, &size, &t_error),
          MAINARCH_ERROR_BUFFER_TOO_SMALL, "bytes");
  CHECK(size > 32 && size <= sizeof(bytes));
  OK(mainarch_sequence_export(s.engine, sequence, bytes, sizeof(bytes), &size, &t_error));
  OK(mainarch_sequence_import(s.engine, bytes, size, &copy, &t_error));
  CHECK_EQ(info_of(copy).tokens, info_of(sequence).tokens);
  CHECK_EQ(info_of(copy).untaken, info_of(sequence).untaken);
  CHECK_EQ(info_of(copy).text_bytes, info_of(sequence).text_bytes);
  OK(run(sequence, tokens, &count));
  CHECK_EQ(count, N - 2);
  OK(mainarch_sequence_take(s.engine, copy, copied, N, &count, &t_error));
  CHECK(count == N - 2 && memcmp(tokens, copied, count * sizeof(tokens[0])) == 0);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
  OK(mainarch_sequence_close(s.engine, copy, &t_error));
  for (i = 0; i < size; ++i) { /* every byte matters, and every one that lacks */
    memcpy(changed, bytes, size);
    changed[i] ^= 0x40;
    CHECK(mainarch_sequence_import(s.engine, changed, size, &none, &t_error) < 0 && none == 0);
    CHECK(mainarch_sequence_import(s.engine, bytes, i, &none, NULL) < 0);
  }
  REFUSED(mainarch_sequence_import(s.engine, NULL, 9, &none, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "bytes");
  REFUSED(mainarch_sequence_export(s.engine, copy, bytes, 9, &size, &t_error),
          MAINARCH_ERROR_NOT_FOUND, "not open");
}

/* With K and V nothing is run again, save the last token; where they are of no use, all is. */
static void a_sequence_travels_with_its_kv(void) {
  mainarch_sequence_options options = zero_options();
  mainarch_engine_options engine_options;
  mainarch_engine_statistics statistics;
  mainarch_engine* engine;
  mainarch_sequence sequence, copy;
  unsigned char* bytes;
  uint32_t tokens[N], copied[N];
  size_t size, plain, count, i, kind;
  options.temperature = 1;
  options.prompt_logprobs = 1;
  memset(&statistics, 0, sizeof(statistics));
  statistics.struct_size = sizeof(statistics);
  OK(open_prompt(&options, &sequence));
  while (info_of(sequence).produced < 4) OK(mainarch_engine_step(s.engine, &t_error));
  REFUSED(mainarch_sequence_export(s.engine, sequence, NULL, 0, &plain, &t_error),
          MAINARCH_ERROR_BUFFER_TOO_SMALL, "bytes");
  REFUSED(mainarch_sequence_export_with(s.engine, sequence, 2, NULL, 0, &size, &t_error),
          MAINARCH_ERROR_UNSUPPORTED, "flags");
  REFUSED(mainarch_sequence_export_with(s.engine, sequence, MAINARCH_EXPORT_KV, NULL, 0, &size,
                                        &t_error),
          MAINARCH_ERROR_BUFFER_TOO_SMALL, "bytes");
  CHECK(size > plain + 1000);
  bytes = malloc(size);
  CHECK(bytes != NULL);
  OK(mainarch_sequence_export_with(s.engine, sequence, MAINARCH_EXPORT_KV, bytes, size, &size,
                                   &t_error));
  for (kind = MAINARCH_KV_BF16; kind <= MAINARCH_KV_F32; ++kind) {
    mainarch_sequence_info info;
    memset(&engine_options, 0, sizeof(engine_options));
    memset(&info, 0, sizeof(info));
    engine_options.struct_size = sizeof(engine_options);
    info.struct_size = sizeof(info);
    engine_options.kv_type = (int32_t)kind;
    OK(mainarch_engine_create(s.model, &engine_options, &engine, &t_error));
    OK(mainarch_sequence_import(engine, bytes, size, &copy, &t_error));
    OK(mainarch_sequence_info_get(engine, copy, &info, &t_error));
    CHECK_EQ(info.position, kind == MAINARCH_KV_BF16 ? info.tokens - 1 : 0);
    if (kind == MAINARCH_KV_BF16) {
      mainarch_logprob top[2];
      OK(mainarch_sequence_prompt_logprobs(engine, copy, 1, top, 2, &count, &t_error));
      while (mainarch_engine_step(engine, &t_error) == MAINARCH_OK) {
      }
      OK(mainarch_engine_statistics_get(engine, &statistics, &t_error));
      CHECK_EQ(statistics.tokens_run, N - 4);
      OK(mainarch_sequence_take(engine, copy, copied, N, &count, &t_error));
      CHECK_EQ(count, N);
    }
    mainarch_engine_destroy(engine);
  }
  OK(run(sequence, tokens, &count));
  CHECK(count == N && memcmp(tokens, copied, sizeof(tokens)) == 0);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
  for (i = 0; i < size; i += 97) { /* no byte goes unseen */
    bytes[i] ^= 1;
    CHECK(mainarch_sequence_import(s.engine, bytes, size, &copy, &t_error) < 0 && copy == 0);
    bytes[i] ^= 1;
  }
  free(bytes);
}

/* Natural logarithm of the softmax, in double. */
static double logprob_of(const float* logits, uint32_t token) {
  double sum = 0, most = logits[0];
  size_t t;
  for (t = 1; t < T_VOCAB; ++t) most = logits[t] > most ? logits[t] : most;
  for (t = 0; t < T_VOCAB; ++t) sum += exp(logits[t] - most);
  return logits[token] - most - log(sum);
}

enum { MAX_PROMPT = 64 };
static float rows[MAX_PROMPT][T_VOCAB]; /* logits after each token of kPrompt */

/* Steps `engine` through the prompt and reads the logits of every row: how many steps it took. */
static size_t read_rows(mainarch_engine* engine, mainarch_sequence sequence, size_t prompt,
                        float (*out)[T_VOCAB]) {
  mainarch_sequence_info info;
  size_t steps = 0, count;
  uint64_t next = 0, p;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  while (next < prompt) {
    if (mainarch_engine_step(engine, &t_error) != MAINARCH_OK) return 0;
    ++steps;
    if (mainarch_sequence_info_get(engine, sequence, &info, &t_error) != MAINARCH_OK) return 0;
    if (info.logit_position != next || info.logit_rows != info.position - next) return 0;
    for (p = next; p < info.position; ++p) {
      if (mainarch_sequence_logits_at(engine, sequence, p, out[p], T_VOCAB, &count, &t_error) !=
              MAINARCH_OK ||
          count != T_VOCAB) {
        return 0;
      }
    }
    next = info.position;
  }
  return steps;
}

static void every_row_has_logits(void) {
  static float others[MAX_PROMPT][T_VOCAB], last[T_VOCAB];
  mainarch_sequence_options options = zero_options();
  mainarch_engine_options engine_options;
  mainarch_engine_info info;
  mainarch_engine* engine;
  mainarch_sequence sequence, copy;
  mainarch_logprob top[4];
  uint32_t prompt[MAX_PROMPT];
  size_t count, n, p;
  OK(mainarch_tokenizer_encode(s.tokenizer, kPrompt, strlen(kPrompt), 0, prompt, MAX_PROMPT, &n,
                               &t_error));
  CHECK(n > 4);
  memset(&engine_options, 0, sizeof(engine_options));
  memset(&info, 0, sizeof(info));
  engine_options.struct_size = sizeof(engine_options);
  info.struct_size = sizeof(info);
  OK(mainarch_engine_create(s.model, &engine_options, &engine, &t_error));
  OK(mainarch_engine_info_get(engine, &info, &t_error));
  CHECK_EQ(info.logit_rows, 1);
  options.flags = MAINARCH_SEQUENCE_ALL_LOGITS;
  options.prompt_logprobs = 3;
  options.max_tokens = 2;
  OK(mainarch_sequence_open(engine, &options, &sequence, &t_error));
  OK(mainarch_sequence_append(engine, sequence, prompt, n, &t_error));
  REFUSED(mainarch_sequence_prompt_logprobs(engine, sequence, 2, top, 4, &count, &t_error),
          MAINARCH_ERROR_BUSY, "position 2");
  CHECK_EQ(read_rows(engine, sequence, n, others), n); /* one row of logits, one row a step */
  mainarch_engine_destroy(engine);

  engine_options.logit_rows = MAX_PROMPT;
  OK(mainarch_engine_create(s.model, &engine_options, &engine, &t_error));
  OK(mainarch_engine_info_get(engine, &info, &t_error));
  CHECK_EQ(info.logit_rows, MAX_PROMPT);
  OK(mainarch_sequence_open(engine, &options, &sequence, &t_error));
  OK(mainarch_sequence_append(engine, sequence, prompt, n, &t_error));
  CHECK_EQ(read_rows(engine, sequence, n, rows), 1);
  CHECK(memcmp(rows, others, n * sizeof(rows[0])) == 0);
  OK(mainarch_sequence_logits(engine, sequence, last, T_VOCAB, &count, &t_error));
  CHECK(memcmp(last, rows[n - 1], sizeof(last)) == 0);
  REFUSED(mainarch_sequence_logits_at(engine, sequence, n, last, T_VOCAB, &count, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "from position 0 on");
  REFUSED(mainarch_sequence_logits_at(engine, sequence, 0, last, T_VOCAB - 1, &count, &t_error),
          MAINARCH_ERROR_BUFFER_TOO_SMALL, "logits");
  CHECK_EQ(count, T_VOCAB);
  for (p = 1; p < n; ++p) {
    OK(mainarch_sequence_prompt_logprobs(engine, sequence, p, top, 4, &count, &t_error));
    CHECK(count == 4 && top[0].token == prompt[p]);
    CHECK(fabs(top[0].logprob - logprob_of(rows[p - 1], prompt[p])) < 1e-4);
    CHECK(fabs(top[1].logprob - logprob_of(rows[p - 1], top[1].token)) < 1e-4);
    CHECK(top[1].logprob >= top[2].logprob && top[2].logprob >= top[3].logprob);
  }
  REFUSED(mainarch_sequence_prompt_logprobs(engine, sequence, 1, top, 3, &count, &t_error),
          MAINARCH_ERROR_BUFFER_TOO_SMALL, "logprobs");
  REFUSED(mainarch_sequence_prompt_logprobs(engine, sequence, 0, top, 4, &count, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "position 0");
  REFUSED(mainarch_sequence_prompt_logprobs(engine, sequence, n, top, 4, &count, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "position");
  OK(mainarch_engine_step(engine, &t_error)); /* decoding: one row, and the prompt's stay scored */
  OK(mainarch_sequence_logits_at(engine, sequence, n, last, T_VOCAB, &count, &t_error));
  OK(mainarch_sequence_prompt_logprobs(engine, sequence, 1, top, 4, &count, &t_error));
  OK(mainarch_sequence_close(engine, sequence, &t_error));
  mainarch_engine_destroy(engine);

  options.flags = 0;
  options.prompt_logprobs = 0;
  OK(open_prompt(&options, &copy));
  REFUSED(mainarch_sequence_logits_at(s.engine, copy, 0, last, T_VOCAB, &count, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "all_logits");
  REFUSED(mainarch_sequence_prompt_logprobs(s.engine, copy, 1, top, 4, &count, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "prompt_logprobs");
  options.prompt_logprobs = 2;
  REFUSED(mainarch_sequence_set_options(s.engine, copy, &options, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "prompt_logprobs");
  options.prompt_logprobs = 33;
  REFUSED(mainarch_sequence_open(s.engine, &options, &sequence, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "prompt_logprobs 33");
  options.prompt_logprobs = 0;
  options.reserved = 1;
  REFUSED(mainarch_sequence_open(s.engine, &options, &sequence, &t_error),
          MAINARCH_ERROR_UNSUPPORTED, "reserved");
  engine_options.reserved = 1;
  REFUSED(mainarch_engine_create(s.model, &engine_options, &engine, &t_error),
          MAINARCH_ERROR_UNSUPPORTED, "reserved");
  OK(mainarch_sequence_close(s.engine, copy, &t_error));
}

static mainarch_engine_statistics statistics_of(const mainarch_engine* engine) {
  mainarch_engine_statistics statistics;
  memset(&statistics, 0, sizeof(statistics));
  statistics.struct_size = sizeof(statistics);
  if (mainarch_engine_statistics_get(engine, &statistics, &t_error) != MAINARCH_OK) {
    statistics.tokens_run = UINT64_MAX;
  }
  return statistics;
}

/* Rows that one token behind `tokens` takes; UINT64_MAX after an error. */
static uint64_t rows_for(mainarch_engine* engine, const uint32_t* tokens, size_t count, uint64_t salt) {
  mainarch_sequence_options options = zero_options();
  const uint64_t before = statistics_of(engine).tokens_run;
  mainarch_sequence sequence;
  mainarch_status status;
  options.max_tokens = 1;
  options.prefix_salt = salt;
  if (mainarch_sequence_open(engine, &options, &sequence, &t_error) != MAINARCH_OK) return UINT64_MAX;
  status = mainarch_sequence_append(engine, sequence, tokens, count, &t_error);
  while (status == MAINARCH_OK) status = mainarch_engine_step(engine, &t_error);
  if (status != MAINARCH_AGAIN) return UINT64_MAX;
  if (mainarch_sequence_close(engine, sequence, &t_error) != MAINARCH_OK) return UINT64_MAX;
  return statistics_of(engine).tokens_run - before;
}

static void beginnings_are_found(void) {
  mainarch_engine_options options;
  mainarch_engine_statistics statistics;
  mainarch_engine* engine;
  uint32_t tokens[100], i;
  size_t pinned;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.kv_tokens = 512;
  options.max_sequence_tokens = 256;
  for (i = 0; i < COUNT_OF(tokens); ++i) tokens[i] = 300 + i;
  OK(mainarch_engine_create(s.model, &options, &engine, &t_error));
  CHECK_EQ(rows_for(engine, tokens, 100, 0), 100);
  CHECK_EQ(rows_for(engine, tokens, 100, 0), 4);
  CHECK_EQ(rows_for(engine, tokens, 100, 9), 100);
  statistics = statistics_of(engine);
  CHECK_EQ(statistics.prefix_hits, 1);
  CHECK_EQ(statistics.prefix_tokens, 96);
  CHECK_EQ(statistics.prefix_held, 192);
  CHECK_EQ(statistics.prefix_evictions, 0);
  CHECK_EQ(statistics.kv_tokens_free, 512);
  OK(mainarch_engine_pin_prefix(engine, tokens, 100, 0, &pinned, &t_error));
  CHECK_EQ(pinned, 96);
  CHECK_EQ(statistics_of(engine).kv_tokens_free, 512 - 96);
  for (i = 1; i < 8; ++i) CHECK_EQ(rows_for(engine, tokens + i, 90, 0), 90);
  CHECK(statistics_of(engine).prefix_evictions > 0);
  CHECK_EQ(rows_for(engine, tokens, 100, 0), 4);
  OK(mainarch_engine_drop_prefix(engine, tokens, 96, 0, &t_error));
  CHECK_EQ(statistics_of(engine).kv_tokens_free, 512);
  CHECK_EQ(rows_for(engine, tokens, 100, 0), 100 - 80);
  OK(mainarch_engine_drop_prefix(engine, NULL, 0, 0, &t_error));
  CHECK_EQ(statistics_of(engine).prefix_held, 0);
  mainarch_engine_destroy(engine);

  options.flags = MAINARCH_ENGINE_NO_PREFIX_CACHE;
  OK(mainarch_engine_create(s.model, &options, &engine, &t_error));
  CHECK_EQ(rows_for(engine, tokens, 100, 0), 100);
  CHECK_EQ(rows_for(engine, tokens, 100, 0), 100);
  OK(mainarch_engine_pin_prefix(engine, tokens, 100, 0, &pinned, &t_error));
  CHECK_EQ(pinned, 0);
  mainarch_engine_destroy(engine);

  options.flags = 0;
  options.prefix_bytes = 1;
  OK(mainarch_engine_create(s.model, &options, &engine, &t_error));
  CHECK_EQ(rows_for(engine, tokens, 100, 0), 100);
  CHECK_EQ(statistics_of(engine).prefix_held, 0);
  mainarch_engine_destroy(engine);
}

/* A text that repeats itself: guesses are right now and then, and what is written is the same. */
static void drafts_change_nothing(void) {
  mainarch_engine_options options;
  mainarch_engine_info info;
  mainarch_engine_statistics statistics;
  mainarch_sequence_options sampling = zero_options();
  uint32_t prompt[24], tokens[2][24], i, k;
  uint64_t at = 0, accepted_at = 0;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.max_sequence_tokens = 64;
  for (i = 0; i < COUNT_OF(prompt); ++i) prompt[i] = 300 + i % 4;
  sampling.flags = MAINARCH_SEQUENCE_IGNORE_END;
  sampling.max_tokens = 24;
  for (k = 0; k < 2; ++k) {
    mainarch_engine* engine;
    mainarch_sequence sequence;
    mainarch_status status;
    size_t count;
    options.drafts = k == 0 ? MAINARCH_DRAFTS_OFF : MAINARCH_DRAFTS_AUTO;
    OK(mainarch_engine_create(s.model, &options, &engine, &t_error));
    memset(&info, 0, sizeof(info));
    info.struct_size = sizeof(info);
    OK(mainarch_engine_info_get(engine, &info, &t_error));
    CHECK_EQ(info.drafts, k == 0 ? MAINARCH_DRAFTS_OFF : MAINARCH_DRAFTS_NGRAM);
    CHECK_EQ(info.max_drafts, k == 0 ? 0 : 3);
    OK(mainarch_sequence_open(engine, &sampling, &sequence, &t_error));
    OK(mainarch_sequence_append(engine, sequence, prompt, COUNT_OF(prompt), &t_error));
    do {
      status = mainarch_engine_step(engine, &t_error);
    } while (status == MAINARCH_OK);
    CHECK_EQ(status, MAINARCH_AGAIN);
    OK(mainarch_sequence_take(engine, sequence, tokens[k], 24, &count, &t_error));
    CHECK_EQ(count, 24);
    statistics = statistics_of(engine);
    mainarch_engine_destroy(engine);
  }
  CHECK(memcmp(tokens[0], tokens[1], sizeof(tokens[0])) == 0);
  CHECK(statistics.drafts > 0);
  CHECK(statistics.drafts_accepted <= statistics.drafts);
  CHECK(statistics.drafts_at[0] > 0);
  CHECK_EQ(statistics.drafts_at[3], 0);
  for (i = 0; i < 8; ++i) {
    at += statistics.drafts_at[i];
    accepted_at += statistics.drafts_accepted_at[i];
  }
  CHECK_EQ(at, statistics.drafts);
  CHECK_EQ(accepted_at, statistics.drafts_accepted);
  /* One that is right and the last token of all saves no step. */
  CHECK(statistics.steps + statistics.drafts_accepted - 24 <= 1);
}

int main(int argc, char** argv) {
  static const t_case cases[] = {CASE(greedy_text), /* the first: others compare with it */
                                 CASE(drafts_change_nothing),
                                 CASE(memory_is_budgeted),
                                 CASE(beginnings_are_found),
                                 CASE(options_change_between_steps),
                                 CASE(masks_hold_for_one_token),
                                 CASE(stop_strings_cut_the_text),
                                 CASE(stop_strings_that_are_none),
                                 CASE(ready_lists_who_has_something),
                                 CASE(every_row_has_logits),
                                 CASE(a_sequence_travels_with_its_kv),
                                 CASE(a_sequence_travels)};
  int result;
  if (t_open(&s, 2) != MAINARCH_OK) t_fail(__FILE__, __LINE__, "open: %s", t_error.message);
  if (mainarch_sequence_close(s.engine, s.sequence, &t_error) != MAINARCH_OK) {
    t_fail(__FILE__, __LINE__, "close: %s", t_error.message);
  }
  s.sequence = 0;
  result = RUN(cases);
  t_close(&s);
  return result;
}
