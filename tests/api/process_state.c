/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "process_state.h"

#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char** environ;

static void append(char* text, size_t size, const char* line) {
  const size_t used = strlen(text);
  snprintf(text + used, size - used, "%s\n", line);
}

static void read_fds(char* out, size_t size) {
  int fd;
  for (fd = 0; fd < 1024; ++fd) {
    char path[64], target[512], line[640];
    ssize_t length;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    length = readlink(path, target, sizeof(target) - 1);
    if (length < 0) continue;
    target[length] = '\0';
    snprintf(line, sizeof(line), "%d %s", fd, target);
    append(out, size, line);
  }
}

static void read_maps(process_state* state) {
  FILE* file = fopen("/proc/self/maps", "re");
  char line[1024];
  while (fgets(line, sizeof(line), file) != NULL) {
    unsigned long begin, end;
    char* path = strchr(line, '/');
    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%lx-%lx", &begin, &end) != 2) continue;
    if (path == NULL) {
      if (strstr(line, "[v") == NULL) state->anonymous_kb += (end - begin) / 1024;
    } else if (strstr(state->files, path) == NULL) {
      append(state->files, sizeof(state->files), path);
    }
  }
  fclose(file);
}

/* The C library catches signals 32 and 33, its own, once there are threads. */
static void hide_own_signals(char* line) {
  unsigned long long caught;
  if (sscanf(line, "SigCgt: %llx", &caught) != 1) return;
  sprintf(line, "SigCgt: %llx", caught & ~(3ULL << 31));
}

static void read_status(process_state* state) {
  static const char* const keys[] = {
      "SigBlk:", "ShdPnd:",     "SigPnd:",  "SigIgn:",       "SigCgt:",
      "Umask:",  "NoNewPrivs:", "Seccomp:", "Cpus_allowed:", "THP_enabled:"};
  FILE* file = fopen("/proc/self/status", "re");
  char line[1024];
  size_t i;
  while (fgets(line, sizeof(line), file) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "Threads:", 8) == 0) append(state->threads, sizeof(state->threads), line);
    hide_own_signals(line);
    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); ++i) {
      if (strncmp(line, keys[i], strlen(keys[i])) == 0) {
        append(state->signals, sizeof(state->signals), line);
      }
    }
  }
  fclose(file);
}

static void read_place(char* out, size_t size) {
  char line[1024];
  int resource;
  if (getcwd(line, sizeof(line)) != NULL) append(out, size, line);
  for (resource = 0; resource < 16; ++resource) {
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0) continue;
    snprintf(line, sizeof(line), "limit %d %lu %lu", resource, (unsigned long)limit.rlim_cur,
             (unsigned long)limit.rlim_max);
    append(out, size, line);
  }
  snprintf(line, sizeof(line), "nice %d policy %d locale %s", getpriority(PRIO_PROCESS, 0),
           sched_getscheduler(0), setlocale(LC_ALL, NULL));
  append(out, size, line);
}

void process_state_read(process_state* state) {
  char** variable;
  memset(state, 0, sizeof(*state));
  read_fds(state->fds, sizeof(state->fds));
  read_maps(state);
  read_status(state);
  read_place(state->place, sizeof(state->place));
  for (variable = environ; *variable != NULL; ++variable) {
    append(state->environment, sizeof(state->environment), *variable);
  }
}

static const char* show(const char* what, const char* before, const char* after) {
  static char text[2048];
  snprintf(text, sizeof(text), "%s, before: %.900s after: %.900s", what, before, after);
  return text;
}

const char* process_state_differs(const process_state* before, const process_state* after) {
#define COMPARE(field) \
  if (strcmp(before->field, after->field) != 0) return show(#field, before->field, after->field)
  COMPARE(fds);
  COMPARE(files);
  COMPARE(threads);
  COMPARE(signals);
  COMPARE(place);
  COMPARE(environment);
#undef COMPARE
  return NULL;
}
