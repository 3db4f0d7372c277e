/* SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include "api_test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

mainarch_error t_error;

static const char* skip_reason;
static int failures;

void t_fail(const char* file, int line, const char* format, ...) {
  va_list arguments;
  const char* slash = strrchr(file, '/');
  printf("# %s:%d: ", slash != NULL ? slash + 1 : file, line);
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
  ++failures;
}

void t_skip(const char* reason) { skip_reason = reason; }

int t_failures(void) { return failures; }

static int wanted(const char* name, int argc, char** argv) {
  int i;
  if (argc < 2) return 1;
  for (i = 1; i < argc; ++i) {
    if (strcmp(argv[i], name) == 0) return 1;
  }
  return 0;
}

int t_run(const t_case* cases, size_t count, int argc, char** argv) {
  size_t i;
  int failed = 0;
  printf("1..%zu\n", count);
  for (i = 0; i < count; ++i) {
    if (!wanted(cases[i].name, argc, argv)) {
      printf("ok %zu - %s # SKIP not asked for\n", i + 1, cases[i].name);
      continue;
    }
    failures = 0;
    skip_reason = NULL;
    cases[i].body();
    if (skip_reason != NULL && failures == 0) {
      printf("ok %zu - %s # SKIP %s\n", i + 1, cases[i].name, skip_reason);
    } else {
      printf("%s %zu - %s\n", failures == 0 ? "ok" : "not ok", i + 1, cases[i].name);
    }
    failed += failures != 0;
    fflush(stdout);
  }
  return failed != 0;
}

void t_spoil_error(void) { memset(&t_error, 0xA5, sizeof(t_error)); }

int t_refused(const char* file, int line, const char* call, mainarch_status status,
              mainarch_status code, const char* word) {
  size_t i, length;
  if (status != code) {
    t_fail(file, line, "%s: %d (%s), not %d (%s): %.200s", call, (int)status,
           mainarch_status_string(status), (int)code, mainarch_status_string(code),
           status < 0 ? t_error.message : "");
    return 0;
  }
  if (t_error.status != status || t_error.reserved != 0) {
    t_fail(file, line, "%s: the error does not have the status", call);
    return 0;
  }
  length = strnlen(t_error.message, sizeof(t_error.message));
  if (length == 0 || length == sizeof(t_error.message)) {
    t_fail(file, line, "%s: no message, or no end of it", call);
    return 0;
  }
  for (i = 0; i < length; ++i) {
    if ((unsigned char)t_error.message[i] < 0x20) {
      t_fail(file, line, "%s: a control character in the message: %s", call, t_error.message);
      return 0;
    }
  }
  if (strstr(t_error.message, word) == NULL) {
    t_fail(file, line, "%s: \"%s\" is not in the message: %s", call, word, t_error.message);
    return 0;
  }
  return 1;
}

const char* t_source_path(const char* relative) {
  static char path[4096];
  const char* root = getenv("MAINARCH_SOURCE_ROOT");
  snprintf(path, sizeof(path), "%s/%s", root != NULL ? root : ".", relative);
  return path;
}

const char* t_checkpoint(void) { return t_source_path("tests/golden/trained"); }

mainarch_status t_open_group(t_stack* stack, uint32_t threads) {
  mainarch_group_options options;
  memset(stack, 0, sizeof(*stack));
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.flags = MAINARCH_GROUP_IGNORE_ENVIRONMENT;
  options.threads = threads;
  return mainarch_group_open("cpu", &options, &stack->group, &t_error);
}

mainarch_status t_open_rest(t_stack* stack, uint64_t model_flags) {
  static const char prompt[] = "In the beginning God created";
  mainarch_model_options model;
  mainarch_engine_options engine;
  uint32_t tokens[64];
  size_t count;
  mainarch_status status;
  memset(&model, 0, sizeof(model));
  model.struct_size = sizeof(model);
  model.flags = model_flags;
  status = mainarch_model_open(stack->group, t_checkpoint(), &model, &stack->model, &t_error);
  if (status != MAINARCH_OK) return status;
  status = mainarch_tokenizer_from_model(stack->model, &stack->tokenizer, &t_error);
  if (status != MAINARCH_OK) return status;
  status = mainarch_decoder_create(stack->tokenizer, 0, &stack->decoder, &t_error);
  if (status != MAINARCH_OK) return status;
  memset(&engine, 0, sizeof(engine));
  engine.struct_size = sizeof(engine);
  engine.max_sequences = 4;
  engine.max_sequence_tokens = 256;
  status = mainarch_engine_create(stack->model, &engine, &stack->engine, &t_error);
  if (status != MAINARCH_OK) return status;
  status = mainarch_sequence_open(stack->engine, NULL, &stack->sequence, &t_error);
  if (status != MAINARCH_OK) return status;
  status = mainarch_tokenizer_encode(stack->tokenizer, prompt, strlen(prompt), 0, tokens,
                                     COUNT_OF(tokens), &count, &t_error);
  if (status != MAINARCH_OK) return status;
  return mainarch_sequence_append(stack->engine, stack->sequence, tokens, count, &t_error);
}

mainarch_status t_open(t_stack* stack, uint32_t threads) {
  const mainarch_status status = t_open_group(stack, threads);
  return status != MAINARCH_OK ? status : t_open_rest(stack, 0);
}

void t_close(t_stack* stack) {
  mainarch_engine_destroy(stack->engine);
  mainarch_decoder_destroy(stack->decoder);
  mainarch_tokenizer_destroy(stack->tokenizer);
  mainarch_model_destroy(stack->model);
  mainarch_group_destroy(stack->group);
  memset(stack, 0, sizeof(*stack));
}
