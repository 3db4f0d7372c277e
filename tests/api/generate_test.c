/* SPDX-License-Identifier: MIT */
/* What a program does with the library: text in, text out, by step and by event loop. */
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api_test.h"

enum { N = 24 }; /* tokens to generate */

static t_stack s;

static mainarch_status open_prompt(const mainarch_sequence_options* options, const char* prompt,
                                   mainarch_sequence* out) {
  uint32_t tokens[256];
  size_t count;
  mainarch_status status = mainarch_sequence_open(s.engine, options, out, &t_error);
  if (status != MAINARCH_OK) return status;
  status = mainarch_tokenizer_encode(s.tokenizer, prompt, strlen(prompt), 0, tokens, 256, &count,
                                     &t_error);
  if (status != MAINARCH_OK) return status;
  return mainarch_sequence_append(s.engine, *out, tokens, count, &t_error);
}

/* Steps until there is no work, then takes all. */
static mainarch_status run(mainarch_sequence sequence, uint32_t* tokens, size_t capacity,
                           size_t* count) {
  mainarch_status status;
  do {
    status = mainarch_engine_step(s.engine, &t_error);
  } while (status == MAINARCH_OK);
  if (status != MAINARCH_AGAIN) return status;
  return mainarch_sequence_take(s.engine, sequence, tokens, capacity, count, &t_error);
}

static void zero_options(mainarch_sequence_options* options) {
  memset(options, 0, sizeof(*options));
  options->struct_size = sizeof(*options);
  options->max_tokens = N;
}

static const char kPrompt[] = "And God said, Let there be";
static uint32_t greedy[N];

/* The first test: what the others compare with. */
static void text_comes_out(void) {
  mainarch_sequence_options options;
  mainarch_sequence sequence;
  mainarch_sequence_info info;
  mainarch_engine_statistics statistics;
  char text[1024], pieces[1024];
  size_t count, length, piece, at = 0, i;
  zero_options(&options);
  OK(open_prompt(&options, kPrompt, &sequence));
  OK(run(sequence, greedy, N, &count));
  CHECK_EQ(count, N);
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  OK(mainarch_sequence_info_get(s.engine, sequence, &info, &t_error));
  CHECK_EQ(info.finish, MAINARCH_FINISH_MAX_TOKENS);
  CHECK_EQ(info.produced, N);
  CHECK_EQ(info.untaken, 0);
  STATUS(mainarch_sequence_take(s.engine, sequence, greedy, N, &count, &t_error), MAINARCH_AGAIN);
  OK(mainarch_tokenizer_decode(s.tokenizer, greedy, N, 0, text, sizeof(text), &length, &t_error));
  for (i = 0; i < N; ++i) {
    OK(mainarch_decoder_push(s.decoder, &greedy[i], 1, pieces + at, sizeof(pieces) - at, &piece,
                             &t_error));
    at += piece;
  }
  OK(mainarch_decoder_finish(s.decoder, pieces + at, sizeof(pieces) - at, &piece, &t_error));
  CHECK(at + piece == length && memcmp(text, pieces, length) == 0);
  CHECK(length > N); /* words, mostly */
  memset(&statistics, 0, sizeof(statistics));
  statistics.struct_size = sizeof(statistics);
  OK(mainarch_engine_statistics_get(s.engine, &statistics, &t_error));
  CHECK_EQ(statistics.tokens_produced, N);
  CHECK(statistics.steps >= N && statistics.tokens_run > N && statistics.step_ns_last > 0);
  CHECK_EQ(statistics.sequences, 1);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

static void a_buffer_of_one_takes_one_by_one(void) {
  mainarch_sequence_options options;
  mainarch_sequence sequence;
  uint32_t token;
  size_t count, i;
  zero_options(&options);
  OK(open_prompt(&options, kPrompt, &sequence));
  REFUSED(run(sequence, NULL, 0, &count), MAINARCH_ERROR_BUFFER_TOO_SMALL, "tokens");
  CHECK_EQ(count, N);
  for (i = 0; i < N; ++i) {
    OK(mainarch_sequence_take(s.engine, sequence, &token, 1, &count, &t_error));
    CHECK(count == 1 && token == greedy[i]);
  }
  STATUS(mainarch_sequence_take(s.engine, sequence, &token, 1, &count, &t_error), MAINARCH_AGAIN);
  CHECK_EQ(count, 0);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

/* submit, poll, wait, take: the loop of a server. */
static void event_loop(void) {
  mainarch_sequence_options options;
  mainarch_sequence sequence;
  uint32_t tokens[N];
  size_t count = 0, got = 0;
  struct pollfd poller;
  mainarch_status status;
  const int fd = mainarch_engine_event_fd(s.engine);
  CHECK(fd >= 0);
  zero_options(&options);
  OK(open_prompt(&options, kPrompt, &sequence));
  poller.fd = fd;
  poller.events = POLLIN;
  CHECK_EQ(poll(&poller, 1, 0), 0);
  while ((status = mainarch_engine_submit(s.engine, &t_error)) == MAINARCH_OK) {
    const mainarch_status again = mainarch_engine_submit(s.engine, &t_error);
    CHECK_EQ(again, MAINARCH_ERROR_BUSY);
    STATUS(mainarch_sequence_take(s.engine, sequence, tokens, N, &count, &t_error),
           MAINARCH_ERROR_BUSY);
    CHECK_EQ(poll(&poller, 1, 60000), 1);
    OK(mainarch_engine_wait(s.engine, 0, &t_error));
    CHECK_EQ(poll(&poller, 1, 0), 0); /* wait has put it out */
    status = mainarch_sequence_take(s.engine, sequence, tokens + got, N - got, &count, &t_error);
    if (got < N) CHECK(status == MAINARCH_OK || status == MAINARCH_AGAIN);
    got += count;
    CHECK_EQ(mainarch_engine_event_fd(s.engine), fd);
  }
  CHECK_EQ(status, MAINARCH_AGAIN);
  CHECK(got == N && memcmp(tokens, greedy, sizeof(greedy)) == 0);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

static void wait_times_out(void) {
  mainarch_sequence sequence;
  mainarch_status status;
  int timed_out = 0;
  OK(open_prompt(NULL, kPrompt, &sequence));
  OK(mainarch_engine_submit(s.engine, &t_error));
  while ((status = mainarch_engine_wait(s.engine, 0, &t_error)) == MAINARCH_TIMED_OUT) ++timed_out;
  CHECK_EQ(status, MAINARCH_OK);
  OK(mainarch_engine_wait(s.engine, -1, &t_error));
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

static void seeds_and_forks(void) {
  mainarch_sequence_options options;
  mainarch_sequence a, b;
  uint32_t of_a[N], of_b[N];
  size_t count, i;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  OK(mainarch_model_sequence_options(s.model, &options, &t_error));
  options.max_tokens = N;
  options.temperature = 1.5f;
  options.seed = 42;
  OK(open_prompt(&options, kPrompt, &a));
  OK(mainarch_sequence_fork(s.engine, a, &b, &t_error));
  OK(run(a, of_a, N, &count));
  i = count;
  OK(mainarch_sequence_take(s.engine, b, of_b, N, &count, &t_error));
  CHECK(count == i && memcmp(of_a, of_b, count * sizeof(uint32_t)) == 0);
  CHECK(memcmp(of_a, greedy, sizeof(greedy)) != 0);
  OK(mainarch_sequence_close(s.engine, b, &t_error));

  OK(mainarch_sequence_truncate(s.engine, a, 6, &t_error));
  OK(mainarch_sequence_fork(s.engine, a, &b, &t_error));
  OK(mainarch_sequence_set_seed(s.engine, b, 43, &t_error));
  OK(run(a, of_a, N, &count));
  OK(mainarch_sequence_take(s.engine, b, of_b, N, &count, &t_error));
  CHECK(memcmp(of_a, of_b, sizeof(of_a)) != 0);
  OK(mainarch_sequence_close(s.engine, a, &t_error));
  OK(mainarch_sequence_close(s.engine, b, &t_error));
}

static uint32_t largest(const float* logits) {
  uint32_t best = 0, i;
  for (i = 1; i < T_VOCAB; ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

static void manual_sampling_is_greedy_too(void) {
  static float logits[T_VOCAB];
  mainarch_sequence_options options;
  mainarch_sequence sequence;
  uint32_t token;
  size_t count, i;
  zero_options(&options);
  options.flags = MAINARCH_SEQUENCE_MANUAL;
  OK(open_prompt(&options, kPrompt, &sequence));
  for (i = 0; i < N; ++i) {
    while (mainarch_engine_step(s.engine, &t_error) == MAINARCH_OK) continue;
    REFUSED(mainarch_sequence_logits(s.engine, sequence, logits, T_VOCAB - 1, &count, &t_error),
            MAINARCH_ERROR_BUFFER_TOO_SMALL, "2048");
    CHECK_EQ(count, T_VOCAB);
    OK(mainarch_sequence_logits(s.engine, sequence, logits, T_VOCAB, &count, &t_error));
    token = largest(logits);
    CHECK_EQ(token, greedy[i]);
    OK(mainarch_sequence_append(s.engine, sequence, &token, 1, &t_error));
  }
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

static void logprobs(void) {
  mainarch_sequence_options options;
  mainarch_sequence sequence;
  mainarch_logprob top[6];
  uint32_t tokens[N];
  size_t count, i;
  zero_options(&options);
  options.logprobs = 5;
  OK(open_prompt(&options, kPrompt, &sequence));
  OK(run(sequence, tokens, N, &count));
  for (i = 0; i < N; ++i) {
    REFUSED(mainarch_sequence_logprobs(s.engine, sequence, i, top, 5, &count, &t_error),
            MAINARCH_ERROR_BUFFER_TOO_SMALL, "6");
    OK(mainarch_sequence_logprobs(s.engine, sequence, i, top, 6, &count, &t_error));
    CHECK_EQ(count, 6);
    CHECK(top[0].token == tokens[i] && top[1].token == tokens[i]); /* greedy */
    CHECK(top[0].logprob == top[1].logprob && top[1].logprob <= 0);
    CHECK(top[1].logprob >= top[2].logprob && top[4].logprob >= top[5].logprob);
  }
  REFUSED(mainarch_sequence_logprobs(s.engine, sequence, N, top, 6, &count, &t_error),
          MAINARCH_ERROR_INVALID_ARGUMENT, "24");
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

static void check_finish(mainarch_sequence_options* options, size_t produced, uint32_t finish) {
  mainarch_sequence sequence;
  mainarch_sequence_info info;
  uint32_t tokens[N];
  size_t count;
  OK(open_prompt(options, kPrompt, &sequence));
  OK(run(sequence, tokens, N, &count));
  CHECK_EQ(count, produced);
  CHECK(memcmp(tokens, greedy, count * sizeof(tokens[0])) == 0);
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  OK(mainarch_sequence_info_get(s.engine, sequence, &info, &t_error));
  CHECK_EQ(info.finish, finish);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

/* Where a token stands first. */
static size_t first_of(uint32_t token) {
  size_t i = 0;
  while (greedy[i] != token) ++i;
  return i;
}

/* Where the pair of tokens `at` and the next stands first; where it ends. */
static size_t end_of_pair(size_t at) {
  size_t i = 0;
  while (greedy[i] != greedy[at] || greedy[i + 1] != greedy[at + 1]) ++i;
  return i + 2;
}

static void stops(void) {
  mainarch_sequence_options options;
  uint32_t stops[5], lengths[2] = {3, 2};
  zero_options(&options);
  options.stop_tokens = &greedy[5];
  options.stop_token_count = 1;
  check_finish(&options, first_of(greedy[5]) + 1, MAINARCH_FINISH_STOP_TOKEN);
  options.stop_token_count = 0;
  /* Two stop sequences one after another: the first never comes. */
  stops[0] = stops[1] = stops[2] = T_VOCAB - 1;
  stops[3] = greedy[6];
  stops[4] = greedy[7];
  options.stop_sequence_tokens = stops;
  options.stop_sequence_lengths = lengths;
  options.stop_sequence_count = 2;
  check_finish(&options, end_of_pair(6), MAINARCH_FINISH_STOP_SEQUENCE);
}

static void logit_bias_bans(void) {
  mainarch_sequence_options options;
  mainarch_logit_bias bias;
  mainarch_sequence sequence;
  uint32_t tokens[N];
  size_t count, i;
  zero_options(&options);
  bias.token = greedy[0];
  bias.bias = -INFINITY;
  options.logit_bias = &bias;
  options.logit_bias_count = 1;
  OK(open_prompt(&options, kPrompt, &sequence));
  OK(run(sequence, tokens, N, &count));
  for (i = 0; i < count; ++i) CHECK(tokens[i] != greedy[0]);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

static void chat_answers_and_ends(void) {
  const mainarch_chat_message message = {"user", "Which book is this from? Let there be light."};
  mainarch_tokenizer* tokenizer;
  mainarch_chat_options chat;
  mainarch_sequence_options options;
  mainarch_sequence sequence;
  mainarch_sequence_info info;
  char prompt[1024];
  uint32_t tokens[256];
  size_t length, count;
  memset(&chat, 0, sizeof(chat));
  chat.struct_size = sizeof(chat);
  chat.thinking = MAINARCH_THINKING_OFF;
  OK(mainarch_tokenizer_open(t_checkpoint(), &tokenizer, &t_error));
  OK(mainarch_tokenizer_render_chat(tokenizer, &message, 1, &chat, prompt, sizeof(prompt), &length,
                                    &t_error));
  mainarch_tokenizer_destroy(tokenizer);
  zero_options(&options);
  options.max_tokens = 200;
  OK(open_prompt(&options, prompt, &sequence));
  OK(run(sequence, tokens, 256, &count));
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  OK(mainarch_sequence_info_get(s.engine, sequence, &info, &t_error));
  CHECK_EQ(info.finish, MAINARCH_FINISH_END);
  CHECK_EQ(tokens[count - 1], T_END);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

/* ---- threads */

typedef struct canceller {
  volatile int stop;
  volatile unsigned long calls;
} canceller;

static void* cancel_loop(void* user) {
  canceller* c = user;
  while (!c->stop) {
    mainarch_engine_cancel(s.engine);
    ++c->calls;
  }
  return NULL;
}

/* One sequence from start to end, every second step submitted, while another thread cancels. */
static mainarch_status run_to_end(mainarch_sequence sequence, size_t* cancelled) {
  mainarch_status status = MAINARCH_OK;
  size_t attempts;
  (void)sequence;
  for (attempts = 0; attempts < 200; ++attempts) {
    if (attempts % 2 == 0) {
      status = mainarch_engine_step(s.engine, &t_error);
    } else {
      status = mainarch_engine_submit(s.engine, &t_error);
      if (status == MAINARCH_OK) status = mainarch_engine_wait(s.engine, -1, &t_error);
    }
    if (status == MAINARCH_AGAIN) return status;
    if (status < 0 && status != MAINARCH_ERROR_CANCELLED) return status;
    *cancelled += status == MAINARCH_ERROR_CANCELLED;
  }
  return MAINARCH_OK;
}

/* However many steps are cancelled, and wherever, the tokens are those of a run that none was. */
static void cancel_from_another_thread(void) {
  mainarch_sequence_options options;
  mainarch_sequence sequence;
  uint32_t tokens[N];
  size_t count, cancelled = 0;
  pthread_t thread;
  canceller c = {0, 0};
  mainarch_status status;
  const time_t end = time(NULL) + 60;
  zero_options(&options);
  do { /* on a busy machine the other thread may not run for a while */
    OK(open_prompt(&options, kPrompt, &sequence));
    c.stop = 0;
    CHECK_EQ(pthread_create(&thread, NULL, cancel_loop, &c), 0);
    status = run_to_end(sequence, &cancelled);
    c.stop = 1;
    pthread_join(thread, NULL);
    CHECK(status == MAINARCH_OK || status == MAINARCH_AGAIN);
    while ((status = mainarch_engine_step(s.engine, &t_error)) == MAINARCH_OK) continue;
    CHECK_EQ(status, MAINARCH_AGAIN);
    OK(mainarch_sequence_take(s.engine, sequence, tokens, N, &count, &t_error));
    CHECK(count == N && memcmp(tokens, greedy, sizeof(greedy)) == 0);
    OK(mainarch_sequence_close(s.engine, sequence, &t_error));
  } while (cancelled < 5 && time(NULL) < end);
  CHECK(cancelled >= 5);
}

static void* wait_on_engine(void* user) {
  (void)user;
  return (void*)(intptr_t)mainarch_engine_wait(s.engine, -1, NULL);
}

typedef struct busy_caller {
  volatile int stop;
  volatile unsigned long ok, busy, other;
} busy_caller;

static void* call_engine(void* user) {
  busy_caller* caller = user;
  static mainarch_sequence_info info;
  while (!caller->stop) {
    mainarch_sequence_info mine = info;
    mainarch_status status;
    mine.struct_size = sizeof(mine);
    status = mainarch_sequence_info_get(s.engine, s.sequence, &mine, NULL);
    if (status == MAINARCH_OK)
      ++caller->ok;
    else if (status == MAINARCH_ERROR_BUSY)
      ++caller->busy;
    else
      ++caller->other;
  }
  return NULL;
}

static void a_second_thread_is_busy(void) {
  mainarch_sequence_options options;
  mainarch_sequence sequence;
  uint32_t tokens[N];
  size_t count;
  pthread_t thread, waiter;
  void* waited;
  busy_caller caller;
  mainarch_status status;
  const time_t end = time(NULL) + 60;
  memset(&caller, 0, sizeof(caller));
  zero_options(&options);
  OK(open_prompt(&options, kPrompt, &sequence));
  s.sequence = sequence;
  CHECK_EQ(pthread_create(&thread, NULL, call_engine, &caller), 0);
  do { /* both threads keep calling; each call is whole, or refused */
    status = mainarch_engine_step(s.engine, &t_error);
    CHECK(status == MAINARCH_OK || status == MAINARCH_AGAIN || status == MAINARCH_ERROR_BUSY);
    if (status == MAINARCH_AGAIN) {
      /* The same tokens once more. */
      status = mainarch_sequence_truncate(s.engine, sequence, 3, &t_error);
      CHECK(status == MAINARCH_OK || status == MAINARCH_ERROR_BUSY);
    }
  } while ((caller.busy == 0 || caller.ok == 0) && time(NULL) < end);
  caller.stop = 1;
  pthread_join(thread, NULL);
  CHECK(caller.other == 0 && caller.ok > 0 && caller.busy > 0);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
  OK(open_prompt(&options, kPrompt, &sequence));
  OK(run(sequence, tokens, N, &count));
  CHECK(count == N && memcmp(tokens, greedy, sizeof(greedy)) == 0);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
  /* A step may be waited for on another thread than the one that submitted it. */
  OK(open_prompt(&options, kPrompt, &sequence));
  OK(mainarch_engine_submit(s.engine, &t_error));
  CHECK_EQ(pthread_create(&waiter, NULL, wait_on_engine, NULL), 0);
  pthread_join(waiter, &waited);
  CHECK_EQ((intptr_t)waited, MAINARCH_OK);
  OK(mainarch_sequence_close(s.engine, sequence, &t_error));
}

typedef struct log_lines {
  int lines, wrong;
} log_lines;

static void log_line(void* user, int32_t level, const char* line) {
  log_lines* lines = user;
  ++lines->lines;
  if (level != MAINARCH_LOG_INFO || line[0] == '\0' || strchr(line, '\n') != NULL) ++lines->wrong;
}

static void log_has_whole_lines(void) {
  mainarch_group_options options;
  mainarch_group* group;
  mainarch_model* model;
  log_lines lines = {0, 0};
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.log = log_line;
  options.log_user = &lines;
  OK(mainarch_group_open("cpu:2", &options, &group, &t_error));
  CHECK_EQ(lines.lines, 2);
  OK(mainarch_model_open(group, t_checkpoint(), NULL, &model, &t_error));
  CHECK(lines.lines == 3 && lines.wrong == 0);
  mainarch_model_destroy(model);
  mainarch_group_destroy(group);
  options.log_level = MAINARCH_LOG_WARNING;
  OK(mainarch_group_open("cpu", &options, &group, &t_error));
  mainarch_group_destroy(group);
  CHECK_EQ(lines.lines, 3);
}

int main(int argc, char** argv) {
  static const t_case cases[] = {CASE(text_comes_out),
                                 CASE(a_buffer_of_one_takes_one_by_one),
                                 CASE(event_loop),
                                 CASE(wait_times_out),
                                 CASE(seeds_and_forks),
                                 CASE(manual_sampling_is_greedy_too),
                                 CASE(logprobs),
                                 CASE(stops),
                                 CASE(logit_bias_bans),
                                 CASE(chat_answers_and_ends),
                                 CASE(cancel_from_another_thread),
                                 CASE(a_second_thread_is_busy),
                                 CASE(log_has_whole_lines)};
  int result = 1;
  if (t_open(&s, 2) == MAINARCH_OK) {
    mainarch_status status = mainarch_sequence_close(s.engine, s.sequence, &t_error);
    if (status != MAINARCH_OK) t_fail(__FILE__, __LINE__, "close: %s", t_error.message);
    result = RUN(cases);
  } else {
    t_fail(__FILE__, __LINE__, "open: %s", t_error.message);
  }
  t_close(&s);
  return result;
}
