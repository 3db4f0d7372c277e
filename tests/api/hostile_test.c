/* SPDX-License-Identifier: MIT */
/* What a host may give by mistake or be short of, and what the header says of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api_test.h"

/* One spelling for each device: what SimpleAtoi and its like forgive is a slip of the pen. */
static void device_strings_have_one_spelling(void) {
  static const struct {
    const char *device, *place;
  } wrong[] = {{"cpu:1 ", "character 5"},         {"cpu: 1", "character 5"},
               {"cpu:+1", "character 5"},         {"cpu:01", "character 5"},
               {"cpu:1\t", "character 5"},        {" cpu:1", " cpu:1"},
               {"cpu:1,2", "character 5"},        {"cpu:0x1", "character 5"},
               {"cpu:18446744073709551617", "character 5"},
#ifndef MAINARCH_WITHOUT_GPUS
               {"sim:gfx942x+1", "character 8"},  {"sim:gfx942x 1", "character 8"},
               {"sim:gfx942x01", "character 8"},  {"sim:gfx942x1 ", "character 8"},
               {"sim:gfx942x1,seed= 1", "seed"},  {"sim:gfx942x1,seed=+1", "seed"},
               {"sim:gfx942x1,threads=01", "threads"},
               {"sim:gfx942x2:0, 1", "character 3"}, {"sim:gfx942x2:0-+1", "character 1"},
               {"sim:gfx942x2:00", "character 1"}, {"sim:gfx942x2:0--1", "character 1"},
               {"sim:gfx942x2:0-1-1", "character 1"},
#endif
  };
  size_t i;
  for (i = 0; i < COUNT_OF(wrong); ++i) {
    mainarch_group* group = NULL;
    REFUSED(mainarch_group_open(wrong[i].device, NULL, &group, &t_error), INVALID, wrong[i].place);
    CHECK(group == NULL);
  }
}

/* So that no more descriptors can be had; *before gets the limit there was. */
static int use_up_descriptors(struct rlimit* before) {
  struct rlimit none;
  if (getrlimit(RLIMIT_NOFILE, before) != 0) return -1;
  none = *before;
  none.rlim_cur = 0;
  return setrlimit(RLIMIT_NOFILE, &none);
}

#define WITHOUT_DESCRIPTORS(call)                                        \
  do {                                                                   \
    struct rlimit before;                                                \
    mainarch_status got;                                                 \
    CHECK_EQ(use_up_descriptors(&before), 0);                            \
    t_spoil_error();                                                     \
    got = (call);                                                        \
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);                      \
    CHECK(t_refused(__FILE__, __LINE__, #call, got,                      \
                    MAINARCH_ERROR_OUT_OF_HOST_MEMORY, ""));             \
    CHECK_EQ(t_error.os_errno, EMFILE);                                  \
  } while (0)

static void without_descriptors_it_is_out_of_host_memory(void) {
  mainarch_group *group, *gpu;
  mainarch_model* model;
  mainarch_tokenizer* tokenizer;
  mainarch_engine* engine;
  OK(mainarch_group_open("cpu", NULL, &group, &t_error));
  WITHOUT_DESCRIPTORS(mainarch_model_open(group, t_checkpoint(), NULL, &model, &t_error));
  OK(mainarch_model_open(group, t_checkpoint(), NULL, &model, &t_error));
  WITHOUT_DESCRIPTORS(mainarch_tokenizer_open(t_checkpoint(), &tokenizer, &t_error));
  WITHOUT_DESCRIPTORS(mainarch_engine_create(model, NULL, &engine, &t_error));
#ifdef MAINARCH_WITHOUT_GPUS
  REFUSED(mainarch_group_open("gpu", NULL, &gpu, &t_error), UNSUPPORTED, "device \"gpu\": this library was built for");
  REFUSED(mainarch_group_open("sim:gfx942", NULL, &gpu, &t_error), UNSUPPORTED, "on CPUs alone");
#else
  WITHOUT_DESCRIPTORS(mainarch_group_open("gpu", NULL, &gpu, &t_error));
  WITHOUT_DESCRIPTORS(mainarch_group_open("sim:gfx942", NULL, &gpu, &t_error));
#endif
  mainarch_model_destroy(model);
  mainarch_group_destroy(group);
}

/* Makes the first two elements of the norm before the head NaN. The header ends at data + end. */
static int spoil_norm(char* data, unsigned long end) {
  static const char name[] = "\"model.norm.weight\"", field[] = "\"data_offsets\":[";
  const char* at = data + 8;
  char* norm;
  while (at < data + end && strncmp(at, name, strlen(name)) != 0) ++at;
  while (at < data + end && strncmp(at, field, strlen(field)) != 0) ++at;
  if (at >= data + end) return -1;
  norm = data + end + strtoul(at + strlen(field), NULL, 10);
  memset(norm, 0xFF, 4); /* of bf16 */
  return 0;
}

/* Copies the trained checkpoint to `directory`, with a tensor more that nothing of it uses. */
static int write_with_an_extra_tensor(const char* directory, int spoil) {
  static const char* const extra = ",\"spare.weight\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[%lu,%lu]}}";
  char path[256], entry[128], *data;
  unsigned long header = 0, size, end, i, entry_size;
  FILE* file;
  snprintf(path, sizeof(path), "cp '%s/config.json' '%s/'", t_checkpoint(), directory);
  if (system(path) != 0) return -1;
  snprintf(path, sizeof(path), "%s/model.safetensors", t_checkpoint());
  file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) return -1;
  size = (unsigned long)ftell(file);
  data = malloc(size);
  rewind(file);
  if (data == NULL || fread(data, 1, size, file) != size) return -1;
  fclose(file);
  for (i = 8; i-- > 0;) header = header << 8 | (unsigned char)data[i];
  end = 8 + header;
  if (spoil && spoil_norm(data, end) != 0) return -1;
  size -= end;
  while (data[end - 1] != '}') --end; /* spaces may follow it */
  --end;
  entry_size = (unsigned long)snprintf(entry, sizeof(entry), extra, size, size + 3);
  snprintf(path, sizeof(path), "%s/model.safetensors", directory);
  file = fopen(path, "wb");
  if (file == NULL) return -1;
  for (i = 0; i < 8; ++i) fputc((int)((end - 8 + entry_size) >> (8 * i) & 0xFF), file);
  fwrite(data + 8, 1, end - 8, file);
  fwrite(entry, 1, entry_size, file);
  fwrite(data + 8 + header, 1, size, file);
  fwrite("abc", 1, 3, file);
  free(data);
  return fclose(file);
}

static char warnings[1024];

static void keep_warnings(void* user, int32_t level, const char* line) {
  (void)user;
  if (level > MAINARCH_LOG_WARNING) return;
  strncat(warnings, line, sizeof(warnings) - strlen(warnings) - 1);
}

static void tensors_that_nothing_uses_are_told(void) {
  char directory[] = "/tmp/mainarch-hostile-XXXXXX", command[64];
  mainarch_group_options options;
  mainarch_group* group;
  mainarch_model* model;
  CHECK(mkdtemp(directory) != NULL);
  CHECK_EQ(write_with_an_extra_tensor(directory, 0), 0);
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.log = keep_warnings;
  OK(mainarch_group_open("cpu", &options, &group, &t_error));
  OK(mainarch_model_open(group, t_checkpoint(), NULL, &model, &t_error));
  mainarch_model_destroy(model);
  CHECK_EQ(strlen(warnings), 0);
  OK(mainarch_model_open(group, directory, NULL, &model, &t_error));
  mainarch_model_destroy(model);
  mainarch_group_destroy(group);
  CHECK(strstr(warnings, "1 tensor (3 bytes) is not used: \"spare.weight\"") != NULL);
  snprintf(command, sizeof(command), "rm -r %s", directory);
  CHECK_EQ(system(command), 0);
}

/* A sequence that samples for itself must not take NaNs for an answer either. */
static void logits_that_are_not_numbers_are_refused(void) {
  char directory[] = "/tmp/mainarch-hostile-XXXXXX", command[64];
  static float logits[4096];
  const uint32_t token = 300;
  mainarch_sequence_options options;
  mainarch_group* group;
  mainarch_model* model;
  mainarch_engine* engine;
  mainarch_sequence sequence;
  size_t count = 1;
  CHECK(mkdtemp(directory) != NULL);
  CHECK_EQ(write_with_an_extra_tensor(directory, 1), 0);
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.flags = MAINARCH_SEQUENCE_MANUAL;
  OK(mainarch_group_open("cpu", NULL, &group, &t_error));
  OK(mainarch_model_open(group, directory, NULL, &model, &t_error));
  OK(mainarch_engine_create(model, NULL, &engine, &t_error));
  OK(mainarch_sequence_open(engine, &options, &sequence, &t_error));
  OK(mainarch_sequence_append(engine, sequence, &token, 1, &t_error));
  OK(mainarch_engine_step(engine, &t_error));
  REFUSED(mainarch_sequence_logits(engine, sequence, logits, COUNT_OF(logits), &count, &t_error),
          MAINARCH_ERROR_BAD_MODEL, "the logit of token 0 is nan");
  CHECK_EQ(count, 0);
  mainarch_engine_destroy(engine);
  mainarch_model_destroy(model);
  mainarch_group_destroy(group);
  snprintf(command, sizeof(command), "rm -r %s", directory);
  CHECK_EQ(system(command), 0);
}

/* A tokenizer.json that is too large to be one is not read: a file with a hole for most of it. */
static void huge_files_are_refused_by_their_size(void) {
  char directory[] = "/tmp/mainarch-hostile-XXXXXX", path[64];
  mainarch_tokenizer* tokenizer;
  struct rusage before, after;
  int fd;
  CHECK(mkdtemp(directory) != NULL);
  snprintf(path, sizeof(path), "%s/tokenizer.json", directory);
  fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  CHECK(fd >= 0);
  CHECK_EQ(ftruncate(fd, (off_t)171 << 20), 0);
  close(fd);
  getrusage(RUSAGE_SELF, &before);
  REFUSED(mainarch_tokenizer_open(directory, &tokenizer, &t_error), MAINARCH_ERROR_BAD_MODEL,
          "limit of 67108864");
  getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_maxrss - before.ru_maxrss < 4096); /* KiB */
  unlink(path);
  rmdir(directory);
}

int main(int argc, char** argv) {
  static const t_case cases[] = {CASE(huge_files_are_refused_by_their_size), /* first: the peak */
                                 CASE(device_strings_have_one_spelling),
                                 CASE(tensors_that_nothing_uses_are_told),
                                 CASE(logits_that_are_not_numbers_are_refused),
                                 CASE(without_descriptors_it_is_out_of_host_memory)};
  return RUN(cases);
}
