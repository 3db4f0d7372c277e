// SPDX-License-Identifier: MIT
#include "decode/options.h"

#include <cmath>

#include "absl/strings/string_view.h"
#include "decode/stop_strings.h"

namespace mainarch::decode {
namespace {

Status CheckRange(absl::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return OkStatus();  // false for nan
  return Error(Code::kInvalidArgument, field, " ", value, " is not from ", low, " to ", high);
}

Status CheckToken(absl::string_view field, uint32_t token, uint32_t vocab) {
  if (token < vocab) return OkStatus();
  return Error(Code::kInvalidArgument, field, ": token ", token, " is outside the vocabulary of ",
               vocab);
}

Status CheckTokens(const SequenceOptions& options, uint32_t vocab) {
  for (const uint32_t token : options.stop_tokens) {
    RETURN_IF_ERROR(CheckToken("stop_tokens", token, vocab));
  }
  for (const std::vector<uint32_t>& sequence : options.stop_sequences) {
    if (sequence.empty()) {
      return Error(Code::kInvalidArgument, "stop_sequences: a stop sequence is empty");
    }
    for (const uint32_t token : sequence) {
      RETURN_IF_ERROR(CheckToken("stop_sequences", token, vocab));
    }
  }
  for (const LogitBias& bias : options.logit_bias) {
    RETURN_IF_ERROR(CheckToken("logit_bias", bias.token, vocab));
    if (bias.bias == -INFINITY) continue;
    RETURN_IF_ERROR(CheckRange("logit_bias", bias.bias, -1e30f, 1e30f));
  }
  return OkStatus();
}

}  // namespace

Status CheckOptions(const SequenceOptions& o, uint32_t vocab) {
  RETURN_IF_ERROR(CheckRange("temperature", o.temperature, 0, 1e6f));
  RETURN_IF_ERROR(CheckRange("top_p", o.top_p, 0, 1e6f));
  RETURN_IF_ERROR(CheckRange("min_p", o.min_p, 0, 1));
  if (o.repetition_penalty != 0) {
    RETURN_IF_ERROR(CheckRange("repetition_penalty", o.repetition_penalty, 1e-3f, 1e3f));
  }
  RETURN_IF_ERROR(CheckRange("frequency_penalty", o.frequency_penalty, -1e3f, 1e3f));
  RETURN_IF_ERROR(CheckRange("presence_penalty", o.presence_penalty, -1e3f, 1e3f));
  if (o.logprobs > kMaxLogprobs) {
    return Error(Code::kInvalidArgument, "logprobs ", o.logprobs, " is more than ", kMaxLogprobs);
  }
  if (o.prompt_logprobs > kMaxLogprobs) {
    return Error(Code::kInvalidArgument, "prompt_logprobs ", o.prompt_logprobs, " is more than ",
                 kMaxLogprobs);
  }
  if (o.max_tokens > 0 && o.min_tokens > o.max_tokens) {
    return Error(Code::kInvalidArgument, "min_tokens ", o.min_tokens, " is more than max_tokens ",
                 o.max_tokens);
  }
  RETURN_IF_ERROR(CheckTokens(o, vocab));
  return CheckStopStrings(o);
}

}  // namespace mainarch::decode
