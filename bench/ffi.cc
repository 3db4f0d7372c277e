// SPDX-License-Identifier: MIT
//
// What a call of the library costs a C program: an empty step, of an engine with nothing to do. See
// bench/ffi for the same through Rust and Go.
#include <benchmark/benchmark.h>
#include <mainarch.h>

#include <cstdio>

namespace {

mainarch_engine* engine;

void Step(benchmark::State& state) {
  mainarch_error error;
  for (auto _ : state) {
    if (mainarch_engine_step(engine, &error) != MAINARCH_AGAIN) state.SkipWithError("it worked");
  }
}
BENCHMARK(Step)->MinTime(0.3)->Name("c");

}  // namespace

int main(int argc, char** argv) {
  mainarch_error error;
  mainarch_group* group;
  mainarch_model* model;
  benchmark::Initialize(&argc, argv);
  if (argc != 2 || mainarch_group_open("cpu", nullptr, &group, &error) < 0 ||
      mainarch_model_open(group, argv[1], nullptr, &model, &error) < 0 ||
      mainarch_engine_create(model, nullptr, &engine, &error) < 0) {
    std::fprintf(stderr, "usage: %s CHECKPOINT\n", argv[0]);
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  mainarch_engine_destroy(engine);
  mainarch_model_destroy(model);
  mainarch_group_destroy(group);
}
