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
#include "cli/opened_model.h"

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
  uint64_t decode_steps = 0;            // after the first token
  uint64_t drafts = 0, drafts_accepted = 0;
  uint64_t resident_steps = 0, resident_launches = 0, resident_late = 0, resident_commands = 0, resident_pauses = 0, resident_no_room = 0;
};

// What the engine is asked for.
struct EngineWish {
  uint32_t context = 0;  // tokens at most
  backend::KvType kv = backend::KvType::kBF16;
  model::KvTiers tiers;
  bool fast = false;
  bool int8 = false;
  bool mxfp8 = false;
  backend::ResidentMode resident = backend::ResidentMode::kOff;
  int32_t drafts = MAINARCH_DRAFTS_OFF;
  uint32_t max_drafts = 0;
};

class Writer {
 public:
  // The checkpoint and its tokenizer, `draft_head`: with the layer that drafts, if it has one; the engine
  // comes with Start.
  static StatusOr<std::unique_ptr<Writer>> Open(const ModelOptions& options, bool device_given,
                                                bool draft_head = false);

  const mainarch_tokenizer* tokenizer() const { return opened_.tokenizer.get(); }
  const mainarch_model_info& info() const { return opened_.info; }
  StatusOr<mainarch_sequence_options> RecommendedOptions() const;

  // Once.
  Status Start(const mainarch_sequence_options& options, const EngineWish& wish,
               const std::vector<std::string>& stops, bool show_special);
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
  StatusOr<mainarch_engine_statistics> Statistics() const;

  OpenedModel opened_;
  AbiEngine engine_;
  AbiDecoder decoder_;
  mainarch_sequence sequence_ = 0;
  std::vector<uint32_t> held_;  // tokens of the sequence
  bool stops_ = false;          // the library looks for stop strings
  uint32_t logprobs_ = 0;
};

}  // namespace mainarch::cli

#endif  // MAINARCH_CLI_WRITER_H_
