// SPDX-License-Identifier: MIT
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "api/call.h"
#include "api/engine_call.h"
#include "api/handles.h"
#include "api/options.h"
#include "decode/export.h"
#include "decode/stop_strings.h"

namespace mainarch::api {
namespace {

// Elements of one array of the options: far more than any vocabulary, far less than a wild number.
constexpr size_t kMaxElements = size_t{1} << 20;

Status CheckArray(const void* array, size_t count, absl::string_view name) {
  RETURN_IF_ERROR(NotNullArray(array, count, name));
  if (count <= kMaxElements) return OkStatus();
  return Error(Code::kInvalidArgument, name, " has ", count, " elements, and may have ",
               kMaxElements);
}

Status ReadStopSequences(const mainarch_sequence_options& options,
                         std::vector<std::vector<uint32_t>>* out) {
  const size_t count = options.stop_sequence_count;
  RETURN_IF_ERROR(
      CheckArray(options.stop_sequence_lengths, count, "options.stop_sequence_lengths"));
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t length = options.stop_sequence_lengths[i];
    RETURN_IF_ERROR(
        CheckArray(options.stop_sequence_tokens, begin + length, "options.stop_sequence_tokens"));
    if (length == 0) {
      return Error(Code::kInvalidArgument, "options.stop_sequence_lengths[", i, "] is 0");
    }
    const uint32_t* tokens = options.stop_sequence_tokens + begin;
    out->emplace_back(tokens, tokens + length);
    begin += length;
  }
  return OkStatus();
}

Status ReadArrays(const mainarch_sequence_options& options, decode::SequenceOptions* out) {
  RETURN_IF_ERROR(CheckArray(options.stop_tokens, options.stop_token_count, "options.stop_tokens"));
  out->stop_tokens.assign(options.stop_tokens, options.stop_tokens + options.stop_token_count);
  RETURN_IF_ERROR(ReadStopSequences(options, &out->stop_sequences));
  RETURN_IF_ERROR(CheckArray(options.logit_bias, options.logit_bias_count, "options.logit_bias"));
  for (size_t i = 0; i < options.logit_bias_count; ++i) {
    out->logit_bias.push_back({options.logit_bias[i].token, options.logit_bias[i].bias});
  }
  return OkStatus();
}

// The tokenizer given, or that of the model, which the engine then keeps.
Status ChooseStopTokenizer(mainarch_engine* engine, const mainarch_tokenizer* given,
                           decode::SequenceOptions* out) {
  if (given != nullptr) {
    RETURN_IF_ERROR(CheckOrigin(given->origin));
    out->stop_tokenizer = given->tokenizer;
    return OkStatus();
  }
  if (out->stop_strings.empty()) return OkStatus();
  if (engine->stop_tokenizer == nullptr) {
    ASSIGN_OR_RETURN(engine->stop_tokenizer, ReadTokenizer(*engine->model));
  }
  out->stop_tokenizer = engine->stop_tokenizer;
  return OkStatus();
}

Status ReadStopStrings(const mainarch_sequence_options& options, decode::SequenceOptions* out) {
  const size_t count = options.stop_string_count;
  RETURN_IF_ERROR(CheckArray(options.stop_strings, count, "options.stop_strings"));
  for (size_t i = 0; i < count; ++i) {
    const char* text = options.stop_strings[i];
    if (text == nullptr) {
      return Error(Code::kInvalidArgument, "options.stop_strings[", i, "] is NULL");
    }
    // What is longer than any stop string may be is refused by its length, and read no further.
    out->stop_strings.emplace_back(text, strnlen(text, decode::kMaxStopBytes + 1));
  }
  return OkStatus();
}

StatusOr<decode::SequenceOptions> ReadSequenceOptions(mainarch_engine* engine,
                                                      const mainarch_sequence_options* given) {
  ASSIGN_OR_RETURN(const mainarch_sequence_options options, ReadOptions(given, "options"));
  RETURN_IF_ERROR(CheckFlags(
      options.flags,
      MAINARCH_SEQUENCE_MANUAL | MAINARCH_SEQUENCE_IGNORE_END | MAINARCH_SEQUENCE_STOP_SPECIAL |
          MAINARCH_SEQUENCE_ALL_LOGITS,
      "options"));
  RETURN_IF_ERROR(CheckReserved(options.reserved, "options.reserved"));
  decode::SequenceOptions out;
  out.manual = (options.flags & MAINARCH_SEQUENCE_MANUAL) != 0;
  out.ignore_eos = (options.flags & MAINARCH_SEQUENCE_IGNORE_END) != 0;
  out.stop_special = (options.flags & MAINARCH_SEQUENCE_STOP_SPECIAL) != 0;
  out.all_logits = (options.flags & MAINARCH_SEQUENCE_ALL_LOGITS) != 0;
  out.prompt_logprobs = options.prompt_logprobs;
  out.prefix_salt = options.prefix_salt;
  out.seed = options.seed;
  out.temperature = options.temperature;
  out.top_p = options.top_p;
  out.min_p = options.min_p;
  out.top_k = options.top_k;
  out.repetition_penalty = options.repetition_penalty;
  out.frequency_penalty = options.frequency_penalty;
  out.presence_penalty = options.presence_penalty;
  out.logprobs = options.logprobs;
  out.min_tokens = options.min_tokens;
  out.max_tokens = options.max_tokens;
  RETURN_IF_ERROR(ReadArrays(options, &out));
  RETURN_IF_ERROR(ReadStopStrings(options, &out));
  RETURN_IF_ERROR(ChooseStopTokenizer(engine, options.stop_tokenizer, &out));
  return out;
}

#define SAME_FINISH(code, name) \
  static_assert(static_cast<uint32_t>(decode::Finish::code) == MAINARCH_FINISH_##name)
SAME_FINISH(kNone, NONE);
SAME_FINISH(kEos, END);
SAME_FINISH(kStopToken, STOP_TOKEN);
SAME_FINISH(kStopSequence, STOP_SEQUENCE);
SAME_FINISH(kMaxTokens, MAX_TOKENS);
SAME_FINISH(kLength, LENGTH);
SAME_FINISH(kFault, FAULT);
SAME_FINISH(kStopString, STOP_STRING);
#undef SAME_FINISH

Result Done(const Status& status) {
  RETURN_IF_ERROR(status);
  return MAINARCH_OK;
}

Result GiveOut(const StatusOr<decode::SequenceId>& id, mainarch_sequence* out) {
  RETURN_IF_ERROR(id.status());
  *out = *id;
  return MAINARCH_OK;
}

Result Take(decode::Engine& engine, mainarch_sequence sequence, uint32_t* tokens, size_t capacity,
            size_t* count) {
  if (capacity == 0) {
    ASSIGN_OR_RETURN(const decode::SequenceInfo info, engine.InfoOf(sequence));
    *count = info.untaken;
    if (info.untaken == 0) return MAINARCH_AGAIN;
    return CheckCapacity(info.untaken, 0, "tokens");
  }
  ASSIGN_OR_RETURN(*count, engine.Take(sequence, {tokens, capacity}));
  return *count == 0 ? MAINARCH_AGAIN : MAINARCH_OK;
}

Result CopyLogprobs(absl::Span<const decode::Logprob> logprobs, mainarch_logprob* out,
                    size_t capacity, size_t* count) {
  *count = logprobs.size();
  RETURN_IF_ERROR(CheckCapacity(logprobs.size(), capacity, "logprobs"));
  for (size_t i = 0; i < logprobs.size(); ++i) {
    out[i] = {logprobs[i].token, logprobs[i].logprob};
  }
  return MAINARCH_OK;
}

mainarch_sequence_info PublicInfo(const decode::SequenceInfo& from) {
  mainarch_sequence_info info{};
  info.position = from.position;
  info.tokens = from.tokens;
  info.pending = from.pending;
  info.produced = from.produced;
  info.untaken = from.untaken;
  info.finish = static_cast<uint32_t>(from.finish);
  info.text_bytes = from.text_bytes;
  info.logit_position = from.logit_position;
  info.logit_rows = from.logit_rows;
  return info;
}

}  // namespace
}  // namespace mainarch::api

using namespace mainarch;
using namespace mainarch::api;

extern "C" {

mainarch_status mainarch_sequence_open(mainarch_engine* engine,
                                       const mainarch_sequence_options* options,
                                       mainarch_sequence* out, mainarch_error* error) {
  Clear(out);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(NotNull(out, "out"));
    ASSIGN_OR_RETURN(const decode::SequenceOptions read,
                     ReadSequenceOptions(engine, options));
    return GiveOut(e.Open(read), out);
  });
}

mainarch_status mainarch_sequence_close(mainarch_engine* engine, mainarch_sequence sequence,
                                        mainarch_error* error) {
  return EngineCall(engine, error, [&](decode::Engine& e) { return Done(e.Close(sequence)); });
}

mainarch_status mainarch_sequence_fork(mainarch_engine* engine, mainarch_sequence from,
                                       mainarch_sequence* out, mainarch_error* error) {
  Clear(out);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(NotNull(out, "out"));
    return GiveOut(e.Fork(from), out);
  });
}

mainarch_status mainarch_sequence_set_seed(mainarch_engine* engine, mainarch_sequence sequence,
                                           uint64_t seed, mainarch_error* error) {
  return EngineCall(engine, error,
                    [&](decode::Engine& e) { return Done(e.SetSeed(sequence, seed)); });
}

mainarch_status mainarch_sequence_set_options(mainarch_engine* engine, mainarch_sequence sequence,
                                              const mainarch_sequence_options* options,
                                              mainarch_error* error) {
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    ASSIGN_OR_RETURN(const decode::SequenceOptions read,
                     ReadSequenceOptions(engine, options));
    return Done(e.SetOptions(sequence, read));
  });
}

mainarch_status mainarch_sequence_set_mask(mainarch_engine* engine, mainarch_sequence sequence,
                                           const uint32_t* words, size_t word_count,
                                           mainarch_error* error) {
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(NotNullArray(words, word_count, "words"));
    return Done(e.SetMask(sequence, {words, word_count}));
  });
}

mainarch_status mainarch_sequence_export(mainarch_engine* engine, mainarch_sequence sequence,
                                         void* bytes, size_t capacity, size_t* count,
                                         mainarch_error* error) {
  return mainarch_sequence_export_with(engine, sequence, 0, bytes, capacity, count, error);
}

mainarch_status mainarch_sequence_export_with(mainarch_engine* engine, mainarch_sequence sequence,
                                              uint64_t flags, void* bytes, size_t capacity,
                                              size_t* count, mainarch_error* error) {
  Clear(count);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(CheckBuffer(bytes, capacity, "bytes", count, "count"));
    RETURN_IF_ERROR(CheckFlags(flags, MAINARCH_EXPORT_KV, "flags"));
    ASSIGN_OR_RETURN(const decode::SequenceState state,
                     e.Save(sequence, (flags & MAINARCH_EXPORT_KV) != 0));
    const std::string made = decode::WriteState(state, e.info().fingerprint);
    return CopyArray<char>(made, static_cast<char*>(bytes), capacity, count, "bytes");
  });
}

mainarch_status mainarch_sequence_import(mainarch_engine* engine, const void* bytes, size_t size,
                                         mainarch_sequence* out, mainarch_error* error) {
  Clear(out);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(NotNull(out, "out"));
    RETURN_IF_ERROR(NotNullArray(bytes, size, "bytes"));
    const decode::EngineInfo info = e.info();
    ASSIGN_OR_RETURN(decode::SequenceState state,
                     decode::ReadState({static_cast<const char*>(bytes), size}, info.fingerprint,
                                       info.vocab));
    RETURN_IF_ERROR(ChooseStopTokenizer(engine, nullptr, &state.options));
    return GiveOut(e.Restore(state), out);
  });
}

mainarch_status mainarch_engine_ready(mainarch_engine* engine, mainarch_sequence* sequences,
                                      size_t capacity, size_t* count, mainarch_error* error) {
  Clear(count);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(CheckBuffer(sequences, capacity, "sequences", count, "count"));
    ASSIGN_OR_RETURN(*count, e.Ready({sequences, capacity}));
    RETURN_IF_ERROR(CheckCapacity(*count, capacity, "sequences"));
    return MAINARCH_OK;
  });
}

mainarch_status mainarch_sequence_truncate(mainarch_engine* engine, mainarch_sequence sequence,
                                           uint64_t position, mainarch_error* error) {
  return EngineCall(engine, error,
                    [&](decode::Engine& e) { return Done(e.Truncate(sequence, position)); });
}

mainarch_status mainarch_sequence_append(mainarch_engine* engine, mainarch_sequence sequence,
                                         const uint32_t* tokens, size_t token_count,
                                         mainarch_error* error) {
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(NotNullArray(tokens, token_count, "tokens"));
    return Done(e.Append(sequence, {tokens, token_count}));
  });
}

mainarch_status mainarch_sequence_take(mainarch_engine* engine, mainarch_sequence sequence,
                                       uint32_t* tokens, size_t capacity, size_t* count,
                                       mainarch_error* error) {
  Clear(count);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(CheckBuffer(tokens, capacity, "tokens", count, "count"));
    return Take(e, sequence, tokens, capacity, count);
  });
}

mainarch_status mainarch_sequence_logprobs(mainarch_engine* engine, mainarch_sequence sequence,
                                           size_t index, mainarch_logprob* logprobs,
                                           size_t capacity, size_t* count, mainarch_error* error) {
  Clear(count);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(CheckBuffer(logprobs, capacity, "logprobs", count, "count"));
    ASSIGN_OR_RETURN(const auto taken, e.TakenLogprobs(sequence, index));
    return CopyLogprobs(taken, logprobs, capacity, count);
  });
}

mainarch_status mainarch_sequence_prompt_logprobs(mainarch_engine* engine,
                                                  mainarch_sequence sequence, uint64_t position,
                                                  mainarch_logprob* logprobs, size_t capacity,
                                                  size_t* count, mainarch_error* error) {
  Clear(count);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(CheckBuffer(logprobs, capacity, "logprobs", count, "count"));
    ASSIGN_OR_RETURN(const auto scored, e.PromptLogprobs(sequence, position));
    return CopyLogprobs(scored, logprobs, capacity, count);
  });
}

mainarch_status mainarch_sequence_logits(mainarch_engine* engine, mainarch_sequence sequence,
                                         float* logits, size_t capacity, size_t* count,
                                         mainarch_error* error) {
  Clear(count);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(CheckBuffer(logits, capacity, "logits", count, "count"));
    ASSIGN_OR_RETURN(const auto values, e.Logits(sequence));
    return CopyArray<float>(values, logits, capacity, count, "logits");
  });
}

mainarch_status mainarch_sequence_logits_at(mainarch_engine* engine, mainarch_sequence sequence,
                                            uint64_t position, float* logits, size_t capacity,
                                            size_t* count, mainarch_error* error) {
  Clear(count);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(CheckBuffer(logits, capacity, "logits", count, "count"));
    ASSIGN_OR_RETURN(const auto values, e.LogitsAt(sequence, position));
    return CopyArray<float>(values, logits, capacity, count, "logits");
  });
}

mainarch_status mainarch_sequence_info_get(mainarch_engine* engine, mainarch_sequence sequence,
                                           mainarch_sequence_info* out, mainarch_error* error) {
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(NotNull(out, "out"));
    ASSIGN_OR_RETURN(const decode::SequenceInfo info, e.InfoOf(sequence));
    RETURN_IF_ERROR(WriteInfo(PublicInfo(info), out, "out"));
    return MAINARCH_OK;
  });
}

}  // extern "C"
