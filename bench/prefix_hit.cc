// SPDX-License-Identifier: MIT
//
// prefix_hit: how soon a prompt's first token comes when the prefix cache has the prompt, beside when
// it has not, and that both give the same logits. A synthetic checkpoint of a preset's geometry.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "cli/geometry.h"
#include "cli/options.h"
#include "cli/output.h"
#include "decode/engine.h"

namespace mainarch {
namespace {

struct Settings {
  cli::GeometryOptions geometry{"qwen3.5-0.8b"};
  std::string device = "cpu";
  int64_t tokens = 16384;
};

struct First {
  double seconds = 0;
  std::vector<float> logits;
};

// The time from opening a sequence of these tokens to the logits behind them.
StatusOr<First> FirstToken(decode::Engine& engine, const std::vector<uint32_t>& tokens) {
  const int64_t begin = NowNs();
  decode::SequenceOptions manual;
  manual.manual = true;
  ASSIGN_OR_RETURN(const decode::SequenceId id, engine.Open(manual));
  RETURN_IF_ERROR(engine.Append(id, tokens));
  for (bool more = true; more;) {
    ASSIGN_OR_RETURN(more, engine.RunStep());
  }
  ASSIGN_OR_RETURN(const absl::Span<const float> logits, engine.Logits(id));
  First out;
  out.seconds = static_cast<double>(NowNs() - begin) * 1e-9;
  out.logits.assign(logits.begin(), logits.end());
  RETURN_IF_ERROR(engine.Close(id));
  return out;
}

Status Measure(const Settings& s) {
  ASSIGN_OR_RETURN(const model::ModelConfig config, s.geometry.Resolve());
  ASSIGN_OR_RETURN(const auto directory, cli::MakeTemporaryCheckpoint(
                                             config, model::SyntheticFormat::kBF16, 1));
  backend::BackendOptions device;
  device.device = s.device;
  ASSIGN_OR_RETURN(auto backend, backend::CreateBackend(device));
  ASSIGN_OR_RETURN(auto model, model::Model::Load(backend, directory->path(), {}));
  decode::EngineOptions options;
  options.max_sequence_tokens = static_cast<uint32_t>(s.tokens) + 1;
  options.prefix_cache = true;
  ASSIGN_OR_RETURN(const auto engine, decode::Engine::Create(model, options));
  std::vector<uint32_t> tokens;
  for (int64_t i = 0; i < s.tokens; ++i) {
    tokens.push_back(static_cast<uint32_t>((i * 7919 + 13) % config.vocab));
  }
  ASSIGN_OR_RETURN(const First miss, FirstToken(*engine, tokens));
  ASSIGN_OR_RETURN(const First hit, FirstToken(*engine, tokens));
  const bool same = std::memcmp(miss.logits.data(), hit.logits.data(),
                                miss.logits.size() * sizeof(float)) == 0;
  std::printf("%s, %lld tokens: first token after %.3f s, found again after %.3f s: %.0f x; logits %s\n",
              config.model_type.c_str(), static_cast<long long>(s.tokens), miss.seconds,
              hit.seconds, miss.seconds / hit.seconds, same ? "equal" : "DIFFER");
  return same ? OkStatus() : Error(Code::kInternal, "a hit is not what a miss is");
}

}  // namespace
}  // namespace mainarch

int main(int argc, char** argv) {
  using namespace mainarch;
  Settings s;
  cli::Options options("prefix_hit", "[options]",
                       "Times the first token of a prompt that the prefix cache has.", "");
  s.geometry.Declare(&options);
  options.Text("device", "NAME", &s.device, "of the model");
  options.Integer("tokens", &s.tokens, 1, 1 << 20, "of the prompt");
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (const auto code = options.Parse(arguments)) return *code;
  const Status status = Measure(s);
  if (!status.ok()) std::fprintf(stderr, "prefix_hit: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
