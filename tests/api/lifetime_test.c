/* SPDX-License-Identifier: MIT */
/* Handles in every order of destruction, what is left in the process, and fork. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api_test.h"
#include "process_state.h"

/* Two threads that compute and a step thread. */
static mainarch_status use(t_stack* s) {
  mainarch_status status = mainarch_engine_step(s->engine, &t_error);
  if (status == MAINARCH_OK) status = mainarch_engine_submit(s->engine, &t_error);
  if (status == MAINARCH_OK) status = mainarch_engine_wait(s->engine, -1, &t_error);
  return status;
}

static void destroy_one(t_stack* s, int which) {
  switch (which) {
    case 0:
      mainarch_group_destroy(s->group);
      return;
    case 1:
      mainarch_model_destroy(s->model);
      return;
    case 2:
      mainarch_tokenizer_destroy(s->tokenizer);
      return;
    case 3:
      mainarch_decoder_destroy(s->decoder);
      return;
    case 4:
      mainarch_engine_destroy(s->engine);
      s->engine = NULL;
      return;
    default: /* a sequence ends with its engine at the latest */
      if (s->engine != NULL) OK(mainarch_sequence_close(s->engine, s->sequence, &t_error));
      return;
  }
}

enum { KINDS = 6 };

/* What is left still works. */
static void check_left(t_stack* s, const int* gone) {
  const uint32_t token = 300;
  char text[64];
  size_t length;
  mainarch_model_info model;
  mainarch_device_info device;
  memset(&model, 0, sizeof(model));
  model.struct_size = sizeof(model);
  memset(&device, 0, sizeof(device));
  device.struct_size = sizeof(device);
  if (!gone[0]) OK(mainarch_group_device_info_get(s->group, 0, &device, &t_error));
  if (!gone[1]) OK(mainarch_model_info_get(s->model, &model, &t_error));
  if (!gone[2]) {
    OK(mainarch_tokenizer_decode(s->tokenizer, &token, 1, 0, text, 64, &length, &t_error));
  }
  if (!gone[3]) OK(mainarch_decoder_push(s->decoder, &token, 1, text, 64, &length, &t_error));
  if (!gone[4]) {
    STATUS(mainarch_engine_step(s->engine, &t_error), gone[5] ? MAINARCH_AGAIN : MAINARCH_OK);
  }
}

static void check_order(const int* order) {
  int gone[KINDS] = {0};
  t_stack s;
  int i;
  OK(t_open_group(&s, 2));
  OK(t_open_rest(&s, MAINARCH_MODEL_IN_PLACE));
  for (i = 0; i < KINDS; ++i) {
    destroy_one(&s, order[i]);
    gone[order[i]] = 1;
    check_left(&s, gone);
  }
}

static int orders_checked;

static void permute(int* order, int at) {
  int i;
  if (at == KINDS) {
    check_order(order);
    ++orders_checked;
    return;
  }
  for (i = at; i < KINDS; ++i) {
    const int swap = order[at];
    order[at] = order[i];
    order[i] = swap;
    permute(order, at + 1);
    order[i] = order[at];
    order[at] = swap;
  }
}

static void every_order_of_destruction(void) {
  int order[KINDS] = {0, 1, 2, 3, 4, 5};
  process_state before, after;
  const char* differs;
  check_order(order);
  process_state_read(&before);
  orders_checked = 0;
  permute(order, 0);
  CHECK_EQ(orders_checked, 720);
  process_state_read(&after);
  differs = process_state_differs(&before, &after);
  if (differs != NULL) t_fail(__FILE__, __LINE__, "%s", differs);
}

/* What was exported stands on nothing: the handles it came from are gone, also with a step in
 * flight, and an engine of another model handle takes it. While a step is in flight there is no
 * export. */
static void an_export_outlives_its_handles(void) {
  process_state before, after;
  const char* differs;
  int round;
  process_state_read(&before);
  for (round = 0; round < 4; ++round) {
    const uint64_t flag = round % 2 == 0 ? 0 : MAINARCH_EXPORT_KV;
    unsigned char* bytes;
    mainarch_sequence copy = 0;
    mainarch_sequence_info held, info;
    size_t size, count;
    t_stack s;
    memset(&held, 0, sizeof(held));
    held.struct_size = sizeof(held);
    info = held;
    OK(t_open_group(&s, 2));
    OK(t_open_rest(&s, MAINARCH_MODEL_IN_PLACE));
    OK(mainarch_engine_step(s.engine, &t_error));
    OK(mainarch_sequence_info_get(s.engine, s.sequence, &held, &t_error));
    REFUSED(mainarch_sequence_export_with(s.engine, s.sequence, flag, NULL, 0, &size, &t_error),
            MAINARCH_ERROR_BUFFER_TOO_SMALL, "bytes");
    bytes = malloc(size);
    CHECK(bytes != NULL);
    OK(mainarch_sequence_export_with(s.engine, s.sequence, flag, bytes, size, &count, &t_error));
    CHECK_EQ(count, size);
    if (round >= 2) {
      OK(mainarch_engine_submit(s.engine, &t_error));
      count = 9;
      REFUSED(mainarch_sequence_export_with(s.engine, s.sequence, flag, bytes, size, &count,
                                            &t_error),
              MAINARCH_ERROR_BUSY, "step");
      CHECK_EQ(count, 0);
    }
    t_close(&s);
    OK(t_open_group(&s, 2));
    OK(t_open_rest(&s, MAINARCH_MODEL_IN_PLACE));
    OK(mainarch_sequence_import(s.engine, bytes, size, &copy, &t_error));
    free(bytes);
    OK(mainarch_sequence_info_get(s.engine, copy, &info, &t_error));
    CHECK_EQ(info.tokens, held.tokens);
    CHECK_EQ(info.position, round % 2 == 1 ? held.tokens - 1 : 0);
    OK(mainarch_engine_step(s.engine, &t_error));
    t_close(&s);
  }
  process_state_read(&after);
  differs = process_state_differs(&before, &after);
  if (differs != NULL) t_fail(__FILE__, __LINE__, "%s", differs);
}

static void destroy_with_a_step_in_flight(void) {
  int i;
  for (i = 0; i < 20; ++i) {
    t_stack s;
    OK(t_open_group(&s, 2));
    OK(t_open_rest(&s, MAINARCH_MODEL_IN_PLACE));
    OK(mainarch_engine_submit(s.engine, &t_error));
    t_close(&s);
  }
}

static void nothing_is_left_behind(void) {
  static process_state before, during, after, later;
  const char* differs;
  t_stack s;
  int i;
  process_state_read(&before);
  OK(t_open(&s, 2));
  OK(use(&s));
  process_state_read(&during);
  CHECK(strstr(during.files, "model.safetensors") != NULL); /* the test sees what it looks for */
  CHECK(strstr(during.fds, "eventfd") != NULL);
  CHECK(strcmp(before.threads, during.threads) != 0);
  CHECK(strcmp(before.signals, during.signals) == 0);
  CHECK(strcmp(before.place, during.place) == 0);
  CHECK(strcmp(before.environment, during.environment) == 0);
  t_close(&s);
  process_state_read(&after);
  differs = process_state_differs(&before, &after);
  if (differs != NULL) t_fail(__FILE__, __LINE__, "%s", differs);
  for (i = 0; i < 10; ++i) {
    OK(t_open(&s, 2));
    OK(use(&s));
    t_close(&s);
  }
  process_state_read(&later);
  differs = process_state_differs(&before, &later);
  if (differs != NULL) t_fail(__FILE__, __LINE__, "%s", differs);
#ifndef __SANITIZE_ADDRESS__ /* which keeps what is freed */
  /* The C library keeps thread stacks and heaps, but no more with each round: 10 of them took at
   * most what one weight copy takes. */
  if (later.anonymous_kb > after.anonymous_kb + 8192) {
    t_fail(__FILE__, __LINE__, "anonymous mappings: %zu kB, then %zu kB", after.anonymous_kb,
           later.anonymous_kb);
  }
#endif
}

/* The kernel's own answer; 0: none. */
static unsigned long long blocked_of(const char* status_path) {
  char line[256];
  unsigned long long blocked = 0;
  FILE* file = fopen(status_path, "re");
  if (file == NULL) return 0;
  while (fgets(line, sizeof(line), file) != NULL && sscanf(line, "SigBlk: %llx", &blocked) != 1) {
  }
  fclose(file);
  return blocked;
}

/* An emulator of a processor blocks signals by itself, and /proc tells of its own masks. */
static int masks_are_told(void) {
  sigset_t all, before;
  unsigned long long blocked;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  blocked = blocked_of("/proc/self/status");
  sigprocmask(SIG_SETMASK, &before, NULL);
  return (blocked | 1ULL << 8 | 1ULL << 18 | 3ULL << 31) == ~0ULL;
}

static void threads_block_all_signals_and_fds_close_on_exec(void) {
  t_stack s;
  char path[64], line[256];
  int fd, threads = 0;
  DIR* directory;
  struct dirent* entry;
  if (!masks_are_told()) {
    t_skip("/proc does not tell what signals a thread blocks: an emulator?");
    return;
  }
  OK(t_open_group(&s, 2));
  OK(t_open_rest(&s, MAINARCH_MODEL_WAIT)); /* else a thread that moves weights may be there */
  OK(use(&s));
  for (fd = 3; fd < 64; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0) continue;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, line, sizeof(line)) > 0 && strncmp(line, "anon_inode:[eventfd]", 20) == 0) {
      CHECK((flags & FD_CLOEXEC) != 0);
    }
  }
  directory = opendir("/proc/self/task");
  CHECK(directory != NULL);
  while ((entry = readdir(directory)) != NULL) {
    if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid()) continue;
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", entry->d_name);
    ++threads;
    /* All but SIGKILL and SIGSTOP, which cannot be, and the two of the C library's own. */
    CHECK_EQ(blocked_of(path) | 1ULL << 8 | 1ULL << 18 | 3ULL << 31, ~0ULL);
  }
  closedir(directory);
  CHECK_EQ(threads, 2);
  t_close(&s);
}

/* ---- fork */

#define WRONG MAINARCH_ERROR_WRONG_PROCESS
#define EXPECT(condition)                        \
  do {                                           \
    if (!(condition)) _exit(__LINE__ % 250 + 1); \
  } while (0)

static void child_after_fork(t_stack* s, mainarch_tokenizer* lone) {
  const mainarch_chat_message message = {"user", "x"};
  mainarch_model* model;
  mainarch_tokenizer* tokenizer;
  mainarch_decoder* decoder;
  mainarch_engine* engine;
  mainarch_sequence sequence;
  mainarch_error error;
  mainarch_logprob logprob;
  struct {
    size_t struct_size;
    char rest[504];
  } info;
  uint32_t token = 1;
  float logit;
  char text[64];
  size_t count;
  t_stack fresh;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
#define GONE(call) EXPECT((call) == WRONG && error.status == WRONG)
  EXPECT(mainarch_group_device_count(s->group) == 0);
  GONE(mainarch_group_device_info_get(s->group, 0, (void*)&info, &error));
  GONE(mainarch_model_open(s->group, t_checkpoint(), NULL, &model, &error));
  GONE(mainarch_model_info_get(s->model, (void*)&info, &error));
  GONE(mainarch_model_end_tokens(s->model, &token, 1, &count, &error));
  GONE(mainarch_model_sequence_options(s->model, (void*)&info, &error));
  GONE(mainarch_tokenizer_from_model(s->model, &tokenizer, &error));
  GONE(mainarch_tokenizer_info_get(s->tokenizer, (void*)&info, &error));
  GONE(mainarch_tokenizer_info_get(lone, (void*)&info, &error));
  GONE(mainarch_tokenizer_encode(s->tokenizer, "a", 1, 0, &token, 1, &count, &error));
  GONE(mainarch_tokenizer_decode(s->tokenizer, &token, 1, 0, text, 64, &count, &error));
  GONE(mainarch_tokenizer_token_text(s->tokenizer, 1, text, 64, &count, &error));
  GONE(mainarch_tokenizer_token_id(s->tokenizer, "a", 1, &token, &error));
  GONE(mainarch_tokenizer_special_tokens(s->tokenizer, &token, 1, &count, &error));
  GONE(mainarch_tokenizer_render_chat(s->tokenizer, &message, 1, NULL, text, 64, &count, &error));
  GONE(mainarch_tokenizer_render_chat_json(s->tokenizer, "{}", 2, text, 64, &count, &error));
  GONE(mainarch_decoder_create(s->tokenizer, 0, &decoder, &error));
  GONE(mainarch_decoder_push(s->decoder, &token, 1, text, 64, &count, &error));
  GONE(mainarch_decoder_finish(s->decoder, text, 64, &count, &error));
  GONE(mainarch_engine_create(s->model, NULL, &engine, &error));
  GONE(mainarch_engine_info_get(s->engine, (void*)&info, &error));
  GONE(mainarch_engine_statistics_get(s->engine, (void*)&info, &error));
  GONE(mainarch_engine_step(s->engine, &error));
  GONE(mainarch_engine_submit(s->engine, &error));
  GONE(mainarch_engine_wait(s->engine, -1, &error));
  EXPECT(mainarch_engine_event_fd(s->engine) == -1);
  mainarch_engine_cancel(s->engine);
  GONE(mainarch_sequence_open(s->engine, NULL, &sequence, &error));
  GONE(mainarch_sequence_close(s->engine, s->sequence, &error));
  GONE(mainarch_sequence_fork(s->engine, s->sequence, &sequence, &error));
  GONE(mainarch_sequence_set_seed(s->engine, s->sequence, 1, &error));
  GONE(mainarch_sequence_truncate(s->engine, s->sequence, 0, &error));
  GONE(mainarch_sequence_append(s->engine, s->sequence, &token, 1, &error));
  GONE(mainarch_sequence_take(s->engine, s->sequence, &token, 1, &count, &error));
  GONE(mainarch_sequence_logprobs(s->engine, s->sequence, 0, &logprob, 1, &count, &error));
  GONE(mainarch_sequence_logits(s->engine, s->sequence, &logit, 1, &count, &error));
  GONE(mainarch_sequence_logits_at(s->engine, s->sequence, 0, &logit, 1, &count, &error));
  GONE(mainarch_sequence_prompt_logprobs(s->engine, s->sequence, 1, &logprob, 1, &count, &error));
  GONE(mainarch_sequence_info_get(s->engine, s->sequence, (void*)&info, &error));
  GONE(mainarch_sequence_export(s->engine, s->sequence, text, 64, &count, &error));
  GONE(mainarch_sequence_export_with(s->engine, s->sequence, MAINARCH_EXPORT_KV, text, 64, &count,
                                     &error));
  GONE(mainarch_sequence_import(s->engine, text, 64, &sequence, &error));
  EXPECT(mainarch_version() != 0);
  EXPECT(t_open(&fresh, 2) == MAINARCH_OK); /* its own works */
  EXPECT(use(&fresh) == MAINARCH_OK);
  t_close(&fresh);
  t_close(s); /* frees memory, waits for nobody */
  mainarch_tokenizer_destroy(lone);
  _exit(0);
}

/* By this a process finds out that it is a child; qemu-user says that it will, and does not. */
static int memory_is_wiped_on_fork(void) {
  int status = 0, wiped;
  pid_t child;
  volatile char* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 1;
  wiped = madvise((void*)page, 4096, MADV_WIPEONFORK) != 0; /* else the library has another way */
  *page = 1;
  if (!wiped && (child = fork()) >= 0) {
    if (child == 0) _exit(*page);
    wiped = waitpid(child, &status, 0) == child && status == 0;
  }
  munmap((void*)page, 4096);
  return wiped;
}

static void check_fork(int in_flight) {
  t_stack s;
  mainarch_tokenizer* lone;
  pid_t child;
  int status = 0;
  if (!memory_is_wiped_on_fork()) {
    t_skip("memory is not wiped on fork (MADV_WIPEONFORK): an emulator?");
    return;
  }
  OK(t_open(&s, 2));
  OK(use(&s));
  OK(mainarch_tokenizer_open(t_checkpoint(), &lone, &t_error));
  if (in_flight) OK(mainarch_engine_submit(s.engine, &t_error));
  fflush(stdout);
  child = fork();
  if (child == 0) {
    alarm(60);
    child_after_fork(&s, lone);
  }
  CHECK_EQ(waitpid(child, &status, 0), child);
  if (status != 0)
    t_fail(__FILE__, __LINE__, "child: status 0x%x, line %% 250 = %d", (unsigned)status,
           WEXITSTATUS(status) - 1);
  OK(mainarch_engine_wait(s.engine, -1, &t_error));
  OK(use(&s)); /* the parent goes on */
  mainarch_tokenizer_destroy(lone);
  t_close(&s);
}

static void fork_poisons_every_call(void) { check_fork(0); }
static void fork_with_a_step_in_flight(void) { check_fork(1); }

int main(int argc, char** argv) {
  static const t_case cases[] = {
      CASE(nothing_is_left_behind), /* first: before the C library has its caches */
      CASE(threads_block_all_signals_and_fds_close_on_exec),
      CASE(every_order_of_destruction),
      CASE(an_export_outlives_its_handles),
      CASE(destroy_with_a_step_in_flight),
      CASE(fork_poisons_every_call),
      CASE(fork_with_a_step_in_flight)};
  return RUN(cases);
}
