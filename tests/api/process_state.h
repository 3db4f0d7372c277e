/* SPDX-License-Identifier: MIT */
/* What a library could leave behind in its process, as seen in /proc/self. */
#ifndef MAINARCH_TESTS_API_PROCESS_STATE_H_
#define MAINARCH_TESTS_API_PROCESS_STATE_H_

#include <stddef.h>

typedef struct process_state {
  char fds[4096];     /* what each descriptor is */
  char files[16384];  /* mapped files, each once */
  char threads[256];  /* how many */
  char signals[1024]; /* blocked, ignored and caught, of the calling thread and the process */
  char place[8192];   /* working directory, umask, limits, scheduling */
  char environment[16384];
  size_t anonymous_kb; /* of anonymous mappings: the C library's caches too */
} process_state;

void process_state_read(process_state* state);
/* NULL when both are the same but for anonymous_kb; else what differs. */
const char* process_state_differs(const process_state* before, const process_state* after);

#endif
