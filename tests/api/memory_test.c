/* SPDX-License-Identifier: MIT */
/* Memory, threads, descriptors and mappings that run out at every place in turn. This program has
 * its own malloc and the like, which the shared library then uses too; each fails on demand. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "api_test.h"
#include "process_state.h"

/* ---- what fails */

extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* at, size_t size);
extern void* __libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void* at);

static int counting;        /* requests are counted, and may fail */
static long requests;       /* since counting began */
static long fail_at;        /* the request that fails; 0: none */
static int fail_ever_after; /* and all behind it too */
static long live;           /* blocks that were given and not taken back */

static int refuse(void) {
  long number;
  if (!__atomic_load_n(&counting, __ATOMIC_RELAXED)) return 0;
  number = __atomic_add_fetch(&requests, 1, __ATOMIC_RELAXED);
  if (fail_at == 0 || number < fail_at || (number > fail_at && !fail_ever_after)) return 0;
  errno = ENOMEM;
  return 1;
}

static void* given(void* block) {
  if (block != NULL) __atomic_add_fetch(&live, 1, __ATOMIC_RELAXED);
  return block;
}

void* malloc(size_t size) { return refuse() ? NULL : given(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) {
  return refuse() ? NULL : given(__libc_calloc(count, size));
}
void* realloc(void* at, size_t size) {
  void* block;
  if (refuse()) return NULL;
  block = __libc_realloc(at, size);
  return at == NULL ? given(block) : block;
}
void* memalign(size_t alignment, size_t size) {
  return refuse() ? NULL : given(__libc_memalign(alignment, size));
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  void* block = memalign(alignment, size);
  if (block == NULL) return ENOMEM;
  *out = block;
  return 0;
}
void free(void* at) {
  if (at != NULL) __atomic_sub_fetch(&live, 1, __ATOMIC_RELAXED);
  __libc_free(at);
}

/* Found before anything is counted. */
static void* (*real_mmap)(void*, size_t, int, int, int, off64_t);
static int (*real_eventfd)(unsigned int, int);
static int (*real_pthread_create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

static void find_real_functions(void) {
  *(void**)&real_mmap = dlsym(RTLD_NEXT, "mmap64");
  *(void**)&real_eventfd = dlsym(RTLD_NEXT, "eventfd");
  *(void**)&real_pthread_create = dlsym(RTLD_NEXT, "pthread_create");
}

void* mmap64(void* at, size_t size, int protection, int flags, int fd, off64_t offset) {
  if (real_mmap == NULL) find_real_functions();
  return refuse() ? MAP_FAILED : real_mmap(at, size, protection, flags, fd, offset);
}
int eventfd(unsigned int value, int flags) {
  if (!refuse()) return real_eventfd(value, flags);
  errno = EMFILE;
  return -1;
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  return refuse() ? EAGAIN : real_pthread_create(thread, attributes, run, argument);
}

static void start_counting(long which, int ever_after) {
  requests = 0;
  fail_at = which;
  fail_ever_after = ever_after;
  __atomic_store_n(&counting, 1, __ATOMIC_SEQ_CST);
}

static void stop_counting(void) {
  __atomic_store_n(&counting, 0, __ATOMIC_SEQ_CST);
  fail_at = 0;
}

/* ---- what is tried */

enum { STEPS = 4 };

static uint32_t threads = 1;

/* From nothing to tokens. The handles that came about are in `s`. */
static mainarch_status load_and_step(t_stack* s, uint32_t* tokens, size_t* count) {
  const char* text = "Let there be light";
  char out[256];
  uint32_t ids[32];
  size_t length;
  mainarch_sequence copy;
  mainarch_sequence_options options;
  int i;
  mainarch_status status = t_open_group(s, threads);
  *count = 0;
  if (status == MAINARCH_OK) status = t_open_rest(s, 0);
  for (i = 0; i < STEPS && status == MAINARCH_OK; ++i) {
    status = mainarch_engine_step(s->engine, &t_error);
  }
  if (status == MAINARCH_OK) {
    status = mainarch_sequence_take(s->engine, s->sequence, tokens, STEPS, count, &t_error);
  }
  if (status == MAINARCH_OK) {
    status = mainarch_decoder_push(s->decoder, tokens, *count, out, sizeof(out), &length, &t_error);
  }
  if (status == MAINARCH_OK) {
    status = mainarch_sequence_fork(s->engine, s->sequence, &copy, &t_error);
  }
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.temperature = 1;
  options.logprobs = 4;
  options.frequency_penalty = 0.5f;
  options.stop_tokens = ids;
  options.stop_token_count = 1;
  if (status == MAINARCH_OK) {
    status =
        mainarch_tokenizer_encode(s->tokenizer, text, strlen(text), 0, ids, 32, &length, &t_error);
  }
  if (status == MAINARCH_OK) {
    status = mainarch_sequence_open(s->engine, &options, &copy, &t_error);
  }
  if (status == MAINARCH_OK) {
    status = mainarch_sequence_append(s->engine, copy, ids, length, &t_error);
  }
  if (status == MAINARCH_OK) status = mainarch_engine_submit(s->engine, &t_error);
  if (status == MAINARCH_OK) status = mainarch_engine_wait(s->engine, -1, &t_error);
  return status;
}

static uint32_t expected[STEPS];
static process_state before, after;

/* The n-th request fails: an error that says so, and nothing stays. Sets `*done` when there is no
 * n-th request. */
static void check_failure(long which, int ever_after, long live_before, int* done) {
  t_stack s;
  uint32_t tokens[STEPS];
  size_t count;
  mainarch_status status;
  long made;
  t_spoil_error();
  start_counting(which, ever_after);
  status = load_and_step(&s, tokens, &count);
  made = requests;
  t_close(&s); /* with no memory at all, too */
  stop_counting();
  *done = made < which;
  if (status == MAINARCH_OK) {
    /* Either it was not reached, or the library could do without. */
    CHECK(count == STEPS && memcmp(tokens, expected, sizeof(expected)) == 0);
  } else {
    if (status != MAINARCH_ERROR_OUT_OF_HOST_MEMORY) {
      t_fail(__FILE__, __LINE__, "request %ld: %d: %s", which, (int)status, t_error.message);
    }
    CHECK_EQ(status, MAINARCH_ERROR_OUT_OF_HOST_MEMORY);
    CHECK_EQ(t_error.status, status);
    CHECK(strnlen(t_error.message, sizeof(t_error.message)) < sizeof(t_error.message));
  }
  if (live != live_before) {
    t_fail(__FILE__, __LINE__, "request %ld of %ld: %ld blocks, %ld before: %s", which, made, live,
           live_before, status < 0 ? t_error.message : "ok");
  }
}

static void check_process(long which) {
  const char* differs;
  process_state_read(&after);
  differs = process_state_differs(&before, &after);
  if (differs != NULL) t_fail(__FILE__, __LINE__, "request %ld: %s", which, differs);
}

static void warm_up(long* live_before, long* total) {
  t_stack s;
  size_t count;
  int i;
  for (i = 0; i < 3; ++i) {
    start_counting(0, 0);
    OK(load_and_step(&s, expected, &count));
    *total = requests;
    t_close(&s);
    stop_counting();
    *live_before = live;
  }
  CHECK_EQ(count, STEPS);
  process_state_read(&before);
}

static void check_every_failure(int ever_after) {
  long live_before = 0, total = 0, which, wrong = 0;
  int done = 0;
  warm_up(&live_before, &total);
  for (which = 1; !done && wrong < 5; ++which) {
    check_failure(which, ever_after, live_before, &done);
    if (which % 64 == 0) check_process(which);
    wrong += live != live_before;
  }
  check_process(which);
  printf("# %ld requests, %ld of them failed in turn\n", total, which - 2);
}

static void one_request_fails(void) { check_every_failure(0); }
static void all_requests_fail_from_one_on(void) { check_every_failure(1); }

/* The same where the backend has threads of its own; every 31st. */
static void one_request_fails_with_threads(void) {
  long live_before = 0, total = 0, which;
  int done = 0;
  threads = 2;
  warm_up(&live_before, &total);
  for (which = 1; !done; which += which < 200 ? 1 : 31) {
    /* Blocks of thread stacks that the C library caches come and go: not counted here. */
    check_failure(which, 0, live, &done);
    (void)live_before;
  }
  check_process(which);
  threads = 1;
}

/* Memory is asked for when something is opened or appended, never while tokens are decoded: pages
 * of KV are given out, sequences sampled in every way, results taken, and not one request is made.
 */
static void steady_decode_asks_for_nothing(void) {
  enum { SEQUENCES = 4, WARM = 8, DECODED = 150 };
  t_stack s;
  mainarch_sequence sequence[SEQUENCES];
  mainarch_sequence_options options[SEQUENCES];
  uint32_t prompt[3] = {5, 6, 7};
  uint32_t tokens[8];
  size_t count;
  long asked = 0;
  int i, step;
  OK(t_open_group(&s, 2));
  OK(t_open_rest(&s, MAINARCH_MODEL_WAIT));
  OK(mainarch_sequence_close(s.engine, s.sequence, &t_error));
  memset(options, 0, sizeof(options));
  options[1].temperature = 1;
  options[2].temperature = 0.8f;
  options[2].top_k = 20;
  options[2].top_p = 0.9f;
  options[2].repetition_penalty = 1.2f;
  options[3].temperature = 2;
  options[3].logprobs = 5;
  for (i = 0; i < SEQUENCES; ++i) {
    options[i].struct_size = sizeof(options[i]);
    options[i].flags = MAINARCH_SEQUENCE_IGNORE_END;
    OK(mainarch_sequence_open(s.engine, &options[i], &sequence[i], &t_error));
    OK(mainarch_sequence_append(s.engine, sequence[i], prompt, COUNT_OF(prompt), &t_error));
  }
  for (step = 0; step < WARM + DECODED; ++step) {
    if (step == WARM) start_counting(0, 0);
    OK(mainarch_engine_step(s.engine, &t_error));
    for (i = 0; i < SEQUENCES; ++i) {
      OK(mainarch_sequence_take(s.engine, sequence[i], tokens, COUNT_OF(tokens), &count, &t_error));
    }
  }
  asked = requests;
  stop_counting();
  CHECK_EQ(asked, 0);
  t_close(&s);
}

int main(int argc, char** argv) {
  static const t_case cases[] = {CASE(one_request_fails), CASE(all_requests_fail_from_one_on),
                                 CASE(one_request_fails_with_threads),
                                 CASE(steady_decode_asks_for_nothing)};
  find_real_functions();
  return RUN(cases);
}
