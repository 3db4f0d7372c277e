/* SPDX-License-Identifier: MIT */
/* The virtual node as a part of its own, which the library loads when a device of it is opened and
 * which goes with the last: missing, broken, of another build, used, and left behind. This program is
 * not linked to the library. argv[1] is its path, argv[2] that of the part, argv[3] one that says it
 * is of another build (stranger_part.c). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <mainarch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process_state.h"

static process_state before, after;
static mainarch_error error;

#define NEED(condition)                                                   \
  do {                                                                    \
    if (!(condition)) {                                                   \
      printf("# line %d: %s: %s\n", __LINE__, #condition, error.message); \
      return 0;                                                           \
    }                                                                     \
  } while (0)

/* The library in a folder of its own, with the part as a test puts it there. */
typedef struct place {
  char folder[256], library[512], part[512];
  void* loaded;
  __typeof__(&mainarch_group_open) open;
  __typeof__(&mainarch_group_destroy) destroy;
} place;

static int prepare(place* p, const char* library) {
  snprintf(p->folder, sizeof(p->folder), "%s/mainarch-part-XXXXXX",
           getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
  NEED(mkdtemp(p->folder) != NULL);
  snprintf(p->library, sizeof(p->library), "%s/libmainarch.so.0", p->folder);
  snprintf(p->part, sizeof(p->part), "%s/mainarch", p->folder);
  NEED(mkdir(p->part, 0700) == 0);
  snprintf(p->part, sizeof(p->part), "%s/mainarch/libmainarch-sim.so", p->folder);
  {
    char copy[1200];
    snprintf(copy, sizeof(copy), "cp '%s' '%s'", library, p->library);
    NEED(system(copy) == 0);
  }
  return 1;
}

static int load(place* p) {
  p->loaded = dlopen(p->library, RTLD_NOW | RTLD_LOCAL);
  if (p->loaded == NULL) printf("# %s\n", dlerror());
  NEED(p->loaded != NULL);
  *(void**)&p->open = dlsym(p->loaded, "mainarch_group_open");
  *(void**)&p->destroy = dlsym(p->loaded, "mainarch_group_destroy");
  NEED(p->open != NULL && p->destroy != NULL);
  return 1;
}

/* Nothing of the library, nor of the part, is left in the process. */
static int unload(place* p) {
  NEED(dlclose(p->loaded) == 0);
  process_state_read(&after);
  NEED(strstr(after.files, "libmainarch") == NULL);
  NEED(strcmp(before.fds, after.fds) == 0);
  NEED(strcmp(before.threads, after.threads) == 0);
  NEED(strcmp(before.signals, after.signals) == 0);
  return 1;
}

static int put(const place* p, const char* part) {
  char real[PATH_MAX]; /* a link in another folder needs the whole path */
  unlink(p->part);
  NEED(symlink(realpath(part, real) != NULL ? real : part, p->part) == 0);
  return 1;
}

static int refused(place* p, const char* says) {
  mainarch_group* group = NULL;
  NEED(p->open("sim:gfx950x1", NULL, &group, &error) == MAINARCH_ERROR_NO_DEVICE);
  NEED(group == NULL);
  NEED(strstr(error.message, says) != NULL);
  NEED(strstr(error.message, "libmainarch0-sim") != NULL);
  /* Everything else works. */
  NEED(p->open("cpu", NULL, &group, &error) == MAINARCH_OK);
  p->destroy(group);
  return 1;
}

static int a_missing_part(place* p) {
  NEED(load(p));
  NEED(refused(p, "there is no /"));
  return unload(p);
}

static int a_file_that_is_no_library(place* p) {
  FILE* file = fopen(p->part, "we");
  NEED(file != NULL && fputs("no library\n", file) >= 0 && fclose(file) == 0);
  NEED(load(p));
  NEED(refused(p, "libmainarch-sim.so"));
  return unload(p);
}

static int a_library_that_is_no_part(place* p) {
  NEED(put(p, p->library));
  NEED(load(p));
  NEED(refused(p, "of an unknown build"));
  return unload(p);
}

static int a_part_of_another_build(place* p, const char* stranger) {
  NEED(put(p, stranger));
  NEED(load(p));
  NEED(refused(p, "of 0.0.1-stranger, this library of " TEST_PROJECT_VERSION "-"));
  return unload(p);
}

static int in_use(place* p, const char* part) {
  mainarch_group *one, *two;
  NEED(put(p, part));
  NEED(load(p));
  process_state_read(&after);
  NEED(strstr(after.files, "libmainarch-sim.so") == NULL); /* who opens no node has none */
  NEED(p->open("sim:gfx950x1", NULL, &one, &error) == MAINARCH_OK);
  NEED(p->open("sim:gfx942x2", NULL, &two, &error) == MAINARCH_OK);
  p->destroy(one);
  process_state_read(&after);
  NEED(strstr(after.files, "libmainarch-sim.so") != NULL);
  p->destroy(two);
  process_state_read(&after);
  NEED(strstr(after.files, "libmainarch-sim.so") == NULL); /* gone with the last */
  /* What is wrong with a node, the part says; and no device string names a file. */
  NEED(p->open("sim:gfx1100", NULL, &one, &error) == MAINARCH_ERROR_INVALID_ARGUMENT);
  NEED(p->open("sim:gfx950,lines=/etc/passwd", NULL, &one, &error) ==
       MAINARCH_ERROR_INVALID_ARGUMENT);
  NEED(strstr(error.message, "lines=") != NULL);
  return unload(p);
}

/* A child may let go of what it inherited, and of the library. */
static int a_fork(place* p) {
  mainarch_group* group;
  int status = -1;
  pid_t child;
  NEED(load(p));
  NEED(p->open("sim:gfx950x1", NULL, &group, &error) == MAINARCH_OK);
  child = fork();
  if (child == 0) {
    alarm(60);
    p->destroy(group);
    _exit(dlclose(p->loaded) == 0 ? 0 : 1);
  }
  NEED(child > 0 && waitpid(child, &status, 0) == child);
  NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  p->destroy(group);
  return unload(p);
}

static void* open_and_close(void* of) {
  place* p = of;
  int i;
  for (i = 0; i < 4; ++i) {
    mainarch_group* group;
    mainarch_error own = {0, 0, 0, 0, ""};
    if (p->open("sim:gfx942x1", NULL, &group, &own) != MAINARCH_OK) return of;
    p->destroy(group);
  }
  return NULL;
}

static int threads(place* p) {
  pthread_t thread[3];
  int i, bad = 0;
  NEED(load(p));
  for (i = 0; i < 3; ++i) NEED(pthread_create(&thread[i], NULL, open_and_close, p) == 0);
  for (i = 0; i < 3; ++i) {
    void* result;
    NEED(pthread_join(thread[i], &result) == 0);
    bad += result != NULL;
  }
  NEED(bad == 0);
  return unload(p);
}

static int report(const char* name, int good) {
  static int number;
  printf("%s %d - %s\n", good ? "ok" : "not ok", ++number, name);
  fflush(stdout);
  return !good;
}

int main(int argc, char** argv) {
  place p;
  int failed = 0;
  if (argc != 4) return 2;
  memset(&p, 0, sizeof(p));
  process_state_read(&before);
  if (!prepare(&p, argv[1])) return 2;
  printf("1..7\n");
  failed += report("a_missing_part_is_named_with_its_package", a_missing_part(&p));
  failed += report("a_file_that_is_no_library", a_file_that_is_no_library(&p));
  failed += report("a_library_that_is_no_part", a_library_that_is_no_part(&p));
  failed += report("a_part_of_another_build", a_part_of_another_build(&p, argv[3]));
  failed += report("it_comes_with_the_first_device_and_goes_with_the_last", in_use(&p, argv[2]));
  failed += report("a_child_lets_go", a_fork(&p));
  failed += report("threads", threads(&p));
  unlink(p.part);
  unlink(p.library);
  *strrchr(p.part, '/') = '\0';
  rmdir(p.part);
  rmdir(p.folder);
  return failed != 0;
}
