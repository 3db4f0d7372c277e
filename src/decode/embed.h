// SPDX-License-Identifier: MIT
//
// Vectors of texts, by an engine whose model gives vectors (model/part.h): each text is a sequence of its
// own for as long as it takes, beside whatever else the engine has.
#ifndef MAINARCH_DECODE_EMBED_H_
#define MAINARCH_DECODE_EMBED_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "decode/engine.h"
#include "model/pooling.h"

namespace mainarch::decode {

struct EmbedOptions {
  model::Pooling pooling = model::Pooling::kLast;
  bool normalise = true;    // to a length of one
  uint32_t dimensions = 0;  // so many of the first numbers, normalised again; 0: all
  uint32_t skip = 0;        // of a mean: so many of each text's first tokens do not count
  uint64_t prefix_salt = 0;
};

// Numbers of a vector: `dimensions`, or all that the engine's rows have. InvalidArgument: more than that.
StatusOr<uint32_t> VectorSize(const EngineInfo& engine, const EmbedOptions& options);

// out [texts, VectorSize]. Steps run until all are done. Busy when every sequence of the engine is open.
// After an error, also a cancelled step, no sequence of this call is left, and what is in `out` is of no use.
//
// A mean is made in fp64, token by token: the same bits however texts are cut and mixed.
Status Embed(Engine* engine, absl::Span<const absl::Span<const uint32_t>> texts,
             const EmbedOptions& options, float* out);

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_EMBED_H_
