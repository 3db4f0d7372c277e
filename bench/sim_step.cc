// SPDX-License-Identifier: MIT
//
// One decode step of a tiny mixture-of-experts model on the virtual node, the whole path: program,
// packets, queue, packet processor, interpreted machine code. Hidden 256, 4 layers, 8 query and 2
// key heads of 64, 32 experts of which 4 work (MXFP4, width 256), vocabulary 4096, 256 positions.
// Host time of a simulator; it says nothing about any GPU.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "backend/backend.h"
#include "cli/bench_steps.h"
#include "model/model.h"
#include "model/synthetic.h"

namespace mainarch {
namespace {

constexpr uint32_t kPositions = 256;

model::ModelConfig TinyMoe() {
  model::ModelConfig c;
  c.model_type = "qwen3_moe";
  c.hidden = 256;
  c.layers = 4;
  c.heads = 8;
  c.kv_heads = 2;
  c.head_dim = 64;
  c.intermediate = 768;
  c.vocab = 4096;
  c.max_position = 1024;
  c.tied_embeddings = true;
  c.rms_eps = 1e-6f;
  c.rope.theta = 1e6;
  c.rope.rotary_dim = 64;
  c.experts = 32;
  c.experts_per_token = 4;
  c.moe_intermediate = 256;
  c.norm_topk_prob = true;
  c.sparse_layer.assign(4, true);
  return c;
}

StatusOr<std::unique_ptr<cli::StepDriver>> Load(const std::string& directory,
                                                const std::string& device) {
  backend::BackendOptions options;
  options.device = device;
  ASSIGN_OR_RETURN(auto backend, backend::CreateBackend(options));
  ASSIGN_OR_RETURN(auto model, model::Model::Load(std::move(backend), directory, {}));
  cli::StepDriver::Shape shape;
  shape.tokens = kPositions + 1;
  ASSIGN_OR_RETURN(auto driver,
                   cli::StepDriver::Create(std::move(model), shape, backend::KvType::kBF16));
  RETURN_IF_ERROR(driver->FillContext(kPositions - 1));
  return driver;
}

void DecodeStep(benchmark::State& state, const std::string& directory, const std::string& device) {
  auto driver = Load(directory, device);
  if (!driver.ok()) {
    state.SkipWithError(std::string(driver.status().message()).c_str());
    return;
  }
  for (auto _ : state) {
    const Status status = (*driver)->Decode(kPositions - 1);
    if (!status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
      return;
    }
  }
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::string directory = (std::filesystem::temp_directory_path() / "sim-step-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return 1;
  const std::string model = directory + "/model";
  model::SyntheticOptions synthetic;
  synthetic.format = model::SyntheticFormat::kMxfp4;
  const Status status = model::WriteSyntheticCheckpoint(TinyMoe(), model, synthetic);
  if (!status.ok()) fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  for (const std::string device : {"sim:gfx942", "sim:gfx950"}) {
    benchmark::RegisterBenchmark(("tiny_moe_step/" + device).c_str(),
                                 [=](benchmark::State& state) { DecodeStep(state, model, device); })
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  std::filesystem::remove_all(directory);
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace mainarch

int main(int argc, char** argv) { return mainarch::Main(argc, argv); }
