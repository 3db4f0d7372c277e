/* SPDX-License-Identifier: MIT */
/* Every age of every struct: shorter, exact, longer with zeros, longer with something set, and
 * sizes that are none. Structs lie at the end of a page, so that a read or write behind them is a
 * crash. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api_test.h"

static t_stack s, vectors; /* the second of a model opened for vectors, as far as its engine */
static mainarch_tokenizer* chat;
static unsigned char* pages; /* 4 of them; the one behind cannot be touched */
static size_t pages_size;

/* `size` bytes, all `fill`, right before the page that cannot be touched; struct_size is set. */
static void* struct_of(size_t size, int fill) {
  unsigned char* at = pages + pages_size - (size + 15) / 16 * 16;
  memset(pages, fill, pages_size);
  if (size % 16 != 0) at += 16 - size % 16;
  memcpy(at, &size, sizeof(size));
  return at;
}

/* ---- options: use(options) makes and destroys something. */

static mainarch_status use_group(const void* options) {
  mainarch_group* group;
  const mainarch_status status = mainarch_group_open("cpu", options, &group, &t_error);
  mainarch_group_destroy(group);
  return status;
}

static mainarch_status use_model(const void* options) {
  mainarch_model* model;
  const mainarch_status status =
      mainarch_model_open(s.group, t_checkpoint(), options, &model, &t_error);
  mainarch_model_destroy(model);
  return status;
}

static mainarch_status use_chat(const void* options) {
  const mainarch_chat_message message = {"user", "hello"};
  char text[256];
  size_t length;
  return mainarch_tokenizer_render_chat(chat, &message, 1, options, text, sizeof(text), &length,
                                        &t_error);
}

static mainarch_status use_engine(const void* options) {
  mainarch_engine* engine;
  const mainarch_status status = mainarch_engine_create(s.model, options, &engine, &t_error);
  mainarch_engine_destroy(engine);
  return status;
}

static mainarch_status use_sequence(const void* options) {
  mainarch_sequence sequence;
  const mainarch_status status = mainarch_sequence_open(s.engine, options, &sequence, &t_error);
  if (status != MAINARCH_OK) return status;
  return mainarch_sequence_close(s.engine, sequence, &t_error);
}

static mainarch_status use_embed(const void* options) {
  const uint32_t token = 5;
  const size_t length = 1;
  float vector[128];
  size_t count;
  return mainarch_engine_embed(vectors.engine, &token, &length, 1, options, vector, COUNT_OF(vector), &count, &t_error);
}

static void check_options(size_t size, mainarch_status (*use)(const void*)) {
  static const size_t wrong[] = {0, 1, 8, 15, 17, 20, 4097, 4104, SIZE_MAX, SIZE_MAX - 7};
  size_t i, longer;
  unsigned char* options;
  OK(use(NULL));
  for (i = 16; i <= size; i += 8) OK(use(struct_of(i, 0)));
  for (longer = size + 8; longer <= 4096; longer += longer < size + 64 ? 8 : 512) {
    OK(use(struct_of(longer, 0)));
    options = struct_of(longer, 0);
    options[size] = 1;
    REFUSED(use(options), MAINARCH_ERROR_UNSUPPORTED, "newer");
    options[size] = 0;
    options[longer - 1] = 1;
    REFUSED(use(options), MAINARCH_ERROR_UNSUPPORTED, "newer");
  }
  for (i = 0; i < COUNT_OF(wrong); ++i) {
    options = struct_of(size, 0);
    memcpy(options, &wrong[i], sizeof(wrong[i]));
    REFUSED(use(options), MAINARCH_ERROR_INVALID_ARGUMENT, "struct_size");
  }
}

static void group_options(void) { check_options(sizeof(mainarch_group_options), use_group); }
static void model_options(void) { check_options(sizeof(mainarch_model_options), use_model); }
static void chat_options(void) { check_options(sizeof(mainarch_chat_options), use_chat); }
static void engine_options(void) { check_options(sizeof(mainarch_engine_options), use_engine); }
static void sequence_options(void) {
  check_options(sizeof(mainarch_sequence_options), use_sequence);
}

static void embed_options(void) { check_options(sizeof(mainarch_embed_options), use_embed); }

/* A field that an older struct does not have yet reads as zero, though there are bytes behind. */
static void shorter_options_end_where_they_say(void) {
  mainarch_engine_options options;
  mainarch_engine* engine;
  memset(&options, 0xFF, sizeof(options));
  options.struct_size = offsetof(mainarch_engine_options, max_sequences);
  options.flags = 0;
  options.kv_tokens = 64;
  OK(mainarch_engine_create(s.model, &options, &engine, &t_error));
  mainarch_engine_destroy(engine);
}

/* ---- info structs: get(out). */

static mainarch_status get_device(void* out) {
  return mainarch_group_device_info_get(s.group, 0, out, &t_error);
}
static mainarch_status get_model(void* out) {
  return mainarch_model_info_get(s.model, out, &t_error);
}
static mainarch_status get_sequence_options(void* out) {
  return mainarch_model_sequence_options(s.model, out, &t_error);
}
static mainarch_status get_tokenizer(void* out) {
  return mainarch_tokenizer_info_get(s.tokenizer, out, &t_error);
}
static mainarch_status get_engine(void* out) {
  return mainarch_engine_info_get(s.engine, out, &t_error);
}
static mainarch_status get_statistics(void* out) {
  return mainarch_engine_statistics_get(s.engine, out, &t_error);
}
static mainarch_status get_sequence(void* out) {
  return mainarch_sequence_info_get(s.engine, s.sequence, out, &t_error);
}

static mainarch_status get_embed(void* out) {
  return mainarch_model_embed_info_get(s.model, out, &t_error);
}

/* `fields` of 8 bytes from `volatile_at` on may change from call to call. */
static void check_info(size_t size, mainarch_status (*get)(void*), size_t volatile_at,
                       size_t fields) {
  static const size_t wrong[] = {0, 8, 12, 18, 4104, SIZE_MAX};
  unsigned char full[1024], *out;
  size_t i, j, given;
  memset(full, 0, sizeof(full));
  out = struct_of(size, 0xA5);
  OK(get(out));
  memcpy(full, out, size);
  for (given = 16; given <= size + 64; given += 8) {
    out = struct_of(given, 0xA5);
    OK(get(out));
    CHECK(memcmp(out, &given, sizeof(given)) == 0); /* the size is the caller's */
    for (j = sizeof(given); j < given; ++j) {
      if (j >= volatile_at && j < volatile_at + 8 * fields) continue;
      if (out[j] != full[j]) t_fail(__FILE__, __LINE__, "size %zu: byte %zu differs", given, j);
      CHECK(out[j] == full[j]);
    }
    for (j = 1; j <= 64; ++j) CHECK(out[-(ptrdiff_t)j] == 0xA5);
  }
  for (i = 0; i < COUNT_OF(wrong); ++i) {
    out = struct_of(size, 0xA5);
    memcpy(out, &wrong[i], sizeof(wrong[i]));
    REFUSED(get(out), MAINARCH_ERROR_INVALID_ARGUMENT, "struct_size");
    for (j = sizeof(size_t); j < size; ++j) CHECK(out[j] == 0xA5);
  }
}

static void device_info(void) {
  check_info(sizeof(mainarch_device_info), get_device, offsetof(mainarch_device_info, free_bytes),
             1);
}
static void model_info(void) { /* moved_bytes and huge_bytes: weights are being moved */
  check_info(sizeof(mainarch_model_info), get_model, offsetof(mainarch_model_info, moved_bytes), 2);
}
static void recommended_options(void) {
  check_info(sizeof(mainarch_sequence_options), get_sequence_options, 0, 0);
}
static void tokenizer_info(void) { check_info(sizeof(mainarch_tokenizer_info), get_tokenizer, 0, 0); }
static void engine_info(void) { check_info(sizeof(mainarch_engine_info), get_engine, 0, 0); }
static void embed_info(void) { check_info(sizeof(mainarch_embed_info), get_embed, 0, 0); }
static void statistics(void) { check_info(sizeof(mainarch_engine_statistics), get_statistics, 0, 0); }
static void sequence_info(void) { check_info(sizeof(mainarch_sequence_info), get_sequence, 0, 0); }

/* The sizes of this soname's first release: a struct only ever grows. */
static void sizes_of_the_first_release(void) {
  CHECK(sizeof(mainarch_group_options) >= 40);
  CHECK(sizeof(mainarch_model_options) >= 32);
  CHECK(sizeof(mainarch_chat_options) >= 24);
  CHECK(sizeof(mainarch_engine_options) >= 40);
  CHECK(sizeof(mainarch_sequence_options) >= 120);
  CHECK(sizeof(mainarch_device_info) >= 128);
  CHECK(sizeof(mainarch_model_info) >= 184);
  CHECK(sizeof(mainarch_tokenizer_info) >= 32);
  CHECK(sizeof(mainarch_engine_info) >= 40);
  CHECK(sizeof(mainarch_engine_statistics) >= 56);
  CHECK(sizeof(mainarch_sequence_info) >= 56);
  CHECK_EQ(sizeof(mainarch_error), 512);
  CHECK_EQ(sizeof(mainarch_chat_message), 16);
  CHECK_EQ(sizeof(mainarch_logit_bias), 8);
  CHECK_EQ(sizeof(mainarch_logprob), 8);
}

int main(int argc, char** argv) {
  static const t_case cases[] = {
      CASE(group_options),       CASE(model_options),
      CASE(chat_options),        CASE(engine_options),
      CASE(sequence_options),    CASE(shorter_options_end_where_they_say),
      CASE(device_info),         CASE(model_info),
      CASE(recommended_options), CASE(tokenizer_info),
      CASE(engine_info),         CASE(statistics),
      CASE(sequence_info),       CASE(sizes_of_the_first_release),
      CASE(embed_options),       CASE(embed_info)};
  ZERO(mainarch_model_options, for_vectors);
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  int result;
  pages_size = 4 * page;
  pages = mmap(NULL, pages_size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || mprotect(pages + pages_size, page, PROT_NONE) != 0) return 1;
  if (t_open(&s, 1) != MAINARCH_OK) t_fail(__FILE__, __LINE__, "open: %s", t_error.message);
  if (mainarch_tokenizer_open(t_checkpoint(), &chat, &t_error) != MAINARCH_OK) {
    t_fail(__FILE__, __LINE__, "open: %s", t_error.message);
  }
  for_vectors.flags = MAINARCH_MODEL_EMBED;
  if (mainarch_model_open(s.group, t_checkpoint(), &for_vectors, &vectors.model, &t_error) != MAINARCH_OK ||
      mainarch_engine_create(vectors.model, NULL, &vectors.engine, &t_error) != MAINARCH_OK) {
    t_fail(__FILE__, __LINE__, "open: %s", t_error.message);
  }
  result = RUN(cases);
  t_close(&vectors);
  mainarch_tokenizer_destroy(chat);
  t_close(&s);
  return result;
}
