// SPDX-License-Identifier: MIT
//
// One model, one engine, one sequence: appends tokens and writes what follows, a piece of text at a
// time. Built on the public C ABI only; it is what a program that embeds the library looks like.
#ifndef MAINARCH_CLI_WRITER_H_
#define MAINARCH_CLI_WRITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/abi.h"
#include "cli/model_options.h"

namespace mainarch::cli {

struct TokenLogprobs {
  std::vector<mainarch_logprob> logprobs;  // the token itself first
};

struct Written {
  std::string text;
  std::vector<uint32_t> tokens;
  std::vector<TokenLogprobs> logprobs;  // a token each, if asked for
  std::string finish;                   // "end", "stop", "max-tokens", "length", "interrupted"
  uint64_t prompt_tokens = 0;           // run before the first new token
  double prompt_seconds = 0;            // until the first new token
  double decode_seconds = 0;            // from there to the last
};

class Writer {
 public:
  // The checkpoint and its tokenizer; the engine comes with Start.
  static StatusOr<std::unique_ptr<Writer>> Open(const ModelOptions& options, bool device_given);

  const mainarch_tokenizer* tokenizer() const { return tokenizer_.get(); }
  const mainarch_model_info& info() const { return info_; }
  StatusOr<mainarch_sequence_options> RecommendedOptions() const;

  // `context` tokens at most. Once.
  Status Start(const mainarch_sequence_options& options, uint32_t context,
               const std::vector<std::string>& stops, bool show_special, backend::KvType kv,
               bool fast);
  // Makes `tokens` all that the sequence holds, keeping what it has of them already, and writes on.
  // `sink` gets each piece as it comes; pieces joined are the text.
  StatusOr<Written> Write(absl::Span<const uint32_t> tokens,
                          const std::function<void(absl::string_view)>& sink);

 private:
  Writer() = default;
  Status SetPrompt(absl::Span<const uint32_t> tokens, uint64_t* fresh);
  // Takes what a step has produced.
  Status TakeTokens(Written* out);
  Status TakeLogprobs(size_t index, Written* out);
  StatusOr<mainarch_sequence_info> Info() const;

  Group group_;
  AbiModel model_;
  AbiTokenizer tokenizer_;
  mainarch_model_info info_ = {};
  AbiEngine engine_;
  AbiDecoder decoder_;
  mainarch_sequence sequence_ = 0;
  std::vector<uint32_t> held_;  // tokens of the sequence
  bool stops_ = false;          // the library looks for stop strings
  uint32_t logprobs_ = 0;
};

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_WRITER_H_
