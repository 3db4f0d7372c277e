/* SPDX-License-Identifier: MIT */
/* Ten thousand times open and close: memory, descriptors, threads and mappings stay where they
 * were. The checkpoint is a very small one, the argument of the program. */
#define _GNU_SOURCE
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api_test.h"

enum { CYCLES = 10000, WARM = 1000 };
/* Blocks in use are counted by the C library's heap: one lost block of 48 bytes a cycle is 432 kB
 * more, and what threads keep in their caches moves by far less. Resident pages depend on how the
 * heap happens to be cut up as well, so only a page lost every tenth cycle (3.5 MB) shows there. */
enum { HEAP_SLACK_KB = 64, RSS_SLACK_KB = 2048 };

static const char* tiny;

typedef struct usage {
  long heap_kb, rss_kb, fds, threads, mappings;
} usage;

static long entries(const char* path) {
  DIR* directory = opendir(path);
  long count = 0;
  if (directory == NULL) return -1;
  while (readdir(directory) != NULL) ++count;
  closedir(directory);
  return count;
}

static usage now(void) {
  usage at = {-1, -1, 0, 0, 0};
  char line[512];
  const struct mallinfo2 heap = mallinfo2(); /* of all arenas */
  FILE* file = fopen("/proc/self/smaps_rollup", "re");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    if (sscanf(line, "Rss: %ld", &at.rss_kb) == 1) break;
  }
  if (file != NULL) fclose(file);
  at.heap_kb = (long)((heap.uordblks + heap.hblkhd) / 1024);
  at.fds = entries("/proc/self/fd");
  at.threads = entries("/proc/self/task");
  file = fopen("/proc/self/maps", "re");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) ++at.mappings;
  if (file != NULL) fclose(file);
  return at;
}

/* Runs `cycle` CYCLES times and compares the end with what was there after the first WARM. */
static void steady(void (*cycle)(int)) {
  usage warm = {0, 0, 0, 0, 0}, end;
  int i;
  for (i = 0; i < CYCLES; ++i) {
    if (i == WARM) warm = now();
    cycle(i);
    if (t_failures() > 0) return;
  }
  end = now();
  printf("# heap %ld to %ld kB, rss %ld to %ld kB, descriptors %ld to %ld, threads %ld to %ld, "
         "mappings %ld to %ld\n",
         warm.heap_kb, end.heap_kb, warm.rss_kb, end.rss_kb, warm.fds, end.fds, warm.threads,
         end.threads, warm.mappings, end.mappings);
  CHECK(warm.heap_kb > 0 && warm.rss_kb > 0 && warm.fds > 0);
  CHECK(end.heap_kb <= warm.heap_kb + HEAP_SLACK_KB);
  CHECK(end.rss_kb <= warm.rss_kb + RSS_SLACK_KB);
  CHECK_EQ(end.fds, warm.fds);
  CHECK_EQ(end.threads, warm.threads);
  CHECK(end.mappings <= warm.mappings + 2);
}

/* A step runs, every tenth time on the engine's own thread; the order of the ends changes. */
static void whole_stack(int i) {
  mainarch_group_options group_options;
  mainarch_engine_options engine_options;
  mainarch_group* group;
  mainarch_model* model;
  mainarch_engine* engine;
  mainarch_sequence sequence;
  const uint32_t token = 5;
  memset(&group_options, 0, sizeof(group_options));
  group_options.struct_size = sizeof(group_options);
  group_options.threads = 1 + (i % 5 == 0); /* a thread team every fifth time */
  memset(&engine_options, 0, sizeof(engine_options));
  engine_options.struct_size = sizeof(engine_options);
  engine_options.max_sequence_tokens = 32;
  OK(mainarch_group_open("cpu", &group_options, &group, &t_error));
  OK(mainarch_model_open(group, tiny, NULL, &model, &t_error));
  OK(mainarch_engine_create(model, &engine_options, &engine, &t_error));
  OK(mainarch_sequence_open(engine, NULL, &sequence, &t_error));
  OK(mainarch_sequence_append(engine, sequence, &token, 1, &t_error));
  if (i % 10 != 0) {
    OK(mainarch_engine_step(engine, &t_error));
  } else {
    OK(mainarch_engine_submit(engine, &t_error));
    if (i % 20 == 0) OK(mainarch_engine_wait(engine, -1, &t_error));
  }
  if (i % 2 == 0) mainarch_group_destroy(group);
  if (i % 3 == 0) mainarch_model_destroy(model);
  mainarch_engine_destroy(engine);
  if (i % 3 != 0) mainarch_model_destroy(model);
  if (i % 2 != 0) mainarch_group_destroy(group);
}

static void open_and_close_the_stack(void) { steady(whole_stack); }

static void text(int i) {
  const uint32_t token = 300;
  mainarch_tokenizer* tokenizer;
  mainarch_decoder* decoder;
  char out[64];
  size_t length;
  OK(mainarch_tokenizer_open(t_checkpoint(), &tokenizer, &t_error));
  OK(mainarch_decoder_create(tokenizer, 0, &decoder, &t_error));
  if (i % 2 == 0) mainarch_tokenizer_destroy(tokenizer);
  OK(mainarch_decoder_push(decoder, &token, 1, out, sizeof(out), &length, &t_error));
  mainarch_decoder_destroy(decoder);
  if (i % 2 != 0) mainarch_tokenizer_destroy(tokenizer);
}

static void open_and_close_tokenizers(void) { steady(text); }

static mainarch_engine* engine_of_sequences;

static void one_sequence(int i) {
  mainarch_sequence sequence, copy;
  const uint32_t token = 5;
  OK(mainarch_sequence_open(engine_of_sequences, NULL, &sequence, &t_error));
  OK(mainarch_sequence_append(engine_of_sequences, sequence, &token, 1, &t_error));
  if (i % 4 == 0) OK(mainarch_engine_step(engine_of_sequences, &t_error));
  OK(mainarch_sequence_fork(engine_of_sequences, sequence, &copy, &t_error));
  OK(mainarch_sequence_close(engine_of_sequences, i % 2 == 0 ? sequence : copy, &t_error));
  OK(mainarch_sequence_close(engine_of_sequences, i % 2 == 0 ? copy : sequence, &t_error));
}

static void open_and_close_sequences(void) {
  mainarch_engine_options options;
  mainarch_model_options wait; /* weights that move meanwhile would be counted */
  mainarch_group* group;
  mainarch_model* model;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.max_sequences = 2;
  OK(mainarch_group_open("cpu", NULL, &group, &t_error));
  memset(&wait, 0, sizeof(wait));
  wait.struct_size = sizeof(wait);
  wait.flags = MAINARCH_MODEL_WAIT;
  OK(mainarch_model_open(group, tiny, &wait, &model, &t_error));
  OK(mainarch_engine_create(model, &options, &engine_of_sequences, &t_error));
  steady(one_sequence);
  mainarch_engine_destroy(engine_of_sequences);
  mainarch_model_destroy(model);
  mainarch_group_destroy(group);
}

/* What fails half-way leaves nothing either. */
static void failure(int i) {
  mainarch_group* group;
  mainarch_model* model;
  mainarch_tokenizer* tokenizer;
  OK(mainarch_group_open("cpu", NULL, &group, &t_error));
  STATUS(mainarch_model_open(group, i % 2 == 0 ? "/nowhere" : "/", NULL, &model, &t_error),
         MAINARCH_ERROR_NOT_FOUND);
  STATUS(mainarch_tokenizer_open(tiny, &tokenizer, &t_error), MAINARCH_ERROR_NOT_FOUND);
  CHECK(model == NULL && tokenizer == NULL);
  mainarch_group_destroy(group);
}

static void failures_leave_nothing(void) { steady(failure); }

int main(int argc, char** argv) {
  static const t_case cases[] = {CASE(open_and_close_the_stack), CASE(open_and_close_tokenizers),
                                 CASE(open_and_close_sequences), CASE(failures_leave_nothing)};
  if (argc < 2) return 2;
  tiny = argv[1];
  argv[1] = argv[0];
  /* Or malloc maps another arena when threads happen to meet there, of which there are more on more cores. */
  mallopt(M_ARENA_MAX, 1);
  return t_run(cases, COUNT_OF(cases), argc - 1, argv + 1);
}
