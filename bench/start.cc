// SPDX-License-Identifier: MIT
//
// What a host program pays before its first token, and in memory: the library is opened with
// dlopen, as a plug-in would, and every figure stands beside its limit. Checkpoint pages should be
// in the page cache: run it twice.
//
//   start LIBRARY CHECKPOINT [THREADS] [--json]
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "mainarch.h"

namespace {

double Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void* library;
template <class F>
F* Function(F*, const char* name) {
  void* at = dlsym(library, name);
  if (at == nullptr) std::exit(std::fprintf(stderr, "start: no %s\n", name));
  return reinterpret_cast<F*>(at);
}
#define CALL(name) Function(&name, #name)

mainarch_error error;
mainarch_status Check(mainarch_status status) {
  if (status < 0) std::exit(std::fprintf(stderr, "start: %s\n", error.message));
  return status;
}

// A line of /proc/self/status, in MB of ten to the six.
double StatusMb(const char* key) {
  FILE* file = std::fopen("/proc/self/status", "re");
  char line[256];
  double mb = 0;
  while (file != nullptr && std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, key, std::strlen(key)) == 0) {
      mb = std::strtod(line + std::strlen(key) + 1, nullptr) * 1024e-6;
    }
  }
  if (file != nullptr) std::fclose(file);
  return mb;
}

// A number of the checkpoint's config.json; 0 if it is not there.
double ConfigNumber(const std::string& checkpoint, const char* key) {
  FILE* file = std::fopen((checkpoint + "/config.json").c_str(), "re");
  if (file == nullptr) return 0;
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  const size_t at = text.find('"' + std::string(key) + '"');
  const size_t colon = at == std::string::npos ? at : text.find(':', at);
  return colon == std::string::npos ? 0 : std::strtod(text.c_str() + colon + 1, nullptr);
}

// KV in memory after a token or two, in MB of ten to the six: bf16, backed by chunks of 256 tokens.
double FirstKvMb(const std::string& checkpoint) {
  return 2 * 2 * 256e-6 * ConfigNumber(checkpoint, "num_hidden_layers") *
         ConfigNumber(checkpoint, "num_key_value_heads") * ConfigNumber(checkpoint, "head_dim");
}

struct Row {
  const char* name;
  double value;
  const char* unit;
  double limit;  // 0: none
};
std::vector<Row> rows;
void Add(const char* name, double value, const char* unit, double limit) {
  rows.push_back({name, value, unit, limit});
}

template <class Options>
Options Sized() {
  Options options{};
  options.struct_size = sizeof(options);
  return options;
}

void Print(bool json) {
  if (json) std::printf("{");
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (json) {
      std::printf("%s\"%s\": {\"value\": %.6g, \"unit\": \"%s\", \"limit\": %.6g}", i ? ", " : "",
                  row.name, row.value, row.unit, row.limit);
      continue;
    }
    std::printf("%-44s %10.3f %-3s", row.name, row.value, row.unit);
    if (row.limit > 0) std::printf("  limit %g", row.limit);
    std::printf("\n");
  }
  if (json) std::printf("}\n");
}

void StepUntilToken(mainarch_engine* engine, mainarch_sequence sequence) {
  uint32_t token;
  size_t count = 0;
  do {
    Check(CALL(mainarch_engine_step)(engine, &error));
    Check(CALL(mainarch_sequence_take)(engine, sequence, &token, 1, &count, &error));
  } while (count == 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: start LIBRARY CHECKPOINT [THREADS] [--json]\n");
  const bool json = std::strcmp(argv[argc - 1], "--json") == 0;
  double start = Now();
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::fprintf(stderr, "start: %s\n", dlerror());
  (void)CALL(mainarch_version)();
  Add("dlopen and first call", (Now() - start) * 1e3, "ms", 1);

  const double begin = start = Now();
  auto group_options = Sized<mainarch_group_options>();
  group_options.threads = argc > 3 ? static_cast<uint32_t>(std::atoi(argv[3])) : 0;
  mainarch_group* group;
  mainarch_model* model;
  mainarch_engine* engine;
  mainarch_sequence sequence;
  Check(CALL(mainarch_group_open)("cpu", &group_options, &group, &error));
  Add("group open", (Now() - start) * 1e3, "ms", 0);
  start = Now();
  Check(CALL(mainarch_model_open)(group, argv[2], nullptr, &model, &error));
  Add("model open", (Now() - start) * 1e3, "ms", 0);
  start = Now();
  auto engine_options = Sized<mainarch_engine_options>();
  engine_options.max_sequence_tokens = 32768;
  auto info = Sized<mainarch_model_info>();
  Check(CALL(mainarch_model_info_get)(model, &info, &error));
  if (info.max_tokens < 32768) engine_options.max_sequence_tokens = 0;
  Check(CALL(mainarch_engine_create)(model, &engine_options, &engine, &error));
  Check(CALL(mainarch_sequence_open)(engine, nullptr, &sequence, &error));
  Add("context of 32768 created", (Now() - start) * 1e3, "ms", 5);
  const uint32_t prompt[] = {1};
  Check(CALL(mainarch_sequence_append)(engine, sequence, prompt, 1, &error));
  start = Now();
  StepUntilToken(engine, sequence);
  Add("first step", (Now() - start) * 1e3, "ms", 0);
  Add("open to first token", (Now() - begin) * 1e3, "ms", 150);

  // Until the weights have moved, tokens keep coming.
  int tokens = 1;
  do {
    StepUntilToken(engine, sequence);
    ++tokens;
    info = Sized<mainarch_model_info>();
    Check(CALL(mainarch_model_info_get)(model, &info, &error));
  } while (info.moved_bytes < info.move_bytes && info.move_status == MAINARCH_OK && tokens < 2000);
  Add("weights in place after", (Now() - begin) * 1e3, "ms", 0);
  Add("tokens by then", tokens, "", 0);
  Add("weights in huge pages",
      100.0 * static_cast<double>(info.huge_bytes) / static_cast<double>(info.weight_bytes), "%",
      0);
  start = Now();
  for (int i = 0; i < 8; ++i) StepUntilToken(engine, sequence);
  Add("a step in steady state", (Now() - start) / 8 * 1e3, "ms", 0);
  Add("anonymous memory", StatusMb("RssAnon"), "MB", 0);
  const double kv = FirstKvMb(argv[2]);
  Add("KV of the first 256 tokens", kv, "MB", 0);
  Add("memory beyond weights and KV",
      StatusMb("RssAnon") - static_cast<double>(info.moved_bytes) * 1e-6 - kv, "MB", 32);
  Add("mapped file pages in memory", StatusMb("RssFile"), "MB", 0);

  start = Now();
  constexpr int kEmpty = 100000;
  Check(CALL(mainarch_sequence_close)(engine, sequence, &error));
  const auto step = CALL(mainarch_engine_step);
  for (int i = 0; i < kEmpty; ++i) {
    if (step(engine, &error) != MAINARCH_AGAIN) return 1;
  }
  Add("empty step", (Now() - start) / kEmpty * 1e6, "us", 2);
  CALL(mainarch_engine_destroy)(engine);
  CALL(mainarch_model_destroy)(model);
  CALL(mainarch_group_destroy)(group);
  Print(json);
  return 0;
}
