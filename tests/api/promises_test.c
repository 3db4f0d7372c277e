/* SPDX-License-Identifier: MIT */
/* Sentences of mainarch.h that hold for every function, or between functions, each held to its word. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api_test.h"

enum { kPromptTokens = 24, kPrompts = 3, kWritten = 20 };

static void fill_prompt(uint32_t which, uint32_t* tokens) {
  uint32_t i;
  for (i = 0; i < kPromptTokens; ++i) tokens[i] = 256 + (i * 37 + which * 101) % 1500;
}

/* What an engine is made with, apart from the defaults. */
typedef struct how {
  const char* device;
  uint32_t threads;
  uint64_t model_flags;
  uint32_t step_tokens; /* 0: chosen */
  uint64_t kv_tokens;   /* 0: enough for all */
  int company;          /* another sequence runs beside it */
  int by_fork;          /* the sequence is a fork of one with half of the prompt */
  int by_hit;           /* a closed sequence has left the prompt's beginning */
} how;

typedef struct opened {
  mainarch_group* group;
  mainarch_model* model;
  mainarch_engine* engine;
} opened;

static mainarch_status open_all(const how* h, opened* o) {
  mainarch_group_options group;
  mainarch_model_options model;
  mainarch_engine_options engine;
  mainarch_status status;
  memset(o, 0, sizeof(*o));
  memset(&group, 0, sizeof(group));
  memset(&model, 0, sizeof(model));
  memset(&engine, 0, sizeof(engine));
  group.struct_size = sizeof(group);
  group.flags = MAINARCH_GROUP_IGNORE_ENVIRONMENT;
  group.threads = h->threads;
  model.struct_size = sizeof(model);
  model.flags = h->model_flags;
  engine.struct_size = sizeof(engine);
  engine.max_sequences = 4;
  engine.max_sequence_tokens = 64;
  engine.max_step_tokens = h->step_tokens;
  engine.kv_tokens = h->kv_tokens;
  status = mainarch_group_open(h->device, &group, &o->group, &t_error);
  if (status == MAINARCH_OK) status = mainarch_model_open(o->group, t_checkpoint(), &model, &o->model, &t_error);
  if (status == MAINARCH_OK) status = mainarch_engine_create(o->model, &engine, &o->engine, &t_error);
  return status;
}

static void close_all(opened* o) {
  mainarch_engine_destroy(o->engine);
  mainarch_model_destroy(o->model);
  mainarch_group_destroy(o->group);
}

/* Until nothing has work. */
static mainarch_status run(mainarch_engine* engine) {
  mainarch_status status;
  do {
    status = mainarch_engine_step(engine, &t_error);
  } while (status == MAINARCH_OK);
  return status == MAINARCH_AGAIN ? MAINARCH_OK : status;
}

#define TRY(call)                                   \
  do {                                              \
    const mainarch_status try_ = (call);            \
    if (try_ != MAINARCH_OK) return try_;           \
  } while (0)

/* Logits [T_VOCAB] after the first prompt. */
static mainarch_status logits_of(const how* h, float* logits) {
  uint32_t prompt[kPromptTokens], other[kPromptTokens];
  mainarch_sequence_options manual;
  mainarch_sequence sequence, beside;
  mainarch_engine_statistics statistics;
  size_t count;
  opened o;
  memset(&statistics, 0, sizeof(statistics));
  statistics.struct_size = sizeof(statistics);
  memset(&manual, 0, sizeof(manual));
  manual.struct_size = sizeof(manual);
  manual.flags = MAINARCH_SEQUENCE_MANUAL;
  fill_prompt(0, prompt);
  fill_prompt(1, other);
  TRY(open_all(h, &o));
  TRY(mainarch_sequence_open(o.engine, &manual, &sequence, &t_error));
  if (h->by_hit) {
    TRY(mainarch_sequence_append(o.engine, sequence, prompt, kPromptTokens - 1, &t_error));
    TRY(run(o.engine));
    TRY(mainarch_sequence_close(o.engine, sequence, &t_error));
    TRY(mainarch_sequence_open(o.engine, &manual, &sequence, &t_error));
  }
  if (h->company) {
    TRY(mainarch_sequence_open(o.engine, NULL, &beside, &t_error));
    TRY(mainarch_sequence_append(o.engine, beside, other, 5, &t_error));
  }
  if (h->by_fork) {
    TRY(mainarch_sequence_append(o.engine, sequence, prompt, kPromptTokens / 2, &t_error));
    while (mainarch_engine_step(o.engine, &t_error) == MAINARCH_OK) continue;
    TRY(mainarch_sequence_fork(o.engine, sequence, &sequence, &t_error));
    TRY(mainarch_sequence_append(o.engine, sequence, prompt + kPromptTokens / 2,
                                 kPromptTokens - kPromptTokens / 2, &t_error));
  } else {
    TRY(mainarch_sequence_append(o.engine, sequence, prompt, kPromptTokens, &t_error));
  }
  TRY(run(o.engine));
  TRY(mainarch_sequence_logits(o.engine, sequence, logits, T_VOCAB, &count, &t_error));
  TRY(mainarch_engine_statistics_get(o.engine, &statistics, &t_error));
  if (statistics.prefix_hits != (uint64_t)h->by_hit) return MAINARCH_ERROR_INTERNAL;
  close_all(&o);
  return MAINARCH_OK;
}

/* "The same library, device string, KV type, tokens and seed give the same tokens and logits, bit for bit:
 * whatever else is in the batch, however the prompt was cut into steps, however much of it another sequence
 * had run, however many threads, and after a restart", and "the results are those of cpu, to the bit". */
static void logits_are_the_same_bits(void) {
  static const how all[] = {{"cpu", 1, 0, 0, 0, 0, 0, 0},
                            {"cpu", 2, 0, 0, 0, 0, 0, 0},
                            {"cpu", 2, MAINARCH_MODEL_WAIT, 0, 0, 0, 0, 0},
                            {"cpu", 2, MAINARCH_MODEL_IN_PLACE, 0, 0, 0, 0, 0},
                            {"cpu:2", 2, 0, 0, 0, 0, 0, 0},
                            {"cpu:4", 1, MAINARCH_MODEL_WAIT, 0, 0, 0, 0, 0},
                            {"cpu:8", 2, 0, 0, 0, 0, 0, 0},
                            {"cpu", 2, 0, 1, 0, 0, 0, 0},
                            {"cpu", 2, 0, 7, 0, 0, 0, 0},
                            {"cpu", 2, 0, 0, 0, 1, 0, 0},
                            {"cpu", 2, 0, 5, 0, 1, 0, 0},
                            {"cpu", 2, 0, 0, 0, 0, 1, 0},
                            {"cpu:2", 2, 0, 5, 0, 1, 1, 0},
                            {"cpu", 2, 0, 0, 0, 0, 0, 1},
                            {"cpu", 1, 0, 5, 0, 1, 0, 1},
                            {"cpu:2", 2, 0, 7, 0, 0, 0, 1}};
  static float want[T_VOCAB], got[T_VOCAB];
  size_t i;
  int ends[2], status = 0;
  pid_t child;
  /* Another process: what it finds is not in this one's memory. Before any handle is here. */
  CHECK_EQ(pipe(ends), 0);
  child = fork();
  if (child == 0) {
    const char* at = (const char*)got;
    size_t left = sizeof(got);
    if (logits_of(&all[0], got) != MAINARCH_OK) _exit(1);
    while (left > 0) {
      const ssize_t n = write(ends[1], at, left);
      if (n <= 0) _exit(2);
      at += n;
      left -= (size_t)n;
    }
    _exit(0);
  }
  close(ends[1]);
  for (i = 0; i < sizeof(want);) {
    const ssize_t n = read(ends[0], (char*)want + i, sizeof(want) - i);
    if (n <= 0) break;
    i += (size_t)n;
  }
  close(ends[0]);
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK_EQ(i, sizeof(want));
  for (i = 0; i < COUNT_OF(all); ++i) {
    OK(logits_of(&all[i], got));
    if (memcmp(want, got, sizeof(want)) != 0) t_fail(__FILE__, __LINE__, "case %d differs", (int)i);
  }
}

/* What kPrompts sequences write together. */
static mainarch_status write_all(const how* h, uint32_t (*written)[kWritten]) {
  uint32_t prompt[kPromptTokens], i;
  mainarch_sequence_options options;
  mainarch_sequence sequences[kPrompts];
  size_t count;
  opened o;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.flags = MAINARCH_SEQUENCE_IGNORE_END;
  options.max_tokens = kWritten;
  options.temperature = 0.9f;
  TRY(open_all(h, &o));
  for (i = 0; i < kPrompts; ++i) {
    options.seed = i;
    fill_prompt(i, prompt);
    TRY(mainarch_sequence_open(o.engine, &options, &sequences[i], &t_error));
    TRY(mainarch_sequence_append(o.engine, sequences[i], prompt, kPromptTokens, &t_error));
  }
  TRY(run(o.engine));
  for (i = 0; i < kPrompts; ++i) {
    TRY(mainarch_sequence_take(o.engine, sequences[i], written[i], kWritten, &count, &t_error));
    if (count != kWritten) return MAINARCH_ERROR_INTERNAL;
  }
  close_all(&o);
  return MAINARCH_OK;
}

/* "When they run out, idle sequences lose theirs first, and then the youngest ones; their tokens are run
 * again when their turn comes, with the same results. Nothing is ever lost but time." */
static void too_few_pages_cost_only_time(void) {
  static uint32_t want[kPrompts][kWritten], got[kPrompts][kWritten];
  const how plenty = {"cpu", 2, 0, 0, 0, 0, 0, 0};
  how few = plenty;
  OK(write_all(&plenty, want));
  for (few.kv_tokens = 48; few.kv_tokens <= 112; few.kv_tokens += 16) {
    memset(got, 0, sizeof(got));
    OK(write_all(&few, got));
    CHECK_EQ(memcmp(want, got, sizeof(want)), 0);
  }
}

typedef struct job {
  const how* h;
  uint32_t written[kPrompts][kWritten];
  mainarch_status status;
} job;

/* "Different engines are independent, also on one model." Here: groups and models of their own, at once. */
static void* write_in_thread(void* argument) {
  job* j = argument;
  j->status = write_all(j->h, j->written);
  return NULL;
}

static void stacks_in_threads_are_independent(void) {
  static const how hows[] = {{"cpu", 1, 0, 0, 0, 0, 0, 0}, {"cpu:2", 2, 0, 3, 0, 0, 0, 0}, {"cpu", 2, 0, 0, 64, 0, 0, 0}};
  static job jobs[COUNT_OF(hows)];
  static uint32_t want[kPrompts][kWritten];
  pthread_t threads[COUNT_OF(hows)];
  size_t i;
  OK(write_all(&hows[0], want));
  for (i = 0; i < COUNT_OF(hows); ++i) {
    jobs[i].h = &hows[i];
    CHECK_EQ(pthread_create(&threads[i], NULL, write_in_thread, &jobs[i]), 0);
  }
  for (i = 0; i < COUNT_OF(hows); ++i) pthread_join(threads[i], NULL);
  for (i = 0; i < COUNT_OF(hows); ++i) {
    CHECK_EQ(jobs[i].status, MAINARCH_OK);
    CHECK_EQ(memcmp(jobs[i].written, want, sizeof(want)), 0);
  }
}

/* "when the status is below 0 it is filled [...]; otherwise it is not touched". */
static void only_errors_touch_the_error(void) {
  mainarch_error spoiled;
  uint32_t tokens[kPromptTokens];
  mainarch_sequence sequence;
  size_t count;
  opened o;
  const how h = {"cpu", 1, 0, 0, 0, 0, 0, 0};
  fill_prompt(0, tokens);
  t_spoil_error();
  spoiled = t_error;
  OK(open_all(&h, &o));
  OK(mainarch_sequence_open(o.engine, NULL, &sequence, &t_error));
  STATUS(mainarch_engine_step(o.engine, &t_error), MAINARCH_AGAIN);
  STATUS(mainarch_engine_submit(o.engine, &t_error), MAINARCH_AGAIN);
  STATUS(mainarch_sequence_take(o.engine, sequence, tokens, 1, &count, &t_error), MAINARCH_AGAIN);
  OK(mainarch_sequence_append(o.engine, sequence, tokens, kPromptTokens, &t_error));
  OK(mainarch_engine_submit(o.engine, &t_error));
  OK(mainarch_engine_wait(o.engine, -1, &t_error));
  OK(mainarch_engine_wait(o.engine, 0, &t_error));
  OK(mainarch_sequence_take(o.engine, sequence, tokens, 1, &count, &t_error));
  OK(mainarch_sequence_close(o.engine, sequence, &t_error));
  CHECK_EQ(memcmp(&spoiled, &t_error, sizeof(spoiled)), 0);
  close_all(&o);
}

/* "A call that fails has changed nothing." */
static void failed_calls_change_nothing(void) {
  mainarch_sequence_info before, after;
  mainarch_sequence_options options;
  mainarch_sequence sequence, none = 77;
  uint32_t tokens[kPromptTokens];
  size_t count = 77;
  opened o;
  const how h = {"cpu", 1, 0, 0, 0, 0, 0, 0};
  fill_prompt(0, tokens);
  memset(&before, 0, sizeof(before));
  before.struct_size = sizeof(before);
  after = before;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.top_p = -1;
  OK(open_all(&h, &o));
  OK(mainarch_sequence_open(o.engine, NULL, &sequence, &t_error));
  OK(mainarch_sequence_append(o.engine, sequence, tokens, 10, &t_error));
  OK(mainarch_engine_step(o.engine, &t_error));
  OK(mainarch_sequence_info_get(o.engine, sequence, &before, &t_error));
  tokens[7] = T_VOCAB; /* the others are good */
  REFUSED(mainarch_sequence_append(o.engine, sequence, tokens, 10, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "2048");
  REFUSED(mainarch_sequence_truncate(o.engine, sequence, before.tokens + 1, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "");
  REFUSED(mainarch_sequence_take(o.engine, sequence, NULL, 0, &count, &t_error),
          MAINARCH_ERROR_BUFFER_TOO_SMALL, "");
  CHECK_EQ(count, 1);
  REFUSED(mainarch_sequence_open(o.engine, &options, &none, &t_error), MAINARCH_ERROR_INVALID_ARGUMENT, "top_p");
  CHECK_EQ(none, 0);
  OK(mainarch_sequence_info_get(o.engine, sequence, &after, &t_error));
  CHECK_EQ(memcmp(&before, &after, sizeof(before)), 0);
  close_all(&o);
}

/* "An id of a sequence that was closed, or of another engine, is NOT_FOUND. 0 is never an id." */
static void ids_are_of_one_engine(void) {
  mainarch_sequence first, second;
  opened a, b;
  const how h = {"cpu", 1, 0, 0, 0, 0, 0, 0};
  int i;
  OK(open_all(&h, &a));
  OK(open_all(&h, &b));
  for (i = 0; i < 8; ++i) { /* places are used again */
    OK(mainarch_sequence_open(a.engine, NULL, &first, &t_error));
    OK(mainarch_sequence_open(b.engine, NULL, &second, &t_error));
    CHECK(first != 0 && second != 0);
    REFUSED(mainarch_sequence_set_seed(b.engine, first, 1, &t_error), MAINARCH_ERROR_NOT_FOUND, "");
    REFUSED(mainarch_sequence_set_seed(a.engine, second, 1, &t_error), MAINARCH_ERROR_NOT_FOUND, "");
    REFUSED(mainarch_sequence_close(a.engine, 0, &t_error), MAINARCH_ERROR_NOT_FOUND, "");
    OK(mainarch_sequence_close(a.engine, first, &t_error));
    REFUSED(mainarch_sequence_set_seed(a.engine, first, 1, &t_error), MAINARCH_ERROR_NOT_FOUND, "");
    OK(mainarch_sequence_close(b.engine, second, &t_error));
  }
  close_all(&a);
  close_all(&b);
}

/* "Each number is exact". */
static void statistics_are_exact(void) {
  mainarch_engine_statistics now;
  mainarch_engine_info info;
  mainarch_sequence_options options;
  mainarch_sequence sequence, idle;
  uint32_t tokens[kPromptTokens];
  opened o;
  const how h = {"cpu", 1, 0, 0, 0, 0, 0, 0};
  fill_prompt(0, tokens);
  memset(&now, 0, sizeof(now));
  memset(&info, 0, sizeof(info));
  memset(&options, 0, sizeof(options));
  now.struct_size = sizeof(now);
  info.struct_size = sizeof(info);
  options.struct_size = sizeof(options);
  options.flags = MAINARCH_SEQUENCE_IGNORE_END;
  options.max_tokens = 5;
  OK(open_all(&h, &o));
  OK(mainarch_engine_info_get(o.engine, &info, &t_error));
  OK(mainarch_sequence_open(o.engine, NULL, &idle, &t_error));
  OK(mainarch_sequence_open(o.engine, &options, &sequence, &t_error));
  OK(mainarch_sequence_append(o.engine, sequence, tokens, kPromptTokens, &t_error));
  OK(mainarch_engine_statistics_get(o.engine, &now, &t_error));
  CHECK(now.steps == 0 && now.tokens_run == 0 && now.tokens_produced == 0 && now.sequences == 2);
  CHECK_EQ(now.kv_tokens_free, info.kv_tokens);
  OK(run(o.engine));
  OK(mainarch_engine_statistics_get(o.engine, &now, &t_error));
  CHECK_EQ(now.steps, 5);           /* the prompt's gives the first token */
  CHECK_EQ(now.tokens_produced, 5); /* of which the last is not run */
  CHECK_EQ(now.tokens_run, kPromptTokens + 4);
  CHECK_EQ(now.kv_tokens_free, info.kv_tokens - 32); /* 28 tokens, in pages of 16 */
  CHECK(now.step_ns_last > 0);
  STATUS(mainarch_engine_step(o.engine, &t_error), MAINARCH_AGAIN); /* no step that ended */
  OK(mainarch_sequence_close(o.engine, sequence, &t_error));
  OK(mainarch_engine_statistics_get(o.engine, &now, &t_error));
  CHECK(now.steps == 5 && now.sequences == 1 && now.kv_tokens_free == info.kv_tokens);
  close_all(&o);
}

/* "Those of a manual sequence stay until it is appended to or truncated, those of others until the next
 * step." */
static void logits_stay_as_long_as_they_are_said_to(void) {
  static float first[T_VOCAB], again[T_VOCAB];
  mainarch_sequence_options options;
  mainarch_sequence manual, other;
  uint32_t tokens[kPromptTokens];
  size_t count;
  opened o;
  const how h = {"cpu", 1, 0, 0, 0, 0, 0, 0};
  fill_prompt(0, tokens);
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.flags = MAINARCH_SEQUENCE_MANUAL;
  OK(open_all(&h, &o));
  OK(mainarch_sequence_open(o.engine, &options, &manual, &t_error));
  options.flags = MAINARCH_SEQUENCE_IGNORE_END;
  OK(mainarch_sequence_open(o.engine, &options, &other, &t_error));
  REFUSED(mainarch_sequence_logits(o.engine, manual, first, T_VOCAB, &count, &t_error), MAINARCH_ERROR_BUSY, "");
  OK(mainarch_sequence_append(o.engine, manual, tokens, 9, &t_error));
  REFUSED(mainarch_sequence_logits(o.engine, manual, first, T_VOCAB, &count, &t_error), MAINARCH_ERROR_BUSY, "9");
  OK(mainarch_engine_step(o.engine, &t_error));
  OK(mainarch_sequence_logits(o.engine, manual, first, T_VOCAB, &count, &t_error));
  OK(mainarch_sequence_append(o.engine, other, tokens, 5, &t_error));
  OK(mainarch_engine_step(o.engine, &t_error));
  OK(mainarch_sequence_logits(o.engine, other, again, T_VOCAB, &count, &t_error));
  OK(mainarch_engine_step(o.engine, &t_error));
  OK(mainarch_sequence_logits(o.engine, manual, again, T_VOCAB, &count, &t_error));
  CHECK_EQ(memcmp(first, again, sizeof(first)), 0);
  OK(mainarch_sequence_append(o.engine, manual, tokens, 1, &t_error));
  REFUSED(mainarch_sequence_logits(o.engine, manual, again, T_VOCAB, &count, &t_error), MAINARCH_ERROR_BUSY, "");
  /* Back to nine tokens, the last of which is run again: the same bits. */
  OK(mainarch_sequence_truncate(o.engine, manual, 9, &t_error));
  REFUSED(mainarch_sequence_logits(o.engine, manual, again, T_VOCAB, &count, &t_error), MAINARCH_ERROR_BUSY, "");
  OK(mainarch_engine_step(o.engine, &t_error));
  OK(mainarch_sequence_logits(o.engine, manual, again, T_VOCAB, &count, &t_error));
  CHECK_EQ(memcmp(first, again, sizeof(first)), 0);
  close_all(&o);
}

/* "Clears the finish reason; min_tokens, max_tokens and stop sequences count from here on." */
static void an_append_counts_anew(void) {
  mainarch_sequence_options options;
  mainarch_sequence_info info;
  mainarch_sequence sequence;
  uint32_t tokens[kPromptTokens];
  size_t count;
  opened o;
  const how h = {"cpu", 1, 0, 0, 0, 0, 0, 0};
  int turn;
  fill_prompt(0, tokens);
  memset(&options, 0, sizeof(options));
  memset(&info, 0, sizeof(info));
  options.struct_size = sizeof(options);
  info.struct_size = sizeof(info);
  options.flags = MAINARCH_SEQUENCE_IGNORE_END;
  options.max_tokens = 4;
  OK(open_all(&h, &o));
  OK(mainarch_sequence_open(o.engine, &options, &sequence, &t_error));
  for (turn = 1; turn <= 3; ++turn) {
    OK(mainarch_sequence_append(o.engine, sequence, tokens, 3, &t_error));
    OK(mainarch_sequence_info_get(o.engine, sequence, &info, &t_error));
    CHECK_EQ(info.finish, MAINARCH_FINISH_NONE);
    OK(run(o.engine));
    OK(mainarch_sequence_info_get(o.engine, sequence, &info, &t_error));
    CHECK_EQ(info.finish, MAINARCH_FINISH_MAX_TOKENS);
    CHECK(info.produced == 4u * (unsigned)turn && info.tokens == 7u * (unsigned)turn && info.untaken == 4);
    OK(mainarch_sequence_take(o.engine, sequence, tokens + 4, 8, &count, &t_error));
    CHECK_EQ(count, 4);
    STATUS(mainarch_sequence_take(o.engine, sequence, tokens + 4, 8, &count, &t_error), MAINARCH_AGAIN);
  }
  close_all(&o);
}

/* "Inputs are copied, and may go when the call returns." */
static void inputs_are_copied(void) {
  static const uint32_t kStop = 300;
  char* path = strdup(t_checkpoint());
  char* device = strdup("cpu");
  uint32_t* stop = malloc(sizeof(*stop));
  uint32_t* tokens = malloc(kPromptTokens * sizeof(*tokens));
  mainarch_logit_bias* bias = malloc(sizeof(*bias));
  mainarch_sequence_options options;
  mainarch_group* group;
  mainarch_model* model;
  mainarch_engine* engine;
  mainarch_sequence sequence;
  mainarch_sequence_info info;
  uint32_t got = 0;
  size_t count;
  memset(&options, 0, sizeof(options));
  memset(&info, 0, sizeof(info));
  options.struct_size = sizeof(options);
  info.struct_size = sizeof(info);
  CHECK(path != NULL && device != NULL && stop != NULL && tokens != NULL && bias != NULL);
  OK(mainarch_group_open(device, NULL, &group, &t_error));
  memset(device, 'x', 3);
  free(device);
  OK(mainarch_model_open(group, path, NULL, &model, &t_error));
  memset(path, 'x', strlen(path));
  free(path);
  OK(mainarch_engine_create(model, NULL, &engine, &t_error));
  *stop = kStop;
  bias->token = kStop; /* so it is the first that is written */
  bias->bias = 1e30f;
  options.stop_tokens = stop;
  options.stop_token_count = 1;
  options.logit_bias = bias;
  options.logit_bias_count = 1;
  OK(mainarch_sequence_open(engine, &options, &sequence, &t_error));
  memset(stop, 0xFF, sizeof(*stop));
  memset(bias, 0xFF, sizeof(*bias));
  memset(&options, 0xFF, sizeof(options));
  free(stop);
  free(bias);
  fill_prompt(0, tokens);
  OK(mainarch_sequence_append(engine, sequence, tokens, kPromptTokens, &t_error));
  memset(tokens, 0xFF, kPromptTokens * sizeof(*tokens));
  free(tokens);
  OK(run(engine));
  OK(mainarch_sequence_take(engine, sequence, &got, 1, &count, &t_error));
  CHECK(count == 1 && got == kStop);
  OK(mainarch_sequence_info_get(engine, sequence, &info, &t_error));
  CHECK_EQ(info.finish, MAINARCH_FINISH_STOP_TOKEN);
  mainarch_engine_destroy(engine);
  mainarch_model_destroy(model);
  mainarch_group_destroy(group);
}

typedef struct watch {
  pthread_t caller;
  int elsewhere, lines, calls, backwards;
  uint64_t done, total;
} watch;

static void note_line(void* user, int32_t level, const char* line) {
  watch* w = user;
  (void)level, (void)line;
  ++w->lines;
  if (!pthread_equal(pthread_self(), w->caller)) ++w->elsewhere;
}

static int note_progress(void* user, uint64_t done, uint64_t total) {
  watch* w = user;
  if (!pthread_equal(pthread_self(), w->caller)) ++w->elsewhere;
  if (done < w->done || done > total || (w->calls > 0 && total != w->total)) ++w->backwards;
  w->done = done;
  w->total = total;
  ++w->calls;
  return 0;
}

/* "both called on the thread that is in a call of the library, never on one of the library's own"; progress
 * "implies MODEL_WAIT". */
static void callbacks_come_on_the_callers_thread(void) {
  mainarch_group_options group_options;
  mainarch_model_options model_options;
  mainarch_model_info info;
  uint32_t tokens[kPromptTokens];
  int with_progress;
  memset(&group_options, 0, sizeof(group_options));
  memset(&model_options, 0, sizeof(model_options));
  memset(&info, 0, sizeof(info));
  group_options.struct_size = sizeof(group_options);
  model_options.struct_size = sizeof(model_options);
  info.struct_size = sizeof(info);
  fill_prompt(0, tokens);
  for (with_progress = 0; with_progress < 2; ++with_progress) {
    mainarch_group* group;
    mainarch_model* model;
    mainarch_engine* engine;
    mainarch_sequence sequence;
    watch w;
    memset(&w, 0, sizeof(w));
    w.caller = pthread_self();
    group_options.log = note_line;
    group_options.log_user = &w;
    group_options.log_level = MAINARCH_LOG_DEBUG;
    group_options.threads = 2;
    model_options.progress = with_progress ? note_progress : NULL;
    model_options.progress_user = &w;
    OK(mainarch_group_open("cpu", &group_options, &group, &t_error));
    OK(mainarch_model_open(group, t_checkpoint(), &model_options, &model, &t_error));
    OK(mainarch_model_info_get(model, &info, &t_error));
    if (with_progress) {
      CHECK_EQ(info.moved_bytes, info.move_bytes);
      CHECK(w.calls > 1 && w.backwards == 0 && w.done == w.total && w.total == info.move_bytes);
    }
    OK(mainarch_engine_create(model, NULL, &engine, &t_error));
    OK(mainarch_sequence_open(engine, NULL, &sequence, &t_error));
    OK(mainarch_sequence_append(engine, sequence, tokens, kPromptTokens, &t_error));
    OK(mainarch_engine_submit(engine, &t_error));
    OK(mainarch_engine_wait(engine, -1, &t_error));
    OK(mainarch_engine_step(engine, &t_error));
    mainarch_engine_destroy(engine);
    mainarch_model_destroy(model);
    mainarch_group_destroy(group);
    CHECK(w.lines > 0);
    CHECK_EQ(w.elsewhere, 0);
  }
}

/* "MAINARCH_LOG: in place of log_level", read "by mainarch_group_open, unless its flags say not to". */
static void the_environment_goes_before_the_log_level(void) {
  static const struct {
    const char* variable;
    int32_t level;
    uint64_t flags;
    int lines;
  } cases[] = {{"error", MAINARCH_LOG_DEBUG, 0, 0},
               {"info", MAINARCH_LOG_ERROR, 0, 1},
               {"error", MAINARCH_LOG_DEBUG, MAINARCH_GROUP_IGNORE_ENVIRONMENT, 1},
               {"info", MAINARCH_LOG_ERROR, MAINARCH_GROUP_IGNORE_ENVIRONMENT, 0}};
  size_t i;
  for (i = 0; i < COUNT_OF(cases); ++i) {
    mainarch_group_options options;
    mainarch_group* group;
    watch w;
    memset(&w, 0, sizeof(w));
    w.caller = pthread_self();
    memset(&options, 0, sizeof(options));
    options.struct_size = sizeof(options);
    options.log = note_line;
    options.log_user = &w;
    options.log_level = cases[i].level;
    options.flags = cases[i].flags;
    setenv("MAINARCH_LOG", cases[i].variable, 1);
    OK(mainarch_group_open("cpu", &options, &group, &t_error));
    setenv("MAINARCH_LOG", "no such level", 1); /* read once: what comes later is nothing */
    mainarch_group_destroy(group);
    unsetenv("MAINARCH_LOG");
    CHECK_EQ(w.lines, cases[i].lines);
  }
}

int main(int argc, char** argv) {
  static const t_case cases[] = {CASE(logits_are_the_same_bits), /* first: it forks */
                                 CASE(too_few_pages_cost_only_time),
                                 CASE(stacks_in_threads_are_independent),
                                 CASE(only_errors_touch_the_error),
                                 CASE(failed_calls_change_nothing),
                                 CASE(ids_are_of_one_engine),
                                 CASE(statistics_are_exact),
                                 CASE(logits_stay_as_long_as_they_are_said_to),
                                 CASE(an_append_counts_anew),
                                 CASE(inputs_are_copied),
                                 CASE(callbacks_come_on_the_callers_thread),
                                 CASE(the_environment_goes_before_the_log_level)};
  return RUN(cases);
}
