// SPDX-License-Identifier: MIT
#include "cli/writer.h"

#include <algorithm>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "cli/stop_text.h"

namespace mainarch::cli {
namespace {

int32_t KvOf(const std::string& kv) {
  if (kv == "fp8") return MAINARCH_KV_FP8;
  return kv == "f32" ? MAINARCH_KV_F32 : MAINARCH_KV_BF16;
}

double SecondsSince(int64_t ns) { return static_cast<double>(NowNs() - ns) * 1e-9; }

}  // namespace

StatusOr<std::unique_ptr<Writer>> Writer::Open(const ModelOptions& options, bool device_given) {
  std::unique_ptr<Writer> writer(new Writer());
  mainarch_error error;
  auto group_options = Sized<mainarch_group_options>();
  group_options.threads = static_cast<uint32_t>(options.threads);
  mainarch_group* group;
  RETURN_IF_ERROR(FromAbi(mainarch_group_open(device_given ? options.device.c_str() : nullptr,
                                              &group_options, &group, &error),
                          error));
  writer->group_.reset(group);

  auto model_options = Sized<mainarch_model_options>();
  if (options.in_place) model_options.flags |= MAINARCH_MODEL_IN_PLACE;
  mainarch_model* model;
  RETURN_IF_ERROR(FromAbi(
      mainarch_model_open(group, options.model.c_str(), &model_options, &model, &error), error));
  writer->model_.reset(model);

  mainarch_tokenizer* tokenizer;
  RETURN_IF_ERROR(FromAbi(mainarch_tokenizer_from_model(model, &tokenizer, &error), error));
  writer->tokenizer_.reset(tokenizer);
  writer->info_ = Sized<mainarch_model_info>();
  RETURN_IF_ERROR(FromAbi(mainarch_model_info_get(model, &writer->info_, &error), error));
  return writer;
}

StatusOr<mainarch_sequence_options> Writer::RecommendedOptions() const {
  auto options = Sized<mainarch_sequence_options>();
  mainarch_error error;
  RETURN_IF_ERROR(FromAbi(mainarch_model_sequence_options(model_.get(), &options, &error), error));
  return options;
}

Status Writer::Start(const mainarch_sequence_options& options, uint32_t context,
                     std::vector<std::string> stops, bool show_special, const std::string& kv,
                     bool fast) {
  mainarch_error error;
  auto engine_options = Sized<mainarch_engine_options>();
  engine_options.max_sequence_tokens = context;
  engine_options.kv_type = KvOf(kv);
  if (fast) engine_options.flags |= MAINARCH_ENGINE_FAST;
  mainarch_engine* engine;
  RETURN_IF_ERROR(
      FromAbi(mainarch_engine_create(model_.get(), &engine_options, &engine, &error), error));
  engine_.reset(engine);
  RETURN_IF_ERROR(FromAbi(mainarch_sequence_open(engine, &options, &sequence_, &error), error));
  mainarch_decoder* decoder;
  RETURN_IF_ERROR(FromAbi(
      mainarch_decoder_create(tokenizer_.get(), show_special ? 0 : MAINARCH_DECODE_SKIP_SPECIAL,
                              &decoder, &error),
      error));
  decoder_.reset(decoder);
  stops_ = std::move(stops);
  logprobs_ = options.logprobs;
  return OkStatus();
}

Status Writer::SetPrompt(absl::Span<const uint32_t> tokens, uint64_t* fresh) {
  size_t same = 0;
  while (same < std::min(held_.size(), tokens.size()) && held_[same] == tokens[same]) ++same;
  // Something must be left to append: the step after it makes the logits.
  same = std::min(same, tokens.size() - 1);
  mainarch_error error;
  if (same < held_.size()) {
    RETURN_IF_ERROR(
        FromAbi(mainarch_sequence_truncate(engine_.get(), sequence_, same, &error), error));
  }
  *fresh = tokens.size() - same;
  held_.assign(tokens.begin(), tokens.end());
  return FromAbi(mainarch_sequence_append(engine_.get(), sequence_, tokens.data() + same,
                                          tokens.size() - same, &error),
                 error);
}

Status Writer::TakeLogprobs(size_t index, Written* out) {
  TokenLogprobs taken;
  taken.logprobs.resize(logprobs_ + 1);
  mainarch_error error;
  size_t count = 0;
  RETURN_IF_ERROR(
      FromAbi(mainarch_sequence_logprobs(engine_.get(), sequence_, index, taken.logprobs.data(),
                                         taken.logprobs.size(), &count, &error),
              error));
  taken.logprobs.resize(count);
  out->logprobs.push_back(std::move(taken));
  return OkStatus();
}

Status Writer::TakeTokens(Written* out) {
  uint32_t tokens[16];
  mainarch_error error;
  while (true) {
    size_t count = 0;
    const mainarch_status status =
        mainarch_sequence_take(engine_.get(), sequence_, tokens, std::size(tokens), &count, &error);
    RETURN_IF_ERROR(FromAbi(status, error));
    if (status == MAINARCH_AGAIN) return OkStatus();
    for (size_t i = 0; i < count; ++i) {
      out->tokens.push_back(tokens[i]);
      held_.push_back(tokens[i]);
      if (logprobs_ > 0) RETURN_IF_ERROR(TakeLogprobs(i, out));
    }
  }
}

StatusOr<std::string> Writer::FinishReason() const {
  auto info = Sized<mainarch_sequence_info>();
  mainarch_error error;
  RETURN_IF_ERROR(
      FromAbi(mainarch_sequence_info_get(engine_.get(), sequence_, &info, &error), error));
  switch (info.finish) {
    case MAINARCH_FINISH_END:
      return "end";
    case MAINARCH_FINISH_STOP_TOKEN:
    case MAINARCH_FINISH_STOP_SEQUENCE:
      return "stop";
    case MAINARCH_FINISH_MAX_TOKENS:
      return "max-tokens";
    case MAINARCH_FINISH_LENGTH:
      return "length";
    default:
      return "interrupted";
  }
}

StatusOr<Written> Writer::Write(absl::Span<const uint32_t> tokens,
                                const std::function<void(absl::string_view)>& sink) {
  Written out;
  if (tokens.empty()) return Error(Code::kInvalidArgument, "the prompt has no tokens");
  RETURN_IF_ERROR(SetPrompt(tokens, &out.prompt_tokens));
  StopText stop(stops_);
  const auto show = [&](const std::string& text) {
    if (text.empty()) return;
    out.text += text;
    sink(text);
  };
  const int64_t start = NowNs();
  int64_t first = start, last = start;
  size_t shown = 0;
  mainarch_error error;
  const InterruptHook cancel(InterruptHook::When::kAtOnce,
                             [this] { mainarch_engine_cancel(engine_.get()); });
  while (!Interrupted() && !stop.stopped()) {
    const mainarch_status status = mainarch_engine_step(engine_.get(), &error);
    if (status == MAINARCH_ERROR_CANCELLED) break;
    RETURN_IF_ERROR(FromAbi(status, error));
    if (status == MAINARCH_AGAIN) break;
    RETURN_IF_ERROR(TakeTokens(&out));
    if (out.tokens.empty()) continue;
    last = NowNs();
    if (shown == 0) first = last;
    for (; shown < out.tokens.size(); ++shown) {
      ASSIGN_OR_RETURN(const std::string text, Push(decoder_.get(), out.tokens[shown]));
      show(stop.Push(text));
    }
  }
  ASSIGN_OR_RETURN(const std::string rest, Finish(decoder_.get()));
  show(stop.Push(rest));
  out.finish = "stop";
  if (!stop.stopped()) {
    show(stop.Finish());
    ASSIGN_OR_RETURN(out.finish, FinishReason());
  }
  out.prompt_seconds = shown == 0 ? SecondsSince(start) : static_cast<double>(first - start) * 1e-9;
  out.decode_seconds = static_cast<double>(last - first) * 1e-9;
  return out;
}

}  // namespace mainarch::cli
