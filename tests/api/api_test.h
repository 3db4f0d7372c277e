/* SPDX-License-Identifier: MIT */
/* Tests of the C ABI, in C99, against the shared library alone. A body returns at its first
 * failure; what it then leaves open ends with the process. Output is TAP. */
#ifndef MAINARCH_TESTS_API_API_TEST_H_
#define MAINARCH_TESTS_API_API_TEST_H_

#include <mainarch.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct t_case {
  const char* name;
  void (*body)(void);
} t_case;

/* Runs the cases, or only those whose name is an argument; for main() to return. */
int t_run(const t_case* cases, size_t count, int argc, char** argv);
void t_fail(const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
void t_skip(const char* reason);
int t_failures(void); /* of the case that runs */

#define CASE(name) {#name, name}
#define RUN(cases) t_run(cases, sizeof(cases) / sizeof(cases[0]), argc, argv)
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* For bodies, and for helpers that return void. */
#define CHECK(condition)                            \
  do {                                              \
    if (!(condition)) {                             \
      t_fail(__FILE__, __LINE__, "%s", #condition); \
      return;                                       \
    }                                               \
  } while (0)

#define CHECK_EQ(a, b)                                                          \
  do {                                                                          \
    const long long a_ = (long long)(a), b_ = (long long)(b);                   \
    if (a_ != b_) {                                                             \
      t_fail(__FILE__, __LINE__, "%s is %lld, and %s is %lld", #a, a_, #b, b_); \
      return;                                                                   \
    }                                                                           \
  } while (0)

/* Options with their size set and all else zero. */
#define ZERO(type, name)          \
  type name;                      \
  memset(&name, 0, sizeof(name)); \
  name.struct_size = sizeof(name)

/* A call that must succeed; it passes &t_error. */
#define OK(call) STATUS(call, MAINARCH_OK)
#define STATUS(call, expected)                                                   \
  do {                                                                           \
    const mainarch_status status_ = (call);                                      \
    if (status_ != (expected)) {                                                 \
      t_fail(__FILE__, __LINE__, "%s: %d (%s), not %d: %s", #call, (int)status_, \
             mainarch_status_string(status_), (int)(expected),                   \
             status_ < 0 ? t_error.message : "");                                \
      return;                                                                    \
    }                                                                            \
  } while (0)

/* Short, where one call stands beside the other. */
#define INVALID MAINARCH_ERROR_INVALID_ARGUMENT
#define UNSUPPORTED MAINARCH_ERROR_UNSUPPORTED
#define NOT_FOUND MAINARCH_ERROR_NOT_FOUND
#define TOO_SMALL MAINARCH_ERROR_BUFFER_TOO_SMALL

/* A call that must fail with `code` and a proper message that holds `word`. */
#define REFUSED(call, code, word)                                               \
  do {                                                                          \
    t_spoil_error();                                                            \
    const mainarch_status status_ = (call);                                     \
    if (!t_refused(__FILE__, __LINE__, #call, status_, (code), (word))) return; \
  } while (0)

extern mainarch_error t_error;
void t_spoil_error(void);
int t_refused(const char* file, int line, const char* call, mainarch_status status,
              mainarch_status code, const char* word);

/* The checkpoint of all tests: tests/golden/trained. */
const char* t_checkpoint(void);
const char* t_source_path(const char* relative);

/* One of each, opened from the checkpoint. */
typedef struct t_stack {
  mainarch_group* group;
  mainarch_model* model;
  mainarch_tokenizer* tokenizer;
  mainarch_decoder* decoder;
  mainarch_engine* engine;
  mainarch_sequence sequence; /* with a prompt, greedy */
} t_stack;

enum { T_VOCAB = 2048, T_MAX_TOKENS = 2048, T_END = 2045 };

/* The first error, or OK. What was opened is in the stack either way; NULL and 0 for the rest.
 * `threads` as in group options. */
mainarch_status t_open(t_stack* stack, uint32_t threads);
mainarch_status t_open_group(t_stack* stack, uint32_t threads);
mainarch_status t_open_rest(t_stack* stack, uint64_t model_flags);
void t_close(t_stack* stack);

#endif
