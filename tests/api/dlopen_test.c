/* SPDX-License-Identifier: MIT */
/* The library loaded by hand, used, and taken away again, twice. This program is not linked to it;
 * argv[1] is its path, argv[2] a checkpoint. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mainarch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process_state.h"

static process_state before, after;

#define NEED(condition)                                                   \
  do {                                                                    \
    if (!(condition)) {                                                   \
      printf("# line %d: %s: %s\n", __LINE__, #condition, error.message); \
      return 0;                                                           \
    }                                                                     \
  } while (0)

#define LOAD(name)                                    \
  __typeof__(&mainarch_##name) name;                  \
  *(void**)&name = dlsym(library, "mainarch_" #name); \
  NEED(name != NULL)

static int use(void* library, const char* checkpoint) {
  mainarch_error error = {0, 0, 0, 0, ""};
  mainarch_group* group;
  mainarch_model* model;
  mainarch_engine* engine;
  mainarch_sequence sequence;
  const uint32_t prompt[3] = {10, 20, 30};
  mainarch_sequence_options options;
  uint32_t token;
  size_t count;
  LOAD(group_open);
  LOAD(group_destroy);
  LOAD(model_open);
  LOAD(model_destroy);
  LOAD(engine_create);
  LOAD(engine_destroy);
  LOAD(engine_step);
  LOAD(engine_submit);
  LOAD(engine_wait);
  LOAD(sequence_open);
  LOAD(sequence_append);
  LOAD(sequence_take);
  NEED(group_open("cpu:2", NULL, &group, &error) == MAINARCH_OK);
  NEED(model_open(group, "/nonexistent", NULL, &model, &error) == MAINARCH_ERROR_NOT_FOUND);
  NEED(model_open(group, checkpoint, NULL, &model, &error) == MAINARCH_OK);
  NEED(engine_create(model, NULL, &engine, &error) == MAINARCH_OK);
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.flags = MAINARCH_SEQUENCE_IGNORE_END;
  NEED(sequence_open(engine, &options, &sequence, &error) == MAINARCH_OK);
  NEED(sequence_append(engine, sequence, prompt, 3, &error) == MAINARCH_OK);
  NEED(engine_step(engine, &error) == MAINARCH_OK);
  NEED(engine_submit(engine, &error) == MAINARCH_OK);
  NEED(engine_wait(engine, -1, &error) == MAINARCH_OK);
  NEED(sequence_take(engine, sequence, &token, 1, &count, &error) == MAINARCH_OK && count == 1);
  group_destroy(group);
  model_destroy(model);
  engine_destroy(engine);
  return 1;
}

static int round_trip(const char* path, const char* checkpoint) {
  mainarch_error error = {0, 0, 0, 0, ""};
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) printf("# %s\n", dlerror());
  NEED(library != NULL);
  process_state_read(&after);
  NEED(strstr(after.files, "libmainarch.so") != NULL);
  NEED(use(library, checkpoint));
  NEED(dlclose(library) == 0);
  process_state_read(&after);
  NEED(strstr(after.files, "libmainarch.so") == NULL); /* really gone */
  NEED(strstr(after.files, "model.safetensors") == NULL);
  NEED(strcmp(before.fds, after.fds) == 0);
  NEED(strcmp(before.threads, after.threads) == 0);
  NEED(strcmp(before.signals, after.signals) == 0);
  return 1;
}

int main(int argc, char** argv) {
  int i, failed = 0;
  if (argc != 3) return 2;
  printf("1..3\n");
  process_state_read(&before);
  for (i = 1; i <= 3; ++i) {
    const int good = round_trip(argv[1], argv[2]);
    failed += !good;
    printf("%s %d - open_use_close_%d\n", good ? "ok" : "not ok", i, i);
  }
  return failed != 0;
}
