// SPDX-License-Identifier: MIT
#include "cli/model_options.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/model_path.h"
#include "cli/progress.h"

namespace mainarch::cli {

void ModelOptions::DeclareModel(Options* options, absl::string_view help) {
  options->Text("model", "DIR", &model, help);
}

void ModelOptions::DeclareDevice(Options* options) {
  options->Section("Device");
  options->Text("device", "NAME", &device,
                "cpu, cpu:N for N ranks in one process, gpu, gpu:0-3, or a virtual node: sim:gfx950x8");
  options->Integer("tp", &tp, 0, 8, "ranks: --tp 2 is cpu:2, gpu:0-1; 0: as --device says");
  options->Integer("threads", &threads, 0, 1024, "CPU threads; 0: one a core that may be used, within the control group's quota");
  options->Choice("kv", {std::begin(quant::kKvTypeNames), std::end(quant::kKvTypeNames)}, &kv, "type of the KV cache");
  options->Flag("in-place", &in_place,
                "multiply straight from the mapped file: no copy, slower steps");
  options->Flag("fast", &fast, "round what enters products to bf16, on GPUs and where the CPU is faster so");
  options->Flag("mxfp8", &mxfp8, "take what enters products with MXFP4 weights, and most with FP8 blocks, as MXFP8 on GPUs that multiply both; others as --fast");
  options->Flag("int8", &int8, "take 8 bits of what enters products with 4- to 8-bit weights on CPUs; others as --fast");
}

void ModelOptions::DeclareResident(Options* options) {
  options->Choice("resident", {"off", "on", "auto"}, &resident,
                  "on GPUs: steps of up to 16 rows in a kernel that stays there, instead of packets");
}

void ModelOptions::DeclareTarget(Options* options) {
  options->Text("cpu", "TARGET", &cpu,
                "kernels of a lesser CPU: amx, avx512_bf16, avx512, avx2_vnni, avx2; neon_i8mm, neon_bf16, neon_dot, neon; portable");
}

void ModelOptions::DeclareTiers(Options* options) {
  options->Flag("kv-near", &kv_near, "with --kv fp4 or k8v4: the first 16 tokens and the last 128 in fp8");
  options->Flag("kv-outer", &kv_outer, "with --kv fp4 or k8v4: the first and the last layer in fp8");
}

Status ModelOptions::Resolve() {
  if (tp == 0) return OkStatus();
  // Of GPUs, the first ones.
  if (device == "gpu" || (is_virtual() && device.find(':', 4) == std::string::npos)) {
    absl::StrAppend(&device, tp == 1 ? ":0" : absl::StrCat(":0-", tp - 1));
    return OkStatus();
  }
  const std::string wanted = absl::StrCat("cpu:", tp);
  if (device != "cpu" && device != wanted) {
    return Error(Code::kInvalidArgument, "--tp ", tp, " contradicts --device ", device,
                 "; give one of them");
  }
  device = wanted;
  return OkStatus();
}

bool ModelOptions::is_virtual() const { return device.compare(0, 4, "sim:") == 0; }

backend::KvType ModelOptions::kv_type() const {
  const auto* name = std::find(std::begin(quant::kKvTypeNames), std::end(quant::kKvTypeNames), kv);
  return static_cast<backend::KvType>(name - std::begin(quant::kKvTypeNames));  // Choice checked it
}

backend::ResidentMode ModelOptions::resident_mode() const {
  if (resident == "off") return backend::ResidentMode::kOff;
  return resident == "on" ? backend::ResidentMode::kOn : backend::ResidentMode::kAuto;
}

backend::Activations ModelOptions::activations() const {
  if (mxfp8) return backend::Activations::kMxfp8;
  if (int8) return backend::Activations::kInt8;
  return fast ? backend::Activations::kBF16 : backend::Activations::kF32;
}

StatusOr<std::shared_ptr<const model::Model>> LoadModel(const ModelOptions& options,
                                                        const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string path, ModelPath(directory));
  backend::BackendOptions backend_options;
  backend_options.device = options.device;
  backend_options.threads = static_cast<uint32_t>(options.threads);
  backend_options.cpu_target = options.cpu;
  ASSIGN_OR_RETURN(auto backend, backend::CreateBackend(backend_options));
  Progress progress("loading", Progress::Unit::kBytes);
  backend::LoadOptions load;
  load.in_place = options.in_place;
  load.progress = progress.Callback();
  return model::Model::Load(std::move(backend), path, load);
}

std::string Describe(const model::ModelConfig& config) {
  std::string text =
      absl::StrCat(config.model_type, ", ", config.layers, " layers of ", config.hidden, ", ",
                   config.heads);
  if (config.latent.latent > 0) {
    absl::StrAppend(&text, " heads over latents of ", config.latent.latent, " + ", config.latent.turning);
  } else {
    absl::StrAppend(&text, " query and ", config.kv_heads, " KV heads of ", config.head_dim);
    if (config.ValueDim() != config.head_dim) absl::StrAppend(&text, ", values of ", config.ValueDim());
  }
  if (config.experts > 0) {
    absl::StrAppend(&text, ", ", config.experts, " experts of which ", config.experts_per_token,
                    " work");
  }
  return absl::StrCat(text, ", vocabulary of ", config.vocab);
}

uint64_t KvBytesPerToken(const model::ModelConfig& config, backend::KvType type) {
  if (const model::LatentConfig& l = config.latent; l.latent > 0) {
    return static_cast<uint64_t>(config.layers) *
           quant::KvTokenBytes(type, static_cast<uint64_t>(l.turning + l.latent), static_cast<uint64_t>(l.latent));
  }
  uint64_t heads = 0;  // of all layers
  for (size_t layer = 0; layer < static_cast<size_t>(config.layers); ++layer) {
    heads += static_cast<uint64_t>(config.KvHeadsOf(layer));
  }
  return heads * quant::KvTokenBytes(type, static_cast<uint64_t>(config.head_dim), static_cast<uint64_t>(config.ValueDim()));
}

}  // namespace mainarch::cli
