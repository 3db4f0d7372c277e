// SPDX-License-Identifier: MIT
//
// Two types of K and V in one sequence: with four bits most of the loss is that of the tokens which a query looks at
// most, the first ones and the last. A second, small cache holds these in fp8, and attention asks it for them
// (backend::AttentionOp::near). Which cache a token is asked of is a function of its position and the query's.
#ifndef MAINARCH_MODEL_KV_TIERS_H_
#define MAINARCH_MODEL_KV_TIERS_H_

#include <memory>

#include "backend/program.h"
#include "base/status.h"

namespace mainarch::model {

// What is held in fp8, whatever the KV type. Caches with a window are, too, where any is: they are small.
struct KvTiers {
  bool near = false;   // the first kNearFirst tokens, and the last kNearLast that a query sees
  bool outer = false;  // the first and the last layer

  bool any() const { return near || outer; }
};
inline constexpr int32_t kNearFirst = 16;
inline constexpr int32_t kNearLast = 128;
inline constexpr backend::KvType kNearType = backend::KvType::kFp8;

// The Program with the caches that this takes, over the same weights; InvalidArgument where the KV type is no smaller than
// kNearType, Unsupported for latents, of which there is one cache.
StatusOr<std::shared_ptr<const backend::Program>> WithKvTiers(const backend::Program& program, KvTiers tiers,
                                                              backend::KvType type);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_KV_TIERS_H_
