// SPDX-License-Identifier: MIT
//
// Costs that do not grow with the model: a handoff between threads, the phases of 28 layers whose
// matrices are next to nothing, choosing a token out of 151,936, a context, the tokenizer. Limits
// that CPU figures are held to stand in the label of each line.
//
// MAINARCH_BENCH_TOKENIZER: a directory with a tokenizer.json, by default the trained one of the
// tests (small: use a real one for the load time).
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/fd.h"
#include "base/team.h"
#include "decode/sampler.h"
#include "model/model.h"
#include "model/synthetic.h"
#include "text/tokenizer.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

using namespace mainarch;

namespace {

constexpr uint32_t kVocab = 151936;

uint64_t Cycles() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return 0;
#endif
}

// Phases of so many items that do nothing.
class EmptyPhases : public Team::Job {
 public:
  EmptyPhases(uint32_t phases, uint32_t items) : phases_(phases), items_(items) {}
  uint32_t Open(uint32_t phase) override { return phase < phases_ ? items_ : kEnd; }
  void Run(uint32_t, uint32_t, int) override {}

 private:
  const uint32_t phases_, items_;
};

void Handoff(benchmark::State& state) {
  const int workers = static_cast<int>(state.range(0));
  constexpr uint32_t kPhases = 1000;
  auto team = *Team::Create(workers);
  EmptyPhases job(kPhases, static_cast<uint32_t>(state.range(1)));
  uint64_t cycles = 0;
  for (auto _ : state) {
    const uint64_t start = Cycles();
    team->Execute(&job);
    cycles += Cycles() - start;
  }
  const double phases = static_cast<double>(state.iterations()) * kPhases;
  state.counters["ns/phase"] =
      benchmark::Counter(phases * 1e-9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["tsc_cycles/phase"] = static_cast<double>(cycles) / phases;
}
BENCHMARK(Handoff)
    ->ArgNames({"threads", "items"})
    ->Args({1, 2})
    ->Args({2, 1})
    ->Args({2, 2})
    ->Args({2, 16})
    ->UseRealTime();

// Layers of 28 whose weights are some KB: what is left is the walk over the phases.
std::string TinyCheckpoint() {
  model::ModelConfig c;
  c.model_type = "qwen3";
  c.hidden = 64;
  c.layers = 28;
  c.heads = 2;
  c.kv_heads = 1;
  c.head_dim = 32;
  c.intermediate = 64;
  c.vocab = 64;
  c.max_position = 4096;
  c.rope.theta = 1e6;
  c.rope.rotary_dim = 32;
  c.tied_embeddings = true;
  c.sparse_layer.assign(28, false);
  char directory[] = "/tmp/mainarch_fixed_XXXXXX";
  if (mkdtemp(directory) == nullptr) return "";
  model::SyntheticOptions options;
  return model::WriteSyntheticCheckpoint(c, directory, options).ok() ? directory : "";
}

void FixedCostOfAToken(benchmark::State& state) {
  static const std::string directory = TinyCheckpoint();
  auto backend = cpu::CpuBackend::Create(1, static_cast<uint32_t>(state.range(0)), "");
  auto model = model::Model::Load(*backend, directory, {});
  if (!model.ok()) return state.SkipWithError("no model");
  backend::ContextOptions options;
  options.pages = {256};
  auto context = (*model)->weights().CreateContext(options);
  std::vector<uint32_t> pages(256);
  for (uint32_t i = 0; i < 256; ++i) pages[i] = i;
  const backend::StepCache cache = {pages};
  const std::vector<backend::StepSequence> sequences = {{absl::MakeConstSpan(&cache, 1)}};
  const std::vector<uint32_t> logits = {0};
  uint32_t position = 0;
  for (auto _ : state) {
    const std::vector<backend::StepRow> rows = {{position % 64, position, 0}};
    if (!(*context)->Run({rows, sequences, logits}).ok()) return state.SkipWithError("step");
    position = (position + 1) % 16;  // a short context, so that attention is next to nothing
  }
  state.SetLabel(state.range(0) == 1 ? "limit 30 us" : "limit 120 us");
}
BENCHMARK(FixedCostOfAToken)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

std::vector<float> Logits() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = normal(random);
  return logits;
}

void Sample(benchmark::State& state, decode::SequenceOptions options, const char* label) {
  std::vector<float> logits = Logits();
  decode::Sampler sampler(kVocab);
  decode::SampleRequest request;
  request.options = &options;
  for (auto _ : state) {
    ++request.position;
    benchmark::DoNotOptimize(sampler.Sample(absl::MakeSpan(logits), request));
  }
  state.SetLabel(label);
}
void Greedy(benchmark::State& state) { Sample(state, {}, "limit 12 us"); }
void Temperature(benchmark::State& state) {
  decode::SequenceOptions options;
  options.temperature = 1;
  Sample(state, options, "700 us before");
}
void TopKTopP(benchmark::State& state) {
  decode::SequenceOptions options;
  options.temperature = 0.7f;
  options.top_k = 40;
  options.top_p = 0.95f;
  Sample(state, options, "llama.cpp 134 us");
}
BENCHMARK(Greedy)->Unit(benchmark::kMicrosecond);
BENCHMARK(Temperature)->Unit(benchmark::kMicrosecond);
BENCHMARK(TopKTopP)->Unit(benchmark::kMicrosecond);

std::string TokenizerDirectory() {
  const char* given = std::getenv("MAINARCH_BENCH_TOKENIZER");
  return given != nullptr ? given : MAINARCH_SOURCE_ROOT "/tests/golden/trained";
}

std::string TokenizerJson() {
  auto text = ReadWholeFile(TokenizerDirectory() + "/tokenizer.json", size_t{64} << 20);
  return text.ok() ? *text : "";
}

void TokenizerLoad(benchmark::State& state) {
  const std::string json = TokenizerJson();
  for (auto _ : state) {
    auto tokenizer = text::Tokenizer::Load(json, "", "tokenizer.json");
    if (!tokenizer.ok()) return state.SkipWithError("no tokenizer");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(json.size()));
  state.SetLabel("limit 20 ms for 11 MB");
}
BENCHMARK(TokenizerLoad)->Unit(benchmark::kMillisecond);

void TokenizerEncode(benchmark::State& state) {
  auto tokenizer = text::Tokenizer::Load(TokenizerJson(), "", "tokenizer.json");
  if (!tokenizer.ok()) return state.SkipWithError("no tokenizer");
  const std::string sentence =
      "In the beginning God created the heaven and the earth, and the earth was without form. ";
  std::string text;
  while (text.size() < 1'000'000) text += sentence;
  std::vector<uint32_t> tokens;
  for (auto _ : state) {
    tokens.clear();
    if (!(*tokenizer)->Encode(text, {}, &tokens).ok()) return state.SkipWithError("encode");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.SetLabel("limit 20 MB/s; llama.cpp 4");
}
BENCHMARK(TokenizerEncode)->Unit(benchmark::kMillisecond);

void TokenizerDecode(benchmark::State& state) {
  auto tokenizer = text::Tokenizer::Load(TokenizerJson(), "", "tokenizer.json");
  if (!tokenizer.ok()) return state.SkipWithError("no tokenizer");
  std::vector<uint32_t> tokens(100'000);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<uint32_t>(i * 7919 % (*tokenizer)->vocab_size());
  }
  int64_t bytes = 0;
  for (auto _ : state) bytes += static_cast<int64_t>((*tokenizer)->Decode(tokens, false).size());
  state.SetBytesProcessed(bytes);
  state.SetLabel("llama.cpp 120 to 245 MB/s");
}
BENCHMARK(TokenizerDecode)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
