// SPDX-License-Identifier: MIT
//
// What one decoded token must move and compute on each GPU of a tensor-parallel group, from the
// model's shape and the chip's data sheet alone. An estimate, and a floor: no launch, no
// synchronisation, every byte read once at the planning bandwidth. Nothing here was measured.
#ifndef MAINARCH_CLI_ESTIMATE_COST_H_
#define MAINARCH_CLI_ESTIMATE_COST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/config.h"
#include "quant/matrix.h"

namespace mainarch::cli {

// Data sheet of one GPU. `planning` is what a well-made streaming kernel is expected to reach.
struct ChipSheet {
  const char* isa;
  const char* name;
  double peak_bytes_per_second;
  double planning_bytes_per_second;
  double bf16_flops, fp8_flops, fp4_flops;  // dense matrix peaks; 0: not there
};
StatusOr<ChipSheet> SheetOf(const std::string& isa);

// Formats of the projections of attention, and of the FFN or experts; all else is bf16.
struct WeightFormats {
  quant::Format attention = quant::Format::kBF16;
  quant::Format ffn = quant::Format::kBF16;
};
// "bf16", "fp8-block", "mxfp4" or "mxfp4-ffn".
StatusOr<WeightFormats> WeightFormatsOf(const std::string& name);

struct EstimateInput {
  model::ModelConfig config;
  WeightFormats formats;
  int32_t tp = 1;
  int64_t context = 4096;
  double kv_element_bytes = 2;
  bool split_kv = false;  // copies of a KV head share its tokens instead of all reading all
  ChipSheet chip;
};

struct EstimateOp {
  std::string name;
  int64_t times = 0;  // a token
  // Of all of them, on one GPU.
  double weight_bytes = 0;
  double kv_bytes = 0;
  double flops = 0;
  int64_t rounds = 0;  // over the fabric
  double seconds = 0;
  double bytes() const { return weight_bytes + kv_bytes; }
};

struct Estimate {
  std::vector<EstimateOp> ops;
  double weight_bytes = 0;
  double kv_bytes = 0;
  double kv_bytes_per_token = 0;
  double flops = 0;        // on one GPU
  double model_flops = 0;  // on all, work done twice counted once
  int64_t rounds = 0;
  double seconds = 0;  // the sum over ops
  double bytes() const { return weight_bytes + kv_bytes; }
};

// InvalidArgument names what does not divide.
StatusOr<Estimate> EstimateToken(const EstimateInput& input);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_ESTIMATE_COST_H_
