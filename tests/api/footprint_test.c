/* SPDX-License-Identifier: MIT */
/* What the library keeps in memory beyond weights and KV, of a model of Qwen3-0.6B's shape: at most
 * 32 MB. The checkpoint is all holes but for its header, so that its file costs nothing; it is
 * opened, given a prompt and stepped in a process of its own. Anonymous memory is the kernel's
 * count. (Fewer layers would not do: half a megabyte of noise, times nine.) */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api_test.h"

enum {
  kHidden = 1024,
  kIntermediate = 3072,
  kHeads = 16,
  kKvHeads = 8,
  kHeadDim = 128,
  kVocab = 151936,
  kLayers = 28,
  kChunkTokens = 256, /* KV is backed by chunks of so many */
  kPrompt = 500,      /* with what is generated, two chunks to within a page */
  kGenerated = 8
};
static const double kMostMb = 32;

/* ---- a checkpoint of holes */

static char header[1 << 16];
static size_t header_size;
static uint64_t data_size;

static void tensor(const char* name, int layer, uint64_t rows, uint64_t columns) {
  char full[128], shape[64];
  const uint64_t begin = data_size;
  if (layer < 0) {
    snprintf(full, sizeof(full), "model.%s.weight", name);
  } else {
    snprintf(full, sizeof(full), "model.layers.%d.%s.weight", layer, name);
  }
  if (columns == 0) {
    snprintf(shape, sizeof(shape), "[%" PRIu64 "]", rows);
  } else {
    snprintf(shape, sizeof(shape), "[%" PRIu64 ",%" PRIu64 "]", rows, columns);
  }
  data_size += 2 * rows * (columns == 0 ? 1 : columns);
  header_size += (size_t)snprintf(header + header_size, sizeof(header) - header_size,
                                  "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":%s,\"data_offsets\":"
                                  "[%" PRIu64 ",%" PRIu64 "]}",
                                  header_size == 0 ? '{' : ',', full, shape, begin, data_size);
}

static int write_file(const char* directory, const char* name, const void* at, size_t size,
                      uint64_t whole) {
  char path[256];
  int fd, good;
  snprintf(path, sizeof(path), "%s/%s", directory, name);
  fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return 0;
  good = write(fd, at, size) == (ssize_t)size && ftruncate(fd, (off_t)whole) == 0;
  return close(fd) == 0 && good;
}

static int make_checkpoint(const char* directory, int layers) {
  char config[1024];
  uint64_t length;
  int i;
  header_size = 0;
  data_size = 0;
  tensor("embed_tokens", -1, kVocab, kHidden);
  tensor("norm", -1, kHidden, 0);
  for (i = 0; i < layers; ++i) {
    tensor("input_layernorm", i, kHidden, 0);
    tensor("post_attention_layernorm", i, kHidden, 0);
    tensor("self_attn.q_proj", i, kHeads * kHeadDim, kHidden);
    tensor("self_attn.k_proj", i, kKvHeads * kHeadDim, kHidden);
    tensor("self_attn.v_proj", i, kKvHeads * kHeadDim, kHidden);
    tensor("self_attn.o_proj", i, kHidden, kHeads * kHeadDim);
    tensor("self_attn.q_norm", i, kHeadDim, 0);
    tensor("self_attn.k_norm", i, kHeadDim, 0);
    tensor("mlp.gate_proj", i, kIntermediate, kHidden);
    tensor("mlp.up_proj", i, kIntermediate, kHidden);
    tensor("mlp.down_proj", i, kHidden, kIntermediate);
  }
  header[header_size++] = '}';
  while (header_size % 8 != 0) header[header_size++] = ' ';
  length = header_size;
  memmove(header + 8, header, header_size);
  memcpy(header, &length, 8);
  snprintf(config, sizeof(config),
           "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_size\":%d,"
           "\"intermediate_size\":%d,\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
           "\"num_key_value_heads\":%d,\"head_dim\":%d,\"vocab_size\":%d,\"hidden_act\":\"silu\","
           "\"max_position_embeddings\":40960,\"rms_norm_eps\":1e-6,\"rope_theta\":1000000,"
           "\"tie_word_embeddings\":true,\"attention_bias\":false,\"torch_dtype\":\"bfloat16\"}",
           kHidden, kIntermediate, layers, kHeads, kKvHeads, kHeadDim, kVocab);
  return write_file(directory, "config.json", config, strlen(config), strlen(config)) &&
         write_file(directory, "model.safetensors", header, header_size + 8,
                    header_size + 8 + data_size);
}

/* ---- what a process has */

static double anonymous_mb(void) {
  char line[256];
  double mb = -1;
  FILE* file = fopen("/proc/self/smaps_rollup", "re");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    if (strncmp(line, "Anonymous:", 10) == 0) mb = strtod(line + 10, NULL) * 1024e-6;
  }
  if (file != NULL) fclose(file);
  return mb;
}

static double found_mb; /* by run() */

static void until_tokens(mainarch_engine* engine, mainarch_sequence sequence, size_t wanted) {
  uint32_t token;
  size_t count = 0;
  while (wanted > 0) {
    OK(mainarch_engine_step(engine, &t_error));
    OK(mainarch_sequence_take(engine, sequence, &token, 1, &count, &t_error));
    wanted -= count;
  }
}

static void run(const char* directory, int layers) {
  mainarch_group* group;
  mainarch_model* model;
  mainarch_engine* engine;
  mainarch_sequence sequence;
  mainarch_group_options group_options = {0};
  mainarch_engine_options engine_options = {0};
  mainarch_sequence_options sequence_options = {0};
  mainarch_model_info info;
  uint32_t prompt[kPrompt];
  int i;
  group_options.struct_size = sizeof(group_options);
  group_options.threads = 2;
  engine_options.struct_size = sizeof(engine_options);
  sequence_options.struct_size = sizeof(sequence_options);
  sequence_options.flags = MAINARCH_SEQUENCE_IGNORE_END;
  for (i = 0; i < kPrompt; ++i) prompt[i] = (uint32_t)i;
  OK(mainarch_group_open("cpu", &group_options, &group, &t_error));
  OK(mainarch_model_open(group, directory, NULL, &model, &t_error));
  OK(mainarch_engine_create(model, &engine_options, &engine, &t_error));
  OK(mainarch_sequence_open(engine, &sequence_options, &sequence, &t_error));
  OK(mainarch_sequence_append(engine, sequence, prompt, kPrompt, &t_error));
  until_tokens(engine, sequence, kGenerated);
  for (i = 0; i < 6000; ++i) { /* a minute, for the weights to have moved */
    memset(&info, 0, sizeof(info));
    info.struct_size = sizeof(info);
    OK(mainarch_model_info_get(model, &info, &t_error));
    OK(info.move_status);
    if (info.moved_bytes == info.move_bytes) break;
    usleep(10000);
  }
  CHECK_EQ(info.moved_bytes, info.move_bytes);
  CHECK(info.moved_bytes > 2u * kVocab * kHidden);
  found_mb = anonymous_mb() - (double)info.moved_bytes * 1e-6 -
             2e-6 * 2 * 2 * kChunkTokens * kKvHeads * kHeadDim * layers;
  mainarch_engine_destroy(engine);
  mainarch_model_destroy(model);
  mainarch_group_destroy(group);
}

/* MB beyond weights and KV at so many layers, in a fresh process; below -1000: it failed. */
static double beyond(int layers) {
  char directory[] = "/tmp/mainarch_footprint_XXXXXX", path[256];
  double mb = -1e6;
  int ends[2], status = 1;
  pid_t child;
  if (mkdtemp(directory) == NULL || !make_checkpoint(directory, layers) || pipe(ends) != 0) {
    return mb;
  }
  fflush(stdout);
  child = fork();
  if (child == 0) {
    run(directory, layers);
    fflush(stdout);
    _exit(t_failures() == 0 && write(ends[1], &found_mb, sizeof(found_mb)) == sizeof(found_mb) ? 0
                                                                                               : 1);
  }
  close(ends[1]);
  if (child > 0 && waitpid(child, &status, 0) == child && status == 0 &&
      read(ends[0], &mb, sizeof(mb)) != sizeof(mb)) {
    mb = -1e6;
  }
  close(ends[0]);
  snprintf(path, sizeof(path), "%s/model.safetensors", directory);
  unlink(path);
  snprintf(path, sizeof(path), "%s/config.json", directory);
  unlink(path);
  rmdir(directory);
  return mb;
}

static void memory_beyond_weights_and_kv(void) {
  const double mb = beyond(kLayers);
  CHECK(mb > -1000);
  printf("# %.1f MB at %d layers; the limit is %g\n", mb, (int)kLayers, kMostMb);
  CHECK(mb > 0); /* or something was counted twice */
  CHECK(mb <= kMostMb);
}

int main(int argc, char** argv) {
  const t_case cases[] = {CASE(memory_beyond_weights_and_kv)};
  return RUN(cases);
}
