// SPDX-License-Identifier: MIT
//
// What commands that run a model have in common: which one, on what, with which KV type.
#ifndef MAINARCH_CLI_MODEL_OPTIONS_H_
#define MAINARCH_CLI_MODEL_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "cli/options.h"
#include "model/kv_tiers.h"
#include "model/model.h"

namespace mainarch::cli {

struct ModelOptions {
  std::string model;
  std::string device = "cpu";
  std::string kv = "bf16";
  std::string resident = "off";
  int64_t tp = 0;  // 0: as `device` says
  int64_t threads = 0;
  bool in_place = false;
  bool fast = false;
  bool int8 = false;
  bool mxfp8 = false;
  bool kv_near = false, kv_outer = false;
  std::string cpu;  // the kernels' target; "": what this CPU does best

  void DeclareModel(Options* options, absl::string_view help);
  void DeclareDevice(Options* options);
  // Of commands that do without the C ABI, which knows no targets.
  void DeclareResident(Options* options);
  void DeclareTarget(Options* options);
  // Of commands whose caches an engine makes.
  void DeclareTiers(Options* options);
  // Makes --tp part of `device`; a wrong use if the two disagree.
  Status Resolve();
  // A virtual node: its times say nothing about hardware, and are never shown.
  bool is_virtual() const;
  backend::KvType kv_type() const;
  model::KvTiers kv_tiers() const { return {kv_near, kv_outer}; }
  backend::Activations activations() const;
  backend::ResidentMode resident_mode() const;
  bool rounds() const { return fast || int8 || mxfp8; }
  // ", fast", ", int8", ", mxfp8" or nothing.
  const char* rounding_text() const { return mxfp8 ? ", mxfp8" : int8 ? ", int8" : fast ? ", fast" : ""; }
};

// Opens the backend and loads the model, with a bar.
StatusOr<std::shared_ptr<const model::Model>> LoadModel(const ModelOptions& options,
                                                        const std::string& directory);

// "qwen3_moe, 47 layers of 2048, 128 experts of which 8 work, mxfp4 bf16"
std::string Describe(const model::ModelConfig& config);
// Bytes of KV of one token, on all ranks.
uint64_t KvBytesPerToken(const model::ModelConfig& config, backend::KvType type);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_MODEL_OPTIONS_H_
