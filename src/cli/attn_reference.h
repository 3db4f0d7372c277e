// SPDX-License-Identifier: MIT
//
// One layer's attention in fp64, from the checkpoint's own weights: what `mainarch attn-decode` is
// held against. The context is the same `distinct` tokens over and over, as copied pages make it:
// position p has the K and V of position p % distinct.
#ifndef MAINARCH_CLI_ATTN_REFERENCE_H_
#define MAINARCH_CLI_ATTN_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace mainarch::cli {

// tokens[i] is at position i; `last` is the token at position `context`, whose attention is
// returned before the output projection: [heads, StoredHeads().value] of the whole model. No more than
// `context` of the tokens are used.
StatusOr<std::vector<double>> AttendReference(const model::Model& model, backend::KvType kv,
                                              const std::vector<uint32_t>& tokens, uint32_t last,
                                              uint32_t context);

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_ATTN_REFERENCE_H_
