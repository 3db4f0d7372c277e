/* SPDX-License-Identifier: MIT */
/* Every function with every kind of bad argument: a status, a message that names it, no change. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api_test.h"

static t_stack s;

static void version_and_names(void) {
  mainarch_status status;
  CHECK_EQ(mainarch_version(),
           MAINARCH_VERSION_MAJOR << 16 | MAINARCH_VERSION_MINOR << 8 | MAINARCH_VERSION_PATCH);
  CHECK(strcmp(mainarch_version_string(), TEST_PROJECT_VERSION) == 0);
  for (status = -100; status < 100; ++status) {
    CHECK(mainarch_status_string(status) != NULL && mainarch_status_string(status)[0] != '\0');
  }
  CHECK(strcmp(mainarch_status_string(INT_MIN), "unknown status") == 0);
  CHECK(strcmp(mainarch_status_string(-20), "out of host memory") == 0);
  CHECK_EQ(sizeof(mainarch_error), 512);
}

static void destroy_null(void) {
  mainarch_group_destroy(NULL);
  mainarch_model_destroy(NULL);
  mainarch_tokenizer_destroy(NULL);
  mainarch_decoder_destroy(NULL);
  mainarch_engine_destroy(NULL);
  mainarch_engine_cancel(NULL);
  CHECK_EQ(mainarch_engine_event_fd(NULL), -1);
  CHECK_EQ(mainarch_group_device_count(NULL), 0);
}

static void error_may_be_null(void) {
  mainarch_group* group = (mainarch_group*)&group;
  CHECK_EQ(mainarch_group_open("no such device", NULL, &group, NULL), INVALID);
  CHECK(group == NULL);
  CHECK_EQ(mainarch_engine_step(NULL, NULL), INVALID);
}

static void group_open(void) {
  static const char* const wrong[] = {"tpu",
                                      "cpu:",
                                      "cpu:0",
                                      "cpu:3",
                                      "cpu:-1",
                                      "cpu:16",
                                      "cpu:1x",
                                      "CPU",
                                      ":",
                                      "cpu ",
                                      "cpu:99999999999999999999",
                                      "\n"};
  mainarch_group* group;
  size_t i;
  ZERO(mainarch_group_options, options);
  REFUSED(mainarch_group_open("cpu", NULL, NULL, &t_error), INVALID, "out");
  for (i = 0; i < COUNT_OF(wrong); ++i) {
    group = (mainarch_group*)&group;
    REFUSED(mainarch_group_open(wrong[i], NULL, &group, &t_error), INVALID, "device");
    CHECK(group == NULL);
  }
  options.threads = 1025;
  REFUSED(mainarch_group_open("cpu", &options, &group, &t_error), INVALID, "1025");
  options.threads = 0;
  options.flags = UINT64_C(1) << 63;
  REFUSED(mainarch_group_open("cpu", &options, &group, &t_error), UNSUPPORTED, "flags");
  options.flags = 0;
  options.log_level = 5;
  REFUSED(mainarch_group_open("cpu", &options, &group, &t_error), INVALID, "log_level");
  options.log_level = -1;
  REFUSED(mainarch_group_open("cpu", &options, &group, &t_error), INVALID, "log_level");
}

static void no_gpu_here(void) {
  mainarch_group* group = NULL;
  const mainarch_status status = mainarch_group_open("gpu", NULL, &group, &t_error);
  mainarch_group_destroy(group);
  if (status == MAINARCH_OK) {
    t_skip("this machine has one");
    return;
  }
#ifdef MAINARCH_WITHOUT_GPUS
  CHECK_EQ(status, MAINARCH_ERROR_UNSUPPORTED);
#else
  CHECK(status == MAINARCH_ERROR_NO_DEVICE || status == MAINARCH_ERROR_PERMISSION);
#endif
}

static void environment(void) {
  mainarch_group* group;
  ZERO(mainarch_group_options, options);
  setenv("MAINARCH_LOG", "loud", 1);
  REFUSED(mainarch_group_open("cpu", NULL, &group, &t_error), INVALID, "MAINARCH_LOG");
  options.flags = MAINARCH_GROUP_IGNORE_ENVIRONMENT;
  OK(mainarch_group_open("cpu", &options, &group, &t_error));
  mainarch_group_destroy(group);
  unsetenv("MAINARCH_LOG");

  setenv("MAINARCH_DEVICES", "2", 1);
  REFUSED(mainarch_group_open(NULL, NULL, &group, &t_error), INVALID, "MAINARCH_BACKEND");
  setenv("MAINARCH_BACKEND", "cpu", 1);
  OK(mainarch_group_open(NULL, NULL, &group, &t_error));
  CHECK_EQ(mainarch_group_device_count(group), 2);
  mainarch_group_destroy(group);
  OK(mainarch_group_open("", NULL, &group, &t_error));
  CHECK_EQ(mainarch_group_device_count(group), 2);
  mainarch_group_destroy(group);
  OK(mainarch_group_open("cpu:4", NULL, &group, &t_error)); /* the caller's word goes first */
  CHECK_EQ(mainarch_group_device_count(group), 4);
  mainarch_group_destroy(group);
  OK(mainarch_group_open("cpu", &options, &group, &t_error));
  CHECK_EQ(mainarch_group_device_count(group), 1);
  mainarch_group_destroy(group);
  unsetenv("MAINARCH_DEVICES");
  unsetenv("MAINARCH_BACKEND");
}

/* The header: NULL or "" is "cpu" when the environment names nothing, whatever this machine has. */
static void no_device_named_is_the_cpu(void) {
  static const char* const names[] = {"cpu", NULL, ""};
  char isa[3][32];
  size_t i;
  for (i = 0; i < COUNT_OF(names); ++i) {
    mainarch_group* group;
    ZERO(mainarch_device_info, info);
    OK(mainarch_group_open(names[i], NULL, &group, &t_error));
    CHECK_EQ(mainarch_group_device_count(group), 1);
    OK(mainarch_group_device_info_get(group, 0, &info, &t_error));
    memcpy(isa[i], info.isa, sizeof(isa[i]));
    mainarch_group_destroy(group);
  }
  CHECK(strcmp(isa[0], isa[1]) == 0 && strcmp(isa[0], isa[2]) == 0);
  CHECK(strncmp(isa[0], "gfx", 3) != 0);
}

static void device_info(void) {
  ZERO(mainarch_device_info, info);
  REFUSED(mainarch_group_device_info_get(NULL, 0, &info, &t_error), INVALID, "group");
  REFUSED(mainarch_group_device_info_get(s.group, 0, NULL, &t_error), INVALID, "out");
  REFUSED(mainarch_group_device_info_get(s.group, 1, &info, &t_error), INVALID, "index 1");
  REFUSED(mainarch_group_device_info_get(s.group, SIZE_MAX, &info, &t_error), INVALID, "index");
  OK(mainarch_group_device_info_get(s.group, 0, &info, &t_error));
  CHECK(info.memory_bytes > 0 && info.free_bytes > 0 && info.free_bytes <= info.memory_bytes);
  CHECK_EQ(info.compute_units, 2);
  CHECK(info.name[0] != '\0' && info.isa[0] != '\0');
}

static int cancel_progress(void* user, uint64_t done, uint64_t total) {
  ++*(int*)user;
  return done <= total;
}

static int count_progress(void* user, uint64_t done, uint64_t total) {
  uint64_t* last = user;
  if (done < last[0] || done > total) ++last[2];
  last[0] = done;
  last[1] = total;
  return 0;
}

static void model_open(void) {
  mainarch_model* model = (mainarch_model*)&model;
  int calls = 0;
  uint64_t last[3] = {0, 0, 0};
  ZERO(mainarch_model_options, options);
  REFUSED(mainarch_model_open(NULL, t_checkpoint(), NULL, &model, &t_error), INVALID, "group");
  CHECK(model == NULL);
  REFUSED(mainarch_model_open(s.group, NULL, NULL, &model, &t_error), INVALID, "path");
  REFUSED(mainarch_model_open(s.group, t_checkpoint(), NULL, NULL, &t_error), INVALID, "out");
  REFUSED(mainarch_model_open(s.group, "/nonexistent/x", NULL, &model, &t_error), NOT_FOUND,
          "/nonexistent/x");
  CHECK_EQ(t_error.os_errno, 2);
  REFUSED(mainarch_model_open(s.group, "", NULL, &model, &t_error), NOT_FOUND, "\"\"");
  REFUSED(mainarch_model_open(s.group, "/dev/null", NULL, &model, &t_error), INVALID, "/dev/null");
  REFUSED(mainarch_model_open(s.group, "/proc/self", NULL, &model, &t_error), NOT_FOUND,
          "config.json");
  options.flags = MAINARCH_MODEL_EMBED << 1;
  REFUSED(mainarch_model_open(s.group, t_checkpoint(), &options, &model, &t_error), UNSUPPORTED,
          "flags");
  options.flags = 0;
  options.progress = cancel_progress;
  options.progress_user = &calls;
  REFUSED(mainarch_model_open(s.group, t_checkpoint(), &options, &model, &t_error),
          MAINARCH_ERROR_CANCELLED, "cancel");
  CHECK_EQ(calls, 1);
  CHECK(model == NULL);
  options.progress = count_progress;
  options.progress_user = last;
  OK(mainarch_model_open(s.group, t_checkpoint(), &options, &model, &t_error));
  mainarch_model_destroy(model);
  CHECK(last[0] > 0 && last[0] == last[1] && last[2] == 0);
}

static void model_info(void) {
  uint32_t tokens[2] = {7, 7};
  size_t count = 9;
  ZERO(mainarch_model_info, info);
  ZERO(mainarch_sequence_options, options);
  REFUSED(mainarch_model_info_get(NULL, &info, &t_error), INVALID, "model");
  REFUSED(mainarch_model_info_get(s.model, NULL, &t_error), INVALID, "out");
  OK(mainarch_model_info_get(s.model, &info, &t_error));
  CHECK_EQ(info.vocab_size, T_VOCAB);
  CHECK_EQ(info.max_tokens, T_MAX_TOKENS);
  CHECK_EQ(info.layers, 5);
  CHECK_EQ(info.hidden_size, 128);
  CHECK_EQ(info.experts, 16);
  CHECK_EQ(info.experts_per_token, 4);
  CHECK(info.parameter_count > 4600000 && info.parameter_count < 4800000);
  CHECK(info.weight_bytes > 2 * 4600000 && info.file_bytes > 2 * info.parameter_count);
  CHECK(strcmp(info.architecture, "qwen3_moe") == 0);
  CHECK(strcmp(info.formats, "bf16") == 0);

  REFUSED(mainarch_model_end_tokens(NULL, tokens, 2, &count, &t_error), INVALID, "model");
  CHECK_EQ(count, 0);
  REFUSED(mainarch_model_end_tokens(s.model, NULL, 2, &count, &t_error), INVALID, "tokens");
  REFUSED(mainarch_model_end_tokens(s.model, tokens, 2, NULL, &t_error), INVALID, "count");
  REFUSED(mainarch_model_end_tokens(s.model, tokens, 1, &count, &t_error), TOO_SMALL, "tokens");
  CHECK(count == 2 && tokens[0] == 7);
  OK(mainarch_model_end_tokens(s.model, tokens, 2, &count, &t_error));
  CHECK(count == 2 && tokens[0] == 2043 && tokens[1] == T_END);

  REFUSED(mainarch_model_sequence_options(NULL, &options, &t_error), INVALID, "model");
  REFUSED(mainarch_model_sequence_options(s.model, NULL, &t_error), INVALID, "out");
  OK(mainarch_model_sequence_options(s.model, &options, &t_error));
  CHECK_EQ(options.top_k, 20);
  CHECK(fabsf(options.temperature - 0.6f) < 1e-6f && fabsf(options.top_p - 0.95f) < 1e-6f);
  CHECK(options.struct_size == sizeof(options) && options.stop_tokens == NULL);
}

/* The CPU first, as group_open would have it; then this machine's GPUs, if it has any. */
static void devices_before_open(void) {
  size_t i;
  ZERO(mainarch_device_info, info);
  ZERO(mainarch_device_info, opened);
  OK(mainarch_device_get(0, &info, &t_error));
  CHECK(strcmp(info.device, "cpu") == 0 && info.status == MAINARCH_OK && info.reason[0] == 0);
  OK(mainarch_group_device_info_get(s.group, 0, &opened, &t_error));
  CHECK(strcmp(info.name, opened.name) == 0 && strcmp(info.isa, opened.isa) == 0);
  CHECK(info.memory_bytes == opened.memory_bytes && info.free_bytes <= info.memory_bytes);
  CHECK(opened.device[0] == 0 && opened.status == 0);
  for (i = 1; i < 100; ++i) {
    const mainarch_status status = mainarch_device_get(i, &info, &t_error);
    if (status == MAINARCH_ERROR_NOT_FOUND) break;
    CHECK_EQ(status, MAINARCH_OK);
    CHECK(strncmp(info.device, "gpu:", 4) == 0 && info.memory_bytes > 0);
    CHECK((info.status == MAINARCH_OK) == (info.reason[0] == 0));
  }
  REFUSED(mainarch_device_get(i, &info, &t_error), MAINARCH_ERROR_NOT_FOUND, "devices");
  REFUSED(mainarch_device_get(SIZE_MAX, &info, &t_error), MAINARCH_ERROR_NOT_FOUND, "devices");
  REFUSED(mainarch_device_get(0, NULL, &t_error), INVALID, "out");
}

static void engine_create(void) {
  mainarch_engine* engine = (mainarch_engine*)&engine;
  ZERO(mainarch_engine_options, options);
  REFUSED(mainarch_engine_create(NULL, NULL, &engine, &t_error), INVALID, "model");
  CHECK(engine == NULL);
  REFUSED(mainarch_engine_create(s.model, NULL, NULL, &t_error), INVALID, "out");
#define BAD(field, value, code, word)                                                \
  options.field = value;                                                             \
  REFUSED(mainarch_engine_create(s.model, &options, &engine, &t_error), code, word); \
  options.field = 0
  BAD(flags, MAINARCH_ENGINE_MXFP8 << 1, UNSUPPORTED, "flags");
  BAD(flags, MAINARCH_ENGINE_KV_NEAR, INVALID, "fp4 and k8v4");
  BAD(flags, MAINARCH_ENGINE_RESIDENT, UNSUPPORTED, "no GPU");
  BAD(max_sequences, 65537, INVALID, "max_sequences");
  BAD(max_sequence_tokens, T_MAX_TOKENS + 1, INVALID, "max_sequence_tokens");
  BAD(max_step_tokens, (1u << 20) + 1, INVALID, "max_step_tokens");
  BAD(kv_tokens, UINT64_MAX, INVALID, "kv_tokens");
  BAD(kv_type, MAINARCH_KV_K8V4 + 1, INVALID, "kv_type");
  BAD(kv_type, -1, INVALID, "kv_type");
  BAD(drafts, MAINARCH_DRAFTS_AUTO + 1, INVALID, "drafts");
  BAD(drafts, -1, INVALID, "drafts");
  BAD(drafts, MAINARCH_DRAFTS_HEAD, INVALID, "has none");
  BAD(max_drafts, 9, INVALID, "max_drafts");
#undef BAD
  CHECK(engine == NULL);
  options.flags = MAINARCH_ENGINE_FAST;
  options.max_sequence_tokens = 32;
  OK(mainarch_engine_create(s.model, &options, &engine, &t_error));
  mainarch_engine_destroy(engine);
  options.flags = MAINARCH_ENGINE_RESIDENT_AUTO;
  OK(mainarch_engine_create(s.model, &options, &engine, &t_error));
  mainarch_engine_destroy(engine);
  options.flags = MAINARCH_ENGINE_RESIDENT | MAINARCH_ENGINE_RESIDENT_AUTO;
  OK(mainarch_engine_create(s.model, &options, &engine, &t_error));
  mainarch_engine_destroy(engine);
  options.flags = MAINARCH_ENGINE_FAST | MAINARCH_ENGINE_INT8;
  OK(mainarch_engine_create(s.model, &options, &engine, &t_error));
  mainarch_engine_destroy(engine);
}

static void engine_prefixes(void) {
  const uint32_t token = 300;
  size_t pinned = 7;
  REFUSED(mainarch_engine_pin_prefix(NULL, &token, 1, 0, &pinned, &t_error), INVALID, "engine");
  CHECK_EQ(pinned, 0);
  REFUSED(mainarch_engine_pin_prefix(s.engine, &token, 1, 0, NULL, &t_error), INVALID, "pinned");
  REFUSED(mainarch_engine_pin_prefix(s.engine, NULL, 1, 0, &pinned, &t_error), INVALID, "tokens");
  REFUSED(mainarch_engine_drop_prefix(NULL, &token, 1, 0, &t_error), INVALID, "engine");
  REFUSED(mainarch_engine_drop_prefix(s.engine, NULL, 1, 0, &t_error), INVALID, "tokens");
  OK(mainarch_engine_pin_prefix(s.engine, NULL, 0, 0, &pinned, &t_error));
  CHECK_EQ(pinned, 0);
  OK(mainarch_engine_drop_prefix(s.engine, NULL, 0, 0, &t_error));
}

static void engine_info(void) {
  ZERO(mainarch_engine_info, info);
  ZERO(mainarch_engine_statistics, statistics);
  REFUSED(mainarch_engine_info_get(NULL, &info, &t_error), INVALID, "engine");
  REFUSED(mainarch_engine_info_get(s.engine, NULL, &t_error), INVALID, "out");
  REFUSED(mainarch_engine_statistics_get(NULL, &statistics, &t_error), INVALID, "engine");
  REFUSED(mainarch_engine_statistics_get(s.engine, NULL, &t_error), INVALID, "out");
  OK(mainarch_engine_info_get(s.engine, &info, &t_error));
  CHECK_EQ(info.max_sequences, 4);
  CHECK_EQ(info.max_sequence_tokens, 256);
  CHECK_EQ(info.kv_tokens, 4 * 256);
  CHECK_EQ(info.kv_type, MAINARCH_KV_BF16);
  CHECK(info.max_step_tokens > 0 && info.memory_bytes > 0);
  REFUSED(mainarch_engine_step(NULL, &t_error), INVALID, "engine");
  REFUSED(mainarch_engine_submit(NULL, &t_error), INVALID, "engine");
  REFUSED(mainarch_engine_wait(NULL, 0, &t_error), INVALID, "engine");
  OK(mainarch_engine_wait(s.engine, 0, &t_error)); /* nothing in flight */
}

static void sequence_options(void) {
  static const uint32_t wrong_token = T_VOCAB, good_token = 5, zero = 0, huge = UINT32_MAX;
  mainarch_logit_bias bias = {5, 0};
  mainarch_sequence sequence = 9;
  ZERO(mainarch_sequence_options, options);
  REFUSED(mainarch_sequence_open(NULL, NULL, &sequence, &t_error), INVALID, "engine");
  CHECK_EQ(sequence, 0);
  REFUSED(mainarch_sequence_open(s.engine, NULL, NULL, &t_error), INVALID, "out");
#define TRY(code, word) \
  REFUSED(mainarch_sequence_open(s.engine, &options, &sequence, &t_error), code, word)
#define BAD(field, value, code, word) \
  options.field = value;              \
  TRY(code, word);                    \
  options.field = 0
  BAD(flags, UINT64_C(1) << 63, UNSUPPORTED, "flags");
  BAD(temperature, -1, INVALID, "temperature");
  BAD(temperature, NAN, INVALID, "temperature");
  BAD(temperature, INFINITY, INVALID, "temperature");
  BAD(top_p, -0.1f, INVALID, "top_p");
  BAD(top_p, NAN, INVALID, "top_p");
  BAD(min_p, 1.5f, INVALID, "min_p");
  BAD(min_p, NAN, INVALID, "min_p");
  BAD(repetition_penalty, -1, INVALID, "repetition_penalty");
  BAD(repetition_penalty, NAN, INVALID, "repetition_penalty");
  BAD(frequency_penalty, 1e4f, INVALID, "frequency_penalty");
  BAD(presence_penalty, NAN, INVALID, "presence_penalty");
  BAD(logprobs, 33, INVALID, "logprobs");
  options.max_tokens = 1;
  BAD(min_tokens, 2, INVALID, "min_tokens");
  options.max_tokens = 0;

  options.stop_token_count = 1;
  TRY(INVALID, "stop_tokens");
  options.stop_tokens = &wrong_token;
  TRY(INVALID, "stop_tokens");
  options.stop_token_count = SIZE_MAX;
  TRY(INVALID, "stop_tokens");
  options.stop_token_count = 0;
  options.stop_tokens = NULL;

  options.stop_sequence_count = 1;
  TRY(INVALID, "stop_sequence_lengths");
  options.stop_sequence_lengths = &good_token;
  TRY(INVALID, "stop_sequence_tokens");
  options.stop_sequence_tokens = &good_token;
  options.stop_sequence_lengths = &zero;
  TRY(INVALID, "stop_sequence_lengths[0]");
  options.stop_sequence_lengths = &huge;
  TRY(INVALID, "stop_sequence_tokens");
  options.stop_sequence_count = SIZE_MAX / 2;
  TRY(INVALID, "stop_sequence_lengths");
  options.stop_sequence_count = 0;

  options.logit_bias_count = 1;
  TRY(INVALID, "logit_bias");
  options.logit_bias = &bias;
  bias.bias = NAN;
  TRY(INVALID, "logit_bias");
  bias.bias = INFINITY;
  TRY(INVALID, "logit_bias");
  bias.bias = 0;
  bias.token = T_VOCAB;
  TRY(INVALID, "logit_bias");
  options.logit_bias_count = SIZE_MAX;
  TRY(INVALID, "logit_bias");
#undef BAD
#undef TRY
  CHECK_EQ(sequence, 0);
}

/* Every function of a sequence with an id that is none. */
static void check_stale(mainarch_sequence id) {
  uint32_t token = 1;
  float logit;
  mainarch_logprob logprob;
  mainarch_sequence out = 9;
  unsigned char byte = 7;
  size_t count = 9;
  ZERO(mainarch_sequence_info, info);
  REFUSED(mainarch_sequence_close(s.engine, id, &t_error), NOT_FOUND, "sequence");
  REFUSED(mainarch_sequence_fork(s.engine, id, &out, &t_error), NOT_FOUND, "sequence");
  CHECK_EQ(out, 0);
  REFUSED(mainarch_sequence_set_seed(s.engine, id, 1, &t_error), NOT_FOUND, "sequence");
  REFUSED(mainarch_sequence_truncate(s.engine, id, 0, &t_error), NOT_FOUND, "sequence");
  REFUSED(mainarch_sequence_append(s.engine, id, &token, 1, &t_error), NOT_FOUND, "sequence");
  REFUSED(mainarch_sequence_take(s.engine, id, &token, 1, &count, &t_error), NOT_FOUND, "sequence");
  CHECK_EQ(count, 0);
  REFUSED(mainarch_sequence_take(s.engine, id, NULL, 0, &count, &t_error), NOT_FOUND, "sequence");
  REFUSED(mainarch_sequence_logprobs(s.engine, id, 0, &logprob, 1, &count, &t_error), NOT_FOUND,
          "sequence");
  REFUSED(mainarch_sequence_logits(s.engine, id, &logit, 1, &count, &t_error), NOT_FOUND,
          "sequence");
  REFUSED(mainarch_sequence_logits_at(s.engine, id, 0, &logit, 1, &count, &t_error), NOT_FOUND,
          "sequence");
  REFUSED(mainarch_sequence_prompt_logprobs(s.engine, id, 1, &logprob, 1, &count, &t_error),
          NOT_FOUND, "sequence");
  REFUSED(mainarch_sequence_info_get(s.engine, id, &info, &t_error), NOT_FOUND, "sequence");
  count = 9;
  REFUSED(mainarch_sequence_export(s.engine, id, &byte, 1, &count, &t_error), NOT_FOUND,
          "sequence");
  CHECK_EQ(count, 0);
  count = 9;
  REFUSED(mainarch_sequence_export_with(s.engine, id, MAINARCH_EXPORT_KV, &byte, 1, &count,
                                        &t_error),
          NOT_FOUND, "sequence");
  CHECK_EQ(count, 0);
  CHECK_EQ(byte, 7);
}

static void stale_sequences(void) {
  mainarch_sequence closed, again;
  OK(mainarch_sequence_open(s.engine, NULL, &closed, &t_error));
  CHECK(closed != 0 && closed != s.sequence);
  OK(mainarch_sequence_close(s.engine, closed, &t_error));
  check_stale(0);
  check_stale(closed);
  check_stale(UINT64_MAX);
  check_stale(s.sequence ^ UINT64_C(1) << 40);
  OK(mainarch_sequence_open(s.engine, NULL, &again, &t_error));
  CHECK(again != closed); /* the same slot, another generation */
  check_stale(closed);
  OK(mainarch_sequence_close(s.engine, again, &t_error));
}

static void sequence_calls(void) {
  const uint32_t wrong[3] = {1, 2, T_VOCAB};
  static uint32_t many[257];
  uint32_t token;
  float logit;
  mainarch_logprob logprob;
  mainarch_sequence id = s.sequence, out = 9;
  size_t count = 9;
  ZERO(mainarch_sequence_info, before);
  ZERO(mainarch_sequence_info, after);
  OK(mainarch_sequence_info_get(s.engine, id, &before, &t_error));
  REFUSED(mainarch_sequence_close(NULL, id, &t_error), INVALID, "engine");
  REFUSED(mainarch_sequence_fork(NULL, id, &out, &t_error), INVALID, "engine");
  CHECK_EQ(out, 0);
  REFUSED(mainarch_sequence_fork(s.engine, id, NULL, &t_error), INVALID, "out");
  REFUSED(mainarch_sequence_set_seed(NULL, id, 1, &t_error), INVALID, "engine");
  REFUSED(mainarch_sequence_truncate(NULL, id, 0, &t_error), INVALID, "engine");
  REFUSED(mainarch_sequence_truncate(s.engine, id, before.tokens + 1, &t_error), INVALID,
          "truncate");
  REFUSED(mainarch_sequence_append(NULL, id, &token, 1, &t_error), INVALID, "engine");
  REFUSED(mainarch_sequence_append(s.engine, id, NULL, 1, &t_error), INVALID, "tokens");
  REFUSED(mainarch_sequence_append(s.engine, id, wrong, 3, &t_error), INVALID, "tokens[2]");
  REFUSED(mainarch_sequence_append(s.engine, id, many, 257, &t_error), MAINARCH_ERROR_KV_FULL,
          "256");
  REFUSED(mainarch_sequence_append(s.engine, id, many, SIZE_MAX, &t_error), MAINARCH_ERROR_KV_FULL,
          "256");
  OK(mainarch_sequence_append(s.engine, id, NULL, 0, &t_error));
  REFUSED(mainarch_sequence_take(NULL, id, &token, 1, &count, &t_error), INVALID, "engine");
  CHECK_EQ(count, 0);
  REFUSED(mainarch_sequence_take(s.engine, id, NULL, 1, &count, &t_error), INVALID, "tokens");
  REFUSED(mainarch_sequence_take(s.engine, id, &token, 1, NULL, &t_error), INVALID, "count");
  STATUS(mainarch_sequence_take(s.engine, id, &token, 1, &count, &t_error), MAINARCH_AGAIN);
  STATUS(mainarch_sequence_take(s.engine, id, NULL, 0, &count, &t_error), MAINARCH_AGAIN);
  REFUSED(mainarch_sequence_logprobs(NULL, id, 0, &logprob, 1, &count, &t_error), INVALID,
          "engine");
  REFUSED(mainarch_sequence_logprobs(s.engine, id, 0, NULL, 1, &count, &t_error), INVALID,
          "logprobs");
  REFUSED(mainarch_sequence_logprobs(s.engine, id, 0, &logprob, 1, NULL, &t_error), INVALID,
          "count");
  REFUSED(mainarch_sequence_logprobs(s.engine, id, 0, &logprob, 1, &count, &t_error), INVALID,
          "logprobs");
  REFUSED(mainarch_sequence_logits(NULL, id, &logit, 1, &count, &t_error), INVALID, "engine");
  REFUSED(mainarch_sequence_logits(s.engine, id, NULL, 1, &count, &t_error), INVALID, "logits");
  REFUSED(mainarch_sequence_logits(s.engine, id, &logit, 1, NULL, &t_error), INVALID, "count");
  REFUSED(mainarch_sequence_logits(s.engine, id, &logit, 1, &count, &t_error), MAINARCH_ERROR_BUSY,
          "logits");
  REFUSED(mainarch_sequence_logits_at(NULL, id, 0, &logit, 1, &count, &t_error), INVALID, "engine");
  REFUSED(mainarch_sequence_logits_at(s.engine, id, 0, NULL, 1, &count, &t_error), INVALID,
          "logits");
  REFUSED(mainarch_sequence_logits_at(s.engine, id, 0, &logit, 1, NULL, &t_error), INVALID,
          "count");
  REFUSED(mainarch_sequence_prompt_logprobs(NULL, id, 1, &logprob, 1, &count, &t_error), INVALID,
          "engine");
  REFUSED(mainarch_sequence_prompt_logprobs(s.engine, id, 1, NULL, 1, &count, &t_error), INVALID,
          "logprobs");
  REFUSED(mainarch_sequence_prompt_logprobs(s.engine, id, 1, &logprob, 1, NULL, &t_error), INVALID,
          "count");
  REFUSED(mainarch_sequence_info_get(NULL, id, &after, &t_error), INVALID, "engine");
  REFUSED(mainarch_sequence_info_get(s.engine, id, NULL, &t_error), INVALID, "out");
  OK(mainarch_sequence_info_get(s.engine, id, &after, &t_error));
  CHECK(memcmp(&before, &after, sizeof(before)) == 0); /* nothing has changed */
}

/* With and without content: what is refused leaves the buffer, and no count but the one wanted. */
static void export_calls(void) {
  static const uint64_t flags[] = {0, MAINARCH_EXPORT_KV};
  static const uint64_t unknown[] = {MAINARCH_EXPORT_KV << 1,
                                     MAINARCH_EXPORT_KV | UINT64_C(1) << 63, UINT64_MAX};
  unsigned char bytes[4096];
  mainarch_sequence id, copy = 9;
  uint32_t prompt[40];
  size_t count, few, i, k, sizes[2];
  for (i = 0; i < 40; ++i) prompt[i] = (uint32_t)(300 + i);
  OK(mainarch_sequence_open(s.engine, NULL, &id, &t_error));
  for (k = 0; k < 2; ++k) { /* nothing has run: there is no content */
    REFUSED(mainarch_sequence_export_with(s.engine, id, flags[k], NULL, 0, &sizes[k], &t_error),
            TOO_SMALL, "bytes");
    CHECK(sizes[k] > 0);
  }
  OK(mainarch_sequence_append(s.engine, id, prompt, 40, &t_error));
  OK(mainarch_engine_step(s.engine, &t_error));
  memset(bytes, 7, sizeof(bytes));
  for (k = 0; k < 2; ++k) {
    count = 9;
    REFUSED(mainarch_sequence_export_with(NULL, id, flags[k], bytes, 9, &count, &t_error), INVALID,
            "engine");
    CHECK_EQ(count, 0);
    count = 9;
    REFUSED(mainarch_sequence_export_with(s.engine, id, flags[k], NULL, 1, &count, &t_error),
            INVALID, "bytes");
    CHECK_EQ(count, 0);
    REFUSED(mainarch_sequence_export_with(s.engine, id, flags[k], bytes, 9, NULL, &t_error),
            INVALID, "count");
    REFUSED(mainarch_sequence_export_with(s.engine, id, flags[k], bytes, 9, &sizes[k], &t_error),
            TOO_SMALL, "bytes");
    few = sizes[k] < sizeof(bytes) ? sizes[k] - 1 : 99;
    REFUSED(mainarch_sequence_export_with(s.engine, id, flags[k], bytes, few, &count, &t_error),
            TOO_SMALL, "bytes");
    CHECK_EQ(count, sizes[k]);
  }
  for (k = 0; k < 3; ++k) {
    count = 9;
    REFUSED(mainarch_sequence_export_with(s.engine, id, unknown[k], bytes, sizeof(bytes), &count,
                                          &t_error),
            UNSUPPORTED, "flags");
    CHECK_EQ(count, 0);
  }
  for (i = 0; i < sizeof(bytes); ++i) CHECK_EQ(bytes[i], 7);
  CHECK(sizes[1] > sizes[0] + 1000); /* the content came along */
  CHECK(sizes[0] < sizeof(bytes));
  /* Without flags it is the other function. */
  OK(mainarch_sequence_export_with(s.engine, id, 0, bytes, sizes[0], &count, &t_error));
  REFUSED(mainarch_sequence_export(s.engine, id, NULL, 0, &count, &t_error), TOO_SMALL, "bytes");
  CHECK_EQ(count, sizes[0]);
  REFUSED(mainarch_sequence_import(NULL, bytes, sizes[0], &copy, &t_error), INVALID, "engine");
  CHECK_EQ(copy, 0);
  REFUSED(mainarch_sequence_import(s.engine, NULL, 1, &copy, &t_error), INVALID, "bytes");
  REFUSED(mainarch_sequence_import(s.engine, bytes, sizes[0], NULL, &t_error), INVALID, "out");
  REFUSED(mainarch_sequence_import(s.engine, bytes, sizes[0] - 1, &copy, &t_error), INVALID, "");
  OK(mainarch_sequence_import(s.engine, bytes, sizes[0], &copy, &t_error));
  OK(mainarch_sequence_close(s.engine, copy, &t_error));
  OK(mainarch_sequence_close(s.engine, id, &t_error));
}

static void too_many_sequences(void) {
  mainarch_sequence ids[4], out = 9;
  size_t i;
  for (i = 0; i < 3; ++i) OK(mainarch_sequence_open(s.engine, NULL, &ids[i], &t_error));
  REFUSED(mainarch_sequence_open(s.engine, NULL, &out, &t_error), MAINARCH_ERROR_BUSY,
          "max_sequences");
  CHECK_EQ(out, 0);
  REFUSED(mainarch_sequence_fork(s.engine, s.sequence, &out, &t_error), MAINARCH_ERROR_BUSY,
          "max_sequences");
  for (i = 0; i < 3; ++i) OK(mainarch_sequence_close(s.engine, ids[i], &t_error));
}

int main(int argc, char** argv) {
  static const t_case cases[] = {
      CASE(version_and_names), CASE(destroy_null), CASE(error_may_be_null), CASE(group_open),
      CASE(no_gpu_here), CASE(environment), CASE(no_device_named_is_the_cpu), CASE(devices_before_open),
      CASE(device_info), CASE(model_open), CASE(model_info), CASE(engine_create),
                                 CASE(engine_prefixes),
      CASE(engine_info), CASE(sequence_options), CASE(stale_sequences), CASE(sequence_calls),
      CASE(export_calls), CASE(too_many_sequences)};
  int result;
  if (t_open(&s, 2) != MAINARCH_OK) t_fail(__FILE__, __LINE__, "open: %s", t_error.message);
  result = RUN(cases);
  t_close(&s);
  return result;
}
