// SPDX-License-Identifier: MIT
//
// What a caller asks of one sequence, and what sampling reports back. Plain data.
#ifndef MAINARCH_DECODE_OPTIONS_H_
#define MAINARCH_DECODE_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"

namespace mainarch::text {
class Tokenizer;
}  // namespace mainarch::text

namespace mainarch::decode {

inline constexpr uint32_t kMaxLogprobs = 32;

using backend::LogitBias;

// Zero values are the defaults: greedy, no limits.
struct SequenceOptions {
  bool manual = false;  // the caller samples: read logits, append the chosen token
  bool ignore_eos = false;
  uint64_t seed = 0;
  float temperature = 0;  // < 1e-5: greedy
  float top_p = 0;        // 0 or >= 1: off
  float min_p = 0;
  uint32_t top_k = 0;
  float repetition_penalty = 0;  // 0 or 1: off
  float frequency_penalty = 0;
  float presence_penalty = 0;
  uint32_t min_tokens = 0;  // EOS and stop tokens are banned before so many produced tokens
  uint32_t max_tokens = 0;  // 0: until a stop token or the length limit
  uint32_t logprobs = 0;    // top-n log-probabilities (raw logits) kept per produced token, <= 32
  // Likewise of each appended token but the first of the sequence, given those before it.
  uint32_t prompt_logprobs = 0;
  bool all_logits = false;  // the logits of every row of a step can be read until the next one
  // Shares beginnings only with sequences of the same salt: nobody else learns from times what it holds.
  uint64_t prefix_salt = 0;
  std::vector<uint32_t> stop_tokens;
  std::vector<std::vector<uint32_t>> stop_sequences;  // token sequences that end generation
  std::vector<LogitBias> logit_bias;
  std::vector<std::string> stop_strings;  // UTF-8, in the text of what was produced
  std::shared_ptr<const text::Tokenizer> stop_tokenizer;  // whose tokens they are
  bool stop_special = false;  // the text of special tokens is text, too
};

struct Logprob {
  uint32_t token = 0;
  float logprob = 0;
};

// InvalidArgument names the field, the value and the limit.
Status CheckOptions(const SequenceOptions& options, uint32_t vocab);

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_OPTIONS_H_
