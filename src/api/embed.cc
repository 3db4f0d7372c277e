// SPDX-License-Identifier: MIT
#include "decode/embed.h"

#include <vector>

#include "absl/strings/str_join.h"
#include "api/call.h"
#include "api/engine_call.h"
#include "api/handles.h"
#include "api/options.h"
#include "file/checkpoint.h"
#include "model/pooling.h"

namespace mainarch::api {
namespace {

#define SAME_POOLING(code, name) \
  static_assert(static_cast<int32_t>(model::Pooling::code) == MAINARCH_POOLING_##name)
SAME_POOLING(kLast, LAST);
SAME_POOLING(kMean, MEAN);
SAME_POOLING(kFirst, FIRST);
#undef SAME_POOLING

StatusOr<model::PoolingConfig> PoolingOf(const model::Model& model) {
  return model::ReadPooling(model.checkpoint().directory());
}

Result GiveInfo(const mainarch_model* model, mainarch_embed_info* out) {
  RETURN_IF_ERROR(CheckHandle(model, "model"));
  RETURN_IF_ERROR(NotNull(out, "out"));
  ASSIGN_OR_RETURN(const model::PoolingConfig pooling, PoolingOf(*model->model));
  mainarch_embed_info info{};
  info.dimensions = static_cast<uint32_t>(model->model->config().hidden);
  info.pooling = static_cast<int32_t>(pooling.pooling);
  info.normalize = pooling.normalise ? 1 : 0;
  info.stated = pooling.stated ? 1 : 0;
  info.include_prompt = pooling.include_prompt ? 1 : 0;
  info.prompt_count = static_cast<uint32_t>(pooling.prompts.size());
  CopyName(pooling.default_prompt, info.default_prompt);
  RETURN_IF_ERROR(WriteInfo(info, out, "out"));
  return MAINARCH_OK;
}

StatusOr<std::string> PromptNamed(const model::PoolingConfig& pooling, absl::string_view directory,
                                  const char* name) {
  const absl::string_view wanted = name == nullptr ? absl::string_view(pooling.default_prompt) : name;
  if (name == nullptr && wanted.empty()) return std::string();
  for (const auto& [known, text] : pooling.prompts) {
    if (known == wanted) return text;
  }
  const std::string names = absl::StrJoin(
      pooling.prompts, ", ", [](std::string* out, const auto& prompt) { *out += prompt.first; });
  return Error(Code::kNotFound, directory, ": no prompt named \"", wanted, "\"; ",
               names.empty() ? "the checkpoint names none" : "there are: ", names);
}

// What the call asks for, and where it does not say, what the checkpoint says.
StatusOr<decode::EmbedOptions> ReadEmbedOptions(mainarch_engine* engine,
                                                const mainarch_embed_options* given) {
  ASSIGN_OR_RETURN(const mainarch_embed_options options, ReadOptions(given, "options"));
  constexpr uint64_t kBoth = MAINARCH_EMBED_NORMALIZE | MAINARCH_EMBED_RAW;
  RETURN_IF_ERROR(CheckFlags(options.flags, kBoth, "options"));
  RETURN_IF_ERROR(CheckReserved(options.reserved, "options.reserved"));
  if (options.flags == kBoth) {
    return Error(Code::kInvalidArgument, "options.flags: both MAINARCH_EMBED_NORMALIZE and MAINARCH_EMBED_RAW");
  }
  if (options.pooling < MAINARCH_POOLING_DEFAULT || options.pooling > MAINARCH_POOLING_FIRST) {
    return Error(Code::kInvalidArgument, "options.pooling ", options.pooling, " is not from ",
                 static_cast<int>(MAINARCH_POOLING_DEFAULT), " to ", static_cast<int>(MAINARCH_POOLING_FIRST));
  }
  if (!engine->pooling && (options.flags == 0 || options.pooling == MAINARCH_POOLING_DEFAULT)) {
    ASSIGN_OR_RETURN(engine->pooling, PoolingOf(*engine->model));
  }
  decode::EmbedOptions out;
  out.pooling = options.pooling == MAINARCH_POOLING_DEFAULT ? engine->pooling->pooling
                                                           : static_cast<model::Pooling>(options.pooling);
  out.normalise = options.flags == 0 ? engine->pooling->normalise : options.flags == MAINARCH_EMBED_NORMALIZE;
  out.dimensions = options.dimensions;
  out.skip = options.skip_tokens;
  out.prefix_salt = options.prefix_salt;
  return out;
}

// Each text's tokens: their ids are checked when they are appended, and here, where an index can be named.
StatusOr<std::vector<absl::Span<const uint32_t>>> TextsOf(const uint32_t* tokens, const size_t* lengths,
                                                          size_t count, uint32_t vocab) {
  std::vector<absl::Span<const uint32_t>> texts;
  texts.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(NotNullArray(tokens, lengths[i], "tokens"));
    for (size_t j = 0; j < lengths[i]; ++j) {
      if (tokens[j] < vocab) continue;
      return Error(Code::kInvalidArgument, "text ", i, ": token ", tokens[j], " at ", j,
                   " is outside the vocabulary of ", vocab);
    }
    texts.emplace_back(tokens, lengths[i]);
    if (lengths[i] > 0) tokens += lengths[i];
  }
  return texts;
}

}  // namespace
}  // namespace mainarch::api

using namespace mainarch;
using namespace mainarch::api;

extern "C" {

mainarch_status mainarch_model_embed_info_get(const mainarch_model* model, mainarch_embed_info* out,
                                              mainarch_error* error) {
  return Fence(error, [&] { return GiveInfo(model, out); });
}

mainarch_status mainarch_model_embed_prompt(const mainarch_model* model, const char* name, char* text,
                                            size_t capacity, size_t* length, mainarch_error* error) {
  return Fence(error, [&]() -> Result {
    RETURN_IF_ERROR(CheckBuffer(text, capacity, "text", length, "length"));
    RETURN_IF_ERROR(CheckHandle(model, "model"));
    ASSIGN_OR_RETURN(const model::PoolingConfig pooling, PoolingOf(*model->model));
    ASSIGN_OR_RETURN(const std::string prompt,
                     PromptNamed(pooling, model->model->checkpoint().directory(), name));
    return CopyText(prompt, text, capacity, length);
  });
}

mainarch_status mainarch_engine_embed(mainarch_engine* engine, const uint32_t* tokens,
                                      const size_t* lengths, size_t text_count,
                                      const mainarch_embed_options* options, float* vectors,
                                      size_t capacity, size_t* count, mainarch_error* error) {
  Clear(count);
  return EngineCall(engine, error, [&](decode::Engine& e) -> Result {
    RETURN_IF_ERROR(CheckBuffer(vectors, capacity, "vectors", count, "count"));
    RETURN_IF_ERROR(NotNullArray(lengths, text_count, "lengths"));
    ASSIGN_OR_RETURN(const decode::EmbedOptions read, ReadEmbedOptions(engine, options));
    const decode::EngineInfo info = e.info();
    ASSIGN_OR_RETURN(const uint32_t size, decode::VectorSize(info, read));
    ASSIGN_OR_RETURN(const auto texts, TextsOf(tokens, lengths, text_count, info.vocab));
    *count = text_count * size;
    RETURN_IF_ERROR(CheckCapacity(*count, capacity, "vectors"));
    *count = 0;
    RETURN_IF_ERROR(decode::Embed(&e, texts, read, vectors));
    *count = text_count * size;
    return MAINARCH_OK;
  });
}

}  // extern "C"
