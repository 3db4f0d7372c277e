/* SPDX-License-Identifier: MIT */
/* Vectors of texts through the C ABI: what is refused, and how; what they are is golden_embed's. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api_test.h"

static t_stack s;
enum { WIDTH = 128, TEXTS = 3 };
static const size_t lengths[TEXTS] = {4, 1, 6};
static const uint32_t tokens[11] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static mainarch_status embed(const mainarch_embed_options* options, float* vectors, size_t capacity, size_t* count) {
  return mainarch_engine_embed(s.engine, tokens, lengths, TEXTS, options, vectors, capacity, count, &t_error);
}

static void vectors_have_a_length_of_one(void) {
  float vectors[TEXTS * WIDTH], one[WIDTH], raw[TEXTS * WIDTH], few[TEXTS * 16];
  size_t count, i, j;
  ZERO(mainarch_embed_options, options);
  OK(embed(NULL, vectors, COUNT_OF(vectors), &count));
  CHECK_EQ(count, TEXTS * WIDTH);
  for (i = 0; i < TEXTS; ++i) {
    double squares = 0;
    for (j = 0; j < WIDTH; ++j) squares += (double)vectors[i * WIDTH + j] * vectors[i * WIDTH + j];
    CHECK(fabs(squares - 1) < 1e-5);
  }
  /* Alone the same bits. */
  OK(mainarch_engine_embed(s.engine, tokens + 5, lengths + 2, 1, NULL, one, WIDTH, &count, &t_error));
  CHECK(memcmp(one, vectors + 2 * WIDTH, sizeof(one)) == 0);
  options.flags = MAINARCH_EMBED_RAW;
  OK(embed(&options, raw, COUNT_OF(raw), &count));
  CHECK(memcmp(raw, vectors, sizeof(raw)) != 0);
  options.flags = MAINARCH_EMBED_NORMALIZE;
  options.pooling = MAINARCH_POOLING_LAST;
  OK(embed(&options, raw, COUNT_OF(raw), &count));
  CHECK(memcmp(raw, vectors, sizeof(raw)) == 0);
  options.pooling = MAINARCH_POOLING_MEAN;
  OK(embed(&options, raw, COUNT_OF(raw), &count));
  CHECK(memcmp(raw, vectors, sizeof(raw)) != 0);
  CHECK(memcmp(raw + WIDTH, vectors + WIDTH, WIDTH * sizeof(float)) == 0); /* of one token */
  options.dimensions = 16;
  OK(embed(&options, few, COUNT_OF(few), &count));
  CHECK_EQ(count, TEXTS * 16);
  OK(mainarch_engine_embed(s.engine, NULL, NULL, 0, NULL, NULL, 0, &count, &t_error));
  CHECK_EQ(count, 0);
}

static void wrong_arguments(void) {
  float vectors[TEXTS * WIDTH];
  size_t count = 7, none[TEXTS] = {4, 0, 6};
  uint32_t outside[2] = {5, T_VOCAB};
  mainarch_engine* engine = NULL;
  ZERO(mainarch_embed_options, options);
  REFUSED(embed(NULL, vectors, COUNT_OF(vectors), NULL), INVALID, "count");
  REFUSED(embed(NULL, NULL, COUNT_OF(vectors), &count), INVALID, "vectors");
  CHECK_EQ(count, 0);
  REFUSED(embed(NULL, vectors, COUNT_OF(vectors) - 1, &count), TOO_SMALL, "vectors");
  CHECK_EQ(count, TEXTS * WIDTH);
  REFUSED(mainarch_engine_embed(engine, tokens, lengths, TEXTS, NULL, vectors, COUNT_OF(vectors), &count, &t_error),
          INVALID, "engine");
  CHECK_EQ(count, 0);
  REFUSED(mainarch_engine_embed(s.engine, tokens, NULL, 1, NULL, vectors, WIDTH, &count, &t_error), INVALID, "lengths");
  REFUSED(mainarch_engine_embed(s.engine, NULL, lengths, 1, NULL, vectors, WIDTH, &count, &t_error), INVALID, "tokens");
  REFUSED(mainarch_engine_embed(s.engine, tokens, none, TEXTS, NULL, vectors, COUNT_OF(vectors), &count, &t_error),
          INVALID, "text 1");
  none[0] = 2;
  REFUSED(mainarch_engine_embed(s.engine, outside, none, 1, NULL, vectors, WIDTH, &count, &t_error), INVALID,
          "2048 at 1");
  none[0] = T_MAX_TOKENS + 1;
  {
    uint32_t* much = calloc(T_MAX_TOKENS + 1, sizeof(uint32_t));
    REFUSED(mainarch_engine_embed(s.engine, much, none, 1, NULL, vectors, WIDTH, &count, &t_error),
            MAINARCH_ERROR_KV_FULL, "2049");
    free(much);
  }
  options.flags = 4;
  REFUSED(embed(&options, vectors, COUNT_OF(vectors), &count), UNSUPPORTED, "options");
  options.flags = MAINARCH_EMBED_NORMALIZE | MAINARCH_EMBED_RAW;
  REFUSED(embed(&options, vectors, COUNT_OF(vectors), &count), INVALID, "both");
  options.flags = 0;
  options.pooling = 4;
  REFUSED(embed(&options, vectors, COUNT_OF(vectors), &count), INVALID, "pooling 4");
  options.pooling = 0;
  options.dimensions = WIDTH + 1;
  REFUSED(embed(&options, vectors, COUNT_OF(vectors), &count), INVALID, "129");
  options.dimensions = 0;
  options.reserved = 1;
  REFUSED(embed(&options, vectors, COUNT_OF(vectors), &count), UNSUPPORTED, "reserved");
  CHECK_EQ(count, 0);
}

/* An engine for vectors samples nothing; one that samples gives no vectors. */
static void each_has_its_use(void) {
  mainarch_engine* engine;
  mainarch_model* model;
  mainarch_sequence sequence;
  t_stack generates;
  float logits[WIDTH], vectors[TEXTS * WIDTH];
  size_t count;
  ZERO(mainarch_sequence_options, options);
  ZERO(mainarch_engine_options, engine_options);
  ZERO(mainarch_model_options, model_options);
  REFUSED(mainarch_sequence_open(s.engine, &options, &sequence, &t_error), INVALID, "vectors");
  options.flags = MAINARCH_SEQUENCE_MANUAL;
  options.prompt_logprobs = 1;
  REFUSED(mainarch_sequence_open(s.engine, &options, &sequence, &t_error), INVALID, "vectors");
  options.prompt_logprobs = 0;
  OK(mainarch_sequence_open(s.engine, &options, &sequence, &t_error));
  OK(mainarch_sequence_append(s.engine, sequence, tokens, 4, &t_error));
  OK(mainarch_engine_step(s.engine, &t_error));
  OK(mainarch_sequence_logits(s.engine, sequence, logits, WIDTH, &count, &t_error));
  CHECK_EQ(count, WIDTH);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
  engine_options.drafts = MAINARCH_DRAFTS_NGRAM;
  REFUSED(mainarch_engine_create(s.model, &engine_options, &engine, &t_error), INVALID, "vectors");
  model_options.flags = MAINARCH_MODEL_EMBED | MAINARCH_MODEL_DRAFT_HEAD;
  REFUSED(mainarch_model_open(s.group, t_checkpoint(), &model_options, &model, &t_error), INVALID, "DRAFT_HEAD");
  OK(t_open(&generates, 1));
  REFUSED(mainarch_engine_embed(generates.engine, tokens, lengths, TEXTS, NULL, vectors, COUNT_OF(vectors), &count,
                                &t_error),
          INVALID, "generate");
  t_close(&generates);
}

static void what_the_checkpoint_says(void) {
  char text[8];
  size_t length = 7;
  ZERO(mainarch_embed_info, info);
  OK(mainarch_model_embed_info_get(s.model, &info, &t_error));
  CHECK_EQ(info.dimensions, WIDTH);
  CHECK_EQ(info.pooling, MAINARCH_POOLING_LAST);
  CHECK(info.normalize == 1 && info.stated == 0 && info.include_prompt == 1 && info.prompt_count == 0);
  CHECK(info.default_prompt[0] == '\0');
  OK(mainarch_model_embed_prompt(s.model, NULL, text, sizeof(text), &length, &t_error));
  CHECK_EQ(length, 0);
  REFUSED(mainarch_model_embed_prompt(s.model, "query", text, sizeof(text), &length, &t_error), NOT_FOUND, "query");
  REFUSED(mainarch_model_embed_prompt(NULL, NULL, text, sizeof(text), &length, &t_error), INVALID, "model");
  REFUSED(mainarch_model_embed_info_get(s.model, NULL, &t_error), INVALID, "out");
  REFUSED(mainarch_model_embed_info_get(NULL, &info, &t_error), INVALID, "model");
}

/* All sequences open: BUSY, and they stay as they were. Others' work runs in the same steps. */
static void beside_other_sequences(void) {
  mainarch_sequence open[4];
  float vectors[TEXTS * WIDTH], again[TEXTS * WIDTH];
  size_t count, i;
  ZERO(mainarch_sequence_options, options);
  ZERO(mainarch_sequence_info, info);
  ZERO(mainarch_engine_statistics, statistics);
  options.flags = MAINARCH_SEQUENCE_MANUAL;
  OK(embed(NULL, vectors, COUNT_OF(vectors), &count));
  for (i = 0; i < 4; ++i) OK(mainarch_sequence_open(s.engine, &options, &open[i], &t_error));
  REFUSED(embed(NULL, again, COUNT_OF(again), &count), MAINARCH_ERROR_BUSY, "4 sequences");
  OK(mainarch_sequence_close(s.engine, open[3], &t_error));
  OK(mainarch_sequence_append(s.engine, open[0], tokens, 3, &t_error));
  OK(embed(NULL, again, COUNT_OF(again), &count));
  CHECK(memcmp(again, vectors, sizeof(vectors)) == 0);
  OK(mainarch_sequence_info_get(s.engine, open[0], &info, &t_error));
  CHECK_EQ(info.pending, 0);
  OK(mainarch_engine_statistics_get(s.engine, &statistics, &t_error));
  CHECK_EQ(statistics.sequences, 3);
  for (i = 0; i < 3; ++i) OK(mainarch_sequence_close(s.engine, open[i], &t_error));
}

static void* cancel_soon(void* done) {
  const struct timespec pause = {0, 1000000};
  while (!__atomic_load_n((int*)done, __ATOMIC_ACQUIRE)) {
    mainarch_engine_cancel(s.engine);
    nanosleep(&pause, NULL);
  }
  return NULL;
}

/* Another thread ends the call; no sequence of it is left. */
static void cancelled(void) {
  enum { MANY = 64, LONG = 1024 };
  uint32_t* much = calloc((size_t)MANY * LONG, sizeof(uint32_t));
  float* vectors = calloc((size_t)MANY * WIDTH, sizeof(float));
  size_t many[MANY], count = 7, i;
  pthread_t thread;
  int done = 0;
  mainarch_status status;
  ZERO(mainarch_engine_statistics, statistics);
  for (i = 0; i < MANY; ++i) many[i] = LONG;
  for (i = 0; i < (size_t)MANY * LONG; ++i) much[i] = (uint32_t)(i * 7919 % 2000);
  CHECK_EQ(pthread_create(&thread, NULL, cancel_soon, &done), 0);
  status = mainarch_engine_embed(s.engine, much, many, MANY, NULL, vectors, (size_t)MANY * WIDTH, &count, &t_error);
  __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  free(much);
  free(vectors);
  CHECK_EQ(status, MAINARCH_ERROR_CANCELLED);
  CHECK_EQ(count, 0);
  OK(mainarch_engine_statistics_get(s.engine, &statistics, &t_error));
  CHECK_EQ(statistics.sequences, 0);
}

int main(int argc, char** argv) {
  static const t_case cases[] = {CASE(vectors_have_a_length_of_one), CASE(wrong_arguments),
                                 CASE(each_has_its_use),             CASE(what_the_checkpoint_says),
                                 CASE(beside_other_sequences),       CASE(cancelled)};
  ZERO(mainarch_model_options, model);
  ZERO(mainarch_engine_options, engine);
  int result;
  model.flags = MAINARCH_MODEL_EMBED;
  engine.max_sequences = 4;
  if (mainarch_group_open("cpu", NULL, &s.group, &t_error) != MAINARCH_OK ||
      mainarch_model_open(s.group, t_checkpoint(), &model, &s.model, &t_error) != MAINARCH_OK ||
      mainarch_engine_create(s.model, &engine, &s.engine, &t_error) != MAINARCH_OK) {
    t_fail(__FILE__, __LINE__, "open: %s", t_error.message);
  }
  result = RUN(cases);
  t_close(&s);
  return result;
}
