// SPDX-License-Identifier: MIT
//
// The matrices of a layer's experts, in whichever form a checkpoint has them:
//  * one tensor a matrix: experts.N.gate_proj.weight (or w1, w3, w2);
//  * all experts in one tensor: experts.gate_up_proj [E, 2 I, H], gate above up, and
//    experts.down_proj [E, H, I] (transformers 5);
//  * gpt-oss: experts.gate_up_proj [E, H, 2 I] and down_proj [E, I, H], in for out, gate and up
//  taking
//    turns; or its MXFP4: gate_up_proj_blocks [E, 2 I, H / 32, 16] and _scales [E, 2 I, H / 32],
//    gate and up taking turns, down_proj_blocks [E, H, I / 32, 16].
#ifndef MAINARCH_MODEL_EXPERTS_H_
#define MAINARCH_MODEL_EXPERTS_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "file/checkpoint.h"
#include "model/config.h"
#include "quant/matrix.h"

namespace mainarch::model {

// Rows [row, row + width) and columns [col, col + hidden) of `matrix`.
struct MatrixPart {
  quant::Matrix matrix;
  int64_t row = 0;
  int64_t col = 0;
};

struct ExpertMatrices {
  std::vector<MatrixPart> gate, up;  // [experts]: [width, hidden]
  std::vector<quant::Matrix> down;   // [experts]: [hidden, width]
};

// Under `prefix`, a layer's ("model.layers.3.").
// `most`: the first ones only.
StatusOr<ExpertMatrices> FindExperts(const file::Checkpoint& checkpoint, const ModelConfig& config,
                                     const std::string& prefix, int64_t most = INT64_MAX);
// The expert for all tokens, in the form that FindExperts has.
StatusOr<ExpertMatrices> FindSharedExpert(const file::Checkpoint& checkpoint,
                                          const ModelConfig& config, const std::string& prefix);
// Whether that one is like the others in each of these layers, but for who chooses it: as wide, its
// matrices stored alike, its gate as the router is. Then it can be one of them.
bool SharedIsAnExpert(const file::Checkpoint& checkpoint, const ModelConfig& config,
                      const std::vector<std::string>& prefixes);

// Biases of gpt-oss' experts, a row an expert. In the file gate and up take turns.
struct ExpertBiases {
  quant::Matrix gate, up;  // [experts, width]
  quant::Matrix down;      // [experts, hidden]
};
StatusOr<ExpertBiases> FindExpertBiases(const file::Checkpoint& checkpoint,
                                        const ModelConfig& config, const std::string& prefix);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_EXPERTS_H_
