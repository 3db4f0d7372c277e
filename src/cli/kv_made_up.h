// SPDX-License-Identifier: MIT
//
// Attention of made-up keys and values that have what those of large models are known to have, held in
// some way and exactly: 4096 tokens, heads of 128, RoPE with theta 10^6. Of K before RoPE four channels
// have the same offset of 8 standard deviations in every token (KIVI, arXiv 2402.02750, and KVQuant,
// arXiv 2401.18079: a few channels of keys are large, always the same, and RoPE spreads each over a pair);
// token 0 is a sink: it takes a third of the weight, and its V is a twentieth of others' (arXiv 2309.17453,
// 2402.17762). How many channels and how large is our choice within what their figures show, measured by
// us on no model. Queries make scores with a standard deviation of 2.
#ifndef MAINARCH_CLI_KV_MADE_UP_H_
#define MAINARCH_CLI_KV_MADE_UP_H_

#include <vector>

#include "cli/kv_variants.h"

namespace mainarch::cli {

class MadeUpAttention {
 public:
  struct Loss {
    double kl = 0;      // of the weights, nats
    double output = 0;  // relative error of what attention gives
  };

  MadeUpAttention();
  // The mean over queries.
  Loss Measure(const KvVariant& variant) const;

 private:
  static constexpr size_t kDim = 128, kTokens = 4096, kQueries = 32;
  using Vector = std::vector<double>;
  std::vector<Vector> keys_, values_, queries_;
};

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_KV_MADE_UP_H_
